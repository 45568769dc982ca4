"""The Lessons tab: lessons that run on the other tabs, and the ideas in short."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import gradio as gr

from app import live
from app.buttons import QUIET
from app.classroom.room import Prediction
from app.lessons import lessons
from app.lessons.lesson import Lesson
from app.recorded import recorded
from app.stage import Stage
from app.tabs import teachers
from app.tabs.ideas import IDEAS

Predicted = Callable[[str | None, Prediction, bool], None]
# A longer wait is spared by the recorded run. In seconds.
PATIENCE = 15


def build() -> None:
    """Makes the tab where it is called."""
    gr.HTML(_cards(), apply_default_css=False, elem_id="lessons", elem_classes=["ll"])
    with gr.Accordion("For teachers", open=False, elem_id="teachers"):
        gr.HTML(teachers.page(), apply_default_css=False, elem_classes=["ll"])
    with gr.Accordion("The ideas in short", open=False, elem_id="ideas"), gr.Row(elem_classes=["ll-ideas"]):
        for idea in IDEAS:
            with gr.Column(elem_classes=["ll-panel", "ll-idea"], min_width=320):
                gr.Markdown(
                    f"### {idea.title}\n{idea.words}",
                    latex_delimiters=[{"left": "$", "right": "$", "display": False}],
                )


def panel(
    tabs: gr.Tabs, stages: Mapping[str, Stage], waits: Callable[[], float] = lambda: 0.0,
    predicted: Predicted = lambda session, prediction, runs: None,
) -> None:  # fmt: skip
    """The panel of a lesson, which stays while it runs on another tab. stages: by the ids of the tabs. waits: about how
    many seconds pass before a run would begin. predicted: hears what a session predicts when it runs one, and whether
    a run of its own will answer that."""
    shown = live.lesson(
        [shows(lesson) | stages[lesson.run.tab].buttons for lesson in lessons().values()], PATIENCE
    )
    answered = gr.Textbox(visible="hidden")
    boxes = [box for stage in stages.values() for box in stage.boxes.values()]
    streams = [stage.place.stream for stage in stages.values()]
    left = [part for stage in stages.values() for part in stage.place.left]

    def run(request: gr.Request, asked: str) -> list[Any]:
        given = json.loads(asked)
        lesson = lessons()[given["run"]]
        kept = recorded(lesson.name)
        plays = kept if given.get("recorded") or (not given.get("live") and waits() > PATIENCE) else None
        predicted(request.session_hash, prediction(lesson, given), plays is None)
        here = [tab == lesson.run.tab for tab in stages]
        filled: list[Any] = []
        # A recorded run leaves nothing but its frame.
        gone: list[Any] = []
        for at, stage in zip(here, stages.values(), strict=True):
            filled += stage.values(lesson.run.settings) if at else [gr.skip()] * len(stage.boxes)
            gone += [None if plays and at else gr.skip()] * len(stage.place.left)
        frames = [plays.shown() if plays and at else gr.skip() for at in here]
        answer = {"run": lesson.name, "turn": given.get("turn"), "recorded": plays is not None}
        return [gr.Tabs(selected=stages[lesson.run.tab].tab), json.dumps(answer), *filled, *frames, *gone]

    shown.input(run, [shown], [tabs, answered, *boxes, *streams, *left], **QUIET).success(
        None, [answered], None, js="(answer) => LengthLab.runLesson(answer)", **QUIET
    )


def shows(lesson: Lesson) -> dict[str, Any]:
    """What the page knows of a lesson: its fields, and how many seconds its recorded run took, None without one."""
    found = recorded(lesson.name)
    return lesson.model_dump() | {"seconds": found and found.seconds}


def prediction(lesson: Lesson, given: Mapping[str, Any]) -> Prediction:
    """What a page says that it predicts, where that answers the lesson's question."""
    asked, number, choice = lesson.predict, given.get("number"), given.get("choice")
    numbered = isinstance(number, int | float) and asked.least <= number <= asked.most and not asked.choices
    chosen = isinstance(choice, int) and 0 <= choice < len(asked.choices)
    return Prediction(lesson.name, number if numbered else None, choice if chosen else None)


def _cards() -> str:
    return f'<ol class="ll-cards">{"".join(map(_card, lessons().values()))}</ol>'


def _card(lesson: Lesson) -> str:
    found = recorded(lesson.name)
    minutes = f"{lesson.minutes} minutes"
    needs = f"{minutes}, needs about {max(1, round(found.seconds))} s of computing" if found else minutes
    return (
        f'<li class="ll-panel"><h2>{escape(lesson.title)}</h2><p class="ll-hint">{needs}</p>'
        f"<p>{escape(lesson.idea)}</p>"
        f'<button type="button" data-lesson="{escape(lesson.name)}">Start</button></li>'
    )
