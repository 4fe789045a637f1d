"""What each partition of a metadata table says, and what the data says it should say, as tables that can be compared.

A fact has the `key` of its record, the `entry` within it (a file of a partition path; else empty), a `label` for
people and its content as `text`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.expressions.base import Column
from lakebed.format.base_file import read_footer
from lakebed.format.hashes import plain_strings
from lakebed.metadata.keys import ALL_PARTITIONS, file_keys, partition_identifier, secondary_keys
from lakebed.metadata.kinds.definitions import load_definitions
from lakebed.metadata.kinds.file_ranges import ranges_of_file
from lakebed.metadata.kinds.key_indexes import KeyIndexes, indexed_field
from lakebed.metadata.kinds.secondary_updates import indexed_pairs
from lakebed.metadata.kinds.stats_columns import index_version_of, stats_columns
from lakebed.metadata.kinds.updates import Kinds, NewFile, merged_partition_stats, stats_of
from lakebed.metadata.layout import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS, RECORD_INDEX
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.read.stats_lookup import Stats
from lakebed.model import META_COLUMNS, path_in
from lakebed.schema.arrow import leaf_paths
from lakebed.schema.java_text import to_java_text
from lakebed.slices.listing import Listing, list_table
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map
from lakebed.upkeep.expression_records import live_files
from lakebed.upkeep.key_records import stored_pairs, stored_places

_BASE = ".parquet"
FACTS = pa.schema([(name, pa.string()) for name in ("key", "entry", "label", "text")])


class ExpectedRecords:
    """What the data says. `snapshot` is the table without its metadata table; everything is read when asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.indexes = KeyIndexes.of(snapshot.storage, snapshot.config)

    def of(self, partition: str) -> pa.Table:
        """The facts of one partition of the metadata table."""
        if partition == FILES:
            return self._files(self.listed[1])
        if partition == COLUMN_STATS:
            return expected_stats(self.stats, {f.name: f.partition for f in self.files})
        if partition == PARTITION_STATS:
            return expected_stats(self.partition_stats, {})
        if partition == BLOOM_FILTERS:
            return self._blooms()
        if partition == RECORD_INDEX:
            return expected_places(self.places, partitioned=self.indexes.partitioned)
        return expected_pairs(self.pairs(partition))

    def knows(self, partition: str) -> bool:
        """Whether `of` can tell: not of a partition that no release has, or of an index without a definition."""
        plain = (FILES, COLUMN_STATS, PARTITION_STATS, BLOOM_FILTERS, RECORD_INDEX)
        return partition in plain or partition in self.indexes.secondary

    @cached_property
    def _listing(self) -> Listing:
        return list_table(self.snapshot.storage)

    @property
    def _folders(self) -> Sequence[str]:
        """The partition paths there are in storage."""
        return self._listing.partitions

    @cached_property
    def listed(self) -> tuple[list[NewFile], tuple[str, ...]]:
        """Every file of a completed action, and the partition paths that they lie in."""
        listing = self._listing
        named = self._named()
        bases = [f for f in listing.base_files if f.instant not in named or f.path in named[f.instant]]
        # before version 8 a log file goes by its slice's instant, which may be that of a pending compaction
        of_slices = self.snapshot.config.version < 8
        logs = [f for f in listing.log_files if of_slices or self.snapshot.is_visible(f.instant)]
        visible = [*(f for f in bases if self.snapshot.is_visible(f.instant)), *logs]
        files = [NewFile(f.partition, f.name, f.size) for f in visible]
        return files, tuple(sorted({f.partition for f in files}))

    @cached_property
    def files(self) -> list[NewFile]:
        """The base files with the ranges of their columns and their bloom filters."""
        bases = [f for f in self.listed[0] if f.name.endswith(_BASE)]

        def read(file: NewFile) -> NewFile:
            path = _path(file)
            storage = self.snapshot.storage
            bloom = read_footer(storage, path, file.size).stored_bloom
            ranges = ranges_of_file(storage, path, file.size, self.kinds) if self.kinds else None
            return NewFile(file.partition, file.name, file.size, ranges, bloom)

        return parallel_map(read, bases)

    @cached_property
    def _as_written(self) -> list[NewFile] | None:
        """The files with their ranges in the types that they are stored in, which may have another order than the
        columns of today have; None where all types are those of today."""

        def read(file: NewFile) -> NewFile:
            storage, path = self.snapshot.storage, _path(file)
            stored = dict(leaf_paths(read_footer(storage, path, file.size).schema))
            kinds = {column: stored.get(column, kind) for column, kind in self.kinds.items()}
            if kinds == dict(self.kinds):
                return file
            return replace(file, ranges=ranges_of_file(storage, path, file.size, kinds))

        found = parallel_map(read, self.files)
        return None if all(a is b for a, b in zip(found, self.files, strict=True)) else found

    @cached_property
    def kinds(self) -> Kinds:
        """The columns with statistics; on version 6 without meta columns, which some releases give statistics there and
        others not."""
        config = self.snapshot.config
        definition = load_definitions(self.snapshot.storage, config).get(COLUMN_STATS)
        if COLUMN_STATS not in config.metadata_partitions:
            return {}
        kinds = stats_columns(
            self.snapshot.schema, definition, version=config.version, populate_meta=config.populate_meta_fields
        )
        return {c: kind for c, kind in kinds.items() if config.version >= 8 or c not in META_COLUMNS}

    @cached_property
    def stats(self) -> Stats:
        return stats_of(self.files, self.kinds, index_version_of(self.snapshot.config.version))

    @cached_property
    def partition_stats(self) -> Stats:
        """Statistics of partition paths, of all live files of each."""
        return merged_partition_stats({}, self.stats, self._live, self.kinds)[0]

    def right_as_well(self, partition: str) -> list[pa.Table]:
        """Other facts that are right: a partition path may be listed that has no file (the write that began it was
        undone, or all of its files were cleaned); a range noted before its column got another type may say nothing any
        more; and real Hudi takes 0.0 to 0.0 for a range of a partition path, where lakebed has doubts of NaN."""
        if partition == FILES:
            return [self._files(self._folders)]
        if partition not in (COLUMN_STATS, PARTITION_STATS):
            return []
        sources = [self.stats]
        if self._as_written is not None:
            sources.append(self._stats_as_written(self._as_written))
        if partition == COLUMN_STATS:
            names = {f.name: f.partition for f in self.files}
            return [expected_stats(stats, names) for stats in sources[1:]]
        merged = [
            merged_partition_stats({}, stats, self._live, self.kinds, zero_tells=zero_tells)[0]
            for stats in sources
            for zero_tells in (True, False)
        ]
        return [expected_stats(stats, {}) for stats in merged]

    def _stats_as_written(self, files: Sequence[NewFile]) -> Stats:
        version = index_version_of(self.snapshot.config.version)
        return stats_of(files, self.kinds, version, with_unknown=True)

    @cached_property
    def _live(self) -> dict[str, set[str]]:
        return live_files(self.snapshot.base_files())

    @cached_property
    def places(self) -> pa.Table:
        return stored_places(self.snapshot, partitioned=self.indexes.partitioned)

    def pairs(self, partition: str) -> pa.Table:
        """Values and record keys of a secondary index."""
        definition = self.indexes.secondary[partition]
        return stored_pairs(self.snapshot, indexed_field(definition), definition.version)

    def kind_of(self, partition: str) -> pa.DataType:
        """The type of a secondary index's field."""
        return Column(indexed_field(self.indexes.secondary[partition])).type_in(self.snapshot.schema)

    def _named(self) -> dict[str, frozenset[str]]:
        """The paths that each commit on the timeline names; what a lost attempt left beside them does not count."""
        timeline = self.snapshot.timeline
        found: dict[str, frozenset[str]] = {}
        for instant, meta in zip(timeline.commits, timeline.commits_metadata(timeline.commits), strict=True):
            paths = frozenset(s.path for stats in meta.stats.values() for s in stats)
            if paths:
                found[instant.time] = paths
        return found

    def _files(self, partitions: Sequence[str]) -> pa.Table:
        files, _ = self.listed
        return facts(
            [*(partition_identifier(f.partition) for f in files), *(ALL_PARTITIONS for _ in partitions)],
            [*(f.name for f in files), *map(partition_identifier, partitions)],
            [*map(_path, files), *(f"partition {p}" for p in partitions)],
            [*(f"{f.size} bytes" for f in files), *("" for _ in partitions)],
        )

    def _blooms(self) -> pa.Table:
        having = [(f, f.bloom) for f in self.files if f.bloom is not None]
        keys = file_keys([f.partition for f, _ in having], [f.name for f, _ in having])
        texts = [f"{kind} {text}" for _, (kind, text) in having]
        return facts(keys.to_pylist(), [""] * len(having), [_path(f) for f, _ in having], texts)


