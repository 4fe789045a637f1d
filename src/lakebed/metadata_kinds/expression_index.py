"""The partitions `expr_index_*`: ranges of a function's results in files and partition paths, or bloom filters over
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.format.bloom import BloomFilter
from lakebed.metadata_kinds.base import (
    Comparison,
    FirstBuild,
    LaterLayers,
    NewIndex,
    NewPartition,
    PartitionKind,
    Removal,
    StoredTable,
    TableAction,
    required,
    under_keys,
)
from lakebed.metadata_kinds.column_stats import as_expected, comparable_stats, narrows_ranges
from lakebed.metadata_kinds.expression_results import (
    FIRST_VERSION,
    ExpressionIndex,
    FileResults,
    by_index,
    filter_records_of,
    first_records,
    maintained_indexes,
    partition_stats_of,
    range_records,
    reason_not_maintained,
    result_texts,
    results_of_files,
    stats_of_results,
)
from lakebed.metadata_kinds.routing import grouped
from lakebed.metadata_kinds.stats_values import StatsUnion
from lakebed.metadata_kinds.stored import StoredFiles, comparable, has_earlier_neighbour, joined, live_after
from lakebed.metadata_records.definitions import IndexDefinition, IndexName, load_definitions
from lakebed.metadata_records.layout import (
    BLOOM_FILTERS,
    EXPRESSION_INDEX,
    GroupSizing,
    column_stats_keys,
    file_keys,
    partition_stats_keys,
)
from lakebed.metadata_records.records import RecordForm, Records
from lakebed.metadata_records.stats_codec import Stats
from lakebed.model import path_in
from lakebed.schema.arrow import without_meta
from lakebed.schema.avro import avro_to_arrow
from lakebed.sharing import once
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.schema_history import columns_since
from lakebed.slices.snapshot import Snapshot


def _is_overruled(
    records: Records, form: RecordForm, later: LaterLayers, definition: Callable[[], IndexDefinition | None]
) -> bool:
    index_definition = definition()
    has_ranges = index_definition is not None and index_definition.type != BLOOM_FILTERS
    return has_ranges and narrows_ranges(records, form, later, definition)


def _describe(definition: IndexDefinition | None) -> str | None:
    if definition is None or definition.function in ("", definition.name):
        return None
    filters = ", bloom filters" if definition.type == BLOOM_FILTERS else ""
    return f"expression index: {definition.function}{filters}"


_comparable = partial(comparable_stats, of_expression=True)


class ExpressionIndexKind(PartitionKind):
    def definition(self, name: IndexName, snapshot: Snapshot, settings: WriteSettings) -> IndexDefinition | None:
        return name.expression

    def records_of_action(self, partition: str, action: TableAction) -> Records | None:
        return action.shared(_ActionExpressions).records(partition)

    def records_of_clean(self, partition: str, removal: Removal) -> Records | None:
        snapshot = removal.snapshot
        definition = load_definitions(snapshot.storage, snapshot.config).get(partition)
        if definition is None:
            return None
        has_filters = definition.type == BLOOM_FILTERS
        return Records.deletes(
            removal.keys if has_filters else column_stats_keys(definition.source_fields[0], removal.keys)
        )

    def first_records(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        assert name.expression is not None
        index = ExpressionIndex.of(name.expression, build.snapshot.schema)
        _check_renamed(index, build.snapshot)
        records = first_records(build.snapshot, index, build.snapshot.instant or "0" * 17, build.engine)
        return grouped(name.partition, records), name.expression

    def check_new(self, index: NewIndex) -> None:
        definition = index.name.expression
        if definition is None:
            return
        if index.config.version < FIRST_VERSION:
            raise UnsupportedFeature(
                f"an expression index on a table of version {index.config.version}",
                hint="Upgrade the table to version 9: Hudi 1.2 does not write to an older one that has such an index.",
                context={"feature": "expression index"},
            )
        if not len(index.schema):
            raise InvalidOption(
                f"table {index.config.name!r} has no columns yet that an expression index could be on",
                hint="Create it when the table has rows.",
                context={"index": definition.name},
            )
        ExpressionIndex.of(definition, index.schema)

    def is_comparable(self, partition: str, table: StoredTable) -> bool:
        return partition in table.shared(_StoredExpressions).indexes

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        return table.shared(_StoredExpressions).expected(partition)

    def found(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        return table.shared(_StoredExpressions).compared(metadata, partition)[1]

    def comparisons(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> Iterator[Comparison]:
        yield Comparison(*table.shared(_StoredExpressions).compared(metadata, partition))

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        records = table.shared(_StoredExpressions).records(partition, table.snapshot.instant)
        return under_keys(records, rows["key"].combine_chunks())

    def index_name(self, partition: str, definition: IndexDefinition | None) -> IndexName:
        return IndexName(partition, expression=required(partition, definition))

    def reason_not_maintained(self, partition: str, table: StoredTable) -> str | None:
        definitions = table.shared(_definitions)
        return reason_not_maintained(definitions.get(partition), table.snapshot.schema, table.snapshot.config.version)


def _definitions(table: StoredTable) -> dict[str, IndexDefinition]:
    return load_definitions(table.snapshot.storage, table.snapshot.config)


class _ActionExpressions:
    """The expression indexes that an action must update, with their results over the files that it wrote."""

    def __init__(self, action: TableAction) -> None:
        self._action = action
        snapshot, commit = action.snapshot, action.commit
        definitions = load_definitions(snapshot.storage, snapshot.config)
        names = sorted(p for p in action.partitions if p.startswith(EXPRESSION_INDEX) and p in definitions)
        self._definitions = {name: definitions[name] for name in names}
        schema = without_meta(avro_to_arrow(commit.schema)) if commit.schema else snapshot.schema
        self._indexes = {
            index.partition: index for index in maintained_indexes(self._definitions, self._definitions, schema)
        }
        files = [
            (path, stat.path.rpartition("/")[2], stat.file_size)
            for path, stats in commit.stats.items()
            for stat in stats
        ]
        self._results = dict(by_index(results_of_files(snapshot, files, list(self._indexes.values()), schema)))

    @once
    def _live(self) -> dict[str, set[str]]:
        return live_after(self._action.snapshot, self._action.commit)

    def records(self, partition: str) -> Records | None:
        """The records that the action adds to the index `partition`; None if it adds none."""
        definition, index = self._definitions.get(partition), self._indexes.get(partition)
        if index is not None:
            return self._of_index(index)
        if definition is None or definition.type == BLOOM_FILTERS:
            return None
        # this action changed the column, so ranges of partition paths become unknown
        return Records.deletes(
            partition_stats_keys(definition.source_fields[0], sorted(self._live), of_expression=True)
        )

    def _of_index(self, index: ExpressionIndex) -> Records:
        action, results = self._action, self._results.get(index.partition, [])
        if index.has_filters:
            return filter_records_of(results, action.instant, action.form)
        new, live = stats_of_results(index, results), self._live
        old = {path for path in live if live[path] - {r.name for r in results if r.partition == path}}
        old_stats: Stats = {}
        metadata = action.snapshot.metadata
        if old and metadata is not None and metadata.has(index.partition):
            kinds = {index.column: index.function.result}
            old_stats, _ = metadata.expression_stats(index.partition, kinds, sorted(old))
        elif old:
            old_stats = {index.column: stats_of_results(index, self._of_stored_files(index, sorted(old)))}
        tight = not has_earlier_neighbour(action.snapshot.timeline, action.instant)
        of_paths, deleted = partition_stats_of(index, old_stats, {index.column: new}, live, tight=tight)
        return range_records(index, new, of_paths, deleted, action.form)

    def _of_stored_files(self, index: ExpressionIndex, paths: Collection[str]) -> Sequence[FileResults]:
        """The results over all files of partition paths, read from the files; for an index that is still being
        built."""
        snapshot = self._action.snapshot
        bases = [s.base_file for s in snapshot.file_slices(paths) if s.base_file is not None]
        files = [(base.partition, base.name, base.size) for base in bases]
        return dict(by_index(results_of_files(snapshot, files, [index]))).get(index.partition, [])


def _check_renamed(index: ExpressionIndex, snapshot: Snapshot) -> None:
    """Raise `UnsupportedFeature` if a file has the column under another name, or another column under its name: the
    records of a file use the names in the file."""
    instants = [s.base_file.instant for s in snapshot.file_slices() if s.base_file is not None]
    if instants and not columns_since(snapshot.history, min(instants), {index.column: index}):
        raise UnsupportedFeature(
            f"an expression index on column {index.column}, which files of table {snapshot.config.name!r} have under"
            " another name or not at all",
            hint="Write the table's files again first: t.maintenance.cluster() with"
            " hoodie.clustering.plan.strategy.small.file.limit above the size of its files.",
            context={"feature": "expression index", "column": index.column},
        )


class _StoredExpressions:
    """The expression indexes of a table that can be checked, with their results over its base files.

    Records count as missing only for the latest files; an index may have records of older files. Records of missing
    files, and of files whose results may differ from Spark's, are not compared.
    """

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self._snapshot = table.snapshot
        self._stored = table.shared(StoredFiles)

    @once
    def indexes(self) -> dict[str, ExpressionIndex]:
        """The indexes by their partitions."""
        config = self._snapshot.config
        if config.version < FIRST_VERSION:
            return {}
        definitions = load_definitions(self._snapshot.storage, config)
        return {index.partition: index for index in maintained_indexes(definitions, definitions, self._snapshot.schema)}

    @once
    def _results(self) -> dict[str, list[FileResults]]:
        bases = [(f.partition, f.name, f.size) for f in self._stored.base_files]
        return dict(by_index(results_of_files(self._snapshot, bases, list(self.indexes.values()))))

    def expected(self, partition: str) -> pa.Table:
        """The records expected from the data."""
        index = self.indexes[partition]
        return self._filters(index) if index.has_filters else self._stats(index)

    def compared(self, metadata: MetadataLookups, partition: str) -> tuple[pa.Table, pa.Table]:
        """The records expected from the data, and the records of the index."""
        index = self.indexes[partition]
        expected = self.expected(partition)
        actual = self._found_filters(metadata, index) if index.has_filters else self._found_stats(metadata, index)
        result_keys = self._keys(index, self._results.get(partition, []))
        needed = pc.is_in(expected["key"], value_set=self._optional_keys(index))
        is_stored = pc.is_in(expected["key"], value_set=actual["key"].combine_chunks())
        expected = expected.filter(pc.or_(pc.invert(needed), is_stored))
        compared_keys = pa.concat_arrays([result_keys, *[c.cast(pa.string()) for c in expected["key"].chunks]])
        return expected, actual.filter(pc.is_in(actual["key"], value_set=compared_keys))

    def records(self, partition: str, instant: str) -> Records:
        """The records that the index should have."""
        index, results = self.indexes[partition], self._results.get(partition, [])
        if index.has_filters:
            return filter_records_of(results, instant, self._table.form)
        return range_records(index, stats_of_results(index, results), self._of_paths(index), [], self._table.form)

    # by the data

    def _stats(self, index: ExpressionIndex) -> pa.Table:
        results = self._results.get(index.partition, [])
        paths = {r.name: r.partition for r in results}
        of_files = _comparable({index.column: stats_of_results(index, results)}, paths)
        return joined([of_files, _comparable(self._of_paths(index), {})])

    def _of_paths(self, index: ExpressionIndex) -> Stats:
        if self._stored.has_log_files:  # rows in log files are not compared
            return {}
        stats = stats_of_results(index, self._results.get(index.partition, []))
        return partition_stats_of(index, {}, {index.column: stats}, self._stored.live)[0]

    def _filters(self, index: ExpressionIndex) -> pa.Table:
        filters = [(r, r.bloom) for r in self._results.get(index.partition, []) if r.bloom is not None]
        keys = file_keys([r.partition for r, _ in filters], [r.name for r, _ in filters]).to_pylist()
        texts = [_filter_text(results) for results, _ in filters]
        return comparable(keys, [""] * len(filters), [_label(r) for r, _ in filters], texts)

    # by the index

    def _found_stats(self, metadata: MetadataLookups, index: ExpressionIndex) -> pa.Table:
        of_files, of_paths = metadata.expression_stats(index.partition, {index.column: index.function.result})
        return joined([_comparable(of_files, {}), _comparable(as_expected(of_paths, self._of_paths(index)), {})])

    def _found_filters(self, metadata: MetadataLookups, index: ExpressionIndex) -> pa.Table:
        """The stored filters. Another writer may use another filter size or order of rows: a filter that may hold every
        result is valid, and counts as equal to lakebed's."""
        results = {(r.partition, r.name): r for r in self._results.get(index.partition, [])}
        rows = metadata.expression_bloom_filters(index.partition, list(results)).to_pylist()  # one a file
        texts: list[str] = []
        for row in rows:
            file_results = results[row["partition"], row["file_name"]]
            text, expected_text = f"{row['type']} {row['bloom'].decode('ascii', 'replace')}", _filter_text(file_results)
            texts.append(expected_text if text == expected_text or self._holds_all(index, file_results, row) else text)
        keys = file_keys([r["partition"] for r in rows], [r["file_name"] for r in rows]).to_pylist()
        return comparable(keys, [""] * len(rows), [str(r["file_name"]) for r in rows], texts)

    def _holds_all(self, index: ExpressionIndex, results: FileResults, row: Mapping[str, Any]) -> bool:
        bloom = BloomFilter.from_text(row["bloom"], row["type"])
        file = (results.partition, results.name, results.size)
        texts = result_texts(self._snapshot.storage, file, index, self._snapshot.schema)
        return all(pc.all(bloom.might_contain(text_batch.drop_null())).as_py() is not False for text_batch in texts)

    def _optional_keys(self, index: ExpressionIndex) -> pa.Array:
        """The keys of files that are not the latest any more."""
        results = self._results.get(index.partition, [])
        return self._keys(index, [r for r in results if r.name not in self._stored.live.get(r.partition, ())])

    def _keys(self, index: ExpressionIndex, results: Collection[FileResults]) -> pa.Array:
        if not index.has_filters:
            return stats_of_results(index, list(results))["key"].combine_chunks().cast(pa.string())
        return file_keys([r.partition for r in results], [r.name for r in results])


def _filter_text(results: FileResults) -> str:
    return "" if results.bloom is None else f"{results.bloom.type_code} {results.bloom.to_text()}"


def _label(results: FileResults) -> str:
    return path_in(results.partition, results.name)


KIND = ExpressionIndexKind(
    EXPRESSION_INDEX,
    is_prefix=True,
    file_groups=2,
    union=StatsUnion(),
    is_overruled=_is_overruled,
    build_position=40,
    describe=_describe,
)
