"""What runs in the tasks of a cluster that runs Python functions: the steps of one part of the rows, and how a part
begins and is cut.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import xxhash

from lakebed.engine.arrow_data import to_arrow_table
from lakebed.engine.base import ItemFunction, SliceReader, Task, changed_input
from lakebed.engine.local import AnyRows, LocalEngine, LocalRows
from lakebed.format.hashes import java_hash
from lakebed.model import FileSlice
from lakebed.schema.arrow import normalise, normalise_batch
from lakebed.schema.plain_arrow import as_numpy, one_array

# So many rows of each part decide where a sorted table is cut.
_SORT_SAMPLE = 1000
# Arrow computes with buffers that begin at such an address.
_ALIGNMENT = 8
_CHECKSUM = b"lakebed.checksum"

Begin = Callable[[LocalEngine, int, Sequence[pa.Table]], LocalRows]
"""How a part begins: of its number and some tables."""

Step = Callable[[LocalEngine, LocalRows], AnyRows]
Numbers = npt.NDArray[np.integer[Any]]
Cut = Callable[[pa.Table], list[pa.Table]]


class _EngineOfTask(LocalEngine):
    """The engine of this process in a task of a cluster. Its attempts have numbers that no other attempt has, and may
    run when the write has ended."""

    def __init__(self, number: int) -> None:
        super().__init__(1)
        task = Task(number, 0, secrets.randbits(31), may_be_late=True)
        self.task_of = lambda _: task


def run_task(payload: bytes, task: int, number: int, checksums: Sequence[str], *tables: Any) -> Any:
    """Run the steps of one part in a worker. Returns its rows, or the pieces of them."""
    begin, steps, cut = pickle.loads(payload)
    for expected, table in zip(checksums, tables, strict=False):
        if table.schema.metadata[_CHECKSUM].decode() != expected:
            raise changed_input("a part of them was lost with the worker that held it, and came back as other rows")
    engine = _EngineOfTask(task)
    rows = begin(engine, number, [_aligned(table) if isinstance(table, pa.Table) else table for table in tables])
    for step in steps:
        rows = step(engine, rows)
    if cut is None:
        return rows.table
    pieces = cut(rows.table)
    return pieces if len(pieces) > 1 else pieces[0]


def _aligned(table: pa.Table) -> pa.Table:
    """The table, copied if one of its buffers begins at an odd address, as in a message that Dask received."""
    buffers = (b for column in table.columns for chunk in column.chunks for b in chunk.buffers() if b is not None)
    if all(buffer.address % _ALIGNMENT == 0 for buffer in buffers):
        return table
    copy = pa.BufferOutputStream()
    with pa.ipc.new_stream(copy, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(copy.getvalue()).read_all()


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What this process knows of an evaluated part of the caller's rows."""

    checksum: str
    rows: int
    size: int
    schema: pa.Schema


def evaluated_block(block: Any) -> tuple[pa.Table, BlockFacts]:
    """A part of the caller's rows in the types of a table, with its checksum, and the facts about it."""
    rows = to_arrow_table(block)
    schema = normalise(rows.schema)
    batches = [normalise_batch(batch, schema) for batch in rows.to_batches()]
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    checksum = xxhash.xxh3_128()
    with pa.ipc.new_stream(pa.PythonFile(_Checksum(checksum), mode="w"), schema) as writer:
        writer.write_table(table)
    text = checksum.hexdigest()
    return table.replace_schema_metadata({_CHECKSUM: text}), BlockFacts(text, table.num_rows, table.nbytes, schema)


class _Checksum:
    """A file that is not stored."""

    closed = False

    def __init__(self, checksum: Any) -> None:
        self._checksum = checksum

    def write(self, data: Any) -> int:
        self._checksum.update(data)
        return len(data)

    def flush(self) -> None:
        return