def stored_records(metadata: MetadataTable, data: ExpectedRecords, partition: str) -> pa.Table:
    """What a partition says. Labels of files and columns are the data's."""
    if partition == FILES:
        return _listed_facts(metadata)
    if partition == COLUMN_STATS:
        stats = metadata.column_stats(list(data.kinds), None, data.kinds)
        # those of log files cannot be told without the rows that they change
        return expected_stats({c: t.filter(pc.ends_with(t["file_name"], _BASE)) for c, t in stats.items()}, {})
    if partition == PARTITION_STATS:
        return expected_stats(
            as_expected(metadata.partition_stats(list(data.kinds), data.kinds), data.partition_stats), {}
        )
    tables = list(metadata.entries(partition))
    if partition == BLOOM_FILTERS:
        live = [t.filter(pc.invert(t["is_deleted"])) for t in tables]
        return joined([_bloom_table(t) for t in live])
    if partition == RECORD_INDEX:
        return joined([expected_places(t, partitioned=data.indexes.partitioned) for t in tables])
    version = data.indexes.secondary[partition].version
    live = [t.filter(pc.invert(t["is_deleted"])) for t in tables]
    # real Hudi adds records without a value to indexes of the first version, which nobody looks up
    pairs = [indexed_pairs(t["value"], t["record_key"], version) for t in live]
    kind = data.kind_of(partition)
    if pt.is_floating(kind):
        pairs = [_shortest(t, kind, data.of(partition)["key"]) for t in pairs]
    return joined([expected_pairs(t) for t in pairs])


