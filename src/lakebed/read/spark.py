"""Running a scan plan on Spark: its own vectorised Parquet reader over the files, Python only where it must be."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow.types import is_floating, is_time

from lakebed.engine.spark import SparkEngine, can_open, read_parquet, shifts_times
from lakebed.engine.spark_python import use_this_python
from lakebed.engine.spark_session import parallelism, read_mark, require_spark
from lakebed.engine.spark_worker import for_workers
from lakebed.errors import UnsupportedFeature
from lakebed.filters.predicates import Predicate, safe_part
from lakebed.filters.text import quote_name, spark_literal
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice
from lakebed.read.batches import RowReader, row_readers
from lakebed.read.plan import ColumnSource, ScanPlan, SliceSet
from lakebed.read.reopening import in_task
from lakebed.read.spark_untouched import TouchedRows, divided
from lakebed.schema.arrow import leaf_paths
from lakebed.schema.evolution import spark_projection
from lakebed.schema.logical_types import is_vector, logical_metadata
from lakebed.schema.spark import (
    arrow_to_spark_ddl,
    as_spark_reads,
    in_spark_types,
    read_by_spark,
    spark_null,
    spark_type,
)
from lakebed.sharing import is_first_time
from lakebed.slices.reader import SliceReader
from lakebed.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME_TYPE = "spark.sql.timeType.enabled"
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_TASKS_PER_CORE = 4
_FILES_PER_BATCH = 64


def active_session() -> SparkSession | None:
    """The session of this thread or process; None if there is none."""
    require_spark()
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def through_storage(plan: ScanPlan, spark: SparkSession, slices: SliceReader) -> str:
    """The reason why all of the scan must be read in Python; empty if Spark's own reader can read slices without log
    files."""
    if plan.predicate is not None and not plan.predicate.runs_on_spark_sql:
        return "the condition is an Arrow expression that has no Spark SQL form"
    from_path = any(source.from_path for slice_set in plan.sets for source in slice_set.sources)
    if from_path and not slices.config.populate_meta_fields:
        return "partition columns are in the paths only and the files have no meta columns"
    if slices.config.base_format != "PARQUET":
        return f"the base files are {slices.config.base_format}"
    url = slices.storage.url()
    if not can_open(spark, url):
        return f"Spark's Hadoop has no file system for {url.partition(':')[0]}://"
    vectors = [field.name for field in plan.read_schema if is_vector(field.type)]
    if vectors:
        return f"column {vectors[0]} holds vectors, which Spark's reader gives as bytes"
    if shifts_times(spark, plan.read_schema):
        return "spark.sql.parquet.int96TimestampConversion would shift times that files hold as INT96"
    return ""


def scan_frame(plan: ScanPlan, spark: SparkSession, slices: SliceReader, *, tuning: bool = True) -> DataFrame:
    """The plan's rows as a lazy DataFrame: base files by Spark's own reader, slices with log files in Python (as
    `divided` splits them), and all of them in Python if Spark cannot read the table."""
    require_spark()
    use_this_python(spark)
    _refuse_times(plan, spark)
    plan = _with_a_column(plan)
    if not plan.sets:
        empty = spark.createDataFrame([], schema=arrow_to_spark_ddl(in_spark_types(plan.read_schema)))
        return _with_logical_types(empty.select(*[quote_name(c) for c in plan.columns]), plan.schema)
    reason = through_storage(plan, spark, slices)
    if reason:
        if is_first_time("scan through Python", reason, slices.storage.spec.uri.partition("://")[0]):
            warnings.warn(f"lakebed scans through Python, not Spark's Parquet reader: {reason}", stacklevel=3)
        frame = _python_frame(plan, plan.sets, spark, slices, tuning=tuning)
        return _with_logical_types(frame, plan.schema).alias(read_mark(slices.storage.spec.uri))
    parts = _native_frames(plan, selected_slices(plan.sets, by_spark=True), spark, slices.storage)
    untouched, merged = divided(plan, selected_slices(plan.sets, by_spark=False), slices.config)
    for part in untouched:
        touched = part.touched(plan, spark, slices, tuning=tuning)
        parts += _native_frames(plan, [part.base_files], spark, slices.storage, touched)
    if untouched:
        touched_sets = [part.merged for part in untouched]
        parts.append(_python_frame(plan, touched_sets, spark, slices, tuning=tuning, without_untouched=True))
    if merged:
        parts.append(_python_frame(plan, merged, spark, slices, tuning=tuning))
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.unionByName(part)
    return _with_logical_types(frame, plan.schema).alias(read_mark(slices.storage.spec.uri))


def _with_logical_types(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """The DataFrame whose columns have Hudi's logical types in their metadata."""
    for field in schema:
        if (metadata := logical_metadata(field)) is not None:
            frame = frame.withMetadata(field.name, metadata)
    return frame


