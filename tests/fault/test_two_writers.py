"""Several writers on one table: who may commit, who is taken for dead, what is left when storage does not answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import time_machine

import lakebed
from lakebed.concurrency.heartbeat import heartbeat_path, is_dead
from lakebed.errors import CommitConflict, CommitStateUnknown, StorageError
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.storage.opening import wrapping
from lakebed.testing import Killed, crash_at
from lakebed.timeline.instants import format_millis
from support.crash_tables import OPTIONS, Model, copied, leftovers, prepared, put, rows, state
from support.steady_time import later

Given = tuple[int, str, str, int]
KINDS = [("bucket", 9), ("simple", 9), ("bucket", 6), ("simple", 6)]


class Intercepted:
    """A storage that calls `act(verb, path, call)` in place of the verbs it is given, otherwise the inner one."""

    def __init__(
        self, inner: Storage, verbs: tuple[str, ...], act: Callable[[str, str, Callable[[], Any]], Any]
    ) -> None:
        self._inner = inner
        self._verbs = verbs
        self._act = act

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._verbs:
            return found
        return lambda path, *more, **named: self._act(name, path, lambda: found(path, *more, **named))


@contextmanager
def meanwhile(verb: str, do: Callable[[], object], part: str = "") -> Iterator[None]:
    """Before storage is first asked for `verb` on a path that has `part` in it, `do` happens: another writer's turn."""
    done: list[bool] = []

    def act(_verb: str, path: str, call: Callable[[], Any]) -> Any:
        if not done and part in path:
            done.append(True)
            do()
        return call()

    with wrapping(lambda inner: Intercepted(inner, (verb,), act)):  # pyright: ignore[reportArgumentType]
        yield
    assert done, "the other writer never had its turn"


def upsert(uri: str, *given: Given) -> Any:
    return lakebed.open(uri).upsert(rows(*given), options=OPTIONS)


def settled(uri: str, expected: Model) -> None:
    """The table has these rows, takes the next write, and nothing lies about."""
    assert state(uri) == expected
    last = (99, "c9", "last", 99)
    upsert(uri, last)
    assert state(uri) == put(expected, last)
    assert leftovers(uri) == []


@pytest.mark.parametrize(("index", "version"), KINDS)
def test_the_second_to_commit_over_a_file_group_is_refused(index: str, version: int) -> None:
    files, old = prepared(index, version)
    theirs: Given = (2, "c0", "theirs", 9)
    with copied("memory", files) as uri:
        with meanwhile("create", lambda: upsert(uri, theirs)):
            table = lakebed.open(uri)
            with pytest.raises(CommitConflict) as refused:
                table.upsert(rows((0, "c0", "ours", 9)), options=OPTIONS)
        assert refused.value.retryable
        assert refused.value.context["partition"] == "c0"
        assert leftovers(uri) == []
        settled(uri, put(old, theirs))


@pytest.mark.parametrize(("index", "version"), KINDS)
def test_writers_of_disjoint_file_groups_both_commit(index: str, version: int) -> None:
    files, old = prepared(index, version)
    theirs, ours = (1, "c1", "theirs", 9), (0, "c0", "ours", 9)
    with copied("memory", files) as uri:
        with meanwhile("create", lambda: upsert(uri, theirs)):
            upsert(uri, ours)
        assert leftovers(uri) == []
        settled(uri, put(put(old, theirs), ours))


def test_two_inserts_into_one_new_bucket_do_not_both_commit() -> None:
    files, old = prepared("bucket", 9)
    theirs: Given = (60, "c5", "theirs", 1)
    with copied("memory", files) as uri:
        with meanwhile("create", lambda: upsert(uri, theirs)), pytest.raises(CommitConflict):
            upsert(uri, (61, "c5", "ours", 1))
        settled(uri, put(old, theirs))


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_overwriting_what_another_one_changes_is_refused_both_ways(index: str) -> None:
    files, old = prepared(index, 9)
    theirs: Given = (2, "c0", "theirs", 9)

    def overwrite(uri: str) -> Any:
        return lakebed.open(uri).insert_overwrite(rows(theirs), options=OPTIONS)

    with copied("memory", files) as uri:
        with meanwhile("create", lambda: upsert(uri, theirs)), pytest.raises(CommitConflict):
            overwrite(uri)
        settled(uri, put(old, theirs))
    with copied("memory", files) as uri:
        with meanwhile("create", lambda: overwrite(uri)), pytest.raises(CommitConflict):
            upsert(uri, (0, "c0", "ours", 9))
        settled(uri, put({k: r for k, r in old.items() if r[0] != "c0"}, theirs))


