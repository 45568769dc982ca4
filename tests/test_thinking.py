"""Thinking and answer, counted apart: the target steers the answer alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import talking
from hypothesis import given, settings
from hypothesis import strategies as st

from app.series import RunSeries
from backend import Lab
from backend.__main__ import main
from backend.inference.embedding import SignalContext
from backend.inference.landing import Landing
from backend.methods.signal import SignalSettings
from backend.models.adapters import Adapter
from backend.models.pool import Models
from backend.record.trace import Trace
from backend.settings import RunSettings
from backend.steps import Finish, Resumed, Step, Written
from backend.text.prompt import token_ids
from backend.text.thinking import MARKS, Response, begun

THOUGHT = [" I", " must", " think", " hard"]
ANSWER = [" The", " answer", " is", " blue", "."]
WHOLE = {"<think>": False, "</think>": False}
# How a model may write its marks: tokens, and whether the tokenizer takes them whole, as special ones or not.
FORMS: dict[str, tuple[list[str], list[str], dict[str, bool]]] = {
    "ordinary": (["<think>"], ["</think>"], {}),
    "added": (["<think>"], ["</think>"], WHOLE),
    "special": (["<think>"], ["</think>"], dict.fromkeys(WHOLE, True)),
    "pieces": (["<th", "ink", ">\n"], ["</thi", "nk", ">"], {}),
    "another mark": (["[THINK]"], ["[/THINK]"], {"[THINK]": True, "[/THINK]": True}),
}
ASKED = {"prompt": "hi there", "precision": "fp32", "max_new_tokens": 40, "thinking": True}


@pytest.fixture(scope="module", params=FORMS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    start, end, added = FORMS[request.param]
    pieces = [*start, *THOUGHT, *end, "\n\n", *ANSWER]
    return talking.thinker(tmp_path_factory.mktemp("thinker"), pieces, added=added)


@pytest.fixture(scope="module")
def lab(folder: str) -> Lab:
    return Lab(Models([folder]))


@pytest.fixture
def run(lab: Lab, folder: str) -> Callable[..., tuple[list[Step], Finish]]:
    def stream(**changes) -> tuple[list[Step], Finish]:
        *steps, finish = lab.stream(RunSettings(**ASKED | {"model": folder} | changes))
        return steps, finish

    return stream


def test_thinking_and_answer_are_counted_apart(run):
    for unit, target, error in (("tokens", 3, 2), ("words", 4, 0), ("characters", 10, 9)):
        steps, finish = run(method="prompted", target=target, unit=unit)
        assert finish.text.strip() == "".join(ANSWER).strip() and finish.reason == "eos"
        assert (finish.tokens, finish.words, finish.thinking) == (len(ANSWER), 4, "".join(THOUGHT).strip())
        assert finish.thinking_tokens == len(steps) - len(ANSWER)
        assert finish.error == error
        assert [step.index for step in steps] == list(range(1, len(steps) + 1))
        answer = steps[-len(ANSWER) :]
        assert [step.thinking for step in steps] == [True] * finish.thinking_tokens + [False] * len(ANSWER)
        assert all(step.goal is None and step.remaining is None for step in steps if step.thinking)
        assert [step.goal - step.remaining for step in answer] == [1, 2, 3, 4, 5]


def test_thinking_is_switched_off_unless_asked_for(run, lab: Lab, folder: str):
    """The scripted model writes the same in any case, which a template with a switch cannot help."""
    loaded = lab.models.load(folder, "fp32")
    read = [loaded.tokenizer.decode(token_ids(RunSettings(prompt="hi", thinking=on), loaded.tokenizer))
            for on in (False, True)]  # fmt: skip
    assert [text.endswith("<think>\n\n</think>\n\n") for text in read] == [True, False]
    assert RunSettings(prompt="hi").thinking is False
    assert run(thinking=False)[1].tokens == len(ANSWER)


def test_the_decay_begins_after_the_thinking(run):
    steps, finish = run(method="exp_decay", target=1)
    urged = [step.p_eos > step.p_eos_model * 1.001 for step in steps]
    assert not any(urged[: finish.thinking_tokens + 2]) and all(urged[finish.thinking_tokens + 2 :])


def test_landing_sees_the_answer_alone(run, monkeypatch: pytest.MonkeyPatch):
    seen, own = [], Landing.token

    def token(self, fork):
        seen.append((list(fork.written), self.cap))
        return own(self, fork)

    monkeypatch.setattr(Landing, "token", token)
    _, finish = run(method="prompted", target=5, landing=2)
    assert abs(finish.error) <= 1 and finish.landed and finish.text.startswith(" The answer is")
    assert [len(written) for written, _ in seen][-finish.tokens - 1 :] == list(range(finish.tokens + 1))
    assert all(cap + finish.thinking_tokens in (40, 41) for _, cap in seen)


def test_the_signal_counts_from_the_answer(run, lab: Lab, monkeypatch: pytest.MonkeyPatch, folder: str):
    """Each token's input says how many tokens of the answer came before it; thinking reads as the prompt does."""
    signal = SignalSettings("ldpe", 1.0, 1e-6, (1, 50))
    monkeypatch.setattr(Lab, "_prepared", lambda self, asked: (
        self.models.load(asked.model, asked.precision), Adapter(Path("x"), signal, asked.model, 0, "")
    ))  # fmt: skip
    counted = []
    own = SignalContext.postpone
    monkeypatch.setattr(SignalContext, "postpone", lambda self: (own(self), counted.append(self.offset)))
    _, finish = run(method="ldpe", target=9)
    assert counted == [finish.prompt_tokens + i for i in range(finish.thinking_tokens)]


