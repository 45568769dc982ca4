"""Messages before a prompt, as a file holds them."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from backend.record import jsonlines
from backend.refused import Refused
from backend.settings import Turn


def read(file: Path) -> list[Turn]:
    """The messages of a file of JSON lines, or of one JSON list, each {"role": …, "content": …}.

    ValueError with a sentence where it cannot be read, or holds something else.
    """
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        found = None
    # What is no list is read line by line, which says what is wrong with a file.
    documents = found if isinstance(found, list) else jsonlines.read(file, "role", "content")
    return [_turn(file, number, document) for number, document in enumerate(documents, 1)]


def _turn(file: Path, number: int, document: object) -> Turn:
    try:
        return Turn.model_validate(document)
    except ValidationError as error:
        raise Refused(
            f"message {number} of {file} is none: give a role (system, user or assistant) and its content, a text"
        ) from error
