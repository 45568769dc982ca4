"""A class: who is in it, what becomes a dot, and what only the teacher may see and do."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from starlette.applications import Starlette
from starlette.testclient import TestClient
from test_app_browser import LONG
from visiting import API, PATIENCE, Visitor, eventually

from app import __main__ as app
from app import page as lab_page
from app import presets
from app.classroom import addresses, room, screen
from app.classroom.room import KEPT, Prediction, Room
from app.frames import Stream
from app.lessons import lessons
from app.outcome import Outcome
from app.runs import Run, Runs
from app.tabs.lessons import prediction
from app.tabs.try_it import NAMES, TEXTS
from app.view import View
from backend.engine import Lab
from backend.inference.control import Control
from backend.models.adapters import available
from backend.models.pool import Models

ADDRESS = "http://192.0.2.7:7860"
expect.set_options(timeout=LONG)


def pair() -> list[View]:
    """The two lanes of the recorded run that the page opens on."""
    return [View.of(trace, name=name) for trace, name in zip(presets.opening(), NAMES, strict=True)]


def ran(session: str | None, views: Sequence[View] = (), place: str = "try", outcomes: Sequence[Outcome] = ()) -> Run:
    """A run of a session's that was begun at a place."""
    return Run(session, Control(), Stream(), place, views=views, outcomes=[*outcomes])


def reading(name: str, ended: str = "read to the end", **more: Any) -> Outcome:
    """What came of a text that was read."""
    return Outcome(name, "none", "perplexity", None, 40.5, "good", ended, **more)


def answers(opened: Room, run: Run) -> list[dict[str, Any]]:
    """The dots that a run has made, from its beginning to its end."""
    before = len(opened.shown()["dots"])
    opened.begins(run)
    opened.ended(run)
    return opened.shown()["dots"][before:]


@pytest.fixture
def opened() -> Room:
    return Room()


@pytest.fixture
def anybody(opened: Room) -> TestClient:
    return TestClient(Starlette(routes=screen.routes(opened, lambda: ADDRESS)))


@pytest.fixture
def teacher(opened: Room, anybody: TestClient) -> TestClient:
    """Asks behind the secret link."""
    return TestClient(anybody.app, base_url=f"http://testserver/class/{opened.secret}/")


def test_who_has_the_code_is_a_student_and_stays_the_same_one(opened):
    assert opened.joins(f" {opened.code.lower()} ", "page", "browser")[0]
    joined, words = opened.joins(opened.code, "page loaded anew", "browser")
    assert joined and "student 1" in words
    assert "student 2" in opened.joins(opened.code, "a program", "")[1]
    assert opened.shown()["students"] == 2


@pytest.mark.parametrize("code", ["", "<b>", "ABCDE" * 9, "é", "00000"])
def test_another_code_is_refused_in_a_sentence(opened, code):
    joined, words = opened.joins(code, "page", "browser")
    assert not joined and words.endswith("ask your teacher for it.") and len(words) < 100
    opened.ended(ran("page", pair()))
    assert not opened.shown()["dots"] and not opened.shown()["students"]


def test_a_class_has_an_end(opened, monkeypatch):
    monkeypatch.setattr(room, "STUDENTS", 2)
    assert [opened.joins(opened.code, name, name)[0] for name in "aba"] == [True, True, True]
    joined, words = opened.joins(opened.code, "c", "c")
    assert not joined and "full" in words


def test_pages_that_are_loaded_anew_are_not_kept_for_good(opened, monkeypatch):
    monkeypatch.setattr(room, "PAGES", 3)
    for number in range(9):
        assert opened.joins(opened.code, f"page {number}", "browser")[0]
    assert len(opened._sessions) == 3 and opened.shown()["students"] == 1
    opened.ended(ran("page 8", pair()))
    opened.ended(ran("page 0", pair()))
    assert len(opened.shown()["dots"]) == 2


