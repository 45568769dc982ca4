"""Alternatives of a token, and a run that goes on from one of them: the engine, the record and the page."""

from __future__ import annotations

import json
import math
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO

import pytest
from playwright.sync_api import expect
from stored import LAST
from test_app_browser import address, demo, held, lab, runs, visit  # noqa: F401

from app import branches, kept
from app.branches import KEPT, WHOLE, Answer, Branch, Tree, chosen, grown, named, shown
from backend import Lab, RunSettings, Step
from backend.inference.control import Control
from backend.models.pool import Models
from backend.record.trace import Trace
from backend.serving.followed_run import FollowedRun
from backend.steps import Resumed, Written
from backend.text.sentences import final
from backend.text.units import tolerance
from tests.conftest import VOCAB
from tests.test_training import tiny_loaded

ASKED = RunSettings(prompt="Why is the sky blue?", max_new_tokens=10)
WAYS = {
    "greedy": {},
    "drawn": {"temperature": 1.0, "top_k": 40, "seed": 7},
    "Λ": {"window": 12, "sinks": 2},
    "ldpe": {"method": "ldpe", "target": 9},
    "words": {"method": "orpe", "target": 9, "unit": "words"},
}


@pytest.fixture(scope="module")
def engine(models) -> Lab:
    return Lab(models)


def made(engine: Lab, settings: RunSettings = ASKED, control: Control | None = None, **more) -> Trace:
    trace = Trace(settings)
    for event in engine.stream(settings, control, **more):
        trace.append(event)
    return trace


def asking(index, token) -> str:
    return json.dumps({"index": index, "token": token})


@pytest.fixture(scope="module")
def whole(engine) -> Trace:
    return made(engine)


def other(step: Step):
    """The likeliest token that was not written there."""
    return next(each for each in step.alternatives if each.token != step.token and not each.ends)


def test_alternatives_are_the_models_likeliest_in_order(whole):
    for step in whole.steps:
        shares = [each.p_model for each in step.alternatives]
        assert len(shares) == 5 and shares == sorted(shares, reverse=True) and sum(shares) <= 1 + 1e-6
        assert step.alternatives[0].token == step.token and step.alternatives[0].p == step.p
        entropy = -sum(share * math.log(share) for share in shares if share)
        assert entropy <= step.spread + 1e-4


def test_the_end_is_an_alternative_that_says_so(engine):
    asked = ASKED.model_copy(update={"method": "ldpe", "target": 9, "max_new_tokens": 40})
    written = tuple(Written(step.token, step.wanted) for step in made(engine, asked).steps)
    # Another token where it would have ended.
    first = made(engine, asked, resumed=Resumed(written, then=5)).steps[0]
    assert first.alternatives[0].ends and first.alternatives[0].p == pytest.approx(first.p_eos)
    assert not any(each.ends for each in first.alternatives[1:])


def test_a_run_without_probes_has_none(engine):
    asked = ASKED.model_copy(update={"watch": ASKED.watch.model_copy(update={"enabled": False})})
    assert all(step.alternatives is None for step in made(engine, asked).steps)


