"""The page in other languages: the dictionaries, and each tab of the page in a real browser."""

from __future__ import annotations

import pytest
import test_app_browser as on_page
from playwright.sync_api import Page, expect
from playwright.sync_api import Route as PlaywrightRoute
from refusals import refusals
from scripted import scripted
from spoken import DICTIONARIES, LANGUAGES, OTHERS, PLACE, SHARED, chooses, lacking, speaks
from test_app_browser import Visitor, link

from app import page as lab_page
from app import presets
from app.classroom.room import Prediction, Room
from app.frames import Stream
from app.lessons import lessons
from app.outcome import Outcome
from app.runs import Run, Runs
from app.scenes import scenes
from app.share import from_query
from app.tabs.try_it import NAMES as LANES
from app.view import View
from backend.engine import Lab
from backend.evaluation.experiments import experiments
from backend.inference.control import Control
from backend.models.adapters import available
from backend.models.pool import Models

address, visit = on_page.address, on_page.visit
TABS = ("try", "lessons", "compare", "far", "lab", "evidence")
# What has to be opened on a tab to be seen, and what shows that the tab is there.
OPENS = {
    "try": ["#try-charts > button"],
    "lessons": ["#teachers > button", "#ideas > button", "[data-lesson=ask_for_sixty]"],
    "lab": ["#view label:last-child"],
    "evidence": ["text=What the papers publish"],
}
THERE = {
    "lessons": ".ll-lesson:not([hidden])", "compare": "#c-model-state [data-state=good]", "evidence": ".ll-proof dd",
}  # fmt: skip
TABLES = "[data-act=table][aria-pressed=false]"
# What Back does; a tab that has no room is then found in a menu by its English name.
BACK_TO = """(tab) => { const url = new URL(location.href); url.searchParams.set("tab", tab);
  history.pushState(null, "", url); dispatchEvent(new PopStateEvent("popstate")); }"""
# How a text that was read can have ended.
READINGS = ("read to the end", "stopped", "the number found", "the number not found")
# Each is a token of an answer, and a word of the page.
PIECES = ["Length", " Stop", " Write", " 60 tokens", "\nCopy", " Target", " Error", " none", "\nTry it", " Asked"]


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> list[str]:
    """A model that writes PIECES."""
    return [str(scripted(tmp_path_factory.mktemp("languages"), PIECES))]


@pytest.fixture(scope="module")
def taught() -> Room:
    """A class in which one student has predicted something twice, and written two runs and read texts."""
    room = Room()
    room.joins(room.code, "student", "browser")
    views = [View.of(trace, name=name) for trace, name in zip(presets.opening(), LANES, strict=True)]
    read = [Outcome("Λ", "none", "perplexity", None, 40.5, "good", ended) for ended in READINGS]
    read[0] = read[0]._replace(name="Dynamic PIC × 0.125", breaks=1536)
    for prediction, *made in (("ask_for_sixty", "try", views, []), ("beyond_training", "long", [], read)):
        room.predicts("student", Prediction(prediction, 1000, None))
        run = Run("student", Control(), Stream(), made[0], views=made[1], outcomes=made[2])
        room.begins(run)
        room.ended(run)
    return room


@pytest.fixture(scope="module")
def runs(taught) -> Runs:
    return Runs(taught.begins, taught.ended)


@pytest.fixture(scope="module")
def demo(names, runs, taught) -> lab_page.Page:
    lab = Lab(Models(["embedded", *names]))
    lab.capabilities()
    return lab_page.build(lab, available, runs, room=taught)


def opens(page: Page, tab: str) -> None:
    """Opens a tab, and on it whatever can be opened. Drawings out of sight are not made anew: all are in sight."""
    page.set_viewport_size({"width": 1440, "height": 40_000 if tab == "evidence" else 5000})
    page.click(f"[role=tab][data-tab-id={tab}]")
    for part in OPENS.get(tab, ()):
        page.click(part)
    page.wait_for_selector(THERE.get(tab, f"[role=tab][data-tab-id={tab}][aria-selected=true]"))
    page.evaluate(f"document.querySelectorAll('{TABLES}').forEach((button) => button.offsetParent && button.click())")
    page.wait_for_timeout(1500)


@pytest.mark.parametrize("language", OTHERS)
def test_a_dictionary_has_every_text_with_its_places_in_other_words(language):
    words = DICTIONARIES[language]
    assert words.keys() == DICTIONARIES[OTHERS[0]].keys()
    for english, other in words.items():
        assert PLACE.findall(english) == PLACE.findall(other), english
        assert other.strip() == other != "" and (other != english or english in SHARED), english


