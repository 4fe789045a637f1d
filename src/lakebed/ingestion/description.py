"""Descriptions in TOML or dicts as dataclasses: unknown keys and values of another type are errors with their place."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, TypeVar, cast, get_args, get_type_hints

from lakebed.errors import InvalidOption

T = TypeVar("T")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAMES: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "a list of texts",
    dict: "a table of keys and values",
}


def build(kind: type[T], values: Any, section: str) -> T:
    """The dataclass `kind` with the values of one section of a description.

    Fields are texts, numbers, booleans, tuples of texts and dicts. Raises `InvalidOption` for a key that is not a field
    (with the nearest one), for a value of another type, and where a field without a default has no value.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Settings:
    ...     topic: str
    ...     limit: int = 5
    >>> build(Settings, {"topic": "trips"}, "[source]")
    Settings(topic='trips', limit=5)
    >>> build(Settings, {"topik": "trips"}, "[source]")
    Traceback (most recent call last):
    lakebed.errors.InvalidOption: [source] has no key 'topik'. Did you mean topic?
    """
    if not isinstance(values, Mapping):
        raise InvalidOption(f"{section} is {values!r}", hint="write it as a table of keys and values")
    settings = cast("Mapping[str, Any]", values)
    fields_by_name = {field.name: field for field in fields(cast("Any", kind))}
    check_keys(settings, fields_by_name, section)
    hints = get_type_hints(kind)
    arguments = {name: _value(value, hints[name], f"{section} {name}") for name, value in settings.items()}
    for name, field in fields_by_name.items():
        if name not in arguments and field.default is MISSING and field.default_factory is MISSING:
            raise InvalidOption(f"{section} lacks {name}", hint=f"add {name} = ...", context={"key": name})
    return kind(**arguments)


def check_keys(values: Iterable[str], allowed: Iterable[str], section: str) -> None:
    """Raise `InvalidOption` for the first unknown key, with the nearest known one."""
    names = list(allowed)
    for key in values:
        if key not in names:
            near = get_close_matches(str(key), names, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"its keys are {', '.join(names)}"
            context = {"key": key, "nearest": near[0] if near else None}
            raise InvalidOption(f"{section} has no key {key!r}", hint=hint, context=context)


def _value(value: Any, hint: Any, where: str) -> Any:
    """The value, if it has the field's type; texts with the variables of the environment in place of `${NAME}`."""
    kinds = [_plain(kind) for kind in (get_args(hint) if type(None) in get_args(hint) else (hint,))]
    if isinstance(value, str):
        value = with_variables(value, where)
    if tuple in kinds and isinstance(value, str):
        return (value,)
    if tuple in kinds and isinstance(value, Sequence) and not isinstance(value, str):
        texts = cast("Sequence[Any]", value)
        if all(isinstance(text, str) for text in texts):
            return tuple(texts)
    if dict in kinds and isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        return {str(k): with_variables(v, where) if isinstance(v, str) else v for k, v in entries.items()}
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    for kind in kinds:
        if kind is Any or (type(value) is kind and kind in (str, int, float, bool)):
            return value
    if Any in kinds:
        return value
    expected = " or ".join(_NAMES[kind] for kind in kinds if kind in _NAMES)
    raise InvalidOption(f"{where} is {value!r}", hint=f"give {expected}", context={"key": where.rpartition(" ")[2]})


def _plain(kind: Any) -> Any:
    origin = getattr(kind, "__origin__", None)
    if origin is None:
        return kind
    return dict if origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping" else origin


def with_variables(text: str, where: str) -> str:
    """The text with the values of environment variables in place of `${NAME}`.

    Raises `InvalidOption` for a variable that is not set."""

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise InvalidOption(
                f"{where}: the environment variable {match[1]} is not set", hint="set it, or write the value"
            )
        return os.environ[match[1]]

    return _VARIABLE.sub(value_of, text)
