"""A loaded model is made to use framed attention, without touching its class.

An attached model is still transformers' own outside `attention.framed`: its rotary embedding, attention and masks act
as before. Inside, queries and keys reach the attention function unrotated and the cache is ours.
"""

from __future__ import annotations

import threading
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from backend.families import families
from backend.inference import lora
from backend.inference.attention import NAME, current_frame, framed_attention
from backend.models.capabilities import unrunnable
from backend.refused import Refused

_attaching = threading.Lock()


def attach(model: PreTrainedModel) -> PreTrainedModel:
    """Make a loaded model use framed attention inside `attention.framed`; safe to call again, and from threads.

    Raises ValueError for models that the engine cannot run, with a sentence that says what to do.
    """
    if why := unrunnable(model.config):
        raise Refused(why)
    with _attaching:
        if not getattr(model, "framed_attached", False):
            families[model.config.model_type].attach(model, _inside, framed_attention)
            model.config._attn_implementation = NAME
            layers(model)[0].register_forward_hook(_first_layer)
            lora.attach(model)
            model.framed_attached = True
    return model


def layers(model: PreTrainedModel) -> nn.ModuleList:
    """The model's decoder layers."""
    base = model.base_model
    found = next(getattr(base, name, None) for name in ("layers", "h", "blocks") if hasattr(base, name))
    assert isinstance(found, nn.ModuleList)
    return found


def _inside() -> bool:
    return current_frame() is not None


def _first_layer(module: nn.Module, inputs: Any, output: Any) -> None:
    frame = current_frame()
    if frame is not None and frame.probe is not None:
        hidden = output[0] if isinstance(output, tuple) else output
        frame.probe.state(hidden[0])
