"""The changes of one source as rows: operation, instant, and the images before and after. Arrow in, Arrow out."""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CheckpointBehind, CorruptFile
from lakebed.format.data_block import AFTER, BEFORE, DELETE, INSERT, KEY, OP, TIME, UPDATE, open_data_block
from lakebed.format.delete_block import decode_deletes
from lakebed.format.hashes import plain_strings
from lakebed.format.key_order import key_order
from lakebed.format.log_file import BlockType, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.merge.rules import MergeRules
from lakebed.model import (
    ALL_META_COLUMNS,
    COMMIT_SEQNO,
    COMMIT_TIME,
    META_COLUMNS,
    RECORD_KEY,
    BaseFile,
    FileSlice,
    LogFile,
)
from lakebed.read.batches import RowReader
from lakebed.schema.json_rows import json_texts
from lakebed.schema.plain_arrow import as_numpy, one_array, text_scalar
from lakebed.slices.base_rows import plain_rows
from lakebed.slices.logs import SliceLogs
from lakebed.slices.reader import SliceReader

_LOGGED = (OP, KEY, BEFORE, AFTER)
# Rows of a change log that are decoded at a time.
_STEP_ROWS = 1 << 16
# So many keys are looked for one by one; for more the whole slice is read.
_SOUGHT_KEYS = 2_000

ToImages = Callable[[pa.RecordBatch], pa.Array]
"""Makes the images of rows: structs or texts."""


