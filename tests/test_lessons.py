"""Lessons: each file is one, fits the tab that it runs on, and runs there in a real browser."""

from __future__ import annotations

import csv
import random
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gradio.queueing import EventQueue
from playwright.sync_api import Locator, expect
from test_app_browser import address, demo, held, lab, visit  # noqa: F401

from app import charts, plans
from app import page as lab_page
from app.admission import Admission
from app.exports import UNMADE
from app.kept import fits
from app.lessons import lessons
from app.lessons.lesson import Lesson
from app.outcome import PART, encode, figure, readings
from app.recorded import file_of, recorded
from app.runs import Run, Runs
from app.series import RunSeries
from app.stage import Stage
from app.tabs.lessons import PATIENCE, shows
from app.tabs.long_context import chapter
from app.tabs.teachers import ORDER, page
from backend.inference.control import Control
from backend.models.adapters import available
from backend.settings import RunSettings

# Those that are run by `make test`; the others are of `make test-ui`.
SHORT = ("ask_for_sixty", "what_a_window_forgets")
LESSON = """title = "T"
order = 1
minutes = 1
idea = "i"
look = "l"
at = ["p"]
misconception = "m"
figures = [{{ of = "A", least = {least}, most = 9 }}]
predict = {predict}
run = {{ tab = "try", words = "w", settings = {{}} }}
check = {{ question = "q", answer = "a" }}
teacher = {{ say = "s", expect = "e" }}
"""


@pytest.mark.parametrize(
    ("predict", "least", "words"),
    [
        ('{ question = "q", least = 3, most = 3 }', 1, "least"),
        ('{ question = "q", choices = ["a", "b"], right = 2 }', 1, "right"),
        ('{ question = "q", choices = ["a", "b"] }', 1, "right"),
        ('{ question = "q", least = 1, most = 2, mots = 3 }', 1, "mots"),
        ('{ question = "q", least = 1, most = 2 }', 10, "larger than most"),
        ("{", 1, "no lesson"),
    ],
)
def test_a_file_that_is_no_lesson_is_named(tmp_path, predict, least, words):
    file = tmp_path / "broken.toml"
    file.write_text(LESSON.format(predict=predict, least=least), "utf-8")
    with pytest.raises(ValueError, match=r"broken\.toml") as error:
        Lesson.read(file)
    assert words in str(error.value)


def test_a_lesson_is_read_from_its_file(tmp_path):
    file = tmp_path / "one.toml"
    predict = '{ question = "q", least = 1, most = 9, unit = "tokens" }'
    file.write_text(LESSON.format(predict=predict, least=1), "utf-8")
    assert Lesson.read(file).name == "one" and Lesson.read(file).predict.most == 9


def test_the_order_for_teachers_names_lessons_that_fit_the_time():
    assert sum(lessons()[name].minutes for name in ORDER) <= 45
    assert len({lesson.order for lesson in lessons().values()}) == len(lessons())


@pytest.fixture(scope="module")
def ran() -> list[Run]:
    """The runs that have ended on the page."""
    return []


@pytest.fixture(scope="module")
def runs(ran) -> Runs:
    return Runs(ended=ran.append)


@pytest.fixture(scope="module")
def stages(lab) -> dict[str, Stage]:  # noqa: F811
    found: dict[str, Stage] = {}
    keep = lab_page.lessons.panel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab_page.lessons, "panel", lambda tabs, stages, *more: (found.update(stages), keep(tabs, stages)))
        lab_page.build(lab, available, Runs())
    return found


@pytest.mark.parametrize("name", lessons())
def test_a_lesson_fits_the_boxes_of_its_tab(stages, name):
    run = lessons()[name].run
    values = dict(zip(stages[run.tab].boxes, stages[run.tab].values(run.settings), strict=True))
    for box, value in run.settings.items():
        assert values[box] == value and fits(stages[run.tab].boxes[box], value), box


