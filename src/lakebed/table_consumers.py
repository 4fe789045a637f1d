"""`Table.consumers` and `Table.consume`: named consumers, whose positions are recorded in the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import pyarrow as pa

from lakebed.config.arguments import public_methods_check_arguments, whole_number
from lakebed.config.options import resolve_options
from lakebed.errors import InvalidOption
from lakebed.opened_table import OpenedTable
from lakebed.operations.once import Once
from lakebed.read.cdc import ChangeLog, Images
from lakebed.read.commit_feed import BatchLimits, BatchOfChanges, CommitFeed, resolve_start
from lakebed.read.moments import BEGINNING, When
from lakebed.services.consumers import note_consumers, start_consumer
from lakebed.slices.snapshot import Snapshot
from lakebed.table_views import EntriesView
from lakebed.timeline.consumers import Consumer, ConsumerFiles, check_consumer_name
from lakebed.timeline.instants import parse_time
from lakebed.timeline.timeline import completed_at
from lakebed.wording import Printed, count_text

_SCHEMA = pa.schema(
    [
        ("consumer", pa.string()),
        ("position", pa.string()),
        ("moved", pa.timestamp("ms", "UTC")),
        ("batches", pa.int64()),
        ("lag_commits", pa.int64()),
        ("lag_seconds", pa.float64()),
    ]
)


@dataclass(frozen=True, repr=False)
class ConsumerState(Printed):
    """The state of a consumer: its `position` (the `end` of its last batch, empty for the beginning), the times when it
    was `created` and last `moved`, the number of `batches` that it has read, and its lag: the number of commits that it
    has not read, and the seconds since the oldest of them completed."""

    name: str
    position: str
    created: datetime
    moved: datetime
    batches: int
    lag_commits: int
    lag_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The fields of the state as plain values, for JSON."""
        return {
            "consumer": self.name,
            "position": self.position,
            "created": self.created.isoformat(timespec="milliseconds"),
            "moved": self.moved.isoformat(timespec="milliseconds"),
            "batches": self.batches,
            "lag_commits": self.lag_commits,
            "lag_seconds": self.lag_seconds,
        }

    def __str__(self) -> str:
        lag = f"{count_text(self.lag_commits, 'commit')} ({self.lag_seconds:,.0f} s) to read"
        where = f"at {self.position}" if self.position else "at the beginning"
        return f"consumer {self.name!r} {where}: {lag if self.lag_commits else 'it has read every commit'}"


