"""The joint rate: the share of all answers asked for that have the length asked for *and* end as a reader would accept.

An answer is counted if (1) its length is within the tolerance of the target, (2) the model drew EOS itself, and (3) it
ends as a sentence does, by a mark that the base model, which knows of no target, gives a probability of 0.05; where
there is no mark, EOS or a line's end must have it. No answer is left out. A row that (4) repeats itself more than the
base model's own text of as many tokens, or keeps less to the prompt, has no joint rate at all.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backend.engine import Lab
from backend.evaluation.markdown import UNKNOWN, percent
from backend.evaluation.quality import similarity
from backend.inference.base_model import PROBABLE, End, end_of
from backend.inference.control import Control
from backend.measures.bootstrap import share
from backend.measures.overlap import repetition
from backend.models.pool import Loaded
from backend.refused import Refused
from backend.settings import Method, RunSettings, Unit, Watch
from backend.splits import Kind, Prompt, fingerprint
from backend.steps import Finish, Step
from backend.text.lists import whole_list
from backend.text.prompt import end_ids, token_ids
from backend.text.units import in_tokens, length, met, tolerance

# Tokens beyond the target after which an answer is cut: far outside every tolerance.
BEYOND = 60
OTHERS = (0.01, 0.1, 0.2)
MORE_REPETITION, LESS_SIMILARITY = 1.1, 0.97


@dataclass(frozen=True)
class Answer:
    """One answer, and what the base model says of its end.

    prompt: its fingerprint. target, produced: in `unit`. reason: why the run ended. landed: by a search; own_end: by
    EOS that the model drew. p_mark: the base model's probability of the token that holds the last sentence's mark, None
    without a mark. p_eos, p_line: of EOS, and of EOS or a line's end, after the whole. nats: of its ids under the base
    model. similarity: cosine of its embedding and the prompt's.
    """

    kind: Kind
    prompt: str
    target: int
    produced: int
    text: str
    ids: list[int]
    reason: str
    landed: bool
    own_end: bool
    p_mark: float | None
    p_eos: float
    p_line: float
    nats: float
    similarity: float
    unit: Unit = "tokens"
    limit: bool = False

    @property
    def in_length(self) -> bool:
        """Condition 1."""
        return met(self.produced, self.target, self.unit, self.limit)

    def real_end(self, probable: float = PROBABLE) -> bool:
        """Condition 3."""
        return End(self.p_mark, self.p_eos, self.p_line).probable >= probable and whole_list(self.text)

    def joint(self, probable: float = PROBABLE) -> bool:
        """Conditions 1 to 3 together."""
        return self.in_length and self.own_end and self.real_end(probable)


def settings_of(
    method: Method, prompt: str, target: int, unit: Unit, landing: int, model: str, in_prompt: bool = False,
    room: int | None = None,
) -> RunSettings:  # fmt: skip
    """The run of one answer: greedy, as the page opens. room: the greatest target that it may be given."""
    most = room or target
    expected = most if unit == "tokens" else in_tokens(most, unit)
    return RunSettings(
        prompt=prompt, method=method, target=target, limit=target, unit=unit, landing=landing, model=model,
        in_prompt=in_prompt, max_new_tokens=expected + BEYOND, watch=Watch(enabled=False),
    )  # fmt: skip


class Move(NamedTuple):
    """Another target once so many tokens are written."""

    at: int
    target: int


def answer(lab: Lab, prompt: Prompt, settings: RunSettings, move: Move | None = None) -> Answer:
    """Write one answer and ask the base model about it. ValueError where the run fails."""
    ids: list[int] = []
    finish: Finish | None = None
    control = Control()
    for event in lab.stream(settings, control):
        if isinstance(event, Step):
            ids.append(event.token)
            if move and len(ids) == move.at:
                control.retarget(move.target)
        else:
            finish = event
    if finish is None or finish.reason == "error":
        raise Refused(finish.message if finish else "the run was stopped")
    return Answer(
        kind=prompt.kind,
        prompt=fingerprint(prompt.text),
        target=move.target if move else settings.goal,
        produced=length(settings.unit, finish.text, finish.tokens),
        text=finish.text,
        ids=ids,
        reason=finish.reason,
        landed=finish.landed,
        own_end=finish.own_end,
        **described(lab.models.load(settings.model), prompt.text, ids, finish.text),
        unit=settings.unit,
        limit=settings.limited,
    )


def described(base: Loaded, prompt: str, ids: Sequence[int], text: str) -> dict[str, Any]:
    """What the base model says of ids that answer a prompt, and their text's similarity to it, as fields of Answer."""
    likely = _likely(base, prompt, ids)
    return end_of(base.tokenizer, end_ids(base), ids, likely)._asdict() | {
        "nats": -float(likely[range(len(ids)), list(ids)].sum()) if ids else 0.0,
        "similarity": similarity([text], [prompt]),
    }


@torch.inference_mode()
def _likely(base: Loaded, prompt: str, ids: Sequence[int]) -> Tensor:
    """Log-probabilities [len(ids) + 1, vocabulary] of the base model: row i is what it expects after i ids."""
    before = token_ids(RunSettings(prompt=prompt), base.tokenizer)
    read = torch.cat([before, torch.tensor(ids, dtype=before.dtype)])[None].to(base.model.device)
    return torch.log_softmax(base.model(read, logits_to_keep=len(ids) + 1).logits[0].float().cpu(), -1)


