"""The partition `record_index`: the file group of each record key, in the table or in each partition path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.errors import CorruptFile, IndexInconsistent, InvalidOption, UnsupportedFeature
from lakebed.format.avro.columns import encode_binaries, encode_longs, encode_nullable, join_pieces
from lakebed.format.bootstrap import BASE_PATH
from lakebed.format.hashes import plain_strings
from lakebed.metadata_kinds.base import FirstBuild, NewIndex, NewPartition, StoredTable, TableAction
from lakebed.metadata_kinds.key_changes import (
    AFTER,
    BEFORE,
    GROUPED,
    KEY,
    ActionKeys,
    GroupChanges,
    KeyIndexes,
    KeyIndexKind,
    is_partitioned,
    record_index_definition,
    stored_key_indexes,
)
from lakebed.metadata_kinds.routing import grouped
from lakebed.metadata_kinds.stored import COMPARED, joined, stored_rows
from lakebed.metadata_records.definitions import IndexDefinition, IndexName
from lakebed.metadata_records.group_files import FileGroup
from lakebed.metadata_records.layout import GroupSizing, file_group
from lakebed.metadata_records.records import (
    GroupRecords,
    RecordForm,
    Records,
    RecordType,
    SubRecord,
    enter,
    leave,
    value_head,
    value_tail,
)
from lakebed.model import FILE_ID, RECORD_INDEX, RECORD_KEY, FileSlice
from lakebed.properties.table_config import TableConfig
from lakebed.schema.plain_arrow import as_numpy, text_scalar
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map, threads_of_files
from lakebed.timeline.instants import format_millis, parse_time

_TEXTS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([("key", pa.string()), ("partition", _TEXTS), ("file_id", _TEXTS), ("instant", _TEXTS)])

_FIELD = SubRecord.RECORD_INDEX
_UUID, _RAW = 0, 1
_FILE_ID = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})(?:-(\d{1,9}))?")
_LOCAL = "LOCAL"
# Combinations of partition, file id and instant that are numbered by a table, not by hashing.
_COMBINATIONS = 1 << 22
Int64s = npt.NDArray[np.int64]


def encode(table: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """The keys and values of record index entries, in the table's order: `key`, `partition` (path), `file_id`,
    `instant` (17 digits: the commit that wrote the key), each plain or dictionary-encoded.

    Values repeat for all keys of a file group and commit, so each different one is made once.
    """
    columns = [_encoded(table[name]) for name in ("partition", "file_id", "instant")]
    rows, codes = _distinct([column.indices for column in columns])
    partition, file_id, instant = (column.dictionary.take(column.indices.take(rows)) for column in columns)
    values = _payloads(partition, file_id, instant, form)
    return plain_strings(table["key"]), values.take(codes)


def decode(keys: pa.Array, values: pa.BinaryArray, schema_json: str) -> pa.Table:
    """A table of `key`, `partition`, `file_id` and `instant`, in the given order; all but the key are
    dictionary-encoded.

    `instant` is read in this process's time zone, as Hudi does: where the writer's differs, it is shifted by whole
    hours. Raises `CorruptFile`.
    """
    encoded = values.dictionary_encode()
    partition, file_id, instant = _locations(encoded.dictionary, schema_json)
    columns = [_take_encoded(column, encoded.indices) for column in (partition, file_id, instant)]
    return pa.Table.from_arrays([keys.cast(pa.string()), *columns], schema=SCHEMA)


def file_ids(high: Int64s, low: Int64s, index: Int64s) -> pa.StringArray:
    """File ids, from the two halves of their UUIDs and the number after the UUID (-1: no number).

    >>> file_ids(np.array([0x30C43BAAEBD74580]), np.array([-0x7814DE5BEED73F8D]), np.array([0]))[0].as_py()
    '30c43baa-ebd7-4580-87eb-21a41128c073-0'
    """
    raw = np.stack([high, low], axis=1).astype(">i8").view(np.uint8)
    nibbles = np.stack([raw >> 4, raw & 15], axis=2).reshape(len(high), 32)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles]
    text = np.full((len(high), 36), ord("-"), np.uint8)
    for start, end, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        text[:, at : at + end - start] = digits[:, start:end]
    offsets = np.arange(0, 36 * len(high) + 1, 36, dtype=np.int32)
    uuids = pa.StringArray.from_buffers(len(high), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)))
    numbered = pc.binary_join_element_wise(uuids, pa.array(index).cast(pa.string()), pa.scalar("-", pa.string()))
    return pc.if_else(pa.array(index == -1), uuids, numbered)


def _payloads(partition: pa.Array, file_id: pa.Array, instant: pa.Array, form: RecordForm) -> pa.BinaryArray:
    high, low, index, plain = _uuid_parts(file_id)
    raw_id = pc.if_else(pa.array(plain), pa.scalar("", pa.string()), file_id)
    pieces: list[pa.BinaryArray | bytes] = [
        value_head(RecordType.RECORD_INDEX, _FIELD),
        encode_nullable(encode_binaries(partition)),
        encode_nullable(encode_longs(high)),
        encode_nullable(encode_longs(low)),
        encode_nullable(encode_longs(index)),
        encode_nullable(encode_binaries(raw_id)),
        encode_nullable(encode_longs(_epoch_millis(instant))),
        encode_longs(np.where(plain, _UUID, _RAW)),
    ]
    if form.has_position:
        pieces.append(b"\x00")
    return join_pieces([*pieces, value_tail(form, _FIELD)])


def _uuid_parts(file_ids: pa.Array) -> tuple[Int64s, Int64s, Int64s, npt.NDArray[np.bool_]]:
    """The high and low half of each UUID, the number after it, and whether the id has this form; -1 where it does not.
    Computed once per distinct id."""
    parts = np.full((3, len(file_ids)), -1, np.int64)
    plain = np.zeros(len(file_ids), np.bool_)
    for row, text in enumerate(file_ids.to_pylist()):
        match = _FILE_ID.fullmatch(text)
        if match is None or (match[6] or "0") != str(int(match[6] or 0)):
            continue
        bits = int("".join(match.groups()[:5]), 16)
        plain[row] = True
        parts[:, row] = _signed(bits >> 64), _signed(bits & (1 << 64) - 1), int(match[6]) if match[6] else -1
    return parts[0], parts[1], parts[2], plain


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _locations(values: pa.BinaryArray, schema_json: str) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The partition path, file id and instant of each (distinct) value."""
    cursors, form = enter(values, schema_json, _FIELD)
    partition = pc.fill_null(cursors.nullable_texts(), "")
    high, _ = cursors.nullable_longs()
    low, _ = cursors.nullable_longs()
    index, _ = cursors.nullable_longs()
    raw_id = cursors.nullable_texts()
    millis, _ = cursors.nullable_longs()
    encoding = cursors.longs()
    if form.has_position:
        cursors.nullable_longs()
    leave(cursors, form, _FIELD)
    if ((encoding != _UUID) & (encoding != _RAW)).any():
        raise CorruptFile("a record index entry has an unknown encoding of its file id")
    ids = pc.if_else(pa.array(encoding == _UUID), file_ids(high, low, index), raw_id)
    return partition, ids, _instants(millis)


