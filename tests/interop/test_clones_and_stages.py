"""Real Hudi reads and writes clones, their sources, and tables that stages wrote to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from oracle.client import HudiOracle
from support.bootstrapped import digests, rows_by_key
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays

BUCKETS = {"index": "bucket", "buckets": 2}
CLONES: tuple[tuple[str, int, dict[str, Any], bool], ...] = (
    ("cow", 9, {"index": "simple"}, False),
    ("mor", 9, BUCKETS, True),
    ("mor", 9, {"index": "bloom"}, False),
    ("cow", 6, {"index": "simple"}, True),
    ("cow", 8, BUCKETS, False),
)
STAGES = (("mor", 9, BUCKETS), ("cow", 9, {"index": "record"}), ("mor", 6, {"index": "bloom"}))


def rows(*numbers: int, fare: float, ts: int) -> pa.Table:
    cities = ["Oslo" if number % 2 else "Rome" for number in numbers]
    return pa.table(
        {"id": [*numbers], "city": cities, "fare": [float(fare + n) for n in numbers], "ts": [ts] * len(numbers)}
    )


def put(expected: dict[Any, Any], batch: pa.Table) -> dict[Any, Any]:
    return expected | {row["id"]: row for row in batch.to_pylist()}


def created(uri: Path, kind: Any, version: int, settings: dict[str, Any], *, hive: bool) -> lakebed.Table:
    style = {"hoodie.datasource.write.hive_style_partitioning": hive}
    t = lakebed.create(
        str(uri),
        rows(1, fare=0, ts=1).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,
        table_version=version,
        properties=style,
        **settings,
    )
    t.upsert(rows(*range(40), fare=0.5, ts=1))
    return t


def agree(table: lakebed.Table, oracle: HudiOracle, expected: dict[Any, Any]) -> None:
    """Both read these rows."""
    hudi = oracle.read(table.uri)
    opened = lakebed.open(table.uri)
    assert_same_rows(opened.scan(columns=hudi.column_names).to_arrow(), hudi)
    assert rows_by_key(opened) == expected


@pytest.mark.parametrize(("kind", "version", "settings", "hive"), todays(CLONES, 2, INTEROP))
def test_hudi_reads_and_writes_a_clone_and_its_source(
    kind: str, version: int, settings: dict[str, Any], hive: bool, tmp_path: Path, oracle: HudiOracle
) -> None:
    source = created(tmp_path / "source", kind, version, settings, hive=hive)
    of_source = put({}, rows(*range(40), fare=0.5, ts=1))
    clone = source.clone(str(tmp_path / "clone"))
    of_clone = dict(of_source)
    agree(clone, oracle, of_clone)

    before = digests(tmp_path / "source")
    oracle.write(clone.uri, rows(1, 2, 100, fare=50, ts=5), options=hudi_job(clone), keep_indexes=False)
    of_clone = put(of_clone, rows(1, 2, 100, fare=50, ts=5))
    agree(clone, oracle, of_clone)
    clone = lakebed.open(clone.uri)
    clone.upsert(rows(2, 3, 101, fare=70, ts=7))
    clone.delete([4])
    of_clone = put(of_clone, rows(2, 3, 101, fare=70, ts=7))
    del of_clone[4]
    agree(clone, oracle, of_clone)
    assert digests(tmp_path / "source") == before

    oracle.write(source.uri, rows(1, 200, fare=90, ts=9), options=hudi_job(source), keep_indexes=False)
    lakebed.open(source.uri).upsert(rows(2, fare=90, ts=9))
    of_source = put(of_source, rows(1, 2, 200, fare=90, ts=9))
    agree(source, oracle, of_source)
    agree(clone, oracle, of_clone)


@pytest.mark.parametrize(("kind", "version", "settings"), todays(STAGES, 1, INTEROP))
def test_hudi_reads_and_writes_a_table_with_staged_commits(
    kind: str, version: int, settings: dict[str, Any], tmp_path: Path, oracle: HudiOracle
) -> None:
    table = created(tmp_path / "table", kind, version, settings, hive=False)
    expected = put({}, rows(*range(40), fare=0.5, ts=1))
    for turn in range(2, 4):
        with table.stage() as staged:
            staged.upsert(rows(1, 50 + turn, fare=turn, ts=turn))
            hudi = oracle.read(table.uri)  # real Hudi does not see the pending commit
            assert sorted(hudi["id"].to_pylist()) == sorted(expected)
            staged.commit()
        expected = put(expected, rows(1, 50 + turn, fare=turn, ts=turn))
        agree(table, oracle, expected)
        with table.stage() as staged:
            staged.delete([1, 2, 3])
        agree(table, oracle, expected)
        batch = rows(2, 80 + turn, fare=10 * turn, ts=turn)
        oracle.write(table.uri, batch, options=hudi_job(table), keep_indexes=settings["index"] == "record")
        expected = put(expected, batch)
        agree(table, oracle, expected)
        table = lakebed.open(table.uri)
