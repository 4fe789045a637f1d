"""Group commit: upserts of one process that wait for one another become one action on the timeline.

An upsert that finds no other one of its table under way begins at once. Those that come meanwhile wait. The first of
them then writes its own rows together with the rows of all upserts that wait when its action begins. Each upsert gets a
result with its own counts. No upsert waits for others to arrive, so one thread is as fast as without group commit.

Upserts are joined where the order among them does not matter: their keys differ, their columns are the same, and so are
their options. An upsert that shares a key with an earlier one is written later, in the order of arrival. Where the
joined action fails, each upsert runs alone, so that an error is that of its own rows.
"""

from __future__ import annotations

import copy
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.running_call import RunningCall, surely
from lakebed.config.options import resolve_options, with_table_settings
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Rows
from lakebed.errors import CommitConflict, CommitStateUnknown, InvalidRecord, LockTimeout, StorageError
from lakebed.merge.shares import decoded
from lakebed.model import MEMBER, RECORD_KEY
from lakebed.operations.context import WriteContext
from lakebed.operations.pipeline import RowsVerb, run
from lakebed.operations.result import WriteResult
from lakebed.operations.upsert import admitted_rows, upsert
from lakebed.operations.write import RowMatch, Write, prepare
from lakebed.properties.table_config import TableConfig
from lakebed.schema.plain_arrow import one_array
from lakebed.sharing import once, shared_lock
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.timeline import load_timeline
from lakebed.write_status import WriteStatus

# An upsert of more bytes is an action of its own; joined upserts have at most this many bytes.
MAX_BYTES, MAX_JOINED_BYTES = 4 << 20, 64 << 20
# How long an upsert waits before it looks whether those before it still run.
_LOOK_SECONDS = 0.5
# Assumed bytes of a row in a list: its size is not known before the conversion to Arrow.
_ROW_BYTES = 1 << 10
# Errors that no row causes: they would fail each upsert alone as well.
_OF_ALL = (StorageError, OSError, LockTimeout, CommitStateUnknown)
_MATCH = RowMatch("keys")

Verb = Callable[[WriteContext, Any], WriteResult]
Run = Callable[[Verb], tuple[WriteContext, WriteResult]]
After = Callable[[WriteContext, WriteResult], WriteResult]


@dataclass(frozen=True)
class UpsertTarget:
    """The table and the options of an upsert: upserts with equal targets can be one action."""

    storage: Storage
    config: TableConfig
    options: Mapping[str, Any] | None = field(repr=False)

    @once
    def key(self) -> tuple[Any, ...]:
        spec = self.storage.spec
        options = sorted([(str(name), repr(value)) for name, value in (self.options or {}).items()])
        return type(self.storage), spec.uri, tuple(sorted(spec.options.items())), tuple(options)

    @property
    def joins(self) -> bool:
        """Whether upserts with these options into the table, as it was last read, can be joined."""
        return _can_join(with_table_settings(resolve_options(self.options), self.config.properties).write)


def _can_join(settings: WriteSettings) -> bool:
    """Whether upserts with these settings can be joined: not those of non-blocking writers, which do not wait for one
    another; not if inserts drop or refuse duplicates, rows are partial or rows split buckets, since these cannot be
    counted per upsert; and not with extra metadata, which belongs to one commit."""
    if not settings.group_commit or settings.concurrency == "non_blocking":
        return False
    plain = not (settings.partial or settings.drop_duplicates or settings.grow_buckets or settings.extra_metadata)
    return plain and settings.dup_policy == "none"


def commit(start: Run, verb: Verb, data: Any, target: UpsertTarget | None, after: After) -> WriteResult:
    """Run a verb with these rows: an upsert alone or, with a `target`, in one action with others. `start` runs it with
    its own context, and again after a conflict. `after` is called once per action."""
    size = None
    if isinstance(data, pa.Table | pa.RecordBatch):
        size = data.nbytes
    elif isinstance(data, list):
        size = len(data) * _ROW_BYTES
    member = None if verb is not upsert or size is None or size > MAX_BYTES else _Member(data, size)
    done = None if target is None or member is None else _with_others(start, target, member)
    if done is None:
        return after(*start(verb))
    context, result = done
    return result if context is None else after(context, result)


