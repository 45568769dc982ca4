"""What Gradio keeps of each session, cut down to what the page needs."""

from __future__ import annotations

import datetime
from copy import copy
from typing import Any

from gradio.components import State
from gradio.state_holder import SessionState, StateHolder


class Session(SessionState):
    """The values of a session's states and the components that it sees changed.

    Gradio's holds the configuration of all components beside them, half a MB a session, for links that this page makes
    in its own way.
    """

    def __init__(self, blocks: Any) -> None:
        self.blocks_config = copy(blocks.default_config)
        self.config_values: dict[int, dict[str, Any]] = {}
        self.state_data: dict[int, Any] = {}
        self._state_ttl: dict[int, Any] = {}
        self.is_closed = False
        self.STATE_TTL_WHEN_CLOSED = 3600

    def __setitem__(self, key: int, value: Any) -> None:
        block = self.blocks_config.blocks.get(key)
        if isinstance(block, State):
            self._state_ttl[key] = (block.time_to_live, datetime.datetime.now())
            self.state_data[key] = value
        else:
            self.blocks_config.blocks[key] = value

    def _update_config(self, key: int) -> None:
        """Keeps no configuration."""

    def _update_value_in_config(self, key: int, value: Any) -> None:
        """Keeps no configuration."""


class Sessions(StateHolder):
    """The sessions that are there, and those that can be taken up again; app.admission says which."""

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id not in self.session_data:
            self.session_data[session_id] = Session(self.blocks)
        return super().__getitem__(session_id)

    def forget(self, session: str) -> None:
        """Keeps nothing of a session."""
        self.session_data.pop(session, None)
        self.time_last_used.pop(session, None)
