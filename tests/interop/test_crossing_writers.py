"""Real Hudi reads tables whose writers crossed, prunes partitions by what they say, and misses no row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import lakebed
from interop.test_metadata_skipping import SKIPPING, found_by_filter
from lakebed.table import Table
from oracle.client import HudiOracle
from property.crossing import Model, Writer, held_writers, table_of, upsert
from support.sampling import INTEROP, todays

SMALL_FILES = {"hoodie.parquet.small.file.limit": 0}


def table_with_rows(folder: Path, version: int) -> Table:
    """Two files in each of two partitions."""
    schema = table_of([], {}).schema
    uri = str(folder / "t")
    stats = ["column_stats", "partition_stats"] if version == 8 else None
    table = lakebed.create(
        uri, schema, key="id", partition_by="city", index="simple", indexes=stats, table_version=version
    )
    for first in (0, 4):
        rows = [row(first + n, f"c{n % 2}", first + n) for n in range(4)]
        table.upsert(table_of(rows, {}), options=SMALL_FILES)
    return lakebed.open(uri)


def row(key: int, city: str, v: int, f: float | None = 1.0) -> dict[str, object]:
    return {"id": key, "city": city, "v": v, "f": f, "s": f"s{v}", "ts": v}


def crossed(uri: str, writes: Sequence[list[dict[str, object]]], order: Sequence[int]) -> list[BaseException | None]:
    """Upserts that begin in the given order and commit in that of `order`."""
    with held_writers():
        writers = [Writer(uri, upsert(str(n), rows, {}, SMALL_FILES)) for n, rows in enumerate(writes)]
        for writer in writers:
            writer.step(Model(False))
            writer.step(Model(False))
        for n in order:
            writers[n].step(Model(False))
    return [writer.error for writer in writers]


FILTERS = (
    "v = 1000",
    "v = 2000",
    "v >= 1000",
    "v < 3",
    "s = 's1000'",
    "f > 5",
    "f = double('NaN')",
    "f <= 1",
    "v = 77",
)


@pytest.mark.full
@pytest.mark.parametrize("version", todays([9, 8], 2, INTEROP))
def test_rows_of_both_writers_are_found_by_filters(version: int, tmp_path: Path, oracle: HudiOracle) -> None:
    table = table_with_rows(tmp_path, version)
    errors = crossed(
        table.uri,
        [[row(100, "c0", 1000, 7.0), row(101, "c1", 500)], [row(200, "c0", 2000), row(201, "c1", -5, 9.0)]],
        order=[1, 0],
    )
    assert errors == [None, None]
    assert_same_answers(oracle, table)
    # three of them, the last to begin first; rows that go, and a partition path that becomes wide
    errors = crossed(
        table.uri,
        [[row(102, "c0", 3000), row(103, "c2", 3)], [row(202, "c0", 77, 8.0)], [row(302, "c0", -77, -8.0)]],
        order=[2, 0, 1],
    )
    assert errors == [None, None, None]
    assert_same_answers(oracle, table)
    table.delete([102, 100])
    assert_same_answers(oracle, table)


def assert_same_answers(oracle: HudiOracle, table: Table) -> None:
    assert oracle.problems(table.uri) == []
    conditions = ", ".join(f"coalesce({where}, false) as c{n}" for n, where in enumerate(FILTERS))
    without = SKIPPING | {"hoodie.enable.data.skipping": "false"}
    every = oracle.ask("sql", sql=f"select id, {conditions} from {{t}}", table=table.uri, conf=without)["data"]
    expected = {where: sorted(r["id"] for r in every if r[f"c{n}"]) for n, where in enumerate(FILTERS)}
    assert found_by_filter(oracle, table, FILTERS, SKIPPING) == expected
    for where in FILTERS:
        found = lakebed.open(table.uri).scan(where=where)
        assert sorted(found.to_arrow().column("id").to_pylist()) == expected[where], where
