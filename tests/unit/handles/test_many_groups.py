"""Small file groups that are taken in together get the same files and statuses as one by one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from lakebed.concurrency.markers import list_markers
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import GROUP, GroupOfRows
from lakebed.engine.local import LocalEngine, LocalRows
from lakebed.expressions.partition_paths import PartitionPath, PathCheck
from lakebed.format.column_ranges import RowRanges, from_stream, ranges_by_group
from lakebed.handles import append, group_writer
from lakebed.handles.append import AppendHandle
from lakebed.handles.base import GroupJob, HashedTargets
from lakebed.handles.create import CreateHandle
from lakebed.handles.file_writer import FileFormat
from lakebed.handles.group_writer import GroupWriter
from lakebed.merge.incoming import Intake
from lakebed.merge.rules import MergeRules
from lakebed.model import PARTITION_PATH, RECORD_KEY, BaseFile, FileSlice
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import leaf_paths, with_meta
from lakebed.schema.avro import arrow_to_avro, avro_with_meta
from lakebed.slices.reader import SliceReader
from lakebed.storage.base import Durable
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage
from lakebed.write_status import STATUS_SCHEMA, WriteStatus, from_table

INSTANT = "20260101000000002"
DATA = pa.schema(
    [
        ("v", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(20, 4)),
        ("weight", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
FLAT = ("v", "name", "price", "weight", "at", RECORD_KEY, "_hoodie_commit_time", "_hoodie_partition_path")
PATHS = ("p", "q")
BUCKETS = 7


def numbered(number: int) -> str:
    return f"{number:08d}-0000-0000-0000-000000000000-0"


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    name = f"many-{uuid.uuid4().hex}"
    yield MemoryStorage(name)
    MemoryStorage.drop(name)


def writer(storage: Any, version: int = 9, *, ordering: Sequence[str] = ("v",), **more: Any) -> GroupWriter:
    """Of buckets that have a slice in every partition path but the last ones, which are new."""
    names = {"hoodie.table.name": "t", "hoodie.table.type": "MERGE_ON_READ", "hoodie.table.version": str(version)}
    existing: dict[tuple[str, int], FileSlice] = {}
    for path in PATHS:
        for number in range(BUCKETS - 1):
            file_id = numbered(number)
            base = BaseFile(path, file_id, "0-0-0", "1", f"{file_id}_0-0-0_1.parquet", 1)
            existing[path, number] = FileSlice(path, file_id, "1", base)
    avro = avro_with_meta(arrow_to_avro(DATA, "t"))
    columns = more.pop("columns", FLAT)
    format_ = FileFormat(with_meta(DATA), avro, more.pop("settings", WriteSettings()), range_columns=columns)
    return GroupWriter(
        GroupJob(
            reader=SliceReader(storage, TableConfig(names)),
            instant=INSTANT,
            format=replace(format_, **more.pop("format", {})),
            intake=replace(
                Intake(DATA, MergeRules(tuple(ordering)), combine=True, all_deletes=False, memory=64 << 20),
                **more.pop("intake", {}),
            ),
            on_match=more.pop("on_match", "keys"),
            max_file_size=1 << 20,
            path_check=PathCheck(PartitionPath(())),
        ),
        targets=HashedTargets(INSTANT, existing, fixed_ids=True),
        existing_partitions=frozenset(PATHS),
        insert_handle=more.pop("insert_handle", AppendHandle),
        **more,
    )


def rows(count: int, seed: int, *, keys: int | None = None) -> pa.Table:
    """Rows of all buckets, with keys that repeat, within a bucket and in other partition paths, deletes, and nulls."""
    rng = np.random.default_rng(seed)
    key = rng.integers(0, keys or count, count)
    picked: Any = rng.integers
    columns: dict[str, pa.Array] = {
        RECORD_KEY: pa.array([f"key-{k}" for k in key]),
        PARTITION_PATH: pa.array([PATHS[n] for n in picked(0, len(PATHS), count)]),
        GROUP: pa.array((key % BUCKETS).astype(np.int32)),
        "v": pa.array(picked(-5, 5, count) * 10**9),
        "name": pa.array([None if n % 7 == 0 else "ä" * (n % 5) for n in picked(0, 100, count).tolist()]),
        "price": pa.array([None if n % 3 == 0 else Decimal(n) / 8 for n in picked(0, 99, count).tolist()]).cast(
            pa.decimal128(20, 4)
        ),
        "weight": pa.array([(None, float("nan"), -0.0, n / 3)[n % 4] for n in picked(0, 50, count).tolist()]),
        "at": pa.array(picked(0, 10**15, count)).cast(pa.timestamp("us", "UTC")),
        "tags": pa.array([[None, [], ["a"], ["b", None]][n] for n in picked(0, 4, count)], pa.list_(pa.string())),
        "place": pa.array(
            [None if n == 0 else {"x": n, "y": None if n == 1 else "y"} for n in picked(0, 4, count).tolist()],
            DATA.field("place").type,
        ),
        "_hoodie_is_deleted": pa.array([(None, False, True, None)[n] for n in picked(0, 4, count)]),
    }
    return pa.table(columns)


class OneByOne:
    """The writer without a look at all groups."""

    def __init__(self, to: GroupWriter) -> None:
        self._to = to

    def __call__(self, *given: Any) -> Iterator[pa.RecordBatch]:
        return self._to(*given)


def run(function: Any, table: pa.Table) -> list[WriteStatus]:
    engine = LocalEngine(2)
    done = engine.group_map(LocalRows(table), function, STATUS_SCHEMA, groups=None, one_group_per_task=False)
    attempts = (replace(status, millis=0) for status in from_table(engine.collect(done)))
    return sorted(attempts, key=lambda s: (s.partition, s.file_id, s.path or "", s.rows_in))


def files(storage: MemoryStorage) -> dict[str, bytes]:
    return {info.path: storage.read(info.path) for info in storage.list()}


def status_text(status: WriteStatus) -> str:
    """All that a status says; the bytes of its ranges may differ."""
    ranges = None if status.ranges is None else from_stream(status.ranges)
    schema = None if ranges is None else ranges.schema
    return f"{replace(status, ranges=None)} {schema} {None if ranges is None else ranges.to_pylist()}"


CASES: dict[str, dict[str, Any]] = {
    "event time": {},
    "commit time": {"ordering": ()},
    "inserts": {"on_match": "none", "intake": {"combine": False}},
    "version 6": {"version": 6},
    "version 8, no meta fields": {"version": 8, "format": {"populate_meta": False}, "columns": ("v",)},
    "no ranges": {"columns": ()},
    "ranges inside lists and structs": {"columns": (*FLAT, "tags.list.element", "place.x")},
    "keys to delete": {"intake": {"all_deletes": True}, "ordering": ()},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [9, 400])
def test_files_and_statuses_are_those_of_groups_one_by_one(
    monkeypatch: pytest.MonkeyPatch, case: str, count: int
) -> None:
    # both runs have the same write tokens, so that their files can be compared
    monkeypatch.setattr("lakebed.engine.local._attempts", iter([1] * 10))
    made: list[tuple[dict[str, bytes], list[WriteStatus]]] = []
    for wrap in (lambda to: to, OneByOne):
        name = f"many-{uuid.uuid4().hex}"
        storage = MemoryStorage(name)
        statuses = run(wrap(writer(storage, **CASES[case])), rows(count, seed=count, keys=count // 2))
        made.append((files(storage), statuses))
        MemoryStorage.drop(name)
    together, one_by_one = made
    assert [s.error for s in together[1]] == [None] * len(together[1])
    assert [status_text(s) for s in together[1]] == [status_text(s) for s in one_by_one[1]]
    assert together[0] == one_by_one[0]
    assert sum(".log." in path for path in together[0]) > 4


def test_a_thousand_rows_for_many_groups_are_encoded_once(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    whole = append.encode_records
    monkeypatch.setattr(append, "encode_records", lambda batch, avro: calls.append(1) or whole(batch, avro))
    statuses = run(writer(storage), rows(1_000, seed=3))
    assert len(statuses) == BUCKETS * len(PATHS)
    assert calls == [1]


def test_all_markers_are_there_before_the_first_log_file_and_none_is_written_alone(storage: MemoryStorage) -> None:
    class Watched(CountingStorage):
        seen: ClassVar[list[str]] = []

        def write_same(self, paths: Sequence[str], data: bytes) -> None:
            self.seen.append(f"markers {len(paths)}")
            super().write_same(paths, data)

        def write(self, path: str, data: bytes, *, durable: Durable = True) -> None:
            self.seen.append(f"write {path}")
            super().write(path, data, durable=durable)

        def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
            self.seen.append("log")
            return super().put_if_absent(path, data, durable=durable)

    table = rows(300, seed=4)
    statuses = run(writer(Watched(storage)), table.set_column(1, PARTITION_PATH, pa.array(["p"] * 300)))
    written = sum(s.path is not None for s in statuses)
    only_deletes = sum(s.path is not None and not s.num_writes for s in statuses)
    assert only_deletes == 0
    assert Watched.seen == [f"markers {written}", *["log"] * written]


def new_groups(storage: Any, **more: Any) -> GroupWriter:
    """Of file groups none of which has a slice, in partition paths that are not there."""
    made = writer(storage, **more)
    targets = HashedTargets(INSTANT, {}, fixed_ids=True)
    return replace(made, targets=targets, existing_partitions=frozenset(), insert_handle=CreateHandle)


def test_new_base_files_have_their_markers_before_the_first_of_them_and_no_other(storage: MemoryStorage) -> None:
    class Watched(CountingStorage):
        seen: ClassVar[list[tuple[str, str]]] = []

        def _before(self, verb: str, path: str) -> None:
            self.seen.append((verb, path))
            super()._before(verb, path)

    statuses = run(new_groups(Watched(storage)), rows(300, seed=6))
    assert [s.error for s in statuses] == [None] * (BUCKETS * len(PATHS))
    verbs = [verb for verb, _ in Watched.seen if verb in ("write", "create")]
    assert verbs == ["write"] * len(statuses) + ["create"] * len(statuses)
    marked = [(marker.partition, marker.file_name, marker.kind) for marker in list_markers(storage, INSTANT)]
    assert marked == sorted((s.partition, (s.path or "").rpartition("/")[2], "CREATE") for s in statuses)


def test_a_new_partition_path_is_made_once_by_each_thread_at_most(storage: MemoryStorage) -> None:
    counting = CountingStorage(storage)
    statuses = run(new_groups(counting), rows(300, seed=7))
    assert len(statuses) == BUCKETS * len(PATHS)
    made = [path for path in counting.written if path.endswith(".hoodie_partition_metadata")]
    assert set(made) == {f"{path}/.hoodie_partition_metadata" for path in PATHS}
    assert len(made) <= 2 * len(PATHS)  # two threads


def test_a_partition_path_that_no_table_can_have_gets_no_marker(storage: MemoryStorage) -> None:
    table = rows(60, seed=8)
    paths = pa.array(["p" if n % 2 else ".hoodie" for n in range(60)])
    statuses = run(new_groups(storage), table.set_column(1, PARTITION_PATH, paths))
    assert {s.partition for s in statuses if s.error} == {".hoodie"}
    assert {marker.partition for marker in list_markers(storage, INSTANT)} == {"p"}


def test_a_refused_row_is_named_with_its_partition_path(storage: MemoryStorage) -> None:
    table = rows(200, seed=5)
    keys = table[RECORD_KEY].to_pylist()
    at = table[PARTITION_PATH].to_pylist().index("q")
    keys[at] = None
    failed = [s for s in run(writer(storage), table.set_column(0, RECORD_KEY, pa.array(keys))) if s.error]
    assert [s.partition for s in failed] == ["q"]
    assert "null or empty record key" in (failed[0].error or "")


@pytest.mark.parametrize(
    ("case", "count"),
    [
        ({"on_match": "skip"}, 100),
        ({"format": {"sort": True}}, 100),
        ({"format": {"log_blocks": "parquet"}}, 100),
        ({"intake": {"absent": ("name",)}}, 100),
        ({"intake": {"memory": 1000}}, 100),
        ({"insert_handle": group_writer.CreateHandle}, 100),
        ({}, 80_000),
    ],
)
def test_batches_that_need_more_than_the_rows_are_left_to_each_group(
    storage: MemoryStorage, case: dict[str, Any], count: int
) -> None:
    to = writer(storage, **case)
    table = pa.table({RECORD_KEY: [f"{n}" for n in range(count)], "v": range(count)})
    task: Any = None
    half = count // 2
    groups = [GroupOfRows("p", 0, 0, half, task), GroupOfRows("q", BUCKETS - 1, half, count, task)]
    assert to.with_all(table, groups) is to


@pytest.mark.parametrize("columns", [FLAT, tuple(path for path, _ in leaf_paths(DATA))])
def test_ranges_of_all_groups_are_those_of_each(columns: tuple[str, ...]) -> None:
    table = rows(500, seed=6)
    data = table.select(DATA.names).append_column(RECORD_KEY, table[RECORD_KEY].combine_chunks().dictionary_encode())
    batch = data.combine_chunks().to_batches()[0]
    schema = batch.schema.set(batch.schema.get_field_index(RECORD_KEY), pa.field(RECORD_KEY, pa.string()))
    codes = np.sort(np.random.default_rng(7).choice([0, 2, 3, 9], 500)).astype(np.int32)
    found = ranges_by_group(batch, codes, schema, columns)
    assert sorted(found) == [0, 2, 3, 9]
    for code, row in found.items():
        ranges = RowRanges(schema, columns)
        ranges.see(batch.filter(pa.array(codes == code)))
        assert row.schema == ranges.row().schema
        assert repr(row.to_pylist()) == repr(ranges.row().to_pylist())
