"""The page for teachers: lessons for 45 minutes, what to say and to expect, a worksheet and its answers."""

from __future__ import annotations

from html import escape

from app.lessons import lessons
from app.lessons.lesson import Figure, Lesson
from app.outcome import READ

# For 45 minutes, in this order.
ORDER = ("ask_for_sixty", "why_ends_are_hard", "what_a_window_forgets", "what_sinks_are_for")


def page() -> str:
    """The order for 45 minutes, what to say and to expect, and the worksheet."""
    found = lessons()
    first = [found[name] for name in ORDER]
    titles = escape(", ".join(lesson.title for lesson in first))
    minutes = sum(lesson.minutes for lesson in first)
    rows = "".join(
        f"<tr><th scope='row'><p>{escape(each.title)}</p>"
        f'<button type="button" data-lesson="{escape(each.name)}">Start</button></th>'
        f"<td>{each.minutes} min</td><td>{escape(each.teacher.say)}</td>"
        f"<td><p>{escape(each.teacher.expect)}</p>{_ranges(each)}</td><td>{escape(each.misconception)}</td></tr>"
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
        f"{_measures(lesson)}<p><b>Check.</b> {escape(lesson.check.question)}</p>"
        '<p class="ll-line"></p></section>'
    )


def _answers(lesson: Lesson) -> str:
    right = lesson.predict.right
    said = "" if right is None else f"<p><b>Predict.</b> {escape(lesson.predict.choices[right])}.</p>"
    return (
        f"<section><h2>{escape(lesson.title)}</h2>{said}<p><b>Run.</b> {escape(lesson.teacher.expect)}</p>"
        f"{_ranges(lesson)}<p><b>Check.</b> {escape(lesson.check.answer)}</p></section>"
    )


def _ranges(lesson: Lesson) -> str:
    """What each run comes to."""
    rows = "".join(f"<dt>{escape(each.of)}</dt><dd>{escape(_range(each))}</dd>" for each in lesson.figures)
    return f'<dl class="ll-ranges">{rows}</dl>'


def _range(figure: Figure) -> str:
    least, most = f"{figure.least:,g}", f"{figure.most:,g}"
    span = least if least == most else f"{least} to {most}"
    return f"{figure.unit} {span}" if figure.unit == READ else f"{span} {figure.unit}"


def _measures(lesson: Lesson) -> str:
    """A line for each figure that the run shows, and one for what else is seen."""
    rows = "".join(
        f'<dt>{escape(each.of)}</dt><dd class="ll-line">{escape(each.unit)}</dd>' for each in lesson.figures
    )
    return f'<dl class="ll-ranges">{rows}</dl><p class="ll-line"></p>'
