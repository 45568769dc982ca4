"""Models by name: which are allowed, how they are loaded, and the few that stay in memory."""
from __future__ import annotations

import gc
import json
import logging
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from backend.models import embedded, headlines, hub
from backend.models.capabilities import (
    Capabilities,
    describe,
    fusable,
    stored_precision,
    unsupported,
    writes_of_a_source,
)
from backend.models.embedded import BUILDING, ModelError, named
from backend.models.footprint import footprint
from backend.models.quantised import pack_by_shape, quantisation
from backend.settings import Precision
from backend.system_memory import free, give_back

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from backend.models.lora import Lora

__all__ = ["Capabilities", "Loaded", "ModelError", "Models", "allowed"]

ALLOW_LIST = Path(__file__).parents[2] / "assets" / "models.json"
KEPT = 3

log = logging.getLogger("length_lab")


@dataclass(frozen=True)
class Loaded:
    """A model ready to run: a transformers causal LM in eval mode without gradients, its tokenizer, its description.

    Shared by every run that asks for the same model: nothing on it may be changed for one of them. lora: of the
    adapter that was asked for, which the model itself does not know of.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    capabilities: Capabilities
    lora: Lora | None = None


@dataclass
class Coming:
    """A model that is being loaded: bytes of its files that are to be fetched and that have come, and bytes that its
    weights will take in memory; 0 while not known."""

    size: int = 0
    fetched: int = 0
    memory: int = 0

    def hears(self, fetched: int, size: int) -> None:
        """Takes note of bytes that have come, of how many."""
        self.fetched, self.size = max(fetched, self.fetched), size


def allowed(file: Path | None = None, more: Iterable[str] = ()) -> list[str]:
    """The allow-list: the lab's own, then the names in `file` (a JSON list of strings), then `more`.

    A name is 'embedded', a hub id or a local folder. Raises ModelError when the file is not such a list.
    """
    names = _read_names(ALLOW_LIST) + (_read_names(file) if file else []) + list(more)
    return list(dict.fromkeys(map(named, names)))


def _read_names(file: Path) -> list[str]:
    try:
        names = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"the list of models {file} cannot be read ({error}): give a JSON list of names") from error
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ModelError(f'the list of models {file} must be a JSON list of names, such as ["Qwen/Qwen3-0.6B"]')
    return names


@dataclass
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    loaded: Loaded | None = None
    coming: Coming | None = None
    memory: int = 0
    loras: dict[Path, Lora] = field(default_factory=dict)


class Models:
    """Loaded models, each once, the least recently asked for dropped beyond `kept`. Safe to share between threads.

    names: the allow-list; None takes the lab's own.
    """

    def __init__(self, names: Iterable[str] | None = None, kept: int = KEPT) -> None:
        self._names = list(dict.fromkeys(map(named, allowed() if names is None else names)))
        self._kept = kept
        self._slots: OrderedDict[tuple[str, str], _Slot] = OrderedDict()
        self._guard = threading.Lock()

    def names(self) -> list[str]:
        """The models one may ask for."""
        return list(self._names)

    def load(self, model: str, precision: str = "bf16", adapter: Path | None = None) -> Loaded:
        """The model at that precision, and the LoRA of `adapter` (a peft folder) beside it where one is given.

        Callers asking for the same thing at once share one load; all adapters share one model. Raises ModelError with
        a sentence that says what to do: name not allowed, no access, damaged files, precision that cannot be had here.
        """
        model = named(model)
        self._check(model, precision)
        key = (model, precision)
        with self._guard:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
        with slot.lock:
            if slot.loaded is None:
                slot.coming = coming = Coming()
                try:
                    slot.loaded, slot.memory = self._load(key, coming), coming.memory
                finally:
                    slot.coming = None
            # A decoder's LoRA becomes part of a copy of its own: see `backend/encoder_decoder/model.py`.
            if adapter is None or slot.loaded.capabilities.encoder_decoder:
                return slot.loaded
            folder = adapter.resolve()
            if folder not in slot.loras:
                slot.loras[folder] = _lora(folder, slot.loaded.model)
            return replace(slot.loaded, lora=slot.loras[folder])

    def capabilities(self, model: str, precision: str = "bf16") -> Capabilities:
        """What a model is and which controls it allows. Raises ModelError as `load` does."""
        return self.load(model, precision).capabilities

    def coming(self, model: str, precision: str = "bf16") -> Coming | None:
        """How far a model is that is being loaded, by its name on the list; None where it is not."""
        slot = self._slots.get((model, precision))
        return slot.coming if slot else None

    def _load(self, key: tuple[str, str], coming: Coming) -> Loaded:
        """Loads, at the cost of all other models where memory is short; runs that go on keep theirs until they end."""
        room = partial(self._make_room, key)
        try:
            return _load(*key, room, coming)
        except Exception as error:
            if not out_of_memory(error):
                raise
        self._let_go(0)
        try:
            return _load(*key, room, coming)
        except Exception as error:
            if not out_of_memory(error):
                raise
            raise ModelError(
                f"'{key[0]}' needs more memory than is free: choose a lower precision or a smaller model, or wait for "
                "the runs on other models to end"
            ) from error

    def _check(self, model: str, precision: str) -> None:
        if model not in self._names:
            raise ModelError(
                f"the model '{model}' is not on the allow-list: choose one of {', '.join(self._names)}, "
                "or start the lab with --allow-model and its name"
            )
        if precision not in get_args(Precision):
            raise ModelError(f"there is no precision '{precision}': choose one of {', '.join(get_args(Precision))}")

    def _make_room(self, key: tuple[str, str], needed: int, device: torch.device) -> None:
        """Lets go of models beyond those kept, and of as many more as hold the memory that is needed, but of none where
        all of it is too little: that is refused, as the system would end the whole process."""
        if (there := free(device)) is not None and needed > there:
            _return_memory()
            there = free(device)
        with self._guard:
            held = [slot.memory for slot in self._slots.values() if slot.loaded is not None]
        kept = min(self._kept - 1, len(held))
        if there is not None:
            if needed > there + sum(held):
                takes, has = _gigabytes(needed, there + sum(held))
                raise ModelError(
                    f"'{key[0]}' takes {takes} GB of memory at {key[1]} and {has} GB can be had: choose a lower "
                    "precision or a smaller model"
                )
            while kept and needed > there + sum(held[: len(held) - kept]):
                kept -= 1
        self._let_go(kept)
        if there is not None and needed > (there := free(device) or 0):
            takes, has = _gigabytes(needed, there)
            raise ModelError(
                f"'{key[0]}' takes {takes} GB of memory at {key[1]} and {has} GB are free: choose a lower precision "
                "or a smaller model, or wait for the runs on other models to end"
            )

    def _let_go(self, kept: int) -> None:
        """Of all models but those that were asked for last."""
        with self._guard:
            held = [key for key, slot in self._slots.items() if slot.loaded is not None]
            spare = held[: max(0, len(held) - kept)]
            for key in spare:
                del self._slots[key]
        if spare:
            _return_memory()


def _gigabytes(needed: int, there: int) -> tuple[float, float]:
    """Of what is needed no less, and of what is there no more."""
    return math.ceil(needed / 1e8) / 10, math.floor(there / 1e8) / 10


def _return_memory() -> None:
    """Of what was let go of, and of what PyTorch keeps for itself, to the system."""
    gc.collect()
    torch.cuda.empty_cache()
    give_back()


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; PyTorch has no class of its own for memory that a CPU lacks."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error)


def _load(name: str, precision: str, make_room: Callable[[int, torch.device], None], coming: Coming) -> Loaded:
    """make_room: called when all but the weights is there, so that what is refused before costs no model its place."""
    try:
        where = _locate(name, coming)
        with BUILDING:
            _import()
            return _read(name, where, precision, make_room, coming)
    except Exception as error:
        if isinstance(error, ModelError) or out_of_memory(error):
            raise
        log.error("a model could not be loaded", exc_info=error)
        raise ModelError(_unusable(name, error)) from error


def _import() -> None:
    """All that loads and runs name of transformers: of a module that two threads import at once, one may see half."""
    from transformers import (  # noqa: F401
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForSeq2SeqLM,
        AutoTokenizer,
        BitsAndBytesConfig,
        ExponentialDecayLengthPenalty,
        LogitsProcessorList,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
        modeling_rope_utils,
    )


def _read(
    name: str, where: dict[str, Any], precision: str, make_room: Callable[[int, torch.device], None], coming: Coming
) -> Loaded:
    from transformers import AutoTokenizer

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config, tokenizer = _config(name, where), AutoTokenizer.from_pretrained(**where)
    reasons = unsupported(config, device)
    if why := reasons.get(precision):
        raise ModelError(why)
    _check_sizes(name, config, tokenizer)
    coming.memory = _needed(config, precision, device)
    make_room(coming.memory, device)
    model = _weights(name, where, config, precision, device)
    model.eval().requires_grad_(False)
    return Loaded(model, tokenizer, describe(name, model, precision, reasons))


def _needed(config: PreTrainedConfig, precision: str, device: torch.device) -> int:
    """Bytes that the weights will take."""
    fused = device.type == "cpu" and precision != "4bit" and fusable(config)
    return footprint(_kind(config), config, stored_precision(config) or precision, fused)


def _check_sizes(name: str, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """ModelError where the tokenizer writes ids for which the model has no embedding."""
    last = max(tokenizer.get_vocab().values(), default=-1)
    if last >= config.vocab_size:
        raise ModelError(
            f"the tokenizer of '{name}' goes up to token {last:,} ({tokenizer.convert_ids_to_tokens(last)}) and its "
            f"model has {config.vocab_size:,} embeddings, from 0 to {config.vocab_size - 1:,}: save the tokenizer "
            "without the tokens beyond, or a model with more (resize_token_embeddings)"
        )


def _locate(name: str, coming: Coming) -> dict[str, Any]:
    """from_pretrained's arguments for where the files are: a folder, the hub, or the hub's cache when offline."""
    source = embedded.source() if name == "embedded" else headlines.place(name)
    common: dict[str, Any] = {"pretrained_model_name_or_path": source, "trust_remote_code": False}
    if Path(source).is_dir():
        return common | {"local_files_only": True}
    if name == headlines.NAME:
        raise ModelError("the headline model is not there yet: train it with `make headlines`")
    if Path(source).is_absolute() or source.startswith("."):
        raise ModelError(f"there is no folder '{source}': give one that holds a model saved by transformers")
    reachable = hub.reachable(source)
    if reachable:
        hub.fetch(source, coming.hears)
    return common | {"local_files_only": not reachable}


def config(name: str) -> PreTrainedConfig:
    """A model's config, without its weights. Raises ModelError where it cannot be had or is of no model that writes."""
    try:
        return _config(name, _locate(name, Coming()))
    except (OSError, ValueError) as error:
        raise error if isinstance(error, ModelError) else ModelError(_unusable(name, error)) from error


