"""Ways to read a long text on the page: what each is, what the model goes on with after it, and how long it takes."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from app import plans
from app.lessons import lessons
from app.series import RunSeries
from app.tabs.long_context import built_in, chapter
from backend.engine import Lab
from backend.evaluation.reader import Reader
from backend.inference.control import Control
from backend.positions import policy_of
from backend.record.results import RESULTS
from backend.settings import RunSettings

ON = {"model": "embedded"}


def gone_on(lab: Lab, ways: list[str], then: str, tokens: int = 600) -> tuple[plans.Task, dict[str, str]]:
    """What is to be read of so many tokens, and what is written after each way to read them."""
    chosen = plans.plans(256, 4, 4, ways, ON)
    todo = plans.task(lab, built_in(), chosen[0].settings, tokens, then, 0.1)
    *_, last = plans.readings(lab, todo, chosen, Control())
    assert all(series.read == tokens for series in last)
    return todo, {series.name: series.written for series in last}


@pytest.mark.scale
def test_the_model_goes_on_after_each_reading_as_after_that_reading_alone(models, monkeypatch):
    monkeypatch.setattr(plans, "WRITTEN", 12)
    lab, tokenizer = Lab(models), models.load("embedded").tokenizer
    todo, written = gone_on(lab, ["Plain", "Λ", "Truncation", "Dynamic PIC"], plans.WRITE, 290)
    ids = tokenizer(built_in()[:9999], add_special_tokens=False, verbose=False)["input_ids"]
    assert todo.own == tokenizer.decode(ids[290 : 290 + plans.WRITTEN])
    assert list(written) == ["Plain", "Λ", "Truncation", "Dynamic PIC × 4"]
    for name, begun, changes in (
        ("Plain", 0, {}),
        ("Λ", 0, {"window": 256, "sinks": 4}),
        ("Truncation", 34, {}),
        ("Dynamic PIC × 4", 0, {"pic": "dynamic", "ratio": 4}),
    ):
        alone = Reader(lab, RunSettings(prompt="-", **ON, **changes), truncated=False)
        (tokens,) = alone.after(torch.tensor(ids[begun:290]), [290 - begun], plans.WRITTEN)
        assert written[name] == tokenizer.decode(tokens), name


def test_every_position_policy_is_read_under_the_window_too_where_that_is_asked():
    chosen = ["Plain", "Λ", "Truncation", *(name for name, changes in plans.POLICIES.items() if "pic" in changes)]
    alone, both = (plans.plans(64, 4, 2, chosen, ON, asked) for asked in (False, True))
    added = [plan for plan in both if plan not in alone]
    assert [plan for plan in both if plan in alone] == alone
    windowless = [plan for plan in alone if plan.settings.pic != "none" and plan.settings.window is None]
    assert [plan.name for plan in added] == [f"Λ on {plan.name}" for plan in windowless] and len(added) > 5
    for before, plan in zip(windowless, added, strict=True):
        assert plan.settings == before.settings.model_copy(update={"window": 64, "sinks": 4})


def test_a_text_is_read_by_compressed_positions_through_the_window(models):
    lab = Lab(models)
    ways = plans.plans(48, 4, 4, ["Dynamic PIC"], ON, both=True)
    todo = plans.task(lab, built_in(), ways[0].settings, 300, plans.NOTHING, 0)
    *_, read = plans.readings(lab, todo, ways, Control())
    whole, through = read
    assert (whole.name, through.name) == ("Dynamic PIC × 4", "Λ on Dynamic PIC × 4")
    assert (through.attended[-1], whole.attended[-1]) == (52, 300)
    # Each is the policy's own reading, and neither is the window's alone.
    windowed = plans.plans(48, 4, 4, ["Λ"], ON)
    *_, (window,) = plans.readings(lab, todo, windowed, Control())
    assert len({round(reading.perplexity, 3) for reading in (whole, through, window)}) == 3


def test_a_number_is_told_where_it_is_seen(models, monkeypatch):
    monkeypatch.setattr(plans.random, "randrange", lambda *_: 52713)
    todo, written = gone_on(Lab(models), ["Plain", "Λ"], plans.NUMBER)
    assert todo.own.startswith("52713, hidden 5") and len(todo.tokens) == 600
    assert "52713" in written["Plain"] and "52713" not in written["Λ"]


def test_a_short_text_is_gone_on_from_but_hides_no_number(models):
    lab, settings = Lab(models), RunSettings(prompt="-")
    with pytest.raises(ValueError, match="no room for a number: give one of at least 64"):
        plans.task(lab, "Only a few words.", settings, 512, plans.NUMBER, 0.5)
    todo = plans.task(lab, "Only a few words.", settings, 512, plans.WRITE, 0.5)
    assert (todo.own, todo.written) == ("", plans.WRITTEN)
    assert plans.task(lab, "Only a few words.", settings, 512, plans.NOTHING, 0.5).written == 0


def test_a_stop_while_writing_keeps_what_was_written(models):
    lab, control = Lab(models), Control()
    chosen = plans.plans(256, 4, 4, ["Plain", "Λ"], ON)
    todo = plans.task(lab, built_in(), chosen[0].settings, 512, plans.WRITE, 0)
    for readings in plans.readings(lab, todo._replace(written=10_000), chosen, control):
        if readings[-1].written:
            control.stop()
    (plain,) = readings
    assert plain.name == "Plain" and 0 < len(plain.written) < 5000


@pytest.mark.scale
def test_a_stretched_text_breaks_where_its_lesson_says(models):
    """Not while the farthest token still seems as near as in training, and by more than a nat in the end."""
    asked = lessons()["beyond_training"].run.settings
    ways = plans.plans(1024, 10, asked["ratio"], asked["policies"], ON)
    lab = Lab(models)
    todo = plans.task(lab, chapter(), ways[0].settings, asked["length"], plans.NOTHING, 0)
    *_, (plain, stretched) = plans.readings(lab, todo, ways, Control())
    apart = np.concatenate(stretched.nll) - np.concatenate(plain.nll)
    far = policy_of(ways[1].settings).distance(np.arange(asked["length"]), np.array([0]))[:, 0]
    inside = int((far <= 8192).sum())
    assert 1000 < inside < 1400
    assert abs(apart[:inside].mean()) < 0.1 and apart[-256:].mean() > 1


def test_estimates_are_what_was_measured(monkeypatch):
    """Within a third, by which the speed of the machine they were measured on varies; it has a matrix unit."""
    for name, seconds in zip(("TOKEN", "KEY"), plans.COSTS[True], strict=True):
        monkeypatch.setattr(plans, name, seconds)
    rows = json.loads((RESULTS / "bench_long.json").read_text())["long"]
    found = {(row["case"], row["context"]): row["context"] / row["prefill"] for row in rows}
    cases = {"engine bf16": ("Plain", 1)} | {f"engine bf16, Λ {n}": ("Λ", n) for n in (1024, 2048, 4096)}
    for case, (name, window) in cases.items():
        (plan,) = plans.plans(window, 10, 4, [name], ON)
        for context in (8192, 32768):
            assert plan.seconds(context) == pytest.approx(found[case, context], rel=0.33), (case, context)


def test_what_is_left_goes_by_what_was_spent(monkeypatch):
    monkeypatch.setattr(plans, "time", SimpleNamespace(monotonic=lambda: 10))
    ways = plans.plans(1024, 10, 4, ["Plain", "Λ"], ON)
    half = RunSeries(ways[0].settings, "Plain", to_read=8192, context=[4096])
    spent, whole = ways[0].seconds(4096), sum(plan.seconds(8192) for plan in ways)
    assert plans.left(ways, [half], 0) == pytest.approx(10 * (whole - spent) / spent)
    done = [RunSeries(plan.settings, plan.name, to_read=8192, context=[8192]) for plan in ways]
    assert plans.left(ways, done, 0) == pytest.approx(0, abs=1e-6)


def test_truncation_reads_most_and_a_window_least():
    plain, windowed, truncated = plans.plans(1024, 10, 4, ["Plain", "Λ", "Truncation"], ON)
    assert windowed.seconds(65536) < truncated.seconds(65536) < plain.seconds(65536)
    assert plain.seconds(65536) == pytest.approx(sum(plans.TOKEN + plans.KEY * n for n in range(65536)), rel=0.01)
