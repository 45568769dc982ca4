"""Lessons: each file is one, fits the tab that it runs on, and runs there in a real browser."""

from __future__ import annotations

import random

import pytest
from playwright.sync_api import expect
from test_app_browser import address, demo, lab, runs, visit  # noqa: F401

from app import page as lab_page
from app import plans
from app.kept import fits
from app.lessons import lessons
from app.lessons.lesson import Lesson
from app.runs import Runs
from app.stage import Stage
from app.tabs.lessons import ORDER
from app.tabs.long_context import chapter
from backend.inference.control import Control
from backend.models.adapters import available

# Those that are run by `make test`; the others are of `make test-ui`.
SHORT = ("ask_for_sixty", "what_a_window_forgets")
LESSON = """title = "T"
order = 1
minutes = 1
idea = "i"
look = "l"
misconception = "m"
predict = {predict}
run = {{ tab = "try", words = "w", settings = {{}} }}
check = {{ question = "q", answer = "a" }}
teacher = {{ say = "s", expect = "e" }}
"""


@pytest.mark.parametrize(
    ("predict", "words"),
    [
        ('{ question = "q", least = 3, most = 3 }', "least"),
        ('{ question = "q", choices = ["a", "b"], right = 2 }', "right"),
        ('{ question = "q", choices = ["a", "b"] }', "right"),
        ('{ question = "q", least = 1, most = 2, mots = 3 }', "mots"),
        ("{", "no lesson"),
    ],
)
def test_a_file_that_is_no_lesson_is_named(tmp_path, predict, words):
    file = tmp_path / "broken.toml"
    file.write_text(LESSON.format(predict=predict), "utf-8")
    with pytest.raises(ValueError, match=r"broken\.toml") as error:
        Lesson.read(file)
    assert words in str(error.value)


def test_a_lesson_is_read_from_its_file(tmp_path):
    file = tmp_path / "one.toml"
    file.write_text(LESSON.format(predict='{ question = "q", least = 1, most = 9, unit = "tokens" }'), "utf-8")
    assert Lesson.read(file).name == "one" and Lesson.read(file).predict.most == 9


def test_the_order_for_teachers_names_lessons_that_fit_the_time():
    assert sum(lessons()[name].minutes for name in ORDER) <= 45
    assert len({lesson.order for lesson in lessons().values()}) == len(lessons())


@pytest.fixture(scope="module")
def stages(lab) -> dict[str, Stage]:  # noqa: F811
    found: dict[str, Stage] = {}
    keep = lab_page.lessons.panel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab_page.lessons, "panel", lambda tabs, stages: (found.update(stages), keep(tabs, stages)))
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


@pytest.mark.parametrize(("depth", "found", "least"), [(30, [True, False], 3), (90, [True, True], 2)])
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
def test_a_lesson_runs_as_it_says(visit, name):  # noqa: F811
    lesson = lessons()[name]
    visitor = visit(query="?tab=lessons")
    page = visitor.page
    page.click(f"[data-lesson={name}]")
    panel = page.locator(".ll-lesson")
    expect(panel.locator("h2")).to_have_text(lesson.title)
    expect(panel.locator("[data-step=run]")).to_be_hidden()
    if lesson.predict.choices:
        panel.locator(".ll-option input").nth(lesson.predict.right).check()
    else:
        panel.locator("[data-step=predict] button").click()
    panel.locator("[data-step=run] button").click()
    expect(panel.locator("[data-step=check]")).to_be_visible()
    where = {"try": "#figures-try-steered", "compare": "#figures-compare", "long": "#figures-long"}[lesson.run.tab]
    assert page.locator(f"{where} .ll-figures").get_attribute("data-state") == "good", page.inner_text(where)
    if lesson.predict.choices:
        expect(panel.locator(".ll-verdict")).to_have_text("Your guess was right.")
    elif lesson.run.result:
        expect(panel.locator(".ll-verdict")).to_contain_text("away")
    panel.locator("[data-step=check] button").first.click()
    expect(panel.locator(".ll-answer")).to_have_text(lesson.check.answer)
