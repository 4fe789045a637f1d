"""Change logs that lakebed writes, read by real Hudi's CDC query; and change logs of histories that both wrote."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.test_tables_for_hudi import make, rows
from lakebed.table import Table
from oracle.client import HudiOracle
from support.sampling import INTEROP, todays

CDC = {"hoodie.datasource.query.incremental.format": "cdc"}


LOGGED = (
    ("OP_KEY_ONLY", 9, "cow"),
    ("DATA_BEFORE", 9, "cow"),
    ("DATA_BEFORE_AFTER", 9, "cow"),
    ("DATA_BEFORE_AFTER", 8, "cow"),
    ("OP_KEY_ONLY", 6, "cow"),
    ("DATA_BEFORE_AFTER", 9, "mor"),
)


@pytest.mark.parametrize(("mode", "version", "type_"), todays(LOGGED, 2, INTEROP))
def test_both_give_the_same_changes(mode: str, version: int, type_: str, tmp_path: Path, oracle: HudiOracle) -> None:
    properties = {"hoodie.table.cdc.enabled": True, "hoodie.table.cdc.supplemental.logging.mode": mode}
    table = make(tmp_path, table_version=version, type=type_, properties=properties)
    options = hudi_job(table) | {"hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"}
    table.upsert(rows(range(12), "a", 1))
    table.upsert(rows(range(6, 18), "b", 2), options={"hoodie.compact.inline": False})
    assert_same_changes(oracle, table)
    table.delete([1, 7])
    oracle.write(table.uri, rows(range(15, 24), "c", 3), options=options)
    table.upsert(rows(range(2, 5), "late", 0), options={"hoodie.compact.inline": False})
    table.insert_overwrite(rows(range(1, 30, 6), "d", 4))
    table.delete_partitions(["c2"])
    table.upsert(rows(range(20, 40), "e", 5), options={"hoodie.compact.inline": False})
    assert_same_changes(oracle, table)


def assert_same_changes(oracle: HudiOracle, table: Table) -> None:
    theirs = oracle.incremental(table.uri, "000", option=CDC).to_pylist()
    mine = lakebed.open(table.uri).cdc("000", images="json").to_arrow().to_pylist()
    assert len(mine) > 0
    missing, more = Counter(map(_change, theirs)), Counter(map(_change, mine))
    assert (missing - more, more - missing) == (Counter(), Counter())


def _change(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["op"], row["ts_ms"], _image(row["before"]), _image(row["after"])


def _image(text: str | None) -> tuple[Any, ...] | None:
    if text is None or text == "null":
        return None
    return tuple(sorted((k, v) for k, v in json.loads(text).items() if not k.startswith("_hoodie_")))
