"""The front door in a real browser: another site's page can neither ask nor frame, and the lab's own page works."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from app import __main__ as app
from app import page as lab_page
from app.runs import Runs
from app.sites import Sites
from backend.engine import Lab
from backend.models.adapters import available
from backend.models.pool import Models

LONG = 300_000

PATIENCE = 120_000
FRAME = """(address) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.src = address;
  frame.onload = done;
  document.body.append(frame);
})"""
ASK = """async ([address, kind]) => {
  const form = new FormData();
  form.append("files", new Blob(["{}"]), "x.json");
  const bodies = {form, text: JSON.stringify({prompt: "Hi"}), blob: new Blob([JSON.stringify({prompt: "Hi"})])};
  const answer = await fetch(address, {method: "POST", mode: "no-cors", body: bodies[kind]});
  return answer.type;
}"""


class Other(http.server.BaseHTTPRequestHandler):
    """Another site: an empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another site</title>")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def models() -> Models:
    return Models(["embedded"])


def served(models: Models, sites: Sites | None = None) -> Iterator[str]:
    demo = lab_page.build(Lab(models), available, Runs())
    yield app.serve(demo, sites=sites).rstrip("/")
    demo.close()


@pytest.fixture(scope="module")
def address(models) -> Iterator[str]:
    yield from served(models)


@pytest.fixture(scope="module")
def framed(models, other) -> Iterator[str]:
    """A lab that the other site may frame."""
    yield from served(models, Sites.of(frames=[other], environment={}))


@pytest.fixture
def page(browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(LONG)
    yield page
    page.close()


@pytest.mark.parametrize(
    ("path", "kind"),
    [("upload", "form"), ("call/v2/generate", "text"), ("call/v2/generate", "blob"), ("queue/join", "blob")],
)
def test_what_another_sites_page_posts_is_refused(page, address, other, path, kind):
    statuses: list[int] = []
    page.on("response", lambda answer: answer.request.method == "POST" and statuses.append(answer.status))
    page.goto(other)
    assert page.evaluate(ASK, [f"{address}/gradio_api/{path}", kind]) == "opaque"
    assert statuses == [403]


@pytest.mark.ui
def test_another_site_frames_the_lab_only_where_it_may(page, address, framed, other):
    for lab, may in ((address, False), (framed, True)):
        page.goto(other)
        page.evaluate(FRAME, f"{lab}/?tab=lab")
        inside = page.frames[1]
        if may:
            expect(inside.locator("#go")).to_be_enabled(timeout=PATIENCE)
        else:
            assert inside.url.startswith("chrome-error:") and not inside.query_selector("#go")


def test_the_own_page_works_under_its_policy(page, address):
    """A run, its charts, an export and a load: nothing is refused by the browser, and nothing asked of another site."""
    wrongs: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: message.type in ("error", "warning") and wrongs.append(message.text))
    page.on("pageerror", lambda error: wrongs.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/?tab=lab")
    expect(page.locator("#go")).to_be_enabled(timeout=PATIENCE)
    page.fill("#cap input", "8")
    page.click("#go")
    expect(page.locator("#figures-run .ll-message")).to_contain_text("tokens in", timeout=PATIENCE)
    with page.expect_download() as saved:
        page.click("#export-json")
    page.set_input_files("#load input[type=file], input[type=file]", saved.value.path())
    for tab in ("Compare", "Read far", "Evidence", "Lessons", "Try it"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(500)
    refused = [wrong for wrong in wrongs if "Content Security Policy" in wrong or "Refused" in wrong]
    assert refused == [] and not [url for url in asked if not url.startswith((address, "data:", "blob:"))]