@pytest.mark.parametrize("way", WAYS)
def test_to_choose_what_was_written_changes_nothing(engine, way):
    before = made(engine, RunSettings(**ASKED.model_dump() | WAYS[way]))
    for place in (1, len(before.steps) // 2, len(before.steps)):
        kept = tuple(Written(step.token, step.wanted) for step in before.steps[: place - 1])
        after = made(engine, before.settings, resumed=Resumed(kept, then=before.steps[place - 1].token))
        first, *rest = after.steps
        assert first.chosen and not any(step.chosen for step in rest)
        assert [(step.index, step.token, step.text, step.p) for step in after.steps] == [
            (step.index, step.token, step.text, step.p) for step in before.steps[place - 1 :]
        ]
        assert after.finish.text == before.finish.text


@pytest.mark.parametrize("place", [1, 5])
def test_another_token_is_written_and_the_run_goes_on_from_it(engine, whole, place):
    then = other(whole.steps[place - 1])
    branch = Branch.of(whole, asking(place, then.token))
    rest = made(engine, branch.settings, resumed=branch.resumed).steps
    assert rest[0].token == then.token and rest[0].chosen and rest[0].index == place
    assert rest[0].p == pytest.approx(then.p) and rest[0].p_model == pytest.approx(then.p_model)
    assert rest[0].text == then.text and len(branch.before) == place - 1
    # What follows is what the model writes after those tokens, however they came there.
    ids = [step.token for step in branch.before] + [then.token]
    again = made(engine, ASKED, resumed=Resumed(tuple(Written(token) for token in ids)))
    assert [step.token for step in rest[1:]] == [step.token for step in again.steps]


def test_a_branch_lands_by_itself(engine):
    asked = RunSettings(prompt="Why is the sky blue?", method="ldpe", target=40, landing=8, max_new_tokens=80)
    landed = made(engine, asked)
    for place in (2, len(landed.steps) - 8):
        branch = Branch.of(landed, asking(place, other(landed.steps[place - 1]).token))
        finish = made(engine, branch.settings, resumed=branch.resumed).finish
        assert finish.own_end and final(finish.text) and abs(finish.error) <= tolerance(40, "tokens")


def test_a_branch_of_a_branch_can_be_saved_however_long_the_first_took(engine, whole):
    first = leaving(whole, 4)
    late = Resumed(first.resumed.written, 1000.0, then=first.then)
    finish = made(engine, first.settings, resumed=late).finish
    assert 0 <= finish.prefill_seconds < 1000 <= finish.decode_seconds


def test_a_branch_keeps_the_target_that_was_in_force(engine):
    asked = RunSettings(**ASKED.model_dump() | {"method": "ldpe", "target": 13})
    control, trace = Control(), Trace(asked)
    for event in engine.stream(asked, control):
        trace.append(event)
        if isinstance(event, Step) and event.index == 4:
            control.retarget(8)
    assert Branch.of(trace, asking(3, other(trace.steps[2]).token)).settings.target == 13
    branch = Branch.of(trace, asking(6, other(trace.steps[5]).token))
    assert branch.settings.target == 8
    assert made(engine, branch.settings, resumed=branch.resumed).steps[-1].wanted == 8


@pytest.mark.parametrize(
    ("index", "token"), [(0, 1), (-1, 1), (99, 1), (1, -5), (1, 10**9), ("1", 1), (None, None), (1.0, 1)]
)
def test_a_token_that_is_none_is_refused_in_a_sentence(whole, index, token):
    with pytest.raises(ValueError, match="no such token"):
        Branch.of(whole, asking(index, token))


def test_the_end_cannot_be_chosen(whole):
    ended = replace(whole.steps[0], alternatives=(replace(whole.steps[0].alternatives[0], ends=True),))
    with pytest.raises(ValueError, match="no such token"):
        Branch.of(Trace(ASKED, steps=[ended]), asking(1, ended.token))


def test_a_branch_is_saved_and_made_again_by_its_script(engine, whole, monkeypatch):
    branch = Branch.of(whole, asking(4, other(whole.steps[3]).token))
    trace = Trace(branch.settings, steps=[*branch.before])
    for event in engine.stream(branch.settings, resumed=branch.resumed):
        trace.append(event)
    loaded = Trace.load(trace.to_json().encode())
    assert [step.alternatives for step in loaded.steps] == [step.alternatives for step in trace.steps]
    assert [step.chosen for step in loaded.steps] == [step.index == 4 for step in trace.steps]
    monkeypatch.setattr("backend.Lab", lambda: engine)
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(loaded.to_script(), "script", "exec"), {})
    assert printed.getvalue().startswith(trace.finish.text)


def test_a_chosen_token_is_due_until_it_is_written_wherever_the_run_goes_on(whole):
    begun = Resumed((Written(5),), 1.0, then=7)
    run = FollowedRun(ASKED, Control(), begun, "replica")
    assert run.goes_on().then == 7 and run.goes_on().written == begun.written
    run.takes(replace(whole.steps[0], index=2, token=7))
    assert run.goes_on().then is None and [each.token for each in run.goes_on().written] == [5, 7]


def leaving(answer: Trace, place: int) -> Branch:
    """A branch that leaves an answer at a token."""
    return Branch.of(answer, asking(place, other(answer.steps[place - 1]).token))


