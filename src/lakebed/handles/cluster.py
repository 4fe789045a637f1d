"""The cluster handle: the rows of some file slices go to new file groups, sorted or along a Z-order or Hilbert
curve. They keep their first four meta columns.

For the curves the values of a column become their ranks among the rows at hand, spread evenly over the bits of a
dimension: skewed values use all of the curve.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Task
from lakebed.engine.spill import Spill
from lakebed.errors import LakebedError
from lakebed.format.base_file import read_footer
from lakebed.format.file_names import bucket_of_file_id, new_file_id
from lakebed.format.parquet_encodings import ColumnForm, encodings_of
from lakebed.handles.compact import operation_rows, operations_in, planned_slice
from lakebed.handles.create import ALLOWANCE
from lakebed.handles.file_writer import FileFormat, FileWriter
from lakebed.handles.new_rows import NewRows
from lakebed.handles.stored_rows import decoded, put_file, texts_with_dictionary
from lakebed.index.base import GroupOutputs
from lakebed.merge.rules import comparable, field_values
from lakebed.model import RECORD_KEY, FileSlice
from lakebed.schema.plain_arrow import as_numpy, gather
from lakebed.slices.base_rows import DICTIONARY_META
from lakebed.slices.reader import SliceReader
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.plans import ClusteringOperation, Layout
from lakebed.write_status import WriteStatus, to_batch

Positions = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.uint64]
# Of a code: more bits of a rank do not locate a row better.
_BITS = 63
_MAX_BITS = 21


def order_of(rows: pa.Table, columns: Sequence[str], layout: Layout) -> Positions:
    """The positions of the rows in the order of the values in `columns` (dotted: fields inside structs); nulls come
    first, and equal rows retain their order."""
    values = [comparable(field_values(rows, name)) for name in columns]
    if layout == "LINEAR" or len(values) == 1:
        return _sorted(values)
    bits = min(_MAX_BITS, _BITS // len(values))
    ranks = [_ranks(column, bits) for column in values]
    codes = z_codes(ranks, bits) if layout == "ZORDER" else hilbert_codes(ranks, bits)
    return np.argsort(codes, kind="stable").astype(np.int64)


def z_codes(ranks: Sequence[_Codes], bits: int) -> _Codes:
    """The bits of the ranks in turn, the first column's on top.

    >>> z_codes([np.array([0, 1, 0, 1], np.uint64), np.array([0, 0, 1, 1], np.uint64)], 1).tolist()
    [0, 2, 1, 3]
    """
    codes = np.zeros(len(ranks[0]), np.uint64)
    one = np.uint64(1)
    for bit in range(bits - 1, -1, -1):
        for rank in ranks:
            codes = (codes << one) | ((rank >> np.uint64(bit)) & one)
    return codes


def hilbert_codes(ranks: Sequence[_Codes], bits: int) -> _Codes:
    """The position of each point along the Hilbert curve. Consecutive points on the curve differ by one in one column.

    >>> hilbert_codes([np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 1, 0], np.uint64)], 1).tolist()
    [0, 1, 2, 3]
    """
    axes = [rank.copy() for rank in ranks]
    top = 1 << (bits - 1)
    bit = top
    while bit > 1:  # undo the turns of each level
        below = np.uint64(bit - 1)
        for axis in axes:
            turned = (axis & np.uint64(bit)) != 0
            swapped = np.where(turned, np.uint64(0), (axes[0] ^ axis) & below)
            axes[0] ^= np.where(turned, below, swapped)
            if axis is not axes[0]:
                axis ^= swapped
        bit >>= 1
    for before, axis in pairwise(axes):  # Gray code
        axis ^= before
    flips = np.zeros(len(axes[0]), np.uint64)
    bit = top
    while bit > 1:
        flips ^= np.where((axes[-1] & np.uint64(bit)) != 0, np.uint64(bit - 1), np.uint64(0))
        bit >>= 1
    for axis in axes:
        axis ^= flips
    return z_codes(axes, bits)


def _ranks(values: pa.Array, bits: int) -> _Codes:
    """The dense ranks of the values, from 0, spread over `bits` bits."""
    ranked = as_numpy(pc.rank(values, sort_keys="ascending", tiebreaker="dense"))
    nulls = as_numpy(pc.is_null(values))
    ranks = np.where(nulls, 0, ranked).astype(np.uint64)
    greatest = int(ranks.max()) if len(ranks) else 0
    return ranks * np.uint64((1 << bits) - 1) // np.uint64(max(1, greatest))


def _sorted(values: Sequence[pa.Array]) -> Positions:
    columns: dict[str, pa.Array] = {}
    for at, column in enumerate(values):
        if column.null_count:
            columns[f"valid {at}"] = pc.is_valid(column).cast(pa.int8())
        columns[str(at)] = column
    table = pa.table({**columns, "at": np.arange(len(values[0]))})
    keys = [(name, "ascending") for name in table.column_names]
    return as_numpy(pc.sort_indices(table, sort_keys=keys)).astype(np.int64)


# Sorted rows that are written at a time.
_STEP_ROWS = 1 << 16
_STEP_BYTES = 128 << 20
_POSITION = "_lakebed_place"


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of the rows of a group: by `columns` one after another, or along a curve through all of them."""

    columns: tuple[str, ...]
    layout: Layout = "LINEAR"


