"""`spark.readStream.format("lakebed")`: a table's rows or changes, commit by commit.

An offset is `{"offsetCommitTime": position}`, as real Hudi writes it: the position after a commit, which the next batch
begins after. Spark asks for offsets and partitions in one process that lives as long as the query, tasks read the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from lakebed.config.settings import WriteSettings
from lakebed.engine.spark_worker import SentToWorkers
from lakebed.errors import CheckpointBehind, InvalidOption, SchemaConflict
from lakebed.format.data_block import AFTER
from lakebed.read.cdc import ChangeLog
from lakebed.read.commit_feed import (
    BatchLimits,
    BatchOfChanges,
    CommitFeed,
    newest_position,
    resolve_start,
)
from lakebed.read.moments import BEGINNING
from lakebed.read.plan import data_columns, table_columns
from lakebed.services.consumers import note_consumers, start_consumer
from lakebed.slices.snapshot import Snapshot
from lakebed.spark_source.filters import zoned_filter
from lakebed.spark_source.options import SourceOptions
from lakebed.spark_source.partitions import (
    ChangeBatch,
    SliceBatch,
    change_batches,
    read_changes,
    read_rows,
    slice_batches,
)
from lakebed.timeline.consumers import ConsumerFiles, check_consumer_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OFFSET = "offsetCommitTime"
# The offset of the beginning, as in real Hudi.
_FIRST = "00000000000000"
_LIMITS = {
    "maxcommitspertrigger": "commits",
    "maxrowspertrigger": "rows",
    "maxbytespertrigger": "bytes",
    "maxfilespertrigger": "files",
}
# For a reader with limits that Spark has no class for: any but `ReadAllAvailable` asks for those of the options.
_MAX_ROWS = (1 << 63) - 1
_ADMISSION = "pyspark.sql.streaming.datasource"
# Before 4.2 Spark gives a source no limits and no start.
admission: Any = import_module(_ADMISSION) if find_spec(_ADMISSION) else None
_log = logging.getLogger("lakebed")


@dataclass(frozen=True)
class StreamOptions:
    """The options of a stream: `source` names the table, the columns and the condition; a new stream begins at
    `start`."""

    source: SourceOptions
    start: str = BEGINNING
    limits: BatchLimits = field(default_factory=BatchLimits)
    fail_on_data_loss: bool = True
    consumer: str = ""

    @property
    def cdc(self) -> bool:
        """Whether the stream reads changes, with the rows before and after."""
        return self.source.query_type == "cdc"

    @classmethod
    def of(cls, source: SourceOptions) -> StreamOptions:
        """The options of a stream. Raises `InvalidOption` for options that only a read of one moment can have."""
        for name, value in (("as_of", source.as_of), ("query read_optimized", source.query_type == "read_optimized")):
            if value:
                raise InvalidOption(
                    f"a stream of changes takes no {name}",
                    hint="query is incremental or cdc; start and end name the range",
                    context={"option": name},
                )
        options = source.stream
        if (consumer := options.get("consumer", "")) != "":
            check_consumer_name(consumer)
        fail = options.get("failondataloss", "true").lower()
        if fail not in ("true", "false"):
            raise InvalidOption(f"failOnDataLoss is true or false, not {fail!r}", context={"option": "failOnDataLoss"})
        limits = {field: _positive(name, options[name]) for name, field in _LIMITS.items() if name in options}
        start = source.start if source.start is not None else options.get("startoffset", BEGINNING)
        return cls(source, start, BatchLimits(**limits), fail == "true", consumer)


class StreamReader(SentToWorkers, DataSourceStreamReader):
    """A reader that plans and reads the batches of one stream.

    Spark from 4.2 on gives `latestOffset` the start of the batch. Before that the reader remembers where the last batch
    ended: Spark asks for the (empty) partitions of the last one when a query goes on from its checkpoint.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self.options = options
        self.columns = [column.name for column in schema.fields]
        # of changes the columns of the images, those that the query began with; None for all of them in texts
        image: Any = next((column.dataType for column in schema.fields if column.name == AFTER), None)
        self.images: tuple[str, ...] | None = getattr(image, "names", options.source.columns)
        self.planned: str | None = None
        self.target: str | None = None
        self.types: pa.Schema | None = None

    # -- offsets

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        snapshot = self.options.source.snapshot()
        consumer = self.options.consumer
        recorded = ConsumerFiles(snapshot.storage).find(consumer) if consumer else None
        position = resolve_start(snapshot, self.options.start) if recorded is None else recorded.position
        if consumer and recorded is None:
            start_consumer(snapshot.storage, consumer, position, WriteSettings())
        self.planned = position
        return _offset(position)

    def latestOffset(  # noqa: N802
        self, start: Mapping[str, str] | None = None, limit: object | None = None
    ) -> dict[str, str]:
        if start is None and self.planned is None:
            start = self.initialOffset()
        position = self.planned if start is None else _position(start)
        assert position is not None
        snapshot = self.options.source.snapshot()
        self._check_columns(snapshot)
        bounds = [self.target or "", resolve_start(snapshot, end) if (end := self.options.source.end) else ""]
        upto = min(filter(None, bounds), default="")
        strict = self.options.fail_on_data_loss
        feed = CommitFeed(snapshot, position, upto=upto, cdc=self.options.cdc, strict=strict)
        takes_all = admission is not None and isinstance(limit, admission.ReadAllAvailable)
        return _offset(max(position, feed.end(BatchLimits() if takes_all else self.options.limits)))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        limits = self.options.limits
        if not limits.is_limited:
            return admission.ReadAllAvailable()
        return admission.ReadMaxRows(_MAX_ROWS if limits.rows is None else limits.rows)

    def reportLatestOffset(self) -> dict[str, str]:  # noqa: N802
        return _offset(newest_position(self.options.source.snapshot()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = newest_position(self.options.source.snapshot())

    # -- rows

    def partitions(self, start: Mapping[str, str], end: Mapping[str, str]) -> list[InputPartition]:
        first, last = _position(start), _position(end)
        self.planned = max(last, self.planned or "")
        if last <= first:
            return []
        snapshot = self.options.source.snapshot()
        self._check_columns(snapshot)
        return self._changes(snapshot, first, last) if self.options.cdc else self._rows(snapshot, first, last)

    def _rows(self, snapshot: Snapshot, first: str, last: str) -> list[InputPartition]:
        source = self.options.source

        def batch(text: str | None) -> BatchOfChanges:
            rows = BatchOfChanges(snapshot, first, last, self.columns, text, reads=source.reads)
            rows.strict, rows.consumer = self.options.fail_on_data_loss, self.options.consumer
            return rows

        zoned = zoned_filter(source.where, batch(None).available, ())
        # what depends on the session's zone, which only tasks know, is left to them
        rows = batch(source.where) if zoned is None else batch(None).narrowed([zoned.for_every_zone])
        return slice_batches(rows, zoned)

    def _changes(self, snapshot: Snapshot, first: str, last: str) -> list[InputPartition]:
        source = self.options.source
        try:
            return change_batches(ChangeLog(snapshot, first, last, self.images, source.images))
        except CheckpointBehind as error:
            usable = str(error.context.get("checkpoint") or "")
            if self.options.fail_on_data_loss or usable <= first:
                raise
            _log.warning("changes from %s to %s are lost: %s", first or "the beginning", usable, error.message)
            if usable >= last:
                return []
            return change_batches(ChangeLog(snapshot, usable, last, self.images, source.images))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChangeBatch):
            yield from read_changes(partition)
        elif isinstance(partition, SliceBatch):
            yield from read_rows(partition, self.columns)

    def _check_columns(self, snapshot: Snapshot) -> None:
        """Raise `SchemaConflict` if a column of the stream was dropped since it began, or has another type."""
        types = data_columns(snapshot) if self.options.cdc else table_columns(snapshot)
        read = self.images if self.options.cdc else self.columns
        names = types.names if read is None else read
        before = self.types if self.types is not None else types
        self.types = before
        dropped = [
            name for name in (*names, *before.names) if name not in types.names and (read is None or name in read)
        ]
        changed = [name for name in names if name not in dropped and name in before.names]
        changed = [name for name in changed if types.field(name).type != before.field(name).type]
        if dropped or changed:
            name, change = (dropped or changed)[0], "was dropped" if dropped else "has another type now"
            raise SchemaConflict(
                f"the stream reads the column {name} of table {snapshot.config.name!r}, which {change}",
                hint="Start the query again: its columns are then those of the table. The option columns names some.",
                context={"columns": dropped or changed},
            )

    # -- the consumer

    def commit(self, end: Mapping[str, str]) -> None:
        if not self.options.consumer:
            return
        position = _position(end)
        snapshot = self.options.source.snapshot()
        files = ConsumerFiles(snapshot.storage)
        recorded = files.find(self.options.consumer)
        if recorded is None:
            start_consumer(snapshot.storage, self.options.consumer, position, WriteSettings())
        elif recorded.position < position:
            if not snapshot.config.has_consumers:
                note_consumers(snapshot.storage, WriteSettings())
            files.move(recorded, position)

    def stop(self) -> None:
        """Do nothing: no resource is open between two calls."""


if admission is not None:
    admission.SupportsTriggerAvailableNow.register(StreamReader)


def stream_reader(source: SourceOptions, schema: StructType) -> StreamReader:
    """The reader of a stream with these columns."""
    return StreamReader(StreamOptions.of(source), schema)


def _offset(position: str) -> dict[str, str]:
    return {OFFSET: position or _FIRST}


def _position(offset: Mapping[str, str]) -> str:
    """The position of an offset; empty for the beginning, which real Hudi writes as zeros."""
    try:
        text = str(offset[OFFSET])
    except (KeyError, TypeError):
        raise InvalidOption(
            f"the checkpoint has the offset {offset!r}, which is none of a table",
            hint=f"an offset of format('lakebed') is {{'{OFFSET}': ...}}: give the query another checkpoint location",
        ) from None
    return text if text.strip("0") else ""


def _positive(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise InvalidOption(f"{name} is a whole number above 0, not {text!r}", context={"option": name, "value": text})
    return value