@pytest.mark.parametrize("name", [name for name, lesson in lessons().items() if lesson.run.tab == "compare"])
def test_a_comparison_says_what_each_setting_sees(name):
    """The page opens with methods, landings and prompts of its own in these boxes."""
    settings = lessons()[name].run.settings
    for letter in "ABCD"[: settings["count"]]:
        named = {box for box in ("method", "landing", "in_prompt") if f"{letter}_{box}" in settings}
        assert named == ({"method"} if settings[f"{letter}_method"] == "none" else {"method", "landing", "in_prompt"})


@pytest.mark.parametrize(
    ("depth", "found", "least"),
    [(30, [True, False], 3), pytest.param(90, [True, True], 2, marks=pytest.mark.scale)],
)
def test_a_window_finds_what_the_teacher_is_said_to_expect(lab, depth, found, least):  # noqa: F811
    """Each reading draws a number of its own. At 90 % one in thirty is copied with a wrong digit."""
    random.seed(depth)
    asked = lessons()["what_a_window_forgets"].run.settings
    on = {"model": "embedded", "precision": "bf16"}
    ways = plans.plans(asked["window"], asked["sinks"], 1, asked["policies"], on)
    seen = []
    for _ in range(3):
        task = plans.task(lab, chapter(), ways[0].settings, asked["length"], asked["then"], depth / 100)
        *_, readings = plans.readings(lab, task, ways, Control())
        seen.append([task.number in reading.written for reading in readings])
    assert seen.count(found) >= least, seen


def test_a_box_that_a_tab_lacks_is_named(stages):
    with pytest.raises(ValueError, match="targte"):
        stages["try"].values({"targte": 60})


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.ui) for name in lessons()]
)
def test_a_lesson_runs_as_it_says(visit, ran, name):  # noqa: F811
    lesson = lessons()[name]
    visitor, before = visit(query="?tab=lessons"), len(ran)
    page = visitor.page
    page.click(f"[data-lesson={name}]")
    panel = page.locator(".ll-lesson")
    expect(panel.locator("h2")).to_have_text(lesson.title)
    expect(panel.locator("[data-step=run]")).to_be_hidden()
    predicts(panel, lesson)
    panel.get_by_role("button", name="Run it").click()
    expect(page.locator(".ll-looked-at")).to_have_count(len(lesson.at))
    expect(panel.locator("[data-step=check]")).to_be_visible()
    expect(page.locator(lesson.at[0])).to_be_in_viewport()
    visitor.until(lambda: len(ran) > before)
    came = ran[-1].came_to
    for each in lesson.figures:
        assert each.least <= figure(came, each.of, each.what) <= each.most, (each.of, each.what, encode(came))
    where = {"try": "#figures-try-steered", "compare": "#figures-compare", "long": "#figures-long"}[lesson.run.tab]
    assert page.locator(f"{where} .ll-figures").get_attribute("data-state") == "good", page.inner_text(where)
    judged(panel, lesson)
    panel.locator("[data-step=check] button").first.click()
    expect(panel.locator(".ll-answer")).to_have_text(lesson.check.answer)


def predicts(panel: Locator, lesson: Lesson) -> None:
    """Predicts what comes true, or a number."""
    if lesson.predict.choices:
        panel.locator(".ll-option input").nth(lesson.predict.right).check()
    else:
        panel.locator("[data-step=predict] button").click()


def judged(panel: Locator, lesson: Lesson) -> None:
    """The prediction is held against what the run came to: a number by how far it was away."""
    words = "Your guess was right." if lesson.predict.choices else f"{lesson.predict.unit}: "
    expect(panel.locator(".ll-verdict")).to_contain_text(words)


@pytest.mark.parametrize("name", lessons())
def test_a_recorded_run_is_small_and_comes_to_what_the_teacher_expects(name):
    lesson, found = lessons()[name], recorded(name)
    assert found and file_of(name).stat().st_size <= 300_000 and shows(lesson)["seconds"] == found.seconds > 0
    for each in lesson.figures:
        assert each.least <= found.frame["parts"][PART][each.of][each.what] <= each.most, each
        assert f"<dt>{each.of}</dt>" in page()
    # What the tab shows today is in it.
    today = charts.parts(lesson.run.tab, [RunSeries(RunSettings(prompt="x"))])
    assert today.keys() <= found.frame["parts"].keys()


