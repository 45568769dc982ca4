"""What a folder holds, by name: a class that names itself in one of its modules exists, and is listed nowhere else."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from backend.refused import Refused

T = TypeVar("T")


class Registry(Generic[T]):
    """One instance of every class of a package that names itself, in order.

    A module adds the subclasses of `base` that it defines, that are not abstract and that have a `name` in their own
    body. They are made without arguments, once, when something is first asked for; until then no module is imported.
    The number `order`, 0 where a class has none, decides the order, then the name.

    >>> methods = Registry("backend.methods", LengthMethod)  # in backend/methods/__init__.py
    >>> methods["orpe"].label
    'ORPE: …'
    """

    def __init__(self, package: str, base: type[T], noun: str | None = None):
        """package: the dotted name of the folder. noun: what errors call an entry; the folder's last word without its s
        if not given."""
        self._package, self._base = package, base
        self._noun = noun or package.rpartition(".")[2].removesuffix("s")

    def __getitem__(self, name: str) -> T:
        """The entry of that name; `Refused`, a ValueError, with the names that are near it where there is none."""
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            near = get_close_matches(str(name), self.names(), n=3)
            known = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(self.names())}"
            raise Refused(f"there is no {self._noun} {name!r}: {known}") from None

    def alone(self, name: str) -> T:
        """The entry whose module has its name, without importing the others. ImportError where there is none."""
        entry: T = next(kind for kind in self._kinds(f"{self._package}.{name}") if kind.name == name)()
        return entry

    def get(self, name: str) -> T | None:
        """The entry of that name, None where there is none."""
        return self._entries.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        return list(self._entries)

    @cached_property
    def _entries(self) -> dict[str, T]:
        found: dict[str, Any] = {}
        for module in iter_modules(import_module(self._package).__path__, f"{self._package}."):
            for kind in self._kinds(module.name):
                if kind.name in found:
                    raise TypeError(f"{kind.__module__} and {found[kind.name].__module__} both name a {kind.name!r}")
                found[kind.name] = kind
        ordered = sorted(found, key=lambda name: (getattr(found[name], "order", 0), name))
        return {name: found[name]() for name in ordered}

    def _kinds(self, module: str) -> list[Any]:
        return [kind for kind in vars(import_module(module)).values() if self._registers(kind, module)]

    def _registers(self, kind: object, module: str) -> bool:
        return (
            inspect.isclass(kind)
            and issubclass(kind, self._base)
            and kind.__module__ == module
            and "name" in vars(kind)
            and not inspect.isabstract(kind)
        )
