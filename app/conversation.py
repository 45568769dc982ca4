"""The conversation before the Lab's prompt: questions and answers, each with what was asked of its length and met."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from backend.methods import methods
from backend.record.trace import Trace
from backend.refused import Refused
from backend.settings import MAX_TURNS, Turn, counted, signed
from backend.text.units import words

# The value of the component that shows it, where nothing was asked yet.
EMPTY = "[]"
# Characters of what is said of an answer.
MAX_ABOUT = 300


class Exchange(BaseModel):
    """A question and its answer. about: the method, the target and the length, in a few words."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str
    answer: str
    about: str = Field("", max_length=MAX_ABOUT)


_EXCHANGES = TypeAdapter(list[Exchange])


def read(value: object) -> list[Exchange]:
    """What a component's value holds. ValueError with a sentence where it holds something else."""
    try:
        return _EXCHANGES.validate_json(value if isinstance(value, str) else "")
    except ValidationError as error:
        raise Refused("the conversation cannot be read: press New conversation") from error


def fits(value: object) -> bool:
    """Whether it could be the value of the component."""
    try:
        return len(read(value)) <= MAX_TURNS // 2
    except Refused:
        return False


def written(exchanges: Sequence[Exchange]) -> str:
    """The value of the component that shows them."""
    return _EXCHANGES.dump_json([*exchanges]).decode()


def turns(system: str, value: object) -> tuple[Turn, ...]:
    """The messages before a prompt. system: the system prompt, or "" for the model's own."""
    first = [Turn(role="system", content=system)] if system.strip() else []
    for each in read(value):
        first += [Turn(role="user", content=each.question), Turn(role="assistant", content=each.answer)]
    return tuple(first)


def abouts(value: object) -> list[str]:
    """What a component's value says of each answer."""
    return [each.about for each in read(value)]


def shown(earlier: Sequence[Turn], about: Sequence[str] = ()) -> tuple[str, str]:
    """The inverse of `turns`: the system prompt and the component's value. about: of each answer, or else it is the
    number of its words."""
    system = "".join(turn.content for turn in earlier if turn.role == "system")
    spoken = [turn.content for turn in earlier if turn.role != "system"]
    questions, answers = spoken[::2], spoken[1::2]
    if len(about) != len(answers):
        about = [counted(words(answer), "words") for answer in answers]
    return system, written([
        Exchange(question=question, answer=answer, about=said[:MAX_ABOUT])
        for question, answer, said in zip(questions, answers, about, strict=True)
    ])  # fmt: skip


def ends_with(value: object, run: Trace) -> bool:
    """Whether a run's question and answer are the last of a component's value."""
    last, finish = read(value)[-1:], run.finish
    if not last or finish is None:
        return False
    return (last[0].question, last[0].answer) == (run.settings.prompt, finish.text)


def grown(value: object, run: Trace | None) -> str:
    """The component's value with the question and the answer of a run. ValueError with a sentence where it has none, or
    they stand there last."""
    finish = run.finish if run else None
    if run is None or finish is None or not finish.text.strip():
        raise Refused("there is no answer to go on from yet: press Generate")
    before = read(value)
    if ends_with(value, run):
        raise Refused("this answer is in the conversation already: ask the next question, and press Generate")
    if len(before) >= MAX_TURNS // 2:
        raise Refused(f"a conversation has at most {MAX_TURNS // 2} turns: remove one, or press New conversation")
    return written([*before, Exchange(question=run.settings.prompt, answer=finish.text, about=_about(run))])


def _about(run: Trace) -> str:
    settings, finish = run.settings, run.finish
    assert finish is not None
    method = methods[settings.method]
    if finish.error is None:
        return f"{method.label} · {counted(finish.tokens, 'tokens')}"
    produced: int = getattr(finish, settings.unit)
    goal = counted(produced - finish.error, settings.unit)
    return f"{method.label} · {settings.bound} {goal} · {produced:,} written, {signed(finish.error)}"
