"""How many requests of an action wait for one another on a store whose answers are slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.log_file import WRITTEN_LOGS
from lakebed.format.sources import forget_written
from lakebed.metadata import expected_files
from lakebed.metadata.slices import HFILES, LOGS
from lakebed.operations import pipeline
from lakebed.operations.pipeline import MAX_LOCKED_GROUPS
from lakebed.storage.base import Storage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.timeline import timeline
from support.request_rounds import RemoteStorage, RequestClock, request_rounds


def rows(first: int, count: int, version: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {"id": [f"k{n}" for n in numbers], "ts": [version] * count, "v": [f"{n}-{version}" for n in numbers]}
    )


@pytest.fixture
def uri() -> Generator[str]:
    yield "memory://request-rounds/t"
    MemoryStorage.drop("request-rounds")


def table(uri: str, kind: str, index: str) -> Table:
    """A table of 100 rows with the metadata table, in one file group, of which ten were updated."""
    words = {"buckets": 1} if index == "bucket" else {}
    t = lakebed.create(uri, rows(0, 100, 1), key="id", ordering="ts", type=kind, index=index, **words)  # pyright: ignore[reportArgumentType]
    t.upsert(rows(0, 100, 1))
    t.upsert(rows(0, 10, 2))
    return t


def forget() -> None:
    """What this process has read, as in one that has just begun."""
    forget_written()
    of_timelines = timeline._BODIES, timeline._LISTED, timeline._SETTINGS, expected_files._WRITTEN  # pyright: ignore[reportPrivateUsage]
    for cache in (*of_timelines, HFILES, LOGS, WRITTEN_LOGS):
        cache.clear()


def begin(clock: RequestClock) -> None:
    clock.now = 0
    clock.requests.clear()


def test_the_schema_of_a_table_takes_three_rounds(uri: str) -> None:
    table(uri, "mor", "record_index")
    forget()
    with request_rounds() as clock:
        assert lakebed.open(uri).schema.names == ["id", "ts", "v"]
    assert clock.rounds == 3, clock
    assert len(clock.requests) == 4, clock


def _check_order(clock: RequestClock, instant: str, *, is_rewrite: bool) -> None:
    """What has to be there before what, of an upsert: a later request begins after the answer of an earlier one. Only
    a write that keeps the table lock begins its delta commit before its files are written."""
    changes = [r for r in clock.requests if instant in r.path and r.verb in ("write", "put_if_absent", "create")]
    timeline, store = ".hoodie/timeline/", ".hoodie/metadata/.hoodie/timeline/"

    def rounds(*beginnings: str, end: str = "") -> list[int]:
        return sorted(r.round for r in changes if r.path.startswith(beginnings) and r.path.endswith(end))

    heartbeat, marker = rounds(".hoodie/.heartbeat"), rounds(".hoodie/.temp")
    requested, inflight = rounds(timeline, end="requested"), rounds(timeline, end="inflight")
    data = [r.round for r in changes if not r.path.startswith(".hoodie/")]
    metadata = rounds(".hoodie/metadata/files", ".hoodie/metadata/column_stats")
    store_requested, store_inflight, store_completed = rounds(store)
    completed = rounds(timeline)[-1]
    assert heartbeat < requested < inflight
    assert len(marker) == len(data) == 1
    assert marker < data > inflight
    assert requested < [store_requested] < [store_inflight] < [metadata[0]]
    assert data < [store_requested if is_rewrite else metadata[0]]
    assert metadata[-1] < store_completed < completed


@pytest.mark.parametrize(("kind", "rounds"), [("mor", 9), ("cow", 12)])
def test_an_upsert_of_one_file_group_waits_for_so_many_answers(uri: str, kind: str, rounds: int) -> None:
    table(uri, kind, "bucket")
    with request_rounds() as clock:
        t = lakebed.open(uri)
        t.upsert(rows(0, 10, 3))
        begin(clock)
        instant = t.upsert(rows(20, 10, 4)).instant
        assert clock.rounds == rounds, clock
        read = Counter(r.path for r in clock.requests if r.verb in ("read", "read_ranges") and ".deltacommit" in r.path)
        assert not read, "a commit reads no body that this process has written"
    _check_order(clock, instant, is_rewrite=kind == "cow")
    found = {row["id"]: row["v"] for row in lakebed.open(uri).scan().to_arrow().to_pylist()}
    expected = {f"k{n}": f"{n}-{3 if n < 10 else 4 if 20 <= n < 30 else 1}" for n in range(100)}
    assert found == expected


def test_the_first_get_by_a_record_index_takes_five_rounds_after_opening_and_the_next_three(uri: str) -> None:
    table(uri, "mor", "record_index")
    forget()
    with request_rounds() as clock:
        t = lakebed.open(uri)
        assert clock.rounds == 1, clock
        assert t.get(["k5"]).to_pylist() == [{"id": "k5", "ts": 2, "v": "5-2"}]
        assert clock.rounds <= 6, clock
        begin(clock)
        assert t.get(["k6"]).to_pylist() == [{"id": "k6", "ts": 2, "v": "6-2"}]
        assert clock.rounds <= 3, clock


NO_SERVICES = {"hoodie.compact.inline": False, "hoodie.clean.automatic": False}


def parts(first: int, count: int, version: int, step: int = 1) -> pa.Table:
    """Rows whose partition path is their number modulo four; with a `step` of four all are in one."""
    numbers = range(first, first + count * step, step)
    return pa.table(
        {"id": [f"k{n:08}" for n in numbers], "ts": [version] * count, "part": [f"p{n % 4}" for n in numbers]}
    )


def partitioned(uri: str) -> tuple[Table, str]:
    """A table of 20,000 rows in four partition paths, of one file group each, and five upserts of ten rows into the
    first; with the checkpoint before them."""
    t = lakebed.create(
        *(uri, parts(0, 5, 1)),
        key="id",
        ordering="ts",
        partition_by="part",
        type="mor",
        index="bucket",
        buckets=1,
        properties=NO_SERVICES,
    )
    checkpoint = t.bulk_insert(parts(0, 20_000, 1)).checkpoint
    for version in range(2, 7):
        t.upsert(parts(0, 10, version, 4))
    return t, checkpoint


# The metadata table is not compacted after the write.
NOT_DUE = {"hoodie.metadata.compact.max.delta.commits": 100}
READS: dict[str, Callable[[Table, str], object]] = {
    "count": lambda t, _: t.count(),
    "scan of a partition": lambda t, _: t.scan(where="part = 'p1'").to_arrow().num_rows,
    "changes": lambda t, checkpoint: t.changes(checkpoint).to_arrow().num_rows,
    "get": lambda t, _: t.get(pa.table({"id": ["k00000004"], "part": ["p0"]})).num_rows,
}
RESULTS = {"count": 20_000, "scan of a partition": 5_000, "changes": 10, "get": 1}


@pytest.mark.parametrize(
    ("read", "rounds", "requests"),
    [("count", 6, 31), ("scan of a partition", 6, 26), ("changes", 10, 37), ("get", 7, 32)],
)
def test_the_requests_and_rounds_of_a_first_read(uri: str, read: str, rounds: int, requests: int) -> None:
    """With opening the table, which takes one round."""
    _, checkpoint = partitioned(uri)
    forget()
    with request_rounds() as clock:
        assert READS[read](lakebed.open(uri), checkpoint) == RESULTS[read]
    assert (clock.rounds, len(clock.requests)) == (rounds, requests), clock


@pytest.mark.parametrize(
    ("read", "rounds", "requests"),
    [("count", 2, 10), ("scan of a partition", 2, 5), ("changes", 2, 9), ("get", 2, 10)],
)
def test_the_requests_and_rounds_of_a_repeated_read(uri: str, read: str, rounds: int, requests: int) -> None:
    _, checkpoint = partitioned(uri)
    with request_rounds() as clock:
        t = lakebed.open(uri)
        READS[read](t, checkpoint)
        begin(clock)
        assert READS[read](t, checkpoint) == RESULTS[read]
    assert (clock.rounds, len(clock.requests)) == (rounds, requests), clock


def test_a_count_after_a_commit_of_the_process_takes_three_rounds(uri: str) -> None:
    partitioned(uri)
    with request_rounds() as clock:
        t = lakebed.open(uri)
        t.count()
        t.upsert(parts(20_000, 10, 7, 4), options=NOT_DUE)
        begin(clock)
        assert t.count() == 20_010
    assert clock.rounds == 3, clock


def test_a_first_upsert_takes_thirteen_rounds(uri: str) -> None:
    partitioned(uri)
    forget()
    with request_rounds() as clock:
        lakebed.open(uri).upsert(parts(0, 10, 7, 4), options=NOT_DUE)
    assert (clock.rounds, len(clock.requests)) == (13, 62), clock
    assert lakebed.open(uri).count() == 20_000


def test_small_commits_of_a_process_take_nine_rounds(uri: str) -> None:
    """One commit in ten compacts the metadata table before its own delta commit."""
    partitioned(uri)
    taken = set[tuple[int, int]]()
    with request_rounds() as clock:
        t = lakebed.open(uri)
        t.upsert(parts(0, 10, 7, 4))
        for version in range(8, 20):
            begin(clock)
            t.upsert(parts(0, 10, version, 4))
            compacts = any(r.path.endswith(".compaction.requested") for r in clock.requests)
            taken.add((clock.rounds, 0 if compacts else len(clock.requests)))
    assert {rounds for rounds, requests in taken if requests} == {9}
    assert {requests for _, requests in taken} == {0, 35}
    assert lakebed.open(uri).scan(where="id = 'k00000004'").to_arrow()["ts"].to_pylist() == [19]
    assert lakebed.open(uri).indexes.verify().ok


@pytest.mark.parametrize(("groups", "locks"), [(MAX_LOCKED_GROUPS, 2), (MAX_LOCKED_GROUPS + 1, 4)])
def test_a_write_to_few_file_groups_takes_the_lock_once(uri: str, groups: int, locks: int) -> None:
    t = lakebed.create(
        uri, parts(0, 1, 1), key="id", ordering="ts", partition_by="part", type="mor", index="bucket", buckets=1
    )
    given = parts(0, groups, 1).set_column(2, "part", pa.array([f"p{n}" for n in range(groups)]))
    t.upsert(given)
    with request_rounds() as clock:
        lakebed.open(uri).upsert(given)
    assert sum(r.verb == "put_if_match" for r in clock.requests) == locks, clock
    assert lakebed.open(uri).count() == groups


@pytest.mark.parametrize(
    ("options", "locks"),
    [({}, 4), ({"lakebed.delete.lookup": False}, 2)],
    ids=["reads the stored rows", "reads nothing"],
)
def test_a_delete_keeps_the_lock_where_it_reads_no_stored_rows(uri: str, options: dict[str, bool], locks: int) -> None:
    """A file group may be large, and other writers would wait while it is read."""
    table(uri, "mor", "bucket")
    with request_rounds() as clock:
        lakebed.open(uri).delete(["k5"], options=options)
    assert sum(r.verb == "put_if_match" for r in clock.requests) == locks, clock
    assert lakebed.open(uri).count() == 99
    assert lakebed.open(uri).indexes.verify().ok


@pytest.mark.parametrize("options", [{"lakebed.write.partial": True}, {"lakebed.write.skip.unchanged": True}])
def test_an_upsert_that_reads_stored_rows_lets_the_lock_go(uri: str, options: dict[str, bool]) -> None:
    table(uri, "mor", "bucket")
    given = rows(0, 10, 5)
    with request_rounds() as clock:
        lakebed.open(uri).upsert(
            given.drop_columns(["v"]) if "lakebed.write.partial" in options else given, options=options
        )
    assert sum(r.verb == "put_if_match" for r in clock.requests) == 4, clock
    assert lakebed.open(uri).get(["k3"])["ts"].to_pylist() == [5]


@pytest.mark.parametrize(("smaller", "locks"), [(0, 2), (1, 4)])
def test_a_write_of_few_bytes_takes_the_lock_once(
    uri: str, smaller: int, locks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(uri, "mor", "bucket")
    sizes = list[int]()
    real = pipeline._is_small  # pyright: ignore[reportPrivateUsage]
    with monkeypatch.context() as patch, request_rounds():
        patch.setattr(
            pipeline, "_is_small", lambda context, given: (sizes.append(given.table.nbytes), real(context, given))[1]
        )
        lakebed.open(uri).upsert(rows(0, 10, 3))
    # the rows with their record keys and partition paths are the larger ones
    monkeypatch.setattr(pipeline, "MAX_LOCKED_BYTES", max(sizes) - smaller)
    with request_rounds() as clock:
        lakebed.open(uri).upsert(rows(0, 10, 4))
    assert sum(r.verb == "put_if_match" for r in clock.requests) == locks, clock
    assert lakebed.open(uri).count() == 100


class BusyStorage(RemoteStorage):
    """Another process completes an action right before the table's timeline is listed the next time."""

    def __init__(self, inner: Storage, clock: RequestClock, actions: list[Callable[[], object]]) -> None:
        super().__init__(inner, clock)
        self._actions = actions

    def list_names(self, prefix: str = "") -> Sequence[str]:
        if prefix == ".hoodie/timeline" and self._actions:
            self._actions.pop()()
        return super().list_names(prefix)


