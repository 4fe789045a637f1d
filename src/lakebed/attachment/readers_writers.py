"""Readers and writers of an attached session: names of the warehouse, and tables that a write creates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakebed.api import exists
from lakebed.api import open as open_table
from lakebed.attachment.session import Attachment, Replaced, attachment_of, table_rows
from lakebed.catalog.names import target_uri
from lakebed.config.creation import PARTITION_BY
from lakebed.errors import InvalidOption, TableExists
from lakebed.loading import drop_unless_used
from lakebed.operations.hudi_job import save_mode
from lakebed.spark_sink.creation import create_table, table_to_write
from lakebed.spark_sink.options import STORAGE_PREFIX, WriteOptions, refuse_memory, write_options
from lakebed.spark_sink.stream import write_method

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from lakebed.table import Table

_FORMAT = "lakebed"
_DEFAULT_FORMAT = "spark.sql.sources.default"
_ROWS = "_lakebed_frame_0"


@dataclass(frozen=True)
class Written:
    """The settings of a writer of Spark: its rows, the format (None if none is set), the mode, the options, the columns
    of `partitionBy`, and whether buckets or an order of rows are set."""

    frame: DataFrame
    format: str | None
    mode: str
    options: Mapping[str, str]
    partition_by: tuple[str, ...]
    has_layout: bool = False

    @property
    def is_of_lakebed(self) -> bool:
        return (self.format or "").lower() == _FORMAT

    def write_options(self, attachment: Attachment, location: str, *, streaming: bool = False) -> WriteOptions:
        """The options of a write to a path or a name; those of the writer come before those of the warehouse's storage.
        Raises `InvalidOption` if `partitionBy` and an option name other columns, and after `bucketBy`."""
        if self.has_layout:
            raise InvalidOption(
                "bucketBy, sortBy and clusterBy are not for tables of lakebed",
                hint=".option('index', 'bucket').option('buckets', 8) makes a new table with buckets,"
                " .option('sort', 'key') one with sorted files",
            )
        named = {**storage_options(attachment), **self.options, "path": location}
        options = write_options(named, streaming=streaming)
        columns = list(self.partition_by)
        if not columns:
            return options
        if options.creation.get(PARTITION_BY, columns) != columns:
            raise InvalidOption(
                f"partitionBy names {', '.join(columns)}, and the option {PARTITION_BY} names"
                f" {', '.join(options.creation[PARTITION_BY])}",
                hint="give the columns once",
                context={"option": PARTITION_BY},
            )
        return replace(options, creation={**options.creation, PARTITION_BY: columns})


def storage_options(attachment: Attachment) -> dict[str, str]:
    """The options of the warehouse's storage as those of `format("lakebed")`."""
    return {f"{STORAGE_PREFIX}{name}": value for name, value in attachment.storage_options.items()}


def replaced_methods(connect: bool) -> list[Replaced]:
    """Replace the methods of Spark's readers and writers that take names of tables or create tables."""
    if connect:
        from pyspark.sql.connect.readwriter import DataFrameReader, DataFrameWriter
        from pyspark.sql.connect.streaming.readwriter import DataStreamWriter
    else:
        from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter
        from pyspark.sql.streaming.readwriter import DataStreamWriter
    return [
        Replaced.by(DataFrameReader, "table", _read_table),
        Replaced.by(DataFrameWriter, "save", _save),
        Replaced.by(DataFrameWriter, "saveAsTable", _save_as_table),
        Replaced.by(DataFrameWriter, "insertInto", _insert_into),
        Replaced.by(DataStreamWriter, "toTable", _to_table),
    ]


# -- the replaced methods, with the signatures of Spark's


