"""OpenAI's own client asks the running app: whole and streamed answers, refusals, and leaving."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request

import openai
import pytest
from held import Held

from app import __main__ as app
from app import page as lab_page
from app.chat import ChatRequest
from app.runs import Runs
from app.shares import Shares
from backend.models.adapters import available
from backend.settings import LANDING, RunSettings, Turn

SKY = [{"role": "user", "content": "Why is the sky blue?"}]
PATIENCE = 300


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs()


@pytest.fixture(scope="module")
def address(held_lab, runs):
    demo = lab_page.build(held_lab, available, runs, 4, Shares(visitor_runs=2))
    yield app.serve(demo)
    demo.close()


@pytest.fixture
def client(address):
    with openai.OpenAI(base_url=f"{address}v1", api_key="any", max_retries=0, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def held(held_lab):
    yield held_lab
    held_lab.free()


def written(lab: Held, **settings) -> str:
    *_, finish = lab.stream(RunSettings(**settings))
    return finish.text


def until(true) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_an_answer_is_the_labs_own_with_its_target_and_usage(client, held_lab):
    answer = client.chat.completions.create(
        model="embedded", messages=SKY, extra_body={"target": 20, "length_method": "ldpe"}
    )
    assert answer.choices[0].message.content == written(held_lab, prompt=SKY[0]["content"], method="ldpe", target=20)
    assert answer.choices[0].finish_reason == "stop" and answer.length["error"] == answer.usage.completion_tokens - 20


def test_a_stream_is_the_same_text_in_parts(client, held_lab):
    parts = list(
        client.chat.completions.create(
            model="embedded", messages=SKY, max_tokens=24, temperature=0.8, top_p=0.9, seed=7, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    alone = written(held_lab, prompt=SKY[0]["content"], max_new_tokens=24, temperature=0.8, top_p=0.9, seed=7)
    assert text == alone and [part.choices[0].finish_reason for part in parts if part.choices][-1] == "length"
    assert parts[-1].usage.completion_tokens == 24 and len({part.id for part in parts}) == 1


def test_a_stream_ends_with_its_mark(address):
    body = json.dumps({"messages": SKY, "max_tokens": 4, "stream": True}).encode()
    asked = urllib.request.Request(f"{address}v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        lines = answer.read().decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""] and all(line.startswith("data: ") for line in lines[:-1])


def test_a_conversation_is_what_the_chat_template_makes_of_it(held_lab):
    from backend.text.prompt import token_ids

    tokenizer = held_lab.models.load("embedded").tokenizer
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "You are <|im_end|> brief."}]},
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, *SKY,
    ]  # fmt: skip
    settings = ChatRequest(messages=messages).settings()
    assert settings.earlier[0] == Turn(role="system", content="You are <|im_end|> brief.")
    assert [turn.role for turn in settings.earlier] == ["system", "user", "assistant"]
    plain = [{"role": turn.role, "content": turn.content.replace("<|im_end|>", "")} for turn in settings.earlier]
    ids, ends = token_ids(settings, tokenizer).tolist(), tokenizer.convert_tokens_to_ids("<|im_end|>")
    rendered = tokenizer.apply_chat_template([*plain, *SKY], add_generation_prompt=True, return_dict=True)["input_ids"]
    assert ids.count(ends) == rendered.count(ends) == 4 and "You are <|im_end|> brief." in tokenizer.decode(ids)
    without = RunSettings(prompt="Why?", earlier=plain[1:])
    assert without.model_validate_json(without.model_dump_json()) == without


TALK = [
    {"role": "system", "content": "You answer in rhymes."}, {"role": "user", "content": "Name a river."},
    {"role": "assistant", "content": "The Rhine."}, *SKY,
]  # fmt: skip


@pytest.mark.parametrize("messages", [TALK, TALK[1:], [TALK[0], *SKY]])
def test_an_answer_is_to_the_whole_conversation_streamed_or_not(client, held_lab, messages):
    asked = {"model": "embedded", "messages": messages, "max_tokens": 12, "extra_body": {"target": 8}}
    heeded = {"method": "ldpe", "landing": LANDING, "in_prompt": True}
    *_, finish = held_lab.stream(
        RunSettings(prompt=SKY[0]["content"], earlier=messages[:-1], target=8, max_new_tokens=12, **heeded)
    )
    whole = client.chat.completions.create(**asked)
    parts = client.chat.completions.create(**asked, stream=True)
    streamed = "".join(part.choices[0].delta.content or "" for part in parts)
    assert whole.choices[0].message.content == streamed == finish.text
    assert whole.usage.prompt_tokens == finish.prompt_tokens != client.chat.completions.create(
        model="embedded", messages=SKY, max_tokens=1
    ).usage.prompt_tokens  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": "none"}, "'none' is not on the allow-list"),
        ({"max_tokens": 0}, "“max_tokens” should be greater than or equal to 1."),
        ({"stop": ["."]}, "“stop” is not supported here: leave it out."),
        ({"n": 2}, "“n” is not supported here: leave it out."),
        ({"messages": [*SKY, {"role": "assistant", "content": "It"}]}, "The last message is not the user's"),
        ({"messages": SKY * 2}, "Two messages of the user's follow each other: join them"),
        ({"messages": [*SKY, TALK[2], TALK[2], *SKY]}, "Two messages of the assistant's follow each other"),
        ({"messages": [TALK[2], *SKY]}, "The conversation begins with an answer of the assistant's"),
        ({"messages": [*TALK[1:3], TALK[0], *SKY]}, "A system message comes after another message"),
        ({"messages": TALK[:1]}, "The last message is not the user's"),
        ({"messages": [{"role": "tool", "content": "1", "tool_call_id": "1"}]}, "role “tool” is not known here"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a part that is no text"),
        ({"extra_body": {"target": 20, "length_method": "any"}}, "any"),
        ({"extra_body": {"target": 0}}, "“target” should be greater than or equal to 1."),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_run_is_refused_with_a_sentence(client, fields, words, stream):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**{"model": "embedded", "messages": SKY, "stream": stream} | fields)
    assert words in refused.value.body["message"] and refused.value.body["type"] == "invalid_request_error"


def test_what_asks_for_nothing_is_taken(client):
    answer = client.chat.completions.create(
        model="embedded", messages=SKY, max_completion_tokens=3, n=1, user="me", frequency_penalty=0, logprobs=False
    )
    assert answer.usage.completion_tokens == 3 and answer.choices[0].finish_reason == "length"


def test_who_leaves_stops_the_run_streamed_or_not(address, client, held, runs):
    held.upto(3)
    stream = client.chat.completions.create(model="embedded", messages=SKY, max_tokens=400, stream=True)
    next(iter(stream))
    assert len(runs) == 1
    stream.close()
    until(lambda: not len(runs))

    async def leave() -> None:
        async with openai.AsyncOpenAI(base_url=f"{address}v1", api_key="any", max_retries=0) as asks:
            work = asyncio.ensure_future(
                asks.chat.completions.create(model="embedded", messages=SKY, max_tokens=16_000)
            )
            await asyncio.to_thread(until, lambda: len(runs) == 1)
            work.cancel()

    held.upto(3)
    asyncio.run(leave())
    until(lambda: not len(runs))


def test_a_visitors_share_is_kept(client, held, runs):
    held.upto(3)
    streams = [
        client.chat.completions.create(model="embedded", messages=SKY, max_tokens=40, stream=True) for _ in range(2)
    ]
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model="embedded", messages=SKY)
    assert "You have 2 runs waiting" in refused.value.body["message"]
    held.free()
    assert all([*stream][-1].choices[0].finish_reason == "length" for stream in streams)


def test_models_are_those_that_may_be_asked_for(client, held_lab):
    assert [model.id for model in client.models.list()] == held_lab.models.names()


def test_a_target_alone_is_landed_on_unless_a_method_or_no_landing_is_asked_for():
    asked = {"model": "embedded", "messages": SKY, "target": 20}
    for more, expected in (
        ({}, ("ldpe", LANDING, True)), ({"landing": 0}, ("ldpe", 0, True)),
        ({"in_prompt": False}, ("ldpe", LANDING, False)),
        ({"length_method": "orpe"}, ("orpe", 0, False)), ({"target": None}, ("none", 0, False)),
    ):  # fmt: skip
        found = ChatRequest.model_validate(asked | more).settings()
        assert (found.method, found.landing, found.in_prompt) == expected
