"""Arguments of the public methods, checked: another type is an `InvalidOption` that says what is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakebed.errors import InvalidOption


def whole_number(method: str, name: str, value: Any, *, least: int = 0) -> int:
    """The value, where it is a whole number of at least `least`.

    >>> whole_number("limit", "rows", -1)
    Traceback (most recent call last):
    lakebed.errors.InvalidOption: limit() takes a whole number of at least 0 as rows, not -1
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refused(method, name, value, f"a whole number of at least {least}")
    return value


def text(method: str, name: str, value: Any) -> str:
    """The value, where it is a text."""
    if not isinstance(value, str):
        raise refused(method, name, value, "a text")
    return value


def names(method: str, name: str, value: Any) -> tuple[str, ...]:
    """The value as texts: a list of them, or one."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise refused(method, name, value, "a list of texts")
    return tuple(value)


def options_given(method: str, value: Any, name: str = "options") -> Mapping[str, Any]:
    """The value, where it is a dict whose keys are texts; nothing for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refused(method, name, value, "a dict of option keys and values")
    return value


def one_of(method: str, name: str, value: Any, *choices: str) -> str:
    """The value, where it is one of the choices."""
    if value not in choices:
        raise refused(method, name, value, " or ".join(repr(choice) for choice in choices))
    return value


def refused(method: str, name: str, value: Any, takes: str) -> InvalidOption:
    """What is raised for a value that a method does not take."""
    shown = repr(value)
    return InvalidOption(
        f"{method}() takes {takes} as {name}, not {shown if len(shown) <= 60 else shown[:57] + '...'}",
        context={"method": method, "argument": name},
    )
