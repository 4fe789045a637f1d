"""Filtered scans decode the columns of the condition first, and of the others what matching rows need: the rows are
those of a scan without the condition that fulfil it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.filters.predicates import safe_part
from lakebed.filters.sql import parse_filter
from lakebed.format.base_file import SMALL_BYTES, read_footer
from lakebed.handles import file_writer
from lakebed.read import batches, filtered_rows
from lakebed.read.filtered_rows import bounds_of_groups
from lakebed.slices.log_rows import LOG_ROWS, REPLACEMENTS
from lakebed.slices.reader import BATCH_ROWS, SliceReader
from lakebed.storage import open_storage
from lakebed.storage.folder import WrappedStorage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from support.random_filters import FilterMaker
from support.same_rows import assert_same_rows

COUNT = 40_000
GROUP = 8_192  # rows of a row group


def rows_of(numbers: Sequence[int], version: int = 0) -> pa.Table:
    """Rows whose numbers, dates and times rise with their keys; every seventh value is null."""
    start = datetime(2024, 1, 1)

    def values(make: Callable[[int], Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if n % 7 == 3 else make(n) for n in numbers], kind)

    return pa.table(
        {
            "id": pa.array([f"k{n:06d}" for n in numbers]),
            "n": values(lambda n: n + version, pa.int32()),
            "d": values(lambda n: date(2020, 1, 1) + timedelta(days=n // 40), pa.date32()),
            "at": values(lambda n: start + timedelta(seconds=n), pa.timestamp("us")),
            "f": values(lambda n: math.nan if n > 4 * GROUP and n % 1_000 == 5 else n / 4, pa.float64()),
            "b": values(lambda n: n < 9_000, pa.bool_()),
            "m": values(lambda n: Decimal(n) / 100, pa.decimal128(12, 2)),
            "city": pa.array([f"city-{n % 11}" for n in numbers]),
            "tags": pa.array([[f"t{n % 3}"] * (n % 3) for n in numbers], pa.list_(pa.string())),
            "place": pa.array([{"x": n, "y": str(n % 5)} for n in numbers]),
        }
    )


@pytest.fixture(scope="module", params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """One base file of five row groups; of merge-on-read log files update, delete and insert rows."""
    made = lakebed.create(
        str(tmp_path_factory.mktemp("filtered") / "t"), rows_of([0]).schema, key="id", type=request.param,
        index="bucket", buckets=1, sort="key", properties={"hoodie.compact.inline": False},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_writer, "SORTED_ROW_GROUP_ROWS", GROUP)
        made.insert(rows_of(range(COUNT)))
    made.upsert(rows_of([*range(0, COUNT, 997), *range(COUNT, COUNT + 30)], version=100_000))
    made.delete([f"k{n:06d}" for n in range(500, COUNT, 2_001)])
    return lakebed.open(made.uri)


CONDITIONS = [
    "n = 20000", "n < 10", "n >= 100000", "n IN (5, 9, 30000)", "n IS NULL", "n + 1 = 12001", "d = date'2021-05-01'",
    "at < timestamp'2024-01-01 00:10:00'", "f > 9990", "isnan(f)", "NOT (f <= 9000)", "b", "NOT b", "m < 1.5",
    "city = 'city-3' AND n > 39000", "city LIKE 'city-1%' AND b", "place.x = 777", "id = 'k012345'", "n < 0",
    "n > 10 OR city = 'city-4'", "id >= ''", "tags IS NULL",
]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filtered_scan_has_the_rows_that_fulfil_the_condition(
    table: Table, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    REPLACEMENTS.clear()
    LOG_ROWS.clear()
    columns = ["id", "city", "tags", "place", "f", "_hoodie_commit_time"]
    again = [table.scan(columns=columns, where=condition).to_arrow() for _ in range(2)]
    counted = table.scan(where=condition).count()
    monkeypatch.setattr(filtered_rows, "_MIN_ROWS", COUNT + 1)
    expected = table.scan(columns=columns, where=condition).to_arrow()
    assert again[0].schema.equals(expected.schema)
    for rows in again:
        assert_same_rows(rows, expected)
    assert counted == expected.num_rows


@pytest.mark.parametrize("seed", range(8))
def test_random_conditions_give_the_same_rows(table: Table, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    every = table.scan().to_arrow()
    maker = FilterMaker(every, seed)
    conditions = [maker.filter() for _ in range(4)]
    found = [table.scan(columns=["id", "m", "tags"], where=condition).to_arrow() for condition in conditions]
    monkeypatch.setattr(filtered_rows, "_MIN_ROWS", COUNT + 1)
    for condition, rows in zip(conditions, found, strict=True):
        assert_same_rows(rows, table.scan(columns=["id", "m", "tags"], where=condition).to_arrow())


# -- what is read


class Reads:
    """What scans read of base files: row groups with columns, and rows by pages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[tuple[list[str], list[int]]] = []
        self.pages: list[tuple[list[str], dict[int, int]]] = []
        read, by_pages = SliceReader.read, filtered_rows.rows_by_pages

        def reading(reader: Any, file_slice: Any, columns: Any = None, **how: Any) -> Iterator[pa.RecordBatch]:
            self.groups.append((list(columns), list(how["row_groups"])))
            return read(reader, file_slice, columns, **how)

        def paging(storage: Any, base: Any, footer: Any, parquet: Any, rows: Any, columns: Any) -> Any:
            self.pages.append((list(columns), {number: len(numbers) for number, numbers in rows.items()}))
            return by_pages(storage, base, footer, parquet, rows, columns)

        monkeypatch.setattr(SliceReader, "read", reading)
        monkeypatch.setattr(filtered_rows, "rows_by_pages", paging)


