"""`MetadataTable`: what the metadata table knows about its table: files, statistics, where records are.

Reading file slices of the metadata table: whole, by keys, by prefixes; base file and log blocks as layers.

Reading stats: a file slice has records of all columns together; they are returned as one table a column.

The metadata table as it goes to tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile, InvalidOption, LakebedError
from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.format.delete_block import NO_DELETES, decode_deletes
from lakebed.format.hashes import plain_strings
from lakebed.format.hfile.entries import Entries
from lakebed.format.hfile.reader import HFileReader
from lakebed.format.log_file import BlockType
from lakebed.format.sources import SMALL_FILE_BYTES
from lakebed.metadata.slices import MetadataSlices, open_slices, shows_last, try_store
from lakebed.metadata_kinds import files as files_module
from lakebed.metadata_kinds.files import newest_files
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_records.layout import (
    ALL_PARTITIONS,
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILE_KEY_LENGTH,
    FILES,
    PARTITION_STATS,
    column_prefix,
    file_group,
    file_keys,
    is_of_data,
    partition_identifier,
    partition_of,
    partition_stats_keys,
    secondary_prefixes,
)
from lakebed.metadata_records.merge_records import Decode, Layer, alive, decoded, newest
from lakebed.model import RECORD_INDEX, Action, FileSlice
from lakebed.properties.features import check_formats
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.schema.plain_arrow import as_numpy
from lakebed.sharing import once
from lakebed.slices.snapshot import Snapshot, metadata_damage_named
from lakebed.storage.base import Storage
from lakebed.storage.parallel import at_once, is_remote, parallel_map, threads_of_files
from lakebed.timeline.instants import without_suffix
from lakebed.timeline.timeline import Timeline, load_table, load_timeline

if TYPE_CHECKING:
    from lakebed.metadata_records.stats_codec import Stats, Types

# What compactions and cleans of the metadata table complete as.
_SERVICES = (Action.COMMIT, Action.CLEAN)
# A file with at most this many entries for each requested key is read completely: sorting the keys would cost more.
_DENSE = 4


def full_slice(view: MetadataSlices, file_slice: FileSlice) -> list[Layer]:
    """All records of a slice, oldest first, as layers with the columns `key`, `value` and `schema` (see
    `merge_records.decoded`)."""
    return _layers(view, file_slice, HFileReader.read)


def slice_by_keys(view: MetadataSlices, file_slice: FileSlice, keys: pa.Array, after_instant: str = "") -> list[Layer]:
    """The records of a slice with these keys, oldest first. If a file has few entries for the number of keys, all its
    records are returned. With `after_instant` only records in log blocks of later requested instants."""
    in_order: list[pa.Array] = []

    def ask(file: HFileReader) -> Entries:
        if len(keys) * _DENSE >= file.entry_count:
            return file.read()
        if not in_order:
            in_order.append(keys.take(pc.sort_indices(keys)) if len(keys) > 1 else keys)
        return file.lookup(in_order[0]).entries

    return _layers(view, file_slice, ask, after_instant)


def slice_by_prefixes(view: MetadataSlices, file_slice: FileSlice, prefixes: pa.Array) -> list[Layer]:
    """The records of a slice whose keys begin with one of these texts, oldest first."""

    def ask(file: HFileReader) -> Entries:
        if len(prefixes) * _DENSE < file.entry_count:
            return file.prefix(prefixes).entries
        entries, lengths = file.read(), pc.binary_length(prefixes)
        begins = np.zeros(len(entries), np.bool_)
        for length in pc.unique(lengths).to_pylist():
            starts = pc.binary_slice(entries.keys, 0, length)
            requested = prefixes.filter(pc.equal(lengths, pa.scalar(length, lengths.type))).cast(starts.type)
            begins |= as_numpy(pc.is_in(starts, value_set=requested))
        mask = pa.array(begins)
        return entries if begins.all() else Entries(entries.keys.filter(mask), entries.values.filter(mask))

    return _layers(view, file_slice, ask)


def keys_by_group(keys: pa.Array, groups: npt.NDArray[np.integer[Any]], count: int) -> list[pa.Array]:
    """The keys of each of `count` file groups, in the order of `keys`."""
    order = np.argsort(groups, kind="stable")
    edges = np.searchsorted(groups[order], np.arange(count + 1))
    sorted_keys = keys.take(pa.array(order))
    return [sorted_keys.slice(edges[i], edges[i + 1] - edges[i]) for i in range(count)]


def distinct_texts(values: Any) -> pa.StringArray:
    """The distinct texts, without nulls."""
    return pc.drop_null(pc.unique(plain_strings(values).cast(pa.string())))


def _layers(
    view: MetadataSlices,
    file_slice: FileSlice,
    ask: Callable[[HFileReader], Entries],
    after_instant: str = "",
) -> list[Layer]:
    layers: list[Layer] = []

    def add(file: HFileReader) -> None:
        entries = ask(file)
        if len(entries):
            schema = pa.DictionaryArray.from_arrays(
                np.zeros(len(entries), np.int32), pa.array([file.schema_json], pa.string())
            )
            layers.append(Layer(pa.table({"key": entries.strings(), "value": entries.values, "schema": schema})))

    view.open_files(file_slice)
    base = view.base_file(file_slice)
    if base is not None and not after_instant:
        add(base)
    for block in view.log_blocks(file_slice):
        if block.instant <= after_instant:
            continue
        if block.type is not BlockType.DELETE:
            add(view.data_block(block))
        elif (content := block.read()) != NO_DELETES:
            deleted = decode_deletes(content, block.source.name, block.offset).keys
            if len(deleted):
                layers.append(Layer(deleted=deleted))
    return layers


def read_stats(
    view: MetadataSlices, slices: Sequence[FileSlice], prefixes: pa.Array | None, types: Types | None
) -> Stats:
    """The statistics in these slices whose keys begin with one of the prefixes (None: all statistics), one table per
    column.

    Records are divided by key before they are decoded, so that each slice is decoded once.
    """

    from lakebed.metadata_kinds.stats_values import newest_stats
    from lakebed.metadata_records import stats_codec

    def read(file_slice: FileSlice) -> pa.Table | None:
        return alive(
            full_slice(view, file_slice) if prefixes is None else slice_by_prefixes(view, file_slice, prefixes)
        )

    tables_by_column: dict[str, list[pa.Table]] = {}
    for rows in parallel_map(read, slices, threads_of_files(view.storage, [s.size for s in slices])):
        for stats in decoded(rows, partial(stats_codec.decode, types=types)):
            for column, table in stats.items():
                tables_by_column.setdefault(column, []).append(table)
    merged = {column: newest_stats(tables) for column, tables in tables_by_column.items()}
    return {column: table for column, table in merged.items() if len(table)}


FILES_LISTED = pa.schema([("partition", pa.string()), ("name", pa.string()), ("size", pa.int64())])
_DECODED_TOGETHER = 1 << 18
# Up to this many partition paths are looked up; for more, the files of all paths are read.
_MAX_PARTITIONS = 16
_ALL_PARTITIONS = pa.scalar(ALL_PARTITIONS, pa.string())
# Up to this many keys are looked up by one thread on a storage with quick answers.
_MAX_KEYS = 1_000
# Up to this many small file slices are opened ahead of a lookup.
_MAX_SLICES = 8
_READERS = 8
# Cached answers for different sets of partition paths.
_CACHED_LISTINGS = 16


# Of so many tables the indexes stay open.
_OPENED_TABLES = 8


@dataclass(frozen=True, eq=False)
class MetadataTable:
    """The metadata table of one table at one moment. Call `has` before a lookup: for a partition that is not complete a
    lookup raises `InvalidOption`.

    Everything is read when asked for: a partition is listed once, `files` is read whole and kept, of the others only
    the blocks that may hold what is asked.
    """

    slices: MetadataSlices
    _listed: dict[frozenset[str] | None, pa.Table] = field(default_factory=dict, repr=False)

    @once
    def opened_indexes(self) -> dict[Any, Any]:
        """The opened indexes of this view by keys that their readers choose. Views that show the same share them."""
        spec = self.slices.storage.spec
        location = spec.uri, tuple(sorted(spec.options.items()))
        latest = _OPENED.get(location)
        if latest is not None and latest.content.view.shows_same(self):
            return latest.content.indexes
        opened = _OpenedIndexes(self, {})
        _OPENED.put(location, CacheEntry(opened, 1))
        return opened.indexes

    def open_ahead(self, partitions: Sequence[str]) -> None:
        """On a slow storage, list these partitions in parallel and open the files of the small ones, which a lookup
        would open one after the other."""
        if not is_remote(self.slices.storage):
            return
        listed = parallel_map(self.slices.file_slices, partitions)
        small = [
            file_slice
            for slices in listed
            if len(slices) <= _MAX_SLICES
            for file_slice in slices
            if file_slice.size <= SMALL_FILE_BYTES
        ]
        parallel_map(self.slices.open_files, small)

    def try_open_ahead(self, *, for_keys: bool) -> None:
        """Open the list of files, as `open_ahead` does. `for_keys` it is only listed, with the record index if there is
        one: the search for keys opens both. An error is left to their first user."""
        with suppress(LakebedError, OSError):
            if for_keys and self.has(RECORD_INDEX):
                parallel_map(self.slices.file_slices, [RECORD_INDEX, FILES])
            else:
                self.open_ahead([FILES])

    def has(self, partition: str) -> bool:
        """Whether the metadata table has this partition and it is complete."""
        return partition in self.slices.partitions

    def is_ahead_of(self, timeline: Timeline) -> bool:
        """Whether the metadata table holds records of data commits that this timeline does not show as completed.

        The two timelines are listed one after the other, so a commit may complete in between. Records that a delta
        commit logged for an instant that is pending here are hidden, until a compaction writes them into a base file.
        """
        commits = self.slices.timeline.commits
        # version 6 appends digits to the instant for what the metadata table does on its own
        logged = {without_suffix(i.time) for i in commits if i.action is Action.DELTACOMMIT}
        compacted = max((i.time for i in commits if i.action is Action.COMMIT), default="")
        if any(i.time in logged and i.time < compacted for i in timeline.pending):
            return True
        later = {time for time in logged if time > timeline.latest_time}
        if not later:
            return False
        # a repair of the metadata table alone has an instant that the table itself never had
        now = load_timeline(timeline.storage, timeline.config)
        return min(later) < (now.start or "") or any(i.time in later for i in now.instants)

    def is_later_than(self, timeline: Timeline) -> bool:
        """Whether the metadata table has completed an action that is later than all of this timeline. Its compactions
        and cleans do not count: they come after actions, and none of the table's actions has their form here."""
        for instant in reversed(self.slices.timeline.completed):
            if is_of_data(instant.time) and instant.action not in _SERVICES:
                return instant.time > timeline.latest_time
        return False

    def shows_same(self, other: Self) -> bool:
        """Whether `other`, a view that was just opened, shows nothing new in comparison with this one."""
        return self.slices.shows_same(other.slices)

    def partitions(self) -> tuple[str, ...]:
        """The partition paths of the data table, sorted ("" for a table without partitions)."""
        rows = self._files_of(None)
        listed = rows.filter(pc.and_(pc.equal(rows["key"], _ALL_PARTITIONS), self._is_live(rows)))
        return tuple(sorted(map(partition_of, listed["name"].to_pylist())))

    def files(self, partitions: Collection[str] | None = None) -> pa.Table:
        """The `partition`, `name` and `size` of the files (base, log and CDC files) of some partition paths, or of all
        (None). Files of replaced file groups are listed until they are cleaned. On version 6 a size of 1 means an
        unknown size: releases before 1.0 record it for the log files of a rollback."""
        few = partitions is not None and len(partitions) <= _MAX_PARTITIONS and None not in self._listed
        rows = self._files_of(partitions if few else None)
        rows = rows.filter(pc.and_(pc.not_equal(rows["key"], _ALL_PARTITIONS), self._is_live(rows)))
        if partitions is not None:
            identifiers = pa.array([partition_identifier(p) for p in partitions], pa.string())
            rows = rows.filter(pc.is_in(rows["key"], value_set=identifiers))
        paths = rows["key"].combine_chunks().dictionary_encode()
        names = pa.array([partition_of(text) for text in paths.dictionary.to_pylist()], pa.string())
        return pa.Table.from_arrays([names.take(paths.indices), rows["name"], rows["size"]], schema=FILES_LISTED)

    def column_stats(
        self,
        columns: Sequence[str] | None = None,
        partitions: Collection[str] | None = None,
        types: Types | None = None,
    ) -> Stats:
        """The statistics of files, by column: one table of `stats_schema` for each column that has some, for some
        columns (dotted paths) and partition paths, or for all (None). `types` are the columns' types (see
        `stats_codec.decode`)."""
        prefixes = None if columns is None else _stats_prefixes(columns, partitions)
        stats = self._stats(COLUMN_STATS, prefixes, types)
        if columns is None and partitions is not None:
            named = pa.array([column_prefix(column, p) for column in stats for p in partitions], pa.string())
            starts = {c: pc.utf8_slice_codeunits(table["key"], 0, 24) for c, table in stats.items()}
            stats = {c: table.filter(pc.is_in(starts[c], value_set=named)) for c, table in stats.items()}
        return stats

    def partition_stats(
        self,
        columns: Sequence[str] | None = None,
        types: Types | None = None,
        partitions: Collection[str] | None = None,
    ) -> Stats:
        """The statistics of partition paths (in `file_name`), by column: one table for each column that has some.
        `partitions` selects paths only if the columns are named as well."""
        if columns is None:
            return self._stats(PARTITION_STATS, None, types)
        return self._stats(PARTITION_STATS, _stats_prefixes(columns, partitions), types)

    def has_partition_stats(self, columns: Sequence[str], partitions: Sequence[str]) -> bool:
        """Whether each of these partition paths has statistics of each of these columns. Bounds are not decoded."""
        from lakebed.metadata_records import stats_codec

        self._check(PARTITION_STATS)
        keys = [key for column in columns for key in partition_stats_keys(column, partitions).to_pylist()]
        remaining, requested = {*keys} - self.slices.range_keys, pa.array(keys, pa.string())
        for file_slice in self._file_slices(PARTITION_STATS) if remaining else ():
            for flags in decoded(newest(slice_by_keys(self.slices, file_slice, requested)), stats_codec.deleted_flags):
                remaining.difference_update(flags.filter(pc.invert(flags["is_deleted"]))["key"].to_pylist())
        return not remaining

    def bloom_filters(self, files: Iterable[tuple[str, str]]) -> pa.Table:
        """A table of `partition`, `file_name`, `type`, `timestamp` and `bloom` (the filter's text) of those base files,
        given as (partition path, file name), that have a filter."""
        return self._blooms(BLOOM_FILTERS, files)

    def record_locations(self, keys: Any, partition: str | None = None) -> pa.Table:
        """A table of `key`, `partition`, `file_id` and `instant` of those record keys that are in the record index.

        A partitioned record index is asked for one partition path, or for all of them (None); a key may then have
        several locations. Keys asked for twice are answered once.
        """
        return self.counted_locations(keys, partition)[0]

    def counted_locations(self, keys: Any, partition: str | None = None) -> tuple[pa.Table, int]:
        """A table of `key`, `partition`, `file_id` and `instant` of those record keys that are in the record index, of
        one partition path or (None) of all, and the number of base and log files of the index that were read."""
        from lakebed.metadata_kinds import record_index

        requested = self._requested(RECORD_INDEX, keys, partition)
        locations = self._merged(requested, slice_by_keys, self._decoder(RECORD_INDEX))
        files = sum(len(file_slice.files) for file_slice, _ in requested)
        return locations if locations is not None else record_index.SCHEMA.empty_table(), files

    def record_keys_of_secondary(self, name: str, values: Any) -> pa.Table:
        """A table of `value` and `record_key` of the records whose indexed field has one of these values (texts in
        Java's form, or null); `name` is the index's partition."""
        from lakebed.metadata_kinds import secondary_index

        self._check(name)
        slices = self._file_slices(name)
        prefixes = pc.unique(secondary_prefixes(values))
        if self._index_version(name) < 2 or self._is_polluted(name):
            requested = [(file_slice, prefixes) for file_slice in slices]
        else:
            requested = self._routed(slices, prefixes, kind_of(name).shard(prefixes, len(slices), 2))
        rows = self._merged(requested, slice_by_prefixes, secondary_index.decode)
        schema = pa.schema(list(secondary_index.SCHEMA)[:2])
        if rows is None:
            return schema.empty_table()
        return rows.filter(pc.invert(rows["is_deleted"])).select(schema.names)

    def expression_stats(
        self, name: str, types: Types | None = None, partitions: Collection[str] | None = None
    ) -> tuple[Stats, Stats]:
        """The statistics of files and those of partition paths in an expression index of ranges, by source column;
        `name` is the index's partition. With `partitions` those of files in these partition paths, of the columns in
        `types`."""
        prefixes = None if partitions is None else _stats_prefixes(types or {}, partitions)
        stats = self._stats(name, prefixes, types)
        of_files = {c: pc.equal(pc.utf8_length(table["key"]), FILE_KEY_LENGTH) for c, table in stats.items()}
        files = {c: table.filter(of_files[c]) for c, table in stats.items()}
        return files, {c: table.filter(pc.invert(of_files[c])) for c, table in stats.items()}

    def expression_bloom_filters(self, name: str, files: Iterable[tuple[str, str]]) -> pa.Table:
        """A table of `partition`, `file_name`, `type`, `timestamp` and `bloom` (the filter's text) of those base files,
        given as (partition path, file name), that have a filter in an expression index of bloom filters; `name` is the
        index's partition."""
        return self._blooms(name, files)

    def lookup(self, partition: str, keys: Any, data_partition: str | None = None) -> pa.Table | None:
        """The newest record of each distinct key, decoded by the partition's kind; None if there is no record.
        `data_partition` selects the file groups of one partition path of the data, for an index that has such file
        groups (None: all)."""
        return self._merged(self._requested(partition, keys, data_partition), slice_by_keys, self._decoder(partition))

    def beginning_with(self, partition: str, prefixes: Sequence[str]) -> pa.Table | None:
        """The newest record of each key that begins with one of these texts, decoded by the partition's kind; None if
        there is no record."""
        self._check(partition)
        texts = pa.array(prefixes, pa.string())
        requested = [(file_slice, texts) for file_slice in self._file_slices(partition)]
        return self._merged(requested, slice_by_prefixes, self._decoder(partition))

    def _requested(
        self, partition: str, keys: Any, data_partition: str | None
    ) -> list[tuple[FileSlice, pa.StringArray]]:
        """The file slices that may have the keys, each with its keys."""
        self._check(partition)
        kind = kind_of(partition)
        by_path: dict[str | None, list[FileSlice]] = {}
        for file_slice in self._file_slices(partition):
            by_path.setdefault(kind.data_partition_of(file_slice.file_id), []).append(file_slice)
        requested: list[tuple[FileSlice, pa.StringArray]] = []
        texts = distinct_texts(keys)
        version = self._index_version(partition) if kind.shard_by_version else 1
        for path, slices in by_path.items():
            if path is None or data_partition is None or path == data_partition:
                requested += self._routed(slices, texts, kind.shard(texts, len(slices), version))
        return requested

    def entries(self, partition: str) -> Iterator[pa.Table]:
        """All live entries of a partition whose kind decodes them (all but statistics), one table per file group."""
        self._check(partition)
        decode, union = self._decoder(partition), kind_of(partition).union
        for file_slice in self._file_slices(partition):
            layers = full_slice(self.slices, file_slice)
            tables = decoded(alive(layers) if union else newest(layers), decode)
            if tables:
                table = pa.concat_tables(tables)
                yield union.decoded(table) if union else table

    def entry_counts(self, partition: str) -> Sequence[int]:
        """The number of records in the files of each file slice of a partition, in the order of `slices.file_slices`; a
        key that was written again, or deleted, counts twice."""
        return parallel_map(self._entry_count, self.slices.file_slices(partition))

    def _entry_count(self, file_slice: FileSlice) -> int:
        base = self.slices.base_file(file_slice)
        blocks = [block for block in self.slices.log_blocks(file_slice) if block.type is not BlockType.DELETE]
        return sum(file.entry_count for file in (base, *map(self.slices.data_block, blocks)) if file is not None)

    def check_readable(self, partition: str) -> None:
        """Read every record of a partition. Raises `CorruptFile` or `FileNotFoundError` if one cannot be read."""
        for file_slice in self.slices.file_slices(partition):
            full_slice(self.slices, file_slice)

    def to_be_sent(self, partition: str) -> MetadataTable:
        """The metadata table with only the data that lookups in one partition need: the timelines and the partition's
        file slices."""
        slices = self.slices
        return MetadataTable(
            MetadataSlices(
                slices.storage,
                slices.config,
                slices.timeline.without_files(),
                slices.data_storage,
                slices.data_config,
                slices.data_timeline.without_files(),
                {partition: slices.file_slices(partition)},
            )
        )

    def of_slice(self, file_slice: FileSlice) -> MetadataTable:
        """The metadata table with this file slice as the only one of its partition."""
        slices = self.slices
        timelines = (slices.timeline, slices.data_storage, slices.data_config, slices.data_timeline)
        return MetadataTable(
            MetadataSlices(slices.storage, slices.config, *timelines, {file_slice.partition: (file_slice,)})
        )

    def _decoder(self, partition: str) -> Decode[pa.Table]:
        decode = kind_of(partition).decode
        if decode is None:
            raise InvalidOption(
                f"the records of {partition!r} are not read key by key",
                hint="Statistics are read by column.",
                context={"partition": partition},
            )
        return decode

    def _files_of(self, partitions: Collection[str] | None) -> pa.Table:
        """The records of all partition paths (None), or of some alone: of a table with many files most are then not
        decoded."""
        paths = None if partitions is None else frozenset(partitions)
        cached = self._listed.get(paths)
        if cached is not None:
            return cached
        keys = None if paths is None else pa.array(sorted(map(partition_identifier, paths)), pa.string())
        parts: list[pa.Table] = []
        for file_slice in self._file_slices(FILES):
            if keys is None:
                rows = alive(full_slice(self.slices, file_slice))
            else:
                rows = alive(slice_by_keys(self.slices, file_slice, keys))
                rows = None if rows is None else rows.filter(pc.is_in(rows["key"], value_set=keys))
            tables = decoded(rows, files_module.decode)
            parts += [newest_files(pa.concat_tables(tables))] if tables else []
        rows = pa.concat_tables(parts).combine_chunks() if parts else files_module.SCHEMA.empty_table()
        if len(self._listed) >= _CACHED_LISTINGS:
            for listed_paths in self._listed.keys() - {None}:  # that of all paths answers for every path
                del self._listed[listed_paths]
        self._listed[paths] = rows
        return rows

    @staticmethod
    def _is_live(rows: pa.Table) -> pa.ChunkedArray:
        """Flags of the rows that are files: readers ignore deletes, even those without a file to delete."""
        return pc.and_(rows["name"].is_valid(), pc.invert(pc.fill_null(rows["is_deleted"], True)))

    def _stats(self, partition: str, prefixes: Sequence[str] | None, types: Types | None) -> Stats:
        self._check(partition)
        starts = None if prefixes is None else pa.array(prefixes, pa.string())
        return read_stats(self.slices, self._file_slices(partition), starts, types)

    def _blooms(self, partition: str, files: Iterable[tuple[str, str]]) -> pa.Table:
        from lakebed.metadata_kinds import bloom_filters

        self._check(partition)
        distinct_files = list(dict.fromkeys(files))
        paths, names = [path for path, _ in distinct_files], [name for _, name in distinct_files]
        keys = file_keys(paths, names)
        slices = self._file_slices(partition)
        if self._is_polluted(partition):
            requested = [(file_slice, keys) for file_slice in slices]
        else:
            requested = self._routed(slices, keys, file_group(keys, len(slices)))
        rows = self._merged(requested, slice_by_keys, bloom_filters.decode)
        fields = [("partition", pa.string()), ("file_name", pa.string()), *list(bloom_filters.SCHEMA)[1:4]]
        schema = pa.schema(fields)
        if rows is None:
            return schema.empty_table()
        rows = rows.filter(pc.invert(rows["is_deleted"]))
        at = pc.index_in(rows["key"], value_set=keys)
        columns = [pa.array(paths, pa.string()).take(at), pa.array(names, pa.string()).take(at)]
        columns += [rows[name] for name in schema.names[2:]]
        return pa.Table.from_arrays(columns, schema=schema)

    def _merged(
        self,
        requested: Sequence[tuple[FileSlice, pa.Array]],
        read: Callable[[MetadataSlices, FileSlice, pa.Array], list[Layer]],
        decode: Decode[pa.Table],
    ) -> pa.Table | None:
        def ask(request: tuple[FileSlice, pa.Array]) -> pa.Table | None:
            rows = newest(read(self.slices, *request))
            if rows is None or read is not slice_by_keys:
                return rows
            return rows.filter(pc.is_in(rows["key"], value_set=request[1]))

        few = sum(len(keys) for _, keys in requested) <= _MAX_KEYS and not is_remote(self.slices.storage)
        answers = [rows for rows in parallel_map(ask, requested, 1 if few else _READERS) if rows is not None]
        # each call of the decoder is costly: few records are decoded for all slices together, many slice by slice
        together = sum(map(len, answers)) <= _DECODED_TOGETHER
        parts = [pa.concat_tables(answers)] if answers and together else answers
        tables = [table for rows in parts for table in decoded(rows, decode)]
        return pa.concat_tables(tables).unify_dictionaries() if tables else None

    def _routed(
        self, slices: Sequence[FileSlice], keys: pa.Array, groups: np.ndarray[Any, Any]
    ) -> list[tuple[FileSlice, pa.Array]]:
        """The slices that may have the keys, each with its keys."""
        by_group = keys_by_group(keys, groups, len(slices))
        return [(s, group_keys) for s, group_keys in zip(slices, by_group, strict=True) if len(group_keys)]

    def _is_polluted(self, partition: str) -> bool:
        """Whether the partition has file groups of another index, so that a key may be in any group."""
        kind = kind_of(partition)
        return any(not kind.is_file_id_of(partition, s.file_id) for s in self._file_slices(partition))

    def _index_version(self, partition: str) -> int:
        from lakebed.metadata_records.definitions import index_version

        return index_version(self.slices.definitions.get(partition), self.slices.data_config.version)

    def _file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        """The slices of the partition. Raises `CorruptFile` if there are none, since an index without entries has
        slices: only a partitioned record index begins without file groups."""
        slices = self.slices.file_slices(partition)
        definition = self.slices.definitions.get(partition) if not slices else None
        if slices or (definition and definition.options.get("isPartitioned") == "true"):
            return slices
        raise CorruptFile(
            f"partition {partition!r} of the metadata table at {self.slices.storage.url()} has no file groups",
            hint="Its folder was lost: drop the index and create it again.",
            context={"path": partition},
        )

    def _check(self, partition: str) -> None:
        if not self.has(partition):
            raise InvalidOption(
                f"the metadata table has no partition {partition!r}",
                hint=f"It has {', '.join(self.slices.partitions)}.",
                context={"partition": partition},
            )


