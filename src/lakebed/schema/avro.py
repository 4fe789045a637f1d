"""Avro schemas, as commits, footers and log blocks carry them, to Arrow schemas and back."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import count
from typing import Any, cast

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import CorruptFile, LakebedError, SchemaConflict, UnsupportedFeature
from lakebed.model import ALL_META_COLUMNS, META_COLUMNS, OPERATION_COLUMN
from lakebed.schema.arrow import AVRO_TYPE, list_of, map_of
from lakebed.schema.logical_types import HUDI_TYPE, is_vector, struct_avro, vector_avro, vector_name, vector_of_avro
from lakebed.schema.plain_arrow import is_list

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_TO_AVRO: dict[pa.DataType, Any] = {
    **{arrow: name for name, arrow in _PRIMITIVES.items()},
    **{arrow: {"type": base, "logicalType": logical} for (base, logical), arrow in _LOGICAL.items()},
}
_MAX_FIELDS = 100_000
_META_FIELDS = [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS]
_OPERATION_FIELD = {"name": OPERATION_COLUMN, "type": ["null", "string"], "doc": "", "default": None}


def avro_to_arrow(avro: str | Mapping[str, Any]) -> pa.Schema:
    """The Arrow schema of an Avro record schema, with the Parquet types that Hudi uses for it.

    A union of null and one type is a nullable column, other unions become a struct `member0..`; an enum or
    uuid is a string, a fixed one is bytes of its length. Fields of type null, which no base file holds, are left out.

    >>> avro_to_arrow('{"type":"record","name":"r","fields":[{"name":"day","type":["null",'
    ...               '{"type":"int","logicalType":"date"}],"default":null}]}').field("day").type
    DataType(date32[day])
    """
    return _of_text(avro) if isinstance(avro, str) else _of_record(avro)


@lru_cache(maxsize=64)
def _of_text(text: str) -> pa.Schema:
    """The Arrow schema of an Avro schema text. Cached, since most commits repeat the schema of the previous one."""
    try:
        return _of_record(json.loads(text))
    except (ValueError, RecursionError) as cause:
        raise _unreadable(cause) from cause


def _of_record(record: Any) -> pa.Schema:
    if not isinstance(record, Mapping) or record.get("type") != "record":
        raise SchemaConflict("a table's Avro schema must be a record", context={"schema": str(record)[:200]})
    try:
        return pa.schema(_Reader().record(cast("Mapping[str, Any]", record), ""))
    except LakebedError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError, pa.ArrowException) as cause:
        raise _unreadable(cause) from cause


def _unreadable(cause: BaseException) -> CorruptFile:
    why = "it nests too deep" if isinstance(cause, RecursionError) else repr(cause)
    return CorruptFile(f"a table's Avro schema cannot be read: {why}")


class _Reader:
    """A reader that converts Avro types to Arrow. It remembers the named types that it has passed, since Avro defines
    each only once."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._open: set[str] = set()
        self._fields = 0

    def record(self, avro: Mapping[str, Any], namespace: str) -> list[pa.Field]:
        name, namespace = self._remember(avro, namespace)
        if name in self._open:
            raise UnsupportedFeature(f"the Avro record {name} holds itself", hint="Parquet knows no recursive types.")
        self._open.add(name)
        fields = [self._field(field["name"], field["type"], namespace) for field in avro["fields"]]
        self._open.remove(name)
        return [field for field in fields if field is not None]

    def _field(self, name: str, avro: Any, namespace: str) -> pa.Field | None:
        # types used by name are spelled out: thirty that each use the one before twice are a billion fields
        self._fields += 1
        if self._fields > _MAX_FIELDS:
            raise UnsupportedFeature(f"a table's Avro schema spells out to more than {_MAX_FIELDS} fields")
        kind, nullable = self._nullable(avro)
        if kind is None:
            return None
        arrow, metadata = self._type(kind, namespace)
        return pa.field(name, arrow, nullable, metadata)

    def _nullable(self, avro: Any) -> tuple[Any, bool]:
        """The type without null (None for null alone), and whether null was among a union's branches."""
        branches = avro if isinstance(avro, list) else [avro]
        kinds = [b for b in branches if b != "null" and not (isinstance(b, Mapping) and b["type"] == "null")]
        if not kinds:
            return None, True
        return (kinds[0] if len(kinds) == 1 else kinds), len(kinds) < len(branches)

    def _item(self, avro: Any, namespace: str) -> tuple[pa.DataType, bool, dict[bytes, bytes] | None]:
        kind, nullable = self._nullable(avro)
        if kind is None:
            raise UnsupportedFeature("an array or map of nulls cannot be stored in Parquet")
        arrow, metadata = self._type(kind, namespace)
        return arrow, nullable, metadata

    def _type(self, avro: Any, namespace: str) -> tuple[pa.DataType, dict[bytes, bytes] | None]:
        if isinstance(avro, str):
            if avro in _PRIMITIVES:
                return _PRIMITIVES[avro], None
            return self._type(self._lookup(avro, namespace), namespace)
        if isinstance(avro, list):
            return pa.struct([self._member(i, kind, namespace) for i, kind in enumerate(avro)]), _keep(avro)
        base, logical = avro["type"], avro.get("logicalType")
        if isinstance(base, (list, dict)):
            return self._type(base, namespace)
        if logical == "decimal" and base in ("bytes", "fixed"):
            if base == "fixed":
                self._remember(avro, namespace)
            return pa.decimal128(avro["precision"], avro.get("scale", 0)), _keep_decimal(avro)
        if (base, logical) in _LOGICAL:
            return _LOGICAL[base, logical], None
        return self._complex(base, avro, namespace)

    def _complex(
        self, base: str, avro: Mapping[str, Any], namespace: str
    ) -> tuple[pa.DataType, dict[bytes, bytes] | None]:
        if base == "record":
            descriptor = str(avro.get("logicalType", "")).upper()
            is_logical = struct_avro(descriptor) is not None
            metadata = {**_keep(avro), HUDI_TYPE: descriptor.encode()} if is_logical else None
            return pa.struct(self.record(avro, namespace)), metadata
        if base == "array":
            item, nullable, metadata = self._item(avro["items"], namespace)
            return list_of(item, nullable=nullable, metadata=metadata), None
        if base == "map":
            item, nullable, metadata = self._item(avro["values"], namespace)
            return map_of(item, nullable=nullable, metadata=metadata), None
        if base in ("enum", "fixed"):
            self._remember(avro, namespace)
            if avro.get("logicalType") == "vector":
                vector = vector_of_avro(avro)
                return vector, {HUDI_TYPE: vector_name(vector).encode()}
            if base == "enum":
                return pa.string(), _keep(avro)
            return pa.binary(avro["size"]) if avro["size"] > 0 else pa.binary(), _keep(avro)
        if base in _PRIMITIVES:
            return _PRIMITIVES[base], _keep(avro) if avro.get("logicalType") == "uuid" else None
        return self._type(self._lookup(base, namespace), namespace)

    def _member(self, number: int, avro: Any, namespace: str) -> pa.Field:
        arrow, metadata = self._type(avro, namespace)
        return pa.field(f"member{number}", arrow, True, metadata)

    def _remember(self, avro: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """The full name of a named type, and the namespace in which its fields are resolved."""
        name = avro["name"]
        if "." not in name:
            namespace = avro.get("namespace", namespace)
            name = f"{namespace}.{name}" if namespace else name
        self._named[name] = avro
        return name, name.rpartition(".")[0]

    def _lookup(self, name: str, namespace: str) -> Mapping[str, Any]:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        definition = self._named.get(full) or self._named.get(name)
        if definition is None:
            raise SchemaConflict(f"the Avro schema uses the type {name} and does not define it")
        return definition


def _keep(avro: Any) -> dict[bytes, bytes]:
    return {AVRO_TYPE: _dump(avro).encode()}


def _keep_decimal(avro: Mapping[str, Any]) -> dict[bytes, bytes] | None:
    """The field metadata for a decimal's Avro form: None for Spark's own (the smallest fixed), which needs none."""
    if avro["type"] == "fixed" and avro["size"] == decimal_bytes(avro["precision"]) and avro["name"] == "fixed":
        return None
    return _keep(avro)


def decimal_bytes(precision: int) -> int:
    """The number of bytes that Hudi and Spark use for a decimal: the fewest that hold `precision` digits with a sign.

    >>> [decimal_bytes(p) for p in (5, 10, 18, 30, 38)]
    [3, 5, 8, 13, 16]
    """
    return ((10**precision - 1).bit_length() + 8) // 8


def arrow_to_avro(schema: pa.Schema, table_name: str, *, meta: bool = False) -> str:
    """The Avro schema (compact JSON) that Hudi would write for a table of this Arrow schema, data columns
    only; `meta` puts the five meta columns in front, as footers and log blocks have them.

    Raises `SchemaConflict` for column names that Hudi's Avro parser refuses.

    >>> arrow_to_avro(pa.schema([pa.field("id", pa.string(), False)]), "t")
    '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[{"name":"id","type":"string"}]}'
    """
    check_avro_names(schema)
    table = sanitise_name(table_name)
    record = _record([f for f in schema if f.name not in ALL_META_COLUMNS], f"{table}_record", f"hoodie.{table}")
    record = _define_once(record, "", {})
    return _dump(_with_meta(record) if meta else record)


def avro_with_meta(avro: str, *, operation: bool = False) -> str:
    """The Avro schema with the five meta columns in front, and with `operation` the column of operations after them;
    unchanged if it has them.

    >>> json.loads(avro_with_meta('{"type":"record","name":"r","fields":[]}'))["fields"][0]["name"]
    '_hoodie_commit_time'
    """
    return _dump(_with_meta(json.loads(avro), operation=operation))


def avro_without_meta(avro: str) -> str:
    """The Avro schema of the data columns alone."""
    record = json.loads(avro)
    return _dump({**record, "fields": [f for f in record["fields"] if f["name"] not in ALL_META_COLUMNS]})


def without_fields(avro: str, names: Collection[str]) -> str:
    """The Avro schema without the named fields; the text unchanged if it has none of them, or is not a record schema. A
    type that a removed field defines is defined by the next field that has it.

    >>> without_fields('{"type":"record","name":"r","fields":[{"name":"day","type":"string"}]}', ["day"])
    '{"type":"record","name":"r","fields":[]}'
    """
    try:
        record = json.loads(avro) if names else {}
        fields = [field for field in record.get("fields", ()) if field["name"] not in names]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return avro
    if len(fields) == len(record.get("fields", ())):
        return avro
    spelled = _SpelledOut().of(record, "")
    fields = [field for field in spelled["fields"] if field["name"] not in names]
    return _dump(_define_once({**record, "fields": fields}, "", {}))


def _with_meta(record: dict[str, Any], *, operation: bool = False) -> dict[str, Any]:
    data = [field for field in record["fields"] if field["name"] not in ALL_META_COLUMNS]
    return {**record, "fields": [*_META_FIELDS, *([_OPERATION_FIELD] if operation else []), *data]}


def sanitise_name(name: str) -> str:
    """The name as Hudi spells it in Avro, and its streamer in columns: characters other than ASCII letters, digits and
    `_` become `__`.

    >>> sanitise_name("2024 trips")
    '__024__trips'
    """
    return re.sub(r"[^A-Za-z0-9_]", "__", re.sub(r"^[^A-Za-z_]", "__", name))


def _define_once(avro: Any, namespace: str, defined: dict[str, Any]) -> Any:
    """The schema in which each named type is defined at its first use, and only named afterwards."""
    if isinstance(avro, list):
        return [_define_once(branch, namespace, defined) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    if "name" in avro:
        namespace = avro.get("namespace", namespace)
        full = f"{namespace}.{avro['name']}" if namespace else avro["name"]
        if defined.get(full) == avro:
            return full
        defined[full] = avro
    parts = {key: _define_once(avro[key], namespace, defined) for key in ("items", "values") if key in avro}
    if "fields" in avro:
        parts["fields"] = [{**f, "type": _define_once(f["type"], namespace, defined)} for f in avro["fields"]]
    return {**avro, **parts}


class _SpelledOut:
    """Writes a schema with the definition of each named type wherever it is used."""

    def __init__(self) -> None:
        self._defined: dict[str, Any] = {}

    def of(self, avro: Any, namespace: str) -> Any:
        """The schema, which is part of a type in `namespace`, spelled out."""
        if isinstance(avro, list):
            return [self.of(branch, namespace) for branch in avro]
        if isinstance(avro, str):
            full = f"{namespace}.{avro}" if namespace and "." not in avro else avro
            return self._defined.get(full) or self._defined.get(avro, avro)
        if isinstance(avro["type"], dict | list):
            return {**avro, "type": self.of(avro["type"], namespace)}
        parts = {key: self.of(avro[key], namespace) for key in ("items", "values") if key in avro}
        if "name" not in avro:
            return {**avro, **parts}
        inner = avro.get("namespace", namespace)
        if "fields" in avro:
            parts["fields"] = [{**f, "type": self.of(f["type"], inner)} for f in avro["fields"]]
        full = f"{inner}.{avro['name']}" if inner and "." not in avro["name"] else avro["name"]
        # elsewhere the type has another namespace around it
        self._defined[full] = {**avro, **parts, "namespace": inner}
        return {**avro, **parts}


def _record(fields: list[pa.Field], name: str, namespace: str) -> dict[str, Any]:
    inner = f"{namespace}.{name}"
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [_avro_field(field, inner) for field in fields],
    }


def _avro_field(field: pa.Field, namespace: str) -> dict[str, Any]:
    kind = _nullable_avro(field, field.name, namespace)
    entry: dict[str, Any] = {"name": field.name, "type": kind}
    return {**entry, "default": None} if field.nullable else entry


def _nullable_avro(field: pa.Field, name: str, namespace: str) -> Any:
    """The Avro type of a field; `name` is that of the column, from which also the types inside arrays and maps are
    named."""
    noted = (field.metadata or {}).get(AVRO_TYPE)
    kind = json.loads(noted) if noted else _avro_type(field.type, name, namespace)
    if not field.nullable:
        return kind
    return ["null", *kind] if isinstance(kind, list) else ["null", kind]


def _avro_type(kind: pa.DataType, name: str, namespace: str) -> Any:
    if kind in _TO_AVRO:
        return _TO_AVRO[kind]
    if pt.is_decimal128(kind):
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": decimal_bytes(kind.precision),
            "logicalType": "decimal",
            "precision": kind.precision,
            "scale": kind.scale,
        }
    if pt.is_struct(kind):
        return _record(list(kind), name, namespace)
    if pt.is_map(kind) and pt.is_string(kind.key_type):
        return {"type": "map", "values": _nullable_avro(kind.item_field, name, namespace)}
    if is_vector(kind):
        return vector_avro(kind)
    if is_list(kind):
        return {"type": "array", "items": _nullable_avro(kind.value_field, name, namespace)}
    raise SchemaConflict(
        f"column {name} has type {kind}, which has no Avro form in a Hudi table",
        hint="Bring the schema to stored types first (lakebed.schema.arrow.normalise).",
        context={"column": name, "type": str(kind)},
    )


