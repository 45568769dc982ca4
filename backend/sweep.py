"""Every prompt of a file under every method, target and seed: a table that grows as answers end, and its chart.

    python -m backend sweep --prompts questions.csv --methods ldpe prompted --targets 20 60 --seeds 0 1 --out table.csv
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.ending import ended
from backend.inference.control import Control
from backend.inference.side_by_side import as_they_end, side_by_side
from backend.methods import methods
from backend.record import bom, jsonlines
from backend.record.export import guarded
from backend.refused import Refused
from backend.settings import RunSettings, Watch, counted
from backend.steps import Finish
from backend.text.sentences import final

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from backend.engine import Lab
    from backend.serving.backend import EngineBackend

# `settings` holds what is no default, as JSON: with it the run can be made again, and a table is gone on with.
COLUMNS = (
    "prompt", "method", "target", "seed", "unit", "length", "error", "tokens", "words", "characters", "ended",
    "text", "settings",
)  # fmt: skip
FREE = "no target"


def prompts(file: Path) -> list[str]:
    """Of a CSV file with a column `prompt`, JSON lines with such a field, or a text of one prompt a line."""
    if file.suffix == ".jsonl":
        return [str(row["prompt"]) for row in jsonlines.read(file, "prompt")]
    return column(_text(file), str(file)) if file.suffix == ".csv" else lines(_text(file))


def lines(text: str) -> list[str]:
    """The prompts of a text that has one a line."""
    return [line for line in text.splitlines() if line.strip()]


def decoded(data: bytes, name: str) -> str:
    """The text of a file. name: what a Refused calls it."""
    try:
        return bom.decoded(data)
    except UnicodeDecodeError as error:
        raise Refused(f"{name} is not UTF-8 text: save it as UTF-8") from error


def column(text: str, name: str) -> list[str]:
    """The prompts of a CSV's column `prompt`. name: what a Refused calls the CSV."""
    columns, found = _table(text, name)
    if "prompt" not in columns:
        raise Refused(f"{name} has no column named prompt: name one so in its first line")
    return [row["prompt"] for row in found if (row["prompt"] or "").strip()]


def count(texts: Sequence[str], chosen: Sequence[str], targets: Sequence[int], seeds: Sequence[int]) -> int:
    """How many runs `cases` makes of what holds nothing twice."""
    aims = sum(len(targets) if methods[method].bound else 1 for method in chosen)
    return len(texts) * aims * len(seeds)


def cases(
    texts: Sequence[str], chosen: Sequence[str], targets: Sequence[int], seeds: Sequence[int], **shared: Any
) -> list[RunSettings]:
    """The settings of every run, prompt by prompt. chosen: methods. ValueError for what no run may have."""
    if not texts:
        raise Refused("the file holds no prompt: give at least one")
    found = [
        RunSettings(**shared | _aim(method, target), prompt=text, method=method, seed=seed, watch=Watch(enabled=False))
        for text, method, target, seed in product(texts, chosen, targets, seeds)
    ]
    # A method that aims at nothing has one run for all targets.
    return list(dict.fromkeys(found))


def sweep(lab: Lab, asked: Sequence[RunSettings], out: Path, report: Callable[[str], None]) -> list[dict[str, str]]:
    """Run what the table does not hold yet, a row at its end as soon as it is there; all its rows.

    ValueError where `out` is another kind of file, or a run cannot be made.
    """
    done = rows(out) if out.exists() else []
    if any(row["unit"] != _unit(row) for row in done):
        raise Refused(f"{out} has limits that counted tokens, whatever the unit: give another file")
    held = {row["settings"] for row in done}
    left = [settings for settings in asked if _kept(settings) not in held]
    report(f"{len(left):,} runs of {len(asked):,}")
    with out.open("a", encoding="utf-8", newline="") as stream:
        if not done and not stream.tell():
            stream.write(line(COLUMNS))
        ended = side_by_side(partial(finished, lab), left)
        for number, (settings, finish) in enumerate(zip(left, ended, strict=True), 1):
            row = as_row(settings, finish)
            stream.write(line(row.values()))
            stream.flush()
            report(f"{number:,} of {len(left):,} · {row['method']}: {counted(row['length'], row['unit'])}")
    return rows(out)


def finishes(
    lab: EngineBackend, asked: Sequence[RunSettings], control: Control, most: int
) -> Iterator[tuple[int, Finish]]:
    """How runs ended, by their number from 0, as they end, at most so many side by side; none of a run that was
    stopped. Refused where a run cannot be made, which ends the others too."""
    try:
        for number, finish in as_they_end(partial(finished, lab, control=control), asked, most):
            if finish.reason != "stopped":
                yield number, finish
            if control.stopped:
                return
    except Refused:
        control.stop()
        raise


def line(cells: Iterable[Any]) -> str:
    """A line of the table, nothing in it a formula."""
    written = io.StringIO(newline="")
    csv.writer(written).writerow(map(guarded, cells))
    return written.getvalue()


