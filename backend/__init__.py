"""Length Lab: steer how long a language model writes and how far it reads, and watch it from inside.

>>> from backend import Lab, RunSettings
>>> for event in Lab().stream(RunSettings(prompt="Why do people travel?")):
...     print(event)
"""
from typing import Any

from backend.inference import threads as threads
from backend.settings import RunSettings
from backend.steps import Finish, Step

__version__ = "0.1.0"
__all__ = ["Finish", "Lab", "RunSettings", "Step"]


def __getattr__(name: str) -> Any:
    if name == "Lab":
        from backend.engine import Lab

        return Lab
    raise AttributeError(f"module 'backend' has no attribute {name!r}")
