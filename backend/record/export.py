"""A run for other tools: a table for spreadsheets, a Python script and a notebook that make it again."""
from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from backend.settings import RunSettings, Watch
from backend.steps import Finish, Step

COLUMNS = (
    "index", "token", "text", "p", "p_eos", "p_model", "p_eos_model", "spread", "context", "attended", "wanted", "goal",
    "remaining", "seconds", "thinking",
)
FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def csv_table(steps: Sequence[Step]) -> str:
    """One row a token: its numbers, then of each layer the mean entropy in nats and the share of attention on the first
    four tokens (empty without probes)."""
    table = io.StringIO()
    writer = csv.writer(table)
    layers = max((len(step.entropy) for step in steps if step.entropy is not None), default=0)
    of_each = [f"{name}_layer_{layer}" for name in ("entropy", "sink_share") for layer in range(layers)]
    writer.writerow([*COLUMNS, *of_each])
    for step in steps:
        cells = [guarded(getattr(step, name)) for name in COLUMNS]
        for of_layers in (None if step.entropy is None else step.entropy.mean(axis=1), step.sink_share):
            cells += [""] * layers if of_layers is None else [f"{number:.4g}" for number in of_layers]
        writer.writerow(cells)
    return table.getvalue()


def guarded(cell: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay."""
    if isinstance(cell, str) and cell.lstrip().startswith(FORMULA_STARTS):
        return f"'{cell}"
    return cell


def script(settings: RunSettings, steps: Sequence[Step], finish: Finish | None) -> str:
    """Python source that makes the run again, with every change of its target, and stops where it was stopped."""
    return f'''"""A Length Lab run, to be made again: run this file in the project's folder."""
{_preparation(settings, steps, finish)}
control = Control()
print(written, end="")
for event in Lab().stream(settings, control, resumed=resumed):
    if isinstance(event, Step):
        print(event.text, end="", flush=True)
        steer(control, event.index)
    else:
        print(f"\\n\\n{{event.reason}}: {{event.tokens}} tokens, error {{event.error}}")
'''


def notebook(settings: RunSettings, steps: Sequence[Step], finish: Finish | None) -> dict[str, Any]:
    """The same as nbformat 4.5 JSON, with charts of the length and of the attention entropy."""
    cells = [
        _cell("markdown", "# A Length Lab run\n\nMade again from its settings; start Jupyter in the project's folder."),
        _cell("code", _preparation(settings, steps, finish)),
        _cell("code", _COLLECT),
        _cell("code", _LENGTH),
        _cell("code", _ENTROPY),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


_COLLECT = """\
control, steps = Control(), []
print(written, end="")
for event in Lab().stream(settings, control, resumed=resumed):
    if isinstance(event, Step):
        steps.append(event)
        print(event.text, end="", flush=True)
        steer(control, event.index)
finish = event
finish.reason, finish.tokens, finish.error
"""

_LENGTH = """\
import plotly.graph_objects as go

index = [step.index for step in steps]
figure = go.Figure()
figure.add_scatter(x=index, y=[step.p_eos for step in steps], name="p(end)")
figure.add_scatter(x=index, y=[step.remaining for step in steps], name="tokens to come", yaxis="y2")
figure.update_layout(
    title="Length", xaxis_title="response position", yaxis_title="p(end)",
    yaxis2={"title": "tokens to come", "overlaying": "y", "side": "right"},
)
figure
"""

_ENTROPY = """\
seen = [step for step in steps if step.entropy is not None]
figure = go.Figure()
if seen:
    figure.add_heatmap(
        x=[step.context for step in seen],
        z=[[float(step.entropy[layer].mean()) for step in seen] for layer in range(len(seen[0].entropy))],
        colorbar_title="nats",
    )
figure.update_layout(title="Attention entropy", xaxis_title="tokens read", yaxis_title="layer")
figure
"""


def _preparation(settings: RunSettings, steps: Sequence[Step], finish: Finish | None) -> str:
    stopped = finish is not None and finish.reason == "stopped"
    return f"""\
from backend import Lab, RunSettings
from backend.inference.control import Control
from backend.settings import Watch
from backend.steps import Resumed, Step, Written

settings = RunSettings(
{_arguments(settings)}
)
{_branched(steps)}
# Response position: the target that was set after it.
targets = {_targets(steps)!r}
# Response position after which the run was stopped.
stop = {len(steps) if stopped else None}


def steer(control, index):
    if index in targets:
        control.retarget(targets[index])
    if index == stop:
        control.stop()

"""


def _branched(steps: Sequence[Step]) -> str:
    """What was written before the last token that a person chose, and that token."""
    place = max((place for place, step in enumerate(steps) if step.chosen), default=None)
    if place is None:
        return 'written, resumed = "", None'
    before = [(step.token, step.wanted) for step in steps[:place]]
    return f"""\
# What was written before the token that was chosen: each token, and the target that was in force.
written = {"".join(step.text for step in steps[:place])!a}
resumed = Resumed(tuple(Written(*each) for each in {before}), then={steps[place].token})"""


def _arguments(settings: RunSettings) -> str:
    fields = {name: getattr(settings, name) for name in RunSettings.model_fields}
    return "\n".join(f"    {name}={_literal(value)}," for name, value in fields.items())


def _literal(value: Any) -> str:
    if isinstance(value, Watch):
        return f"Watch({', '.join(f'{name}={part!r}' for name, part in value)})"
    return ascii([turn.model_dump() for turn in value] if isinstance(value, tuple) else value)


def _targets(steps: Sequence[Step]) -> dict[int, int]:
    """Targets set while the run was on, in the settings' unit, by the last token before them."""
    changes = ((old, new) for old, new in pairwise(steps) if new.wanted != old.wanted)
    return {old.index: new.wanted for old, new in changes if new.wanted is not None}


def _cell(kind: str, source: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})
