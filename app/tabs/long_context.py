"""The Read far tab: a text read plainly, through a Λ window and under compression, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import gradio as gr
import orjson

from app import charts, controls, kept, live, model, outcome, plans, setting, toasts, veil
from app.buttons import QUIET, Buttons
from app.frames import Frame
from app.lessons import lessons
from app.plans import NOTHING, NUMBER, POLICIES, WRITE, Plan, Task
from app.runs import Runs
from app.series import RunSeries
from app.sight import sight
from app.stage import Stage
from app.taking_up import Place
from app.view import failed, sentence
from backend.inference.control import Control
from backend.models.capabilities import Capabilities
from backend.refused import Refused
from backend.settings import RunSettings

PLACE: Final = "long"
HINT = (
    "After each reading the model writes on. Or it is asked for a number hidden earlier: can it still find it?"
)
MAX_BYTES = 2_000_000
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
CHAPTER, BUILT_IN, OWN = (
    "Dombey and Son, chapter XIV (built in)",
    "Python's reference topics (built in)",
    "My own text",
)
NOVEL = Path(__file__).parents[2] / "assets" / "texts" / "dombey_and_son.txt"
BOTH = "Reads once more by each position policy that is ticked, through the Λ window."
SIGHT = "Marked: what the next token still sees. Grey: what this way to read has lost."
# The scene that plays texts of 8,192 to 32,768 tokens, as they were measured.
FARTHER = "it_breaks_and_is_repaired"
FIGURES = (
    ("policy", "Policy"),
    ("read", "Tokens read"),
    ("perplexity", "Perplexity"),
    ("speed", "Tokens/s"),
    ("memory", "Cache"),
    ("left", "Time left"),
)
# What is asked for, beside the model.
ASKED = ("source", "own", "length", "window", "sinks", "ratio", "then", "depth", "policies", "both")
# Of these, what tells how long it takes.
ESTIMATED = ("length", "window", "sinks", "ratio", "policies", "both")
# A text of one's own, and a place for a number, count where they are asked for.
SHOWS = f"(name, form) => name === 'own' ? form.source === '{OWN}' : name !== 'depth' || form.then === '{NUMBER}'"
# What the charts show before a text is read.
NOTHING_READ = (RunSeries(RunSettings(prompt="…"), "Plain", to_read=1),)


def build(lab: Any, runs: Runs, opens: Callable[..., Any]) -> tuple[dict[str, Any], Place]:
    """Makes the tab where it is called; returns its form's parts by name, and where it shows runs.

    opens: the event of the page's opening.
    """
    choice = model.build(lab.models.names(), "l-")
    with gr.Row(elem_classes=["ll-toolbar"]):
        first = gr.Row(elem_classes=["ll-presets"])
    with gr.Row(elem_classes=["ll-panel", "ll-common"]):
        source, own = _text()
        length, window, sinks, ratio = _extent()
        with gr.Column(scale=2, min_width=200):
            choice.render()
            then, depth = _afterwards()
        policies, both, about, buttons = _policies()
    live.figures("long", FIGURES)
    queue = gr.HTML("", apply_default_css=False, elem_classes=["ll", "ll-queue"])
    live.answers("l-answers", "What it writes next", HINT)
    live.sight("l-sight", "What it still sees of the text", SIGHT)
    with gr.Row(elem_classes=["ll-grid", "ll-large"]):
        live.charts(PLACE, NOTHING_READ)
    stream = live.stream(Frame(charts.parts(PLACE, NOTHING_READ)), kept.frames(PLACE, "long"))
    asked: list[Any] = [length, window, sinks, ratio, policies, both, choice.model]
    opens(_estimate, asked, [about], queue=False, **QUIET)
    for part in asked:
        part.change(_estimate, asked, [about], queue=False, **QUIET)

    def tell(can: Capabilities, chosen: Sequence[str]) -> dict[Any, Any]:
        no_window = can.unsupported.get("window")
        return {
            policies: gr.update(**_allowed(can, chosen)),
            both: gr.update(interactive=not no_window, info=no_window or BOTH),
        }

    choice.tells(lab, opens, tell, [policies, both], [policies])

    def start(request: gr.Request, *given: Any) -> Iterator[str]:
        yield from _read(lab, runs, request, *given)

    inputs = [source, own, length, window, sinks, ratio, then, depth, policies, both, *choice.inputs]
    form = dict(zip((*ASKED, *model.NAMES), inputs, strict=True))
    place = Place(stream, buttons)
    with first:
        buttons.resting = _examples(Stage(form, "far", place))
    veil.follows(PLACE, form, buttons.go, SHOWS)
    buttons.starts(runs, start, inputs, [stream], queue, "long")
    buttons.shares(form)
    return form, place


def _examples(stage: Stage) -> list[gr.Button]:
    """A button for each lesson that runs here: it fills the form and reads. Each says about how long that takes."""
    gr.HTML("<span>See in seconds</span>", apply_default_css=False, elem_classes=["ll"])
    made, go = [], stage.buttons["go"]
    for lesson in lessons().values():
        if lesson.run.tab == PLACE:
            values = dict(zip(stage.boxes, stage.values(lesson.run.settings), strict=True))
            words = f"{lesson.title} ({plans.duration(max(1, _seconds(*(values[name] for name in ESTIMATED))))})"
            button = gr.Button(words, size="sm", elem_id=f"l-{lesson.name.replace('_', '-')}", min_width=60)
            filled = button.click(partial(stage.values, lesson.run.settings), None, [*stage.boxes.values()], **QUIET)
            filled.success(None, None, None, js=f"() => LengthLab.presses('{go}')", **QUIET)
            made.append(button)
    recorded = f'<button type="button" class="ll-recorded" data-plays="{FARTHER}">8k to 32k tokens (recorded)</button>'
    gr.HTML(recorded, apply_default_css=False, elem_classes=["ll"])
    return made


def _text() -> tuple[gr.Radio, gr.Textbox]:
    """What is read: one of the built-in texts, or one's own, pasted or uploaded."""
    with gr.Column(scale=3, min_width=300):
        source = gr.Radio([CHAPTER, BUILT_IN, OWN], value=CHAPTER, label="Text", elem_id="l-source")
        own = gr.Textbox(
            label="Paste a text, or upload a UTF-8 file of at most 2 MB",
            lines=4,
            max_lines=8,
            visible=False,
            elem_id="l-own",
        )
        upload = gr.UploadButton(
            "Upload a text file", size="sm", file_types=["text", ".md", ".txt"], visible=False, elem_id="l-upload"
        )
    source.change(lambda chosen: [gr.update(visible=chosen == OWN)] * 2, [source], [own, upload], queue=False, **QUIET)
    upload.upload(_uploaded, [upload], [own], **QUIET)
    return source, own


