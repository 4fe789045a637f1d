"""Mergers of the user's own: found by entry point and strategy id, asked about pairs, refused where they lie."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, UnsupportedFeature
from lakebed.merge import mergers
from lakebed.merge.mergers import Merger
from lakebed.table import Table
from support.sampling import HISTORIES, todays_of

SCHEMA = pa.schema(
    [("id", pa.int64()), ("city", pa.string()), ("amount", pa.int64()), ("limit", pa.int64()), ("who", pa.string())]
)
LEDGER = "8d1f7bd2-6c0f-4b7e-9f83-0f0f5d1c2b3a"
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "toy"))
    # a merger that a test registers is registered for that test alone
    monkeypatch.setattr(mergers, "_registered", {})


def new_table(uri: str, **words: Any) -> Table:
    named: dict[str, Any] = {"key": "id", "partition_by": "city", "index": "bucket", "merge": "ledger", **words}
    return lakebed.create(uri, SCHEMA, **named)


def upsert_model(stored: dict[Any, Row], rows: list[Row], *, moves: bool) -> None:
    def merged(old: Row, new: Row) -> Row | None:
        row = new | {"amount": old["amount"] + new["amount"], "limit": max(old["limit"], new["limit"])}
        return row if row["amount"] else None

    batch: dict[Any, Row | None] = {}
    for new in rows:
        at = new["id"] if moves else (new["id"], new["city"])
        before = batch.get(at)
        batch[at] = new if before is None else merged(before, new)
    for at, row in batch.items():
        old = stored.pop(at, None)
        result = row if row is None or old is None else merged(old, row)
        if result is not None:
            stored[at] = result


KINDS = [("cow", 9), ("cow", 6), ("mor", 9), ("mor", 8), ("mor", 6)]
CASES = todays_of(KINDS, ["bucket", "simple", "global_simple"], parts=3, variable=HISTORIES)


@pytest.mark.rest
@pytest.mark.parametrize(("kind", "version", "index"), [(*kind, index) for kind, index in CASES])
def test_random_histories_give_the_rows_of_the_model(kind: str, version: int, index: str) -> None:
    chance = random.Random(f"{kind} {version} {index}")
    uri = f"memory://mergers/{kind}{version}{index}"
    new_table(uri, type=kind, table_version=version, index=index)
    stored: dict[Any, Row] = {}
    for turn in range(7):
        rows = [
            {
                "id": chance.randrange(9),
                "city": chance.choice(["oslo", "rome"]),
                # log records meet each other before the base row: no two of them may make a delete
                "amount": chance.choice([-2, -1, 1, 2] if kind == "cow" else [1, 2]),
                "limit": chance.randrange(9),
                "who": chance.choice([None, "a", "b"]),
            }
            for _ in range(10)
        ]
        table = lakebed.open(uri)
        table.upsert(pa.Table.from_pylist(rows, SCHEMA))
        upsert_model(stored, rows, moves=index == "global_simple")
        if turn == 4:
            table.delete([1, 2])
            stored = {at: row for at, row in stored.items() if row["id"] not in (1, 2)}
        found = sorted(table.scan().to_arrow().to_pylist(), key=lambda r: (r["id"], r["city"]))
        assert found == sorted(stored.values(), key=lambda r: (r["id"], r["city"])), turn
        amounts = table.scan(columns=["amount"]).to_arrow().column("amount").to_pylist()
        assert (sorted(amounts), table.count()) == (sorted(row["amount"] for row in stored.values()), len(stored))
    if kind == "mor":
        lakebed.open(uri).maintenance.compact()
        assert lakebed.open(uri).count() == len(stored)


def test_a_delete_that_the_merger_makes_of_log_and_base_takes_the_row_away() -> None:
    table = new_table("memory://mergers/closed", type="mor")
    row = {"id": 1, "city": "oslo", "amount": 5, "limit": 1, "who": "a"}
    table.upsert(pa.Table.from_pylist([row, row | {"id": 2}], SCHEMA))
    table.upsert(pa.Table.from_pylist([row | {"amount": -5}, row | {"id": 2, "amount": 1}], SCHEMA))
    assert table.scan().to_arrow().to_pylist() == [row | {"id": 2, "amount": 6}]
    table.upsert(pa.Table.from_pylist([row | {"amount": -6, "id": 2}], SCHEMA))
    assert (table.scan().to_arrow().num_rows, table.count(), table.get([2]).num_rows) == (0, 0, 0)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_the_partition_column_may_be_a_field_of_the_key(kind: str) -> None:
    table = new_table(f"memory://mergers/key-of-path-{kind}", type=kind, key=["id", "city"], index="simple")
    for amount in (3, 4):
        table.upsert([{"id": 1, "city": "c0", "amount": amount, "limit": amount, "who": "a"}])
    assert table.get([(1, "c0")]).to_pylist() == [{"id": 1, "city": "c0", "amount": 7, "limit": 4, "who": "a"}]


def test_the_table_keeps_the_strategy_id_and_a_job_may_name_it() -> None:
    properties = new_table("memory://mergers/stored").properties
    assert properties["hoodie.record.merge.mode"] == "CUSTOM"
    assert properties["hoodie.record.merge.strategy.id"] == LEDGER
    table = lakebed.open("memory://mergers/stored")
    row = pa.Table.from_pylist([{"id": 1, "city": "oslo", "amount": 5, "limit": 1, "who": "a"}], SCHEMA)
    table.upsert(row, options={"hoodie.record.merge.strategy.id": LEDGER.upper()})
    table.upsert(row)
    assert table.get([1])["amount"].to_pylist() == [10]
    with pytest.raises(InvalidOption, match=r"hoodie\.record\.merge\.mode: the options have commit_time"):
        table.upsert(row, options={"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"})
    job = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.record.merge.strategy.id": LEDGER}
    lakebed.write(row, "memory://mergers/job", job)
    lakebed.write(row, "memory://mergers/job", job)
    assert lakebed.open("memory://mergers/job").scan().to_arrow()["amount"].to_pylist() == [10]


def test_without_the_merger_nothing_is_written_and_base_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    row = pa.Table.from_pylist([{"id": 1, "city": "oslo", "amount": 5, "limit": 1, "who": "a"}], SCHEMA)
    for kind in ("cow", "mor"):
        new_table(f"memory://mergers/missing{kind}", type=kind).upsert(row)
    monkeypatch.setattr(mergers, "plugins", lambda _: [])
    for kind in ("cow", "mor"):
        table = lakebed.open(f"memory://mergers/missing{kind}")
        for write in (table.upsert, table.insert, table.bulk_insert, table.delete):
            with pytest.raises(UnsupportedFeature, match=rf"strategy id {LEDGER}.*'lakebed\.mergers'"):
                write(row)
        assert table.scan().to_arrow().to_pylist() == row.to_pylist()
    with pytest.raises(InvalidOption, match=r"merge='ledger' is unknown.*entry point of 'lakebed\.mergers'"):
        new_table("memory://mergers/none")


def test_a_log_of_a_merger_that_is_missing_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    row = pa.Table.from_pylist([{"id": 1, "city": "oslo", "amount": 5, "limit": 1, "who": "a"}], SCHEMA)
    table = new_table("memory://mergers/log", type="mor")
    table.upsert(row)
    table.upsert(row)
    assert table.scan().to_arrow()["amount"].to_pylist() == [10]
    monkeypatch.setattr(mergers, "plugins", lambda _: [])
    with pytest.raises(UnsupportedFeature, match=LEDGER):
        lakebed.open("memory://mergers/log").scan().to_arrow()
    found = lakebed.open("memory://mergers/log").scan(query="read_optimized").to_arrow()
    assert found.to_pylist() == row.to_pylist()


class Broken(Merger):
    strategy_id = "11111111-1111-4111-8111-111111111111"

    def __init__(self, how: str = "rows") -> None:
        self.how = how

    def merge(self, old: pa.RecordBatch, new: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        if self.how == "rows":
            return new.slice(1), None
        count = new.num_rows
        given: dict[str, Any] = {
            "columns": (new.select(new.schema.names[1:]), None),
            "flags": (new, pa.array([1] * count)),
            "list of flags": (new, [True] * count),
            "nothing": None,
            "rows alone": new,
            "a table": (pa.Table.from_batches([new]), None),
            "three": (new, None, None),
            "key": (new.set_column(0, "id", pc.add(new["id"], 1000)), None),
            "no key": (new.set_column(0, "id", pa.nulls(count, pa.int64())), None),
            "path": (new.set_column(1, "city", pa.array(["bergen"] * count)), None),
        }
        return given[self.how]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("rows", "gave 0 rows of .* for 1 pairs"),
        ("columns", "gave 1 rows of"),
        ("flags", "gave 1 delete flags of type int64"),
        ("list of flags", r"gave \(RecordBatch, list\), not a record batch and delete flags"),
        ("nothing", "gave NoneType, not a record batch"),
        ("rows alone", "gave RecordBatch, not a record batch and delete flags"),
        ("a table", r"gave \(Table, NoneType\)"),
        ("three", r"gave \(RecordBatch, NoneType, NoneType\)"),
        ("key", r"gave a row with \{'id': 1001, 'city': 'oslo'\} for a pair of rows with \{'id': 1, 'city': 'oslo'\}"),
        ("no key", r"gave a row with \{'id': None, 'city': 'oslo'\}"),
        ("path", r"gave a row with \{'id': 1, 'city': 'bergen'\}"),
    ],
)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_rows_of_a_merger_are_checked(how: str, words: str, kind: str) -> None:
    row = pa.Table.from_pylist([{"id": 1, "city": "oslo", "amount": 5, "limit": 1, "who": "a"}], SCHEMA)
    table = new_table(f"memory://mergers/broken{how}{kind}", merge=Broken(how), type=kind)
    table.upsert(row)
    if kind == "mor":
        table.upsert(row)
    with pytest.raises(InvalidRecord, match=f"the merger Broken {words}"):
        table.upsert(row) if kind == "cow" else table.maintenance.compact()
    assert table.scan(query="read_optimized").to_arrow().to_pylist() == row.to_pylist()


class Lenient(Broken):
    """Gives old rows, or new ones, in a schema of its own making."""

    strategy_id = "22222222-2222-4222-8222-222222222222"

    def merge(self, old: pa.RecordBatch, new: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        rows = old if self.how == "old" else new
        return rows.cast(pa.schema([field.with_nullable(False) for field in rows.schema])), None


@pytest.mark.parametrize(("how", "city", "who"), [("old", "oslo", "a"), ("new", "rome", "b")])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_merger_takes_the_path_of_either_row_and_may_say_not_null(kind: str, how: str, city: str, who: str) -> None:
    row = {"id": 1, "city": "oslo", "amount": 5, "limit": 1, "who": "a"}
    table = new_table(f"memory://mergers/lenient{how}{kind}", merge=Lenient(how), type=kind, index="global_simple")
    table.upsert(pa.Table.from_pylist([row], SCHEMA))
    table.upsert(pa.Table.from_pylist([row | {"city": "rome", "who": "b"}], SCHEMA))
    assert table.scan().to_arrow().to_pylist() == [row | {"city": city, "who": who}]
    assert table.get([1])["who"].to_pylist() == [who]


def test_an_object_that_is_no_merger_is_refused() -> None:
    class NoId(Broken):
        strategy_id = "balance"

    with pytest.raises(InvalidOption, match="the strategy id 'balance', which is no UUID"):
        new_table("memory://mergers/noid", merge=NoId)
    with pytest.raises(InvalidOption, match="Did you mean 'PartialUpdateAvroPayload'"):
        new_table("memory://mergers/typo", merge="PartialUpdatePayload")


def test_a_merger_pickles() -> None:
    assert pickle.loads(pickle.dumps(Broken("flags"))) == Broken()