def test_a_recorded_run_can_be_chosen_and_stands_where_the_lesson_runs(visit, ran):  # noqa: F811
    before, lesson = len(ran), lessons()["chance_and_length"]
    page = visit(query="?tab=lessons&lesson=chance_and_length").page
    panel = page.locator(".ll-lesson")
    expect(panel.locator("h2")).to_have_text(lesson.title)
    predicts(panel, lesson)
    panel.get_by_text("Show the recorded run").click()
    judged(panel, lesson)
    expect(panel.locator(".ll-how")).to_contain_text("This run was recorded before")
    expect(page.locator("#chart-c-lengths .ll-words")).to_contain_text("A: 5 answers of ")
    expect(page.locator("#c-prompt textarea")).to_have_value(lesson.run.settings["prompt"])
    assert len(ran) == before and "lesson=chance_and_length" in page.url
    panel.locator("[data-act=close]").click()
    expect(page).not_to_have_url(re.compile("lesson=chance"))


def test_a_long_wait_is_spared_by_the_recorded_run(visit, held, monkeypatch):  # noqa: F811
    monkeypatch.setattr(Admission, "waits", lambda self, line: PATIENCE + 1.0)
    page = visit(query="?tab=lessons&lesson=ask_for_sixty").page
    panel, lesson = page.locator(".ll-lesson"), lessons()["ask_for_sixty"]
    predicts(panel, lesson)
    panel.get_by_role("button", name="Run it").click()
    judged(panel, lesson)
    expect(panel.locator(".ll-how")).to_contain_text(f"A run now would wait for more than {PATIENCE} s.")
    panel.get_by_role("button", name="Run it").click()
    expect(panel.locator(".ll-how")).to_be_empty()
    judged(panel, lesson)


def test_a_run_that_shows_nothing_gives_way_to_the_recorded_one(visit, held):  # noqa: F811
    held.upto(0)
    page = visit(query="?tab=lessons&lesson=ask_for_sixty").page
    panel, lesson = page.locator(".ll-lesson"), lessons()["ask_for_sixty"]
    predicts(panel, lesson)
    panel.get_by_role("button", name="Run it").click()
    expect(panel.locator(".ll-how")).to_contain_text("This run was recorded before")
    judged(panel, lesson)
    held.free()


@pytest.mark.parametrize("then", ["close", "another"])
def test_a_run_of_a_lesson_that_is_over_moves_nothing(visit, held, runs, then):  # noqa: F811
    held.upto(0)
    page = visit(query="?tab=lessons&lesson=ask_for_sixty").page
    panel = page.locator(".ll-lesson")
    predicts(panel, lessons()["ask_for_sixty"])
    panel.get_by_role("button", name="Run it").click()
    page.wait_for_selector("#try-go[disabled]")
    panel.locator("[data-act=close]").click()
    if then == "another":
        page.click("[data-tab-id=lessons]")
        page.click("[data-lesson=why_ends_are_hard]")
        expect(panel.locator("h2")).to_have_text(lessons()["why_ends_are_hard"].title)
    held.free()
    page.wait_for_selector("#try-go:not([disabled])", state="attached")
    page.wait_for_timeout(1000)
    assert page.locator(".ll-looked-at").count() == 0
    assert panel.locator("[data-step=look]").evaluate("(step) => step.hidden")


def test_a_recorded_run_ends_the_own_one_and_stays(visit, held, runs):  # noqa: F811
    held.upto(5)
    page = visit(query="?tab=lessons&lesson=ask_for_sixty").page
    panel, found = page.locator(".ll-lesson"), recorded("ask_for_sixty")
    predicts(panel, lessons()["ask_for_sixty"])
    panel.get_by_role("button", name="Run it").click()
    page.wait_for_selector("#text-try-asked .ll-response[data-tokens='5']")
    panel.get_by_text("Show the recorded run").click()
    expect(panel.locator(".ll-how")).to_contain_text("This run was recorded before")
    assert not len(runs)
    written = str(len(found.frame["texts"]["text-try-asked"][1]) - 1)
    assert page.get_attribute("#text-try-asked .ll-response", "data-tokens") == written


