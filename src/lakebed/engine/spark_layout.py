"""DataFrames whose rows Spark's planner knows to be in buckets, made through the session's JVM gateway.

A `LogicalRDD` is a leaf of a plan that declares how its rows are partitioned and in which order they come. One
whose partition n holds bucket n declares `ShufflePartitionIdPassThrough`: the number of a row's partition is in a
column. Spark takes two of these for co-partitioned, and nothing else with one, so no other plan is mistaken for it;
what is grouped by or joined on the column (and more) needs no exchange.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.engine.spark import parquet_options, read_parquet
from lakebed.engine.spark_session import gateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKET = "_bucket"
"""The column with the number of a row's partition."""


FAMILY, KEY = "lakebed.buckets", "lakebed.key"
"""The content of the column's metadata: how buckets are computed, and from which columns."""


@dataclass(frozen=True, slots=True)
class File:
    """A Parquet file that is read whole."""

    url: str
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of rows: partition n of `count` has the rows whose bucket is n; `order` are the columns by which its
    rows are sorted."""

    count: int
    order: tuple[str, ...] = ()
    about: Mapping[str, object] = field(default_factory=dict[str, object])
    """Metadata of the bucket column: `FAMILY` and `KEY`, each followed by a number, for each choice of columns."""


def can_lay_out(spark: SparkSession) -> bool:
    """Whether the session supports layouts: it has a JVM gateway, and Spark's classes are the expected ones."""
    jvm: Any = gateway(spark)
    if jvm is None:
        return False
    try:
        Scala(spark).of_layout(Layout(1), {BUCKET: Scala(spark).attributes("_bucket int").apply(0)})
    except Exception:  # another Spark, or a platform that denies access
        return False
    return True


def bucketed_files(
    spark: SparkSession,
    partitions: Sequence[Sequence[File]],
    ddl: str,
    where: str | None,
    *,
    page_checksums: bool,
    statistics: bool,
) -> tuple[Any, str]:
    """An RDD of the files' rows with the bucket column after their own, and their schema as JSON. Each partition is
    read, file after file, by Spark's vectorised reader, without the rows that the condition and (if allowed) statistics
    rule out."""
    scala = Scala(spark)
    jvm, session = scala.jvm, scala.session
    reading = parquet_options(page_checksums=page_checksums, statistics=statistics)
    options = scala.map(reading | {"returning_batch": "false"})
    stored, bucket = scala.struct(ddl), scala.struct(f"{BUCKET} int")
    configuration = session.sessionState().newHadoopConfWithOptions(options)
    sources = jvm.org.apache.spark.sql.execution.datasources
    first = next(file for files in partitions for file in files)
    pushed = _pushed_filters(spark, first, ddl, where, scala)
    read = sources.parquet.ParquetFileFormat().buildReaderWithPartitionValues(
        session, stored, bucket, stored, pushed, options, configuration
    )
    nowhere, nothing = scala.array(jvm.java.lang.String, []), scala.map({})
    row_of, path_of = jvm.org.apache.spark.sql.catalyst.InternalRow.fromSeq, jvm.org.apache.spark.paths.SparkPath
    listed: list[Any] = []
    for number, files in enumerate(partitions):
        values = row_of(scala.seq([number]))
        parts = [
            sources.PartitionedFile(values, path_of.fromUrlString(f.url), 0, f.size, nowhere, 0, f.size, nothing)
            for f in files
        ]
        listed.append(sources.FilePartition(number, scala.array(sources.PartitionedFile, parts)))
    full_schema = scala.struct(f"{ddl}, {BUCKET} int" if ddl else f"{BUCKET} int")
    checks = jvm.org.apache.spark.sql.catalyst.FileSourceOptions(options)
    rows = sources.FileScanRDD(session, read, scala.seq(listed), full_schema, scala.seq([]), nothing, checks)
    return rows, full_schema.json()


def laid_out(spark: SparkSession, rdd: Any, schema_json: str, layout: Layout | None) -> DataFrame:
    """A DataFrame over an RDD of Spark's own rows; the planner may rely on `layout`."""
    from pyspark.sql import DataFrame

    scala = Scala(spark)
    schema = scala.struct_of_json(_described(schema_json, layout))
    attributes = scala.jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(schema)
    plan = logical_rows(scala, attributes, rdd, layout)
    return DataFrame(scala.object("org.apache.spark.sql.classic.Dataset").ofRows(scala.session, plan), spark)