@public_methods_check_arguments
class ConsumersView(EntriesView[ConsumerState]):
    """The table's named consumers: iterable, and printed as a table.

    >>> _ = t.consumers.start("daily", "latest")
    >>> [consumer.name for consumer in t.consumers]
    ['daily']
    """

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened
        self._files = ConsumerFiles(opened.storage)

    def _entries(self) -> Sequence[ConsumerState]:
        return self.list()

    def __len__(self) -> int:
        return len(self._files.read_all())

    def list(self) -> list[ConsumerState]:
        """All consumers, by name.

        >>> _ = t.consumers.start("daily")
        >>> [(consumer.name, consumer.lag_commits) for consumer in t.consumers.list()]
        [('daily', 1)]
        """
        consumers = self._files.read_all()
        snapshot = self._opened.snapshot()
        return [_state(consumer, snapshot) for consumer in consumers]

    def get(self, name: str) -> ConsumerState:
        """The consumer of this name. Raises `InvalidOption` if there is no such consumer.

        >>> t.consumers.start("daily", "latest").position == t.consumers.get("daily").position
        True
        """
        return _state(self._files.get(name), self._opened.snapshot())

    def start(self, name: str, start: When = BEGINNING, *, options: Mapping[str, Any] | None = None) -> ConsumerState:
        """Record a new consumer at `earliest`, `latest`, a checkpoint, an instant or a time.

        From then on cleaning and archival retain what it has not read, for at most `lakebed.consumers.max_lag` seconds.
        Raises `InvalidOption` if there is one of this name.

        >>> print(t.consumers.start("daily", "latest"))
        consumer 'daily' at ...: it has read every commit
        """
        check_consumer_name(name)
        opened = self._opened
        snapshot = opened.snapshot()
        position = resolve_start(snapshot, opened.moment(start))
        return _state(start_consumer(opened.storage, name, position, resolve_options(options).write), snapshot)

    def move(self, name: str, to: When, *, options: Mapping[str, Any] | None = None) -> ConsumerState:
        """Move a consumer to `earliest`, `latest`, a checkpoint, an instant or a time, forward or back.

        Raises `InvalidOption` if there is no such consumer, `CommitConflict` if another process moves it at the
        same time.

        >>> _ = t.consumers.start("daily", "latest")
        >>> t.consumers.move("daily", "earliest").lag_commits
        1
        """
        consumer = self._files.get(name)
        opened = self._opened
        snapshot = opened.snapshot()
        note_consumers(opened.storage, resolve_options(options).write)
        position = resolve_start(snapshot, opened.moment(to))
        return _state(self._files.put_at(consumer, position), snapshot)

    def delete(self, name: str) -> bool:
        """Delete a consumer, so that nothing is retained for it. Returns False if there was no such consumer.

        >>> _ = t.consumers.start("daily")
        >>> t.consumers.delete("daily"), t.consumers.delete("daily")
        (True, False)
        """
        return self._files.delete(name)

    def to_arrow(self) -> pa.Table:
        """A table with the columns consumer, position, moved, batches, lag_commits, lag_seconds.

        >>> _ = t.consumers.start("daily")
        >>> t.consumers.to_arrow().select(["consumer", "lag_commits"]).to_pylist()
        [{'consumer': 'daily', 'lag_commits': 1}]
        """
        states = self.list()
        columns = [
            [state.name for state in states],
            [state.position for state in states],
            [state.moved for state in states],
            [state.batches for state in states],
            [state.lag_commits for state in states],
            [state.lag_seconds for state in states],
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=_SCHEMA)


@dataclass(frozen=True)
class BatchRequest:
    """The request for a batch of a consumer: rows or changes, the start of a new consumer, and the size of a batch."""

    start: When
    cdc: bool
    limits: BatchLimits
    columns: Sequence[str] | None
    where: Any
    images: Images

    def __post_init__(self) -> None:
        if self.cdc and self.where is not None:
            raise InvalidOption(
                "a consumer of changes takes no condition",
                hint="filter the rows of the batch, e.g. by after.city",
                context={"option": "where"},
            )
        if self.limits.commits is not None:
            whole_number("consume", "max_commits", self.limits.commits, minimum=1)


class ConsumedBatch:
    """The methods that a batch of a consumer has in addition to its rows or changes."""

    _consumption: Consumption

    def once(self) -> Once:
        """The name of this batch for `once=` of a write: the data that is written from the batch is in the other table
        once, also if the process dies before the position of the consumer is recorded.

        The first call records where the batch ends, so that it is read again to the same end, whatever was committed
        meanwhile. Batches after `t.consumers.move` are those of another stream: they are written again. Raises
        `CommitConflict` if another process has moved the consumer since the batch began, and `InvalidOption` after
        the block's end.

        >>> sums = lakebed.create("memory://docs/sums", {"batch": [0], "trips": [0]}, key="batch", index="simple")
        >>> with t.consume("daily") as batch:
        ...     sums.insert({"batch": [1], "trips": [batch.to_arrow().num_rows]}, once=batch.once()).skipped
        False
        """
        return self._consumption.fixed()


class ConsumedRows(ConsumedBatch, BatchOfChanges):
    """The rows of a consumer's batch."""

    def all_rows(self) -> BatchOfChanges:
        """All rows of the table as of the end of the batch, for data that is made from the beginning again.

        >>> with t.consume("daily", start="latest") as batch:
        ...     batch.count(), batch.all_rows().count()
        (0, 3)
        """
        return self._consumption.from_beginning(self.end)


