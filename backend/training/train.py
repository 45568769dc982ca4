"""Fine-tuning a LoRA to read a length signal (000 §3–4): one loop for every method and any causal LM.

    python -m backend train --method ldpe --data corpus.jsonl --out assets/adapters/ldpe
    accelerate launch -m backend train --method pre --model Qwen/Qwen3-8B --load-in-4bit --data corpus.jsonl --out …

The loss is taken on response tokens and EOS, the head applied to these alone. A run that was stopped goes on
from its last checkpoint and ends as if it had not been; with another number of samples it becomes longer or shorter.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from backend.inference.attach import attach
from backend.inference.attention import framed
from backend.inference.signal import constant, prompt_norms, shown, signal_rows
from backend.methods import methods
from backend.methods.shifts import shifts, sigma
from backend.methods.signal import SignalMethod, SignalSettings
from backend.models import adapters
from backend.models.adapters import Adapter
from backend.models.pool import Loaded
from backend.record import jsonlines
from backend.record.provenance import provenance
from backend.refused import Refused
from backend.settings import RunSettings
from backend.text.prompt import asked, planned
from backend.training.budget import LOG, RECORD, Budget, record
from backend.training.card import card
from backend.training.curriculum import learning_rate, stage
from backend.training.data import Row, Sample, batches, prompt_ids
from backend.training.ends import all_ends
from backend.training.loss import Likelihood, last_of_row
from backend.training.segments import Segmented
from backend.training.settings import TrainSettings
from backend.training.sole import sole

CHECKPOINT = "checkpoint.pt"
CHECKPOINT_SECONDS = 60
Rows = list[Row]


@dataclass
class Losses:
    """Sums over label tokens: nats of EOS tokens and of other tokens, and how many of each."""

    end: float = 0.0
    text: float = 0.0
    ends: int = 0
    texts: int = 0

    def add(self, nll: Tensor, is_end: Tensor) -> None:
        self.end += float(nll[is_end].sum())
        self.text += float(nll[~is_end].sum())
        self.ends += int(is_end.sum())
        self.texts += int((~is_end).sum())

    def means(self) -> dict[str, float]:
        return {"loss_end": self.end / max(1, self.ends), "loss_text": self.text / max(1, self.texts)}


@dataclass
class Progress:
    """Where a run is: optimiser steps done, samples and label tokens seen, seconds spent."""

    step: int = 0
    samples: int = 0
    labels: int = 0
    seconds: float = 0.0


def train(
    loaded: Loaded,
    samples: Sequence[Sample],
    settings: TrainSettings,
    out: Path,
    report: Callable[[str], None] = print,
    sources: Mapping[str, int] | None = None,
    note: str = "",
) -> Adapter:
    """Train, and write the adapter at `out`; its log and checkpoint lie in `<out>.training` meanwhile.

    samples: from `data.samples`. report: called with a line now and then. sources, note: of the texts, for the model
    card. ValueError where no sample fits, or where another training writes there.
    """
    folder = out.with_name(out.name + ".training")
    with sole(folder):
        run = _Run(loaded, samples, settings, folder)
        for line in run.steps():
            if run.accelerator.is_main_process:
                report(line)
        if run.accelerator.is_main_process:
            adapter = run.save(out)
            (out / "README.md").write_text(card(adapter, sources or {}, note))
        run.accelerator.wait_for_everyone()
    return Adapter.load(out)


class _Run:
    def __init__(self, loaded: Loaded, samples: Sequence[Sample], settings: TrainSettings, folder: Path):
        if not samples:
            raise Refused(
                "no training sample fits: give more data, raise --longest and --longest-prompt, or lower --shortest"
            )
        from accelerate import Accelerator

        folder.mkdir(parents=True, exist_ok=True)
        self.loaded, self.samples, self.settings, self.folder = loaded, samples, settings, folder
        self.accelerator = Accelerator()
        torch.manual_seed(settings.seed)
        self.longform = settings.longform
        if self.longform is not None:
            attach(loaded.model)
        elif loaded.model.device.type == "cpu":
            # Over a few hundred tokens the fused attention takes five times as long backwards.
            loaded.model.set_attn_implementation("eager")
        self.lora = _lora(loaded, settings)
        self.optimiser = torch.optim.AdamW(
            [p for p in self.lora.parameters() if p.requires_grad],
            lr=settings.rate,
            betas=settings.betas,
            weight_decay=0,
        )
        ends = all_ends(loaded)
        self.end = ends[0]
        self.model, self.optimiser = self.accelerator.prepare(Likelihood(self.lora, ends), self.optimiser)
        self.signal = _signal(loaded, settings, min(sample.cuts[0] for sample in samples))
        self.progress = Progress()
        self.start = Adapter.load(settings.start).sha256 if settings.start else ""
        self.texts: set[str] | None = set()
        self.data = hashlib.sha256(f"{self.start}{samples}".encode()).hexdigest()
        if (folder / CHECKPOINT).exists():
            self._restore()

    def steps(self) -> Iterator[str]:
        """Train to the end; a line of progress now and then."""
        started, seen, last = time.monotonic() - self.progress.seconds, Losses(), time.monotonic()
        kept = last
        self.model.train()
        for group in islice(self._groups(), self.progress.step, None):
            if self.progress.samples >= self.settings.samples:
                break
            rate = self._step(group, seen)
            self.progress.seconds = time.monotonic() - started
            if time.monotonic() - last > 20:
                yield self._log(seen, rate)
                seen, last = Losses(), time.monotonic()
            # By time: a step over long texts takes most of a minute, one over short answers a third of a second.
            if time.monotonic() - kept > CHECKPOINT_SECONDS:
                self._checkpoint()
                kept = time.monotonic()
        if seen.texts:
            yield self._log(seen, 0.0)
        self._checkpoint()

    def save(self, out: Path) -> Adapter:
        """Write the adapter, its training log and settings beside it."""
        for parameter in self.lora.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.half()
        adapter = adapters.save(
            out, self.lora, self.signal, self.settings.model, self.longform, self.settings.method
        )
        (out / RECORD).write_text(json.dumps(self._about(), indent=1))
        shutil.copy(self.folder / LOG, out / LOG)
        return adapter

    def _about(self) -> dict[str, Any]:
        """What training.json tells: command, machine, settings, result, budget, and every training before this one."""
        progress = self.progress
        given = Budget.of(progress.labels, progress.samples, self.texts, self.start)
        about = provenance(self.settings.seed) | {"settings": asdict(self.settings), "result": asdict(progress)}
        about["budget"] = asdict(given)
        if self.settings.start:
            about["resumed_from"] = record(self.settings.start)
        return about

    def _groups(self) -> Iterator[list[Rows]]:
        """The batches of each optimiser step, of all processes; the same in every run with these settings."""
        settings, drawn, epoch = self.settings, 0, 0
        workers = self.accelerator.num_processes
        size = settings.accumulate * workers
        while True:
            order = random.Random(f"{settings.seed} {epoch}")
            now = stage(settings.stages, drawn / settings.samples)
            budget = settings.budget if self.longform is None else 1
            found = batches(
                self.samples, now.longest, budget, order, now.anywhere, now.whole, self._prompt, settings.slack
            )
            if not found[0]:
                raise Refused(f"no response has a sentence end within {now.longest} tokens: give other data")
            # Every process must take part in each step with as many batches as the others.
            found = found * workers if len(found) < workers else found[: len(found) - len(found) % workers]
            for start in range(0, len(found), size):
                group = found[start : start + size]
                drawn += sum(map(len, group))
                yield group
                if stage(settings.stages, drawn / settings.samples) != now:
                    break
            epoch += 1

    def _prompt(self, sample: Sample, length: int) -> tuple[int, ...]:
        """Ids of the prompt, with the length where it is to be said; the text decides that, in every process alike."""
        method = self.settings.method
        words = asked(method, sample.text, length, "tokens")
        if int(sample.fingerprint, 16) / 16**16 < self.settings.said:
            words = planned(RunSettings(prompt=sample.text, method=method, target=length, limit=length, in_prompt=True))
        return sample.prompt if words == sample.text else tuple(prompt_ids(words, self.loaded.tokenizer))

    def _step(self, group: list[Rows], seen: Losses) -> float:
        settings, progress = self.settings, self.progress
        share = min(1.0, progress.samples / settings.samples)
        rate = learning_rate(settings.rate, share)
        weight = stage(settings.stages, share).end_weight
        for parameters in self.optimiser.param_groups:
            parameters["lr"] = rate
        labels = sum(len(row.response) + 1 for rows in group for row in rows)
        workers, me = self.accelerator.num_processes, self.accelerator.process_index
        # Anew at each step: a run that goes on draws as one that never stopped, on every device, each process its own.
        torch.manual_seed(int.from_bytes(hashlib.sha256(f"{settings.seed} {progress.step} {me}".encode()).digest()[:7]))
        for rows in group[me::workers]:
            nll, kl, is_end = self._nll(rows, share)
            seen.add(nll.detach(), is_end)
            text = (1 - settings.match) * nll + settings.match * kl
            # The mean over processes, which follows, makes a sum of this.
            self.accelerator.backward(workers * torch.where(is_end, weight * nll, text).sum() / labels)
        self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        progress.step += 1
        progress.samples += sum(map(len, group))
        if self.texts is not None:
            self.texts.update(row.text for rows in group for row in rows)
        progress.labels += labels
        return rate

    def _nll(self, rows: Rows, share: float) -> tuple[Tensor, Tensor, Tensor]:
        """Of all label tokens of a batch: nats [k], KL divergence from the base model [k], which are EOS tokens."""
        width = max(len(row.prompt) + len(row.response) for row in rows)
        tokens = torch.full((len(rows), width), self.end)
        wanted = torch.full((len(rows), width), -1)
        for i, (prompt, response, *_) in enumerate(rows):
            whole = torch.tensor(prompt + response)
            tokens[i, : len(whole)] = whole
            wanted[i, len(prompt) - 1 : len(whole)] = torch.tensor((*response, self.end))
        tokens, wanted = tokens.to(self.accelerator.device), wanted.to(self.accelerator.device)
        embeds = plain = self.lora.get_input_embeddings()(tokens)
        if self.signal is not None:
            embeds = (embeds + self._rows(rows, width, share).to(embeds.device)).to(embeds.dtype)
        with self._positions():
            nll, kl = self.model(embeds, wanted, plain if self.settings.match else None)
        return nll, kl, last_of_row(wanted >= 0)

    def _positions(self) -> AbstractContextManager[None]:
        """The attention that PIC-SFT trains with; the model's own for every other method."""
        if self.longform is None:
            return nullcontext()
        policy = self.longform.policy
        rope = policy.rope(self.loaded.model.config)
        return framed(Segmented(policy, rope, self.settings.segment))

    def _rows(self, rows: Rows, width: int, share: float) -> Tensor:
        """The length signal [b, width, d] as training shows it, with counts shifted for MNT++."""
        assert self.signal is not None
        prompts = torch.tensor([len(row.prompt) for row in rows])[:, None]
        targets = torch.tensor([shown(self.signal, row.target or len(row.response)) for row in rows])[:, None]
        if self.signal.mnt is not None:
            scale, most = sigma(round(share * 10_000), 10_000, self.signal.mnt), self.signal.mnt.shift_max
            leads = torch.tensor([most if row.lead is None else min(most, row.lead) for row in rows])
            targets = targets + shifts(scale, leads, nearest=self.signal.mnt.nearest)[:, None]
        places, size = torch.arange(width)[None].expand(len(rows), -1), self.loaded.capabilities.width
        table = self.lora.get_input_embeddings().weight
        norms = prompt_norms(self.signal.scale, table, [torch.tensor(row.prompt) for row in rows])
        return signal_rows(self.signal, places, prompts, targets, size, norms, training=True)

    def _log(self, seen: Losses, rate: float) -> str:
        progress = self.progress
        row = asdict(progress) | seen.means() | {"rate": rate}
        if self.accelerator.is_main_process:
            jsonlines.append(self.folder / LOG, [row])
        return (
            f"step {progress.step} · {progress.samples:,} of {self.settings.samples:,} samples · "
            f"{progress.labels / max(progress.seconds, 1e-9):.0f} label tokens/s · "
            f"loss of the end {row['loss_end']:.3f}, of the text {row['loss_text']:.3f} · {progress.seconds:.0f} s"
        )

    def _checkpoint(self) -> None:
        if not self.accelerator.is_main_process:
            return
        state = {
            "settings": asdict(self.settings),
            "progress": asdict(self.progress),
            "data": self.data,
            "texts": None if self.texts is None else sorted(self.texts),
            "lora": {name: p.detach().cpu() for name, p in self.lora.named_parameters() if p.requires_grad},
            "optimiser": self.optimiser.state_dict(),
        }
        torch.save(state, self.folder / "checkpoint.new")
        (self.folder / "checkpoint.new").replace(self.folder / CHECKPOINT)

    def _restore(self) -> None:
        state = torch.load(self.folder / CHECKPOINT, map_location="cpu", weights_only=True)
        kept = {field.name: field.default for field in fields(TrainSettings) if field.name != "samples"}
        before = kept | state["settings"]
        changed = {name for name in kept if before[name] != getattr(self.settings, name)}
        if state["data"] != self.data:
            changed.add("texts" if not self.settings.start else "texts or --start")
        if changed:
            raise Refused(
                f"{self.folder} holds a run with other settings ({', '.join(sorted(changed))}): "
                "give the same, or another --out, or delete that folder"
            )
        parameters = dict(self.lora.named_parameters())
        for name, stored in state["lora"].items():
            parameters[name].data.copy_(stored)
        self.optimiser.load_state_dict(state["optimiser"])
        self.progress = Progress(**state["progress"])
        # A run that began before its texts were counted cannot tell them.
        self.texts = None if state.get("texts") is None else set(state["texts"])
        if self.accelerator.is_main_process:
            self._forget()

    def _forget(self) -> None:
        """Drop from the log what the stopped run did after its checkpoint: it is done again."""
        log = self.folder / LOG
        kept = [row for row in (jsonlines.read(log) if log.exists() else []) if row["step"] <= self.progress.step]
        log.unlink(missing_ok=True)
        jsonlines.append(log, kept)


