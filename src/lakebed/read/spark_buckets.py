"""A scan as a DataFrame of which Spark's planner knows the buckets: joins and group-bys by key without an exchange."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.config.settings import ReadSettings
from lakebed.engine.base import session_of
from lakebed.engine.spark_columns import hash_column
from lakebed.engine.spark_layout import (
    BUCKET,
    File,
    Layout,
    bucketed_files,
    can_lay_out,
    laid_out,
    rows_of,
    side_by_side,
)
from lakebed.engine.spark_session import require_spark
from lakebed.errors import InvalidOption, SchemaConflict
from lakebed.expressions.bucket import Bucket
from lakebed.expressions.key_text import SingleKey
from lakebed.filters.text import quote_name
from lakebed.format.footer_cache import FOOTERS
from lakebed.format.key_order import SORTED_BY, key_order
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice
from lakebed.read.batches import RowReader, row_readers
from lakebed.read.buckets import Buckets, Deciding, about_bucket, buckets_of, common_count
from lakebed.read.plan import ScanPlan, SliceSet, table_columns
from lakebed.read.reopening import in_task
from lakebed.read.scan import Scan
from lakebed.read.spark import (
    by_statistics,
    filter_of_tasks,
    frame_of_parts,
    is_by_sql,
    narrowed_plan,
    scan_frame,
    selected_slices,
    shaped,
    stored_ddl,
    through_storage,
)
from lakebed.schema.column_names import did_you_mean
from lakebed.schema.spark import arrow_to_spark_ddl, spark_json_to_arrow
from lakebed.sharing import is_first_time
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def bucketed_frame(scan: Scan, spark: SparkSession, layout: bool | int | Scan) -> DataFrame:
    """The scan's rows with the column `_bucket`, each bucket in its own Spark partition."""
    require_spark()
    buckets = buckets_of(scan.snapshot)
    count = _count(buckets, layout)
    if not can_lay_out(spark):
        if is_first_time("buckets that are not declared"):
            warnings.warn(
                "this session (Spark Connect, or a Spark with another planner) does not let lakebed declare how rows"
                " are bucketed: the DataFrame is right, but joins of it shuffle."
                " t.join(other).to_spark() joins without",
                stacklevel=3,
            )
        return _numbered(scan, spark, buckets, count)
    return _Frame(scan.plan, scan.reader, scan.snapshot, spark, buckets, count, scan.reads).made()


def bucketed_data(
    snapshot: Snapshot, data: DataFrame, on: str | Sequence[str] | None, layout: bool | int | Scan
) -> DataFrame:
    """The rows of any DataFrame with the column `_bucket`, moved to the partitions of the buckets by one shuffle."""
    require_spark()
    from pyspark.sql import functions as F

    if session_of(data) is None:
        raise InvalidOption(
            f"bucketed() takes a Spark DataFrame, not {type(data).__name__}",
            hint="in one process t.join(other) joins tables bucket by bucket",
        )
    spark, buckets = data.sparkSession, buckets_of(snapshot)
    count = _count(buckets, layout)
    named = buckets.deciding.columns if on is None else (on,) if isinstance(on, str) else tuple(on)
    deciding = _deciding(buckets, named)
    keys = _key_schema(snapshot, buckets, deciding, spark_json_to_arrow(data.schema.json()), named)
    row_struct = F.struct(*[F.col(quote_name(name)) for name in data.columns]).alias("rows")
    column_names = dict(zip(deciding.columns, named, strict=True))
    # key columns that do not decide the bucket may hold anything
    parts = [
        F.col(quote_name(column_names[f.name])).alias(f.name)
        if f.name in column_names
        else F.expr(f"CAST('0' AS {arrow_to_spark_ddl(pa.schema([pa.field('c', f.type)])).split(' ', 1)[1]})").alias(
            f.name
        )
        for f in keys
    ]
    hashed = hash_column(spark, Bucket(buckets.keys, buckets.hash_fields, count), keys)
    hashed = hashed.alias(BUCKET, metadata=about_bucket(count, [Deciding(tuple(named), deciding.family)]))
    return data.select(row_struct, *parts).select("rows.*", hashed).repartitionById(count, F.col(BUCKET))