def test_each_lane_becomes_a_dot_with_the_prediction_that_it_answers(opened):
    opened.joins(opened.code, "page", "browser")
    opened.predicts("page", Prediction("ask_for_sixty", 90, None))
    asked, steered = answers(opened, ran("page", pair()))
    (again,) = answers(opened, ran("page", pair()[1:]))
    assert (asked["name"], asked["target"], asked["produced"], asked["predicted"]) == ("Asked", 60, 97, 90)
    assert (asked["figure"], asked["measured"]) == (97, "tokens")
    assert asked["state"] == "bad" and steered["state"] == "good" and steered["lesson"] == "ask_for_sixty"
    assert again["predicted"] is None and again["lesson"] == ""
    assert len({dot["number"] for dot in (asked, steered, again)}) == 3


def test_a_prediction_is_of_the_run_of_its_lesson_alone(opened):
    opened.joins(opened.code, "page", "browser")
    before = ran("page", pair())
    opened.begins(before)
    opened.predicts("page", Prediction("what_sinks_are_for", None, 1))
    opened.ended(before)
    assert not any(dot["lesson"] for dot in opened.shown()["dots"])
    (elsewhere,) = answers(opened, ran("page", pair()[:1]))
    (late,) = answers(opened, ran("page", place="long", outcomes=[reading("Λ")]))
    assert not elsewhere["lesson"] and not late["lesson"]
    opened.predicts("page", Prediction("ask_for_sixty", 90, None))
    assert not answers(opened, ran("page"))
    assert not any(dot["lesson"] for dot in answers(opened, ran("page", pair())))


def test_who_runs_a_lesson_again_has_guessed_once(opened):
    opened.joins(opened.code, "page", "browser")
    for _ in range(2):
        opened.predicts("page", Prediction("ask_for_sixty", 90, None))
        assert {dot["predicted"] for dot in answers(opened, ran("page", pair()))} == {90}
    assert len(opened.shown()["predictions"]) == 1


def test_a_prediction_whose_recorded_run_is_shown_waits_for_no_other(opened):
    opened.joins(opened.code, "page", "browser")
    opened.predicts("page", Prediction("ask_for_sixty", 90, None), runs=False)
    assert not any(dot["lesson"] for dot in answers(opened, ran("page", pair())))
    assert [one["number"] for one in opened.shown()["predictions"]] == [90]


def test_each_reading_is_a_dot_that_says_what_its_lesson_asks(opened):
    opened.joins(opened.code, "page", "browser")
    opened.predicts("page", Prediction("what_sinks_are_for", None, 1))
    kept, dropped = answers(opened, ran("page", (), "long", [reading("Λ"), reading("Λ without sinks")]))
    for dot in (kept, dropped):
        assert (dot["figure"], dot["measured"], dot["unit"]) == (40.5, "perplexity", "perplexity")
        assert (dot["choice"], dot["ended"], dot["target"]) == ("By a half and more", "read to the end", None)
    opened.predicts("page", Prediction("beyond_training", 900, None))
    read = [reading("Plain"), reading("Dynamic PIC × 0.125", breaks=1536)]
    plain, stretched = answers(opened, ran("page", (), "long", read))
    assert plain["figure"] is None and plain["lesson"] == "beyond_training"
    assert (stretched["figure"], stretched["measured"], stretched["predicted"]) == (1536, "tokens read", 900)


def test_every_answer_to_a_setting_is_a_dot_and_their_spread_is_of_the_first(opened):
    opened.joins(opened.code, "page", "browser")
    opened.predicts("page", Prediction("chance_and_length", 200, None))
    lengths = {"A": (120, 300, 455), "B": (80, 81)}
    said = ("good", "with a sentence")
    further = [Outcome(name, "none", "tokens", None, each, *said) for name in lengths for each in lengths[name]]
    dots = answers(opened, ran("page", (), "compare", further))
    assert [(dot["name"], dot["produced"]) for dot in dots] == [(one.name, one.produced) for one in further]
    assert [dot["figure"] for dot in dots] == [335, None, None, 1, None]


