"""Training samples: prompts and responses as token ids, responses cut at sentence ends so that one has many lengths."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from transformers import PreTrainedTokenizerBase

from backend.record import jsonlines
from backend.refused import Refused
from backend.settings import RunSettings
from backend.splits import HELD_OUT, SUMMARISE, split_of
from backend.text.prompt import token_ids
from backend.text.sentences import sentence_lengths
from backend.text.units import tolerance

T = TypeVar("T")
# The questions of MMLU that are meant for training; its other splits are measured on.
TRAINED_ON = {"cais/mmlu": {"name": "all", "split": "auxiliary_train"}}
QUESTIONS = Path(__file__).parents[1] / "evaluation" / "questions.txt"


@dataclass(frozen=True)
class Text:
    """A prompt and a response, as text; source names where it is from, ended says that the response is whole."""

    source: str
    prompt: str
    response: str
    ended: bool = True


@dataclass(frozen=True)
class Sample:
    """One response of known length.

    prompt: ids in the chat template, up to the assistant's turn. response: ids without EOS. cuts: lengths at
    which the response may be cut, ascending. source: where the text is from. ended: the last cut is the response's own
    end.
    """

    text: str
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    cuts: tuple[int, ...]
    source: str = ""
    ended: bool = False

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of SHA-256 of the prompt and the response."""
        return hashlib.sha256(f"{self.text}{self.prompt}{self.response}".encode()).hexdigest()[:16]


class Row(NamedTuple):
    """A prompt and a response as training shows them. lead: most tokens by which a limit may exceed its length; None:
    any number. text: the sample's fingerprint. target: the length it is to be given; 0: its own."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    lead: int | None = None
    text: str = ""
    target: int = 0


def held_out(prompt: str) -> bool:
    """Whether a prompt is kept from training: those of the validation and the test set, every tenth whatever file it
    stands in, and the lab's QUESTIONS."""
    prompt = prompt.strip()
    tenth = hashlib.sha256(prompt.encode()).digest()[0] % HELD_OUT == 0
    return tenth or prompt in _asked() or split_of(prompt) != "train"


@cache
def _asked() -> frozenset[str]:
    return frozenset(QUESTIONS.read_text("utf-8").splitlines())


def corpus(files: Sequence[Path]) -> list[Text]:
    """The texts of all files. ValueError that names those that are missing."""
    if missing := [str(file) for file in files if not file.is_file()]:
        raise Refused(f"there is no file {', '.join(missing)}: write one with `python -m backend distill`")
    return [text for file in files for text in texts(file)]


def texts(file: Path) -> Iterator[Text]:
    """The texts of a JSON-lines file, by its fields: `prompt, response`; `id, response` beside `prompts.jsonl`
    (HelloBench); or `abstract, tldr` (SciTLDR). ValueError for another kind."""
    rows = [row for row in jsonlines.read(file) if "done" not in row]
    fields = set(rows[0]) if rows else set()
    if {"prompt", "response"} <= fields:
        for row in rows:
            yield Text(row.get("source", file.stem), row["prompt"], row["response"], row.get("ended", True))
    elif {"id", "response"} <= fields:
        by_id = {row["id"]: row["prompt"] for row in jsonlines.read(file.parent / "prompts.jsonl", "id", "prompt")}
        yield from (Text(file.stem, by_id[row["id"]], row["response"]) for row in rows if row["id"] in by_id)
    elif {"abstract", "tldr"} <= fields:
        yield from (Text(file.stem, SUMMARISE + row["abstract"], row["tldr"]) for row in rows)
    else:
        raise Refused(f"{file} has rows with {', '.join(sorted(fields)) or 'nothing'}: give prompt and response")


def prompts_of(file: Path) -> list[str]:
    """The prompts that a JSON-lines file asks, or the abstracts that it asks to be summarised; without those held out.
    ValueError for another kind."""
    rows = jsonlines.read(file)
    abstracts = bool(rows) and isinstance(rows[0], dict) and "abstract" in rows[0]
    before, field = (SUMMARISE, "abstract") if abstracts else ("", "prompt")
    jsonlines.demand(file, rows, field)
    return [asked for row in rows if not held_out(asked := before + row[field])]


def hub_texts(name: str, most: int, seed: int = 0) -> Iterator[Text]:
    """Texts of a data set on the hub: 'Open-Orca/OpenOrca' or 'cais/mmlu' (000 §4), or one with prompt and response.

    Needs the package `datasets` and, for what is no local folder, the network. ValueError where it cannot be read.
    """
    try:
        from datasets import load_dataset

        rows = load_dataset(name, **(TRAINED_ON.get(name) or {"split": "train"}), streaming=True)
    except ImportError as error:
        raise Refused("data sets of the hub need one more package: pip install datasets") from error
    except (OSError, ValueError) as error:
        raise Refused(f"the data set {name} cannot be read ({error}): check its name and the network") from error
    for row in rows.shuffle(seed=seed, buffer_size=10_000).take(most):
        yield _hub_text(name, row)