def _with_others(start: Run, target: UpsertTarget, member: _Member) -> tuple[WriteContext | None, WriteResult] | None:
    """The result of an upsert that waited for another or led an action, and the context of the action if it led; None
    for an upsert that did neither."""
    try:
        if not _enter(target, member):
            return None
        member.wait(target)
        if member.error is not None:
            raise member.error
        return Batch(target, member).lead(start) if member.result is None else (None, member.result)
    finally:
        surely(partial(_leave, target, member))


@dataclass(eq=False, slots=True)
class _Member:
    """One upsert. Its `turn` comes when it leads, or when it is done, with a `result` or an `error`.

    `alone`: it is joined with no other one. `written_by` is another upsert while that writes its rows,
    `interrupted` when its own thread no longer waits for that. `lost` counts the joined runs that lost
    against a concurrent write.
    """

    data: Any
    size: int
    alone: bool = False
    written_by: _Member | None = None
    interrupted: bool = False
    lost: int = 0
    result: WriteResult | None = None
    error: BaseException | None = None
    call: RunningCall = field(default_factory=RunningCall)
    thread: int = field(default_factory=threading.get_ident)
    turn: threading.Event = field(default_factory=threading.Event)

    def wait(self, target: UpsertTarget) -> None:
        """Wait for the turn. A thread that is interrupted leaves, as soon as no other upsert writes its rows."""
        try:
            self._wait(target)
        except BaseException:
            with _lock:
                self.interrupted = True
                is_written = self.written_by is not None
            if is_written:
                self._wait(target)
            raise

    def _wait(self, target: UpsertTarget) -> None:
        while not self.turn.wait(_LOOK_SECONDS):
            _look_after(target, self)

    def finish(self, result: WriteResult | None = None, error: BaseException | None = None) -> None:
        self.result, self.error = result, error
        self.turn.set()


@dataclass(eq=False, slots=True)
class _Queue:
    """The upsert that writes, and the upserts that wait for it, in the order of arrival."""

    leader: _Member
    waiting: deque[_Member] = field(default_factory=deque[_Member])


_lock = shared_lock()
_queues: dict[tuple[Any, ...], _Queue] = {}
# a forked process has none of the threads that write and wait
os.register_at_fork(after_in_child=_queues.clear)


def _enter(target: UpsertTarget, member: _Member) -> bool:
    """Lead, or wait for the turn. Returns False for an upsert that does neither: it cannot be joined, or the leader's
    own thread calls it, so that it would wait for itself."""
    checked = False
    while True:
        with _lock:
            queue = _queues.get(target.key)
            if queue is None:
                _queues[target.key] = _Queue(member)
                member.turn.set()
                return True
            if queue.leader.thread == member.thread:
                return False
            if checked:
                queue.waiting.append(member)
                return True
        if not target.joins:
            return False
        checked = True


def _look_after(target: UpsertTarget, member: _Member) -> None:
    """Let this upsert continue if the call that should have let it continue was interrupted."""
    with _lock:
        if member.turn.is_set():
            return
        if member.written_by is not None:
            if not member.written_by.call.is_running():
                member.finish(error=_cut_off(""))
            return
        queue = _queues.setdefault(target.key, _Queue(member))
        if queue.leader is not member:
            if member not in queue.waiting:
                queue.waiting.append(member)
            if queue.leader.call.is_running():
                return
            queue.leader = queue.waiting.popleft()
        queue.leader.turn.set()


def _leave(target: UpsertTarget, member: _Member) -> None:
    """Leave the queue, and let the next upsert lead."""
    with _lock:
        queue = _queues.get(target.key)
        if queue is None:
            return
        if member in queue.waiting:
            queue.waiting.remove(member)
        if queue.leader is not member:
            return
        if not queue.waiting:
            del _queues[target.key]
            return
        queue.leader = queue.waiting.popleft()
        queue.leader.turn.set()


