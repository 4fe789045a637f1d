"""Writing one base file with everything Hudi expects around it: marker, partition metadata, meta columns, footer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from lakebed.concurrency.markers import MarkerKind, check_marker, write_marker
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Task
from lakebed.expressions.plain_keys import PlainKeys
from lakebed.format.base_file import base_file_footer
from lakebed.format.base_formats import BaseFileSink
from lakebed.format.bloom import BloomFilter, all_ones
from lakebed.format.bounded_cache import cached_by_schema
from lakebed.format.column_ranges import ColumnRanges, StoredRanges, as_stream
from lakebed.format.data_block import LogMode
from lakebed.format.file_names import base_extension, base_file_name, exact_token
from lakebed.format.footer_cache import key_ranges
from lakebed.format.key_order import SORTED_BY, Ascending, KeyRange
from lakebed.format.parquet_encodings import ColumnForm
from lakebed.format.parquet_writer import (
    PAGE_ROWS,
    ROW_GROUP_ROWS,
    SORTED_ROW_GROUP_ROWS,
    ParquetSettings,
)
from lakebed.format.row_addresses import ADDRESSES_KEY, AddressWriter, fingerprints
from lakebed.format.row_groups.assembled import AssembledFile, NewFile, Traffic
from lakebed.format.row_groups.stored import StoredGroups
from lakebed.format.text import dump_properties
from lakebed.handles.change_log import ChangeLogWriter
from lakebed.handles.new_rows import NewRows
from lakebed.merge.meta_columns import FreshMeta, constant
from lakebed.merge.row_merge import Merged
from lakebed.metadata_kinds.key_changes import KeyChanges, report_changes
from lakebed.model import FILE_NAME, RECORD_KEY, path_in
from lakebed.schema.logical_types import vector_columns
from lakebed.slices.listing import PARTITION_METADATA
from lakebed.storage.base import Storage
from lakebed.write_status import WriteStatus

# Parts (one in so many) of the maximum file size: less free space is not worth filling, and as much is written without
# asking.
_AS_GOOD_AS_FULL = 32
_PART = 20
_vectors_in_footer = cached_by_schema(vector_columns)


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The format of the base and log files of this table: the columns and the Avro schema with meta columns, and the
    Parquet and bloom settings.

    `log_blocks` is the format of data blocks. `range_columns` are those whose ranges are collected. `change_fields`
    requests the keys that are added and removed, with these fields of them (None: not requested). `sort` keeps the rows
    of a file in the order of their keys. `change_log` is what the changes of a merge are logged with, if they are.
    `plain_keys` are the key fields for which files record whether their texts can be misread (empty: not requested).
    With `field_ids` the columns of base files have ids. `key_column` is the column whose texts are the record keys, if
    it is a text column.
    """

    schema: pa.Schema
    avro_schema: str
    settings: WriteSettings
    populate_meta: bool = True
    range_columns: tuple[str, ...] = ()
    change_fields: tuple[str, ...] | None = None
    sort: bool = False
    log_blocks: Literal["avro", "parquet"] = "avro"
    change_log: LogMode | None = None
    plain_keys: tuple[str, ...] = ()
    field_ids: bool = False
    key_column: str | None = None
    base_format: str = "PARQUET"

    @property
    def has_addresses(self) -> bool:
        """Whether base files have row addresses."""
        return self.settings.row_addresses and self.populate_meta and self.is_parquet

    @property
    def is_parquet(self) -> bool:
        """Whether base files are Parquet: of these row groups are copied as bytes, and rows have addresses."""
        return self.base_format == "PARQUET"

    def parquet(self) -> ParquetSettings:
        s = self.settings
        codec = s.compression_codec or "zstd"
        return ParquetSettings(
            codec,
            s.compression_level if codec.lower() == "zstd" else None,
            text_codec=None if s.compression_codec else s.text_codec,
            row_group_rows=SORTED_ROW_GROUP_ROWS if self.sort else ROW_GROUP_ROWS,
            page_rows=PAGE_ROWS,
            field_ids=self.field_ids,
            key_column=self.key_column,
        )

    def bloom(self) -> BloomFilter | None:
        """An empty filter to fill; None if the one-byte filter that accepts every key is written."""
        s = self.settings
        if not s.bloom_filter:
            return None
        if s.bloom_type == "SIMPLE":
            return BloomFilter.simple(s.bloom_entries, s.bloom_fpp)
        return BloomFilter.dynamic(s.bloom_entries, s.bloom_fpp, s.max_bloom_entries)

    def key_changes(self) -> KeyChanges | None:
        """A new collector of key changes; None if key changes are not requested, or keys are not stored."""
        if self.change_fields is None or not self.populate_meta:
            return None
        return KeyChanges(self.change_fields)

    def key_texts(self) -> PlainKeys | None:
        """A new checker of key texts; None if the check is not requested."""
        return PlainKeys(self.plain_keys) if self.plain_keys else None

    def changes_log(
        self, storage: Storage, instant: str, partition: str, file_id: str, task: Task
    ) -> ChangeLogWriter | None:
        """A new writer of the change log of a merge; None if changes are not logged."""
        if self.change_log is None:
            return None
        limit = self.settings.log_file_bytes
        columns = self.schema, self.avro_schema
        return ChangeLogWriter(storage, self.change_log, *columns, limit, instant, partition, file_id, task)

    def fresh_meta(self, instant: str, partition: str, task: Task) -> FreshMeta:
        """The meta columns of rows that a task writes to a partition path."""
        return FreshMeta(self.schema, instant, partition, task, self.populate_meta)

    def next_file_name(self, file_id: str, task: Task, instant: str) -> str:
        """The name of the base file that a task writes to a file group."""
        return base_file_name(file_id, exact_token(task.write_token), instant, base_extension(self.base_format))


