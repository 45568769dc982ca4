"""The front door over real HTTP: other sites, other names, frames, and requests that are too much."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from app import __main__ as app
from app import page
from app.bodies import Bodies
from app.limits import MB, Limits
from app.runs import Runs
from app.sites import HUB, Sites
from backend.engine import Lab
from backend.models.adapters import available
from backend.models.pool import Models

JOIN, UPLOAD, INFO = "/gradio_api/queue/join", "/gradio_api/upload", "/gradio_api/info"
CALLS = (JOIN, "/gradio_api/call/generate", "/gradio_api/call/v2/generate", "/gradio_api/cancel", "/gradio_api/none")
LIMITS = Limits(json_mb=0.5, upload_mb=2, json_values=1_000, json_depth=8, body_seconds=1)
BOUNDARY = "b"
EVIL = "http://evil.example"
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,12}(\.[a-z]{2,5}){1,3}", fullmatch=True)


@pytest.fixture(scope="module")
def demo() -> page.Page:
    return page.build(Lab(Models(["embedded"])), available, Runs())


@pytest.fixture(scope="module")
def address(demo) -> Iterator[str]:
    """Host and port of a lab with small limits, which one other site may frame."""
    sites = Sites.of(allowed=["lab.example.org"], frames=["https://course.example.org"], environment={})
    yield urlsplit(app.serve(demo, sites=sites, limits=LIMITS)).netloc
    demo.close()


def ask(
    address: str, method: str, path: str, body: bytes | Iterator[bytes] | None = None, headers: Mapping[str, str] = {}
) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of an answer; a body that is an iterator is sent in chunks, without a length."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, answer.read().decode(errors="replace")
    finally:
        connection.close()


def post(address: str, path: str, value: object, headers: Mapping[str, str] = {}) -> tuple[int, dict[str, str], str]:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return ask(address, "POST", path, body, {"Content-Type": "application/json", **headers})


def file_of(size: int) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="x.json"\r\n\r\n'
    return head.encode() + bytes(size) + f"\r\n--{BOUNDARY}--\r\n".encode()


def upload(address: str, size: int, chunked: bool = False, **headers: str) -> tuple[int, dict[str, str], str]:
    body = file_of(size)
    sent = (body[start : start + 65_536] for start in range(0, len(body), 65_536)) if chunked else body
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", **headers}
    return ask(address, "POST", UPLOAD, sent, headers)


FOREIGN = [
    {"Origin": EVIL},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "https://course.example.org"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("path", [*CALLS, UPLOAD])
def test_another_sites_page_changes_nothing(address, path, headers):
    if path == UPLOAD:
        status, _, text = upload(address, 10, **headers)
    else:
        status, _, text = post(address, path, {"prompt": "Hi", "max_new_tokens": 1}, headers)
    assert status == 403 and "Another site" in json.loads(text)["detail"]


def test_another_sites_page_reads_nothing_and_may_link(address):
    for path in (INFO, "/config"):
        for headers in ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, {"Origin": EVIL}):
            assert ask(address, "GET", path, headers=headers)[0] == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert ask(address, "GET", "/?prompt=Hi", headers=link)[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.1.2.3", "localhost.evil", "[", ""])
@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", INFO), ("GET", "/config"), ("POST", JOIN)])
def test_a_name_that_is_not_the_labs_gets_nothing(address, method, path, host):
    status, _, text = ask(address, method, path, b"{}" if method == "POST" else None, {"Host": host})
    assert status == 421 and "--allow-host" in json.loads(text)["detail"]


def test_programs_and_the_own_page_are_let_in(address):
    port = urlsplit(f"//{address}").port
    own = [{"Host": name} for name in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "LOCALHOST.")]
    own += [{"Origin": f"http://{address}", "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}]
    # A proxy may ask by the lab's own address while the page has a public one.
    own += [{"Host": "lab.example.org"}, {"Origin": "https://lab.example.org"}]
    for headers in own:
        status, _, text = post(address, "/gradio_api/call/v2/generate", {"prompt": "", "max_new_tokens": 1}, headers)
        assert status == 200 and json.loads(text)["event_id"], headers
    assert upload(address, 10)[0] == 200


def test_every_answer_tells_the_browser_what_it_may_do(address):
    answers = [
        ask(address, "GET", "/"),
        ask(address, "GET", "/lab/plotly.js"),
        ask(address, "GET", "/nothing"),
        ask(address, "GET", INFO, headers={"Host": "evil.example"}),
        post(address, JOIN, {}),
        post(address, JOIN, b" " * int(LIMITS.json_mb * MB + 1)),
    ]
    assert [status for status, *_ in answers] == [200, 200, 404, 421, 422, 413]
    for _, headers, _ in answers:
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "same-origin"
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'self'" and policy["object-src"] == "'none'"
        assert policy["frame-ancestors"] == "https://course.example.org"


def test_the_page_is_packed_for_who_takes_it_so_and_is_the_same(address):
    for path in ("/", "/config"):
        whole = urlopen(Request(f"http://{address}{path}")).read()
        with urlopen(Request(f"http://{address}{path}", headers={"Accept-Encoding": "gzip"})) as answer:
            packed = answer.read()
        assert answer.headers["content-encoding"] == "gzip" and len(packed) < 150_000 < len(whole)
        assert len(gzip.decompress(packed)) == len(whole)


def test_frames_are_refused_unless_allowed():
    assert Sites.of(environment={}).headers["x-frame-options"] == "DENY"
    assert Sites.of(environment={}).headers["content-security-policy"].endswith("frame-ancestors 'none'")
    framed = Sites.of(frames=["https://a.example", "https://b.example"], environment={}).headers
    assert framed["content-security-policy"].endswith("frame-ancestors https://a.example https://b.example")
    assert "x-frame-options" not in framed


def test_a_space_has_its_own_name_and_is_framed_by_the_hub():
    space = Sites.of(environment={"GRADIO_SERVER_NAME": "0.0.0.0", "SPACE_HOST": "me-lab.hf.space"})
    assert refused(space, "POST", host="me-lab.hf.space", origin="https://me-lab.hf.space") is None
    assert refused(space, "POST", host="me-lab.hf.space", origin="https://you-lab.hf.space") == 403
    assert refused(space, "GET", host="you-lab.hf.space") == 421
    assert space.headers["content-security-policy"].endswith(f"frame-ancestors {HUB}")


def test_a_lab_on_every_address_has_each_and_no_other_name():
    everywhere = Sites.of("0.0.0.0", environment={})
    for host in ("192.168.1.7:7860", "[fe80::1]:7860", "localhost:7860"):
        assert refused(everywhere, "POST", host=host, origin=f"http://{host}") is None
    assert refused(everywhere, "GET", host="evil.example:7860") == 421
    assert refused(Sites.of("lab.lan", environment={}), "GET", host="lab.lan:7860") is None
    shared = Sites.of(share=True, environment={})
    assert refused(shared, "POST", host="abc.gradio.live", origin="https://abc.gradio.live") is None
    assert refused(shared, "POST", host="abc.gradio.live", origin="https://xyz.gradio.live") == 403


@given(own=NAMES, other=NAMES, port=st.integers(1, 65535), method=st.sampled_from(["POST", "PUT", "DELETE", "PATCH"]))
def test_only_the_allowed_name_and_its_own_pages(own, other, port, method):
    sites = Sites.of(allowed=[own], environment={})
    assert refused(sites, "GET", host=f"{own}:{port}") is None
    assert refused(sites, method, host=f"{own}:{port}", origin=f"https://{own}:{port}") is None
    if other != own:
        assert refused(sites, "GET", host=f"{other}:{port}") == 421
        assert refused(sites, method, host=f"{own}:{port}", origin=f"https://{other}:{port}") == 403


def refused(sites: Sites, method: str, **headers: str) -> int | None:
    refusal = sites.refusal(method, Headers(headers))
    return refusal[0] if refusal else None


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", CALLS)
def test_a_large_body_is_refused_before_it_is_read_as_json(address, path, chunked):
    size = int(LIMITS.json_mb * MB) + 1
    body = b'{"data": [' + b"[]," * (size // 3) + b"[]]}"
    pieces = (body[start : start + 65_536] for start in range(0, len(body), 65_536)) if chunked else body
    status, _, text = ask(address, "POST", path, pieces, {"Content-Type": "application/json"})
    assert status == 413 and "more than 0.5 MB" in json.loads(text)["detail"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"data": [' + b"[]," * 2_000 + b"[]]}", 413, "values"),
        (b"]" * 100_000, 413, "values"),
        (b'{"data": ' + b"[" * 9 + b"]" * 9 + b"}", 400, "nested"),
        (b'{"a":' * 50 + b"1" + b"}" * 50, 400, "nested"),
        (json.dumps({"data": []}).encode("utf-16-le"), 400, "UTF-8"),
    ],
    ids=["values", "closings", "lists", "objects", "utf-16"],
)
def test_small_json_that_is_large_to_hold_is_refused(address, body, status, words):
    got, _, text = post(address, JOIN, body)
    assert got == status and words in json.loads(text)["detail"]


JSON = st.recursive(
    st.text(max_size=30) | st.sampled_from(['"', "\\", '\\"[[[', "{,,,", "\n"]) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=30,
)


@given(value=JSON, ascii_only=st.booleans(), indent=st.none() | st.integers(0, 2))
def test_what_a_text_holds_is_no_structure(value, ascii_only, indent):
    """The bounds hold exactly for the lists and objects that are there, whatever the strings in them look like."""
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    depth = deep(value)
    Bodies(Limits(json_depth=depth or 1)).check(body)
    if depth > 1:
        with pytest.raises(HTTPException, match="nested"):
            Bodies(Limits(json_depth=depth - 1)).check(body)


def deep(value: object) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(deep, value), default=0) if isinstance(value, list) else 0


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 1_000_000, b'"' * 1_999_999, b"\\" * 2_000_000, b'"\\'])
def test_quotes_without_an_end_are_read_once(body):
    """A check that begins again at each quote would take hours here."""
    Bodies(Limits()).check(body)


def test_a_text_of_the_greatest_length_that_the_page_takes_passes():
    from app.tabs.long_context import MAX_BYTES

    text = 'He said: "It is [so], {I, too, think}."\n' * (MAX_BYTES // 40)
    body = json.dumps({"data": [text]}).encode()
    bodies = Bodies(Limits())
    bodies.announced(str(len(body)), upload=False)
    bodies.check(body)


def test_uploads_are_bounded_with_and_without_a_length(address):
    fits, over = int(LIMITS.upload_mb * MB) - 100, int((LIMITS.upload_mb + 2) * MB)
    for chunked in (False, True):
        assert upload(address, fits, chunked)[0] == 200
        status, _, text = upload(address, over, chunked)
        assert status == 413 and ("maximum allowed size" in text or "more than 2 MB" in text)


@pytest.mark.parametrize("path", [JOIN, UPLOAD])
def test_a_body_that_does_not_come_is_given_up(address, path):
    host, port = address.split(":")
    kind = f"multipart/form-data; boundary={BOUNDARY}" if path == UPLOAD else "application/json"
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 100\r\nContent-Type: {kind}\r\n\r\n"
        connection.sendall(head.encode() + b"-")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize(
    "value",
    [
        *({"fn_index": index, "data": [], "session_hash": "x"} for index in (9999, -1, 2**70)),
        {"data": [], "fn_index": 1e400},
        {"nonsense": 1, "session_hash": "x"},
        {"data": None},
        {"data": {"a": 1}, "session_hash": "x"},
        {"prompt": {"a": 1}, "event_data": 3, "fn_index": 10**30, "session_hash": "y", "data": []},
        b"[1, 2]",
        b"null",
        b"",
        b"{",
        b"\xff\xfe",
    ],
    ids=str,
)
def test_what_no_endpoint_takes_is_the_requests_fault(address, path, value):
    """200 is for what the queue takes in: there each event tells for itself what is wrong with its data."""
    status, _, text = post(address, path, value)
    assert status == 200 or 400 <= status < 500, text


def test_an_endpoint_that_is_not_there(address):
    for name in ("call/nothing", "call/v2/nothing", "run/nothing"):
        status, _, _ = post(address, f"/gradio_api/{name}", {"data": [], "prompt": "Hi"})
        assert 400 <= status < 500, name


def test_the_bodies_held_at_a_time_are_bounded():
    import asyncio

    bodies = Bodies(Limits(bodies_mb=0.1))

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": bytes(60_000), "more_body": False}

    async def two() -> None:
        with bodies.holding() as first, bodies.holding() as second:
            assert await bodies.gather(receive, first)
            with pytest.raises(HTTPException, match="same time"):
                await bodies.gather(receive, second)
        with bodies.holding() as third:
            assert await bodies.gather(receive, third)

    asyncio.run(two())
