"""Point lookups in this process: which file holds a key, and its rows, with as few bytes read as the index allows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filters.text import resolve_columns
from lakebed.merge.key_fields import KeyFields
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
    search = _Search(snapshot, lookup, chosen)
    tables = [t for _, t in search.run() if t.num_rows]
    found = pa.concat_tables(tables) if tables else search.schema.empty_table()
    return found.select(chosen)


def exists(snapshot: Snapshot, keys: Any) -> pa.BooleanArray:
    """For each of the keys whether the table holds it, in their order. A record index answers by itself."""
    lookup = wanted_keys(snapshot, keys)
    shared = _shared(snapshot, lookup)
    if shared is None:
        return _exist(snapshot, lookup)
    alone = pc.invert(shared)
    found = np.zeros(len(shared), np.bool_)
    for some, of in ((alone, _exist), (shared, _exist_with_fields)):
        found[some.to_numpy(zero_copy_only=False)] = of(snapshot, lookup.where(some)).to_numpy(zero_copy_only=False)
    return pa.array(found)


def _exist(snapshot: Snapshot, lookup: LookupKeys) -> pa.BooleanArray:
    found = _found(snapshot, lookup)
    if lookup.partitions is None:
        return pc.is_in(lookup.texts, value_set=plain_texts(found.column("key")))
    held = _pair(plain_texts(found.column("partition_path")), plain_texts(found.column("key")))
    return pc.is_in(_pair(lookup.partitions, lookup.texts), value_set=held)


def _exist_with_fields(snapshot: Snapshot, lookup: LookupKeys) -> pa.BooleanArray:
    """The same where the key text does not say it: by the fields of rows that have it."""
    fields = KeyFields.of(snapshot.config)
    assert fields is not None
    assert lookup.fields is not None
    wanted, held = fields.identities(lookup.fields), [pa.array([], pa.string())]
    for file_slice, rows in _Search(snapshot, lookup, ()).run():
        path = pa.repeat(pa.scalar(file_slice.partition), rows.num_rows)
        of_rows = fields.identities(rows)
        held.append(of_rows if lookup.partitions is None else _pair(path, of_rows))
    wanted = wanted if lookup.partitions is None else _pair(lookup.partitions, wanted)
    return pc.is_in(wanted, value_set=pa.concat_arrays(held))


def locate(snapshot: Snapshot, keys: Any) -> pa.Table:
    """Where the keys are: key text, partition path, file id and instant of the base file, one row for each place. A
    record index answers by itself."""
    return _found(snapshot, wanted_keys(snapshot, keys))


def _found(snapshot: Snapshot, lookup: LookupKeys) -> pa.Table:
    search = _Search(snapshot, lookup, ())
    candidates = search.candidates
    if candidates.indexed is not None and not search.compares:
        return _places(candidates.indexed, candidates.slices)
    tables: list[pa.Table] = []
    for file_slice, rows in search.run():
        if rows.num_rows:
            texts = plain_texts(search.texts(rows))
            place = (file_slice.partition, file_slice.file_id, file_slice.instant)
            constants = [pa.repeat(pa.scalar(value, pa.string()), len(texts)) for value in place]
            tables.append(pa.Table.from_arrays([texts, *constants], schema=LOCATION_SCHEMA))
    return pa.concat_tables(tables) if tables else LOCATION_SCHEMA.empty_table()


def _shared(snapshot: Snapshot, lookup: LookupKeys) -> pa.Array | None:
    """Which of the keys have a text that other key fields may have, too; None where none has."""
    fields = KeyFields.of(snapshot.config)
    if fields is None or lookup.fields is None:
        return None
    shared = pc.fill_null(fields.shared.of_texts(lookup.texts), False)
    return shared if fields.columns(lookup.fields.schema) and pc.any(shared).as_py() else None


class _Search(KeySearch):
    """The search for keys; where their text may be that of other key fields, the rows with the fields asked for."""

    def __init__(self, snapshot: Snapshot, lookup: LookupKeys, columns: Sequence[str]) -> None:
        self.compares = _shared(snapshot, lookup) is not None
        wanted = [*columns, *_key_columns(snapshot)]
        if self.compares and lookup.fields is not None:
            fields = KeyFields.of(snapshot.config)
            wanted += fields.columns(lookup.fields.schema) if fields is not None else []
        super().__init__(snapshot, lookup, list(dict.fromkeys(wanted)))

    @property
    def schema(self) -> pa.Schema:
        return self.plan.schema

    def run(self) -> Iterator[tuple[FileSlice, pa.Table]]:
        fields, asked = KeyFields.of(self.snapshot.config), self.lookup.fields
        if not self.compares or fields is None or asked is None:
            yield from super().run()
            return
        wanted = _pair(self.lookup.texts, fields.identities(asked))
        for file_slice, rows in super().run():
            held = _pair(plain_texts(self.texts(rows)), fields.identities(rows))
            yield file_slice, rows.filter(pc.is_in(held, value_set=wanted))


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