class Compared:
    """Results beside the base model's own answers to the same prompts.

    loaded: the base model. reference: the result of the method 'none'. prompts: the texts asked. ValueError where the
    reference lacks one of them.
    """

    def __init__(self, loaded: Loaded, reference: Mapping[str, Any], prompts: Iterable[str]):
        self.loaded = loaded
        self.texts = {fingerprint(text): text for text in prompts}
        self.base = {row["prompt"]: Answer(**row) for row in reference["answers"] if row["prompt"] in self.texts}
        if lacking := len(self.texts) - len(self.base):
            raise Refused(f"the base model's answers lack {lacking} of the prompts: measure --method none on all")

    def summary(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """The joint rate of a result over all its answers, and what stands beside it.

        Rates are [share, low, high], 95 % by Wilson's interval, None of nothing. ceiling: of the base model's complete
        answers, whose length is by definition the one asked for, those that meet condition 3. chance: its texts that
        meet conditions 1 and 3 if cut at one random place within the tolerance. joint: None where 4 fails.
        """
        answers = [Answer(**row) for row in result["answers"]]
        own = [self.cut(self.base[one.prompt], len(one.ids)) for one in answers]
        sides = {"": answers, "_base": own}
        about = {}
        for side, group in sides.items():
            about[f"repetition{side}"] = statistics.fmean(repetition(one.ids) for one in group)
            about[f"similarity{side}"] = statistics.fmean(one.similarity for one in group)
        kept = (
            about["repetition"] <= MORE_REPETITION * about["repetition_base"]
            and about["similarity"] >= LESS_SIMILARITY * about["similarity_base"]
        )
        errors = [one.produced - one.target for one in answers]
        conditions = {
            "length": [one.in_length for one in answers],
            "own_end": [one.own_end for one in answers],
            "real_end": [one.real_end() for one in answers],
            "all_three": [one.joint() for one in answers],
            **{f"all_three_{probable}": [one.joint(probable) for one in answers] for probable in OTHERS},
            "answer_end": [one.joint() and one.p_eos >= PROBABLE for one in answers],
            "landed": [one.landed for one in answers],
            "base_ended": [one.own_end for one in self.base.values()],
            "ceiling": [one.real_end() for one in self.base.values() if one.own_end],
            "chance": self._chance(answers),
        }
        rates = {name: rate(met) for name, met in conditions.items()}
        return {
            "asked": result["asked"],
            "counted": len(answers),
            "joint": rates["all_three"][0] if kept and rates["all_three"] else None,
            "about_the_prompt": kept,
            **rates,
            "mae": statistics.fmean(map(abs, errors)),
            "bias": statistics.fmean(errors),
            **{f"perplexity{side}": _perplexity(group) for side, group in sides.items()},
            **about,
        }

    def cut(self, one: Answer, tokens: int) -> Answer:
        """An answer cut to so many tokens, with what the base model says of that end; itself where it is no longer."""
        if tokens >= len(one.ids):
            return one
        ids, prompt = one.ids[:tokens], self.texts[one.prompt]
        text = self.loaded.tokenizer.decode(ids, skip_special_tokens=True)
        end = described(self.loaded, prompt, ids, text)
        return replace(one, ids=ids, text=text, produced=tokens, reason="cut", own_end=False, **end)

    def _chance(self, answers: Sequence[Answer], seed: int = 0) -> list[bool]:
        draw, met = random.Random(seed), []
        for one in answers:
            base, goal = self.base[one.prompt], one.target if one.unit == "tokens" else len(one.ids)
            margin = int(tolerance(goal, "tokens"))
            tokens = draw.randint(max(1, goal - margin), goal + margin)
            met.append(tokens <= len(base.ids) and self.cut(base, tokens).real_end())
        return met

    def blind(self, result: Mapping[str, Any], count: int = 60, seed: int = 0) -> list[dict[str, str]]:
        """Texts to be read by someone who does not know which is which: answers of the method, complete ones of the
        base model and random cuts of these, `count` of each at most, in random order; 'is' says which is which."""
        draw = random.Random(seed)
        complete = [one for one in self.base.values() if one.own_end and len(one.ids) > 1]
        groups = {
            "method": [Answer(**row) for row in result["answers"]],
            "complete": complete,
            "cut": [self.cut(one, draw.randint(1, len(one.ids) - 1)) for one in complete],
        }
        rows = [
            {"prompt": self.texts[one.prompt], "text": one.text, "ended": "", "is": name}
            for name, group in groups.items()
            for one in draw.sample(group, min(count, len(group)))
        ]
        draw.shuffle(rows)
        return rows


def rate(met: Sequence[bool]) -> list[float | None] | None:
    """[share, low, high]: a share and its 95 % interval by Wilson; None of nothing."""
    return [*share(sum(met), len(met))] if met else None


def _perplexity(answers: Sequence[Answer]) -> float:
    return exp(sum(one.nats for one in answers) / max(1, sum(len(one.ids) for one in answers)))


def share_of(found: Sequence[float | None] | None, prompts: int = 0) -> str:
    """A share with its interval, and the prompts that it rests on where they are given."""
    if not found:
        return UNKNOWN
    rests = f"; {prompts} prompts" if prompts else ""
    return f"{percent(found[0])} ({percent(found[1])} to {percent(found[2])}{rests})"
