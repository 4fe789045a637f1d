"""Data skipping: which file slices a filter cannot touch, by column statistics, partition statistics, bloom filters,
secondary and expression indexes of the metadata table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.expressions.index_functions import slice_of
from lakebed.expressions.time_patterns import DEFAULT_PATTERN
from lakebed.filters.predicates import (
    Call,
    Column,
    Compare,
    In,
    IsNull,
    IsTrue,
    Like,
    Literal,
    Predicate,
    Value,
    conjuncts,
    walk,
)
from lakebed.filters.ranges import Bools, Bounds, Path, may_match
from lakebed.format.bloom import BloomFilter
from lakebed.metadata_records.definitions import RANGES_OPTION, IndexDefinition
from lakebed.metadata_records.layout import BLOOM_FILTERS, COLUMN_STATS, EXPRESSION_INDEX, PARTITION_STATS
from lakebed.model import META_COLUMNS, SECONDARY_INDEX, FileSlice
from lakebed.read.keys import IndexedKeys, demanded_keys, demanded_values, find_keys, usable_record_index
from lakebed.read.prune import MAX_KEYS, slices_without
from lakebed.read.statistics import (
    bounds_of_expression,
    bounds_of_files,
    bounds_of_partitions,
    can_bound,
    of_slices,
    written_by_lakebed,
)
from lakebed.sharing import once
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot, metadata_damage_named

_TRIMS = ("trim", "ltrim", "rtrim")
_CALENDAR = ("year", "month", "day", "hour")
# No zone moves a time by more than a day.
_YEAR_SLACK = 1


@dataclass(frozen=True)
class IndexedCall:
    """A function call in a filter, and the index of its results. `zone` is the time zone that the filter means, None if
    the results do not depend on one."""

    call: Call
    index: str
    column: str
    zone: str | None = None


@dataclass(frozen=True)
class _Meaning:
    """A function of a column, by Hudi's name, with its options in a common form."""

    function: str
    options: tuple[Any, ...]
    column: str
    zone: str | None = None


def indexed_calls(metadata: MetadataLookups, calls: Sequence[Call], kind: str) -> Iterator[IndexedCall]:
    """The calls for whose results there is an expression index of this kind (`column_stats`, `bloom_filters`)."""
    for name in metadata.slices.partitions:
        definition = metadata.slices.definitions.get(name) if name.startswith(EXPRESSION_INDEX) else None
        if definition is None or definition.type != kind or len(definition.source_fields) != 1:
            continue
        indexed_meaning = _of_definition(definition)
        for call in calls:
            call_meaning = _of_call(call)
            if call_meaning is None or indexed_meaning is None:
                continue
            if (call_meaning.function, call_meaning.options, call_meaning.column) == (
                indexed_meaning.function,
                indexed_meaning.options,
                indexed_meaning.column,
            ):
                yield IndexedCall(call, name, indexed_meaning.column, call_meaning.zone)


def bounds_of_results(
    snapshot: Snapshot, metadata: MetadataLookups, indexed: IndexedCall, names: pa.Array, instants: Sequence[str]
) -> Bounds:
    """The bounds of the function's results in each file, from the index. If its results are of another or an unknown
    time zone, the bounds are wider for years, and unknown for other functions."""
    kind = indexed.call.type
    files, _ = metadata.expression_stats(indexed.index, {indexed.column: kind})
    bounds = bounds_of_expression(files.get(indexed.column), names, kind)
    if indexed.call.name == "unix_timestamp":
        # lakebed once noted -1 for parts of a second before 1970, where Spark has 0, and so before that
        lower = pc.fill_null(pc.less(bounds.high, 0), False)
        bounds = replace(bounds, high=pc.if_else(lower, pc.add(bounds.high, 1), bounds.high))
    is_in_zone = in_its_zone(snapshot, indexed, instants)
    if is_in_zone.all():
        return bounds
    low, high = pa.nulls(len(names), kind), pa.nulls(len(names), kind)
    if indexed.call.name == "year":
        low, high = (pc.add(bounds.low, -_YEAR_SLACK).cast(kind), pc.add(bounds.high, _YEAR_SLACK).cast(kind))
    flags = pa.array(is_in_zone)
    return Bounds(
        pc.if_else(flags, bounds.low, low), pc.if_else(flags, bounds.high, high), bounds.may_hold, bounds.may_null
    )


