"""The form of a run's settings: its components, and the way between their values and RunSettings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, get_args

import gradio as gr

from app import conversation, live
from app.buttons import QUIET
from app.model import ModelChoice
from app.share import flat, settings_of
from backend.methods import methods
from backend.models import adapters
from backend.models.adapters import LongformSettings
from backend.models.capabilities import Capabilities
from backend.positions import policies
from backend.refused import Refused
from backend.settings import (
    CAP,
    MAX_NEW_TOKENS,
    Method,
    RunSettings,
    Unit,
    cap_for,
)

DEFAULT_PROMPT = "Why is the sky blue, and why does it turn red in the evening?"
_PLAIN = RunSettings(prompt=DEFAULT_PROMPT)
UNCOMPRESSED = [_PLAIN.pic, _PLAIN.ratio, _PLAIN.initial, _PLAIN.recent]
PROMPTS = {
    "Blue sky": DEFAULT_PROMPT,
    "A short story": "Write a short story about a lighthouse keeper who collects clouds.",
    "Bicycles": "Explain to a child how a bicycle stays upright.",
    "Five tips": "List five ways to save water at home, with one sentence for each.",
}
ON, OFF, CUSTOM = "on", "off", "number"


@dataclass
class Form:
    """Components by name, in a fixed order that every event shares."""

    parts: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["parts"][name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def inputs(self) -> list[Any]:
        """The components, in the order of the values that `settings` takes."""
        return list(self.parts.values())

    @property
    def labels(self) -> dict[str, str]:
        """What the settings are called on the page."""
        return {name: part.label for name, part in self.parts.items() if part.label}

    def settings(self, values: Sequence[Any]) -> RunSettings:
        """The run that the values ask for; ValueError with a sentence where they make none."""
        chosen = dict(zip(self.parts, values, strict=True))
        empty = [name for name, value in chosen.items() if value is None]
        if empty:
            raise Refused(f"“{self.labels.get(empty[0], empty[0])}” is empty: give a number, or press Reset")
        window, limit, cap = chosen.pop("windowed"), chosen.pop("limit_kind"), chosen.pop("limit_number")
        if not window:
            chosen["window"] = None
        chosen["earlier"] = conversation.turns(chosen.pop("system"), chosen.pop("talk"))
        return settings_of(chosen | {"distance_limit": int(cap) if limit == CUSTOM else limit})

    def values(self, given: RunSettings | Mapping[str, Any], about: Sequence[str] = ()) -> list[Any]:
        """Values that show the settings; a mapping may name only some, the rest take their defaults.

        about: what is said of each answer of the conversation before the prompt.
        A slider cannot leave its range: a number beyond it is shown as the range's end (see `beyond`).
        """
        return [_within(self.parts[name], value) for name, value in self._wanted(given, about).items()]

    def lacks(self, model: str) -> bool:
        """Whether a model is not among those to choose from, so that the form shows the first of these instead."""
        return all(value != model for _, value in self.parts["model"].choices)

    def beyond(self, given: Mapping[str, Any]) -> list[str]:
        """Names of the settings that the form's ranges cannot show as they are."""
        return [name for name, value in self._wanted(given).items() if _within(self.parts[name], value) != value]

    def _wanted(self, given: RunSettings | Mapping[str, Any], about: Sequence[str] = ()) -> dict[str, Any]:
        whole = given if isinstance(given, RunSettings) else settings_of({"prompt": DEFAULT_PROMPT} | dict(given))
        chosen = flat(whole)
        window, limit, name = chosen["window"], chosen["distance_limit"], chosen["model"]
        system, talk = conversation.shown(whole.earlier, about)
        shown = chosen | {
            "system": system,
            "talk": talk,
            "model": self.parts["model"].value if self.lacks(name) else name,
            "windowed": window is not None,
            "window": window or 512,
            "limit_kind": limit if isinstance(limit, str) else CUSTOM,
            "limit_number": limit if isinstance(limit, int) else 512,
        }
        return {name: shown[name] for name in self.parts}

    @property
    def policy(self) -> list[Any]:
        """The components that decide the position policy, and with it the previews."""
        names = (
            "prompt",
            "talk",
            "system",
            "max_new_tokens",
            "pic",
            "ratio",
            "initial",
            "recent",
            "reading",
            "prefill",
            "windowed",
            "window",
            "sinks",
            "limit_kind",
            "limit_number",
        )
        return [self.parts[name] for name in names]


