"""`Records`: what one commit writes to a partition of the metadata table; the Avro schema of its records in the
forms that releases write, and the fields around the one sub-record that is set.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.avro.columns import AvroCursors
from lakebed.format.avro.encoder import decode_long, encode_long
from lakebed.format.hashes import plain_strings, value_buffer
from lakebed.model import META_COLUMNS

_NAMESPACE = "org.apache.hudi.avro.model"
# Without the attribute Java reads Utf8 objects, and real Hudi's compaction fails on the map's keys.
_JAVA_STRING = {"avro.java.string": "String"}
_STRING = {"type": "string", **_JAVA_STRING}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
# Order of the branches of minValue and maxValue after null; releases only ever appended.
WRAPPERS: tuple[tuple[str, Any], ...] = (
    ("BooleanWrapper", "boolean"),
    ("IntWrapper", "int"),
    ("LongWrapper", "long"),
    ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"),
    ("BytesWrapper", "bytes"),
    ("StringWrapper", _STRING),
    ("DateWrapper", "int"),
    ("DecimalWrapper", _DECIMAL),
    ("TimeMicrosWrapper", {"type": "long", "logicalType": "time-micros"}),
    ("TimestampMicrosWrapper", "long"),
    ("LocalDateWrapper", "int"),
)


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The optional fields, which came with later releases, that a record's schema has. `version` is the table version
    whose release introduced the form, `branches` the number of branches of minValue including null."""

    version: int
    branches: int
    has_tight_bound: bool
    has_value_type: bool
    has_position: bool
    has_secondary: bool


V6 = RecordForm(6, 12, has_tight_bound=False, has_value_type=False, has_position=False, has_secondary=False)
V8 = RecordForm(8, 13, has_tight_bound=True, has_value_type=False, has_position=True, has_secondary=True)
V9 = RecordForm(9, 14, has_tight_bound=True, has_value_type=True, has_position=True, has_secondary=True)
_FORMS = {form.version: form for form in (V6, V8, V9)}


def record_form(version: int) -> RecordForm:
    """The form in which lakebed writes the metadata table of a table of this version."""
    return _FORMS[version]


@lru_cache(maxsize=8)
def record_schema(form: RecordForm, *, meta_columns: bool = True) -> str:
    """The schema as JSON text. Values in files and log blocks have the meta columns in front, whatever the table's
    settings are; the schema in commit metadata does not have them.

    >>> [field["name"] for field in json.loads(record_schema(V6, meta_columns=False))["fields"]][:3]
    ['key', 'type', 'filesystemMetadata']
    """
    meta = [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS]
    fields = [
        {"name": "key", "type": _STRING},
        {"name": "type", "type": "int"},
        {"name": "filesystemMetadata", "type": ["null", {"type": "map", "values": _file_info(), **_JAVA_STRING}]},
        _nullable("BloomFilterMetadata", _bloom_filter()),
        _nullable("ColumnStatsMetadata", _column_stats(form)),
        _nullable("recordIndexMetadata", _record_index(form)),
    ]
    if form.has_secondary:
        info = _record("HoodieSecondaryIndexInfo", [{"name": "isDeleted", "type": "boolean"}])
        fields.append(_nullable("SecondaryIndexMetadata", info))
    record = {
        "type": "record",
        "name": "HoodieMetadataRecord",
        "namespace": _NAMESPACE,
        "fields": (meta if meta_columns else []) + fields,
    }
    return json.dumps(record, separators=(",", ":"))


@lru_cache(maxsize=256)
def record_form_of(schema_json: str) -> RecordForm | None:
    """The form of a writer's schema; None for an unknown schema. Docs, defaults and Java's attributes are ignored.

    Raises `ValueError` for a text that is not a schema.
    """
    return _record_forms().get(_canonical_text(schema_json))


@lru_cache(maxsize=1)
def _record_forms() -> dict[str, RecordForm]:
    return {_canonical_text(record_schema(form)): form for form in _FORMS.values()}


def _canonical_text(schema_json: str) -> str:
    try:
        return json.dumps(_canonical(json.loads(schema_json)))
    except (TypeError, KeyError, RecursionError) as cause:
        raise ValueError(f"not an Avro schema: {cause!r}") from cause