def test_a_lesson_is_judged_by_its_own_run_whatever_others_come_to(visit, held):  # noqa: F811
    page, lesson = visit(query="?tab=lessons&lesson=ask_for_sixty").page, lessons()["ask_for_sixty"]
    panel = page.locator(".ll-lesson")
    predicts(panel, lesson)
    page.evaluate("setInterval(() => LengthLab.deliver('outcome', { '': { length: 3 } }), 20); null")
    panel.get_by_text("Show the recorded run").click()
    judged(panel, lesson)


def test_a_comparison_is_saved_as_it_is_shown_or_not_at_all(visit, held):  # noqa: F811
    page = visit(query="?tab=compare", opens="compare").page
    held.upto(2)
    page.click("#c-go")
    page.wait_for_selector("#text-c-a .ll-response[data-tokens='2']")
    page.reload()
    page.wait_for_selector("#text-c-a .ll-response[data-tokens='2']")
    page.wait_for_selector("#c-go[disabled]")
    held.free()
    page.wait_for_selector("#c-go:not([disabled])")
    with page.expect_download() as download:
        page.click("#c-csv")
    assert [row[0] for row in csv.reader(Path(download.value.path()).open(encoding="utf-8"))] == ["setting", *"ABC"]
    page.click("[data-tab-id=lessons]")
    page.click("[data-lesson=chance_and_length]")
    predicts(page.locator(".ll-lesson"), lessons()["chance_and_length"])
    page.get_by_text("Show the recorded run").click()
    judged(page.locator(".ll-lesson"), lessons()["chance_and_length"])
    page.click("#c-csv")
    expect(page.get_by_text(UNMADE)).to_be_visible()


def test_a_reading_breaks_where_it_is_worse_to_the_end_and_not_where_it_recovers():
    nats = {"plain": [0.0, 0, 0], "worse": [0.0, 2, 2], "recovers": [0.0, 2, 0], "from the first": [2.0, 2, 2]}
    read = [
        RunSeries(RunSettings(prompt="x"), name, to_read=3000, context=[3000], nll=[np.repeat(each, 1000)])
        for name, each in nats.items()
    ]
    breaks = {one.name: one.breaks for one in readings(read)}
    assert breaks["plain"] is None and breaks["recovers"] is None
    assert abs(breaks["worse"] - 1000) < 64 and breaks["from the first"] < 128
    read[1].context, read[1].nll = [1000], [np.zeros(1000)]
    stopped = readings(read)[1]
    assert stopped.breaks is None and stopped.ended == "stopped"


def test_a_wait_is_as_long_as_the_runs_before_it_took(lab):  # noqa: F811
    queue = lab_page.build(lab, available, Runs(), 2).admission
    assert queue.waits("model") == 0.0
    line = queue.event_queue_per_concurrency_id["model"] = EventQueue("model", 2)
    run = next(fn for fn in queue.blocks.fns.values() if fn.concurrency_id == "model")
    queue.process_time_per_fn[run].add(12.0)
    line.start_times_per_fn[run].add(0.0)
    line.current_concurrency = 1
    assert queue.waits("model") == 0.0
    line.current_concurrency = 2
    assert queue.waits("model") == 6.0
    line.queue.extend([SimpleNamespace(fn=run)] * 3)
    assert queue.waits("model") == 24.0


def test_a_card_says_how_long_it_takes_and_the_teachers_table_starts_a_lesson(visit):  # noqa: F811
    page = visit(query="?tab=lessons").page
    seconds = max(1, round(recorded("ask_for_sixty").seconds))
    expect(page.locator(".ll-cards .ll-hint").first).to_have_text(
        f"6 minutes, needs about {seconds} s of computing"
    )
    page.click("#teachers > button")
    page.click(".ll-teachers [data-lesson=what_sinks_are_for]")
    expect(page.locator(".ll-lesson h2")).to_have_text(lessons()["what_sinks_are_for"].title)
    expect(page).to_have_url(re.compile("lesson=what_sinks_are_for"))