def _within(part: Any, value: Any) -> Any:
    if isinstance(part, gr.Slider):
        return min(max(value, part.minimum), part.maximum)
    return value


def build(prompt: gr.Textbox, talk: gr.HTML, choice: ModelChoice, missing: Mapping[Any, str | None]) -> Form:
    """Makes the form around `prompt`, the conversation before it (`talk`) and `choice` in the current Gradio context.
    missing: why a length method cannot be used, or None where it can."""
    parts: dict[str, Any] = {"prompt": prompt, "talk": talk}
    _length(parts, missing)
    _instruction(parts)
    _position(parts)
    _window(parts)
    _sampling(parts)
    _model(parts, choice)
    _method_follows(parts)
    _cap_follows(parts)
    return Form(parts)


def _length(parts: dict[str, Any], missing: Mapping[Any, str | None]) -> None:
    with gr.Column(elem_classes=["ll-panel"]):
        live.heading("Length", "how much it writes")
        parts["method"] = live.choice("method", "Method", method_options(missing), "none")
        with gr.Row():
            parts["target"] = gr.Slider(
                1, 1000, 100, step=1, label="Target", elem_id="target", scale=3, interactive=False
            )
            parts["unit"] = gr.Dropdown(
                [*get_args(Unit)],
                value="tokens",
                label="Unit",
                scale=1,
                min_width=110,
                interactive=False,
            )
        gr.HTML(
            '<p class="ll-hint">Each Han or kana character counts as a word; a character is what a reader sees as one, '
            "a family of emoji too.</p>"
        )
        parts["landing"] = gr.Slider(
            0,
            32,
            0,
            step=1,
            label="Landing",
            info="endings tried near the target or limit, to finish a sentence there; 0 is off",
            visible=False,
            elem_id="landing",
        )
        parts["in_prompt"] = gr.Checkbox(
            False,
            label="Say the length in the prompt too",
            info="more answers come to an end",
            visible=False,
            elem_id="in_prompt",
        )
        parts["limit"] = gr.Slider(
            1, 1000, 200, step=1, label="Limit, in tokens", visible=False, elem_id="limit", **_limit(missing)
        )
        parts["max_new_tokens"] = gr.Slider(1, 4096, 256, step=1, label="Cap on new tokens", elem_id="cap")


def _instruction(parts: dict[str, Any]) -> None:
    with gr.Column(elem_classes=["ll-panel"]):
        live.heading("Instruction", "what it reads first")
        parts["system"] = gr.Textbox(
            "", label="System prompt", lines=1, max_lines=6, elem_id="system", placeholder="empty: the model's own"
        )


def _position(parts: dict[str, Any]) -> None:
    with gr.Column(elem_classes=["ll-panel"]):
        live.heading("Position", "how far apart tokens seem")
        parts["pic"] = live.choice("pic", "Compression", pic_options(None), "none")
        parts["ratio"] = gr.Slider(
            0.1, 64, 1, step=0.05, label="Ratio", info="above 1 compresses, below 1 stretches", elem_id="ratio"
        )
        with gr.Column(elem_classes=["adv"]):
            parts["initial"] = gr.Slider(0, 1024, 4, step=1, label="Initial tokens left alone", elem_id="initial")
            parts["recent"] = gr.Slider(1, 4096, 200, step=1, label="Recent tokens left alone", elem_id="recent")
            parts["reading"] = gr.Radio(["contiguous", "literal"], value="contiguous", label="Reading of equation 9")
            parts["prefill"] = gr.Radio(
                [("each row its own frame", "row_exact"), ("one frame for the prompt", "paper")],
                value="row_exact",
                label="Frames of the prompt",
            )