def test_no_word_of_a_student_leaves_the_run(opened):
    opened.joins(opened.code, "page", "browser")
    opened.ended(ran("page", pair()))
    shown = str(opened.shown()) + str(opened.table())
    for view in pair():
        assert view.series.answer[:20] not in shown and view.series.settings.prompt[:20] not in shown


def test_what_wrote_nothing_or_is_nobodys_is_no_dot(opened):
    opened.joins(opened.code, "page", "browser")
    opened.ended(ran("page", [View(pair()[0].series.settings)]))
    opened.ended(ran("another page", pair()))
    opened.ended(ran(None, pair()))
    opened.predicts(None, Prediction("ask_for_sixty", 90, None))
    assert not opened.shown()["dots"] and not opened.shown()["predictions"]


def test_what_is_kept_of_a_student_is_bounded(opened):
    opened.joins(opened.code, "page", "browser")
    for number in range(KEPT + 2):
        opened.predicts("page", Prediction("ask_for_sixty", number, None))
        opened.ended(ran("page", pair()))
    dots = opened.shown()["dots"]
    assert len(dots) == KEPT and dots[-1]["number"] == 2 * KEPT + 4 and len(opened.shown()["predictions"]) == KEPT


def test_a_closed_class_forgets_everything_and_has_another_code(opened):
    opened.joins(opened.code, "page", "browser")
    opened.predicts("page", Prediction("ask_for_sixty", 90, None))
    opened.ended(ran("page", pair()))
    code = opened.code
    opened.close()
    assert not opened.joins(code, "page", "browser")[0]
    opened.ended(ran("page", pair()))
    shown = opened.shown()
    assert not shown["dots"] and not shown["predictions"] and not shown["students"] and shown["code"] != code


@pytest.mark.parametrize(
    ("name", "given", "number", "choice"),
    [
        ("ask_for_sixty", {"number": 60}, 60, None),
        ("ask_for_sixty", {"number": 1e9, "choice": 0}, None, None),
        ("ask_for_sixty", {"number": float("nan")}, None, None),
        ("ask_for_sixty", {"number": "<script>", "choice": []}, None, None),
        ("what_a_window_forgets", {"choice": 1}, None, 1),
        ("what_a_window_forgets", {"choice": 99, "number": 2}, None, None),
        ("what_a_window_forgets", {"choice": -1}, None, None),
    ],
)
def test_a_prediction_is_of_the_lessons_question_or_none(name, given, number, choice):
    assert prediction(lessons()[name], given) == (name, number, choice)


def test_the_teachers_screen_is_behind_its_secret_alone(opened, anybody):
    for at in ("", "/state", "/dots.csv"):
        assert anybody.get(f"/class/{opened.code}{at}").status_code == 404
    for at in ("/hide/1", "/close"):
        assert anybody.post(f"/class/{'é' * 22}{at}").status_code == 404
        assert anybody.get(f"/class/{opened.secret}{at}").status_code == 405
    assert anybody.get(f"/class/{opened.secret}").status_code == 200 and opened.secret not in anybody.get("/join").text


def test_the_screen_is_read_again_only_where_it_changed(opened, teacher):
    first = teacher.get("state").json()
    assert first["link"] == f"{ADDRESS}/?class={opened.code}&tab=lessons" and first["qr"].startswith("<svg")
    assert teacher.get("state", params={"version": first["version"]}).status_code == 204
    opened.joins(opened.code, "page", "browser")
    assert teacher.get("state", params={"version": first["version"]}).json()["students"] == 1


def test_a_dot_is_hidden_put_back_and_saved(opened, teacher):
    opened.joins(opened.code, "page", "browser")
    opened.ended(ran("page", pair()))
    assert teacher.post("hide/2").status_code == 204
    assert [dot["hidden"] for dot in teacher.get("state").json()["dots"]] == [False, True]
    saved = teacher.get("dots.csv")
    rows = [*csv.DictReader(io.StringIO(saved.text))]
    assert [row["produced"] for row in rows] == [str(view.series.produced[-1]) for view in pair()]
    assert rows[1]["hidden"] == "True" and "attachment" in saved.headers["content-disposition"]
    teacher.post("hide/2")
    teacher.post("hide/999")
    assert not any(dot["hidden"] for dot in teacher.get("state").json()["dots"])


