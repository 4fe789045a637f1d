"""Files whose row groups were copied as bytes: every reader reads them, real Hudi and lakebed merge them again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakebed
from interop.hudi_jobs import assert_both_read, hudi_job, replaced
from lakebed.format.row_groups.assembled import AssembledFile
from lakebed.handles import file_writer, stored_rows
from lakebed.table import Table
from oracle.client import HudiOracle
from support.same_rows import assert_same_rows

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("word", pa.string()),
        ("number", pa.float64()),
        ("count", pa.int32()),
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("place", pa.struct([("x", pa.float64()), ("name", pa.string())])),
        ("list", pa.list_(pa.int32())),
    ]
)
# Real Hudi writes lists of other shapes, and its files are copied where the columns are of the same.
FLAT = pa.schema([f for f in SCHEMA if not pa.types.is_nested(f.type)])
GROUP = 40
ROWS = 8 * GROUP
ZSTD = {"hoodie.parquet.compression.codec": "zstd"}


class Counted(AssembledFile):
    """Every file that was put together of stored row groups."""

    made: list[Counted]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        Counted.made.append(self)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", GROUP)
    monkeypatch.setattr(file_writer, "SORTED_ROW_GROUP_ROWS", GROUP)
    monkeypatch.setattr(file_writer, "AssembledFile", Counted)
    monkeypatch.setattr(stored_rows, "_WORTH_COPYING", 1)
    Counted.made = []


def some(dice: random.Random, keys: Sequence[int], ts: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    def row(key: int) -> dict[str, Any]:
        return {
            "id": f"key-{key:05}",
            "ts": ts,
            "word": dice.choice(["oak", "elm", None]),
            "number": dice.choice([dice.random(), None, -0.0]),
            "count": dice.randrange(1000),
            "price": Decimal(dice.randrange(10**6)).scaleb(-2),
            "day": date(1950, 1, 1) + timedelta(days=dice.randrange(30000)),
            "at": datetime(1960, 1, 1, tzinfo=UTC) + timedelta(seconds=dice.randrange(10**9)),
            "flag": dice.random() < 0.5,
            "raw": dice.randbytes(5),
            "place": dice.choice([None, {"x": dice.random(), "name": "here"}]),
            "list": [dice.randrange(9) for _ in range(dice.randrange(3))],
        }

    return pa.Table.from_pylist([{n: v for n, v in row(key).items() if n in schema.names} for key in keys], schema)


def written(folder: Path, dice: random.Random, schema: pa.Schema = SCHEMA, **words: Any) -> tuple[Table, pa.Table]:
    """A table after a load, an upsert of one row group, one of two columns, a delete, and inserts; and its rows."""
    given: dict[str, Any] = {"properties": {"hoodie.metadata.enable": False}, **words}
    table = lakebed.create(str(folder / "table"), schema, key="id", ordering="ts", index="simple", **given)
    rows = some(dice, range(ROWS), 1, schema)
    table.upsert(rows)
    for first, ts in ((GROUP + 3, 2), (3 * GROUP, 3)):
        batch = some(dice, range(first, first + 9), ts, schema)
        table.upsert(batch)
        rows = replaced(rows, batch, ["id"])
    part = some(dice, range(0, ROWS, 5), 4, schema).select(["id", "ts", "word"])
    table.upsert(part, options={"lakebed.write.partial": True})
    words_of = dict(zip(part["id"].to_pylist(), part["word"].to_pylist(), strict=True))
    changed = [{**r, "ts": 4, "word": words_of[r["id"]]} if r["id"] in words_of else r for r in rows.to_pylist()]
    rows = pa.Table.from_pylist(changed, schema)
    table.delete([f"key-{n:05}" for n in (5, 6, 100)])
    more = some(dice, range(ROWS, ROWS + 15), 5, schema)
    table.upsert(more)
    kept = pa.array([key not in ("key-00005", "key-00006", "key-00100") for key in rows["id"].to_pylist()])
    rows = pa.concat_tables([rows.filter(kept), more])
    copied = [one.traffic.copied_groups for one in Counted.made]
    assert copied[:2] == [7, 7]
    assert copied[3] >= 6
    assert copied[4] >= 7
    return table, rows


def newest(table: Table) -> str:
    (file,) = lakebed.open(table.uri).scan().files
    return str(Path(table.uri) / file.path)


def hudi_goes_on(oracle: HudiOracle, folder: Path, version: int, **words: Any) -> None:
    """Both write in turn, in the same codec: row groups of real Hudi's files are copied, too."""
    dice = random.Random(version)
    table, rows = written(folder, dice, FLAT, table_version=version, **words)
    assert_both_read(oracle, table, rows)
    for turn in range(2):
        batch = some(dice, [17 + turn, 8, ROWS + 90 + turn], 6 + 2 * turn, FLAT)
        oracle.write(table.uri, batch, options={**hudi_job(table), **ZSTD})
        rows = replaced(rows, batch, ["id"])
        assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), rows)
        before = len(Counted.made)
        batch = some(dice, [9, 200 + turn], 7 + 2 * turn, FLAT)
        lakebed.open(table.uri).upsert(batch)
        rows = replaced(rows, batch, ["id"])
        assert len(Counted.made) == before + 1
        assert Counted.made[-1].traffic.copied_bytes > 0
        assert_both_read(oracle, table, rows)


