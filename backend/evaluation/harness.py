"""Whether a length adapter costs a model what it knows: multiple choice with and without the countdown (000 fig. 4).

    python -m backend evaluate harness --method ldpe --data FOLDER
    python -m backend evaluate harness --method ldpe --task mmlu --task hellaswag

Runs through lm-evaluation-harness (`pip install -r requirements-dev.txt`). Its own tasks come from the hub; the task
'summaries' is made of FOLDER/scitldr_test.jsonl: of four one-sentence summaries, which is that of the abstract?
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from lm_eval import simple_evaluate
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM

from backend import adapters, jsonlines
from backend.evaluation.machine import provenance
from backend.models import Loaded, Models
from backend.settings import Method
from backend.signals import SignalContext, SignalSettings, attach, signalling
from backend.training.data import SUMMARISE

SUMMARIES = "summaries"
CHOICES = 4


class SignalledLM(HFLM):
    """The harness's model, each continuation read under a signal whose target is its length; None: no signal."""

    def __init__(self, loaded: Loaded, signal: SignalSettings | None) -> None:
        # Continuations of one token would share logits made for other targets.
        super().__init__(
            pretrained=loaded.model, tokenizer=loaded.tokenizer, device=str(loaded.model.device), logits_cache=False
        )
        self.signal = signal
        attach(loaded.model)

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, override_bs=None) -> list[tuple[float, bool]]:
        return [self._read(context, continuation) for _, context, continuation in requests]

    @torch.inference_mode()
    def _read(self, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
        """Log-likelihood of a continuation, and whether it is what greedy decoding would write."""
        context = context[-(self.max_length - len(continuation)) :]
        ids = torch.tensor([*context, *continuation][:-1], device=self.device)[None]
        if self.signal is None:
            logits = self.model(ids, use_cache=False).logits
        else:
            with signalling(SignalContext(self.signal, [len(context)], [len(continuation)])):
                logits = self.model(ids, use_cache=False).logits
        rows = torch.log_softmax(logits[0, -len(continuation) :].float(), -1)
        wanted = torch.tensor(continuation, device=rows.device)
        return float(rows.gather(-1, wanted[:, None]).sum()), bool((rows.argmax(-1) == wanted).all())


def summaries(folder: Path, count: int, scratch: Path) -> ConfigurableTask:
    """The task 'summaries' over `count` abstracts; writes its documents to `scratch`."""
    rows = jsonlines.read(folder / "scitldr_test.jsonl", "abstract", "tldr")[:count]
    if len(rows) < CHOICES:
        raise ValueError(f"{folder / 'scitldr_test.jsonl'} has {len(rows)} rows: give at least {CHOICES}")
    order, documents = random.Random(0), []
    for row in rows:
        others = order.sample([other["tldr"] for other in rows if other is not row], CHOICES - 1)
        place = order.randrange(CHOICES)
        documents.append(
            {"query": SUMMARISE + row["abstract"], "choices": [*others[:place], row["tldr"], *others[place:]]}
            | {"gold": place}
        )
    scratch.write_text("\n".join(map(json.dumps, documents)))
    return ConfigurableTask(
        config={
            "task": SUMMARIES,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(scratch)}},
            "test_split": "test",
            "output_type": "multiple_choice",
            "doc_to_text": "{{query}}",
            "doc_to_choice": "choices",
            "doc_to_target": "gold",
            "target_delimiter": "",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        }
    )


def evaluate(
    models: Models, model: str, method: Method, tasks: Sequence[Any], limit: int | None, report: Callable[[str], None]
) -> dict[str, Any]:
    """Accuracies of the untouched model, of the adapter without its signal and with it. ValueError without adapter."""
    if reason := adapters.available(model)[method]:
        raise ValueError(reason)
    adapter = adapters.find(method, model)
    if adapter is None or adapter.settings is None:
        raise ValueError(f"{method} has no signal: choose a method that has one")
    plain, tuned = models.load(model), models.load(model, "bf16", adapter.path)
    cases = {
        "the model itself": SignalledLM(plain, None),
        f"{method}, no countdown": SignalledLM(tuned, None),
        f"{method}, countdown": SignalledLM(tuned, adapter.settings),
    }
    rows = []
    for name, case in cases.items():
        found = simple_evaluate(case, tasks=list(tasks), limit=limit, apply_chat_template=True, bootstrap_iters=0)
        assert found is not None
        for task, measures in found["results"].items():
            kept = {key.split(",")[0]: round(v, 4) for key, v in measures.items() if isinstance(v, float)}
            rows.append({"model": name, "task": task, "documents": found["n-samples"][task]["effective"], **kept})
            report(json.dumps(rows[-1]))
    return provenance(seed=0) | {"method": method, "accuracy": rows}
