"""`lakebed.stream_into`: a stream of Spark whose micro-batches are commits of a table, each written once."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakebed.config.arguments import checks_arguments, refused, whole_number
from lakebed.config.options import resolve_options
from lakebed.engine.base import session_of
from lakebed.engine.spark import SparkEngine, max_collected_bytes
from lakebed.engine.spark_session import is_connect
from lakebed.errors import InvalidOption
from lakebed.opened_table import OpenedTable
from lakebed.operations.once import DEFAULT_IDENTIFIER, Once
from lakebed.operations.result import WriteResult
from lakebed.slices.row_size import from_types
from lakebed.storage import open_storage
from lakebed.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("lakebed")

Operation = Literal["upsert", "insert", "bulk_insert", "delete", "insert_overwrite_table"]
OPERATIONS: tuple[Operation, ...] = ("upsert", "insert", "bulk_insert", "delete", "insert_overwrite_table")
WriteBatch = Callable[[Table, "DataFrame", Once], Any]
"""A function that writes the rows of a micro-batch to the table, once."""
LOCAL_BYTES = 256 << 20
# Spark's bound of what a job hands to the driver, by which a batch turns out to be too large.
_MAX_RESULT_SIZE = "spark.driver.maxResultSize"
_QUERY_ID = "sql.streaming.queryId"


@checks_arguments
def stream_into(
    df: DataFrame,
    t: Table,
    *,
    checkpoint: str | os.PathLike[str],
    operation: Operation | WriteBatch = "upsert",
    identifier: str = DEFAULT_IDENTIFIER,
    output_mode: Literal["append", "update", "complete"] = "append",
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    max_local_bytes: int = LOCAL_BYTES,
    retries: int = 3,
    options: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a streaming query that writes each micro-batch of `df` to the table as one commit, once.

    `checkpoint` is the query's own folder, where Spark records its progress. `operation` is "upsert", "insert",
    "bulk_insert", "delete" (the rows have the key columns), "insert_overwrite_table" (each batch replaces all rows), or
    a function `(t, rows, once)` that writes the DataFrame and passes `once` on to a write method. `trigger` has the
    arguments of Spark's `trigger`, `{"availableNow": True}` or `{"processingTime": "1 minute"}`. `retries` and
    `options` go to each write, `identifier` names the stream for real Hudi (`lakebed.Once`).

    A batch that is expected to take no more than `max_local_bytes` is collected and written by the driver, which costs
    half of a Spark job for small batches; others are written by a job. The first batch is written by a job, and so is
    one that is larger than `spark.driver.maxResultSize`.

    Returns Spark's `StreamingQuery`. A batch that cannot be written ends the query; its error is raised by
    `awaitTermination`. Raises `InvalidOption` for a DataFrame that is not a stream and for arguments that do not fit.

    >>> def load_new_files(spark, t, folder):
    ...     rows = spark.readStream.schema("id long, city string, fare double, at long").parquet(f"{folder}/in")
    ...     query = stream_into(rows, t, checkpoint=f"{folder}/checkpoint", trigger={"availableNow": True})
    ...     query.awaitTermination()
    """
    session = session_of(df)
    if session is None or not df.isStreaming:
        raise InvalidOption("stream_into() takes a streaming DataFrame as df", hint="write other rows by t.upsert(df)")
    whole_number("stream_into", "max_local_bytes", max_local_bytes)
    _check_operation(operation, output_mode)
    resolve_options(options)
    # nothing of the session goes to a server that runs the function
    table = Table(OpenedTable(t.opened.storage, t.opened.config)) if is_connect(session) else t
    write = operation if callable(operation) else write_method(operation, retries, options)
    max_local_bytes = 0 if callable(operation) else min(max_local_bytes, local_bytes_bound(df))
    batches = BatchWriter(table, write, str(checkpoint), identifier, max_local_bytes, operation == OPERATIONS[-1])
    writer = df.writeStream.foreachBatch(batches.write).option("checkpointLocation", str(checkpoint))
    writer = writer.outputMode(output_mode)
    if query_name is not None:
        writer = writer.queryName(query_name)
    return (writer if trigger is None else writer.trigger(**trigger)).start()


