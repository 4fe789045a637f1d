"""Columns that are added, dropped, renamed, widened, commented and moved while their files stay."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict, LakebedError, SchemaConflict, UnsupportedFeature
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.schema_files import FOLDER

ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "city": ["Oslo", "Rome", "Oslo"],
        "fare": [9.5, 12.0, None],
        "stops": pa.array([1, None, 3], pa.int32()),
        "home": [{"street": "a", "number": 1}, None, {"street": None, "number": 3}],
        "ts": [1, 1, 1],
    }
)
KINDS = [(9, "cow", "simple"), (9, "mor", "bucket"), (8, "mor", "simple"), (6, "mor", "bucket"), (6, "cow", "bloom")]
NUMBERS = itertools.count()


def new_table(version: int = 9, kind: str = "cow", index: str = "simple", **more: Any) -> Table:
    uri = f"memory://columns/{next(NUMBERS)}"
    buckets = {"buckets": 1} if index == "bucket" else {}
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", **buckets, **more}
    table = lakebed.create(uri, ROWS, type=kind, index=index, table_version=version, **words)
    table.upsert(ROWS)
    return table


def rows(table: Table, *columns: str, **scan: Any) -> list[dict[str, Any]]:
    found = table.scan([*columns, "id"] if columns else None, **scan).to_arrow().sort_by("id")
    return (found.select(list(columns)) if columns else found).to_pylist()


def upserted(table: Table, **changes: Any) -> None:
    """The row of key 1 with other values."""
    (row,) = table.get([1]).to_pylist()
    table.upsert(pa.Table.from_pylist([{**row, **changes}], table.schema))


@pytest.mark.parametrize(("version", "kind", "index"), KINDS)
def test_rows_of_old_and_new_files_have_the_columns_of_today(version: int, kind: str, index: str):
    table = new_table(version, kind, index)
    before = table.timeline.last
    table.columns.rename("fare", "price")
    table.columns.widen("stops", "bigint")
    table.columns.add("tip", "decimal(8, 2)", after="city")
    table.columns.add("home.floor", pa.int16(), after="street")
    names = ["id", "city", "tip", "price", "stops", "home", "ts"]
    assert table.schema.names == names
    upserted(table, tip=Decimal("1.50"), stops=5_000_000_000, ts=2, home={"street": "b", "floor": 4, "number": 2})
    expected = [
        [1, "Oslo", Decimal("1.50"), 9.5, 5_000_000_000, {"street": "b", "floor": 4, "number": 2}, 2],
        [2, "Rome", None, 12.0, None, None, 1],
        [3, "Oslo", None, None, 3, {"street": None, "floor": None, "number": 3}, 1],
    ]
    wanted = [dict(zip(names, row, strict=True)) for row in expected]
    assert rows(table) == wanted
    assert table.get([3, 1]).sort_by("id").to_pylist() == [wanted[0], wanted[2]]
    assert sorted(table.changes(start="earliest").to_arrow().to_pylist(), key=lambda row: row["id"]) == wanted
    assert rows(table, "id", where="price > 10 or tip > 1") == [{"id": 1}, {"id": 2}]
    table.delete([2])
    if kind == "mor":
        assert table.maintenance.compact().runs
        assert rows(table) == [wanted[0], wanted[2]]
    assert table.maintenance.cluster(sort_columns=["price"]).runs or index == "bucket"
    assert rows(table) == [wanted[0], wanted[2]]
    assert before is not None
    assert rows(table, as_of=before.time) == ROWS.to_pylist()
    assert table.indexes.verify().ok


@pytest.mark.parametrize(("version", "kind", "index"), KINDS)
def test_a_column_that_is_dropped_and_added_again_has_no_old_values(version: int, kind: str, index: str):
    table = new_table(version, kind, index)
    table.columns.drop("fare")
    table.columns.add("fare", "double")
    table.columns.rename("stops", "halts")
    table.columns.rename("fare", "stops")
    table.columns.rename("halts", "fare")
    upserted(table, stops=0.5, ts=2)
    assert rows(table, "id", "fare", "stops") == [
        {"id": 1, "fare": 1, "stops": 0.5},
        {"id": 2, "fare": None, "stops": None},
        {"id": 3, "fare": 3, "stops": None},
    ]
    assert rows(table, "id", where="stops is null") == [{"id": 2}, {"id": 3}]
    assert rows(table, "id", where="fare = 3") == [{"id": 3}]
    if kind == "mor":
        table.maintenance.compact()
        assert rows(table, "stops") == [{"stops": 0.5}, {"stops": None}, {"stops": None}]
    assert table.indexes.verify().ok


@pytest.mark.parametrize("mode", ["OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_change_log_shows_both_images_in_the_columns_of_today(kind: str, mode: str):
    logged = {"hoodie.table.cdc.enabled": True, "hoodie.table.cdc.supplemental.logging.mode": mode}
    table = new_table(9, kind, properties=logged)
    upserted(table, fare=10.0, ts=2)
    table.columns.rename("fare", "price")
    table.columns.add("fare", "string")
    upserted(table, price=11.0, fare="new", ts=3)
    found = table.cdc(start="earliest").to_arrow().to_pylist()[3:]
    images = [[{k: image[k] for k in ("price", "fare")} for image in (c["before"], c["after"])] for c in found]
    old, middle, new = ({"price": p, "fare": f} for p, f in ((9.5, None), (10.0, None), (11.0, "new")))
    assert [c["op"] for c in found] == ["u", "u"]
    assert images == [[old, middle], [middle, new]]


def test_a_history_has_hudis_ids_and_each_commit_carries_it():
    table = new_table()
    table.columns.rename("fare", "price")
    table.columns.add("tip", "int")
    instant = table.columns.drop("stops").instant
    upserted(table, ts=2)
    storage = open_storage(table.uri)
    newest = max(info.path for info in storage.list(FOLDER) if info.path.endswith(".schemacommit"))
    versions = json.loads(storage.read(newest))["schemas"]
    named = [{field["name"]: field["id"] for field in version["fields"][5:]} for version in versions]
    assert named == [
        {"id": 5, "city": 6, "price": 7, "home": 9, "ts": 10, "tip": 13},
        {"id": 5, "city": 6, "price": 7, "stops": 8, "home": 9, "ts": 10, "tip": 13},
        {"id": 5, "city": 6, "price": 7, "stops": 8, "home": 9, "ts": 10},
        {"id": 5, "city": 6, "fare": 7, "stops": 8, "home": 9, "ts": 10},
    ]
    assert [str(version["version_id"]) for version in versions][::3] == [instant, "0"]
    last = table.timeline.last
    assert last is not None
    assert newest.startswith(f"{FOLDER}/{last.time}_")
    timeline = table.opened.snapshot().timeline
    assert json.loads(timeline.commit_metadata(last).extra["latest_schema"]) == versions[0]


def test_a_write_that_brings_columns_continues_the_history():
    table = new_table()
    table.columns.rename("fare", "price")
    (row,) = table.get([1]).to_pylist()
    new = pa.Table.from_pylist([{**row, "fare": "cheap", "ts": 2}], table.schema.append(pa.field("fare", pa.string())))
    table.upsert(new)
    wide = table.scan(where="id = 3").to_arrow()
    wide = wide.set_column(wide.schema.get_field_index("stops"), "stops", pa.array([2**40]))
    table.upsert(wide, options={"lakebed.write.evolution": "widen"})
    assert rows(table, "id", "price", "fare", "stops") == [
        {"id": 1, "price": 9.5, "fare": "cheap", "stops": 1},
        {"id": 2, "price": 12.0, "fare": None, "stops": None},
        {"id": 3, "price": None, "fare": None, "stops": 2**40},
    ]


def test_comments_are_listed_and_stay_with_their_columns():
    table = new_table()
    table.columns.comment("fare", "in euro")
    table.columns.comment("home.number", "of the house")
    table.columns.rename("fare", "price")
    table.columns.rename("home", "house")
    (row,) = table.get([1]).to_pylist()
    table.upsert(pa.Table.from_pylist([{**row, "more": 1}], table.schema.append(pa.field("more", pa.int32()))))
    table.columns.move("price", first=True)
    assert [(c.name, c.type, c.comment) for c in table.columns][:2] == [
        ("price", "DOUBLE", "in euro"),
        ("id", "BIGINT", ""),
    ]
    listed = table.columns.to_arrow()
    assert {r["name"]: r["comment"] for r in listed.to_pylist() if r["comment"]} == {
        "price": "in euro",
        "house.number": "of the house",
    }
    assert repr(table.columns).splitlines()[1].split() == ["price", "DOUBLE", "True", "in", "euro"]
    assert ">in euro</td>" in table.columns._repr_html_()  # pyright: ignore[reportPrivateUsage]
    table.columns.comment("price", "")
    assert next(c.comment for c in table.columns) == ""


Change = Callable[[Table], object]
REFUSED: dict[str, tuple[Change, str]] = {
    "key": (lambda t: t.columns.rename("id", "ident"), "it is a key field of table"),
    "partition": (lambda t: t.columns.drop("city"), "it is a partition column of table"),
    "ordering": (lambda t: t.columns.widen("ts", "string"), "it is an ordering field of table"),
    "unknown": (lambda t: t.columns.drop("fair"), "Did you mean 'fare'"),
    "unknown field": (lambda t: t.columns.drop("home.numbr"), "Did you mean 'number'"),
    "no struct": (lambda t: t.columns.add("fare.x", "int"), "column fare is DOUBLE: it has no fields"),
    "taken": (lambda t: t.columns.add("FARE", "int"), "has a column 'fare' already"),
    "taken by another": (lambda t: t.columns.rename("fare", "Stops"), "has a column 'stops' already"),
    "impossible name": (lambda t: t.columns.add("a-b", "int"), "'a-b' is not possible"),
    "reserved": (lambda t: t.columns.add("_HOODIE_commit_time", "int"), "is reserved"),
    "no type": (lambda t: t.columns.add("a", "number"), "'number' is no type"),
    "narrower": (lambda t: t.columns.widen("fare", "int"), r"DOUBLE and cannot become INT\. It can become STRING"),
    "loses digits": (lambda t: t.columns.widen("stops", "float"), "does not keep all of its values"),
    "renamed field": (lambda t: t.columns.rename("home.street", "home.road"), "found by their names"),
    "without a place": (lambda t: t.columns.move("fare"), "after"),
    "unreadable by Hudi": (lambda t: t.columns.add("at", "timestamp_ntz", first=True), "real Hudi cannot read"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_change_that_does_not_fit_is_refused_before_anything_is_written(what: str):
    table = new_table()
    change, why = REFUSED[what]
    instants = len(table.timeline)
    with pytest.raises(LakebedError, match=why):
        change(table)
    assert len(table.timeline) == instants
    assert not [info for info in open_storage(table.uri).list(FOLDER) if "schemacommit" in info.path]
    assert rows(table) == ROWS.to_pylist()


def test_a_field_that_was_dropped_does_not_come_again_under_its_name():
    table = new_table()
    table.columns.drop("home.street")
    with pytest.raises(SchemaConflict, match=r"home\.street"):
        table.columns.add("home.street", "string")
    (row,) = table.get([1]).to_pylist()
    with pytest.raises(SchemaConflict, match=r"home\.street was taken off"):
        table.upsert([{**row, "home": {"number": 1, "street": "b"}}])


def test_an_index_on_the_column_is_named_as_what_to_drop_first():
    table = new_table(index="record")
    table.indexes.create("fare")
    with pytest.raises(SchemaConflict, match="the index secondary_index_fare goes by it") as refused:
        table.columns.rename("fare", "price")
    assert "t.indexes.drop('secondary_index_fare')" in str(refused.value)
    table.indexes.drop("secondary_index_fare")
    table.columns.rename("fare", "price")
    table.indexes.create("price")
    assert rows(table, "id", where="price = 12.0") == [{"id": 2}]
    assert table.indexes.verify().ok
    table.columns.rename("stops", "halts")
    with pytest.raises(UnsupportedFeature, match="column halts, which files"):
        table.indexes.create("by_halts", column="halts", function="from_unixtime")


def test_a_setting_that_names_the_column_is_named():
    table = new_table(properties={"hoodie.clustering.plan.strategy.sort.columns": "fare"})
    with pytest.raises(SchemaConflict, match=r"setting .*sort\.columns names it"):
        table.columns.drop("fare")


def test_a_number_that_had_another_type_does_not_become_a_text():
    table = new_table()
    table.columns.widen("stops", "double")
    with pytest.raises(SchemaConflict, match="it was int before it was double"):
        table.columns.widen("stops", "string")


def test_a_planned_service_is_run_first():
    table = new_table(9, "mor")
    upserted(table, fare=1.0, ts=2)
    table.maintenance.compact(plan_only=True)
    with pytest.raises(CommitConflict, match=r"compaction \d+ is planned"):
        table.columns.rename("fare", "price")
    table.maintenance.compact()
    table.columns.rename("fare", "price")
    assert rows(table, "price") == [{"price": 1.0}, {"price": 12.0}, {"price": None}]


def test_a_restore_takes_a_change_back():
    table = new_table()
    saved = table.savepoints.create()
    table.columns.rename("fare", "price")
    table.columns.add("fare", "int")
    table.restore(saved.instant)
    assert table.schema.names == ROWS.column_names
    assert rows(table) == ROWS.to_pylist()
    table.columns.rename("fare", "cost")
    assert rows(table, "cost") == [{"cost": 9.5}, {"cost": 12.0}, {"cost": None}]


def test_the_history_outlasts_its_commits_on_the_active_timeline():
    table = new_table(9, "mor", "bucket")
    table.columns.rename("fare", "price")
    for ts in range(2, 9):
        upserted(table, ts=ts)
    few = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table.maintenance.clean(options=few)
    table.maintenance.archive(options=few)
    upserted(table, ts=9)
    assert rows(table, "price") == [{"price": 9.5}, {"price": 12.0}, {"price": None}]


def test_a_write_that_began_before_the_change_is_a_conflict(monkeypatch: pytest.MonkeyPatch):
    from lakebed.operations.write_transaction import WriteTransaction

    table = new_table()
    publish = WriteTransaction.commit

    def changed_before(self: WriteTransaction, *given: Any, **named: Any) -> Any:
        monkeypatch.setattr(WriteTransaction, "commit", publish)
        lakebed.open(table.uri).columns.rename("fare", "price")
        return publish(self, *given, **named)

    monkeypatch.setattr(WriteTransaction, "commit", changed_before)
    with pytest.raises(CommitConflict, match="changed the table's schema"):
        upserted(table, fare=1.0, ts=2)
    assert rows(table, "price") == [{"price": 9.5}, {"price": 12.0}, {"price": None}]


@pytest.mark.parametrize(("version", "kind", "index"), KINDS)
def test_a_column_is_added_to_a_table_with_local_times(version: int, kind: str, index: str):
    at = pa.array([datetime(2024, 1, 1), None, datetime(2024, 1, 3)], pa.timestamp("us"))
    local = ROWS.append_column("at", at)
    buckets: dict[str, Any] = {"buckets": 1} if index == "bucket" else {}
    table = lakebed.create(
        f"memory://columns/local-{next(NUMBERS)}",
        local,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,
        index=index,
        table_version=version,
        **buckets,
    )
    table.upsert(local)
    before = table.timeline.last
    table.columns.add("note", "string", comment="free text")
    table.columns.add("left_at", "timestamp_ntz")
    assert table.schema.names == [*local.column_names, "note", "left_at"]
    (row,) = table.get([1]).to_pylist()
    table.upsert(
        pa.Table.from_pylist([{**row, "note": "late", "left_at": datetime(2024, 2, 1), "ts": 2}], table.schema)
    )
    expected = [{**old, "note": None, "left_at": None} for old in local.to_pylist()]
    expected[0] |= {"note": "late", "left_at": datetime(2024, 2, 1), "ts": 2}
    assert rows(table) == expected
    assert rows(table, "note", where="note = 'late'") == [{"note": "late"}]
    if kind == "mor":
        table.maintenance.compact()
    table.maintenance.cluster(sort_columns=["fare"])
    assert rows(table) == expected
    assert before is not None
    assert rows(table, as_of=before.time) == local.to_pylist()
    assert lakebed.open(table.uri).schema.names == table.schema.names
    for change in (lambda: table.columns.rename("fare", "price"), lambda: table.columns.add("x", "int", first=True)):
        with pytest.raises(LakebedError, match=r"real Hudi cannot read.*t\.columns\.add\(name, type\)"):
            change()
