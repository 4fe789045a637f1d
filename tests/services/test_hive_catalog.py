"""Tables in Hive metastores: entries, partitions from commit to commit, registration after commits, refusals, and
registrations that are cut off at each of their requests."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.catalog.base import CatalogError, EntryName, SyncResult
from lakebed.catalog.hive import HiveMetastore as Store
from lakebed.catalog.metastore import Metastore
from lakebed.cli.main import invoke
from lakebed.errors import TableNotFound, UnsupportedFeature
from lakebed.services import catalog_sync
from support.catalog_entries import RecordedStore, cut_at_each_request, entry_values, forwarder, registered, silent

from .hive_metastore import HiveMetastore
from .service import HOST, free_ports
from .test_lock_services import running

META = [f"_hoodie_{name}" for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")]
ROWS = pa.table(
    {
        "id": pa.array([1, 2]),
        "City": ["Oslo", "Rome"],
        "d": pa.array([date(2020, 1, 1)] * 2),
        "at": pa.array([datetime(2020, 1, 1)] * 2, pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.50")] * 2, pa.decimal128(10, 2)),
        "tags": [["a"], []],
        "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
        "st": [{"Km": 1, "z": "q"}] * 2,
    }
)
TYPES = ["bigint", "date", "bigint", "decimal(10,2)", "array<string>", "map<string,int>", "struct<km:bigint,z:string>"]
INPUT = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
REALTIME = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
OUTPUT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"


@pytest.fixture(scope="module", params=[2, 4])
def hive(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URI of a metastore, of Hive 2.3 or 4."""
    with running(HiveMetastore(release=request.param)) as info:
        yield info["uris"].replace("thrift://", "hive://")


@pytest.fixture
def store(hive: str) -> Iterator[Store]:
    store = Store(hive.replace("hive://", "thrift://"), 30)
    yield store
    store.close()


@pytest.fixture
def name() -> str:
    """A name in a database of its own."""
    return f"shop_{uuid.uuid4().hex[:8]}.trips"


def new_table(folder: Path, **given: Any) -> lakebed.Table:
    table = lakebed.create(str(folder / "trips"), ROWS, key="id", partition_by="City", **given)
    table.upsert(ROWS)
    return table


def expected(table: lakebed.Table, read_optimized: bool, input_format: str) -> dict[str, Any]:
    """The entry of a table of `ROWS`."""
    columns = ["id", "d", "at", "price", "tags", "m", "st"]
    schema = {"type": "struct", "fields": [*map(_spark_field, [*META, *columns, "City"])]}
    last = table.timeline.last
    assert last is not None
    return {
        "columns": [(c, "string", "") for c in META] + [(c, t, "") for c, t in zip(columns, TYPES, strict=True)],
        "partition_columns": [("city", "string")],
        "formats": (input_format, OUTPUT, SERDE),
        "serde": {
            "hoodie.query.as.ro.table": str(read_optimized).lower(),
            "serialization.format": "1",
            "path": table.uri,
        },
        "properties": {
            "EXTERNAL": "TRUE",
            "last_commit_time_sync": last.time,
            "last_commit_completion_time_sync": last.completion_time,
            "spark.sql.sources.provider": "hudi",
            "spark.sql.sources.schema.numParts": "1",
            "spark.sql.sources.schema.part.0": schema,
            "spark.sql.sources.schema.numPartCols": "1",
            "spark.sql.sources.schema.partCol.0": "City",
        },
        "kind": "EXTERNAL_TABLE",
        "location": table.uri,
        "partitions": {("Oslo",): f"{table.uri}/Oslo", ("Rome",): f"{table.uri}/Rome"},
    }


def _spark_field(name: str) -> dict[str, Any]:
    struct = {"type": "struct", "fields": [_field("Km", "long"), _field("z", "string")]}
    types: dict[str, Any] = {
        "id": "long",
        "d": "date",
        "at": "timestamp",
        "price": "decimal(10,2)",
        "tags": {"type": "array", "elementType": "string", "containsNull": True},
        "m": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
        "st": struct,
    }
    return _field(name, types.get(name, "string"))


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def parsed(entry: dict[str, Any]) -> dict[str, Any]:
    part = "spark.sql.sources.schema.part.0"
    return {**entry, "properties": {**entry["properties"], part: json.loads(entry["properties"][part])}}


