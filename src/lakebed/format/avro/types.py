"""An Avro record schema as a tree: what the bytes hold, and the Arrow type of each part.

An embedded schema is decoded only where a file cannot become far more values than it has bytes. A person who can change
a file's data can change its schema: one that refers to itself nests without bound, one whose items take no bytes
allows a count of 2^40, and a chain of records that each hold two of the one before doubles with every link. None of
Hudi's schemas does any of that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

import fastavro
import pyarrow as pa

from lakebed.schema.avro import avro_to_arrow

_avro: Any = fastavro  # its stubs leave schemas half typed

_MAX_BYTES: Final = 1 << 20
# A nullable struct is two types, and a table's columns have up to 90 levels (`schema.arrow`).
_MAX_DEPTH: Final = 192
# A value for each byte is what a record of nullable fields that are all null comes to, and one for the record.
_VALUES_A_BYTE: Final = 2
_VALUES_TO_SPARE: Final = 1000
_NO_NAMESPACE: Final = "lakebed.without"
# The fewest bytes of each.
_PRIMITIVE_BYTES: Final = {
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
    """The schema in fastavro's form. Raises `ValueError` if the text is no schema, or one that refers to itself,
    nests more than 192 types deep, has items without bytes, or makes more than about two values of a byte.

    >>> bounded_schema('{"type":"array","items":"null"}')
    Traceback (most recent call last):
    ...
    ValueError: its items take fewer bytes than they make values
    """
    if len(text) > _MAX_BYTES:
        raise ValueError(f"a schema of {len(text)} characters")
    try:
        schema = json.loads(text)
        spare, _ = _Bounds().of(schema, "", 0)
        if spare > _VALUES_TO_SPARE:
            raise ValueError(f"it makes more than {_VALUES_TO_SPARE} values out of nothing")
        return _avro.parse_schema(_InFullNames().of(schema, ""))
    except RecursionError:
        raise ValueError("it nests too deep") from None
    except (KeyError, TypeError, AttributeError, _avro.schema.SchemaParseException) as cause:
        raise ValueError(f"it is no Avro schema: {cause!r}") from cause


class _Bounds:
    """Goes through a schema once. A type's *spare* is how many values its data can become beyond `_VALUES_A_BYTE` for
    each byte. A record's spare is the sum of its fields' spares. The spare of items must not be above zero."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[int, int]] = {}
        self._open: set[str] = set()

    def of(self, schema: Any, namespace: str, depth: int) -> tuple[int, int]:
        """The spare of a schema, and the number of levels to which it nests types. A spare above zero means that its
        data can become more than `_VALUES_A_BYTE` values for each byte."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"it nests more than {_MAX_DEPTH} types deep")
        if isinstance(schema, str):
            return self._by_name(schema, namespace, depth)
        if isinstance(schema, list):
            if not schema:
                raise ValueError("a union of nothing")
            branches = [self.of(branch, namespace, depth + 1) for branch in schema]
            return max([spare for spare, _ in branches]) - _VALUES_A_BYTE, 1 + max([height for _, height in branches])
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
        bounds = 1 + sum([spare for spare, _ in fields]), 1 + max([height for _, height in fields], default=0)
        return self._remember(schema, namespace, bounds)

    def _by_name(self, name: str, namespace: str, depth: int) -> tuple[int, int]:
        if name in _PRIMITIVE_BYTES:
            return 1 - _VALUES_A_BYTE * _PRIMITIVE_BYTES[name], 1
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self._open or name in self._open:
            raise ValueError(f"its type {name} refers to itself")
        bounds = self._named.get(full) or self._named.get(name)
        if bounds is None:
            raise ValueError(f"it has no type {name}")
        if depth + bounds[1] > _MAX_DEPTH:
            raise ValueError(f"it nests more than {_MAX_DEPTH} types deep")
        return bounds

    def _remember(self, schema: dict[str, Any], namespace: str, bounds: tuple[int, int]) -> tuple[int, int]:
        self._named[_full_name(schema, namespace)[0]] = bounds
        return bounds


class _InFullNames:
    """Writes the full names of a bounded schema's named types. A type without a namespace gets one, since Java finds
    it by its short name from everywhere, and fastavro only from types without a namespace."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, schema: Any, namespace: str) -> Any:
        """The schema, which is part of a type in `namespace`, with full names."""
        if isinstance(schema, list):
            return [self.of(branch, namespace) for branch in schema]
        if isinstance(schema, str):
            full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            return self._names.get(full) or self._names.get(schema, schema)
        kind = schema["type"]
        if kind not in ("record", "error", "enum", "fixed"):
            parts = {part: self.of(schema[part], namespace) for part in ("items", "values") if part in schema}
            return {**schema, "type": self.of(kind, namespace), **parts}
        name, inner = _full_name(schema, namespace)
        self._names[name] = full = name if inner else f"{_NO_NAMESPACE}.{name}"
        named = {**schema, "name": full}
        if "fields" in schema:
            named["fields"] = [{**f, "type": self.of(f["type"], inner)} for f in schema["fields"]]
        return named


