"""No method: the model ends when it likes."""
from backend.methods.base import LengthMethod


class Free(LengthMethod):
    name = "none"
    label = "Free"
    summary = "The model ends when it likes; only the cap holds."
    order = 0
    bound = None
    encoder_decoder = True
