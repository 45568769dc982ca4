"""Which names the lab answers to, which sites may ask it for something, and which may show it in a frame."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from starlette.datastructures import Headers

SAFE = {"GET", "HEAD"}
# Values of Sec-Fetch-Site for the lab's own page, and for an address that was typed.
OWN = {"same-origin", "none"}
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
EVERYWHERE = {"0.0.0.0", "::"}
SHARED = ".gradio.live"
HUB = "https://huggingface.co"
# The page's scripts and styles are inline, and Gradio compiles what its components bring along; all else is own.
CONTENT = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' data: blob:; connect-src 'self' data: blob:; "
    "worker-src 'self' blob:; frame-src 'self' blob: data:; object-src 'none'; base-uri 'self'; form-action 'self'; "
)


@dataclass(frozen=True)
class Sites:
    """hosts: names that the lab has, lower case; a leading dot takes every name that ends so. addresses: whether any
    numeric address is one too. public: those of the hosts, with a port if it is not the usual one, whose pages are the
    lab's own even where a proxy changes the Host header. frames: origins that may show the lab in a frame.
    """

    hosts: frozenset[str] = frozenset(LOOPBACK)
    addresses: bool = False
    public: frozenset[str] = frozenset()
    frames: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        host: str | None = None,
        allowed: Iterable[str] = (),
        frames: Iterable[str] = (),
        share: bool = False,
        environment: Mapping[str, str] = os.environ,
    ) -> Sites:
        """For a lab bound to `host`; a Space adds its own name and the page that shows it.

        Bound to all of the machine's addresses it has each of them: a name that leads elsewhere is never a number.
        """
        bound = (host or environment.get("GRADIO_SERVER_NAME") or "127.0.0.1").strip("[]").lower()
        space = environment.get("SPACE_HOST", "")
        public = {name.lower() for name in (*allowed, *space.split(",")) if name}
        hosts = LOOPBACK | {bound} | {_name(name) for name in public} | ({SHARED} if share else set())
        if bound in EVERYWHERE:
            hosts.add(socket.gethostname().lower())
        return cls(frozenset(hosts), bound in EVERYWHERE, frozenset(public), (*frames, *([HUB] if space else [])))

    def refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """The status and the sentence for a request that is not this lab's, or not for its own page to make."""
        host = headers.get("host", "").lower()
        if not self._has(_name(host)):
            return 421, (
                f"This lab does not answer to the name '{_name(host):.80}': open it by the address it was started "
                "with, or start it with --allow-host and that name."
            )
        if self._foreign(method, host, headers):
            return 403, "Another site's page may not use this lab: open the lab's own page."
        return None

    def _has(self, name: str) -> bool:
        if name in self.hosts or any(name.endswith(host) for host in self.hosts if host.startswith(".")):
            return True
        return self.addresses and _numeric(name)

    def _foreign(self, method: str, host: str, headers: Headers) -> bool:
        """Whether a page of another site asks; programs send neither header, links and frames only open the page."""
        if method in SAFE and headers.get("sec-fetch-mode") == "navigate":
            return False
        if headers.get("sec-fetch-site", "none") not in OWN:
            return True
        origin = headers.get("origin")
        return origin is not None and urlsplit(origin.lower()).netloc not in {host, *self.public}

    @cached_property
    def headers(self) -> dict[str, str]:
        """What every answer tells the browser."""
        frames = " ".join(self.frames) or "'none'"
        sent = {
            "content-security-policy": f"{CONTENT}frame-ancestors {frames}",
            "x-content-type-options": "nosniff",
            "referrer-policy": "same-origin",
        }
        return sent if self.frames else sent | {"x-frame-options": "DENY"}


def _name(host: str) -> str:
    """The name or address in a Host header, without port, brackets and the root's dot."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _numeric(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