def expected_places(places: pa.Table, *, partitioned: bool) -> pa.Table:
    keys, paths, ids = (plain_strings(places[name]).cast(pa.string()) for name in ("key", "partition", "file_id"))
    entry = paths if partitioned else pa.repeat(pa.scalar(""), len(keys))
    text = pc.binary_join_element_wise(paths, ids, "/")
    return pa.Table.from_arrays([keys, entry, keys, text], schema=FACTS)


def expected_pairs(pairs: pa.Table) -> pa.Table:
    keys = secondary_keys(pairs["value"], pairs["record_key"])
    empty = pa.repeat(pa.scalar(""), len(keys))
    return pa.Table.from_arrays([keys, empty, keys, empty], schema=FACTS)


def _shortest(pairs: pa.Table, kind: pa.DataType, known: pa.ChunkedArray) -> pa.Table:
    """The pairs with the texts that lakebed writes, where those are `known`: Java before version 19 printed some
    floating numbers with more digits, and that says the same."""
    texts = to_java_text(pairs["value"].cast(kind))
    other = pc.fill_null(pc.not_equal(texts, pairs["value"]), False)
    if not pc.any(other).as_py():
        return pairs
    is_known = pc.is_in(secondary_keys(texts, pairs["record_key"]), value_set=known.combine_chunks())
    texts = pc.if_else(pc.and_(other, is_known), texts, pairs["value"])
    return pairs.set_column(pairs.column_names.index("value"), "value", texts)


