"""What comes of runs in each language: finished runs with their tables, scenes, files that play a run, and embeds."""

from __future__ import annotations

import pytest
import test_app_browser as on_page
from playwright.sync_api import Browser, Page, expect
from spoken import LANGUAGES, alone, lacking, speaks, stays
from test_app_browser import link

from app import page as lab_page
from app import player, presets
from app.languages import ENGLISH, direction
from app.present import playable
from app.runs import Runs
from backend.engine import Lab
from backend.models.adapters import available
from backend.record.trace import Trace

address, visit = on_page.address, on_page.visit
# The page's own tables and the charts' are opened before it is looked at.
TABLES = "document.querySelectorAll('[data-act=table][aria-pressed=false]').forEach((b) => b.offsetParent && b.click())"
HIGH = {"width": 1440, "height": 5000}
WHOLE = "[data-played=whole]"
OTHER_EMBEDS = ["it_obeys", "60-tokens", "lambda-window-48"]
EMBEDS = ["it_breaks_and_is_repaired", *(pytest.param(each, marks=pytest.mark.ui) for each in OTHER_EMBEDS)]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs()


@pytest.fixture(scope="module")
def demo(models, runs) -> lab_page.Page:
    return lab_page.build(Lab(models), available, runs)


def whole(page: Page, place: str, languages: list[str]) -> None:
    """Whether all that a run left there is in every language."""
    page.evaluate(TABLES)
    page.wait_for_timeout(1500)
    assert not {where: words for where, words in lacking(page, place, languages).items() if words}


@pytest.mark.parametrize("languages", LANGUAGES)
def test_a_run_of_the_lab(visit, languages):
    visitor = visit(query=link(prompt="Count.", max_new_tokens=20), viewport=HIGH)
    visitor.generate()
    visitor.ends()
    whole(visitor.page, "run", languages)


@pytest.mark.ui
@pytest.mark.parametrize("languages", LANGUAGES)
def test_a_comparison(visit, languages):
    page = visit(query="?tab=compare", viewport=HIGH).page
    page.wait_for_selector("#c-model-state [data-state=good]")
    page.fill("#c-cap input[type=number]", "8")
    page.keyboard.press("Tab")
    page.click("#c-go")
    page.wait_for_selector("#figures-compare [data-state=good]")
    whole(page, "comparison", languages)


@pytest.mark.ui
@pytest.mark.parametrize("languages", LANGUAGES)
def test_a_sweep(visit, languages):
    page = visit(query="?tab=compare", viewport=HIGH).page
    page.click("text=A sweep over prompts")
    page.fill("#s-targets :is(input, textarea)", "5")
    page.fill("#s-typed textarea", "Count.")
    page.wait_for_timeout(500)
    page.click("#s-go")
    page.wait_for_selector("#figures-sweep [data-state=good]")
    whole(page, "sweep", languages)


@pytest.mark.ui
@pytest.mark.parametrize("languages", LANGUAGES)
def test_a_text_that_was_read(visit, languages):
    page = visit(query="?tab=far", viewport=HIGH).page
    page.click("#l-what-a-window-forgets")
    page.wait_for_selector("#figures-long [data-state=good]")
    whole(page, "reading", languages)


@pytest.mark.parametrize("languages", LANGUAGES)
def test_each_scene(visit, languages):
    shown: dict[str, set[str]] = {}
    for language in (ENGLISH, *languages):
        page = visit(query=f"?tab=try&lang={language}", reduced_motion="reduce").page
        speaks(page, language)
        # A key that is pressed while the page opens is lost, a button is not.
        page.click("[data-present]")
        for scene in playable():
            page.wait_for_selector(f".ll-present[data-scene={scene['name']}]{WHOLE}")
            shown[language] = shown.get(language, set()) | alone(page)
            page.keyboard.press("ArrowRight")
    assert not {each: words for each in languages if (words := stays(shown[ENGLISH], shown[each], each))}


@pytest.mark.ui
def test_measurements_are_found_by_the_page_s_words_and_by_english_ones(visit):
    page = visit(query="?tab=evidence&lang=de").page
    speaks(page, "de")
    page.wait_for_selector("#results-withdrawn table")
    for words in ("versteckte Fenster", "hidden window"):
        page.fill(".ll-search input", words)
        expect(page.locator("#results-headlines")).to_be_hidden()
        expect(page.locator("#results-passkey_retrieval")).to_be_visible()
        page.fill(".ll-search input", "")
        expect(page.locator("#results-headlines")).to_be_visible()


@pytest.fixture
def offline(browser: Browser):
    context = browser.new_context(offline=True, reduced_motion="reduce", locale="de-DE")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("languages", LANGUAGES)
def test_a_file_that_plays_a_run_speaks_the_language_that_it_was_made_in(offline, tmp_path, languages):
    trace, shown, file = Trace.load(presets.file_of("60-tokens")), {}, tmp_path / "run.html"
    for language in (ENGLISH, *languages):
        file.write_text(player.page(trace, language), "utf-8")
        offline.goto(file.as_uri())
        offline.wait_for_selector(f".ll-present{WHOLE}")
        assert offline.evaluate("[document.documentElement.lang, document.documentElement.dir]") == [
            language, direction(language),
        ]  # fmt: skip
        expect(offline.locator(".ll-saying")).to_have_text(trace.finish.text)
        shown[language] = alone(offline)
        offline.click(".ll-present [data-act=close]")
        shown[language] |= alone(offline)
        expect(offline.locator("main .prompt")).to_have_text(trace.settings.prompt)
    assert not {each: words for each in languages if (words := stays(shown[ENGLISH], shown[each], each))}


def test_the_page_s_language_goes_into_what_it_exports(visit, tmp_path):
    page = visit(query="?tab=lab&lang=ar").page
    speaks(page, "ar")
    with page.expect_download() as saved:
        page.click("#export-html")
    assert '<html lang="ar" dir="rtl">' in saved.value.path().read_text("utf-8")
    page.click("#chart-length summary")
    with page.expect_download() as saved:
        page.click("#chart-length [data-act=html]")
    text = saved.value.path().read_text("utf-8")
    assert '<html lang="ar" dir="rtl">' in text and "توكن" in text


@pytest.fixture
def framed(browser: Browser):
    context = browser.new_context(reduced_motion="reduce", locale="es-MX")
    context.set_default_timeout(120_000)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("languages", LANGUAGES)
@pytest.mark.parametrize("name", EMBEDS)
def test_an_embed_speaks_its_address_s_language_or_the_browser_s(framed, address, name, languages):
    shown = {}
    for language, query in [(each, f"?lang={each}") for each in (ENGLISH, *languages)] + [("es", "")]:
        framed.goto(f"{address}lab/embed/{name}{query}")
        framed.wait_for_selector(f".ll-embed{WHOLE}")
        assert framed.evaluate("document.documentElement.lang") == language
        assert framed.evaluate("getComputedStyle(document.body).direction") == direction(language)
        shown[language] = alone(framed)
    assert not {each: words for each in languages if (words := stays(shown[ENGLISH], shown[each], each))}


def test_the_code_of_an_embed_names_the_page_s_language(visit, address):
    page = visit(query="?tab=try&lang=zh").page
    speaks(page, "zh")
    page.click("#try-embed")
    expect(page.locator("#try-embed")).to_have_text("已复制")
    code = page.evaluate("navigator.clipboard.readText()")
    assert f'src="{address}lab/embed/it_obeys?lang=zh"' in code and "Obey" not in code
