"""Rows in the tasks of a cluster: the results of the engine of this process, and the tables of its writes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.engine import tasks
from lakebed.engine.base import GROUP, Task, count_rows, each
from lakebed.engine.local import LocalEngine
from lakebed.engine.tasks import TaskEngine, TaskRows
from lakebed.errors import InvalidOption, LakebedError, SchemaConflict, SourceError, UnsupportedFeature
from lakebed.expressions.base import Column
from lakebed.merge.locations import IsNotNull
from lakebed.model import FILE_ID, INSTANT, PARTITION_PATH, RECORD_KEY
from support.crash_tables import leftovers
from support.task_cluster import Blocks, SerialCluster

COUNT = 240


def rows_of(ids: list[int], value: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{n:04}" for n in ids],
            "city": [("oslo", "rome", "bonn")[n % 3] for n in ids],
            "v": pa.array([value] * len(ids), pa.int64()),
            "at": pa.array([value] * len(ids), pa.int64()),
        }
    )


def split(rows: pa.Table, parts: int) -> Blocks:
    size = -(-rows.num_rows // parts) if rows.num_rows else 1
    return Blocks([rows.slice(start, size) for start in range(0, max(1, rows.num_rows), size)])


@pytest.fixture(params=[0, 64 << 20], ids=["a_part_for_each_block", "blocks_together"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TaskEngine:
    monkeypatch.setattr(tasks, "_PART_BYTES", request.param)
    return TaskEngine(SerialCluster())


ROWS = pa.table(
    {
        RECORD_KEY: [f"k{n % 50:02}" for n in range(COUNT)],
        PARTITION_PATH: [f"p{n % 3}" for n in range(COUNT)],
        FILE_ID: [None if n % 4 else f"f{n % 5}" for n in range(COUNT)],
        INSTANT: ["1"] * COUNT,
        GROUP: pa.array([n % 7 for n in range(COUNT)], pa.int32()),
        "n": pa.array(range(COUNT), pa.int64()),
    }
)
OTHERS = pa.table({RECORD_KEY: [f"k{n:02}" for n in range(0, 60, 2)], "city": [f"c{n}" for n in range(0, 60, 2)]})


def group_sums(partition: str, group: int, rows: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    values = [value for batch in rows for value in batch.column("n").to_pylist()]
    yield pa.record_batch({"path": [partition], "group": [group], "sum": [sum(values)], "rows": [len(values)]})


SUMS = pa.schema([("path", pa.string()), ("group", pa.int64()), ("sum", pa.int64()), ("rows", pa.int64())])


def doubled(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"n": pc.multiply(batch.column("n"), 2)})


def first_of_key(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(list(batches))
    firsts = rows.group_by(RECORD_KEY, use_threads=False).aggregate([("n", "min")])
    yield from rows.filter(pc.is_in(rows["n"], value_set=firsts["n_min"].combine_chunks())).to_batches()


def spread_rows(number: int, task: Task) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array([number] * number, pa.int64())})


UPDATES = pa.table({PARTITION_PATH: ["p0"], FILE_ID: ["f0"], GROUP: pa.array([90], pa.int32())})
INSERTS = pa.table(
    {
        PARTITION_PATH: [f"p{n}" for n in range(3)],
        "bounds": pa.array([[0.5, 1.0]] * 3, pa.list_(pa.float64())),
        "groups": pa.array([[1, 2]] * 3, pa.list_(pa.int32())),
    }
)
N = pa.schema([("n", pa.int64())])
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "derive": lambda e, rows: e.derive(rows, {"copy": Column("n")}, keep=[RECORD_KEY]),
    "filter": lambda e, rows: e.filter(rows, IsNotNull(FILE_ID)),
    "map": lambda e, rows: e.map(rows, doubled, N),
    "spread": lambda e, rows: e.spread(5, spread_rows, N),
    "spread over nothing": lambda e, rows: e.spread(0, spread_rows, N),
    "map_by_key": lambda e, rows: e.map_by_key(rows, RECORD_KEY, first_of_key),
    "group_map": lambda e, rows: e.group_map(rows, group_sums, SUMS, groups=21, one_group_per_task=False),
    "group_map of each group": lambda e, rows: e.group_map(rows, group_sums, SUMS, groups=7, one_group_per_task=True),
    "route": lambda e, rows: e.route(
        e.derive(rows, {}, keep=[n for n in ROWS.column_names if n != GROUP]), UPDATES, INSERTS
    ),
    "inner join": lambda e, rows: e.join(rows, e.from_arrow(OTHERS), [RECORD_KEY], "inner"),
    "left join": lambda e, rows: e.join(rows, e.from_arrow(OTHERS), [RECORD_KEY], "left"),
    "small join": lambda e, rows: e.join(rows, e.from_arrow(OTHERS), [RECORD_KEY], "left", small=True),
    "distinct": lambda e, rows: e.distinct(e.derive(rows, {}, keep=[RECORD_KEY, FILE_ID])),
    "union": lambda e, rows: e.union([rows, e.filter(rows, IsNotNull(FILE_ID))]),
    "persist": lambda e, rows: e.persist(e.derive(rows, {"copy": Column("n")})),
}


def sorted_lines(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_returns_the_rows_of_the_engine_of_this_process(engine: TaskEngine, name: str) -> None:
    local, operation = LocalEngine(), OPERATIONS[name]
    expected = operation(local, local.rows(ROWS))
    done = operation(engine, engine.rows(split(ROWS, 5)))
    collected = engine.collect(done)
    assert sorted_lines(collected) == sorted_lines(local.collect(expected))
    assert engine.schema(done).names == local.schema(expected).names == collected.column_names
    assert engine.schema(done).types == collected.schema.types


@pytest.mark.parametrize("by", [[], [PARTITION_PATH], [PARTITION_PATH, FILE_ID]])
def test_counts_and_sums_are_those_over_all_parts(engine: TaskEngine, by: list[str]) -> None:
    local = LocalEngine()
    expected = local.aggregate(local.rows(ROWS), by, ["n"])
    counted = engine.aggregate(engine.rows(split(ROWS, 5)), by, ["n"])
    assert sorted_lines(counted) == sorted_lines(expected)
    assert count_rows(engine, engine.rows(split(ROWS, 5))) == COUNT
    assert count_rows(engine, engine.from_arrow(ROWS.slice(0, 0))) == 0


def test_a_sorted_table_is_in_order_over_all_parts(engine: TaskEngine) -> None:
    shuffled = ROWS.take(pa.array(random.Random(3).sample(range(COUNT), COUNT)))
    ordered = engine.sort(engine.rows(split(shuffled, 6)), [PARTITION_PATH, "n"], "table")
    assert (
        engine.collect(ordered).to_pylist()
        == ROWS.sort_by([(PARTITION_PATH, "ascending"), ("n", "ascending")]).to_pylist()
    )
    parts = engine.sort(engine.rows(split(shuffled, 6)), ["n"], "task")
    assert sorted_lines(engine.collect(parts)) == sorted_lines(ROWS)


@pytest.mark.parametrize("count", [0, 1, 100, 1000])
def test_a_sample_has_at_most_so_many_rows(engine: TaskEngine, count: int) -> None:
    sample = engine.collect(engine.head(engine.rows(split(ROWS, 9)), count))
    assert sample.to_pylist() == ROWS.slice(0, count).to_pylist()
    assert engine.collect(engine.head(engine.filter(engine.rows(split(ROWS, 9)), Never()), 1)).num_rows == 0


class Never:
    columns = ()

    def sql(self, schema: pa.Schema) -> str:
        return "false"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pa.array([False] * batch.num_rows)


def test_work_on_single_things_returns_results_in_their_order_and_the_first_error(engine: TaskEngine) -> None:
    assert each(engine, len, ["a", "bc", "", "def"]) == [1, 2, 0, 3]

    def refuse(text: str) -> int:
        raise InvalidOption(f"no {text}")

    with pytest.raises(InvalidOption, match="no x"):
        each(engine, refuse, ["x", "y"])


def test_derivable_columns_are_computed_in_the_task_and_not_sent() -> None:
    rows = ROWS.append_column("copy", ROWS["n"])

    def copies(partition: str, group: int, rows: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        yield from (pa.record_batch({"n": batch["copy"]}) for batch in rows)

    engine = TaskEngine(SerialCluster())
    done = engine.group_map(
        engine.rows(split(rows, 2)), copies, N, groups=None, one_group_per_task=False, derivable={"copy": Column("n")}
    )
    assert sorted(engine.collect(done)["n"].to_pylist()) == list(range(COUNT))


def test_attempts_of_a_task_have_different_numbers_and_may_be_late() -> None:
    def tokens(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        assert task.may_be_late
        yield pa.record_batch({"token": [task.write_token]})

    engine = TaskEngine(SerialCluster())
    mapped = engine.map(engine.rows(split(ROWS, 1)), tokens, pa.schema([("token", pa.string())]))
    assert engine.collect(mapped) != engine.collect(mapped)


def test_types_of_parts_are_united() -> None:
    blocks = Blocks(
        [pa.table({"id": ["a"], "n": [None]}), pa.table({"id": ["b"], "n": [1]}), pa.table({"id": ["c"], "n": [0.5]})]
    )
    engine = TaskEngine(SerialCluster())
    rows = engine.rows(blocks)
    assert engine.schema(rows) == pa.schema([("id", pa.string()), ("n", pa.float64())])
    assert engine.collect(rows).to_pylist() == [{"id": "a", "n": None}, {"id": "b", "n": 1.0}, {"id": "c", "n": 0.5}]


@pytest.mark.parametrize(
    ("other", "message"),
    [(pa.table({"id": [1], "n": [1]}), "have different types"), (pa.table({"id": ["x"]}), "have different columns: n")],
)
def test_parts_that_do_not_fit_together_are_refused(other: pa.Table, message: str) -> None:
    with pytest.raises(SchemaConflict, match=message):
        TaskEngine(SerialCluster()).rows(Blocks([pa.table({"id": ["a"], "n": [1]}), other]))


def test_blocks_without_rows_decide_no_type() -> None:
    empty = pa.table({"id": pa.array([], pa.null())})
    engine = TaskEngine(SerialCluster())
    assert engine.schema(engine.rows(Blocks([empty, pa.table({"id": ["a"]}), empty]))).types == [pa.string()]
    assert engine.collect(engine.rows(Blocks([empty, empty]))).num_rows == 0
    for blocks in ([], [pa.table({})]):
        with pytest.raises(SchemaConflict, match=r"does not know their columns.*dataset\.count\(\) is 0"):
            engine.rows(Blocks(blocks))


def test_a_part_that_comes_back_with_equal_rows_is_read_again() -> None:
    cluster = SerialCluster()
    engine = TaskEngine(cluster)
    rows = engine.rows(split(ROWS, 2))
    for result in cluster.results:
        result.lose()
    assert engine.collect(rows).to_pylist() == ROWS.to_pylist()


def test_a_part_that_comes_back_with_other_rows_is_an_error() -> None:
    values = iter(range(100))
    cluster = SerialCluster()
    engine = TaskEngine(cluster)
    rows = engine.rows(Blocks([lambda: pa.table({"id": [f"k{next(values)}"]})]))
    of_rows = list(cluster.results)
    assert engine.collect(rows).num_rows == 1
    for result in of_rows:
        result.lose()
    with pytest.raises(SourceError, match="was lost with the worker that held it") as raised:
        engine.collect(rows)
    assert raised.value.retryable
    assert raised.value.context["input"] == "changed"


class KilledWorker(Exception):
    """The class of this name is `distributed`'s error for tasks whose workers died again and again."""


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (RuntimeError("ModuleNotFoundError: No module named 'lakebed'"), UnsupportedFeature, "of Ray have no lakebed"),
        (KilledWorker("the task was tried 4 times"), LakebedError, "lost rows of this write.*was tried 4 times"),
        (ZeroDivisionError("x"), ZeroDivisionError, "x"),
    ],
)
def test_errors_of_the_cluster_say_what_to_do(error: Exception, kind: type[Exception], message: str) -> None:
    class Failing(SerialCluster):
        def get(self, refs: Any) -> list[Any]:
            raise error

    with pytest.raises(kind, match=message) as raised:
        TaskEngine(Failing()).rows(split(ROWS, 1))
    assert not isinstance(raised.value, LakebedError) or raised.value.hint