def check_avro_names(schema: pa.Schema) -> None:
    """Raise one `SchemaConflict` for all column names that Hudi's Avro schema cannot hold, those inside structs too.

    Its hint renames them as Hudi's streamer does (`sanitise_name`); a name that is taken already gets a number.

    >>> check_avro_names(pa.schema([("Sample Number", pa.int64()), ("a-b", pa.int64())]))
    Traceback (most recent call last):
    lakebed.errors.SchemaConflict: the column names 'Sample Number', 'a-b' are not possible in a Hudi table...
    """
    columns = [name for name in schema.names if not _is_avro_name(name)]
    inner = [path for field in schema for path in _inner_names(field.type, field.name)]
    if not columns and not inner:
        return
    names, used = dict[str, str](), {name.lower() for name in schema.names}
    for name in columns:
        sanitised = new = sanitise_name(name)
        for number in count(2):
            if new.lower() not in used:
                break
            new = f"{sanitised}_{number}"
        names[name] = new
        used.add(new.lower())
    several = len(columns) + len(inner) > 1
    hints: list[str] = []
    if names:
        hints.append(
            f"Rename {'them' if len(names) > 1 else 'it'}: lakebed.DataFiles(path, rename='snake') reads data files"
            f" with names in small letters; for rows in memory rows.rename_columns({names}) in Arrow; pandas has"
            " rows.rename(columns=...), polars rows.rename(...), Spark rows.withColumnsRenamed(...) for the same dict."
        )
    if inner:
        hints.append(f"Build the {'structs' if len(inner) > 1 else 'struct'} with other field names.")
    raise SchemaConflict(
        f"the column {'names' if several else 'name'} {', '.join(map(repr, [*columns, *inner]))}"
        f" {'are' if several else 'is'} not possible in a Hudi table: its Avro schema allows letters, digits and _,"
        " and no digit first",
        hint=" ".join(hints),
        context={"column": [*columns, *inner][0], "rename": names, "inside": inner},
    )


