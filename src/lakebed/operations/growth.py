"""Buckets that split while they are written: a write of rows to a partition path with a bucket beyond its advised size
gives the path twice as many buckets, or more, in its own commit.

The commit is a replace commit. Each task reads one bucket, merges the incoming rows into it and writes the buckets that
it splits into. Buckets without incoming rows are moved as in a rescale. Unchanged rows keep their commit times, so no
reader of changes sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Engine, Rows, distinct_values
from lakebed.format.file_names import bucket_of_file_id
from lakebed.handles.base import GroupJob, Split
from lakebed.handles.rebucket import BucketMover, Move
from lakebed.index.base import Index, key_hash_of
from lakebed.index.bucket_counts import ADVISED_BYTES, sizes_by_number
from lakebed.index.registry import index_of
from lakebed.model import PARTITION_PATH, Action, FileSlice
from lakebed.operations.context import WriteContext
from lakebed.operations.index_change import IndexChangeHooks, differ, run_moves
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.rollback import encode_requested_replace
from lakebed.write_status import WriteStatus


@dataclass(frozen=True)
class Growth:
    """The partition paths whose buckets are all split in a write, and the table's index after it."""

    index: Index
    splits: Mapping[str, Split]
    request: bytes = field(default_factory=lambda: encode_requested_replace(None), repr=False)

    @property
    def lines(self) -> tuple[str, ...]:
        """A line about each partition path."""
        counts = (
            (path or "(no partition)", split.before.groups, split.after.groups) for path, split in self.splits.items()
        )
        return tuple(f"buckets of {path} split: {before} become {after}" for path, before, after in counts)

    def begun(self, tx: WriteTransaction) -> Growth | None:
        """This growth, with the write made one that changes the index; called when the write begins, under the lock.
        None, and no change of the write, if a service is about to rewrite one of the buckets: a later write splits
        them."""
        if any(path in self.splits for path, _ in tx.timeline.groups_of_services()):
            return None
        tx.action = Action.REPLACECOMMIT
        tx.new_index, tx.hooks = self.index, IndexChangeHooks(self.index)
        return self

    def move_others(
        self, engine: Engine, job: GroupJob, snapshot: Snapshot, statuses: Sequence[WriteStatus]
    ) -> list[WriteStatus]:
        """Move the rows of the buckets that got no incoming rows; `statuses` are those of the other buckets. Returns
        the statuses of the moved rows."""
        met = {(status.partition, self._number_before(status.partition, status.file_id)) for status in statuses}
        moves: list[Move] = []
        for file_slice in self._slices(snapshot):
            number = self._number_before(file_slice.partition, file_slice.file_id)
            if (file_slice.partition, number) not in met:
                moves.append(
                    Move(file_slice.partition, (file_slice,), self.splits[file_slice.partition].numbers(number))
                )
        key_hash = key_hash_of(self.index)
        assert key_hash is not None
        done = run_moves(engine, BucketMover(job.reader, job.instant, job.format, key_hash), tuple(moves))
        # rows that only move are no rows of the write
        return [replace(status, rows_in=0, num_inserts=0) for status in done]

    def replaced(self, snapshot: Snapshot) -> Mapping[str, tuple[str, ...]]:
        """The ids of the file groups that are split, by partition path."""
        ids: dict[str, list[str]] = {}
        for file_slice in self._slices(snapshot):
            ids.setdefault(file_slice.partition, []).append(file_slice.file_id)
        return {path: tuple(file_ids) for path, file_ids in ids.items()}

    def _slices(self, snapshot: Snapshot) -> Sequence[FileSlice]:
        return snapshot.file_slices(sorted(self.splits))

    def _number_before(self, path: str, file_id: str) -> int:
        """The number that a file group's bucket had before the split; unchanged in a partition path that is not
        split."""
        number = bucket_of_file_id(file_id)
        assert number is not None
        return number % self.splits[path].before.groups if path in self.splits else number


def planned_growth(context: WriteContext, rows: Rows) -> Growth | None:
    """The buckets that a write of these rows splits; None if it splits none or its settings forbid it."""
    index, snapshot, engine = context.index, context.opened, context.engine
    if not _can_grow(index, snapshot) or context.is_non_blocking:
        return None
    limit, paths = context.settings.bucket_bytes, None
    if snapshot.config.partition_fields:
        # on Spark this is a job, so it is run only where some bucket of the table is too large
        if engine.is_distributed and _grown(index, snapshot, limit) is None:
            return None
        derived = engine.derive(rows, {PARTITION_PATH: context.keys.partition_path}, keep=())
        met = distinct_values(engine.aggregate(derived, [PARTITION_PATH]), PARTITION_PATH)[0]
        paths = sorted({*met} & {*snapshot.partitions()})
    new = _grown(index, snapshot, limit, paths)
    return None if new is None else Growth(new, _splits(index, new, snapshot))


def next_splits(snapshot: Snapshot, settings: WriteSettings) -> Mapping[str, Split]:
    """The partition paths whose buckets the next writes of rows to them will split, with the splits."""
    index = index_of(snapshot, for_write=False)
    if not settings.grow_buckets or not _can_grow(index, snapshot):
        return {}
    new = _grown(index, snapshot, settings.bucket_bytes)
    return {} if new is None else _splits(index, new, snapshot)


def _can_grow(index: Index, snapshot: Snapshot) -> bool:
    """Whether buckets may be split. They may not with a change log, whose readers would report the rows of replaced
    file groups as deleted, nor without stored keys, since rows could not be merged."""
    config = snapshot.config
    return key_hash_of(index) is not None and config.populate_meta_fields and not config.cdc_enabled


def _grown(index: Index, snapshot: Snapshot, limit: int | None, paths: Sequence[str] | None = None) -> Index | None:
    """The index with more buckets in those of the partition paths (None: all) that have a bucket of more than `limit`
    bytes (None: the advised size); None if there is no such path. Log files count only if there is no base file yet:
    compaction shows what they add."""
    assert index.hashing is not None
    slices = (
        (file_slice.partition, bucket_of_file_id(file_slice.file_id), file_slice)
        for file_slice in snapshot.file_slices(paths)
    )
    sizes = sizes_by_number(
        (p, n, file_slice.base_file.size if file_slice.base_file else file_slice.size) for p, n, file_slice in slices
    )
    by_path = bool(snapshot.config.partition_fields)
    return index.hashing.grown(sizes, limit or ADVISED_BYTES, by_path=by_path)


def _splits(old: Index, new: Index, snapshot: Snapshot) -> dict[str, Split]:
    before, after = key_hash_of(old), key_hash_of(new)
    assert before is not None
    assert after is not None
    moved = (path for path in snapshot.partitions() if differ(before, after, path))
    return {path: Split(before.in_partition(path), after.in_partition(path)) for path in moved}