def sorted_table(name: str, count: int = COUNT) -> Table:
    table = lakebed.create(
        f"memory://filtered-{name}/t", rows_of([0]).schema, key="id", index="bucket", buckets=1, sort="key"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_writer, "SORTED_ROW_GROUP_ROWS", GROUP)
        table.insert(rows_of(range(count)))
    return lakebed.open(table.uri)


def test_row_groups_without_a_matching_row_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = sorted_table("groups")
    reads = Reads(monkeypatch)
    assert table.scan(["id"], "n BETWEEN 20000 AND 20003").to_arrow()["id"].to_pylist() == [
        f"k{n:06d}" for n in (20000, 20001, 20003)
    ]
    # row groups of so few rows have no offset index
    assert reads.groups == [(["n"], [2]), (["id"], [2])]
    assert reads.pages == [(["id"], {2: 3})]


def test_other_columns_are_not_read_where_no_row_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    table = sorted_table("none")
    reads = Reads(monkeypatch)
    # within the range of all row groups
    assert table.scan(["id", "m"], "city = 'city-11'").to_arrow().num_rows == 0
    assert reads.groups == [(["city"], [0, 1, 2, 3, 4])]
    assert not reads.pages


def test_the_statistics_of_a_column_decide_in_every_row_group(monkeypatch: pytest.MonkeyPatch) -> None:
    table = sorted_table("columns")
    reads = Reads(monkeypatch)
    groups = {
        "n < 8192": [0],
        "n >= 8192": [1, 2, 3, 4],
        "d > date'2022-09-01'": [4],
        "at < timestamp'2024-01-01 03:00:00'": [0, 1],
        "f < 4000": [0, 1, 4],  # with NaN a range is not known
        "f > 7500": [3, 4],
        "b": [0, 1],
        "id > 'k036'": [4],
        "id LIKE 'k036%'": [4],
        "n < 100 OR n > 39990": [0, 4],
        "NOT (n > 100)": [0],
        "n IS NULL": [0, 1, 2, 3, 4],
        "id IS NULL": [],
    }
    for condition, expected in groups.items():
        reads.groups.clear()
        table.scan(["m"], condition).to_arrow()
        assert reads.groups[0][1] == expected, condition


