"""What a lesson needs of a tab: its boxes by name, and the button that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.refused import Refused


@dataclass(frozen=True)
class Stage:
    """boxes: the components of a tab's form, by name. tab: its name in an address. go: a CSS selector of the button."""

    boxes: Mapping[str, Any]
    tab: str
    go: str

    def values(self, chosen: Mapping[str, Any]) -> list[Any]:
        """Of all boxes, in order: what is chosen, the others as the page opens with them. Raises ValueError where a
        name is no box."""
        if unknown := sorted(chosen.keys() - self.boxes.keys()):
            raise Refused(f"{', '.join(unknown)}: no box of this tab has such a name")
        return [chosen.get(name, box.value) for name, box in self.boxes.items()]