def rows(file: Path) -> list[dict[str, str]]:
    """The rows of a table as `sweep` writes it."""
    columns, found = _table(_text(file), str(file))
    if columns and columns != COLUMNS:
        raise Refused(f"{file} is no table of a sweep: give another --out")
    return found


def summary(table: Sequence[dict[str, str]]) -> Iterator[str]:
    """A line for each method and target: how many end with a full stop, and how long answers are."""
    for (method, target), words in outcomes(table).items():
        yield f"{method} · {f'target {target}' if target else FREE}: {words}"


def outcomes(table: Sequence[dict[str, str]]) -> dict[tuple[str, str], str]:
    """The same words by method and target, "" for none."""
    return {case: _outcome(found) for case, found in _grouped(table).items()}


def chart(table: Sequence[dict[str, str]]) -> Figure:
    """Lengths by target, a box for each method, every answer a point."""
    import plotly.graph_objects as go

    return go.Figure(boxes(table), layout(table)).update_layout(template="plotly_white")


def boxes(table: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """The data of the chart, as Plotly takes them: the methods' boxes by their names, and last the targets."""
    data: list[dict[str, Any]] = []
    for method in dict.fromkeys(row["method"] for row in table):
        found = [row for row in table if row["method"] == method]
        data.append({
            "type": "box", "x": [row["target"] or FREE for row in found], "y": [int(row["length"]) for row in found],
            "name": method, "boxpoints": "all", "hovertext": [escape(row["prompt"][:80], quote=False) for row in found],
        })  # fmt: skip
    targets = _targets(table)
    return [*data, {
        "type": "scatter", "x": [str(target) for target in targets], "y": targets, "name": "target", "mode": "markers",
        "marker": {"symbol": "line-ew-open", "size": 40, "color": "black"},
    }]  # fmt: skip


def layout(table: Sequence[dict[str, str]]) -> dict[str, Any]:
    """The layout of the chart."""
    return {
        "boxmode": "group",
        "xaxis": {
            "title": {"text": "target"}, "type": "category", "categoryorder": "array",
            "categoryarray": [FREE, *map(str, _targets(table))],
        },
        "yaxis": {"title": {"text": f"length in {table[0]['unit']}"}, "rangemode": "tozero"},
    }  # fmt: skip


def _targets(table: Sequence[dict[str, str]]) -> list[int]:
    return sorted({int(row["target"]) for row in table if row["target"]})


def _outcome(found: Sequence[dict[str, str]]) -> str:
    lengths = [int(row["length"]) for row in found]
    whole = sum(final(row["text"]) for row in found)
    limits = {method.name for method in methods if method.bound == "limit"}
    errors = [abs(int(row["error"])) for row in found if row["error"] and row["method"] not in limits]
    mean = f", {sum(errors) / len(errors):.1f} from the target on average" if errors else ""
    span = f"{min(lengths)} to {max(lengths)} {found[0]['unit']}"
    return f"{span}{mean}; {whole} of {len(found)} end with a full stop"


def _table(text: str, name: str) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """The columns of a CSV, and its rows. name: what a Refused calls it."""
    table = csv.DictReader(io.StringIO(text, newline=""))
    try:
        return tuple(table.fieldnames or ()), list(table)
    except csv.Error as error:
        raise Refused(f"line {table.line_num} of {name} is no CSV ({error}): give a table with commas") from error


def _text(file: Path) -> str:
    try:
        return decoded(file.read_bytes(), str(file))
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror}): give the path of a text file") from error


def _aim(method: str, target: int) -> dict[str, int]:
    bound = methods[method].bound
    return {bound: target} if bound else {}


def _kept(settings: RunSettings) -> str:
    return settings.model_dump_json(exclude_defaults=True)


def _unit(row: Mapping[str, str]) -> str:
    """The unit of a row's settings."""
    try:
        return str(json.loads(row["settings"]).get("unit", "tokens"))
    except (ValueError, AttributeError):
        return row["unit"]


def finished(lab: Lab | EngineBackend, settings: RunSettings, control: Control | None = None) -> Finish:
    """How a run ended; Refused for one that failed."""
    finish = next(event for event in lab.stream(settings, control) if isinstance(event, Finish))
    if finish.reason == "error":
        raise Refused(finish.message)
    return finish


def as_row(settings: RunSettings, finish: Finish) -> dict[str, Any]:
    """How a run ended, by COLUMNS."""
    unit = settings.unit
    target = "" if methods[settings.method].bound is None else settings.goal
    return {
        "prompt": settings.prompt, "method": settings.method, "target": target, "seed": settings.seed,
        "unit": unit, "length": getattr(finish, unit), "error": "" if finish.error is None else finish.error,
        "tokens": finish.tokens, "words": finish.words, "characters": finish.characters,
        "ended": ended(finish, settings), "text": finish.text, "settings": _kept(settings),
    }  # fmt: skip


def _grouped(table: Sequence[dict[str, str]]) -> dict[tuple[str, str], list[dict[str, str]]]:
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in table:
        found.setdefault((row["method"], row["target"]), []).append(row)
    return found
