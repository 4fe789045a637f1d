"""What deletes take: keys in their place, conditions by name, and dry runs."""

from __future__ import annotations

from itertools import count
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlglot

import lakebed
from lakebed.errors import InvalidOption
from lakebed.operations import delete as delete_module
from lakebed.operations.delete import MAX_LOOKED_UP
from lakebed.table import Table

ROWS = pa.table({"id": ["true", "b", "c"], "city": ["x", "x", "y"], "v": [1, 2, 3]})
KINDS = [(kind, index) for kind in ("cow", "mor") for index in ("bucket", "simple", "record", "global_simple", "bloom")]
_numbers = count()


def new_table(type: Literal["cow", "mor"] = "cow", index: str = "simple", **more: Any) -> Table:
    uri = f"memory://deletes/{next(_numbers)}"
    table = lakebed.create(uri, ROWS, key="id", type=type, index=index, **more)
    table.upsert(ROWS)
    return table


def ids(table: Table) -> list[str]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("text", ["true", "b", "v > 1", ""])
def test_a_text_in_the_place_of_keys_is_refused_with_both_ways_to_say_it(text: str) -> None:
    table = new_table()
    for dry_run in (False, True):
        with pytest.raises(InvalidOption, match="may be a key or a condition") as raised:
            table.delete(text, dry_run=dry_run)
        assert f"t.delete([{text!r}])" in raised.value.hint
        assert f"t.delete(where={text!r})" in raised.value.hint
    with pytest.raises(InvalidOption, match="may be a key or a condition"):
        lakebed.write(text, table.uri, {"hoodie.datasource.write.operation": "delete"})
    assert ids(table) == ["b", "c", "true"]


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda t: t.delete(pc.field("v") > 1), "is a condition, not keys", "where="),
        (lambda t: t.delete(5), "as a list, not 5", "t.delete([5])"),
        (lambda t: t.delete(b"b"), "as a list, not b'b'", "t.delete([b'b'])"),
        (lambda t: t.delete(), "neither keys nor a condition", "t.delete(where=condition)"),
        (lambda t: t.delete(["b"], where="v = 1"), "both keys and a condition", "t.delete([key, ...])"),
        (lambda t: t.delete(where=["b"]), "takes a SQL condition or an Arrow expression as where", ""),
        (lambda t: t.count(where=sqlglot.condition("id = 1")), "as where, not EQ( this=Column(", ""),
        (lambda t: t.count(where=7), "takes a SQL condition or an Arrow expression as where", ""),
    ],
)
def test_other_wrong_deletes_name_what_to_give(call: Any, message: str, hint: str) -> None:
    table = new_table()
    with pytest.raises(InvalidOption) as raised:
        call(table)
    assert message in raised.value.message
    assert hint in raised.value.hint
    assert ids(table) == ["b", "c", "true"]


def test_a_key_that_reads_as_a_condition_deletes_its_row_alone() -> None:
    table = new_table()
    assert table.delete(["true"]).deleted == 1
    assert ids(table) == ["b", "c"]


@pytest.mark.parametrize("condition", ["v >= 2", pc.field("v") >= 2], ids=["sql", "arrow"])
def test_conditions_have_the_name_where(condition: Any) -> None:
    table = new_table(partition_by="city")
    assert table.count(where=condition) == 2
    assert table.delete(where=condition, dry_run=True).deleted == 2
    assert table.delete(where=condition).deleted == 2
    assert ids(table) == ["true"]


@pytest.mark.parametrize(("type", "index"), KINDS)
@pytest.mark.parametrize("partition_by", [None, "city"])
def test_a_dry_run_counts_the_rows_that_the_delete_then_deletes(
    type: Literal["cow", "mor"], index: str, partition_by: str | None
) -> None:
    table = new_table(type, index, partition_by=partition_by)
    # in the log files of a merge-on-read table: one is deleted, one is written again
    table.delete(["c"])
    table.upsert(ROWS.slice(1, 1))
    before = table.timeline.last
    moved = pa.table({"id": ["true", "b"], "city": ["y", "x"]})
    for what in (["b", "c", "b", "never"], pa.table({"id": ["b", "c"]}), moved):
        result = table.delete(what, dry_run=True)
        stays = partition_by is not None and what is moved and "global" not in index and index != "record"
        assert result.deleted == (2 if what is moved and not stays else 1)
        assert result.dry_run
        assert "would be deleted" in str(result)
        assert result.to_dict()["instant"] == ""
    assert (ids(table), table.timeline.last) == (["b", "true"], before)
    expected = table.delete(moved, dry_run=True).deleted
    table.delete(moved)
    assert len(ids(table)) == 2 - expected


def test_a_dry_run_of_partitions_counts_their_rows() -> None:
    table = new_table(partition_by="city")
    result = table.delete_partitions("x*", dry_run=True)
    assert (result.replaced_file_groups, result.replaced_rows, result.dry_run) == (1, 2, True)
    assert str(result) == "delete_partition, dry run: would replace 1 file group with 2 rows"
    assert ids(table) == ["b", "c", "true"]
    with pytest.raises(InvalidOption, match="has no partition"):
        table.delete_partitions("z", dry_run=True)


def test_a_dry_run_raises_what_the_delete_raises() -> None:
    table = new_table()
    for where in ("nope = 1", "v = = 1"):
        for dry_run in (True, False):
            with pytest.raises(InvalidOption):
                table.delete(where=where, dry_run=dry_run)
    with pytest.raises(InvalidOption, match="a key to delete is null"):
        table.delete([None], dry_run=True)


