"""Models on the Hugging Face hub: whether one can be had, and how its files come into the hub's cache."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.models.embedded import ModelError

SECONDS = 10
# What a model's files are made of, without copies of the weights in other formats.
FILES = ["*.json", "*.jinja", "*.model", "*.txt", "model*.safetensors"]
# Bytes of the disk that a model leaves free.
SPARE = 200_000_000
# Hears how many bytes have come, of how many.
Hears = Callable[[int, int], object]
# One fetch of a model at a time: of two, each would count the same bytes as its own.
_fetching: dict[str, threading.Lock] = {}


def reachable(repo: str) -> bool:
    """Whether the hub answers for `repo`; asked once here, because transformers would retry each file for 20 s.
    ModelError where neither the hub nor its cache on this machine has it for this user."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        HfApi().model_info(repo, timeout=SECONDS)
        return True
    except GatedRepoError as error:
        raise ModelError(gated(repo)) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelError(f"the hub has no model '{repo}' that you may see: check the id, or set HF_TOKEN") from error
    except Exception as error:
        if isinstance(try_to_load_from_cache(repo, "config.json"), str):
            return False
        raise ModelError(
            f"the hub cannot be reached and '{repo}' is not on this machine: "
            "check the network, or allow and name a local folder"
        ) from error


def fetch(repo: str, hears: Hears) -> None:
    """Fetches the files of a model that the hub's cache lacks. ModelError where the disk has no place for them."""
    from huggingface_hub import snapshot_download

    with _fetching.setdefault(repo, threading.Lock()):
        missing = _missing(repo)
        if missing == 0:
            return
        if missing:
            _check_disk(repo, missing)
            hears(0, missing)
        snapshot_download(repo, allow_patterns=FILES, tqdm_class=_bar(missing or 0, hears))


def _missing(repo: str) -> int | None:
    """Bytes that are to be fetched; None where the hub does not say, and its cache may do."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError

    try:
        planned: Any = snapshot_download(repo, allow_patterns=FILES, dry_run=True, tqdm_class=_bar(0, lambda *_: None))
    except DryRunError:
        return None
    return sum(file.file_size for file in planned if file.will_download)


def gated(repo: str) -> str:
    """What to do where the hub wants a licence accepted."""
    return f"'{repo}' asks for its licence to be accepted: do so on its page of the hub, then set HF_TOKEN"


def _check_disk(repo: str, missing: int) -> None:
    """ModelError where the disk of the hub's cache has no place for so many bytes."""
    from huggingface_hub.constants import HF_HUB_CACHE

    cache = Path(HF_HUB_CACHE)
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if missing + SPARE > free:
        raise ModelError(
            f"the files of '{repo}' take {missing / 1e9:.1f} GB and the disk has {free / 1e9:.1f} GB free: "
            "make room, or set HF_HOME to a folder on another disk"
        )


def _bar(size: int, hears: Hears) -> type[Any]:
    """A bar for huggingface_hub that draws nothing and tells how many of `size` bytes have come."""
    from tqdm.auto import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **(given | {"disable": True}))
            self._of_bytes = given.get("unit") == "B"

        def update(self, n: float | None = 1) -> bool | None:
            self.n += n or 0
            if self._of_bytes and size:
                hears(min(int(self.n), size), size)
            return None

    return Bar