def collected_rows(frame: DataFrame, spark: SparkSession, schema: pa.Schema) -> list[pa.RecordBatch]:
    """All rows of a scan's DataFrame, in the types of the scan."""
    return SparkEngine(spark).collect_normalised(frame).select(schema.names).cast(schema).to_batches()


def _refuse_times(plan: ScanPlan, spark: SparkSession) -> None:
    """Raise `UnsupportedFeature` for columns with times of day in a session that has no such type."""
    times = [field.name for field in plan.read_schema if any(is_time(kind) for _, kind in leaf_paths([field]))]
    if times and str(spark.conf.get(TIME_TYPE, "false")).lower() != "true":
        raise UnsupportedFeature(
            f"column {times[0]} holds times of a day, which this Spark session has no type for",
            hint=f'set spark.conf.set("{TIME_TYPE}", "true"), leave it out with columns=, or read with to_arrow()',
            context={"feature": "TIME", "columns": times},
        )


def selected_slices(sets: Sequence[SliceSet], *, by_spark: bool) -> list[SliceSet]:
    """The sets with those of their slices that Spark can read because they consist of a base file (`by_spark`), or with
    the others; without empty sets."""
    slice_sets = [
        replace(s, slices=tuple(file_slice for file_slice in s.slices if file_slice.is_base_file == by_spark))
        for s in sets
    ]
    return [s for s in slice_sets if s.slices]


def by_statistics(plan: ScanPlan, slice_set: SliceSet) -> list[tuple[SliceSet, bool]]:
    """The set in at most two parts, with whether Spark may rule out row groups by statistics: not in files whose
    statistics may leave out NaN, which Spark takes for the greatest number."""
    if plan.provenance is None or not any(is_floating(kind) for _, kind in leaf_paths(slice_set.stored)):
        return [(slice_set, True)]
    doubtful = plan.provenance.leaving_out_nan(slice_set.files)
    if not doubtful:
        return [(slice_set, True)]
    parts: dict[bool, list[FileSlice]] = {}
    for file_slice in slice_set.slices:
        parts.setdefault(file_slice.base_file is None or file_slice.base_file.path not in doubtful, []).append(
            file_slice
        )
    return [(replace(slice_set, slices=tuple(part_slices)), exact) for exact, part_slices in parts.items()]


def _with_a_column(plan: ScanPlan) -> ScanPlan:
    """The plan, which reads the record keys if the scan has no columns: without a column Spark reads no rows."""
    if len(plan.read_schema):
        return plan
    key = ColumnSource(RECORD_KEY, RECORD_KEY, pa.string())
    sets = tuple(SliceSet(slice_set.slices, (key,), native=True) for slice_set in plan.sets)
    base_sources = dict.fromkeys(plan.base_sources, (key,))
    return replace(plan, read_schema=pa.schema([(RECORD_KEY, pa.string())]), sets=sets, base_sources=base_sources)


def _native_frames(
    plan: ScanPlan,
    sets: Sequence[SliceSet],
    spark: SparkSession,
    storage: Storage,
    touched: TouchedRows | None = None,
) -> list[DataFrame]:
    """The rows of base files, read by Spark's own reader, without those that are `touched`."""
    return [
        _native_frame(plan, part, spark, storage, touched, statistics=statistics)
        for slice_set in sets
        for part, statistics in by_statistics(plan, slice_set)
    ]


