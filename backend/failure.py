"""What ended a run that failed, and what to do about it."""

from __future__ import annotations

from backend.models.pool import out_of_memory
from backend.settings import counted


def advice(error: Exception, tokens: int) -> str:
    """What ended a run after `tokens` tokens, and what to do about it."""
    written = counted(tokens, "tokens")
    if out_of_memory(error):
        return (
            f"Memory ran out after {written}: choose a lower cap on new tokens, a shorter prompt, a Λ window "
            "or a smaller model."
        )
    if isinstance(error, FloatingPointError):
        return str(error)
    what = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".: ")
    return f"The run failed after {written} ({what}): try again, or change the settings."
