"""What a reader says of ends who does not know which text is whose.

    python -m backend evaluate joint_rate --method mnt_orpe --data FOLDER --blind texts.jsonl
    python -m backend.evaluation.blind --texts texts.jsonl --verdicts verdicts.jsonl --reader "who" --method mnt_orpe

A verdict is {"n": place of the text, "ended": "yes" or "no"}. Writes assets/results/joint_rate/blind/<method>.json,
with fingerprints in the place of prompts. The texts are those of `joint_rate.Compared.blind`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.evaluation.joint_rate import rate
from backend.methods import methods
from backend.record import jsonlines
from backend.record.provenance import provenance
from backend.record.results import RESULTS, keep, writable
from backend.refused import Refused
from backend.splits import fingerprint
from backend.terminal import say

FOLDER = RESULTS / "joint_rate" / "blind"
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


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float] | None]:
    """The share of each kind that ended, as `rate` has it."""
    return {kind: rate([row["ended"] for row in rows if row["is"] == kind]) for kind in KINDS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="what --blind wrote")
    parser.add_argument("--verdicts", type=Path, required=True, help="JSON lines: n, ended")
    parser.add_argument("--reader", required=True, help="who read")
    parser.add_argument("--method", choices=methods.names(), required=True)
    parser.add_argument("--landing", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    out = given.out or FOLDER / f"{given.method}{'_landing' if given.landing else ''}.json"
    writable(out)
    rows = joined(jsonlines.read(given.texts, "prompt", "text", "is"), jsonlines.read(given.verdicts, "n", "ended"))
    options = {"method": given.method, "landing": given.landing, "reader": given.reader}
    keep(out, provenance(seed=0) | {"options": options, "texts": len(rows), "rows": rows, "summary": summary(rows)})
    say(f"{len(rows)} texts, {len(rows)} verdicts: {summary(rows)}")


if __name__ == "__main__":
    main()
