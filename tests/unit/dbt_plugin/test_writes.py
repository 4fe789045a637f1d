"""Runs of a model, with queries on DuckDB: what each verb leaves, and batches of consumers exactly once wherever the
process dies."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.dbt_plugin.models import Model
from lakebed.dbt_plugin.tables import Source, Tables
from lakebed.dbt_plugin.writes import Run, run_model
from lakebed.errors import InvalidOption, LakebedError
from lakebed.read.dataset import TableDataset
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, Mode, crash_at
from support.sampling import CRASH, is_todays

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

Rows = list[dict[str, Any]]
TIGHT = {"hoodie.write.lock.wait_time_ms": 5000, "lakebed.write.tasks": 1}


@pytest.fixture
def folder() -> Iterator[str]:
    name = f"dbt-writes-{uuid.uuid4().hex}"
    yield f"memory://{name}"
    MemoryStorage.drop(name)


def model(**config: Any) -> Model:
    full_refresh = config.pop("full_refresh", False)
    request = {"model": "m", "schema": "mart", "alias": "m", "config": config, "full_refresh": full_refresh}
    return Model.of(request)


def query(text: str, **tables: Any) -> Callable[[Any], AbstractContextManager[pa.RecordBatchReader]]:
    @contextmanager
    def rows(batch: Any) -> Generator[pa.RecordBatchReader]:
        with duckdb.connect() as connection:
            for name, table in tables.items():
                connection.register(name, table)
            if batch is not None:
                connection.register("new_rows", TableDataset(batch))
            yield pa.RecordBatchReader.from_stream(connection.sql(text))

    return rows


def content(folder: str, table: str = "mart.m") -> Rows:
    rows = Tables(folder).open(table).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def written(folder: str, rows: dict[str, Any], **config: Any) -> Run:
    return run_model(Tables(folder, options=TIGHT), model(**config), None, query("select * from r", r=pa.table(rows)))


def test_each_verb_leaves_what_it_says(folder: str) -> None:
    first, second = {"id": [1, 2], "c": ["a", "b"], "n": [1, 2]}, {"id": [2, 3], "c": ["b", "b"], "n": [20, 30]}
    expected: dict[str, tuple[dict[str, Any], list[int]]] = {
        "upsert": ({"key": "id"}, [1, 20, 30]),
        "insert": ({"verb": "insert", "key": "id"}, [1, 2, 20, 30]),
        "merge": ({"verb": "merge", "key": "id"}, [1, 20, 30]),
        "insert_overwrite": ({}, [20, 30]),
        "partitions": ({"key": "id", "partition_by": "c", "verb": "insert_overwrite"}, [1, 20, 30]),
        "whole": ({"key": "id", "partition_by": "c", "verb": "insert_overwrite", "overwrite": "table"}, [20, 30]),
    }
    for name, (config, values) in expected.items():
        written(folder, first, table=f"mart.{name}", **config)
        written(folder, second, table=f"mart.{name}", **config)
        assert sorted(row["n"] for row in content(folder, f"mart.{name}")) == values, name


def test_clauses_of_a_merge_are_those_of_the_table(folder: str) -> None:
    clauses = [
        {"when": "matched", "condition": "s.n = 0", "then": "delete"},
        {"when": "matched", "then": "update", "set": {"n": "t.n + s.n"}},
        {"when": "not_matched", "then": "insert", "condition": "s.n > 0"},
    ]
    config: dict[str, Any] = {"verb": "merge", "key": "id", "clauses": clauses}
    written(folder, {"id": [1, 2], "n": [1, 2]}, **config)
    done = written(folder, {"id": [1, 2, 3, 4], "n": [0, 5, 7, 0]}, **config)
    assert str(done) == "merge: 1 inserted, 1 updated, 1 deleted"
    assert content(folder) == [{"id": 2, "n": 7}, {"id": 3, "n": 7}]


def test_a_full_refresh_replaces_all_rows_and_keeps_one_of_a_key(folder: str) -> None:
    written(folder, {"id": [1, 2], "n": [1, 2]}, key="id")
    done = written(folder, {"id": [5, 5], "n": [1, 1]}, key="id", full_refresh=True)
    assert (str(done), done.complete) == ("insert_overwrite: 2 rows", True)
    assert content(folder) == [{"id": 5, "n": 1}]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"unique_key": "id"}, "unique_key is no setting of a model"),
        ({"verb": "append"}, "there is no verb 'append' of models"),
        ({"verb": "upsert"}, "a model with verb='upsert' needs a key"),
        ({"verb": "merge"}, "a model with verb='merge' needs a key"),
        ({"overwrite": "all"}, "overwrite is 'partitions' or 'table', not 'all'"),
        ({"key": 5}, "key is the name of a column or a list of names, not 5"),
        ({"options": "a=b"}, "options is a map of options, not 'a=b'"),
        ({"key": "id", "verb": "merge", "clauses": [{"when": "matched"}]}, "a clause of a merge has no such form"),
        ({"key": "id", "verb": "merge", "clauses": {"when": "matched", "then": "insert"}}, "has no such form"),
    ],
)
def test_wrong_settings_of_a_model_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        model(**config)


def test_a_table_with_another_key_or_other_partitions_keeps_its_rows(folder: str) -> None:
    rows = {"id": [1], "c": ["a"]}
    written(folder, rows, key="id", partition_by="c")
    for config in ({"key": "c", "partition_by": "c"}, {"key": "id", "partition_by": "id"}):
        for full_refresh in (False, True):
            with pytest.raises(InvalidOption, match="the options have"):
                written(folder, {"id": [2], "c": ["b"]}, full_refresh=full_refresh, **config)
    assert content(folder) == [{"id": 1, "c": "a"}]


def test_rows_that_the_table_refuses_change_nothing(folder: str) -> None:
    written(folder, {"id": [1], "n": [1]}, key="id")
    for rows in ({"id": pa.nulls(1, pa.int64()), "n": [1]}, {"id": ["x"], "n": [1]}, {"n": [1]}):
        with pytest.raises(LakebedError):
            written(folder, rows, key="id")
    assert content(folder) == [{"id": 1, "n": 1}]


# -- consumers


SOURCE = Source("sales.orders", consumer="m")


def orders(folder: str, *rows: tuple[int, int]) -> None:
    tables = Tables(folder)
    table = tables.target(model(table="sales.orders", key="id"), pa.schema({"id": pa.int64(), "n": pa.int64()}))
    table.upsert({"id": [row[0] for row in rows], "n": [row[1] for row in rows]}, options=TIGHT)


def consumed(folder: str, **config: Any) -> Run:
    text = "select id, n, n * 2 as twice from new_rows where n >= 0"
    return run_model(Tables(folder, options=TIGHT), model(**config), SOURCE, query(text))


def result(*rows: tuple[int, int]) -> Rows:
    listed = [{"id": id, "n": n, "twice": n * 2} for id, n in rows]
    return sorted(listed, key=lambda row: [str(value) for value in row.values()])


def test_each_run_writes_what_is_new(folder: str) -> None:
    orders(folder, (1, 1), (2, 2))
    assert str(consumed(folder, verb="insert")) == "insert_overwrite: 2 rows"
    assert str(consumed(folder, verb="insert")) == "insert: nothing new"
    orders(folder, (2, 22), (3, 3))
    orders(folder, (4, -1))
    assert str(consumed(folder, verb="insert")) == "insert: 2 rows"
    assert content(folder) == result((1, 1), (2, 2), (2, 22), (3, 3))


def test_a_full_refresh_of_a_consumer_has_all_rows_and_the_next_run_goes_on_after_it(folder: str) -> None:
    orders(folder, (1, 1), (2, 2))
    consumed(folder, verb="insert")
    orders(folder, (2, 22), (3, 3))
    for _ in range(2):  # with new rows, and without
        done = consumed(folder, verb="insert", full_refresh=True)
        assert (str(done), content(folder)) == ("insert_overwrite: 3 rows", result((1, 1), (2, 22), (3, 3)))
    assert consumed(folder, verb="insert").result is None
    orders(folder, (4, 4))
    consumed(folder, verb="insert")
    assert content(folder) == result((1, 1), (2, 22), (3, 3), (4, 4))


def test_a_dropped_table_is_made_from_all_rows_again(folder: str) -> None:
    orders(folder, (1, 1), (2, 2))
    consumed(folder, verb="insert")
    lakebed.Warehouse(folder).drop("mart.m")
    orders(folder, (3, 3))
    consumed(folder, verb="insert")
    assert content(folder) == result((1, 1), (2, 2), (3, 3))


def test_an_overwrite_takes_no_consumer(folder: str) -> None:
    orders(folder, (1, 1))
    with pytest.raises(InvalidOption, match="insert_overwrite would leave nothing but the newest rows"):
        consumed(folder)
    assert len(Tables(folder).open("sales.orders").consumers) == 0


@pytest.mark.parametrize("mode", ["kill", "unacknowledged"])
@pytest.mark.parametrize("case", ["first", "next", "full"])
def test_rows_are_written_once_wherever_the_process_dies(case: str, mode: Mode) -> None:
    """An insert, which would show a row that is written twice."""
    name = f"dbt-once-{uuid.uuid4().hex}"

    def made(at: int) -> str:
        folder = f"memory://{name}-{at}"
        orders(folder, (1, 1), (2, 2))
        if case != "first":
            consumed(folder, verb="insert")
            orders(folder, (2, 22), (3, 3))
        return folder

    def run(folder: str) -> None:
        consumed(folder, verb="insert", full_refresh=case == "full")

    expected = {
        "first": [(1, 1), (2, 2)],
        "next": [(1, 1), (2, 2), (2, 22), (3, 3)],
        "full": [(1, 1), (2, 22), (3, 3)],
    }[case]
    with crash_at(0) as counted:
        folder = made(0)
        before = len(counted.mutations)
        run(folder)
    points = len(counted.mutations) - before
    assert points > 5
    for at in (n for n in range(1, points + 1) if is_todays(n, 6, CRASH, case, mode)):
        folder = made(at)
        with crash_at(at, mode) as crash, suppress(Killed):
            run(folder)
        assert crash.dead, at
        # rows that are committed meanwhile are in this batch or in the next
        orders(folder, (5, 5))
        late = [(5, 5)]
        run(folder)
        consumed(folder, verb="insert")
        assert content(folder) == result(*expected, *late), (at, crash)
        MemoryStorage.drop(f"{name}-{at}")
    MemoryStorage.drop(f"{name}-0")


def test_a_full_refresh_that_died_is_finished_by_a_plain_run_without_a_row_twice(folder: str) -> None:
    """The plain run either goes on from the old rows or from all of them, as far as the full refresh came."""
    name = f"dbt-refresh-{uuid.uuid4().hex}"
    outcomes = set[str]()
    for at in range(1, 60):
        place = f"memory://{name}-{at}"
        orders(place, (1, 1), (2, 2))
        consumed(place, verb="insert")
        orders(place, (2, 22), (3, 3))
        with crash_at(at) as crash, suppress(Killed):
            consumed(place, verb="insert", full_refresh=True)
        if not crash.dead:
            break
        consumed(place, verb="insert")
        consumed(place, verb="insert")
        found = content(place)
        outcomes |= {"old" if found == result((1, 1), (2, 2), (2, 22), (3, 3)) else "new"}
        assert found in (result((1, 1), (2, 2), (2, 22), (3, 3)), result((1, 1), (2, 22), (3, 3))), (at, crash)
        MemoryStorage.drop(f"{name}-{at}")
    assert outcomes == {"old", "new"}
