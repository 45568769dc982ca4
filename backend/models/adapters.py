"""Length adapters: a LoRA, and the signal it was trained to read.

An adapter is a folder with `adapter_config.json` and `adapter_model.safetensors` as peft writes them, and
`signal.json`. The lab's own lie in `assets/adapters/<method>/`, or in folders below it where a method has adapters
for several models. Nothing here touches a loaded model: `Models.load(model, precision, adapter=path)` reads the LoRA
beside it.
"""
from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from safetensors import SafetensorError, safe_open

from backend.methods import methods
from backend.methods.signal import SignalMethod, SignalSettings
from backend.models import headlines
from backend.models.disk import disk_errors
from backend.models.embedded import HUB_COPY, named, sha256
from backend.positions import PositionPolicy, policies
from backend.refused import Refused
from backend.settings import LANDING, Method

ROOT = Path(__file__).parents[2] / "assets" / "adapters"
CONFIG, WEIGHTS, SIGNAL = "adapter_config.json", "adapter_model.safetensors", "signal.json"


class AdapterError(Refused):
    """An adapter that cannot be used; the message is a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class LongformSettings:
    """The positions under which an adapter for long texts was trained (004 §3.2): kind and numbers of a policy."""

    kind: Literal["none", "ntk", "dynamic"]
    ratio: float
    initial: int
    recent: int

    @property
    def policy(self) -> PositionPolicy:
        """The same as a policy; without Λ."""
        return policies[self.kind].of(self)


class _SignalFile(BaseModel):
    """signal.json: what the LoRA was trained on, and with which signal."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    base: str = Field(min_length=1)
    width: int = Field(ge=2)
    sha256: str
    config_sha256: str
    signal: SignalSettings | None
    longform: LongformSettings | None = None
    # Where signal and positions tell of another one.
    method: str | None = None

    @field_validator("method")
    @classmethod
    def _method_is_known(cls, method: str | None) -> str | None:
        if method is not None and method not in methods:
            raise ValueError(f"there is no length method {method!r}")
        return method


VERSION: int = _SignalFile.model_fields["version"].default


@dataclass(frozen=True, slots=True)
class Adapter:
    """A checked adapter folder.

    path: the folder, for Models.load. settings: its signal, None where the target stands in the prompt. base: id of
    the model it was trained on. width: of that model's embeddings. sha256: of the LoRA's numbers. longform: where it
    has no target, but writes long. named: its method, where signal and positions do not tell it.
    """

    path: Path
    settings: SignalSettings | None
    base: str
    width: int
    sha256: str
    longform: LongformSettings | None = None
    named: str | None = None

    @property
    def method(self) -> Method:
        """The length method it serves."""
        return self.named or _served(self.settings, self.longform)

    def check_width(self, width: int) -> None:
        """AdapterError where a model's embeddings are not as wide as those the adapter was trained with."""
        if width != self.width:
            raise AdapterError(
                f"the adapter in {self.path} is for embeddings {self.width} wide and the model's are {width}: "
                f"use it with {self.base}, or train one for this model"
            )

    @classmethod
    def load(cls, path: str | Path) -> Adapter:
        """Read and check an adapter folder; the LoRA's numbers stay on disk.

        AdapterError for missing files, another version, a damaged or foreign LoRA, or widths that do not match.
        """
        path = Path(path)
        for name in (CONFIG, WEIGHTS, SIGNAL):
            if not (path / name).is_file():
                raise AdapterError(f"the adapter in {path} lacks {name}: copy the whole folder, or train it again")
        stored = _stored(path)
        _check_lora(path, stored)
        return cls(path, stored.signal, stored.base, stored.width, stored.sha256, stored.longform, stored.method)


def base_of(model: str) -> str:
    """The id under which a model's adapters are stored: the embedded model and its hub copy share theirs."""
    return HUB_COPY if model == "embedded" else named(model)


def find(method: Method, model: str) -> Adapter | None:
    """The adapter for a length method on a model, None where there is none; AdapterError where it is damaged."""
    if not methods[method].adapter:
        return None
    found = (Adapter.load(folder) for folder in _folders(method))
    fitting = next((adapter for adapter in found if adapter.base == base_of(model)), None)
    if fitting is not None and fitting.method != method:
        raise AdapterError(f"the adapter in {fitting.path} was trained for {fitting.method}: move it to that folder")
    return fitting


def required(method: Method, model: str) -> Adapter | None:
    """The adapter of a length method, None for one without. ValueError with the reason where it cannot be used."""
    adapter = find(method, model)
    if adapter is None and methods[method].adapter:
        raise Refused(_missing(method, model))
    return adapter


def available(model: str) -> dict[str, str | None]:
    """Every length method, with the reason why it cannot be used on a model, or None where it can."""
    return {method: _missing(method, model) for method in methods.names()}


