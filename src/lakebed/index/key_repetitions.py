"""How many rows of an insert have a key that is stored another time: in the table, or by the same insert.

An insert looks no key up, which makes it cheap. Repeated keys are counted only where that costs little more: the key
ranges of files and row groups are compared with the smallest and the greatest new key, and the key columns that are
left are read where they have few keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Engine, Rows, count_rows
from lakebed.format.bloom import ChainedHashes
from lakebed.format.footer_cache import FOOTERS
from lakebed.format.hashes import plain_strings
from lakebed.format.key_order import KeyRange
from lakebed.index.base import Hashed, Index, Tagged
from lakebed.index.bloom.known_files import SearchOptions, ranges_of
from lakebed.index.bloom.slice_search import SliceSearch, key_batches
from lakebed.merge.key_table import KeyTable, key_codes
from lakebed.merge.locations import IsNotNull
from lakebed.model import FILE_ID, PARTITION_PATH, RECORD_KEY, FileSlice
from lakebed.schema.plain_arrow import as_numpy, gather
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map

Positions = npt.NDArray[np.int64]
# An insert reads so many stored keys for its count at most: a sixth of what a small insert costs.
_MAX_KEYS = 100_000
# So many bytes of log files take as long to read as a stored key.
_LOG_BYTES_A_KEY = 8
# The ranges of no more file slices are compared, and without `always` the keys of no more are read.
_MAX_SLICES = 200
_MAX_READ = 16
# On an engine with tasks: up to so many keys are collected.
_KEYS_HERE = 500_000


@dataclass(frozen=True, slots=True)
class AskedKeys:
    """New keys, and the file slices that would hold the keys that are stored already."""

    keys: pa.Array
    slices: Sequence[FileSlice]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file slice that may hold some keys of the part with number `part`, in these row groups of its base file. A
    search in it costs as much as reading `cost` stored keys."""

    part: int
    file_slice: FileSlice
    groups: Sequence[int]
    cost: int