def test_lessons_and_scenes_are_in_the_dictionaries():
    said = [
        words
        for each in lessons().values()
        for words in (
            each.title, each.idea, each.look, each.misconception, each.predict.question, *each.predict.choices,
            each.run.words, each.check.question, each.check.answer, each.teacher.say, each.teacher.expect,
        )
    ] + [words for each in scenes().values() for words in (each.title, each.look, *(lane.name for lane in each.lanes))]
    assert not [words for words in said if words not in DICTIONARIES["de"]]


def test_experiments_are_in_the_dictionaries():
    said = [words for each in experiments for words in (each.title, *([] if each.withdrawn else [each.question]))]
    assert not [words for words in said if words not in DICTIONARIES["de"]]


def test_what_the_lab_refuses_is_in_the_dictionaries():
    known = {PLACE.sub("{}", english) for english in DICTIONARIES["de"]}
    assert not {place: words for words, place in refusals().items() if words not in known}


def test_what_the_lab_refuses_is_shown_in_the_language(visit):
    page = visit(query="?tab=try&lang=de").page
    speaks(page, "de")
    page.fill("#try-prompt textarea", "")
    page.click("#try-go")
    said = page.locator("#figures-try-steered .ll-message")
    expect(said).to_have_text("Der Prompt ist leer: Tippe ein, was das Modell beantworten soll.")
    (problem,) = from_query({"target": "0"})[1]
    page.evaluate("(words) => LengthLab.deliver('try-asked', { message: words })", problem)
    said = page.locator("#figures-try-asked .ll-message")
    expect(said).to_have_text("Aus dem Link wurde Ziel weggelassen: „Ziel“ muss mindestens 1 sein")


@pytest.mark.parametrize("languages", LANGUAGES)
def test_each_tab_is_whole_in_each_language_and_english_again_afterwards(visit, languages):
    page, missing = visit(query="?tab=try").page, {}
    for tab in TABS:
        opens(page, tab)
        missing |= lacking(page, tab, languages)
        if tab == "lessons":
            page.click(".ll-lesson [data-act=close]")
    assert not {place: words for place, words in missing.items() if words}


@pytest.mark.parametrize("languages", LANGUAGES)
def test_the_class_s_screens_are_whole_in_each_language(visit, address, taught, demo, languages):
    page, missing = visit(query="?tab=try").page, {}
    demo.reached = address.rstrip("/")
    for at in ("join", f"class/{taught.secret}"):
        page.goto(address + at)
        if at != "join":
            page.locator("summary").click()
            page.wait_for_selector("#table button")
        missing |= lacking(page, at, languages)
    assert not {place: words for place, words in missing.items() if words}


def test_a_student_is_met_in_the_language(visit, taught):
    page = visit(query=f"?tab=lessons&lang=es&class={taught.code}").page
    expect(page.locator("#class")).to_contain_text(f"de la clase {taught.code}: tus ejecuciones")
    page = visit(query="?tab=lessons&lang=zh&class=00000").page
    expect(page.locator("#class")).to_contain_text("没有代码为 00000 的课堂：请向教师询问代码。")


@pytest.mark.parametrize("width", [390, pytest.param(1440, marks=pytest.mark.ui)])
def test_arabic_mirrors_the_page_but_not_its_charts(visit, width):
    page = visit(query="?tab=try&lang=ar", viewport={"width": width, "height": 844}).page
    speaks(page, "ar")
    assert page.evaluate("document.documentElement.dir") == "rtl"
    title, acts = (page.locator(f".ll-header {part}").bounding_box() for part in ("h1", ".ll-acts"))
    assert title["x"] + title["width"] > acts["x"] + acts["width"] or title["y"] < acts["y"]
    for tab in TABS[:-1]:
        page.evaluate(BACK_TO, tab)
        expect(page.locator(f"[role=tab][data-tab-id={tab}]")).to_have_attribute("aria-selected", "true")
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
    style = "(selector) => getComputedStyle(document.querySelector(selector)).direction"
    assert [page.evaluate(style, each) for each in (".ll-runway", "#chart-length .ll-plot")] == ["rtl", "ltr"]