def _extent() -> tuple[gr.Dropdown, gr.Slider, gr.Slider, gr.Slider]:
    """How much is read, and how far the policies see: length, window, sinks, ratio."""
    with gr.Column(scale=3, min_width=260):
        return (
            gr.Dropdown([(f"{n:,} tokens", n) for n in LENGTHS], value=4096, label="Length", elem_id="l-length"),
            gr.Slider(16, 8192, 1024, step=1, label="Λ window, in tokens", elem_id="l-window"),
            setting.control("sinks", elem_id=None),
            gr.Slider(0.125, 64, 4, step=0.125, label="PIC ratio", elem_id="l-ratio"),
        )


def _afterwards() -> tuple[gr.Radio, gr.Slider]:
    """What the model does after reading, and where a number is hidden for it."""
    then = gr.Radio([NOTHING, WRITE, NUMBER], value=WRITE, label="What it does next", elem_id="l-then")
    depth = gr.Slider(
        0, 100, 30, step=1, label="Where the number lies, % of the text", visible=False, elem_id="l-depth"
    )
    then.change(lambda chosen: gr.update(visible=chosen == NUMBER), [then], [depth], queue=False, **QUIET)
    return then, depth


def _policies() -> tuple[gr.CheckboxGroup, gr.Checkbox, Any, Buttons]:
    """The policies to read by, how long that takes, and the buttons."""
    with gr.Column(scale=2, min_width=200):
        policies = gr.CheckboxGroup(list(POLICIES), value=["Plain", "Λ"], label="Ways of reading", elem_id="l-policies")
        both = gr.Checkbox(False, label="Λ on the others too", info=BOTH, elem_id="l-both")
        about = live.note(elem_id="l-about")
        with gr.Row(elem_classes=["ll-buttons"]):
            go = gr.Button("Read", variant="primary", elem_classes=["ll-go"], elem_id="l-go", min_width=90)
            stop = gr.Button("Stop", elem_classes=["ll-stop"], elem_id="l-stop", min_width=70, interactive=False)
            link = gr.Button("Copy link", elem_id="l-link", min_width=90)
    return policies, both, about, Buttons(PLACE, go, stop, link=link)