def expected_stats(stats: Stats, partitions: Mapping[str, str]) -> pa.Table:
    """Statistics of known bounds; `partitions` has the partition path of each file name, for labels."""
    tables: list[pa.Table] = []
    for column, table in stats.items():
        known = table.filter(pc.invert(table["is_deleted"]))
        bounds = [_bound_text(known[side]) for side in ("min", "max")]
        counts = [known[name].cast(pa.string()) for name in ("null_count", "value_count")]
        text = pc.binary_join_element_wise(*bounds, *counts, " ", null_handling="replace", null_replacement="-")
        names = known["file_name"].combine_chunks().cast(pa.string())
        whole = [partitions.get(name) for name in names.to_pylist()]
        paths = [f"{p}/{n}" if p else str(n) for p, n in zip(whole, names.to_pylist(), strict=True)]
        labels = pa.array([f"{column} of {path}" for path in paths], pa.string())
        empty = pa.repeat(pa.scalar(""), len(known))
        tables.append(pa.Table.from_arrays([known["key"], empty, labels, text], schema=FACTS))
    return joined(tables)


def as_expected(found: Stats, expected: Stats) -> Stats:
    """Statistics of partition paths, those that are not tight as they are expected: they were united while writers
    crossed, and are right where they hold all that is there. The next write to the path makes them tight again."""
    return {c: _as_expected(t, expected[c]) if c in expected else t for c, t in found.items()}


def _as_expected(found: pa.Table, expected: pa.Table) -> pa.Table:
    at = pc.index_in(found["key"], value_set=expected["key"].combine_chunks())
    wanted = {name: expected[name].take(at) for name in ("min", "max", "null_count", "value_count")}
    holds = [
        pc.or_kleene(wanted["min"].is_null(), pc.less_equal(found["min"], wanted["min"])),
        pc.or_kleene(wanted["max"].is_null(), pc.greater_equal(found["max"], wanted["max"])),
        *(pc.greater_equal(found[name], wanted[name]) for name in ("null_count", "value_count")),
        pc.invert(found["is_tight"]),
    ]
    right = pc.fill_null(functools.reduce(pc.and_, holds), False)
    for name, values in wanted.items():
        kind = found.schema.field(name).type
        found = found.set_column(
            found.schema.get_field_index(name), name, pc.if_else(right, values.cast(kind), found[name])
        )
    return found


def facts(keys: Sequence[str], entries: Sequence[str], labels: Sequence[str], texts: Sequence[str]) -> pa.Table:
    columns = [pa.array(values, pa.string()) for values in (keys, entries, labels, texts)]
    return pa.Table.from_arrays(columns, schema=FACTS)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([FACTS.empty_table(), *tables]).combine_chunks()


def _listed_facts(metadata: MetadataTable) -> pa.Table:
    files = metadata.files()
    paths = files["partition"].to_pylist()
    names, sizes = files["name"].to_pylist(), files["size"].to_pylist()
    partitions = metadata.partitions()
    return facts(
        [*map(partition_identifier, paths), *(ALL_PARTITIONS for _ in partitions)],
        [*names, *map(partition_identifier, partitions)],
        [*(path_in(p, n) for p, n in zip(paths, names, strict=True)), *(f"partition {p}" for p in partitions)],
        [*(f"{size} bytes" for size in sizes), *("" for _ in partitions)],
    )


def _bloom_table(table: pa.Table) -> pa.Table:
    keys = table["key"].combine_chunks()
    text = pc.binary_join_element_wise(table["type"], table["bloom"].cast(pa.string()), " ")
    empty = pa.repeat(pa.scalar(""), len(keys))
    return pa.Table.from_arrays([keys, empty, keys, text], schema=FACTS)


def _bound_text(values: pa.ChunkedArray) -> pa.Array:
    array = values.combine_chunks()
    if pt.is_floating(array.type):
        array = pc.add(array, pa.scalar(0.0, array.type))  # no difference between the two zeros
    return to_java_text(array).cast(pa.string())


def _path(file: NewFile) -> str:
    return path_in(file.partition, file.name)