def clustering_rows(operations: Sequence[ClusteringOperation]) -> pa.Table:
    """The groups of a plan as rows for an engine, one for each slice."""
    table = operation_rows([file_slice for operation in operations for file_slice in operation.slices])
    numbers = [number for number, operation in enumerate(operations) for _ in operation.slices]
    positions = [position for operation in operations for position in range(len(operation.slices))]
    table = table.set_column(table.column_names.index(GROUP), GROUP, pa.array(numbers, pa.int32()))
    return table.append_column(_POSITION, pa.array(positions, pa.int32()))


@dataclass(frozen=True, slots=True)
class GroupClusterer:
    """A task function that writes the rows of a group of slices to new files of at most `file_bytes`. With an `order`
    the rows are sorted and spread evenly over as many files as `outputs` has for the group's number; otherwise they
    retain their order. With `single_file` there is one file, which belongs to the bucket of the old one. `by_key` are
    the file groups of each group's rows if an index determines them, one file each. The status carries an error of the
    rows."""

    reader: SliceReader
    instant: str
    format: FileFormat
    order: RowOrder | None
    file_bytes: int
    single_file: bool = False
    outputs: tuple[int, ...] = ()
    by_key: Sequence[GroupOutputs | None] = ()

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        storage = self.reader.storage
        try:
            named = pa.Table.from_batches(batches).sort_by(_POSITION)
            slices = [planned_slice(storage, operation) for operation in operations_in(iter(named.to_batches()))]
            yield to_batch(self.cluster(slices, number, task))
        except LakebedError as error:
            yield to_batch([WriteStatus(partition, error=error.to_json())])

    def cluster(self, slices: Sequence[FileSlice], number: int, task: Task) -> list[WriteStatus]:
        """Write the rows of some slices of one partition path. Returns one status per file; empty if the slices have no
        rows."""
        by_key = self.by_key[number] if self.by_key else None
        if by_key is not None:
            return self._cluster_apart(slices, number, by_key, task)
        files = _ClusteredFiles(self, slices, number, task)
        with files.closing():
            if self.order is None:
                for file_slice in slices:
                    self._put(files, file_slice)
            else:
                outputs = self.outputs[number] if self.outputs and not self.single_file else 1
                self._put_sorted(files, slices, self.order, outputs)
        return files.done

    def _cluster_apart(
        self, slices: Sequence[FileSlice], number: int, outputs: GroupOutputs, task: Task
    ) -> list[WriteStatus]:
        """Write each row to the file group that its key belongs to; all files are open at the same time."""
        sides = [_ClusteredFiles(self, slices, number, task, file_id=file_id) for file_id in outputs.file_ids]
        with ExitStack() as open_files:
            for side in sides:
                open_files.enter_context(side.closing())
            for batch in self._ordered(slices):
                output_numbers = outputs.of_keys(batch.column(RECORD_KEY))
                for output, side in enumerate(sides):
                    side.add(batch.filter(pc.equal(output_numbers, output)))
        return [status for side in sides for status in side.done]

    def _ordered(self, slices: Sequence[FileSlice]) -> Iterator[pa.RecordBatch]:
        """The rows of the slices, sorted if there is an `order`, otherwise in their stored order."""
        if self.order is not None:
            yield from (batch for _, batch in self._sorted(slices, self.order))
            return
        for file_slice in slices:
            yield from self._merged(file_slice, ())

    def _put(self, files: _ClusteredFiles, file_slice: FileSlice) -> None:
        """Append the rows of a slice to the open file: as bytes if the slice has no log files."""
        if self.reader.is_merged(file_slice):
            for batch in self._merged(file_slice, files.dictionaries):
                files.add(batch)
            return
        files.make_room(file_slice.size)
        put_file(files.writer(), self.reader, self.format, file_slice)

    def _put_sorted(self, files: _ClusteredFiles, slices: Sequence[FileSlice], order: RowOrder, outputs: int) -> None:
        """Write the rows in order, to `outputs` files with the same number of rows."""
        last = 0
        for number, batch in self._sorted(slices, order, outputs):
            if number != last:
                files.finish()
            last = number
            files.add(batch)

    def _sorted(
        self, slices: Sequence[FileSlice], order: RowOrder, outputs: int = 1
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yields the rows sorted by `order`, each batch with the number of its output file. All rows are buffered, in
        memory up to a limit."""
        with Spill(self.format.settings.memory) as spill:
            for file_slice in slices:
                spill.extend(map(decoded, self._merged(file_slice, ())))
            table = spill.table(self.format.schema)
            positions = order_of(table.select(_tops(order.columns)), order.columns, order.layout)
            step = max(1, min(_STEP_ROWS, _STEP_BYTES * table.num_rows // max(1, table.nbytes)))
            outputs = max(1, min(outputs, len(positions)))
            ends = [len(positions) * (share + 1) // outputs for share in range(outputs)]
            for number, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
                for start in range(first, end, step):
                    yield number, gather(table, positions[start : min(end, start + step)])

    def _merged(self, file_slice: FileSlice, dictionaries: Sequence[str]) -> Iterator[pa.RecordBatch]:
        dictionary_columns = (*DICTIONARY_META, *dictionaries) if dictionaries else ()
        yield from self.reader.merged(file_slice, self.format.schema, dictionary=dictionary_columns).batches()


@dataclass(slots=True)
class _ClusteredFiles:
    """The files that the rows of a group are written to; only one file if its `file_id` is given."""

    to: GroupClusterer
    slices: Sequence[FileSlice]
    number: int
    task: Task
    file_id: str | None = None
    done: list[WriteStatus] = field(default_factory=list[WriteStatus])
    _open: FileWriter | None = None
    _encodings: Mapping[str, ColumnForm] | None = None

    @property
    def storage(self) -> Storage:
        return self.to.reader.storage

    @property
    def encodings(self) -> Mapping[str, ColumnForm]:
        """The column encodings of the first base file, which the new files take over."""
        if self._encodings is None:
            base = next((file_slice.base_file for file_slice in self.slices if file_slice.base_file is not None), None)
            metadata = None if base is None else read_footer(self.storage, base.path, base.size, encoded=True).metadata
            self._encodings = {} if metadata is None else encodings_of(metadata)
        return self._encodings

    @property
    def dictionaries(self) -> list[str]:
        """The names of text columns that are read as dictionaries."""
        return texts_with_dictionary(self.to.format.schema, self.encodings)

    def writer(self) -> FileWriter:
        """The file that takes rows now."""
        if self._open is None:
            format_, first = self.to.format, self.slices[0]
            bucket = bucket_of_file_id(first.file_id) if self.to.single_file else None
            group = first.partition, self.number
            self._open = FileWriter(
                self.storage,
                format_,
                self.to.instant,
                first.partition,
                self.file_id or new_file_id(self.to.instant, *group, bucket=bucket, n=len(self.done)),
                self.task,
                "CREATE",
                format_.bloom(),
                encodings=self.encodings,
                copies=self.to.order is None and self.file_id is None,
            )
        return self._open

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows; a new file is opened whenever the open one is full."""
        limit = None if self.to.single_file or self.file_id else self.to.file_bytes
        rows = NewRows(batch)
        while before := rows.batch.num_rows:
            rows = self.writer().fill(rows, limit)
            if rows.batch.num_rows == before:
                self.finish()

    def make_room(self, size: int) -> None:
        """Close the open file if `size` more bytes would make it too large."""
        if self._open is None or self.to.single_file or self.file_id:
            return
        if self._open.size + size > self.to.file_bytes * ALLOWANCE:
            self.finish()

    def finish(self) -> None:
        """Close the open file; one without rows is not written."""
        writer, self._open = self._open, None
        if writer is None:
            return
        if not writer.rows:
            writer.abort()
            return
        self.done.append(replace(writer.finish(writer.rows), rows_in=writer.rows))

    @contextmanager
    def closing(self) -> Generator[None]:
        """Close the last file at the end of the block; after an error the open file is abandoned."""
        try:
            yield
            self.finish()
        except BaseException:
            if self._open is not None:
                self._open.abort()
            raise


def _tops(columns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name.partition(".")[0] for name in columns))


BY_KEY = RowOrder((RECORD_KEY,))
"""The order of tables that keep each file in the order of its keys."""
