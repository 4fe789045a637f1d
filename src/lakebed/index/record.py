"""The record index: the metadata table knows the file group of every key, so no data file is read to find one.

Finding the places of rows' keys in a record index: in this process, or by tasks that open one file group each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Engine, Rows, Task
from lakebed.expressions.base import Column, Constant, RowExpression
from lakebed.index.base import Index, IndexOptions, KeyLookup, StoredLocations, Tagged
from lakebed.index.simple import (
    GlobalSimpleIndex,
    SimpleIndex,
    at_locations,
    columns_of_names,
    moved_from_locations,
    require_stored_keys,
    with_slices,
)
from lakebed.merge.combine import combine
from lakebed.merge.locations import IsNotNull, ShardOf
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.key_changes import KeyIndexes
from lakebed.metadata_kinds.record_index import data_partition_of
from lakebed.metadata_records.definitions import IndexName
from lakebed.model import DERIVED, FILE_ID, INSTANT, OLD_PARTITION, OPENED, PARTITION_PATH, RECORD_INDEX, RECORD_KEY
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot

_log = logging.getLogger("lakebed")

# Up to so many keys are looked up in this process.
IN_PROCESS_KEYS = 50_000
# So many groups of rows at least, however few file groups the index has: each is a task of its own.
_MIN_GROUPS = 8
_BATCH_ROWS = 1 << 16
_LOCATIONS = pa.schema([(n, pa.string()) for n in (RECORD_KEY, OLD_PARTITION, FILE_ID, INSTANT)])
# The rows' own partition path, while they are grouped by file groups of the index.
_NAMED_PATH = f"{DERIVED}named_path"


def find_locations(keys: Rows, metadata: MetadataLookups, engine: Engine) -> Rows:
    """The record key, old partition path, file id and instant of those keys that a global record index has."""
    few = engine.collect(engine.head(keys, IN_PROCESS_KEYS + 1) if engine.is_distributed else keys)
    if few.num_rows <= IN_PROCESS_KEYS or not engine.is_distributed:
        return engine.from_arrow(_named(metadata.record_locations(few.column(RECORD_KEY))))
    placed = with_locations(engine.derive(keys, {PARTITION_PATH: Constant("")}), None, metadata, engine)
    return engine.derive(engine.filter(placed, IsNotNull(FILE_ID)), {}, keep=_LOCATIONS.names)


def with_locations(
    rows: Rows, rules: MergeRules | None, metadata: MetadataLookups, engine: Engine, *, in_path: bool = False
) -> Rows:
    """The rows with the file id and instant of their keys and the `OLD_PARTITION` in which these are stored (with
    `in_path`, where each partition path has an index, the row's own); null if the index does not have the key. `OPENED`
    has the files of the index that were read.

    With `rules` the rows of a key are made one first: they meet in the task that looks the key up.
    """
    schema = engine.schema(rows)
    if not engine.is_distributed:
        return engine.from_arrow(AddLocations(metadata, rules, schema, in_path).to_table(engine.collect(rows)))
    add = AddLocations(metadata.to_be_sent(RECORD_INDEX), rules, schema, in_path)
    slices = metadata.slices.file_slices(RECORD_INDEX)
    routed: dict[str, RowExpression] = {}
    if in_path:
        shards = max(pc.value_counts(pa.array([data_partition_of(s.file_id) for s in slices])).field(1).to_pylist())
    else:
        shards = max(1, len(slices))
        routed = {_NAMED_PATH: Column(PARTITION_PATH), PARTITION_PATH: Constant("")}
    # a multiple of the file groups' number: a group of rows asks one of them
    groups = shards * -(-_MIN_GROUPS // shards)
    grouped = engine.derive(rows, {**routed, GROUP: ShardOf(RECORD_KEY, groups)})
    return engine.group_map(
        grouped, add, add.schema, groups=None if in_path else groups, one_group_per_task=not in_path
    )


@dataclass(frozen=True, slots=True)
class AddLocations:
    """A task function that adds the locations of their keys to the rows of one index file group."""

    metadata: MetadataLookups
    rules: MergeRules | None
    rows: pa.Schema
    in_path: bool

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows with their locations."""
        return pa.schema([*self.rows, *list(_LOCATIONS)[1:], (OPENED, pa.int64())])

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches)
        if not self.in_path:
            table = table.drop_columns([PARTITION_PATH]).rename_columns({_NAMED_PATH: PARTITION_PATH})
        table = table.select(self.rows.names)
        yield from self._added(table, partition if self.in_path else None).to_batches(max_chunksize=_BATCH_ROWS)

    def to_table(self, table: pa.Table) -> pa.Table:
        """All rows of a write with their locations, as one table."""
        if not self.in_path:
            return self._added(table, None)
        parts = [self._added(path_rows, path) for path, path_rows in _by_path(table)]
        return pa.concat_tables(parts) if parts else self._placed(table, _LOCATIONS.empty_table(), 0)

    def _added(self, table: pa.Table, path: str | None) -> pa.Table:
        if self.rules is not None:
            table = combine(table, [RECORD_KEY], self.rules.in_batch)
        if self.in_path and path is None:
            return self._placed(table, _LOCATIONS.empty_table(), 0)
        locations, files = self.metadata.counted_locations(table.column(RECORD_KEY), path)
        return self._placed(table, _named(locations), files)

    def _placed(self, table: pa.Table, locations: pa.Table, files: int) -> pa.Table:
        at = pc.index_in(table.column(RECORD_KEY), value_set=locations.column(RECORD_KEY).combine_chunks())
        columns = [locations.column(name).combine_chunks().take(at) for name in _LOCATIONS.names[1:]]
        opened = np.zeros(len(table), np.int64)
        opened[:1] = files
        return pa.table([*table.select(self.rows.names).columns, *columns, pa.array(opened)], schema=self.schema)