def in_its_zone(snapshot: Snapshot, indexed: IndexedCall, instants: Sequence[str]) -> Bools:
    """Flags of the instants for whose files the index has results in the time zone that the filter means."""
    if indexed.zone is None:
        return np.ones(len(instants), np.bool_)
    from lakebed.metadata_kinds.expression_results import created_at, is_same_zone, zone_notes

    note = zone_notes(snapshot.config.properties).get(indexed.index)
    usable = note is not None and is_same_zone(note.zone, indexed.zone)
    if note is None or not usable or created_at(snapshot.storage, indexed.index) != note.created:
        return np.zeros(len(instants), np.bool_)
    built = np.array([instant <= note.built for instant in instants], np.bool_)
    return built | written_by_lakebed(snapshot.timeline, instants)


def demanded_results(predicate: Predicate) -> dict[Call, pa.Array]:
    """The results of functions that the filter requires, by call: the texts (of whole numbers: their digits) of which
    the call must return one for the filter to be true."""
    results: dict[Call, pa.Array] = {}
    for node in conjuncts(predicate.root):
        match node:
            case Compare(Call() as call, "=" | "<=>", Literal(value)) if _has_texts(call) and value is not None:
                results[call] = _texts(call, [value])
            case In(Call() as call, values) if _has_texts(call):
                results[call] = _texts(call, [v.value for v in values if v.value is not None])
            case _:
                pass
    return results


def _texts(call: Call, results: Sequence[Any]) -> pa.Array:
    texts = [str(result) for result in results]
    if call.name == "unix_timestamp":  # as in `bounds_of_results`
        texts += [str(result - 1) for result in results if result <= 0]
    return pa.array(texts, pa.string())


def _has_texts(call: Call) -> bool:
    return pa.types.is_string(call.type) or pa.types.is_integer(call.type)


def _of_call(call: Call) -> _Meaning | None:
    """The indexed function that a call of a filter means; None if no index can have such results."""
    name, options, inner = call.name, call.options, call.args[0] if len(call.args) == 1 else None
    zone: str | None = None
    if name == "from_unixtime":
        options, zone = options[:1], options[1]
    elif name == "date_of":
        name, options, zone = "to_date", (), options[0] if options else None
    elif name == "date_add" and isinstance(inner, Call) and inner.name == "date_of" and len(inner.args) == 1:
        zone, inner = (inner.options[0] if inner.options else None), inner.args[0]
    elif name == "substring":
        start, size = options
        options = (start, start + size)
    if isinstance(inner, Call) and inner.name == "local" and (name in _CALENDAR or name == "date_format"):
        zone, inner = inner.options[0], inner.args[0]
    return _Meaning(name, options, ".".join(inner.path), zone) if isinstance(inner, Column) else None


def _of_definition(definition: IndexDefinition) -> _Meaning | None:
    function, options = definition.function, definition.options
    column = definition.source_fields[0]
    try:
        return _Meaning(*_in_one_form(function, options), column)
    except (KeyError, ValueError):
        return None


def _in_one_form(function: str, options: Mapping[str, str]) -> tuple[str, tuple[Any, ...]]:
    """A function of an expression index as a filter names it: the function's name and the tuple of its further
    arguments. Raises `ValueError` for a format that the filter's function does not take."""
    if function in _TRIMS:
        return function, (options.get("trimString", " "),)
    if function == "substring":
        return function, slice_of(int(options["pos"]), int(options["len"]))
    if function == "date_format":
        return function, (options["format"],)
    if function == "from_unixtime":
        return function, (options.get("format", DEFAULT_PATTERN),)
    if function in ("date_add", "date_sub"):
        return "date_add", (int(options["days"]) * (1 if function == "date_add" else -1),)
    if "format" in options:
        raise ValueError(function)
    return function, ()


# An index that leaves no more than this is not followed by others, which cost requests too.
_MAX_SLICES = 4
# Up to so many partition paths are asked for one by one.
_MAX_PARTITIONS = 32
# Bloom filters are large: they are asked about the last candidates.
_MAX_FILTERS = 64
_MAX_KEYS = 10_000


