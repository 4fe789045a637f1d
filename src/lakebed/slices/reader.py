"""Reads file slices: all rows, some columns, or the number of rows. Everything that needs stored rows reads here.

A slice without log files is its base file; the rows of one with log files are merged (`MergedSlice`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from lakebed.errors import UnsupportedFeature
from lakebed.format.base_file import Footer, read_base_file, read_footer
from lakebed.format.read_tally import ReadTally
from lakebed.format.sources import SMALL_FILE_BYTES
from lakebed.merge.log_entries import BlockView, KeyColumns
from lakebed.model import FILE_NAME, META_COLUMNS, POSITION, RECORD_KEY, BaseFile, FileSlice, has_completion_times
from lakebed.properties.features import TableFacts, check_read
from lakebed.properties.table_config import KeyTexts, TableConfig
from lakebed.storage.base import Storage
from lakebed.storage.folder import BufferedFile
from lakebed.storage.parallel import in_background, is_remote

if TYPE_CHECKING:
    from lakebed.slices.base_rows import BaseRows, ColumnNames
    from lakebed.slices.logs import SliceLogs
    from lakebed.slices.merged import MergedSlice, RowGroups
    from lakebed.slices.schema_history import Renaming, SchemaHistory

Query = Literal["snapshot", "read_optimized"]

BATCH_ROWS = 65_536
# Log records in memory; beyond it they are in a mapped file.
MERGE_MEMORY = 512 << 20


def readable_slices(config: TableConfig, slices: Iterable[FileSlice], query: Query = "snapshot") -> list[FileSlice]:
    """The slices as a query reads them: for a read-optimized query, and for a copy-on-write table, only their base
    files.

    Raises `UnsupportedFeature` for a table that the query cannot read right.
    """
    file_slices = list(slices)
    check_read(config, TableFacts(), query)
    if query == "read_optimized" or config.table_type == "cow":
        return base_files_only(file_slices)
    return file_slices


def base_files_only(slices: Iterable[FileSlice]) -> list[FileSlice]:
    """The slices without their log files; slices without a base file are left out."""
    return [s.without_logs() for s in slices if s.base_file is not None]


@dataclass(frozen=True, slots=True)
class SliceReader:
    """A reader of the file slices of one table. It can be sent to tasks: a storage is pickled as the data needed to
    open it.

    `blocks` decides which blocks of log files count, `memory` how many bytes of log records a merge holds. What is read
    is added to a `tally`. By the `history` of the table's schema, where it has one, columns that files have under other
    names get those of today. `opened` are the log files of the one slice that is read, where the caller opened them.
    """

    storage: Storage
    config: TableConfig
    blocks: BlockView = field(default_factory=BlockView)
    memory: int = MERGE_MEMORY
    tally: ReadTally | None = None
    history: SchemaHistory | None = None
    opened: SliceLogs | None = None

    def buffering(self, base: BaseFile) -> SliceReader:
        """This reader, for one task that reads a base file several times: on a slow storage a small file is read by one
        request."""
        if not 0 < base.size <= SMALL_FILE_BYTES or base.is_skeleton or not is_remote(self.storage):
            return self
        return replace(self, storage=BufferedFile(self.storage, base.path, base.size))

    def renaming(self, base: BaseFile) -> Renaming | None:
        """The table's names for the columns of a base file; None if the file has the table's names."""
        return None if self.history is None else self.history.renaming(base.instant)

    def of_instants(self, instants: Set[str]) -> SliceReader:
        """The reader of the records of only these instants: nothing else is merged."""
        return replace(self, blocks=self.blocks.of_instants(instants))

    def is_merged(self, file_slice: FileSlice) -> bool:
        """Whether the rows of the slice come from more than its base file."""
        return bool(file_slice.log_files) and self.config.table_type == "mor"

    def is_composed(self, file_slice: FileSlice) -> bool:
        """Whether the rows come from several files: log files are merged, or the base file is a skeleton. They are read
        in the table's types."""
        base = file_slice.base_file
        return self.is_merged(file_slice) or (base is not None and base.is_skeleton)

    def base_file(self, file_slice: FileSlice) -> BaseFile | None:
        """The base file that alone has the slice's rows; None for a slice without rows.

        Raises `UnsupportedFeature` where log files have to be merged.
        """
        if self.is_merged(file_slice):
            raise UnsupportedFeature(
                f"the file slice {file_slice.label} of {self.config.name} has log files: its base file alone is not "
                "its rows",
                hint="compact the table first",
                context={"feature": "log files", "path": file_slice.label},
            )
        return file_slice.base_file

    def read(
        self,
        file_slice: FileSlice,
        columns: Sequence[str] | None = None,
        *,
        schema: pa.Schema | None = None,
        names: ColumnNames | None = None,
        batch_rows: int = BATCH_ROWS,
        dictionary: Sequence[str] = (),
        row_groups: Sequence[int] | None = None,
        footer: Footer | None = None,
        page_checksums: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The rows by batches; memory is bounded by a batch or two, and by the keys of log records.

        `columns` None gives all; those that the slice lacks are left out. The types are those of `schema` for the
        columns that it has, else those of the slice's newest file; a column of the schema that a file lacks is null.
        `names` maps columns that files have under other names; without it the table's schema history does. The other
        options are those of `read_base_file` (`row_groups` are of slices without log files only).
        """
        from lakebed.slices.base_rows import plain_rows, shaped

        if self.is_merged(file_slice):
            merged = self._merged(file_slice, columns, schema, names, batch_rows, dictionary, footer, page_checksums)
            for batch in merged.batches():
                yield plain_rows(batch, dictionary)
            return
        base = file_slice.base_file
        if base is None:
            return
        renaming = self.renaming(base) if names is None else None
        batches = read_base_file(
            self.storage,
            base.path,
            base.size or None,  # not known where a write stat alone names the file
            columns if renaming is None or columns is None else renaming.in_file(columns),
            batch_rows=batch_rows,
            dictionary=dictionary if renaming is None else renaming.in_file(dictionary),
            row_groups=row_groups,
            footer=footer,
            page_checksums=page_checksums,
            tally=self.tally,
        )
        if renaming is not None:
            batches = map(renaming.batch, batches)
        if schema is None:
            yield from batches
            return
        stored = {} if names is None else names.stored_names(base.instant, schema)
        for batch in batches:
            yield pa.RecordBatch.from_arrays(shaped(batch, schema, stored), names=schema.names)

    def read_placed(self, file_slice: FileSlice, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Stored rows for a search of their locations: like `read`, but `_hoodie_file_name` has the file group and
        instant of the slice also in rows of log files, and the column `POSITION` can be requested. `schema` are the
        types for a slice with log files."""
        from lakebed.slices.base_rows import plain_rows

        stored, numbered = [name for name in columns if name != POSITION], POSITION in columns
        if not self.is_merged(file_slice):
            first = 0
            for batch in self.read(file_slice, stored):
                numbers = np.arange(first, first + batch.num_rows) if numbered else None
                yield batch if numbers is None else batch.append_column(POSITION, pa.array(numbers))
                first += batch.num_rows
            return
        kinds = {f.name: f.type for f in schema}
        requested_schema = pa.schema([(name, kinds.get(name, pa.string())) for name in stored])
        name = file_slice.base_file.name if file_slice.base_file else f"{file_slice.file_id}_0-0-0_{file_slice.instant}"
        at = requested_schema.get_field_index(FILE_NAME)
        merged = self.open_merge(file_slice, requested_schema, self._base_rows(file_slice, BATCH_ROWS))
        for batch, numbers in merged.numbered() if numbered else ((batch, None) for batch in merged.batches()):
            rows = plain_rows(batch)
            if at >= 0:
                rows = rows.set_column(at, FILE_NAME, pa.repeat(pa.scalar(name, pa.string()), rows.num_rows))
            if numbers is not None:
                rows = rows.append_column(POSITION, pa.array(numbers, mask=numbers < 0))
            yield rows

    def merged(
        self,
        file_slice: FileSlice,
        schema: pa.Schema,
        *,
        dictionary: Sequence[str] = (),
        batch_rows: int = BATCH_ROWS,
        groups: RowGroups | None = None,
        footer: Footer | None = None,
    ) -> MergedSlice:
        """The complete rows of a slice for rewriting: meta columns as stored, then the other columns of `schema` in its
        types. Text columns of base files that `dictionary` names are dictionaries. `groups` are the row groups of the
        base file, if some can be copied; `footer` is its footer, if the caller has read it."""
        meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
        full_schema = pa.schema([*meta, *[f for f in schema if f.name not in META_COLUMNS]])
        merge = self.open_merge(file_slice, full_schema, self._base_rows(file_slice, batch_rows, dictionary, footer))
        return merge if groups is None else replace(merge, groups=groups)

    def open_merge(
        self,
        file_slice: FileSlice,
        schema: pa.Schema | None,
        base: BaseRows | None,
        *,
        columns: Sequence[str] | None = None,
        names: ColumnNames | None = None,
        keys: pa.Array | None = None,
    ) -> MergedSlice:
        """The merge of a slice's log files with rows of its base file: all rows, or those of some `keys`."""
        from lakebed.merge.rules import MergeRules
        from lakebed.slices.merged import MergedSlice

        logs = self.logs(file_slice) if self.opened is None else self.opened
        rules = MergeRules.of_table(self.config)
        instant = file_slice.base_file.instant if file_slice.base_file else ""
        stored = self._stored_schemas(logs, base, instant, named=names is not None)
        names = names or self.history
        merge_schema, output_names = _requested(columns, schema, stored), None
        if rules.merger is not None:  # it gets whole rows
            merge_schema, output_names = _requested(None, None, stored, default_schema=merge_schema), merge_schema.names
        return MergedSlice(
            logs=logs,
            base=base,
            base_instant=instant,
            path=file_slice.label,
            schema=merge_schema,
            rules=rules,
            key_columns=self._key_columns(),
            key_copy=self.config.key_copy,
            names=names,
            keys=keys,
            memory=self.memory,
            columns=output_names,
        )

    def _stored_schemas(self, logs: SliceLogs, base: BaseRows | None, instant: str, *, named: bool) -> StoredSchemas:
        """The columns of the slice's files, the newest first, under the table's names (unless the caller `named` them);
        files are opened on demand."""

        def schemas() -> Iterator[pa.Schema]:
            history = None if named else self.history
            for number in reversed(logs.data):
                renaming = None if history is None else history.renaming(logs.blocks[number].instant)
                block_schema = logs.block(number).schema
                yield block_schema if renaming is None else renaming.schema(block_schema)
            if base is not None:
                renaming = None if history is None else history.renaming(instant)
                yield base.schema if renaming is None else renaming.schema(base.schema)

        return schemas

    def logs(self, file_slice: FileSlice) -> SliceLogs:
        """The visible blocks of a slice's log files; only their headers are read."""
        from lakebed.slices.logs import SliceLogs

        if self.tally is not None:
            self.tally.add("opened", len(file_slice.log_files))
            self.tally.add("bytes", file_slice.log_bytes)
        # log files of writes during a planned resize of buckets are named after the resize, and real Hudi's in any
        # order; below version 8 files are in the order that they were written in, and instants need not be
        by_instant = has_completion_times(self.config.version)
        return SliceLogs.scan(self.storage, file_slice.log_files, self.blocks, self.memory, by_instant=by_instant)

    def count(self, file_slice: FileSlice) -> int:
        """The number of rows; only the footer is read, and if log files are merged also keys and ordering values."""
        if self.is_merged(file_slice):
            reader = self if file_slice.base_file is None else self.buffering(file_slice.base_file)
            merged = reader._open_beside_logs(file_slice, pa.schema([]), reader._base_rows(file_slice, BATCH_ROWS))
            return replace(merged, cached_as=self.cached_as(file_slice)).count()
        base = file_slice.base_file
        return 0 if base is None else read_footer(self.storage, base.path, base.size).rows

    def _merged(
        self,
        file_slice: FileSlice,
        columns: Sequence[str] | None,
        schema: pa.Schema | None,
        names: ColumnNames | None,
        batch_rows: int,
        dictionary: Sequence[str],
        footer: Footer | None,
        page_checksums: bool,
    ) -> MergedSlice:
        reader = self if file_slice.base_file is None else self.buffering(file_slice.base_file)
        base = reader._base_rows(file_slice, batch_rows, dictionary, footer, page_checksums=page_checksums)
        merged = reader._open_beside_logs(file_slice, schema, base, columns=columns, names=names)
        return replace(merged, cached_as=self.cached_as(file_slice))

    def _open_beside_logs(
        self,
        file_slice: FileSlice,
        schema: pa.Schema | None,
        base: BaseRows | None,
        *,
        columns: Sequence[str] | None = None,
        names: ColumnNames | None = None,
    ) -> MergedSlice:
        """The merge of a slice with all rows of its base file, whose footer is read while the log files are, on a slow
        storage."""
        if base is None or not is_remote(self.storage):
            return self.open_merge(file_slice, schema, base, columns=columns, names=names)
        footer = in_background(lambda: base.schema)
        merged = self.open_merge(file_slice, schema, base, columns=columns, names=names)
        footer()
        return merged

    def cached_as(self, file_slice: FileSlice) -> tuple[str, int]:
        """The cache key of a slice's base file: its URL and size."""
        base = file_slice.base_file
        path, size = (file_slice.label, 0) if base is None else (base.path, base.size)
        return self.storage.url(path), size

    def _base_rows(
        self,
        file_slice: FileSlice,
        batch_rows: int,
        dictionary: Sequence[str] = (),
        footer: Footer | None = None,
        *,
        page_checksums: bool = True,
    ) -> BaseRows | None:
        from lakebed.slices.base_rows import BaseFileRows, RowsOfInstants

        base = file_slice.base_file
        if base is None:
            return None
        rows = BaseFileRows(self.storage, base, batch_rows, tuple(dictionary), page_checksums, footer, self.tally)
        return rows if self.blocks.within is None else RowsOfInstants(rows, self.blocks.within)

    def _key_columns(self) -> KeyColumns:
        if self.config.populate_meta_fields:
            return KeyColumns((RECORD_KEY,))
        return KeyColumns(tuple(self.config.key_fields), KeyTexts(self.config))

    def key_copy(self, schema: pa.Schema) -> str | None:
        """The column of files with this schema whose texts are the record keys; None if there is none."""
        copy = self.config.key_copy
        return copy if copy in schema.names and pa.types.is_string(schema.field(copy).type) else None


StoredSchemas = Callable[[], Iterator[pa.Schema]]


def _requested(
    columns: Sequence[str] | None,
    schema: pa.Schema | None,
    stored: StoredSchemas,
    default_schema: pa.Schema | None = None,
) -> pa.Schema:
    """The columns of a merge in the types of `schema` (or `default_schema`), otherwise of the newest file that has
    them."""
    if schema is not None and (columns is None or set(columns) <= set(schema.names)):
        return schema if columns is None else pa.schema([schema.field(name) for name in columns])
    fields: dict[str, pa.Field] = {f.name: f for f in schema or default_schema or ()}
    for file_schema in stored():
        fields |= {f.name: f for f in file_schema if f.name not in fields}
    return pa.schema([fields[name] for name in (fields if columns is None else columns) if name in fields])
