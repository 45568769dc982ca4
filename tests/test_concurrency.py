"""Users of one lab at the same time do not see each other."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import pytest
import torch
from policies import POLICIES, asking
from reading import IDS, run
from threads import at_once

from backend import Lab
from backend.inference.control import Control
from backend.models.pool import Models
from backend.positions import PositionPolicy, policy_of
from backend.settings import RunSettings
from backend.steps import Finish, Step

pytestmark = pytest.mark.usefixtures("two_threads")


def tokens(lab: Lab, asked: RunSettings, control: Control | None = None) -> list[int]:
    return [event.token for event in lab.stream(asked, control) if isinstance(event, Step)]


def together(lab: Lab, all_asked: Sequence[RunSettings]) -> list[list[int]]:
    """Tokens of these runs, each on its own thread, all begun at once."""
    return at_once(*(partial(tokens, lab, asked) for asked in all_asked))


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gptj"])
@pytest.mark.parametrize("policy", ["dynamic", "window, near limit"])
def test_a_run_goes_on_while_another_model_is_loaded(family: str, policy: str, tiny_folder):
    """transformers makes the type of the model it loads everybody's default meanwhile."""
    folder = str(tiny_folder(family))
    lab = Lab(Models([folder]))
    chosen = POLICIES[policy].model_dump(exclude={"prompt", "model", "precision", "watch"})
    asked = asking(**chosen | {"model": folder, "precision": "fp32", "max_new_tokens": 30})
    alone = tokens(lab, asked)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert tokens(lab, asked) == alone
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gptj"])
def test_users_with_different_settings_get_what_they_would_get_alone(family: str, tiny_folder):
    folder = str(tiny_folder(family))
    lab = Lab(Models([folder]))
    names = ("plain", "dynamic", "ntk", "dynamic, literal + window", "window, near limit")
    asked = [
        asking(
            **POLICIES[name].model_dump(exclude={"prompt", "model", "precision", "seed", "temperature", "watch"})
            | {"model": folder, "precision": "fp32", "max_new_tokens": 40, "temperature": 0.9, "seed": seed},
            watch={"enabled": seed % 2 == 0},
        )
        for seed, name in enumerate(names)
    ]
    alone = [tokens(lab, one) for one in asked]
    assert len({tuple(run) for run in alone}) == len(names)
    for _ in range(2):
        assert together(lab, asked) == alone


def test_two_users_of_the_embedded_model(lab: Lab):
    asked = [
        RunSettings(prompt="Tell me about the sea.", max_new_tokens=20),
        RunSettings(
            prompt="Tell me about the sea.", max_new_tokens=20, pic="dynamic", ratio=8.0, recent=4, window=12, sinks=2
        ),
    ]
    alone = [tokens(lab, one) for one in asked]
    assert alone[0] != alone[1]
    assert together(lab, asked) == alone


def test_a_first_load_shared_by_many_users(tiny_folder):
    folder = str(tiny_folder("qwen3"))
    asked = [asking(model=folder, max_new_tokens=10, seed=seed, temperature=1.0) for seed in range(4)]
    alone = [tokens(Lab(Models([folder])), one) for one in asked]
    assert together(Lab(Models([folder])), asked) == alone


def test_one_users_stop_is_not_anothers(tiny_folder):
    folder = str(tiny_folder("llama"))
    lab = Lab(Models([folder]))
    asked = asking(model=folder, max_new_tokens=40, seed=3, temperature=0.8)
    alone = tokens(lab, asked)
    control, stopped = Control(), lab.stream(asked)
    ours = lab.stream(asked, control)
    got = [next(ours).token, next(stopped).token]
    control.stop()
    assert isinstance(next(ours), Finish) and got == alone[:1] * 2
    assert [event.token for event in stopped if isinstance(event, Step)] == alone[1:]


def test_a_transformers_call_beside_a_run_is_transformers_own(tiny):
    """Other threads, and this one between two steps, use the attached model as if it were untouched."""
    model, own = tiny("gpt_neox"), tiny("gpt_neox")
    expected = own(IDS[None]).logits
    reading = run(model)
    policy = policy_of(POLICIES["dynamic"])
    alone = _decode(run(tiny("gpt_neox")), policy)
    right: list[bool] = []
    done = threading.Event()

    def outsider() -> None:
        while not done.is_set():
            with torch.inference_mode():
                right.append(torch.equal(model(IDS[None]).logits, expected))

    thread = threading.Thread(target=outsider)
    thread.start()
    found = []
    try:
        while len(right) < 5:
            found.append(_decode(reading, policy))
    finally:
        done.set()
        thread.join()
    assert all(right) and found and all(torch.equal(each, alone) for each in found)


def _decode(reading, policy: PositionPolicy) -> torch.Tensor:
    cache = reading.cache(policy)
    return torch.stack([reading.read(part, cache) for part in (IDS[:10], *IDS[10:].split(1))])