@pytest.mark.parametrize("late", [False, True], ids=["data first", "metadata first"])
@pytest.mark.parametrize("last", ["upsert", "clean", "savepoint", "compaction"])
def test_a_get_sees_what_completes_between_the_looks_at_both_timelines(uri: str, last: str, late: bool) -> None:
    """The metadata table may be looked at first: where it does not show the last action it is read again."""
    other = table(uri, "mor", "record_index")
    forget()
    actions: list[Callable[[], object]] = []

    def act() -> None:
        if last == "savepoint":
            commit = other.upsert(rows(0, 3, 8)).instant
            other.upsert(rows(3, 97, 9))
            other.savepoints.create(commit)
        else:
            other.upsert(rows(0, 100, 9))
        if last == "compaction":
            other.maintenance.compact()
        elif last == "clean":
            other.maintenance.compact()
            other.maintenance.clean(options={"hoodie.clean.commits.retained": 1})

    with request_rounds(late=late) as clock, wrapping(lambda inner: BusyStorage(inner, clock, actions)):
        t = lakebed.open(uri)
        for wanted in ("k5", "k60"):
            actions.append(act)
            [row] = t.get([wanted]).to_pylist()
            assert not actions
            assert row == {"id": wanted, "ts": 9, "v": f"{wanted[1:]}-9"}


def test_threads_give_what_requests_one_after_the_other_give(uri: str) -> None:
    """The same without the clock in the place of threads."""
    table(uri, "mor", "record_index")
    forget()
    with wrapping(lambda inner: RemoteStorage(inner, RequestClock())):
        t = lakebed.open(uri)
        for version in range(3, 6):
            t.upsert(rows(version, 10, version))
        assert t.get(["k4", "k13"]).sort_by("id").to_pylist() == [
            {"id": "k13", "ts": 5, "v": "13-5"},
            {"id": "k4", "ts": 4, "v": "4-4"},
        ]
    assert lakebed.open(uri).indexes.verify().ok
