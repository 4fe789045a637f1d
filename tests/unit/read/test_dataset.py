"""A table as an Arrow dataset: what DuckDB and polars hand over, what is opened, and the same rows as a scan."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import lakebed
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.opened_table import OpenedTable
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.testing import CountingStorage

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
ROWS = pa.table(
    {
        "id": pa.array(range(60), pa.int64()),
        "day": [DAYS[n % 3] for n in range(60)],
        "city": [None if n % 7 == 0 else f"c{n % 5}" for n in range(60)],
        "fare": [float("nan") if n == 11 else n / 2 for n in range(60)],
    }
)
QUERIES = {
    "everything": "select count(*), sum(id) from {}",
    "equal": "select id, fare from {} where id = 7",
    "in": "select id from {} where id in (3, 4, 100)",
    "not in": "select id from {} where city not in ('c1', 'c2')",
    "in with null": "select id from {} where city in ('c1', null)",
    "range": "select id from {} where id between 10 and 20 and day = '2026-01-02'",
    "or": "select id from {} where id = 3 or city = 'c4'",
    "is null": "select id from {} where city is null or id = 1",
    "is not null": "select id from {} where city is not null and id < 9",
    "like": "select id from {} where city like '%3'",
    "function": "select id from {} where upper(city) = 'C3'",
    "nan": "select id from {} where fare > 29 or fare = 'nan'::double",
    "join": "select a.id, a.city from {} a join (values (5), (59)) b(id) using (id)",
    "last column first": "select fare, id from {} where day > '2026-01-02' and id < 20",
    "constant": "select 1 from {} where day = '2026-01-01'",
}


@pytest.fixture(scope="module", params=["cow", "mor"])
def table(request: pytest.FixtureRequest) -> lakebed.Table:
    uri = f"memory://dataset/{request.param}"
    t = lakebed.create(uri, ROWS, key="id", partition_by="day", type=request.param, index="bucket", buckets=4)
    t.upsert(ROWS)
    if request.param == "mor":
        t.upsert(ROWS.slice(0, 12))
    return t


@pytest.mark.parametrize("query", QUERIES)
def test_duckdb_gets_the_rows_that_it_gets_of_the_same_rows_in_memory(table: lakebed.Table, query: str) -> None:
    text = QUERIES[query]
    memory, dataset = ROWS, table.dataset()
    assert memory.num_rows == dataset.count_rows()
    found = duckdb.sql(text.format("dataset")).fetchall()
    assert sorted(map(str, found)) == sorted(map(str, duckdb.sql(text.format("memory")).fetchall()))
    assert found


def opened_files(storage: CountingStorage) -> set[str]:
    return {path for path in storage.opened if path.endswith(".parquet") and not path.startswith(".hoodie")}


def counting(table: lakebed.Table) -> tuple[lakebed.Table, CountingStorage]:
    storage = CountingStorage(open_storage(table.uri))
    return lakebed.Table(OpenedTable(storage, load_table_config(storage))), storage


def test_a_point_query_of_duckdb_opens_one_file(table: lakebed.Table) -> None:
    other, storage = counting(table)
    dataset = other.dataset()  # noqa: F841 - the query names it
    storage.reset()
    found = duckdb.sql("select fare from dataset where id = 7 and day = '2026-01-02'").fetchall()
    assert found == [(3.5,)]
    assert len(opened_files(storage)) == 1


def test_in_of_duckdb_rules_out_files_as_the_same_condition_of_a_scan_does(table: lakebed.Table) -> None:
    other, storage = counting(table)
    dataset = other.dataset()  # noqa: F841 - the query names it
    storage.reset()
    assert sorted(duckdb.sql("select id from dataset where day in ('2026-01-02') and id in (1, 4)").fetchall()) == [
        (1,),
        (4,),
    ]
    by_dataset = opened_files(storage)
    storage.reset()
    other.scan(["id"], "day in ('2026-01-02') and id in (1, 4)").to_arrow()
    assert by_dataset == opened_files(storage)
    assert len(by_dataset) <= 2 < len(table.files)


def test_the_scanner_gives_the_columns_asked_for_in_their_order(table: lakebed.Table) -> None:
    dataset = table.dataset()
    assert dataset.schema == table.scan().schema
    assert dataset.scanner(["fare", "id"], pc.field("day") == DAYS[0]).to_table().schema.names == ["fare", "id"]
    doubled = dataset.to_table({"twice": pc.field("id") * 2}, filter=pc.field("id") == 7)
    assert doubled.to_pylist() == [{"twice": 14}]
    assert dataset.to_table([]).num_rows == 60
    assert max(batch.num_rows for batch in dataset.to_batches(["id"], batch_size=5)) == 5
    assert dataset.head(3, ["id"]).num_rows == 3
    assert dataset.count_rows(pc.field("city") == "c1") == table.count(where="city = 'c1'") > 0
    with pytest.raises(InvalidOption, match="no column 'cty'"):
        dataset.to_table(["cty"])


def test_a_condition_without_a_simple_form_is_evaluated_after_the_read(table: lakebed.Table) -> None:
    condition = pc.match_substring_regex(pc.field("city"), "[34]$") | (pc.bit_wise_and(pc.field("id"), 1) == 1)
    expected = ds.dataset(ROWS).to_table(["id"], filter=condition).sort_by("id")
    assert table.dataset().to_table(["id"], filter=condition).sort_by("id") == expected
    narrowed = table.dataset().filter(pc.field("id") < 20).filter(pc.field("day") == DAYS[1])
    assert sorted(narrowed.to_table(["id"])["id"].to_pylist()) == [1, 4, 7, 10, 13, 16, 19]
    assert narrowed.count_rows(pc.field("id") > 15) == 2


def test_a_dataset_shows_one_instant_also_after_writes_and_in_another_process() -> None:
    t = lakebed.create("memory://dataset/instants", ROWS.slice(0, 3), key="id", index="bucket", buckets=1)
    t.upsert(ROWS.slice(0, 3))
    first, dataset = t.timeline.last, t.dataset()
    assert first is not None
    t.upsert(ROWS.slice(3, 4))
    assert (dataset.count_rows(), t.dataset().count_rows(), t.dataset(as_of=first.time).count_rows()) == (3, 7, 3)
    assert pickle.loads(pickle.dumps(dataset)).to_table(["id"]).num_rows == 3


def test_methods_of_datasets_that_have_no_meaning_here_raise_and_the_others_work(table: lakebed.Table) -> None:
    dataset = table.dataset()
    with pytest.raises(UnsupportedFeature, match="no fragments"):
        dataset.get_fragments()
    with pytest.raises(UnsupportedFeature, match="types"):
        dataset.replace_schema(pa.schema([]))
    assert dataset.sort_by([("id", "descending")]).to_table(["id"])["id"][0].as_py() == 59
    assert dataset.join(table.dataset(), "id", right_suffix="_2").to_table().num_rows == 60
    assert dataset.take(pa.array([0, 1]), columns=["id"]).num_rows == 2
    assert dataset.partition_expression.equals(pc.scalar(True))


def test_polars_pushes_columns_and_conditions_to_a_dataset(table: lakebed.Table) -> None:
    other, storage = counting(table)
    lazy = pl.scan_pyarrow_dataset(other.dataset())
    storage.reset()
    found = lazy.filter((pl.col("id") == 7) & (pl.col("day") == DAYS[1])).select("fare", "id").collect()
    assert found.rows() == [(3.5, 7)]
    assert len(opened_files(storage)) == 1
    assert lazy.head(4).collect().height == 4


@pytest.mark.rest
@pytest.mark.parametrize(
    "read",
    [
        "lakebed.sql('select * from t limit 3', tables={'t': t}).to_arrow().num_rows",
        "len(duckdb.connect().register('t', t.dataset()).sql('select * from t limit 3').fetchall())",
        "t.dataset().scanner().head(3).num_rows",
        "t.dataset().scanner({'twice': pc.field('id') + pc.field('id')}).head(3).num_rows",
        "next(t.dataset().scanner().to_reader()).slice(0, 3).num_rows",
    ],
)
def test_a_process_that_stops_reading_early_ends_as_others_do(tmp_path: Path, read: str) -> None:
    uri = str(tmp_path / "t")
    rows = pa.table({"id": range(4000), "city": [f"c{n % 40}" for n in range(4000)]})
    table = lakebed.create(uri, rows, key="id", partition_by="city", index="simple")
    table.upsert(rows)
    program = f"import duckdb, lakebed, pyarrow.compute as pc; t = lakebed.open({uri!r}); print({read})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "3", "")


def test_a_scanner_gives_its_rows_by_each_of_arrows_ways() -> None:
    rows = pa.table({"id": range(5)})
    table = lakebed.create("memory://dataset/scanner", rows, key="id", index="bucket", buckets=2)
    table.upsert(rows)
    scanner = table.dataset().scanner(["id"], pc.field("id") > 0)
    assert (
        scanner.projected_schema
        == scanner.dataset_schema
        == scanner.to_reader().schema
        == pa.schema([("id", pa.int64())])
    )
    for found in (
        scanner.to_table(),
        scanner.to_reader().read_all(),
        pa.Table.from_batches(scanner.to_batches()),
        pa.Table.from_batches([tagged.record_batch for tagged in scanner.scan_batches()]),
        scanner.head(9),
    ):
        assert sorted(found["id"].to_pylist()) == [1, 2, 3, 4]
    assert scanner.count_rows() == 4
    assert scanner.head(2).num_rows == 2
    assert scanner.head(0).num_rows == 0
    assert scanner.take([0, 3]) == scanner.to_table().take([0, 3])
    twice = table.dataset().scanner({"twice": pc.field("id") + pc.field("id")})
    assert twice.projected_schema == pa.schema([("twice", pa.int64())])
    assert sorted(twice.to_table()["twice"].to_pylist()) == [0, 2, 4, 6, 8]
