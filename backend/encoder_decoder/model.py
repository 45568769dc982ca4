"""Encoder-decoders ready to write: the headline model of the lab, or one of a folder or the hub."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from backend.encoder_decoder.pairs import Tokenizers
from backend.encoder_decoder.signal import DecoderSignal
from backend.families import encoder_decoders
from backend.models import headlines
from backend.models.adapters import Adapter
from backend.models.pool import Loaded
from backend.refused import Refused


@dataclass(frozen=True)
class Writer:
    """A model in float32 for one method. signal: what the method shows, None for a model that is not steered."""

    model: PreTrainedModel
    tokenizers: Tokenizers
    signal: DecoderSignal | None = None

    def text(self, tokens: Sequence[int]) -> str:
        """What target tokens say."""
        return self.tokenizers.target.decode(tokens, skip_special_tokens=True)


def load(folder: str | Path, adapter: Adapter | None = None) -> Writer:
    """A model from a folder or the hub, with an adapter. ValueError for another family."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype="float32", trust_remote_code=False)
    if encoder_decoders.get(model.config.model_type) is None:
        known = ", ".join(encoder_decoders.names())
        raise Refused(f"{model.config.model_type} is no encoder-decoder that the lab knows: choose one of {known}")
    return writer(model, tokenizers(folder), adapter)


def writer(model: PreTrainedModel, tokenizers: Tokenizers, adapter: Adapter | None = None) -> Writer:
    """A model as it writes for a method, an adapter's LoRA merged into it; the model is the writer's from then on."""
    from peft import PeftModel

    signal = None
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter.path).merge_and_unload()
        signal = DecoderSignal(model, adapter.settings) if adapter.settings else None
    model.set_attn_implementation("eager")
    model.eval().requires_grad_(False)
    if signal is not None:
        signal.eval()
    return Writer(model, tokenizers, signal)


def tokenizers(folder: str | Path) -> Tokenizers:
    """Of a model's folder; a model that names no other for what it writes has one for both."""
    if (Path(folder) / headlines.CHARACTERS).is_dir():
        return Tokenizers(*headlines.tokenizers(Path(folder)))
    shared = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return Tokenizers(shared, shared)


@dataclass(frozen=True)
class SharedWriter:
    """A writer that runs take in turn, since what it is shown is the run's own."""

    writer: Writer
    lock: threading.Lock

    @classmethod
    def of(cls, loaded: Loaded, adapter: Adapter | None) -> SharedWriter:
        """A copy of a loaded model in float32, whose products are fast on every device, with the adapter; made once for
        as long as the model stays loaded."""
        with _GUARD:
            made = _WRITERS.setdefault(loaded.model, {})
            path = adapter.path if adapter else None
            if path not in made:
                copy = writer(deepcopy(loaded.model).float(), _tokenizers_of(loaded), adapter)
                made[path] = cls(copy, threading.Lock())
            return made[path]


_WRITERS: WeakKeyDictionary[PreTrainedModel, dict[Path | None, SharedWriter]] = WeakKeyDictionary()
_GUARD = threading.Lock()


def _tokenizers_of(loaded: Loaded) -> Tokenizers:
    folder = Path(headlines.place(loaded.capabilities.model))
    return tokenizers(folder) if folder.is_dir() else Tokenizers(loaded.tokenizer, loaded.tokenizer)