def test_what_is_saved_has_predictions_by_choice_and_those_without_a_run(opened, teacher):
    opened.joins(opened.code, "page", "browser")
    opened.predicts("page", Prediction("what_a_window_forgets", None, 2))
    opened.predicts("page", Prediction("what_a_window_forgets", None, 0))
    answers(opened, ran("page", (), "long", [reading("Plain", "the number found")]))
    opened.predicts("page", Prediction("ask_for_sixty", 90, None))
    dot, *alone = csv.DictReader(io.StringIO(teacher.get("dots.csv").text))
    assert (dot["choice"], dot["ended"], dot["figure"]) == ("Both", "the number found", "40.5")
    found = [(one["student"], one["number"], one["lesson"], one["choice"], one["predicted"]) for one in alone]
    assert found == [("1", "", "what_a_window_forgets", "Neither", ""), ("1", "", "ask_for_sixty", "", "90")]


def test_the_terminal_names_what_both_open():
    opened = Room()
    words = addresses.announced(opened, ADDRESS)
    assert f"{ADDRESS}/join" in words and opened.code in words and f"{ADDRESS}/class/{opened.secret}" in words
    assert "█" in words
    assert addresses.reached("192.0.2.9", 80) == "http://192.0.2.9:80"
    assert re.fullmatch(r"http://\d+\.\d+\.\d+\.\d+:7860", addresses.reached("0.0.0.0", 7860))


class Class:
    """A lab that a class uses, on a port of its own."""

    def __init__(self, models: Models) -> None:
        self.room = Room()
        self.runs = Runs(self.room.begins, self.room.ended)
        self.page = lab_page.build(Lab(models), available, self.runs, 8, room=self.room)
        self.address = self.page.reached = app.serve(self.page).rstrip("/")


@pytest.fixture(scope="module")
def taught(models):
    served = Class(models)
    yield served
    served.page.close()


@pytest.fixture
def visits(browser) -> Iterator[Callable[..., Page]]:
    """Opens a page in a browser of its own; none may have written an error to its console."""
    problems: list[str] = []

    with ExitStack() as opened:

        def visits(**options: Any) -> Page:
            context = browser.new_context(**options)
            opened.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(LONG)
            page.on("console", lambda message: message.type == "error" and problems.append(message.text))
            page.on("pageerror", lambda error: problems.append(str(error)))
            return page

        yield visits
    assert not problems


def student(taught: Class, page: Page, guess: int) -> None:
    """Joins by the code, guesses in the first lesson and runs it."""
    page.goto(f"{taught.address}/join")
    page.fill("#code", taught.room.code.lower())
    page.click("button")
    expect(page.locator("#class")).to_contain_text("You are student")
    page.click("[data-lesson=ask_for_sixty]")
    page.locator(".ll-lesson input[type=range]").fill(str(guess))
    page.get_by_text("That is my guess").click()
    page.get_by_text("Run it").click()


def guesses(taught: Class) -> list[float | None]:
    return sorted(one.number for made in taught.room._predictions.values() for one in made)