def branched(engine: Lab, branch: Branch) -> Trace:
    """The answer that goes on from a branch."""
    trace = Trace(branch.settings, steps=[*branch.before])
    for event in engine.stream(branch.settings, resumed=branch.resumed):
        trace.append(event)
    return trace


@pytest.fixture(scope="module")
def tree(engine, whole) -> Tree:
    """An answer that two others left, and one that left the first of these."""
    first = leaving(whole, 4)
    found = grown({}, first, one := branched(engine, first))
    for branch in (leaving(whole, 2), leaving(one, 6)):
        found = grown(found, branch, branched(engine, branch))
    return found


def test_each_branch_knows_the_answer_that_it_left(engine, whole, tree):
    names = [*tree]
    assert [(answer.left, answer.shared) for answer in tree.values()] == [
        (None, 0), (WHOLE, 3), (WHOLE, 1), (names[1], 5)
    ]  # fmt: skip
    assert all(
        answer.trace.steps[: answer.shared] == tree[answer.left].trace.steps[: answer.shared]
        for answer in tree.values() if answer.left
    )  # fmt: skip
    newest = tree[names[3]].trace
    value = json.loads(shown(tree, newest))
    assert value == {"answers": [[name, answer.left] for name, answer in tree.items()], "shown": names[3]}
    assert chosen(tree, json.dumps({"shown": WHOLE})) is whole and chosen(tree, json.dumps({"shown": "none"})) is None
    # Below another answer there is no tree, and a branch of that one begins another.
    assert shown(tree, Trace(ASKED)) == "" and grown(tree, None, whole) == {}
    again = grown(tree, leaving(branched(engine, leaving(whole, 1)), 3), Trace(ASKED))
    assert [answer.left for answer in again.values()] == [None, WHOLE]


def test_branches_are_named_apart_and_bounded(whole):
    branch, found = leaving(whole, 4), {}
    for _ in range(2 * KEPT):
        found = grown(found, branch, newest := Trace(ASKED))
    assert len(found) == KEPT and next(iter(found)) == WHOLE and [*found.values()][-1].trace is newest
    assert {answer.left for answer in found.values()} == {None, WHOLE}


def test_what_left_a_branch_that_goes_hangs_on_what_that_one_left(tree):
    _, first, _, third = tree
    rest = branches.without(tree, first)
    assert first not in rest and (rest[third].left, rest[third].shared) == (WHOLE, 3)


def test_a_tree_comes_back_as_it_was_kept(tree):
    newest = [*tree.values()][-1].trace
    trace, past, again = kept.unpacked(kept.packed(newest, [], tree))
    assert [(name, answer.left, answer.shared) for name, answer in again.items()] == [
        (name, answer.left, answer.shared) for name, answer in tree.items()
    ]
    assert [answer.trace.to_json() for answer in again.values()] == [answer.trace.to_json() for answer in tree.values()]
    assert named(again, trace) == [*tree][-1] and past == []
    # Another answer is kept alone.
    assert kept.unpacked(kept.packed(Trace(ASKED), [], tree))[2] == {}