def _native_frame(
    plan: ScanPlan,
    slice_set: SliceSet,
    spark: SparkSession,
    storage: Storage,
    touched: TouchedRows | None,
    *,
    statistics: bool,
) -> DataFrame:
    extra = (
        [PARTITION_PATH]
        if any(s.from_path for s in slice_set.sources) and PARTITION_PATH not in plan.read_schema.names
        else []
    )
    ddl = stored_ddl(plan, slice_set, extra)
    urls = [storage.url(f.path) for f in slice_set.files]
    with _few_listing_tasks(spark, len(urls)):
        frame = read_parquet(
            spark,
            urls,
            ddl,
            page_checksums=plan.page_checksums,
            statistics=statistics,
            numbered=touched is not None,
        )
    if touched is not None:
        frame = touched.dropped_from(frame)
    return shaped(plan, slice_set, frame, extra)


def stored_ddl(plan: ScanPlan, slice_set: SliceSet, extra: Sequence[str]) -> str:
    """The columns that Spark's reader takes from the files of a set, as Spark DDL: those of the plan, and the texts in
    the columns `extra`."""
    stored = {s.stored: plan.read_schema.field(s.name).with_name(s.stored) for s in slice_set.sources if s.stored}
    fields = [stored[f.name].with_type(f.type).with_nullable(True) for f in slice_set.stored]
    fields += [pa.field(name, pa.string()) for name in extra if name not in stored]
    return arrow_to_spark_ddl(in_spark_types(pa.schema(fields)))


def shaped(
    plan: ScanPlan, slice_set: SliceSet, frame: DataFrame, extra: Sequence[str], *, keep: Sequence[str] = ()
) -> DataFrame:
    """The stored rows of a set of slices in the form of the plan's rows: in its types, filtered by its condition, with
    its columns and those to `keep`."""
    quoted_names = [quote_name(name) for name in keep]
    if not slice_set.native:
        frame = frame.selectExpr(*_named(plan, slice_set, extra), *quoted_names)
        renamed = pa.schema([_field_now(plan, s.name, s.type) for s in slice_set.sources])
        frame = frame.selectExpr(*spark_projection(renamed, plan.read_schema), *quoted_names)
    if plan.predicate is not None:
        frame = frame.filter(plan.predicate.to_spark_sql())
    return frame.select(*[quote_name(c) for c in plan.columns], *quoted_names)


def _field_now(plan: ScanPlan, name: str, stored: pa.DataType | None) -> pa.Field:
    return pa.field(name, plan.read_schema.field(name).type if stored is None else stored)


def _named(plan: ScanPlan, slice_set: SliceSet, extra: Sequence[str]) -> list[str]:
    """The SQL expressions of stored columns under the table's names, and of columns that are not stored."""
    expressions: list[str] = []
    for source in slice_set.sources:
        field = plan.read_schema.field(source.name)
        if source.from_path:
            text = _from_path(plan, source.name, slice_set.slices, field.type)
        elif source.stored is None:
            text = spark_null(field)
        else:
            text = quote_name(source.stored)
        expressions.append(f"{text} AS {quote_name(source.name)}")
    return expressions


def _from_path(plan: ScanPlan, column: str, slices: Sequence[FileSlice], type_: pa.DataType) -> str:
    values = plan.partition_values or {}
    cases = [
        f"WHEN {spark_literal(p, pa.string())} THEN {spark_literal(values[p][column], type_)}"
        for p in dict.fromkeys(s.partition for s in slices)
    ]
    return f"CAST(CASE {quote_name(PARTITION_PATH)} {' '.join(cases)} END AS {spark_type(type_)})"


@contextmanager
def _few_listing_tasks(spark: SparkSession, files: int) -> Generator[None]:
    """Limit the tasks with which Spark lists many files, while the block runs: it uses a job of up to 10,000 tasks, and
    a few per core are faster."""
    before: str | None = None
    changed = False
    if files > 32:
        with suppress(Exception):
            before = spark.conf.get(_LISTING_TASKS)
            spark.conf.set(_LISTING_TASKS, str(parallelism(spark) * _TASKS_PER_CORE))
            changed = True
    try:
        yield
    finally:
        if changed and before is not None:
            spark.conf.set(_LISTING_TASKS, before)


