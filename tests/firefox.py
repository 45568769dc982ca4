"""Firefox without a window, driven by its own WebDriver BiDi: Playwright drives only a Firefox of its own build."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from app.free_port import free_port

NAMES = ("firefox-esr", "firefox")
FOUND = next((path for name in NAMES if (path := shutil.which(name))), None)
PATIENCE = 300
# A new profile asks nothing, reports nothing and looks for no news.
PREFERENCES = {
    "app.update.enabled": False,
    "browser.aboutwelcome.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False,
    "intl.accept_languages": "en",
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
}


class Firefox:
    """One Firefox with one page. The profile lies in `folder` and is to be its own."""

    def __init__(self, folder: Path) -> None:
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
        (folder / "user.js").write_text("\n".join(lines), "utf-8")
        port = free_port()
        command = [FOUND, "--headless", "--no-remote", "--profile", folder, "--remote-debugging-port", str(port)]
        self._log = (folder / "firefox.log").open("wb")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        self._socket = self._connected(f"ws://127.0.0.1:{port}/session")
        self._asked = 0
        self.errors: list[str] = []
        self.command("session.new", capabilities={})
        self.command("session.subscribe", events=["log.entryAdded"])
        self._page = self.command("browsingContext.getTree")["contexts"][0]["context"]

    def _connected(self, address: str) -> Any:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return connect(address, max_size=None, open_timeout=PATIENCE)
            except (OSError, WebSocketException):
                if self._process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        """What a command gives. RuntimeError with Firefox' words where it fails."""
        self._asked += 1
        self._socket.send(json.dumps({"id": self._asked, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(PATIENCE))
            if message.get("method") == "log.entryAdded" and message["params"]["level"] == "error":
                self.errors.append(message["params"]["text"])
            elif message.get("id") == self._asked:
                if message["type"] == "error":
                    raise RuntimeError(f"{method}: {message['message']}")
                return message["result"]

    def open(self, address: str) -> None:
        """Goes to an address and waits until it is loaded."""
        self.command("browsingContext.navigate", context=self._page, url=address, wait="complete")

    def sized(self, width: int, height: int) -> None:
        """Gives the page that much room."""
        self.command("browsingContext.setViewport", context=self._page, viewport={"width": width, "height": height})

    def value(self, expression: str) -> Any:
        """Of an expression, or of what it promises, as JSON has it. RuntimeError where it throws."""
        found = self.command(
            "script.evaluate",
            expression=f"(async () => JSON.stringify((await ({expression})) ?? null))()",
            target={"context": self._page},
            awaitPromise=True,
        )
        if found["type"] == "exception":
            raise RuntimeError(found["exceptionDetails"]["text"])
        return json.loads(found["result"]["value"])

    def until(self, expression: str) -> None:
        """Waits until an expression is true."""
        until = time.monotonic() + PATIENCE
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < until, f"never came to be: {expression}"
            time.sleep(0.1)

    def shows(self, selector: str) -> None:
        """Waits until such an element is seen."""
        self.until(f"[...document.querySelectorAll({json.dumps(selector)})].some((one) => one.checkVisibility())")

    def picture(self) -> bytes:
        """A PNG of what the page shows."""
        return base64.b64decode(self.command("browsingContext.captureScreenshot", context=self._page)["data"])

    def close(self) -> None:
        """Ends it."""
        try:
            self._socket.close()
        finally:
            self._process.terminate()
            self._process.wait(PATIENCE)
            self._log.close()
