"""Numbers in sentences that people read, and results that print."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, cast

_DATE_DIGITS, _MILLIS_DIGITS = 14, 17


def count_text(count: int, noun: str) -> str:
    """A number of things, in words.

    >>> count_text(1, "file"), count_text(2000, "log file")
    ('1 file', '2,000 log files')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_text(size: float) -> str:
    """A number of bytes as a text with a unit.

    >>> size_text(2048)
    '2.0 KB'
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def instant_text(time: str | None) -> str:
    """An instant time as a text with date, hours and milliseconds; special times are unchanged, None is an empty text.

    >>> instant_text("20261121110149683"), instant_text("00000000000000010"), instant_text(None)
    ('2026-11-21 11:01:49.683', '00000000000000010', '')
    """
    if not time or len(time) < _DATE_DIGITS or time.startswith("0") or not time.isdigit():
        return time or ""
    millis = f".{time[14:17]}" if len(time) >= _MILLIS_DIGITS else ""
    return f"{time[:4]}-{time[4:6]}-{time[6:8]} {time[8:10]}:{time[10:12]}:{time[12:14]}{millis}"


class Lines(str):
    """A text of several lines that a prompt and a notebook show without quotes.

    >>> Lines("a plan\\n  of two lines")
    a plan
      of two lines
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str.__str__(self)

    def _repr_html_(self) -> str:
        return text_html(self)


def key_text(fields: Mapping[str, str]) -> str:
    """The text of a record key, as users write it, from the texts of its fields.

    >>> key_text({"id": "42"}), key_text({"id": "42", "day": "7"})
    ('42', 'id:42,day:7')
    """
    if len(fields) == 1:
        return next(iter(fields.values()))
    return ",".join(f"{name}:{text}" for name, text in fields.items())


def text_html(text: str) -> str:
    """The HTML of a text with its lines and spaces, for a notebook; empty for an empty text.

    >>> text_html("a <b>")
    '<pre>a &lt;b&gt;</pre>'
    """
    from html import escape

    return f"<pre>{escape(text, quote=False)}</pre>" if text else ""


def rows_html(names: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """The HTML of a table, for a notebook: columns of numbers on the right, others on the left; None is an empty cell,
    and `Marked` values are set off.

    >>> rows_html(["a", "n"], [["b", 1]]).partition("<tbody>")[2]
    '<tr><td style="text-align:left">b</td><td style="text-align:right">1</td></tr></tbody></table>'
    """
    from html import escape

    def are_numbers(values: Iterable[object]) -> bool:
        present = [value for value in values if value is not None and value != ""]
        return bool(present) and all(
            (isinstance(value, int | float | Decimal) and not isinstance(value, bool))
            or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)  # short ones: instants are no numbers
            for value in present
        )

    columns, cells = list(names), [list(row) for row in rows]
    sides = ["right" if are_numbers(row[at] for row in cells) else "left" for at in range(len(columns))]

    def cell(tag: str, value: object, side: str) -> str:
        parts = value.parts if isinstance(value, Marked) else (("" if value is None else str(value), False),)
        text = "".join(f"<mark>{escape(part)}</mark>" if is_marked else escape(part) for part, is_marked in parts)
        return f'<{tag} style="text-align:{side}">{text}</{tag}>'

    head = "".join(cell("th", name, side) for name, side in zip(columns, sides, strict=True))
    body = "".join(
        "<tr>" + "".join(cell("td", value, side) for value, side in zip(row, sides, strict=True)) + "</tr>"
        for row in cells
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_NUMBER = re.compile(r"-?[0-9][0-9,.]{0,13}(?: (?:B|[KMGTP]B|s|%))?|-?[0-9.]{1,6} ?%")


@dataclass(frozen=True, slots=True)
class Marked:
    """A text in a cell of a table whose parts are set off or not."""

    parts: tuple[tuple[str, bool], ...]

    def __str__(self) -> str:
        return "".join(text for text, _ in self.parts)


def marked_pair(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, changed: Collection[str]
) -> tuple[Marked | None, Marked | None]:
    """A row before and after a change as cells of a table, with the columns that changed marked.

    >>> [str(cell) for cell in marked_pair({"id": 1, "fare": 2.0}, {"id": 1, "fare": 3.0}, ["fare"])]
    ['id 1, fare 2.0', 'id 1, fare 3.0']
    """

    def cell(row: Mapping[str, Any] | None) -> Marked | None:
        if row is None:
            return None
        parts: list[tuple[str, bool]] = []
        for name, value in row.items():
            parts += [(", ", False)] if parts else []
            parts.append((f"{name} {value}", name in changed))
        return Marked(tuple(parts))

    return cell(before), cell(after)


def vector_text(elements: Sequence[float]) -> str:
    """A vector in a cell: its dimension and its norm.

    >>> vector_text([3.0, 4.0])
    '2 numbers, norm 5'
    """
    return f"{count_text(len(elements), 'number')}, norm {math.hypot(*elements):.6g}"


def blob_text(blob: Mapping[str, Any]) -> str:
    """A blob in a cell: the size of its data, or the file and the bytes that it references.

    >>> blob_text({"type": "INLINE", "data": b"abc", "reference": None})
    '3 bytes'
    >>> blob_text({"type": "OUT_OF_LINE", "reference": {"external_path": "/a", "offset": 5, "length": 10}})
    '/a, 10 bytes from 5'
    """
    if blob.get("data") is not None:
        return count_text(len(blob["data"]), "byte")
    reference = blob.get("reference") or {}
    path, offset, length = (reference.get(name) for name in ("external_path", "offset", "length"))
    part = "" if length is None else f", {count_text(length, 'byte')}"
    return f"{path}{part}{f' from {offset:,}' if offset else ''}"


class Printed:
    """The base of results that are shown as their text everywhere: of dataclasses with `repr=False` and `__str__`."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields of the result as plain values, for JSON."""
        values: Any = self
        listed = sorted(fields(values), key=lambda field: bool(field.kw_only))  # in the order of the constructor
        return {field.name: _plain(getattr(self, field.name)) for field in listed}

    def __str__(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return text_html(str(self))


def _plain(value: Any) -> Any:
    if isinstance(value, Printed):
        return value.to_dict()
    if isinstance(value, float):
        return round(value, 4)  # all of them are seconds
    if isinstance(value, tuple):
        return [_plain(part) for part in cast("tuple[Any, ...]", value)]
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in cast("Mapping[str, Any]", value).items()}
    return value
