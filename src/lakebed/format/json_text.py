"""JSON from a table's files: whatever the bytes are, a value or `CorruptFile`."""

from __future__ import annotations

import json
from typing import Any, NoReturn, cast

from lakebed.errors import CorruptFile


def parse_json(data: bytes | str, path: str = "", *, what: str = "this text", hint: str = "") -> Any:
    """The value that JSON stands for. Text that is none, that nests too deep to be read, and NaN and Infinity, which
    Java's writers do not write, raise `CorruptFile` naming `path`.

    >>> parse_json(b'{"a": 1}')
    {'a': 1}
    """
    try:
        return json.loads(data, parse_constant=_no_number)
    except RecursionError:
        cause: Exception = ValueError("it nests too deep")
    except ValueError as error:
        cause = error
    raise CorruptFile(f"{path or what} is no JSON: {cause}", hint=hint, context={"path": path}) from cause


def parse_json_object(data: bytes | str, path: str = "", *, what: str = "this text", hint: str = "") -> dict[str, Any]:
    """The same where an object is expected; `CorruptFile` for anything else."""
    found = parse_json(data, path, what=what, hint=hint)
    if not isinstance(found, dict):
        raise CorruptFile(f"{path or what} is no JSON object", hint=hint, context={"path": path})
    return cast("dict[str, Any]", found)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
