"""An Avro record schema as a tree that says what stands in the bytes and which Arrow type each part becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import pyarrow as pa

from lakebed.format.avro.schema_bounds import bounded_schema
from lakebed.schema.avro import avro_to_arrow

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
# What a value of each takes in Arrow where there is none of it.
_SLOT: Final = 8


@dataclass(frozen=True, slots=True)
class AvroType:
    """One type. `arrow` is None where Arrow has no column for it: nulls alone.

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

    @property
    def is_decimal(self) -> bool:
        return self.arrow is not None and pa.types.is_decimal(self.arrow)

    @property
    def value(self) -> int:
        """The branch beside null of a union of both; -1 for all else."""
        return 1 - self.null if self.kind == "union" and len(self.parts) == 2 and self.null >= 0 else -1


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """A record's fields in their order in the bytes, and its Arrow schema, which lacks fields of null alone."""

    types: Mapping[str, AvroType]
    arrow: pa.Schema


@lru_cache(maxsize=64)
def record_schema(text: str) -> RecordSchema:
    """The tree of a record schema (JSON text). Raises `ValueError` where it is none that is bounded (`bounded_schema`),
    and what `avro_to_arrow` raises."""
    bounded_schema(text)
    arrow = avro_to_arrow(text)
    record = _Builder().of(json.loads(text), pa.struct(list(arrow)), "")
    types = dict(zip(record.names, record.parts, strict=True))
    if len(types) != len(record.parts) or len(set(arrow.names)) != len(arrow.names):
        raise ValueError("two of its fields have one name")
    return RecordSchema(types, arrow)


class _Builder:
    """Goes along the schema and its Arrow type; remembers the named types met so far."""

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
            return AvroType("fixed", arrow, size=avro["size"])
        if base == "array":
            item = self.of(avro["items"], None if arrow is None else cast("Any", arrow).value_type, namespace)
            return AvroType("array", arrow, (item,))
        if base == "map":
            item = self.of(avro["values"], None if arrow is None else cast("Any", arrow).item_type, namespace)
            return AvroType("map", arrow, (item,))
        return self.of(base, arrow, namespace)

    def _record(self, avro: Mapping[str, Any], arrow: pa.DataType | None, namespace: str) -> AvroType:
        known = {} if arrow is None else {field.name: field.type for field in cast("Any", arrow)}
        names = tuple(field["name"] for field in avro["fields"])
        parts = tuple(self.of(field["type"], known.get(field["name"]), namespace) for field in avro["fields"])
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
        found = self._named.get(full) or self._named[name]
        return self.of(found[0], arrow, found[1])

    def _remember(self, avro: Mapping[str, Any], namespace: str) -> str:
        """The namespace that its fields are looked up in."""
        name, outer = avro["name"], namespace
        if "." not in name:
            namespace = avro.get("namespace", namespace)
            name = f"{namespace}.{name}" if namespace else name
        self._named[name] = avro, outer
        return name.rpartition(".")[0]


def _is_null(branch: Any) -> bool:
    return branch == "null" or (isinstance(branch, dict) and branch["type"] == "null")