def _inner_names(kind: pa.DataType, path: str) -> list[str]:
    """The paths of the fields inside a type whose names are invalid in Avro."""
    if pt.is_struct(kind):
        fields = [(field.type, f"{path}.{field.name}", field.name) for field in kind]
        bad = [inner for _, inner, name in fields if not _is_avro_name(name)]
        return bad + [nested_path for inside, inner, _ in fields for nested_path in _inner_names(inside, inner)]
    if pt.is_map(kind):
        return _inner_names(kind.item_type, f"{path}.value")
    return _inner_names(kind.value_type, f"{path}.element") if is_list(kind) else []


def in_logical_types(schema: pa.Schema) -> pa.Schema:
    """The schema with the structs of BLOB and VARIANT columns as Hudi declares them, also which of their fields may be
    null: data give such structs with other declarations.

    >>> loose = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    >>> names = {AVRO_TYPE: _dump(struct_avro("VARIANT")), "hudi_type": "VARIANT"}
    >>> columns = pa.schema([pa.field("v", loose, metadata=names)])
    >>> in_logical_types(columns).field("v").type.field("value").nullable
    False
    """
    fields = list(schema)
    if not any(is_logical_struct(field) for field in fields):
        return schema
    declared = avro_to_arrow(arrow_to_avro(schema, "t"))
    return pa.schema([f.with_type(declared.field(f.name).type) if is_logical_struct(f) else f for f in fields])


def is_logical_struct(field: pa.Field) -> bool:
    """Whether a column of a stored schema is a BLOB or a VARIANT."""
    metadata = field.metadata or {}
    return AVRO_TYPE in metadata and HUDI_TYPE in metadata


_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def _is_avro_name(name: str) -> bool:
    """Whether Java's Avro accepts the name: letters of any script, digits after the first character, and `_`; no
    characters beyond the BMP."""
    if _PLAIN_NAME.fullmatch(name):
        return True
    letters = [c == "_" or (unicodedata.category(c)[0] == "L" and ord(c) < 0x10000) for c in name]
    digits = [unicodedata.category(c) == "Nd" and ord(c) < 0x10000 for c in name]
    return bool(name) and letters[0] and all(a or b for a, b in zip(letters, digits, strict=True))


def _dump(avro: Any) -> str:
    return json.dumps(avro, separators=(",", ":"), ensure_ascii=False)