def _read_table(original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def table(self: Any, tableName: Any) -> DataFrame:  # noqa: N803
        attachment = attachment_of(_session(self))
        if attachment is None or not isinstance(tableName, str):
            return original(self, tableName)
        if not _options(self):
            frame = table_rows(attachment, tableName)
            return original(self, tableName) if frame is None else frame
        with attachment.running():
            stored = attachment.table(tableName)
            if stored is None:
                return original(self, tableName)
            return self.format(_FORMAT).options(**storage_options(attachment)).load(stored.uri)

    return table


def _save(original: Callable[..., None]) -> Callable[..., None]:
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,  # noqa: N803
        **options: Any,
    ) -> None:
        attachment = attachment_of(_session(self))
        if attachment is not None:
            _hand_over(self.mode(mode), format, partitionBy, options)
            written = _written(self)
            location = path if path is not None else written.options.get("path")
            if written.is_of_lakebed and isinstance(location, str):
                with attachment.running():
                    return _write(attachment, written, location)
        return original(self, path, format, mode, partitionBy, **options)

    return save


def _save_as_table(original: Callable[..., None]) -> Callable[..., None]:
    def saveAsTable(  # noqa: N802
        self: Any,
        name: Any,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,  # noqa: N803
        **options: Any,
    ) -> None:
        attachment = attachment_of(_session(self))
        if attachment is not None and isinstance(name, str):
            _hand_over(self.mode(mode), format, partitionBy, options)
            written = _written(self)
            with attachment.running():
                table = _name_to_write(attachment, written, name)
                if table is not None:
                    return _write(attachment, written, table)
        return original(self, name, format, mode, partitionBy, **options)

    return saveAsTable


def _insert_into(original: Callable[..., None]) -> Callable[..., None]:
    def insertInto(self: Any, tableName: Any, overwrite: bool | None = None) -> None:  # noqa: N802, N803
        attachment = attachment_of(_session(self))
        if attachment is not None and isinstance(tableName, str):
            with attachment.running():
                if attachment.existing_name(tableName) is not None:
                    written = _written(self)
                    if written.partition_by:
                        raise InvalidOption(
                            "insertInto() does not take partitionBy()",
                            hint="the table has its partitions: leave it out",
                        )
                    replaces = overwrite if overwrite is not None else written.mode == "overwrite"
                    verb = "OVERWRITE" if replaces else "INTO"
                    attachment.run(f"INSERT {verb} {tableName} SELECT * FROM {_ROWS}", {_ROWS: written.frame})
                    return None
        return original(self, tableName, overwrite)

    return insertInto


def _to_table(original: Callable[..., StreamingQuery]) -> Callable[..., StreamingQuery]:
    def toTable(  # noqa: N802
        self: Any,
        tableName: Any,  # noqa: N803
        format: str | None = None,
        outputMode: str | None = None,  # noqa: N803
        partitionBy: Any = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: Any,
    ) -> StreamingQuery:
        attachment = attachment_of(_session(self))
        if attachment is not None and isinstance(tableName, str):
            _hand_over(self, format, partitionBy, options)
            written = _written(self, streaming=True)
            with attachment.running():
                table = _name_to_write(attachment, written, tableName)
                if table is not None:
                    stream = written.write_options(attachment, target_uri(table), streaming=True)
                    refuse_memory(stream.path, stream.storage())
                    table_to_write(stream.storage(), stream, written.frame.schema, name=table)
                    writer = self.format(_FORMAT).options(**storage_options(attachment))
                    writer = writer if outputMode is None else writer.outputMode(outputMode)
                    return (writer if queryName is None else writer.queryName(queryName)).start(stream.path)
        return original(self, tableName, format, outputMode, partitionBy, queryName, **options)

    return toTable


# -- the settings of a writer, and the writes


def _name_to_write(attachment: Attachment, written: Written, name: str) -> str | None:
    """The name in the warehouse that a writer means; None for a table of Spark. Raises `InvalidOption` for a name that
    no table of lakebed can have, and for another format than that of the table that exists."""
    existing = attachment.existing_name(name)
    if existing is None:
        if not written.is_of_lakebed:
            return None
        new = attachment.new_name(name)
        if new is None:
            raise InvalidOption(
                f"{name!r} is no name of a table in the warehouse",
                hint="write database.table, as sales.orders",
                context={"table": name},
            )
        return new
    default = attachment.spark.conf.get(_DEFAULT_FORMAT)
    if not written.is_of_lakebed and written.format not in (None, default):
        raise InvalidOption(
            f"the table {existing} of the warehouse is one of lakebed, and the writer's format is {written.format!r}",
            hint="leave format() out, or take another name",
            context={"table": existing},
        )
    return existing


