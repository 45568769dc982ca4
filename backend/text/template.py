"""A model's chat template: what it makes of a person's words, and what it refuses, said in a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import TemplateError, TemplateSyntaxError

from backend.refused import Refused

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from backend.settings import Turn

# Variables by which templates switch thinking on and off.
SWITCHES = ("enable_thinking", "thinking")
# A character that no template writes, to see where it puts a message.
PROBE = "\U000f0000"
MEND = "choose another model, or mend the chat template in the model's folder"
LONGEST_REASON = 200
NO_SYSTEM = "the model's chat template takes no system prompt: leave it out, or write it into the prompt"
ALONE = "takes no messages before the prompt: send the prompt alone, or choose another model"


class Chat(NamedTuple):
    """A message in the shape that a template takes, variables to give it, and what it writes before the message and
    after it."""

    messages: list[dict[str, Any]]
    options: dict[str, bool]
    head: str
    tail: str


def chat(words: str, tokenizer: PreTrainedTokenizerBase, thinking: bool, earlier: Sequence[Turn] = ()) -> Chat:
    """A person's words for the tokenizer's template: as text, or as content parts where it walks through these.

    earlier: messages before them; the head has all of these.

    Raises ValueError with a sentence where the template cannot be used, refuses the words or loses them.
    """
    try:
        return _taken(words, tokenizer, thinking, earlier)
    except Refused as refused:
        # Which of the messages are too much: what the template itself says of it, if anything, names none of the lab's.
        spoken = [turn for turn in earlier if turn.role != "system"]
        if len(spoken) < len(earlier) and _takes(words, tokenizer, thinking, spoken):
            raise Refused(NO_SYSTEM) from refused
        if earlier and _takes(words, tokenizer, thinking, ()):
            raise Refused(f"the model's chat template {ALONE}") from refused
        raise


def _takes(words: str, tokenizer: PreTrainedTokenizerBase, thinking: bool, earlier: Sequence[Turn]) -> bool:
    try:
        return bool(_taken(words, tokenizer, thinking, earlier))
    except Refused:
        return False


def _taken(words: str, tokenizer: PreTrainedTokenizerBase, thinking: bool, earlier: Sequence[Turn]) -> Chat:
    problem: Exception | None = None
    for shaped in (_text, _parts):
        try:
            options = dict.fromkeys(switches(tokenizer), thinking)
            before = [message for turn in earlier for message in shaped(turn.content, turn.role)]
            probe, whole = (_rendered(tokenizer, before + shaped(part), options) for part in (PROBE, words))
        except Exception as error:
            if problem is None and shaped is _text:
                problem = error
            continue
        if PROBE in probe and _holds(whole, "\n".join([*(turn.content for turn in earlier), words])):
            return Chat(before + shaped(words), options, probe.partition(PROBE)[0], probe.rpartition(PROBE)[2])
    if problem is not None:
        raise Refused(_refusal(problem)) from problem
    raise Refused(f"the model's chat template leaves words of the prompt out, so that none is answered: {MEND}")


def source(tokenizer: PreTrainedTokenizerBase) -> str:
    """The template's text; "" where there is none. ValueError where there are several and no default."""
    if not tokenizer.chat_template:
        return ""
    try:
        return tokenizer.get_chat_template()
    except ValueError as error:
        raise Refused(f"the model has several chat templates and no default: {MEND}") from error


def switches(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The variables of the template that switch thinking."""
    return [name for name in SWITCHES if re.search(rf"\b{name}\b", source(tokenizer))]


def _text(words: str, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": words}]


def _parts(words: str, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": [{"type": "text", "text": words}]}]


def _rendered(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, Any]], options: dict[str, bool]) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)


def _holds(whole: str, words: str) -> bool:
    """Whether all words are there, in their order; a template may trim, escape or recase what is between them."""
    whole, words = whole.casefold(), words.casefold()
    place = 0
    for word in re.findall(r"\w+", words) or words.split():
        place = whole.find(word, place)
        if place < 0:
            return False
        place += len(word)
    return True


def _refusal(error: Exception) -> str:
    reason = " ".join(str(error).split())[:LONGEST_REASON].rstrip(".: ") or type(error).__name__
    if isinstance(error, TemplateSyntaxError):
        return f"the model's chat template has a mistake in line {error.lineno} ({reason}): {MEND}"
    # What a template raises itself is of this class, and not of one below it.
    if type(error) is TemplateError:
        return f"the model's chat template refuses the prompt ({reason}): {MEND}"
    return f"the model's chat template fails ({reason}): {MEND}"
