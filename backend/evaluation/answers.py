"""One measured response, as length results keep it."""

from __future__ import annotations

from dataclasses import dataclass

from backend.settings import Unit

# Abstracts asked for in as many tokens as their authors' own summaries take (000 fig. 3).
SUMMARIES = "summaries"


@dataclass(frozen=True)
class Answer:
    """One response. prompt: index within its kind; target and count: wanted and written, in `unit`; tokens: written.

    ended: by the model; natural: as a sentence does. changed_from: the target in force for the first 30 tokens.
    """

    kind: str
    prompt: int
    target: int
    count: int
    tokens: int
    ended: bool
    natural: bool
    unit: Unit = "tokens"
    changed_from: int | None = None

    @property
    def error(self) -> int:
        """Written minus asked for."""
        return self.count - self.target

    @property
    def plain(self) -> bool:
        """Whether one of the targets that every prompt meets held, in tokens, from the first token to the last."""
        return self.unit == "tokens" and self.changed_from is None and self.kind != SUMMARIES
