"""Every prompt of a file under every method, target and seed: a table that grows as answers end, and its chart.

    python -m backend sweep --prompts questions.csv --methods ldpe prompted --targets 20 60 --seeds 0 1 --out table.csv
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.inference.side_by_side import side_by_side
from backend.methods import methods
from backend.record import bom, jsonlines
from backend.record.export import guarded
from backend.refused import Refused
from backend.settings import RunSettings, Watch, counted
from backend.steps import ENDED, Finish

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from backend.engine import Lab

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
    if file.suffix != ".csv":
        return [line for line in _text(file).splitlines() if line.strip()]
    columns, found = _table(file)
    if "prompt" not in columns:
        raise Refused(f"{file} has no column named prompt: name one so in its first line")
    return [row["prompt"] for row in found if row["prompt"]]


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
    held = {row["settings"] for row in done}
    left = [settings for settings in asked if _kept(settings) not in held]
    report(f"{len(left):,} runs of {len(asked):,}")
    with out.open("a", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, COLUMNS)
        if not done and not stream.tell():
            table.writeheader()
        for number, row in enumerate(side_by_side(partial(_row, lab), left), 1):
            table.writerow({name: guarded(value) for name, value in row.items()})
            stream.flush()
            report(f"{number:,} of {len(left):,} · {row['method']}: {counted(row['length'], row['unit'])}")
    return rows(out)


def rows(file: Path) -> list[dict[str, str]]:
    """The rows of a table as `sweep` writes it."""
    columns, found = _table(file)
    if columns and columns != COLUMNS:
        raise Refused(f"{file} is no table of a sweep: give another --out")
    return found


def summary(table: Sequence[dict[str, str]]) -> Iterator[str]:
    """A line for each method and target: how many ended by themselves, and how long answers are."""
    for (method, target), found in _grouped(table).items():
        lengths = [int(row["length"]) for row in found]
        ended = sum(row["ended"] == ENDED["eos"] for row in found)
        errors = [abs(int(row["error"])) for row in found if row["error"]]
        mean = f", {sum(errors) / len(errors):.1f} from the target on average" if errors else ""
        aim, span = f"target {target}" if target else FREE, f"{min(lengths)} to {max(lengths)} {found[0]['unit']}"
        yield f"{method} · {aim}: {span}{mean}; {ended} of {len(found)} ended by themselves"


def chart(table: Sequence[dict[str, str]]) -> Figure:
    """Lengths by target, a box for each method, every answer a point."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for method in dict.fromkeys(row["method"] for row in table):
        found = [row for row in table if row["method"] == method]
        figure.add_box(
            x=[row["target"] or FREE for row in found],
            y=[int(row["length"]) for row in found],
            name=method,
            boxpoints="all",
            hovertext=[row["prompt"][:80] for row in found],
        )
    targets = sorted({int(row["target"]) for row in table if row["target"]})
    figure.add_scatter(
        x=[str(target) for target in targets], y=targets, name="target", mode="markers",
        marker={"symbol": "line-ew-open", "size": 40, "color": "black"},
    )  # fmt: skip
    figure.update_layout(
        boxmode="group", template="plotly_white",
        xaxis={"title": "target", "type": "category", "categoryarray": [FREE, *map(str, targets)]},
        yaxis={"title": f"length in {table[0]['unit']}", "rangemode": "tozero"},
    )  # fmt: skip
    return figure


def _table(file: Path) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """The columns of a CSV file, and its rows."""
    table = csv.DictReader(io.StringIO(_text(file), newline=""))
    try:
        return tuple(table.fieldnames or ()), list(table)
    except csv.Error as error:
        raise Refused(f"line {table.line_num} of {file} is no CSV ({error}): give a table with commas") from error


def _text(file: Path) -> str:
    try:
        return bom.decoded(file.read_bytes())
    except UnicodeDecodeError as error:
        raise Refused(f"{file} is not UTF-8 text: save it as UTF-8") from error
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror}): give the path of a text file") from error


def _aim(method: str, target: int) -> dict[str, int]:
    bound = methods[method].bound
    return {bound: target} if bound else {}


def _kept(settings: RunSettings) -> str:
    return settings.model_dump_json(exclude_defaults=True)


def _row(lab: Lab, settings: RunSettings) -> dict[str, Any]:
    finish = next(event for event in lab.stream(settings) if isinstance(event, Finish))
    if finish.reason == "error":
        raise Refused(finish.message)
    unit = settings.goal_unit
    target = "" if methods[settings.method].bound is None else settings.goal
    return {
        "prompt": settings.prompt, "method": settings.method, "target": target, "seed": settings.seed,
        "unit": unit, "length": getattr(finish, unit), "error": "" if finish.error is None else finish.error,
        "tokens": finish.tokens, "words": finish.words, "characters": finish.characters, "ended": finish.ended,
        "text": finish.text, "settings": _kept(settings),
    }  # fmt: skip


def _grouped(table: Sequence[dict[str, str]]) -> dict[tuple[str, str], list[dict[str, str]]]:
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in table:
        found.setdefault((row["method"], row["target"]), []).append(row)
    return found
