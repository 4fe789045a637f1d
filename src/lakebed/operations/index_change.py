"""What a write shares with a rescale that gives the table another index in its commit: the check against what others
commit meanwhile, and the tasks that move whole buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakebed.engine.base import Engine
from lakebed.errors import CommitConflict, ConflictKind
from lakebed.handles.rebucket import BucketMover, Move
from lakebed.index.base import Index, KeyHash, key_hash_of
from lakebed.metadata.lookups import snapshot_of
from lakebed.model import CommitMetadata, FileGroupId
from lakebed.operations.transaction import Transaction, TransactionHooks
from lakebed.progress import progress
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.timeline import Timeline
from lakebed.write_status import STATUS_SCHEMA, WriteStatus, checked_statuses


@dataclass(frozen=True)
class IndexChangeHooks(TransactionHooks):
    """Refuses the commit if rows that other writers committed meanwhile have other locations under the new index; with
    `alone` if any commit was made."""

    new: Index
    alone: bool = False

    def check(self, tx: Transaction, timeline: Timeline, others: Sequence[CommitMetadata] = ()) -> None:
        for commit in others:
            paths = sorted({*commit.stats, *commit.replaced})
            met = [p for p in paths if self.alone or differ(key_hash_of(tx.index), key_hash_of(self.new), p)]
            if met:
                raise CommitConflict(
                    f"another writer ({commit.operation}) has committed to partition {met[0]!r} since the change of the"
                    " index began",
                    hint="Nothing of the change is visible; run it again when the table is written to less.",
                    context={"partition": met[0]},
                    kind=ConflictKind.COMMITTED,
                )
        refuse_planned(timeline, moving_paths(snapshot_of(tx.storage, tx.config, timeline), tx.index, self.new))


def differ(old: KeyHash | None, new: KeyHash | None, path: str) -> bool:
    """Whether rows of a partition path may have other locations under another hash."""
    if new is None:
        return False
    return old is None or old.in_partition(path) != new.in_partition(path)


def moving_paths(snapshot: Snapshot, old: Index, new: Index) -> frozenset[str]:
    """The partition paths whose rows have other locations under the new index."""
    return frozenset(p for p in snapshot.partitions() if differ(key_hash_of(old), key_hash_of(new), p))


def refuse_planned(timeline: Timeline, paths: frozenset[str]) -> None:
    """Raise `CommitConflict` if a service is about to rewrite file groups of these partition paths, which then cannot
    be replaced."""
    planned = timeline.groups_of_services()
    met: list[FileGroupId] = sorted(group for group in planned if group[0] in paths)
    if met:
        instant = planned[met[0]]
        run = (
            "t.maintenance.cluster()"
            if timeline.is_pending_clustering(instant)
            else "t.maintenance.compact() and t.maintenance.compact(logs=True)"
        )
        raise CommitConflict(
            f"{instant.action} {instant.time} is pending in partition {met[0][0]!r}, whose rows the change of the index"
            " moves",
            hint=f"Run it first, with {run}, or wait for the process that does.",
            context={"partition": met[0][0], "instant": instant.time},
            kind=ConflictKind.PLANNED,
        )


def run_moves(engine: Engine, mover: BucketMover, moves: tuple[Move, ...]) -> list[WriteStatus]:
    """Run a task for each move, the largest first, without a shuffle. Returns the statuses."""
    if not moves:
        return []
    ordered = tuple(sorted(moves, key=lambda move: -move.size))
    with progress(f"moving the rows of {len(moves)} buckets", len(moves)):
        done = engine.spread(len(ordered), replace(mover, moves=ordered), STATUS_SCHEMA)
        return checked_statuses(engine.collect(done))
