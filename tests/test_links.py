"""Links: what settings and prompts of every script come back as, from the query and from the page that it opens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import get_args
from urllib.parse import parse_qs, parse_qsl, urlencode, urlparse

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect
from pydantic import ValidationError
from test_app_browser import address, demo, lab, runs, visit  # noqa: F401

from app import conversation
from app.share import MAX_CHARACTERS, _packed, about_of, from_query, settings_of, to_query
from backend.settings import RunSettings, Watch

# More lists in lists than Python reads.
NESTED = _packed("[" * 40_000)
LETTERS = st.characters(exclude_categories=["Cs"])
SCRIPTS = {
    "English": "etaoin shrdlu, ETAOIN.",
    "Chinese": [chr(code) for code in range(0x4E00, 0x9FD0)],
    "Arabic": [chr(code) for code in range(0x621, 0x64B)],
    "emoji": [chr(code) for code in range(0x1F300, 0x1F650)],
    "any of four bytes": [chr(code) for code in range(0x10000, 0x110000)],
}


def prompt(script: str, length: int) -> str:
    """So many letters of a script, in no order that packs them well."""
    return "".join(random.Random(length).choices(SCRIPTS[script], k=length - 1)) + "."


def read(query: str) -> RunSettings:
    values, problems = from_query(dict(parse_qsl(query, keep_blank_values=True)))
    assert problems == []
    return settings_of(values)


def numbers(model: type[RunSettings | Watch], name: str) -> st.SearchStrategy:
    """Any value of a number or text that has bounds, of a truth or of a choice."""
    field = model.model_fields[name]
    if field.annotation is bool:
        return st.booleans()
    if choices := get_args(field.annotation):
        return st.sampled_from(choices)
    limits = {
        kind: getattr(bound, kind) for bound in field.metadata for kind in ("ge", "le", "gt") if hasattr(bound, kind)
    }
    least = limits.get("ge", limits.get("gt"))
    if field.annotation is float:
        return st.floats(least, limits["le"], exclude_min="gt" in limits)
    return st.integers(least, limits["le"])


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, str]]:
    """Messages before a prompt: a system's, if any, then questions and answers."""
    words = st.text(LETTERS, max_size=300)
    found = [{"role": "system", "content": draw(words)}] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 3))):
        found.append({"role": "user", "content": draw(words.filter(str.strip))})
        found.append({"role": "assistant", "content": draw(words)})
    return found


@st.composite
def settings(draw: st.DrawFn) -> RunSettings:
    """Any settings at all."""
    others = {
        "prompt": st.text(LETTERS, min_size=1, max_size=1500).filter(str.strip),
        "model": st.text(LETTERS, max_size=300),
        "window": st.none() | st.integers(1, 131_072),
        "distance_limit": st.sampled_from(["window", "off"]) | st.integers(1, 131_072),
        "earlier": conversations(),
        "watch": st.builds(Watch, **{name: numbers(Watch, name) for name in Watch.model_fields}),
    }
    numbered = {name: numbers(RunSettings, name) for name in RunSettings.model_fields if name not in others}
    strategies = others | numbered
    chosen = {name: draw(strategy) for name, strategy in strategies.items() if name == "prompt" or draw(st.booleans())}
    try:
        return RunSettings(**chosen)
    except ValidationError:
        return RunSettings(**chosen | {"window": None})


@given(settings=settings())
def test_a_link_gives_the_settings_back(settings):
    assert read(to_query(settings)) == settings


@pytest.mark.parametrize("words", ["…", " a ", "\n?", "a\r\nb", "a+b & c=d %41 #e", "\0", "none", "packed"])
def test_a_link_gives_any_prompt_back(words):
    assert read(to_query(RunSettings(prompt=words))).prompt == words


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("length", [600, 700, MAX_CHARACTERS])
def test_a_link_holds_as_many_characters_of_every_script(script, length):
    query = to_query(asked := RunSettings(prompt=prompt(script, length), ratio=0.1 + 0.2))
    assert read(query) == asked and len(query) < 25_000
    with pytest.raises(ValueError, match=f"too long for a link .*{MAX_CHARACTERS + 1:,} characters, at most"):
        to_query(RunSettings(prompt=prompt(script, MAX_CHARACTERS + 1)))


def talk(script: str, length: int, turns: int) -> list[dict[str, str]]:
    """So many exchanges of so many letters in all."""
    each = length // (2 * turns)
    roles = ["user", "assistant"] * turns
    return [{"role": role, "content": prompt(script, each + number % 2)} for number, role in enumerate(roles)]