def logical_rows(scala: Scala, attributes: Any, rdd: Any, layout: Layout | None) -> Any:
    """The logical plan of an RDD's rows with these attributes."""
    named = {attributes.apply(n).name(): attributes.apply(n) for n in range(attributes.size())}
    placed = scala.of_layout(layout, named) if layout else scala.unknown()
    order = scala.seq([scala.ascending(named[name]) for name in (layout.order if layout else ())])
    none = scala.none
    arguments = (attributes, rdd, placed, order, False, none, scala.session, none, none)
    # from 4.3 on Spark also asks whether the rows are a checkpoint's
    more = [False] * (scala.parameters("org.apache.spark.sql.execution.LogicalRDD") - len(arguments))
    return scala.jvm.org.apache.spark.sql.execution.LogicalRDD(*arguments, *more)


def _described(schema_json: str, layout: Layout | None) -> str:
    schema = json.loads(schema_json)
    for column in schema["fields"]:
        if column["name"] == BUCKET and layout is not None:
            column["metadata"] = dict(layout.about)
    return json.dumps(schema)


def rows_of(frame: DataFrame) -> Any:
    """The RDD of a DataFrame's rows, in the partitions of its plan."""
    return java_frame(frame).queryExecution().toRdd()


def side_by_side(spark: SparkSession, rdds: Sequence[Any], count: int) -> Any:
    """One RDD whose partition n has the rows of partition n of each of the RDDs."""
    if len(rdds) == 1:
        return rdds[0]
    scala = Scala(spark)
    jvm = scala.jvm
    tag = scala.object("scala.reflect.ClassTag").apply(
        scala.jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    )
    return jvm.org.apache.spark.rdd.SQLPartitioningAwareUnionRDD(
        scala.session.sparkContext(), scala.seq(rdds), count, tag
    )


def _pushed_filters(spark: SparkSession, file: File, ddl: str, where: str | None, scala: Scala) -> Any:
    """The filters that Spark passes to a Parquet reader for a condition, taken from the plan of a scan of one file."""
    if where is None:
        return scala.seq([])
    leaves = (
        java_frame(read_parquet(spark, [file.url], ddl).filter(where)).queryExecution().executedPlan().collectLeaves()
    )
    leaf = leaves.apply(0)
    return leaf.pushedDownFilters() if hasattr(leaf, "pushedDownFilters") else scala.seq([])


def java_frame(frame: DataFrame) -> Any:
    """The session's own object of a DataFrame."""
    return frame._jdf  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


class Scala:
    """A factory of Scala's collections and objects through the gateway of a session."""

    def __init__(self, spark: SparkSession) -> None:
        session: Any = spark
        self.jvm: Any = gateway(spark)
        self.session = session._jsparkSession
        self._gateway = session.sparkContext._gateway

    def seq(self, items: Sequence[Any]) -> Any:
        java_list = self.jvm.java.util.ArrayList()
        for item in items:
            java_list.add(item)
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(java_list)

    def map(self, items: Mapping[str, str]) -> Any:
        java_map = self.jvm.java.util.HashMap()
        for key, value in items.items():
            java_map.put(key, value)
        return self.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(java_map)

    def array(self, kind: Any, items: Sequence[Any]) -> Any:
        java_array = self._gateway.new_array(kind, len(items))
        for at, item in enumerate(items):
            java_array[at] = item
        return java_array

    def object(self, name: str) -> Any:
        package, _, last = name.rpartition(".")
        namespace = self.jvm
        for part in package.split("."):
            namespace = getattr(namespace, part)
        return getattr(getattr(namespace, f"{last}$"), "MODULE$")

    def parameters(self, name: str) -> int:
        """How many things the constructor of a class takes."""
        return self.jvm.java.lang.Class.forName(name).getConstructors()[0].getParameterCount()

    @property
    def none(self) -> Any:
        return self.object("scala.None")

    def struct(self, ddl: str) -> Any:
        return self.jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)

    def struct_of_json(self, text: str) -> Any:
        return self.jvm.org.apache.spark.sql.types.DataType.fromJson(text)

    def attributes(self, ddl: str) -> Any:
        return self.jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(self.struct(ddl))

    def unknown(self) -> Any:
        return self.jvm.org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning(0)

    def ascending(self, attribute: Any) -> Any:
        expressions = "org.apache.spark.sql.catalyst.expressions"
        return self.jvm.org.apache.spark.sql.catalyst.expressions.SortOrder(
            attribute, self.object(f"{expressions}.Ascending"), self.object(f"{expressions}.NullsFirst"), self.seq([])
        )

    def of_layout(self, layout: Layout, named: Mapping[str, Any]) -> Any:
        # exactly this: joins look for no other, nor for one of several
        physical = self.jvm.org.apache.spark.sql.catalyst.plans.physical
        number = self.jvm.org.apache.spark.sql.catalyst.expressions.DirectShufflePartitionID(named[BUCKET])
        return physical.ShufflePartitionIdPassThrough(number, layout.count)
