"""What expression indexes say, and what the data says they should say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.bloom import BloomFilter
from lakebed.metadata.keys import file_keys
from lakebed.metadata.kinds import stats_records
from lakebed.metadata.kinds.definitions import load_definitions
from lakebed.metadata.kinds.expression_indexes import FIRST_VERSION, ExpressionIndex, kept_indexes
from lakebed.metadata.kinds.expression_results import (
    FileResults,
    by_index,
    filter_records_of,
    result_texts,
    stats_of_results,
    stats_records_of,
)
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.read.stats_lookup import Stats
from lakebed.metadata.record_values import RecordType
from lakebed.metadata.routing import Records
from lakebed.metadata.schemas import form_of_version
from lakebed.model import path_in
from lakebed.upkeep.expected_records import ExpectedRecords, as_expected, expected_stats, facts, joined
from lakebed.upkeep.expression_records import live_files, partition_stats_of, results_of_files

_BASE = ".parquet"


class ExpectedExpressions:
    """The expression indexes of a table that can be checked, with the results over its base files.

    Only what the latest files need is missed; of older files an index may tell. What it has of files that are gone, and
    of files whose results are not known to be Spark's, is not looked at.
    """

    def __init__(self, data: ExpectedRecords) -> None:
        self._data = data
        self._snapshot = data.snapshot

    @cached_property
    def indexes(self) -> dict[str, ExpressionIndex]:
        """The indexes by their partitions."""
        config = self._snapshot.config
        if config.version < FIRST_VERSION:
            return {}
        definitions = load_definitions(self._snapshot.storage, config)
        return {one.partition: one for one in kept_indexes(definitions, definitions, self._snapshot.schema)}

    @cached_property
    def _results(self) -> dict[str, list[FileResults]]:
        bases = [(f.partition, f.name, f.size) for f in self._data.listed[0] if f.name.endswith(_BASE)]
        return dict(by_index(results_of_files(self._snapshot, bases, list(self.indexes.values()))))

    @cached_property
    def _latest(self) -> dict[str, set[str]]:
        return live_files(self._snapshot.base_files())

    @cached_property
    def _has_logs(self) -> bool:
        return any(file_slice.log_files for file_slice in self._snapshot.file_slices())

    def compared(self, metadata: MetadataTable, partition: str) -> tuple[pa.Table, pa.Table]:
        """The facts by the data and those by the index."""
        index = self.indexes[partition]
        expected = self._filters(index) if index.has_filters else self._stats(index)
        found = self._found_filters(metadata, index) if index.has_filters else self._found_stats(metadata, index)
        known = self._keys(index, self._results.get(partition, []))
        needed = pc.is_in(expected["key"], value_set=self._optional_keys(index))
        there = pc.is_in(expected["key"], value_set=found["key"].combine_chunks())
        expected = expected.filter(pc.or_(pc.invert(needed), there))
        own = pa.concat_arrays([known, *[c.cast(pa.string()) for c in expected["key"].chunks]])
        return expected, found.filter(pc.is_in(found["key"], value_set=own))

    def records(self, partition: str, keys: pa.Array, instant: str) -> Records:
        """The records that the index should have under these keys."""
        index, results = self.indexes[partition], self._results.get(partition, [])
        form = form_of_version(self._snapshot.config.version)
        if index.has_filters:
            whole = filter_records_of(results, instant, form)
            parts = [(whole.keys, whole.values)]
        else:
            files = stats_records_of(index, stats_of_results(index, results), form)
            kind, version = RecordType.PARTITION_STATS, index.definition.version
            paths = stats_records.encode(self._of_paths(index), form, index_version=version, record_type=kind)
            parts = [(files.keys, files.values), paths]
        chosen = [(k.filter(pc.is_in(k, value_set=keys)), v.filter(pc.is_in(k, value_set=keys))) for k, v in parts]
        return Records.upserts(pa.concat_arrays([k for k, _ in chosen]), pa.concat_arrays([v for _, v in chosen]))

    # by the data

    def _stats(self, index: ExpressionIndex) -> pa.Table:
        results = self._results.get(index.partition, [])
        paths = {r.name: r.partition for r in results}
        of_files = expected_stats({index.column: stats_of_results(index, results)}, paths)
        return joined([of_files, expected_stats(self._of_paths(index), {})])

    def _of_paths(self, index: ExpressionIndex) -> Stats:
        if self._has_logs:  # rows in log files are not looked at
            return {}
        stats = stats_of_results(index, self._results.get(index.partition, []))
        return partition_stats_of(index, {}, {index.column: stats}, self._latest)[0]

    def _filters(self, index: ExpressionIndex) -> pa.Table:
        found = [(r, r.bloom) for r in self._results.get(index.partition, []) if r.bloom is not None]
        keys = file_keys([r.partition for r, _ in found], [r.name for r, _ in found]).to_pylist()
        texts = [_filter_text(results) for results, _ in found]
        return facts(keys, [""] * len(found), [_label(r) for r, _ in found], texts)

    # by the index

    def _found_stats(self, metadata: MetadataTable, index: ExpressionIndex) -> pa.Table:
        of_files, of_paths = metadata.expression_stats(index.partition, {index.column: index.function.result})
        return joined([expected_stats(of_files, {}), expected_stats(as_expected(of_paths, self._of_paths(index)), {})])

    def _found_filters(self, metadata: MetadataTable, index: ExpressionIndex) -> pa.Table:
        """Another writer may have other sizes of filters and another order of rows: a filter that may hold every result
        is right, and told as the one that lakebed makes."""
        results = {(r.partition, r.name): r for r in self._results.get(index.partition, [])}
        found = metadata.expression_bloom_filters(index.partition, list(results)).to_pylist()  # one a file
        texts: list[str] = []
        for row in found:
            own = results[row["partition"], row["file_name"]]
            text, mine = f"{row['type']} {row['bloom'].decode('ascii', 'replace')}", _filter_text(own)
            texts.append(mine if text == mine or self._holds_all(index, own, row) else text)
        keys = file_keys([r["partition"] for r in found], [r["file_name"] for r in found]).to_pylist()
        return facts(keys, [""] * len(found), [str(r["file_name"]) for r in found], texts)

    def _holds_all(self, index: ExpressionIndex, results: FileResults, row: Mapping[str, Any]) -> bool:
        found = BloomFilter.from_text(row["bloom"], row["type"])
        file = (results.partition, results.name, results.size)
        texts = result_texts(self._snapshot.storage, file, index, self._snapshot.schema)
        return all(pc.all(found.might_contain(some.drop_null())).as_py() is not False for some in texts)

    def _optional_keys(self, index: ExpressionIndex) -> pa.Array:
        """The keys of files that are not the latest any more."""
        results = self._results.get(index.partition, [])
        return self._keys(index, [r for r in results if r.name not in self._latest.get(r.partition, ())])

    def _keys(self, index: ExpressionIndex, results: Collection[FileResults]) -> pa.Array:
        if not index.has_filters:
            return stats_of_results(index, list(results))["key"].combine_chunks().cast(pa.string())
        return file_keys([r.partition for r in results], [r.name for r in results])


def _filter_text(results: FileResults) -> str:
    return "" if results.bloom is None else f"{results.bloom.type_code} {results.bloom.to_text()}"


def _label(results: FileResults) -> str:
    return path_in(results.partition, results.name)
