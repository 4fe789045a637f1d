"""Counts: of footers alone where they have the number of rows, and equal to the number of rows that a read gives."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.format import base_file
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.testing import CountingStorage

ROWS = pa.table(
    {
        "id": pa.array(range(30), pa.int64()),
        "day": pa.array([date(2026, 1, 1 + n % 3) for n in range(30)]),
        "city": [None if n % 6 == 0 else ("Oslo", "Rome")[n % 2] for n in range(30)],
        "fare": [n / 2 for n in range(30)],
    }
)
CONDITIONS = (
    None,
    "day = '2026-01-02'",
    "day > '2026-01-01' and city = 'Oslo'",
    "city is null",
    "not (city = 'Oslo')",
    "coalesce(city, 'none') = 'none' or year(day) = 2025",
    "fare > 5",
)


@pytest.fixture(scope="module", params=[(kind, dropped) for kind in ("cow", "mor") for dropped in ("false", "true")])
def table(request: pytest.FixtureRequest) -> lakebed.Table:
    kind, dropped = request.param
    properties = {"hoodie.datasource.write.drop.partition.columns": dropped}
    uri = f"memory://counts/{kind}-{dropped}"
    t = lakebed.create(
        uri, ROWS, key="id", partition_by=["day", "city"], type=kind, index="simple", properties=properties
    )
    t.bulk_insert(ROWS)
    return t


def counting(table: lakebed.Table) -> tuple[lakebed.Table, CountingStorage]:
    storage = CountingStorage(open_storage(table.uri))
    return lakebed.Table(storage, load_table_config(storage)), storage


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_count_is_the_number_of_rows_that_a_read_gives(table: lakebed.Table, condition: str | None) -> None:
    assert table.count(where=condition) == table.scan(filter=condition).to_arrow().num_rows


def test_a_count_over_partition_columns_reads_no_rows(table: lakebed.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    other, storage = counting(table)
    rows_read: list[str] = []
    read = base_file.read_base_file

    def noting(storage: object, path: str, *more: object, **options: object) -> object:
        rows_read.append(path)
        return read(storage, path, *more, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr("lakebed.slices.reader.read_base_file", noting)
    assert other.count() == 30
    assert rows_read == []
    storage.reset()
    assert (
        other.count(where="day = '2026-01-02' and city = 'Rome'")
        == ROWS.filter((pc.field("day") == date(2026, 1, 2)) & (pc.field("city") == "Rome")).num_rows
    )
    assert rows_read == []
    assert len({path for path in storage.opened if path.endswith(".parquet") and ".hoodie" not in path}) == 1
    assert other.count(where="fare < 2") == 4
    assert rows_read


def test_a_count_with_log_files_is_that_of_the_merged_rows() -> None:
    t = lakebed.create(
        "memory://counts/logs", ROWS, key="id", partition_by="day", type="mor", index="bucket", buckets=1
    )
    t.upsert(ROWS)
    t.delete([1, 4])
    assert (t.count(), t.count(where="day = '2026-01-02'"), t.count(where="day = '2026-01-03'")) == (28, 8, 10)


def test_a_column_has_a_constant_only_where_all_row_groups_show_the_same_value() -> None:
    t = lakebed.create("memory://counts/constants", ROWS, key="id", index="bucket", buckets=1)
    t.upsert(ROWS.set_column(2, "city", pa.array(["Oslo"] * 30)))
    (one,) = t.files
    assert one.base_file is not None
    footer = base_file.read_footer(open_storage(t.uri), one.base_file.path)
    assert [footer.constant(name) for name in ("city", "id", "day", "fare", "none")] == ["Oslo", None, None, None, None]
    t.upsert(ROWS)
    (one,) = t.files
    assert one.base_file is not None
    assert base_file.read_footer(open_storage(t.uri), one.base_file.path).constant("city") is None