def test_a_delete_by_condition_looks_again_where_another_writer_committed() -> None:
    files, old = prepared("simple", 9)
    theirs: Given = (4, "c0", "theirs", 9)
    with copied("memory", files) as uri:
        with meanwhile("open_input", lambda: upsert(uri, theirs)):
            lakebed.open(uri).delete(where="v = 'b'", options=OPTIONS)
        settled(uri, {key: row for key, row in put(old, theirs).items() if row[1] != "b"})


@pytest.mark.every_case
@pytest.mark.parametrize("keys", [[4, 6], [99]], ids=["stored", "not stored"])
def test_a_delete_of_keys_deletes_what_was_written_since_they_were_looked_up(keys: list[int]) -> None:
    """Keys that are not stored are looked up again where another writer committed meanwhile."""
    files, old = prepared("simple", 9)
    theirs: Given = (keys[0], "c0", "theirs", 9)
    with copied("memory", files) as uri:
        with meanwhile("open_input", lambda: upsert(uri, theirs)):
            assert lakebed.open(uri).delete(keys=keys, options=OPTIONS).deleted == len(keys)
        settled(uri, {key: row for key, row in old.items() if key not in keys})


class Late:
    """Data whose reading takes so long that another writer gets in first."""

    def __init__(self, data: pa.Table, before: Callable[[], object]) -> None:
        self._data = data
        self._before = before

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self._before()
        return self._data.__arrow_c_stream__()


def _with_column(name: str, *given: Given) -> pa.Table:
    return rows(*given).append_column(name, pa.array([f"{name}{g[0]}" for g in given]))


@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize("when", ["before it begins", "after it began"])
def test_a_column_another_writer_adds_stays(index: str, when: str) -> None:
    files, old = prepared(index, 9)
    theirs, ours = (1, "c1", "theirs", 9), (0, "c0", "ours", 9)
    with copied("memory", files) as uri:

        def widen() -> None:
            lakebed.open(uri).upsert(_with_column("x", theirs), options=OPTIONS)

        options = {**OPTIONS, "hoodie.write.set.null.for.missing.columns": True}
        if when == "before it begins":
            later = (3, "c1", "ours", 9)
            lakebed.open(uri).upsert(Late(rows(ours, later), widen), options=options)
            expected = put(put(old, theirs), ours, later)
        else:
            with meanwhile("create", widen):
                lakebed.open(uri).upsert(rows(ours), options=options)
            expected = put(put(old, theirs), ours)
        table = lakebed.open(uri)
        assert table.schema.names == ["id", "city", "v", "ts", "x"]
        assert table.get([1]).column("x").to_pylist() == ["x1"]
        assert state(uri) == expected
        assert leftovers(uri) == []


def test_two_different_changes_of_the_schema_do_not_both_commit() -> None:
    files, _ = prepared("bucket", 9)
    with copied("memory", files) as uri:
        with (
            meanwhile("create", lambda: lakebed.open(uri).upsert(_with_column("x", (1, "c1", "theirs", 9)))),
            pytest.raises(CommitConflict, match="schema"),
        ):
            lakebed.open(uri).upsert(_with_column("y", (0, "c0", "ours", 9)), options=OPTIONS)
        assert lakebed.open(uri).schema.names == ["id", "city", "v", "ts", "x"]
        assert leftovers(uri) == []


def test_a_writer_whose_lock_ran_out_does_not_commit() -> None:
    files, old = prepared("bucket", 9)
    with copied("memory", files) as uri, ExitStack() as stack:
        # what is listed under the lock, right before the completed instant is put
        with (
            meanwhile("list", lambda: stack.enter_context(later(400)), part=".hoodie/.temp/2"),
            pytest.raises(CommitConflict, match="lock"),
        ):
            upsert(uri, (0, "c0", "ours", 9))
        settled(uri, old)


# -- who is dead

WRITER = """
import sys, time, pyarrow as pa, lakebed
from lakebed.storage.opening import wrapping
uri, city, first, count, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
class Slow:
    def __init__(self, inner): self.inner = inner
    def __getattr__(self, name): return getattr(self.inner, name)
    def create(self, path):
        if pause:
            print("writing", flush=True)
            time.sleep(pause)
        return self.inner.create(path)
with wrapping(Slow):
    table = lakebed.open(uri)
    for n in range(count):
        ids = [first, first + 2 * n]
        table.upsert(pa.table({"id": pa.array(ids, pa.int64()), "city": [city] * 2, "v": [f"w{n}"] * 2,
            "ts": pa.array([100 + n] * 2, pa.int64())}))
"""


