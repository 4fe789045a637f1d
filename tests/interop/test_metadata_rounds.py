"""lakebed and real Hudi take turns on tables with a metadata table, which both keep and both read through.

A dict says what must be there after each turn; the validator compares all that the metadata table says with the files
and the rows.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata, with_indexes
from lakebed.concurrency.heartbeat import HEARTBEAT_FOLDER
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_upkeep.services import run_services as run_metadata_services
from lakebed.metadata_upkeep.store import MetadataSettings, MetadataStore
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import Crash, FaultPlan, FaultyStorage, Killed, Mutation
from lakebed.timeline.timeline import load_timeline
from oracle.client import HudiOracle
from property.model import DictTable
from support.locks import held
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("v", pa.int32()),
        ("ts", pa.int64()),
        ("price", pa.float64()),
        ("paid", pa.decimal128(12, 2)),
        ("note", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("ok", pa.bool_()),
    ]
)
CITIES = ("oslo", "rome", "são paulo")
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
OFTEN = 4  # delta commits after which whoever is to compact the metadata table does


@dataclass(frozen=True)
class Case:
    """A kind of table, who compacts its metadata table, and what else real Hudi is told."""

    version: int
    index: str
    partitioned: bool
    indexes: Sequence[str] = ()
    compacts: str = "hudi"
    hudi: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"v{self.version}-{self.index}-{'by-city' if self.partitioned else 'flat'}-{self.compacts}"


CLEANING = {"hoodie.clean.commits.retained": "2", "hoodie.keep.min.commits": "4", "hoodie.keep.max.commits": "5"}
CASES = (
    Case(9, "simple", True, ["bloom_filters"], "hudi", CLEANING),
    Case(9, "bucket", True, ["bloom_filters"], "lakebed"),
    Case(9, "bucket", False, [], "lakebed", CLEANING),
    Case(8, "bucket", True, [], "lakebed", CLEANING),
    Case(8, "simple", False, [], "hudi"),
    Case(6, "simple", True, [], "hudi", CLEANING),
    Case(6, "bucket", False, [], "lakebed"),
)
KINDS = ("upsert", "upsert", "insert_overwrite", "insert", "delete", "delete", "crash", "delete_partition",
    "upsert", "upsert", "upsert", "insert_overwrite")  # fmt: skip
PENDING = 7  # the turn of real Hudi's that is left pending once more, for lakebed to roll back


@pytest.mark.full
@pytest.mark.parametrize("case", todays(CASES, 6, INTEROP), ids=str)
def test_both_writers_in_turn_keep_the_metadata_table_right(case: Case, tmp_path: Path, oracle: HudiOracle) -> None:
    chance = random.Random(str(case))
    table = make(tmp_path / "turns", case)
    model = DictTable(event_time=True, partitioned=case.partitioned)
    options = {**hudi_job(table), **keeping_metadata(table), **case.hudi}
    options["hoodie.metadata.compact.max.delta.commits"] = str(OFTEN if case.compacts == "hudi" else 1000)
    for turn, kind in enumerate(KINDS):
        rows = batch(chance)
        if kind == "delete_partition" and not case.partitioned:
            kind = "upsert"
        if kind == "insert":
            rows = [row | {"id": 1000 * turn + n} for n, row in enumerate(rows)]
        gone = chance.sample(sorted({p[1] for p in model.rows}), min(7, len(model.rows)))
        if turn % 2 == 0:
            if case.compacts == "lakebed":
                run_services(table)
            write_by_lakebed(table, kind, rows, gone)
        else:
            write_by_hudi(oracle, table, kind, rows, gone, options)
        if kind != "crash":  # nothing of it stays
            model.follow(kind, rows, gone, dropped=CITIES[0])
        if turn == PENDING:
            leave_pending(oracle, table, data_of(batch(chance)), options)
        check(oracle, table, model, turn)
        if turn in (6, len(KINDS) - 1):
            problems = oracle.problems(table.uri)
            assert not problems, "\n".join(map(str, [turn, *problems]))
    compacted_and_kept(oracle, table, case)


def make(folder: Path, case: Case) -> Table:
    table = lakebed.create(
        str(folder),
        SCHEMA,
        key="id",
        partition_by="city" if case.partitioned else None,
        ordering="ts",
        index=case.index,
        buckets=3 if case.index == "bucket" else None,
        table_version=case.version,
    )
    with_indexes(table, case.indexes)
    return table


def batch(chance: random.Random) -> list[dict[str, Any]]:
    """Rows without two of one key, with the values that ranges go wrong with."""
    odd = (None, float("nan"), 0.0, -0.0, float("inf"), 1e-300)
    return [
        {
            "id": i,
            "city": chance.choice(CITIES),
            "v": chance.choice((None, chance.randrange(-1000, 1000))),
            "ts": chance.randrange(20),
            "price": chance.choice(odd) if chance.random() < 0.2 else chance.uniform(-9, 9),
            "paid": chance.choice((None, Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-2))),
            "note": chance.choice((None, "", "ü", "long " * 40 + str(chance.random()), "\U0001f600")),
            "at": EPOCH + timedelta(microseconds=chance.randrange(-(10**12), 10**12)),
            "ok": chance.choice((None, True, False)),
        }
        for i in chance.sample(range(60), 25)
    ]


def data_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def write_by_lakebed(table: Table, kind: str, rows: list[dict[str, Any]], gone: list[int]) -> None:
    match kind:
        case "delete":
            table.delete(gone)
        case "crash":
            # first the write that dies before its last step, then nothing: real Hudi finds it on its turn
            crash_before_commit(table, data_of(rows))
        case _:
            getattr(table, kind)(data_of(rows))


def write_by_hudi(
    oracle: HudiOracle, table: Table, kind: str, rows: list[dict[str, Any]], gone: list[int], options: dict[str, str]
) -> None:
    data = data_of(rows)
    if kind == "delete":
        data = table.scan(where=f"id in ({', '.join(map(str, gone))})").to_arrow()
    if kind == "delete_partition":
        options = options | {"hoodie.datasource.write.partitions.to.delete": CITIES[0]}
    oracle.write(table.uri, data, operation=kind, options=options)


def check(oracle: HudiOracle, table: Table, model: DictTable, turn: int) -> None:
    expected = pa.Table.from_pylist(list(model.rows.values()), SCHEMA)
    assert open_snapshot(open_storage(table.uri)).metadata is not None
    assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), expected)
    if turn % 2 == 0 or turn == len(KINDS) - 1:
        assert_same_rows(oracle.read(table.uri, option={"hoodie.metadata.enable": "true"}), expected)


def run_services(table: Table) -> None:
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    settings = MetadataSettings(compact_after=OFTEN)
    run_metadata_services(MetadataStore(storage, config, load_timeline(storage, config), settings, lock_is_held=held))


class BeforeCommit(Crash):
    """Dies when the metadata table has its delta commit and the table is about to get its commit."""

    def __init__(self, timeline_folder: str) -> None:
        super().__init__(FaultPlan())
        self._folder = timeline_folder

    def mutate(self, mutation: Mutation, act: Callable[[], Any], tear: Callable[[], None]) -> Any:
        folder, _, name = mutation.path.rpartition("/")
        if folder == self._folder and name.endswith(".commit"):
            self.dead = True
            raise Killed(str(mutation))
        return super().mutate(mutation, act, tear)


def crash_before_commit(table: Table, data: pa.Table) -> None:
    crash = BeforeCommit(load_table_config(open_storage(table.uri)).timeline_path)
    with wrapping(lambda inner: FaultyStorage(inner, crash=crash)), pytest.raises(Killed):
        lakebed.open(table.uri).upsert(data)
    assert any(m.path.endswith(".deltacommit") for m in crash.mutations)


def leave_pending(oracle: HudiOracle, table: Table, data: pa.Table, options: dict[str, str]) -> None:
    """A write of real Hudi that lost its last step, an hour ago."""
    new = oracle.write(table.uri, data, options=options)
    instant = next(i["instant"] for i in new if i["action"] == "commit" and i["state"] == "COMPLETED")
    folder = Path(table.uri, load_table_config(open_storage(table.uri)).timeline_path)
    (done,) = list(folder.glob(f"{instant}*.commit"))
    done.unlink()
    beat = Path(table.uri, HEARTBEAT_FOLDER, instant)
    beat.parent.mkdir(exist_ok=True)
    beat.touch()
    hour_ago = time.time() - 3600
    os.utime(beat, (hour_ago, hour_ago))


def compacted_and_kept(oracle: HudiOracle, table: Table, case: Case) -> None:
    stored = oracle.ask("properties", table=table.uri)
    assert stored["hoodie.table.version"] == str(case.version)
    kept = {"files", *case.indexes}
    if case.version == 9:
        kept |= {"column_stats", "partition_stats"} if case.partitioned else {"column_stats"}
    assert set(stored["hoodie.table.metadata.partitions"].split(",")) == kept
    own = oracle.ask("timeline", table=f"{table.uri}/.hoodie/metadata")["instants"]
    assert any(i["action"] == "commit" and i["state"] == "COMPLETED" for i in own)
