"""Real Hudi reads, updates, compacts and clusters tables whose columns have codecs and encodings of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from interop.hudi_jobs import assert_both_read, hudi_job, replaced
from lakebed.format.footer_cache import FOOTERS
from lakebed.metadata.lookups import open_snapshot
from lakebed.storage import open_storage
from lakebed.table import Table
from oracle.client import HudiOracle

ROWS = 45_000
"""Rows of more than two pages of one file."""


def rows_of(first: int, count: int, at: int) -> pa.Table:
    dice = np.random.default_rng(first + 7 * at)
    high, low = (dice.integers(0, 1 << 62, ROWS) for _ in range(2))
    keys = [f"{n:08d}-{(n * 2654435761) % (1 << 64):016x}" for n in range(first, first + count)]
    return pa.table(
        {
            "id": keys,
            "at": pa.array(1_700_000_000_000 * at + dice.integers(0, 10**9, count)),
            "rider": [f"rider-{n:07d}" for n in dice.integers(0, 10**6, count).tolist()],
            "city": [None if n % 7 == 0 else f"city-{n % 200}" for n in dice.integers(0, 10**6, count).tolist()],
            "token": [f"{a:016x}{b:016x}" for a, b in zip(high[:count].tolist(), low[:count].tolist(), strict=True)],
            "fare": pa.array(dice.random(count)),
            "price": pa.array(np.round(dice.gamma(2.0, 9.0, count), 2)),
            "day": pa.array(dice.integers(0, 10**6, count).astype(np.int32)).cast(pa.date32()),
        }
    )


def forms(table: Table) -> dict[str, tuple[str, set[str]]]:
    """The codec and the encodings of each column in the first row group of the table's only base file."""
    (file,) = open_snapshot(open_storage(table.uri)).base_files()
    group = pq.read_metadata(Path(table.uri) / file.path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {c.path_in_schema: (c.compression, {*c.encodings}) for c in columns}


def new_table(folder: Path, kind: str, version: int) -> tuple[Table, pa.Table]:
    rows = rows_of(0, ROWS, 1)
    options: dict[str, Any] = {"properties": {"hoodie.metadata.enable": False}, "table_version": version}
    table = lakebed.create(
        str(folder / "t"), rows.schema, key="id", ordering="at", type=kind, index="bucket", buckets=1, **options
    )
    table.bulk_insert(rows)
    return table, rows


def check_forms(table: Table) -> None:
    stored = forms(table)
    assert stored["rider"][0] == "LZ4"
    assert stored["token"][0] == "ZSTD"
    assert stored["fare"][0] == "UNCOMPRESSED"
    assert "DELTA_BINARY_PACKED" in stored["at"][1]
    assert "DELTA_BYTE_ARRAY" in stored["_hoodie_commit_seqno"][1]
    (file,) = open_snapshot(open_storage(table.uri)).base_files()
    footer = FOOTERS.read(open_storage(table.uri), file.path, file.size)
    assert footer.addresses is not None
    assert footer.pages is not None


def take_turns_in_rounds(oracle: HudiOracle, folder: Path, kind: str, version: int, rounds: int) -> None:
    """Hudi and lakebed upsert, and compact, in turns; both read the same rows after each round."""
    table, rows = new_table(folder, kind, version)
    check_forms(table)
    assert_both_read(oracle, table, rows)
    for turn in range(rounds):
        batch = rows_of(100 * turn, 50, 2 + 2 * turn)
        compact = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
        oracle.write(table.uri, batch, options={**hudi_job(table), **(compact if turn % 2 == 0 else {})})
        rows = replaced(rows, batch, ["id"])
        batch = rows_of(100 * turn + 25, 50, 3 + 2 * turn)
        lakebed.open(table.uri).upsert(batch)
        if kind == "mor":
            lakebed.open(table.uri).maintenance.compact()
        rows = replaced(rows, batch, ["id"])
        assert_both_read(oracle, table, rows)
        some = rows.slice(turn, 20)
        assert lakebed.open(table.uri).get(some["id"]).num_rows == 20


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [("mor", 1), *(pytest.param(k, 10, marks=pytest.mark.rest) for k in ("mor", "cow"))],
)
def test_hudi_and_lakebed_write_in_turns(oracle: HudiOracle, kind: str, rounds: int, tmp_path: Path) -> None:
    take_turns_in_rounds(oracle, tmp_path, kind, 9, rounds)


@pytest.mark.rest
@pytest.mark.parametrize(("older_oracle", "version"), [("1.0.2", 8), ("0.15.0", 6)], indirect=["older_oracle"])
def test_older_hudi_and_lakebed_write_in_turns(older_oracle: HudiOracle, version: int, tmp_path: Path) -> None:
    take_turns_in_rounds(older_oracle, tmp_path, "mor", version, 10)
