"""Complex keys of one field that are stored as `1`, not `id:1`: real Hudi and lakebed write on by turns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from oracle.client import HudiOracle

OPTION = "hoodie.write.complex.keygen.new.encoding"
UNCHECKED = {"hoodie.write.complex.keygen.validation.enable": "false"}


def rows(ids: list[int], v: str) -> pa.Table:
    return pa.table({"id": ids, "a": ["x"] * len(ids), "b": ["y"] * len(ids), "v": [f"{v}{i}" for i in ids]})


@pytest.mark.rest
def test_keys_that_a_repair_stores_with_the_field_are_those_of_real_hudi(tmp_path: Path, oracle: HudiOracle) -> None:
    t = lakebed.create(
        str(tmp_path / "t"), rows([1], "").schema, key="id", partition_by=["a", "b"], table_version=8, index="simple"
    )
    t.upsert(rows([1, 2, 3], "a"), options={OPTION: "true"})
    oracle.write(t.uri, rows([2, 4], "h"), options={OPTION: "true", **UNCHECKED, "hoodie.write.table.version": "8"})
    t = lakebed.open(t.uri)
    t.upsert(rows([3], "l"))
    both_read(oracle, t, [("1", "a1"), ("2", "h2"), ("3", "l3"), ("4", "h4")])
    t.maintenance.repair(["keys"], options={OPTION: "false"})
    both_read(oracle, t, [("id:1", "a1"), ("id:2", "h2"), ("id:3", "l3"), ("id:4", "h4")])
    t.maintenance.upgrade()
    oracle.write(t.uri, rows([2, 5], "i"), options=UNCHECKED)
    t = lakebed.open(t.uri)
    t.delete(rows([1], ""))
    both_read(oracle, t, [("id:2", "i2"), ("id:3", "l3"), ("id:4", "h4"), ("id:5", "i5")])
    assert oracle.problems(t.uri) == []


def both_read(oracle: HudiOracle, t: lakebed.Table, expected: list[tuple[str, str]]) -> None:
    for found in (t.scan(meta=True).to_arrow(), oracle.read(t.uri)):
        assert sorted((row["_hoodie_record_key"], row["v"]) for row in found.to_pylist()) == expected
