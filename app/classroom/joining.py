"""What the page of a student shows: which class it is in."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app import live
from app.buttons import QUIET
from app.classroom.room import Room
from app.visitors import visitor

# The parameter of the address that holds the class's code.
CODE = "class"


def build(room: Room, opens: Any) -> None:
    """Makes the line where it is called. opens: the event of a page that opens."""
    line = live.note(elem_id="class")

    def join(request: gr.Request) -> str:
        code = dict(request.query_params).get(CODE, "")
        if not code:
            return live.noted("")
        assert request.request is not None
        joined, words = room.joins(code, request.session_hash, visitor(request.request.scope).name)
        return live.noted(words, "good" if joined else "bad")

    opens(join, None, [line], **QUIET)
