"""The teacher's screen: a page of its own behind a secret link, which reads what the room shows each second."""

from __future__ import annotations

import csv
import io
import secrets
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import qrcode
from qrcode.image.svg import SvgPathImage
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from app import languages, live
from app.charts.palette import PALETTES
from app.classroom.room import Room
from app.lessons import lessons

HERE = Path(__file__).parent
# The form in which a student enters the code by hand.
JOIN = "/join"
NO_STORE = {"cache-control": "no-store"}
Answer = Callable[[Request], Response]


def student_address(address: str, code: str) -> str:
    """What opens the lab as a student of the class. address: of the lab, without a slash at its end."""
    return f"{address}/?class={code}&tab=lessons"


def routes(room: Room, address: Callable[[], str]) -> list[Route]:
    """Where students enter the code, and what the teacher's screen asks for. address: of the lab, as students reach
    it."""

    def behind(answer: Answer) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def answered(request: Request) -> Response:
            if not secrets.compare_digest(request.path_params["secret"].encode(), room.secret.encode()):
                return PlainTextResponse("There is no such class: use the link that the lab has printed.", 404)
            return answer(request)

        return answered

    def screen(request: Request) -> Response:
        return HTMLResponse(_filled("screen.html", palettes=live.inline(PALETTES), lessons=live.inline(_asked())))

    def state(request: Request) -> Response:
        if request.query_params.get("version") == str(room.version):
            return Response(status_code=204, headers=NO_STORE)
        return JSONResponse(room.shown() | _invitation(address(), room.code), headers=NO_STORE)

    def table(request: Request) -> Response:
        named = {"content-disposition": f'attachment; filename="class-{room.code}.csv"'} | NO_STORE
        return PlainTextResponse(_csv(room.table()), media_type="text/csv", headers=named)

    def hide(request: Request) -> Response:
        room.hide(request.path_params["number"])
        return Response(status_code=204)

    def close(request: Request) -> Response:
        room.close()
        return Response(status_code=204)

    async def join(request: Request) -> Response:
        return HTMLResponse(_filled("join.html"))

    at = "/class/{secret}"
    return [
        Route(JOIN, join),
        Route(at, behind(screen)),
        Route(f"{at}/state", behind(state)),
        Route(f"{at}/dots.csv", behind(table)),
        Route(f"{at}/hide/{{number:int}}", behind(hide), methods=["POST"]),
        Route(f"{at}/close", behind(close), methods=["POST"]),
    ]


def in_terminal(link: str) -> str:
    """The QR code of a link in block characters."""
    drawn = io.StringIO()
    _code(link).print_ascii(out=drawn, invert=True)
    return drawn.getvalue()


def _invitation(address: str, code: str) -> dict[str, Any]:
    link = student_address(address, code)
    svg = _code(link).make_image(image_factory=SvgPathImage).to_string(encoding="unicode")
    return {"link": link, "join": f"{address}{JOIN}", "qr": svg}


def _code(link: str) -> qrcode.QRCode:
    code = qrcode.QRCode(border=2)
    code.add_data(link)
    return code


def _asked() -> dict[str, Any]:
    """What the lessons ask, by their names."""
    shown = {"question", "unit", "choices", "right"}
    return {
        lesson.name: {"title": lesson.title, "figures": [each.model_dump() for each in lesson.figures]}
        | lesson.predict.model_dump(include=shown)
        for lesson in lessons().values()
    }


def _filled(name: str, **parts: str) -> str:
    page = (HERE / name).read_text("utf-8")
    for part, text in {"chooser": languages.chooser(), **parts}.items():
        page = page.replace(f"{{{{{part}}}}}", text)
    return page


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    return written.getvalue()
