"""Which embedded Avro schemas are decoded: those under which a file can't become far more values than it has bytes.

Whoever can change a file's data can change its embedded schema. Of a schema that refers to itself data nests as deep
as it likes, of one whose items take no bytes a count of 2^40 is valid, and a chain of records that each hold two of the
one before doubles with every link. None of Hudi's schemas does any of that.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

import fastavro

_avro: Any = fastavro  # its stubs leave schemas half typed

_MOST_BYTES: Final = 1 << 20
_DEEPEST: Final = 32
# A value for each byte is what a record of nullable fields that are all null comes to, and one for the record.
_VALUES_A_BYTE: Final = 2
_VALUES_TO_SPARE: Final = 1000
# The fewest bytes of each.
_PRIMITIVES: Final = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}


@lru_cache(maxsize=64)
def bounded_schema(text: str) -> Any:
    """The schema in fastavro's form. Raises `ValueError` where the text is no schema, or one that refers to itself,
    nests more than 32 types deep, has items without bytes, or makes more than about two values of a byte.

    >>> bounded_schema('{"type":"array","items":"null"}')
    Traceback (most recent call last):
    ...
    ValueError: its items take fewer bytes than they make values
    """
    if len(text) > _MOST_BYTES:
        raise ValueError(f"a schema of {len(text)} characters")
    try:
        schema = json.loads(text)
        spare, _ = _Bounds().of(schema, "", 0)
        if spare > _VALUES_TO_SPARE:
            raise ValueError(f"it makes more than {_VALUES_TO_SPARE} values out of nothing")
        return _avro.parse_schema(schema)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    except (KeyError, TypeError, AttributeError, _avro.schema.SchemaParseException) as cause:
        raise ValueError(f"it is no Avro schema: {cause!r}") from cause


class _Bounds:
    """Goes through a schema once. A type's *spare* is how many values more than `_VALUES_A_BYTE` for each of its bytes
    data of it can become: a record's is the sum of its fields', and that of items must not be above zero."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[int, int]] = {}
        self._open: set[str] = set()

    def of(self, schema: Any, namespace: str, depth: int) -> tuple[int, int]:
        """Spare, and how many types the schema nests."""
        if depth > _DEEPEST:
            raise ValueError(f"it nests more than {_DEEPEST} types deep")
        if isinstance(schema, str):
            return self._by_name(schema, namespace, depth)
        if isinstance(schema, list):
            if not schema:
                raise ValueError("a union of nothing")
            branches = [self.of(branch, namespace, depth + 1) for branch in schema]
            return max(spare for spare, _ in branches) - _VALUES_A_BYTE, 1 + max(height for _, height in branches)
        kind = schema["type"]
        if isinstance(kind, (list, dict)):
            return self.of(kind, namespace, depth + 1)
        if kind in ("record", "error"):
            return self._record(schema, namespace, depth)
        if kind in ("array", "map"):
            spare, height = self.of(schema["items" if kind == "array" else "values"], namespace, depth + 1)
            if spare - (_VALUES_A_BYTE if kind == "map" else 0) > 0:
                raise ValueError("its items take fewer bytes than they make values")
            return 1 - _VALUES_A_BYTE, height + 1
        if kind in ("enum", "fixed"):
            size = schema["size"] if kind == "fixed" else 1
            if not isinstance(size, int) or size < 0:
                raise ValueError(f"a fixed of {size!r} bytes")
            return self._remember(schema, namespace, (1 - _VALUES_A_BYTE * size, 1))
        return self._by_name(kind, namespace, depth)

    def _record(self, schema: dict[str, Any], namespace: str, depth: int) -> tuple[int, int]:
        name, inner = _full_name(schema, namespace)
        if name in self._open:
            raise ValueError(f"its type {name} refers to itself")
        self._open.add(name)
        fields = [self.of(field["type"], inner, depth + 1) for field in schema["fields"]]
        self._open.remove(name)
        found = 1 + sum(spare for spare, _ in fields), 1 + max((height for _, height in fields), default=0)
        return self._remember(schema, namespace, found)

    def _by_name(self, name: str, namespace: str, depth: int) -> tuple[int, int]:
        if name in _PRIMITIVES:
            return 1 - _VALUES_A_BYTE * _PRIMITIVES[name], 1
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self._open or name in self._open:
            raise ValueError(f"its type {name} refers to itself")
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise ValueError(f"it has no type {name}")
        if depth + found[1] > _DEEPEST:
            raise ValueError(f"it nests more than {_DEEPEST} types deep")
        return found

    def _remember(self, schema: dict[str, Any], namespace: str, found: tuple[int, int]) -> tuple[int, int]:
        self._named[_full_name(schema, namespace)[0]] = found
        return found


def _full_name(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    """A named type's full name, and the namespace of what is in it."""
    name: str = schema["name"]
    if "." not in name:
        namespace = schema.get("namespace") or namespace
        name = f"{namespace}.{name}" if namespace else name
    return name, name.rpartition(".")[0]