def _write(attachment: Attachment, written: Written, location: str) -> None:
    """Write the rows of a DataFrame to a path or a name by the save mode. A table that this creates is left out again
    where the write fails."""
    options = written.write_options(attachment, target_uri(location))
    mode, spark = save_mode(written.mode), attachment.spark
    created: Table | None = None
    if not exists(location, storage_options=options.storage_options):
        try:
            created = create_table(options, written.frame, name=location, spark=spark)
        except TableExists:
            if not exists(location, storage_options=options.storage_options):  # other data is there
                raise
    if created is None and mode == "errorifexists":
        raise TableExists(f"there is a table at {location}", hint='write with mode("append") or mode("overwrite")')
    if created is None and mode == "ignore":
        return
    try:
        config = table_to_write(options.storage(), options, written.frame.schema, name=location)
        operation = options.operation_of_batch(overwrite=mode == "overwrite", has_key=bool(config.key_fields))
        table = created or open_table(location, spark=spark, storage_options=options.storage_options)
        write_method(operation, options.retries, options.options)(table, written.frame, None)
    except BaseException:
        if created is not None:
            drop_unless_used(created, None, location, options.storage_options)
        raise


def _hand_over(writer: Any, format: str | None, partition_by: Any, options: Mapping[str, Any]) -> None:
    """Hand the arguments of a method to the writer, as Spark's methods do."""
    writer.options(**options)
    if partition_by is not None:
        writer.partitionBy(partition_by)
    if format is not None:
        writer.format(format)


def _session(maker: Any) -> Any:
    """The session of a reader or writer of Spark."""
    return next(getattr(maker, name) for name in ("_spark", "_session", "_client") if hasattr(maker, name))


def _options(reader: Any) -> bool:
    """Whether a reader of Spark was given options."""
    if hasattr(reader, "_jreader"):
        return not reader._jreader.extraOptions().isEmpty()
    return bool(reader._options)


def _written(writer: Any, *, streaming: bool = False) -> Written:
    """The settings of a writer of Spark: a classic writer has them in the JVM, one of Connect in a message."""
    if hasattr(writer, "_jwrite"):
        return _written_classic(writer, streaming=streaming)
    from pyspark.sql.connect.dataframe import DataFrame

    if not streaming:
        state, frame = writer._write, DataFrame(writer._df, writer._spark)
        columns = tuple(state.partitioning_cols)
        has_layout = state.num_buckets >= 0 or bool(state.sort_cols or state.clustering_cols)
        return Written(frame, state.source, state.mode or "errorifexists", dict(state.options), columns, has_layout)
    state = writer._write_proto
    return Written(
        DataFrame(writer._write_stream._child, writer._session),
        state.format or None,
        "append",
        dict(state.options),
        tuple(state.partitioning_column_names),
    )


def _written_classic(writer: Any, *, streaming: bool) -> Written:
    state = writer._jwrite
    options, columns = dict[str, str](), list[str]()
    pairs = state.extraOptions().iterator()
    while pairs.hasNext():
        pair = pairs.next()
        options[pair._1()] = pair._2()
    named = state.partitioningColumns()
    if named.isDefined():
        columns = [named.get().apply(n) for n in range(named.get().size())]
    if streaming:
        return Written(writer._df, state.source(), "append", options, tuple(columns))
    has_layout = any(
        part.isDefined() for part in (state.numBuckets(), state.sortColumnNames(), state.clusteringColumns())
    )
    return Written(writer._df, state.source(), state.curmode().toString(), options, tuple(columns), has_layout)
