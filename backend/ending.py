"""How an answer ended, as its reader would say."""

from __future__ import annotations

import re

from backend.methods import methods
from backend.settings import RunSettings
from backend.steps import Finish
from backend.text.sentences import final, sentences
from backend.text.units import met, words

# A sentence of fewer words may well be said twice: 'Yes.'
SAID = 4
# A list's number or mark, and all else before the first letter.
BEFORE = re.compile(r"^[\W\d_]+")


def ending(finish: Finish, settings: RunSettings) -> tuple[str, str]:
    """Whether an answer ended well, and how, in the words that follow "ended".

    'good' is a whole sentence that the model ended itself, within the tolerance of the target or the limit; "" is
    neither good nor bad.

    A count can put a full stop after half a thought, so a model that was steered is believed only where a search has
    asked the base model. One that nothing steered may end without a full stop: a word, a line of a list.
    """
    if finish.reason == "error":
        return "bad", "failed"
    if finish.reason == "stopped":
        return "", "stopped"
    if finish.reason == "cap":
        return "bad", "cut at the maximum"
    method = methods[settings.method]
    led = settings.steered and (method.adapter or method.writes_end)
    if not final(finish.text):
        return ("bad", "amid a sentence") if led else ("", "without a full stop")
    # The target that the run had at its end, which may have been moved.
    produced, error = getattr(finish, settings.unit), finish.error
    near = error is None or met(produced, produced - error, settings.unit, settings.limited)
    if _repeats(finish.text):
        return ("" if near else "bad"), "with a sentence, repeating itself"
    if not near:
        return "bad", "with a sentence"
    if finish.landed:
        return ("good", "with a sentence") if finish.own_end else ("", "with a sentence, by force")
    return ("", "with a full stop, unchecked") if led else ("good", "with a sentence")


def ended(finish: Finish, settings: RunSettings) -> str:
    """How an answer ended, in words that page, terminal and tables share: "ended with a sentence"."""
    words = ending(finish, settings)[1]
    return f"ended {words}" if finish.reason == "eos" else words


def _repeats(text: str) -> bool:
    """Whether one of its sentences, word for word, is there twice, be it as a list's points; lines of tables and code
    are none."""
    said = [" ".join(BEFORE.sub("", each).casefold().split()) for each in sentences(text) if final(each)]
    said = [each for each in said if words(each) >= SAID]
    return len(set(said)) < len(said)
