"""Perplexity against position: what is read, in chunks of any size and until it is stopped, that it goes on where it
stopped, and what its summaries say."""

import json
import math

import numpy as np
import pytest
import torch

from backend.__main__ import main
from backend.engine import Lab
from backend.evaluation import readings
from backend.evaluation.experiments import experiments
from backend.evaluation.perplexity import read, read_truncated
from backend.evaluation.readings import Reading, Task, summary, tasks
from backend.evaluation.texts import WINDOW, documents
from backend.inference.control import Control
from backend.models.pool import Models
from backend.settings import RunSettings
from tests.policies import POLICIES as SETTINGS

EXPERIMENT = experiments["perplexity"]
POLICIES, ABLATION = EXPERIMENT.policies, experiments["lambda_ablation"].policies


@pytest.fixture(scope="module")
def small(tiny_folder) -> tuple[Lab, str]:
    folder = str(tiny_folder("llama"))
    return Lab(Models([folder])), folder


def reading(policy: str, start: int, stop: int, nats: float, document="a") -> Reading:
    places = list(range(512, stop - start + 1, 512))
    n = len(places)
    return Reading(document, "", policy, start, places, [nats] * n, [1.0] * n, [9.0] * n, [1] * n)


@pytest.mark.parametrize("window, chunk", [(1000, 64), (96, 64), (20, 64), (64, 7)])
def test_truncation_reads_every_chunk_after_its_window_alone(small, window, chunk):
    lab, folder = small
    ids, settings = torch.randint(3, 100, (300,)), RunSettings(prompt="x", model=folder, precision="fp32")
    found, at, chunk = list(read_truncated(lab, ids, settings, window, chunk=chunk)), 0, min(chunk, window)
    assert sum(len(part.nll) for part in found) == 299 and found[-1].position == 300
    for part in found:
        start = max(0, at - max(1, window - chunk // 2))
        alone = np.concatenate([one.nll for one in read(lab, ids[start : part.position], settings)])
        np.testing.assert_allclose(part.nll, alone[-(part.position - at) :], atol=1e-4)
        assert at <= part.state_positions[0] <= part.state_positions[-1] < part.position or start == at
        at = part.position
    if window > 300:
        whole = np.concatenate([one.nll for one in read(lab, ids, settings)])
        np.testing.assert_allclose(np.concatenate([part.nll for part in found]), whole, atol=1e-4)


def test_a_truncated_chunk_that_was_stopped_is_left_out(small):
    lab, folder = small
    control, settings = Control(), RunSettings(prompt="x", model=folder, precision="fp32")
    parts = read_truncated(lab, torch.randint(3, 100, (300,)), settings, 128, control, chunk=64)
    assert next(parts).position == 64
    control.stop()
    assert list(parts) == []


def test_tasks_stop_where_time_is_quadratic_and_begin_anew_for_comparison():
    found = tasks(["a"], POLICIES, (2048, 32768), 8192)
    assert Task("a", "plain", 0, 2048) in found and Task("a", "Λ", 0, 32768) in found
    assert Task("a", "Λ", 32768 - readings.FRESH, 32768) in found
    assert Task("a", "truncation", 32768 - 2560, 32768) in found and Task("a", "truncation", 0, 2048) in found
    earlier = [place - (32768 - 2560) for place in range(32768 - readings.TAIL, 32768)]
    assert round(sum(earlier) / len(earlier)) == WINDOW
    assert [t.stop - t.start for t in found] == sorted(t.stop - t.start for t in found)
    assert Task("a", "StreamingLLM", 0, 32768) in found and Task("a", "ReRoPE", 0, 2048) in found
    # Truncation reads anew for each length, Λ once more for comparison.
    assert len(found) == len(set(found)) == len(POLICIES) + 2


def test_parts_of_lambda_are_compared_each_with_settings_of_its_own():
    settings = [RunSettings(prompt="x", **policy) for policy in ABLATION.values()]
    assert len(set(settings)) == len(settings)
    assert ABLATION["window, sinks, limit"] == POLICIES["Λ"]
    stops = {task.policy: task.stop for task in tasks(["a"], ABLATION, (8192, 32768), 8192)}
    assert stops == dict.fromkeys(ABLATION, 32768) | {"plain": 8192, "limit alone": 8192}


def test_summaries_are_by_hand():
    found = [
        reading("Λ", 0, 32768, 2.0),
        reading("Λ", 0, 32768, 3.0, "b"),
        reading("Λ", 32768 - 8192, 32768, 2.25),
        reading("truncation", 32768 - 2560, 32768, 1.0),
    ]
    assert summary(found, list(POLICIES), (2048, 32768)) == [
        {"policy": "Λ", "2,048": round(math.exp(2.5), 2), "32,768": round(math.exp(2.5), 2)},
        {"policy": "truncation", "2,048": None, "32,768": round(math.e, 2)},
    ]


def test_the_tail_is_what_stands_before_a_length():
    found = Reading("a", "", "plain", 0, [512, 1024, 1536, 2048], [4.0, 3.0, 2.0, 1.0], [0] * 4, [0] * 4, [0] * 4)
    assert found.tail(2048) == 1.5 and found.tail(1024) == 3.5 and found.tail(4096) is None


@pytest.mark.scale
def test_a_run_goes_on_where_it_stopped_and_ends_the_same(in_lab):
    said: list[str] = []
    options = EXPERIMENT.Options(policy=("Λ", "truncation"), lengths=(1024, 2048), longest=2048)
    first = next(EXPERIMENT.measure(options, None, said.append))
    *_, whole = EXPERIMENT.measure(options, json.loads(json.dumps(first)), said.append)
    measured = [line for line in said if "nats" in line]
    assert len(measured) == 3 and len(whole["readings"]) == 2 and len(said) > 3
    *_, again = EXPERIMENT.measure(options, whole, said.append)
    assert [line for line in said if "nats" in line] == measured
    assert again["perplexity"] == whole["perplexity"]
    rows = {row["policy"]: row for row in whole["perplexity"]}
    assert 1 < rows["Λ"]["2,048"] < 60 and rows["truncation"]["1,024"] == rows["Λ"]["1,024"]


def test_a_long_reading_tells_how_far_it_is(small, monkeypatch):
    monkeypatch.setattr(readings, "PROGRESS", 1024)
    (lab, model), said = small, []
    ids = torch.randint(3, 97, (2100,), generator=torch.Generator().manual_seed(4))
    found = readings.measured(lab, model, ids, Task("a", "Λ", 0, 2100), POLICIES["Λ"], "", {}, said.append)
    assert said == ["a Λ: 1,024 of 2,100 tokens read", "a Λ: 2,048 of 2,100 tokens read"]
    assert found.position[-1] == 2100


class Interrupted(Exception):
    """In the place of Ctrl-C."""


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "truncation"])
def test_a_reading_that_was_stopped_goes_on_within_its_text_and_ends_the_same(small, monkeypatch, tmp_path, policy):
    monkeypatch.setenv("LENGTH_LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(readings, "PROGRESS", 512)
    monkeypatch.setattr(readings, "KEPT_EVERY", 0)
    # Windows and near parts short enough for keys to be dropped and to change their frames on both sides of the stop.
    how = POLICIES[policy] | ({"window": 300} if "window" in POLICIES[policy] else {})
    (lab, model), said = small, []
    ids = torch.randint(3, 97, (2200,), generator=torch.Generator().manual_seed(5))
    task, call = Task("a", policy, 100, 2200), {"command": "first"}

    def stopping(words: str) -> None:
        said.append(words)
        if "1,636 of" in words:
            raise Interrupted

    with pytest.raises(Interrupted):
        readings.measured(lab, model, ids, task, how, "t", call, stopping)
    (kept,) = tmp_path.glob("readings/*")
    found = readings.measured(lab, model, ids, task, how, "t", {"command": "second"}, said.append)
    assert found.calls == [call] and not list(tmp_path.glob("readings/*"))
    assert [words.split()[-5] for words in said] == ["612", "1,124", "1,636", "1,636", "2,148"]

    monkeypatch.setattr(readings, "KEPT_EVERY", 10**9)
    whole = readings.measured(lab, model, ids, task, how, "t", call, said.append)
    assert (found.position, found.nll, found.entropy) == (whole.position, whole.nll, whole.entropy)
    assert found.cache_bytes == whole.cache_bytes and whole.calls == []

    kept.write_bytes(b"broken")
    assert readings.measured(lab, model, ids, task, how, "t", call, said.append).nll == whole.nll
    assert readings.measured(lab, model, ids, task, how, "another", call, said.append).calls == []


@pytest.mark.scale
def test_a_result_of_another_text_of_that_name_is_not_gone_on_from(in_lab, monkeypatch):
    ((name, text),) = documents(None, 1).items()
    options = EXPERIMENT.Options(policy=("Λ",), lengths=(1024,), longest=1024)
    *_, whole = EXPERIMENT.measure(options, None, str)
    assert whole["readings"][0]["text"] == readings.fingerprint(text)
    monkeypatch.setattr(EXPERIMENT.Options, "texts", lambda self: {name: text + "."})
    with pytest.raises(ValueError, match="another text named pydoc: give another --out"):
        next(EXPERIMENT.measure(options, whole, str))


def test_what_cannot_be_read_is_said(tmp_path, capsys):
    for arguments, words in (
        (["--data", str(tmp_path)], "no .txt file"),
        (["--policy", "spiral"], "there is no 'spiral'"),
        (["--lengths", "512"], "--lengths 512: input should be greater than or equal to 1024"),
        (["--lengths", "2000"], "--lengths 2000: input should be a multiple of 512"),
    ):
        assert main(["evaluate", "perplexity", "--out", str(tmp_path / "o.json"), *arguments]) == 2
        assert words in capsys.readouterr().err
    for content, words in (
        ("{", "it is no JSON"),
        ("[]", "it is no result"),
        ('{"model": "x", "readings": []}', "measured on x"),
    ):
        (tmp_path / "o.json").write_text(content)
        assert main(["evaluate", "perplexity", "--out", str(tmp_path / "o.json")]) == 2
        assert words in capsys.readouterr().err and (tmp_path / "o.json").read_text() == content


@pytest.mark.parametrize("name", ["plain", "window", "window, near limit", "ntk", "dynamic", "dynamic, literal"])
def test_chunks_of_any_size_give_the_same_nats(small, name):
    lab, model = small
    ids = torch.randint(3, 97, (97,), generator=torch.Generator().manual_seed(2))
    settings = SETTINGS[name].model_copy(update={"model": model, "precision": "fp32"})
    whole, *others = (
        np.concatenate([chunk.nll for chunk in read(lab, ids, settings, chunk=size)]) for size in (97, 1, 7, 32, 96)
    )
    assert whole.shape == (96,) and whole.std() > 0.1
    for nats in others:
        np.testing.assert_allclose(nats, whole, atol=1e-4)


def test_a_reading_that_is_stopped_keeps_what_was_read(small):
    lab, model = small
    ids = torch.randint(3, 97, (40,), generator=torch.Generator().manual_seed(3))
    settings, control, found = RunSettings(prompt="-", model=model, window=12), Control(), []
    for chunk in read(lab, ids, settings, control, chunk=8):
        found.append(chunk)
        if chunk.position == 16:
            control.stop()
    assert [chunk.position for chunk in found] == [8, 16]
    whole = list(read(lab, ids, settings, chunk=8))
    assert len(whole) == 5
    for stopped, same in zip(found, whole[:2], strict=True):
        np.testing.assert_array_equal(stopped.nll, same.nll)
    assert list(read(lab, ids, settings, control, chunk=8)) == []