def _epoch_millis(instants: pa.Array) -> Int64s:
    """The times of instants in this process's zone, in epoch milliseconds; one computation per distinct instant."""
    encoded = instants.dictionary_encode()
    moments = [round(parse_time(text, _LOCAL).timestamp() * 1000) for text in encoded.dictionary.to_pylist()]
    return np.array(moments, np.int64)[as_numpy(encoded.indices)]


def _instants(millis: Int64s) -> pa.StringArray:
    encoded = pa.array(millis).dictionary_encode()
    try:
        texts = [format_millis(moment, _LOCAL) for moment in encoded.dictionary.to_pylist()]
    except (OverflowError, ValueError, OSError) as cause:
        raise CorruptFile("a record index entry's instant is beyond any calendar") from cause
    return pa.array(texts, pa.string()).take(encoded.indices)


def _encoded(column: Any) -> pa.DictionaryArray:
    """A text column as one dictionary array."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries().chunk(0) if array.num_chunks else pa.array([], pa.string())
    if not pa.types.is_dictionary(array.type):
        array = plain_strings(array).dictionary_encode()
    if array.null_count:
        raise IndexInconsistent("an entry for the record index lacks its partition, file id or instant")
    return array


def _distinct(codes: list[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """One row for each combination of codes that occurs, and for every row the number of its combination."""
    combined, size = np.zeros(len(codes[0]), np.int64), 1
    for code in codes:
        numbers = as_numpy(code)
        width = int(numbers.max(initial=0)) + 1
        if size * width > _COMBINATIONS:
            combined = as_numpy(pa.array(combined).dictionary_encode().indices).astype(np.int64)
            size = int(combined.max(initial=0)) + 1
        combined = combined * width + numbers if size > 1 else numbers.astype(np.int64)
        size *= width
    rows = np.full(size, -1, np.int64)
    rows[combined] = np.arange(len(combined))
    used = rows >= 0
    numbered = np.cumsum(used, dtype=np.int32) - 1
    return pa.array(rows[used]), pa.array(numbered[combined].astype(np.int32, copy=False))


def _take_encoded(distinct: pa.Array, codes: pa.Array) -> pa.DictionaryArray:
    encoded = distinct.cast(pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(codes), encoded.dictionary)


def data_partition_of(file_id: str) -> str | None:
    """The partition path of the data in a file id of a partitioned record index; None for a file id of a global one.

    >>> data_partition_of("record-index-new%3D1-0000-0"), data_partition_of("record-index-0000-0")
    ('new=1', None)
    """
    return KIND.data_partition_of(file_id)


def _describe(definition: IndexDefinition | None) -> str:
    return "record index, one for each partition path" if is_partitioned(definition) else "record index"


def key_records(groups: Sequence[GroupChanges], instant: str, form: RecordForm, *, partitioned: bool) -> Records:
    """The records of `record_index`: each added key with its location, and deletes of the removed keys.

    A key that was added to one file group and removed from another is inserted, as in Hudi; one that was added twice
    (an insert that does not look) is where it was added last. `partitioned` keeps keys of different partition paths
    apart.
    """
    new, old = ([(g, _keys(g.changes, after=after)) for g in groups] for after in (True, False))
    locations = latest_locations(located(((g.partition, g.file_id, instant, keys) for g, keys in new)), partitioned)
    keys, values = encoded_locations(locations, form)
    removed = latest_locations(located(((g.partition, g.file_id, instant, keys) for g, keys in old)), partitioned)
    if not partitioned:
        return Records(keys, values, removed["key"].combine_chunks())
    paths = [plain_strings(table["partition"]) for table in (locations, removed)]
    return Records(keys, values, plain_strings(removed["key"]), *paths)


def encoded_locations(locations: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """The keys and values of entries (see `SCHEMA`); two empty arrays for no entries."""
    if not locations.num_rows:
        return pa.array([], pa.string()), pa.array([], pa.binary())
    return encode(locations, form)


def located(parts: Iterable[tuple[str, str, str, pa.Array]]) -> pa.Table:
    """Entries from quadruples (partition path, file id, instant, keys in that file group)."""
    filled = [part for part in parts if len(part[3])]
    if not filled:
        return SCHEMA.empty_table()
    *texts, keys = zip(*filled, strict=True)
    rows = pa.array(np.repeat(np.arange(len(keys)), [len(group) for group in keys]))
    encoded = [pa.array(column, pa.string()).dictionary_encode() for column in texts]
    return pa.table([pa.chunked_array(keys), *(column.take(rows) for column in encoded)], SCHEMA).combine_chunks()


def latest_locations(locations: pa.Table, partitioned: bool) -> pa.Table:
    """The last row of each key; with `partitioned`, of each key in each partition path."""
    if locations.num_rows < 2:
        return locations
    codes = key_codes(locations, partitioned=partitioned)
    if int(codes.max()) + 1 == len(codes):
        return locations
    last = np.full(int(codes.max()) + 1, -1, np.int64)
    last[codes] = np.arange(len(codes))
    return locations.take(pa.array(np.sort(last)))


def key_codes(locations: pa.Table, *, partitioned: bool) -> npt.NDArray[np.int64]:
    """A number for each key (in each partition path), from 0 on."""
    codes = as_numpy(plain_strings(locations["key"]).dictionary_encode().indices).astype(np.int64)
    if partitioned:
        paths = plain_strings(locations["partition"]).dictionary_encode()
        codes = codes * len(paths.dictionary) + as_numpy(paths.indices)
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def locations_of(changes: pa.Table) -> tuple[pa.StringArray, pa.BooleanArray]:
    """The keys that were added to a file group or removed from it, and flags of the added ones."""
    rows = changes.filter(pc.xor(changes[BEFORE], changes[AFTER])).combine_chunks()
    return plain_strings(rows[KEY]).cast(pa.string()), rows[AFTER].combine_chunks()


def removed_keys(group: GroupChanges) -> pa.StringArray:
    """The keys that the file group had before and does not have now."""
    return _keys(group.changes, after=False)


def added_keys(group: GroupChanges) -> pa.StringArray:
    """The keys that were added to the file group."""
    return _keys(group.changes, after=True)


def _keys(changes: pa.Table, *, after: bool) -> pa.StringArray:
    """The added keys (with `after`) or the removed keys."""
    side, other_side = (AFTER, BEFORE) if after else (BEFORE, AFTER)
    rows = changes.filter(pc.and_(changes[side], pc.invert(changes[other_side])))
    return plain_strings(rows[KEY]).cast(pa.string())


_OLD_PARTITION = "old_partition"
_FIELDS = [("key", pa.string()), (_OLD_PARTITION, pa.string()), (FILE_ID, pa.string()), ("added", pa.bool_())]


class RecordIndexKind(KeyIndexKind):
    changes_schema: ClassVar[pa.Schema] = pa.schema([*_FIELDS, *GROUPED])

    def definition(self, name: IndexName, snapshot: Snapshot, settings: WriteSettings) -> IndexDefinition | None:
        return record_index_definition(snapshot.config.version, partitioned=name.partitioned)

    def records_of_action(self, partition: str, action: TableAction) -> Records:
        keys = action.shared(ActionKeys)
        return key_records(keys.changes, action.instant, action.form, partitioned=keys.indexes.partitioned)

    def first_records(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        """The first records of the index: the location of every stored key. Raises `IndexInconsistent` for a repeated
        key."""
        locations = stored_locations(build.snapshot, partitioned=name.partitioned, unique=True)
        groups = _groups(locations, build.form, sizing, partitioned=name.partitioned)
        return groups, record_index_definition(build.snapshot.config.version, partitioned=name.partitioned)

    def check_new(self, index: NewIndex) -> None:
        index.require_stored_keys("a record index")
        if index.config.properties.get(BASE_PATH):
            raise UnsupportedFeature(
                f"a record index of table {index.config.name!r}, which was made over files of another folder: its first"
                " commit has no time that the index could note",
                hint="Keys are looked up by the simple or the bloom index; a full copy of the table can have one.",
                context={"feature": "record index", "table": index.config.name},
            )
        if index.name.partitioned and index.config.version < 9:
            raise UnsupportedFeature(
                f"a record index for each partition path on a table of version {index.config.version}",
                hint="Versions before 9 have a global one only.",
                context={"feature": "partitioned record index"},
            )
        if not index.name.partitioned:
            way = "With t.indexes.create('record_index', partitioned=True) each partition path has an index of its own."
            older = "Tables of version 9 can have a record index for each partition path: t.maintenance.upgrade()."
            hint = f" {way if index.config.version >= 9 else older}"
            index.require_one_location("a global record index has one place for it", hint)

    def check_drop(self, storage: Storage, config: TableConfig) -> None:
        needing = KeyIndexes.of(storage, config).secondary
        if needing:
            raise InvalidOption(
                f"secondary indexes need the record index: {', '.join(needing)}",
                hint="Drop them first.",
                context={"indexes": list(needing)},
            )

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        return _comparable(table.shared(_stored), partitioned=table.shared(stored_key_indexes).partitioned)

    def found(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        partitioned = table.shared(stored_key_indexes).partitioned
        return joined([_comparable(t, partitioned=partitioned) for t in metadata.entries(partition)])

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        locations = table.shared(_stored)
        if not table.shared(stored_key_indexes).partitioned:
            missing = locations.filter(pc.is_in(locations["key"], value_set=rows["key"].combine_chunks()))
            return Records.upserts(*encoded_locations(missing, table.form))
        row_keys = pc.binary_join_element_wise(rows["key"], rows["entry"], "\0")
        location_keys = pc.binary_join_element_wise(locations["key"], locations["partition"].cast(pa.string()), "\0")
        missing = locations.filter(pc.is_in(location_keys, value_set=row_keys.combine_chunks()))
        return Records.upserts(*encoded_locations(missing, table.form), plain_strings(missing["partition"]))

    def repair_extra(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        partitioned = table.shared(stored_key_indexes).partitioned
        return Records.deletes(rows["key"].combine_chunks(), rows["entry"].combine_chunks() if partitioned else None)

    def index_name(self, partition: str, definition: IndexDefinition | None) -> IndexName:
        return IndexName(partition, partitioned=is_partitioned(definition))

    def requested(self, settings: WriteSettings, config: TableConfig) -> IndexName:
        index = config.index_settings
        if index.get("type") == self.index_type:
            return IndexName(RECORD_INDEX, partitioned=index.get("partitioned", "").lower() == "true")
        return IndexName(RECORD_INDEX, partitioned=settings.partitioned_record_index)

    # in jobs

    def grouped_changes(
        self, partition: str, part: GroupChanges, indexes: KeyIndexes, groups: Sequence[FileGroup]
    ) -> pa.Table:
        keys, added = locations_of(part.changes)
        path = part.partition if indexes.partitioned else ""
        path_groups = [g for g in groups if (data_partition_of(g.file_id) or "") == path]
        first = groups.index(path_groups[0])
        n = len(keys)
        texts = [pa.repeat(pa.scalar(text), n) for text in (part.partition, part.file_id)]
        shards = pa.array(file_group(keys, len(path_groups)) + first, pa.int32())
        columns = [keys, *texts, added, pa.repeat(pa.scalar(""), n), shards]
        return pa.Table.from_arrays(columns, schema=self.changes_schema)

    def group_records(self, rows: pa.Table, instant: str, form: RecordForm) -> Records:
        added, removed = rows.filter(rows["added"]), rows.filter(pc.invert(rows["added"]))
        locations = added.select(["key", _OLD_PARTITION, FILE_ID]).rename_columns(["key", "partition", "file_id"])
        locations = locations.append_column("instant", pa.repeat(pa.scalar(instant), locations.num_rows))
        keys, values = encoded_locations(latest_locations(locations, partitioned=False), form)
        return Records(keys, values, pc.unique(removed["key"]))


def _stored(table: StoredTable) -> pa.Table:
    return stored_locations(table.snapshot, partitioned=table.shared(stored_key_indexes).partitioned)


def stored_locations(snapshot: Snapshot, *, partitioned: bool, unique: bool = False) -> pa.Table:
    """The location of every stored record key (see `SCHEMA`), read from the latest file slices.

    A key that is stored in several file groups has the location where it was stored last. With `unique` that raises
    `IndexInconsistent`.
    """
    locations = _all_locations(snapshot)
    latest = latest_locations(locations, partitioned)
    if unique and latest.num_rows < locations.num_rows:
        raise _several_locations(snapshot, locations, partitioned=partitioned)
    return latest


def repeated_keys(snapshot: Snapshot, *, everywhere: bool) -> pa.Table:
    """The keys that are stored more than once in the latest file slices, `everywhere` or in one partition path: `key`,
    `partition` (all of them, if there are several) and the file ids in `files`."""
    locations = _all_locations(snapshot)
    codes = key_codes(locations, partitioned=not everywhere)
    rows = locations.filter(pa.array(np.bincount(codes, minlength=1)[codes] > 1))
    names = ("key", "partition", "file_id")
    repeats = pa.table({name: plain_strings(rows[name]).cast(pa.string()) for name in names})
    by = ["key"] if everywhere else ["key", "partition"]
    lists = [("file_id", "list"), *([("partition", "list")] if everywhere else [])]
    repeats = repeats.sort_by("key").group_by(by, use_threads=False).aggregate(lists)
    paths = pc.binary_join(repeats["partition_list"], ", ") if everywhere else repeats["partition"]
    return pa.table({"key": repeats["key"], "partition": paths, "files": pc.binary_join(repeats["file_id_list"], ", ")})


def _all_locations(snapshot: Snapshot) -> pa.Table:
    """The place of every stored key, in the order in which the slices began."""
    slices = sorted(snapshot.file_slices(), key=lambda s: (s.instant, s.partition, s.file_id))

    def read(file_slice: FileSlice) -> tuple[str, str, str, pa.Array]:
        keys = stored_rows(snapshot.reader, file_slice, [RECORD_KEY]).column(0)
        return file_slice.partition, file_slice.file_id, file_slice.instant, keys

    threads = threads_of_files(snapshot.storage, [s.size for s in slices])
    return located(parallel_map(read, slices, threads))


def _groups(locations: pa.Table, form: RecordForm, sizing: GroupSizing, *, partitioned: bool) -> list[GroupRecords]:
    """The first records of the file groups of a new index; the number of file groups is that of Hudi."""
    keys, values = encoded_locations(locations, form)
    if not partitioned:
        count = sizing.file_groups(len(keys))
        return grouped(RECORD_INDEX, Records.upserts(keys, values), [(None, n) for n in range(count)])
    paths = locations["partition"].cast(pa.string()).combine_chunks()
    counts = paths.value_counts()
    rows = dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))
    sizes: Mapping[str, int] = {path: sizing.file_groups(n) for path, n in sorted(rows.items())}
    groups = [(path, n) for path, count in sizes.items() for n in range(count)]
    return grouped(RECORD_INDEX, Records.upserts(keys, values, paths), groups)


def _comparable(locations: pa.Table, *, partitioned: bool) -> pa.Table:
    keys, paths, ids = (plain_strings(locations[name]).cast(pa.string()) for name in ("key", "partition", "file_id"))
    entry = paths if partitioned else pa.repeat(pa.scalar(""), len(keys))
    text = pc.binary_join_element_wise(paths, ids, text_scalar("/"))
    return pa.Table.from_arrays([keys, entry, keys, text], schema=COMPARED)


def _several_locations(snapshot: Snapshot, locations: pa.Table, *, partitioned: bool) -> IndexInconsistent:
    counts = locations.group_by(["key", "partition"] if partitioned else "key").aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1))
    key = twice["key"][0].as_py()
    return IndexInconsistent(
        f"{twice.num_rows} record key(s) of table {snapshot.config.name!r} are stored in several file groups,"
        f" e.g. {key!r}",
        hint="A record index has one place for a key: make the keys unique first, or (keys that are unique within"
        " their partition path) create it with partitioned=True.",
        context={"record_key": key, "keys": twice.num_rows},
    )


KIND = RecordIndexKind(
    RECORD_INDEX,
    file_id_start="record-index",
    grows=True,
    by_data_partition=True,
    decode=decode,
    build_position=30,
    requested_by=("record_index", "partitioned_record_index"),
    index_type="record",
    describe=_describe,
)