def test_a_cap_amid_the_thinking_is_told(run):
    steps, finish = run(max_new_tokens=4, method="prompted", target=5)
    assert (finish.reason, finish.tokens, finish.thinking_tokens, finish.text, finish.error) == ("cap", 0, 4, "", -5)
    assert any("while the model was thinking" in note for note in finish.notes) and all(s.thinking for s in steps)


@pytest.mark.parametrize("budget", [1, 3, 4, 5])
def test_thinking_ends_at_its_budget(run, lab: Lab, folder: str, budget: int):
    tokenizer = lab.models.load(folder, "fp32").tokenizer
    whole, free = run()
    opening = next(i for i in range(1, 9) if "".join(step.text for step in whole[:i]).strip().endswith((">", "]")))
    end = tokenizer.encode(f"\n{MARKS[whole_mark(whole)]}\n\n", add_special_tokens=False)
    steps, finish = run(thinking_budget=budget)
    place = max(budget, opening)
    assert [step.token for step in steps[:place]] == [step.token for step in whole[:place]]
    assert [step.token for step in steps[place : place + len(end)]] == end
    assert [step.thinking for step in steps] == [True] * (place + len(end)) + [False] * finish.tokens
    assert finish.thinking == "".join(THOUGHT[: place - opening]).strip()
    assert f"the thinking was ended after its budget of {budget} tokens" in finish.notes
    # A budget that is not used up changes nothing.
    for enough in (free.thinking_tokens - 1, free.thinking_tokens, 30):
        kept, unended = run(thinking_budget=enough)
        assert [step.token for step in kept] == [step.token for step in whole] and unended.notes == free.notes


def whole_mark(steps: list[Step]) -> str:
    """The mark that a response begins with."""
    text = "".join(step.text for step in steps)
    return next(mark for mark in MARKS if text.lstrip().startswith(mark))


def test_a_run_that_is_cut_off_amid_the_end_of_its_thinking_goes_on_with_it(lab: Lab, folder: str):
    asked = RunSettings(**ASKED | {"model": folder, "thinking_budget": 5})
    *steps, _ = lab.stream(asked)
    for cut in range(1, 12):
        written = tuple(Written(step.token) for step in steps[:cut])
        *rest, _ = lab.stream(asked, resumed=Resumed(written))
        assert [step.token for step in rest] == [step.token for step in steps[cut:]]


def test_the_terminal_writes_the_answer_and_tells_the_thinking(folder: str, tmp_path: Path, capsys):
    asked = ["generate", "--allow-model", folder, "--model", folder, "--prompt", "hi", "--thinking"]
    assert main([*asked, "--save", str(tmp_path / "run.json")]) == 0
    out, summary = capsys.readouterr()
    assert out.strip() == "".join(ANSWER).strip() and " tokens of thinking · 5 tokens" in summary
    assert main([*asked, "--json"]) == 0
    *steps, finish = map(json.loads, capsys.readouterr().out.splitlines())
    assert sum(step["thinking"] for step in steps) == finish["thinking_tokens"] > 0
    trace = Trace.load(tmp_path / "run.json")
    assert trace.settings.thinking and trace.finish.thinking == "".join(THOUGHT).strip()
    assert sum(step.thinking for step in trace.steps) == trace.finish.thinking_tokens


def test_the_page_counts_the_answer(run, folder: str):
    for unit, produced in (("tokens", 5), ("words", 4)):
        asked = RunSettings(**ASKED | {"model": folder, "method": "prompted", "unit": unit, "target": 4})
        steps, finish = run(method="prompted", unit=unit, target=4)
        series = RunSeries.of(asked, [*steps, finish])
        assert series.produced[: finish.thinking_tokens] == [0] * finish.thinking_tokens
        assert series.produced[-1] == produced


# ---- templates that begin the thinking, and answers that only look like it

OPENED = talking.CHATML.replace("assistant\n", "assistant\n<think>\n")