@dataclass(frozen=True)
class ChangeReader:
    """A reader of the changes of any source. It can be sent to tasks.

    `image` is the type of the images, which `to_images` makes of rows. Missing files were cleaned if a clean
    ran after their commit: `cleaned` is the time of the last one.
    """

    slices: SliceReader
    image: pa.DataType
    to_images: ToImages
    cleaned: str = ""

    def read(self, source: ChangeSource, before: RowReader | None, after: RowReader | None) -> Iterator[pa.RecordBatch]:
        """The changes of a source, in their stored order; `before` and `after` read the source's slices."""
        with self._naming_cleaned(source):
            if source.kind == "inserted" and source.after is not None and after is not None:
                yield from self._all(source, source.after, after, INSERT)
            elif source.kind == "deleted" and source.before is not None and before is not None:
                yield from self._all(source, source.before, before, DELETE)
            elif source.kind == "erased":
                none = pa.nulls(source.rows, self.image)
                yield self._changes(pa.repeat(pa.scalar(DELETE), source.rows), source, none, none)
            elif source.kind == "logged":
                for log in source.files:
                    yield from self._logged(source, log, before, after)
            elif source.after is not None and after is not None:
                for keys in self._logged_keys(source.files):
                    yield from self._compared(source, keys, before, after)

    @contextmanager
    def _naming_cleaned(self, source: ChangeSource) -> Generator[None]:
        try:
            yield
        except (FileNotFoundError, CorruptFile) as error:
            if isinstance(error, FileNotFoundError):
                path = str(error.filename or error)
            else:
                path = str(error.context.get("path", ""))
                if not path or self.slices.storage.head(path) is not None:
                    raise
            if source.instant < self.cleaned:
                raise cleaned_error(path, source.instant) from error
            raise CorruptFile(
                f"{path}, which has the changes of commit {source.instant}, is not there",
                hint="restore it from a copy",
                context={"path": path, "instant": source.instant},
            ) from error

    def _sized(self, of: FileSlice) -> FileSlice:
        """The slice with the sizes of its files, which some write stats do not have."""
        base = of.base_file
        sized = None if base is None else replace(base, size=self._size(base))
        return replace(of, base_file=sized, log_files=tuple(replace(log, size=self._size(log)) for log in of.log_files))

    def _size(self, file: BaseFile | LogFile) -> int:
        if file.size:
            return file.size
        info = self.slices.storage.head(file.path)
        if info is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", file.path)
        return info.size

    def _all(self, source: ChangeSource, of: FileSlice, reader: RowReader, op: str) -> Iterator[pa.RecordBatch]:
        for batch in reader.read(self.slices, self._sized(of)):
            images, none = self._images(batch), pa.nulls(batch.num_rows, self.image)
            before, after = (none, images) if op == INSERT else (images, none)
            yield self._changes(pa.repeat(pa.scalar(op), batch.num_rows), source, before, after)

    def _changes(self, ops: pa.Array, source: ChangeSource, before: pa.Array, after: pa.Array) -> pa.RecordBatch:
        times = pa.repeat(pa.scalar(source.instant), len(ops))
        return pa.RecordBatch.from_arrays([ops, times, before, after], names=[OP, TIME, BEFORE, AFTER])

    def _images(self, rows: pa.RecordBatch) -> pa.Array:
        return self.to_images(rows.drop_columns([n for n in rows.schema.names if n in ALL_META_COLUMNS]))

    def _logged(
        self, source: ChangeSource, log: LogFile, before: RowReader | None, after: RowReader | None
    ) -> Iterator[pa.RecordBatch]:
        for head in scan_blocks(FileSource(self.slices.storage, log.path, log.size or None)):
            if head.type is not BlockType.CDC_DATA:
                raise CorruptFile(
                    f"the change log {log.path} has a block of type {head.type.name} at offset {head.offset}",
                    hint="restore the file from a copy",
                    context={"path": log.path, "offset": head.offset},
                )
            block = open_data_block(head, log.path)
            for start in range(0, block.rows, _STEP_ROWS):
                rows = np.arange(start, min(start + _STEP_ROWS, block.rows), dtype=np.int64)
                yield self._complete(source, log, block.read(_LOGGED, rows), before, after)

    def _complete(
        self,
        source: ChangeSource,
        log: LogFile,
        rows: pa.RecordBatch,
        before: RowReader | None,
        after: RowReader | None,
    ) -> pa.RecordBatch:
        """The logged changes with both images: images that the log does not have are read from the files."""
        ops = plain_strings(rows.column(OP)).cast(pa.string())
        sides = (
            (BEFORE, source.before, before, pc.not_equal(ops, INSERT)),
            (AFTER, source.after, after, pc.not_equal(ops, DELETE)),
        )
        images: list[pa.Array] = []
        for name, of, reader, has_image in sides:
            if name in rows.schema.names:
                images.append(self._logged_images(rows.column(name), after, log.partition))
            elif of is None or reader is None:
                raise CorruptFile(
                    f"the change log {log.path} holds no images {name} the change, and commit {source.instant} names no"
                    " file that has them",
                    context={"path": log.path},
                )
            else:
                keys = plain_strings(rows.column(KEY)).cast(pa.string())
                images.append(self._stored_images(of, reader, keys, has_image, log.path))
        return self._changes(ops, source, *images)

    def _logged_images(self, structs: pa.Array, reader: RowReader | None, partition: str) -> pa.Array:
        assert reader is not None
        present = structs.is_valid()
        present_structs = structs.filter(present)
        stored = pa.RecordBatch.from_arrays(present_structs.flatten(), schema=pa.schema(list(present_structs.type)))
        shaped = list(reader.shaped(stored, partition))
        if not shaped:
            return pa.nulls(len(structs), self.image)
        return _spread(self._images(shaped[0]), as_numpy(present))

    def _stored_images(
        self, of: FileSlice, reader: RowReader, keys: pa.Array, requested: pa.Array, log: str
    ) -> pa.Array:
        """The images of rows of a slice, by key; null where `requested` is false."""
        image_keys = keys.filter(requested)
        if not len(image_keys):
            return pa.nulls(len(keys), self.image)
        batches = self.rows_of_keys(of, reader, image_keys)
        at = pc.index_in(keys, value_set=pa.chunked_array([b.column(RECORD_KEY) for b in batches], pa.string()))
        at = pc.if_else(requested, at, pa.scalar(None, pa.int32()))
        if at.null_count > len(keys) - len(image_keys):
            lost = keys.filter(pc.and_(requested, at.is_null()))[0].as_py()
            raise CorruptFile(
                f"the change log {log} has a change of key {lost!r}, and {of.label} does not hold it",
                context={"path": log, "record_key": lost},
            )
        images = pa.concat_arrays([self._images(batch) for batch in batches])
        return images.take(at)

    def _logged_keys(self, files: tuple[LogFile, ...]) -> Iterator[pa.Array]:
        """The record keys in the blocks of log files, each once, in ascending order, some at a time."""
        sized = [replace(log, size=self._size(log)) for log in files]
        logs = SliceLogs.scan(self.slices.storage, sized, self.slices.blocks, self.slices.memory)
        parts: list[pa.Array] = []
        for number, head in enumerate(logs.blocks):
            if head.type is BlockType.DELETE:
                parts.append(decode_deletes(head.read(), head.source.name, head.offset).keys)
            else:
                parts.append(plain_strings(logs.block(number).read([RECORD_KEY]).column(0)))
        keys = pc.unique(pa.concat_arrays([part.cast(pa.string()) for part in parts] or [pa.array([], pa.string())]))
        order = key_order(keys)
        keys = keys if order is None else keys.take(pa.array(order))
        for start in range(0, len(keys), _STEP_ROWS):
            yield keys.slice(start, _STEP_ROWS)

    def _compared(
        self, source: ChangeSource, keys: pa.Array, before: RowReader | None, after: RowReader
    ) -> Iterator[pa.RecordBatch]:
        """The changes of the rows with these keys: the rows of the slice before the commit compared with those after
        it."""
        assert source.after is not None
        old = _one_batch([], after)
        if source.before is not None and before is not None:
            old = _one_batch(self.rows_of_keys(source.before, before, keys), before)
        new = _one_batch(self.rows_of_keys(source.after, after, keys), after)
        was, now = (_rows_of_keys(keys, rows) for rows in (old, new))
        stayed = np.flatnonzero((was >= 0) & (now >= 0))
        differ = self._differ(old.take(pa.array(was[stayed])), new.take(pa.array(now[stayed])))
        changed = np.sort(np.concatenate([np.flatnonzero((was < 0) != (now < 0)), stayed[differ]]))
        if not len(changed):
            return
        was, now = was[changed], now[changed]
        ops = np.where(was < 0, INSERT, np.where(now < 0, DELETE, UPDATE))
        sides = [self._images(rows).take(pa.array(at, mask=at < 0)) for rows, at in ((old, was), (new, now))]
        yield self._changes(pa.array(ops, pa.string()), source, *sides)

    def _differ(self, old: pa.RecordBatch, new: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Flags of the rows that another version replaced. If rows are merged column by column, their values are
        compared."""
        differ = pc.fill_null(pc.not_equal(_versions(old), _versions(new)), False)
        if not MergeRules.of_table(self.slices.config).picks_winners:
            texts = [json_texts(rows.drop_columns([*META_COLUMNS[:3]])) for rows in (old, new)]
            differ = pc.or_(differ, pc.not_equal(*texts))
        return as_numpy(differ)

    def rows_of_keys(self, of: FileSlice, reader: RowReader, keys: pa.Array) -> list[pa.RecordBatch]:
        """The rows of a slice with one of the keys: record key and the images' columns."""
        if len(keys) > _SOUGHT_KEYS:
            batches = (plain_rows(batch) for batch in reader.read(self.slices, self._sized(of)))
            return [batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys)) for batch in batches]
        order = key_order(keys)
        ordered = keys if order is None else keys.take(pa.array(order))
        return reader.rows_of_keys(self.slices, self._sized(of), ordered, use_bloom=False)


