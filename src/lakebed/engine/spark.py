"""The Spark engine: rows are DataFrames, functions run in `mapInArrow`; works on classic sessions and Spark Connect.

Parquet files are read by Spark's vectorised reader where the session can open them. A small DataFrame is collected
within a bound of bytes: Spark's statistics count 20 bytes for every text, so they only decide whether it is tried. The
number of rows is limited, and the job gives up at the first row that is wider than its share of the bytes.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count as numbers_from
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.types import is_timestamp

from lakebed.engine.base import (
    GROUP,
    KEY_HASH,
    SHARE_SQL,
    EngineName,
    GroupFunction,
    ItemFunction,
    MapFunction,
    SliceReader,
    SliceSource,
    Task,
    changed_input,
    map_groups,
    session_of,
    stored_fields,
)
from lakebed.engine.spark_columns import arrow_column, hash_column
from lakebed.engine.spark_python import use_this_python
from lakebed.engine.spark_repeatable import is_repeatable
from lakebed.engine.spark_session import (
    estimated_bytes,
    gateway,
    has_exact_leaves,
    is_connect,
    is_in_one_process,
    parallelism,
    require_spark,
    speculates,
    stored_copies,
)
from lakebed.engine.spark_worker import carrying, for_workers, job_errors, tune_worker
from lakebed.expressions.base import Column, RowExpression
from lakebed.expressions.bucket import JavaHash, TextHash
from lakebed.model import DERIVED, FILE_ID, INSTANT, PARTITION_PATH, POSITION, RECORD_KEY, FileSlice
from lakebed.schema.arrow import leaf_paths, normalise, normalise_batch
from lakebed.schema.layouts import table_with_offsets, with_offsets
from lakebed.schema.logical_types import VARIANT, as_variants, is_variant
from lakebed.schema.spark import (
    arrow_to_spark_ddl,
    as_spark_takes,
    in_spark_types,
    quoted,
    spark_json_to_arrow,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_numbers = numbers_from()
_KNOWN_GROUP, _SHARE, _BOUNDS, _GROUPS = (f"{DERIVED}{n}" for n in ("known_group", "share", "bounds", "groups"))
# Rows in a batch that goes to Python. Spark's other bound, bytes, is switched off: Spark asks for the batch's size
# after each row, a quarter of the JVM's CPU of a bulk insert. So rows alone keep a batch small, also one of wide rows.
ARROW_BATCH_ROWS = 4096
# Up to this many groups a core, each group is a task of its own and needs no sort.
_GROUPS_PER_CORE = 8
# A task is expensive even with little to do: so there are few tasks, each with several groups.
_TASKS_PER_CORE = 2
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Rows that the driver holds are projected while the query is planned; on Spark 4.3 that fails on a `java_method` inside
# a lambda function, which a bucket's expression may hold.
_EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
_FOLDING_RULE = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"
_SETTINGS = {"spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1), _LARGE_TYPES: "false"}
# By these a task that runs again and gives other rows than before is noticed: what has read them runs again, or the job
# fails. Without them some tasks would have read the first rows and others the second ones.
_CHECKSUMS = {
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
}
# The text of the plan is for Spark's own pages: a formatted one takes as long as the planning of a small query. Each
# setting more is three calls to the JVM.
_OF_COLLECTING = {**_CHECKSUMS, _LARGE_TYPES: "false", "spark.sql.ui.explainMode": "simple"}
_OF_SPARK = {_LARGE_TYPES: "false"}


def join_on(rows: DataFrame, others: DataFrame, condition: str, how: str) -> DataFrame:
    """Joined rows by a SQL condition over the columns of both, whose names differ."""
    from pyspark.sql import functions as F

    return rows.join(others, F.expr(condition), how)


class SparkEngine:
    """An engine that runs the pipeline's operations on a Spark session, with native expressions if Spark has them."""

    name: EngineName = "spark"
    note = ""
    is_distributed = True

    def __init__(self, spark: SparkSession, *, tuning: bool = True) -> None:
        require_spark()
        use_this_python(spark)
        self.spark = spark
        self._tuning = tuning
        # rows that were counted while results were collected, by the name of the count
        self._observed: dict[str, int | None] = {}
        # rows that this engine has cached, and those that it has stored: not those of its caller
        self._cached: dict[int, DataFrame] = {}
        self._stored: dict[int, DataFrame] = {}

    def rows(self, data: Any) -> DataFrame:
        if hasattr(data, "mapInArrow"):
            return data
        from lakebed.engine.arrow_data import to_arrow_table

        return self.from_arrow(to_arrow_table(data))

    def from_arrow(self, table: pa.Table) -> DataFrame:
        plain = in_spark_types(normalise(table.schema))
        batches = [normalise_batch(b, plain) for b in table.to_batches()]
        return self.spark.createDataFrame(  # pyright: ignore[reportCallIssue]
            pa.Table.from_batches(batches, plain),  # pyright: ignore[reportArgumentType]
            schema=arrow_to_spark_ddl(plain),
        )

    def schema(self, rows: DataFrame) -> pa.Schema:
        return spark_json_to_arrow(rows.schema.json())

    def has_at_hand(self, rows: DataFrame) -> bool:
        return False

    def estimated_rows(self, rows: DataFrame, row_bytes: float) -> int | None:
        size = estimated_bytes(rows)
        return None if size is None else round(size / row_bytes)

    def derive(
        self, rows: DataFrame, columns: Mapping[str, RowExpression], keep: Sequence[str] | None = None
    ) -> DataFrame:
        from pyspark.sql import functions as F

        schema = self.schema(rows)
        retained_names = [n for n in (rows.columns if keep is None else keep) if n not in columns]
        derived = [self._column(e, schema).alias(name) for name, e in columns.items()]
        return rows.select(*derived, *[F.col(quoted(n)) for n in retained_names])

    def _column(self, expression: RowExpression, schema: pa.Schema) -> Any:
        from pyspark.sql import functions as F

        if isinstance(expression, TextHash):
            return hash_column(self.spark, expression, schema)
        if not getattr(expression, "has_sql", True):
            return arrow_column(expression, schema)
        return F.expr(expression.sql(schema))

    def filter(self, rows: DataFrame, predicate: RowExpression) -> DataFrame:
        return rows.filter(predicate.sql(self.schema(rows)))

    def map(self, rows: DataFrame, fn: MapFunction, schema: pa.Schema) -> DataFrame:
        spark_schema = in_spark_types(schema)
        return rows.mapInArrow(
            for_workers(partial(_run_map, self._tuning, fn, spark_schema)), arrow_to_spark_ddl(spark_schema)
        )

    def spread(self, count: int, fn: ItemFunction, schema: pa.Schema) -> DataFrame:
        numbers = self.spark.range(0, count, 1, max(1, count))
        spark_schema = in_spark_types(schema)
        return numbers.mapInArrow(
            for_workers(partial(_run_items, self._tuning, fn, spark_schema)), arrow_to_spark_ddl(spark_schema)
        )

    def map_by_key(self, rows: DataFrame, key: str, fn: MapFunction) -> DataFrame:
        from pyspark.sql import functions as F

        placed = rows.repartition(parallelism(self.spark) * _TASKS_PER_CORE, F.col(quoted(key)))
        return self.map(placed, fn, self.schema(rows))

    def head(self, rows: DataFrame, count: int) -> DataFrame:
        return rows.limit(count)

    def sort(self, rows: DataFrame, by: Sequence[str], scope: Literal["task", "table"]) -> DataFrame:
        return rows.sortWithinPartitions(*by) if scope == "task" else rows.orderBy(*by)

    def gathered(self, rows: DataFrame, by: str) -> None:
        return None

    def group_map(
        self,
        rows: DataFrame,
        fn: GroupFunction,
        schema: pa.Schema,
        *,
        groups: int | None,
        one_group_per_task: bool,
        derivable: Mapping[str, RowExpression] | None = None,
    ) -> DataFrame:
        from pyspark.sql import functions as F

        derived = dict(derivable or {})
        sent = rows.drop(*derived)
        cores = parallelism(self.spark)
        alone = one_group_per_task and groups is not None and groups <= cores * _GROUPS_PER_CORE
        tasks = groups if alone and groups else max(1, min(cores * _TASKS_PER_CORE, groups or 1 << 30))
        group_columns = [c for c in (PARTITION_PATH, GROUP) if c not in derived]
        number = F.col(GROUP)
        if not alone and PARTITION_PATH in group_columns:
            number = F.hash(F.col(PARTITION_PATH)) % 65536 + number
        placed = sent.repartitionById(tasks, F.pmod(number, F.lit(tasks)).cast("int"))
        if not alone:
            placed = placed.sortWithinPartitions(*group_columns)
        return placed.mapInArrow(
            for_workers(partial(_run_groups, self._tuning, fn, derived)), arrow_to_spark_ddl(schema)
        )

    def counted(self, rows: DataFrame, unsent: Collection[str] = ()) -> tuple[DataFrame, Callable[[], int | None]]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        sent, name, count = rows.drop(*unsent), f"{DERIVED}rows_{next(_numbers)}", F.count(F.lit(1)).alias("rows")
        if not is_connect(self.spark):
            self._observed[name] = None
            return sent.observe(name, count), lambda: self._observed.pop(name, None)
        observation = Observation(name)

        def observed() -> int | None:
            try:
                return int(observation.get["rows"])
            except Exception:  # the server left the rows out of its plan
                return None

        return sent.observe(observation, count), observed

    def repeatable(self, data: Any, *, always: bool = False) -> Any:
        if session_of(data) is None or (is_repeatable(data) and not always) or data.isStreaming:
            return data  # Spark says how a stream is written
        from pyspark import StorageLevel

        # of two attempts that ran at the same time, each may have stored its rows: then a part has two locations
        may_differ = not is_connect(self.spark) and speculates(self.spark)
        copies = 1 if may_differ or is_in_one_process(self.spark) else 2
        with self._settings(self._of_jobs()), job_errors(self.spark):
            stored = data.localCheckpoint(True, StorageLevel(True, True, False, True, copies))
        self._stored[id(stored)] = stored
        if may_differ and any(count != 1 for count in stored_copies(stored)):
            self.release(stored)
            raise changed_input("two attempts of a task have stored them")
        return stored

    def read_columns(self, snapshot: SliceSource, slices: Sequence[FileSlice], columns: Sequence[str]) -> DataFrame:
        fields = stored_fields(snapshot, slices, columns)
        spark_schema = in_spark_types(fields)
        ddl = arrow_to_spark_ddl(spark_schema)
        if not slices:
            return self.spark.createDataFrame([], schema=ddl)

        native = can_open(self.spark, snapshot.storage.url()) and not shifts_times(self.spark, fields)
        native = native and all(s.base_file is None or s.base_file.is_parquet for s in slices)
        files = [s.base_file for s in slices if native and s.base_file is not None and s.is_base_file]
        python_slices = [s for s in slices if not native or not s.is_base_file]
        parts: list[DataFrame] = []
        if files:
            stored = arrow_to_spark_ddl(pa.schema([f for f in spark_schema if f.name != POSITION]))
            numbered = POSITION in columns
            urls = [snapshot.storage.url(f.path) for f in files]
            rows = read_parquet(self.spark, urls, stored, numbered=numbered)
            parts.append(with_row_numbers(rows, POSITION) if numbered else rows)
        if python_slices:
            sent = self.from_arrow(pa.table({"slice": pa.array(map(pickle.dumps, python_slices), pa.binary())}))
            spread = sent.repartition(min(len(python_slices), parallelism(self.spark) * _TASKS_PER_CORE))
            read = partial(_run_read, self._tuning, snapshot.reader, list(columns), fields)
            parts.append(spread.mapInArrow(for_workers(read), ddl))
        return self.union(parts)

    def join(
        self,
        rows: DataFrame,
        others: DataFrame,
        on: Sequence[str],
        how: Literal["left", "inner"],
        *,
        small: bool = False,
    ) -> DataFrame:
        from pyspark.sql import functions as F

        return rows.join(F.broadcast(others) if small else others, list(on), how)

    def distinct(self, rows: DataFrame) -> DataFrame:
        return rows.distinct()

    def union(self, parts: Sequence[DataFrame]) -> DataFrame:
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionByName(part)
        return rows

    def route(self, rows: DataFrame, updates: pa.Table, inserts: pa.Table) -> DataFrame:
        from pyspark.sql import functions as F

        columns = [c for c in rows.columns if c not in (FILE_ID, INSTANT)]
        routed = rows
        group = F.lit(None).cast("int")
        if updates.num_rows:
            existing_groups = self.from_arrow(updates.rename_columns([PARTITION_PATH, FILE_ID, _KNOWN_GROUP]))
            routed = routed.join(F.broadcast(existing_groups), [PARTITION_PATH, FILE_ID], "left")
            group = F.col(_KNOWN_GROUP)
        if inserts.num_rows:
            hashed = hash_column(self.spark, JavaHash(Column(RECORD_KEY)), self.schema(rows))
            routed = routed.withColumn(KEY_HASH, hashed).withColumn(_SHARE, F.expr(SHARE_SQL))
            shares = self.from_arrow(inserts.rename_columns([PARTITION_PATH, _BOUNDS, _GROUPS]))
            routed = routed.join(F.broadcast(shares), [PARTITION_PATH], "left")
            at = F.expr(f"least(size(filter({_BOUNDS}, b -> b <= {_SHARE})), size({_GROUPS}) - 1) + 1")
            group = F.coalesce(group, F.element_at(F.col(_GROUPS), at))
        return routed.select(*[F.col(quoted(c)) for c in columns], group.alias(GROUP))

    def aggregate(self, rows: DataFrame, by: Sequence[str], sums: Sequence[str] = ()) -> pa.Table:
        from pyspark.sql import functions as F

        summed = [F.coalesce(F.sum(F.col(quoted(n)).cast("bigint")), F.lit(0)).alias(n) for n in sums]
        return self.collect(rows.groupBy(*by).agg(F.count(F.lit(1)).alias("rows"), *summed))

    def collect(self, rows: DataFrame) -> pa.Table:
        with self._settings(self._of_jobs()):
            return self._collected(rows)

    def collect_normalised(self, rows: DataFrame) -> pa.Table:
        """All rows, in the types that a table has for those of the DataFrame."""
        plain = normalise(self.schema(rows))
        with self._settings(_OF_COLLECTING):
            table = self._collected(rows)
        return pa.Table.from_batches([normalise_batch(batch, plain) for batch in table.to_batches()], plain)

    def _collected(self, rows: DataFrame) -> pa.Table:
        variants = [field.name for field in rows.schema.fields if field.dataType.typeName() == "variant"]
        loose = _loosely_typed(_without_variants(rows, variants) if variants else rows)
        with job_errors(self.spark):
            table = table_with_offsets(loose.toArrow())
        for name in variants:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, as_variants(table.column(at)))
        if self._observed:
            frame: Any = loose
            metrics = frame._jdf.queryExecution().observedMetrics()
            for name in self._observed:
                if metrics.contains(name):
                    self._observed[name] = int(metrics.apply(name).getLong(0))
        return table

    def persist(self, rows: DataFrame) -> DataFrame:
        if id(rows) in self._cached:
            return rows
        level, rdd = rows.storageLevel, _rdd(rows)
        is_stored = rdd is not None and rdd.getStorageLevel().isValid()
        if is_stored or level.useMemory or level.useDisk:
            return rows.select("*")  # held by the caller, or by `repeatable`: releasing these lets nothing go
        self._cached[id(rows)] = rows
        return rows.persist()

    def release(self, rows: DataFrame) -> None:
        if (cached := self._cached.pop(id(rows), None)) is not None:
            cached.unpersist()
        elif (stored := self._stored.pop(id(rows), None)) is not None and (rdd := _rdd(stored)) is not None:
            rdd.unpersist(False)

    def _of_jobs(self) -> dict[str, str]:
        """The settings of a job that hands rows to Python. Smaller batches of the session are retained."""
        rows = int(self.spark.conf.get(_BATCH_ROWS, None) or 0)
        smaller = rows if 0 < rows < ARROW_BATCH_ROWS else ARROW_BATCH_ROWS
        excluded = self.spark.conf.get(_EXCLUDED_RULES, None) or ""
        # another thread's write may have put it there, which also restores the session's own
        rules = excluded if _FOLDING_RULE in excluded else ",".join(filter(None, (excluded, _FOLDING_RULE)))
        return {**_SETTINGS, **_CHECKSUMS, _BATCH_ROWS: str(smaller), _EXCLUDED_RULES: rules}

    @contextmanager
    def _settings(self, settings: Mapping[str, str]) -> Generator[None]:
        """Change settings of the session while the block runs, then restore the previous ones."""
        before: dict[str, str | None] = {}
        for key, value in settings.items():
            with suppress(Exception):
                current = self.spark.conf.get(key, None)
                if value != (_OF_SPARK.get(key) if current is None else current):
                    before[key] = current
                    self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    self.spark.conf.unset(key)
                else:
                    self.spark.conf.set(key, old)


