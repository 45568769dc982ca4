"""A conversation on the Lab tab: each turn with its own target, kept over a reload, in links, files and the form."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl, urlparse

import pytest
from playwright.sync_api import Page, expect
from test_app_browser import Visitor, address, demo, lab, link, runs, visit  # noqa: F401
from test_kept import reload, remembers, saved
from test_page_state import VEILED

from app import conversation, player
from app.presets import recorded
from app.share import from_query
from backend.record.trace import Trace
from backend.refused import Refused
from backend.settings import MAX_TURNS

RUN = next(iter(recorded().values()))
TALK = json.dumps([{"question": "Why?", "answer": "So.", "about": "Off · 2 tokens"}])


def turns(page: Page):
    return page.locator(".ll-talk li")


def asks(visitor: Visitor, question: str, method: str, number: str, value: int) -> str:
    """Asks with a method and one of its numbers; returns the answer."""
    visitor.page.locator("#prompt textarea").fill(question)
    visitor.page.locator(f"#choice-method input[value={method}]").check(force=True)
    visitor.number(number, value)
    visitor.generate()
    visitor.ends()
    return visitor.page.inner_text("#text-run .ll-text")


def shared(page: Page) -> list[tuple[str, str]]:
    """Who said what before the prompt, in the link that the page gives."""
    expect(page.locator("#share")).to_have_text("Copy link")
    page.click("#share")
    expect(page.locator("#share")).to_have_text("Copied")
    values, problems = from_query(dict(parse_qsl(urlparse(page.evaluate("navigator.clipboard.readText()")).query)))
    assert problems == []
    return [(turn.role, turn.content.strip()) for turn in values.get("earlier", ())]


def test_three_turns_with_targets_of_their_own_outlive_a_reload(visit):  # noqa: F811
    visitor = visit(query=link(prompt="Name a river.", method="ldpe", target=12))
    page, veil = visitor.page, visitor.page.locator(".ll-stage")
    page.locator("#system textarea").fill("Be brief.")
    expect(turns(page)).to_have_count(0)
    first = asks(visitor, "Name a river.", "ldpe", "target", 12)
    page.click("#go-on")
    expect(turns(page)).to_have_count(1)
    expect(page.locator("#prompt textarea")).to_have_value("")
    expect(page.locator("#prompt textarea")).to_be_focused()
    expect(veil).not_to_have_class(VEILED)
    second = asks(visitor, "Another?", "orpe", "target", 9)
    page.click("#go-on")
    expect(turns(page)).to_have_count(2)
    asks(visitor, "And a third?", "none", "cap", 4)
    expect(turns(page).nth(0)).to_contain_text("LDPE · target 12 tokens · ")
    expect(turns(page).nth(1)).to_contain_text("ORPE · target 9 tokens · ")
    assert visitor.field("produced") == "4 tokens"
    saved(page, "generate", "And a third?")
    remembers(page, 3)
    reload(page)
    visitor.shows(4)
    expect(turns(page)).to_have_count(2)
    expect(turns(page).nth(1)).to_contain_text("ORPE · target 9 tokens · ")
    expect(page.locator("#system textarea")).to_have_value("Be brief.")
    expect(veil).not_to_have_class(VEILED)
    said = [("system", "Be brief."), ("user", "Name a river."), ("assistant", first.strip()), ("user", "Another?"),
            ("assistant", second.strip())]  # fmt: skip
    assert shared(page) == said
    page.get_by_role("button", name="Remove turn 1").click()
    expect(turns(page)).to_have_count(1)
    expect(veil).to_have_class(VEILED)
    assert shared(page) == [said[0], *said[3:]]
    page.get_by_role("button", name="New conversation").click()
    expect(page.locator(".ll-talk")).to_be_hidden()
    kept = "JSON.parse(localStorage.getItem('length-lab-form-generate'))"
    page.wait_for_function(f"{kept}.talk === '[]' && {kept}.system === 'Be brief.'")


@pytest.mark.ui
def test_a_copied_link_keeps_the_last_run_over_a_reload_and_brings_what_was_asked_of_each_turn(visit):  # noqa: F811
    visitor = visit(query=link(prompt="Name a river.", method="ldpe", target=12))
    page = visitor.page
    asks(visitor, "Name a river.", "ldpe", "target", 12)
    page.click("#go-on")
    expect(turns(page)).to_have_count(1)
    answer = asks(visitor, "Another?", "orpe", "target", 9)
    saved(page, "generate", "Another?")
    remembers(page, 2)
    assert shared(page)
    reload(page)
    expect(page.locator("#text-run .ll-text")).to_have_text(answer.strip())
    other = visitor.context.new_page()
    other.goto(page.evaluate("navigator.clipboard.readText()"))
    expect(turns(other)).to_contain_text("LDPE · target 12 tokens · ")


@pytest.mark.ui
def test_a_link_brings_its_conversation_and_hostile_words_stay_words(visit):  # noqa: F811
    from app.share import to_query
    from backend.settings import RunSettings

    words = "<img src=x onerror=alert(1)>"
    talk = [{"role": "user", "content": words}, {"role": "assistant", "content": words}]
    page = visit(query=f"?{to_query(RunSettings(prompt='And then?', earlier=talk))}").page
    expect(turns(page)).to_have_count(1)
    expect(turns(page).locator("p").first).to_have_text(words)
    assert page.locator(".ll-talk img").count() == 0


def test_a_run_becomes_a_turn_once():
    talk = conversation.grown(conversation.EMPTY, RUN)
    [turn] = conversation.read(talk)
    assert (turn.question, turn.answer) == (RUN.settings.prompt, RUN.finish.text)
    assert turn.about == f"LDPE · target 60 tokens · {RUN.finish.tokens} written, {RUN.finish.error:+}"
    assert conversation.ends_with(talk, RUN) and not conversation.ends_with(TALK, RUN)
    with pytest.raises(Refused, match="in the conversation already"):
        conversation.grown(talk, RUN)
    assert len(conversation.read(conversation.grown(TALK, RUN))) == 2


@pytest.mark.parametrize("run", [None, Trace(RUN.settings)])
def test_without_an_answer_nothing_goes_on(run):
    with pytest.raises(Refused, match="no answer to go on from yet"):
        conversation.grown(conversation.EMPTY, run)


def test_a_conversation_has_an_end():
    full = conversation.written([conversation.Exchange(question="a", answer="b")] * (MAX_TURNS // 2))
    assert conversation.fits(full)
    with pytest.raises(Refused, match="at most 100 turns"):
        conversation.grown(full, RUN)


@pytest.mark.parametrize("value", [None, 5, "", "{", "{}", '[{"question": 5}]', TALK.replace("about", "more")])
def test_what_is_no_conversation_is_refused(value):
    assert not conversation.fits(value)
    with pytest.raises(Refused, match="press New conversation"):
        conversation.turns("", value)


def test_a_file_that_plays_itself_shows_the_conversation():
    run = Trace.load(RUN.to_json().encode())
    run.settings = run.settings.model_copy(update={"earlier": conversation.turns("Be <b>brief</b>.", TALK)})
    made = player.page(run)
    assert '<b>System prompt:</b> <span translate="no">Be &lt;b&gt;brief&lt;/b&gt;.</span>' in made
    answer = made.index('<b>Answer:</b> <span translate="no">So.')
    question = made.index('<b>Question:</b> <span translate="no">Why?')
    assert question < answer < made.index(RUN.settings.prompt[:20], answer)
