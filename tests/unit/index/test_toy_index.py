"""An index that nobody here knows, installed from this folder alone: every verb places rows by it, tells it what was
written and undone, and gives new file groups to its handle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.index.base import Hashing
from lakebed.testing import Killed, crash_at

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
Rows = dict[tuple[str, str], int]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "toy"))


class Toy:
    """A table under the index, and the rows that it should hold."""

    def __init__(self, folder: Path) -> None:
        from key_book import KeyBook  # pyright: ignore[reportMissingImports]

        self.book: Any = KeyBook(str(folder / "keys.sqlite"))
        self.uri = str(folder / "t")
        self.rows: Rows = {}
        lakebed.create(self.uri, SCHEMA, key="id", partition_by="city", index=self.book)

    @property
    def table(self) -> lakebed.Table:
        return lakebed.open(self.uri)

    def check(self) -> None:
        """Rows and places are those of the model, every new file group was the handle's, nothing is unwell."""
        table = self.table
        stored = {(r["city"], r["id"]): r["v"] for r in table.scan().to_arrow().to_pylist()}
        assert stored == self.rows
        assert table.count() == len(self.rows)
        places = table.locate(pa.table({"id": [i for _, i in self.rows], "city": [c for c, _ in self.rows]}))
        where = zip(*(places[n].to_pylist() for n in ("partition_path", "key", "file_id")), strict=True)
        assert {(c, i): f for c, i, f in where} == self.book.places()
        assert {s.file_id for s in table.files} <= self.book.file_groups()
        assert self.book.instants() <= {i.time for i in table.timeline}
        assert table.indexes.verify().ok


def data(*rows: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "city": c, "v": v} for c, i, v in rows], schema=SCHEMA)


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Toy]:
    toy = Toy(tmp_path)
    toy.table.upsert(data(("a", "1", 1), ("a", "2", 2), ("b", "1", 3)))
    toy.rows = {("a", "1"): 1, ("a", "2"): 2, ("b", "1"): 3}
    toy.check()
    return toy


def test_an_index_that_hashes_without_a_key_hash_and_gives_no_numbers_is_refused(toy: Toy) -> None:
    class Hashes(Hashing):
        pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(toy.book), "hashing", Hashes())
        with pytest.raises(lakebed.LakebedError, match="'key_book' has hashing without a key_hash") as refused:
            toy.table.upsert(data(("a", "1", 100)))
    assert "Numbered" in refused.value.hint
    toy.check()


def test_upserts_go_where_it_says(toy: Toy) -> None:
    result = toy.table.upsert(data(("a", "1", 10), ("a", "3", 4), ("c", "1", 5)))
    assert (result.updated, result.inserted) == (1, 2)
    toy.rows |= {("a", "1"): 10, ("a", "3"): 4, ("c", "1"): 5}
    toy.check()


def test_deletes_of_every_kind_are_reported(toy: Toy) -> None:
    toy.table.upsert(data(("c", "1", 5), ("c", "2", 6), ("c", "3", 7)))
    assert toy.table.delete(data(("a", "1", 0))).deleted == 1
    assert toy.table.delete(["2"]).deleted == 2
    assert toy.table.delete(where="v = 7").deleted == 1
    toy.rows = {("b", "1"): 3, ("c", "1"): 5}
    toy.check()


@pytest.mark.parametrize("verb", ["insert", "bulk_insert"])
def test_inserts_go_through_its_handle(toy: Toy, verb: str) -> None:
    insert: Callable[..., Any] = getattr(toy.table, verb)
    insert(data(("a", "7", 7), ("d", "8", 8)))
    toy.rows |= {("a", "7"): 7, ("d", "8"): 8}
    toy.check()


@pytest.mark.parametrize("scope", ["partitions", "table"])
def test_overwrites_take_the_places_of_replaced_file_groups_away(toy: Toy, scope: Any) -> None:
    before = {s.file_id for s in toy.table.files}
    toy.table.insert_overwrite(data(("a", "1", 9), ("a", "9", 9)), scope=scope)
    kept = {} if scope == "table" else {("b", "1"): 3}
    toy.rows = {("a", "1"): 9, ("a", "9"): 9, **kept}
    toy.check()
    assert len({s.file_id for s in toy.table.files} & before) == len(kept)
    toy.table.delete_partitions(["a"])
    toy.rows = kept
    toy.check()


@pytest.mark.rest
def test_notes_of_a_dead_writer_are_undone(toy: Toy) -> None:
    told: set[str] = set()
    for at in range(1, 200):
        with crash_at(at, "kill"):
            try:
                toy.table.upsert(data(("a", "1", 100), ("e", "5", 5)))
            except Killed:
                pass
            else:
                break
        told |= toy.book.instants() - {i.time for i in toy.table.timeline}
        pending = {i.time for i in toy.table.timeline if not i.is_completed}
        told |= toy.book.instants() & pending
        toy.table.upsert(data(("b", "1", at)))
        toy.rows[("b", "1")] = at
        if ("e", "5") in {(r["city"], r["id"]) for r in toy.table.scan().to_arrow().to_pylist()}:
            break  # it was dead behind its completion
        toy.check()
    assert told, "no write died with something told to the index"
    toy.rows |= {("a", "1"): 100, ("e", "5"): 5}
    toy.check()


def test_a_failed_write_is_forgotten_at_once(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    tell = type(toy.book).update

    def update(self: Any, *given: Any) -> None:
        tell(self, *given)
        raise lakebed.LakebedError("the index is down", hint="", context={})

    monkeypatch.setattr(type(toy.book), "update", update)
    with pytest.raises(lakebed.LakebedError, match="the index is down"):
        toy.table.upsert(data(("a", "1", 100)))
    toy.check()


def test_its_metadata_table_is_repaired_like_any_other(toy: Toy) -> None:
    toy.table.indexes.drop("column_stats")
    toy.table.indexes.create("column_stats")
    toy.table.upsert(data(("a", "1", 11)))
    toy.rows["a", "1"] = 11
    assert toy.table.indexes.repair().ok
    toy.check()


def test_without_its_class_a_table_is_read_and_not_written(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakebed.index.registry.plugins", lambda _: [])
    assert toy.table.scan(where="id = '1'").to_arrow().num_rows == 2
    assert toy.table.get(["2"])["v"].to_pylist() == [2]
    with pytest.raises(InvalidOption, match="there is no index 'key_book'"):
        toy.table.upsert(data(("a", "1", 1)))


def test_the_plan_names_the_toy_index(toy: Toy) -> None:
    plan = toy.table.explain(upsert=data(("a", "1", 1), ("z", "1", 1)))
    assert "key_book: looks keys up in keys.sqlite" in str(plan)
    assert [(f.partition, f.updates, f.inserts) for f in plan.files] == [("a", 1, 0), ("z", 0, 1)]
