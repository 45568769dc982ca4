"""Who a visitor is: by a signed cookie, else by session and address; what a request says of itself is no proof."""

from __future__ import annotations

from http.cookies import SimpleCookie

import pytest
from visiting import Visitor, serving

from app import visitors
from app.shares import Shares
from app.visitors import COOKIE, visitor

FEW = Shares(visitor_runs=2, address_visitors=1)


def asks(cookie: str = "", address: str = "1.2.3.4") -> visitors.Visitor:
    """Who asks with such a request."""
    headers = [(b"cookie", cookie.encode("latin-1"))] if cookie else []
    return visitor({"type": "http", "headers": headers, "client": (address, 5)})


def test_each_browser_has_one_name_that_only_this_lab_gives(held_lab):
    with serving(held_lab) as served:
        first, second = (Visitor(served, cookie=True) for _ in range(2))
        again = first.http.get("/")
        assert "set-cookie" not in again.headers
        names = {asks(f"{COOKIE}={each.http.cookies[COOKIE]}").name for each in (first, second)}
        assert len(names) == 2 and "" not in names
        cookie = Visitor(served).http.get("/").headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
        assert "set-cookie" not in Visitor(served).http.get("/config").headers


@pytest.mark.parametrize(
    "change",
    [
        lambda cookie: cookie + "0",
        lambda cookie: "x" + cookie,
        lambda cookie: cookie.split(".")[0],
        lambda cookie: cookie.split(".")[0] + ".",
        lambda cookie: "." + cookie.split(".")[1],
        lambda cookie: "",
        lambda cookie: "Λ.é",
        lambda cookie: 'a"b;;=',
    ],
)
def test_a_name_that_was_not_given_is_none(change):
    given = next(iter(SimpleCookie(visitors._cookie(False)).values())).value
    assert asks(f"{COOKIE}={given}").name
    assert asks(f"{COOKIE}={change(given)}".encode().decode("latin-1")).name == ""


def test_without_a_cookie_sessions_at_one_address_are_apart_and_files_are_the_address_s():
    assert asks().alone("a") != asks().alone("b") != asks(address="4.3.2.1").alone("b")
    assert asks().owner == "1.2.3.4"


@pytest.mark.parametrize("believed", ["", "127.0.0.1"])
def test_a_forwarded_address_counts_only_where_its_proxy_is_believed(held_lab, monkeypatch, believed):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", believed)
    with serving(held_lab, FEW) as served:
        codes = []
        for number in range(4):
            visitor = Visitor(served)
            visitor.http.headers["X-Forwarded-For"] = f"10.0.0.{number}"
            codes.append(visitor.asks(max_new_tokens=1).status_code)
    assert codes == [200, 200, *([200, 200] if believed else [429, 429])]