def _rdd(rows: DataFrame) -> Any | None:
    """The RDD with the rows of the DataFrame, if they are those of a checkpoint, or of the driver; otherwise None, also
    on Connect."""
    if is_connect(rows.sparkSession):
        return None
    frame: Any = rows
    plan = frame._jdf.queryExecution().analyzed()
    return plan.rdd() if plan.getClass().getSimpleName() == "LogicalRDD" else None


def _loosely_typed(rows: DataFrame) -> DataFrame:
    """The rows with all types inside their columns declared nullable: if a struct is null Spark gives its fields as
    null, too, and then `toArrow` would find that they must not be."""
    from pyspark.sql import functions as F

    loose = [_nullable_inside(field.dataType) for field in rows.schema.fields]
    if all(kind == field.dataType for kind, field in zip(loose, rows.schema.fields, strict=True)):
        return rows
    pairs = zip(loose, rows.schema.fields, strict=True)
    columns = [(F.col(quoted(field.name)), field, kind) for kind, field in pairs]
    return rows.select(*[c if kind == f.dataType else c.cast(kind).alias(f.name) for c, f, kind in columns])


def _without_variants(rows: DataFrame, variants: Collection[str]) -> DataFrame:
    """The rows with structs of two binaries in place of the columns `variants`: `toArrow` refuses nulls in these."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    struct = StructType([StructField(part.name, BinaryType()) for part in VARIANT])
    schema = StructType(
        [
            StructField(f.name, struct if f.name in variants else f.dataType, f.nullable, f.metadata)
            for f in rows.schema.fields
        ]
    )
    return rows.mapInArrow(for_workers(_run_unmarked), schema)


def _run_unmarked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    plain = pa.struct([pa.field(part.name, part.type) for part in VARIANT])
    for batch in batches:
        for at, field in enumerate(batch.schema):
            if is_variant(field.type):
                batch = batch.set_column(at, field.name, batch.column(at).cast(plain))
        yield batch


def _nullable_inside(kind: Any) -> Any:
    from pyspark.sql.types import ArrayType, MapType, NullType, StringType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable_inside(f.dataType), True, f.metadata) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable_inside(kind.elementType), True)
    if isinstance(kind, MapType):
        # `map()` has no keys, and those of Arrow's maps are not null
        key = StringType() if isinstance(kind.keyType, NullType) else kind.keyType
        return MapType(key, _nullable_inside(kind.valueType), True)
    return kind


def _task() -> Task:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return Task()
    return Task(context.partitionId(), context.stageId(), int(context.taskAttemptId()), may_be_late=True)


def _run_map(
    tuning: bool, fn: MapFunction, spark_schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    if tuning:
        tune_worker()
    yield from carrying(as_spark_takes(batch, spark_schema) for batch in fn(map(with_offsets, batches), _task()))


def _run_items(
    tuning: bool, fn: ItemFunction, spark_schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    if tuning:
        tune_worker()
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    yield from carrying(as_spark_takes(batch, spark_schema) for number in numbers for batch in fn(number, _task()))


def _run_groups(
    tuning: bool, fn: GroupFunction, derived: Mapping[str, RowExpression], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    if tuning:
        tune_worker()
    yield from carrying(map_groups((_with_derived(with_offsets(b), derived) for b in batches), fn, _task()))


def _with_derived(batch: pa.RecordBatch, derived: Mapping[str, RowExpression]) -> pa.RecordBatch:
    if not derived:
        return batch
    arrays = [expression.arrow(batch) for expression in derived.values()]
    return pa.RecordBatch.from_arrays([*arrays, *batch.columns], names=[*derived, *batch.schema.names])


def _run_read(
    tuning: bool, reader: SliceReader, columns: list[str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    if tuning:
        tune_worker()
    slices = (pickle.loads(pickled) for sent in batches for pickled in sent.column(0).to_pylist())
    read = (batch for placed_slice in slices for batch in reader.read_placed(placed_slice, columns, schema))
    spark_schema = in_spark_types(schema)
    yield from carrying(as_spark_takes(normalise_batch(batch, schema), spark_schema) for batch in read)


# Characters that Hadoop's glob takes for patterns in a path.
_GLOB = re.compile(r"([\\*?\[\]{}])")


def can_open(spark: SparkSession, url: str) -> bool:
    """Whether the session's Hadoop has a file system for the URL's scheme; pip's PySpark has none for s3a, gs, abfs."""
    scheme = urlsplit(url).scheme
    if scheme in ("", "file"):
        return True
    jvm: Any = gateway(spark)
    if jvm is None:
        return spark.conf.get(f"spark.hadoop.fs.{scheme}.impl", None) is not None
    try:
        session: Any = spark
        configuration = session._jsc.hadoopConfiguration()
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Exception:
        return False
    return True


