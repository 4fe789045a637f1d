"""Partition TTL: partition paths that no writer has touched for a number of days, or that are that old, are deleted
by a `delete_partition`. Cleaning then deletes their files, once no retained commit needs them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from lakebed.config.settings import PartitionTtlSettings
from lakebed.engine.base import Rows
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption
from lakebed.format.text import parse_properties
from lakebed.model import path_in
from lakebed.operations.context import WriteContext
from lakebed.operations.overwrite import DeletePartitions, refuse_no_partitions, replaced_file_ids
from lakebed.operations.pipeline import admit, run
from lakebed.operations.write import Write
from lakebed.services.driver import Service, ServiceState, next_instant
from lakebed.slices.listing import PARTITION_METADATA
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import is_remote, parallel_map
from lakebed.timeline.instants import by_this_clock, format_time, parse_time
from lakebed.wording import Printed, count_text


@dataclass(frozen=True, slots=True)
class PartitionTtl:
    """The number of `days` for which a partition path is retained (0 or less: for ever), and the largest number of
    paths that expire at once (`limit`)."""

    days: int
    limit: int = 1000

    def expired(self, since: Mapping[str, str], now: str) -> dict[str, str]:
        """The partition paths that are expired at the instant `now`, oldest first, given the instant from which each
        counts. A text that is not a time never expires."""
        if self.days <= 0:
            return {}
        ends = {path: self._end(time) for path, time in since.items()}
        over = sorted((since[path], path) for path, end in ends.items() if end and end < now)
        return {path: time for time, path in over[: self.limit]}

    def _end(self, since: str) -> str:
        # computed in one zone without gaps, whatever the table's zone is, as in real Hudi
        try:
            return format_time(parse_time(since, "UTC") + timedelta(days=self.days), "UTC")
        except (InvalidOption, OverflowError):
            return ""


# Small files that are read at a time from a storage with slow answers.
_READERS = 16


@dataclass(frozen=True, repr=False)
class PartitionTtlResult(Printed):
    """The result of `expire_partitions`, or with `dry_run` a preview: the deleted partition `paths`, each with the
    instant from which its time counts; `notes` name what was left, and why."""

    paths: Mapping[str, str] = field(default_factory=dict[str, str])
    instant: str = ""
    checkpoint: str = ""
    file_groups: int = 0
    dry_run: bool = False
    seconds: float = 0.0
    rolled_back: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "instant": self.instant or None,
            "checkpoint": self.checkpoint or None,
            "partitions": [{"path": path, "since": since} for path, since in self.paths.items()],
            "file_groups": self.file_groups,
            "dry_run": self.dry_run,
            "seconds": round(self.seconds, 4),
            "rolled_back": list(self.rolled_back),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        if not self.paths:
            return "\n".join(self.notes) or "nothing to expire"
        listed_paths = ", ".join(map(repr, list(self.paths)[:5])) + (", ..." if len(self.paths) > 5 else "")
        counts = f"{count_text(len(self.paths), 'partition path')} of {count_text(self.file_groups, 'file group')}"
        begin = "would expire" if self.dry_run else f"expire {self.instant}:"
        took = "" if self.dry_run else f" ({self.seconds:.2f} s)"
        return "\n".join([f"{begin} {counts}: {listed_paths}{took}", *self.notes])


class PartitionExpiry(Service[PartitionTtlResult]):
    """The service that deletes the partition paths whose time is over."""

    name = "expire_partitions"
    title = "partition TTL"
    after_write = ("partition_ttl.inline",)

    def due(self, state: ServiceState) -> str | None:
        settings = state.settings.partition_ttl
        if never_expires(state.context, settings):
            return None
        state.reload()
        over, _ = expired_partitions(state.context.opened, settings, state.now)
        return f"{len(over)} partition paths are older than {settings.days} days" if over else None

    def serve(self, state: ServiceState) -> PartitionTtlResult:
        return expire_partitions(state.context)

    def has_changed(self, outcome: PartitionTtlResult) -> bool:
        return bool(outcome.paths)


def expire_partitions(
    context: WriteContext, *, partitions: Sequence[str] | None = None, dry_run: bool = False
) -> PartitionTtlResult:
    """Delete the partition paths that have expired by the settings of the job and the table; `dry_run` only reports.
    `partitions` restricts the choice (None: as the settings choose).

    Raises `CommitConflict` if one of them was written to meanwhile; nothing is deleted then.
    """
    admit(context, "delete_partition")
    started = time.monotonic()
    settings = context.services.partition_ttl
    if partitions is not None:
        refuse_no_partitions(partitions, "expire_partitions")
        settings = replace(settings, partitions=tuple(partitions))
    if why := never_expires(context, settings):
        return PartitionTtlResult(dry_run=dry_run, notes=(why,))
    snapshot = context.opened
    now = by_this_clock(next_instant(context), context.config.timezone)
    over, notes = expired_partitions(snapshot, settings, now)
    if not over:
        days = f"no partition path is older than {settings.days} days"
        return PartitionTtlResult(dry_run=dry_run, notes=notes or (days,))
    if dry_run:
        groups = sum(map(len, replaced_file_ids(snapshot, set(over)).values()))
        return PartitionTtlResult(over, file_groups=groups, dry_run=True, notes=notes)
    done = run(context, ExpirePartitions(partitions=tuple(over), settings=settings))
    return PartitionTtlResult(
        over,
        done.instant,
        done.checkpoint,
        done.replaced_file_groups,
        seconds=time.monotonic() - started,
        rolled_back=done.rolled_back,
        notes=notes,
    )


def never_expires(context: WriteContext, settings: PartitionTtlSettings) -> str | None:
    """The reason why no partition path of this table expires, as a sentence; None if one may."""
    if not context.config.partition_fields:
        return f"table {context.config.name!r} has no partitions that could expire"
    if settings.days <= 0:
        return "no partition path expires: hoodie.partition.ttl.strategy.days.retain sets for how many days one stays"
    return None


def expired_partitions(
    snapshot: Snapshot, settings: PartitionTtlSettings, now: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The partition paths that are expired at an instant, each with the instant from which its time counts; and notes
    on expired paths that a planned service works on, which are left to the next run."""
    partitions = set(settings.partitions) or None
    instants = _newest_slices(snapshot, partitions)
    since = instants
    if settings.strategy == "KEEP_BY_CREATION_TIME":
        since = _created(snapshot.storage, instants)
    busy = {path for path, _ in snapshot.timeline.groups_of_services()}
    policy = PartitionTtl(settings.days, settings.max_paths)
    waiting = sorted(policy.expired({path: time for path, time in since.items() if path in busy}, now))
    free = {path: time for path, time in since.items() if path not in busy}
    notes = (f"left to the next run, a planned service works there: {', '.join(waiting)}",) if waiting else ()
    return policy.expired(free, now), notes