def test_a_template_may_begin_the_thinking_and_never_stop_it(tmp_path: Path):
    folder = talking.thinker(tmp_path, [*THOUGHT, "</think>", *ANSWER], OPENED, WHOLE)
    lab = Lab(Models([folder]))
    *_, finish = lab.stream(RunSettings(prompt="hi", model=folder, precision="fp32"))
    assert (finish.tokens, finish.thinking_tokens) == (len(ANSWER), len(THOUGHT) + 1)
    assert finish.thinking == "".join(THOUGHT).strip()
    assert finish.notes == ("the model's template cannot switch thinking off",)
    *_, finish = lab.stream(RunSettings(prompt="what is <think>", model=folder, precision="fp32"))
    assert finish.tokens == len(ANSWER)


@pytest.mark.parametrize("template", [talking.CHATML, talking.QWEN3])
@pytest.mark.parametrize("pieces", [
    ["<th", "e", " end"], ["<", "html>"], ["[", "1, 2]"], ["\n\n", " a"], [" a", "<think>", " b"], ["</think>", " a"],
])  # fmt: skip
def test_answers_that_do_not_begin_with_a_mark_are_answers(template: str, pieces: list[str], tmp_path: Path):
    folder = talking.thinker(tmp_path, pieces, template)
    for on in (False, True):
        *steps, finish = Lab(Models([folder])).stream(
            RunSettings(prompt="hi <think>", model=folder, precision="fp32", thinking=on)
        )
        assert (finish.text, finish.tokens, finish.thinking_tokens) == ("".join(pieces), len(pieces), 0)
        assert not steps[-1].thinking and "".join(step.text for step in steps) == finish.text


MADE = talking.bytes_of()


@settings(max_examples=150, deadline=None)
@given(
    before=st.text(" \n", max_size=2), thought=st.text("ab <é🙂\n", max_size=12), blank=st.text(" \n", max_size=3),
    answer=st.text("ab <é🙂\n", max_size=12), mark=st.sampled_from(sorted(MARKS)), expected=st.booleans(),
    opened=st.booleans(),
)  # fmt: skip
def test_any_response_is_split_at_its_marks(before, thought, blank, answer, mark, expected, opened):
    """Byte by byte, which is the most pieces that there can be."""
    text = ("" if opened else before + mark) + thought + MARKS[mark] + blank + answer
    response = Response(MADE, mark if opened else "", expected)
    ids = MADE(text, add_special_tokens=False)["input_ids"]
    pieces = [response.add(token) for token in ids]
    spoken = (blank + answer).lstrip()
    assert response.answer.text == spoken and response.tokens == len(ids)
    assert response.thought == len(ids) - len(spoken.encode())
    assert response.thoughts == thought.strip()
    assert "".join(piece for piece, _ in pieces) == text
    assert [thinking for _, thinking in pieces[len(ids) - len(spoken.encode()) :]] == [False] * len(spoken.encode())
    if expected or opened:
        assert all(thinking for _, thinking in pieces[: response.thought])


def thought_up(thought: str, blank: str, budget: int, at: int = -1, other: str = "") -> Response:
    """A response byte by byte: the thinking, its end, and "Ans" after that, whoever wrote it; at token `at` a person
    writes `other`."""
    response, script = Response(MADE, "<think>"), list(f"{thought}</think>{blank}")
    for number in range(400):
        forced = response.closing(budget)
        if number == at:
            response.add(*MADE.encode(other))
        elif forced is not None:
            response.add(forced)
        elif response.thinking and script:
            response.add(*MADE.encode(script.pop(0)))
        elif script and not response.closed(budget):
            response.add(*MADE.encode(script.pop(0)))
        else:
            break
    for letter in "Ans":
        response.add(*MADE.encode(letter))
    return response


@settings(max_examples=300, deadline=None)
@given(st.text("ab <\n/", max_size=12), st.sampled_from(["", "\n", "\n\n", " "]), st.integers(0, 30))
def test_at_any_budget_a_response_has_one_end_of_its_thinking(thought: str, blank: str, budget: int):
    response = thought_up(thought, blank, budget)
    assert response.answer.text == "Ans" and response.closing(budget) is None
    if not budget or budget >= len(thought) + len("</think>"):
        assert response.thoughts == thought.strip() and not response.closed(budget)
    else:
        assert thought.strip().startswith(response.thoughts) and response.thought <= budget + 2 * len("\n</think>\n\n")


@pytest.mark.parametrize("at", range(4, 14))
def test_a_person_s_token_amid_the_end_of_the_thinking_does_not_lift_the_budget(at: int):
    response = thought_up("a long thought that goes on and on", "", 5, at, "x")
    assert response.answer.text == "Ans" and response.thought < 40 and response.closed(5)


def test_models_that_do_not_think_are_read_as_before(embedded):
    response = begun(embedded.tokenizer, "<|im_start|>assistant\n")
    assert not response.thinking and response.add(28) [1] is False and response.thought == 0