@pytest.mark.every_case
def test_entries_have_the_columns_formats_and_properties_of_the_table(
    hive: str, store: Store, name: str, tmp_path: Path
) -> None:
    cow, mor = new_table(tmp_path / "cow"), new_table(tmp_path / "mor", type="mor")
    assert [str(one) for one in cow.catalogs.register(hive, name).entries] == [f"created {name}: 2 partitions added"]
    assert parsed(entry_values(store, name)) == expected(cow, False, INPUT)
    done = mor.catalogs.register(f"{hive}/{name.replace('.', '/')}_log")
    assert [entry.name for entry in done.entries] == [f"{name}_log_ro", f"{name}_log_rt", f"{name}_log"]
    assert parsed(entry_values(store, f"{name}_log_ro")) == expected(mor, True, INPUT)
    assert parsed(entry_values(store, f"{name}_log_rt")) == expected(mor, False, REALTIME)
    assert parsed(entry_values(store, f"{name}_log")) == expected(mor, False, REALTIME)
    # the second time nothing is written, and nothing but the entry is read
    assert [one.action for one in cow.catalogs.register(hive, name).entries] == ["unchanged"]
    assert lakebed.open(f"{hive}/{name.replace('.', '/')}").count() == 2
    assert lakebed.open(catalog=hive, name=f"{name}_log_ro").uri == mor.uri


def test_partitions_that_later_commits_touched_are_added_dropped_and_moved(
    hive: str, store: Store, name: str, tmp_path: Path
) -> None:
    table = new_table(tmp_path)
    table.catalogs.register(hive, name)
    entry = store.find(EntryName.parse(name))
    assert entry is not None
    store.add_partitions(entry, {("Nowhere",): "/elsewhere/Nowhere", ("Ghost",): f"{table.uri}/Ghost"})
    store.move_partitions(entry, {("Rome",): "/elsewhere/Rome"})

    table.upsert({"id": [3, 4], "City": ["a b", "x=1 #%"]}, partial=True)
    table.delete_partitions(["Oslo"])
    recorded = RecordedStore(store)
    done = registered(recorded, table, name)
    assert [str(one) for one in done] == [f"updated {name}: 2 partitions added, 1 partition dropped"]
    assert done[0].compared == "touched"
    assert recorded.requests == ["find", "partitions", "add_partitions", "drop_partitions", "update"]
    found = entry_values(store, name)["partitions"]
    assert found[("a b",)] == f"{table.uri}/a b"
    assert found[("x=1 #%",)] == f"{table.uri}/x=1 #%"
    assert ("Oslo",) not in found
    # what no commit touched is compared on request; a partition elsewhere is not the table's
    assert {("Ghost",), ("Nowhere",)} <= found.keys()
    (change,) = table.catalogs.register(hive, name, full=True).entries
    assert (change.added, change.moved, change.dropped) == (0, 1, 1)
    after = entry_values(store, name)["partitions"]
    assert after == {values: where for values, where in found.items() if values != ("Ghost",)} | {
        ("Rome",): f"{table.uri}/Rome"
    }


def test_all_partitions_are_compared_where_the_commit_of_the_entry_was_taken_back(
    hive: str, store: Store, name: str, tmp_path: Path
) -> None:
    table = new_table(tmp_path)
    first = table.timeline.last
    assert first is not None
    table.savepoints.create(first.time)
    table.upsert({"id": [3], "City": ["Lima"]}, partial=True)
    table.catalogs.register(hive, name)
    table.restore(first.time)
    (change,) = table.catalogs.register(hive, name).entries
    assert (change.compared, change.dropped) == ("all", 1)
    assert entry_values(store, name)["partitions"].keys() == {("Oslo",), ("Rome",)}


def test_columns_and_comments_reach_the_entry_and_its_partitions(
    hive: str, store: Store, name: str, tmp_path: Path
) -> None:
    table = new_table(tmp_path)
    with_comments = {"hoodie.datasource.hive_sync.sync_comment": True}
    table.catalogs.register(hive, name, options=with_comments)
    table.columns.add("note", "string", comment="what the driver says")
    (change,) = table.catalogs.register(hive, name, options=with_comments).entries
    assert change.columns
    columns = [("note", "string", "what the driver says")]
    assert entry_values(store, name)["columns"][-1:] == columns
    with store._asking("look at partitions") as client:
        for one in client.get_partitions(*name.split("."), -1):
            assert [(c.name, c.type) for c in one.sd.cols][-1] == ("note", "string")
    # without the option comments that are there stay
    table.upsert({"id": [5], "City": ["Oslo"]}, partial=True)
    table.catalogs.register(hive, name)
    assert entry_values(store, name)["columns"][-1:] == columns


