"""Parquet files by name through Spark's own vectorised reader, and whether the session can open them at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.types import is_timestamp

from lakebed.engine.spark_errors import job_errors
from lakebed.engine.spark_session import gateway
from lakebed.schema.arrow import leaf_paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
# By this name Spark takes the reader that numbers rows, whatever `spark.sql.sources.useV1SourceList` says.
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
    """The options of `read_parquet`."""
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
    """These files, as they are: no partition columns from folder names, no globbing, the given schema. One that is
    missing or damaged is an error, and old dates are what they are, whatever the session says; checksums of pages are
    checked where there are some, but for callers that do without. `statistics`: conditions on the rows, also later
    ones, may rule out row groups. `numbered` is for callers of `with_row_numbers`."""
    reader = spark.read.schema(ddl).options(**parquet_options(page_checksums=page_checksums, statistics=statistics))
    paths = [_GLOB.sub(r"\\\1", url) for url in urls]
    with job_errors(spark):  # a classic session looks at once whether they are there
        return reader.load(paths, format=_V1_READER) if numbered else reader.parquet(*paths)


def with_row_numbers(rows: DataFrame, name: str) -> DataFrame:
    """Rows of files with a column more: the number of each in its file."""
    from pyspark.sql import functions as F

    return rows.select("*", F.col("_metadata.row_index").alias(name))
