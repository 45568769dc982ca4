"""What breaks far into a text, and what Λ leaves whole (002 §3, figure 1).

    python -m backend evaluate attention_diagnostics --data FOLDER

Of the first text, under plain attention and under Λ: attention logits of one head
in every layer by perceived distance, for its last token, and the attention entropy of every layer against the tokens
read. Of all texts, under plain attention: the first layer's outputs in the plane of their two principal components.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from pydantic import Field

from backend.engine import Lab
from backend.evaluation.card import Axis, Card, Curve, Figure
from backend.evaluation.experiment import Experiment, Result, Results, Row, Say
from backend.evaluation.markdown import figure, table
from backend.evaluation.texts import LAMBDA, PLAIN, WINDOW, TextFlags
from backend.inference.chunks import CHUNK
from backend.inference.probes import Probe
from backend.measures.principal_components import components
from backend.positions import policy_of
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import RunSettings

POLICIES: dict[str, dict[str, Any]] = {PLAIN: {}, LAMBDA: {"window": WINDOW}}
# Positions whose first-layer output is kept: the first ones each, since that is where 002 sees them lie apart.
FIRST, LATER = 16, 64


def positions(length: int) -> list[int]:
    """Ascending places of a text whose first-layer outputs are looked at: the first FIRST, then ever more seldom.

    length: more than FIRST tokens.
    """
    later = np.geomspace(FIRST, length - 1, LATER).round().astype(int)
    return sorted({*range(FIRST), *later.tolist()})


def reading(lab: Lab, settings: RunSettings, ids: torch.Tensor, head: int) -> tuple[dict[str, Any], np.ndarray]:
    """What reading ids [n] showed, and first-layer outputs [k, width] at `positions(n)`.

    logits: by layer, distance, mean, lowest and highest logit of each bin. entropy: at each of `position` tokens read,
    by layer, the mean over heads in nats; attended: keys seen there.
    """
    runner = lab.runner(settings)
    cache, probe = runner.cache(policy_of(settings), len(ids)), runner.probe(settings.watch)
    wanted, states = positions(len(ids)), []
    found: dict[str, Any] = {"position": [], "attended": [], "entropy": []}
    for chunk in ids.split(CHUNK):
        first = cache.length
        runner.read(chunk, cache, probe)
        entropy, attended = probe.prefilled()
        found["position"].append(cache.length)
        found["attended"].append(int(attended[-1]))
        found["entropy"].append(entropy[-1].mean(-1).round(3).tolist())
        if rows := [place - first for place in wanted if first <= place < cache.length]:
            states.append(probe.states(rows))
    found["logits"] = [_logits(probe, cache, layer, head) for layer in range(probe.layers)]
    return found, np.concatenate(states)


def _logits(probe: Probe, cache: Any, layer: int, head: int) -> dict[str, Any]:
    seen = probe.logits(cache, layer, head)
    columns = {name: getattr(seen, name).round(2).tolist() for name in ("distance", "mean", "low", "high")}
    return {"layer": layer, "head": seen.head} | columns


def plane(states: Mapping[str, np.ndarray], length: int) -> dict[str, Any]:
    """One PCA over first-layer outputs [k, width] of several texts at `positions(length)`.

    explained: shares of the variance; texts: each one's positions and its two coordinates.
    """
    found = components(np.concatenate(list(states.values())))
    texts = [
        {"document": name, "position": positions(length), "x": x.round(3).tolist(), "y": y.round(3).tolist()}
        for name, (x, y) in ((name, found.transform(mine).T) for name, mine in states.items())
    ]
    return {"explained": found.explained_variance_ratio_.round(4).tolist(), "texts": texts}


class AttentionDiagnostics(Experiment):
    name = "attention_diagnostics"
    title = "What breaks far into a text"
    question = "What breaks inside a model far into a text, and what does Λ leave whole?"
    paper = "002 figure 1"
    order = 95
    files = ("diagnoses.json",)
    recipe = ("backend evaluate attention_diagnostics --data {data}/novels {more}",)

    class Options(TextFlags):
        documents: int = Field(3, ge=1, description="texts of the folder to read")
        length: int = Field(16384, ge=64, description="tokens of each text")
        head: int = Field(0, ge=0, description="whose logits are kept, of every layer")

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        lab, length = options.lab(), options.length
        ids = options.ids(lab, length)
        long = {name: mine for name, mine in ids.items() if len(mine) == length}
        if not long:
            raise Refused(f"no text has {length:,} tokens: give longer ones, or a smaller --length")
        trained = lab.models.load(options.model).capabilities.training_length
        about = {"model": options.model, "trained": trained, "length": length, "window": WINDOW}
        readings: list[dict[str, Any]] = []
        states: dict[str, np.ndarray] = {}
        for name, mine in long.items():
            for policy in POLICIES if not states else [PLAIN]:
                settings = RunSettings(prompt="-", model=options.model, **POLICIES[policy])
                found, seen = reading(lab, settings, mine, options.head)
                if policy == PLAIN:
                    states[name] = seen
                if len(states) == 1:
                    readings.append({"document": name, "policy": policy} | found)
                say(f"{name} {policy}: {length:,} tokens read")
            yield about | {"readings": readings, "states": plane(states, length)}
        say(counted("states", "texts", len(ids), len(long), f"shorter than {length:,} tokens"))

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        rows = [
            [
                reading["policy"],
                f"{reading['position'][-1]:,}",
                "{} to {}".format(*(figure(round(end)) for end in _ends(reading["logits"]))),
                f"{fmean(reading['entropy'][-1]):.2f} of {math.log(reading['attended'][-1]):.2f}",
            ]
            for reading in result["readings"]
        ]
        words = (
            f"Texts of {result['length']:,} tokens (002 figure 1): logits and entropy of one, states of "
            f"{len(result['states']['texts'])}. So few texts have no interval: they show what happens in them, and no "
            "difference is claimed."
        )
        columns = ["policy", "tokens read", "logits of one head, all layers", "entropy of its ceiling, nats"]
        plain = [each["logits"] for each in result["readings"] if each["policy"] == PLAIN and each["logits"]]
        drawn = [_logits_figure(logits, result.get("trained")) for logits in plain[:1]]
        drawn += [_states_figure(result), _entropy_figure(result["readings"])]
        return Card(f"{words}\n\n{table(columns, rows)}", drawn)


def _ends(logits: Sequence[Row]) -> tuple[float, float]:
    """The lowest and the highest logit of all layers."""
    return min(min(row["low"]) for row in logits), max(max(row["high"]) for row in logits)


def _logits_figure(logits: Sequence[Row], trained: int | None) -> Figure:
    farthest = max(max(row["distance"]) for row in logits)
    ticks = {0.5: "0"} | {10.0**k: f"{10**k:,}" for k in range(int(math.log10(farthest)) + 1)}
    drawn = [
        # The distance 0 has its place at 0.5.
        Curve(
            f"layer {row['layer']}", [max(at, 0.5) for at in row["distance"]], row["mean"],
            depth=row["layer"] / max(1, len(logits) - 1),
        )
        for row in logits
    ]  # fmt: skip
    return Figure(
        f"Logits of head {logits[0]['head']}, every layer",
        "Plain attention, the last token's; one line a layer (002 figure 1a)",
        Axis("perceived distance in tokens", log=True, ticks=ticks, ends=(0.4, 1.6 * farthest)),
        Axis("logit"),
        drawn,
        "The logits of {} layers lie between {:,.0f} and {:,.0f}.".format(len(logits), *_ends(logits)),
        ("layer", "nearest", "farthest", "lowest", "highest"),
        [[row["layer"], row["mean"][0], row["mean"][-1], min(row["low"]), max(row["high"])] for row in logits],
        mark=(trained, f"trained {trained:,}") if trained else None,
    )


def _entropy_figure(readings: Sequence[Row]) -> Figure:
    drawn, rows = [], []
    for reading in readings:
        name, at = reading["policy"], reading["position"]
        mean = np.mean(reading["entropy"], 1).round(3).tolist()
        ceiling = np.log(reading["attended"]).round(3).tolist()
        drawn += [Curve(name, at, mean), Curve(f"{name}: ceiling", at, ceiling, ceiling=True)]
        rows.append([name, at[-1], mean[-1], ceiling[-1]])
    return Figure(
        "Attention entropy",
        "Mean over layers and heads, under ln(attended) (002 figure 1b)",
        Axis("position in the text"),
        Axis("nats", zero=True),
        drawn,
        "At the end: " + "; ".join(f"{name} {mean} nats of at most {top}" for name, _, mean, top in rows) + ".",
        ("policy", "tokens", "mean entropy", "ceiling"),
        rows,
    )


def _states_figure(result: Result) -> Figure:
    first, second = result["states"]["explained"]
    texts = result["states"]["texts"]
    # A scale that gives the first tokens, which lie apart, colours of their own.
    shade = {place: math.log10(1 + place) for text in texts for place in text["position"]}
    marks = [0, *(10**n for n in range(1, 1 + int(math.log10(1 + result["length"]))))]
    return Figure(
        "First-layer states",
        "Coloured by position in the text (002 figure 1c)",
        Axis(f"first component, {first:.0%} of the variance"),
        Axis(f"second, {second:.0%}"),
        [
            Curve(text["document"], text["x"], text["y"], "markers", shades=[shade[at] for at in text["position"]])
            for text in texts
        ],
        f"One PCA over {len(texts)} texts; its components hold {first:.0%} and {second:.0%} of the variance.",
        ("text", "states", "first token: x", "y", "last token: x", "y"),
        [
            [text["document"], len(text["x"]), *(float(f"{text[axis][at]:.4g}") for at in (0, -1) for axis in "xy")]
            for text in texts
        ],
        scale={math.log10(1 + mark): f"{mark:,}" for mark in marks},
    )
