"""Length signals: vectors added to the input embeddings that tell a model how far its response has to go."""
from backend.signals.embedding import SignalContext, add_signal, attach, signalling
from backend.signals.scale import prompt_norms
from backend.signals.signal import CONVENTION, Kind, SignalSettings, signal_rows

__all__ = [
    "CONVENTION",
    "Kind",
    "SignalContext",
    "SignalSettings",
    "add_signal",
    "attach",
    "prompt_norms",
    "signal_rows",
    "signalling",
]