class ConsumedChanges(ConsumedBatch, ChangeLog):
    """The changes of a consumer's batch."""


class Consumption:
    """One batch of a consumer, as a context manager: the block gets the batch, and the consumer moves on to its end
    when the block ends without an error."""

    def __init__(
        self, opened: OpenedTable, name: str, request: BatchRequest, options: Mapping[str, Any] | None = None
    ) -> None:
        check_consumer_name(name)
        self._settings = resolve_options(options).write
        self._opened = opened
        self._name = name
        self._request = request
        self._files = ConsumerFiles(opened.storage)
        self._consumer: Consumer | None = None
        self._end = ""

    def __enter__(self) -> ConsumedRows | ConsumedChanges:
        return self._opened.again(self._begin, progress=False)

    def _begin(self) -> ConsumedRows | ConsumedChanges:
        snapshot = self._opened.snapshot()
        self._consumer = self._recorded(snapshot)
        start = self._consumer.position
        feed = CommitFeed(snapshot, start, cdc=self._request.cdc)
        self._end = self._consumer.pending or feed.end(self._request.limits)
        batch = self._batch(snapshot, start)
        batch._consumption = self  # pyright: ignore[reportPrivateUsage]
        return batch

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        consumer, self._consumer = self._consumer, None
        assert consumer is not None
        if kind is None and self._end != consumer.position:
            self._files.move(consumer, self._end)

    def fixed(self) -> Once:
        """Record the end of the batch, so that a repetition reads the same batch, and return the batch's name."""
        consumer = self._consumer
        if consumer is None:
            raise InvalidOption(
                f"the batch of consumer {self._name!r} has ended",
                hint="Call batch.once() in the block of t.consume.",
                context={"consumer": self._name},
            )
        if self._end not in (consumer.pending, consumer.position):
            self._consumer = consumer = self._files.read_to(consumer, self._end)
        return Once(f"{self._name}/{consumer.stream}", int(self._end or 0))

    def from_beginning(self, end: str) -> BatchOfChanges:
        """The rows of the table as of the end of the batch."""
        opened, request = self._opened, self._request
        return BatchOfChanges(
            opened.snapshot(), "", end, request.columns, request.where, spark=opened.spark, reads=opened.reads
        )

    def _recorded(self, snapshot: Snapshot) -> Consumer:
        consumer = self._files.find(self._name)
        if consumer is not None:
            if not snapshot.config.has_consumers:  # the properties are from a copy or a backup
                note_consumers(self._opened.storage, self._settings)
            return consumer
        position = resolve_start(snapshot, self._opened.moment(self._request.start))
        return start_consumer(self._opened.storage, self._name, position, self._settings)

    def _batch(self, snapshot: Snapshot, start: str) -> ConsumedRows | ConsumedChanges:
        opened, request = self._opened, self._request
        if request.cdc:
            return ConsumedChanges(
                snapshot,
                start,
                self._end,
                request.columns,
                request.images,
                opened.spark,
                opened.reads,
            )
        rows = ConsumedRows(
            snapshot,
            start,
            self._end,
            columns=request.columns,
            where=request.where,
            spark=opened.spark,
            reads=opened.reads,
        )
        rows.consumer = self._name
        rows.check()
        return rows


def _state(consumer: Consumer, snapshot: Snapshot) -> ConsumerState:
    unread = CommitFeed(snapshot, consumer.position, strict=False).commits
    seconds = 0.0
    if unread:
        first = parse_time(completed_at(unread[0][1]), snapshot.config.timezone)
        seconds = max(0.0, round((datetime.now(UTC) - first).total_seconds(), 3))
    return ConsumerState(
        consumer.name, consumer.position, consumer.created, consumer.moved, consumer.batches, len(unread), seconds
    )