def _signal(loaded: Loaded, settings: TrainSettings, shortest: int) -> SignalSettings | None:
    method = methods[settings.method]
    if not isinstance(method, SignalMethod):
        return None
    table = loaded.model.get_input_embeddings().weight
    return SignalSettings(
        kind=method.kind,
        gain=settings.gain,
        constant=constant(table, settings.gain, settings.scale),
        lengths=(shortest, settings.longest),
        mnt=settings.mnt,
        scale=settings.scale,
        slack=settings.slack,
    )


def _lora(loaded: Loaded, settings: TrainSettings) -> nn.Module:
    """The model with a LoRA whose parameters are float32, new or gone on from `settings.start`."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    model = prepare_model_for_kbit_training(loaded.model) if settings.load_in_4bit else loaded.model
    if settings.start:
        return going_on(model, settings.start)
    names = settings.targets if settings.targets == "all-linear" else settings.targets.split(",")
    config = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=settings.dropout, target_modules=names,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    return _exact(get_peft_model(model, config))


def going_on(model: nn.Module, start: str) -> nn.Module:
    """The model with a trained adapter's LoRA, its parameters in float32. ValueError where the adapter is damaged."""
    from peft import PeftModel

    return _exact(PeftModel.from_pretrained(model, Adapter.load(start).path, is_trainable=True))


def _exact(lora: nn.Module) -> nn.Module:
    for parameter in lora.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return lora
