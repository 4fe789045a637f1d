"""The bytes of blobs: those in the table, and those of other files, whose ranges are joined into few bounded requests.

Rows are taken in windows of bounded bytes; of each window the ranges of one file that are near each other are one
request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.engine.arrow_data import to_arrow_table
from lakebed.errors import CorruptFile, InvalidOption, LakebedError
from lakebed.filters.text import resolve_column
from lakebed.model import RECORD_KEY
from lakebed.properties.table_config import TableConfig
from lakebed.read.lookup import KeyText, get, parse_lookup_keys
from lakebed.read.scan import Results, Scan
from lakebed.schema.blobs import INLINE
from lakebed.schema.conversion import cast_column
from lakebed.schema.logical_types import REFERENCE, is_blob, is_blob_struct
from lakebed.schema.plain_arrow import one_array
from lakebed.slices.snapshot import Snapshot, table_keys
from lakebed.storage import open_storage
from lakebed.storage.base import Storage, StorageSpec, parse_uri
from lakebed.storage.parallel import is_remote, parallel_map
from lakebed.storage.streams import Request, coalesce

MAX_WINDOW_BYTES: Final = 64 << 20
MAX_WINDOW_ROWS: Final = 512
"""Bytes of other files that are in memory at a time, and rows for which they are read together. A blob with more bytes
is read alone."""
MAX_REQUEST_BYTES: Final = 16 << 20
MAX_REQUEST_RANGES: Final = 50
"""Bytes and ranges of one request."""
# Bytes between two ranges that are read with them, as real Hudi does.
_MAX_GAP: Final = 4096
_THREADS: Final = 8
# Sizes of files that are remembered, for references that go to the end of their file.
_MAX_SIZES: Final = 4096
# Keys of the first lookup. The next have more while they stay below a share of the bytes of a window.
_FIRST_KEYS: Final = 16
_MAX_KEYS: Final = 1024
_Label = Callable[[int], str]


class _Range(NamedTuple):
    """Bytes of another file: the number of their row in the window, the file, the first byte, and their number (None:
    up to the end of the file)."""

    row: int
    path: str
    offset: int
    length: int | None


@dataclass
class BlobReader:
    """A reader of the blobs of one column. `spec` is the storage of the table, whose options also open the files that
    its rows reference."""

    spec: StorageSpec
    column: str
    _sizes: dict[str, int] = field(default_factory=dict[str, int])

    def values(self, blobs: pa.Array | pa.ChunkedArray, label: _Label = "row {}".format) -> Iterator[bytes | None]:
        """The bytes of each blob, None for a null. `label` names a row by its number, for errors.

        Raises `CorruptFile`, which names the row and the path, for a file that is missing or ends before the bytes.
        """
        for part in blobs.chunks if isinstance(blobs, pa.ChunkedArray) else [blobs]:
            if pt.is_null(part.type):
                yield from repeat(None, len(part))
                continue
            start = 0
            while start < len(part):
                window = self._window(part.slice(start, MAX_WINDOW_ROWS), lambda n, start=start: label(start + n))
                yield from window
                start += len(window)

    def _window(self, blobs: pa.StructArray, label: _Label) -> list[bytes | None]:
        """The bytes of the first blobs, of as many as the bounds of a window allow."""
        columns = dict(zip((part.name for part in blobs.type), blobs.flatten(), strict=True))
        kinds, data = columns["type"].to_pylist(), columns["data"]
        references = cast_column(columns["reference"], REFERENCE)
        reference = dict(zip((part.name for part in REFERENCE), references.flatten(), strict=True))
        paths, offsets, lengths = (reference[n].to_pylist() for n in ("external_path", "offset", "length"))
        values: list[bytes | None] = []
        ranges: list[_Range] = []
        size = 0
        for row, kind in enumerate(kinds):
            if kind is None or kind == INLINE:
                values.append(None if kind is None else data[row].as_py())
                continue
            if not paths[row]:
                raise self._damaged(label(row), "", f"has the storage type {kind} and names no file")
            target = self._resolved(_Range(row, paths[row], offsets[row] or 0, lengths[row]), label)
            size += target.length or 0
            if ranges and size > MAX_WINDOW_BYTES:
                break
            values.append(b"")
            ranges.append(target)
        for row, value in self._fetched(ranges, label):
            values[row] = value
        return values

    def _resolved(self, target: _Range, label: _Label) -> _Range:
        """The range with its length; of an empty one, and of one that is longer than a request may be, the file is
        looked at first."""
        if target.length and target.length <= MAX_REQUEST_BYTES:
            return target
        if target.path not in self._sizes:
            if len(self._sizes) >= _MAX_SIZES:
                self._sizes.clear()
            self._sizes[target.path] = self._size(target, label)
        length = self._sizes[target.path] - target.offset
        if length < (target.length or 0):
            raise self._too_short(target, self._sizes[target.path], label)
        return target if target.length is not None else target._replace(length=length)

    def _size(self, target: _Range, label: _Label) -> int:
        storage, name = self._opened(target, label)
        try:
            info = storage.head(name)
        except LakebedError as error:
            raise self._named(error, target, label) from error
        if info is None:
            raise self._damaged(label(target.row), target.path, "references a file that is missing")
        return info.size

    def _fetched(self, ranges: Sequence[_Range], label: _Label) -> list[tuple[int, bytes]]:
        """The bytes of these ranges, with the numbers of their rows."""
        by_path: dict[str, list[_Range]] = {}
        for target in ranges:
            by_path.setdefault(target.path, []).append(target)
        requests: list[tuple[list[_Range], Request]] = []
        for listed in by_path.values():
            bounds = [(target.offset, target.length or 0) for target in listed]
            requests += [(listed, r) for r in coalesce(bounds, _MAX_GAP, MAX_REQUEST_BYTES, MAX_REQUEST_RANGES)]
        if not requests:
            return []
        storage, _ = self._opened(requests[0][0][0], label)
        threads = _THREADS if is_remote(storage) else 1
        done = parallel_map(lambda request: self._read(*request, label), requests, threads)
        return list(chain.from_iterable(done))

    def _read(self, listed: Sequence[_Range], request: Request, label: _Label) -> list[tuple[int, bytes]]:
        members = [listed[number] for number in request.members]
        storage, name = self._opened(members[0], label)
        try:
            (data,) = storage.read_ranges(name, [(request.offset, request.length)])
        except (LakebedError, OSError) as error:
            size = self._size(members[0], label)  # which raises if the file is missing
            short = next((m for m in members if m.offset + (m.length or 0) > size), None)
            if short is not None:
                raise self._too_short(short, size, label) from error
            if isinstance(error, LakebedError):
                raise self._named(error, members[0], label) from error
            raise
        if len(members) == 1:
            return [(members[0].row, data)]
        starts = [m.offset - request.offset for m in members]
        return [(m.row, data[at : at + (m.length or 0)]) for m, at in zip(members, starts, strict=True)]

    def _opened(self, target: _Range, label: _Label) -> tuple[Storage, str]:
        """The storage of a referenced file, and the file's path in it."""
        try:
            storage, name, _ = storage_of(target.path, self.spec)
            return storage, name
        except LakebedError as error:
            raise self._named(error, target, label) from error

    def _too_short(self, target: _Range, size: int, label: _Label) -> CorruptFile:
        end = "the end" if target.length is None else f"{target.offset + target.length}"
        why = f"references the bytes {target.offset} to {end} of a file that has {size}"
        return self._damaged(label(target.row), target.path, why)

    def _damaged(self, row: str, path: str, why: str) -> CorruptFile:
        return CorruptFile(
            f"the blob {self.column} of {row} {why}{': ' if path else ''}{path}",
            hint="restore the file, or write the blob again",
            context={"row": row, "column": self.column, "path": path},
        )

    def _named(self, error: LakebedError, target: _Range, label: _Label) -> LakebedError:
        """The error with the row and the path in front."""
        row = label(target.row)
        message = f"the blob {self.column} of {row} is in {target.path}: {error.message}"
        return type(error)(message, hint=error.hint, context={**error.context, "row": row, "path": target.path})


