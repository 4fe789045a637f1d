"""Rewriting a file group: old rows streamed by, winners put in their place, new rows behind them.

Rows that nobody touched keep their meta columns but the file name; rows that changed or are new get fresh ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Task
from lakebed.errors import InvalidRecord
from lakebed.format.base_file import Footer, read_base_file
from lakebed.format.parquet_encodings import DICTIONARY
from lakebed.handles.file_writer import FileFormat, FileWriter, with_meta
from lakebed.merge.incoming import Incoming
from lakebed.merge.meta_columns import constant, sequence_numbers
from lakebed.merge.rules import MergeRules
from lakebed.metadata.kinds.key_changes import KeyChanges
from lakebed.model import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY, BaseFile
from lakebed.schema.evolution import project
from lakebed.storage.base import Storage

# Meta columns with few different values: read and written as dictionaries, as are those the old file stores so.
DICTIONARY_META = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
# Rows that are read at a time only to see whether anything changes: the first of them mostly tell.
_PROBED_ROWS = 16_384
# Texts that are compared first to see whether a column changes.
_PROBED_TEXTS = 32
Positions = npt.NDArray[np.int64]
OnMatch = Literal["keys", "none", "skip", "fail"]
"""A stored row of the same key is: replaced by the merge rules; not looked for (duplicates stay); kept while the
incoming row is dropped; an error."""


@dataclass(slots=True)
class Counts:
    """What a merge did, row by row."""

    updates: int = 0
    deletes: int = 0
    inserts: int = 0
    unchanged: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """The rows of one old batch that incoming rows replace: positions in the batch and in the incoming rows."""

    stored: Positions
    incoming: Positions
    lost: int


@dataclass(slots=True)
class FileMerge:
    """One base file against one group's incoming rows."""

    storage: Storage
    base: BaseFile
    footer: Footer
    incoming: Incoming
    rules: MergeRules
    format: FileFormat
    instant: str
    task: Task
    on_match: OnMatch = "keys"
    encodings: Mapping[str, str] = field(default_factory=dict[str, str])
    counts: Counts = field(default_factory=Counts)
    _changes: KeyChanges | None = None
    _seen: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = np.zeros(self.incoming.rows, dtype=bool)

    def changes_anything(self) -> bool:
        """Whether any incoming row will change the file, told from key and ordering columns alone.

        Costs nothing when that is certain; otherwise reads those columns until the first change is met.
        """
        if self.incoming.alive and (self.on_match == "none" or (self.on_match == "keys" and not self.rules.ordering)):
            return True
        seen = np.zeros(self.incoming.rows, dtype=bool)
        for batch in self._read([RECORD_KEY, *self.rules.ordering]):
            positions = self._positions(batch)
            if self.on_match == "keys" and len(self._winners(batch, positions).stored):
                return True
            seen[positions[positions >= 0]] = True
            self._refuse_known(seen)
        return bool((~seen & ~self.incoming.deletes).any())

    def run(self, writer: FileWriter) -> None:
        """Write the merged old rows."""
        self._changes = writer.changes
        for batch in self._read(None):
            stored = self._as_stored(batch)
            match = self._match(stored)
            self.counts.unchanged += match.lost
            writer.write(self._replace(stored, match), new_keys=stored.column(RECORD_KEY).slice(0, 0))

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The incoming rows that are not in the file after `run`, in the file's schema, to be added."""
        fresh = np.flatnonzero(~self._seen & ~self.incoming.deletes)
        self.counts.inserts += len(fresh)
        for keys, data in self.incoming.batches(fresh):
            yield with_meta(data, keys, self.format, self.instant, self.base.partition, self.task)

    def _read(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Whole rows in few, large batches, since each costs a hash table of all incoming keys; others by few rows."""
        whole = columns is None
        return read_base_file(
            self.storage,
            self.base.path,
            self.base.size,
            columns,
            batch_rows=self.incoming.batch_rows if whole else _PROBED_ROWS,
            dictionary=self._dictionaries if whole else (),
            footer=self.footer,
        )

    @property
    def _dictionaries(self) -> tuple[str, ...]:
        texts = {f.name for f in self.data_schema if pa.types.is_string(f.type)}
        return *DICTIONARY_META, *(n for n, how in self.encodings.items() if how == DICTIONARY and n in texts)

    def _as_stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The old rows in the table's columns and types of today, dictionaries kept; meta columns as they are."""
        kinds = {f.name: f.type for f in batch.schema if pa.types.is_dictionary(f.type)}
        data = project(batch, pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in self.data_schema]))
        meta = [batch.column(name) for name in META_COLUMNS]
        return pa.RecordBatch.from_arrays([*meta, *data.columns], names=[*META_COLUMNS, *data.schema.names])

    @property
    def data_schema(self) -> pa.Schema:
        return pa.schema([f for f in self.format.schema if f.name not in META_COLUMNS])

    def _positions(self, batch: pa.RecordBatch, start: int = 0, end: int | None = None) -> Positions:
        """For each old row the incoming row (of a part of them) with its key, -1 for none."""
        found = pc.index_in(batch.column(RECORD_KEY), value_set=self.incoming.keys[start:end])
        positions = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return np.where(positions < 0, -1, positions + start) if start else positions

    def _match(self, batch: pa.RecordBatch, start: int = 0, end: int | None = None) -> Match:
        if self.on_match == "none":
            return _NO_MATCH
        positions = self._positions(batch, start, end)
        if self.on_match == "keys":
            return self._winners(batch, positions)
        known = positions[positions >= 0]
        self._seen[known] = True
        return Match(_NO_MATCH.stored, _NO_MATCH.incoming, len(known))

    def _refuse_known(self, seen: npt.NDArray[np.bool_]) -> None:
        if self.on_match == "fail" and seen.any():
            key = self.incoming.keys[int(np.argmax(seen))].as_py()
            raise InvalidRecord(
                f"record key {key!r} is in the table already (partition {self.base.partition!r})",
                hint="upsert it, or insert with drop_duplicates to leave known keys out",
                context={"record_key": key, "partition": self.base.partition},
            )

    def _winners(self, batch: pa.RecordBatch, positions: Positions) -> Match:
        stored = np.flatnonzero(positions >= 0)
        incoming = positions[stored]
        self._seen[incoming] = True
        if not len(stored) or not self.rules.ordering:
            return Match(stored, incoming, 0)
        forced = self.incoming.forced[incoming]
        if forced.all():
            return Match(stored, incoming, 0)
        fields = [f for f in self.rules.ordering if f in self.incoming.columns]
        new = self.incoming.take(incoming, fields)
        old = batch.select(fields).take(pa.array(stored))
        wins = self.rules.incoming_wins(new, old)
        assert wins is not None
        kept = wins.to_numpy(zero_copy_only=False) | forced
        return Match(stored[kept], incoming[kept], int((~kept).sum()))

    def _replace(self, batch: pa.RecordBatch, match: Match) -> pa.RecordBatch:
        """The old batch with winners in place and deleted rows gone."""
        if not len(match.stored):
            return batch
        gone = self.incoming.deletes[match.incoming]
        self.counts.deletes += int(gone.sum())
        at, source = match.stored[~gone], match.incoming[~gone]
        self.counts.updates += len(at)
        if len(at):
            before, batch = batch, self._updated(batch, at, source)
            self._tell_updated(before, batch, at)
        if not gone.any():
            return batch
        if self._changes is not None:
            self._changes.removed(self._told_columns(batch).take(pa.array(match.stored[gone])))
        keep = np.ones(batch.num_rows, dtype=bool)
        keep[match.stored[gone]] = False
        return batch.filter(pa.array(keep))

    def _tell_updated(self, before: pa.RecordBatch, after: pa.RecordBatch, at: Positions) -> None:
        if self._changes is not None and self._changes.fields:
            rows = pa.array(at)
            sides = [self._told_columns(batch).take(rows) for batch in (before, after)]
            self._changes.updated(*sides)

    def _told_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self._changes is not None
        return batch.select([name for name in self._changes.columns if name in batch.schema.names])

    def _updated(self, batch: pa.RecordBatch, at: Positions, source: Positions) -> pa.RecordBatch:
        order = np.arange(batch.num_rows)
        order[at] = batch.num_rows + np.arange(len(at))
        places = pa.array(order)
        rows = self.incoming.take(source)
        fresh = {
            COMMIT_TIME: constant(self.instant, len(at)),
            COMMIT_SEQNO: sequence_numbers(self.instant, self.task, len(at)),
        }
        columns: list[pa.Array] = []
        for field_ in batch.schema:
            name = field_.name
            old = batch.column(name)
            if name in (RECORD_KEY, PARTITION_PATH, FILE_NAME):
                columns.append(old)
            else:
                columns.append(put(old, at, places, fresh[name] if name in fresh else rows.column(name)))
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


