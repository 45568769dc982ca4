"""Landing ends a sentence near the target, and changes nothing before."""

from itertools import product

import pytest

from backend.engine import Control
from backend.landing import NEAR, REACH, Landing
from backend.runner import Runner
from backend.sentences import final
from backend.settings import RunSettings, Watch

QUIET = Watch(enabled=False)


def ask(**changes) -> RunSettings:
    settings = {
        "prompt": "Write a long story about a lighthouse.",
        "method": "exp_decay",
        # In bf16 processors differ in the last bits, so that samples do as well.
        "precision": "fp32",
        "max_new_tokens": 120,
        "watch": QUIET,
    }
    return RunSettings(**settings | changes)


def run(lab, settings, control=None):
    *steps, finish = lab.stream(settings, control)
    return [step.token for step in steps], finish


@pytest.mark.parametrize("target", [30, 45])
def test_it_ends_a_sentence_near_the_target(lab, target):
    _, finish = run(lab, ask(target=target, landing=8))
    assert finish.reason == "eos" and finish.landed and final(finish.text)
    assert abs(finish.error) <= NEAR


def test_more_tries_find_no_worse_an_end(lab, monkeypatch):
    ranks, best = [], Landing._best

    def looked(self, *given):
        found = best(self, *given)
        ranks.append(found.rank)
        return found

    monkeypatch.setattr(Landing, "_best", looked)
    for target, tries in product((12, 20, 28), (1, 6)):
        run(lab, ask(target=target, landing=tries))
    one, six = ranks[::2], ranks[1::2]
    assert len(ranks) == 6 and all(more <= less for more, less in zip(six, one, strict=True)) and six != one


def test_before_its_reach_nothing_changes_and_a_seed_repeats(lab):
    free, landed, again = (run(lab, ask(target=50, landing=tries))[0] for tries in (0, 4, 4))
    assert landed[: 50 - REACH] == free[: 50 - REACH]
    assert landed == again


def test_words_are_counted_as_words(lab):
    _, finish = run(lab, ask(target=30, unit="words", landing=8))
    assert finish.reason == "eos" and abs(finish.words - 30) <= 4


def test_an_end_beyond_the_cap_is_none(lab):
    tokens, finish = run(lab, ask(target=40, landing=6, max_new_tokens=40))
    assert len(tokens) <= 40 and final(finish.text) and finish.reason == "eos" and finish.landed


def test_landing_on_the_cap_is_no_cut(lab):
    landed = [run(lab, ask(target=target, landing=6, max_new_tokens=target))[1] for target in (24, 32)]
    assert any(finish.error == 0 for finish in landed)
    assert all(finish.reason == "eos" and finish.landed for finish in landed)


def test_full_stops_are_tokens_of_their_own(lab):
    tokenizer = lab.models.load("embedded").tokenizer
    stops = Landing(None, tokenizer, [0], 1, 0, "tokens", 9, lambda: False)._stops
    word = tokenizer.encode("blue", add_special_tokens=False)
    assert [tokenizer.decode([*word, token]) for token in stops] == ["blue.", "blue!", "blue?"]


@pytest.mark.parametrize("target", [5, 12, 37])
def test_a_full_stop_ends_what_no_sentence_does(lab, target):
    _, finish = run(lab, ask(target=target, landing=1))
    assert finish.reason == "eos" and final(finish.text) and abs(finish.error) <= NEAR


def test_a_stop_is_heard_while_endings_are_tried(lab, monkeypatch):
    control, read = Control(), Runner.read
    events = lab.stream(ask(target=30, landing=32), control)
    tokens = [next(events).token for _ in range(30 - REACH)]

    def stopping(self, *given, **more):
        control.stop()
        calls.append(1)
        return read(self, *given, **more)

    calls = []
    monkeypatch.setattr(Runner, "read", stopping)
    rest = list(events)
    assert len(tokens) == 30 - REACH and rest[-1].reason == "stopped" and len(calls) <= 34


def test_a_target_moved_while_it_lands_is_landed_on(lab):
    control, tokens, finish = Control(), [], None
    for event in lab.stream(ask(target=30, landing=6), control):
        if hasattr(event, "token"):
            tokens.append(event.token)
            if len(tokens) == 25:
                control.retarget(60)
        else:
            finish = event
    assert finish.error is not None and abs(finish.tokens - 60) <= NEAR


def test_it_can_be_stopped_and_leaves_free_runs_alone(lab):
    assert (
        run(lab, ask(method="none", landing=8, max_new_tokens=20))[0]
        == run(lab, ask(method="none", max_new_tokens=20))[0]
    )
