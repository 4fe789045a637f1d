"""Lance base files, as Hudi writes them: one file of format 2.0 a file slice, by pylance's reader and writer.

A file is one row group, whose rows are read one by one. pylance opens files of the local disk by their path; a file of
another storage is copied to a temporary file first, and a new file is written to one before it is uploaded.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import UnsupportedFeature
from lakebed.format.base_file import AVRO_SCHEMA_KEY, BLOOM_KEY, BLOOM_TYPE_KEY, Footer
from lakebed.format.base_formats import GroupSize, GroupSizes, Rows
from lakebed.schema.arrow import plain_type
from lakebed.schema.conversion import cast_column
from lakebed.schema.logical_types import HUDI_TYPE, descriptor_of, is_vector, vector_name
from lakebed.schema.plain_arrow import as_numpy, has_map
from lakebed.storage.base import Storage, Upload

_VERSION = "2.0"
_PIECE = 8 << 20
# Rows that pylance decodes at a time; fewer cost more for each batch.
_BATCH_ROWS = 8_192
_LIST_SIZE = b"arrow.fixed-size-list.size"
_HINT = "Take Parquet base files for such columns: create(..., base_format='parquet')."


def require_lance() -> None:
    """Raise `UnsupportedFeature` if pylance is not installed."""
    if find_spec("lance") is None:
        raise UnsupportedFeature("Lance base files need the package pylance", hint="pip install 'lakebed[lance]'")


def check_lance_columns(schema: pa.Schema) -> None:
    """Raise `UnsupportedFeature` for columns that Lance base files cannot have, or that Hudi loses or refuses there."""
    for field in schema:
        why = _refusal(field)
        if why:
            raise UnsupportedFeature(
                f"column {field.name} {why}", hint=_HINT, context={"column": field.name, "type": str(field.type)}
            )


def _refusal(field: pa.Field) -> str:
    descriptor = descriptor_of(field).upper()
    if descriptor == "BLOB":
        return "is a BLOB, whose bytes Hudi loses in Lance base files when it compacts them"
    if descriptor == "VARIANT":
        return "is a VARIANT, which Hudi refuses in Lance base files"
    if is_vector(field.type) and pt.is_int8(field.type.value_type):
        return f"is a {vector_name(field.type)}, and Lance base files have vectors of floats and doubles only"
    return "has a map, which Lance files of format 2.0 do not have" if has_map(field.type) else ""


@dataclass(frozen=True)
class LanceSource:
    """A Lance file on the local disk."""

    path: str

    def reader(self, columns: Sequence[str] | None = None) -> Any:
        """pylance's reader of some columns (None: of all)."""
        require_lance()
        from lance.file import LanceFileReader

        with _panics_named():
            return LanceFileReader(self.path, columns=None if columns is None else list(columns))


class LanceFormat:
    """The format of Lance files."""

    name = "Lance"

    @contextmanager
    def open(self, storage: Storage, path: str, size: int | None) -> Generator[LanceSource]:
        """The file, if need be as a temporary copy."""
        url = storage.url(path)
        if url.startswith("file://"):
            local = Path(url.removeprefix("file://"))
            _check_size(local.stat().st_size, size)
            yield LanceSource(str(local))
            return
        with storage.open_input(path, size) as source:
            _check_size(source.size(), size)
            with _temporary() as local:
                with local.open("wb") as copy:
                    shutil.copyfileobj(source, copy, _PIECE)
                yield LanceSource(str(local))

    @contextmanager
    def open_bytes(self, data: Any) -> Generator[LanceSource]:
        """The file with this content, as a temporary copy."""
        with _temporary() as local:
            local.write_bytes(data)
            yield LanceSource(str(local))

    def footer(self, source: LanceSource, path: str) -> Footer:
        """The footer of a file."""
        reader = source.reader()
        stored, rows = reader.metadata().schema, reader.num_rows()
        size = sum(column.size_bytes for column in reader.file_statistics().columns)
        texts = stored.metadata or {}
        return Footer(
            path=path,
            schema=pa.schema([pa.field(f.name, f.type if is_vector(f.type) else plain_type(f.type)) for f in stored]),
            key_values={k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in texts.items()},
            rows=rows,
            row_groups=1 if rows else 0,
            metadata=GroupSizes((GroupSize(rows, size),) if rows else (), sum(map(len, texts.values()))),
        )

    def rows(self, source: LanceSource, footer: Footer) -> LanceRows:
        """The reader of the rows of a file."""
        return LanceRows(source, footer)


LANCE = LanceFormat()