def _read(
    lab: Any,
    runs: Runs,
    request: gr.Request,
    source: str,
    own: str,
    length: int,
    window: int,
    sinks: int,
    ratio: float,
    then: str,
    depth: int,
    chosen: list[str],
    both: bool,
    *on: Any,
) -> Iterator[str]:
    try:
        ways = plans.plans(window, sinks, ratio, chosen, dict(zip(model.NAMES, on, strict=True)), both)
        with runs.started(request.session_hash, control := Control(), PLACE) as run:
            yield run.stream.invitation
            run.stream.show(_frame({"state": "busy", "message": "The text is being cut into tokens …"}))
            first = ways[0].settings
            todo = plans.task(lab, _checked(_chosen(source, own)), first, length, then, depth / 100)
            readings: list[RunSeries] = []
            since = time.monotonic()
            tokenizer = lab.models.load(first.model, first.precision).tokenizer

            def drawn() -> dict[str, str]:
                return _drawn(readings) | _answers(todo, readings) | _seen(tokenizer, todo, ways, readings)

            for readings in plans.readings(lab, todo, ways, control):
                seconds = plans.left(ways, readings, since)
                run.stream.show(_frame(_figures(readings[-1], seconds, control.stopped), drawn()))
            run.outcomes += outcome.readings(readings, todo.number)
            yield run.ends(_frame(_ended(readings, length, control.stopped), drawn()))
    except Exception as error:
        yield failed("long", error, "The text could not be read")


def _chosen(source: str, own: str) -> str:
    if source == OWN:
        return own
    return built_in() if source == BUILT_IN else chapter()


@cache
def chapter() -> str:
    """A chapter of Dickens, of about 58,000 characters."""
    return NOVEL.read_text("utf-8")


