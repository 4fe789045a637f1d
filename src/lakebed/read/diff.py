"""The difference between two states of a table: the rows that were inserted, updated and deleted between them.

Only file groups whose files differ are read. Rows are compared by their values, so commits that moved rows, or wrote
them again with the same values, leave no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.config.settings import ReadSettings
from lakebed.merge.row_differences import values_differ
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice, has_completion_times
from lakebed.read.scan import Frames, Scan, SliceScan
from lakebed.schema.plain_arrow import as_numpy, one_array
from lakebed.sharing import once
from lakebed.slices.snapshot import Snapshot
from lakebed.wording import Printed, marked_pair, rows_html

_PREVIEWED = 20
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class DiffSummary(Printed):
    """How many rows were inserted, updated and deleted, and how many updates changed each column."""

    inserted: int
    updated: int
    deleted: int
    changed: Mapping[str, int]

    def __str__(self) -> str:
        columns = ", ".join(f"{name} {count:,}" for name, count in self.changed.items())
        updated = f"{self.updated:,} updated" + (f" ({columns})" if columns else "")
        return f"{self.inserted:,} inserted, {updated}, {self.deleted:,} deleted"


class Diff(Frames):
    """The rows that differ between two states of a table. Prints as a summary and the first rows; nothing is read
    before.

    A row is the row of one key in one partition path: a row that moved to another path is deleted there and inserted
    here. Values are equal if they are stored as the same value: NaN equals NaN.
    """

    def __init__(
        self, before: Snapshot, after: Snapshot, columns: Sequence[str] | None = None, reads: ReadSettings | None = None
    ) -> None:
        self._before, self._after = before, after
        self._columns, self._reads = columns, reads or ReadSettings()
        scan = Scan(after, columns, reads=self._reads)
        self._names = scan.schema.names
        _ = scan.plan  # a column that the table lacks raises now

    @once
    def _rows(self) -> pa.Table:
        before, after = _sides(self._before, self._after, self._names, self._reads)
        stored, new, deleted, inserted = _matched(before, after, _identity(self._after))
        before, after = before.select(self._names), after.select(self._names)
        old, now = before.take(pa.array(stored)), after.take(pa.array(new))
        differing = {name: _changed(old[name], now[name]) for name in self._names}
        updated = np.flatnonzero(reduce(np.logical_or, differing.values(), np.zeros(len(stored), bool)))
        names = _names_of({name: flags[updated] for name, flags in differing.items()}, len(updated))
        parts = (
            _part("insert", None, after.take(pa.array(inserted)), None),
            _part("update", old.take(pa.array(updated)), now.take(pa.array(updated)), names),
            _part("delete", before.take(pa.array(deleted)), None, None),
        )
        return pa.concat_tables(parts)

    def to_arrow(self) -> pa.Table:
        """A table with the columns change ("insert", "update", "delete"), changed (the names of the columns that an
        update changed), and before and after as structs of the table's columns, null where there is no row.

        The rows of the file groups that differ are held in memory, in both states.
        """
        return self._rows

    @property
    def summary(self) -> DiffSummary:
        """The numbers of rows by change, and of updates that changed each column, the most frequent first."""
        counts = {entry["values"]: entry["counts"] for entry in self._rows["change"].value_counts().to_pylist()}
        columns = self._rows["changed"].combine_chunks().flatten().value_counts().to_pylist()
        changed = {entry["values"]: entry["counts"] for entry in sorted(columns, key=lambda e: -e["counts"])}
        return DiffSummary(counts.get("insert", 0), counts.get("update", 0), counts.get("delete", 0), changed)

    def __len__(self) -> int:
        return self._rows.num_rows

    def __repr__(self) -> str:
        head = self._rows.slice(0, _PREVIEWED)
        lines = [f"{row['change']:6}  {_text(row)}" for row in head.to_pylist()]
        more = len(self) - len(lines)
        return "\n".join([str(self.summary), *lines, *([f"and {more:,} more; to_arrow() has all"] if more else [])])

    def _repr_html_(self) -> str:
        head = self._rows.slice(0, _PREVIEWED)
        cells = (
            [
                row["change"],
                ", ".join(row["changed"] or ()),
                *marked_pair(row["before"], row["after"], row["changed"] or ()),
            ]
            for row in head.to_pylist()
        )
        return f"<p>{self.summary}</p>" + rows_html(head.column_names, cells)


def _text(row: Mapping[str, Any]) -> str:
    if row["change"] != "update":
        return str(row["after"] or row["before"])
    return ", ".join(f"{name}: {row['before'][name]!r} -> {row['after'][name]!r}" for name in row["changed"])


def _identity(view: Snapshot) -> tuple[str, ...]:
    """The columns that say which row a row is."""
    config = view.config
    if config.populate_meta_fields:
        return (PARTITION_PATH, RECORD_KEY)
    return (*config.key_fields, *config.partition_fields)


def _sides(before: Snapshot, after: Snapshot, names: Sequence[str], reads: ReadSettings) -> tuple[pa.Table, pa.Table]:
    """The rows of both states in the file groups that differ, with the columns of the later one."""
    old, new = ({_content(view, s): s for s in view.file_slices()} for view in (before, after))
    columns = list(dict.fromkeys((*_identity(after), *names)))
    sides = (
        SliceScan(
            view, [s for files, s in slices.items() if files not in others], after, columns, reads=reads
        ).to_arrow()
        for view, slices, others in ((before, old, new), (after, new, old))
    )
    return next(sides), next(sides)


def _content(view: Snapshot, file_slice: FileSlice) -> tuple[str, ...]:
    """What two file slices with the same rows have in common: all their files. Before version 8 a view decides by the
    blocks of a log file what it shows of it, so slices with log files are equal in one view alone."""
    files = [file.path for file in file_slice.files]
    hidden = file_slice.log_files and not has_completion_times(view.config.version)
    return (file_slice.partition, file_slice.file_id, *files, *([view.instant] if hidden else []))


def _matched(before: pa.Table, after: pa.Table, identity: Sequence[str]) -> tuple[Codes, Codes, Codes, Codes]:
    """The positions of the rows that are in both states, in each of them, and of those that are in one alone: in the
    earlier and in the later one. Of several rows of a key the first ones match, then the second ones."""
    keys = pa.concat_tables([before.select(identity), after.select(identity)])
    codes = np.zeros(keys.num_rows, np.int64)
    for name in identity:
        column = one_array(keys[name])
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + as_numpy(encoded.indices).astype(np.int64)
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)  # stays below the number of rows
    sides = codes[: before.num_rows], codes[before.num_rows :]
    copies = [_number_of_copy(side) for side in sides]
    copies_of_a_key = 1 + max((int(copy.max()) for copy in copies if len(copy)), default=0)
    ids = [side * copies_of_a_key + copy for side, copy in zip(sides, copies, strict=True)]
    _, stored, new = np.intersect1d(*ids, assume_unique=True, return_indices=True)
    order = np.argsort(new)
    stored, new = stored[order], new[order]
    left = (np.setdiff1d(np.arange(len(side)), matched) for side, matched in zip(ids, (stored, new), strict=True))
    return stored, new, next(left), next(left)


def _number_of_copy(codes: Codes) -> Codes:
    """For each row how many rows before it have its code."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(codes) else np.zeros(0, np.int64)
    numbers = np.arange(len(codes)) - np.repeat(starts, np.diff(np.r_[starts, len(codes)]))
    result = np.empty(len(codes), np.int64)
    result[order] = numbers
    return result


