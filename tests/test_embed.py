"""A scene or a recorded run alone in a frame: on a site that may show it, and on one that may not."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect
from test_front_browser import FRAME, framed, models, other  # noqa: F401

from app import embed, present, presets
from app.__main__ import serve
from app.page import build
from app.runs import Runs
from backend.engine import Lab
from backend.models.adapters import available
from backend.record.trace import Trace

PATIENCE = 120_000
ALL = [*(scene["name"] for scene in present.playable()), *(preset.name for preset in presets.PRESETS)]
WIDE = "() => document.documentElement.scrollWidth > innerWidth"


@pytest.fixture(scope="module")
def closed(models) -> Iterator[str]:  # noqa: F811
    """A lab that no site may frame."""
    demo = build(Lab(models), available, Runs())
    yield serve(demo).rstrip("/")
    demo.close()


@pytest.fixture
def page(browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 720, "height": 440}, permissions=["clipboard-read", "clipboard-write"])
    page.set_default_timeout(PATIENCE)
    yield page
    page.close()


@pytest.mark.parametrize("name", ALL)
def test_every_scene_and_recorded_run_has_a_page_of_its_own(name):
    scene = embed.found(name)
    assert scene and embed.page(scene).count("<h1>") == 1


def test_markup_in_a_scene_stays_text():
    hostile = present.playable()[0] | {"title": "</script><b>", "look": "<img src=x>"}
    assert not any(tag in embed.page(hostile) for tag in ("</script><b>", "<img src=x>"))


def test_a_site_that_may_shows_a_run_alone_and_another_does_not(page, framed, closed, other):  # noqa: F811
    wrongs: list[str] = []
    page.on("pageerror", lambda error: wrongs.append(str(error)))
    page.goto(other)
    page.evaluate(FRAME, f"{framed}/lab/embed/60-tokens")
    inside, answer = page.frames[1], Trace.load(presets.file_of("60-tokens")).finish.text
    expect(inside.locator(".ll-embed[data-played=whole]")).to_be_visible(timeout=PATIENCE)
    expect(inside.locator(".ll-saying")).to_have_text(answer)
    assert inside.locator("[role=tab], textarea, form").count() == 0
    page.goto(other)
    page.evaluate(FRAME, f"{closed}/lab/embed/60-tokens")
    assert page.frames[1].url.startswith("chrome-error:") and wrongs == []


@pytest.mark.parametrize("width", [720, 320])
def test_it_fits_its_frame_and_is_played_again_by_its_button(page, closed, width):
    page.set_viewport_size({"width": width, "height": 440})
    page.emulate_media(reduced_motion="reduce")
    for name in ("it_obeys", "it_breaks_and_is_repaired"):
        page.goto(f"{closed}/lab/embed/{name}")
        page.wait_for_selector(".ll-embed[data-played=whole]")
        assert not page.evaluate(WIDE), name
    page.evaluate("document.querySelector('.ll-embed').dataset.played = 'before'")
    page.click(".ll-embed button")
    page.wait_for_selector(".ll-embed[data-played=whole]")
    expect(page.locator(".ll-drawn .scatterlayer .trace")).to_have_count(2)


def test_the_code_that_is_copied_shows_the_scene(page, closed):
    page.emulate_media(reduced_motion="reduce")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{closed}/?tab=try")
    page.wait_for_selector(".ll-present[data-scenes]", state="attached")
    page.keyboard.press("p")
    page.click(".ll-present [data-act=embed]")
    expect(page.locator(".ll-present [data-act=embed]")).to_have_text("Copied")
    code = page.evaluate("navigator.clipboard.readText()")
    source = page.evaluate("(code) => document.createRange().createContextualFragment(code).firstChild.src", code)
    assert source == f"{closed}/lab/embed/{present.playable()[0]['name']}"
    page.goto(source)
    expect(page.locator("h1")).to_have_text(present.playable()[0]["title"])


def copied(page: Page, button: str) -> str:
    """The address in the code that a button copies."""
    expect(page.locator(button)).not_to_have_text("Copied", timeout=PATIENCE)
    page.click(button)
    expect(page.locator(button)).to_have_text("Copied", timeout=PATIENCE)
    code = page.evaluate("navigator.clipboard.readText()")
    return page.evaluate("(code) => document.createRange().createContextualFragment(code).firstChild.src", code)


def test_what_try_it_and_the_lab_open_with_can_be_embedded(page, closed):
    page.goto(f"{closed}/?tab=try")
    page.wait_for_selector("#runway-try [data-scene]", timeout=PATIENCE)
    assert copied(page, "#try-embed") == f"{closed}/lab/embed/it_obeys"
    page.goto(f"{closed}/?tab=lab")
    page.wait_for_selector("#text-run .ll-response[data-tokens]", timeout=PATIENCE)
    assert copied(page, "#embed") == f"{closed}/lab/embed/60-tokens"
    page.get_by_role("button", name="Λ window 48").click()
    tokens = presets.recorded()["Λ window 48"].finish.tokens
    expect(page.locator("#figures-run .ll-message")).to_contain_text(f"{tokens} tokens", timeout=PATIENCE)
    assert copied(page, "#embed") == f"{closed}/lab/embed/lambda-window-48"


def test_a_run_of_one_s_own_has_no_address_and_says_so(page, closed):
    page.goto(f"{closed}/?tab=try")
    page.wait_for_selector("#runway-try [data-scene]", timeout=PATIENCE)
    own = "{ run: 'own', frame: 1, scene: '', unit: 'tokens', target: 60, span: 90, lanes: [] }"
    page.evaluate(f"LengthLab.deliver('try', {own})")
    page.click("#try-embed")
    expect(page.locator(".toast-body")).to_contain_text("Save yours in the Lab with HTML", timeout=PATIENCE)


def test_a_run_is_a_recorded_one_by_its_settings_and_its_answer():
    trace = Trace.load(presets.file_of("60-tokens"))
    assert embed.of_run(trace) == "60-tokens" and embed.of_run(None) == ""
    trace.settings = trace.settings.model_copy(update={"seed": 1})
    assert embed.of_run(trace) == ""
    assert embed.of_pair(["asked", "60-tokens"]) == "it_obeys" and embed.of_pair(["60-tokens"]) == ""


def test_an_unknown_name_is_refused_in_a_sentence(closed):
    answer = httpx.get(f"{closed}/lab/embed/none")
    assert answer.status_code == 404 and "copy the embed code" in answer.json()["detail"]
