"""A system prompt and earlier turns: in what order they come, what the model reads of them, and what carries them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import talking
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import PreTrainedTokenizerBase

from app.branches import Branch
from backend import Finish, Lab, Step
from backend.inference.control import Control
from backend.models.capabilities import Capabilities
from backend.models.checks import check
from backend.models.pool import Models
from backend.record.trace import Trace
from backend.settings import MAX_PROMPT_CHARS, MAX_TURNS, RunSettings, Turn
from backend.steps import Resumed, Written
from backend.text.prompt import LEAST, MOST, prompt, token_ids

tokenizer = cache(talking.tokenizer)
WORDS = st.text(st.sampled_from(" \n\tabim.é雪🙂") | st.characters(exclude_categories=["Cs"]), max_size=25)
ASKED = WORDS.filter(str.strip)
TALK: list[dict[str, str]] = [
    {"role": "system", "content": "You answer in rhymes."},
    {"role": "user", "content": "Name a river."},
    {"role": "assistant", "content": "The Rhine."},
]


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, str]]:
    """Messages of any words in an order that is taken, the last the user's."""
    found = [{"role": "system", "content": draw(WORDS)}] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 3))):
        found += [{"role": "user", "content": draw(ASKED)}, {"role": "assistant", "content": draw(WORDS)}]
    return [*found, {"role": "user", "content": draw(ASKED)}]


def asked(messages: list[dict[str, str]], **more) -> RunSettings:
    return RunSettings(prompt=messages[-1]["content"], earlier=messages[:-1], **more)


def own(made: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> list[int]:
    """What transformers makes of the messages."""
    return made.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]


@settings(max_examples=150, deadline=None)
@given(messages=conversations())
def test_the_embedded_model_reads_what_apply_chat_template_makes_of_a_conversation(messages, embedded):
    assert token_ids(asked(messages), embedded.tokenizer).tolist() == own(embedded.tokenizer, messages)


@pytest.mark.parametrize("kind", talking.KINDS)
@settings(max_examples=60, deadline=None)
@given(messages=conversations())
def test_so_do_tokenizers_of_every_kind(kind, messages):
    made = tokenizer(kind)
    if not any(token.content in each["content"] for token in made.added_tokens_decoder.values() for each in messages):
        assert token_ids(asked(messages), made).tolist() == own(made, messages)


def test_the_models_own_system_prompt_stays_where_none_is_given(embedded):
    read = embedded.tokenizer.decode(token_ids(RunSettings(prompt="Hi"), embedded.tokenizer))
    assert "You are a helpful AI assistant named SmolLM" in read
    given = embedded.tokenizer.decode(token_ids(asked([*TALK, {"role": "user", "content": "Hi"}]), embedded.tokenizer))
    assert "You answer in rhymes." in given and "SmolLM" not in given


@pytest.mark.parametrize(
    ("roles", "says"),
    [
        ("user user assistant", "two messages of the user's follow each other"),
        ("user assistant assistant", "two messages of the assistant's follow each other"),
        ("user assistant user", "two messages of the user's follow each other"),
        ("system user", "two messages of the user's follow each other"),
        ("assistant", "begins with an answer of the assistant's"),
        ("system assistant", "begins with an answer of the assistant's"),
        ("system system", "a system message comes after another message"),
        ("user assistant system", "a system message comes after another message"),
        ("tool", "Input should be 'system', 'user' or 'assistant'"),
    ],
)
def test_messages_in_another_order_are_refused(roles, says):
    with pytest.raises(ValidationError, match=says):
        RunSettings(prompt="Why?", earlier=[{"role": role, "content": "x"} for role in roles.split()])


@pytest.mark.parametrize(
    ("earlier", "says"),
    [
        ([("user", " \n"), ("assistant", "x")], "a message of the user's is empty"),
        ([("system", "\ud83d")], "not valid Unicode"),
        ([("system", "x" * (MAX_PROMPT_CHARS + 1))], "leave some out"),
        ([("user", "x"), ("assistant", "y")] * (MAX_TURNS // 2 + 1), "leave some out"),
    ],
)
def test_what_cannot_be_read_is_refused(earlier, says):
    with pytest.raises(ValidationError, match=says):
        RunSettings(prompt="Why?", earlier=[{"role": role, "content": content} for role, content in earlier])


# ---- models that take none of it

NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
DROPS_SYSTEM = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "messages", "says"),
    [
        (NO_SYSTEM + talking.CHATML, TALK[:1], "takes no system prompt: leave it out"),
        (DROPS_SYSTEM, TALK, "takes no system prompt: leave it out"),
        ("{{ messages[-1].content }}", TALK[1:], "takes no messages before the prompt: send the prompt alone"),
        ("{{ messages[-1].content }}", TALK, "takes no messages before the prompt: send the prompt alone"),
        (None, TALK[:1], "has no chat template, so it takes no messages before the prompt"),
        ("{{ raise_exception('Never') }}", TALK, "refuses the prompt (Never)"),
    ],
)
def test_a_model_that_takes_no_such_messages_says_so_in_a_sentence(template, messages, says):
    made = talking.tokenizer("bytes")
    made.chat_template = template
    with pytest.raises(ValueError) as refused:
        prompt(RunSettings(prompt="Why?", earlier=messages), made)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_an_encoder_decoder_takes_none(lab):
    can = lab.capabilities()
    check(RunSettings(prompt="Why?", earlier=TALK), can)
    with pytest.raises(ValueError, match="reads one text alone: leave the messages before it out"):
        check(RunSettings(prompt="Why?", earlier=TALK), Capabilities(**vars(can) | {"encoder_decoder": True}))


