"""The Long context tab: a text read plainly, through a Λ window and under compression, measured side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
from torch import Tensor

from app import charts, controls, live, model, passages, toasts
from app.buttons import QUIET, Buttons
from app.frames import Frame
from app.passages import Passage
from app.runs import Runs, batches
from app.share import settings_of
from app.view import sentence
from backend.capabilities import Capabilities
from backend.engine import Control
from backend.evaluation.perplexity import Chunk, read, read_truncated, tokenise
from backend.positions.policy import Policy
from backend.settings import RunSettings

PLACE = "long"
LAYER = 12
MAX_BYTES = 2_000_000
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
PERIOD = 0.5
TRUNCATION = "Truncation"
POLICIES: dict[str, dict[str, Any]] = {
    "Plain": {},
    "Λ": {},
    "Λ without sinks": {"sinks": 0},
    TRUNCATION: {},
    "Naive × 4": {"pic": "naive", "ratio": 4.0},
    "NTK × 4": {"pic": "ntk", "ratio": 4.0},
    "Dynamic × 4": {"pic": "dynamic", "ratio": 4.0},
}
BUILT_IN, OWN = "Python's reference topics (built in)", "My own text"
CHARTS = (
    ("l-nll", "Likelihood", "Nats per token of the text, by position: lower is better"),
    ("l-entropy", "Attention entropy", "Mean over layers and heads; dashed is the ceiling"),
    ("l-logits", "Attention logits", "Mean score of one head by perceived distance"),
    ("l-states", "First-layer states", "One plane for all readings, each with a symbol of its own"),
    ("l-speed", "Speed", "Tokens read per second"),
    ("l-memory", "Memory", "Size of the key/value cache"),
)


class Plan(NamedTuple):
    """A way to read: its name, its settings, and what reads by them."""

    name: str
    settings: RunSettings
    read: Callable[..., Iterator[Chunk]]


def build(lab: Any, runs: Runs, opens: Callable[..., Any]) -> None:
    """Makes the tab where it is called. opens: the event of the page's opening."""
    choice = model.build(lab.models.names(), "l-", LAYER)
    with gr.Row(elem_classes=["ll-panel", "ll-common"]):
        with gr.Column(scale=3, min_width=300):
            source = gr.Radio([BUILT_IN, OWN], value=BUILT_IN, label="Text", elem_id="l-source")
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
        with gr.Column(scale=3, min_width=260):
            length = gr.Dropdown(
                [(f"{n:,} tokens", n) for n in LENGTHS], value=4096, label="Length", elem_id="l-length"
            )
            window = gr.Slider(16, 8192, 1024, step=1, label="Λ window, in tokens", elem_id="l-window")
            sinks = gr.Slider(0, 256, 10, step=1, label="Sinks: first tokens always seen")
        with gr.Column(scale=2, min_width=200):
            choice.render()
        with gr.Column(scale=2, min_width=200):
            policies = gr.CheckboxGroup(list(POLICIES), value=["Plain", "Λ"], label="Read it", elem_id="l-policies")
            with gr.Row(elem_classes=["ll-buttons"]):
                go = gr.Button("Read", variant="primary", elem_classes=["ll-go"], elem_id="l-go", min_width=90)
                stop = gr.Button("Stop", elem_classes=["ll-stop"], elem_id="l-stop", min_width=70, interactive=False)
    live.figures(
        "long",
        (
            ("policy", "Policy"),
            ("read", "Tokens read"),
            ("perplexity", "Perplexity"),
            ("speed", "Tokens/s"),
            ("memory", "Cache"),
            ("left", "Time left"),
        ),
    )
    queue = gr.HTML("", apply_default_css=False, elem_classes=["ll", "ll-queue"])
    with gr.Row(elem_classes=["ll-grid", "ll-large"]):
        for chart in CHARTS:
            live.chart(*chart)
    stream = live.stream(Frame(_drawn([], None)))
    source.change(lambda chosen: [gr.update(visible=chosen == OWN)] * 2, [source], [own, upload], queue=False, **QUIET)
    upload.upload(_uploaded, [upload], [own], **QUIET)
    choice.tells(lab, opens, lambda can, chosen: {policies: gr.update(**_allowed(can, chosen))}, [policies], [policies])

    def start(
        request: gr.Request,
        source: str,
        own: str,
        length: int,
        window: int,
        sinks: int,
        chosen: list[str],
        *on: Any,
    ) -> Iterator[str]:
        try:
            plans = _plans(window, sinks, chosen, dict(zip(model.NAMES, on, strict=True)))
            with runs.started(request.session_hash, Control(), PLACE) as run:
                yield run.stream.invitation
                run.stream.show(_frame({"state": "busy", "message": "The text is being cut into tokens …"}))
                first = plans[0].settings
                tokens = _tokens(lab, own if source == OWN else built_in(), first, length)
                trained = lab.capabilities(first.model, first.precision).training_length
                readings: list[Passage] = []
                for readings in _readings(lab, tokens, plans, run):
                    drawn = _drawn(readings, trained, id(run))
                    run.stream.show(_frame(_figures(readings[-1], run.control.stopped), drawn))
                yield _frame(_ended(readings, run.control.stopped), _drawn(readings, trained, id(run))).encode()
        except Exception as error:
            words = sentence(error)
            toasts.warn(words, "The text could not be read")
            yield _frame({"state": "bad", "message": words}).encode()

    Buttons(PLACE, go, stop).starts(
        runs,
        start,
        [source, own, length, window, sinks, policies, *choice.inputs],
        [stream],
        queue,
        "long",
    )


