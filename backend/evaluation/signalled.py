"""lm-evaluation-harness on a model whose continuations are read under a signal or a position policy.

Its own tasks come from the hub; 'summaries' is made of scitldr_dev.jsonl and scitldr_test.jsonl, less what
scitldr_train.jsonl has too: of four one-sentence summaries, which is that of the abstract?
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM

from backend.inference.embedding import SignalContext
from backend.inference.kv_cache import FramedCache
from backend.inference.model_runner import runner
from backend.inference.signal import prompt_norms
from backend.methods.signal import SignalSettings
from backend.models import adapters
from backend.models.adapters import Adapter
from backend.models.pool import Loaded, Models
from backend.positions import Plain, PositionPolicy
from backend.record import jsonlines
from backend.refused import Refused
from backend.settings import Method
from backend.splits import SUMMARISE

SUMMARIES, SETS, TRAINED = "summaries", ("scitldr_test.jsonl", "scitldr_dev.jsonl"), "scitldr_train.jsonl"
CHOICES = 4


class SignalledLM(HFLM):
    """The harness's model, each continuation read under a signal whose target is its length (None: no signal), and
    under a position policy."""

    def __init__(self, loaded: Loaded, signal: SignalSettings | None, policy: PositionPolicy | None = None) -> None:
        # Continuations of one token would share logits made for other targets.
        super().__init__(
            pretrained=loaded.model, tokenizer=loaded.tokenizer, device=str(loaded.model.device), logits_cache=False
        )
        self.signal, self.policy = signal, policy or Plain()
        self.runner = runner(loaded)
        self._kept: tuple[Sequence[int], FramedCache, torch.Tensor] | None = None

    def _loglikelihood_tokens(
        self, requests: Sequence[Any], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        return [self._read(context, continuation) for _, context, continuation in requests]

    @torch.inference_mode()
    def _read(self, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
        """Log-likelihood of a continuation, and whether it is what greedy decoding would write."""
        context = context[-(self.max_length - len(continuation)) :]
        signal = self._signalled(context, len(continuation)) if self.signal else None
        cache, first = self._after(context, signal)
        rows, rest = [first[None]], torch.tensor(continuation[:-1])
        if len(rest):
            rows.append(self.runner.read(rest, cache, signal=signal, every_row=True))
        chances = torch.log_softmax(torch.cat(rows), -1)
        wanted = torch.tensor(continuation, device=chances.device)
        return float(chances.gather(-1, wanted[:, None]).sum()), bool((chances.argmax(-1) == wanted).all())

    def _signalled(self, context: Sequence[int], target: int) -> SignalContext:
        assert self.signal is not None
        table = self.runner.model.get_input_embeddings().weight
        norms = prompt_norms(self.signal.scale, table, [torch.tensor(context)])
        return SignalContext(self.signal, [len(context)], [target], norms=norms)

    def _after(self, context: Sequence[int], signal: SignalContext | None) -> tuple[FramedCache, torch.Tensor]:
        """A cache that holds the context, and the logits after it. Without a signal, which shows in the prompt what
        target it has, a question is read once for all its choices."""
        if signal is not None:
            return self._prompted(context, signal)
        if self._kept is None or self._kept[0] != context:
            self._kept = context, *self._prompted(context, None)
        _, cache, logits = self._kept
        return copy.deepcopy(cache), logits

    def _prompted(self, context: Sequence[int], signal: SignalContext | None) -> tuple[FramedCache, torch.Tensor]:
        cache = self.runner.cache(self.policy, len(context))
        return cache, self.runner.read(torch.tensor(context), cache, signal=signal)


def summaries(folder: Path, count: int | None, scratch: Path) -> ConfigurableTask:
    """The task 'summaries' over `count` abstracts, or all; writes its documents to `scratch`."""
    known = [row for name in SETS for row in jsonlines.read(folder / name, "abstract", "tldr")]
    trained = jsonlines.read(folder / TRAINED, "abstract", "tldr") if (folder / TRAINED).exists() else []
    seen = {row[part] for row in trained for part in ("abstract", "tldr")}
    # Some abstracts share a summary: another's would be right too.
    fresh = {row["tldr"]: row for row in known if not {row["abstract"], row["tldr"]} & seen}
    rows = [*fresh.values()][:count]
    if len(rows) < CHOICES:
        raise Refused(f"{folder} has {len(rows)} abstracts in {' and '.join(SETS)}: give at least {CHOICES}")
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
            "fewshot_split": "test",
            "output_type": "multiple_choice",
            "doc_to_text": "{{query}}",
            "doc_to_choice": "choices",
            "doc_to_target": "gold",
            "target_delimiter": "",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        }
    )


def tuned(method: Method, model: str) -> Adapter:
    """The adapter of a method that has a signal or position ids of its own; ValueError for another."""
    adapter = adapters.required(method, model)
    if adapter is None or (adapter.settings is None and adapter.longform is None):
        raise Refused(f"{method} has neither a signal nor position ids of its own: choose a method that has")
    return adapter


class Subject(NamedTuple):
    """A model to ask: the base model, or one with the adapter of `path`."""

    name: str
    path: Path | None = None
    signal: SignalSettings | None = None
    policy: PositionPolicy = Plain()

    def load(self, models: Models, model: str) -> SignalledLM:
        return SignalledLM(models.load(model, "bf16", self.path), self.signal, self.policy)


def subjects(tuned: Iterable[Adapter]) -> Iterator[Subject]:
    """The base model, and each adapter without and with what it was trained with: its signal, or its position ids."""
    yield Subject("the model itself")
    for adapter in tuned:
        method, long, own = adapter.method, adapter.longform, partial(Subject, path=adapter.path)
        if long is None:
            yield own(f"{method}, no countdown")
            yield own(f"{method}, countdown", signal=adapter.settings)
            continue
        yield own(f"{method}, read plainly")
        if long.policy != Plain():
            yield own(f"{method}, read as trained", policy=long.policy)
