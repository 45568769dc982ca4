"""Encoder-decoders ready to write: the headline model of the lab, or one of a folder or the hub."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from transformers import PreTrainedModel

from backend.encoder_decoder.pairs import Tokenizers
from backend.encoder_decoder.signal import DecoderSignal
from backend.families import encoder_decoders
from backend.models import headlines
from backend.models.adapters import Adapter
from backend.models.pool import Loaded, Models
from backend.refused import Refused


@dataclass(frozen=True)
class Writer:
    """A model in float32 on the CPU for one method. signal: what the method shows, None for one that is not steered."""

    model: PreTrainedModel
    tokenizers: Tokenizers
    signal: DecoderSignal | None = None

    def text(self, tokens: Sequence[int]) -> str:
        """What target tokens say."""
        return self.tokenizers.target.decode(tokens, skip_special_tokens=True)

    def pieces(self, source: Sequence[int]) -> tuple[str, ...]:
        """What each token of a source says; special ones stand apart."""
        reads = self.tokenizers.source
        special = set(reads.all_special_ids)
        return tuple(f"{' ' * (token in special)}{reads.decode([token])}" for token in source)


def load(name: str, adapter: Adapter | None = None) -> Writer:
    """A model by its name, on the allow-list or not, with an adapter. Raises ModelError as `Models.load` does, and
    ValueError for a model without an encoder."""
    loaded = Models([name]).load(name, "fp32")
    if not loaded.capabilities.encoder_decoder:
        known = ", ".join(encoder_decoders.names())
        raise Refused(f"{loaded.capabilities.family} has no encoder that the lab knows: choose a model of {known}")
    return writer(loaded.model, _tokenizers_of(loaded), adapter)


def writer(model: PreTrainedModel, tokenizers: Tokenizers, adapter: Adapter | None = None) -> Writer:
    """A model as it writes for a method, an adapter's LoRA merged into it; the model is the writer's from then on."""
    from peft import PeftModel

    signal = None
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter.path).merge_and_unload()
        signal = DecoderSignal(model, adapter.settings, tokenizers.characters) if adapter.settings else None
    model.set_attn_implementation("eager")
    model.float().cpu().eval().requires_grad_(False)
    if signal is not None:
        signal.eval()
    return Writer(model, tokenizers, signal)


@dataclass(frozen=True)
class SharedWriter:
    """A writer that runs take in turn, since what it is shown is the run's own."""

    writer: Writer
    lock: threading.Lock

    @classmethod
    def of(cls, loaded: Loaded, adapter: Adapter | None) -> SharedWriter:
        """A copy of a loaded model, with the adapter; made once for as long as the model stays loaded."""
        with _GUARD:
            made = _WRITERS.setdefault(loaded.model, {})
            path = adapter.path if adapter else None
            if path not in made:
                copy = writer(deepcopy(loaded.model), _tokenizers_of(loaded), adapter)
                made[path] = cls(copy, threading.Lock())
            return made[path]


_WRITERS: WeakKeyDictionary[PreTrainedModel, dict[Path | None, SharedWriter]] = WeakKeyDictionary()
_GUARD = threading.Lock()


def _tokenizers_of(loaded: Loaded) -> Tokenizers:
    """A model whose folder has no other for what it writes has one for both."""
    folder = Path(headlines.place(loaded.capabilities.model))
    if headlines.target_tokens(folder):
        return Tokenizers(*headlines.tokenizers(folder))
    return Tokenizers(loaded.tokenizer, loaded.tokenizer)
