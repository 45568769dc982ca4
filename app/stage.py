"""What a lesson needs of a tab: its boxes by name, the buttons that run it, and where its run is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.taking_up import Place
from backend.refused import Refused


@dataclass(frozen=True)
class Stage:
    """boxes: the components of a tab's form, by name. tab: its name in an address. place: of its runs."""

    boxes: Mapping[str, Any]
    tab: str
    place: Place

    @property
    def buttons(self) -> dict[str, str]:
        """CSS selectors of the buttons that start and stop a run."""
        buttons = self.place.buttons
        return {"go": f"#{buttons.go.elem_id}", "stop": f"#{buttons.stop.elem_id}"}

    def values(self, chosen: Mapping[str, Any]) -> list[Any]:
        """Of all boxes, in order: what is chosen, the others as the page opens with them. Raises ValueError where a
        name is no box."""
        if unknown := sorted(chosen.keys() - self.boxes.keys()):
            raise Refused(f"{', '.join(unknown)}: no box of this tab has such a name")
        return [chosen.get(name, box.value) for name, box in self.boxes.items()]
