"""Rescaling on Spark: what shuffles and what does not, the same rows and files as in this process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.engine.base import Rows
from lakebed.engine.spark import SparkEngine
from lakebed.format.file_names import bucket_of_file_id
from lakebed.index.base import Resizing
from lakebed.operations.context import WriteContext
from lakebed.services import change_index, driver
from lakebed.services.change_index import IndexChoice, rescale, use_index
from lakebed.services.compaction import CompactionRun
from lakebed.services.log_compaction import LogCompaction
from lakebed.services.service import ServiceTransaction
from lakebed.table import Table
from support.compaction_tables import bare, snapshot
from support.tables import context_of
from support.write_tables import SCHEMA, rows

EXCHANGE = re.compile(r"\bExchange\b")


class Watched(SparkEngine):
    """Keeps the plans of what was collected."""

    def __init__(self, spark: Any) -> None:
        super().__init__(spark)
        self.plans: list[str] = []

    def collect(self, rows: Rows) -> pa.Table:
        found = super().collect(rows)
        self.plans.append(rows._jdf.queryExecution().executedPlan().toString())
        return found

    @property
    def exchanges(self) -> int:
        """How often rows were shuffled."""
        # a plan that adapted itself prints what it began as below
        return sum(len(EXCHANGE.findall(plan.partition("== Initial Plan ==")[0])) for plan in self.plans)


def new_table(folder: Path, name: str, **given: Any) -> Table:
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "bucket", "buckets": 2}
    table = lakebed.create(str(folder / name), SCHEMA, properties={"hoodie.compact.inline": False}, **words | given)
    table.upsert(rows(*((n, f"c{n % 2}", f"v{n}", 1) for n in range(80))))
    table.upsert(rows((1, "c1", "newer", 50), (2, "c0", "newer", 50)))
    return table


def placed(table: Table) -> list[tuple[str, int | None, list[dict[str, Any]]]]:
    """The rows of each bucket."""
    found = snapshot(table)
    return [
        (
            s.partition,
            bucket_of_file_id(s.file_id),
            pa.Table.from_batches(found.reader.read(s, ["id", "v"])).to_pylist(),
        )
        for s in found.file_slices()
    ]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_multiple_needs_no_shuffle_and_any_other_count_one(tmp_path: Path, spark: Any, kind: str) -> None:
    table, local = new_table(tmp_path, "spark", type=kind), new_table(tmp_path, "local", type=kind)
    before = bare(table.scan(meta=True).to_arrow())
    for wanted, way, shuffles in (
        (Resizing(6), "split", 0),
        (Resizing(3), "merge", 0),
        (Resizing(4), "overwrite", 1),
        (Resizing(8, ("c1",)), "split", 0),
    ):
        engine = Watched(spark)
        done = rescale(replace(context_of(table), engine=engine), wanted)
        assert (done.plan.way, engine.exchanges) == (way, shuffles), engine.plans
        table = lakebed.open(table.uri)
        assert bare(table.scan(meta=True).to_arrow()) == before
        rescale(context_of(local), wanted)
        here = [(p, n, sorted(map(str, held))) for p, n, held in placed(table)]
        assert here == [(p, n, sorted(map(str, held))) for p, n, held in placed(local)]
        assert table.indexes.verify().ok
    # counts by partition path: each row to the bucket that its path has, and found there
    some = [(n, f"c{n % 3}", "more", 60) for n in range(40, 120)]
    table.upsert(spark.createDataFrame(rows(*some).to_pandas()), options={"lakebed.local.rows": 0})
    table.indexes.index.check(snapshot(table))
    wanted = {row["id"]: row["v"] for row in local.scan().to_arrow().to_pylist()} | {n: v for n, _, v, _ in some}
    held = table.scan().to_arrow()
    assert dict(zip(held["id"].to_pylist(), held["v"].to_pylist(), strict=True)).keys() == wanted.keys()


def test_rows_of_another_index_are_shuffled_to_their_buckets_once(tmp_path: Path, spark: Any) -> None:
    table = new_table(tmp_path, "simple", index="simple", buckets=None)
    before = bare(table.scan(meta=True).to_arrow())
    engine = Watched(spark)
    done = use_index(replace(context_of(table), engine=engine), IndexChoice("bucket", buckets=5))
    assert (done.plan.way, done.rows, engine.exchanges) == ("overwrite", 80, 1)
    table = lakebed.open(table.uri)
    assert bare(table.scan(meta=True).to_arrow()) == before
    table.indexes.index.check(snapshot(table))


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("most", [0, 1 << 40], ids=["above the bound", "below the bound"])
def test_rows_are_moved_by_spark_where_the_files_are_large(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, kind: Any, most: int
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = lakebed.create(str(tmp_path / "t"), schema, key="id", index="simple", type=kind, spark=spark)
    # a small write, and so one of this process: the files have no logs
    table.upsert(pa.table({"id": list(range(50)), "v": ["x"] * 50}, schema))
    monkeypatch.setattr(driver, "IN_PROCESS_BYTES", most)
    engines: list[str] = []
    monkeypatch.setattr(change_index, "run_moves", _noting(engines, change_index.run_moves))
    # which engine moves the rows is seen at the two functions that move them
    monkeypatch.setattr(change_index, "_shuffle", _noting(engines, getattr(change_index, "_shuffle")))  # noqa: B009
    assert table.indexes.use("bucket", buckets=2).rows == 50
    assert table.maintenance.rescale(4).rows == 50
    assert table.maintenance.rescale(6).rows == 50
    assert set(engines) == {"local" if most else "spark"}
    assert len({one.file_id for one in snapshot(table).file_slices()}) == 6
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == list(range(50))


def _noting(engines: list[str], function: Any) -> Any:
    def noted(engine: Any, *given: Any) -> Any:
        engines.append(engine.name)
        return function(engine, *given)

    return noted


def test_due_log_compactions_run_on_spark_where_the_log_files_are_large(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = lakebed.create(
        str(tmp_path / "t"),
        schema,
        key="id",
        index="bucket",
        buckets=1,
        type="mor",
        spark=spark,
        properties={"hoodie.compact.inline": False, "hoodie.log.compaction.inline": True},
    )
    monkeypatch.setattr(driver, "IN_PROCESS_BYTES", 0)
    engines: list[str] = []
    run = LogCompaction.run

    def noted(
        self: LogCompaction, context: WriteContext, tx: ServiceTransaction, plan: Mapping[str, Any]
    ) -> CompactionRun:
        engines.append(context.engine.name)
        return run(self, context, tx, plan)

    monkeypatch.setattr(LogCompaction, "run", noted)
    for n in range(7):
        table.upsert(pa.table({"id": list(range(50)), "v": [f"{n}"] * 50}, schema))
    assert engines
    assert set(engines) == {"spark"}
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == ["6"] * 50