def _named(locations: pa.Table) -> pa.Table:
    columns = [locations[name].cast(pa.string()) for name in ("key", "partition", "file_id", "instant")]
    return pa.Table.from_arrays(columns, schema=_LOCATIONS)


def _by_path(rows: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    """The rows of each partition path, as pairs; the path is None for rows that do not have one."""
    codes = rows.column(PARTITION_PATH).combine_chunks().dictionary_encode(null_encoding="encode")
    for number, path in enumerate(codes.dictionary.to_pylist()):
        yield path, rows.filter(pc.equal(codes.indices, number))


class RecordIndex(Index, StoredLocations):
    """An index that looks keys up in the record index of the table's metadata table: only its file groups that the keys
    hash to are opened. A table without one (before its first write) is looked through as by the simple indexes.

    A key exists once in the table, and a row that names another partition path is written where its key is, or moves
    there with `update_partition_path` (as for `GlobalSimpleIndex`). With `partitioned` a key exists once in each
    partition path, and never moves.

    >>> RecordIndex(partitioned=True).settings()
    {'type': 'record', 'partitioned': 'true'}
    """

    name: ClassVar[str] = "record"
    NAMES: ClassVar[Mapping[str, bool]] = {
        "record": False,
        "record_index": False,
        "global_record_level_index": False,
        "record_level_index": True,
    }
    """Hudi's names of it, and whether that is one for each partition path."""

    def __init__(self, update_partition_path: bool = False, *, partitioned: bool = False) -> None:
        self.update_partition_path = update_partition_path and not partitioned
        self.partitioned = partitioned
        self.is_global = not partitioned

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> RecordIndex:
        """The index that `settings()` describes."""
        moves, partitioned = (settings.get(name, "false") for name in ("update_partition", "partitioned"))
        return cls(moves.strip().lower() == "true", partitioned=partitioned.strip().lower() == "true")

    @classmethod
    def from_options(cls, options: IndexOptions) -> RecordIndex:
        """The index that a caller names."""
        partitioned = cls.NAMES[options.name]
        options.refuse_all_but(*([] if partitioned else ["update_partition_path"]))
        return cls(bool(options.update_partition_path), partitioned=partitioned)

    @classmethod
    def of_metadata(cls, snapshot: Snapshot) -> RecordIndex | None:
        """The record index of the table's metadata table, whichever engine wrote it; None if it does not have one."""
        if RECORD_INDEX not in snapshot.config.metadata_partitions:
            return None
        return cls(partitioned=KeyIndexes.of(snapshot.storage, snapshot.config).partitioned)

    def for_existence_checks(self) -> RecordIndex:
        """This index for writes that only ask whether a key exists: each row gets the location of its key."""
        return RecordIndex(partitioned=self.partitioned)

    def settings(self) -> Mapping[str, str]:
        if self.partitioned:
            return {"type": self.name, "partitioned": "true"}
        return {"type": self.name, "update_partition": str(self.update_partition_path).lower()}

    @property
    def metadata_indexes(self) -> tuple[IndexName, ...]:
        return (IndexName(RECORD_INDEX, partitioned=self.partitioned),)

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """Place rows by the record index. The result has the column `DELETE` if rows may move."""
        require_stored_keys(snapshot)
        metadata = snapshot.metadata if snapshot.commits else None
        if snapshot.repeats_keys:
            return self._fallback.place(rows, snapshot, engine)
        if metadata is None or not metadata.has(RECORD_INDEX):
            if snapshot.commits:
                _warn_of_fallback(snapshot.storage.url())
            return self._fallback.place(rows, snapshot, engine)
        located_rows = with_locations(rows, None, metadata, engine, in_path=self.partitioned)
        return self._settled(located_rows, rows, snapshot, engine)

    def place_in_one(self, rows: Rows, rules: MergeRules | None, snapshot: Snapshot, engine: Engine) -> Tagged | None:
        """Place rows by one shuffle to the index's file groups, each of which one task opens; None without a record
        index."""
        metadata = snapshot.metadata if snapshot.commits else None
        if metadata is None or not metadata.has(RECORD_INDEX) or snapshot.repeats_keys:
            return None
        require_stored_keys(snapshot)
        located_rows = with_locations(rows, rules, metadata, engine, in_path=self.partitioned)
        return self._settled(located_rows, rows, snapshot, engine)

    def _settled(self, located_rows: Rows, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """The placement of `rows`. `located_rows` are these rows with the locations that the index has for their
        keys."""
        names = engine.schema(rows).names
        if self.partitioned:
            return Tagged(engine.derive(located_rows, {}, keep=[*names, FILE_ID, INSTANT, OPENED]))
        row_columns = [n for n in names if n != PARTITION_PATH]
        if not (self.update_partition_path and snapshot.config.partition_fields):
            return Tagged(at_locations(located_rows, row_columns, engine, [OPENED]))
        located_rows = engine.persist(located_rows)
        placed, read = moved_from_locations(located_rows, row_columns, snapshot, engine, [OPENED])
        return Tagged(placed, persisted=located_rows, lookup=with_slices(KeyLookup(), read))

    @property
    def stored_locations(self) -> RecordIndex:
        return self

    def locate(self, keys: Rows, snapshot: Snapshot, engine: Engine) -> Rows | None:
        """The locations of these keys. None if the index cannot answer: it does not exist, is partitioned, or is newer
        than the snapshot."""
        metadata = snapshot.metadata if snapshot.is_latest and not self.partitioned else None
        if metadata is None or not metadata.has(RECORD_INDEX) or snapshot.repeats_keys:
            return None
        locations = find_locations(engine.distinct(keys), metadata, engine)
        location_columns = {PARTITION_PATH: Column(OLD_PARTITION), **columns_of_names(FILE_ID, INSTANT)}
        return engine.derive(locations, location_columns, keep=[RECORD_KEY])

    @property
    def _fallback(self) -> SimpleIndex | GlobalSimpleIndex:
        return SimpleIndex() if self.partitioned else GlobalSimpleIndex(self.update_partition_path)

    def explain_for(self, snapshot: Snapshot) -> str:
        metadata = snapshot.metadata if snapshot.commits else None
        if not snapshot.commits or (metadata is not None and metadata.has(RECORD_INDEX)):
            return self.explain()
        return f"record: the table has no record index yet, keys are looked up as under {self._fallback.explain()}"

    def explain(self) -> str:
        if self.partitioned:
            return "record: looks keys up in the record index of their partition path; no data file is read to tag"
        where = "rows move to their new partition" if self.update_partition_path else "rows stay where their key is"
        return f"record: looks keys up in the record index; no data file is read to tag; {where}"


@cache
def _warn_of_fallback(uri: str) -> None:
    _log.warning(
        "table %s has no record index yet: keys are looked up in its base files until the next write has built one", uri
    )