def _newest_slices(snapshot: Snapshot, partitions: Collection[str] | None) -> dict[str, str]:
    """The instant of the newest file slice by partition path: log files do not renew a path. A path without slices is
    missing, since it has nothing to delete."""
    paths = None if partitions is None else [path for path in snapshot.partitions() if path in partitions]
    newest: dict[str, str] = {}
    for file_slice in snapshot.file_slices(paths):
        newest[file_slice.partition] = max(newest.get(file_slice.partition, ""), file_slice.instant)
    return newest


def _created(storage: Storage, paths: Collection[str]) -> dict[str, str]:
    """The commit that created the folder of each partition path; a path is missing if no file records it."""

    def created(path: str) -> str:
        try:
            return parse_properties(storage.read(path_in(path, PARTITION_METADATA))).get("commitTime", "")
        except FileNotFoundError:
            return ""

    listed = sorted(paths)
    times = parallel_map(created, listed, _READERS if is_remote(storage) else 1)
    return {path: time for path, time in zip(listed, times, strict=True) if time}


@dataclass(frozen=True, kw_only=True)
class ExpirePartitions(DeletePartitions):
    """The verb that deletes partition paths which are still expired when the write has begun. After that, a write to
    one of them is a conflict."""

    settings: PartitionTtlSettings

    def prepare(self, write: Write) -> Rows:
        now = by_this_clock(write.instant, write.snapshot.config.timezone)
        over, _ = expired_partitions(write.snapshot, replace(self.settings, partitions=self.partitions), now)
        renewed = sorted({*self.partitions} - over.keys())
        if renewed:
            raise CommitConflict(
                f"partition {renewed[0]!r} was to expire, and has been written to meanwhile, or is in a plan",
                hint="Nothing was deleted; the next run looks again.",
                context={"partitions": renewed},
                kind=ConflictKind.CHANGED,
            )
        return super().prepare(write)