def _window(parts: dict[str, Any]) -> None:
    with gr.Column(elem_classes=["ll-panel"]):
        live.heading("Λ window", "how far it sees")
        parts["windowed"] = gr.Checkbox(False, label="Read through a Λ window", elem_id="windowed")
        parts["window"] = gr.Slider(1, 16384, 512, step=1, label="Window, in tokens", elem_id="window")
        with gr.Column(elem_classes=["adv"]):
            parts["sinks"] = gr.Slider(0, 256, 10, step=1, label="Sinks: first tokens always seen", elem_id="sinks")
            parts["limit_kind"] = gr.Radio(
                [("window", "window"), ("off", "off"), ("a number", CUSTOM)], value="window", label="Distance limit"
            )
            parts["limit_number"] = gr.Number(512, label="Limit, where it is a number", precision=0, minimum=1)


def _sampling(parts: dict[str, Any]) -> None:
    with gr.Column(elem_classes=["ll-panel"]):
        live.heading("Sampling", "how it chooses")
        parts["temperature"] = gr.Slider(
            0, 2, 0, step=0.05, label="Temperature", info="0 always takes the likeliest token", elem_id="temperature"
        )
        with gr.Column(elem_classes=["adv"]):
            parts["top_k"] = gr.Slider(0, 200, 0, step=1, label="Top k", info="0 is off")
            parts["top_p"] = gr.Slider(0.05, 1, 1, step=0.01, label="Top p")
            parts["repetition_penalty"] = gr.Slider(0.8, 2, 1, step=0.01, label="Repetition penalty", info="1 is off")
            parts["seed"] = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=2**32 - 1, elem_id="seed")
            parts["thinking"] = gr.Checkbox(
                False,
                label="Let it think first",
                info="for models whose template can switch thinking",
                elem_id="thinking",
            )
            parts["thinking_budget"] = gr.Number(
                0, label="Thinking budget", info="tokens, after which its end is written; 0 is off", precision=0,
                minimum=0, maximum=MAX_NEW_TOKENS, elem_id="thinking_budget",
            )  # fmt: skip
            parts["special_tokens"] = gr.Checkbox(
                False,
                label="Typed special tokens act",
                info="else <|im_end|> in a prompt is text",
                elem_id="special_tokens",
            )


def _model(parts: dict[str, Any], choice: ModelChoice) -> None:
    with gr.Column(elem_classes=["ll-panel", "adv"]):
        live.heading("Model and probes", "what runs, and what is watched")
        every = gr.Number(4, label="Every n tokens", precision=0, minimum=1, maximum=1000, min_width=80, render=False)
        choice.render(every)
    parts |= {**choice.parts, "every": every}


def _method_follows(parts: Mapping[str, Any]) -> None:
    """Shows what the method aims at, and gives the positions that it was trained with."""
    aims = [parts[name] for name in ("target", "unit", "landing", "limit", "in_prompt")]
    parts["method"].change(_aims, [parts["method"]], aims, queue=False, **QUIET)
    given = [parts[name] for name in ("pic", "ratio", "initial", "recent")]
    parts["method"].input(
        lambda method, model, *positions: as_trained(method, model, positions),
        [parts["method"], parts["model"], *given],
        given,
        concurrency_limit=None,
        **QUIET,
    )


