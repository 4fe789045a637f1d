"""The HBase index against a real HBase, by its own protocol and by the Thrift gateway: verbs, moves, regions that split
and move, servers that die, and real Hudi 1.0.2 on the same rows."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import IndexInconsistent, StorageError
from lakebed.index.hbase.client import client_of
from lakebed.index.hbase.index import HBaseIndex
from lakebed.testing import Killed, crash_at
from property.model import DictTable, as_tuple
from support.sampling import HISTORIES, today, todays

from .hbase_admin import Admin
from .hbase_server import HBase
from .service import ServiceError

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
Rows = dict[str, tuple[str, int]]


@pytest.fixture(scope="module")
def hbase() -> Iterator[HBase]:
    service = HBase(thrift=True, region_servers=2)
    try:
        service.start()
    except ServiceError as error:
        pytest.skip(str(error))
    yield service
    service.stop()


@pytest.fixture(scope="module")
def admin(hbase: HBase) -> Iterator[Admin]:
    admin = Admin(hbase.info)
    yield admin
    admin.close()


def data(*rows: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "city": c, "v": v, "ts": v} for i, c, v in rows], schema=SCHEMA)


class IndexedTable:
    """A table under the index, and the rows that it should hold."""

    def __init__(
        self,
        admin: Admin,
        folder: Path,
        *,
        moves: bool = True,
        splits: Any = (),
        type: Literal["cow", "mor"] = "cow",
        **settings: Any,
    ) -> None:
        name = f"keys{uuid.uuid4().hex[:8]}"
        admin.create(name, splits)
        self.hbase = admin.table(name, **settings)
        self.uri = str(folder / "t")
        self.rows: Rows = {}
        index = HBaseIndex(self.hbase, moves)
        lakebed.create(self.uri, SCHEMA, key="id", partition_by="city", ordering="ts", index=index, type=type)

    @property
    def table(self) -> lakebed.Table:
        return lakebed.open(self.uri)

    def upsert(self, *rows: tuple[str, str, int]) -> Any:
        result = self.table.upsert(data(*rows))
        self.rows |= {i: (c, v) for i, c, v in rows}
        return result

    def check(self) -> None:
        """Rows are those of the model, and HBase has the place of each, and of no other key that was ever written."""
        table = self.table
        stored = table.scan().to_arrow().to_pylist()
        assert sorted((r["id"], r["city"], r["v"]) for r in stored) == sorted((i, *at) for i, at in self.rows.items())
        table.indexes.index.check(table.opened.snapshot())
        places = table.locate(list(self.rows))
        where = dict(zip(places["key"].to_pylist(), places["partition_path"].to_pylist(), strict=True))
        assert where == {i: city for i, (city, _) in self.rows.items()}

    def in_hbase(self) -> dict[str, tuple[str, str]]:
        """Partition path and note of every row."""
        rows = [row for part in client_of(self.hbase).scan(0) for row in part.to_pylist()]
        return {r["row"].decode(): (r["partition"].decode(), (r["note"] or b"").decode()) for r in rows}


WAYS = {"native": {}, "thrift": {"transport": "thrift"}, "rebalanced": {"buckets": 12}}


@pytest.fixture(params=list(WAYS))
def indexed_table(request: pytest.FixtureRequest, hbase: HBase, admin: Admin, tmp_path: Path) -> IndexedTable:
    settings: dict[str, Any] = dict(WAYS[request.param])
    if settings.get("transport"):
        settings |= {"thrift_host": hbase.info["quorum"], "thrift_port": hbase.info["thrift_port"]}
    indexed_table = IndexedTable(admin, tmp_path, **settings)
    indexed_table.upsert(("a", "oslo", 1), ("b", "oslo", 2), ("c", "rome", 3), ("d", "rome", 4))
    return indexed_table


def test_verbs_keep_rows_and_places(indexed_table: IndexedTable) -> None:
    indexed_table.check()
    result = indexed_table.upsert(("a", "oslo", 10), ("b", "rome", 11), ("e", "bonn", 5))
    assert (result.updated, result.inserted, result.deleted) == (2, 1, 0)  # b moves
    indexed_table.check()
    assert indexed_table.table.get(["b"])["city"].to_pylist() == ["rome"]
    assert indexed_table.table.delete(["a", "nobody"]).deleted == 1
    del indexed_table.rows["a"]
    indexed_table.check()
    assert indexed_table.table.locate(["a"]).num_rows == 0
    assert len(indexed_table.in_hbase()) == len(indexed_table.rows)  # the row of a deleted key is gone
    indexed_table.upsert(("a", "rome", 20))
    indexed_table.check()
    indexed_table.table.insert_overwrite(data(("z", "rome", 7)))
    indexed_table.rows = {i: at for i, at in indexed_table.rows.items() if at[0] != "rome"} | {"z": ("rome", 7)}
    indexed_table.check()
    assert len(indexed_table.in_hbase()) == len(indexed_table.rows)
    indexed_table.upsert(("c", "oslo", 8))
    indexed_table.check()


@pytest.mark.rest
def test_dataframes_are_upserted_and_deleted_by_tasks_that_ask_hbase(admin: Admin, tmp_path: Path, spark: Any) -> None:
    indexed_table = IndexedTable(admin, tmp_path)
    frame = "id string, city string, v long, ts long"

    def write(rows: Rows) -> Any:
        indexed_table.rows |= rows
        given = spark.createDataFrame([(i, city, v, v) for i, (city, v) in rows.items()], frame).repartition(3)
        return lakebed.open(indexed_table.uri, spark=spark).upsert(given)

    assert write({f"k{n:03}": (("oslo", "rome")[n % 2], n) for n in range(200)}).inserted == 200
    indexed_table.check()
    # every third key moves, fifty are new
    done = write({f"k{n:03}": (("rome", "bonn")[n % 3 == 0], 1000 + n) for n in range(100, 250)})
    assert (done.updated + done.deleted, done.inserted - done.deleted) == (100, 50)
    indexed_table.check()
    gone = spark.createDataFrame([(f"k{n:03}",) for n in range(0, 250, 10)], "id string")
    assert lakebed.open(indexed_table.uri, spark=spark).delete(gone).deleted == 25
    for n in range(0, 250, 10):
        del indexed_table.rows[f"k{n:03}"]
    indexed_table.check()
    assert len(indexed_table.in_hbase()) == len(indexed_table.rows)
    indexed_table.upsert(("k001", "bonn", 9999))
    indexed_table.check()


def test_the_table_remembers_where_hbase_is(indexed_table: IndexedTable) -> None:
    settings = indexed_table.table.indexes.index.settings()
    assert settings["hbase.table"] == indexed_table.hbase.table
    assert settings["hbase.zkport"] == str(indexed_table.hbase.port)
    options = {
        "hoodie.index.type": "HBASE",
        "hoodie.index.hbase.table": indexed_table.hbase.table,
        "hoodie.index.hbase.get.batch.size": "2",
        "hoodie.hbase.index.update.partition.path": "true",
    }
    indexed_table.table.upsert(data(("a", "bonn", 9)), options=options)
    indexed_table.rows["a"] = ("bonn", 9)
    indexed_table.check()


def test_a_write_that_dies_anywhere_leaves_the_old_places(admin: Admin, tmp_path: Path) -> None:
    """The moved and the deleted keys are where they were, for the next writer and (once it has taken the dead one back)
    for real Hudi, which does not know the notes."""
    indexed_table = IndexedTable(admin, tmp_path)
    indexed_table.upsert(("a", "oslo", 1), ("b", "oslo", 2), ("c", "rome", 3))
    told = 0
    for at in range(4, 400, 3):
        with crash_at(at, "kill"):
            try:
                indexed_table.table.upsert(data(("a", "rome", 100 + at), ("n", "bonn", at)))
            except Killed:
                pass
            else:
                break
        told += indexed_table.in_hbase()["a"][0] == "rome"
        reader = lakebed.open(indexed_table.uri)
        if reader.get(["n"]).num_rows:
            break  # dead behind its completion
        indexed_table.upsert(("b", "oslo", 100 + at))
        indexed_table.check()
        assert indexed_table.in_hbase()["a"] == ("oslo", "")
    else:
        pytest.fail("the write never ended")
    assert told, "no write died with something told to HBase"


def test_a_key_whose_deletion_was_not_finished_is_judged_by_its_file(
    admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed_table = IndexedTable(admin, tmp_path)
    indexed_table.upsert(("a", "oslo", 1), ("b", "oslo", 2))
    with monkeypatch.context() as patch:
        patch.setattr(HBaseIndex, "committed", lambda *_: None)
        indexed_table.table.delete(["a"])
    del indexed_table.rows["a"]
    assert indexed_table.in_hbase()["a"][0] == "oslo"
    indexed_table.check()
    assert indexed_table.table.locate(["a"]).num_rows == 0
    assert indexed_table.upsert(("a", "rome", 5)).inserted == 1
    indexed_table.check()


def test_restore_puts_places_back(admin: Admin, tmp_path: Path) -> None:
    indexed_table = IndexedTable(admin, tmp_path)
    first = indexed_table.upsert(("a", "oslo", 1), ("b", "oslo", 2), ("c", "rome", 3)).instant
    before = dict(indexed_table.rows)
    indexed_table.table.savepoints.create(first)
    indexed_table.upsert(("a", "rome", 10), ("d", "rome", 4))
    indexed_table.upsert(("a", "bonn", 11))
    indexed_table.table.delete(["b"])
    indexed_table.table.restore(first)
    indexed_table.rows = before
    indexed_table.check()
    assert indexed_table.upsert(("a", "oslo", 20), ("b", "oslo", 21), ("d", "rome", 22)).updated == 2
    indexed_table.check()


def test_rollback_sync_deletes_what_the_write_made(
    admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed_table = IndexedTable(admin, tmp_path, rollback_sync=True)
    indexed_table.upsert(("a", "oslo", 1))
    tell = HBaseIndex.update

    def update(self: HBaseIndex, *given: Any) -> None:
        tell(self, *given)
        raise StorageError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(HBaseIndex, "update", update)
        with pytest.raises(StorageError, match="no more"):
            indexed_table.table.upsert(data(("a", "rome", 2), ("new", "rome", 2)))
    assert indexed_table.in_hbase() == {"a": ("oslo", "")}
    indexed_table.check()


def test_regions_split_move_and_lose_their_server(admin: Admin, tmp_path: Path) -> None:
    """Clients that know the old regions find the new ones."""
    indexed_table = IndexedTable(admin, tmp_path, splits=[b"k5"], get_batch=7, put_batch=7)
    rows = [(f"k{n}", "oslo", n) for n in range(100)]
    indexed_table.upsert(*rows)
    low, high = admin.regions(indexed_table.hbase.table, 2)
    admin.split(low, indexed_table.hbase.table, b"k3")
    assert indexed_table.upsert(*[(i, c, v + 1) for i, c, v in rows]).updated == 100
    assert len(admin.regions(indexed_table.hbase.table, 3)) == 3
    other = next(s for s in admin.servers if int(s.split(",")[1]) != high.server[1])
    admin.move(high, other)
    assert indexed_table.upsert(*[(i, c, v + 2) for i, c, v in rows]).updated == 100
    admin.stop(other)
    assert indexed_table.upsert(*[(i, "rome", v + 3) for i, c, v in rows]).updated == 100
    indexed_table.check()


def test_keys_that_log_files_delete_leave_hbase_and_can_be_inserted_again(admin: Admin, tmp_path: Path) -> None:
    indexed_table = IndexedTable(admin, tmp_path, type="mor")
    indexed_table.upsert(("a", "oslo", 1), ("b", "oslo", 80), ("c", "rome", 3))
    indexed_table.upsert(("a", "oslo", 2))
    indexed_table.table.delete(["c"])
    indexed_table.table.delete(where="v >= 70")
    indexed_table.rows = {"a": ("oslo", 2)}
    indexed_table.check()
    assert set(indexed_table.in_hbase()) == {"a"}
    new = data(("b", "rome", 5), ("c", "rome", 6), ("a", "rome", 9))
    done = indexed_table.table.insert(new, options={"hoodie.datasource.write.insert.drop.duplicates": True})
    assert done.inserted == 2
    indexed_table.rows |= {"b": ("rome", 5), "c": ("rome", 6)}
    indexed_table.check()


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_erased_keys_leave_hbase_and_the_files_of_the_table(
    admin: Admin, tmp_path: Path, kind: Literal["cow", "mor"]
) -> None:
    indexed_table = IndexedTable(admin, tmp_path, type=kind)
    indexed_table.upsert(("secret-key", "oslo", 1), ("b", "oslo", 80), ("c", "rome", 3))
    indexed_table.upsert(("secret-key", "oslo", 2))
    report = indexed_table.table.erase(["secret-key"])
    del indexed_table.rows["secret-key"]
    indexed_table.check()
    assert report.is_clean
    assert any("HBase" in note for note in report.tables[0].notes)
    assert set(indexed_table.in_hbase()) == {"b", "c"}
    assert [
        path for path in Path(indexed_table.uri).rglob("*") if path.is_file() and b"secret-key" in path.read_bytes()
    ] == []
    assert indexed_table.upsert(("secret-key", "rome", 9)).inserted == 1


@pytest.mark.rest
@pytest.mark.parametrize("kind", todays(("cow", "mor"), 2, HISTORIES))
def test_a_random_history_gives_the_rows_of_the_model(
    admin: Admin, tmp_path: Path, kind: Literal["cow", "mor"]
) -> None:
    """As the histories over the other indexes: keys move between cities, rows that are older lose."""
    chance = random.Random(today())
    indexed_table = IndexedTable(admin, tmp_path, type=kind, buckets=chance.choice((None, 4)))
    model = DictTable(event_time=True, is_global=True, moves=True)
    cities = ("oslo", "rome", "bonn")
    for step in range(25):
        some = [
            {"id": f"k{n}", "city": chance.choice(cities), "v": chance.randrange(99), "ts": chance.randrange(9)}
            for n in chance.sample(range(25), chance.randrange(1, 12))
        ]
        given = pa.Table.from_pylist(some, schema=SCHEMA)
        match chance.choice(("upsert", "upsert", "insert", "ids", "where", "city", "compact")):
            case "insert":
                model.insert_new(some)
                indexed_table.table.insert(given, options={"hoodie.datasource.write.insert.drop.duplicates": True})
            case "ids":
                gone: list[Any] = [row["id"] for row in some[:4]]
                model.delete_ids(gone)
                indexed_table.table.delete(gone)
            case "where":
                model.delete_where(70)
                indexed_table.table.delete(where="v >= 70")
            case "city" if any(city == "rome" for city, _ in model.rows):
                model.drop_partition("rome")
                indexed_table.table.delete_partitions(["rome"])
            case "compact" if kind == "mor":
                indexed_table.table.maintenance.compact()
            case _:
                model.upsert(some)
                indexed_table.table.upsert(given)
        found = indexed_table.table.scan().to_arrow().to_pylist()
        assert sorted(map(as_tuple, found)) == model.state(), step
        indexed_table.rows = {row["id"]: (row["city"], row["v"]) for row in model.rows.values()}
        indexed_table.check()


def test_another_table_is_found_out(indexed_table: IndexedTable, admin: Admin) -> None:
    empty = f"keys{uuid.uuid4().hex[:8]}"
    admin.create(empty)
    with pytest.raises(IndexInconsistent, match="has no place for key"):
        indexed_table.table.indexes.adopt(HBaseIndex(admin.table(empty)))
    with pytest.raises(StorageError, match="there is no table 'nobodys'"):
        indexed_table.table.indexes.adopt(HBaseIndex(admin.table("nobodys")))
    indexed_table.check()


@pytest.mark.full
def test_a_server_that_dies_in_the_middle_of_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HBase goes down between tagging and the commit, and comes back with its data."""
    with HBase(folder=tmp_path / "hbase") as server:
        admin = Admin(server.info)
        indexed_table = IndexedTable(admin, tmp_path, retry_ms=1000, connection_ms=1000)
        indexed_table.upsert(("a", "oslo", 1), ("b", "oslo", 2))
        tell = HBaseIndex.update

        def update(self: HBaseIndex, *given: Any) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server.pid_of("hbase"), signal.SIGKILL)
            tell(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(HBaseIndex, "update", update)
            with pytest.raises(StorageError, match="the HBase index does not answer"):
                indexed_table.table.upsert(data(("a", "rome", 10), ("c", "bonn", 3)))
        stored = indexed_table.table.scan().to_arrow()
        assert sorted(stored["id"].to_pylist()) == ["a", "b"]
        with pytest.raises(StorageError, match="the HBase index does not answer"):
            indexed_table.table.upsert(data(("b", "oslo", 3)))
        server.restart()
        client_of(replace(indexed_table.hbase, retry_ms=60_000)).get(pa.array([b"a"], pa.binary()))  # served again
        moved = indexed_table.upsert(("a", "rome", 10), ("c", "bonn", 3))
        assert (moved.updated, moved.inserted, moved.deleted) == (1, 1, 0)
        indexed_table.check()
        admin.close()
