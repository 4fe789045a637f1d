"""What the rollbacks of a timeline undo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakebed.errors import CorruptFile
from lakebed.model import Action, Instant
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.actions import rollback_target
from lakebed.timeline.restore_metadata import planned_rollbacks
from lakebed.timeline.timeline import Timeline


def rollback_record(timeline: Timeline, rollback: Instant) -> Mapping[str, Any]:
    """The decoded plan of a rollback; empty where it cannot be read."""
    try:
        return timeline.plan(rollback)
    except CorruptFile:
        return {}


def rolled_back(timeline: Timeline, since: str) -> Iterator[tuple[Instant, str]]:
    """Rollbacks behind a time, pending ones too, with the instant that each undoes, and restores with each of theirs;
    their plans are read."""
    rollbacks = [i for i in timeline.instants if i.action is Action.ROLLBACK and i.time > since]
    yield from zip(rollbacks, parallel_map(lambda i: rollback_target(timeline.plan(i)), rollbacks), strict=True)
    restores = [i for i in timeline.instants if i.action is Action.RESTORE and i.time > since]
    for restore, plan in zip(restores, parallel_map(timeline.plan, restores), strict=True):
        yield from ((restore, undone.time) for undone in planned_rollbacks(plan))
