"""Base files whose columns have Parquet field ids: all releases of Hudi read them, merge them and compact over them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from interop.hudi_jobs import assert_both_read, hudi_job, replaced
from lakebed.schema.field_ids import field_id
from oracle.client import HudiOracle
from support.published import quiet, read_pyiceberg
from support.same_rows import assert_same_rows

Kind = Literal["cow", "mor"]
KINDS: tuple[Kind, ...] = ("cow", "mor")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("price", pa.decimal128(12, 2)),
        ("word", pa.string()),
        ("place", pa.struct([("x", pa.float64()), ("in", pa.struct([("z", pa.int32())]))])),
        ("tags", pa.list_(pa.string())),
        ("attrs", pa.map_(pa.string(), pa.int64())),
    ]
)
quiet_readers = pytest.fixture(autouse=True)(quiet)


def rows(first: int, last: int, ts: int) -> pa.Table:
    def row(n: int) -> dict[str, Any]:
        return {
            "id": n,
            "city": ("oslo", "rome", "lima")[n % 3],
            "ts": ts,
            "price": None if n % 5 == 0 else Decimal(n * 100 + ts).scaleb(-2),
            "word": None if n % 7 == 0 else f"w{ts}",
            "place": None if n % 4 == 0 else {"x": n / 4, "in": {"z": ts}},
            "tags": [f"t{ts}", "t"] if n % 3 else [],
            "attrs": [("a", ts)],
        }

    return pa.Table.from_pylist([row(n) for n in range(first, last)], schema=SCHEMA)


def ids_of_files(table: lakebed.Table) -> list[dict[str, int]]:
    """The ids that the columns of each shown base file have, by their names."""
    found: list[dict[str, int]] = []
    for file in lakebed.open(table.uri).scan(query="read_optimized").files:
        schema = pq.read_schema(f"{table.uri}/{file.path}")
        numbers = {field.name: (field.metadata or {}).get(b"PARQUET:field_id") for field in schema}
        found.append({name: int(number) for name, number in numbers.items() if number is not None})
    return found


def check_turns(oracle: HudiOracle, folder: Path, version: int, kind: Kind) -> None:
    """Both write to the table, and each reads what the other one wrote."""
    table = lakebed.create(
        str(folder / f"v{version}-{kind}"), SCHEMA, key="id", ordering="ts", partition_by="city", type=kind,
        index="simple", table_version=version, properties={"hoodie.metadata.enable": False},
    )  # fmt: skip
    numbered = {name: field_id(name) for name in SCHEMA.names}
    expected = rows(0, 30, 1)
    table.upsert(expected)
    assert ids_of_files(table) == [numbered] * 3
    assert_both_read(oracle, table, expected)
    options = hudi_job(table)
    if kind == "mor":
        options |= {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    theirs = pa.concat_tables([rows(3, 4, 2), rows(12, 13, 2), rows(60, 61, 2)])
    oracle.write(table.uri, theirs, options=options)
    expected = replaced(expected, theirs, ["id"])
    assert_both_read(oracle, table, expected)
    assert sorted(map(len, ids_of_files(table))) == [0, len(SCHEMA), len(SCHEMA)], "Hudi's file has no ids"
    table = lakebed.open(table.uri)
    ours = pa.concat_tables([rows(0, 2, 3), rows(61, 63, 3)])
    table.upsert(ours)
    if kind == "mor":
        table.maintenance.compact()
    expected = replaced(expected, ours, ["id"])
    assert_both_read(oracle, table, expected)
    oracle.write(table.uri, rows(4, 5, 4), options=options)
    expected = replaced(expected, rows(4, 5, 4), ["id"])
    assert_both_read(oracle, table, expected)
    found = ids_of_files(table)
    assert {} in found
    assert numbered in found
    table.catalogs.publish("iceberg")
    assert_same_rows(read_pyiceberg(table.uri), expected)


def test_hudi_reads_and_rewrites_files_with_field_ids(oracle: HudiOracle, tmp_path: Path) -> None:
    for kind in KINDS:
        check_turns(oracle, tmp_path, 9, kind)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("older_oracle", "version"), [("1.0.2", 8), ("0.15.0", 6)], indirect=["older_oracle"], ids=["v8", "v6"]
)
def test_older_releases_read_and_rewrite_files_with_field_ids(
    older_oracle: HudiOracle, version: int, tmp_path: Path
) -> None:
    for kind in KINDS:
        check_turns(older_oracle, tmp_path, version, kind)
