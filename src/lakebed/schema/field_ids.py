"""The ids of columns in Parquet files and in published Iceberg lists: functions of their paths, so that a reader that
goes by ids finds what one that goes by names finds.

Hudi's meta columns have none in files: no list shows them, and ClickHouse refuses files with ids of other columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.types as pt
import xxhash

from lakebed.model import ALL_META_COLUMNS
from lakebed.schema.arrow import is_list, without_meta

FIELD_IDS = "lakebed.field.ids"
"""The property of tables whose base files have ids; the only value is `path`."""
BY_PATH = "path"

_NUMBER = b"PARQUET:field_id"
# Ids from 2147483447 on are Iceberg's, and lists give the next ones to paths whose number is taken.
_BITS = 0x3FFFFFFF


def field_id(path: str) -> int:
    """The id of a column, or part of one, from its dotted path: from 1 to 2 ** 30.

    >>> field_id("pos.x") == field_id("pos.x") != field_id("pos.y")
    True
    """
    return (xxhash.xxh32_intdigest(path.encode()) & _BITS) + 1


def field_paths(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """The paths of columns and of all their parts; the parts of lists and maps have the names that Iceberg uses.

    >>> list(field_paths(pa.schema([("m", pa.map_(pa.string(), pa.list_(pa.int32())))])))
    ['m', 'm.key', 'm.value', 'm.value.element']
    """
    for field in fields:
        path = below(above, field.name)
        yield path
        yield from field_paths(_parts(field.type), path)


def below(above: str, name: str) -> str:
    """The path of a part; the name alone if `above` is empty."""
    return f"{above}.{name}" if above else name


def with_field_ids(schema: pa.Schema) -> pa.Schema:
    """The schema with ids in its fields; the schema unchanged if two of its paths have the same id."""
    if not has_field_ids(schema):
        return schema
    return pa.schema(
        [field if field.name in ALL_META_COLUMNS else _numbered(field, field.name, field.name) for field in schema]
    )


def has_field_ids(schema: pa.Schema) -> bool:
    """Whether all paths of the data columns of a schema have different ids."""
    paths = list(field_paths(without_meta(schema)))
    return len({field_id(path) for path in paths}) == len(paths)


def _parts(kind: pa.DataType) -> list[pa.Field]:
    if is_list(kind):
        return [pa.field("element", kind.value_type)]
    if pt.is_map(kind):
        return [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
    return list(kind) if pt.is_struct(kind) else []


def _numbered(field: pa.Field, name: str, path: str) -> pa.Field:
    kind = field.type
    if is_list(kind):
        element = _numbered(kind.value_field, kind.value_field.name, f"{path}.element")
        kind = pa.large_list(element) if pt.is_large_list(kind) else pa.list_(element)
    elif pt.is_map(kind):
        key = _numbered(kind.key_field, kind.key_field.name, f"{path}.key")
        kind = pa.map_(key, _numbered(kind.item_field, kind.item_field.name, f"{path}.value"))
    elif pt.is_struct(kind):
        kind = pa.struct([_numbered(part, part.name, f"{path}.{part.name}") for part in kind])
    return pa.field(name, kind, field.nullable, {_NUMBER: str(field_id(path)).encode()})
