"""Upserts of rows with some columns: known keys keep the others, whatever the table and its index."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, SchemaConflict, UnsupportedFeature
from lakebed.format.log_file import HeaderKey, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import META_COLUMNS
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from support.sampling import HISTORIES, todays_of

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("tags", pa.list_(pa.string())),
    ]
)
Row = dict[str, Any]


def new_table(uri: str, **words: Any) -> Table:
    named: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "bucket", **words}
    return lakebed.create(uri, SCHEMA, **named)


def table_of(rows: list[Row], columns: list[str]) -> pa.Table:
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    return pa.Table.from_pylist([{name: row[name] for name in columns} for row in rows], schema)


def visible_rows(table: Table) -> list[Row]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: (row["id"], row["city"]))


def row(id: int, ts: int, city: str = "oslo", s: str | None = None, n: int | None = None) -> Row:
    return {"id": id, "city": city, "ts": ts, "s": s, "n": n, "tags": None if n is None else [str(n)]}


def blocks(table: Table) -> list[dict[int, str]]:
    """The headers of all log blocks but their schemas."""
    storage = open_storage(table.uri)
    snapshot = open_snapshot(storage, load_table_config(storage))
    logs = [log for s in snapshot.file_slices() for log in s.log_files]
    return [dict(head.headers) for log in logs for head in scan_blocks(FileSource(storage, log.path, log.size))]


def upsert_model(stored: dict[Any, Row], rows: list[Row], columns: list[str], *, event_time: bool) -> None:
    batch: dict[Any, Row] = {}
    for new in rows:
        at = (new["id"], new["city"])
        if at not in batch or not event_time or new["ts"] >= batch[at]["ts"]:
            batch[at] = new
    empty = dict.fromkeys(SCHEMA.names)
    for at, new in batch.items():
        old = stored.get(at)
        given = {name: new[name] for name in columns}
        if old is None or not event_time or new["ts"] >= old["ts"]:
            stored[at] = {**(old or empty), **given}


KINDS = [("cow", 9), ("cow", 6), ("mor", 9), ("mor", 8), ("mor", 6)]
INDEXES, MERGES = ["bucket", "simple", "record"], ["event_time", "commit_time"]
CASES = [
    (kind, version, index, merge)
    for (kind, version), index, merge in todays_of(KINDS, INDEXES, MERGES, parts=2, variable=HISTORIES)
    if (index, version) != ("record", 6)
]


@pytest.mark.parametrize(("kind", "version", "index", "merge"), CASES)
def test_random_histories_give_the_rows_of_the_model(kind: str, version: int, index: str, merge: str) -> None:
    chance = random.Random(f"{kind} {version} {index}")
    table = new_table(
        f"memory://partial/{kind}{version}{index}{merge}", type=kind, table_version=version, index=index, merge=merge
    )
    stored: dict[Any, Row] = {}
    choices = [SCHEMA.names, ["id", "city", "ts", "n"], ["s", "ts", "city", "id"], ["id", "tags", "ts", "city", "n"]]
    late = kind == "cow"
    for turn in range(9):
        columns = SCHEMA.names if turn == 0 else chance.choice(choices)
        # of a log the newer records are merged with each other first: late ones may then fill them
        times = (lambda: chance.randrange(20)) if late else (lambda now=turn: 10 * now + chance.randrange(10))
        rows = [
            # a key of the record index stays in one partition path
            row(id, times(), ["oslo", "rome"][id % 2], chance.choice([None, "a", "b"]), chance.choice([None, 1, 2]))
            for id in (chance.randrange(14) for _ in range(12))
        ]
        data = table_of(rows, columns)
        table.upsert(data, partial=columns is not SCHEMA.names)
        upsert_model(stored, rows, columns, event_time=merge == "event_time")
        assert visible_rows(table) == sorted(stored.values(), key=lambda r: (r["id"], r["city"])), (turn, columns)
    if kind == "mor":
        table.maintenance.compact()
        assert visible_rows(table) == sorted(stored.values(), key=lambda r: (r["id"], r["city"]))


def test_log_blocks_hold_the_given_columns() -> None:
    table = new_table("memory://partial/blocks", type="mor")
    table.upsert(table_of([row(1, 1, s="a", n=1), row(2, 1, s="b", n=2)], SCHEMA.names))
    table.upsert(table_of([row(1, 2, n=7)], ["n", "id", "city", "ts"]), partial=True)
    (block,) = blocks(table)
    assert block[HeaderKey.IS_PARTIAL] == "true"
    fields = [f["name"] for f in json.loads(block[HeaderKey.SCHEMA])["fields"]]
    assert fields == [*META_COLUMNS, "id", "city", "ts", "n"]
    assert visible_rows(table) == [row(1, 2, s="a", n=1) | {"n": 7}, row(2, 1, s="b", n=2)]
    plan = table.explain(upsert=table_of([row(1, 2, n=7)], ["n", "id", "city", "ts"]), partial=True)
    assert plan.note.startswith("partial rows without s, tags: known keys keep them, log blocks hold the given columns")


def test_real_hudi_wants_the_column_that_marks_deletes_in_every_block() -> None:
    schema = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "index": "bucket", "type": "mor"}
    table = lakebed.create("memory://partial/marks", schema, **words)
    first = row(1, 1, s="a", n=1) | {"_hoodie_is_deleted": False}
    table.upsert(pa.Table.from_pylist([first], schema))
    some = table_of([row(1, 2, n=7)], ["id", "ts", "n"])
    assert "stored rows are read to fill them in" in table.explain(upsert=some, partial=True).note
    table.upsert(some, partial=True)
    table.upsert(some.append_column("_hoodie_is_deleted", pa.array([None], pa.bool_())), partial=True)
    assert [HeaderKey.IS_PARTIAL in block for block in blocks(table)] == [False, True]
    assert visible_rows(table) == [first | {"ts": 2, "n": 7, "_hoodie_is_deleted": None}]
    table.upsert(some.append_column("_hoodie_is_deleted", pa.array([True])), partial=True)
    assert visible_rows(table) == []


def test_version_6_has_complete_rows_in_its_logs() -> None:
    table = new_table("memory://partial/six", type="mor", table_version=6)
    table.upsert(table_of([row(1, 5, s="a", n=1), row(2, 5, s="b", n=2)], SCHEMA.names))
    result = table.upsert(table_of([row(1, 6, n=7), row(2, 4, n=8)], ["n", "id", "city", "ts"]), partial=True)
    assert (result.rows, result.unchanged) == (2, 1)
    (block,) = blocks(table)
    assert HeaderKey.IS_PARTIAL not in block
    assert visible_rows(table) == [row(1, 6, s="a", n=1) | {"n": 7}, row(2, 5, s="b", n=2)]


def test_nulls_of_an_ignoring_table_stand_for_absent_columns() -> None:
    for kind in ("cow", "mor"):
        table = new_table(f"memory://partial/ignoring{kind}", type=kind, merge="PartialUpdateAvroPayload")
        table.upsert(table_of([row(1, 5, s="a", n=1)], SCHEMA.names))
        table.upsert(table_of([row(1, 6, n=7), row(2, 6, n=8)], ["n", "id", "city", "ts"]), partial=True)
        assert visible_rows(table) == [row(1, 6, s="a", n=1) | {"n": 7}, row(2, 6, n=8) | {"tags": None}]


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_new_key_needs_the_columns_that_may_not_be_null(kind: str, version: int) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), False), ("ts", pa.int64()), pa.field("must", pa.string(), False), ("n", pa.int32())]
    )
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "type": kind, "index": "bucket"}
    table = lakebed.create(f"memory://partial/must{kind}{version}", schema, table_version=version, **words)
    table.upsert(pa.Table.from_pylist([{"id": 1, "ts": 1, "must": "a", "n": 1}], schema))
    given = pa.table({"id": pa.array([1], pa.int64()), "ts": pa.array([2], pa.int64()), "n": pa.array([5], pa.int32())})
    table.upsert(given, partial=True)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "ts": 2, "must": "a", "n": 5}]
    with pytest.raises(SchemaConflict, match="record key '9' is new, and the data lacks must"):
        table.upsert(given.set_column(0, "id", pa.array([9], pa.int64())), partial=True)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "ts": 2, "must": "a", "n": 5}]
    assert not table.schema.field("must").nullable


def test_tables_that_take_no_partial_rows_say_so() -> None:
    table = new_table("memory://partial/refused", index="global_simple")
    whole = table_of([row(1, 1, s="a", n=1)], SCHEMA.names)
    table.upsert(whole)
    some = table_of([row(1, 2, n=1)], ["id", "city", "ts", "n"])
    with pytest.raises(UnsupportedFeature, match="moves there, with all its columns"):
        table.upsert(some, partial=True)
    with pytest.raises(SchemaConflict, match="lacks the table's columns s, tags"):
        table.upsert(some)
    with pytest.raises(UnsupportedFeature, match="insert adds rows"):
        table.insert(some, options={"lakebed.write.partial": True})
    with pytest.raises(SchemaConflict, match="ordering column 'ts'"):
        new_table("memory://partial/ordering").upsert(some.drop_columns(["ts"]), partial=True)
    with pytest.raises(InvalidOption):
        table.upsert(some, options={"lakebed.write.partial": "perhaps"})
    assert visible_rows(table) == whole.to_pylist()


def test_new_columns_may_come_with_partial_rows() -> None:
    for kind in ("cow", "mor"):
        table = new_table(f"memory://partial/evolves{kind}", type=kind)
        table.upsert(table_of([row(1, 1, s="a", n=1), row(2, 1, s="b")], SCHEMA.names))
        some = table_of([row(1, 2)], ["id", "city", "ts"]).append_column("extra", pa.array([1.5]))
        table.upsert(some, partial=True)
        assert visible_rows(table) == [
            row(1, 2, s="a", n=1) | {"extra": 1.5},
            row(2, 1, s="b") | {"extra": None},
        ]


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("index", ["bucket", "simple", "record"])
def test_a_deleted_key_that_comes_again_takes_nothing_of_what_was_deleted(index: str, version: int) -> None:
    table = new_table(f"memory://partial/again{index}{version}", type="mor", index=index, table_version=version)
    table.upsert(table_of([row(1, 1, s="secret", n=1), row(2, 1, s="b", n=2)], SCHEMA.names))
    table.upsert(table_of([row(1, 2, n=7)], ["id", "city", "ts", "n"]), partial=True)
    table.delete([1])
    table.upsert(table_of([row(1, 3, n=8), row(2, 3, n=9)], ["id", "city", "ts", "n"]), partial=True)
    left = [row(1, 3, n=8) | {"tags": None}, row(2, 1, s="b", n=2) | {"ts": 3, "n": 9}]
    assert visible_rows(table) == left
    table.upsert(table_of([row(1, 4, s="new")], ["id", "city", "ts", "s"]), partial=True)
    left[0] |= {"ts": 4, "s": "new"}
    assert visible_rows(table) == left
    table.maintenance.compact()
    assert visible_rows(table) == left


def test_blocks_stay_partial_where_all_keys_are_there() -> None:
    table = new_table("memory://partial/there", type="mor")
    table.upsert(table_of([row(n, 1, s="a", n=n) for n in (1, 2)], SCHEMA.names))
    table.delete([1])
    table.upsert(table_of([row(2, 3, n=9)], ["id", "city", "ts", "n"]), partial=True)
    assert [HeaderKey.IS_PARTIAL in block for block in blocks(table)] == [False, True]
    assert visible_rows(table) == [row(2, 1, s="a", n=2) | {"ts": 3, "n": 9}]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_partial_dicts_that_name_different_columns_change_nothing(kind: str) -> None:
    """A dict would store null in the columns that only others name."""
    table = new_table(f"memory://partial/differing-{kind}", type=kind)
    stored = [row(1, 1, s="a", n=1), row(2, 1, s="b", n=2)]
    table.upsert(stored)
    new = [{"id": 1, "city": "oslo", "ts": 2, "s": "c"}, {"id": 2, "city": "oslo", "ts": 2, "n": 3}]
    with pytest.raises(InvalidOption, match=r"row 0 \(from 0\) lacks n"):
        table.upsert(new, partial=True)
    assert visible_rows(table) == stored
    for one in new:
        table.upsert([one], partial=True)
    assert visible_rows(table) == [{**old, **changed} for old, changed in zip(stored, new, strict=True)]