def _hub_text(name: str, row: Mapping[str, Any]) -> Text:
    if {"question", "choices", "answer"} <= row.keys():
        letters = "\n".join(f"{letter}. {text}" for letter, text in zip("ABCD", row["choices"], strict=True))
        right = row["answer"] if isinstance(row["answer"], int) else "ABCD".index(row["answer"])
        return Text(name, f"{row['question']}\n{letters}", f"{'ABCD'[right]}. {row['choices'][right]}")
    prompt = row.get("question") or row.get("prompt")
    if prompt is None or "response" not in row:
        raise Refused(f"{name} has rows with {', '.join(sorted(row))}: give one with prompt and response")
    return Text(name, prompt, row["response"])


def samples(
    texts: Iterable[Text], tokenizer: PreTrainedTokenizerBase, longest_prompt: int, longest: int, shortest: int = 0,
    ended: bool = False,
) -> list[Sample]:  # fmt: skip
    """Tokenised texts, responses cut to fit; without those held out, of a longer prompt, or cut with no sentence end.

    shortest: above 0, responses are kept whole instead, those between so many tokens and `longest`. ended: leave out
    those that are not whole, or do not fit whole.
    """
    found = []
    for text in texts:
        if held_out(text.prompt) or not text.prompt.strip():
            continue
        prompt = tuple(prompt_ids(text.prompt, tokenizer))
        # One token more tells whether the response goes on.
        response = tokenizer(text.response.strip(), add_special_tokens=False)["input_ids"][: longest + 1]
        # What has no sentence, like the answer "B. 4", ends where it ends.
        ends = [] if shortest else sentence_lengths(response, tokenizer)
        cuts = tuple(cut for cut in ends or [len(response)] if max(1, shortest) <= cut <= longest)
        if cuts and len(prompt) <= longest_prompt:
            whole = text.ended and cuts[-1] == len(response)
            if whole or not ended:
                found.append(Sample(text.prompt, prompt, tuple(response[:longest]), cuts, text.source, whole))
    return found


def prompt_ids(prompt: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids of a prompt in the chat template."""
    return token_ids(RunSettings(prompt=prompt), tokenizer).tolist()


def batches(
    samples: Sequence[Sample],
    longest: int,
    budget: int,
    random_: random.Random,
    anywhere: float = 0.0,
    whole: float = 0.0,
    prompt_of: Callable[[Sample, int], tuple[int, ...]] = lambda sample, _: sample.prompt,
    slack: bool = False,
) -> list[list[Row]]:
    """One pass over the samples as batches of responses of similar length, in random order.

    Each sample is cut at one of its sentence ends, drawn anew, of at most `longest` tokens; or, with the chance
    `anywhere`, between any two tokens; or, with the chance `whole`, not at all if it ended by itself: a limit then
    exceeds what was cut by less than the next sentence. `budget` bounds a batch's tokens, padding included. prompt_of:
    the prompt's ids, given the sample and the target. slack: targets are drawn around the responses' lengths.
    """
    rows = []
    for sample in samples:
        if cut := _cut(sample, longest, random_, anywhere, whole):
            lead = _lead(sample, cut) if whole else None
            target = around(cut, random_) if slack else cut
            rows.append(Row(prompt_of(sample, target), sample.response[:cut], lead, sample.fingerprint, target))
    # Ordered by length with some disorder, so that a pass does not always put the same samples together.
    rows.sort(key=lambda row: (len(row.prompt) + len(row.response)) * random_.uniform(0.9, 1.1))
    found = packed(rows, [len(row.prompt) + len(row.response) + 1 for row in rows], budget)
    random_.shuffle(found)
    return found


def packed(rows: Sequence[T], lengths: Sequence[int], budget: int) -> list[list[T]]:
    """Rows in their order as batches, each of at most `budget` tokens with padding, or of one row."""
    found: list[list[T]] = [[]]
    widest = 0
    for row, length in zip(rows, lengths, strict=True):
        widest = max(widest, length)
        if found[-1] and widest * (len(found[-1]) + 1) > budget:
            found.append([])
            widest = length
        found[-1].append(row)
    return found


def _cut(sample: Sample, longest: int, random_: random.Random, anywhere: float, whole: float) -> int:
    """The length to cut a response to; 0 where none fits."""
    cuts = [cut for cut in sample.cuts if cut <= longest]
    if not cuts:
        return 0
    drawn = random_.random()
    if drawn < anywhere:
        return random_.randint(1, min(longest, len(sample.response)))
    if drawn < anywhere + whole and sample.ended and sample.cuts[-1] <= longest:
        return sample.cuts[-1]
    return random_.choice(cuts)


def around(length: int, random_: random.Random) -> int:
    """A target that a response of so many tokens meets, each as likely as the others."""
    far = int(2 * tolerance(length, "tokens"))
    near = [
        target
        for target in range(max(1, length - far), length + far + 1)
        if abs(target - length) <= tolerance(target, "tokens")
    ]
    return random_.choice(near)


def _lead(sample: Sample, cut: int) -> int | None:
    """Row.lead where the limit made the response end: with more, the next sentence would have fitted as well, or, where
    it is cut amid one, another token."""
    if sample.ended and cut == sample.cuts[-1]:
        return None
    further = next((later for later in sample.cuts if later > cut), len(sample.response) + 1)
    return further - cut - 1 if cut in sample.cuts else 1
