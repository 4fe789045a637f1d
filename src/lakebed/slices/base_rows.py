"""Rows of a slice's base file in the columns and types that a merge wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.base_file import Footer, read_base_file, read_footer
from lakebed.format.read_tally import ReadTally
from lakebed.model import COMMIT_TIME, FILE_NAME, PARTITION_PATH, BaseFile
from lakebed.schema.evolution import cast_column
from lakebed.sharing import once
from lakebed.storage.base import Storage

# Meta columns with few different values: they go through a merge as dictionaries.
DICTIONARY_META = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
StoredNames = Mapping[str, str | None]


class ColumnNames(Protocol):
    """A mapping of a table's columns to their names in the files of an instant. It can be pickled."""

    def stored_names(self, instant: str, columns: pa.Schema) -> dict[str, str | None]:
        """The names of columns in a file of this instant, None for a column that it does not have; a column that is
        missing in the dict has its own name."""
        ...


class BaseRows(Protocol):
    """The stored rows that log records are merged into; every read returns the same rows in the same order."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def rows(self) -> int: ...

    is_complete: ClassVar[bool]
    """Whether these are all rows of the file, in its order."""

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The `columns` (those that exist) of all rows, in batches."""
        ...


@dataclass(frozen=True)
class BaseFileRows:
    """All rows of a base file; `dictionary` names text columns that are read as dictionaries."""

    storage: Storage
    file: BaseFile
    batch_rows: int
    dictionary: Sequence[str] = ()
    page_checksums: bool = True
    cached_footer: Footer | None = None
    tally: ReadTally | None = None
    is_complete: ClassVar[bool] = True

    @once
    def footer(self) -> Footer:
        return self.cached_footer or read_footer(self.storage, self.file.path, self.file.size or None)

    @property
    def schema(self) -> pa.Schema:
        return self.footer.schema

    @property
    def rows(self) -> int:
        return self.footer.rows

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from read_base_file(
            self.storage,
            self.file.path,
            self.file.size or None,
            columns,
            batch_rows=self.batch_rows,
            dictionary=[*DICTIONARY_META, *self.dictionary],
            footer=self.footer,
            page_checksums=self.page_checksums,
            tally=self.tally,
        )


@dataclass(frozen=True)
class RowsOfInstants:
    """The rows of another `BaseRows` that some instants wrote."""

    of: BaseRows
    instants: Set[str]
    is_complete: ClassVar[bool] = False

    @property
    def schema(self) -> pa.Schema:
        return self.of.schema

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.read([COMMIT_TIME]))

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        instants = pa.array(sorted(self.instants), pa.string())
        for batch in self.of.read([*columns, *([COMMIT_TIME] if COMMIT_TIME not in columns else [])]):
            times = batch.column(COMMIT_TIME)
            times = times.dictionary_decode() if pa.types.is_dictionary(times.type) else times
            known_names = frozenset(batch.schema.names)
            yield batch.filter(pc.is_in(times, value_set=instants)).select(
                [name for name in columns if name in known_names]
            )


@dataclass(frozen=True)
class BufferedRows:
    """Rows of a base file that were already read, with all columns that are needed."""

    batches: Sequence[pa.RecordBatch]
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    is_complete: ClassVar[bool] = False

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            known_names = frozenset(batch.schema.names)
            yield batch.select([name for name in columns if name in known_names])


def stored_names(columns: Sequence[str], schema: pa.Schema, names: StoredNames) -> list[str | None]:
    """The names that columns of the table have in a file, perhaps in another case; None for those that it does not
    have."""
    file_names = schema.names
    exact = frozenset(file_names)
    stored = [names.get(name, name) for name in columns]
    if exact.issuperset([name for name in stored if name is not None]):
        return stored
    folded: dict[str, list[str]] = {}
    for name in file_names:
        folded.setdefault(name.lower(), []).append(name)
    matches = [name if name is None or name in exact else folded.get(name.lower(), []) for name in stored]
    return [m if m is None or isinstance(m, str) else m[0] if len(m) == 1 else None for m in matches]


def shaped(rows: pa.RecordBatch, schema: pa.Schema, names: StoredNames) -> list[pa.Array]:
    """The columns of `schema` for rows of one file, null in a column that the file does not have; dictionaries of texts
    are retained."""
    columns: list[pa.Array] = []
    for target, stored in zip(schema, stored_names(schema.names, rows.schema, names), strict=True):
        if stored is None:
            columns.append(pa.nulls(rows.num_rows, target.type))
            continue
        column = rows.column(stored)
        keeps_dictionary = pa.types.is_dictionary(column.type) and column.type.value_type.equals(target.type)
        columns.append(column if keeps_dictionary else cast_column(column, target.type))
    return columns


def plain_rows(rows: pa.RecordBatch, dictionary: Sequence[str] = ()) -> pa.RecordBatch:
    """The rows with dictionary columns decoded, except the columns in `dictionary`."""
    coded = [f.name for f in rows.schema if pa.types.is_dictionary(f.type) and f.name not in dictionary]
    if not coded:
        return rows
    columns = [c.dictionary_decode() if n in coded else c for n, c in zip(rows.schema.names, rows.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