# ---- what carries them

LAST = RunSettings(prompt="Why is the sky blue?", earlier=TALK, max_new_tokens=8, precision="fp32")


def steps(lab: Lab, run: RunSettings, **more) -> list[Step]:
    *found, finish = lab.stream(run, **more)
    assert isinstance(finish, Finish) and not finish.message
    return found


def test_the_conversation_is_a_beginning_that_prompts_share(embedded_fp32):
    made = embedded_fp32.tokenizer
    first, second = (prompt(LAST.model_copy(update={"prompt": text}), made) for text in ("Why?", "Name three rivers."))
    assert first.begins == second.begins > prompt(RunSettings(prompt="Why?"), made).begins >= LEAST
    assert first.ids[: first.begins].tolist() == second.ids[: second.begins].tolist()
    long = RunSettings(prompt="Why?", earlier=[{"role": "system", "content": "word " * 3 * MOST}])
    assert prompt(long, made).begins == MOST


@pytest.mark.parametrize("rivers", [0, 120])
def test_a_run_is_the_models_own_greedy_answer_to_the_conversation(rivers, lab, embedded_fp32):
    import torch

    answer = " ".join([TALK[2]["content"], *(f"River {number} flows north." for number in range(rivers))])
    talk = [*TALK[:2], TALK[2] | {"content": answer}]
    run = LAST.model_copy(update={"earlier": tuple(Turn(**each) for each in talk)})
    ids = own(embedded_fp32.tokenizer, [*talk, {"role": "user", "content": run.prompt}])
    assert (len(ids) > MOST) == (rivers > 0)
    with torch.no_grad():
        whole = embedded_fp32.model.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False)[0]
    found = steps(lab, run)
    assert [step.token for step in found] == whole[len(ids) :].tolist()[: len(found)]
    assert len(found) > 2 and found[0].context == len(ids)


def test_a_length_is_said_in_the_last_message(embedded):
    for more in ({"method": "ldpe", "in_prompt": True, "unit": "words"}, {"method": "prompted", "unit": "words"}):
        read = embedded.tokenizer.decode(token_ids(LAST.model_copy(update={"target": 40, **more}), embedded.tokenizer))
        before, last = read.split("<|im_start|>user\n")[1:]
        assert "40 words" in last and "40 words" not in before


def test_a_signal_counts_from_the_end_of_the_whole_conversation_and_the_base_model_reads_it_too(lab, embedded):
    run = LAST.model_copy(update={"method": "ldpe", "target": 12, "max_new_tokens": 30, "landing": 2})
    found = steps(lab, run)
    read = len(token_ids(run, embedded.tokenizer))
    assert [found[0].context, found[0].goal, found[0].remaining] == [read, 12, 11]
    assert abs(len(found) - 12) <= 3


def test_a_run_goes_on_and_branches_within_its_conversation(lab):
    whole = steps(lab, LAST)
    cut = Resumed(tuple(Written(step.token, step.wanted) for step in whole[:3]), whole[2].seconds)
    assert [step.token for step in steps(lab, LAST, resumed=cut)] == [step.token for step in whole[3:]]
    trace = Trace(LAST)
    for event in lab.stream(LAST, Control()):
        trace.append(event)
    other = next(each for each in trace.steps[2].alternatives if not each.ends and each.token != whole[2].token)
    branch = Branch.of(trace, f'{{"index": 3, "token": {other.token}}}')
    assert branch.settings.earlier == LAST.earlier
    assert steps(lab, branch.settings, resumed=branch.resumed)[0].token == other.token


def test_a_trace_keeps_the_conversation_and_one_without_it_still_opens(tmp_path: Path):
    trace = Trace(LAST)
    trace.save(tmp_path / "run.json.gz")
    assert Trace.load(tmp_path / "run.json.gz").settings == LAST
    before = trace.to_json().replace(LAST.model_dump_json(include={"earlier"})[1:-1] + ",", "")
    assert '"earlier"' not in before and Trace.load(before.encode()).settings.earlier == ()


def test_a_model_of_the_allow_list_answers_a_conversation(tmp_path: Path):
    folder = talking.thinker(tmp_path, [" one", " two."], talking.CHATML)
    *_, finish = Lab(Models([folder])).stream(RunSettings(prompt="Why?", model=folder, earlier=TALK))
    assert finish.text == " one two."
