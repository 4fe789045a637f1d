"""Batches made from a golden table's own rows: some keys changed, some new, some deleted, and what must remain."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.properties.table_config import TableConfig


@dataclass(frozen=True)
class Batches:
    """`upsert` holds changed and new rows, `delete` key and partition columns; `after` is the table once both ran."""

    upsert: pa.Table
    delete: pa.Table
    after: pa.Table


def batches_of(rows: pa.Table, config: TableConfig) -> Batches:
    """From the data columns of a table; rows whose keys are there twice stay as they are."""
    rows, twice = _by_uniqueness(rows, [*config.key_fields, *config.partition_fields])
    fixed = {*config.key_fields, *config.partition_fields, "_hoodie_is_deleted", config.delete_field}
    changed = rows.slice(0, 4)
    for name in (n for n in config.ordering_fields if n not in fixed):
        changed = _put(changed, name, _greater(changed.column(name)))
    for field in rows.schema:
        if field.name not in fixed and field.name not in config.ordering_fields and pa.types.is_string(field.type):
            changed = _put(changed, field.name, pa.array(["by lakebed ü"] * changed.num_rows))
            break
    new = _put(rows.slice(0, 3), config.key_fields[0], _other_keys(rows.slice(0, 3).column(config.key_fields[0])))
    deleted = rows.slice(4, 3)
    keys = [*config.key_fields, *(f for f in config.partition_fields if f not in config.key_fields)]
    return Batches(
        upsert=pa.concat_tables([changed, new]),
        delete=deleted.select(keys),
        after=pa.concat_tables([changed, new, rows.slice(7), twice]),
    )


def _by_uniqueness(rows: pa.Table, key: list[str]) -> tuple[pa.Table, pa.Table]:
    keys = [repr(row) for row in rows.select(list(dict.fromkeys(key))).to_pylist()]
    counts = Counter(keys)
    alone = pa.array([counts[k] == 1 for k in keys], pa.bool_())
    return rows.filter(alone), rows.filter(pc.invert(alone))


def _greater(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return pc.add(values, pa.scalar(1_000_000, values.type)).cast(values.type)
    return values


def _other_keys(values: pa.ChunkedArray) -> Any:
    if pa.types.is_integer(values.type):
        return pc.add(values, pa.scalar(500_000, values.type)).cast(values.type)
    if pa.types.is_string(values.type):
        return pc.binary_join_element_wise(values, "new", "-")
    return pa.nulls(len(values), values.type)


def _put(table: pa.Table, name: str, values: Any) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), values)