def _full_name(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    """The full name of a named type, and the namespace for the types inside it."""
    name: str = schema["name"]
    if "." not in name:
        namespace = schema.get("namespace", namespace) or ""
        name = f"{namespace}.{name}" if namespace else name
    return name, name.rpartition(".")[0]


_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
# What a value of each takes in Arrow where there is none of it.
_SLOT: Final = 8


@dataclass(frozen=True, slots=True)
class AvroType:
    """One Avro type. `arrow` is None for a type that consists of nulls alone, for which Arrow has no column.

    `kind` is Avro's word; `parts` are a record's fields, a union's branches, or what an array or map holds; `names` a
    record's field names or an enum's symbols; `size` a fixed one's bytes. A union's `null` is its null branch, or -1.
    """

    kind: str
    arrow: pa.DataType | None
    parts: tuple[AvroType, ...] = ()
    names: tuple[str, ...] = ()
    size: int = 0
    null: int = -1
    slot: int = _SLOT
    """Bytes that a row takes in Arrow at least, even as a null."""

    is_decimal: bool = field(init=False, compare=False)
    value: int = field(init=False, compare=False)
    """The number of the branch that is not null, for a union of null and one type; -1 for every other type."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_decimal", self.arrow is not None and pa.types.is_decimal(self.arrow))
        is_nullable = self.kind == "union" and len(self.parts) == 2 and self.null >= 0
        object.__setattr__(self, "value", 1 - self.null if is_nullable else -1)


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """A record's fields in their order in the bytes, and its Arrow schema, which does not have the fields that are
    always null."""

    types: Mapping[str, AvroType]
    arrow: pa.Schema


@lru_cache(maxsize=64)
def record_schema(text: str) -> RecordSchema:
    """The tree of types of a record schema (JSON text). Raises `ValueError` if the schema is not bounded (see
    `bounded_schema`), and the errors of `avro_to_arrow`."""
    bounded_schema(text)
    arrow = avro_to_arrow(text)
    record = _Builder().of(json.loads(text), pa.struct(list(arrow)), "")
    types = dict(zip(record.names, record.parts, strict=True))
    if len(types) != len(record.parts) or len(set(arrow.names)) != len(arrow.names):
        raise ValueError("two of its fields have one name")
    return RecordSchema(types, arrow)


class _Builder:
    """Walks along an Avro schema and its Arrow type, and remembers the named types that it has passed."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[Mapping[str, Any], str]] = {}

    def of(self, avro: Any, arrow: pa.DataType | None, namespace: str) -> AvroType:
        if isinstance(avro, list):
            return self._union(cast("list[Any]", avro), arrow, namespace)
        if isinstance(avro, str):
            if avro in _PRIMITIVES:
                return AvroType(avro, arrow)
            return self._named_type(avro, arrow, namespace)
        base = avro["type"]
        if isinstance(base, list | dict):
            return self.of(base, arrow, namespace)
        if base in ("record", "error", "enum", "fixed"):
            namespace = self._remember(avro, namespace)
        if base in ("record", "error"):
            return self._record(avro, arrow, namespace)
        if base == "enum":
            return AvroType("enum", arrow, names=tuple(avro["symbols"]))
        if base == "fixed":
            return AvroType("fixed", arrow, size=avro["size"], slot=max(_SLOT, avro["size"]))
        if base == "array":
            item = self.of(avro["items"], None if arrow is None else cast("Any", arrow).value_type, namespace)
            return AvroType("array", arrow, (item,))
        if base == "map":
            item = self.of(avro["values"], None if arrow is None else cast("Any", arrow).item_type, namespace)
            return AvroType("map", arrow, (item,))
        return self.of(base, arrow, namespace)

    def _record(self, avro: Mapping[str, Any], arrow: pa.DataType | None, namespace: str) -> AvroType:
        types = {} if arrow is None else {field.name: field.type for field in cast("Any", arrow)}
        names = tuple(field["name"] for field in avro["fields"])
        parts = tuple(self.of(field["type"], types.get(field["name"]), namespace) for field in avro["fields"])
        return AvroType("record", arrow, parts, names, slot=sum(part.slot for part in parts if part.arrow is not None))

    def _union(self, branches: list[Any], arrow: pa.DataType | None, namespace: str) -> AvroType:
        nulls = [_is_null(branch) for branch in branches]
        single = nulls.count(False) == 1
        members = iter([] if arrow is None or single else [field.type for field in cast("Any", arrow)])
        parts = tuple(
            AvroType("null", None) if null else self.of(branch, arrow if single else next(members, None), namespace)
            for branch, null in zip(branches, nulls, strict=True)
        )
        slot = sum(part.slot for part in parts if part.kind != "null")
        return AvroType("union", arrow, parts, null=nulls.index(True) if True in nulls else -1, slot=slot)

    def _named_type(self, name: str, arrow: pa.DataType | None, namespace: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        definition = self._named.get(full) or self._named[name]
        return self.of(definition[0], arrow, definition[1])

    def _remember(self, avro: Mapping[str, Any], namespace: str) -> str:
        """Record a named type, and return the namespace in which its fields are resolved."""
        name, outer = avro["name"], namespace
        if "." not in name:
            namespace = avro.get("namespace", namespace)
            name = f"{namespace}.{name}" if namespace else name
        self._named[name] = avro, outer
        return name.rpartition(".")[0]


def _is_null(branch: Any) -> bool:
    return branch == "null" or (isinstance(branch, dict) and branch["type"] == "null")
