"""Where sentences end, in the answer's own script: places to cut a response at, and whether it ended like one.

What separates sentences is decided by `sentencex`, which knows the abbreviations of many languages: a text ends as a
sentence does if it separates the text from another sentence put after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import regex
import sentencex

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# What may stand after a sentence's mark: white space, closing quotes and brackets, Markdown, emoji.
_AFTER = r"[\s\p{Pe}\p{Pf}\p{Pi}\"'”“*_`~\p{Extended_Pictographic}\p{Emoji_Modifier}\p{Regional_Indicator}\u200d\ufe0f]"
_MARKS = r"[\p{Sentence_Terminal}…།༎។៕]"
# After a word, a number or a closing mark: "because,." and a stop on an empty line end nothing.
_BEFORE = r"[\p{L}\p{M}\p{N}\p{S}\p{Pe}\p{Pf}\"'”“»*_`%\u200d][ \u00a0\u202f]?"
_ENDED = regex.compile(rf"(?<={_BEFORE}){_MARKS}+{_AFTER}*$")
_GREEK = regex.compile(rf"(?<=\p{{Greek}});{_AFTER}*$")
# An item's number, or the whole part of a decimal; of years and larger numbers the stop is a sentence's.
_NUMBERED = regex.compile(r"(?:^|[^\p{L}\p{N}.,])(?:\p{N}{1,2}|[ivxIVX]+|\p{L})\.$")
_FENCE = regex.compile(r"^\s*```", regex.MULTILINE)

# Languages by script; of the Latin ones each must find an end. Urdu is distinguished from Arabic by its own letters.
_LATIN = ("en", "de", "fr", "es", "pt")
_LANGUAGES = {
    "Hiragana": "ja",
    "Katakana": "ja",
    "Han": "zh",
    "Hangul": "ko",
    "Arabic": "ar",
    "Devanagari": "hi",
    "Ethiopic": "am",
    "Cyrillic": "ru",
    "Greek": "el",
    "Armenian": "hy",
    "Myanmar": "my",
    "Bengali": "bn",
}
_SCRIPT = regex.compile("|".join(rf"(?P<{name}>\p{{{name}}})" for name in _LANGUAGES))
_URDU = regex.compile("[ٹڈڑںےہ۔]")
# A sentence to put after a text, whose first word may follow an abbreviation and starts no sentence more than others.
_NEXT = {
    "ja": "次の文です。",
    "zh": "这是下一句。",
    "hi": "मोहन आगे गया।",
    "ar": "محمد ذهب.",
    "ur": "محمد گیا۔",
    "am": "አበበ ሄደ።",
}
_FURTHER = "Smith went on."
# Of a text as much as its last sentence may need.
_TAIL = 600


def mark(text: str) -> int | None:
    """Index of the first of the marks that end a text's last sentence; None where it does not end as a sentence does.

    >>> mark("It rains."), mark("Great! 😊"), mark("I met Mr."), mark("because,.")
    (8, 5, None, None)
    """
    line = text[-_TAIL:].rstrip().rpartition("\n")[2]
    found = _ENDED.search(line) or _GREEK.search(line)
    if found is None:
        return None
    # Only full stops stand for anything else.
    core = line[: found.start()].rstrip() + "."
    stop = line[found.start()] in ".…"
    if stop and (_NUMBERED.search(core) or not all(_separates(language, core) for language in _languages(line))):
        return None
    return len(text[-_TAIL:].rstrip()) - len(line) + found.start() + max(0, len(text) - _TAIL)


def final(text: str) -> bool:
    """Whether a text ends as a sentence does, or as a closed block of code.

    >>> final("It rains."), final("Here is why:"), final("First.\\n2.")
    (True, False, False)
    """
    return mark(text) is not None or closed_code(text)


def closed_code(text: str) -> bool:
    """Whether a text ends with a block of code that is closed."""
    fences = len(_FENCE.findall(text))
    return fences > 0 and fences % 2 == 0 and text.rstrip().endswith("```")


def sentences(text: str) -> list[str]:
    """The sentences of a text, stripped; a line ends one too.

    >>> sentences("It rains. Dr. Low stays\\nat home.")
    ['It rains.', 'Dr. Low stays', 'at home.']
    """
    found: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        item = ""
        for piece in sentencex.segment(_languages(line)[0], line):
            # An item's number belongs to its sentence.
            item += piece
            if not _NUMBERED.fullmatch(item.strip()):
                found.append(item.strip())
                item = ""
        found += [item.strip()] if item.strip() else []
    return found


def sentence_lengths(tokens: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Numbers of leading tokens after which a sentence ends, ascending; the whole is among them if it ends as one."""
    return list(_lengths(_prefixes(tokens, tokenizer)))


def _lengths(texts: Iterable[str]) -> Iterator[int]:
    before, grown = "", 0
    for count, text in enumerate(texts, 1):
        if text == before:
            continue
        if _goes_on(before, text[len(before) :]) and final(before):
            yield grown
        before, grown = text, count
    if final(before):
        yield grown


def _goes_on(before: str, piece: str) -> bool:
    """Whether a piece begins something new: after white space, or at once in scripts that have none."""
    return piece[:1].isspace() or (bool(piece) and bool(regex.search(rf"[。！？｡]{_AFTER}*$", before)))


def _prefixes(tokens: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """The text of the first token, the first two, …; what is no whole character yet is left out."""
    from backend.text.prompt import TextStream

    stream = TextStream(tokenizer)
    for token in tokens:
        stream.add(token)
        yield stream.text


def _languages(text: str) -> tuple[str, ...]:
    """The languages whose rules hold for a text, by the script of most of its letters."""
    found = Counter(match.lastgroup for match in _SCRIPT.finditer(text))
    if found["Hiragana"] + found["Katakana"]:
        return ("ja",)
    script, count = found.most_common(1)[0] if found else ("", 0)
    if 2 * count < sum(map(str.isalpha, text)) or script is None:
        return _LATIN
    if script == "Arabic" and _URDU.search(text):
        return ("ur",)
    return (_LANGUAGES[script],) if script else _LATIN


def _separates(language: str, text: str) -> bool:
    following = _NEXT.get(language, _FURTHER)
    joined = text + ("" if language in ("ja", "zh") else " ") + following
    return sentencex.segment(language, joined)[-1].strip() == following
