"""lakebed and real Hudi take turns on tables with a record index and all other indexes that the version allows.

Both find keys through the index that the other one kept. A dict says what must be there after each turn; lakebed's
`verify` and the validator through real Hudi's reader say that every index agrees with the files.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata, own_actions, run_own_services
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_upkeep.store import MetadataSettings
from lakebed.storage import open_storage
from lakebed.table import Table
from oracle.client import HudiOracle
from property.model import DictTable
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("v", pa.int32()),
        ("ts", pa.int64()),
        ("price", pa.float64()),
        ("note", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
CITIES = ("oslo", "rome", "são paulo")
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
NOTES = (None, "", "ü", "a$b", "a\\", "\\$", "\U0001f600", "note", "other")
# Not among them: NaN, whose statistics real Hudi gets wrong, and numbers that Java prints longer before version 19.
PRICES = (None, 0.0, -0.0, 1.5, 1e-5, 123456789.125, -2.5e-7, float("inf"))
KINDS = ("upsert", "upsert", "insert", "insert", "delete", "delete", "insert_overwrite", "upsert", "upsert", "upsert")
MOVES = {"hoodie.record.index.update.partition.path": True}
# Real Hudi compacts the metadata table soon, and archives its instants by the settings of the table.
# With Hudi's ten file groups an index each of its commits writes thirty log files.
MAX_GROUPS = {
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "3",
    "hoodie.metadata.record.index.max.filegroup.count": "3",
}
SOON = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.metadata.compact.max.delta.commits": "3",
}
NEVER = {"hoodie.metadata.compact.max.delta.commits": "1000"}
MERGED_LOGS = MetadataSettings(compact_after=9, log_compaction=True, log_compact_after=3)
AT_ONCE = MetadataSettings(compact_after=4, clean_commits=2, archive_above=5, archive_down_to=3)


@dataclass(frozen=True)
class Case:
    """A kind of table; `services` are lakebed's settings where it keeps the metadata table's logs short, None where
    real Hudi does."""

    version: int
    index: str
    indexes: Sequence[str]
    services: MetadataSettings | None = None

    def __str__(self) -> str:
        return f"v{self.version}-{self.index}"

    @property
    def is_global(self) -> bool:
        return self.index == "record"


EVERY = ["bloom_filters", "column_stats", "partition_stats"]
CASES = (
    Case(9, "record", [*EVERY, "note", "price", "v"], MERGED_LOGS),
    Case(9, "record_level_index", EVERY),
    Case(8, "record", [*EVERY, "note", "at", "day"], AT_ONCE),
    Case(6, "record", ["bloom_filters", "column_stats"]),
)


@pytest.mark.full
@pytest.mark.parametrize("case", todays(CASES, 6, INTEROP), ids=str)
def test_both_writers_in_turn_keep_key_indexes_right(case: Case, tmp_path: Path, oracle: HudiOracle) -> None:
    chance = random.Random(str(case))
    table = lakebed.create(
        str(tmp_path / "turns"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index=case.index,
        indexes=case.indexes,
        table_version=case.version,
        properties=MOVES if case.is_global else {},
    )
    model = DictTable(event_time=True, is_global=case.is_global, moves=True)
    options = {**hudi_job(table), **keeping_metadata(table), **(NEVER if case.services else SOON)}
    said: list[str] = []
    for turn, kind in enumerate(KINDS):
        rows = batch(chance, turn, new=kind.startswith("insert"), moving=case.is_global)
        gone = chance.sample(sorted({key for _, key in model.rows}), 6) if kind == "delete" else []
        if turn % 2 == 0:
            write_by_lakebed(table, kind, rows, gone)
            if case.services is not None:
                said += run_own_services(table, case.services)
        else:
            write_by_hudi(oracle, table, kind, rows, gone, options)
        model.follow(kind, rows, gone)
        check(oracle, table, model, turn)
    found_by_index(oracle, table, model)
    check_indexes(oracle, table, case)
    if case.services is MERGED_LOGS:
        assert any(text.startswith("log compaction") for text in said), said
    else:
        assert own_actions(oracle, table) >= ({"commit", "clean"} if case.services else {"commit"})
    problems = oracle.problems(table.uri)
    assert not problems, "\n".join(map(str, problems))


@pytest.mark.parametrize("version", [9, 6])
def test_keys_that_hudi_inserts_again_are_found_and_changed(tmp_path: Path, oracle: HudiOracle, version: int) -> None:
    """Real Hudi does not look for them, and its record index has one place for each."""
    where = str(tmp_path / "again")
    table = lakebed.create(
        where, SCHEMA, key="id", partition_by="city", ordering="ts", index="record", table_version=version
    )
    chance = random.Random(7)
    first = batch(chance, 0, new=True, moving=False)
    table.upsert(data_of(first))
    options = {**hudi_job(table), **keeping_metadata(table), "hoodie.parquet.small.file.limit": "0"}
    oracle.write(where, data_of([{**first[0], "id": 5000}]), operation="insert", options=options)
    assert not open_snapshot(open_storage(where)).repeats_keys
    key = first[0]["id"]
    oracle.write(where, data_of([{**first[0], "note": "again"}]), operation="insert", options=options)
    table = lakebed.open(where)
    assert [table.scan(where=text).count() for text in (f"id = {key}", f"id <= {key} and id >= {key}")] == [2, 2]
    assert table.get([key])["note"].to_pylist().count("again") == 1
    assert table.get([key]).num_rows == table.locate([key]).num_rows == 2
    table.upsert(data_of([{**first[0], "note": "by lakebed", "ts": 99}]))
    assert lakebed.open(where).get([key])["note"].to_pylist() == ["by lakebed"] * 2
    table.delete([key])
    assert lakebed.open(where).exists([key, 5000]).to_pylist() == [False, True]


def batch(chance: random.Random, turn: int, *, new: bool, moving: bool) -> list[dict[str, Any]]:
    """Rows without two of one key. With `moving` a third of them are in another partition in each turn; without, a key
    has one partition: real Hudi mixes up rows whose key is in two partitions that a batch is about."""
    return [
        {
            "id": 1000 * turn + i if new else i,
            "city": CITIES[(i + (turn if moving and i % 9 < 3 else 0)) % 3],
            "v": chance.choice((None, chance.randrange(-1000, 1000))),
            "ts": chance.randrange(20),
            "price": chance.choice(PRICES),
            "note": chance.choice(NOTES),
            "day": chance.choice((None, date(1969, 12, 30) + timedelta(days=chance.randrange(5)))),
            "at": EPOCH + timedelta(microseconds=chance.randrange(5)),
        }
        for i in chance.sample(range(40), 15)
    ]


def data_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def write_by_lakebed(table: Table, kind: str, rows: list[dict[str, Any]], gone: list[int]) -> None:
    if kind == "delete":
        table.delete(gone)
    else:
        getattr(table, kind)(data_of(rows), options=MAX_GROUPS)


def write_by_hudi(
    oracle: HudiOracle, table: Table, kind: str, rows: list[dict[str, Any]], gone: list[int], options: dict[str, str]
) -> None:
    data = data_of(rows)
    if kind == "delete":
        data = table.scan(where=f"id in ({', '.join(map(str, gone))})").to_arrow()
    oracle.write(table.uri, data, operation=kind, options=options)


def check(oracle: HudiOracle, table: Table, model: DictTable, turn: int) -> None:
    expected = data_of(list(model.rows.values()))
    assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), expected)
    if turn % 2 == 0 or turn == len(KINDS) - 1:  # what real Hudi wrote itself it reads with what comes next
        assert_same_rows(oracle.read(table.uri, option={"hoodie.metadata.enable": "true"}), expected)
    verified = table.indexes.verify()
    assert verified.ok, verified


def found_by_index(oracle: HudiOracle, table: Table, model: DictTable) -> None:
    """Rows of keys, and of values under a secondary index, where both go by the index."""
    rows = list(model.rows.values())
    some = [row["id"] for row in rows[::5]]
    got = data_of([row for row in rows if row["id"] in some])
    filters = {f"id in ({', '.join(map(str, some))})": got, "id = 123456": got.slice(0, 0)}
    filters["_hoodie_commit_time > '2020' and _hoodie_record_key <= 'a'"] = data_of(rows)
    for note in ("a$b", "ü", "note"):
        filters[f"note = '{note}'"] = data_of([row for row in rows if row["note"] == note])
    one = next(row for row in rows if row["v"] is not None and row["day"] is not None)
    filters[f"v = {one['v']}"] = data_of([row for row in rows if row["v"] == one["v"]])
    filters[f"day = date'{one['day']}'"] = data_of([row for row in rows if row["day"] == one["day"]])
    for where, expected in filters.items():
        assert_same_rows(oracle.read(table.uri, where=where, option={"hoodie.metadata.enable": "true"}), expected)
        assert_same_rows(lakebed.open(table.uri).scan(where=where).to_arrow(), expected)


def check_indexes(oracle: HudiOracle, table: Table, case: Case) -> None:
    stored = oracle.ask("properties", table=table.uri)
    assert stored["hoodie.table.version"] == str(case.version)
    names = [name if name in EVERY else f"secondary_index_{name}" for name in case.indexes]
    assert set(stored["hoodie.table.metadata.partitions"].split(",")) == {"files", "record_index", *names}