def test_of_a_tree_that_is_too_large_the_oldest_branches_are_left_out(tree, monkeypatch):
    whole = tree[WHOLE].packed
    rest = Answer(tree[[*tree][3]].trace, WHOLE, 3).packed
    monkeypatch.setattr(kept, "MAX_BYTES", (len(whole + rest) + 8) * 3 // 4)
    newest = tree[[*tree][3]].trace
    trace, _, again = kept.unpacked(kept.packed(newest, [], tree))
    assert [*again] == [WHOLE, [*tree][3]] and trace.to_json() == newest.to_json()
    monkeypatch.setattr(kept, "MAX_BYTES", len(whole) * 3 // 4)
    text = kept.packed(newest, [], tree)
    assert kept.unpacked(text)[2] == {} and (json.loads(text)["large"] or kept.unpacked(text)[0] is not None)


def test_a_tree_that_is_none_is_left_out(tree, monkeypatch):
    text = json.loads(kept.packed([*tree.values()][-1].trace, [], tree))
    for rows in ([[1]], [["a", "b", 0, ""]], [["a", None, 0, "!"]], [[[], None, 0, text["tree"][0][3]]], 5, "ab"):
        assert kept.unpacked(json.dumps(text | {"tree": rows})) == (None, [], {})
    assert kept.unpacked(json.dumps(text | {"shown": "b"})) == (None, [], {})
    monkeypatch.setattr(branches, "MOST_BYTES", 1000)
    assert kept.unpacked(json.dumps(text)) == (None, [], {})


def test_a_token_is_chosen_on_the_page_and_both_answers_are_kept(visit):  # noqa: F811
    visitor = visit()
    page = visitor.page
    page.fill("#prompt textarea", "Describe a forest at night.")
    page.fill("#target input[type=number]", "30")
    page.click("#go")
    expect(page.locator("#go")).to_be_enabled()
    text = page.locator("#text-run .ll-text")
    expect(page.locator("#figures-run [data-field=target]")).to_have_text("30")
    before = text.inner_text()
    page.locator("#text-run .tok").nth(6).click()
    buttons = page.locator("#text-run .ll-others button")
    expect(buttons).to_have_count(5)
    page.keyboard.press("Escape")
    expect(page.locator("#text-run .ll-tip")).to_be_hidden()
    # By the keyboard: Enter opens what the arrow keys have come to.
    text.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#text-run .ll-others button:focus")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("#branches label")).to_have_count(2)
    expect(page.locator("#text-run .tok.chosen")).to_have_count(1)
    expect(page.locator("#go")).to_be_enabled()
    after = text.inner_text()
    assert after != before and after[:10] == before[:10]
    page.locator("#branches label").first.click()
    expect(text).to_have_text(before)
    page.locator("#branches label").last.click()
    expect(text).to_have_text(after)
    # A branch of the branch stands below it.
    page.locator("#text-run .tok").nth(12).click()
    page.locator("#text-run .ll-others button:enabled").first.click()
    expect(page.locator("#branches ul ul ul label")).to_have_count(1)
    expect(page.locator("#go")).to_be_enabled()
    third = text.inner_text()
    names = page.locator("#branches label").all_inner_texts()
    # Chosen, each shows its answer, and after a reload too.
    page.wait_for_function(f"async () => JSON.parse(await {LAST}).tree.length === 3")
    page.reload()
    expect(page.locator("#branches label")).to_have_count(3)
    expect(page.locator("#branches ul ul ul input")).to_be_checked()
    expect(text).to_have_text(third)
    assert page.locator("#branches label").all_inner_texts() == names
    page.locator("#branches label").nth(1).click()
    expect(text).to_have_text(after)
    page.locator("#branches label").first.click()
    expect(text).to_have_text(before)
    # A new run has none.
    page.click("#go")
    expect(page.locator("#branches fieldset")).to_be_hidden()


def test_no_branch_can_be_chosen_while_a_run_writes(visit, held):  # noqa: F811
    page = visit().page
    page.click("#go")
    expect(page.locator("#go")).to_be_enabled()
    page.locator("#text-run .tok").nth(6).click()
    page.locator("#text-run .ll-others button:enabled").first.click()
    option = page.locator("#branches input").first
    expect(option).to_be_enabled()
    held.upto(3)
    page.click("#go")
    page.wait_for_selector("#text-run .ll-response[data-tokens='3']")
    expect(option).to_be_disabled()
    page.click("#stop")
    expect(page.locator("#go")).to_be_enabled()


def test_only_the_end_is_called_so_whatever_a_token_says_by_itself(monkeypatch):
    """A space alone says nothing in many tokenizers, and ends nothing."""
    monkeypatch.setattr("backend.inference.causal_run.ALTERNATIVES", VOCAB)
    loaded = tiny_loaded()
    monkeypatch.setattr(loaded.tokenizer, "batch_decode", lambda rows: ["" for _ in rows])
    models = Models()
    monkeypatch.setattr(models, "load", lambda *given, **more: loaded)
    asked = RunSettings(prompt="abc", max_new_tokens=3, precision="fp32")
    steps = [event for event in Lab(models).stream(asked) if isinstance(event, Step)]
    assert steps and all({each.token for each in step.alternatives if each.ends} == {2} for step in steps)
    space = next(each for each in steps[0].alternatives if not each.ends)
    assert Branch.of(Trace(asked, steps=steps), asking(1, space.token)).then == space.token
