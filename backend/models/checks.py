"""Whether a model allows what a run asks of it."""

from __future__ import annotations

from backend.methods import methods
from backend.methods.signal import SignalMethod
from backend.models.adapters import other_models
from backend.models.capabilities import Capabilities
from backend.positions import policies
from backend.refused import Refused
from backend.settings import RunSettings, Watch


def check(settings: RunSettings, capabilities: Capabilities) -> None:
    """ValueError, with the model's own reason, for settings that it does not allow."""
    method = methods[settings.method]
    if not method.works_with(capabilities.encoder_decoder):
        raise Refused(f"{other_models(settings.method)}: choose another method, or another model")
    if settings.earlier and capabilities.encoder_decoder:
        raise Refused("the model reads one text alone: leave the messages before it out, or choose another model")
    asked = {
        "model": True,
        policies[settings.pic].needs: True,
        "window": settings.window is not None,
        "signals": isinstance(method, SignalMethod),
    }
    for control, reason in capabilities.unsupported.items():
        if asked.get(control):
            raise Refused(reason)
    watch, default = settings.watch, Watch()
    # What nobody asked for gives way to what the model has.
    lacks = watch.layer != default.layer and watch.layer >= capabilities.layers
    if lacks or (watch.head != default.head and watch.head >= capabilities.heads):
        raise Refused(
            f"the model has {capabilities.layers} layers of {capabilities.heads} heads: watch a layer from 0 to "
            f"{capabilities.layers - 1} and a head from 0 to {capabilities.heads - 1}"
        )
