"""The partition `files`: the data table's partition paths, and the files of each with their sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.errors import CorruptFile, InvalidOption
from lakebed.format.avro.columns import (
    AvroCursors,
    encode_binaries,
    encode_fixed,
    encode_longs,
    join_pieces,
)
from lakebed.format.avro.encoder import decode_long
from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.format.hashes import plain_strings
from lakebed.metadata_kinds.base import (
    FirstBuild,
    LaterLayers,
    NewPartition,
    PartitionKind,
    Removal,
    StoredTable,
    TableAction,
)
from lakebed.metadata_records.layout import (
    ALL_PARTITIONS,
    FILES,
    GroupSizing,
    partition_identifier,
    partition_of,
)
from lakebed.metadata_records.merge_records import codes, decoded, runs
from lakebed.metadata_records.records import (
    RecordForm,
    Records,
    RecordType,
    SubRecord,
    enter,
    leave,
    record_schema,
    value_head,
    value_tail,
)
from lakebed.model import path_in
from lakebed.properties.table_config import TableConfig
from lakebed.schema.plain_arrow import as_numpy, sorted_rows, text_scalar
from lakebed.slices.listing import list_table
from lakebed.storage.base import Storage

if TYPE_CHECKING:
    from lakebed.metadata_kinds.stored import NewFile
    from lakebed.metadata_records.definitions import IndexDefinition, IndexName
    from lakebed.slices.metadata_lookups import MetadataLookups

SCHEMA = pa.schema([("key", pa.string()), ("name", pa.string()), ("size", pa.int64()), ("is_deleted", pa.bool_())])

_FIELD = SubRecord.FILES
# Maps are read in parallel while at least this many records have entries left; fewer are cheaper one after the other.
_SIDE_BY_SIDE = 32
Int64s = npt.NDArray[np.int64]

# The decoded file lists of partitions with many files, by their bytes.
_LONG: BoundedCache[CacheEntry[tuple[Int64s, int]]] = BoundedCache(32 << 20)
_WORTH_KEEPING = 4096


def encode(table: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """The keys and values of records, from one row per map entry: `key` (a partition identifier, or
    `__all_partitions__` with identifiers as names), `name`, `size` in bytes, `is_deleted`. Rows of one key must be
    consecutive; a null name means an empty map.

    >>> from lakebed.metadata_records.records import V9, record_schema
    >>> rows = pa.Table.from_pylist([{"key": "p", "name": "f", "size": 7, "is_deleted": False}], SCHEMA)
    >>> keys, values = encode(rows, V9)
    >>> decode(keys, values, record_schema(V9)).to_pylist()
    [{'key': 'p', 'name': 'f', 'size': 7, 'is_deleted': False}]
    """
    rows = table.select(SCHEMA.names).combine_chunks()
    # each key once, and how many rows follow each other under it
    runs_of_keys = pc.run_end_encode(plain_strings(rows["key"]))
    keys = plain_strings(runs_of_keys.values)
    counts = np.diff(as_numpy(runs_of_keys.run_ends).astype(np.int64), prepend=0)
    named = rows["name"].is_valid()
    filled = rows.filter(named)
    entries = join_pieces(
        [
            encode_binaries(plain_strings(filled["name"])),
            encode_longs(as_numpy(filled["size"])),
            encode_fixed(as_numpy(filled["is_deleted"])),
        ]
    )
    sizes = np.add.reduceat(as_numpy(named).astype(np.int64), np.cumsum(counts) - counts) if len(counts) else counts
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    maps = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), entries), pa.scalar(b"", pa.binary()))
    head, tail = value_head(RecordType.FILES, _FIELD), value_tail(form, _FIELD)
    filled_maps = join_pieces([encode_longs(sizes), maps, b"\x00"])
    bodies = pc.if_else(pa.array(sizes == 0), pa.scalar(b"\x00", pa.binary()), filled_maps)
    values = join_pieces([head, bodies, tail])
    lists = join_pieces([value_head(RecordType.PARTITION_LIST, _FIELD), bodies, tail])
    return keys, pc.if_else(pc.equal(keys, pa.scalar(ALL_PARTITIONS, pa.string())), lists, values)


def decode(keys: pa.Array, values: pa.BinaryArray, schema_json: str) -> pa.Table:
    """A table with one row per map entry, with the keys in the given order; a record with an empty map has a row with a
    null name. Raises `CorruptFile`."""
    cursors, form = enter(values, schema_json, _FIELD)
    rows, starts, ends, sizes, deleted = _entries(cursors)
    leave(cursors, form, _FIELD)
    try:
        names = cursors.between(starts, ends).cast(pa.string())
    except pa.ArrowInvalid as cause:
        raise CorruptFile("a file name in the metadata table is not UTF-8") from cause
    counts = np.bincount(rows, minlength=len(values))
    empty = np.flatnonzero(counts == 0)
    table = pa.Table.from_arrays(
        [keys.cast(pa.string()).take(pa.array(rows)), names, pa.array(sizes), pa.array(deleted)], schema=SCHEMA
    )
    if not len(empty):
        return table
    blank = pa.Table.from_arrays(
        [keys.cast(pa.string()).take(pa.array(empty))], schema=pa.schema([SCHEMA.field("key")])
    )
    order = np.argsort(np.concatenate([rows, empty]), kind="stable")
    return pa.concat_tables([table, blank], promote_options="default").take(pa.array(order))


def _entries(cursors: AvroCursors) -> tuple[Int64s, Int64s, Int64s, Int64s, npt.NDArray[np.bool_]]:
    """All map entries by record and position: the record, the start and end of the name, the size and the deleted flag
    of each."""
    batches: list[tuple[Int64s, ...]] = []
    rows = np.arange(len(cursors))
    left = _block_counts(cursors)
    rows = rows[left > 0]
    left = left[rows]
    while len(rows) >= _SIDE_BY_SIDE:
        part = cursors.part(rows)
        starts = part.skip_bytes()
        ends = part.at
        batches.append((rows, starts, ends, part.longs(), part.booleans().astype(np.int64)))
        left = left - 1
        done = np.flatnonzero(left == 0)
        if len(done):
            again = part.part(done)
            left[done] = _block_counts(again)
            part.rejoin(done, again)
        cursors.rejoin(rows, part)
        rows, left = rows[left > 0], left[left > 0]
    for row, count in zip(rows.tolist(), left.tolist(), strict=True):
        batches.append(_one_by_one(cursors, row, count))
    if not batches:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing, nothing, np.empty(0, np.bool_)
    columns = [np.concatenate(column) for column in zip(*batches, strict=True)]
    order = np.argsort(columns[1], kind="stable")
    row, start, end, size, deleted = [column[order] for column in columns]
    return row, start, end, size, deleted.astype(np.bool_)


def _block_counts(cursors: AvroCursors) -> Int64s:
    """The number of entries in each record's next map block; a negative count is followed by the block's length."""
    counts = cursors.longs()
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        part = cursors.part(sized)
        part.longs()
        cursors.rejoin(sized, part)
        counts[sized] = -counts[sized]
    if (counts > cursors.ends - cursors.at).any() or (counts < 0).any():
        raise CorruptFile("a record of the metadata table has more entries than bytes")
    return counts


def _one_by_one(cursors: AvroCursors, row: int, count: int) -> tuple[Int64s, ...]:
    """The remaining entries of one long record. The longest are cached, since they do not change until the next
    compaction."""
    data = cursors.rest(row)
    columns, at = _walked(data, count) if len(data) < _WORTH_KEEPING else _walked_once(data, count)
    start = int(cursors.ends[row]) - len(data)
    cursors.at[row] = start + at
    return np.full(len(columns), row), columns[:, 0] + start, columns[:, 1] + start, columns[:, 2], columns[:, 3]


def _walked_once(data: bytes, count: int) -> tuple[Int64s, int]:
    cached = _LONG.get((data, count))
    if cached is None:
        content = _walked(data, count)
        cached = CacheEntry(content, len(data) + content[0].nbytes)
        _LONG.put((data, count), cached)
    return cached.content


def _walked(data: bytes, count: int) -> tuple[Int64s, int]:
    """The start and end of the name, the size and the deleted flag of all entries (`count` in the first map block), one
    row per entry, and the position after the map. They are read one after the other, since an entry starts where the
    previous one ends."""
    at = 0
    fields: list[int] = []
    try:
        while count:
            for _ in range(count):
                length, at = decode_long(data, at)
                end = at + length
                if length < 0 or end > len(data) - 2:
                    raise IndexError
                size, after = decode_long(data, end)
                if data[after] > 1:
                    raise IndexError
                fields += (at, end, size, data[after])
                at = after + 1
            count, at = decode_long(data, at)
            if count < 0:
                _, at = decode_long(data, at)
                count = -count
    except IndexError:
        raise CorruptFile("a list of files in the metadata table is cut off") from None
    return np.array(fields, np.int64).reshape(-1, 4), at


def file_records(
    files: Sequence[NewFile],
    form: RecordForm,
    *,
    partitions: Iterable[str] = (),
    removed: Mapping[str, Collection[str]] | None = None,
    deleted_partitions: Collection[str] = (),
) -> Records:
    """The records of `files`: the written files, the action's other `partitions`, the names `removed` from each
    partition, and the `deleted_partitions`, which are removed from the list of partition paths. The list is always
    among the records, as in Hudi."""
    removed = removed or {}
    named = sorted({*partitions, *[f.partition for f in files], *removed} - set(deleted_partitions))
    keys: list[str] = [ALL_PARTITIONS] * (len(named) + len(deleted_partitions))
    names: list[str | None] = [partition_identifier(p) for p in (*named, *deleted_partitions)]
    sizes, deleted = [0] * len(names), [False] * len(named) + [True] * len(deleted_partitions)
    by_partition: dict[str, list[NewFile]] = {p: [] for p in named}
    for file in files:
        by_partition[file.partition].append(file)
    for partition in named:
        entries = [(f.name, f.size, False) for f in by_partition[partition]]
        entries += [(name, 0, True) for name in sorted(removed.get(partition, ()))]
        for name, size, is_deleted in entries:
            keys.append(partition_identifier(partition))
            names.append(name)
            sizes.append(size)
            deleted.append(is_deleted)
    if not names:
        keys, names, sizes, deleted = [ALL_PARTITIONS], [*names, None], [0], [False]
    columns = [
        pa.array(keys, pa.string()),
        pa.array(names, pa.string()),
        pa.array(sizes, pa.int64()),
        pa.array(deleted, pa.bool_()),
    ]
    return Records.upserts(*encode(pa.Table.from_arrays(columns, schema=SCHEMA), form))


Bools = npt.NDArray[np.bool_]


def newest_files(records: pa.Table) -> pa.Table:
    """The files of every partition, from all records that are alive, oldest first.

    Maps of one key are united; a delete takes the name off, or stays as a delete where there was none to take off; a
    file that is named again has the greater of its sizes. A key that keeps no entry has one row with a null name.
    """
    rows = records.combine_chunks()
    keys = codes(plain_strings(rows["key"]))
    named = as_numpy(rows["name"].is_valid())
    names = as_numpy(pc.fill_null(plain_strings(rows["name"]), "").dictionary_encode().indices).astype(np.int64)
    order = np.flatnonzero(named)
    entry = keys[order] * (int(names.max(initial=0)) + 1) + names[order]
    order = order[np.argsort(entry, kind="stable")]
    starts, lasts = runs(np.sort(entry))
    deleted = as_numpy(pc.fill_null(rows["is_deleted"], False))[order]
    sizes = as_numpy(pc.fill_null(rows["size"], 0))[order]
    took_off = deleted[lasts] & (lasts > starts) & ~deleted[lasts - 1]
    size = np.where(deleted[lasts], sizes[lasts], _greatest_since_delete(sizes, deleted, starts, lasts))
    last_rows = order[lasts[~took_off]]
    table = rows.take(pa.array(last_rows)).set_column(2, "size", pa.array(size[~took_off]))
    blank, first = np.unique(keys, return_index=True)
    first = first[~np.isin(blank, keys[last_rows])]
    nulls = [pa.nulls(len(first), field.type) for field in list(SCHEMA)[1:]]
    empty = pa.Table.from_arrays([plain_strings(rows["key"]).take(pa.array(first)), *nulls], schema=SCHEMA)
    return sorted_rows(pa.concat_tables([table, empty]), [("key", "ascending"), ("name", "ascending")])


class _FilesUnion:
    """Unites the lists of files that records of one partition path have."""

    def applies(self, value: bytes) -> bool:
        return True

    def encoded(
        self, keys: pa.Array, values: Any, schema_json: str, form: RecordForm, index_version: Callable[[], int]
    ) -> tuple[pa.Array, pa.Array]:
        return encode(newest_files(decode(keys, values, schema_json)), form)

    def decoded(self, records: pa.Table) -> pa.Table:
        return newest_files(records)


def _loses_files(
    records: Records, form: RecordForm, later: LaterLayers, definition: Callable[[], IndexDefinition | None]
) -> bool:
    """Whether a later requested instant (a cleaning) has removed a partition path or a file that these records add."""
    added = decode(records.keys, records.values, record_schema(form))
    added = added.filter(pc.and_(added["name"].is_valid(), pc.invert(added["is_deleted"])))
    entries = _entry_keys(added)
    for layer in later(records.keys):
        if layer.records is None:
            return True
        for rows in decoded(layer.records, decode):
            removed = rows.filter(pc.fill_null(rows["is_deleted"], False))
            if pc.any(pc.is_in(_entry_keys(removed), value_set=entries)).as_py():
                return True
    return False


def _entry_keys(files: pa.Table) -> pa.Array:
    return pc.binary_join_element_wise(files["key"], files["name"], text_scalar("\0")).combine_chunks()


def _greatest_since_delete(sizes: Int64s, deleted: Bools, starts: Int64s, lasts: Int64s) -> Int64s:
    """The greatest size in each run after its last delete."""
    if not len(starts):
        return sizes
    at = np.arange(len(sizes))
    after_delete = np.maximum.reduceat(np.where(deleted, at + 1, 0), starts)
    counts = at >= np.repeat(np.maximum(after_delete, starts), lasts + 1 - starts)
    return np.maximum.reduceat(np.where(counts, sizes, 0), starts)


_DELETES_ONLY = frozenset({"DELETE_PARTITION"})


class FilesKind(PartitionKind):
    def records_of_action(self, partition: str, action: TableAction) -> Records:
        from lakebed.metadata_kinds.stored import NewFile

        written = [
            NewFile(path, stat.path.rpartition("/")[2], stat.file_size)
            for path, stats in action.commit.stats.items()
            for stat in stats
        ]
        written += [
            NewFile(partition, path.rpartition("/")[2], size)
            for partition, stats in action.commit.stats.items()
            for stat in stats
            for path, size in (stat.cdc_stats or {}).items()
        ]
        paths = () if action.commit.operation in _DELETES_ONLY else tuple(action.commit.stats)
        return file_records(written, action.form, partitions=paths)

    def records_of_clean(self, partition: str, removal: Removal) -> Records:
        removed = {path: names for path, names in removal.files.items() if path not in removal.dropped}
        records = file_records([], removal.form, removed=removed, deleted_partitions=removal.dropped)
        identifiers = pa.array(sorted(map(partition_identifier, removal.dropped)), pa.string())
        return replace(records, deleted=identifiers)

    def keys_of_clean(self, partition: str, removal: Removal) -> tuple[pa.Array, pa.Array]:
        files = [(partition_identifier(path), name) for path, names in removal.files.items() for name in names]
        paths = [(ALL_PARTITIONS, partition_identifier(path)) for path in removal.dropped]
        keys, entries = (pa.array([row[at] for row in (*files, *paths)], pa.string()) for at in (0, 1))
        return keys, entries

    def first_records(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        """The first records: every file of a completed action, in folders that are partitions."""
        from lakebed.metadata_kinds.routing import grouped
        from lakebed.metadata_kinds.stored import NewFile, completed_files, completed_logs

        listing = list_table(build.snapshot.storage)
        changes = [f for f in listing.log_files if f.is_cdc]
        logs = completed_logs(build.snapshot, [f for f in listing.log_files if not f.is_cdc])
        other_files = completed_files(build.snapshot, [*listing.base_files, *changes])
        existing_files = [NewFile(f.partition, f.name, f.size) for f in (*other_files, *logs)]
        return grouped(name.partition, file_records(existing_files, build.form, partitions=listing.partitions)), None

    def check_drop(self, storage: Storage, config: TableConfig) -> None:
        raise InvalidOption(
            f"{FILES} is what the metadata table of {config.name!r} is built on",
            hint="The other indexes can be dropped one by one.",
        )

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        from lakebed.metadata_kinds.stored import StoredFiles

        stored = table.shared(StoredFiles)
        return _listed(stored.files, sorted({f.partition for f in stored.files}))

    def acceptable_alternatives(self, partition: str, table: StoredTable) -> Sequence[pa.Table]:
        """A list that also has partition paths without files: the first write to such a path was undone, or all its
        files were cleaned."""
        from lakebed.metadata_kinds.stored import StoredFiles

        stored = table.shared(StoredFiles)
        return [_listed(stored.files, stored.folders)]

    def found(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        from lakebed.metadata_kinds.stored import NewFile

        rows = metadata.files()
        columns = (rows[name].to_pylist() for name in ("partition", "name", "size"))
        return _listed([NewFile(*row) for row in zip(*columns, strict=True)], metadata.partitions())

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        from lakebed.metadata_kinds.stored import NewFile, StoredFiles

        sizes = {(f.partition, f.name): f.size for f in table.shared(StoredFiles).files}
        missing: list[NewFile] = []
        partitions: list[str] = []
        for row in rows.to_pylist():  # one a file that differs
            if row["key"] == ALL_PARTITIONS:
                partitions.append(partition_of(row["entry"]))
            else:
                path = partition_of(row["key"])
                missing.append(NewFile(path, row["entry"], sizes[path, row["entry"]]))
        return file_records(missing, table.form, partitions=partitions)

    def repair_extra(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        removed: dict[str, list[str]] = {}
        dropped: list[str] = []
        for row in rows.to_pylist():  # one a file that differs
            if row["key"] == ALL_PARTITIONS:
                dropped.append(partition_of(row["entry"]))
            else:
                removed.setdefault(partition_of(row["key"]), []).append(row["entry"])
        return file_records(
            [], table.form, removed={p: n for p, n in removed.items() if p not in dropped}, deleted_partitions=dropped
        )

    def is_in_every_table(self, settings: WriteSettings, config: TableConfig) -> bool:
        return True


def _listed(listed: Sequence[NewFile], partitions: Sequence[str]) -> pa.Table:
    from lakebed.metadata_kinds.stored import comparable

    return comparable(
        [*(partition_identifier(f.partition) for f in listed), *(ALL_PARTITIONS for _ in partitions)],
        [*(f.name for f in listed), *map(partition_identifier, partitions)],
        [*(path_in(f.partition, f.name) for f in listed), *(f"partition {p}" for p in partitions)],
        [*(f"{f.size} bytes" for f in listed), *("" for _ in partitions)],
    )


KIND = FilesKind(
    FILES,
    file_id_start=FILES,
    decode=decode,
    union=_FilesUnion(),
    is_overruled=_loses_files,
    build_position=0,
)