def _config(name: str, where: dict[str, Any]) -> PreTrainedConfig:
    from transformers import AutoConfig, AutoModelForCausalLM

    found = AutoConfig.from_pretrained(**where)
    if type(found) not in AutoModelForCausalLM._model_mapping and not writes_of_a_source(found):
        raise ModelError(f"'{name}' ({found.model_type}) is not a causal language model: choose one that writes text")
    return found


def _auto(config: PreTrainedConfig) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM if writes_of_a_source(config) else AutoModelForCausalLM


def _kind(config: PreTrainedConfig) -> Any:
    """The class of transformers that runs such a model."""
    return _auto(config)._model_mapping[type(config)]


def _weights(
    name: str, where: dict[str, Any], config: PreTrainedConfig, precision: str, device: torch.device
) -> PreTrainedModel:
    options: dict[str, Any] = {"config": config, "dtype": torch.float32 if precision == "fp32" else torch.bfloat16}
    if _kind(config)._supports_sdpa:
        options["attn_implementation"] = "sdpa"
    if quantised := quantisation(precision, device, config):
        options["quantization_config"] = quantised
    if device.type == "cuda":
        options["device_map"] = {"": device}
    loaded: Any = _auto(config).from_pretrained(**where, **options, output_loading_info=True)
    model, report = loaded
    pack_by_shape(model)
    if report["missing_keys"] or report["mismatched_keys"]:
        raise ModelError(f"'{name}' lacks some of its weights: {_remedy(name)}")
    return model


def _lora(adapter: Path, model: PreTrainedModel) -> Lora:
    from backend.models.lora import Lora

    try:
        return Lora.read(adapter, model)
    except Exception as error:
        if out_of_memory(error):
            raise
        raise ModelError(
            f"the adapter {adapter} does not fit this model or is damaged ({_first_line(error)}): "
            "choose the model it was trained on, or train it again"
        ) from error


def _unusable(name: str, error: Exception) -> str:
    from huggingface_hub.errors import GatedRepoError

    if isinstance(error, GatedRepoError) or isinstance(error.__cause__, GatedRepoError):
        return hub.gated(name)
    # What cannot be imported is no fault of the model's files.
    remedy = "start the lab again" if isinstance(error, ImportError) else _remedy(name)
    return f"'{name}' could not be loaded ({type(error).__name__}: {_first_line(error)}): {remedy}"


def _remedy(name: str) -> str:
    if name == "embedded" and not os.environ.get("SPACE_ID"):
        made = embedded.cache() / "embedded"
        return f"start the lab again; if it fails again, delete the folder {made}, which is then made anew"
    return "its files are damaged, incomplete or of a kind that transformers does not run; fetch or save it again"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no details"])[0][:200]