@dataclass(frozen=True)
class LanceRows:
    """Reads the rows of a file, all of which are its row group 0."""

    source: LanceSource
    footer: Footer

    def iter_batches(
        self, batch_size: int, row_groups: Sequence[int], columns: Sequence[str], use_threads: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows in batches."""
        for _ in row_groups:
            if not columns:
                yield pa.RecordBatch.from_struct_array(pa.nulls(self.footer.rows, pa.struct([])))
                continue
            batches = iter(self.source.reader(columns).read_all(batch_size=batch_size).to_batches())
            while True:
                with _panics_named():
                    batch = next(batches, None)
                if batch is None:
                    break
                yield from self._in_types(pa.Table.from_batches([batch]), columns).to_batches()

    def read_row_group(self, number: int, /, columns: Sequence[str], use_threads: bool = False) -> pa.Table:
        """All rows."""
        batches = list(self.iter_batches(_BATCH_ROWS, [number], columns))
        schema = pa.schema([self.footer.schema.field(name) for name in columns])
        return pa.Table.from_batches(batches, schema).combine_chunks()

    def take(self, number: int, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """The rows with these ascending numbers; only they are read."""
        if not columns:
            return pa.Table.from_struct_array(pa.nulls(len(rows), pa.struct([])))
        reader = self.source.reader(columns)
        with _panics_named():
            return self._in_types(reader.take_rows(rows.tolist(), batch_size=_BATCH_ROWS).to_table(), columns)

    def _in_types(self, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        fields = [self.footer.schema.field(name) for name in columns]
        return pa.Table.from_arrays(
            [cast_column(rows.column(f.name), f.type) for f in fields], schema=pa.schema(fields)
        )


class LanceFileWriter:
    """A writer of one base file, batch by batch: to a temporary file, which is uploaded when it is complete.

    `schema` is the file's, meta columns included. The size so far is that of the rows in memory, which Lance files of
    format 2.0 do not compress.
    """

    def __init__(self, upload: Upload, schema: pa.Schema) -> None:
        require_lance()
        from lance.file import LanceFileWriter as Writer

        check_lance_columns(schema)
        self._upload = upload
        self._folder = tempfile.TemporaryDirectory(prefix="lakebed-lance-")
        self._local = Path(self._folder.name) / "rows.lance"
        self._schema = pa.schema([_written_field(field) for field in schema])
        self._writer: Any = Writer(str(self._local), self._schema, version=_VERSION)
        self._bytes = 0

    def write(self, data: pa.RecordBatch, *, is_ordinary: bool = False, nbytes: int | None = None) -> None:
        """Append rows, with the schema's columns in its order. A struct that is null becomes one whose fields are
        null."""
        arrays = [_without_null_structs(cast_column(data.column(f.name), f.type)) for f in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        with _panics_named():
            self._writer.write_batch(batch)
        self._bytes += batch.nbytes

    @property
    def pending_rows(self) -> int:
        """Always 0: there are no row groups."""
        return 0

    @property
    def max_bytes(self) -> int:
        """An upper bound of the file's size so far in bytes, without footer."""
        return self._bytes

    @property
    def bytes_written(self) -> int:
        """The size of the file so far, without footer."""
        return self._bytes

    def stored_ranges(self) -> None:
        """No ranges: the footer has none."""

    def range_row(self) -> None:
        """Always None: the metadata table has no statistics of columns of Lance files."""

    def close(self, footer: Mapping[str, str]) -> int:
        """Write the footer, upload the file and make it visible. Returns its size in bytes."""
        from lakebed.format.parquet_writer import SPARK_VERSION_KEY

        # Hudi stores no Avro schema in Lance files, and takes a bloom filter without a type code for a dynamic one
        texts = {key: text for key, text in footer.items() if key not in (AVRO_SCHEMA_KEY, SPARK_VERSION_KEY)}
        try:
            for key, text in ({BLOOM_TYPE_KEY: "SIMPLE", **texts} if BLOOM_KEY in texts else texts).items():
                self._writer.add_schema_metadata(key, text)
            with _panics_named():
                self._writer.close()
            with self._local.open("rb") as rows:
                shutil.copyfileobj(rows, self._upload, _PIECE)
        except BaseException:
            self.abort()
            raise
        size = self._local.stat().st_size
        self._folder.cleanup()
        self._upload.close()
        return size

    def abort(self) -> None:
        """Stop writing and remove the file."""
        self._writer = None
        self._folder.cleanup()
        self._upload.abort()


def _written_field(field: pa.Field) -> pa.Field:
    """The field of a column in a new file: every column may be null, and a vector names its type as Hudi does."""
    if not is_vector(field.type):
        return pa.field(field.name, field.type)
    kind = pa.list_(pa.field("item", field.type.value_type), field.type.list_size)
    texts = {HUDI_TYPE: vector_name(field.type).encode(), _LIST_SIZE: str(kind.list_size).encode()}
    return pa.field(field.name, kind, metadata=texts)


def _has_null_struct(values: Any) -> bool:
    kind = values.type
    if pt.is_struct(kind):
        return values.null_count > 0 or any(map(_has_null_struct, values.flatten()))
    return (pt.is_list(kind) or pt.is_fixed_size_list(kind)) and _has_null_struct(values.flatten())


def _without_null_structs(values: Any) -> Any:
    """The values with structs whose fields are null in place of structs that are null, as Hudi writes them: a file of
    format 2.0 has no others."""
    kind = values.type
    if not _has_null_struct(values):
        return values
    if pt.is_struct(kind):
        return pa.StructArray.from_arrays(list(map(_without_null_structs, values.flatten())), fields=list(kind))
    lengths = as_numpy(pc.fill_null(pc.list_value_length(values), 0))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    inner = _without_null_structs(values.flatten())
    return pa.ListArray.from_arrays(offsets, inner, type=kind, mask=values.is_null())


def _check_size(actual: int, size: int | None) -> None:
    if size is not None and actual != size:
        raise ValueError(f"it has {actual} bytes and should have {size}")


@contextmanager
def _temporary() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="lakebed-lance-") as folder:
        yield Path(folder) / "rows.lance"


@contextmanager
def _panics_named() -> Generator[None]:
    """Raise `ValueError` for a panic of pylance's Rust code, which no `except Exception` sees."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"pylance panicked: {error}") from error