@pytest.mark.parametrize("more", [0, 1])
def test_single_pages_are_read_where_one_row_in_eight_matches(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    table = sorted_table(f"eighth-{more}")
    reads = Reads(monkeypatch)
    condition = f"id < 'k{GROUP // 8 + more:06d}'"  # of the first row group
    found = table.scan(["id", "m"], condition).to_arrow()
    assert found["id"].to_pylist() == [f"k{n:06d}" for n in range(GROUP // 8 + more)]
    assert found["m"].to_pylist() == rows_of(range(GROUP // 8 + more))["m"].to_pylist()
    assert len(reads.pages) == (more == 0)


class SizedReads(WrappedStorage):
    """A storage that records the number of bytes of each range that is read."""

    sizes: ClassVar[list[int]] = []

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.sizes.extend(size for _, size in ranges)
        return super().read_ranges(path, ranges)


def test_rows_of_a_fourth_of_the_pages_are_read_by_their_pages() -> None:
    rows = pa.table({"id": [f"k{n:06d}" for n in range(100_000)], "n": range(100_000), "v": range(100_000)})
    table = lakebed.create("memory://filtered-pages/t", rows.schema, key="id", index="bucket", buckets=1, sort="none")
    table.insert(rows)
    SizedReads.sizes.clear()
    with wrapping(SizedReads):
        rows = lakebed.open(table.uri).scan(["v"], "n IN (7, 99990)").to_arrow()
    assert rows["v"].to_pylist() == [7, 99_990]
    assert SizedReads.sizes
    assert sum(SizedReads.sizes) < 3 * 4_096 * 8


@pytest.mark.parametrize("rows", [16_383, 16_384])
def test_all_columns_of_few_rows_are_decoded_at_once(rows: int) -> None:
    table = sorted_table(f"few-{rows}", rows)
    assert pays(table) == (rows == 16_384)


def pays(table: Table, condition: str = "n = 1") -> bool:
    scan = table.scan(["id"], condition)
    (file_slice, reader), *_ = batches.row_readers(scan.plan, scan.plan.predicate)
    assert file_slice.base_file is not None
    assert file_slice.base_file.size > SMALL_BYTES
    return reader._filtered(scan.reader, file_slice) is not None


@pytest.mark.parametrize("more", [0, 1])
def test_a_small_file_of_a_remote_store_is_one_request(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    table = sorted_table(f"remote-{more}")
    size = table.scan(["id"], "n = 1").plan.files[0].size
    monkeypatch.setattr(filtered_rows, "is_remote", lambda _: True)
    monkeypatch.setattr(filtered_rows, "_REMOTE_BYTES", size + more)
    assert pays(table) == (more == 0)


@pytest.mark.parametrize("more", [0, 1])
def test_row_groups_with_much_in_the_columns_of_the_condition_are_read_by_batches(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    table = sorted_table(f"much-{more}")
    (file,) = table.scan(["id"], "n = 1").plan.files
    metadata = read_footer(open_storage(table.uri), file.path).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [
        sum(c.total_uncompressed_size for c in map(group.column, range(group.num_columns)) if name_of(c) in "nd")
        for group in groups
    ]
    monkeypatch.setattr(filtered_rows, "_FIRST_BYTES", max(sizes) - more)
    assert pays(table, "n = 1 AND d > date'2020-01-01'") == (more == 0)


def name_of(chunk: Any) -> str:
    return chunk.path_in_schema.split(".")[0]


@pytest.mark.parametrize("more", [0, 1])
def test_a_file_that_is_read_by_one_request_is_decoded_at_once(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    table = sorted_table(f"request-{more}")
    size = table.scan(["id"], "n = 1").plan.files[0].size
    monkeypatch.setattr(batches, "SMALL_BYTES", size - more)
    scan = table.scan(["id"], "n = 1")
    (file_slice, reader), *_ = batches.row_readers(scan.plan, scan.plan.predicate)
    assert (reader._filtered(scan.reader, file_slice) is not None) == (more == 1)


@pytest.mark.parametrize("count", [BATCH_ROWS - 1, BATCH_ROWS, BATCH_ROWS + 1, 3 * BATCH_ROWS])
def test_many_matching_rows_come_in_several_batches(count: int) -> None:
    rows = pa.table({"id": range(200_000), "n": range(200_000), "v": [str(n % 9) for n in range(200_000)]})
    table = lakebed.create(f"memory://filtered-many-{count}/t", rows.schema, key="id", index="bucket", buckets=1)
    table.insert(rows)
    for condition in (f"n < {count}", f"n % 200000 < {count}"):
        found = list(table.scan(where=condition).to_batches())
        assert max(batch.num_rows for batch in found) <= BATCH_ROWS
        assert pa.Table.from_batches(found).sort_by("id").equals(rows.slice(0, count))


def test_a_base_file_without_rows_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    table = sorted_table("empty", 100)
    table.delete(rows_of(range(100))["id"])
    monkeypatch.setattr(filtered_rows, "_MIN_ROWS", 0)
    monkeypatch.setattr(batches, "SMALL_BYTES", 0)
    assert len(table.scan(["id"], "n > 1").plan.files) == 1
    assert table.scan(["id"], "n > 1").to_arrow().num_rows == 0


# -- the parts of a slice with log files


def test_log_rows_come_beside_the_rows_of_the_base_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log record moves a row into the range of the condition, and others move one out of it and delete one."""
    table = lakebed.create(
        "memory://filtered-logs/t", rows_of([0]).schema, key="id", type="mor", index="bucket", buckets=1, sort="key",
        properties={"hoodie.compact.inline": False},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_writer, "SORTED_ROW_GROUP_ROWS", GROUP)
        table.insert(rows_of(range(COUNT)))
    ids = pa.array(["k000007", "k020000", "k050000"])
    moved = rows_of([7, 20_000, 50_000]).set_column(1, "n", pa.array([20_001, 1, 20_003], pa.int32()))
    assert moved["id"].combine_chunks().equals(ids)
    table.upsert(moved)
    table.delete(["k020001"])
    table = lakebed.open(table.uri)
    reads = Reads(monkeypatch)
    for _ in range(2):
        found = table.scan(["id", "n"], "n BETWEEN 20000 AND 20003").to_arrow().sort_by("id")
        assert found.to_pydict() == {"id": ["k000007", "k020003", "k050000"], "n": [20_001, 20_003, 20_003]}
    assert [groups for columns, groups in reads.groups if columns == ["n"]] == [[2], [2]]


def test_partial_updates_are_merged_with_all_columns() -> None:
    table = lakebed.create(
        "memory://filtered-partial/t", pa.schema({"id": pa.string(), "n": pa.int64(), "v": pa.int64()}), key="id",
        type="mor", index="bucket", buckets=1, merge="PartialUpdateAvroPayload", ordering="n",
        properties={"hoodie.compact.inline": False},
    )  # fmt: skip
    numbers = pa.array(np.arange(COUNT))
    table.insert(pa.table({"id": [f"k{n:06d}" for n in range(COUNT)], "n": numbers, "v": numbers}))
    table.upsert({"id": ["k000001"], "n": [77_777], "v": pa.array([None], pa.int64())})
    assert table.scan(where="n = 77777").to_arrow().to_pydict() == {"id": ["k000001"], "n": [77_777], "v": [1]}


# -- columns that files have otherwise


def test_files_of_an_older_schema_are_filtered_by_the_tables_types(tmp_path: Path) -> None:
    table = lakebed.create(
        str(tmp_path / "t"), pa.schema({"id": pa.string(), "n": pa.int32(), "c": pa.string()}), key="id",
        index="bucket", buckets=2,
    )  # fmt: skip
    ids = [f"k{n:06d}" for n in range(COUNT)]
    table.insert({"id": ids, "n": pa.array(range(COUNT), pa.int32()), "c": ["x"] * COUNT})
    table.columns.widen("n", pa.int64())
    table.columns.rename("c", "label")
    table.columns.add("more", pa.string())
    table = lakebed.open(table.uri)
    found = table.scan(["id", "label", "more"], "n = 31000").to_arrow()
    assert found.to_pylist() == [{"id": "k031000", "label": "x", "more": None}]
    assert table.scan(["id"], "more = 'a'").to_arrow().num_rows == 0
    assert table.scan(["n"], "more IS NULL AND n < 2").to_arrow()["n"].to_pylist() in ([0, 1], [1, 0])
    assert table.scan(["n"], "label = 'x' AND n > 39998").to_arrow()["n"].to_pylist() == [39_999]


def test_columns_of_partition_paths_are_filtered_too(tmp_path: Path) -> None:
    count = 40_000
    rows = pa.table({"id": range(count), "p": [f"p{n % 2}" for n in range(count)], "n": range(count)})
    table = lakebed.create(
        str(tmp_path / "t"), rows.schema, key="id", partition_by="p", index="bucket", buckets=1,
        properties={"hoodie.datasource.write.drop.partition.columns": True},
    )  # fmt: skip
    table.insert(rows)
    found = table.scan(where="n IN (7, 8, 39999) AND (p = 'p1' OR n = 8)").to_arrow().sort_by("id")
    assert found.select(["id", "p", "n"]).to_pydict() == {
        "id": [7, 8, 39_999],
        "p": ["p1", "p0", "p1"],
        "n": [7, 8, 39_999],
    }


# -- statistics


def bounds_in(folder: Path, column: pa.Array, *, exact: bool = True, **how: Any) -> Any:
    pq.write_table(pa.table({"v": column}), folder / "f.parquet", row_group_size=2, **how)
    return bounds_of_groups(read_footer(open_storage(str(folder)), "f.parquet"), "v", exact=exact)


def test_statistics_give_the_bounds_of_each_row_group(tmp_path: Path) -> None:
    bounds = bounds_in(tmp_path, pa.array([1, 2, None, 4, None, None], pa.int64()))
    assert bounds.low.to_pylist() == [1, 4, None]
    assert bounds.high.to_pylist() == [2, 4, None]
    assert bounds.may_hold.tolist() == [True, True, False]
    assert bounds.may_null.tolist() == [False, True, True]


def test_statistics_that_are_not_there_give_no_bounds(tmp_path: Path) -> None:
    bounds = bounds_in(tmp_path, pa.array([1, 2]), write_statistics=False)
    assert bounds.low.to_pylist() == bounds.high.to_pylist() == [None]
    assert bounds.may_hold.tolist() == bounds.may_null.tolist() == [True]


def test_floats_are_bound_where_their_writer_has_nan_in_ranges(tmp_path: Path) -> None:
    numbers = pa.array([1.0, 2.0, -math.inf, math.inf])
    bounds = bounds_in(tmp_path, numbers)
    assert bounds.high.to_pylist()[0] == 2.0
    assert math.isnan(bounds.high.to_pylist()[1])
    assert bounds_in(tmp_path, numbers, exact=False) is None


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"a", b"b"]),
        pa.array([[1], [2]]),
        pa.array([1, 2], pa.timestamp("ns")),
        pa.array([datetime(1, 1, 1)]).cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us")),
        pa.array([2**62], pa.timestamp("us")),
    ],
    ids=["bytes", "list", "ns", "first year", "far"],
)
def test_other_types_and_times_beyond_pythons_have_no_bounds(tmp_path: Path, column: pa.Array) -> None:
    bounds = bounds_in(tmp_path, column)
    assert bounds is None or bounds.low.to_pylist() == column.to_pylist()


def test_int96_has_no_bounds(tmp_path: Path) -> None:
    times = pa.array([datetime(2024, 1, 1)], pa.timestamp("us"))
    assert bounds_in(tmp_path, times, use_deprecated_int96_timestamps=True) is None


# -- a part of a filter for tasks in Python


@pytest.mark.parametrize(
    ("condition", "safe"),
    [
        ("n = 1", "n = 1"),
        ("n = 1 AND 1 / n > 0", "n = 1"),
        ("n = 1 OR 1 / n > 0", None),
        ("NOT (n = 1 OR city IS NULL) AND b", "NOT (n = 1 OR city IS NULL) AND b"),
        ("upper(city) = 'A'", None),
        ("city LIKE 'a%' AND n IN (1, 2) AND upper(city) = 'A'", "city LIKE 'a%' AND n IN (1, 2)"),
        ("n = m", None),
    ],
)
def test_the_safe_part_of_a_filter_compares_columns_with_constants(condition: str, safe: str | None) -> None:
    schema = rows_of([0]).schema
    part = safe_part(parse_filter(condition, schema))
    expected = None if safe is None else parse_filter(safe, schema)
    assert (part is None) == (expected is None)
    if part is not None and expected is not None:
        assert str(part.to_arrow()) == str(expected.to_arrow())