def skip_slices(
    snapshot: Snapshot, predicate: Predicate, slices: Sequence[FileSlice], available: pa.Schema, *, log_files: bool
) -> tuple[list[FileSlice], dict[str, list[FileSlice]]]:
    """The slices that may have matching rows, and the others by the index that ruled them out, in the order in which
    the indexes were asked.

    `log_files`: whether rows come from log files too (a snapshot query) or from base files alone. All slices are given
    where an index is being dropped or built by another process just now.
    """
    metadata = snapshot.metadata
    if metadata is None or not slices:
        return list(slices), {}
    with metadata_damage_named(snapshot.storage):
        skipping = _Skipping(snapshot, metadata, predicate, available, log_files)
        try:
            return skipping.run(list(slices)), skipping.pruned
        except (CorruptFile, FileNotFoundError):
            if metadata.slices.has_other_partitions():
                return list(slices), {}
            raise


class _Skipping:
    def __init__(
        self, snapshot: Snapshot, metadata: MetadataLookups, predicate: Predicate, available: pa.Schema, log_files: bool
    ) -> None:
        self.snapshot = snapshot
        self.metadata = metadata
        self.predicate = predicate
        self.available = available
        self.log_files = log_files
        self.pruned: dict[str, list[FileSlice]] = {}

    def run(self, slices: list[FileSlice]) -> list[FileSlice]:
        by_key = self._by_keys(slices)
        remaining = slices if by_key is None else by_key
        if len(remaining) > _MAX_SLICES:
            remaining = self._by_partition_stats(remaining)
        if len(remaining) > 1 and (by_key is None or len(remaining) > _MAX_SLICES):
            calls = list(dict.fromkeys([value for value in self._values if isinstance(value, Call)]))
            remaining = self._by_statistics(remaining, calls)
            remaining = self._by_expression_filters(remaining) if calls else remaining
            if by_key is None and self._keys is not None and self.metadata.has(BLOOM_FILTERS):
                remaining = self._by_bloom_filters(remaining, self._keys)
        return remaining

    @once
    def _values(self) -> list[Value]:
        """All values that the conditions of the filter compare, outer ones first."""
        values: list[Value] = []
        waiting: list[Value] = []
        for node in walk(self.predicate.root):
            match node:
                case Compare(left, _, right):
                    waiting += [left, right]
                case In(value) | IsNull(value) | IsTrue(value) | Like(value):
                    waiting.append(value)
                case _:
                    pass
        while waiting:
            value = waiting.pop()
            values.append(value)
            if isinstance(value, Call):
                waiting += value.args
        return values

    def _note(self, reason: str, before: list[FileSlice], after: list[FileSlice]) -> list[FileSlice]:
        self.pruned.setdefault(reason, []).extend(slices_without(before, after))
        return after

    # -- indexes of keys

    @once
    def _keys(self) -> pa.Array | None:
        return demanded_keys(self.predicate, self.snapshot.config, self.available)

    def _by_keys(self, slices: list[FileSlice]) -> list[FileSlice] | None:
        """The slices that may have matching rows by the record index or a secondary index; None if neither can
        answer."""
        if self._keys is not None:
            return self._in_groups(slices, find_keys(self.snapshot, self._keys), "record index")
        for name, keys in self._keys_of_secondaries():
            indexed_keys = find_keys(self.snapshot, keys)
            remaining = self._in_groups(slices, indexed_keys, f"secondary index {name.removeprefix(SECONDARY_INDEX)}")
            if remaining is not None:
                return remaining
        return None

    def _in_groups(
        self, slices: list[FileSlice], indexed_keys: IndexedKeys | None, reason: str
    ) -> list[FileSlice] | None:
        if indexed_keys is None or indexed_keys.slices(self.snapshot) is None:
            return None
        groups = indexed_keys.groups
        return self._note(reason, slices, [s for s in slices if (s.partition, s.file_id) in groups])

    def _keys_of_secondaries(self) -> Iterator[tuple[str, pa.Array]]:
        for name in self.metadata.slices.partitions:
            definition = self.metadata.slices.definitions.get(name) if name.startswith(SECONDARY_INDEX) else None
            column = definition.source_fields[0] if definition and definition.source_fields else ""
            if column not in self.available.names:
                continue
            values = demanded_values(self.predicate, column, self.available.field(column).type)
            if values is None or usable_record_index(self.snapshot) is None:
                continue
            if not self.metadata.slices.file_slices(name):
                continue  # just being taken away
            keys = pc.unique(self.metadata.record_keys_of_secondary(name, values)["record_key"].cast(pa.string()))
            if len(keys) <= MAX_KEYS:
                yield name, keys

    def _by_bloom_filters(self, slices: list[FileSlice], keys: pa.Array) -> list[FileSlice]:
        if len(slices) > _MAX_FILTERS or len(keys) > _MAX_KEYS:
            return slices
        files = self._base_files(slices)
        remaining = self._may_contain(slices, self.metadata.bloom_filters(files), keys)
        return self._note("bloom filters", slices, remaining)

    def _by_expression_filters(self, slices: list[FileSlice]) -> list[FileSlice]:
        results = demanded_results(self.predicate)
        for indexed in indexed_calls(self.metadata, list(results), BLOOM_FILTERS):
            if not 1 < len(slices) <= _MAX_FILTERS:
                break
            based = [s for s in slices if s.base_file is not None]
            is_in_zone = in_its_zone(self.snapshot, indexed, [s.base_file.instant for s in based if s.base_file])
            current = [s for s, flag in zip(based, is_in_zone.tolist(), strict=True) if flag]
            if not current:
                continue
            filters = self.metadata.expression_bloom_filters(indexed.index, self._base_files(current))
            remaining = self._may_contain(slices, filters, results[indexed.call])
            slices = self._note(f"expression index {indexed.index.removeprefix(EXPRESSION_INDEX)}", slices, remaining)
        return slices

    def _base_files(self, slices: Sequence[FileSlice]) -> list[tuple[str, str]]:
        return [(s.partition, s.base_file.name) for s in slices if s.base_file is not None]

    def _may_contain(self, slices: list[FileSlice], filters: pa.Table, texts: pa.Array) -> list[FileSlice]:
        """The slices without a bloom filter that rejects every text; a log file has no filter."""
        without: set[tuple[str, str]] = set()
        for row in filters.select(["partition", "file_name", "type", "bloom"]).to_pylist():
            bloom = BloomFilter.from_text(row["bloom"], row["type"], path=f"{row['partition']}/{row['file_name']}")
            if not pc.any(bloom.might_contain(texts)).as_py():
                without.add((row["partition"], row["file_name"]))
        return [
            s
            for s in slices
            if s.base_file is None or (s.log_files and self.log_files) or (s.partition, s.base_file.name) not in without
        ]

    # -- statistics

    @once
    def _statistics(self) -> StatisticsIndex:
        return StatisticsIndex.of(self.snapshot, self.metadata)

    @once
    def _columns(self) -> Mapping[Path, pa.DataType]:
        """The columns of the filter whose statistics are useful, with their types."""
        types = {value.path: value.type for value in self._values if isinstance(value, Column)}
        names = self._statistics.columns
        if self.snapshot.history is not None:
            # files are matched by column ids there, statistics have the names of their time
            types = {path: kind for path, kind in types.items() if path[0] in META_COLUMNS}
        return {
            path: kind
            for path, kind in types.items()
            if (names is None or ".".join(path) in names)
            and can_bound(kind, version=self._statistics.version, exact=self._statistics.has_exact_ranges)
        }

    def _types(self) -> dict[str, pa.DataType]:
        return {".".join(path): kind for path, kind in self._columns.items()}

    def _by_partition_stats(self, slices: list[FileSlice]) -> list[FileSlice]:
        """The slices in partitions that may have matching rows: these statistics are only of the newest state."""
        partitions = list(dict.fromkeys(s.partition for s in slices))
        if len(partitions) < 2 or not self._columns or not self.metadata.has(PARTITION_STATS):
            return slices
        if self.snapshot.config.base_format != "PARQUET":  # real Hudi takes the statistics of log files alone
            return slices
        if not self.snapshot.is_latest or any(map(self._is_merged_unknown, slices)):
            return slices
        types = self._types()
        stats = self.metadata.partition_stats(list(types), types)
        names = pa.array(partitions, pa.string())
        logs = self.snapshot.config.table_type == "mor"
        bounds = {
            path: bounds_of_partitions(
                stats.get(".".join(path)), names, kind, version=self._statistics.version, log_files=logs
            )
            for path, kind in self._columns.items()
        }
        flags = may_match(self.predicate.root, bounds, len(partitions))
        matching = {p for p, flag in zip(partitions, flags.tolist(), strict=True) if flag}
        return self._note("partition statistics", slices, [s for s in slices if s.partition in matching])

    def _by_statistics(self, slices: list[FileSlice], calls: Sequence[Call]) -> list[FileSlice]:
        """The slices that may have matching rows by the ranges of columns, and of `calls` that have an index."""
        files = _Files.of(slices, log_files=self.log_files)
        remaining = np.ones(len(slices), np.bool_)
        unknown = np.array([self._is_merged_unknown(s) for s in slices], np.bool_)
        bounds = self._bounds_of_columns(slices, files)
        results: dict[Call, Bounds] = {}

        def prune(reason: str) -> None:
            nonlocal remaining
            matching = remaining & (unknown | may_match(self.predicate.root, bounds, len(slices), results.get))
            self.pruned.setdefault(reason, []).extend(
                [slices[at] for at in np.flatnonzero(remaining & ~matching).tolist()]
            )
            remaining = matching

        if bounds:
            prune("column statistics")
        for indexed in indexed_calls(self.metadata, calls, COLUMN_STATS) if calls else ():
            results[indexed.call] = files.joined(
                bounds_of_results(self.snapshot, self.metadata, indexed, files.names, files.instants)
            )
            prune(f"expression index {indexed.index.removeprefix(EXPRESSION_INDEX)}")
        return [slices[at] for at in np.flatnonzero(remaining).tolist()]

    def _bounds_of_columns(self, slices: Sequence[FileSlice], files: _Files) -> dict[Path, Bounds]:
        if not self._columns or not self.metadata.has(COLUMN_STATS):
            return {}
        types = self._types()
        partitions = {s.partition for s in slices}
        few = partitions if len(partitions) <= _MAX_PARTITIONS else None
        stats = self.metadata.column_stats(list(types), few, types)
        bounds: dict[Path, Bounds] = {}
        for path, kind in self._columns.items():
            exact = np.zeros(len(files.names), np.bool_)
            if self._statistics.has_exact_ranges and pa.types.is_floating(kind):
                exact = written_by_lakebed(self.snapshot.timeline, files.instants)
            bounds[path] = files.joined(bounds_of_files(stats.get(".".join(path)), files.names, exact, kind))
        return bounds

    def _is_merged_unknown(self, file_slice: FileSlice) -> bool:
        """Whether a merge rule that lakebed does not know may create values in rows that no file has."""
        return self.log_files and bool(file_slice.log_files) and self.snapshot.config.merge_mode == "custom"