def test_columns_and_properties_that_others_added_to_an_entry_are_retained(
    hive: str, store: Store, name: str, tmp_path: Path
) -> None:
    table = new_table(tmp_path)
    table.catalogs.register(hive, name)
    with store._asking("change the entry") as client:
        stored = table_of(store, client, name)
        stored.parameters["owner.team"] = "rides"
        stored.sd.serdeInfo.parameters["custom"] = "1"
        client.alter_table_with_environment_context(*name.split("."), stored, None)
    table.upsert({"id": [3], "City": ["Lima"]}, partial=True)
    table.catalogs.register(hive, name)
    entry = entry_values(store, name)
    assert (entry["properties"]["owner.team"], entry["serde"]["custom"]) == ("rides", "1")


def table_of(store: Store, client: Any, name: str) -> Any:
    """The metastore's own object of an entry."""
    database, table = name.split(".")
    return client.get_table_req(store._client.types.GetTableRequest(dbName=database, tblName=table)).table


# An entry that is made, one of an older commit, and those of a merge-on-read table.
SCENARIOS = ("new", "later", pytest.param("pair", marks=pytest.mark.full))


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_registration_that_is_cut_off_is_finished_by_the_next_one(
    hive: str, store: Store, tmp_path: Path, scenario: str, lost: bool
) -> None:
    kind = {"type": "mor"} if scenario == "pair" else {}
    suffixes = ["_ro", "_rt", ""] if kind else [""]
    same = new_table(tmp_path, **kind)

    def prepared() -> tuple[lakebed.Table, str]:
        name = f"cut_{uuid.uuid4().hex[:8]}.trips"
        return (same, name) if scenario == "new" else (changed(tmp_path / name, hive, name, **kind), name)

    def check(table: lakebed.Table, name: str, again: bool) -> None:
        for entry in (f"{name}{suffix}" for suffix in suffixes):
            found = store.find(EntryName.parse(entry))
            newest = catalog_sync._newest(table.opened.snapshot().timeline.commits)
            if again or (found is not None and found.synced == newest):
                assert_shows(store, entry, table)  # an entry that shows the commit is complete

    changes = cut_at_each_request(store, prepared, check, lost=lost)
    assert changes == len(suffixes) * 3 + (scenario == "new")  # creation or partitions, commit, of each entry; database


def changed(folder: Path, catalog: str, name: str, **kind: str) -> lakebed.Table:
    """A table that is registered and has changed since: a column more, a partition more and one less."""
    table = new_table(folder, **kind)
    table.catalogs.register(catalog, name)
    table.columns.add("note", "string")
    table.upsert({"id": [3], "City": ["Lima"]}, partial=True)
    table.delete_partitions(["Oslo"])
    return table


def assert_shows(store: Metastore, name: str, table: lakebed.Table) -> None:
    entry = entry_values(store, name)
    last = table.timeline.last
    assert last is not None
    assert entry["partitions"] == {(path,): f"{table.uri}/{path}" for path in table.partitions}
    assert [c[0] for c in entry["columns"][5:]] == [c.lower() for c in table.schema.names if c != "City"]
    assert entry["properties"]["last_commit_time_sync"] == last.time


def test_entries_of_others_are_refused_by_name(hive: str, store: Store, name: str, tmp_path: Path) -> None:
    table, other = new_table(tmp_path / "one"), new_table(tmp_path / "two")
    table.catalogs.register(hive, name)
    with pytest.raises(CatalogError, match=f"{name} in {hive} is the table at .*one/trips, not the one at .*two") as at:
        other.catalogs.register(hive, name)
    assert "another name" in at.value.hint
    database = name.split(".")[0]
    with store._asking("make other entries") as client:
        stored = table_of(store, client, name)
        stored.tableName, stored.parameters = "plain", {}
        stored.sd.inputFormat = "org.apache.hadoop.mapred.TextInputFormat"
        client.create_table(stored)
    for verb in (lambda n: table.catalogs.register(hive, n), lambda n: lakebed.open(catalog=hive, name=n)):
        with pytest.raises(CatalogError, match=f"{database}.plain in {hive} is no Hudi table"):
            verb(f"{database}.plain")
    unpartitioned = lakebed.create(str(tmp_path / "three"), ROWS, key="id")
    with store._asking("move the entry") as client:
        stored = table_of(store, client, name)
        stored.sd.location = unpartitioned.uri
        client.alter_table_with_environment_context(database, "trips", stored, None)
    with pytest.raises(CatalogError, match="is partitioned by city string, the table by nothing"):
        unpartitioned.catalogs.register(hive, name)


