"""A response in two parts: what a model thinks, between marks of its own, and what it answers after them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from backend.text.prompt import TextStream
from backend.text.template import source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARKS = {"<think>": "</think>", "[THINK]": "[/THINK]", "<seed:think>": "</seed:think>"}

Stage = Literal["before", "inside", "after", "answer"]


def begun(tokenizer: PreTrainedTokenizerBase, tail: str) -> Response:
    """An empty response; tail: what the chat template writes before it, where it may open or close the thinking."""
    tail, known = tail.rstrip(), source(tokenizer)
    opened = next((mark for mark in MARKS if tail.endswith(mark)), "")
    closed = any(tail.endswith(mark) for mark in MARKS.values())
    return Response(tokenizer, opened, not closed and any(mark in known for mark in MARKS))


class Response:
    """The tokens of one response, each of them of the thinking or of the answer.

    The thinking begins with a mark at the start of the response or, `opened`, at the end of the prompt; its marks and
    the blank tokens after it belong to it. They may be special tokens or ordinary ones, in several pieces.
    expected: whether the template knows of thinking, so that first tokens which may become a mark are no answer yet.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, opened: str = "", expected: bool = False) -> None:
        self.tokenizer, self.expected = tokenizer, expected
        self.answer, self._thought = TextStream(tokenizer), TextStream(tokenizer, specials=True)
        self._open = opened
        # Tokens of the thinking up to its first mark and up to its last, and those that would end it.
        self._mark = self._ended = 0
        self._end: list[int] = []
        self._stage: Stage = "inside" if opened else "before"

    @property
    def thinking(self) -> bool:
        """Whether the next token still belongs to the thinking, as far as can be seen."""
        return self._stage == "inside" or (self._stage == "before" and self.expected)

    @property
    def thought(self) -> int:
        """Tokens of the thinking."""
        return 0 if self._stage == "before" and not self.expected else len(self._thought.tokens)

    @property
    def tokens(self) -> int:
        """Tokens of both parts."""
        return self.thought + len(self.answer.tokens)

    @property
    def thoughts(self) -> str:
        """The thinking's text, without its marks."""
        if not self.thought:
            return ""
        text = self._thought.text.strip().removeprefix(self._open)
        return text.partition(MARKS[self._open])[0].strip() if self._open else text

    def add(self, token: int) -> tuple[str, bool]:
        """The text that one more token adds ("" while a character is incomplete), and whether it is thinking."""
        if self._stage == "before":
            return self._first(token)
        if self._stage == "after" and self.tokenizer.decode([token]).strip():
            self._stage = "answer"
        if self._stage == "answer":
            return self.answer.add(token), False
        text = self._thought.add(token)
        self._look_for_the_end()
        return text, True

    def closing(self, budget: int) -> int | None:
        """The token that has to come next, where so many tokens of thinking are all that it may have; 0 is no bound.

        The thinking is ended by its mark and an empty line, as its model would (budget forcing: Muennighoff et al.
        2025, s1). None while the budget lasts, where the model is about to end it or has, and once that is written.
        """
        if not budget:
            return None
        tokens, end = self._thought.tokens, self._ending
        if self._stage == "inside" and len(tokens) >= self._bound(budget):
            begun = next(n for n in range(len(end), -1, -1) if tokens[len(tokens) - n :] == end[:n])
            amid = any(self._thought.text.endswith(MARKS[self._open][:n]) for n in range(1, len(MARKS[self._open])))
            # A mark in several pieces, the first of which the model has written.
            own = not begun and amid and len(tokens) < self._bound(budget) + len(end)
            return None if own else end[begun]
        if self._stage == "after" and self.closed(budget):
            since, rest = tokens[self._ended :], end[self._closes :]
            return rest[len(since)] if len(since) < len(rest) and since == rest[: len(since)] else None
        return None

    def closed(self, budget: int) -> bool:
        """Whether the thinking was ended because it had used its budget."""
        if self._ended <= self._bound(budget):
            return False
        end = self._ending[: self._closes]
        return self._thought.tokens[self._ended - len(end) : self._ended] == end

    def _bound(self, budget: int) -> float:
        """Tokens that the thinking may have: its first mark is whole in any case."""
        return max(budget, self._mark) if budget else math.inf

    @property
    def _ending(self) -> list[int]:
        """The tokens that end the thinking: its mark on a line, and an empty one."""
        if not self._end and self._open:
            self._end = self.tokenizer.encode(f"\n{MARKS[self._open]}\n\n", add_special_tokens=False)
        return self._end

    @property
    def _closes(self) -> int:
        """How many of these there are up to the mark's last."""
        mark, end = MARKS[self._open], self._ending
        return next(n for n in range(1, len(end) + 1) if mark in self.tokenizer.decode(end[:n]))

    def _first(self, token: int) -> tuple[str, bool]:
        """One of the first tokens, which may become a mark together."""
        text = self._thought.add(token)
        start = self._thought.text.lstrip()
        if opened := next((mark for mark in MARKS if start.startswith(mark)), None):
            self._open, self._stage, self.answer = opened, "inside", TextStream(self.tokenizer)
            self._mark = len(self._thought.tokens)
            self._look_for_the_end()
            return text, True
        if any(mark.startswith(start) for mark in MARKS):
            return (text, True) if self.expected else (self.answer.add(token), False)
        before = self._thought.tokens[:-1]
        self._stage, self._thought = "answer", TextStream(self.tokenizer, specials=True)
        for earlier in before[len(self.answer.tokens) :]:
            self.answer.add(earlier)
        return self.answer.add(token), False

    def _look_for_the_end(self) -> None:
        if self._stage == "inside" and MARKS[self._open] in self._thought.text:
            self._stage, self._ended = "after", len(self._thought.tokens)