def _one_batch(batches: Sequence[pa.RecordBatch], reader: RowReader) -> pa.RecordBatch:
    """The rows of a reader as one batch."""
    schema = pa.schema([reader.read_schema.field(name) for name in reader.columns])
    table = pa.Table.from_batches([plain_rows(batch) for batch in batches] or [], schema).combine_chunks()
    return pa.RecordBatch.from_arrays([one_array(column) for column in table.columns], schema=schema)


def _rows_of_keys(keys: pa.Array, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The row number of each key, -1 for a key without a row."""
    row_numbers = pc.fill_null(pc.index_in(keys, value_set=rows.column(RECORD_KEY)), -1)
    return as_numpy(row_numbers).astype(np.int64)


def _versions(rows: pa.RecordBatch) -> pa.Array:
    """A column that differs between two versions of a row: commit time and sequence number."""
    return pc.binary_join_element_wise(rows.column(COMMIT_TIME), rows.column(COMMIT_SEQNO), text_scalar("/"))


def _spread(values: pa.Array, present: npt.NDArray[np.bool_]) -> pa.Array:
    """The values in the rows where `present` is true, in order; null in all other rows."""
    if present.all():
        return values
    at = np.cumsum(present) - 1
    return values.take(pa.array(at, mask=~present))


def structs(rows: pa.RecordBatch) -> pa.Array:
    """The rows as one struct array, with a field for each column."""
    return pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))


# In the context of an error: the file that was cleaned.
CLEANED = "cleaned"


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The source of the changes that one commit made in one file group.

    - `logged`: the change logs `files` have them; images that they lack are in the slices `before` and `after`.
    - `inserted`: every row of `after` is new. `deleted`: every row of `before` was deleted.
    - `appended`: `after` is `before` with the log files `files` on top.
    - `erased`: `rows` rows were deleted for good, and no file has them any more.
    """

    kind: Literal["logged", "inserted", "deleted", "appended", "erased"]
    instant: str
    before: FileSlice | None = None
    after: FileSlice | None = None
    files: tuple[LogFile, ...] = ()
    rows: int = 0

    @property
    def paths(self) -> Iterator[str]:
        """The paths of the files that are read for these changes."""
        for file_slice in (self.before, self.after):
            if file_slice is not None:
                yield from (f.path for f in file_slice.files)
        yield from (f.path for f in self.files)

    @property
    def size(self) -> int:
        """The approximate number of bytes to read."""
        if self.kind in ("logged", "appended"):
            return sum(f.size for f in self.files)
        file_slice = self.before or self.after
        return file_slice.size if file_slice is not None else 0


def cleaned_error(missing_file: str, instant: str, checkpoint: str = "") -> CheckpointBehind:
    """A file with the changes of a commit was cleaned; `checkpoint` is the first start that can be read."""
    return CheckpointBehind(
        f"the changes of commit {instant} are not known any more: {missing_file} is not there, it was cleaned",
        hint=f"read a snapshot, then go on from {checkpoint or instant}; hoodie.clean.commits.retained sets for how"
        " many commits files stay",
        context={"instant": instant, "checkpoint": checkpoint or instant, CLEANED: missing_file},
    )