@cache
def built_in() -> str:
    """The help topics that come with Python: about 700,000 characters of English prose and code."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def text_of(data: bytes) -> str:
    """An uploaded file as text. ValueError with a sentence where it is too large, not UTF-8 or empty."""
    if len(data) > MAX_BYTES:
        raise Refused(
            f"the file has {len(data) / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:.0f}: cut it, and upload a part"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(
            f"the file is not UTF-8 text (byte {error.start:,} does not fit): save it as UTF-8 and upload it again"
        ) from error
    if not text.strip() or "\0" in text:
        raise Refused("the file holds no text: choose a plain text file")
    return text


def _uploaded(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return text_of(file.read(MAX_BYTES + 1))
    except ValueError as error:
        raise toasts.refusal(sentence(error), "The file was not taken") from error


def _checked(text: str) -> str:
    if not text.strip():
        raise Refused("there is no text: paste one, upload a file, or choose the built-in one")
    if len(text.encode()) > MAX_BYTES:
        raise Refused(f"the text is longer than {MAX_BYTES / 1e6:.0f} MB: cut it")
    return text


def _allowed(can: Capabilities, chosen: Sequence[str]) -> dict[str, Any]:
    """The ways to read that the model allows, those of them that are chosen, and why others are not there."""
    off = {option["id"]: option["off"] for option in controls.pic_options(can)}
    reasons = {name: off[changes.get("pic", "none")] for name, changes in POLICIES.items()}
    names = [name for name, reason in reasons.items() if not reason]
    info = " ".join(dict.fromkeys(filter(None, reasons.values())))
    return {"choices": names, "value": [name for name in chosen if name in names], "info": info or None}


def _drawn(readings: Sequence[RunSeries]) -> dict[str, str]:
    """Values of the charts by name."""
    return charts.parts(PLACE, readings or NOTHING_READ, sum(reading.read for reading in readings))


def _answers(todo: Task, readings: Sequence[RunSeries]) -> dict[str, str]:
    """What was written after each reading, under what the text says itself."""
    rows = [["The number" if todo.number else "The text itself", todo.own, ""]] if todo.own else []
    for reading in readings:
        if reading.written:
            verdict = ("Found" if todo.number in reading.written else "Not found") if todo.number else ""
            rows.append([reading.name, reading.written, verdict])
    return {"l-answers": orjson.dumps(rows).decode()}


def _seen(tokenizer: Any, todo: Task, ways: Sequence[Plan], readings: Sequence[RunSeries]) -> dict[str, str]:
    """What each way has lost of the text so far; nothing while all see all of it."""
    begun = [(plan, reading.read) for plan, reading in zip(ways, readings, strict=False) if reading.read]
    found = [sight(tokenizer, todo.tokens[:read], plan) for plan, read in begun]
    return {"l-sight": orjson.dumps(found if any(each.lost for each in found) else []).decode()}


def _frame(figures: dict[str, Any], drawn: dict[str, str] | None = None) -> Frame:
    return Frame((drawn or {}) | {"long": live.fill(**figures)}, running=figures["state"] == "busy")


def _figures(reading: RunSeries, seconds: float, stopped: bool) -> dict[str, Any]:
    doing = "Writing after" if reading.written else "Reading"
    return {
        "policy": reading.name,
        "read": f"{reading.read:,}",
        "perplexity": f"{reading.perplexity:,.4g}",
        "speed": f"{reading.throughput[-1]:,.0f}",
        "memory": f"{reading.cache_bytes[-1] / 2**20:.1f} MiB",
        "left": plans.duration(seconds),
        "progress": reading.read / reading.to_read,
        "state": "busy",
        "message": "Stopping …" if stopped else f"{doing} {reading.to_read:,} tokens: {reading.name}",
    }


def _ended(readings: Sequence[RunSeries], length: int, stopped: bool) -> dict[str, Any]:
    if not readings:
        return {"state": "good", "message": "Stopped before anything was read."}
    words = "Stopped: what was read so far is shown." if stopped else _conclusion(readings, length)
    return _figures(readings[-1], 0, stopped) | {"left": "–", "state": "good", "message": words}


def _conclusion(readings: Sequence[RunSeries], length: int) -> str:
    sentences = [
        f"{reading.name} perplexity {reading.perplexity:,.4g}, {reading.throughput[-1]:,.0f} tokens/s at the end, "
        f"{reading.cache_bytes[-1] / 2**20:.1f} MiB of cache"
        for reading in readings
    ]
    whole = ", all that the text has" if readings[0].read < length else ""
    return f"Over {readings[0].read:,} tokens{whole}: {'; '.join(sentences)}."


def _estimate(
    length: int, window: int, sinks: int, ratio: float, chosen: list[str], both: bool, named: str
) -> str:
    """About how long it will take, where that was measured: for the embedded model."""
    if named != "embedded" or not chosen:
        return live.noted("")
    each = _each(length, window, sinks, ratio, chosen, both)
    slowest = max(each, key=lambda name: each[name])
    words = f"About {plans.duration(sum(each.values()))} on two cores"
    return live.noted(f"{words}, most of it {slowest}." if len(each) > 1 else f"{words}.")


def _each(
    length: int, window: int, sinks: int, ratio: float, chosen: list[str], both: bool
) -> dict[str, float]:
    """Seconds that each way takes with the embedded model."""
    ways = plans.plans(window, sinks, ratio, chosen, {"model": "embedded"}, both)
    return {plan.name: plan.seconds(length) for plan in ways}


def _seconds(*asked: Any) -> float:
    return sum(_each(*asked).values())
