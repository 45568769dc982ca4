"""A corpus in the model's own words, so that learning lengths teaches no other style.

    python -m backend distill --out corpus.jsonl --questions 1500
    python -m backend distill --out corpus.jsonl --prompts instructions.jsonl
    python -m backend distill --out stories.jsonl --questions 300 --begins "Write a story about" "Tell a story about"

Questions are sampled from the empty user turn or from one that has begun, or taken from a JSON-lines file. Each is
answered under several hints about length that are then dropped from the prompt, so that the corpus holds short answers
and long ones. Answers that repeat themselves or hold no whole sentence are left out. A run goes on where an earlier one
stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backend.inference.model_runner import runner
from backend.inference.responses import Response, respond
from backend.inference.side_by_side import side_by_side
from backend.measures.overlap import repetition
from backend.models.pool import Loaded
from backend.record import jsonlines
from backend.record.provenance import provenance
from backend.record.results import keep, resumed
from backend.refused import Refused
from backend.settings import RunSettings
from backend.text.prompt import in_words
from backend.text.sentences import sentence_lengths
from backend.training.data import prompt_ids
from backend.training.ends import all_ends
from backend.training.reward import REPEATED

HINTS = ("", "Answer in one short sentence.", "Answer in two or three sentences.", "Answer in detail.")
LONGEST_PROMPT = 400
LONGEST_QUESTION = 120
SHARD, ROWS = 192, 48
# Between the random numbers of one seed and of the next.
SPREAD = 1_000_003
SAMPLING: dict[str, Any] = {"temperature": 0.7, "top_k": 50, "top_p": 0.9}
FREELY: dict[str, Any] = {"temperature": 1.0, "top_k": 50, "top_p": 0.95}


def words_hint(words: int) -> str:
    """A hint that asks for so many words, 0 for none. ValueError below that."""
    if words < 0:
        raise Refused(f"--words {words}: give numbers from 0, which asks for no length")
    return in_words(words) if words else ""


@dataclass(frozen=True)
class Pair:
    """A prompt and a response; source: where the prompt is from; ended: the response ended by itself."""

    id: str
    source: str
    prompt: str
    response: str
    ended: bool


def distill(
    loaded: Loaded,
    out: Path,
    questions: int,
    prompts: Sequence[tuple[str, str]] = (),
    longest: int = 256,
    turns: int = len(HINTS),
    seed: int = 0,
    report: Callable[[str], None] = print,
    hints: Sequence[str] = HINTS,
    begins: Sequence[str] = ("",),
    longest_prompt: int = LONGEST_PROMPT,
) -> int:
    """Write the corpus at `out`, or go on with it; returns the number of pairs in it.

    questions: how many to sample from the model; prompts: (source, text) of others. longest: cap on an answer's
    tokens. turns: answers to each question, every one under the next of the hints; `("",)` asks for answers as long as
    the model makes them. begins: how sampled questions begin, in turn. longest_prompt: tokens; prompts of more are left
    out. A manifest beside the corpus tells how it was made. ValueError for a corpus made otherwise.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    asked = _sampled(loaded, out.with_suffix(".questions.jsonl"), questions, seed, begins)
    asked += [(source, text) for source, text in prompts if len(_ids(loaded, text)) <= longest_prompt]
    jobs = [(*question, hints[(i + turn) % len(hints)]) for turn in range(turns) for i, question in enumerate(asked)]
    settings = {
        "model": loaded.capabilities.model, "asked": len(jobs), "hints": list(hints), "turns": turns, "seed": seed,
        "longest": longest, "questions": questions, "sampling": SAMPLING, "begins": list(begins),
    }  # fmt: skip
    manifest = out.with_suffix(".manifest.json")
    resumed(manifest, lambda before: _same(before, settings))
    keep(manifest, settings)
    done = _done(out)
    while done < len(jobs):
        shard = jobs[done : done + SHARD]
        asked_ids = [_ids(loaded, f"{text}\n\n{hint}".strip()) for _, text, hint in shard]
        responses = _responses(loaded, asked_ids, longest, SAMPLING, SPREAD * seed + done)
        pairs = [_pair(loaded, *case[:2], response) for case, response in zip(shard, responses, strict=True)]
        kept = [pair for pair in pairs if pair]
        done += len(shard)
        jsonlines.append(out, [asdict(pair) for pair in kept] + [{"done": done}])
        report(f"{done} of {len(jobs)} asked, {len(kept)} of the last {len(shard)} kept")
    count = sum("done" not in row for row in jsonlines.read(out))
    keep(manifest, provenance(seed) | settings | {"pairs": count})
    return count


