"""What a reader says of ends who does not know which text is whose.

    python -m backend evaluate joint_rate --method mnt_orpe --data FOLDER --blind texts.jsonl
    python -m backend evaluate blind --texts texts.jsonl --verdicts verdicts.jsonl --reader "who" --method mnt_orpe

A verdict is {"n": place of the text, "ended": "yes" or "no"}. A result has fingerprints in the place of prompts. The
texts are those of `backend.evaluation.joint.Compared.blind`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from pydantic import Field

from backend.evaluation.card import Card
from backend.evaluation.experiment import Experiment, Flags, Result, Results, Say
from backend.evaluation.experiments.joint_rate import NAMES, named
from backend.evaluation.joint import rate, share_of
from backend.evaluation.markdown import table
from backend.record import jsonlines
from backend.refused import Refused
from backend.settings import Method
from backend.splits import fingerprint

KINDS = ("method", "complete", "cut")
VERDICTS = {"yes": True, "no": False}


def joined(texts: Sequence[Mapping[str, str]], verdicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each text with what was said of it. ValueError where a verdict is missing, double or neither yes nor no."""
    places = [verdict.get("n") for verdict in verdicts]
    if sorted(map(str, places)) != sorted(map(str, range(len(texts)))):
        raise Refused(f"there are {len(texts)} texts: give each one verdict, by its place from 0 on")
    if odd := next((each for each in verdicts if each.get("ended") not in VERDICTS), None):
        raise Refused(f"a text ended or did not: give yes or no in place of {odd.get('ended')!r}")
    said = {verdict["n"]: VERDICTS[verdict["ended"]] for verdict in verdicts}
    return [
        {"prompt": fingerprint(row["prompt"]), "text": row["text"], "is": row["is"], "ended": said[place]}
        for place, row in enumerate(texts)
    ]


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None] | None]:
    """The share of each kind that ended, as `rate` has it."""
    return {kind: rate([row["ended"] for row in rows if row["is"] == kind]) for kind in KINDS}


class Blind(Experiment):
    name = "blind"
    title = "Ends, read blind"
    question = "Does a reader who does not know whose a text is say that it comes to an end?"
    order = 90
    files = tuple(f"joint_rate/blind/{name}.json" for name in NAMES)

    class Options(Flags):
        texts: Path = Field(description="what `evaluate joint_rate --blind` wrote")
        verdicts: Path = Field(description="JSON lines: n, ended")
        reader: str = Field(description="who read")
        method: Method = Field(description="whose answers they are")
        landing: int = 0
        in_prompt: bool = False

    def file(self, options: Options) -> str:
        return f"joint_rate/blind/{named(options.method, options.landing, options.in_prompt)}.json"

    def measure(self, options: Options, before: Result | None, say: Say) -> Iterator[dict[str, Any]]:
        texts = jsonlines.read(options.texts, "prompt", "text", "is")
        rows = joined(texts, jsonlines.read(options.verdicts, "n", "ended"))
        about = options.model_dump(include={"method", "landing", "in_prompt", "reader"})
        say(f"{len(rows)} texts, {len(rows)} verdicts: {summary(rows)}")
        yield {"options": about, "texts": len(rows), "rows": rows, "summary": summary(rows)}

    def card(self, results: Results) -> Card:
        rows = []
        for name, found in results.items():
            counts = Counter(row["is"] for row in found["rows"])
            shares = [share_of(found["summary"][kind], counts[kind]) for kind in KINDS]
            rows.append([PurePath(name).stem.replace("_", " "), found["options"]["reader"], *shares])
        words = (
            "Does the text come to an end there? Answers of the method were shuffled with answers that the base model "
            "ended itself and with random cuts of these, and read by someone who did not know which is which."
        )
        columns = ["method", "reader", "of the method", "complete", "cut at random"]
        return Card(f"{words}\n\n{table(columns, rows)}")
