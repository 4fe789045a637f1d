"""The Avro schema of the metadata table's records, in the forms that releases write, and which form a schema is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lakebed.model import META_COLUMNS

_NAMESPACE = "org.apache.hudi.avro.model"
# Without the attribute Java reads Utf8 objects, and real Hudi's compaction fails on the map's keys.
_JAVA_STRING = {"avro.java.string": "String"}
_STRING = {"type": "string", **_JAVA_STRING}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
# Order of the branches of minValue and maxValue behind null; releases only ever appended.
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
    """Which of the fields that came with later releases a record's schema has. `version` is the table version whose
    release brought the form, `branches` the number of branches of minValue, null among them."""

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


def form_of_version(version: int) -> RecordForm:
    """The form in which lakebed writes the metadata table of a table of this version."""
    return _FORMS[version]


@lru_cache(maxsize=8)
def record_schema(form: RecordForm, *, meta_columns: bool = True) -> str:
    """The schema as JSON. Values of files and log blocks have the meta columns in front, whatever the table's settings
    say; the schema in commit metadata goes without.

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
def known_form(schema_json: str) -> RecordForm | None:
    """The form a writer's schema has; None for one that lakebed has not met. Docs, defaults and Java's attributes play
    no part.

    Raises `ValueError` for a text that is no schema.
    """
    return _known().get(_canonical_text(schema_json))


@lru_cache(maxsize=1)
def _known() -> dict[str, RecordForm]:
    return {_canonical_text(record_schema(form)): form for form in _FORMS.values()}


def _canonical_text(schema_json: str) -> str:
    try:
        return json.dumps(_canonical(json.loads(schema_json)))
    except (TypeError, KeyError, RecursionError) as cause:
        raise ValueError(f"not an Avro schema: {cause!r}") from cause


def _canonical(schema: Any) -> Any:
    """What decides about bytes, and the names by which fields are known."""
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