@dataclass(frozen=True)
class KeyRepetitions:
    """A counter of the rows of one insert whose key is already stored or repeated. The count is None if it would cost
    much, unless `always` is set. With `combines` rows of one key and partition path are combined before they are
    written; with `new_groups_only` they replace the stored rows."""

    snapshot: Snapshot
    engine: Engine
    index: Index
    always: bool = False
    combines: bool = False
    new_groups_only: bool = False

    def of_rows(self, rows: Rows, count: int) -> int | None:
        """The number of repeated keys among `count` rows, for an index that looks keys up. None if counting costs
        much."""
        engine = self.engine
        keys = engine.derive(rows, {}, keep=[RECORD_KEY, PARTITION_PATH])
        if self.combines:
            keys = engine.distinct(keys)
        is_here = count <= _KEYS_HERE if engine.is_distributed else self.always or engine.has_at_hand(rows)
        if is_here:
            snapshot, is_global = self.snapshot, self.index.is_global
            has_rows = bool(snapshot.commits) and not self.new_groups_only
            stored_paths = set(snapshot.partitions()) if has_rows else set[str]()
            parts: list[AskedKeys] = []
            for path, texts in _parts(engine.collect(keys), [] if is_global else [PARTITION_PATH]):
                paths = stored_paths if is_global else {*path} & stored_paths
                parts.append(AskedKeys(texts, snapshot.file_slices(None if is_global else paths) if paths else ()))
            repeated = self._of_parts(parts)
            if repeated is not None:
                return repeated
        return self._looked_up(keys) if self.always else None

    def of_hashed(self, rows: Rows, placed: Hashed) -> int | None:
        """The number of repeated keys among rows with file group numbers; None if counting costs much. An existing
        bucket of a merge-on-read table merges each row with the stored row of its key."""
        engine = self.engine
        if not (self.always or engine.has_at_hand(rows)):
            return None
        keys = engine.collect(engine.derive(rows, {}, keep=[RECORD_KEY, PARTITION_PATH, GROUP]))
        merges = self.snapshot.config.table_type == "mor" and placed.several is None
        stored = placed.several or {group: (file_slice,) for group, file_slice in placed.existing.items()}
        parts: list[AskedKeys] = []
        again = 0
        for group, texts in _parts(keys, [PARTITION_PATH, GROUP]):
            slices = () if self.new_groups_only else stored.get(group, ())
            if slices and not merges:
                parts.append(AskedKeys(pc.unique(texts) if self.combines else texts, slices))
            elif not slices and texts.null_count:
                return None  # such rows are refused when they are written
            elif not slices and not self.combines:
                again += len(texts) - key_codes(texts)[1]
        counted = self._of_parts(parts)
        return None if counted is None else again + counted

    def _of_parts(self, parts: Sequence[AskedKeys]) -> int | None:
        has_nulls = any(part.keys.null_count for part in parts)  # such rows are refused when they are written
        if has_nulls or sum(len(part.slices) for part in parts) > _MAX_SLICES:
            return None
        candidates = self._candidates(parts)
        costs = [candidate.cost for candidate in candidates]
        if not self.always and (len(costs) > _MAX_READ or sum(costs) > _MAX_KEYS):
            return None
        tables = {number: KeyTable(parts[number].keys) for number in {candidate.part for candidate in candidates}}
        positions = parallel_map(
            lambda candidate: self._stored(candidate, parts[candidate.part].keys, tables[candidate.part]), candidates
        )
        stored = {number: np.zeros(len(parts[number].keys), np.bool_) for number in tables}
        for candidate, first_rows in zip(candidates, positions, strict=True):
            stored[candidate.part][first_rows] = True
        again = sum(len(part.keys) - key_codes(part.keys)[1] for part in parts)
        return again + sum(int(np.count_nonzero(flags)) for flags in stored.values())

    def _candidates(self, parts: Sequence[AskedKeys]) -> list[_Candidate]:
        """The slices whose key range overlaps the range of the keys that would be in them."""
        slices = [(number, file_slice) for number, part in enumerate(parts) for file_slice in part.slices]
        ranges = ranges_of(self.snapshot, [file_slice for _, file_slice in slices], self.engine, SearchOptions())
        new_keys = [KeyRange.of(part.keys) for part in parts]
        met = [
            (number, file_slice)
            for (number, file_slice), stored in zip(slices, ranges, strict=True)
            if stored is None or new_keys[number].meets(*stored)
        ]
        if len(met) > _MAX_READ and not self.always:  # too many in any case
            return [_Candidate(number, file_slice, (), 0) for number, file_slice in met]
        ends = {number: pc.min_max(parts[number].keys) for number in {number for number, _ in met}}
        candidates = (self._candidate(number, file_slice, ends[number]) for number, file_slice in met)
        return [candidate for candidate in candidates if candidate.cost]

    def _candidate(self, number: int, file_slice: FileSlice, ends: pa.StructScalar) -> _Candidate:
        base, cost, groups = file_slice.base_file, 0, list[int]()
        if base is not None:
            footer = FOOTERS.read(self.snapshot.storage, base.path, base.size)
            low, high = (ends[end].as_py().encode() for end in ("min", "max"))
            for group, span in enumerate(footer.ranges):
                if span is None or (span[0].encode() <= high and low <= span[1].encode()):
                    groups.append(group)
                    cost += footer.metadata.row_group(group).num_rows
        if self.snapshot.reader.is_merged(file_slice):
            cost += 1 + file_slice.log_bytes // _LOG_BYTES_A_KEY
        return _Candidate(number, file_slice, groups, cost)

    def _stored(self, candidate: _Candidate, keys: pa.Array, table: KeyTable) -> Positions:
        """The positions in `table` of those of the keys that the slice holds, one for each stored row; of a key that
        the table has several times the first position."""
        reader, file_slice = self.snapshot.reader, candidate.file_slice
        if reader.is_merged(file_slice):
            distinct = pc.unique(keys)
            answer = SliceSearch(reader).run(file_slice, ChainedHashes(distinct), np.arange(len(distinct)), None)
            batches = [answer.stored_keys]
        else:
            assert file_slice.base_file is not None
            batches = (texts for _, texts in key_batches(reader, file_slice.base_file, candidate.groups))
        positions = [table.find(texts) for texts in batches]
        return np.concatenate([np.empty(0, np.int64), *(hits[hits >= 0].astype(np.int64) for hits in positions)])

    def _looked_up(self, keys: Rows) -> int:
        """The number of these keys that the table holds, looked up by the index as in an upsert."""
        engine = self.engine
        names = [RECORD_KEY] if self.index.is_global else [RECORD_KEY, PARTITION_PATH]
        answer = self.index.for_existence_checks().place(keys, self.snapshot, engine)
        assert isinstance(answer, Tagged)
        with answer.released(engine) as rows:
            located = engine.derive(engine.filter(rows, IsNotNull(FILE_ID)), {}, keep=names)
            stored = count_rows(engine, engine.distinct(located))
        distinct = count_rows(engine, engine.distinct(engine.derive(keys, {}, keep=names)))
        return count_rows(engine, keys) - distinct + stored


def _parts(keys: pa.Table, by: Sequence[str]) -> Iterator[tuple[Any, pa.Array]]:
    """The record keys of each combination of the values of these columns."""
    texts = keys.select([RECORD_KEY])
    if not texts.num_rows:
        return
    codes = np.zeros(texts.num_rows, np.int64)
    values: list[list[Any]] = []
    for name in by:
        encoded = keys.column(name).combine_chunks().dictionary_encode()
        codes = codes * len(encoded.dictionary) + as_numpy(encoded.indices)
        values.append(encoded.dictionary.to_pylist())
    if not codes.any():
        yield tuple(column_values[0] for column_values in values), plain_strings(texts.column(0))
        return
    order = np.argsort(codes, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        code, combination = int(codes[part[0]]), list[Any]()
        for column_values in reversed(values):
            code, at = divmod(code, len(column_values))
            combination.insert(0, column_values[at])
        yield tuple(combination), plain_strings(gather(texts, part).column(0))