def is_by_sql(plan: ScanPlan) -> bool:
    """Whether Spark applies the plan's condition to rows that are read in Python."""
    return plan.predicate is not None and bool(plan.predicate.text)


def filter_of_tasks(plan: ScanPlan) -> Predicate | None:
    """The condition that tasks in Python apply; of a condition that Spark applies only the part that they can decide.
    None without a condition."""
    return plan.predicate if plan.predicate is None or not is_by_sql(plan) else safe_part(plan.predicate)


def narrowed_plan(plan: ScanPlan, sets: Sequence[SliceSet], *, by_sql: bool) -> ScanPlan:
    """The plan for some of its slices; with `by_sql` it also returns the columns of the condition, which Spark
    applies."""
    columns = tuple(plan.read_schema.names) if by_sql or not plan.columns else plan.columns
    return replace(plan, columns=columns, sets=tuple(sets))


def _python_frame(
    plan: ScanPlan,
    sets: Sequence[SliceSet],
    spark: SparkSession,
    slices: SliceReader,
    *,
    tuning: bool,
    without_untouched: bool = False,
) -> DataFrame:
    by_sql = is_by_sql(plan)
    wide = narrowed_plan(plan, sets, by_sql=by_sql)
    jobs = row_readers(wide, filter_of_tasks(plan))
    if without_untouched:
        jobs = [(file_slice, replace(reader, without_untouched=True)) for file_slice, reader in jobs]
    cores = parallelism(spark)
    tasks = max(1, min(len(jobs), max(cores * _TASKS_PER_CORE, len(jobs) // _FILES_PER_BATCH)))
    numbers = spark.range(0, len(jobs), 1, tasks)
    schema = read_by_spark(wide.schema)
    read = for_workers(partial(_read_slices, slices, _Jobs.of(jobs), schema), tuning=tuning)
    frame = numbers.mapInArrow(read, arrow_to_spark_ddl(schema))
    if by_sql and plan.predicate is not None:
        frame = frame.filter(plan.predicate.to_spark_sql())
    return frame.select(*[quote_name(c) for c in plan.columns])


def frame_of_parts(
    spark: SparkSession,
    part: Callable[[int], Iterator[pa.RecordBatch]],
    count: int,
    schema: pa.Schema,
    *,
    tuning: bool,
) -> DataFrame:
    """The rows that the function `part` makes in Python, each part in the Spark partition of its number, in the types
    that Spark has for `schema`; with `tuning` the tasks tune the workers that they run in."""
    require_spark()
    use_this_python(spark)
    numbers, read_schema = spark.range(0, count, 1, count), read_by_spark(schema)
    read = for_workers(partial(_read_parts, part, read_schema), tuning=tuning)
    return numbers.mapInArrow(read, arrow_to_spark_ddl(read_schema))


def _read_parts(
    part: Callable[[int], Iterator[pa.RecordBatch]], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from (as_spark_reads(rows, schema) for rows in part(number))


class _Jobs:
    """File slices with few different readers, in a form that is small when pickled."""

    def __init__(self, readers: list[RowReader], slices: list[tuple[FileSlice, int]]) -> None:
        self.readers = readers
        self.slices = slices

    @classmethod
    def of(cls, jobs: Sequence[tuple[FileSlice, RowReader]]) -> _Jobs:
        readers: dict[tuple[object, ...], int] = {}
        distinct: list[RowReader] = []
        slices: list[tuple[FileSlice, int]] = []
        for file_slice, reader in jobs:
            at = readers.setdefault(reader.sources, len(distinct))
            if at == len(distinct):
                distinct.append(reader)
            slices.append((file_slice, at))
        return cls(distinct, slices)


def _read_slices(
    slices: SliceReader, jobs: _Jobs, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            file_slice, at = jobs.slices[number]
            rows = in_task(slices.storage, jobs.readers[at].read(slices, file_slice))
            yield from (as_spark_reads(batch, schema) for batch in rows)