def writer(uri: str, city: str, first: int, count: int, pause: float = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, uri, city, str(first), str(count), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.rest
def test_two_processes_write_side_by_side() -> None:
    files, old = prepared("bucket", 9)
    with copied("local", files) as uri:
        both = [writer(uri, "c0", 100, 10), writer(uri, "c1", 101, 10)]
        assert [process.wait(timeout=120) for process in both] == [0, 0]
        written = [
            (first + 2 * n, city, f"w{n}", 100 + n) for city, first in (("c0", 100), ("c1", 101)) for n in range(10)
        ]
        last = [(100, "c0", "w9", 109), (101, "c1", "w9", 109)]
        settled(uri, put(put(old, *written), *last))


def test_a_live_process_is_left_alone_and_a_killed_one_rolled_back_at_once() -> None:
    files, old = prepared("simple", 9)
    with copied("local", files) as uri:
        process = writer(uri, "c0", 100, 1, pause=300)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            ours: Given = (1, "c1", "ours", 9)
            assert upsert(uri, ours).rolled_back == ()
            pending = [i.time for i in lakebed.open(uri).timeline if not i.is_completed]
            assert len(pending) == 1
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        result = upsert(uri, (1, "c1", "again", 10))
        assert result.rolled_back == tuple(pending)
        settled(uri, put(old, (1, "c1", "again", 10)))


@contextmanager
def left_by_another(version: int, heartbeat: bool) -> Iterator[tuple[str, str, Model]]:
    """A table with the leavings of a writer on another machine that died while it wrote: URI, its instant, the rows."""
    files, old = prepared("bucket", version)
    with copied("memory", files) as uri:
        with crash_at(9), pytest.raises(Killed):
            upsert(uri, (0, "c0", "dead", 9), (1, "c1", "dead", 9))
        storage = open_storage(uri)
        instant = next(i.time for i in lakebed.open(uri).timeline if not i.is_completed)
        assert storage.head(heartbeat_path(instant))
        if heartbeat:
            body = json.loads(storage.read(heartbeat_path(instant)))
            storage.write(heartbeat_path(instant), json.dumps(body | {"host": "elsewhere", "boot": "another"}).encode())
        else:
            storage.delete(heartbeat_path(instant))
        yield uri, instant, old


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize(("heartbeat", "patience"), [(True, 120), (False, 1800)])
def test_a_writer_elsewhere_is_dead_when_its_time_is_over(version: int, heartbeat: bool, patience: int) -> None:
    ours: Given = (2, "c0", "ours", 9)
    with left_by_another(version, heartbeat) as (uri, instant, old):
        # that the clocks here show another time says nothing: they may be what is wrong
        for seconds in (0, patience - 15):
            with later(seconds), time_machine.travel(time.time() + patience + 15):
                assert upsert(uri, ours).rolled_back == ()
                assert any(i.time == instant for i in lakebed.open(uri).timeline if not i.is_completed)
        with later(patience + 15):
            assert upsert(uri, ours).rolled_back == (instant,)
            settled(uri, put(old, ours))


def test_a_writer_that_was_taken_for_dead_notices_and_clears_its_files_away() -> None:
    files, old = prepared("simple", 9)
    theirs: Given = (1, "c1", "theirs", 9)
    with copied("memory", files) as uri:

        def rolled_back() -> None:
            instant = next(i.time for i in lakebed.open(uri).timeline if not i.is_completed)
            open_storage(uri).write(heartbeat_path(instant), b'{"host": "elsewhere", "boot": "b", "pid": 1}')
            assert not is_dead(open_storage(uri), instant)
            with later(200):
                assert upsert(uri, theirs).rolled_back == (instant,)

        with meanwhile("create", rolled_back), pytest.raises(CommitConflict, match="rolled back"):
            upsert(uri, (0, "c0", "ours", 9))
        assert leftovers(uri) == []
        settled(uri, put(old, theirs))


@pytest.mark.parametrize("version", [9, 6])
def test_a_clock_that_steps_back_does_no_harm(version: int) -> None:
    files, old = prepared("bucket", version)
    with copied("memory", files) as uri:
        now = time.time()
        writes: list[Given] = [(0, "c0", f"w{n}", 10 + n) for n in range(4)]
        for n, given in enumerate(writes):
            with time_machine.travel(now - 3600 * n):
                upsert(uri, given)
        times = [i.time for i in lakebed.open(uri).timeline]
        assert times == sorted(set(times))
        settled(uri, put(old, writes[-1]))


@pytest.mark.parametrize("version", [9, 6])
def test_no_write_uses_an_instant_that_another_writer_reserved_and_not_yet_published(version: int) -> None:
    files, old = prepared("bucket", version)
    with copied("memory", files) as uri:
        taken = format_millis(round((time.time() + 3600) * 1000), "UTC")
        beat = json.dumps({"host": "elsewhere", "boot": "another", "pid": 1, "intervalSeconds": 60})
        open_storage(uri).write(heartbeat_path(taken), beat.encode())
        with crash_at(lambda m: m.path.endswith(".inflight") and "/metadata/" not in m.path), pytest.raises(Killed):
            upsert(uri, (0, "c0", "dies", 9))
        upsert(uri, (0, "c0", "ours", 9))  # rolls that one back before
        *_, rollback, ours = lakebed.open(uri).timeline
        assert (str(rollback.action), str(ours.action)) == ("rollback", "commit")
        assert taken < rollback.time < ours.time
        open_storage(uri).delete(heartbeat_path(taken))
        settled(uri, put(old, (0, "c0", "ours", 9)))


@pytest.mark.rest
@pytest.mark.parametrize("version", [9, 6])
def test_no_write_takes_the_time_of_a_service_of_the_metadata_table(version: int) -> None:
    files, old = prepared("bucket", version)
    with copied("memory", files) as uri:
        with time_machine.travel(time.time() + 3600):
            upsert(uri, (0, "c0", "ahead", 9))
        old = put(old, (0, "c0", "ahead", 9))
        compacted: set[str] = set()
        for n in range(10, 30):  # each of which begins one millisecond after all before
            before = compacted
            with crash_at(lambda m: m.path.endswith(".inflight") and "/metadata/" not in m.path), pytest.raises(Killed):
                upsert(uri, (1, "c1", f"w{n}", n))
            compacted = {
                info.path.rpartition("/")[2].partition(".")[0]
                for info in open_storage(uri).list(".hoodie/metadata/.hoodie")
                if ".compaction." in info.path
            }
            taken = {i.time for i in lakebed.open(uri).timeline}
            assert not taken & compacted
            upsert(uri, (1, "c1", f"w{n}", n))
            old = put(old, (1, "c1", f"w{n}", n))
            assert state(uri) == old
            if compacted - before and before:
                break
        assert compacted


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("happened", [True, False])
def test_an_answer_that_never_comes_leaves_everything_in_place(version: int, happened: bool) -> None:
    files, old = prepared("bucket", version)
    ours: Given = (0, "c0", "ours", 9)
    completed = ".commit"

    def lose(verb: str, path: str, call: Callable[[], Any]) -> Any:
        if not path.endswith(completed) or ".hoodie/" not in path:
            return call()
        if verb == "read":
            open_again = open_storage(uri).head(path)
            if path.rpartition("/")[2] in known:
                return call()
            raise StorageError("no connection", context={"there": open_again is not None})
        if happened and open_storage(uri).head(path) is None:
            call()
        raise StorageError("no answer", context={"doubtful": True})

    with copied("memory", files) as uri:
        known = {path.rpartition("/")[2] for path in files}
        with wrapping(lambda inner: Intercepted(inner, ("put_if_absent", "read"), lose)):  # pyright: ignore[reportArgumentType]
            table = lakebed.open(uri)
        with pytest.raises(CommitStateUnknown) as unknown:
            table.upsert(rows(ours), options=OPTIONS)
        instant = unknown.value.instant
        assert len(instant) == 17
        left = {info.path for info in open_storage(uri).list()}
        assert heartbeat_path(instant) in left
        assert any(path.startswith(f".hoodie/.temp/{instant}/") for path in left)
        assert any(instant in path and path.endswith(".parquet") for path in left)
        expected = put(old, ours) if happened else old
        assert state(uri) == expected
        assert upsert(uri, (1, "c1", "next", 9)).rolled_back == (() if happened else (instant,))
        settled(uri, put(expected, (1, "c1", "next", 9)))


def test_the_check_for_leftovers_sees_every_kind() -> None:
    """The check that the other tests rely on."""
    files, _ = prepared("bucket", 9)
    with copied("local", files) as uri:
        assert leftovers(uri) == []
        Path(uri, ".hoodie/.temp/1").mkdir(parents=True)
        Path(uri, "c0/.x.parquet.tmp").write_bytes(b"")
        Path(uri, "c0/00000000-0000-0000-0000-000000000000-0_0-0-0_20200101000000000.parquet").write_bytes(b"")
        Path(uri, ".hoodie/timeline/20990101000000000.commit.requested").write_bytes(b"")
        assert len(leftovers(uri)) == 4
