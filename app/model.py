"""What runs and what is watched: the choice of model, precision, layer and head, and what the model allows."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import live
from app.buttons import QUIET
from app.coming import LOADED
from app.view import sentence
from backend.models.capabilities import Capabilities
from backend.settings import Watch, counted

PRECISIONS = {
    "bf16": ("bf16", "Weights in 16 bits."),
    "fp32": ("fp32", "Weights in 32 bits, the most exact."),
    "int8": ("int8", "Weights in 8 bits."),
    "int4": ("int4", "Weights in 4 bits, on the CPU."),
    "4bit": ("4-bit", "Weights in 4 bits, by bitsandbytes."),
}
LAYERS, HEADS = 30, 9
NAMES = ("model", "precision", "layer", "head")
ABOUT = {
    "model": "What writes.", "precision": "How exactly its numbers are held.", "layer": "Shown in the charts.",
    "head": "Of that layer.",
}  # fmt: skip


def _as_numbered(self: gr.Dropdown, payload: Any) -> Any:
    return payload if isinstance(payload, int) else gr.Dropdown.preprocess(self, payload)


# A dropdown of layers or heads. What a larger model had is no mistake while a smaller one's choices are on their way:
# its last one is shown. Of a class that is declared, Gradio would write a stub into this folder.
Numbered: Any = ABCMeta.__new__(
    type(gr.Dropdown), "Numbered", (gr.Dropdown,), {"is_template": True, "preprocess": _as_numbered}
)


@dataclass
class ModelChoice:
    """The components of a choice by their NAMES, those of the settings they give, and the line that tells of the model.

    note: what the model is, or why it cannot run. again: asks once more for a model that could not be loaded.
    """

    parts: dict[str, Any]
    note: gr.HTML
    again: gr.Button

    @property
    def inputs(self) -> list[Any]:
        """The components, in the order of their NAMES."""
        return list(self.parts.values())

    @property
    def model(self) -> gr.Dropdown:
        """The choice among the allow-list."""
        return self.parts["model"]

    def render(self, *beside: Any) -> None:
        """Puts the components where it is called, and others beside the layer and the head."""
        self.model.render()
        self.parts["precision"].render()
        with gr.Row(elem_classes=["ll-watched"]):
            for part in (self.parts["layer"], self.parts["head"], *beside):
                part.render()

    def tells(
        self,
        lab: Any,
        opens: Callable[..., Any],
        gates: Callable[..., Mapping[Any, Any]],
        gated: Sequence[Any],
        given: Sequence[Any] = (),
    ) -> None:
        """Says what the model can do when the page opens and whenever another is chosen.

        opens: the event of the page's opening. gates: updates of the components `gated`, by the model's capabilities
        and the values of the components `given`.
        """

        def describe(name: str, precision: str, layer: int, head: int, *values: Any) -> dict[Any, Any]:
            try:
                can = lab.capabilities(name, precision)
            except Exception as error:
                return {self.note: live.noted(sentence(error), "bad"), self.again: gr.update(visible=True)}
            why = can.unsupported.get("model")
            return {
                self.note: live.noted(why or _described(can), "bad" if why else "good"),
                self.again: gr.update(visible=False),
                **self._gates(can, layer, head),
                **gates(can, *values),
            }

        _, precision, layer, head = self.inputs
        # Gradio begins events of one change in their order, and each when the one before it has ended.
        waits = f"(model, precision) => {{ LengthLab.coming('{self.note.elem_id}', model, precision) }}"
        for changed in (self.model.change, precision.change, self.again.click):
            changed(None, self.inputs[:2], None, js=waits, **QUIET)
        gr.on(
            [opens, self.model.change, precision.change, self.again.click],
            describe,
            [*self.inputs, *given],
            [self.note, self.again, precision, layer, head, *gated],
            concurrency_limit=None,
            trigger_mode="always_last",
            # What the model before allowed and this one does not is to be narrowed, not refused.
            preprocess=False,
            **QUIET,
        )

    def _gates(self, can: Capabilities, layer: int, head: int) -> dict[Any, Any]:
        watched = can.unsupported.get("probes", "")
        return {
            self.parts["precision"]: gr.update(options=precision_options(can)),
            self.parts["layer"]: narrowed(_numbers(can.layers), layer)
            | gr.update(interactive=not watched, info=watched or ABOUT["layer"]),
            self.parts["head"]: narrowed(_numbers(can.heads), head) | gr.update(interactive=not watched),
        }


def build(names: Sequence[str], prefix: str = "") -> ModelChoice:
    """Makes the line that tells of the model where it is called; the choice itself is rendered where it belongs.

    names: the allow-list. prefix: of the components' ids.
    """
    with gr.Row(elem_classes=["ll-model"]):
        note = live.note(LOADED, "busy", elem_id=f"{prefix}model-state")
        again = gr.Button("Try again", size="sm", visible=False, elem_id=f"{prefix}again", min_width=90)
    place: dict[str, Any] = {"min_width": 80, "render": False}
    parts = {
        "model": gr.Dropdown(
            list(names), value=names[0], label="Model", info=ABOUT["model"], elem_id=f"{prefix}model", min_width=180,
            render=False,
        ),
        "precision": live.choice(
            f"{prefix}precision", "Precision", ABOUT["precision"], precision_options(None), "bf16", render=False
        ),
        "layer": Numbered(
            _numbers(LAYERS), value=Watch().layer, label="Layer", info=ABOUT["layer"], elem_id=f"{prefix}layer", **place
        ),
        "head": Numbered(
            _numbers(HEADS), value=Watch().head, label="Head", info=ABOUT["head"], elem_id=f"{prefix}head", **place
        ),
    }  # fmt: skip
    return ModelChoice(parts, note, again)


def narrowed(choices: Sequence[tuple[str, Any]], chosen: Any) -> dict[str, Any]:
    """An update of a dropdown to `choices`; what was chosen gives way to the first of them where it is not there."""
    # A value that need not change is left out: it may be on its way to the page from elsewhere, as from a link.
    there = any(value == chosen for _, value in choices)
    return gr.update(choices=list(choices)) if there else gr.update(choices=list(choices), value=choices[0][1])


def precision_options(can: Capabilities | None) -> list[dict[str, str]]:
    """Options of the weights' precision; what this machine cannot do is off."""
    missing = can.unsupported if can else {}
    return [
        {"id": name, "label": label, "hint": hint, "off": missing.get(name, "")}
        for name, (label, hint) in PRECISIONS.items()
    ]


def _numbers(count: int) -> list[tuple[str, int]]:
    return [(str(i), i) for i in range(count)]


def _parameters(count: int) -> str:
    return f"{count / 1e6:,.0f} M parameters" if count >= 1e6 else f"{count:,} parameters"


def _described(can: Capabilities) -> str:
    name = called(can.model)
    if can.encoder_decoder:
        return f"{name}, {_parameters(can.parameters)} · reads a text and writes another · {can.device}"
    trained = f"trained for {can.training_length:,} tokens" if can.training_length else "training length unknown"
    return (
        f"{name}, {_parameters(can.parameters)} · {counted(can.layers, 'layers')} of {counted(can.heads, 'heads')} · "
        f"{trained} · {can.precision} on {can.device}"
    )


def called(model: str) -> str:
    """What the page calls a model."""
    return "SmolLM2-135M-Instruct" if model == "embedded" else model
