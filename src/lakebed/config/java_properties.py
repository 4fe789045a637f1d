"""Options in a file: a JSON object, or the lines of a `.properties` file as Java reads them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lakebed.errors import InvalidOption

_BLANKS = " \t\f"
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


def read_options(path: Path) -> dict[str, str]:
    """The options in a file: a JSON object, or the lines of a `.properties` file as Java reads them."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if text.lstrip().startswith("{"):
            options = json.loads(text)
            return {key: value if isinstance(value, str) else json.dumps(value) for key, value in options.items()}
        return read_properties(text)
    except ValueError as error:
        raise InvalidOption(f"{path} cannot be read: {error}", hint="give a JSON object, or lines key=value") from error


def read_properties(text: str) -> dict[str, str]:
    r"""The keys and values of a `.properties` file by the rules of `java.util.Properties`: the key ends at `=`, `:` or
    white space, a backslash at the end of a line continues it, `#` and `!` begin comments, and backslashes escape.

    >>> read_properties("hoodie.table.name: trips\nfields = a,\\\n   b")
    {'hoodie.table.name': 'trips', 'fields': 'a,b'}
    """
    properties: dict[str, str] = {}
    pending = ""
    for natural in [*re.split(r"\r\n|\r|\n", text), ""]:
        line = natural.lstrip(_BLANKS)
        if not pending and line[:1] in ("", "#", "!"):
            continue
        line = pending + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2 and natural:
            pending = line[:-1]
            continue
        pending = ""
        match = _PROPERTY.match(line.rstrip("\\") + "\\" * (backslashes - backslashes % 2))
        assert match is not None
        properties[_unescaped(match[1])] = _unescaped(match[2]).rstrip()
    return properties


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise ValueError(f"\\u is not followed by four hexadecimal digits in {text!r}")
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(match[2], match[2])

    return _ESCAPE.sub(plain, text)
