"""Training of encoder-decoders: the headline model itself, and a LoRA that reads a length signal (001 §3.2, 003 §3).

    python -m backend headlines --data DIR --out assets/headlines
    python -m backend headlines --data DIR --out COPIES --target-tokens bpe --copies --averaged 1
    python -m backend headlines --data DIR --out assets/headlines --start COPIES
    python -m backend train --model headlines --method ldpe --data FILE --out assets/adapters/ldpe/headlines
    torchrun --nproc_per_node 2 -m backend headlines …

Both stand on transformers' `Seq2SeqTrainer`: a run that was stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

from backend.encoder_decoder.pairs import Examples, Pair, Tokenizers, copies
from backend.encoder_decoder.signal import DecoderSignal
from backend.families import encoder_decoders
from backend.inference.kernels.tiles import TILED
from backend.methods import methods
from backend.methods.signal import SignalMethod, SignalSettings
from backend.models import adapters, headlines
from backend.models.adapters import Adapter
from backend.record import jsonlines
from backend.record.provenance import provenance
from backend.training import headline_card
from backend.training.budget import LOG, RECORD, record
from backend.training.dropout import drop_within
from backend.training.settings import HeadlineSettings, TrainSettings
from backend.training.sole import sole
from backend.training.timed import Timed

LEARNED = "learned.safetensors"
# Steps between two checkpoints of the headline model.
EVERY = 50
# Checkpoints of one that is ended by its time.
KEPT = 24
VALIDATED = 512


class _Trainer(Seq2SeqTrainer):
    """Shows the decoder each batch's lengths; keeps a signal's learned vector with the LoRA's checkpoints."""

    signal: DecoderSignal | None = None
    timed: Timed | None = None

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.timed is None:
            return super().create_scheduler(num_training_steps, optimizer)
        self.lr_scheduler = LambdaLR(optimizer or self.optimizer, self.timed.rate)
        return self.lr_scheduler

    def end_by(self, seconds: float, steps: int, warmup: int, kept: int = 0) -> None:
        """End by this time, in which the rate falls; 0: by its steps alone."""
        if seconds:
            self.timed = Timed(seconds, steps, warmup, kept)
            self.add_callback(self.timed)

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        targets = inputs.pop("targets")
        if self.signal is not None:
            self.signal.targets = targets
        return super().compute_loss(model, inputs, *args, **options)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.signal is not None and self.signal.learned is not None:
            save_file({"learned": self.signal.learned.detach()}, Path(output_dir or self.args.output_dir) / LEARNED)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.signal is not None and self.signal.learned is not None:
            with torch.no_grad():
                self.signal.learned.copy_(load_file(Path(resume_from_checkpoint, LEARNED))["learned"])


def _in_bfloat16() -> bool:
    """Whether this machine multiplies bfloat16 at a multiple of the speed of float32."""
    return torch.cuda.is_bf16_supported() if torch.cuda.is_available() else TILED


def _attention() -> str:
    """The fastest that can be trained: torch's own attention takes three times as long on a CPU, backwards."""
    return "sdpa" if torch.cuda.is_available() else "eager"


