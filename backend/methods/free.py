"""No method: the model ends when it likes."""
from backend.methods.base import LengthMethod


class Free(LengthMethod):
    name = "none"
    label = "Off"
    summary = "No length control: it stops by itself or at the cap."
    order = 0
    bound = None
    encoder_decoder = True
