"""Gap sentences: a first lesson for the headline model on any English text (PEGASUS, Zhang et al. 2020, §3.1).

    python -m backend gaps --data DATA/headlines --texts DATA/responses.jsonl DATA/scitldr_train.jsonl --out GAPS
    python -m backend headlines --data GAPS --out FIRST
    python -m backend headlines --data DATA/headlines --start FIRST --out assets/headlines

Of some sentences in a row, the one with most words of the others is to be written as a headline would be: without its
full stop, and its first clause alone where the whole is too long. It is taken out of the source, but for one in three,
which teaches to look words up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from backend.encoder_decoder.pairs import Pair
from backend.record import jsonlines
from backend.refused import Refused
from backend.splits import SUMMARISE
from backend.text.sentences import sentences
from backend.text.words import FUNCTION_WORDS, spoken
from backend.training.data import corpus, held_out

# Files that are measured on, by their names (see `refuse_tests`).
TESTS = frozenset(
    "test valid dev scitldr_dev scitldr_test hellobench_ht longbench_write_en lifebench_lite_en novels".split()
)
# Words of a source; of the sentences in a row how many are taken in turn; characters of what is to be written.
WORDS, TURNS, SHORTEST, LONGEST = 70, 2, 20, 92
STAYS = 1 / 3
# A source that has a sentence left has so many words.
LEFT = 8
CLAUSE = re.compile(r"(?<=\w)(?=[,;:] | [–—(-] ?)")
QUOTES = str.maketrans("’‘“”–—\xa0", "''\"\"-- ")


def refuse_tests(files: Iterable[Path]) -> None:
    """Refused for a file that is for tests or validation only."""
    for file in files:
        if TESTS & {file.stem, file.parent.name}:
            raise Refused(f"{file} is for tests: train on others")


def write(data: Path, files: Sequence[Path], out: Path, seed: int = 0) -> int:
    """Write `train.jsonl` and `valid.jsonl` at `out`; how many pairs there are to train on.

    data: folder of the headlines, whose own pairs are among those to train on, and whose validation pairs stay what is
    validated on. files: as `corpus` reads them; prompts that are held out, and their responses, are left out.
    """
    refuse_tests(files)
    drawn = random.Random(seed)
    headlines = jsonlines.read(data / "train.jsonl", "source", "headline")
    pairs = {(row["source"], row["headline"]): None for row in headlines}
    said = set()
    for document in _documents([row["source"] for row in headlines], files):
        for pair in gaps(document, drawn):
            # What many descriptions say word for word is learnt by heart else.
            if pair.text not in said:
                pairs[pair.source, pair.text] = None
                said.add(pair.text)
    valid = jsonlines.read(data / "valid.jsonl", "source", "headline")
    for name, found in (("train", list(pairs)), ("valid", [(row["source"], row["headline"]) for row in valid])):
        file = out / f"{name}.jsonl"
        file.unlink(missing_ok=True)
        out.mkdir(parents=True, exist_ok=True)
        jsonlines.append(file, ({"source": source, "headline": text} for source, text in found))
    return len(pairs)


def _documents(own: Iterable[str], files: Sequence[Path]) -> Iterator[str]:
    """Texts, each once."""
    kept = [text for text in corpus(files) if not held_out(text.prompt)]
    read = (part for text in kept for part in (text.prompt.removeprefix(SUMMARISE), text.response))
    yield from dict.fromkeys((*own, *read))


def gaps(document: str, drawn: random.Random) -> Iterator[Pair]:
    """The pairs of a document: its sentences in rows of so many words, and of each row the likeliest to be written."""
    for row in _rows(sentences(document)):
        for place in _central(row)[:TURNS]:
            text = headline(row[place])
            kept = row if drawn.random() < STAYS else [*row[:place], *row[place + 1 :]]
            source = " ".join(kept)
            if text and len(source.split()) >= LEFT:
                yield Pair(source, text)


def headline(sentence: str) -> str:
    """A sentence as a headline: its first clause where the whole is too long; empty where neither is of a headline's
    length and in plain letters.

    >>> headline("It reads files, and writes them."), headline("No.")
    ('It reads files, and writes them', '')
    """
    text = sentence.translate(QUOTES).strip("*#-•>| \t")
    if len(text) > LONGEST:
        ends = [found.start() for found in CLAUSE.finditer(text) if found.start() <= LONGEST]
        text = text[: ends[-1]] if ends else ""
    text = text.rstrip(" .:;,")
    return text if SHORTEST <= len(text) <= LONGEST and text.isascii() and text.isprintable() else ""


def _rows(found: Iterable[str]) -> Iterator[list[str]]:
    """Sentences in a row, of two sentences and so many words, about."""
    row: list[str] = []
    for sentence in found:
        row.append(sentence)
        if sum(len(each.split()) for each in row) >= WORDS:
            yield row
            row = []
    if row:
        yield row


def _central(row: Sequence[str]) -> list[int]:
    """Places of the sentences, those with the greatest share of words that others have first."""
    words = [{word for word in spoken(sentence) if word not in FUNCTION_WORDS} for sentence in row]
    def shared(place: int) -> float:
        others = set().union(*words[:place], *words[place + 1 :])
        return len(words[place] & others) / max(1, len(words[place]))

    return sorted(range(len(row)), key=lambda place: -shared(place))
