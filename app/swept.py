"""A sweep on the page: what it may be, about how long it takes, and its answers as a table, a chart and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError

from app.charts import drawing
from app.charts.base import Chart
from app.charts.palette import SERIES_COLOURS
from app.plans import duration
from backend import sweep
from backend.methods import methods
from backend.refused import Refused
from backend.settings import RunSettings, Unit, counted, signed

MAX_RUNS, MAX_TARGET, MAX_SEED = 200, 1_000, 2**32 - 1
MAX_BYTES, MAX_CHARACTERS = 500_000, 4_000
HEADS = ("Prompt", "Method", "Target", "Seed", "Length", "Error", "Ended", "Answer")
# Tokens a second of so many rows of the embedded model on two cores: assets/results/arrivals.json.
SPEEDS = {1: 31, 2: 42, 4: 92, 8: 109}
# Tokens of a word and of a character of English.
TOKENS: dict[Unit, float] = {"tokens": 1, "words": 1.3, "characters": 0.23}


class File(NamedTuple):
    """An uploaded table: its name, and its prompts."""

    name: str
    prompts: list[str]

    def packed(self) -> str:
        """As the page holds it."""
        return orjson.dumps([*self]).decode()

    @classmethod
    def of(cls, packed: str) -> File:
        """The inverse of `packed`, of whatever a page hands over: what is no table has no prompts."""
        try:
            return _FILE.validate_json(packed)
        except ValidationError:
            return cls("", [])


_FILE = TypeAdapter(File)


class Plan(NamedTuple):
    """The runs of a sweep. seeds: how many."""

    cases: list[RunSettings]
    seeds: int

    @classmethod
    def of(
        cls, given: str, typed: str, chosen: Sequence[str], targets: str, seeds: str, unit: Unit,
        temperature: float, name: str, precision: str,
    ) -> Plan:  # fmt: skip
        """What a form asks for. given: a packed `File`, whose prompts go before those typed. ValueError with a sentence
        where it is none, or more than the page allows."""
        texts = list(dict.fromkeys(File.of(given).prompts or sweep.lines(typed or "")))
        if not texts:
            raise Refused("there is no prompt: type one a line, or upload a CSV with a column named prompt")
        if not chosen:
            raise Refused("no method is chosen: tick at least one")
        aims, drawn = numbers(targets, "targets", 1, MAX_TARGET), numbers(seeds, "seeds", 0, MAX_SEED)
        if (longest := max(map(len, texts))) > MAX_CHARACTERS:
            raise Refused(f"a prompt has {longest:,} characters, more than {MAX_CHARACTERS:,}: shorten it")
        if (count := sweep.count(texts, chosen, aims, drawn)) > MAX_RUNS:
            raise Refused(
                f"this makes {count:,} runs, more than {MAX_RUNS}: take fewer prompts, methods, targets or seeds"
            )
        on = {"unit": unit, "temperature": temperature, "model": name, "precision": precision}
        return cls(sweep.cases(texts, chosen, aims, drawn, **on), len(drawn))

    def words(self) -> str:
        """How many runs it makes and, where that was measured, about how long they take."""
        about = counted(len(self.cases), "runs")
        first = self.cases[0]
        if first.model == "embedded":
            about += f", about {duration(max(1, self.seconds()))} on two cores"
        same = " At temperature 0 all seeds write the same." if self.seeds > 1 and not first.temperature else ""
        return f"{about}.{same}"

    def seconds(self) -> float:
        """About how long two cores take with the embedded model."""
        rows = max(rows for rows in SPEEDS if rows <= len(self.cases))
        return sum(map(_tokens, self.cases)) / SPEEDS[rows]


def numbers(text: str, what: str, least: int, most: int) -> list[int]:
    """The whole numbers that a box holds, none twice. what: its name. ValueError with a sentence."""
    try:
        found = [int(word) for word in text.replace(",", " ").split()]
    except ValueError as error:
        raise Refused(f"the {what} are no whole numbers: give some with commas between, as in 20, 60") from error
    if not found or not all(least <= number <= most for number in found):
        raise Refused(f"give {what} from {least} to {most:,}, with commas between")
    return list(dict.fromkeys(found))


def uploaded(path: Path) -> File:
    """An uploaded CSV. ValueError with a sentence where it is too large, or has none."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Refused(f"{path.name} is larger than {MAX_BYTES // 1000} kB: upload a part of it")
    found = sweep.column(sweep.decoded(data, path.name), path.name)
    if not found:
        raise Refused(f"the column prompt of {path.name} is empty: give at least one prompt")
    return File(path.name, found)


def table(rows: Mapping[int, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Rows by their number as the table of a file has them."""
    return [{name: str(value) for name, value in rows[number].items()} for number in sorted(rows)]


def pieces(run: str, rows: Mapping[int, Mapping[str, Any]]) -> list[list[Any]]:
    """What the page shows and saves of rows, in the order in which they ended: after the run's name and the first line
    of a CSV each row's number, cells and line."""
    shown = [[number, _cells(row), sweep.line(row.values())] for number, row in rows.items()]
    return [[run, sweep.line(sweep.COLUMNS)], *shown]


def outcomes(found: Sequence[dict[str, str]]) -> list[list[str]]:
    """By method and target: its name, and words about its answers."""
    return [
        [f"{methods[method].label} · {f'target {target}' if target else sweep.FREE}", words, ""]
        for (method, target), words in sweep.outcomes(found).items()
    ]


def picture(found: Sequence[dict[str, str]]) -> Chart:
    """Lengths by target, a box for each method."""
    layout = drawing.axes("target", f"length in {found[0]['unit']}" if found else "length")
    if not found:
        return drawing.empty(layout, "Nothing has ended yet.", "No answer has ended yet.")
    own = sweep.layout(found)
    layout |= own | {axis: layout[axis] | own[axis] | {"title": layout[axis]["title"]} for axis in ("xaxis", "yaxis")}
    # The page says an axis's words in its language, but not the categories.
    layout["xaxis"] |= dict.fromkeys(("tickvals", "ticktext"), layout["xaxis"]["categoryarray"])
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    layout |= {"hovermode": "closest", "showlegend": True, "legend": legend}
    *boxes, targets = sweep.boxes(found)
    for colour, box in zip(cycle(SERIES_COLOURS), boxes, strict=False):
        look = {"marker": {"color": colour, "size": 4}, "line": {"color": colour, "width": 1.5}}
        box |= look | {"name": methods[box["name"]].label, "fillcolor": f"{colour}/0.15"}
    targets["marker"] |= {"color": "@ink"}
    rows = [[methods[method].label, target or "–", words] for (method, target), words in sweep.outcomes(found).items()]
    words = f"{counted(len(found), 'answers')} by {counted(len(boxes), 'methods')}."
    return Chart([*boxes, targets], layout, words, ("Method", "Target", "Answers"), rows)


def _tokens(settings: RunSettings) -> float:
    """About how many a run has, or at most where nothing but its prompt says how long it is to be."""
    if not methods[settings.method].retargets:
        return settings.max_new_tokens
    return min(settings.goal * TOKENS[settings.unit], settings.max_new_tokens)


def _cells(row: Mapping[str, Any]) -> list[str]:
    error = "–" if row["error"] == "" else signed(row["error"])
    return [
        row["prompt"], methods[row["method"]].label, str(row["target"] or "–"), str(row["seed"]),
        counted(row["length"], row["unit"]), error, row["ended"], row["text"],
    ]  # fmt: skip