class Batch:
    """The upserts of one action: the leader's, and those that it takes. `tables` are their rows; `instant` is empty
    until the action has one."""

    def __init__(self, target: UpsertTarget, leader: _Member) -> None:
        self._target = target
        self._leader = leader
        self._others: list[_Member] = []
        self.tables: list[pa.Table] = []
        self._context: WriteContext | None = None
        self.instant = ""

    def lead(self, start: Run) -> tuple[WriteContext, WriteResult]:
        """Write the rows of all upserts, and set the result of each. Returns the context and the result of the leader's
        own upsert, and raises its errors."""
        try:
            context, result = start(self._write)
            for member, part in zip(self._others, _parts(result)[1:], strict=True):
                member.finish(replace(part, retries=result.retries + member.lost))
        except Exception as error:
            if not self._others:
                raise
            if isinstance(error, _OF_ALL):
                self._fail(error)
                raise
            lost = 1 + int(error.context.get("retries", 0)) if isinstance(error, CommitConflict) else 0
            for member in (self._leader, *self._others):
                member.alone, member.lost = True, member.lost + lost
            self._put_back(self._others)
            context, result = start(upsert)
        except BaseException:
            self._resolve_interrupted()
            raise
        leader_part = _parts(result)[0]
        return context, replace(leader_part, retries=result.retries + self._leader.lost, services=result.services)

    def _write(self, context: WriteContext, data: Any) -> WriteResult:
        """Run the leader's upsert. A repeated run takes the same other upserts."""
        self._context, self.instant = context, ""
        may_put_aside = bool({check.on_failure for check in context.config.checks} - {"reject"})
        is_alone = self._leader.alone or context.engine.is_distributed or may_put_aside
        if is_alone or not _can_join(context.settings):
            self._put_back(self._others)
            return upsert(context, data)
        self.tables = [_rows(context, member.data) for member in (self._leader, *self._others)]
        rows = context.engine.from_arrow(self.tables[0])
        return run(context, JointUpsert(operation="UPSERT", match=_MATCH, rows=rows, batch=self))

    def take(self, context: WriteContext, snapshot: Snapshot) -> None:
        """Take the waiting upserts that can be joined, and put the others back into the queue. None is taken while a
        clustering is pending: its file groups were compared only with those of the leader's rows."""
        if self._others or snapshot.timeline.pending_clustering:
            return
        with _lock:
            waiting, size = _queues[self._target.key].waiting, self._leader.size
            while waiting and not waiting[0].alone and size + waiting[0].size <= MAX_JOINED_BYTES:
                self._others.append(waiting.popleft())
                size += self._others[-1].size
                self._others[-1].written_by = self._leader
        if not self._others:
            return
        candidates, joined = list(self._others), list[_Member]()
        try:
            for member, table in _joinable(context, self.tables[0], candidates):
                joined.append(member)
                self.tables.append(table)
        finally:
            self._put_back([member for member in candidates if member not in joined])

    def _put_back(self, members: Sequence[_Member]) -> None:
        """Put upserts back into the queue, in front of those that came later."""
        with _lock:
            for member in reversed(members):
                member.written_by = None
                if member.interrupted:
                    member.finish()
                else:
                    _queues[self._target.key].waiting.appendleft(member)
        self._others = [member for member in self._others if member not in members]

    def _fail(self, error: BaseException) -> None:
        for member in self._others:
            if not member.turn.is_set():
                # each thread adds its own calls to the traceback
                member.finish(error=copy.copy(error))

    def _resolve_interrupted(self) -> None:
        """Handle an interrupt of the leader's thread: if the action did not commit, another leader writes the other
        upserts. If it did, their counts are lost."""
        unknown = _cut_off(self.instant)
        try:
            context, is_committed = self._context, False
            if context is not None and self.instant:
                is_committed = load_timeline(context.storage, context.config).is_completed_or_archived(self.instant)
            if not is_committed:
                self._put_back([member for member in self._others if not member.turn.is_set()])
        finally:
            self._fail(unknown)