def _changed(before: pa.ChunkedArray, after: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    plain = (one_array(column) for column in (before, after))
    old, new = (c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in plain)
    return values_differ(old, new)


def _names_of(flags: Mapping[str, npt.NDArray[np.bool_]], rows: int) -> pa.Array:
    """For each row the list of the names whose flag it has, in their order."""
    matrix = np.stack(list(flags.values()), axis=1) if flags else np.zeros((rows, 0), bool)
    offsets = np.r_[0, np.cumsum(matrix.sum(axis=1))].astype(np.int32)
    names = pa.array(list(flags), pa.string()).take(pa.array(np.nonzero(matrix)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), names)


def _part(change: str, before: pa.Table | None, after: pa.Table | None, changed: pa.Array | None) -> pa.Table:
    """The rows of one kind of change as `Diff.to_arrow` has them; None for a state that has no rows of this kind, and
    where no names of columns are changed."""
    side_with_rows = after if before is None else before
    assert side_with_rows is not None
    rows, count = pa.struct([field.remove_metadata() for field in side_with_rows.schema]), side_with_rows.num_rows
    structs = [
        pa.nulls(count, rows)
        if side is None
        else pa.StructArray.from_arrays([one_array(side[name]) for name in side.column_names], fields=list(rows))
        for side in (before, after)
    ]
    none = pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.array([], pa.string()))
    columns = [pa.array([change]).take(pa.array(np.zeros(count, np.int64))), none if changed is None else changed]
    return pa.table([*columns, *structs], names=["change", "changed", "before", "after"])
