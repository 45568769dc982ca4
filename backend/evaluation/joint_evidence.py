"""What answers of an asked length show first: how many meet it and end well, and how many stay below a limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from backend.evaluation.card import Axis, Curve, Evidence, Figure
from backend.evaluation.joint import Answer, share_of
from backend.evaluation.markdown import decimal, percent

# Rows of the figure, from below: by their names in the results, and what they are called.
METHODS = {
    "none": "without control", "prompted": "asked in the prompt", "lrpe": "LRPE", "pre": "PRE", "orpe": "ORPE",
    "ldpe": "LDPE", "ldpe_slack": "LDPE with slack", "ldpe_landing": "LDPE, landed",
}  # fmt: skip
LIMITS = {"mnt_ldpe": "LDPE", "mnt_orpe": "ORPE"}
LANDED = "mnt_orpe_landing"
METERS: Mapping[str, str] = {"length": "length met", "all_three": "length met and ended"}


def evidence(results: Mapping[str, Any]) -> Iterator[Evidence]:
    """results: of the joint rate, by the names of methods."""
    if {"ldpe", "ldpe_landing"} <= results.keys():
        yield _length(results)
    if LIMITS.keys() <= results.keys():
        yield _limits(results)


def _length(results: Mapping[str, Any]) -> Evidence:
    found = {name: _summary(results[name]) for name in METHODS if name in results}
    cut, landed = found["ldpe"], found["ldpe_landing"]
    return Evidence(
        1, "Length met and ended",
        f"A countdown meets the length in {_of(cut, 'length')} of answers but ends {_of(cut, 'all_three')} of them "
        f"well; with endings tried near the target (landing) it is {_of(landed, 'length')} and "
        f"{_of(landed, 'all_three')}.",
        _meters(found), "000",
        "a mean error below 3 tokens (abstract), 2.8 and 2.4 on summaries (§5.1.2); ends are not counted",
        f"a mean error of {decimal(cut['mae'])} tokens without landing, {decimal(landed['mae'])} with it; length met "
        f"and ended {share_of(cut['all_three'])} and {share_of(landed['all_three'])} of {cut['counted']}",
        "A sentence that ends is not yet an answer that ends: the model alone would end there after "
        f"{share_of(landed['answer_end'])} of the landed answers. “Ends, read blind” has what a reader says of them.",
    )  # fmt: skip


def _meters(found: Mapping[str, Any]) -> Figure:
    places = list(enumerate(found.items()))
    curves = [
        Curve(words, [100 * each[key][0] for _, (_, each) in places], [place for place, _ in places], "markers")
        for key, words in METERS.items()
    ]
    rows = [[METHODS[name], *(share_of(each[key]) for key in METERS)] for name, each in found.items()]
    return Figure(
        "Answers by method", "The gap between the two points is answers that stop amid a sentence",
        Axis("% of answers", ends=(-3, 103)),
        Axis("", ticks={place: METHODS[name] for place, (name, _) in places}, ends=(-0.6, len(places) - 0.4)),
        curves, "Every answer counts; shares with their 95 % interval are in the table.",
        ("method", *METERS.values()), rows,
    )  # fmt: skip


def _limits(results: Mapping[str, Any]) -> Evidence:
    found = {name: _summary(results[name]) for name in LIMITS}
    kept, ended = ([each[key] for each in found.values()] for key in ("length", "all_three"))
    landed = _summary(results[LANDED])["all_three"] if LANDED in results else None
    tried = f"; with endings tried below it (landing), {percent(landed[0])} over ORPE" if landed else ""
    named = [f"{share_of(each)} over {name}" for each, name in zip(ended, LIMITS.values(), strict=True)]
    return Evidence(
        2, "Limits",
        f"An answer under a limit (Max New Tokens++) stays below it in {percent(min(kept)[0])} of cases, but ends well "
        f"in only {percent(min(ended)[0])} to {percent(max(ended)[0])}{tried}.",
        _below(results), "000",
        "answers that “terminate smoothly at or before the token limit” (§6, figure 5); no share is stated",
        f"below the limit {share_of(kept[0])}; ended {', '.join(named)}",
        "Missed: without landing most answers do not end smoothly, but stop amid a sentence near the limit.",
    )  # fmt: skip


def _below(results: Mapping[str, Any]) -> Figure:
    by_limit: dict[int, list[Answer]] = {}
    for answer in (Answer(**row) for name in LIMITS for row in results[name]["answers"]):
        by_limit.setdefault(answer.target, []).append(answer)
    limits = sorted(by_limit)
    kept = [_share(one.in_length for one in by_limit[limit]) for limit in limits]
    ended = [_share(one.joint() for one in by_limit[limit]) for limit in limits]
    fewest = min(map(len, by_limit.values()))
    return Figure(
        "Answers by limit", "The gap is answers that stop amid a sentence",
        Axis("limit, tokens", zero=True), Axis("% of answers", ends=(-3, 103)),
        [Curve("below the limit", limits, kept, "lines+markers"), Curve("and ended", limits, ended, "lines+markers")],
        f"{fewest} answers or more a limit, of both methods together.",
        ("limit", "answers", "% below it", "% and ended"),
        [[at, len(by_limit[at]), round(one), round(two)] for at, one, two in zip(limits, kept, ended, strict=True)],
    )  # fmt: skip


def _share(met: Iterable[bool]) -> float:
    """Per cent of all."""
    found = [*met]
    return 100 * sum(found) / len(found)


def _summary(result: Mapping[str, Any]) -> Any:
    return result["summary"]["validation"]


def _of(summary: Mapping[str, Any], key: str) -> str:
    return percent(summary[key][0])