@dataclass(slots=True)
class FileWriter:
    """A writer of one new base file of a file group. `write` takes batches in the file's schema without
    `_hoodie_file_name`.

    With `copies` stored row groups can be put among them. `marker` waits for the file's marker, where the caller has
    begun to write it. With `keeps_ranges` the ranges of columns are `stored_ranges` after the file was closed, if its
    footer has all of them, and the status has none: the caller puts them into bytes with those of other files.
    """

    storage: Storage
    format: FileFormat
    instant: str
    partition: str
    file_id: str
    task: Task
    kind: MarkerKind
    bloom: BloomFilter | None
    keys: KeyRange = field(default_factory=KeyRange)
    encodings: Mapping[str, ColumnForm] | None = None
    log: ChangeLogWriter | None = None
    copies: bool = False
    marker: Callable[[], object] | None = None
    keeps_ranges: bool = False
    stored_ranges: StoredRanges | None = None
    rows: int = 0
    name: str = ""
    ranges: bytes | None = None
    changes: KeyChanges | None = None
    started: float = field(default_factory=time.monotonic)
    _writer: BaseFileSink | None = None
    _order: Ascending | None = None
    _texts: PlainKeys | None = None
    _addresses: AddressWriter | None = None

    def __post_init__(self) -> None:
        self._texts = self.format.key_texts()
        self.changes = self.format.key_changes()
        self._order = Ascending() if self.format.sort else None
        self.copies = self.copies and self.format.is_parquet
        self._addresses = AddressWriter() if self.format.has_addresses else None

    @property
    def path(self) -> str:
        return path_in(self.partition, self.name)

    @property
    def size(self) -> int:
        return self._writer.bytes_written if self._writer else 0

    @property
    def max_bytes(self) -> int:
        """An upper bound of `size` that costs nothing."""
        return self._writer.max_bytes if self._writer else 0

    def _room(self, limit: int, batch: pa.RecordBatch, nbytes: int) -> int:
        """The number of rows of a batch to write before checking again whether the file is below `limit` bytes; 0 if
        the file is full, or nearly full. `nbytes` are those of the batch.

        Earlier rows show nothing about the size of these. So as many rows are admitted as fit if they do not get
        smaller in the file, or a small part of the limit, by which the file may exceed it.
        """
        left = limit - self.max_bytes
        if left < nbytes and self.rows:
            left = limit - self.size
            if left < limit // _AS_GOOD_AS_FULL:
                return 0
        left = max(left, limit // _PART)
        fits = batch.num_rows
        while fits > 1 and nbytes > left:
            fits = max(1, min(fits - 1, fits * left // nbytes))
            nbytes = batch.slice(0, fits).nbytes
        return fits

    def fill(self, rows: NewRows, limit: int | None) -> NewRows:
        """Write as many new rows as fit below `limit` bytes (None: all), and return the remaining rows. If no row was
        written, the file is full."""
        count, size = rows.batch.num_rows, rows.batch.nbytes
        fits = count if limit is None else self._room(limit, rows.batch, size)
        if fits:
            part, part_size = (rows, size) if fits == count else (rows.slice(0, fits), None)
            self.write(part.batch, new_keys=None, new_rows=part, nbytes=part_size)
        return rows.slice(fits)

    def open(self) -> None:
        """Write the marker, then open the file: a file without a marker would outlive a failed write."""
        self.name = self.format.next_file_name(self.file_id, self.task, self.instant)
        if self.marker is None:
            may_be_late = self.task.may_be_late
            write_marker(self.storage, self.instant, self.partition, self.name, self.kind, may_be_late=may_be_late)
        else:
            self.marker()
        format_ = self.format
        ranges = ColumnRanges(format_.schema, format_.range_columns) if format_.range_columns else None
        upload, settings = self.storage.create(self.path), format_.parquet()
        if not format_.is_parquet:
            from lakebed.format.lance_file import LanceFileWriter

            self._writer = LanceFileWriter(upload, format_.schema)
        elif self.copies:
            names = {FILE_NAME: pa.scalar(self.name)} if format_.populate_meta else {}
            self._writer = AssembledFile(upload, format_.schema, settings, self.encodings, ranges, names)
        else:
            self._writer = NewFile(upload, format_.schema, settings, self.encodings, ranges)

    @property
    def loose_rows(self) -> int:
        """The number of rows that were written since the last row group."""
        return self._writer.pending_rows if self._writer else 0

    @property
    def traffic(self) -> Traffic | None:
        """The bytes that were copied and encoded; None for a file without copied row groups."""
        return self._writer.traffic if isinstance(self._writer, AssembledFile) and self.copies else None

    def copy(self, source: StoredGroups, number: int, fresh: pa.RecordBatch | None = None) -> None:
        """Copy a row group of the file's previous version. The columns in `fresh` replace the stored columns of the
        same names."""
        if self._writer is None:
            self.open()
        assert isinstance(self._writer, AssembledFile)
        if self._order is not None:
            key_range = key_ranges(source.footer.metadata)[number] if SORTED_BY in source.footer.key_values else None
            self._order.add_range(*(key_range or (None, None)))
        if self._texts is not None:
            self._texts.add_file(source.footer.key_values)
        if self._addresses is not None:
            has_keys = fresh is not None and RECORD_KEY in fresh.schema.names
            keys = fresh.column(RECORD_KEY) if fresh is not None and has_keys else None
            values, bits = source.fingerprints(number) if keys is None else (fingerprints(keys), None)
            self._addresses.add(values, bits)
        self._writer.copy(source, number, fresh)
        self.rows += source.groups[number].rows

    def note(self, merged: Merged) -> None:
        """Record the changes of a merged batch, if key changes or a change log are requested."""
        changes = self.changes
        if changes is not None:
            if merged.removed is not None:
                changes.removed(merged.removed)
            if merged.added is not None:
                changes.added(merged.added)
            if merged.before is not None and merged.after is not None:
                changes.updated(merged.before, merged.after)
        if self.log is not None:
            self.log.merged(merged)

    def write(
        self,
        batch: pa.RecordBatch,
        *,
        new_keys: pa.Array | None,
        new_rows: NewRows | None = None,
        nbytes: int | None = None,
    ) -> None:
        """Write a batch. `new_keys` are the keys that the file's previous version did not have (None: all keys of the
        batch). `new_rows` is the batch with what was found of it, and `nbytes` are its bytes in memory, if they were
        counted."""
        new_rows = new_rows or NewRows(batch)
        if self._writer is None:
            self.open()
        assert self._writer is not None
        if self.format.populate_meta:
            added = batch.column(RECORD_KEY) if new_keys is None else new_keys
            if new_rows.keys is not None:
                self.keys.add_ends(new_rows.keys)
            elif len(added):
                self.keys.add(added)
            if self.bloom is not None and len(added):
                self.bloom.add(added)
        if self._order is not None:
            self._order.add(batch.column(RECORD_KEY))
        if self._texts is not None:
            self._texts.add(batch)
        if self._addresses is not None:
            hashes = new_rows.fingerprints
            self._addresses.add(fingerprints(batch.column(RECORD_KEY)) if hashes is None else hashes)
        if new_keys is None and self.changes is not None:
            self.changes.added(batch)
        if new_keys is None and self.log is not None:
            self.log.added(batch)
        name = (
            constant(self.name, batch.num_rows) if self.format.populate_meta else pa.nulls(batch.num_rows, pa.string())
        )
        at, names = self.format.schema.get_field_index(FILE_NAME), self.format.schema.names
        if batch.schema.names == names:
            rows = batch.set_column(at, batch.schema.field(at).with_type(name.type), name)
        else:
            columns = [name if n == FILE_NAME else batch.column(n) for n in names]
            rows = pa.RecordBatch.from_arrays(columns, names=names)
        self._writer.write(rows, is_ordinary=new_rows.is_ordinary, nbytes=nbytes)
        self.rows += batch.num_rows

    def close(self) -> int:
        """Write the footer and make the file visible; returns its size."""
        if self._writer is None:
            self.open()
        assert self._writer is not None
        low, high = self.keys.range()
        filled = self.bloom if self.bloom is not None else all_ones()
        footer = base_file_footer(
            avro_schema_with_meta=self.format.avro_schema,
            min_key=low,
            max_key=high,
            bloom=filled if self.format.populate_meta else None,
        )
        footer |= _vectors_in_footer(self.format.schema)
        if self._order is not None and self._order.holds:
            footer[SORTED_BY] = RECORD_KEY
        footer |= self._texts.footer() if self._texts is not None else {}
        if self._addresses is not None and self.rows:
            assert isinstance(self._writer, (AssembledFile, NewFile))
            footer[ADDRESSES_KEY] = self._put_addresses(self._writer, self._addresses)
        size = self._writer.close(footer)
        self.stored_ranges = self._writer.stored_ranges() if self.keeps_ranges else None
        range_row = self._writer.range_row() if self.stored_ranges is None else None
        self.ranges = None if range_row is None else as_stream(range_row)
        self._writer = None
        check_marker(self.storage, self.instant, self.path, self.kind)
        return size

    def _put_addresses(self, writer: AssembledFile, addresses: AddressWriter) -> str:
        """Write the row addresses after the rows; returns the text for the footer."""
        end = writer.end_rows()
        placed, data = addresses.encoded(self.name, end, end)
        writer.append(data)
        return placed.text

    def finish(self, inserted: int) -> WriteStatus:
        """Close the file; returns its status, with `inserted` new rows."""
        logged = self.log.close() if self.log is not None else ()
        size = self.close()
        changes: dict[str, Any] = {}
        if self.changes is not None:
            changes = report_changes(self.storage, self.instant, self.path, self.changes)
        return WriteStatus(
            self.partition,
            self.file_id,
            path=self.path,
            num_writes=self.rows,
            num_inserts=inserted,
            file_size=size,
            millis=self.millis,
            ranges=self.ranges,
            cdc_stats=logged or None,
            plain_keys=None if self._texts is None else self._texts.hold,
            **changes,
        )

    def abort(self) -> None:
        if self.log is not None:
            self.log.abort()
        if self._writer is not None:
            self._writer.abort()
            self._writer = None

    @property
    def millis(self) -> int:
        return int((time.monotonic() - self.started) * 1000)


def write_partition_metadata(storage: Storage, partition: str, instant: str) -> None:
    """Write the metadata file that makes the folder a partition for Hudi's readers, unless it exists."""
    depth = len(partition.split("/")) if partition else 0
    body = dump_properties(
        {"commitTime": instant, "partitionDepth": str(depth)}, "partition metadata", datetime.now(UTC)
    )
    storage.put_if_absent(path_in(partition, PARTITION_METADATA), body)
