"""Text from bytes that may begin with a byte order mark, as editors and shells of other systems write it."""

from __future__ import annotations

import codecs

MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def decoded(data: bytes) -> str:
    """The text, by its mark or else as UTF-8. Raises UnicodeDecodeError where it is neither."""
    return data.decode(next((name for mark, name in MARKS.items() if data.startswith(mark)), "utf-8"))