@dataclass(frozen=True)
class _Files:
    """The files of slices: names, instants, and the slice of each."""

    names: pa.Array
    instants: list[str]
    owner: npt.NDArray[np.int64]
    slices: int

    @classmethod
    def of(cls, slices: Sequence[FileSlice], *, log_files: bool) -> _Files:
        files = [
            (number, file.name, file.instant)
            for number, file_slice in enumerate(slices)
            for file in (file_slice.base_file, *(file_slice.log_files if log_files else ()))
            if file is not None
        ]
        owners, names, instants = zip(*files, strict=True) if files else ((), (), ())
        return cls(pa.array(names, pa.string()), list(instants), np.array(owners, np.int64), len(slices))

    def joined(self, bounds: Bounds) -> Bounds:
        """The bounds of the slices."""
        if len(self.owner) == self.slices and (self.owner == np.arange(self.slices)).all():
            return bounds
        return of_slices(bounds, self.owner, self.slices)


@dataclass(frozen=True, slots=True)
class StatisticsIndex:
    """The index of column statistics: the `columns` that have them (None: not recorded), the version of the index, and
    whether the ranges that lakebed wrote into it can be relied on for floating columns."""

    columns: frozenset[str] | None
    version: int
    has_exact_ranges: bool

    @classmethod
    def of(cls, snapshot: Snapshot, metadata: MetadataLookups) -> StatisticsIndex:
        """The index of a table, by its definition; one that has none is of the table's time."""
        definition = metadata.slices.definitions.get(COLUMN_STATS)
        if definition is None:
            return cls(None, 2 if snapshot.config.version >= 9 else 1, False)
        columns = frozenset(definition.source_fields) if definition.source_fields else None
        return cls(columns, definition.version, RANGES_OPTION in definition.options)
