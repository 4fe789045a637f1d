"""A further kind of metadata partition, registered from here alone: the rows of each partition path and the newest
instant that wrote to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import UnsupportedFeature
from lakebed.format.base_file import read_footer
from lakebed.metadata.lookups import MetadataTable, open_snapshot
from lakebed.metadata_kinds import files
from lakebed.metadata_kinds.base import (
    FirstBuild,
    NewPartition,
    PartitionKind,
    StoredTable,
    TableAction,
)
from lakebed.metadata_kinds.registry import register, unregister
from lakebed.metadata_kinds.routing import grouped
from lakebed.metadata_kinds.stored import comparable, joined, live_after
from lakebed.metadata_records.definitions import IndexName
from lakebed.metadata_records.layout import GroupSizing, partition_identifier, partition_of
from lakebed.metadata_records.records import RecordForm, Records, record_form
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.properties.file import load_table_config
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import Crash, FaultPlan, FaultyStorage, Killed
from lakebed.timeline.timeline import load_timeline
from support.locks import held as still_held
from support.write_tables import rows

Make = Callable[..., Table]
Counts = Mapping[str, tuple[str, int]]
TOY = "toy_row_counts"
FIRST = [(n, f"c{n % 3}", "a", 10) for n in range(30)]


class ToyKind(PartitionKind):
    """A record is a list of files in form: its one name is the instant, the size the number of rows."""

    def records_of_action(self, partition: str, action: TableAction) -> Records:
        storage, live = action.snapshot.storage, live_after(action.snapshot, action.commit)
        counts = {
            path: (action.instant, sum(read_footer(storage, f"{path}/{name}").rows for name in names))
            for path, names in live.items()
            if names
        }
        keys, values = encoded(counts, action.form)
        return Records(keys, values, pa.array([partition_identifier(p) for p in live if p not in counts], pa.string()))

    def first_records(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        return grouped(name.partition, Records.upserts(*encoded(stored(build.snapshot), build.form))), None

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        return counts_as_text(stored(table.snapshot))

    def found(self, partition: str, metadata: MetadataTable, table: StoredTable) -> pa.Table:
        return joined([counts_as_text(counts_of(entries)) for entries in metadata.entries(partition)])

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        missing = set(map(partition_of, rows["key"].to_pylist()))
        counts = {path: one for path, one in stored(table.snapshot).items() if path in missing}
        return Records.upserts(*encoded(counts, table.form))


def encoded(counts: Counts, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    rows = [(partition_identifier(path), instant, count, False) for path, (instant, count) in counts.items()]
    columns = [[row[at] for row in rows] for at in range(4)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, files.SCHEMA, strict=True)]
    return files.encode(pa.Table.from_arrays(arrays, schema=files.SCHEMA), form)


def counts_of(entries: pa.Table) -> Counts:
    return {partition_of(row["key"]): (row["name"], row["size"]) for row in entries.to_pylist()}


def stored(snapshot: Snapshot) -> Counts:
    found: dict[str, tuple[str, int]] = {}
    for file_slice in snapshot.file_slices():
        assert file_slice.base_file is not None
        newest, count = found.get(file_slice.partition, ("", 0))
        here = read_footer(snapshot.storage, file_slice.base_file.path).rows
        found[file_slice.partition] = (max(newest, file_slice.instant), count + here)
    return found


def counts_as_text(counts: Counts) -> pa.Table:
    keys = [partition_identifier(path) for path in counts]
    return comparable(keys, [""] * len(keys), list(counts), [f"{count} by {at}" for at, count in counts.values()])


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(ToyKind(TOY, decode=files.decode, build_position=70))
    yield
    unregister(TOY)


def toy_records(table: Table) -> dict[str, tuple[str, int]]:
    """What the toy partition says, by partition path."""
    metadata = open_snapshot(open_storage(table.uri)).metadata
    assert metadata is not None
    return {path: one for entries in metadata.entries(TOY) for path, one in counts_of(entries).items()}


def counted(table: Table) -> dict[str, int]:
    return {path: count for path, (_, count) in toy_records(table).items()}


@pytest.mark.parametrize("version", [9, 8, 6])
def test_every_verb_updates_the_toy_partition(make: Make, version: int) -> None:
    table = make(table_version=version, indexes=[TOY])
    first = table.upsert(rows(*FIRST))
    assert toy_records(table) == dict.fromkeys(("c0", "c1", "c2"), (first.instant, 10))
    second = table.upsert(rows((1, "c1", "b", 11), (100, "c1", "b", 11)))
    assert toy_records(table) == {"c0": (first.instant, 10), "c1": (second.instant, 11), "c2": (first.instant, 10)}
    table.delete([2, 5])
    assert counted(table) == {"c0": 10, "c1": 11, "c2": 8}
    table.bulk_insert(rows((200, "c0", "b", 11), (201, "c3", "b", 11)))
    assert counted(table) == {"c0": 11, "c1": 11, "c2": 8, "c3": 1}
    overwritten = table.insert_overwrite(rows((300, "c1", "b", 12)))
    assert toy_records(table)["c1"] == (overwritten.instant, 1)
    table.delete_partitions(["c0"])
    assert counted(table) == {"c1": 1, "c2": 8, "c3": 1}
    found = table.indexes.verify()
    assert found.ok, found
    assert TOY in found.checked
    assert sum(counted(table).values()) == lakebed.open(table.uri).count()


@pytest.mark.parametrize("version", [9, 6])
def test_rows_of_a_dead_writer_are_not_in_the_toy_partition(make: Make, version: int) -> None:
    table = make(table_version=version, indexes=[TOY])
    table.upsert(rows(*FIRST))
    before = toy_records(table)
    folder = load_table_config(open_storage(table.uri)).timeline_path
    plan = FaultPlan(lambda m: m.path.rpartition("/")[0] == folder and m.path.endswith(".commit"))
    crash = Crash(plan)
    with wrapping(lambda inner: FaultyStorage(inner, crash=crash)), pytest.raises(Killed):
        lakebed.open(table.uri).upsert(rows((500, "c9", "lost", 11)))
    assert any(m.path.endswith(".deltacommit") for m in crash.mutations)
    assert toy_records(table) == before
    after = lakebed.open(table.uri).upsert(rows((501, "c2", "kept", 12)))
    assert toy_records(table) == {**before, "c2": (after.instant, 11)}
    assert table.indexes.verify().ok


@pytest.mark.parametrize("version", [9, 6])
def test_it_is_built_verified_repaired_and_dropped(make: Make, version: int) -> None:
    table = make(table_version=version)
    written = table.upsert(rows(*FIRST)).instant
    table.indexes.create(TOY)
    assert toy_records(table) == dict.fromkeys(("c0", "c1", "c2"), (written, 10))
    latest = table.upsert(rows((31, "c1", "b", 11))).instant
    right = {"c0": (written, 10), "c1": (latest, 11), "c2": (written, 10)}
    assert toy_records(table) == right
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    keys, values = encoded({"c0": (written, 7), "ghost": (written, 1)}, record_form(version))
    instant = f"{latest}000" if version == 6 else str(int(latest) + 1)
    tampered = Records(keys, values, pa.array(["c2"]))
    apply_delta(
        MetadataStore(storage, config, load_timeline(storage, config), lock_is_held=still_held),
        instant,
        {TOY: tampered},
    )
    found = table.indexes.verify()
    problems = {(row["problem"], row["what"]) for row in found.of(TOY).to_pylist()}
    assert problems == {("wrong", "c0"), ("extra", "ghost"), ("missing", "c2")}
    assert table.indexes.repair(TOY).differences.num_rows == 3
    assert table.indexes.verify().ok
    assert toy_records(table) == right
    table.upsert(rows((32, "c1", "b", 11)))
    assert counted(table) == {"c0": 10, "c1": 12, "c2": 10}
    table.indexes.drop(TOY)
    assert TOY not in load_table_config(storage).metadata_partitions


@pytest.mark.parametrize("lost", ["hfile", "folder"])
def test_a_damaged_one_is_built_again(make: Make, lost: str) -> None:
    table = make(indexes=[TOY])
    table.upsert(rows(*FIRST))
    table.upsert(rows((31, "c1", "b", 11)))
    right = toy_records(table)
    storage = open_storage(table.uri)
    for info in list(storage.list(f".hoodie/metadata/{TOY}")):
        if lost == "folder" or ".log." in info.path:
            storage.delete(info.path)
    found = lakebed.open(table.uri).indexes.repair()
    assert found.of(TOY)["problem"].to_pylist() == ["damaged"]
    assert toy_records(table) == right
    assert table.indexes.verify().ok


def test_without_its_registration_the_partition_is_unknown(make: Make) -> None:
    table = make(indexes=[TOY])
    table.upsert(rows(*FIRST))
    unregister(TOY)
    with pytest.raises(UnsupportedFeature, match=TOY):
        table.upsert(rows((1, "c1", "b", 11)), options={"lakebed.metadata.on_unknown": "refuse"})
    table.upsert(rows((1, "c1", "b", 11)))
    assert TOY not in load_table_config(open_storage(table.uri)).metadata_partitions
