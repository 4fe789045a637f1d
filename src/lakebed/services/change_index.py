"""Another index or another number of buckets for a table, while it stays in use: `rescale` and `indexes.use`.

The rows are written to the file groups of the new index by a replace commit that carries the change.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from lakebed.concurrency.conflicts import CLUSTER_OPERATION
from lakebed.engine.base import Engine
from lakebed.errors import CommitConflict, ConflictKind, IndexInconsistent, InvalidOption, UnsupportedFeature
from lakebed.handles.file_writer import FileFormat
from lakebed.handles.rebucket import BucketMover, BucketWriter, Move, SliceNumberer
from lakebed.index.base import Index, Resizing, key_hash_of
from lakebed.index.registry import check_new_indexes, make_index
from lakebed.metadata.lookups import snapshot_of
from lakebed.metadata_kinds.key_changes import KeyIndexes
from lakebed.metadata_kinds.record_index import repeated_keys
from lakebed.metadata_records.definitions import IndexName
from lakebed.metadata_upkeep.build_jobs import build_by_job, can_build, is_large
from lakebed.model import RECORD_INDEX, Action, FileSlice
from lakebed.operations.context import WriteContext, file_format
from lakebed.operations.index_change import IndexChangeHooks, differ, moving_paths, refuse_planned, run_moves
from lakebed.operations.overwrite import match_partitions
from lakebed.operations.transaction import Transaction
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.progress import progress
from lakebed.properties.file import load_table_config
from lakebed.services.change_index_plan import RescalePlan, plan_moves
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.bodies.rollback import encode_requested_replace
from lakebed.wording import Printed, count_text, size_text
from lakebed.write_status import STATUS_SCHEMA, WriteStatus, checked_statuses

# Readers of changes skip commits with this operation: they replace file groups and keep their rows.
_OPERATION = CLUSTER_OPERATION
_COUNTERS = 16


@dataclass(frozen=True, repr=False)
class Rescaled(Printed):
    """The result of a change of the index, or a preview of it: its `plan`, and the `instant` (None if there was nothing
    to do)."""

    plan: RescalePlan
    instant: str | None = None
    checkpoint: str | None = None
    files: tuple[str, ...] = ()
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    rolled_back: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "plan": self.plan.to_dict(),
            "instant": self.instant,
            "checkpoint": self.checkpoint,
            "files": list(self.files),
            "rows": self.rows,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 4),
            "rolled_back": list(self.rolled_back),
        }

    def __str__(self) -> str:
        if self.instant is None:
            return f"{self.plan}\n(nothing was done)"
        done = f"{count_text(self.rows, 'row')} in {count_text(len(self.files), 'file')} of {size_text(self.bytes)}"
        return f"{self.plan}\ndone by {self.instant}: {done} ({self.seconds:.2f} s)"


def plan_change(context: WriteContext, snapshot: Snapshot, new: Index) -> RescalePlan:
    """The plan that makes this the index of the table."""
    old = context.index
    moves = plan_moves(snapshot.file_slices(), key_hash_of(old), key_hash_of(new))
    sources = [file_slice for part in moves for file_slice in part.sources]
    rows = sum(parallel_map(snapshot.reader.count, sources, _COUNTERS)) if sources else 0
    return RescalePlan(old.explain(), new.explain(), moves, rows)


def change_index(
    context: WriteContext,
    new: Index,
    verb: str,
    *,
    check: Callable[[Snapshot], None] | None = None,
    plan: RescalePlan | None = None,
) -> Rescaled:
    """Make `new` the index of the table, and move its rows to the locations where it looks for them, in one replace
    commit.

    `check` is called with the table as it is when the change begins. Raises `CommitConflict` if, during the change,
    another writer commits to moved file groups or changes the index, and if a service of these file groups is planned
    or runs; nothing is visible then.
    """
    started = time.monotonic()
    admit_change(context, new, verb)
    tx = WriteTransaction(
        context,
        Action.REPLACECOMMIT,
        _OPERATION,
        hooks=IndexChangeHooks(new, alone=check is not None),
        planned_index=context.opened.index_settings,
        new_index=new,
        plain_keys=context.watched_keys(context.opened.schema, new),
    )
    with tx:
        with tx.begin():
            tx.prepare_metadata()
            refuse_planned(tx.timeline, moving_paths(tx.snapshot, context.index, new))
            if check is not None:
                check(tx.snapshot)
            _build(tx, new)
            tx.request(encode_requested_replace())
        tx.inflight()
        planned = plan_moves(tx.snapshot.file_slices(), key_hash_of(context.index), key_hash_of(new))
        mover = _mover(context, tx.snapshot, new, tx.instant)
        moves = tuple(move for part in planned for move in part.moves)
        shuffled = tuple(file_slice for part in planned for file_slice in part.shuffled)
        statuses = [*run_moves(context.engine, mover, moves), *_shuffle(context.engine, mover, shuffled)]
        replaced: dict[str, list[str]] = {}
        for file_slice in (file_slice for part in planned for file_slice in part.sources):
            replaced.setdefault(file_slice.partition, []).append(file_slice.file_id)
        ids = {path: tuple(file_ids) for path, file_ids in replaced.items()}
        done = tx.commit(statuses, tx.snapshot.avro_schema, ids, unchanged_rows=True)
    written = [s for s in statuses if s.path is not None]
    return Rescaled(
        plan or RescalePlan(context.index.explain(), new.explain(), planned, sum(s.num_writes for s in written)),
        tx.instant,
        done.completion_time or tx.instant,
        tuple(s.path or "" for s in written),
        sum(s.num_writes for s in written),
        sum(s.file_size for s in written),
        time.monotonic() - started,
        tuple(tx.rolled_back),
    )


def admit_change(context: WriteContext, new: Index, verb: str) -> None:
    """Raise an error for tables whose index cannot be changed, before anything is written."""
    context.check_write(verb)
    if key_hash_of(new) is not None and not context.stores_keys:
        raise UnsupportedFeature(
            f"table {context.config.name!r} stores no record keys, by which rows would be moved to buckets",
            hint="Make a new table with lakebed.create and write the rows of this one to it.",
            context={"feature": "no meta fields"},
        )


def _build(tx: Transaction, new: Index) -> None:
    """Build the partitions of the metadata table that the new index reads."""
    missing = [name for name in new.metadata_indexes if name.partition not in tx.config.metadata_partitions]
    if not missing or not tx.timeline.commits:  # a first write builds them
        return
    if tx.config.version == 6 and tx.timeline.pending:
        raise CommitConflict(
            f"{missing[0].partition} cannot be built while a write to the table is pending",
            hint="Try again when the writers are done.",
            kind=ConflictKind.BUSY,
        )
    engine = tx.context.engine
    for name in missing:
        table = tx.metadata_upkeep(tx.timeline)
        if can_build(name.partition) and is_large(tx.snapshot, engine):
            table.add()
            build_by_job(table.store, tx.snapshot, name, None, engine)
        else:
            table.add(name)
        tx.config = load_table_config(tx.storage)
    tx.snapshot = snapshot_of(tx.storage, tx.config, tx.timeline)


def _mover(context: WriteContext, snapshot: Snapshot, new: Index, instant: str) -> BucketMover:
    indexes = KeyIndexes.of(snapshot.storage, snapshot.config)
    format_: FileFormat = replace(
        file_format(context, snapshot),
        change_fields=indexes.fields if indexes else None,
        change_log=None,
        plain_keys=context.watched_keys(snapshot.schema, new),
    )
    reader = replace(snapshot.reader, memory=context.settings.memory)
    key_hash = key_hash_of(new) or key_hash_of(context.index)
    return BucketMover(reader, instant, format_, key_hash)  # pyright: ignore[reportArgumentType]


def _shuffle(engine: Engine, mover: BucketMover, slices: tuple[FileSlice, ...]) -> list[WriteStatus]:
    """Move every row by a shuffle to the task of its bucket. In one process the files of a partition path are all open
    at the same time instead, and nothing is buffered. Returns the statuses."""
    if not slices:
        return []
    if not engine.is_distributed:
        by_path: dict[str, list[FileSlice]] = {}
        for file_slice in slices:
            by_path.setdefault(file_slice.partition, []).append(file_slice)
        numbers = {path: tuple(range(mover.key_hash.in_partition(path).groups)) for path in by_path}
        return run_moves(
            engine, mover, tuple(Move(p, tuple(path_slices), numbers[p]) for p, path_slices in by_path.items())
        )
    with progress(f"moving the rows of {count_text(len(slices), 'file slice')}", len(slices)):
        reader = SliceNumberer(mover, slices)
        rows = engine.spread(len(slices), reader, reader.schema)
        written = engine.group_map(rows, BucketWriter(mover), STATUS_SCHEMA, groups=None, one_group_per_task=False)
        return checked_statuses(engine.collect(written))


_PREVIEWED = 5


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """An index by its name, with its arguments."""

    name: str | Index
    buckets: int | None = None
    fields: tuple[str, ...] = ()
    update_partition_path: bool | None = None
    partition_buckets: str | None = None


def use_index(context: WriteContext, choice: IndexChoice, *, dry_run: bool = False) -> Rescaled:
    """Make an index the index of the table; see `IndexesView.use`. With `dry_run` only report the work."""
    snapshot, old = context.opened, context.index
    new = make_index(
        choice.name,
        key_fields=context.config.key_fields,
        buckets=choice.buckets,
        fields=choice.fields,
        update_partition_path=choice.update_partition_path,
        partition_buckets=choice.partition_buckets,
    )
    _refuse_unmovable(old, new, snapshot)
    admit_change(context, new, "rescale")
    _refuse_unknown_locations(context, new)
    missing = missing_indexes(snapshot, new)
    check_new_indexes(missing, snapshot.config, snapshot.schema, new)
    widens = new.is_global and not old.is_global and bool(context.config.partition_fields)
    notes = ["keys are checked: none may be in two partition paths"] if widens else []
    if key_hash_of(new) is None:
        notes.append("files stay as they are; what the index reads in them is there, or comes with their next rewrite")
    plan = replace(
        plan_change(context, snapshot, new), builds=tuple(name.partition for name in missing), notes=tuple(notes)
    )
    if dict(new.settings()) == snapshot.index_settings:
        return Rescaled(RescalePlan(old.explain(), new.explain()))
    if dry_run:
        if widens:
            refuse_repeated(snapshot)
        return Rescaled(plan)
    return change_index(context, new, "rescale", check=refuse_repeated if widens else None, plan=plan)


def missing_indexes(snapshot: Snapshot, new: Index) -> list[IndexName]:
    """The indexes of the metadata table to build for this index. Raises an error for a table that has one of them in
    another form."""
    config = snapshot.config
    names = new.metadata_indexes
    existing = [name for name in names if name.partition in config.metadata_partitions]
    for name in existing:
        if name.partition == RECORD_INDEX and KeyIndexes.of(snapshot.storage, config).partitioned != name.partitioned:
            kinds = ("one for each partition path", "one for the whole table")
            has, asks = kinds if not name.partitioned else kinds[::-1]
            raise InvalidOption(
                f"table {config.name!r} has a record index, {has}, and writes would need {asks}",
                hint="Take it off first: t.indexes.drop('record_index'), after t.indexes.use('simple') where writes go"
                " by it.",
                context={"index": RECORD_INDEX},
            )
    return [name for name in names if name not in existing]


def refuse_repeated(snapshot: Snapshot) -> None:
    """Raise `IndexInconsistent` if a key is stored twice in the table: a global index can have only one location per
    key."""
    files = snapshot_of(snapshot.storage, snapshot.config, snapshot.timeline, use_metadata=False)
    twice = repeated_keys(files, everywhere=True)
    if not twice.num_rows:
        return
    examples = [f"{row['key']!r} in {row['partition']}" for row in twice.slice(0, _PREVIEWED).to_pylist()]
    more = f" and {twice.num_rows - _PREVIEWED} more" if twice.num_rows > _PREVIEWED else ""
    raise IndexInconsistent(
        f"{twice.num_rows} record key(s) of table {snapshot.config.name!r} are stored several times, and under the"
        f" index a key has one: {'; '.join(examples)}{more}",
        hint="Delete the copies that are too many, or take an index that keeps keys unique within partition paths.",
        context={"keys": twice.num_rows, "record_key": twice["key"][0].as_py()},
    )


def _refuse_unmovable(old: Index, new: Index, snapshot: Snapshot) -> None:
    """Raise an error for an index whose rows cannot be moved. A table may adopt one if all rows are already where it
    looks for them, and then always retains it."""
    stay = key_hash_of(new) is not None and not any(
        differ(key_hash_of(old), key_hash_of(new), path) for path in ("", *snapshot.partitions())
    )
    for index, fits in ((old, False), (new, stay)):
        fixed = index.hashing is not None and not index.hashing.rows_can_move
        if fixed and not fits and dict(old.settings()) != dict(new.settings()):
            raise UnsupportedFeature(
                f"the rows of a table cannot be moved to the index {new.name!r} from {old.name!r}: {index.name!r} is"
                " that of a table from its first write on",
                hint="Make a new table with the index that you want and write the rows of this one to it. Only"
                " bucket_groups can follow a bucket index: with the same buckets= and fields=, one count everywhere.",
                context={"feature": f"index {index.name} on a table with rows"},
            )


def _refuse_unknown_locations(context: WriteContext, new: Index) -> None:
    if new.stores_locations and context.opened.commits:
        raise UnsupportedFeature(
            f"the index {new.name!r} keeps the places of keys by itself, and knows none of the rows that the table has",
            hint="Make a new table with it and write the rows of this one to that.",
            context={"feature": f"index {new.name} on a table with rows"},
        )


def rescale(context: WriteContext, resizing: Resizing, *, dry_run: bool = False) -> Rescaled:
    """Change the buckets of the table's index; see `Table.maintenance.rescale`. With `dry_run` only report the work."""
    snapshot = context.opened
    _check(context, resizing)
    if resizing.partitions is not None:
        partitions = match_partitions(resizing.partitions, snapshot.partitions())
        resizing = replace(resizing, partitions=tuple(partitions))
    index = context.index
    if index.hashing is None:
        raise InvalidOption(
            f"the index {index.name!r} has no buckets to rescale",
            hint="t.indexes.use('bucket', buckets=...) makes a bucket table of this one",
            context={"index": index.name},
        )
    new = index.hashing.resized(resizing, snapshot)
    admit_change(context, new, "rescale")
    plan = plan_change(context, snapshot, new)
    if dry_run or new.settings() == snapshot.index_settings:
        return Rescaled(plan)
    return change_index(context, new, "rescale", plan=plan)


def _check(context: WriteContext, resizing: Resizing) -> None:
    options = [name for name in ("buckets", "rules", "split_over") if getattr(resizing, name) is not None]
    if (
        not options
        or (resizing.split_over is not None and len(options) > 1)
        or (resizing.rules and resizing.partitions)
    ):
        raise InvalidOption(
            "rescale takes buckets= (for all partition paths, or some partitions=), partition_buckets= (with"
            " buckets= for what no"
            " rule is found in), or split_over=",
            context={"given": options},
        )
    by_path = resizing.rules is not None or (resizing.partitions is not None and resizing.split_over is None)
    if by_path and not context.config.partition_fields:
        raise InvalidOption(
            f"table {context.config.name!r} has no partition paths that could have bucket counts of their own",
            hint="Give buckets= alone.",
            context={"table": context.config.name},
        )
