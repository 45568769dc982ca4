"""What breaks far into a text, and what Λ leaves whole (002 §3, figure 1).

    python -m backend evaluate diagnoses --data FOLDER

Writes assets/results/diagnoses.json. Of the first text, under plain attention and under Λ: attention logits of one head
in every layer by perceived distance, for its last token, and the attention entropy of every layer against the tokens
read. Of all texts, under plain attention: the first layer's outputs in the plane of their two principal components.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from backend.engine import Lab
from backend.evaluation.fluency import WINDOW
from backend.evaluation.perplexity import tokenise
from backend.inference.chunks import CHUNK
from backend.inference.probes import Probe
from backend.measures.principal_components import components
from backend.positions import policy_of
from backend.record.provenance import provenance
from backend.record.results import counted
from backend.refused import Refused
from backend.settings import RunSettings

PLAIN = "plain"
POLICIES: dict[str, dict[str, Any]] = {PLAIN: {}, "Λ": {"window": WINDOW}}
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


def evaluate(
    lab: Lab, model: str, texts: Mapping[str, str], length: int, head: int, report: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """The result document after each reading, the last one whole. Texts shorter than `length` tokens are left out.

    ValueError where none is long enough.
    """
    ids = {name: tokenise(lab, text, RunSettings(prompt="-", model=model), length) for name, text in texts.items()}
    long = {name: mine for name, mine in ids.items() if len(mine) == length}
    if not long:
        raise Refused(f"no text has {length:,} tokens: give longer ones, or a smaller --length")
    trained = lab.models.load(model).capabilities.training_length
    about = provenance(seed=0) | {"model": model, "trained": trained, "length": length, "window": WINDOW}
    readings: list[dict[str, Any]] = []
    states: dict[str, np.ndarray] = {}
    for name, mine in long.items():
        for policy in POLICIES if not states else [PLAIN]:
            found, seen = reading(lab, RunSettings(prompt="-", model=model, **POLICIES[policy]), mine, head)
            if policy == PLAIN:
                states[name] = seen
            if len(states) == 1:
                readings.append({"document": name, "policy": policy} | found)
            report(f"{name} {policy}: {length:,} tokens read")
        yield about | {"readings": readings, "states": plane(states, length)}
    report(counted("states", "texts", len(texts), len(long), f"shorter than {length:,} tokens"))
