"""How position-id compression changes what a model writes at length: lengths, endings, repetition (004 §4, table 1).

`python -m backend.evaluation.longform` writes assets/results/longform.json; it goes on where an earlier run stopped.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backend.engine import Lab
from backend.evaluation.machine import provenance
from backend.evaluation.quality import distinct
from backend.settings import RunSettings, Watch
from backend.steps import Finish, Step

OUT = Path(__file__).parents[2] / "assets" / "results" / "longform.json"
NGRAM = 4
SEVERE = 0.5
RATIOS = (0.25, 4.0, 16.0)
PROMPTS = (
    "Explain how a refrigerator keeps food cold.",
    "Describe the life cycle of a star for a curious teenager.",
    "Write a guide to growing tomatoes on a balcony.",
    "What should I see in three days in Rome?",
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "How did the invention of printing change the lives of ordinary people?",
)


@dataclass(frozen=True)
class Answer:
    """One response. repetition: share of its token 4-grams that occurred before in it; ended: by the end mark."""

    tokens: int
    words: int
    repetition: float
    ended: bool

    @property
    def corrupted(self) -> bool:
        """No end before the cap, or more than half of its 4-grams repeated (004 §4.1 leaves the rule open)."""
        return not self.ended or self.repetition > SEVERE


def repetition(tokens: list[int]) -> float:
    """Share of the 4-grams of a response that are not its first of their kind; 0 below 4 tokens."""
    return 1 - distinct(tokens, NGRAM)


def answer(lab: Lab, settings: RunSettings) -> Answer:
    """Run the settings to their end and measure the response."""
    tokens: list[int] = []
    for event in lab.stream(settings):
        if isinstance(event, Step):
            tokens.append(event.token)
        elif isinstance(event, Finish):
            return Answer(event.tokens, event.words, repetition(tokens), event.reason == "eos")
    raise RuntimeError("a run ended without saying why")


def policies() -> dict[str, dict[str, Any]]:
    """The settings compared: plain, and dynamic PIC at each ratio in both readings of 004 eq. 9."""
    named: dict[str, dict[str, Any]] = {"plain": {}}
    for reading in ("contiguous", "literal"):
        for ratio in RATIOS:
            named[f"dynamic {reading} s={ratio:g}"] = {"pic": "dynamic", "ratio": ratio, "reading": reading}
    return named


def summary(answers: Iterable[Answer]) -> dict[str, float]:
    """Means over responses; the medians of lengths as well, because a response that never ends stretches the mean."""
    found = list(answers)
    return {
        "responses": len(found),
        "tokens_mean": statistics.mean(a.tokens for a in found),
        "tokens_median": statistics.median(a.tokens for a in found),
        "words_mean": statistics.mean(a.words for a in found),
        "repetition_mean": statistics.mean(a.repetition for a in found),
        "ended": statistics.mean(a.ended for a in found),
        "corrupted": statistics.mean(a.corrupted for a in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m backend.evaluation.longform", description=__doc__)
    parser.add_argument("--cap", type=int, default=640, help="hard cap on tokens (default 640)")
    parser.add_argument("--recent", type=int, default=128, help="recent tokens kept uncompressed (default 128)")
    parser.add_argument("--repetition-penalty", type=float, default=1.0, help="1 is off (default)")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    lab = Lab()
    common = {"max_new_tokens": given.cap, "recent": given.recent, "repetition_penalty": given.repetition_penalty}
    asked = {"settings": common, "prompts": list(PROMPTS)}
    stored = json.loads(given.out.read_text()) if given.out.exists() else {}
    result = stored if stored | asked == stored else provenance(seed=0) | asked
    answers = result.setdefault("answers", {})
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for name, policy in policies().items():
        done = answers.setdefault(name, [])
        for prompt in PROMPTS[len(done) :]:
            found = answer(lab, RunSettings(prompt=prompt, watch=Watch(enabled=False), **common, **policy))
            done.append(asdict(found))
            print(f"{name:32} {found}", flush=True)
            result.setdefault("summary", {})[name] = summary(Answer(**a) for a in done)
            given.out.write_text(json.dumps(result, indent=1))
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
