"""Numbers in sentences that people read, and results that print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from html import escape
from typing import Any, cast


def count_text(count: int, noun: str) -> str:
    """So many of a thing.

    >>> count_text(1, "file"), count_text(2000, "log file")
    ('1 file', '2,000 log files')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_text(size: float) -> str:
    """Bytes as people read them.

    >>> size_text(2048)
    '2.0 KB'
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


class Printed:
    """A result that prints as its text wherever it is shown. Of dataclasses (with `repr=False`) that have `__str__`."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values: Any = self
        listed = sorted(fields(values), key=lambda field: bool(field.kw_only))  # in the order of the constructor
        return {field.name: _plain(getattr(self, field.name)) for field in listed}

    def __str__(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self), quote=False)}</pre>"


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
