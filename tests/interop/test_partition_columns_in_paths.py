"""Tables of real Hudi whose partition columns are left out of their files, after its deletes and its clustering."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.storage import open_storage
from oracle.client import HudiOracle
from support.sampling import some

W = "hoodie.datasource.write."
JOB = {
    "hoodie.table.name": "t",
    W + "recordkey.field": "id",
    W + "partitionpath.field": "day,hour",
    W + "precombine.field": "ts",
    W + "keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
    W + "drop.partition.columns": "true",
    W + "hive_style_partitioning": "true",
    "hoodie.write.complex.keygen.validation.enable": "false",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.index.type": "SIMPLE",
}
CLUSTER = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}
Row = tuple[int, str, str, str]


def rows(ids: range, text: str, ts: int) -> pa.Table:
    columns = [list(ids), [f"d{n % 2}" for n in ids], [str(n % 3) for n in ids], [text] * len(ids), [ts] * len(ids)]
    return pa.table(columns, names=["id", "day", "hour", "text", "ts"])


def visible_rows(found: pa.Table) -> list[Row]:
    return sorted((r["id"], r["day"], r["hour"], r["text"]) for r in found.to_pylist())


@pytest.mark.rest
@pytest.mark.parametrize("version", some(["9", "6"], "6"))
def test_all_reads_take_the_values_from_the_paths(version: str, tmp_path: Path, oracle: HudiOracle) -> None:
    folder, job = tmp_path / "t", {**JOB, "hoodie.write.table.version": version}
    model = dict.fromkeys(range(12), "a")

    def check() -> None:
        expected = sorted((n, f"d{n % 2}", str(n % 3), text) for n, text in model.items())
        table = lakebed.open(str(folder))
        assert visible_rows(oracle.read(folder)) == expected
        assert visible_rows(oracle.incremental(folder, "000")) == expected
        assert visible_rows(table.scan().to_arrow()) == expected
        assert visible_rows(table.changes("000").to_arrow()) == expected
        assert visible_rows(table.get(list(range(12)))) == expected
        some = [row for row in expected if row[1:3] == ("d1", "2")]
        assert visible_rows(table.scan(where="day = 'd1' AND hour = '2'").to_arrow()) == some

    oracle.write(folder, rows(range(12), "a", 1), "upsert", job, "overwrite")
    oracle.write(folder, rows(range(1, 2), "", 2), "delete", job)
    del model[1]
    check()
    oracle.write(folder, rows(range(2, 5), "c", 3), "upsert", {**job, **CLUSTER})
    model.update(dict.fromkeys(range(2, 5), "c"))
    check()
    first = open_snapshot(open_storage(str(folder))).commits[0]
    before = lakebed.open(str(folder)).scan(as_of=first.time).to_arrow()
    assert visible_rows(before) == sorted((n, f"d{n % 2}", str(n % 3), "a") for n in range(12))
    lakebed.open(str(folder)).upsert(rows(range(5, 7), "e", 4))
    model.update(dict.fromkeys(range(5, 7), "e"))
    check()
