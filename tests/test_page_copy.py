"""What the clipboard holds after the page's buttons say that they copied, also over plain HTTP from another machine."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlparse

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from test_app_browser import Visitor, demo, lab, runs  # noqa: F401

from app import __main__ as app
from app.chromium import launch
from app.sites import Sites

# A name of this machine that browsers do not take for it: such an origin is not secure.
ELSEWHERE = "lab.test"
ANSWER = "#text-run .ll-text"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = launch(playwright, f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1")
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(demo) -> Iterator[str]:  # noqa: F811
    yield app.serve(demo, sites=Sites.of(allowed=[ELSEWHERE]))
    demo.close()


class Guest(Visitor):
    """A visitor from another machine."""

    @staticmethod
    def _leaves(url: str) -> bool:
        return urlparse(url).hostname not in ("127.0.0.1", ELSEWHERE, None)

    def pastes(self) -> str:
        """What the clipboard holds, as a text box takes it."""
        box = self.page.locator("#prompt textarea")
        box.fill("")
        box.press("ControlOrMeta+v")
        return box.input_value()


@pytest.fixture(params=["127.0.0.1", ELSEWHERE])
def guest(browser, address, request) -> Iterator[Guest]:
    visitor = Guest(browser, address.replace("127.0.0.1", request.param))
    assert visitor.page.evaluate("isSecureContext") == (request.param != ELSEWHERE)
    yield visitor
    visitor.close()


def test_copied_is_said_of_what_the_clipboard_holds(guest):
    page = guest.page
    button = page.locator("#text-run [data-act=copy]")
    button.click()
    expect(button).to_have_text("Copied")
    assert guest.pastes() == page.locator(ANSWER).evaluate("(box) => box.textContent") != ""
    expect(button).to_have_text("Copy")
    share = page.locator("#share")
    share.click()
    expect(share).to_have_text("Copied")
    assert guest.pastes() == page.url and "method=" in page.url
    expect(share).to_have_text("Copy link")


@pytest.mark.ui
def test_pressing_again_keeps_the_button_s_name(guest):
    button = guest.page.locator("#text-run [data-act=copy]")
    for _ in range(2):
        button.click()
        expect(button).to_have_text("Copied")
    expect(button).to_have_text("Copy")


@pytest.mark.ui
def test_gradio_s_own_buttons_copy(guest):
    page = guest.page
    page.get_by_role("button", name="Use via API").click()
    code = page.locator(".api-docs")
    code.locator("button.copy-button:visible").nth(1).click()
    copied = guest.pastes()
    assert "gradio_client" in copied and "".join(copied.split()) in "".join(code.inner_text().split())
    # Of the files that this view asks for, Gradio has not all.
    guest.wrongs = [wrong for wrong in guest.wrongs if "Failed to load resource" not in wrong]


def test_a_browser_that_does_not_copy_is_told_of(browser, address):
    visitor = Guest(browser, address.replace("127.0.0.1", ELSEWHERE))
    page = visitor.page
    page.evaluate("document.execCommand = () => false")
    button = page.locator("#text-run [data-act=copy]")
    button.click()
    expect(button).to_have_text("Press Ctrl+C")
    assert page.evaluate("getSelection().toString()") == page.inner_text(ANSWER).rstrip() != ""
    page.click("#share")
    expect(page.locator("#share")).to_have_text("It is in the address bar")
    assert "method=" in page.url
    visitor.close()
