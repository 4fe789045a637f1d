"""A table that changes while it is read or written: another process cleans, archives, rolls back or takes a plan off
between any two calls of storage."""

from __future__ import annotations

import multiprocessing
import threading
import traceback
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

import lakebed
from lakebed.concurrency.lock import default_lock
from lakebed.errors import CommitConflict, InvalidOption, LockTimeout, UnsupportedFeature
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.services import savepoint
from lakebed.slices.listing import list_table
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.testing import Killed, Mutation, crash_at
from lakebed.timeline.timeline import load_timeline
from lakebed.timeline.transitions import TimelineWriter
from support.crash_tables import MOR, OPTIONS, Model, put, rows
from support.storage_requests import before_requests

# Nothing is cleaned or archived but by the other process.
QUIET: dict[str, Any] = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}
# Another process would wait for the lock; here the one who has it waits for the other.
_AT_ONCE = {**OPTIONS, "hoodie.write.lock.wait_time_ms": 1}
_CLEAN = {**_AT_ONCE, "hoodie.clean.commits.retained": 1}
_ARCHIVE = {**_CLEAN, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
METADATA = ".hoodie/metadata"
CLUSTERED, OTHER = "c1", "c0"
COMMITS = 7


class Other:
    """The other process: `do` has it do one of the `ACTIONS` to a table, and waits until it is done."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("forkserver")  # it begins with everything imported
        context.set_forkserver_preload(["lakebed", "pyarrow.parquet", "support.changing_tables"])
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def do(self, action: str, uri: str) -> bool:
        """False where it did not get the lock, or was refused for what goes on."""
        self._pipe.send((action, uri))
        done, error = self._pipe.recv()
        if error:
            raise AssertionError(f"the other process could not {action}: {error}")
        return done

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection) -> None:
    with suppress(EOFError):
        while True:
            action, uri = pipe.recv()
            try:
                ACTIONS[action](lakebed.open(uri))
                pipe.send((True, ""))
            except (LockTimeout, CommitConflict):
                pipe.send((False, ""))
            except UnsupportedFeature as refused:
                is_restored = refused.context.get("feature") == "unfinished restore"
                pipe.send((False, "" if is_restored else "".join(traceback.format_exception(refused))))
            except BaseException as error:
                pipe.send((False, "".join(traceback.format_exception(error))))


class Between:
    """Does something once, right before the call of storage of this number (from 1 on; 0: never)."""

    def __init__(self, at: int, do: Callable[[], object]) -> None:
        self.at, self.do = at, do
        self.calls = 0
        self.done = False
        self.is_late = False
        """Whether it was done after a commit of the data table was completed."""
        self.call = ""
        self._lock = threading.Lock()

    def before(self, call: str) -> None:
        with self._lock:
            self.calls += 1
            if self.calls == self.at:
                self.done, self.call = True, call
                self.do()
            elif not self.done:
                self.is_late |= _completes(call)


def _completes(call: str) -> bool:
    verb, _, path = call.partition(" ")
    return verb.startswith("put") and not path.startswith(METADATA) and path.endswith((".commit", ".deltacommit"))


@contextmanager
def interrupted(at: int, do: Callable[[], object]) -> Generator[Between]:
    """What opens a storage in the block meets the other process at its call of this number."""
    between = Between(at, do)
    with before_requests(lambda verb, path: between.before(f"{verb} {path}")):
        yield between


@cache
def moving(index: str, version: int) -> tuple[Mapping[str, bytes], Model, tuple[str, ...]]:
    """See `_made`; by a process that is gone."""
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=_make, args=(theirs, index, version), daemon=True)
    process.start()
    theirs.close()
    made = ours.recv()
    process.join()
    return made


def _make(pipe: Connection, index: str, version: int) -> None:
    pipe.send(_files_of_table(index, version))


def _files_of_table(index: str, version: int) -> tuple[Mapping[str, bytes], Model, tuple[str, ...]]:
    """The files of a table with a plan of a clustering, a write whose writer died, and commits that can be cleaned and
    archived; its rows, and the checkpoints of its commits."""
    name = f"moving-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    kind = "mor" if index.startswith(MOR) else "cow"
    index = index.removeprefix(MOR)
    table = lakebed.create(
        uri,
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,
        index=index,
        buckets=1 if index == "bucket" else None,
        table_version=version,
        properties={"hoodie.table.cdc.enabled": True, "hoodie.compact.inline": False, **QUIET},
    )
    model: Model = {}
    checkpoints: list[str] = []
    for n in range(COMMITS):
        given = [(n % 4, f"c{n % 2}", f"v{n}", n), (10 + n, f"c{n % 2}", f"w{n}", n)]
        done = table.upsert(rows(*given), options=OPTIONS)
        checkpoints.append(done.checkpoint or done.instant)
        model = put(model, *given)
        if kind == "mor" and n == COMMITS - 3:
            table.maintenance.compact(options=OPTIONS)
    table.maintenance.cluster(["v"], partitions=[CLUSTERED], plan_only=True, options=OPTIONS)
    with suppress(Killed), crash_at(_is_completion):
        lakebed.open(uri).upsert(rows((0, OTHER, "dead", 99)), options=OPTIONS)
    storage = open_storage(uri)
    files = {info.path: storage.read(info.path) for info in storage.list() if "/.locks/" not in info.path}
    MemoryStorage.drop(name)
    return files, model, tuple(checkpoints)


def _is_completion(mutation: Mutation) -> bool:
    name = mutation.path.rpartition("/")[2]
    return not mutation.path.startswith(METADATA) and name.endswith((".commit", ".deltacommit"))


def take_plan_off(table: Table) -> None:
    """Take the plan of the clustering off the timeline."""
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    with default_lock(storage, wait_seconds=0.0):
        timeline = load_timeline(storage, config)
        for instant in timeline.pending:
            if timeline.is_pending_clustering(instant):
                TimelineWriter(storage, config).remove_pending(instant)


def archive(table: Table) -> None:
    table.maintenance.clean(options=_CLEAN)
    table.maintenance.archive(options=_ARCHIVE)


def write(table: Table) -> None:
    """Two commits, of which the first sees nothing kept, and all that this makes old goes."""
    take_plan_off(table)
    for n in (1, 2):
        table.upsert(rows(*THEIRS[-1:]), options=_AT_ONCE) if n == 2 else table.upsert(rows(*THEIRS), options=_AT_ONCE)
    if table.properties["hoodie.table.type"] == "MERGE_ON_READ":
        table.maintenance.compact(options=_AT_ONCE)
    archive(table)


THEIRS = [(1, "c1", "theirs", 50), (2, "c0", "theirs", 50), (60, "c1", "theirs", 50), (61, "c0", "theirs", 50)]
OURS = [(0, "c0", "ours", 90), (3, "c1", "ours", 90), (70, "c0", "ours", 90), (71, "c1", "ours", 90)]


def roll_back(table: Table) -> None:
    """What the dead writer left, then the last commit."""
    take_plan_off(table)
    table.maintenance.clean(options=_AT_ONCE | {"hoodie.clean.commits.retained": 100})
    commits = [i for i in table.timeline if i.state.name == "COMPLETED" and "commit" in i.action.value]
    with suppress(CommitConflict, lakebed.LakebedError):
        table.rollback(commits[-1].time, options=_AT_ONCE)


def write_and_clean(table: Table) -> None:
    """A commit, and a cleaning that waits for no pending write."""
    take_plan_off(table)
    table.upsert(rows(*THEIRS), options=_AT_ONCE)
    if table.properties["hoodie.table.type"] == "MERGE_ON_READ":
        table.maintenance.compact(options=_AT_ONCE)
    table.maintenance.clean(options=_CLEAN)
    delete_old_slices(table.uri)


def delete_old_slices(uri: str) -> list[str]:
    """Delete the files of all but the latest file slices, as a cleaner of another engine does that goes by the number
    of file versions alone; gives their paths."""
    snapshot = open_snapshot(open_storage(uri))
    latest = {(one.partition, one.file_id): one.instant for one in snapshot.file_slices()}
    listing = list_table(snapshot.storage)
    gone = [
        file.path
        for file in (*listing.base_files, *listing.log_files)
        if file.instant < latest.get((file.partition, file.file_id), "")
    ]
    for path in gone:
        snapshot.storage.delete(path)
    return gone


def delete_savepoint(table: Table) -> None:
    """Let go of what was savepointed, and have it cleaned and archived."""
    at_once = table.opened.context(None, _AT_ONCE, "savepoint")
    for one in table.savepoints.list():
        savepoint.delete_savepoint(at_once, one.instant)
    archive(table)


def savepointed(table: Table) -> None:
    """A savepoint of the first commit that can have one."""
    take_plan_off(table)
    for commit in [i for i in table.timeline if i.is_completed and i.action in (Action.COMMIT, Action.DELTACOMMIT)]:
        with suppress(InvalidOption):
            table.savepoints.create(commit.time)
            return


ACTIONS: dict[str, Callable[[Table], None]] = {
    "clean": lambda t: t.maintenance.clean(options=_CLEAN) and None,
    "archive": archive,
    "take_plan_off": take_plan_off,
    "roll_back": roll_back,
    "write": write,
    "write_and_clean": write_and_clean,
    "delete_savepoint": delete_savepoint,
}
# What is done to the table before.
BEFORE: dict[str, Callable[[Table], None]] = {"delete_savepoint": savepointed}