def test_a_database_is_created_only_where_that_is_allowed(hive: str, name: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(CatalogError, match=f"has no database {name.split('.')[0]}"):
        table.catalogs.register(hive, name, options={"hoodie.datasource.hive_sync.auto_create_database": False})
    with pytest.raises(TableNotFound, match=f"has no table {name}"):
        lakebed.open(catalog=hive, name=name)
    assert table.catalogs.register(hive, name).has_changed


def test_a_column_without_a_type_in_hive_is_refused_before_anything_is_written(
    hive: str, store: Store, name: str, tmp_path: Path
) -> None:
    rows = pa.table({"id": [1], "at": pa.array([1], pa.time64("us"))})
    table = lakebed.create(str(tmp_path / "t"), rows, key="id")
    with pytest.raises(UnsupportedFeature, match=r"column at has the type time64"):
        table.catalogs.register(hive, name)
    assert not store.has_database(name.split(".")[0])
    table.catalogs.register(hive, name, options={"hoodie.datasource.hive_sync.sync_as_datasource": False})
    assert entry_values(store, name)["columns"][-1] == ("at", "bigint", "")


def test_each_commit_is_registered_where_the_table_says_so(hive: str, store: Store, name: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    entry = f"{hive}/{name.replace('.', '/')}"
    table.configure({"lakebed.catalogs": entry})
    done = table.upsert({"id": [3], "City": ["Lima"]}, partial=True)
    assert done.services[0] == f"{hive} shows {done.instant}"
    assert_shows(store, name, table)
    table.delete_partitions(["Rome"])
    assert_shows(store, name, table)
    # services that commit are shown too
    table.maintenance.cluster()
    assert_shows(store, name, table)


def test_a_job_of_hudi_registers_its_commits(hive: str, store: Store, name: str, tmp_path: Path) -> None:
    database, entry = name.split(".")
    job = {
        "hoodie.table.name": entry,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "City",
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.datasource.hive_sync.mode": "hms",
        "hoodie.datasource.hive_sync.metastore.uris": hive.replace("hive://", "thrift://"),
        "hoodie.datasource.hive_sync.database": database,
        "hoodie.datasource.hive_sync.support_timestamp": "true",
    }
    lakebed.write(ROWS, str(tmp_path / "t"), job)
    assert_shows(store, name, lakebed.open(str(tmp_path / "t")))
    assert dict(c[:2] for c in entry_values(store, name)["columns"])["at"] == "timestamp"


def test_a_catalog_that_is_down_or_silent_fails_no_commit_and_is_caught_up_with(
    hive: str, store: Store, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    entry = f"hive://{HOST}:{port}/{name.replace('.', '/')}"
    table = new_table(tmp_path)
    table.configure({"lakebed.catalogs": entry, "lakebed.catalog.timeout": 1})
    with caplog.at_level(logging.INFO, "lakebed"):
        table.upsert({"id": [3], "City": ["Lima"]}, partial=True)
        with silent(port):
            started = time.monotonic()
            table.upsert({"id": [4], "City": ["Cork"]}, partial=True)
            assert time.monotonic() - started < 10
    said = [r for r in caplog.records if "registration in a catalog failed" in r.getMessage()]
    assert [r.levelname for r in said] == ["WARNING", "INFO"]  # once, until it works again
    assert f"`lakebed catalogs register {table.uri} {entry}`" in said[0].getMessage()
    with forwarder(port, int(hive.rpartition(":")[2])):
        table.upsert({"id": [5], "City": ["Bonn"]}, partial=True)
    assert_shows(store, name, table)
    assert table.count() == 5


def test_the_command_line_registers_and_finds_tables(
    hive: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(tmp_path)
    capsys.readouterr()
    command = ["catalogs", "register", table.uri, hive, name, "--output", "json"]
    assert invoke(command) == 0
    answer = json.loads(capsys.readouterr().out)
    (entry,) = answer["entries"]
    assert (answer["catalog"], entry["name"], entry["action"], entry["added"]) == (hive, name, "created", 2)
    assert invoke(["catalogs", "find", f"{hive}/{name.replace('.', '/')}"]) == 0
    assert capsys.readouterr().out.strip() == table.uri
    assert invoke(["catalogs", "register", table.uri, "ftp://x", name]) == 5
    assert invoke(["catalogs", "find", hive, "none.none"]) == 3
    (port,) = free_ports(1)
    assert invoke(["catalogs", "register", table.uri, f"hive://{HOST}:{port}", name]) == 17
    assert isinstance(table.catalogs.register(hive, name), SyncResult)