def test_a_students_prediction_and_run_are_seen_on_the_teachers_screen(taught, visits):
    teacher, visitor = visits(), visits(viewport={"width": 390, "height": 844})
    teacher.goto(f"{taught.address}/class/{taught.room.secret}")
    expect(teacher.locator("#code")).to_have_text(taught.room.code)
    student(taught, visitor, 75)
    expect(teacher.locator("#count")).to_have_text("1 student, 2 runs")
    expect(teacher.locator("#question")).to_contain_text("How many will it write?")
    expect(teacher.locator("#lengths .scatterlayer .point")).to_have_count(2)
    assert guesses(taught) == [75]
    teacher.locator("summary").click()
    teacher.locator("#table button").first.click()
    expect(teacher.locator("#lengths .scatterlayer .point")).to_have_count(1)
    teacher.click("#hidden")
    expect(teacher.locator("#lengths .scatterlayer .point")).to_have_count(2)
    assert teacher.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_lesson_that_reads_makes_dots_on_the_teachers_screen(taught, visits):
    taught.room.close()
    teacher, visitor = visits(), visits()
    teacher.goto(f"{taught.address}/class/{taught.room.secret}")
    visitor.goto(f"{taught.address}/?class={taught.room.code}&tab=lessons")
    visitor.click("[data-lesson=what_a_window_forgets]")
    visitor.locator(".ll-option input").nth(1).check()
    visitor.get_by_text("Run it").click()
    expect(teacher.locator("#count")).to_have_text("1 student, 2 runs")
    expect(teacher.locator("#results .scatterlayer .point")).to_have_count(2)
    teacher.locator("summary").click()
    said = re.compile(r"Plain: perplexity [\d.]+, the number found")
    expect(teacher.locator("#table button").first).to_have_text(said)
    expect(visitor.locator(".ll-verdict")).to_have_text("Your guess was right.")


def test_a_wrong_code_is_said_on_the_page(taught, browser):
    page = browser.new_page()
    page.goto(f"{taught.address}/?class=<b>x</b>")
    expect(page.locator("#class [data-state=bad]")).to_contain_text("There is no class with the code <b>x</b>")


def program(taught: Class, number: int) -> None:
    """Joins and writes as a page does, without a browser, until both of its runs have become dots."""
    with httpx.Client(base_url=taught.address, timeout=PATIENCE) as http:
        http.get("/")
        who = Visitor.__new__(Visitor)
        who.served, who.session, who.http = taught, f"student{number:04}", http
        joins = next(one._id for one in taught.page.fns.values() if one.name == "join")
        asked = {"fn_index": joins, "data": [], "session_hash": who.session}
        assert http.post(f"{API}/queue/join?class={taught.room.code}", json=asked).status_code == 200
        eventually(lambda: who.session in taught.room._sessions, "a student")
        assert who.presses("write_both", ["Tell me about bees.", 20 + number, "tokens", False]).status_code == 200
        with http.stream("GET", f"{API}/queue/data", params={"session_hash": who.session}) as events:
            for line in events.iter_lines():
                dots = taught.room._dots.get(taught.room._sessions[who.session], ())
                if "process_completed" in line and len(dots) == 2:
                    break


def texts(page: Page) -> list[str]:
    """What both lanes wrote, once they have ended."""
    expect(page.locator("#try-go")).to_be_enabled()
    return [page.locator(f"#{name}").inner_text() for name in TEXTS]


@pytest.mark.scale
@pytest.mark.parametrize("browsers", [0, 3])
def test_a_class_of_thirty_writes_at_once(taught, visits, browsers):
    taught.room.close()
    teacher, pages, programs = visits(), [visits() for _ in range(browsers)], 30 - browsers
    teacher.goto(f"{taught.address}/class/{taught.room.secret}")
    with ThreadPoolExecutor(programs) as pool:
        others = [pool.submit(program, taught, number) for number in range(programs)]
        for number, page in enumerate(pages):
            student(taught, page, 60 + number)
        expect(teacher.locator("#count")).to_have_text("30 students, 60 runs")
    assert [other.result() for other in others] == [None] * programs
    steered = [dot for dot in taught.room.shown()["dots"] if dot["name"] == "Steered"]
    assert sorted(dot["target"] for dot in steered) == sorted([*range(20, 20 + programs), *[60] * browsers])
    assert all(abs(dot["produced"] - dot["target"]) <= 3 for dot in steered)
    assert guesses(taught) == [60, 61, 62][:browsers]
    for page in pages:
        among = texts(page)
        page.click("#try-go")
        expect(page.locator("#try-stop")).to_be_enabled()
        assert texts(page) == among
