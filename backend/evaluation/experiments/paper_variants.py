"""The ways in which the lab departs from 000, beside the paper's own, each pair trained on one equal budget.

    python -m backend evaluate paper_variants --data ../shared/data/responses.jsonl

A signal scaled by the whole table against one scaled by each prompt (eq. 5),
both from the base model; Max New Tokens++ with shifts rounded up against the nearest number (eq. 7), both from the
lab's ORPE adapter. A trial of minutes: it tells the variants apart, not how good either can become.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from backend.engine import Lab
from backend.evaluation.card import Card
from backend.evaluation.experiment import Experiment, ModelFlags, Result, Results, Say
from backend.evaluation.markdown import estimate, table
from backend.inference.precision import precision
from backend.inference.side_by_side import side_by_side
from backend.inference.signal import constant, prompt_norms
from backend.measures.bootstrap import Bounded, bounded
from backend.models import adapters
from backend.models.adapters import Adapter
from backend.models.pool import Loaded, Models, allowed
from backend.settings import Method, RunSettings, Watch
from backend.splits import prompts
from backend.sweep import finished
from backend.text.prompt import token_ids
from backend.training.budget import budgets
from backend.training.data import corpus, samples
from backend.training.settings import TrainSettings
from backend.training.train import train

TARGETS = (10, 20, 30)
CAP = 80
COMMON: dict[str, Any] = {"longest": 40, "longest_prompt": 76, "curriculum": "even"}
LIMITS: dict[str, Any] = {"mnt_sigma": 16.0, "mnt_most": 64}
# The lab's own way and the paper's: names, method, settings.
PAIRS: dict[str, tuple[Method, dict[str, dict[str, Any]]]] = {
    "scale": ("orpe", {"table": {"gain": 1.0}, "sequence": {"gain": 1.0, "scale": "sequence"}}),
    "shift": ("mnt_orpe", {"up": LIMITS, "nearest": LIMITS | {"mnt_nearest": True}}),
}


def ratio(loaded: Loaded, asked: Sequence[str]) -> dict[str, float]:
    """How many times eq. 5's strength the whole table's is, over prompts."""
    table = loaded.model.get_input_embeddings().weight
    ids = [token_ids(RunSettings(prompt=text), loaded.tokenizer) for text in asked]
    norms = prompt_norms("sequence", table, ids)
    assert norms is not None
    found = constant(table, 1.0) / (constant(table, 1.0, "sequence") * norms)
    return {"mean": float(found.mean()), "least": float(found.min()), "most": float(found.max())}


def lengths(models: Models, model: str, adapter: Adapter, asked: Sequence[str]) -> np.ndarray:
    """Tokens of the answers [prompts, TARGETS] of a model with an adapter, greedy; CAP + 1 where the cap cut one."""
    lab = Lab(models, adapter)

    def tokens(case: tuple[str, int]) -> int:
        prompt, target = case
        settings = RunSettings(
            prompt=prompt, method=adapter.method, target=target, limit=target, max_new_tokens=CAP, model=model,
            precision=precision(), watch=Watch(enabled=False),
        )  # fmt: skip
        finish = finished(lab, settings)
        return finish.tokens if finish.reason == "eos" else CAP + 1

    cases = [(prompt, target) for prompt in asked for target in TARGETS]
    return np.array([*side_by_side(tokens, cases)]).reshape(len(asked), len(TARGETS))


def errors(pair: str, found: np.ndarray) -> dict[str, np.ndarray]:
    """What is measured of each prompt, by name: means over its answers."""
    off = found - np.array(TARGETS)
    shared = {"ended": (found <= CAP).mean(1), "over": (off > 0).mean(1)}
    return shared | ({"error": abs(off).mean(1)} if pair == "scale" else {"below": np.maximum(0, -off).mean(1)})


def _means(values: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: bounded(np.mean, each).keys("mean") for name, each in values.items()}


def measure(
    files: Sequence[Path], asked: Sequence[str], count: int, seed: int, start: str | None, model: str = "embedded"
) -> dict[str, Any]:
    """Train both of each pair on `count` samples of the same texts, and ask them for answers of TARGETS.

    start: adapter that Max New Tokens++ goes on from.
    """

    def fresh() -> Models:
        return Models(allowed(more=[model]))

    loaded = fresh().load(model, precision())
    given = samples(corpus(files), loaded.tokenizer, COMMON["longest_prompt"], COMMON["longest"])
    result: dict[str, Any] = {"prompts": len(asked), "targets": TARGETS, "cap": CAP}
    result["table_over_sequence"] = ratio(loaded, asked)
    for pair, (method, variants) in PAIRS.items():
        rows, each = {}, []
        for name, changes in variants.items():
            with tempfile.TemporaryDirectory() as scratch:
                before = start if pair == "shift" else None
                settings = TrainSettings(method, model, count, seed=seed, start=before, **{**COMMON, **changes})
                adapter = train(fresh().load(model, precision()), given, settings, Path(scratch) / name)
                each.append(errors(pair, lengths(fresh(), model, adapter, asked)))
                rows[name] = {"settings": asdict(settings), "budget": asdict(budgets(adapter.path)[0])}
            rows[name] |= _means(each[-1])
        own, papers = each
        result[pair] = rows | {"paper less own": _means({key: papers[key] - own[key] for key in own})}
    return result


class PaperVariants(Experiment):
    name = "paper_variants"
    title = "Ways in which the lab departs from 000"
    question = "What would 000's own ways change in an adapter's lengths?"
    paper = "000 eq. 5 and eq. 7"
    order = 96
    files = ("paper_variants.json",)

    class Options(ModelFlags):
        data: tuple[Path, ...] = Field(description="texts to train on")
        samples: int = Field(400, ge=1, description="responses to train each on")
        seed: int = 0

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        asked = [prompt.text for prompt in prompts("validation", kinds=["questions", "stories"])]
        start = str(adapters.ROOT / "orpe")
        yield measure(options.data, asked, options.samples, options.seed, start, options.model)

    def card(self, results: Results) -> Card:
        (result,) = results.values()
        rows = []
        for pair in PAIRS:
            for name, found in result[pair]["paper less own"].items():
                gain = Bounded.of(found, "mean")
                apart = "distinguished" if gain.differs(0) else "not distinguished"
                rows.append([f"{pair}: {name}", estimate(gain, result["prompts"], "prompts"), apart])
        return Card(table(["paper's way less the lab's", "mean (95 %)", ""], rows))
