"""Texts of files as UTF-8: other encodings that a caller names, and bytes that are no text, by their line."""

from __future__ import annotations

import codecs
from typing import Any

import pyarrow as pa

from lakebed.errors import InvalidOption, InvalidRecord

UTF8 = "utf-8"
_CHUNK_BYTES = 1 << 20
_MARKS_OF_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def check_encoding(encoding: str | None) -> None:
    """Raise `InvalidOption` for a name that is not a text encoding."""
    try:
        is_known = encoding is None or bool(codecs.lookup(encoding)._is_text_encoding)
    except (LookupError, TypeError, ValueError):
        is_known = False
    if not is_known:
        raise InvalidOption(
            f"encoding={encoding!r} is unknown",
            hint="name it as Python does: utf-8, utf-16, latin-1, cp1252, ...",
            context={"encoding": str(encoding)},
        )


def as_utf8(stream: Any, encoding: str) -> Any:
    """The stream of a text in this encoding, converted to UTF-8."""
    return pa.transcoding_input_stream(stream, encoding, UTF8)


def check_text(data: bytes, name: str) -> None:
    """Raise `InvalidRecord` with the file (`name`) and line of the first byte that is not UTF-8.

    >>> check_text("é".encode(), "rows.csv")
    """
    try:
        data.decode()
    except UnicodeDecodeError:
        check_stream(pa.BufferReader(data), name, UTF8)


def check_stream(stream: Any, name: str, encoding: str) -> None:
    """Raise the error of `check_text` if the bytes of a stream are not text in the encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line, head, last = 1, b"", ""
    while True:
        chunk = stream.read(_CHUNK_BYTES)
        head = head or chunk[:2]
        try:
            text = decoder.decode(chunk, not chunk)
        except UnicodeDecodeError as error:
            line += _line_breaks(last, error.object[: error.start].decode(encoding, "replace"))
            byte = error.object[error.start]
            is_named = ", and no encoding= is given" if encoding == UTF8 else f", which encoding={encoding!r} names"
            other = "utf-16" if head in _MARKS_OF_UTF16 else "latin-1"
            raise InvalidRecord(
                f"{name}, line {line}: the byte 0x{byte:02x} is not {encoding.upper()}{is_named}",
                hint=f"name the file's encoding, for example encoding={other!r}, or save the file as UTF-8",
                context={"line": line},
            ) from None
        line += _line_breaks(last, text)
        last = text[-1:] or last
        if not chunk:
            return


def _line_breaks(last: str, text: str) -> int:
    """How many lines end in the text, which follows on the character `last`."""
    pairs = text.count("\r\n") + (last == "\r" and text.startswith("\n"))
    return text.count("\n") + text.count("\r") - pairs