def heeding(model: str) -> dict[str, Any]:
    """The settings by which a target is met and ended on best, where no method is named: LDPE with landing if the model
    has its adapter, else the prompt."""
    if _missing("ldpe", model):
        return {"method": "prompted"}
    return {"method": "ldpe", "landing": LANDING, "in_prompt": True}


def save(
    path: str | Path,
    lora: Any,
    settings: SignalSettings | None,
    base: str,
    longform: LongformSettings | None = None,
    method: Method | None = None,
) -> Adapter:
    """Write an adapter folder, whole or not at all, in the place of an older one.

    lora: the trained peft model. settings: the signal it was trained with, if any. base: id of the model below it,
    'embedded' or a hub id. longform: the positions it was trained under, where it was trained on long texts. method:
    that it serves; None for the one that these tell.
    """
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".adapter-") as scratch:
        folder = Path(scratch) / path.name
        config = lora.peft_config[lora.active_adapter].to_dict()
        config |= {"base_model_name_or_path": base_of(base), "inference_mode": True}
        tensors = get_peft_model_state_dict(lora, save_embedding_layers=False)
        folder.mkdir()
        (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True, default=sorted))
        with disk_errors():
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS)
        width = lora.get_input_embeddings().weight.shape[1]
        record = {"base": base_of(base), "width": width, "sha256": sha256(folder / WEIGHTS)}
        record |= {"config_sha256": sha256(folder / CONFIG)}
        named = None if method == _served(settings, longform) else method
        stored = _SignalFile(**record, signal=settings, longform=longform, method=named)
        (folder / SIGNAL).write_text(stored.model_dump_json(indent=2, exclude=None if named else {"method"}))
        Adapter.load(folder)
        if path.exists():
            shutil.rmtree(path)
        folder.rename(path)
    return Adapter.load(path)


def other_models(method: Method) -> str:
    """Which models a method works with, where it is one kind of them alone."""
    which = "that have an encoder" if methods[method].encoder_decoder else "without an encoder"
    return f"{methods[method].label} works with models {which} alone"


def _served(signal: SignalSettings | None, longform: LongformSettings | None) -> Method:
    """The first method whose adapter shows such a signal, or else was trained under such positions."""
    if signal is not None:
        return signal.method
    compression = longform.kind if longform else None
    return next(
        method.name
        for method in methods
        if method.adapter and not isinstance(method, SignalMethod) and method.compression == compression
    )


def _folders(method: Method) -> Iterator[Path]:
    """Folders that hold an adapter, or part of one, for a method."""
    top = ROOT / method
    candidates = [top, *sorted(top.iterdir())] if top.is_dir() else []
    return (folder for folder in candidates if any((folder / name).is_file() for name in (CONFIG, WEIGHTS, SIGNAL)))


def _missing(method: Method, model: str) -> str | None:
    found = methods[method]
    if not (found.encoder_decoder if model == headlines.NAME else found.causal or model != "embedded"):
        return other_models(method)
    if not methods[method].adapter:
        return None
    try:
        if find(method, model):
            return None
    except AdapterError as error:
        return str(error)
    return f"no adapter for {method} on {base_of(model)}: train one, and put its folder at assets/adapters/{method}"


def _stored(path: Path) -> _SignalFile:
    document = _json(path / SIGNAL)
    version = document.get("version")
    if version != VERSION:
        raise AdapterError(
            f"the adapter in {path} has version {version} and this program reads version {VERSION}: train it again"
        )
    try:
        return _SignalFile.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise AdapterError(f"{path / SIGNAL} is damaged ({where}: {first['msg']}): train the adapter again") from error


def _json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise AdapterError(f"{file} is damaged: copy the adapter again, or train it again")
    return document


def _check_lora(path: Path, stored: _SignalFile) -> None:
    damaged = AdapterError(f"the LoRA in {path} is damaged: copy the folder again, or train it again")
    try:
        with safe_open(path / WEIGHTS, framework="np") as tensors:
            shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}
    except (OSError, SafetensorError) as error:
        raise damaged from error
    if _json(path / CONFIG).get("peft_type") != "LORA":
        raise AdapterError(f"the adapter in {path} is not a LoRA: save one made by peft's LoraConfig")
    digests = sha256(path / WEIGHTS), sha256(path / CONFIG)
    if digests != (stored.sha256, stored.config_sha256) or not _paired(shapes):
        raise damaged
    if not any(stored.width in shape for shape in shapes.values()):
        raise AdapterError(
            f"the LoRA in {path} has no matrix of the width {stored.width} named in {SIGNAL}: "
            "copy the whole folder again, or train it again"
        )


def _paired(shapes: dict[str, tuple[int, ...]]) -> bool:
    """Whether every down-projection A [r, in] has its up-projection B [out, r]."""
    downs = [name for name in shapes if ".lora_A." in name]
    ups = [name.replace(".lora_A.", ".lora_B.") for name in downs]
    return bool(downs) and all(
        shapes[up][-1:] == shapes[down][:1] if up in shapes else False for down, up in zip(downs, ups, strict=True)
    )