def storage_of(uri: str, table: StorageSpec) -> tuple[Storage, str, str]:
    """The storage of a file or folder that rows of a table reference, its path there, and the URI of the storage. It
    has the options of the table, if that is on a storage of the same kind, or on none that has options."""
    location, scheme = parse_uri(uri), parse_uri(table.uri).scheme
    options = table.options if scheme in (location.scheme, "file", "memory") else {}
    root = "/" if location.scheme == "file" else f"{location.scheme}://{location.authority}"
    return open_storage(root, options), location.path.lstrip("/"), root


def blobs_of_rows(spec: StorageSpec, config: TableConfig, rows: Any, column: str) -> Iterator[bytes | None]:
    """The bytes of the blobs of a lazy read, or of rows in Arrow, batch by batch."""
    fields = tuple(name.partition(".")[0] for name in config.key_fields)
    if isinstance(rows, Scan):
        name = blob_column(column, rows.available)
        key_columns = {RECORD_KEY, *fields} if config.populate_meta_fields else set(fields)
        keys = [n for n in rows.available.names if n in key_columns and n != name]
        batches: Iterable[pa.RecordBatch] = rows.of_columns([*keys, name]).to_batches()
    else:
        reader = rows.to_reader() if isinstance(rows, Results) else to_arrow_table(rows).to_reader()
        name, batches = blob_column(column, reader.schema), reader
    return _of_batches(BlobReader(spec, name), batches, fields)