def _count(buckets: Buckets, layout: bool | int | Scan) -> int:
    if isinstance(layout, Scan):
        return common_count(buckets, buckets_of(layout.snapshot))
    if layout is True:
        return buckets.count
    if layout < 1 or buckets.count % layout:
        raise InvalidOption(
            f"the {buckets.count} buckets of table {buckets.table!r} cannot be put together to {layout}",
            hint="give a number that divides theirs, such as that of the table to join with",
            context={"buckets": buckets.count, "asked": layout},
        )
    return int(layout)


def _deciding(buckets: Buckets, named: Sequence[str]) -> Deciding:
    """The columns that decide the bucket for which these are named."""
    for choice in buckets.choices:
        if len(choice.columns) == len(named):
            return choice
    columns = buckets.deciding.columns
    raise InvalidOption(
        f"{len(named)} columns for the {len(columns)} that decide the bucket: {', '.join(columns)}",
        hint="name the DataFrame's column for each of them, in their order: on=[...]",
        context={"on": list(named), "columns": list(columns)},
    )


def _key_schema(
    snapshot: Snapshot, buckets: Buckets, deciding: Deciding, column_names: pa.Schema, named: Sequence[str]
) -> pa.Schema:
    """The key columns in the table's types. Raises `SchemaConflict` if the DataFrame's types differ."""
    stored = table_columns(snapshot)
    for key_field, name in zip(deciding.columns, named, strict=True):
        if name not in column_names.names:
            raise InvalidOption(
                f"the DataFrame has no column {name!r}",
                hint=f"{did_you_mean(name, column_names.names, 'it has')} Name its keys by on=",
            )
        if column_names.field(name).type != stored.field(key_field).type:
            raise SchemaConflict(
                f"column {name!r} is {column_names.field(name).type}, the key {key_field!r} of {buckets.table!r} is"
                f" {stored.field(key_field).type}",
                hint="cast the DataFrame's column first: keys of other types hash otherwise",
                context={"column": name, "key": key_field},
            )
    return pa.schema([stored.field(name) for name in buckets.keys.key_fields])


def _numbered(scan: Scan, spark: SparkSession, buckets: Buckets, count: int) -> DataFrame:
    """An ordinary DataFrame of the scan with the column, so that queries for `bucketed_frame` run on it."""
    names = [name for name in scan.column_names if name != BUCKET]
    wide = scan.of_columns([*names, *buckets.keys.key_fields])
    frame = scan_frame(wide.plan, spark, wide.reader, tuning=wide.reads.worker_tuning)
    hashed = hash_column(spark, Bucket(buckets.keys, buckets.hash_fields, count), wide.plan.schema).alias(BUCKET)
    return frame.select(*[quote_name(name) for name in names], hashed)


