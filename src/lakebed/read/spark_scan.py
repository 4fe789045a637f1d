"""Running a scan plan on Spark: its own vectorised Parquet reader over the files, Python only where it must be."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.spark_files import can_open, read_parquet
from lakebed.engine.spark_session import parallelism, require_spark
from lakebed.filters.spark_text import quote_name, spark_literal
from lakebed.model import PARTITION_PATH, RECORD_KEY, BaseFile
from lakebed.read.arrow_scan import FileReader, file_readers
from lakebed.read.plan import ColumnSource, FileSet, ScanPlan
from lakebed.schema.evolution import spark_projection
from lakebed.schema.spark import arrow_to_spark_ddl, spark_type
from lakebed.storage.base import Storage, StorageSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_TASKS_PER_CORE = 4
_FILES_PER_BATCH = 64
_warned: set[str] = set()


def active_session() -> SparkSession | None:
    """The session of this thread or process, if there is one."""
    require_spark()
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def through_storage(plan: ScanPlan, spark: SparkSession, storage: Storage, meta_fields: bool) -> str:
    """Why the scan has to go through Python, or "" where Spark's own reader does it."""
    if plan.predicate is not None and not plan.predicate.runs_on_spark_sql:
        return "the filter is an Arrow expression that has no Spark SQL form"
    if not meta_fields and any(s.from_path for g in plan.groups for s in g.sources):
        return "partition columns stand in the paths only and the files have no meta columns"
    url = storage.url()
    if not can_open(spark, url):
        return f"Spark's Hadoop has no file system for {url.partition(':')[0]}://"
    return ""


def scan_frame(plan: ScanPlan, spark: SparkSession, storage: Storage, *, meta_fields: bool = True) -> DataFrame:
    """The plan's rows as a lazy DataFrame."""
    require_spark()
    plan = _with_a_column(plan)
    if not plan.groups:
        empty = spark.createDataFrame([], schema=arrow_to_spark_ddl(plan.read_schema))
        return empty.select(*[quote_name(c) for c in plan.columns])
    reason = through_storage(plan, spark, storage, meta_fields)
    if reason:
        _warn(reason, storage.spec)
        return _python_frame(plan, spark, storage)
    parts = [_native_frame(plan, g, spark, storage) for g in plan.groups]
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.unionByName(part)
    return frame


def _with_a_column(plan: ScanPlan) -> ScanPlan:
    """The plan of a scan without columns reads the record keys all the same: Spark reads no rows of nothing."""
    if len(plan.read_schema):
        return plan
    key = ColumnSource(RECORD_KEY, RECORD_KEY, pa.string())
    groups = tuple(FileSet(group.files, (key,), native=True) for group in plan.groups)
    return replace(plan, read_schema=pa.schema([(RECORD_KEY, pa.string())]), groups=groups)


def _native_frame(plan: ScanPlan, files: FileSet, spark: SparkSession, storage: Storage) -> DataFrame:
    extra = (
        [PARTITION_PATH]
        if any(s.from_path for s in files.sources) and PARTITION_PATH not in plan.read_schema.names
        else []
    )
    stored = files.stored
    types = {f.name: f.type for f in stored} | dict.fromkeys(extra, pa.string())
    ddl = arrow_to_spark_ddl(pa.schema(list(types.items())))
    urls = [storage.url(f.path) for f in files.files]
    with _few_listing_tasks(spark, len(urls)):
        frame = read_parquet(spark, urls, ddl, page_checksums=plan.page_checksums)
    if not files.native:
        frame = frame.selectExpr(*_named(plan, files, extra))
        renamed = pa.schema([_field_now(plan, s.name, s.type) for s in files.sources])
        frame = frame.selectExpr(*spark_projection(renamed, plan.read_schema))
    if plan.predicate is not None:
        frame = frame.filter(plan.predicate.to_spark_sql())
    return frame.select(*[quote_name(c) for c in plan.columns])


def _field_now(plan: ScanPlan, name: str, stored: pa.DataType | None) -> pa.Field:
    return pa.field(name, plan.read_schema.field(name).type if stored is None else stored)


def _named(plan: ScanPlan, files: FileSet, extra: Sequence[str]) -> list[str]:
    """Stored columns under the table's names, and what is not stored."""
    expressions: list[str] = []
    for source in files.sources:
        type_ = plan.read_schema.field(source.name).type
        if source.from_path:
            text = _from_path(plan, source.name, files.files, type_)
        elif source.stored is None:
            text = f"CAST(NULL AS {spark_type(type_)})"
        else:
            text = quote_name(source.stored)
        expressions.append(f"{text} AS {quote_name(source.name)}")
    return expressions


def _from_path(plan: ScanPlan, column: str, files: Sequence[BaseFile], type_: pa.DataType) -> str:
    values = plan.partition_values or {}
    cases = [
        f"WHEN {spark_literal(p, pa.string())} THEN {spark_literal(values[p][column], type_)}"
        for p in dict.fromkeys(f.partition for f in files)
    ]
    return f"CAST(CASE {quote_name(PARTITION_PATH)} {' '.join(cases)} END AS {spark_type(type_)})"


@contextmanager
def _few_listing_tasks(spark: SparkSession, files: int) -> Generator[None]:
    """Spark looks at many files by a job of up to 10,000 tasks; a few for each core are faster."""
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


def _python_frame(plan: ScanPlan, spark: SparkSession, storage: Storage) -> DataFrame:
    condition = None
    by_sql = plan.predicate is not None and bool(plan.predicate.text)
    if plan.predicate is not None and not by_sql:
        condition = plan.predicate.to_arrow()
    columns = tuple(plan.read_schema.names) if by_sql or not plan.columns else plan.columns
    wide = ScanPlan(
        plan.table,
        plan.query,
        plan.as_of,
        columns,
        plan.read_schema,
        plan.groups,
        partition_values=plan.partition_values,
    )
    jobs = file_readers(wide, condition)
    cores = parallelism(spark)
    tasks = max(1, min(len(jobs), max(cores * _TASKS_PER_CORE, len(jobs) // _FILES_PER_BATCH)))
    numbers = spark.range(0, len(jobs), 1, tasks)
    frame = numbers.mapInArrow(partial(_read_files, storage, _Jobs.of(jobs)), arrow_to_spark_ddl(wide.schema))
    if by_sql and plan.predicate is not None:
        frame = frame.filter(plan.predicate.to_spark_sql())
    return frame.select(*[quote_name(c) for c in plan.columns])


class _Jobs:
    """Files with few different readers, small when pickled."""

    def __init__(self, readers: list[FileReader], files: list[tuple[BaseFile, int]]) -> None:
        self.readers = readers
        self.files = files

    @classmethod
    def of(cls, jobs: Sequence[tuple[BaseFile, FileReader]]) -> _Jobs:
        readers: dict[tuple[object, ...], int] = {}
        distinct: list[FileReader] = []
        files: list[tuple[BaseFile, int]] = []
        for file, reader in jobs:
            at = readers.setdefault(reader.sources, len(distinct))
            if at == len(distinct):
                distinct.append(reader)
            files.append((file, at))
        return cls(distinct, files)


def _read_files(storage: Storage, jobs: _Jobs, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            file, at = jobs.files[number]
            yield from jobs.readers[at].read(storage, file)


def _warn(reason: str, spec: StorageSpec) -> None:
    key = f"{reason}|{spec.uri.partition('://')[0]}"
    if key not in _warned:
        _warned.add(key)
        warnings.warn(f"lakebed scans through Python, not Spark's Parquet reader: {reason}", stacklevel=4)
