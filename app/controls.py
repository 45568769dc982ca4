"""The form of a run's settings: its components, and the way between their values and RunSettings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass
from typing import Any

import gradio as gr

from app import cap, conversation, live, presets, setting
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
    LengthSettings,
    Method,
    ModelSettings,
    PositionSettings,
    PromptSettings,
    RunSettings,
    SamplingSettings,
    Unit,
    VariantSettings,
    WindowSettings,
    cap_for,
)
from backend.settings.on_page import Part, on_page

DEFAULT_PROMPT = presets.TRAVEL
_PLAIN = RunSettings(prompt=DEFAULT_PROMPT)
UNCOMPRESSED = [_PLAIN.pic, _PLAIN.ratio, _PLAIN.initial, _PLAIN.recent]
PROMPTS = {
    "Travel": DEFAULT_PROMPT,
    "A short story": presets.STORY,
    "Bicycles": "Explain to a child how a bicycle stays upright.",
    "Five tips": "List five ways to save water at home, with one sentence for each.",
}
CUSTOM = "number"
LAMBDA = "A Λ window: a token costs no more memory or time far into a text."
# What the window and its limit have while they are not in use.
WINDOW = 512


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
            "window": window or WINDOW,
            "limit_kind": limit if isinstance(limit, str) else CUSTOM,
            "limit_number": limit if isinstance(limit, int) else WINDOW,
        }
        return {name: shown[name] for name in self.parts}

    @property
    def policy(self) -> list[Any]:
        """The components that decide the position policy, and with it the previews."""
        read = ("prompt", "talk", "system", "max_new_tokens")
        window = ("windowed", "window", "sinks", "limit_kind", "limit_number")
        positions = (*PositionSettings.model_fields, *VariantSettings.model_fields)
        return [self.parts[name] for name in (*read, *positions, *window)]


def _within(part: Any, value: Any) -> Any:
    if isinstance(part, gr.Slider):
        return min(max(value, part.minimum), part.maximum)
    return value


def build(
    prompt: gr.Textbox, talk: gr.HTML, choice: ModelChoice, missing: Mapping[Any, str | None],
    seen: Sequence[gr.HTML] = (),
) -> Form:
    """Makes the form around `prompt`, the conversation before it (`talk`) and `choice` in the current Gradio context.

    missing: why a length method cannot be used, or None where it can. seen: charts of what the model sees, which stand
    beside what changes that.
    """
    parts: dict[str, Any] = {"prompt": prompt, "talk": talk}
    _length(parts, missing)
    _view(parts, seen)
    with _panel(PromptSettings):
        parts["system"] = gr.Textbox(
            "", label="System prompt", info="How the model is to answer.", lines=1, max_lines=6, elem_id="system",
            placeholder="empty: the model's own",
        )  # fmt: skip
        _controls(parts, PromptSettings)
    with _panel(SamplingSettings):
        _controls(parts, SamplingSettings)
    _model(parts, choice)
    _variants(parts)
    _method_follows(parts)
    _cap_follows(parts)
    return Form(parts)


def _panel(part: type[Part], *classes: str) -> gr.Column:
    """The column of a part of the settings, under its heading."""
    with gr.Column(elem_classes=["ll-panel", *classes]) as column:
        live.heading(part.title, part.hint)
    return column


def _controls(parts: dict[str, Any], part: type[Part], **given: Mapping[str, Any]) -> None:
    """The controls of a part that are not there yet, those of the advanced view last. given: more of a component."""
    fields = {name: found for name, each in part.model_fields.items() if (found := on_page(each))}
    for advanced in (False, True):
        names = [name for name, each in fields.items() if each.advanced == advanced and name not in parts]
        if names:
            with gr.Column(elem_classes=["adv"]) if advanced else nullcontext():
                parts |= {name: setting.control(name, **given.get(name, {})) for name in names}


def _length(parts: dict[str, Any], missing: Mapping[Any, str | None]) -> None:
    with _panel(LengthSettings):
        about = "What steers the length."
        parts["method"] = live.choice("method", "Method", about, method_options(missing), _PLAIN.method)
        with gr.Row():
            parts["target"] = setting.control("target", scale=3, interactive=False)
            parts["unit"] = setting.control("unit", scale=1, min_width=110, interactive=False)
        gr.HTML(
            '<p class="ll-hint">Each Han or kana character counts as a word; a character is what a reader sees as one, '
            "a family of emoji too.</p>"
        )
        hidden = {"visible": False}
        _controls(
            parts, LengthSettings, landing=hidden, in_prompt=hidden, limit=hidden | _limit(missing),
            max_new_tokens={"elem_id": "cap"},
        )  # fmt: skip


def _view(parts: dict[str, Any], seen: Sequence[gr.HTML]) -> None:
    """The window, the positions, and between them and after them what they let the model see."""
    _window(parts)
    for chart in seen[:1]:
        chart.render()
    with _panel(PositionSettings):
        parts["pic"] = live.choice("pic", "Positions", "How earlier tokens are placed.", pic_options(None), _PLAIN.pic)
        _controls(parts, PositionSettings)
    for chart in seen[1:]:
        chart.render()


def _window(parts: dict[str, Any]) -> None:
    with _panel(WindowSettings):
        only = "Look only at the last tokens and the first few"
        parts["windowed"] = gr.Checkbox(False, label=only, info=LAMBDA, elem_id="windowed")
        _controls(parts, WindowSettings, window={"value": WINDOW})
        with gr.Column(elem_classes=["adv"]):
            parts["limit_kind"] = gr.Radio(
                [("window", "window"), ("off", "off"), ("a number", CUSTOM)], value="window", label="Distance limit",
                info="No token seems farther away than this. The number stands under Paper variants.",
            )  # fmt: skip


def _variants(parts: dict[str, Any]) -> None:
    with _panel(VariantSettings, "adv"):
        _controls(parts, VariantSettings)
        parts["limit_number"] = gr.Number(
            WINDOW, label="Distance limit, as a number", info="Holds where the distance limit is “a number”.",
            precision=0, minimum=1,
        )  # fmt: skip


def _model(parts: dict[str, Any], choice: ModelChoice) -> None:
    with _panel(ModelSettings, "adv"):
        every = setting.control("every", min_width=80, render=False)
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

    def wanted(method: Method, target: int | None, limit: int | None, unit: Unit) -> int:
        return cap_for(method, target or 1, limit or 1, unit)

    cap.follows(parts["max_new_tokens"], [parts[name] for name in ("method", "target", "limit", "unit")], wanted)


def open_with(form: Form, settings: RunSettings) -> None:
    """Makes the form open with these settings."""
    for part, value in zip(form.inputs, form.values(settings), strict=True):
        part.value = value
    aims = [form.target, form.unit, form.landing, form.limit, form.in_prompt]
    for part, update in zip(aims, _aims(settings.method), strict=True):
        for name in {"visible", "interactive"} & update.keys():
            setattr(part, name, update[name])


def _aims(method: Method) -> list[Any]:
    """Lets the target be set where the method heeds one, and shows the limit where it heeds that; unit and landing are
    for both."""
    chosen = methods[method]
    aimed, limited = chosen.bound == "target", chosen.bound == "limit"
    steered = aimed or limited
    shown = [gr.update(visible=each) for each in (steered, limited, steered and not chosen.asks)]
    return [gr.update(interactive=aimed), gr.update(interactive=steered), *shown]


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
        form.windowed: gr.update(interactive=not window, info=window or LAMBDA),
        form.window: gr.update(interactive=not window),
    }


def _limit(missing: Mapping[Any, str | None]) -> dict[str, Any]:
    reasons = [missing.get(method.name) for method in methods if method.bound == "limit"]
    return {"interactive": not all(reasons), "info": reasons[0] if all(reasons) else setting.info("limit")}


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