@pytest.mark.parametrize("script", [*SCRIPTS, "controls"])
@pytest.mark.parametrize("turns", [1, 90])
def test_a_link_holds_a_conversation_of_as_many_characters(script, turns, monkeypatch):
    monkeypatch.setitem(SCRIPTS, "controls", [chr(code) for code in range(32)])
    asked = RunSettings(prompt="And then?", earlier=talk(script, MAX_CHARACTERS - 500, turns))
    query = to_query(asked)
    assert read(query) == asked and len(query) < 25_000
    longer = asked.model_copy(update={"prompt": prompt(script, 1000)})
    with pytest.raises(ValueError, match=r"the conversation is too long for a link .*, at most 6,000 fit"):
        to_query(longer)


@pytest.mark.parametrize("change", [lambda text: text[:-9], lambda text: "x" + text, lambda _: "", lambda _: NESTED])
def test_a_conversation_that_was_cut_or_changed_is_left_out(change):
    ((_, _), (name, packed)) = parse_qsl(to_query(RunSettings(prompt="And?", earlier=talk("English", 300, 2))))
    values, problems = from_query({"prompt": "And?", name: change(packed)})
    assert values == {"prompt": "And?"} and problems == [
        "The link's earlier messages were left out: the link is cut or changed, so copy it again and whole"
    ]


def test_a_conversation_in_another_order_is_left_out_with_the_reason():
    values, problems = from_query({"target": "30", "earlier": _packed('[["user", "a"], ["user", "b"]]')})
    assert values == {"target": 30} and "two messages of the user's follow each other" in problems[0]


def test_a_link_says_what_was_asked_of_each_answer():
    asked, about = RunSettings(prompt="And?", earlier=talk("English", 300, 2)), ["LDPE · target 60 tokens", "Off"]
    query = dict(parse_qsl(to_query(asked, about)))
    assert from_query(query)[0]["earlier"] == asked.earlier and about_of(query) == about
    assert about_of(dict(parse_qsl(to_query(asked)))) == []
    values = conversation.read(conversation.shown(asked.earlier, about)[1])
    assert [each.about for each in values] == about


@pytest.mark.parametrize("packed", ["", "x", _packed("{"), _packed("5"), _packed('["a", 5]'), _packed("[" * 40_000)])
def test_words_about_answers_that_are_damaged_give_way_to_the_number_of_words(packed):
    about = about_of({"about": packed})
    assert about == []
    asked = RunSettings(prompt="x", earlier=talk("English", 30, 1))
    [value] = conversation.read(conversation.shown(asked.earlier, about)[1])
    assert value.about.endswith((" word", " words"))


def test_a_short_prompt_stays_readable():
    assert to_query(RunSettings(prompt="Why is the sky blue?", ratio=4)) == "prompt=Why+is+the+sky+blue%3F&ratio=4"


def damaged() -> Iterator[str]:
    ((name, packed),) = parse_qsl(to_query(RunSettings(prompt=prompt("Chinese", 3000))))
    assert name == "packed"
    yield from ("", "%", "é", packed[:-1], packed[:-100], packed[:1], packed[:500] + "A" + packed[501:], packed[1:])


@pytest.mark.parametrize("packed", damaged())
def test_a_link_that_was_cut_or_changed_says_so_and_keeps_the_rest(packed):
    values, problems = from_query({"packed": packed, "target": "30"})
    assert values == {"target": 30} and problems == [
        "The link's prompt was left out: the link is cut or changed, so copy it again and whole"
    ]


@pytest.mark.parametrize("script", [pytest.param("English", marks=pytest.mark.ui), "any of four bytes"])
def test_the_page_opens_the_longest_link_and_gives_it_again(visit, script):  # noqa: F811
    asked = RunSettings(
        prompt=prompt(script, MAX_CHARACTERS), pic="naive", ratio=1.2345678901234567, temperature=1 / 3,
        top_p=0.1 + 0.2, repetition_penalty=1.1 + 0.1, watch=Watch(layer=11),
    )  # fmt: skip
    query = to_query(asked)
    page = visit(query=f"?{query}").page
    expect(page.locator("#prompt textarea")).to_have_value(asked.prompt)
    page.click("#share")
    expect(page.locator("#share")).to_have_text("Copied")
    shared = urlparse(page.evaluate("navigator.clipboard.readText()")).query
    assert read(shared) == asked and parse_qs(shared) == parse_qs(query)


@pytest.mark.ui
def test_the_page_says_what_a_link_does_not_hold(visit):  # noqa: F811
    page = visit(query="?" + urlencode({"prompt": "word " * 1300})).page
    expect(page.locator("#prompt textarea")).to_have_value("word " * 1300)
    page.click("#share")
    expect(page.locator(".toast-body")).to_contain_text("too long for a link (6,500 characters, at most 6,000 fit)")