_OPTIONS = {
    "recursiveFileLookup": "true",
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # dates and times of files that do not name the Spark that wrote them are in the proleptic calendar
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
# By this name Spark takes the reader that numbers rows, whatever `spark.sql.sources.useV1SourceList` is.
_V1_READER = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
# Shifts times that are stored as INT96 by the session's zone, in files that parquet-mr did not write. It is no option.
_INT96_CONVERSION = "spark.sql.parquet.int96TimestampConversion"


def shifts_times(spark: SparkSession, schema: pa.Schema) -> bool:
    """Whether the session's Parquet reader may shift times that these columns hold."""
    if not any(is_timestamp(kind) for _, kind in leaf_paths(schema)):
        return False
    return str(spark.conf.get(_INT96_CONVERSION, "false")).lower() == "true"


# Row groups and pages are not ruled out by their min and max, whatever condition comes.
_WITHOUT_STATISTICS = {"parquet.filter.stats.enabled": "false", "parquet.filter.columnindex.enabled": "false"}


def parquet_options(*, page_checksums: bool, statistics: bool = True) -> dict[str, str]:
    """The options with which `read_parquet` reads files."""
    options = _OPTIONS | {"parquet.page.verify-checksum.enabled": str(page_checksums).lower()}
    return options if statistics else options | _WITHOUT_STATISTICS


def read_parquet(
    spark: SparkSession,
    urls: Sequence[str],
    ddl: str,
    *,
    page_checksums: bool = True,
    statistics: bool = True,
    numbered: bool = False,
) -> DataFrame:
    """The rows of these files, unchanged: no partition columns from folder names, no globbing, the given schema. A
    missing or damaged file is an error, and old dates are not rebased, whatever the session's setting; checksums of
    pages are checked if there are some and `page_checksums` is set. With `statistics` conditions on the rows, also
    later ones, may rule out row groups. `numbered` is for callers of `with_row_numbers`."""
    reader = spark.read.schema(ddl).options(**parquet_options(page_checksums=page_checksums, statistics=statistics))
    paths = [_GLOB.sub(r"\\\1", url) for url in urls]
    with job_errors(spark):  # a classic session looks at once whether they are there
        return reader.load(paths, format=_V1_READER) if numbered else reader.parquet(*paths)


def with_row_numbers(rows: DataFrame, name: str) -> DataFrame:
    """The rows of files with an additional column: the number of each row in its file."""
    from pyspark.sql import functions as F

    return rows.select("*", F.col("_metadata.row_index").alias(name))


_GUARD = f"{DERIVED}width"
_TOO_WIDE = "lakebed: a row is wider than its share of what is collected"
# The JVM holds collected rows twice, as results of tasks and as what it sends: this part of its heap is for them.
_PART_OF_HEAP = 4
_MAX_BYTES = 1 << 30
# Types whose values take as many bytes as Spark's statistics have.
_FIXED = frozenset(("boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp"))


def max_collected_bytes(spark: SparkSession) -> int:
    """How many bytes of rows are collected at most, by the memory of the driver."""
    jvm: Any = gateway(spark)
    return min(_MAX_BYTES, int(jvm.java.lang.Runtime.getRuntime().maxMemory()) // _PART_OF_HEAP)


def collect_within(data: DataFrame, rows: int, max_bytes: int) -> pa.Table | None:
    """All rows, in the types that a table has for them; None if there are more than `rows` of them, or one has more
    than its share of `max_bytes`. The DataFrame is evaluated at most once, up to that limit."""

    names = data.columns
    if len({name.lower() for name in names}) < len(names):
        return None
    guarded = data if has_exact_leaves(data) else data.limit(rows + 1)
    width = _width(data)
    if width:
        share = max(1, max_bytes // max(1, rows))
        guarded = guarded.selectExpr(
            "*", f"CASE WHEN {width} > {share}L THEN raise_error('{_TOO_WIDE}') ELSE TRUE END AS {_GUARD}"
        )
    try:
        table = SparkEngine(data.sparkSession).collect_normalised(guarded)
    except Exception as error:
        if _TOO_WIDE in str(error):
            return None
        raise
    return table.select(names) if table.num_rows <= rows else None


def _width(data: DataFrame) -> str:
    """The Spark SQL for the bytes of a row's values, "" if every row has the same number."""
    fixed = 0
    parts: list[str] = []
    for field in data.schema.fields:
        if _is_fixed(field.dataType):
            fixed += 8
        else:
            parts.append(f"coalesce(CAST({_bytes_of(field.name, field.dataType)} AS BIGINT), 0L)")
    return " + ".join([*parts, f"{fixed}L"]) if parts else ""


def _is_fixed(kind: DataType) -> bool:
    return kind.typeName() in _FIXED or kind.typeName().startswith(("decimal", "timestamp", "time"))


def _bytes_of(name: str, kind: DataType) -> str:
    column = quoted(name)
    is_text = kind.typeName() in ("string", "char", "varchar", "binary")
    return f"octet_length({column if is_text else f'CAST({column} AS STRING)'})"
