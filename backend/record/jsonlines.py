"""Files of one JSON document a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from backend.refused import Refused


def read(file: Path, *fields: str) -> list[Any]:
    """The documents of a file, empty lines left out.

    fields: what each must hold. ValueError with a sentence where one lacks them or the file cannot be read.
    """
    found = []
    try:
        # Lines end with "\n" alone: JSON may hold the other separators that `splitlines` knows.
        for line in file.read_text("utf-8").split("\n"):
            if line.strip():
                found.append(json.loads(line))
    except json.JSONDecodeError as error:
        number = len(found) + 1
        raise Refused(f"document {number} of {file} is no JSON ({error.msg}): give one a line") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{file} is not UTF-8 text: give one JSON document a line") from error
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror}): give the path of a JSON-lines file") from error
    demand(file, found, *fields)
    return found


def demand(file: Path, documents: Iterable[Any], *fields: str) -> None:
    """Checks that each document of a file that was read holds these fields. ValueError with a sentence where not."""
    for number, document in enumerate(documents, 1):
        lacking = [field for field in fields if not isinstance(document, dict) or field not in document]
        if lacking:
            raise Refused(f"document {number} of {file} lacks {', '.join(lacking)}: give JSON lines that have it")


def append(file: Path, documents: Iterable[Any]) -> None:
    """Add documents at the end of a file, making it where there is none."""
    with file.open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