def _canonical(schema: Any) -> Any:
    """The parts of a schema that determine the bytes, and the names of fields."""
    if isinstance(schema, str):
        return schema.rpartition(".")[2]
    if isinstance(schema, list):
        return [_canonical(branch) for branch in schema]
    kind = schema["type"]
    if kind == "record":
        fields = [[field["name"], _canonical(field["type"])] for field in schema["fields"]]
        return ["record", schema["name"].rpartition(".")[2], fields]
    if kind in ("map", "array"):
        return [kind, _canonical(schema["values" if kind == "map" else "items"])]
    if kind in ("enum", "fixed"):
        return [kind, schema["name"], schema.get("symbols"), schema.get("size")]
    return _canonical(kind)


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def _nullable(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _file_info() -> dict[str, Any]:
    return _record(
        "HoodieMetadataFileInfo", [{"name": "size", "type": "long"}, {"name": "isDeleted", "type": "boolean"}]
    )


def _bloom_filter() -> dict[str, Any]:
    fields = [("type", _STRING), ("timestamp", _STRING), ("bloomFilter", "bytes"), ("isDeleted", "boolean")]
    return _record("HoodieMetadataBloomFilter", [{"name": name, "type": kind} for name, kind in fields])


def _column_stats(form: RecordForm) -> dict[str, Any]:
    names = [name for name, _ in WRAPPERS][: form.branches - 1]
    branches: list[Any] = [_record(n, [{"name": "value", "type": kind}]) for n, kind in WRAPPERS[: len(names)]]
    if form.branches > len(WRAPPERS) + 1:
        items = {"type": "array", "items": ["null", *names]}
        branches.append(_record("ArrayWrapper", [_nullable("wrappedValues", items)]))
        names.append("ArrayWrapper")
    fields = [
        _nullable("fileName", _STRING),
        _nullable("columnName", _STRING),
        {"name": "minValue", "type": ["null", *branches], "default": None},
        {"name": "maxValue", "type": ["null", *names], "default": None},
        *(_nullable(name, "long") for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")),
        {"name": "isDeleted", "type": "boolean"},
    ]
    if form.has_tight_bound:
        fields.append({"name": "isTightBound", "type": "boolean", "default": False})
    if form.has_value_type:
        info = [{"name": "typeOrdinal", "type": "int"}, _nullable("additionalInfo", _STRING)]
        fields.append(_nullable("valueType", _record("HoodieValueTypeInfo", info)))
    return _record("HoodieMetadataColumnStats", fields)


def _record_index(form: RecordForm) -> dict[str, Any]:
    fields = [
        _nullable("partitionName", _STRING),
        *(_nullable(name, "long") for name in ("fileIdHighBits", "fileIdLowBits")),
        _nullable("fileIndex", "int"),
        _nullable("fileId", _STRING),
        _nullable("instantTime", "long"),
        {"name": "fileIdEncoding", "type": "int", "default": 0},
    ]
    if form.has_position:
        fields.append(_nullable("position", "long"))
    return _record("HoodieRecordIndexInfo", fields)


_avro: Any = fastavro  # its stubs leave streams and schemas half typed


class SubRecord(IntEnum):
    """The nullable fields of a record in their order; exactly one is set."""

    FILES = 0
    BLOOM_FILTER = 1
    COLUMN_STATS = 2
    RECORD_INDEX = 3
    SECONDARY_INDEX = 4


class RecordType(IntEnum):
    """The `type` field."""

    PARTITION_LIST = 1
    FILES = 2
    COLUMN_STATS = 3
    BLOOM_FILTER = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7


def enter(values: pa.BinaryArray, schema_json: str, sub_record: SubRecord) -> tuple[AvroCursors, RecordForm]:
    """Cursors at the start of the sub-record of every value, and the form of the values.

    Values of an unknown schema are first converted to the newest known form, one by one. Raises `CorruptFile` if a
    value has another sub-record or none.
    """
    try:
        form = record_form_of(schema_json)
    except ValueError as cause:
        raise CorruptFile(f"the schema of the metadata table's records cannot be read: {cause}") from cause
    if form is None:
        values, form = _into_newest_form(values, schema_json), V9
    cursors = AvroCursors.over(values, f"a record of the metadata table ({sub_record.name.lower()})")
    if not cursors.skip_if_null(len(META_COLUMNS)):
        for _ in META_COLUMNS:
            cursors.nullable_texts()
    cursors.skip_bytes()
    cursors.longs()
    cursors.skip_nulls(sub_record)
    if not cursors.present().all():
        raise CorruptFile(f"a record of the metadata table has no {sub_record.name.lower()} data")
    return cursors, form


def leave(cursors: AvroCursors, form: RecordForm, sub_record: SubRecord) -> None:
    """Raise `CorruptFile` unless only nulls follow the sub-record."""
    cursors.skip_nulls(_fields(form) - sub_record - 1)
    cursors.finish()


def value_head(record_type: RecordType, sub_record: SubRecord) -> bytes:
    """The bytes of a value in front of its sub-record: null meta columns, an empty key, the type, nulls."""
    return bytes(len(META_COLUMNS) + 1) + encode_long(record_type) + bytes(sub_record) + b"\x02"


def value_tail(form: RecordForm, sub_record: SubRecord) -> bytes:
    """The bytes after the sub-record."""
    return bytes(_fields(form) - sub_record - 1)


def record_type_of(value: bytes) -> RecordType:
    """The `type` of one value, of any form. Raises `CorruptFile`."""
    at = 0
    try:
        for nullable in [True] * len(META_COLUMNS) + [False]:
            present, at = decode_long(value, at) if nullable else (1, at)
            if present:
                length, at = decode_long(value, at)
                at += length
        return RecordType(decode_long(value, at)[0])
    except (IndexError, ValueError) as cause:
        raise CorruptFile("a record of the metadata table does not have a type") from cause


def into_form(values: pa.BinaryArray, schema_json: str, form: RecordForm) -> pa.BinaryArray:
    """Values of one partition, written with the schema `schema_json`, in an equal or newer form. Additional fields of a
    newer form are null or false: zeros at the end of the value. Values of an unknown schema get the newest form."""
    if not len(values):
        return values
    stored_form = record_form_of(schema_json)
    if stored_form is None:
        values, stored_form = _into_newest_form(values, schema_json), V9
    if stored_form.version > form.version:
        raise ValueError(f"records of form {stored_form.version} have no place in form {form.version}")
    kind = record_type_of(values[0].as_py())
    more = form.has_secondary - stored_form.has_secondary
    if kind is RecordType.RECORD_INDEX:
        more += form.has_position - stored_form.has_position
    if kind in (RecordType.COLUMN_STATS, RecordType.PARTITION_STATS):
        more += form.has_tight_bound - stored_form.has_tight_bound + form.has_value_type - stored_form.has_value_type
    return pc.binary_join_element_wise(values, pa.scalar(bytes(more), values.type), b"") if more else values


def _fields(form: RecordForm) -> int:
    return len(SubRecord) if form.has_secondary else len(SubRecord) - 1


@lru_cache(maxsize=64)
def _parsed(schema_json: str) -> Any:
    return _avro.parse_schema(json.loads(schema_json))


def _into_newest_form(values: pa.BinaryArray, schema_json: str) -> pa.BinaryArray:
    data, offsets = value_buffer(values)
    newest = _parsed(record_schema(V9))
    out: list[bytes] = []
    try:
        written_with = _parsed(schema_json)
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            source, target = io.BytesIO(data[start:end].tobytes()), io.BytesIO()
            record = _avro.schemaless_reader(source, written_with, newest, return_record_name=True)
            _avro.schemaless_writer(target, newest, record)
            out.append(target.getvalue())
    except Exception as cause:  # fastavro raises whatever broken bytes or an odd schema lead it to
        raise CorruptFile(f"a record of the metadata table cannot be decoded: {cause!r}") from cause
    return pa.array(out, pa.binary())


_NO_KEYS: pa.StringArray = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class Records:
    """Upserted records, and the keys of deleted records, in any order.

    No key is upserted twice; one that is deleted as well is upserted. `data_partitions` and `deleted_partitions` go
    with a partitioned record index: the partition path of each key.
    """

    keys: pa.StringArray
    values: pa.BinaryArray
    deleted: pa.StringArray
    data_partitions: Any = None
    deleted_partitions: Any = None

    @staticmethod
    def upserts(keys: pa.StringArray, values: pa.BinaryArray, data_partitions: Any = None) -> Records:
        """Records without deletes."""
        return Records(keys, values, _NO_KEYS, data_partitions, None if data_partitions is None else _NO_KEYS)

    @staticmethod
    def deletes(keys: pa.StringArray, data_partitions: Any = None) -> Records:
        """Records that consist of deletes only."""
        none = None if data_partitions is None else _NO_KEYS
        return Records(_NO_KEYS, pa.array([], pa.binary()), keys, none, data_partitions)

    @property
    def is_partitioned(self) -> bool:
        return self.data_partitions is not None or self.deleted_partitions is not None

    def paths(self) -> list[str]:
        """The partition paths of the data for which a partitioned record index gets keys."""
        path_columns = [
            plain_strings(paths) for paths in (self.data_partitions, self.deleted_partitions) if paths is not None
        ]
        return sorted({path for paths in path_columns for path in pc.unique(paths).to_pylist()})


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """The first entries of one file group, in any order and without repeated keys. `data_partition` is set for a
    partitioned record index. Entries that are too many for memory are `batches` in ascending byte order of the keys,
    which come once; they are those of the only file group of a partition."""

    keys: pa.StringArray
    values: pa.BinaryArray
    data_partition: str | None = None
    batches: Iterable[tuple[pa.Array, pa.Array]] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are no entries."""
        return not len(self.keys) and self.batches is None