@cache
def built_in() -> str:
    """The help topics that come with Python: about 700,000 characters of English prose and code."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def text_of(data: bytes) -> str:
    """An uploaded file as text. ValueError with a sentence where it is too large, not UTF-8 or empty."""
    if len(data) > MAX_BYTES:
        raise ValueError(
            f"the file has {len(data) / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:.0f}: cut it, and upload a part"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the file is not UTF-8 text (byte {error.start:,} does not fit): save it as UTF-8 and upload it again"
        ) from error
    if not text.strip() or "\0" in text:
        raise ValueError("the file holds no text: choose a plain text file")
    return text


def _uploaded(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return text_of(file.read(MAX_BYTES + 1))
    except ValueError as error:
        raise toasts.refusal(sentence(error), "The file was not taken") from error


def _tokens(lab: Any, text: str, settings: RunSettings, length: int) -> Tensor:
    if not text.strip():
        raise ValueError("there is no text: paste one, upload a file, or choose the built-in one")
    if len(text.encode()) > MAX_BYTES:
        raise ValueError(f"the text is longer than {MAX_BYTES / 1e6:.0f} MB: cut it")
    return tokenise(lab, text, settings, length)


def _allowed(can: Capabilities, chosen: Sequence[str]) -> dict[str, Any]:
    """The ways to read that the model allows, those of them that are chosen, and why others are not there."""
    off = {option["id"]: option["off"] for option in controls.pic_options(can)}
    reasons = {name: off[changes.get("pic", "none")] for name, changes in POLICIES.items()}
    names = [name for name, reason in reasons.items() if not reason]
    told = " ".join(dict.fromkeys(filter(None, reasons.values())))
    return {"choices": names, "value": [name for name in chosen if name in names], "info": told or None}


def _plans(window: int, sinks: int, chosen: Sequence[str], on: dict[str, Any]) -> list[Plan]:
    """The ways to read that are chosen. on: the settings of the model."""
    if not chosen:
        raise ValueError("nothing is chosen: tick Plain, Λ or another way to read")
    seen = {"window": window, "sinks": sinks}
    truncated = partial(read_truncated, window=window)
    return [
        Plan(
            name,
            settings_of({"prompt": "…"} | on | (seen if "Λ" in name else {}) | changes),
            truncated if name == TRUNCATION else read,
        )
        for name, changes in POLICIES.items()
        if name in chosen
    ]


def _readings(lab: Any, tokens: Tensor, plans: Sequence[Plan], run: Any) -> Iterator[list[Passage]]:
    """The readings that have begun, after every few chunks, until all are done or stopped."""
    done: list[Passage] = []
    for plan in plans:
        reading = Passage(plan.name, len(tokens), cap=Policy.of(plan.settings).limit)
        for chunks in batches(plan.read(lab, tokens, plan.settings, control=run.control), PERIOD):
            for chunk in chunks:
                reading.add(chunk)
            yield [*done, reading]
        if run.control.stopped:
            return
        done.append(reading)


def _drawn(readings: Sequence[Passage], trained: int | None, run: int = 0) -> dict[str, str]:
    """Values of the charts by name."""
    drawn = [
        passages.nll(readings, trained),
        passages.entropy(readings),
        passages.logits(readings, trained),
        passages.states(readings),
        passages.speed(readings),
        passages.memory(readings),
    ]
    frame = sum(reading.read for reading in readings)
    return {name: charts.encode(chart, run, frame) for (name, *_), chart in zip(CHARTS, drawn, strict=True)}


def _frame(figures: dict[str, Any], drawn: dict[str, str] | None = None) -> Frame:
    return Frame((drawn or {}) | {"long": live.fill(**figures)}, running=figures["state"] == "busy")


def _figures(reading: Passage, stopped: bool) -> dict[str, Any]:
    speed = reading.speed[-1]
    left = (reading.wanted - reading.read) / speed if speed else 0
    return {
        "policy": reading.name,
        "read": f"{reading.read:,}",
        "perplexity": f"{reading.perplexity:,.4g}",
        "speed": f"{speed:,.0f}",
        "memory": f"{reading.cache[-1] / 2**20:.1f} MiB",
        "left": f"{left:,.0f} s",
        "progress": reading.read / reading.wanted,
        "state": "busy",
        "message": "Stopping …" if stopped else f"Reading {reading.wanted:,} tokens: {reading.name}",
    }


def _ended(readings: Sequence[Passage], stopped: bool) -> dict[str, Any]:
    if not readings:
        return {"state": "good", "message": "Stopped before anything was read."}
    words = "Stopped: what was read so far is shown." if stopped else _conclusion(readings)
    return _figures(readings[-1], stopped) | {"left": "–", "state": "good", "message": words}


def _conclusion(readings: Sequence[Passage]) -> str:
    told = [
        f"{reading.name} perplexity {reading.perplexity:,.4g}, {reading.speed[-1]:,.0f} tokens/s at the end, "
        f"{reading.cache[-1] / 2**20:.1f} MiB of cache"
        for reading in readings
    ]
    return f"Over {readings[0].read:,} tokens: {'; '.join(told)}."