_NO_MATCH = Match(np.array([], dtype=np.int64), np.array([], dtype=np.int64), 0)


def put(old: pa.Array, at: Positions, places: pa.Array, new: pa.Array) -> pa.Array:
    """`old` with its rows `at` replaced by `new`, in order; `places` are the result's rows in `old` followed by `new`.

    One take of both together: a third of what Arrow's `replace_with_mask` costs on texts, and good for every type.
    Numbers are set in a copy, and a text column that does not change, as the key's, is not copied at all.
    """
    if pa.types.is_dictionary(old.type):
        return _put_dictionary(old, at, new if pa.types.is_dictionary(new.type) else new.dictionary_encode())
    if pa.types.is_dictionary(new.type):
        new = new.dictionary_decode()
    if not old.null_count and not new.null_count and new.type.equals(old.type):
        if pa.types.is_primitive(old.type) and not pa.types.is_boolean(old.type):
            return _put_numbers(old, at, new)
        if pa.types.is_string(old.type) and _is_same(old, at, new):
            return old
    return pa.concat_arrays([old, new]).take(places)


def _put_numbers(old: pa.Array, at: Positions, new: pa.Array) -> pa.Array:
    plain = f"u{old.type.bit_width // 8}"
    width = np.dtype(plain).itemsize
    values = np.frombuffer(old.buffers()[1], plain, len(old), old.offset * width).copy()
    values[at] = np.frombuffer(new.buffers()[1], plain, len(new), new.offset * width)
    return pa.Array.from_buffers(old.type, len(values), [None, pa.py_buffer(values)])


def _is_same(old: pa.Array, at: Positions, new: pa.Array) -> bool:
    """Whether the rows `at` have the values already; a few of them mostly tell."""
    few = min(len(at), _PROBED_TEXTS)
    return old.take(pa.array(at[:few])).equals(new.slice(0, few)) and old.take(pa.array(at)).equals(new)


def _put_dictionary(old: pa.DictionaryArray, at: Positions, new: pa.DictionaryArray) -> pa.DictionaryArray:
    both = pa.chunked_array([old.cast(new.type), new]).unify_dictionaries()
    codes, others = (pc.fill_null(chunk.indices, -1).to_numpy(zero_copy_only=False) for chunk in both.chunks)
    codes = codes.copy()
    codes[at] = others
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), both.chunk(0).dictionary)