def _arguments(folder: Path, batch: int, **more: Any) -> Seq2SeqTrainingArguments:
    together = int(os.environ.get("WORLD_SIZE", "1"))
    cpu = not torch.cuda.is_available()
    return Seq2SeqTrainingArguments(
        output_dir=str(folder),
        use_cpu=cpu,
        ddp_backend="gloo" if cpu and together > 1 else None,
        ddp_find_unused_parameters=False,
        per_device_train_batch_size=max(1, batch // together),
        per_device_eval_batch_size=64,
        adam_beta1=0.9,
        adam_beta2=0.98,
        logging_steps=25,
        train_sampling_strategy="group_by_length",
        remove_unused_columns=False,
        report_to="none",
        bf16=_in_bfloat16(),
        # Looking at each loss would wait for the GPU at each step.
        logging_nan_inf_filter=cpu,
        disable_tqdm=True,
        **more,
    )


def _run(trainer: _Trainer, folder: Path) -> float:
    """Train to the end; how many seconds that took."""
    started = time.monotonic()
    with sole(folder):
        trainer.train(resume_from_checkpoint=any(folder.glob("checkpoint-*")) or None)
    return time.monotonic() - started


def _log(file: Path, lines: Iterable[Any]) -> None:
    file.unlink(missing_ok=True)
    jsonlines.append(file, lines)


def train_base(
    pairs: Sequence[Pair],
    valid: Sequence[Pair],
    settings: HeadlineSettings,
    out: Path,
    report: Callable[[str], None],
    note: str = "",
) -> Path:
    """Train a headline model, and write its folder at `out`; checkpoints lie in `<out>.training`. note: on where the
    texts are from, for its card."""
    set_seed(settings.seed)
    folder = out.with_name(out.name + ".training")
    folder.mkdir(parents=True, exist_ok=True)
    if settings.start:
        written = headlines.target_tokens(Path(settings.start)) or settings.target_tokens
        settings = replace(settings, target_tokens=written)
    if settings.seconds:
        settings = replace(settings, schedule="linear")
    tokenizers = _tokenizers(folder, pairs, settings)
    config = _config(settings, len(tokenizers.target))
    settings = replace(settings, width=config.d_model, layers=config.encoder_layers, source_tokens=config.vocab_size)
    model = MarianMTModel(config)
    model.set_attn_implementation(_attention())
    drop_within(model, settings.dropout)
    if settings.start:
        # Not `from_pretrained`, after which the sinusoids could be trained.
        model.load_state_dict(_mean([load_file(Path(settings.start, "model.safetensors"))]), strict=False)
    texts = [copies(each, settings.seed) if settings.copies else each for each in (pairs, valid)]
    made = [Examples.of(each, tokenizers, config, settings.longest_source, settings.longest) for each in texts]
    report(f"{model.num_parameters():,} parameters, {len(made[0]):,} pairs")
    arguments = _arguments(
        folder,
        settings.batch,
        learning_rate=settings.rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup,
        label_smoothing_factor=settings.smoothing,
        max_steps=settings.steps,
        save_strategy="no" if settings.seconds else "steps",
        save_steps=EVERY,
        save_total_limit=settings.averaged,
        eval_strategy="no" if settings.seconds else "steps",
        eval_steps=10 * EVERY,
        seed=settings.seed,
    )
    trainer = _Trainer(
        model=model, args=arguments, train_dataset=made[0], eval_dataset=made[1], data_collator=made[0].batch
    )
    trainer.end_by(settings.seconds, settings.steps, settings.warmup, KEPT)
    seconds = _run(trainer, folder)
    if trainer.is_world_process_zero():
        result = {"seconds": seconds, "pairs": len(made[0]), "parameters": model.num_parameters()}
        finish_base(folder, out, settings, result, note)
    return out


def _config(settings: HeadlineSettings, written: int) -> MarianConfig:
    if settings.start:
        # What is dropped `drop_within` drops.
        return MarianConfig.from_pretrained(settings.start, dropout=0.0)
    shared = settings.target_tokens == "bpe"
    return headlines.config(
        written, settings.width, settings.layers, shared, settings.source_tokens
    )


def finish_base(folder: Path, out: Path, settings: HeadlineSettings, result: dict[str, Any], note: str) -> Path:
    """Write the mean of a training's last checkpoints as a model folder, in half precision, with its card. result:
    seconds, pairs and parameters."""
    checkpoints = sorted(folder.glob("checkpoint-*"), key=lambda each: int(each.name.partition("-")[2]))
    checkpoints = checkpoints[-settings.averaged :]
    model = MarianMTModel.from_pretrained(checkpoints[-1])
    model.load_state_dict(_mean([load_file(each / "model.safetensors") for each in checkpoints]), strict=False)
    model.generation_config.forced_eos_token_id = None
    model.half().save_pretrained(out)
    source, target = headlines.tokenizers(Path(settings.start) if settings.start else folder)
    source.save_pretrained(out)
    target.save_pretrained(out / settings.target_tokens)
    log = json.loads((checkpoints[-1] / "trainer_state.json").read_text("utf-8"))["log_history"]
    validated = [line for line in log if "eval_loss" in line]
    _log(out / LOG, validated)
    result |= {name: log[-1][name] for name in ("step", "epoch")}
    result["eval_loss"] = validated[-1]["eval_loss"] if validated else None
    _tell(out, settings, result, headline_card.of_base, note)
    return out


def _tell(
    out: Path,
    settings: HeadlineSettings | TrainSettings,
    result: dict[str, Any],
    card: Callable[[dict[str, Any], str], str],
    note: str,
) -> None:
    """Write what a training was and gave as training.json, and as a card."""
    about = provenance(settings.seed) | {"settings": asdict(settings), "result": result}
    if settings.start:
        about["resumed_from"] = record(settings.start)
    (out / RECORD).write_text(json.dumps(about, indent=1), "utf-8")
    (out / "README.md").write_text(card(about, note), "utf-8")


def _mean(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name].float() for state in states]).mean(0) for name in states[0]}