class _OpenedIndexes(NamedTuple):
    """A view of a metadata table, and the indexes that were opened in it."""

    view: MetadataTable
    indexes: dict[Any, Any]


_OPENED = BoundedCache[CacheEntry[_OpenedIndexes]](_OPENED_TABLES)
"""By the URI and the options of a metadata table, of its latest view."""


def _stats_prefixes(columns: Iterable[str], partitions: Collection[str] | None) -> list[str]:
    paths = [None] if partitions is None else partitions
    return [column_prefix(column, path) for column in columns for path in paths]


def open_metadata(storage: Storage, config: TableConfig, timeline: Timeline) -> MetadataTable | None:
    """The metadata table of the table with this storage, properties and timeline; None if it does not have one.

    Reads its properties and lists its timeline, nothing else. Raises `CorruptFile` if the properties name a metadata
    table that is not there.
    """
    with metadata_damage_named(storage):
        slices = open_slices(storage, config, timeline)
    return None if slices is None else MetadataTable(slices)


def snapshot_of(
    storage: Storage, config: TableConfig, timeline: Timeline, as_of: str | None = None, *, use_metadata: bool = True
) -> Snapshot:
    """The view of a table with these properties and this timeline, which opens its metadata table when it is needed."""
    return Snapshot(storage, config, timeline, open_metadata, as_of, use_metadata)


