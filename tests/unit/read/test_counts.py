"""Counts: of what is recorded of files, or of footers, and equal to the number of rows that a read gives; the same of
least and greatest values in statements.
"""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.format import base_file
from lakebed.model import CommitMetadata
from lakebed.opened_table import OpenedTable
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.testing import CountingStorage
from support.golden_tables import GoldenTable, golden, golden_tables, some_tables

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
    return lakebed.Table(OpenedTable(storage, load_table_config(storage))), storage


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_count_is_the_number_of_rows_that_a_read_gives(table: lakebed.Table, condition: str | None) -> None:
    assert table.count(where=condition) == table.scan(where=condition).to_arrow().num_rows


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
    # files that lack the partition columns have no statistics of them: a footer has the number of rows
    has_columns = table.properties["hoodie.datasource.write.drop.partition.columns"] == "false"
    assert len(data_files(storage)) == (0 if has_columns else 1)
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


def data_files(storage: CountingStorage) -> set[str]:
    """The base files that were opened."""
    return {path for path in storage.opened if path.endswith(".parquet") and ".hoodie" not in path}


def answers(table: Any, columns: list[str], where: str = "") -> list[dict[str, Any]]:
    """Number of rows, and least and greatest value of each column, by a statement."""
    sides = ", ".join(f'min("{c}") as "{c}_min", max("{c}") as "{c}_max"' for c in columns)
    found: Any = lakebed.sql(f"select {sides}, count(*) as rows from t {where}", tables={"t": table})
    return found.to_pylist()


# Every kind of statistics: none, by commits alone, with log files, with old schemas, by both releases.
SOME_GOLDEN = ("v9_cow_mdt_all", "v6_mor_mdt_basic", "v9_mor_rich_types", "v9_cow_evolve_write", "v9_mor_evolve_write")


@pytest.mark.parametrize("without_metadata", [False, True])
@pytest.mark.parametrize("source", some_tables(golden_tables(), SOME_GOLDEN), ids=str)
def test_counts_of_tables_of_hudi_are_those_of_their_rows(
    source: GoldenTable, without_metadata: bool, tmp_path: Path
) -> None:
    folder = source.unpack_without_metadata_table(tmp_path) if without_metadata else source.unpack(tmp_path)
    t = lakebed.open(str(folder))
    rows = t.to_arrow()
    assert t.count() == len(rows)
    for field in t.scan().snapshot.config.partition_fields:
        for value in rows[field].unique() if field in rows.column_names else ():
            condition = pc.field(field) == value if value.is_valid else pc.field(field).is_null()
            # not those of `rows`: where Hudi left a row in the partition path of an older value, both are the path's
            assert t.scan(where=condition).count() == t.scan(where=condition).to_arrow().num_rows
    plain = [f.name for f in rows.schema if not pa.types.is_nested(f.type)]
    assert str(answers(t, plain)) == str(answers(rows, plain))  # as texts NaN is equal to NaN


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("with_metadata", [True, False])
def test_a_count_opens_no_base_file_that_lakebed_wrote(version: int, with_metadata: bool) -> None:
    t = lakebed.create(
        f"memory://counts/none-{version}-{with_metadata}",
        ROWS,
        key="id",
        partition_by="day",
        type="mor",
        index="bucket",
        buckets=2,
        table_version=version,
        properties={"hoodie.metadata.enable": str(with_metadata).lower()},
    )
    t.upsert(ROWS)
    t.upsert(ROWS.slice(0, 1))
    other, storage = counting(t)
    assert other.count() == 30
    assert len(data_files(storage)) == 1  # the one with a log file


def test_least_and_greatest_values_open_no_file_where_they_are_recorded() -> None:
    t = lakebed.create("memory://counts/extremes", ROWS, key="id", partition_by="day", index="bucket", buckets=2)
    t.upsert(ROWS.filter(pc.field("fare") > 0))
    other, storage = counting(t)
    expected = {"id_min": 1, "id_max": 29, "city_min": "Oslo", "city_max": "Rome", "fare_min": 0.5, "fare_max": 14.5}
    assert answers(other, ["id", "city", "fare"]) == [{**expected, "rows": 29}]
    assert answers(other, ["id"], "where day = '2026-01-02'") == [{"id_min": 1, "id_max": 28, "rows": 10}]
    assert answers(other, ["id"], "where day = '2027-01-01'") == [{"id_min": None, "id_max": None, "rows": 0}]
    assert not data_files(storage)
    # a condition on other columns, and a column that is only counted, are read
    assert answers(other, ["id"], "where id % 2 = 0") == [{"id_min": 2, "id_max": 28, "rows": 14}]
    found: Any = lakebed.sql("select max(id) as m, count(city) as n from t", tables={"t": other})
    assert found.to_pylist() == [{"m": 29, "n": 25}]
    assert data_files(storage)


@pytest.mark.parametrize(
    "fares", [[math.nan, 1.0], [-0.0, 0.0], [math.inf, -math.inf], [None, None], [None, 2.5]], ids=str
)
def test_values_without_an_order_in_statistics_are_read(fares: list[float | None]) -> None:
    rows = pa.table({"id": [1, 2], "fare": pa.array(fares, pa.float64()), "text": ["\ue000", "\U00010000"]})
    t = lakebed.create(f"memory://counts/odd-{fares}", rows, key="id", index="bucket", buckets=1)
    t.upsert(rows)
    assert str(answers(t, ["fare", "text"])) == str(answers(rows, ["fare", "text"]))


def test_a_number_of_hudi_counts_only_where_write_stat_and_statistics_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write stat of real Hudi counts rows that could not be written, too; statistics recorded twice are added up."""
    t, storage = counting(lakebed.open(str(golden("v9_cow_mdt_all").unpack(tmp_path))))
    rows = len(t.to_arrow())
    storage.reset()
    assert t.count() == rows
    assert not data_files(storage)
    wrong = {one.base_file.path: rows + 1 for one in t.files if one.base_file is not None}
    monkeypatch.setattr(CommitMetadata, "rows_by_path", wrong)
    assert t.count() == rows
    assert data_files(storage)
