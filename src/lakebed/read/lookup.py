"""Point lookups in this process: which file holds a key, and its rows, with as few bytes read as the index allows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filters.columns import resolve_columns
from lakebed.model import META_COLUMNS, RECORD_KEY, FileSlice
from lakebed.read.key_search import KeySearch
from lakebed.read.lookup_keys import KeyText, LookupKeys, plain_texts, wanted_keys
from lakebed.read.plan import table_columns
from lakebed.read.record_index import FoundKeys
from lakebed.slices.snapshot import Snapshot

__all__ = ["LOCATION_SCHEMA", "KeyText", "LookupKeys", "exists", "get", "locate", "wanted_keys"]

LOCATION_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("partition_path", pa.string()),
        ("file_id", pa.string()),
        ("instant", pa.string()),
    ]
)


def get(snapshot: Snapshot, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of these keys, as they are found; all data columns, or `columns` (meta columns by name).

    `keys`: a list or array for a single key field, tuples or a table for several (with partition columns, if known),
    or `KeyText`. On a table that is not global every partition is searched unless the partition columns are given.
    """
    lookup = wanted_keys(snapshot, keys)
    available = table_columns(snapshot)
    chosen = [n for n in available.names if n not in META_COLUMNS] if columns is None else list(columns)
    chosen = resolve_columns(chosen, available)
    extra = [c for c in _key_columns(snapshot) if c not in chosen]
    search = KeySearch(snapshot, lookup, [*chosen, *extra])
    tables = [t for _, t in search.run() if t.num_rows]
    schema = search.plan.schema
    found = pa.concat_tables(tables) if tables else schema.empty_table()
    return found.select(chosen)


def exists(snapshot: Snapshot, keys: Any) -> pa.BooleanArray:
    """For each of the keys whether the table holds it, in their order. A record index answers by itself."""
    lookup = wanted_keys(snapshot, keys)
    found = _found(snapshot, lookup)
    if lookup.partitions is None:
        return pc.is_in(lookup.texts, value_set=plain_texts(found.column("key")))
    held = _pair(plain_texts(found.column("partition_path")), plain_texts(found.column("key")))
    return pc.is_in(_pair(lookup.partitions, lookup.texts), value_set=held)


def locate(snapshot: Snapshot, keys: Any) -> pa.Table:
    """Where the keys are: key text, partition path, file id and instant of the base file, one row for each place. A
    record index answers by itself."""
    return _found(snapshot, wanted_keys(snapshot, keys))


def _found(snapshot: Snapshot, lookup: LookupKeys) -> pa.Table:
    search = KeySearch(snapshot, lookup, _key_columns(snapshot))
    candidates = search.candidates
    if candidates.indexed is not None:
        return _places(candidates.indexed, candidates.slices)
    tables: list[pa.Table] = []
    for file_slice, rows in search.run():
        if rows.num_rows:
            texts = plain_texts(search.texts(rows))
            place = (file_slice.partition, file_slice.file_id, file_slice.instant)
            constants = [pa.repeat(pa.scalar(value, pa.string()), len(texts)) for value in place]
            tables.append(pa.Table.from_arrays([texts, *constants], schema=LOCATION_SCHEMA))
    return pa.concat_tables(tables) if tables else LOCATION_SCHEMA.empty_table()


def _places(indexed: FoundKeys, slices: Collection[FileSlice]) -> pa.Table:
    """The index's answer with the instants of the file slices."""
    instants = pa.table(
        {
            "partition": pa.array([s.partition for s in slices], pa.string()),
            "file_id": pa.array([s.file_id for s in slices], pa.string()),
            "instant": pa.array([s.instant for s in slices], pa.string()),
        }
    )
    joined = indexed.places.join(instants, ["partition", "file_id"])
    columns = [joined[name] for name in ("key", "partition", "file_id", "instant")]
    return pa.Table.from_arrays(columns, schema=LOCATION_SCHEMA)


def _key_columns(snapshot: Snapshot) -> tuple[str, ...]:
    return (RECORD_KEY,) if snapshot.config.populate_meta_fields else tuple(snapshot.config.key_fields)


def _pair(left: pa.Array, right: pa.Array) -> pa.Array:
    """Both texts as one that no other pair gives."""
    size = pc.utf8_length(left).cast(pa.string())
    return pc.binary_join_element_wise(size, left, right, "/")
