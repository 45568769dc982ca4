"""The paper's ways beside the lab's own, on one budget."""

import numpy as np

from backend.evaluation.experiments.paper_variants import CAP, TARGETS, errors, measure
from backend.record import jsonlines


def test_both_of_a_pair_are_given_the_same_and_asked_the_same(tmp_path, tiny_folder):
    file = tmp_path / "c.jsonl"
    jsonlines.append(file, [{"prompt": f"number {n}", "response": f"It is {n}. That is all."} for n in range(40)])
    found = measure([file], ["Who?", "Why is it so?"], 30, 0, None, str(tiny_folder("llama")))
    assert found["prompts"] == 2 and found["table_over_sequence"]["least"] > 0
    for pair, (own, papers) in {"scale": ("table", "sequence"), "shift": ("up", "nearest")}.items():
        rows = found[pair]
        assert rows[own]["budget"] == rows[papers]["budget"] and rows[own]["budget"]["texts"] > 20
        changed = {key for key, value in rows[own]["settings"].items() if rows[papers]["settings"][key] != value}
        assert changed == {"scale" if pair == "scale" else "mnt_nearest"}
        for name, told_ in rows["paper less own"].items():
            assert abs(told_["mean"] - (rows[papers][name]["mean"] - rows[own][name]["mean"])) < 1e-9


def test_an_answer_that_the_cap_cut_counts_as_longer_than_the_cap():
    found = np.array([TARGETS, [target + 3 for target in TARGETS], [CAP + 1] * len(TARGETS), [1] * len(TARGETS)])
    scale = errors("scale", found)
    assert scale["error"].tolist() == [0, 3, CAP + 1 - np.mean(TARGETS), np.mean(TARGETS) - 1]
    assert scale["ended"].tolist() == [1, 1, 0, 1] and scale["over"].tolist() == [0, 1, 1, 0]
    assert errors("shift", found)["below"].tolist() == [0, 0, 0, np.mean(TARGETS) - 1]
