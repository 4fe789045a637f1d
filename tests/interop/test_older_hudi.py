"""Releases 1.0.2 and 0.15.0 of Hudi take turns with lakebed on tables of their version, indexes and all.

They list files, find keys and skip files by what lakebed wrote into the metadata table, and lakebed by what they wrote.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata, run_own_services
from lakebed.metadata_upkeep.store import MetadataSettings
from lakebed.table import Table
from oracle.client import HudiOracle, OracleError
from property.model import DictTable
from support.same_rows import assert_same_rows

# No dates and no decimals: once 0.15.0 has compacted statistics of them, they are of other types.
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("v", pa.int32()),
        ("ts", pa.int64()),
        ("price", pa.float64()),
        ("note", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
CITIES = ("oslo", "rome", "são paulo")
FAR = "tromsø"  # the one partition with numbers of its own, for files to be skipped
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
KINDS = ("upsert", "upsert", "insert", "delete", "upsert", "upsert", "delete", "insert", "far")
AT_ONCE = MetadataSettings(compact_after=2, clean_commits=2, archive_above=5, archive_down_to=3)
# The names that these releases have for indexes, which 1.2.0 has renamed.
JOB = {
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.record.index.update.partition.path": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": "3",
}
SKIPPING = {
    "hoodie.metadata.enable": "true",
    "hoodie.enable.data.skipping": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
}
# What else is in the files must not be what rules them out.
WHOLE_FILES = {"spark.sql.parquet.filterPushdown": "false", "spark.sql.parquet.aggregatePushdown": "false"}


@dataclass(frozen=True)
class Case:
    """A release, the version of table that it writes, and the indexes that the table has besides the record index."""

    release: str
    version: int
    indexes: Sequence[str]

    def __str__(self) -> str:
        return f"v{self.version}"


CASES = (
    Case("1.0.2", 8, ["column_stats", "partition_stats", "bloom_filters", "note"]),
    Case("0.15.0", 6, ["column_stats", "bloom_filters"]),
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("older_oracle", "case"), [(case.release, case) for case in CASES], indirect=["older_oracle"], ids=str
)
def test_older_releases_in_turn_keep_the_table_right(older_oracle: HudiOracle, case: Case, tmp_path: Path) -> None:
    assert older_oracle.version == case.release
    chance = random.Random(case.release)
    table = lakebed.create(
        str(tmp_path / "turns"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index="record",
        indexes=case.indexes,
        table_version=case.version,
        properties={"hoodie.record.index.update.partition.path": True},
    )
    model = DictTable(event_time=True, is_global=True, moves=True)
    options = {**hudi_job(table), **keeping_metadata(table), **JOB}
    options["hoodie.metadata.index.partition.stats.enable"] = str("partition_stats" in case.indexes).lower()
    for turn, kind in enumerate(KINDS):
        rows = far_away() if kind == "far" else batch(chance, turn, new=kind == "insert")
        gone = chance.sample(sorted({key for _, key in model.rows}), 6) if kind == "delete" else []
        if turn % 2 == 0:
            write_by_lakebed(table, kind, rows, gone)
        else:
            write_by_hudi(older_oracle, table, kind, rows, gone, options)
        if turn == 4:
            run_own_services(table, AT_ONCE)
        if gone:
            model.delete_ids(gone)
        else:
            model.upsert(rows)
        check(older_oracle, table, model)
    listed_by_the_metadata_table(older_oracle, table, model)
    skips_files(older_oracle, table, case)
    stored = older_oracle.ask("properties", table=table.uri)
    assert stored["hoodie.table.version"] == str(case.version)
    names = {"secondary_index_note" if name == "note" else name for name in case.indexes}
    assert set(stored["hoodie.table.metadata.partitions"].split(",")) == {"files", "record_index", *names}


def batch(chance: random.Random, turn: int, *, new: bool) -> list[dict[str, Any]]:
    """Rows without two of one key, a third of them in another partition in each turn."""
    return [
        {
            "id": 1000 * turn + i if new else i,
            "city": CITIES[(i + (turn if i % 9 < 3 else 0)) % 3],
            "v": chance.choice((None, chance.randrange(-1000, 1000))),
            "ts": chance.randrange(20),
            "price": chance.choice((None, 0.0, -0.0, chance.uniform(-9, 9))),
            "note": chance.choice((None, "", "ü", "a$b", "\\$", "\U0001f600", "note")),
            "at": EPOCH + timedelta(microseconds=chance.randrange(10**12)),
        }
        for i in chance.sample(range(40), 15)
    ]


def far_away() -> list[dict[str, Any]]:
    return [
        {"id": i, "city": FAR, "v": i, "ts": 1, "price": float(i), "note": f"far {i}", "at": EPOCH}
        for i in range(50_000, 50_009)
    ]


def data_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def write_by_lakebed(table: Table, kind: str, rows: list[dict[str, Any]], gone: list[int]) -> None:
    if gone:
        table.delete(gone)
    else:
        getattr(table, "upsert" if kind == "far" else kind)(data_of(rows))


def write_by_hudi(
    hudi: HudiOracle, table: Table, kind: str, rows: list[dict[str, Any]], gone: list[int], options: dict[str, str]
) -> None:
    data = data_of(rows)
    if gone:
        data = table.scan(where=f"id in ({', '.join(map(str, gone))})").to_arrow()
    hudi.write(table.uri, data, operation=kind, options=options)


def check(hudi: HudiOracle, table: Table, model: DictTable) -> None:
    expected = data_of(list(model.rows.values()))
    assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), expected)
    assert_same_rows(hudi.read(table.uri, option={"hoodie.metadata.enable": "true"}), expected)
    verified = table.indexes.verify()
    assert verified.ok, verified


def listed_by_the_metadata_table(hudi: HudiOracle, table: Table, model: DictTable) -> None:
    """A file that the metadata table does not list is not read."""
    known = next(Path(table.uri, FAR).glob("*.parquet"))
    stray = known.with_name("f" * 8 + known.name[8:])
    assert stray != known
    shutil.copy2(known, stray)
    try:
        counts = [
            hudi.read(table.uri, option={"hoodie.metadata.enable": listed}).num_rows for listed in ("true", "false")
        ]
    finally:
        stray.unlink()
    assert counts == [len(model.rows), len(model.rows) + len(far_away())]


def skips_files(hudi: HudiOracle, table: Table, case: Case) -> None:
    """With the files of all other partitions aside, rows are found whose file an index names."""
    rows = far_away()
    filters = {
        "id in (50001, 50007)": [rows[1], rows[7]],
        "v > 50003": rows[4:],
        **({"note = 'far 50005'": rows[5:6]} if "note" in case.indexes else {}),
    }
    with without_files(table, CITIES):
        for where, expected in filters.items():
            by_key = {"hoodie.metadata.index.column.stats.enable": "false"} if where.startswith("id") else {}
            found = hudi.read(table.uri, where=where, option=SKIPPING | by_key, conf=WHOLE_FILES)
            assert_same_rows(found, data_of(expected))
            assert_same_rows(lakebed.open(table.uri).scan(where=where).to_arrow(), data_of(expected))
        unskipped = SKIPPING | {"hoodie.enable.data.skipping": "false"}
        with pytest.raises(OracleError):
            hudi.read(table.uri, where="v > 50003", option=unskipped, conf=WHOLE_FILES)


@contextmanager
def without_files(table: Table, partitions: Sequence[str]) -> Generator[None]:
    files = [path for partition in partitions for path in Path(table.uri, partition).glob("*.parquet")]
    aside = [path.rename(path.with_suffix(".aside")) for path in files]
    try:
        yield
    finally:
        for moved, path in zip(aside, files, strict=True):
            moved.rename(path)