def _cap_follows(parts: Mapping[str, Any]) -> None:
    """Lets the cap follow what is aimed at, until it is given another value."""
    aims = [parts[name] for name in ("method", "target", "limit", "unit")]
    cap, followed = parts["max_new_tokens"], gr.State(CAP)

    def follow(method: Method, target: int | None, limit: int | None, unit: Unit, cap: int, before: int) -> list[Any]:
        wanted = min(cap_for(method, target or 1, limit or 1, unit), parts["max_new_tokens"].maximum)
        # What is already there is not sent: it could arrive after another value was typed.
        return [wanted if cap == before != wanted else gr.skip(), wanted]

    gr.on(
        [part.change for part in aims], follow, [*aims, cap, followed], [cap, followed],
        trigger_mode="always_last", concurrency_limit=None, **QUIET,
    )  # fmt: skip


def open_with(form: Form, settings: RunSettings) -> None:
    """Makes the form open with these settings."""
    for part, value in zip(form.inputs, form.values(settings), strict=True):
        part.value = value
    aims = [form.target, form.unit, form.landing, form.limit, form.in_prompt]
    for part, update in zip(aims, _aims(settings.method), strict=True):
        for name in {"visible", "interactive"} & update.keys():
            setattr(part, name, update[name])


def _aims(method: Method) -> list[Any]:
    """Lets the target be set where the method heeds one; shows the limit where it heeds that, and landing for both."""
    chosen = methods[method]
    aimed, limited = chosen.bound == "target", chosen.bound == "limit"
    steered = aimed or limited
    shown = [gr.update(visible=each) for each in (steered, limited, steered and not chosen.asks)]
    return [gr.update(interactive=aimed)] * 2 + shown


def as_trained(method: Method, model: str, given: Sequence[Any]) -> list[Any]:
    """Compression for a method that was trained on long texts: kind, ratio, initial, recent, as many as are given.

    Other methods leave it as it is, or take one back that came with such a method.
    """
    count = len(given)
    if trained := trained_positions(method, model):
        return [*astuple(trained)][:count]
    theirs = [astuple(found)[:count] for name in methods.names() if (found := trained_positions(name, model))]
    return UNCOMPRESSED[:count] if tuple(given) in theirs else [gr.skip()] * count


def trained_positions(method: Method, model: str) -> LongformSettings | None:
    """The positions under which a method's adapter was trained; None for one that was not trained on long texts."""
    found = adapters.find(method, model) if methods[method].compression else None
    return found.longform if found else None


def gates(form: Form, can: Capabilities, missing: Mapping[Any, str | None]) -> dict[Any, Any]:
    """Updates that switch off, with the reason, what the model does not allow."""
    window = can.unsupported.get("window", "")
    return {
        form.limit: gr.update(**_limit(missing)),
        form.method: gr.update(options=method_options(missing, can)),
        form.pic: gr.update(options=pic_options(can)),
        form.windowed: gr.update(interactive=not window, info=window or None),
        form.window: gr.update(interactive=not window),
    }


def _limit(missing: Mapping[Any, str | None]) -> dict[str, Any]:
    reasons = [missing.get(method.name) for method in methods if method.bound == "limit"]
    return {"interactive": not all(reasons), "info": reasons[0] if all(reasons) else None}


def method_options(missing: Mapping[Any, str | None], can: Capabilities | None = None) -> list[dict[str, str]]:
    """Options of the length method; those that cannot be used are off, with the reason, and those for another kind of
    models are left out."""
    return [
        {"id": method.name, "label": method.label, "hint": method.summary, "off": missing.get(method.name) or ""}
        for method in methods
        if missing.get(method.name) != adapters.other_models(method.name)
        and (can is None or method.works_with(can.encoder_decoder))
    ]


def pic_options(can: Capabilities | None) -> list[dict[str, str]]:
    """Options of the compression; what the model cannot do is off."""
    missing = can.unsupported if can else {}
    return [
        {
            "id": policy.name,
            "label": policy.label,
            "hint": policy.summary,
            "off": missing.get(policy.needs, ""),
        }
        for policy in policies
    ]


def offered(options: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Choices of a dropdown: the options that are not off."""
    return [(option["label"], option["id"]) for option in options if not option["off"]]
