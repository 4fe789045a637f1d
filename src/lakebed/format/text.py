"""Java `.properties` text, the form of `hoodie.properties`, and JSON of a table's files: parsed to a value or
`CorruptFile`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn, cast

from lakebed.errors import CorruptFile

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_BLANKS = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|u|.)", re.DOTALL)
# The key of a line ends at the first `=`, `:` or blank without a backslash.
_KEY_AND_VALUE = re.compile(r"((?:[^\\=: \t\f]+|\\.?)*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_TO_ESCAPE = re.compile(r"[^ -~]|[=:#!\\]")
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"} | {c: "\\" + c for c in "=:#!"}


def parse_properties(text: bytes) -> dict[str, str]:
    """The keys and values of a Java properties file; the last value of a repeated key counts.

    Raises `CorruptFile` for a broken unicode escape.

    >>> parse_properties(b"#comment\\nhoodie.table.name=t\\npart = a\\\\:SIMPLE\\nblank=\\n")
    {'hoodie.table.name': 't', 'part': 'a:SIMPLE', 'blank': ''}
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text.decode("latin-1")):
        parts = _KEY_AND_VALUE.match(line)
        assert parts is not None
        properties[_unescape(parts[1])] = _unescape(parts[2])
    return properties


def dump_properties(props: Mapping[str, str], comment: str, when: datetime) -> bytes:
    """The bytes of a Java properties file: the comment, the date as Java prints it (in UTC), then one line per key in
    the given order.

    >>> dump_properties({"a b": "x:y"}, "partition metadata", datetime(2026, 11, 21, 1, 39, 16, tzinfo=UTC))
    b'#partition metadata\\n#Sat Nov 21 01:39:16 UTC 2026\\na\\\\ b=x\\\\:y\\n'
    """
    lines = [f"#{comment}", f"#{_java_date(when)}"]
    lines += [f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}" for key, value in props.items()]
    return ("\n".join(lines) + "\n").encode("ascii", "replace")


def _logical_lines(text: str) -> Iterator[str]:
    """The lines without comments and blanks, with continued lines (an odd number of trailing backslashes) joined."""
    pending = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        slashes = len(line) - len(line.rstrip("\\"))
        pending += line
        if slashes % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def plain(match: re.Match[str]) -> str:
        mark = match[1]
        if mark == "u":
            raise CorruptFile(f"broken \\u escape in properties text {text[:60]!r}")
        return chr(int(mark[1:], 16)) if len(mark) == 5 else _PLAIN.get(mark, mark)

    # Java writes characters beyond the BMP as two escapes, one for each UTF-16 half.
    return _ESCAPE.sub(plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, is_key: bool) -> str:
    def escape(match: re.Match[str]) -> str:
        units = match[0].encode("utf-16-be", "surrogatepass")
        codes = (f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2))
        return _ESCAPED.get(match[0]) or "".join(codes)

    escaped = _TO_ESCAPE.sub(escape, text)
    if is_key:
        return escaped.replace(" ", "\\ ")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _java_date(when: datetime) -> str:
    """A time as Java prints it, e.g. `Sat Nov 21 01:39:16 UTC 2026`, in every locale and zone."""
    at = when.astimezone(UTC)
    clock = at.strftime("%H:%M:%S")
    return f"{_DAYS[at.weekday()]} {_MONTHS[at.month - 1]} {at.day:02d} {clock} UTC {at.year:04d}"


def parse_json(data: bytes | str, path: str = "", *, label: str = "this text", hint: str = "") -> Any:
    """The value of a JSON text. Raises `CorruptFile` with `path` for text that is not JSON or nests too deep, and for
    NaN and Infinity, which Java's writers do not write.

    >>> parse_json(b'{"a": 1}')
    {'a': 1}
    """
    try:
        return json.loads(data, parse_constant=_no_number)
    except RecursionError:
        cause: Exception = ValueError("it nests too deep")
    except ValueError as error:
        cause = error
    raise CorruptFile(f"{path or label} is no JSON: {cause}", hint=hint, context={"path": path}) from cause


def parse_json_object(data: bytes | str, path: str = "", *, label: str = "this text", hint: str = "") -> dict[str, Any]:
    """The JSON object in `data`, parsed as `parse_json` does. Raises `CorruptFile` for any other value."""
    parsed = parse_json(data, path, label=label, hint=hint)
    if not isinstance(parsed, dict):
        raise CorruptFile(f"{path or label} is no JSON object", hint=hint, context={"path": path})
    return cast("dict[str, Any]", parsed)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