def _of_batches(reader: BlobReader, batches: Iterable[pa.RecordBatch], fields: Sequence[str]) -> Iterator[bytes | None]:
    start = 0
    for batch in batches:
        yield from reader.values(batch.column(reader.column), _labels(batch, start, fields))
        start += batch.num_rows


def _labels(batch: pa.RecordBatch, start: int, fields: Sequence[str]) -> _Label:
    """Names of rows, by their keys where the batch has these."""
    named = [RECORD_KEY] if RECORD_KEY in batch.schema.names else [n for n in fields if n in batch.schema.names]

    def label(number: int) -> str:
        values = [batch.column(name)[number].as_py() for name in named]
        return f"row {', '.join(map(repr, values))}" if values else f"row {start + number}"

    return label


def blob_column(column: str, schema: pa.Schema) -> str:
    """The name of a blob column, in any case. Raises `InvalidOption` for another column, and for a name that the
    schema does not have."""
    field_ = resolve_column(column, schema)
    if not (is_blob_struct(field_.type) or pt.is_null(field_.type)):
        blobs = [f.name for f in schema if is_blob(f)]
        raise InvalidOption(
            f"column {field_.name} holds no blobs: its type is {field_.type}",
            hint=f"the blob columns are {', '.join(blobs)}" if blobs else "there is no blob column",
            context={"column": field_.name},
        )
    return field_.name


def blobs_of_keys(spec: StorageSpec, steadily: Callable[..., Any], keys: Any, column: str) -> Iterator[bytes | None]:
    """The bytes of the blob of each key, in the order of the keys; None for a null, and for a key without a row. A few
    rows are looked up at a time, by the bytes that they have."""

    def checked(view: Snapshot) -> tuple[str, Any]:
        return blob_column(column, view.schema), parse_lookup_keys(view, keys).texts

    name, texts = steadily(checked)
    return _looked_up(BlobReader(spec, name), steadily, one_array(texts))


def _looked_up(reader: BlobReader, steadily: Callable[..., Any], texts: pa.Array) -> Iterator[bytes | None]:
    start, count = 0, _FIRST_KEYS
    while start < len(texts):
        part = texts.slice(start, count)
        keys = KeyText(part.drop_null())
        stored, rows = steadily(partial(_rows_by_key, keys=keys, column=reader.column), looks_up=True)
        column = one_array(rows.column(reader.column))
        at = pc.index_in(part, value_set=stored, skip_nulls=True)
        blobs = column.take(at)
        yield from reader.values(blobs, lambda n, part=part: f"row {part[n].as_py()!r}")
        start += len(part)
        if 4 * column.nbytes < MAX_WINDOW_BYTES:
            count = min(_MAX_KEYS, 4 * count)
        elif column.nbytes > MAX_WINDOW_BYTES:
            count = max(1, count // 4)


def _rows_by_key(view: Snapshot, keys: Any, column: str) -> tuple[pa.Array, pa.Table]:
    """The stored keys of the rows with these keys, and the rows."""
    if view.config.populate_meta_fields:
        rows = get(view, keys, [RECORD_KEY, column])
        return one_array(rows.column(RECORD_KEY)).cast(pa.string()), rows
    fields = list(dict.fromkeys(name.partition(".")[0] for name in view.config.key_fields))
    rows = get(view, keys, list(dict.fromkeys([*fields, column])))
    return one_array(table_keys(view).key_text_of(rows, view.schema)), rows


def is_rows(source: Any, column: str) -> bool:
    """Whether the first argument of `read_blob` is rows with the column, and not keys."""
    if isinstance(source, Results):
        return True
    names: Any = getattr(getattr(source, "schema", None), "names", None) or getattr(source, "columns", None)
    if isinstance(source, list):
        rows: list[Any] = source
        names = list(rows[0]) if rows and isinstance(rows[0], Mapping) else None
    if names is None:
        return False
    names = names() if callable(names) else names
    return column.lower() in {str(name).lower() for name in names}