@pytest.mark.parametrize("version", [9, 6])
def test_hudi_reads_every_type_and_goes_on(oracle: HudiOracle, version: int, tmp_path: Path) -> None:
    table, rows = written(tmp_path, random.Random(1), table_version=version)
    assert_both_read(oracle, table, rows)
    hudi_goes_on(oracle, tmp_path / "flat", version)


@pytest.mark.full
@pytest.mark.parametrize(
    ("older_oracle", "version"), [("1.0.2", 8), ("0.15.0", 6)], indirect=["older_oracle"], ids=["1.0.2", "0.15.0"]
)
def test_older_releases_read_and_go_on(older_oracle: HudiOracle, version: int, tmp_path: Path) -> None:
    table, rows = written(tmp_path, random.Random(2), table_version=version)
    assert_both_read(older_oracle, table, rows)
    hudi_goes_on(older_oracle, tmp_path / "flat", version)


@pytest.mark.parametrize("sort", ["none", "key"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_arrow_polars_and_hudi_rs_read_them(version: int, sort: str, tmp_path: Path) -> None:
    hudi = pytest.importorskip("hudi")
    table, rows = written(tmp_path, random.Random(3), table_version=version, sort=sort)
    found = hudi.HudiTableBuilder.from_base_uri(table.uri).build().read(hudi.HudiReadOptions())
    assert_same_rows(pa.Table.from_batches([pa.record_batch(batch) for batch in found]), rows)
    assert_same_rows(pl.read_parquet(newest(table)).to_arrow().select(SCHEMA.names), rows)
    assert_same_rows(pq.read_table(newest(table), page_checksum_verification=True).select(SCHEMA.names), rows)
    some_keys = ["key-00042", "key-00100", f"key-{ROWS + 3:05}", "key-00000"]
    kept = pa.array([key in some_keys for key in rows["id"].to_pylist()])
    assert_same_rows(lakebed.open(table.uri).get(some_keys), rows.filter(kept))


def without_others(path: str, key: str, folder: Path) -> str:
    """A copy of the file in which only the row group of that key is whole: whoever reads another one fails."""
    file, data = pq.ParquetFile(path), bytearray(Path(path).read_bytes())
    at = SCHEMA.names.index("id") + 5  # behind the meta columns
    for n in range(file.num_row_groups):
        group = file.metadata.row_group(n)
        held = group.column(at).statistics
        if held.min <= key <= held.max:
            continue
        for column in map(group.column, range(group.num_columns)):
            start = column.dictionary_page_offset or column.data_page_offset
            data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    other = folder / "damaged.parquet"
    other.write_bytes(data)
    return str(other)


@pytest.mark.parametrize("sort", ["none", "key"])
def test_duckdb_reads_them_and_skips_by_their_statistics(sort: str, tmp_path: Path) -> None:
    table, rows = written(tmp_path, random.Random(5), sort=sort)
    path = newest(table)
    names = ", ".join(f'"{name}"' for name in SCHEMA.names)
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        found = connection.sql(f"select {names} from read_parquet('{path}')").to_arrow_table()
        assert_same_rows(found.cast(SCHEMA), rows)
        asked = f"select id, ts, word from read_parquet('{{}}') where id = 'key-{GROUP + 5:05}'"
        expected = rows.filter(pc.equal(rows["id"], f"key-{GROUP + 5:05}")).select(["id", "ts", "word"])
        assert expected.num_rows == 1
        damaged = without_others(path, f"key-{GROUP + 5:05}", tmp_path)
        for one in (path, damaged):
            assert connection.sql(asked.format(one)).to_arrow_table().to_pylist() == expected.to_pylist()
        with pytest.raises(duckdb.Error):
            connection.sql(f"select {names} from read_parquet('{damaged}')").to_arrow_table()