def _responses(
    loaded: Loaded, asked: Sequence[Tensor], longest: int, sampling: Mapping[str, Any], seed: int
) -> list[Response]:
    """One to each of these ids, of its own seed: `seed` and its place."""
    model, ends = runner(loaded), all_ends(loaded)

    def response(case: tuple[int, Tensor]) -> Response:
        place, ids = case
        settings = RunSettings(prompt="-", max_new_tokens=longest, seed=(seed + place) % 2**32, **sampling)
        return respond(model, ids, settings, ends)

    return list(side_by_side(response, enumerate(asked), ROWS))


def _same(before: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a corpus to go on with. ValueError where that was made with other settings."""
    if changed := [name for name, value in settings.items() if before.get(name) != value]:
        raise Refused(f"it has other settings ({', '.join(changed)})")
    return before


def _done(out: Path) -> int:
    marks = [row["done"] for row in (jsonlines.read(out) if out.exists() else []) if "done" in row]
    return marks[-1] if marks else 0


def _pair(loaded: Loaded, source: str, prompt: str, response: Response) -> Pair | None:
    tokens = response.tokens
    cuts = sentence_lengths(tokens, loaded.tokenizer)
    if not cuts or repetition(tokens) > REPEATED:
        return None
    ended = response.ended and cuts[-1] == len(tokens)
    text = loaded.tokenizer.decode(tokens[: cuts[-1]])
    name = hashlib.sha256(f"{prompt}\0{text}".encode()).hexdigest()[:12]
    return Pair(name, source, prompt, text, ended)


def _sampled(loaded: Loaded, file: Path, count: int, seed: int, begins: Sequence[str]) -> list[tuple[str, str]]:
    """Questions sampled from a user turn that is empty or has begun, kept in a file."""
    found = jsonlines.read(file) if file.exists() else []
    shard = 0
    while len(found) < count:
        begun = [begins[i % len(begins)] for i in range(SHARD)]
        turns, first = [turn(loaded, text) for text in begun], SPREAD * seed + 2**31 + SHARD * (len(found) + shard)
        responses = _responses(loaded, turns, LONGEST_QUESTION, FREELY, first)
        new = whole_turns(loaded, begun, responses)
        jsonlines.append(file, new)
        found, shard = found + new, shard + 1
    return [("own", text) for text in found[:count]]


def whole_turns(loaded: Loaded, begun: Sequence[str], responses: Sequence[Response]) -> list[str]:
    """User turns with what they have begun with, those that ended and say something."""
    return [
        (text + loaded.tokenizer.decode(response.tokens)).strip()
        for text, response in zip(begun, responses, strict=True)
        if response.ended and len(response.tokens) >= 5
    ]


def _ids(loaded: Loaded, text: str) -> Tensor:
    return torch.tensor(prompt_ids(text, loaded.tokenizer))


def turn(loaded: Loaded, begun: str) -> Tensor:
    """The chat template up to where the user's words would start, and these as far as they have begun."""
    marked = loaded.tokenizer.apply_chat_template([{"role": "user", "content": "\x00"}], tokenize=False)
    text = marked.split("\x00")[0] + begun
    return torch.tensor(loaded.tokenizer(text, add_special_tokens=False)["input_ids"])
