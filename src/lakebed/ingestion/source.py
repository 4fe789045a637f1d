"""What a source of an ingest job gives: rows after a checkpoint, messages that are no rows, and the next checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

Origin = Callable[[Sequence[int]], tuple[list[str], list[bytes]]]
"""Positions in the source and payloads of the rows with these numbers."""

BAD_ROWS = pa.schema(
    [
        pa.field("position", pa.string(), nullable=False),
        pa.field("payload", pa.binary()),
        pa.field("reason", pa.string()),
        pa.field("error", pa.string()),
    ]
)
"""Columns of rows that a source or a round could not take; `reason` is one of Hudi's names."""

JSON_FAILURE = "JSON_ROW_DESERIALIZATION_FAILURE"
AVRO_FAILURE = "AVRO_DESERIALIZATION_FAILURE"
TRANSFORM_FAILURE = "CUSTOM_TRANSFORMER_FAILURE"
SCHEMA_FAILURE = "INVALID_RECORD_SCHEMA"
RECORD_FAILURE = "RECORD_CREATION"
WRITE_FAILURE = "HUDI_WRITE_FAILURES"


class BadRow(NamedTuple):
    """A message or line that cannot be a row: its position, its bytes, Hudi's name for the reason, and the error."""

    position: str
    payload: bytes | None
    reason: str
    error: str


def bad_table(rows: Sequence[BadRow]) -> pa.Table:
    """The bad rows as a table with the columns of `BAD_ROWS`."""
    columns = zip(*rows, strict=True) if rows else ([], [], [], [])
    return pa.table(
        [pa.array(list(column), kind.type) for column, kind in zip(columns, BAD_ROWS, strict=True)], BAD_ROWS
    )


@dataclass(frozen=True)
class IngestPoll:
    """One answer of a source. `rows` is None if there are no new rows. `checkpoint` is the position after the rows and
    the bad rows. `more` is whether another poll returns more immediately. `lag` counts what remains in the source, by
    unit ("messages", "files", "bytes", "commits"). `origin` finds positions and payloads of rows by their numbers.

    >>> import lakebed, pyarrow as pa
    >>> lakebed.IngestPoll(pa.table({"id": [1]}), None, "1").checkpoint
    '1'
    """

    rows: pa.Table | None
    bad: pa.Table | None
    checkpoint: str | None
    more: bool = False
    lag: Mapping[str, float] = field(default_factory=dict[str, float])
    origin: Origin | None = None


class IngestSource(ABC):
    """The base class for a user-defined source: it returns rows by position. A source may also be any object with a
    method `poll` that returns rows, bad rows and checkpoint.

    >>> import lakebed, pyarrow as pa
    >>> class Numbers(lakebed.IngestSource):
    ...     def poll(self, checkpoint, limit):
    ...         start = int(checkpoint or 0)
    ...         rows = pa.table({"id": range(start, 3)}) if start < 3 else None
    ...         return lakebed.IngestPoll(rows, None, "3")
    >>> job = {"source": Numbers(), "target": {"uri": "memory://docs/numbers", "create": {"key": "id"}}}
    >>> lakebed.ingest(job, once=True).rows
    3
    """

    repeats_rows = False
    """Whether rows of an earlier poll come again, so that they have to be upserted."""
    deletes_by_key = False
    """Whether rows marked as deletes have the columns of their key alone."""
    moves_rows = False
    """Whether a row may come again with another partition path than before, which it has to leave."""
    partition_fields: Sequence[str] = ()
    """Columns of the table's partition path where its index finds rows by that path alone; set before each poll."""
    is_bounded = False
    """Whether polls end at what the source had at the first of them."""
    read_uris: Sequence[str] = ()
    """URIs of the data that the source reads, for events of OpenLineage."""
    types: Mapping[str, pa.DataType] = {}
    """Types that columns are to have where the format has none of its own; set before each poll."""

    @abstractmethod
    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        """The rows after a checkpoint (None: from the start), as a table of at most about `limit` rows."""
        ...

    def table_defaults(self, rows: pa.Table, version: int) -> Mapping[str, Any]:
        """The arguments of `lakebed.create` that suit these rows in a table of this version, unless the job gives
        them."""
        return {}

    def close(self) -> None:
        """Release connections."""
        return


def poll_of(answer: Any) -> IngestPoll:
    """A source's answer as an `IngestPoll`; the answer may be a tuple of rows, bad rows and checkpoint."""
    if isinstance(answer, IngestPoll):
        return answer
    rows, bad, checkpoint = answer
    return IngestPoll(rows, bad, checkpoint)
