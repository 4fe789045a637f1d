"""Tables that lakebed upgrades and downgrades, with real Hudi reading, writing and validating after each step.

Releases 1.0.2 and 0.15.0 do so on tables that came down to their versions; and what real Hudi upgrades lakebed takes
back again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import READ_CONF, hudi_job
from interop.metadata_jobs import KEEP_METADATA, keeping_metadata
from interop.test_mor_rounds import EVERY, NEVER, SCHEMA, Case, batch, check, data_of, write_by_hudi, write_by_lakebed
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from oracle.client import HudiOracle
from property.model import DictTable
from support.golden_tables import golden
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays

COW = "cow"
MOR = "mor"


@dataclass(frozen=True)
class Way:
    """A kind of table, and the versions that it goes through."""

    type: str
    case: Case
    versions: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.type}-{self.case.index}-{'-'.join(map(str, self.versions))}"


WAYS = (
    Way(MOR, Case(6, "bucket", True, ("column_stats",)), (6, 8, 9, 6)),
    Way(MOR, Case(9, "record", False, (*EVERY, "note")), (9, 6, 8, 9)),
    Way(COW, Case(8, "simple", True, ("column_stats",)), (8, 9, 8, 6)),
)
OLDER = (
    ("1.0.2", Way(MOR, Case(9, "bucket", False), (9, 8, 9, 8))),
    ("0.15.0", Way(MOR, Case(9, "bucket", False), (9, 6, 8, 6))),
    ("1.0.2", Way(COW, Case(6, "record", False), (6, 8, 9, 8))),
    ("0.15.0", Way(COW, Case(8, "record", False), (8, 6, 9, 6))),
)
WRITES = {"1.0.2": 8, "0.15.0": 6, "1.2.0": 0}
GOLDEN = (
    ("v6_mor_event_time", 9),
    ("v9_mor_event_time", 6),
    ("v6_cow_archival", 8),
    ("v9_cow_archival", 6),
    ("v8_mor_mdt_secondary", 9),
    ("up_v6_to_v9_cow", 6),
    ("down_v9_to_v8_cow", 9),
    ("v6_cow_savepoint_restore", 9),
)


def created(folder: Path, way: Way) -> Table:
    case = way.case
    return lakebed.create(
        str(folder / "changed"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts" if case.ordering else None,
        type=way.type,  # type: ignore[arg-type]
        index=case.index,
        buckets=2 if case.index == "bucket" else None,
        indexes=[name for name in case.indexes if way.versions[0] > 6 or name != "note"],
        table_version=way.versions[0],
        properties={
            "hoodie.compact.inline": False,
            **({"hoodie.record.index.update.partition.path": True} if case.index == "record" else {}),
        },
    )


def change(table: Table, to: int) -> None:
    up = to > load_table_config(open_storage(table.uri)).version
    done = (table.maintenance.upgrade if up else table.maintenance.downgrade)(to=to)
    assert done.done


@pytest.mark.full
@pytest.mark.parametrize("way", todays(WAYS, 4, INTEROP), ids=str)
def test_real_hudi_goes_on_after_each_change(way: Way, tmp_path: Path, oracle: HudiOracle) -> None:
    rounds(oracle, created(tmp_path, way), way)


@pytest.mark.full
@pytest.mark.parametrize(("older_oracle", "way"), todays(OLDER, 4, INTEROP), indirect=["older_oracle"], ids=str)
def test_older_releases_go_on_with_what_came_down(older_oracle: HudiOracle, way: Way, tmp_path: Path) -> None:
    rounds(older_oracle, created(tmp_path, way), way)


def rounds(oracle: HudiOracle, table: Table, way: Way) -> None:
    """Writes of both in each version that the release writes, of lakebed alone in others."""
    case = way.case
    chance = random.Random(str(way))
    model = DictTable(event_time=False, is_global=case.index == "record", moves=True)
    own = WRITES[oracle.version]
    turn = 0

    def write(by_hudi: bool, *, gone: bool = False) -> None:
        nonlocal turn
        turn += 1
        # real Hudi notes a range from 0 to 0 of nothing but nulls
        rows = [row | {"v": row["v"] or 7, "price": row["price"] or "0.01"} for row in batch(chance, turn, new=False)]
        deleted = chance.sample(sorted({key for _, key in model.rows}), 4) if gone else []
        kind = "delete" if gone else "upsert"
        if by_hudi:
            options = {**hudi_job(table), **keeping_metadata(table), **NEVER, "hoodie.compact.inline": "false"}
            write_by_hudi(oracle, table, kind, rows, deleted, options)
        else:
            write_by_lakebed(table, kind, rows, deleted)
        model.delete_ids(deleted) if gone else model.upsert(rows)

    def looked_at(version: int) -> None:
        try:
            check(oracle, table, case, model, 0)
        except AssertionError as error:
            error.add_note(f"version {version}, turn {turn}")
            raise

    for before, to in pairwise((0, *way.versions)):
        if before:
            change(table, to)
        takes_part = own in (0, to)
        if takes_part and before:
            looked_at(to)
        write(False)
        if takes_part:
            write(True)
            looked_at(to)
            write(True, gone=True)
            looked_at(to)
        write(False, gone=True)
        assert load_table_config(open_storage(table.uri)).version == to
    if own in (0, way.versions[-1]):
        looked_at(way.versions[-1])


@pytest.mark.rest
@pytest.mark.parametrize("source", todays((6, 8), 2, INTEROP))
def test_a_table_upgraded_by_real_hudi_can_be_downgraded(source: int, tmp_path: Path, oracle: HudiOracle) -> None:
    way = Way(MOR, Case(source, "bucket", False), (source,))
    table = created(tmp_path, way)
    chance = random.Random(source)
    model = DictTable(event_time=False, is_global=False, moves=True)
    for turn in range(3):
        rows = batch(chance, turn, new=False)
        write_by_lakebed(table, "upsert", rows, [])
        model.upsert(rows)
    rows = batch(chance, 4, new=False)
    options = {**hudi_job(table), **keeping_metadata(table), **NEVER, "hoodie.compact.inline": "false"}
    options |= {"hoodie.write.auto.upgrade": "true", "hoodie.write.table.version": "9"}
    write_by_hudi(oracle, table, "upsert", rows, [], options)
    model.upsert(rows)
    assert load_table_config(open_storage(table.uri)).version == 9
    check(oracle, table, way.case, model, 0)
    for to in (8, 6):
        change(table, to)
        check(oracle, table, way.case, model, 0)
        rows = batch(chance, 10 + to, new=False)
        write_by_lakebed(table, "upsert", rows, [])
        model.upsert(rows)
        check(oracle, table, way.case, model, 1)


SHORT = {
    "hoodie.cleaner.commits.retained": 2,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
    "hoodie.metadata.compact.max.delta.commits": 3,
}


@pytest.mark.full
@pytest.mark.parametrize(("source", "kind"), todays(((6, MOR), (8, COW), (6, COW), (8, MOR)), 4, INTEROP))
def test_both_go_on_after_real_hudi_upgraded_what_lakebed_cleaned_and_archived(
    source: int, kind: str, tmp_path: Path, oracle: HudiOracle
) -> None:
    upgraded_in_turns(oracle, source, 9, kind, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("older_oracle", ["1.0.2"], indirect=True)
@pytest.mark.parametrize("kind", todays((MOR, COW), 2, INTEROP))
def test_both_go_on_after_an_older_release_upgraded_what_lakebed_cleaned_and_archived(
    older_oracle: HudiOracle, kind: str, tmp_path: Path
) -> None:
    upgraded_in_turns(older_oracle, 6, 8, kind, tmp_path)


def upgraded_in_turns(oracle: HudiOracle, source: int, to: int, kind: str, tmp_path: Path) -> None:
    """Seven writes of lakebed, and then of both in turns; the first of real Hudi upgrades the table."""
    way = Way(kind, Case(source, "bucket", False), (source,))
    table = created(tmp_path, way)
    chance = random.Random(source)
    model = DictTable(event_time=False, is_global=False, moves=True)
    options = {**hudi_job(table), **keeping_metadata(table), **NEVER, "hoodie.compact.inline": "false"}
    options |= {name: str(value) for name, value in SHORT.items()}
    options |= {"hoodie.write.auto.upgrade": "true", "hoodie.write.table.version": str(to)}
    for turn in range(15):
        rows = batch(chance, turn, new=False)
        model.upsert(rows)
        if turn in (7, 9, 12, 14):
            write_by_hudi(oracle, table, "upsert", rows, [], options)
        else:
            table = lakebed.open(table.uri)
            table.upsert(data_of(rows), options=SHORT)
        if turn in (6, 7, 8, 10, 14):
            assert load_table_config(open_storage(table.uri)).version == (source if turn == 6 else to)
            if turn > 6 or oracle.version == "1.2.0":
                check(oracle, table, way.case, model, 0)


@pytest.mark.parametrize(("name", "to"), todays(GOLDEN, 3, INTEROP))
def test_tables_of_real_hudi_are_read_by_it_in_the_other_version(
    name: str, to: int, tmp_path: Path, oracle: HudiOracle
) -> None:
    try:
        folder = golden(name).unpack(tmp_path)
    except StopIteration:
        pytest.skip("not in the subset of golden tables")
    table = lakebed.open(str(folder))
    before = table.scan(meta=True).to_arrow()
    commits = {i.time for i in table.timeline if i.is_completed and i.action.value != "clean"}
    change(table, to)
    for listed in ("true", "false"):
        found = oracle.read(folder, option={"hoodie.metadata.enable": listed}, conf=READ_CONF)
        assert_same_rows(found, before, without=("_hoodie_file_name",))
    assert oracle.problems(folder) == []
    told = oracle.ask("timeline", table=folder)["instants"]
    assert commits <= {i["instant"] for i in told if i["state"] == "COMPLETED"}


@pytest.mark.full
@pytest.mark.parametrize("name", todays(("up_v6_to_v9_archived_cow", "up_v6_to_v8_to_v9_archived_mor"), 1, INTEROP))
def test_both_go_on_with_what_was_archived_before_real_hudi_upgraded_it(
    name: str, tmp_path: Path, oracle: HudiOracle
) -> None:
    table = lakebed.open(str(golden(name).unpack(tmp_path)))
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    schema = table.scan().to_arrow().schema
    own = {k: v for k, v in golden(name).entry["options"].items() if k != "hoodie.table.name"}
    kept = {"hoodie.write.auto.upgrade": "false", "hoodie.write.table.version": "9", **KEEP_METADATA}
    for turn in range(4):
        new = {row["id"]: row | {"ts": 100 + turn, "v": turn} for row in list(rows.values())[turn : turn + 5]}
        rows |= new
        batch_of_turn = pa.Table.from_pylist(list(new.values()), schema)
        if turn % 2:
            oracle.write(table.uri, batch_of_turn, options={**own, **kept})
        else:
            table.upsert(batch_of_turn, options={"hoodie.metadata.compact.max.delta.commits": 2})
        expected = pa.Table.from_pylist(list(rows.values()), schema)
        assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), expected)
        assert_same_rows(oracle.read(table.uri).select(schema.names), expected)
        assert oracle.problems(table.uri) == []
    assert lakebed.open(table.uri).indexes.verify().ok
