"""Logits that are numbers: damaged weights are reported where a token is chosen, before one is made of nothing."""

from __future__ import annotations

from torch import Tensor


def check_finite(logits: Tensor) -> None:
    """FloatingPointError with a sentence where a row of logits [..., vocabulary] holds NaN or infinity."""
    # The largest is NaN where any of them is; a token that is shut out may be minus infinity.
    if not logits.amax(-1).isfinite().all():
        raise FloatingPointError(
            "The model's logits are not finite, so its weights are damaged or overflow at this precision: fetch or "
            "save the model again, or choose fp32."
        )
