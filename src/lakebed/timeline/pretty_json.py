"""JSON text laid out as Hudi's Java writer lays out the version 6 commit files."""

from __future__ import annotations

import json
from typing import Any, cast


def pretty_json(value: Any, depth: int = 0) -> str:
    """Objects go over several lines, two blanks a level and ` : ` after keys; lists stay on one line.

    >>> print(pretty_json({"a": [1, 2], "b": {}}))
    {
      "a" : [ 1, 2 ],
      "b" : { }
    }
    """
    if isinstance(value, dict):
        return _object(cast("dict[str, Any]", value), depth)
    if isinstance(value, list | tuple):
        items = ", ".join([pretty_json(item, depth) for item in cast("list[Any]", value)])
        return f"[ {items} ]" if items else "[ ]"
    if value is None:
        return "null"
    if type(value) is int:
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _object(fields: dict[str, Any], depth: int) -> str:
    if not fields:
        return "{ }"
    indent = "  " * (depth + 1)
    lines = [
        f"{indent}{json.dumps(key, ensure_ascii=False)} : {pretty_json(v, depth + 1)}" for key, v in fields.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n" + "  " * depth + "}"
