"""The rebucket handles: the rows of some file slices go to new file groups, one a bucket, as they are or merged with
incoming rows. Rows that stay as they are keep their first four meta columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Task
from lakebed.engine.spill import Spill
from lakebed.errors import IndexInconsistent, LakebedError
from lakebed.format.file_names import bucket_of_file_id, new_file_id
from lakebed.format.parquet_encodings import ColumnForm
from lakebed.handles.base import GroupWrite
from lakebed.handles.file_writer import FileFormat, FileWriter
from lakebed.handles.stored_rows import StoredRows, decoded, put_file, sorted_in_full
from lakebed.index.base import KeyHash
from lakebed.merge.incoming import Incoming
from lakebed.merge.row_merge import RowMerge
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.reader import BATCH_ROWS, SliceReader
from lakebed.write_status import WriteStatus, to_batch


@dataclass(frozen=True, slots=True)
class Move:
    """The slices of a partition path whose rows move, and the numbers of the file groups that they move to."""

    partition: str
    sources: tuple[FileSlice, ...]
    targets: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of bytes that the move reads."""
        return sum(source.size for source in self.sources)


@dataclass(frozen=True)
class BucketMover:
    """A task function that runs one of the moves. Its status carries an error of the rows."""

    reader: SliceReader
    instant: str
    format: FileFormat
    key_hash: KeyHash
    moves: tuple[Move, ...] = ()

    def __call__(self, number: int, task: Task) -> Iterator[pa.RecordBatch]:
        """Run the move of this number, and yield its statuses as one batch; a status has the error if the move fails.
        Each slice is read once, and all its targets are written at the same time."""
        move = self.moves[number]
        try:
            yield to_batch(self.move(move, task))
        except LakebedError as error:
            yield to_batch([WriteStatus(move.partition, error=error.to_json())])

    def move(self, move: Move, task: Task) -> list[WriteStatus]:
        """Write the rows of a move to its target file groups; a number without rows gets no file."""
        stored = self.stored(move)
        encodings = None if stored is None else stored.encodings
        with _Targets(self, move.partition, task, len(move.targets), encodings).closing() as targets:
            only = move.targets[0] if len(move.targets) == 1 and not self.format.sort else None
            for source in move.sources:
                if only is not None and not self.reader.is_merged(source):
                    put_file(targets.writer(only), self.reader, self.format, source)
                    continue
                for batch in self.rows(source, stored):
                    targets.put(_of_move(move, batch, self.numbers(move.partition, batch)))
        return targets.done

    def stored(self, move: Move) -> StoredRows | None:
        """The rows of the move's only slice, if they are all in its base file: new files get the encodings of that
        file. None for every other move."""
        source = move.sources[0] if len(move.sources) == 1 else None
        base = None if source is None or self.reader.is_composed(source) else self.reader.base_file(source)
        return None if source is None or base is None else StoredRows(self.reader, self.format, source, base)

    def rows(
        self, file_slice: FileSlice, stored: StoredRows | None, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a slice in the columns of the new files; read from the base file if `stored` is given."""
        if stored is not None:
            return stored.rows(batch_rows)
        return self.reader.merged(file_slice, self.format.schema, batch_rows=batch_rows).batches()

    def numbers(self, partition: str, batch: pa.RecordBatch) -> pa.Array:
        """The bucket of each row (int32)."""
        return self.key_hash.in_partition(partition).groups_of(batch.column(batch.schema.get_field_index(RECORD_KEY)))


@dataclass(frozen=True)
class SliceNumberer:
    """A task function that reads one of the slices, and returns its rows with the numbers of their file groups."""

    mover: BucketMover
    slices: tuple[FileSlice, ...]

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return pa.schema([pa.field(GROUP, pa.int32()), *self.mover.format.schema])

    def __call__(self, number: int, task: Task) -> Iterator[pa.RecordBatch]:
        file_slice = self.slices[number]
        for batch in self.mover.reader.merged(file_slice, self.mover.format.schema).batches():
            rows = decoded(batch)
            # rows may name no partition path of their own
            path = pa.repeat(pa.scalar(file_slice.partition, pa.string()), rows.num_rows)
            numbers = self.mover.numbers(file_slice.partition, rows)
            columns = [path if f.name == PARTITION_PATH else rows.column(f.name) for f in self.mover.format.schema]
            yield pa.RecordBatch.from_arrays([numbers, *columns], schema=self.schema)


@dataclass(frozen=True)
class BucketWriter:
    """A task function that writes the rows of one file group, which a shuffle has collected."""

    mover: BucketMover

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        try:
            with _Targets(self.mover, partition, task, 1).closing() as targets:
                for batch in batches:
                    targets.put([(number, _as_stored(batch, self.mover.format.schema))])
            yield to_batch(targets.done)
        except LakebedError as error:
            yield to_batch([WriteStatus(partition, error=error.to_json())])


class SplitHandle:
    """A handle that merges the incoming rows into the rows of a bucket's slice, and writes them to the buckets that it
    splits into."""

    def __init__(self, group: GroupWrite) -> None:
        self._group = group

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        """Write the rows, one status for each file. The first status has the group's counts, except those of new
        rows."""
        group, target = self._group, self._group.target
        split, job = target.split, group.job
        assert split is not None
        move = Move(group.partition, target.stored_in, split.numbers(group.number))
        mover = BucketMover(job.reader, job.instant, job.format, split.after)
        rows = RowMerge(incoming, job.rules, group.fresh_meta, job.on_match)
        inserts: Counter[int] = Counter()
        stored = mover.stored(move)
        encodings = None if stored is None else stored.encodings
        with _Targets(mover, group.partition, group.task, len(move.targets), encodings).closing() as files:
            for source in move.sources:
                for batch in mover.rows(source, stored, incoming.batch_rows):
                    merged = rows.merge(batch).rows
                    files.put(_of_move(move, merged, mover.numbers(group.partition, merged)))
            rows.refuse_stored()
            for batch in rows.rest():
                for number, part in _of_move(move, batch, mover.numbers(group.partition, batch)):
                    files.put([(number, part)])
                    inserts[number] += part.num_rows
        counts: dict[str, int] = {
            "rows_in": incoming.received,
            "num_updates": rows.counts.updates,
            "num_deletes": rows.counts.deletes,
            "num_unchanged": rows.counts.unchanged + rows.absent_deletes,
            "num_combined": incoming.combined,
        }
        done = [
            replace(status, rows_in=0, num_inserts=inserts[bucket_of_file_id(status.file_id) or 0])
            for status in files.done
        ]
        first, *other_statuses = done or [WriteStatus(group.partition, target.file_id)]
        return [replace(first, **counts), *other_statuses]


class _Targets:
    """The files of some file groups of one partition path, open at the same time."""

    def __init__(
        self,
        mover: BucketMover,
        partition: str,
        task: Task,
        count: int,
        encodings: Mapping[str, ColumnForm] | None = None,
    ) -> None:
        self._mover, self._partition, self._task = mover, partition, task
        self._memory = max(1 << 20, mover.format.settings.memory // max(1, count))
        self._encodings = encodings
        self._open: dict[int, FileWriter] = {}
        self._spilled: dict[int, Spill] = {}
        self._spills = ExitStack()
        self.done: list[WriteStatus] = []

    def writer(self, number: int) -> FileWriter:
        """The file of a file group."""
        if number not in self._open:
            mover, group = self._mover, (self._partition, number)
            self._open[number] = FileWriter(
                mover.reader.storage,
                mover.format,
                mover.instant,
                self._partition,
                new_file_id(mover.instant, *group, bucket=number),
                self._task,
                "CREATE",
                mover.format.bloom(),
                encodings=self._encodings,
                copies=not mover.format.sort,
            )
        return self._open[number]

    def put(self, rows: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Write rows to the file groups of these numbers, or buffer them until all can be sorted."""
        for number, batch in rows:
            if not self._mover.format.sort:
                self.writer(number).write(batch, new_keys=None)
                continue
            if number not in self._spilled:
                self._spilled[number] = self._spills.enter_context(Spill(self._memory))
            self._spilled[number].append(decoded(batch))

    @contextmanager
    def closing(self) -> Generator[_Targets]:
        """Close all files at the end of the block; after an error all are abandoned."""
        with self._spills:
            try:
                yield self
                for number, spill in sorted(self._spilled.items()):
                    for batch, _ in sorted_in_full(iter(()), spill):
                        self.writer(number).write(batch, new_keys=None)
                for number in sorted(self._open):
                    self._finish(self._open[number])
            except BaseException:
                for writer in self._open.values():
                    writer.abort()
                raise

    def _finish(self, writer: FileWriter) -> None:
        if writer.rows:
            self.done.append(replace(writer.finish(writer.rows), rows_in=writer.rows))
        else:
            writer.abort()


def _of_move(move: Move, batch: pa.RecordBatch, numbers: pa.Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a batch split by the numbers of their target file groups."""
    bucket_numbers = as_numpy(numbers)
    present = np.unique(bucket_numbers)
    strange = np.setdiff1d(present, np.array(move.targets, np.int32))
    if len(strange):
        key = batch.column(batch.schema.get_field_index(RECORD_KEY))[
            int(np.flatnonzero(bucket_numbers == strange[0])[0])
        ].as_py()
        raise IndexInconsistent(
            f"record key {key!r} in partition {move.partition!r} is in a bucket that it does not hash to",
            hint="A writer with another bucket count has written it. t.indexes.use('simple') looks keys up; then"
            " t.indexes.use('bucket', buckets=...) puts every row into its bucket.",
            context={
                "record_key": key,
                "partition": move.partition,
                "files": [source.label for source in move.sources],
            },
        )
    if len(present) == 1:
        yield int(present[0]), batch
        return
    for number in present:
        yield int(number), batch.filter(pc.equal(numbers, pa.scalar(int(number), pa.int32())))


def _as_stored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of the file in its types: an engine may have sent other types."""
    columns: Sequence[pa.Array] = [batch.column(f.name) for f in schema]
    cast = [c if c.type.equals(f.type) else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)