INDEXES: dict[str, dict[str, Any]] = {
    "simple": {},
    "bloom": {},
    "bucket": {"buckets": 3},
    "record": {},
    "global_simple": {},
    "global_bloom": {},
}


def evaluated(cluster: SerialCluster, rows: pa.Table, parts: int = 4) -> TaskRows:
    return TaskEngine(cluster).rows(split(rows, parts))


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", INDEXES)
def test_tables_have_the_rows_of_a_model_although_each_task_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str, kind: str
) -> None:
    monkeypatch.setattr(tasks, "_PART_BYTES", 0)
    uri, draw = str(tmp_path / "t"), random.Random(f"{index} {kind}")
    cluster, model = SerialCluster(runs=2), dict[str, dict[str, Any]]()

    def note(rows: pa.Table) -> pa.Table:
        model.update({row["id"]: row for row in rows.to_pylist()})
        return rows

    def check(commits: int) -> None:
        opened = lakebed.open(uri)
        assert sorted_lines(opened.scan(columns=["id", "city", "v", "at"]).to_arrow()) == sorted(
            map(repr, model.values())
        )
        assert leftovers(uri) == []
        assert len([i for i in opened.timeline if i.is_completed and i.action in ("commit", "deltacommit")]) == commits

    options: dict[str, Any] = {"type": kind, "index": index, **INDEXES[index]}
    first = note(rows_of(list(range(300)), 1))
    t = lakebed.load(uri, evaluated(cluster, first), key="id", partition_by="city", ordering="at", **options)
    check(1)
    t.upsert(evaluated(cluster, note(rows_of(draw.sample(range(400), 150), 2))))
    check(2)
    keys = draw.sample(sorted(model), 60)
    t.delete(evaluated(cluster, pa.table({"id": keys, "city": [model.pop(key)["city"] for key in keys]})))
    check(3)
    again = keys[:10] + sorted(model)[:10]
    t.upsert(evaluated(cluster, note(rows_of([int(key[1:]) for key in again], 3))))
    t.insert(evaluated(cluster, note(rows_of(list(range(500, 540)), 4))))
    t.bulk_insert(evaluated(cluster, note(rows_of(list(range(600, 640)), 5))))
    check(6)


@pytest.mark.parametrize("index", ["bucket", "record"])
def test_this_process_gets_no_rows_of_an_upsert(tmp_path: Path, index: str) -> None:
    received: list[int] = []
    for count in (2_000, 8_000):
        uri = str(tmp_path / f"{count}")
        rows = rows_of(list(range(count)), 1).append_column("text", pa.array(["x" * 100] * count))
        cluster = SerialCluster()
        t = lakebed.load(uri, evaluated(cluster, rows), key="id", index=index, **INDEXES[index])
        cluster.received = 0
        assert t.upsert(evaluated(cluster, rows.slice(0, count // 2))).updated in (count // 2, None)
        received.append(cluster.received)
    assert received[1] < received[0] + 4_000 * 40  # keys at the most; a row has more than 100 bytes


def test_a_merge_says_what_takes_its_place(tmp_path: Path) -> None:
    t = lakebed.load(str(tmp_path / "t"), rows_of([1], 1), key="id", index="simple")
    with pytest.raises(UnsupportedFeature, match="a merge takes no rows of Ray"):
        t.merge(evaluated(SerialCluster(), rows_of([1], 2))).when_matched_update().execute()