def _check_operation(operation: Any, output_mode: str) -> None:
    if not callable(operation) and operation not in OPERATIONS:
        raise refused("stream_into", "operation", operation, f"one of {', '.join(OPERATIONS)} or a function")
    if output_mode not in ("append", "update", "complete"):
        raise refused("stream_into", "output_mode", output_mode, "append, update or complete")
    if output_mode != "append":
        refuse_repeated_rows(operation, output_mode)


def refuse_repeated_rows(operation: Any, output_mode: str) -> None:
    """Raise `InvalidOption` if an operation adds rows although batches repeat rows of earlier ones."""
    if operation in ("insert", "bulk_insert"):
        raise InvalidOption(
            f"operation={operation!r} with output_mode={output_mode!r} would add a row again each time that it changes",
            hint='use "upsert", or "insert_overwrite_table" with complete',
            context={"operation": operation, "output_mode": output_mode},
        )


def write_method(
    operation: str, retries: int | None, options: Mapping[str, Any] | None
) -> Callable[[Table, Any, Once | None], WriteResult]:
    """A function that calls the method of a table that an operation names, with these arguments."""

    def write(t: Table, rows: Any, once: Once | None) -> WriteResult:
        arguments: Any = {"progress": False, "retries": retries, "options": options, "once": once}
        if operation == "insert_overwrite_table":
            return t.insert_overwrite(rows, "table", **arguments)
        return getattr(t, operation)(rows, **arguments)

    return write


def local_bytes_bound(df: DataFrame) -> int:
    """The largest number of bytes of rows that the driver takes, from its memory. 0 without Spark's limit of results:
    nothing would stop a batch that is larger than expected."""
    session = df.sparkSession
    if is_connect(session):
        return LOCAL_BYTES
    bound = str(session.sparkContext.getConf().get(_MAX_RESULT_SIZE, "1g"))
    return 0 if bound.strip() in ("0", "-1") else max_collected_bytes(session)


class BatchWriter:
    """A writer of the micro-batches of one query, the function of its `foreachBatch`."""

    def __init__(
        self,
        table: Table,
        write: Callable[[Table, Any, Once], Any],
        checkpoint: str,
        identifier: str,
        max_local_bytes: int,
        replaces: bool,
    ) -> None:
        self._table = table
        self._write = write
        self._checkpoint = checkpoint
        self._identifier = identifier
        self._max_local_bytes = max_local_bytes
        self._replaces = replaces
        self._expected_bytes: int | None = None  # of the next batch
        self._query = ""

    def write(self, rows: DataFrame, number: int) -> None:
        """Write a micro-batch, unless the table has it."""
        session = rows.sparkSession
        if not self._query and not is_connect(session):
            self._query = session.sparkContext.getLocalProperty(_QUERY_ID) or ""
        self._query = self._query or query_of_checkpoint(self._checkpoint)
        once = Once(self._query, int(number), self._identifier)
        local = self._collected(rows)
        if local is not None:
            self._expected_bytes = local.nbytes
            if local.num_rows or self._replaces:
                self._write(self._table, local, once)
            return
        result = self._write(self._table, rows, once)
        if isinstance(result, WriteResult) and not result.skipped:
            self._expected_bytes = int(result.rows * from_types(SparkEngine(session).schema(rows)))

    def _collected(self, rows: DataFrame) -> pa.Table | None:
        """The rows in this process; None for a batch that a job writes."""
        if self._expected_bytes is None or self._expected_bytes > self._max_local_bytes:
            return None
        try:
            return SparkEngine(rows.sparkSession).collect_normalised(rows)
        except Exception as error:
            if _MAX_RESULT_SIZE not in str(error):
                raise
            _log.info("a batch is larger than %s: a job writes it", _MAX_RESULT_SIZE)
            return None


def query_of_checkpoint(checkpoint: str) -> str:
    """The id of the query that has this checkpoint folder, which Spark writes before the first batch."""
    return str(json.loads(open_storage(checkpoint).read("metadata"))["id"])
