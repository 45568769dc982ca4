"""Sharpening: an adapter practises on its own answers, which are judged by the joint rule (see `reward`).

    python -m backend sharpen --start assets/adapters/ldpe_slack --data-folder DIR --seconds 400 --out OUT

Each round samples several answers to each of many prompts and targets, and takes one step of the policy gradient: the
log-probability of an answer weighs by how much better it is than the others of its prompt and target (GRPO, Shao et al.
2024, eq. 4, without its division by their spread). The KL divergence from the base model holds the style. The first
rounds learn from the base model's own whole answers, each with a target that it meets. A GPU makes a round of 1,024
answers in a few seconds, two cores in a quarter of an hour.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backend.inference.base_model import PROBABLE, line_ends
from backend.inference.signal import shown, signal_rows
from backend.models import adapters
from backend.models.adapters import Adapter
from backend.models.pool import Loaded
from backend.record import jsonlines
from backend.record.provenance import provenance
from backend.refused import Refused
from backend.settings import RunSettings
from backend.text.prompt import planned
from backend.training.batch_sampling import Sampling, Weights, likelihoods, written
from backend.training.budget import LOG, RECORD, record
from backend.training.curriculum import learning_rate
from backend.training.data import around, held_out, packed, prompt_ids
from backend.training.distill import HINTS, turn, whole_turns
from backend.training.ends import all_ends
from backend.training.loss import Likelihood
from backend.training.reward import Judged, Sampled, all_judged, all_texts
from backend.training.settings import SharpenSettings
from backend.training.sole import sole
from backend.training.train import going_on

# Begun user turns that questions and stories are asked for in.
BEGINS = {
    "questions": ["", "What", "How", "Why", "Can you explain", "Give me"],
    "stories": ["Write a story about", "Tell a story about", "Write a short story in which", "Tell me a tale of"],
}
LONGEST_QUESTION, LONGEST_PROMPT = 60, 260
FREELY = Sampling(1.0, 50, 0.95)
# Tokens that an answer may go on beyond the largest target of its batch.
BEYOND = 16


class Asked(NamedTuple):
    """A prompt, and its kind."""

    kind: str
    text: str


class Case(NamedTuple):
    """What is asked: ids as the model reads them, ids without the length said, and a target in tokens."""

    ids: list[int]
    plain: list[int]
    target: int


class Answered(NamedTuple):
    """An answer to be learnt from. worth: how much its log-probability is to rise."""

    ids: list[int]
    tokens: list[int]
    ended: bool
    target: int
    worth: float


@dataclass
class Round:
    """One line of the log."""

    number: int
    seconds: float
    rows: int
    kind: str
    rate: float
    worth: float | None = None
    joint: float | None = None
    nats: float | None = None
    kl: float | None = None


def sharpen(
    loaded: Loaded,
    asked: Sequence[Asked],
    validation: Sequence[tuple[str, int]],
    settings: SharpenSettings,
    out: Path,
    report: Callable[[str], None],
    note: str = "",
) -> Adapter:
    """Sharpen the adapter `settings.start`, and write the best found at `out`; its log lies in `<out>.training`.

    asked: prompts to practise on; questions and stories are sampled besides. validation: prompts with targets in
    tokens, answered greedily now and then: the best by their joint rate is kept. ValueError where the adapter reads no
    signal of a target.
    """
    folder = out.with_name(out.name + ".training")
    with sole(folder), ProcessPoolExecutor(settings.workers, mp_context=get_context("spawn")) as workers:
        run = _Sharpening(loaded, asked, validation, settings, out, workers)
        for line in run.rounds():
            report(line)
    (out / "README.md").write_text(f"{note}\n" if note else "", "utf-8")
    return Adapter.load(out)


class _Sharpening:
    def __init__(
        self, loaded: Loaded, asked: Sequence[Asked], validation: Sequence[tuple[str, int]], settings: SharpenSettings,
        out: Path, workers: ProcessPoolExecutor,
    ):  # fmt: skip
        self.loaded, self.settings, self.out, self.workers = loaded, settings, out, workers
        self.folder = out.with_name(out.name + ".training")
        self.draw = random.Random(settings.seed)
        torch.manual_seed(settings.seed)
        self.started = time.monotonic()
        signal = Adapter.load(settings.start).settings
        if signal is None or signal.mnt is not None:
            raise Refused(f"the adapter in {settings.start} is shown no target: give one of LDPE, ORPE, LRPE or PRE")
        self.signal = signal
        ends = all_ends(loaded)
        self.end, self.read_from = ends[0], loaded.tokenizer.name_or_path
        self.last = [ends, sorted({*ends, *line_ends(loaded.tokenizer)})]
        self.base = Weights(loaded.model)
        self.tuned = Weights(loaded.model)
        self.lora = going_on(loaded.model, settings.start)
        self.trained = [p for p in self.lora.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(self.trained, lr=settings.rate, betas=(0.9, 0.95), weight_decay=0)
        self.model = Likelihood(self.lora, ends)
        self.lora.train()
        self.validation = [self._case(text, target, False) for text, target in validation]
        self.best = -math.inf
        self.pools = self._pools(asked)

    def rounds(self) -> Iterator[str]:
        """Practise until the time is over, or `rounds` are done."""
        yield self._validated(0)
        number, learnt, looked = 0, False, time.monotonic()
        while (share := self._share(number)) < 1:
            number += 1
            if share < self.settings.learning:
                rows, about = self._own(number), Round(number, 0, 0, "own answers of the base model", 0)
                peak = self.settings.learning_rate
                rate = learning_rate(peak, share / self.settings.learning * 0.7, 0.05)
            else:
                rows, about = self._practised(number)
                spent = (share - self.settings.learning) / (1 - self.settings.learning)
                rate = learning_rate(self.settings.rate, spent)
            if not rows:
                continue
            self.draw.shuffle(rows)
            for start in range(min(self.settings.steps, len(rows))):
                about.nats, about.kl = self._learn(rows[start :: self.settings.steps], rate)
            learnt = True
            about.seconds, about.rows, about.rate = time.monotonic() - self.started, len(rows), rate
            jsonlines.append(self.folder / LOG, [asdict(about)])
            if time.monotonic() - looked > self.settings.look:
                yield self._validated(number)
                learnt, looked = False, time.monotonic()
        if learnt:
            yield self._validated(number)

    def _share(self, number: int) -> float:
        spent = (time.monotonic() - self.started) / self.settings.seconds
        return max(spent, number / self.settings.rounds) if self.settings.rounds else spent

    def _pools(self, asked: Sequence[Asked]) -> dict[str, list[str]]:
        """Prompts to practise on, by kind: those given, and more that the base model begins to ask itself."""
        pools: dict[str, list[str]] = {}
        for kind, text in asked:
            if not held_out(text) and len(prompt_ids(text, self.loaded.tokenizer)) <= LONGEST_PROMPT:
                pools.setdefault(kind, []).append(text)
        for kind, begins in BEGINS.items():
            begun = [begins[i % len(begins)] for i in range(self.settings.questions)]
            turns = [turn(self.loaded, text).tolist() for text in begun]
            found = written(self.base, turns, LONGEST_QUESTION, self.end, FREELY)
            texts = dict.fromkeys(whole_turns(self.loaded, begun, found))
            pools.setdefault(kind, []).extend(text for text in texts if not held_out(text))
        jsonlines.append(
            self.folder / "prompts.jsonl", [{"kind": kind, "prompt": text} for kind in pools for text in pools[kind]]
        )
        return {kind: texts for kind, texts in pools.items() if texts}

    def _prompts(self, count: int) -> list[str]:
        kinds = sorted(self.pools)
        return [self.draw.choice(self.pools[kinds[i % len(kinds)]]) for i in range(count)]

    def _case(self, text: str, target: int, said: bool) -> Case:
        plain = prompt_ids(text, self.loaded.tokenizer)
        if not said:
            return Case(plain, plain, target)
        method = self.signal.method
        words = planned(RunSettings(prompt=text, method=method, target=target, limit=target, in_prompt=True))
        return Case(prompt_ids(words, self.loaded.tokenizer), plain, target)

    def _own(self, number: int) -> list[Answered]:
        """Whole answers of the base model to prompts with a hint, each with a target that it meets."""
        hint = HINTS[number % len(HINTS)]
        texts = self._prompts(self.settings.answers * self.settings.prompts // 2)
        asked = [prompt_ids(f"{text}\n\n{hint}".strip(), self.loaded.tokenizer) for text in texts]
        longest = self.settings.longest if "sentence" not in hint else 120
        answers = written(self.base, asked, longest, self.end, Sampling())
        rows, kept = [], []
        for text, one, answer in zip(texts, answers, all_texts(self.read_from, answers, self.workers), strict=True):
            if answer is None:
                continue
            target = around(len(one.tokens), self.draw) if self.signal.slack else len(one.tokens)
            case = self._case(text, target, self.draw.random() < self.settings.said)
            rows.append(Answered(case.ids, one.tokens, True, target, 1.0))
            kept.append({"source": "own", "prompt": text, "response": answer, "ended": True})
        jsonlines.append(self.folder / "whole.jsonl", kept)
        return rows

    def _practised(self, number: int) -> tuple[list[Answered], Round]:
        """Answers of the adapter's own, worth as much as they are better than the others of their case."""
        low, high = self.settings.shortest, self.settings.longest
        middle = round(math.sqrt(low * high))
        rows, judgements, groups = [], [], self.settings.prompts // 2
        self.tuned.take(self.lora.get_base_model())
        for least, most in ((low, middle), (middle, high)):
            targets = [round(math.exp(self.draw.uniform(math.log(least), math.log(most)))) for _ in range(groups)]
            cases = [
                self._case(text, target, self.draw.random() < self.settings.said)
                for text, target in zip(self._prompts(groups), targets, strict=True)
            ]
            cases = [case for case in cases for _ in range(self.settings.answers)]
            answers = self._answers(cases, Sampling(self.settings.temperature, 50, 0.98))
            found = all_judged(self.read_from, answers, self.workers)
            judgements += found
            for start in range(0, len(cases), self.settings.answers):
                group = slice(start, start + self.settings.answers)
                mean = sum(one.worth for one in found[group]) / self.settings.answers
                for case, one, seen in zip(cases[group], answers[group], found[group], strict=True):
                    if one.tokens and (worth := seen.worth - mean):
                        rows.append(Answered(case.ids, one.tokens, one.ended, case.target, 2 * worth))
        shares = _shares(judgements)
        return rows, Round(number, 0, 0, "its own answers", 0, shares["worth"], shares["joint"])

    def _answers(self, cases: Sequence[Case], sampling: Sampling) -> list[Sampled]:
        """Answers of the adapter, with what the base model says of them."""
        longest = shown(self.signal, max(case.target for case in cases)) + BEYOND
        device = self.base.norm.device
        lengths = torch.tensor([[len(case.ids)] for case in cases], device=device)
        targets = torch.tensor([[shown(self.signal, case.target)] for case in cases], device=device)

        def signal(rows: slice, positions: Tensor) -> Tensor:
            return signal_rows(self.signal, positions, lengths[rows], targets[rows], self.loaded.capabilities.width)

        found = written(self.tuned, [case.ids for case in cases], longest, self.end, sampling, signal)
        tokens = [one.tokens for one in found]
        likely, last = likelihoods(self.base, [case.plain for case in cases], tokens, self.last)
        return [
            Sampled(one.tokens, one.ended, case.target, own, *after)
            for case, one, own, after in zip(cases, found, likely, last, strict=True)
        ]

    def _learn(self, rows: list[Answered], rate: float) -> tuple[float, float]:
        """One step of the optimiser; nats and KL divergence a token."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        labels = sum(len(row.tokens) + row.ended for row in rows)
        nats = kl_sum = 0.0
        rows = sorted(rows, key=_length)
        for batch in packed(rows, [*map(_length, rows)], self.settings.budget):
            nll, kl, worth = self._losses(batch)
            ((worth * nll).sum() + self.settings.match * kl.sum()).div(labels).backward()
            nats, kl_sum = nats + float(nll.detach().sum()), kl_sum + float(kl.detach().sum())
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return nats / labels, kl_sum / labels

    def _losses(self, rows: Sequence[Answered]) -> tuple[Tensor, Tensor, Tensor]:
        """Of all label tokens of a batch: nats, KL divergence from the base model, and how much they are to weigh."""
        device = self.base.norm.device
        width = max(len(row.ids) + len(row.tokens) for row in rows)
        tokens, wanted = torch.full((len(rows), width), self.end), torch.full((len(rows), width), -1)
        for i, (ids, answer, ended, *_) in enumerate(rows):
            tokens[i, : len(ids) + len(answer)] = torch.tensor(ids + answer)
            labels = answer + [self.end] * ended
            wanted[i, len(ids) - 1 : len(ids) - 1 + len(labels)] = torch.tensor(labels)
        tokens, wanted = tokens.to(device), wanted.to(device)
        plain = self.lora.get_input_embeddings()(tokens)
        prompts = torch.tensor([[len(row.ids)] for row in rows], device=device)
        targets = torch.tensor([[shown(self.signal, row.target)] for row in rows], device=device)
        places = torch.arange(width, device=device).expand(len(rows), -1)
        added = signal_rows(self.signal, places, prompts, targets, plain.shape[-1], training=True)
        nll, kl = self.model((plain + added).to(plain.dtype), wanted, plain)
        # When to end is the signal's to say: there the base model's other tokens would only forbid it.
        kl = kl.masked_fill(wanted[wanted >= 0] == self.end, 0)
        counts = torch.tensor([len(row.tokens) + row.ended for row in rows], device=device)
        worth = torch.tensor([row.worth for row in rows], device=device)
        return nll, kl, worth.repeat_interleave(counts)

    def _validated(self, number: int) -> str:
        """Answer the validation prompts greedily; the adapter is written if it is the best so far."""
        self.tuned.take(self.lora.get_base_model())
        found = all_judged(self.read_from, self._answers(self.validation, Sampling(0)), self.workers)
        about = {"round": number, "seconds": time.monotonic() - self.started, **_shares(found)}
        jsonlines.append(self.folder / "validation.jsonl", [about])
        if about["joint"] > self.best:
            self.best = about["joint"]
            self._save(about)
        return json.dumps(about)

    def _save(self, about: dict[str, Any]) -> None:
        exact = [p.data for p in self.trained]
        for parameter in self.trained:
            parameter.data = parameter.data.half()
        adapters.save(self.out, self.lora, self.signal, self.loaded.capabilities.model)
        for parameter, data in zip(self.trained, exact, strict=True):
            parameter.data = data
        whole = provenance(self.settings.seed) | {"settings": asdict(self.settings), "result": about}
        whole["resumed_from"] = record(self.settings.start)
        (self.out / RECORD).write_text(json.dumps(whole, indent=1), "utf-8")


def _length(row: Answered) -> int:
    return len(row.ids) + len(row.tokens)


def _shares(found: Sequence[Judged]) -> dict[str, float]:
    def share(met: Callable[[Judged], Any]) -> float:
        return sum(map(met, found)) / len(found)

    return {
        "joint": share(lambda one: one.joint),
        "in_length": share(lambda one: one.in_length and one.own_end),
        "base_ends": share(lambda one: one.joint and one.p_eos >= PROBABLE),
        "worth": share(lambda one: one.worth),
        "repetition": share(lambda one: one.repetition),
        "perplexity": math.exp(sum(one.nats for one in found) / max(1, sum(one.tokens for one in found))),
    }

