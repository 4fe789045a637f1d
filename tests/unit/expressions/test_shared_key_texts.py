"""Composite keys whose text is that of other field values, too: no row takes the place of another one's."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRecord
from lakebed.handles import group_writer
from lakebed.table import Table

Make = Callable[..., Table]
SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string()), ("p", pa.string()), ("v", pa.int64())])
# Both have one key text: `a:x,b:y,b:z`, ...
PAIRS: list[tuple[tuple[Any, Any], tuple[Any, Any]]] = [
    (("x", "y,b:z"), ("x,b:y", "z")),
    ((None, "z"), ("__null__", "z")),
    (("", "z"), ("__empty__", "z")),
]
INDEXES = ["simple", "global_simple", "bloom", "bucket", "record"]
EVERY_PAIR = pytest.mark.parametrize(("one", "other"), PAIRS)
EVERY_INDEX = pytest.mark.parametrize("index", INDEXES)
EVERY_TYPE = pytest.mark.parametrize("kind", ["cow", "mor"])


def rows(*given: tuple[Any, Any, str, int]) -> pa.Table:
    columns = list(zip(*given, strict=True))
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def new_table(make: Make, kind: str = "cow", index: str = "simple", **given: Any) -> Table:
    words = {"key": ["a", "b"], "partition_by": "p", "ordering": None, "type": kind, "index": index} | given
    return make(SCHEMA, **words)


def content(table: Table) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in lakebed.open(table.uri).scan().to_arrow().to_pylist()}


@contextmanager
def refused_rows(*pairs: tuple[Any, Any]) -> Generator[None]:
    """The block is refused with a message that names these key fields."""
    with pytest.raises(InvalidRecord) as raised:
        yield
    for pair in pairs:
        assert f"(a={pair[0]!r}, b={pair[1]!r})" in str(raised.value)


@EVERY_PAIR
@EVERY_TYPE
@EVERY_INDEX
def test_a_batch_with_both_is_refused(make: Make, index: str, kind: str, one: Any, other: Any) -> None:
    table = new_table(make, kind, index)
    with refused_rows(one, other):
        table.upsert(rows((*one, "p", 1), (*other, "p", 2)))
    assert content(table) == set()


@EVERY_PAIR
@EVERY_TYPE
@EVERY_INDEX
def test_a_row_does_not_replace_one_with_the_same_key_text(
    make: Make, index: str, kind: str, one: Any, other: Any
) -> None:
    table = new_table(make, kind, index)
    table.upsert(rows((*one, "p", 1), ("q", "r", "p", 3)))
    with refused_rows(one, other):
        table.upsert(rows((*other, "p", 2), ("s", "t", "p", 4)))
    # the row itself is updated as ever
    table.upsert(rows((*one, "p", 5)))
    assert content(table) == {(*one, "p", 5), ("q", "r", "p", 3)}


@EVERY_PAIR
@EVERY_TYPE
@pytest.mark.parametrize("index", ["simple", "bucket", "global_simple"])
@pytest.mark.parametrize("policy", ["drop", "fail"])
def test_an_insert_that_looks_does_not_drop_one_for_the_other(
    make: Make, index: str, kind: str, one: Any, other: Any, policy: str
) -> None:
    table = new_table(make, kind, index)
    table.upsert(rows((*one, "p", 1)))
    with pytest.raises(InvalidRecord):
        table.insert(rows((*other, "p", 2)), options={"hoodie.datasource.insert.dup.policy": policy})
    assert content(table) == {(*one, "p", 1)}


@EVERY_PAIR
@EVERY_TYPE
@EVERY_INDEX
def test_a_delete_of_one_leaves_the_other(make: Make, index: str, kind: str, one: Any, other: Any) -> None:
    table = new_table(make, kind, index)
    table.upsert(rows((*one, "p", 1), ("q", "r", "p", 3)))
    whole = pa.table({"a": pa.array([other[0]]), "b": pa.array([other[1]]), "p": ["p"]})
    for what in ([other], whole, whole.drop_columns(["p"])):
        with refused_rows(one, other):
            table.delete(what)
    assert len(content(table)) == 2
    table.delete([one])
    assert content(table) == {("q", "r", "p", 3)}


@EVERY_PAIR
@EVERY_TYPE
@EVERY_INDEX
def test_a_lookup_of_one_does_not_find_the_other(make: Make, index: str, kind: str, one: Any, other: Any) -> None:
    table = new_table(make, kind, index)
    table.upsert(rows((*one, "p", 1), ("q", "r", "p", 3)))
    assert table.get([other]).num_rows == 0
    assert sorted(table.get([one, other, ("q", "r")], columns=["v"])["v"].to_pylist()) == [1, 3]
    assert table.exists([other, one, ("q", "r")]).to_pylist() == [False, True, True]
    whole = pa.table({"a": pa.array([other[0], one[0]]), "b": pa.array([other[1], one[1]]), "p": ["p", "p"]})
    assert table.exists(whole).to_pylist() == [False, True]
    assert table.get(whole).num_rows == 1
    assert table.locate([other]).num_rows == 0
    assert table.locate([one, other]).num_rows == 1


@EVERY_PAIR
def test_a_key_text_finds_and_deletes_whatever_has_it(make: Make, one: Any, other: Any) -> None:
    table = new_table(make)
    table.upsert(rows((*one, "p", 1)))
    (text,) = table.scan(meta=True).to_arrow()["_hoodie_record_key"].to_pylist()
    assert table.get(lakebed.KeyText([text])).num_rows == 1
    table.delete(lakebed.KeyText([text]))
    table.upsert(rows((*other, "p", 2)))
    assert content(table) == {(*other, "p", 2)}


def test_rows_that_do_not_share_a_text_are_taken_whatever_is_in_them(make: Make) -> None:
    given: list[tuple[Any, Any]] = [
        ("x,y", "z"),
        ("x", "y,z"),
        ("a:1", "b:2"),
        ("b:", ","),
        (None, "b:__null__"),
        ("__null__", "__empty__"),
    ]
    table = new_table(make, "mor", "bucket")
    for value in (1, 2):
        table.upsert(rows(*[(*key, "p", value) for key in given], *[(*key, "p", value) for key in given]))
        assert content(table) == {(*key, "p", value) for key in given}
    assert table.get(given).num_rows == len(given)


def test_a_plain_insert_stores_both_and_an_upsert_touches_neither(make: Make) -> None:
    one, other = PAIRS[0]
    table = new_table(make)
    table.bulk_insert(rows((*one, "p", 1), (*other, "p", 2)))
    assert table.get([one], columns=["v"]).to_pydict() == {"v": [1]}
    assert table.get([other], columns=["v"]).to_pydict() == {"v": [2]}
    for key in (one, other):
        with refused_rows(one, other):
            table.upsert(rows((*key, "p", 3)))
    assert content(table) == {(*one, "p", 1), (*other, "p", 2)}


@pytest.mark.parametrize("index", ["global_simple", "record"])
@EVERY_TYPE
def test_a_row_that_would_move_the_other_to_its_partition_is_refused(make: Make, index: str, kind: str) -> None:
    one, other = PAIRS[0]
    table = new_table(make, kind, index)
    table.upsert(rows((*one, "p", 1)))
    with refused_rows(one, other):
        table.upsert(rows((*other, "q", 2)))
    assert content(table) == {(*one, "p", 1)}


@pytest.mark.parametrize("version", [9, 8, 6])
@EVERY_TYPE
def test_where_a_key_is_of_one_partition_both_are_stored_in_two(make: Make, version: int, kind: str) -> None:
    one, other = PAIRS[0]
    table = new_table(make, kind, "bucket", table_version=version)
    for value in (1, 2):
        table.upsert(rows((*one, "p", value), (*other, "q", value)))
        assert content(table) == {(*one, "p", value), (*other, "q", value)}
    with refused_rows(one, other):
        table.upsert(rows((*other, "p", 2)))


@EVERY_PAIR
@pytest.mark.parametrize("fills", [False, True])
def test_log_files_of_another_writer_do_not_replace_one_by_the_other(
    make: Make, monkeypatch: pytest.MonkeyPatch, one: Any, other: Any, fills: bool
) -> None:
    more = {"properties": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}} if fills else {}
    table = new_table(make, "mor", "bucket", **more)
    table.upsert(rows((*one, "p", 1)))
    table.maintenance.compact()
    # a writer that does not look, as real Hudi's
    with monkeypatch.context() as patched:
        patched.setattr(group_writer, "check_stored_key_fields", lambda *_: None)
        table.upsert(rows((*other, "p", 2)))
    table = lakebed.open(table.uri)
    for read in (table.maintenance.compact, table.scan().to_arrow):
        with refused_rows(one, other):
            read()
    assert table.scan(columns=["v"]).to_arrow()["v"].to_pylist() == [2]
    (text,) = table.scan(columns=["_hoodie_record_key"]).to_arrow()["_hoodie_record_key"].to_pylist()
    table.delete(lakebed.KeyText([text]))
    table.upsert(rows((*other, "p", 3)))
    assert content(table) == {(*other, "p", 3)}


@EVERY_PAIR
@EVERY_TYPE
@pytest.mark.parametrize("fills", [False, True])
def test_a_deleted_row_lets_another_with_its_key_text_in(
    make: Make, one: Any, other: Any, kind: str, fills: bool
) -> None:
    more = {"properties": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}} if fills else {}
    table = new_table(make, kind, "bucket", **more)
    table.upsert(rows((*one, "p", 1)))
    if kind == "mor":
        table.maintenance.compact()
    table.delete([one])
    table.upsert(rows((*other, "p", 2)))
    assert content(table) == {(*other, "p", 2)}
    assert table.get([one, other], columns=["v"])["v"].to_pylist() == [2]
    if kind == "mor":
        table.maintenance.compact()
        assert content(table) == {(*other, "p", 2)}
