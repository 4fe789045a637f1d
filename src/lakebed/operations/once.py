"""Batches of streams that are written once, however often their writer tries."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.errors import InvalidOption
from lakebed.model import Instant
from lakebed.timeline.streams import (
    commit_of_batch,
    is_of_lakebed,
    recorded_batch,
    sink_checkpoints,
)
from lakebed.timeline.timeline import Timeline

DEFAULT_IDENTIFIER = "default_single_writer"


class AlreadyWritten(Exception):
    """The error that stops a write whose batch the table has; `instant` is the commit that wrote it, None if that is
    unknown."""

    def __init__(self, instant: Instant | None) -> None:
        super().__init__("the batch is written")
        self.instant = instant


@dataclass(frozen=True)
class Once:
    """The name of one batch of a stream, for `once=` of every write method: a batch that the table has is not written
    again.

    `stream` identifies the stream, `batch` counts its batches upwards; gaps do no harm. The commit of the batch records
    both, and a write with the same or an earlier batch of the stream gives a `WriteResult` with `skipped`, whose
    `instant` is that commit. The table remembers the 16 streams that wrote last.

    Real Hudi's sink knows batches by an `identifier` alone. A batch up to the one that real Hudi recorded last under
    the identifier may have been written by it: an upsert or a delete is done again, and other operations raise
    `InvalidOption`. Writers of several streams that real Hudi may take over have an identifier each.

    >>> import lakebed
    >>> t = lakebed.create("memory://docs/batches", {"id": [1], "n": [1]}, key="id")
    >>> t.insert({"id": [1], "n": [1]}, once=lakebed.Once("loads", batch=0)).skipped
    False
    >>> t.insert({"id": [1], "n": [1]}, once=lakebed.Once("loads", batch=0)).skipped
    True
    >>> t.count()
    1
    """

    stream: str
    batch: int
    identifier: str = DEFAULT_IDENTIFIER

    def __post_init__(self) -> None:
        for name in ("stream", "identifier"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise InvalidOption(f"Once() takes a text as {name}, not {value!r}", context={"argument": name})
        if not isinstance(self.batch, int) or isinstance(self.batch, bool) or self.batch < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(
                f"Once() takes a whole number of at least 0 as batch, not {self.batch!r}",
                context={"argument": "batch"},
            )


class BatchBeforeIsMissing(Exception):
    """The error that stops a write of a `NextBatch` into a table that does not have the previous batch."""


@dataclass(frozen=True)
class NextBatch(Once):
    """A batch that is only written into a table that has the previous batch, since its rows continue that one."""


def refuse_written(timeline: Timeline, once: Once) -> None:
    """Raise `AlreadyWritten` if the timeline has the batch, or a later batch of its stream, and `BatchBeforeIsMissing`
    if it does not have the batch before a `NextBatch`."""
    recorded = recorded_batch(timeline, once.stream)
    if recorded is not None and once.batch <= recorded:
        raise AlreadyWritten(commit_of_batch(timeline, once.stream, once.batch))
    if isinstance(once, NextBatch) and once.batch and (recorded is None or recorded < once.batch - 1):
        raise BatchBeforeIsMissing


def check_once(timeline: Timeline, once: Once, *, repeatable: bool) -> None:
    """Raise `AlreadyWritten` for a batch that is written, and `InvalidOption` if real Hudi may have written it and the
    write is not `repeatable`: written twice, it would leave other rows."""
    refuse_written(timeline, once)
    if repeatable:
        return
    checkpoint = sink_checkpoints(timeline).get(once.identifier)
    if checkpoint is None or once.batch > int(checkpoint) or is_of_lakebed(timeline, int(checkpoint)):
        return
    raise InvalidOption(
        f"batch {once.batch} may be written: real Hudi has recorded batch {checkpoint} of {once.identifier!r}, and not"
        " of which stream; written twice, its rows would be stored or counted twice",
        hint="Give this stream an identifier of its own, or upsert the rows.",
        context={"stream": once.stream, "batch": once.batch, "identifier": once.identifier, "recorded": checkpoint},
    )
