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
from lakebed.schema.arrow import without_meta
from lakebed.schema.logical_types import is_vector
from lakebed.schema.plain_arrow import is_list

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
        yield from field_paths([part.with_name(name) for name, part in _parts(field.type)], path)


def below(above: str, name: str) -> str:
    """The path of a part; the name alone if `above` is empty."""
    return f"{above}.{name}" if above else name


def with_field_ids(schema: pa.Schema) -> pa.Schema:
    """The schema with ids in its fields; the schema unchanged if two of its paths have the same id."""
    if not has_field_ids(schema):
        return schema
    return pa.schema([field if field.name in ALL_META_COLUMNS else _numbered(field, field.name) for field in schema])


def has_field_ids(schema: pa.Schema) -> bool:
    """Whether all paths of the data columns of a schema have different ids."""
    paths = list(field_paths(without_meta(schema)))
    return len({field_id(path) for path in paths}) == len(paths)


def _parts(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """The parts of a nested type, each with the name that Iceberg gives it. A vector is stored whole: it has none."""
    if is_list(kind) and not is_vector(kind):
        return [("element", kind.value_field)]
    if pt.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    return [(part.name, part) for part in kind] if pt.is_struct(kind) else []


def _numbered(field: pa.Field, path: str) -> pa.Field:
    """The field with its id, and with those of its parts."""
    kind, parts = field.type, [_numbered(part, below(path, name)) for name, part in _parts(field.type)]
    if is_list(kind) and parts:
        kind = pa.large_list(parts[0]) if pt.is_large_list(kind) else pa.list_(parts[0])
    elif pt.is_map(kind):
        kind = pa.map_(parts[0], parts[1])
    elif pt.is_struct(kind):
        kind = pa.struct(parts)
    return pa.field(field.name, kind, field.nullable, {_NUMBER: str(field_id(path)).encode()})
