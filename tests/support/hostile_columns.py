"""User columns with names that somebody's pipeline might take for its own."""

from __future__ import annotations

import pyarrow as pa

HOSTILE = (
    *("_group", "_file_id", "_instant", "_moves", "_delete", "_old_partition", "_stored_ordering_0"),
    *("_key_hash", "_known_group", "_share", "_mask", "_left", "_right", "bounds", "groups", "rows"),
    *("key", "value", "record_key", "partition", "partition_path", "file_id", "instant", "came", "at", "o0", "b"),
    *("lb_key", "lb_text", "lb_digits", "item", "owner", "place", "size", "path", "position", "replaced", "min", "max"),
)
FLAGS = ("_delete", "_moves", "came", "replaced")


def hostile_schema() -> pa.Schema:
    """`id` the key, `city` the partition, `ts` the ordering, then every hostile name, upper case among them."""
    own = [("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())]
    names = [name.upper() if at % 3 == 2 else name for at, name in enumerate(HOSTILE)]
    return pa.schema([*own, *((n, pa.bool_() if n.lower() in FLAGS else pa.string()) for n in names)])


def hostile_rows(ids: list[int], ts: int, cities: list[str] | None = None) -> pa.Table:
    """Rows whose hostile columns all hold something that would be noticed: true flags, texts of key and time."""
    schema = hostile_schema()
    columns = [pa.array(ids), pa.array(cities or [f"c{i % 3}" for i in ids]), pa.array([ts] * len(ids))]
    for field in list(schema)[3:]:
        flag = pa.types.is_boolean(field.type)
        columns.append(pa.array([True if flag else f"{field.name}-{i}-{ts}" for i in ids], field.type))
    return pa.table(columns, schema=schema)