def open_snapshot(
    storage: Storage, config: TableConfig | None = None, as_of: str | None = None, *, use_metadata: bool = True
) -> Snapshot:
    """Read the properties and the timeline, and return the view of all completed instants (up to `as_of`)."""
    config = config or load_table_config(storage)
    check_formats(config)
    return snapshot_of(storage, config, load_timeline(storage, config), as_of, use_metadata=use_metadata)


def open_again(
    storage: Storage,
    expected: TableConfig,
    as_of: str | None = None,
    *,
    use_metadata: bool = True,
    metadata_too: bool = False,
) -> Snapshot:
    """The view of a table as it is now. If its properties are still the `expected` ones, properties and timeline are
    read at the same time. With `metadata_too` the metadata table is opened at the same time as well, on a slow
    storage."""
    if not (metadata_too and use_metadata and is_remote(storage)):
        config, timeline = load_table(storage, expected)
        check_formats(config)
        return snapshot_of(storage, config, timeline, as_of, use_metadata=use_metadata)
    (config, timeline), store = at_once(
        storage, lambda: load_table(storage, expected), lambda: try_store(storage, expected)
    )
    check_formats(config)
    view = snapshot_of(storage, config, timeline, as_of)
    if store is None or config != expected or not shows_last(store, config, timeline):
        return view
    slices = open_slices(storage, config, timeline, store)
    if slices is None:
        return view
    return view.seeing(MetadataTable(slices))
