"""How many requests of an action wait for one another on a store whose answers are slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence

import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata import expected_files
from lakebed.metadata.slices import HFILES, LOGS
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
    for cache in (timeline._BODIES, timeline._LISTED, timeline._SETTINGS, expected_files._WRITTEN, HFILES, LOGS):  # pyright: ignore[reportPrivateUsage]
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