@pytest.mark.parametrize(
    ("language", "left", "right"), [pytest.param("en", 59, 60, marks=pytest.mark.ui), ("ar", 61, 60)]
)
def test_arrow_keys_move_the_flag_the_way_they_point(visit, language, left, right):
    page = visit(query=f"?tab=try&lang={language}").page
    speaks(page, language)
    flag = page.locator("#runway-try .ll-flag")
    flag.focus()
    expect(flag).to_have_attribute("aria-valuenow", "60")
    x = flag.bounding_box()["x"]
    page.keyboard.press("ArrowLeft")
    expect(flag).to_have_attribute("aria-valuenow", str(left))
    assert flag.bounding_box()["x"] < x
    page.keyboard.press("ArrowRight")
    expect(flag).to_have_attribute("aria-valuenow", str(right))
    page.keyboard.press("ArrowUp")
    expect(flag).to_have_attribute("aria-valuenow", "61")


def test_a_language_that_was_chosen_is_kept_and_the_address_goes_before_it(visit):
    page = visit(query="?tab=try").page
    chooses(page, "es")
    page.reload()
    speaks(page, "es")
    page.goto(page.url.split("?")[0] + "?tab=try&lang=de")
    speaks(page, "de")
    assert "lang=de" in page.url and page.input_value(".ll-language") == "de"
    chooses(page, "zh")
    page.reload()
    speaks(page, "zh")


def test_a_language_chosen_before_the_page_s_script_is_there_is_spoken_once_it_is(visit):
    page = visit(query="?tab=try").page
    scripts: list[PlaywrightRoute] = []
    page.route("**/lab/charts.js", lambda route: scripts.append(route))
    page.reload()
    page.wait_for_selector(".ll-language")
    page.select_option(".ll-language", "es")
    for script in scripts:
        script.continue_()
    speaks(page, "es")
    page.unroute("**/lab/charts.js")
    page.reload()
    speaks(page, "es")


def test_of_two_languages_chosen_at_once_the_last_is_spoken(visit):
    page = visit(query="?tab=try").page
    chooses(page, "es")
    slow: list[PlaywrightRoute] = []
    page.route("**/lab/languages/de.json", lambda route: slow.append(route))
    page.select_option(".ll-language", "de")
    chooses(page, "ar")
    for each in slow:
        each.continue_()
    page.wait_for_timeout(1000)
    speaks(page, "ar")
    assert page.evaluate("document.documentElement.dir") == "rtl"


def test_the_browser_s_language_is_taken_and_english_asks_for_nothing(visit):
    speaks(visit(query="?tab=try", locale="de-AT").page, "de")
    asked: list[str] = []
    visitor = visit(query="?tab=try", locale="fr-FR")
    visitor.page.on("request", lambda request: asked.append(request.url))
    visitor.page.reload()
    visitor.page.wait_for_selector("#try-go")
    speaks(visitor.page, "en")
    assert asked and not [url for url in asked if "lab/languages" in url]


def test_a_run_in_german_leaves_the_answer_as_it_is_written(visit, names):
    visitor: Visitor = visit(query=link(prompt="Write.", model=names[0], max_new_tokens=100) + "&lang=de")
    page = visitor.page
    speaks(page, "de")
    visitor.generate()
    assert visitor.ends().startswith("Ohne Punkt beendet nach 10 Token in ")
    assert page.evaluate("document.querySelector('#text-run .ll-text').textContent") == "".join(PIECES)
    page.locator("#text-run .tok").first.hover()
    assert "Length Token" in page.inner_text("#text-run .ll-tip")
    assert page.input_value("#prompt textarea") == "Write."
    expect(page.locator("#chart-length .ll-words")).to_contain_text("10 Token geschrieben, ohne Ziel")


def test_what_no_dictionary_has_stays_english(visit):
    page = visit(query="?tab=try&lang=de").page
    speaks(page, "de")
    page.evaluate("LengthLab.deliver('try-asked', { message: 'Never heard of.', end: 'stopped', error: '+1,024' })")
    said = page.locator("#figures-try-asked")
    assert said.locator(".ll-message").inner_text() == "Never heard of."
    assert said.locator("[data-field=end]").inner_text() == "gestoppt"
    assert said.locator("[data-field=error]").inner_text() == "+1,024"


def test_a_language_that_there_is_not_is_not_served(visit, address):
    get = visit(query="?tab=try").page.request.get
    assert get(f"{address}lab/languages/de.json").json()["Write"] == DICTIONARIES["de"]["Write"]
    assert [get(f"{address}lab/languages/{name}.json").status for name in ("en", "xx", "..%2Fde")] == [404] * 3