def _cut_off(instant: str) -> CommitStateUnknown:
    return CommitStateUnknown(
        "the thread that wrote the rows of this upsert with its own was interrupted"
        + (f"; instant {instant} has them where it is completed" if instant else ""),
        hint="Look for the instant on the timeline: completed, the rows are written; otherwise upsert them again.",
        context={"instant": instant},
        instant=instant,
    )


def _rows(context: WriteContext, data: Any) -> pa.Table:
    """The rows of an upsert in the form that the table accepts; raises the error of rows that it refuses."""
    return context.engine.collect(admitted_rows(context, data, "UPSERT", _MATCH).rows)


def _keys(context: WriteContext, table: pa.Table) -> pa.Array:
    """The record keys of these rows."""
    engine = context.engine
    derived = engine.derive(engine.from_arrow(table), {RECORD_KEY: context.keys.record_key}, keep=[])
    keys = one_array(engine.collect(derived).column(RECORD_KEY))
    if keys.null_count:
        raise InvalidRecord("a row has no record key")  # run alone, the upsert raises an error that names the row
    return keys


def _joinable(
    context: WriteContext, first: pa.Table, candidates: Sequence[_Member]
) -> Iterator[tuple[_Member, pa.Table]]:
    """The upserts that have the columns of the `first` rows, and share no key with these rows or with an earlier
    upsert. An upsert with rows that the table refuses runs alone."""
    try:
        earlier_keys = [_keys(context, first)]
    except Exception:  # which the leader's own write reports
        return
    for member in candidates:
        try:
            table = _rows(context, member.data)
            keys = _keys(context, table)
        except Exception:
            member.alone = True
            continue
        is_new = not any(pc.any(pc.is_in(earlier, value_set=keys)).as_py() for earlier in earlier_keys)
        earlier_keys.append(keys)
        if is_new and table.schema.equals(first.schema):
            yield member, table


@dataclass(frozen=True, repr=False)
class SharedResult(WriteResult):
    """The result of an action of several upserts, and that of each, in their order."""

    members: tuple[WriteResult, ...] = ()


def _parts(result: WriteResult) -> tuple[WriteResult, ...]:
    return result.members if isinstance(result, SharedResult) else (result,)


@dataclass(frozen=True, kw_only=True)
class JointUpsert(RowsVerb):
    """The rows of one upsert, and of the upserts that its batch takes. They are taken as late as possible, after the
    action has begun, since more upserts are waiting by then."""

    batch: Batch

    def begun(self, context: WriteContext, snapshot: Snapshot, instant: str) -> None:
        self.batch.instant = instant
        self.batch.take(context, snapshot)

    def prepare(self, write: Write) -> Rows:
        tables = self.batch.tables
        if len(tables) == 1:
            return super().prepare(write)
        sizes = [table.num_rows for table in tables]
        members = pa.array(np.repeat(np.arange(len(sizes), dtype=np.int64), sizes))
        numbered = pa.concat_tables(tables).append_column(MEMBER, members)
        return prepare(write.context, write.context.engine.from_arrow(numbered), write.schema)

    def noted(self, statuses: Sequence[WriteStatus]) -> None:
        """Record the counts of each upsert. Raises an error if a task has not counted its rows per upsert."""
        counted = len(self.batch.tables) == 1 or all(status.shares is not None for status in statuses)
        assert counted, "rows of several upserts are not counted apart"

    def report(self, result: WriteResult, statuses: Sequence[WriteStatus], moved: Mapping[int, int]) -> WriteResult:
        count = len(self.batch.tables)
        if count == 1:
            return result
        parts: list[list[WriteStatus]] = [[] for _ in range(count)]
        for status in statuses:
            for member, counts in decoded(status.shares or ()):
                parts[member].append(replace(status, **counts, shares=None))
        result = replace(result, joined=count)
        members = tuple(
            result.reduced_to(member_statuses, moved.get(number, 0)) for number, member_statuses in enumerate(parts)
        )
        shared: dict[str, Any] = {field.name: getattr(result, field.name) for field in fields(WriteResult)}
        return SharedResult(**shared, members=members)
