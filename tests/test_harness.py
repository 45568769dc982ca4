"""The harness's model: likelihoods under a signal are those of a plain forward pass with that signal."""

import json
import re

import pytest
import torch
from lm_eval import simple_evaluate

from backend.__main__ import main
from backend.evaluation.experiments import experiments
from backend.evaluation.signalled import CHOICES, SETS, SignalledLM, subjects, summaries
from backend.inference.embedding import SignalContext, attach, signalling
from backend.methods.signal import SignalSettings
from backend.models import adapters


def keep(rows, folder):
    """The rows as the folder of the data sets holds them, the last one in both files."""
    for name, part in zip(SETS, (rows, rows[-1:]), strict=True):
        (folder / name).write_text("\n".join(map(json.dumps, part)))


LDPE = SignalSettings("ldpe", 0.5, 0.05, (1, 50))


@pytest.mark.parametrize("signal", [None, LDPE])
def test_a_continuation_is_read_under_its_own_length(embedded_fp32, signal):
    model = SignalledLM(embedded_fp32, signal)
    context, continuation = [5, 6, 7, 8], [9, 10, 11]
    ((found, greedy),) = model._loglikelihood_tokens([(("", ""), context, continuation)])
    ids = torch.tensor([[*context, *continuation]])
    with torch.inference_mode():
        if signal is None:
            logits = embedded_fp32.model(ids).logits[0]
        else:
            attach(embedded_fp32.model)
            with signalling(SignalContext(signal, [4], [3])):
                logits = embedded_fp32.model(ids).logits[0]
    rows = torch.log_softmax(logits[3:6].float(), -1)
    assert found == pytest.approx(float(rows.gather(-1, torch.tensor(continuation)[:, None]).sum()), abs=0.01)
    assert greedy == bool((rows.argmax(-1) == torch.tensor(continuation)).all())


def test_the_choices_of_a_question_share_its_reading(embedded_fp32, monkeypatch):
    model, read = SignalledLM(embedded_fp32, None), []
    one = model.runner.read

    def noted(ids, *given, **named):
        read.append(len(ids))
        return one(ids, *given, **named)

    monkeypatch.setattr(model.runner, "read", noted)
    asked = [(("", ""), [5, 6, 7, 8], [9, 10, 11]), (("", ""), [5, 6, 7, 8], [12]), (("", ""), [5, 6], [9, 10, 11])]
    found = model._loglikelihood_tokens(asked)
    assert read == [4, 2, 2, 2]
    assert found == [SignalledLM(embedded_fp32, None)._loglikelihood_tokens([each])[0] for each in asked]


def test_an_adapter_for_long_texts_is_read_plainly_and_as_trained():
    tuned = [adapters.find(method, "embedded") for method in ("sft", "sft_ntk", "sft_dynamic")]
    kinds = {each.name: (each.policy.name, each.signal) for each in subjects(tuned)}
    assert kinds == {
        "the model itself": ("none", None),
        "sft, read plainly": ("none", None),
        "sft_ntk, read plainly": ("none", None),
        "sft_ntk, read as trained": ("ntk", None),
        "sft_dynamic, read plainly": ("none", None),
        "sft_dynamic, read as trained": ("dynamic", None),
    }


def test_summaries_have_one_right_answer(tmp_path):
    rows = [{"abstract": f"We do {n}.", "tldr": f"About {n}."} for n in range(8)]
    keep(rows, tmp_path)
    task = summaries(tmp_path, 8, tmp_path / "t.json")
    documents = list(task.test_docs())
    assert len(documents) == 8
    for n, document in enumerate(documents):
        assert len(set(document["choices"])) == CHOICES and document["choices"][document["gold"]] == f"About {n}."


def test_what_is_missing_is_said(capsys, tmp_path):
    asked = ["evaluate", "multiple_choice", "--out", str(tmp_path / "h.json"), "--method"]
    assert main([*asked, "ldpe"]) == 2
    assert "give --data FOLDER, or --task NAME" in capsys.readouterr().err
    assert main([*asked, "none", "--task", "x"]) == 2
    assert "none has neither a signal nor position ids" in capsys.readouterr().err
    assert main([*asked, "sft", "--task", "x", "--shots", "-1"]) == 2
    assert "--shots -1: input should be greater than or equal to 0" in capsys.readouterr().err


@pytest.mark.scale
def test_answered_questions_make_a_question_long_without_its_own_answer(tmp_path, models):
    rows = [{"abstract": f"We do {n}.", "tldr": f"About {n}."} for n in range(8)]
    keep(rows, tmp_path)
    read: dict[int, list[str]] = {}
    for shots in (0, 3):
        task, case = summaries(tmp_path, 8, tmp_path / "t.json"), SignalledLM(models.load("embedded"), None)
        found = simple_evaluate(
            case, tasks=[task], limit=2, num_fewshot=shots, apply_chat_template=True, bootstrap_iters=0,
            log_samples=True,
        )  # fmt: skip
        read[shots] = [sample["arguments"][0][0] for sample in found["samples"]["summaries"]]
    for alone, shown in zip(read[0], read[3], strict=True):
        assert alone.count("We do") == 1 and shown.count("We do") == 4 and shown.count("About") == 3
        (own,) = set(re.findall(r"We do \d", alone))
        assert shown.count(own) == 1 and shown.endswith(alone[alone.index(own) :])


@pytest.mark.scale
def test_a_stopped_run_goes_on_and_another_request_is_refused(tmp_path, in_lab):
    rows = [{"abstract": f"We do {n}.", "tldr": f"About {n}."} for n in range(8)]
    keep(rows, tmp_path)
    experiment = experiments["multiple_choice"]

    def asked(before, **request):
        said: list[str] = []
        options = experiment.Options(method=("sft",), data=tmp_path, limit=4, **request)
        found = [*experiment.measure(options, before and json.loads(json.dumps(before)), said.append)]
        return json.loads(json.dumps(found)), [line for line in said if " asked for, " not in line]

    before = next(experiment.measure(experiment.Options(method=("sft",), data=tmp_path, limit=4), None, str))
    assert [row["model"] for row in before["accuracy"]] == ["the model itself"]
    rest, said = asked(before)
    assert len(rest) == len(said) == 1
    assert [row["model"] for row in rest[-1]["accuracy"]] == ["the model itself", "sft, read plainly"]
    assert asked(rest[-1]) == ([], [])
    with pytest.raises(ValueError, match="measured with shots 0, not 1: give another --out"):
        asked(before, shots=1)