@pytest.mark.parametrize(("kind", "index"), KINDS)
def test_counts_of_deletes_mean_the_same_for_every_index(kind: Literal["cow", "mor"], index: str) -> None:
    for partitions in ({}, {"partition_by": "city"}):
        table = new_table(kind, index, **partitions, **({"buckets": 1} if index == "bucket" else {}))
        keys = {"id": ["b", "gone"], "city": ["x", "x"]}
        for what in (["b", "gone", "gone"], keys, pa.table(keys)):
            given = len(what) if isinstance(what, list) else 2
            dry = table.delete(what, dry_run=True)
            assert (dry.rows, dry.deleted, dry.unchanged) == (2, 1, 1)
            done = table.delete(what)
            if done.deleted is None:  # deletes in log files of a bucket are not looked up
                assert (kind, index) == ("mor", "bucket")
                assert (done.rows, done.unchanged) == (given, 0)
            else:
                assert (done.rows, done.deleted, done.unchanged, done.combined) == (given, 1, 1, given - 2)
            assert ids(table) == ["c", "true"]
            table.upsert(ROWS.slice(1, 1))
        absent = table.delete(["gone", "lost"])
        assert (absent.rows, absent.deleted or 0) == (2, 0)
        assert absent.unchanged == (0 if absent.deleted is None else 2)


KINDS_AND_INDEXES = [("cow", "simple"), ("mor", "simple"), ("cow", "bucket"), ("cow", "record")]


def _numbered(name: str, kind: str, index: str) -> lakebed.Table:
    options: dict[str, Any] = {"buckets": 2} if index == "bucket" else {}
    uri = f"memory://deletes/{name}-{kind}-{index}"
    table = lakebed.create(uri, {"id": [1], "v": [1]}, key="id", type=kind, index=index, **options)
    table.upsert({"id": [1, 2, 3], "v": [1, 2, 3]})
    return table


@pytest.mark.parametrize(("kind", "index"), KINDS_AND_INDEXES)
def test_a_delete_that_finds_nothing_makes_no_commit(kind: str, index: str) -> None:
    table = _numbered("nothing", kind, index)
    before, files = [str(i) for i in table.timeline], list(table.opened.storage.list(""))
    selectors: list[dict[str, Any]] = [
        {"keys": [98, 99]},
        {"keys": [{"id": 98}, {"id": 99}]},
        {"keys": pa.table({"id": [98, 99]})},
        {"keys": lakebed.KeyText(["98", "99"])},
        {"where": "id > 50"},
        {"where": "v is null", "message": "tidy"},
    ]
    for selector in selectors:
        done = table.delete(**selector)
        assert (done.instant, done.deleted, done.files) == ("", 0, ())
        assert done.unchanged == (0 if "where" in selector else 2)
        assert "so there is no commit" in str(done)
        assert table.changes(done.checkpoint).to_arrow().num_rows == 0
    assert [str(i) for i in table.timeline] == before
    assert list(table.opened.storage.list("")) == files
    assert table.delete([3, 99]).deleted == 1
    assert table.delete(where="id = 2 or id > 50").deleted == 1
    assert table.to_arrow()["id"].to_pylist() == [1]


def test_a_delete_that_records_more_than_rows_makes_a_commit() -> None:
    table = _numbered("records", "cow", "simple")
    assert table.delete([99], metadata={"position": "7"}).instant
    assert table.delete([99], once=lakebed.Once("stream", 3)).instant
    assert table.delete([99], once=lakebed.Once("stream", 3)).skipped
    assert [commit.metadata for commit in table.versions][-2] == '{"position": "7"}'


@pytest.mark.parametrize("is_table", [False, True])
@pytest.mark.parametrize("count", [MAX_LOOKED_UP, MAX_LOOKED_UP + 1])
def test_a_delete_of_many_keys_that_finds_nothing_makes_no_commit(count: int, is_table: bool) -> None:
    table = _numbered(f"many-{count}-{is_table}", "cow", "simple")
    keys = list(range(10, 10 + count))
    done = table.delete(pa.table({"id": keys}) if is_table else keys)
    assert (done.instant, done.deleted, done.unchanged) == ("", 0, count)
    assert table.delete([*keys, 2]).deleted == 1  # the last of the keys, which a second look finds
    table.upsert({"id": [2], "v": [2]})
    assert table.delete(list(range(3, 3 + count))).deleted == 1
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]


def test_rows_that_come_between_the_look_and_the_delete_are_deleted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _numbered("between", "cow", "simple")

    def first_another(context: Any, verb: Any) -> Any:
        found = looked_up(context, verb)
        lakebed.open(table.uri).upsert({"id": [4], "v": [9]})
        return found

    looked_up = delete_module._looked_up  # pyright: ignore[reportPrivateUsage]
    with monkeypatch.context() as patch:
        # another writer commits just between the look and the beginning of the delete
        patch.setattr(delete_module, "_looked_up", first_another)
        assert table.delete(where="v >= 3").deleted == 2
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_blind_delete_makes_no_commit_where_its_buckets_have_no_file() -> None:
    columns = pa.schema({"id": pa.int64(), "part": pa.string(), "v": pa.int64()})
    options: dict[str, Any] = {"key": "id", "partition_by": "part", "type": "mor", "index": "bucket", "buckets": 64}
    table = lakebed.create("memory://deletes/empty-buckets", columns, **options)
    table.upsert({"id": [1], "part": ["a"], "v": [1]})
    assert table.delete(pa.table({"id": [1], "part": ["b"]})).instant == ""
    assert table.delete(pa.table({"id": [2], "part": ["a"]})).instant == ""
    assert table.delete(pa.table({"id": [1], "part": ["a"]})).instant
    assert table.count() == 0