def concatenated(engine: LocalEngine, number: int, tables: Sequence[pa.Table]) -> LocalRows:
    """The beginning of rows in several tables: all of them, in their order."""
    return LocalRows(pa.concat_tables([table.replace_schema_metadata(None) for table in tables]))


@dataclass(frozen=True, slots=True)
class Fitted:
    """The beginning of the caller's rows: their parts, in the types of all of them."""

    schema: pa.Schema

    def __call__(self, engine: LocalEngine, number: int, tables: Sequence[pa.Table]) -> LocalRows:
        batches = [normalise_batch(batch, self.schema) for table in tables for batch in table.to_batches()]
        return LocalRows(pa.Table.from_batches(batches, self.schema))


def unpickled(engine: LocalEngine, number: int, tables: Sequence[Any]) -> LocalRows:
    """The beginning of rows that this process sent."""
    return LocalRows(pickle.loads(tables[0]))


@dataclass(frozen=True, slots=True)
class FromNumber:
    """The beginning of rows that a function makes from a number."""

    fn: ItemFunction
    schema: pa.Schema

    def __call__(self, engine: LocalEngine, number: int, tables: Sequence[pa.Table]) -> LocalRows:
        assert engine.task_of is not None
        return LocalRows(pa.Table.from_batches(self.fn(number, engine.task_of(number)), self.schema))


@dataclass(frozen=True, slots=True)
class Joined:
    """The beginning of joined rows, whose first tables are those of the left side."""

    left: int
    on: tuple[str, ...]
    how: Literal["left", "inner"]

    def __call__(self, engine: LocalEngine, number: int, tables: Sequence[pa.Table]) -> LocalRows:
        left, right = (
            concatenated(engine, number, tables[: self.left]),
            concatenated(engine, number, tables[self.left :]),
        )
        return engine.join(left, right, self.on, self.how)


@dataclass(frozen=True, slots=True)
class SlicesOfTask:
    """The function of a task that reads columns of every n-th file slice."""

    reader: SliceReader
    slices: tuple[FileSlice, ...]
    columns: tuple[str, ...]
    schema: pa.Schema
    tasks: int

    def __call__(self, number: int, task: Task) -> Iterator[pa.RecordBatch]:
        for file_slice in self.slices[number :: self.tasks]:
            for batch in self.reader.read_placed(file_slice, self.columns, self.schema):
                yield normalise_batch(batch, self.schema)


def is_hashed(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_integer(kind)


def hashes(table: pa.Table, names: Sequence[str]) -> Numbers:
    """A number for each row, below 2 ** 32, that is equal for rows with equal values in these columns of texts and
    integers."""
    result = np.zeros(table.num_rows, np.uint64)
    for name in names:
        column = one_array(table.column(name))
        if pt.is_string(column.type):
            values = java_hash(column)
        else:
            values = as_numpy(pc.fill_null(column, 0))
        # Java's hash of similar texts is close together: multiply (Knuth) to spread it
        result = (result * np.uint64(31) + values.astype(np.int64).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    return (result >> np.uint64(32)).astype(np.int64)


def spaced_rows(table: pa.Table) -> pa.Table:
    """Rows of a table at equal distances."""
    count = min(table.num_rows, _SORT_SAMPLE)
    return table.take(pa.array(np.linspace(0, max(0, table.num_rows - 1), count).astype(np.int64)))


def ranges(table: pa.Table, bounds: pa.Table) -> Numbers:
    """The number of bounds that each row follows in the order of all columns."""
    joined = pa.concat_tables([bounds, table]).combine_chunks()
    order = as_numpy(pc.sort_indices(joined, sort_keys=[(name, "ascending") for name in joined.column_names]))
    order = order.astype(np.int64)
    is_bound = order < bounds.num_rows
    numbers = np.empty(table.num_rows, np.int64)
    numbers[order[~is_bound] - bounds.num_rows] = np.cumsum(is_bound)[~is_bound]
    return numbers
