"""The Lessons tab: lessons that run on the other tabs, a page for teachers, and the ideas in short."""

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
from app.stage import Stage
from app.tabs.ideas import IDEAS

Predicted = Callable[[str | None, Prediction], None]
# For 45 minutes, in this order.
ORDER = ("ask_for_sixty", "why_ends_are_hard", "what_a_window_forgets", "what_sinks_are_for")


def build() -> None:
    """Makes the tab where it is called."""
    gr.HTML(_cards(), apply_default_css=False, elem_id="lessons", elem_classes=["ll"])
    with gr.Accordion("For teachers", open=False, elem_id="teachers"):
        gr.HTML(_teachers(), apply_default_css=False, elem_classes=["ll"])
    with gr.Accordion("The ideas in short", open=False, elem_id="ideas"), gr.Row(elem_classes=["ll-ideas"]):
        for idea in IDEAS:
            with gr.Column(elem_classes=["ll-panel", "ll-idea"], min_width=320):
                gr.Markdown(
                    f"### {idea.title}\n{idea.words}",
                    latex_delimiters=[{"left": "$", "right": "$", "display": False}],
                )


def panel(tabs: gr.Tabs, stages: Mapping[str, Stage], predicted: Predicted = lambda session, prediction: None) -> None:
    """The panel of a lesson, which stays while it runs on another tab. stages: by the ids of the tabs. predicted: hears
    what a session predicts when it runs one."""
    shown = live.lesson([lesson.model_dump() for lesson in lessons().values()])
    boxes = [box for stage in stages.values() for box in stage.boxes.values()]

    def run(request: gr.Request, asked: str) -> list[Any]:
        given = json.loads(asked)
        lesson = lessons()[given["run"]]
        predicted(request.session_hash, prediction(lesson, given))
        filled: list[Any] = []
        for tab, stage in stages.items():
            here = tab == lesson.run.tab
            filled += stage.values(lesson.run.settings) if here else [gr.skip()] * len(stage.boxes)
        return [gr.Tabs(selected=stages[lesson.run.tab].tab), *filled]

    buttons = json.dumps({tab: stage.go for tab, stage in stages.items()})
    shown.input(run, [shown], [tabs, *boxes], **QUIET).success(
        None, [shown], None, js=f"(asked) => LengthLab.runLesson(asked, {buttons})", **QUIET
    )


def prediction(lesson: Lesson, given: Mapping[str, Any]) -> Prediction:
    """What a page says that it predicts, where that answers the lesson's question."""
    asked, number, choice = lesson.predict, given.get("number"), given.get("choice")
    numbered = isinstance(number, int | float) and asked.least <= number <= asked.most and not asked.choices
    chosen = isinstance(choice, int) and 0 <= choice < len(asked.choices)
    return Prediction(lesson.name, number if numbered else None, choice if chosen else None)


def _cards() -> str:
    return f'<ol class="ll-cards">{"".join(map(_card, lessons().values()))}</ol>'


def _card(lesson: Lesson) -> str:
    return (
        f'<li class="ll-panel"><h2>{escape(lesson.title)}</h2><p class="ll-hint">{lesson.minutes} minutes</p>'
        f"<p>{escape(lesson.idea)}</p>"
        f'<button type="button" data-lesson="{escape(lesson.name)}">Start</button></li>'
    )


def _teachers() -> str:
    """The order for 45 minutes, what to say and to expect, and the worksheet."""
    found = lessons()
    first = [found[name] for name in ORDER]
    titles = escape(", ".join(lesson.title for lesson in first))
    minutes = sum(lesson.minutes for lesson in first)
    rows = "".join(
        f"<tr><th scope='row'>{escape(each.title)}</th><td>{each.minutes} min</td><td>{escape(each.teacher.say)}</td>"
        f"<td>{escape(each.teacher.expect)}</td><td>{escape(each.misconception)}</td></tr>"
        for each in found.values()
    )
    return f"""
<div class="ll-teachers"><p>For 45 minutes: {titles} ({minutes} minutes, and the
rest to talk). Numbers are of the model that comes with the lab; other processors round otherwise, so expect ranges.</p>
<p>Start the lab with <code>make demo ARGS="--class"</code> and students join by a code or a QR code: their predictions
and runs become dots on a screen of yours. No names are asked for, and nothing is kept once you close the class.</p>
<div class="ll-scroll"><table><thead><tr><th>Lesson</th><th>Time</th><th>What to say</th><th>What the runs show</th>
<th>What it takes away</th></tr></thead><tbody>{rows}</tbody></table></div>
<p><button type="button" data-print="worksheet">Print the worksheet</button>
<button type="button" data-print="key">Print the answers</button></p>
<div class="ll-worksheet">{"".join(map(_sheet, found.values()))}</div>
<div class="ll-key">{"".join(map(_answers, found.values()))}</div></div>"""


def _sheet(lesson: Lesson) -> str:
    choices = "".join(f"<li>☐ {escape(choice)}</li>" for choice in lesson.predict.choices)
    space = f"<ul>{choices}</ul>" if choices else f'<p class="ll-line">{escape(lesson.predict.unit)}</p>'
    return (
        f"<section><h2>{escape(lesson.title)}</h2><p><b>Predict.</b> {escape(lesson.predict.question)}</p>{space}"
        f"<p><b>Run.</b> {escape(lesson.run.words)}</p><p><b>Look.</b> {escape(lesson.look)}</p>"
        f'<p class="ll-line"></p><p><b>Check.</b> {escape(lesson.check.question)}</p><p class="ll-line"></p></section>'
    )


def _answers(lesson: Lesson) -> str:
    right = lesson.predict.right
    said = "" if right is None else f"<p><b>Predict.</b> {escape(lesson.predict.choices[right])}.</p>"
    return (
        f"<section><h2>{escape(lesson.title)}</h2>{said}<p><b>Run.</b> {escape(lesson.teacher.expect)}</p>"
        f"<p><b>Check.</b> {escape(lesson.check.answer)}</p></section>"
    )
