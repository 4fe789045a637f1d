"""Real Hudi merges lakebed's log blocks by the row numbers in them, and gets the rows that keys give."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from lakebed.table import Table
from oracle.client import HudiOracle
from property.model import DictTable
from support.same_rows import assert_same_rows
from support.sampling import some

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("v", pa.string()),
        ("ts", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
USE = "hoodie.merge.use.record.positions"
ONCE = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}


def data(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{"_hoodie_is_deleted": None, **row} for row in rows], SCHEMA)


@pytest.mark.parametrize("version", some([9, 8], 9))
@pytest.mark.parametrize(("index", "ordering"), [("simple", None), ("global_simple", "ts")])
def test_real_hudi_reads_and_compacts_by_our_numbers(
    tmp_path: Path, oracle: HudiOracle, version: int, index: str, ordering: str | None
) -> None:
    chance = random.Random(f"{version} {index}")
    table = lakebed.create(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering=ordering,
        type="mor",
        index=index,
        table_version=version,
    )
    model = DictTable(event_time=ordering is not None, is_global=index == "global_simple", moves=True)
    first = [{"id": n, "city": f"c{n % 2}", "v": "first", "ts": 5} for n in range(200)]
    table.bulk_insert(data(first))
    model.upsert(first)
    for turn in range(3):
        changed = [
            {
                "id": n,
                "city": f"c{(n + (n % 7 == 0)) % 2}",
                "v": f"turn {turn}",
                "ts": chance.choice((4, 6 + turn)),
                "_hoodie_is_deleted": n % 5 == 0 and n % 7 != 0,
            }
            for n in chance.sample(range(200), 40)
        ]
        # a key that is deleted and comes again has no row to name: that is another test's
        table.upsert(data(changed))
        model.upsert(changed)
        gone = chance.sample(sorted({key for _, key in model.rows}), 5)
        table.delete(gone)
        model.delete_ids(gone)
        found = lakebed.open(table.uri).scan().to_arrow()
        for listed in ("true", "false"):
            assert_same_rows(oracle.read(table.uri, option={USE: listed}), found)
        if ordering is None:
            assert_same_rows(found, data(list(model.rows.values())))
    before = lakebed.open(table.uri).scan().to_arrow()
    more = [{"id": 1000, "city": "c0", "v": "theirs", "ts": 9}]
    oracle.write(table.uri, data(more), options=hudi_job(table) | ONCE)
    after = pa.concat_tables([before, data(more)])
    for found in (lakebed.open(table.uri).scan().to_arrow(), oracle.read(table.uri)):
        assert_same_rows(found, after)


@pytest.mark.parametrize("version", [9, 8])
def test_record_positions_distinguish_repeated_keys_for_real_hudi(
    tmp_path: Path, oracle: HudiOracle, version: int
) -> None:
    """Only they tell the rows of a key apart that stands in a base file twice."""
    table = _with_repeats(tmp_path, version)
    table.upsert(data([{"id": 1, "city": "c", "v": "new", "ts": 6}]))
    table.delete([3])
    rows = [(1, "new"), (1, "new"), (2, "a")]
    assert _rows(lakebed.open(table.uri).scan().to_arrow()) == rows
    assert _rows(oracle.read(table.uri, option={USE: "true"})) == rows
    assert _rows(oracle.read(table.uri, option={USE: "false"})) != rows


def _with_repeats(folder: Path, version: int) -> Table:
    table = lakebed.create(
        str(folder / "t"), SCHEMA, key="id", partition_by="city", type="mor", index="simple", table_version=version
    )
    table.insert(data([{"id": n, "city": "c", "v": "a", "ts": 5} for n in (1, 2, 1, 3, 3)]))
    return table


def _rows(found: pa.Table) -> list[tuple[int, str]]:
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