@dataclass(frozen=True, slots=True)
class _Frame:
    plan: ScanPlan
    slices: SliceReader
    snapshot: Snapshot
    spark: SparkSession
    buckets: Buckets
    count: int
    reads: ReadSettings

    def made(self) -> DataFrame:
        if BUCKET in self.plan.columns:
            raise InvalidOption(
                f"table {self.buckets.table!r} has a column {BUCKET!r} of its own",
                hint="leave it out of the scan's columns, or read without bucketed=",
            )
        order = self._order()
        layout = Layout(self.count, (*order, BUCKET) if order else (BUCKET,), self.buckets.about(self.count))
        through = through_storage(self.plan, self.spark, self.slices)
        native = [] if through else selected_slices(self.plan.sets, by_spark=True)
        merged = list(self.plan.sets) if through else selected_slices(self.plan.sets, by_spark=False)
        if not merged and len(native) == 1 and native[0].native:
            return self._native(native[0], layout)
        parts = [self._native(slice_set, None) for slice_set in native]
        if merged or not parts:
            parts.append(self._through_python(merged, order))
        rows = side_by_side(self.spark, [rows_of(part) for part in parts], self.count)
        return laid_out(self.spark, rows, parts[0].schema.json(), layout)

    def _order(self) -> tuple[str, ...]:
        """The columns by which the rows of each partition are sorted: a single text key, otherwise the stored record
        key. Empty if a partition has several file slices, or a file is not marked as sorted."""
        if not self.snapshot.config.sorts_by_key:
            return ()
        key = self.buckets.keys.record_key
        if isinstance(key, SingleKey) and key.text.is_free_text(table_columns(self.snapshot)):
            column = key.text.column
        else:
            column = RECORD_KEY
        numbers = [self.buckets.number(file_slice) % self.count for file_slice in self.plan.slices]
        if column not in self.plan.columns or len(numbers) != len(set(numbers)):
            return ()
        return (column,) if all(parallel_map(self._is_sorted, self.plan.slices, 16)) else ()

    def _is_sorted(self, file_slice: FileSlice) -> bool:
        base = file_slice.base_file
        if file_slice.log_files or base is None:  # sorted as it is merged
            return True
        footer = FOOTERS.read(self.snapshot.storage, base.path, base.size).footer
        return footer.key_values.get(SORTED_BY) == RECORD_KEY

    def _native(self, slice_set: SliceSet, layout: Layout | None) -> DataFrame:
        """The rows of slices without log files, by Spark's own reader."""
        plan, storage = self.plan, self.snapshot.storage
        extra = [PARTITION_PATH] if any(s.from_path for s in slice_set.sources) else []
        ddl = stored_ddl(plan, slice_set, extra)
        where = plan.predicate.to_spark_sql() if plan.predicate is not None and slice_set.native else None
        placed: list[list[File]] = [[] for _ in range(self.count)]
        for file_slice in slice_set.slices:
            if file_slice.base_file is not None:
                file = File(storage.url(file_slice.base_file.path), file_slice.base_file.size)
                placed[self.buckets.number(file_slice) % self.count].append(file)
        exact = all(statistics for _, statistics in by_statistics(plan, slice_set))
        checks = plan.page_checksums
        rows, schema = bucketed_files(self.spark, placed, ddl, where, page_checksums=checks, statistics=exact)
        frame = laid_out(self.spark, rows, schema, layout)
        return shaped(plan, slice_set, frame, extra, keep=(BUCKET,))

    def _through_python(self, sets: Sequence[SliceSet], order: Sequence[str]) -> DataFrame:
        """The rows of slices whose log files are merged, or that Spark cannot open."""
        plan = self.plan
        by_sql = is_by_sql(plan)
        wide = narrowed_plan(plan, sets, by_sql=by_sql)
        placed: list[list[tuple[FileSlice, RowReader]]] = [[] for _ in range(self.count)]
        for file_slice, reader in row_readers(wide, filter_of_tasks(plan)):
            placed[self.buckets.number(file_slice) % self.count].append((file_slice, reader))
        schema = wide.schema.append(pa.field(BUCKET, pa.int32()))
        part = _PythonPart(self.slices, tuple(tuple(bucket_slices) for bucket_slices in placed), tuple(order), schema)
        frame = frame_of_parts(self.spark, part, self.count, schema, tuning=self.reads.worker_tuning)
        if by_sql and plan.predicate is not None:
            frame = frame.filter(plan.predicate.to_spark_sql())
        return frame.select(*[quote_name(c) for c in (*plan.columns, BUCKET)])


@dataclass(frozen=True, slots=True)
class _PythonPart:
    """A reader of the rows of a bucket in a Spark task."""

    reader: SliceReader
    slices: tuple[tuple[tuple[FileSlice, RowReader], ...], ...]
    order: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        read = (b for file_slice, reader in self.slices[number] for b in reader.read(self.reader, file_slice))
        batches = in_task(self.reader.storage, read)
        if self.order:
            batches = self._sorted(list(batches))
        for batch in batches:
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)], schema=self.schema
            )

    def _sorted(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not batches:
            return
        rows = pa.Table.from_batches(batches).combine_chunks()
        order = key_order(rows.column(self.order[0]).combine_chunks())
        yield from (rows if order is None else rows.take(pa.array(order))).to_batches(max_chunksize=1 << 16)