def _tokenizers(folder: Path, pairs: Sequence[Pair], settings: HeadlineSettings) -> Tokenizers:
    if settings.start:
        return Tokenizers(*headlines.tokenizers(Path(settings.start)))
    if not (folder / settings.target_tokens).is_dir():
        sources, texts = [pair.source for pair in pairs], [pair.text for pair in pairs]
        if settings.target_tokens == "bpe":
            source = headlines.subwords([*sources, *texts], settings.source_tokens)
            target = headlines.whole(source)
        else:
            source, target = headlines.subwords(sources, settings.source_tokens), headlines.characters(texts)
        source.save_pretrained(folder)
        target.save_pretrained(folder / settings.target_tokens)
    return Tokenizers(*headlines.tokenizers(folder))


def train(
    model: PreTrainedModel,
    tokenizers: Tokenizers,
    pairs: Sequence[Pair],
    settings: TrainSettings,
    out: Path,
    report: Callable[[str], None],
    note: str = "",
) -> Adapter:
    """Train a LoRA on the decoder that reads the method's signal, and write the adapter at `out`, with its card.

    `settings.samples` pairs are seen in batches of `settings.budget` tokens' worth, about; the method 'none' trains as
    much without any signal. `<out>.training` has log and checkpoints.
    """
    set_seed(settings.seed)
    folder = out.with_name(out.name + ".training")
    found = Examples.of(
        pairs, tokenizers, model.config, settings.longest_prompt, settings.longest, settings.left_out
    )
    lengths = [row["target"] for row in found.rows]
    model.set_attn_implementation(_attention())
    signal = None
    if isinstance(methods[settings.method], SignalMethod):
        shown = SignalSettings(
            settings.method, settings.gain, settings.gain, (min(lengths), max(lengths)), beside=settings.beside
        )
        signal = DecoderSignal(model, shown, tokenizers.characters)
    lora = get_peft_model(model, _lora(model, settings))
    if signal is not None:
        lora.length_signal = signal
    tokens = sum(len(row["labels"]) - 1 for row in found.rows)
    batch = max(1, settings.budget // max(1, round(tokens / len(found))))
    steps = max(1, settings.samples // batch)
    warmup = min(100, steps // 10)
    report(f"{settings.method}: {steps:,} steps of {batch} of {len(found):,} pairs")
    arguments = _arguments(
        folder,
        batch,
        learning_rate=settings.rate,
        lr_scheduler_type="linear",
        warmup_steps=warmup,
        max_steps=steps,
        save_steps=max(1, steps // 5),
        save_total_limit=1,
        seed=settings.seed,
    )
    trainer = _Trainer(model=lora, args=arguments, train_dataset=found, data_collator=found.batch)
    trainer.signal = signal
    trainer.end_by(settings.seconds, steps, warmup)
    seconds = _run(trainer, folder)
    _log(folder / LOG, trainer.state.log_history)
    learned = tuple(signal.learned.tolist()) if signal is not None and signal.learned is not None else ()
    kept = replace(signal.settings, learned=learned) if signal is not None else None
    adapter = adapters.save(out, lora.half(), kept, settings.model)
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    done = trainer.state.global_step
    result: dict[str, Any] = {"step": done, "samples": done * batch, "pairs": len(found), "seconds": seconds}
    result |= {"loss": losses[-1] if losses else None, "unit": "characters" if tokenizers.in_characters else "tokens"}
    _tell(out, settings, result, headline_card.of_adapter, note)
    return adapter


def _lora(model: PreTrainedModel, settings: TrainSettings) -> LoraConfig:
    """On every linear layer of the decoder, the encoder staying as it is."""
    family = encoder_decoders[model.config.model_type]
    within = {id(module) for module in family.decoder(model).modules() if isinstance(module, nn.Linear)}
    names = [name for name, module in model.named_modules() if id(module) in within]
    return LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=settings.dropout, target_modules=names
    )
