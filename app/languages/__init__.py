"""The page's words in other languages: `<language>.json` holds, for each English text of the page, the same in that
language. {n} stands for a number, {} for whatever else changes. The script static/page/language.js puts them on the
page. What is missing stays English, as the log below the evidence does.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parent
# What the page itself is written in, and the others, each by its own name.
ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "de": "Deutsch", "es": "Español", "zh": "中文", "ar": "العربية"}
RIGHT_TO_LEFT = ("ar",)


def direction(language: str) -> str:
    """Which way it is written, as HTML has it."""
    return "rtl" if language in RIGHT_TO_LEFT else "ltr"


def words(language: str) -> dict[str, str]:
    """Its words by the English ones; none for English itself."""
    return {} if language == ENGLISH else json.loads((FOLDER / f"{language}.json").read_text("utf-8"))


def chooser() -> str:
    """The list of languages, for the page's head."""
    options = "".join(f'<option value="{code}" lang="{code}">{name}</option>' for code, name in LANGUAGES.items())
    return f'<select class="ll-language" aria-label="Language" autocomplete="off" translate="no">{options}</select>'


def route() -> Route:
    """Where the page asks for a language's words."""
    return Route("/lab/languages/{language}.json", _respond)


@cache
def _packed(language: str) -> bytes:
    return gzip.compress((FOLDER / f"{language}.json").read_bytes(), 6)


async def _respond(request: Request) -> Response:
    language = request.path_params["language"]
    if language not in LANGUAGES or not (FOLDER / f"{language}.json").is_file():
        raise HTTPException(404)
    headers = {"Content-Encoding": "gzip", "Cache-Control": "no-cache"}
    return Response(_packed(language), media_type="application/json", headers=headers)
