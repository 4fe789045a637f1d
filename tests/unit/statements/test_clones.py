"""CREATE TABLE ... SHALLOW CLONE and DEEP CLONE: what is made, what the two tables share, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption, LakebedError, StorageError, TableExists, TableNotFound, UnsupportedFeature
from support.checks import files_below

ROWS = {"id": [1, 2, 3], "city": ["Oslo", "Rome", "Oslo"], "fare": [1.0, 2.0, None]}


@pytest.fixture
def t(tmp_path: Path) -> lakebed.Table:
    return lakebed.load(str(tmp_path / "t"), ROWS, key="id", partition_by="city", index="simple")


def fares(table: lakebed.Table) -> dict[int, Any]:
    return {row["id"]: row["fare"] for row in table.scan(["id", "fare"]).to_arrow().to_pylist()}


@pytest.mark.parametrize("kind", ["SHALLOW", "DEEP"])
def test_a_clone_has_the_rows_and_the_key_and_goes_its_own_way(t: lakebed.Table, tmp_path: Path, kind: str) -> None:
    clone = lakebed.sql(f"CREATE TABLE c {kind} CLONE t LOCATION '{tmp_path / 'c'}'", {"t": t})
    assert isinstance(clone, lakebed.Table)
    assert (clone.name, clone.uri, clone.schema.names) == ("c", str(tmp_path / "c"), ["id", "city", "fare"])
    assert fares(clone) == fares(t) == {1: 1.0, 2: 2.0, 3: None}
    assert [saved.name for saved in t.savepoints] == [f"clone file://{tmp_path / 'c'}"] * (kind == "SHALLOW")
    tables = {"t": t, "c": clone}
    lakebed.sql("UPDATE c SET fare = 9 WHERE id = 1", tables)
    lakebed.sql("DELETE FROM t WHERE id = 2", tables)
    assert (fares(clone), fares(t)) == ({1: 9.0, 2: 2.0, 3: None}, {1: 1.0, 3: None})


def test_a_clone_is_named_by_its_uri_too(t: lakebed.Table, tmp_path: Path) -> None:
    clone = lakebed.sql(f"create table lakebed.`{tmp_path / 'c'}` deep clone lakebed.`{t.uri}`")
    assert fares(clone) == fares(t)


def test_a_clone_of_a_clone_is_a_deep_one(t: lakebed.Table, tmp_path: Path) -> None:
    first = lakebed.sql(f"CREATE TABLE c SHALLOW CLONE t LOCATION '{tmp_path / 'c'}'", {"t": t})
    before = files_below(first.uri)
    with pytest.raises(UnsupportedFeature, match=r"files of yet another table.* \(in SQL DEEP CLONE\)"):
        lakebed.sql(f"CREATE TABLE d SHALLOW CLONE c LOCATION '{tmp_path / 'd'}'", {"c": first})
    assert (files_below(first.uri), (tmp_path / "d").exists()) == (before, False)
    second = lakebed.sql(f"CREATE TABLE d DEEP CLONE c LOCATION '{tmp_path / 'd'}'", {"c": first})
    third = lakebed.sql(f"CREATE TABLE e SHALLOW CLONE d LOCATION '{tmp_path / 'e'}'", {"d": second})
    lakebed.sql("UPDATE c SET fare = 7", {"c": first})
    assert fares(second) == fares(third) == {1: 1.0, 2: 2.0, 3: None}


def test_rows_in_log_files_are_cloned_by_a_copy(tmp_path: Path) -> None:
    t = lakebed.load(str(tmp_path / "t"), ROWS, key="id", type="mor", index="bucket", buckets=1)
    t.upsert({"id": [3], "city": ["Oslo"], "fare": [3.0]})
    with pytest.raises(UnsupportedFeature, match=r"1 of its 1 file slices have rows in log files.*DEEP CLONE"):
        lakebed.sql(f"CREATE TABLE c SHALLOW CLONE t LOCATION '{tmp_path / 'c'}'", {"t": t})
    assert (len(t.savepoints.list()), (tmp_path / "c").exists()) == (0, False)
    clone = lakebed.sql(f"CREATE TABLE c DEEP CLONE t LOCATION '{tmp_path / 'c'}'", {"t": t})
    assert fares(clone) == {1: 1.0, 2: 2.0, 3: 3.0}


@pytest.mark.parametrize("kind", ["SHALLOW", "DEEP"])
def test_an_existing_table_stays_as_it_is(t: lakebed.Table, tmp_path: Path, kind: str) -> None:
    other = lakebed.load(str(tmp_path / "c"), {"id": [9], "n": [9]}, key="id")
    before, source = files_below(other.uri), files_below(t.uri)
    tables = {"t": t, "c": other}
    with pytest.raises(TableExists, match="there is a table at"):
        lakebed.sql(f"CREATE TABLE c {kind} CLONE t", {"t": t, "c": other.uri})
    kept = lakebed.sql(f"CREATE TABLE IF NOT EXISTS c {kind} CLONE t", {"t": t, "c": other.uri})
    assert (kept.uri, kept.to_arrow().to_pylist()) == (other.uri, [{"id": 9, "n": 9}])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").write_text("id\n1\n")
    with pytest.raises(TableExists):
        lakebed.sql(f"CREATE TABLE d {kind} CLONE t LOCATION '{tmp_path / 'data'}'", tables)
    assert files_below(other.uri) == before
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["rows.csv"]
    assert {name: data for name, data in files_below(t.uri).items() if "savepoint" not in name}.keys() <= source.keys()
    assert len(t.savepoints.list()) == 0


WRONG: list[tuple[str, type[LakebedError], str]] = [
    ("CREATE TABLE c {kind} CLONE lakebed.`{place}/none` LOCATION '{place}/c'", TableNotFound, "there is no table at"),
    ("CREATE TABLE c {kind} CLONE nothing LOCATION '{place}/c'", InvalidOption, "'nothing', which is no table"),
    ("CREATE TABLE c {kind} CLONE rows LOCATION '{place}/c'", InvalidOption, "'rows', which is no table"),
    ("CREATE TABLE c {kind} CLONE (SELECT 1) LOCATION '{place}/c'", InvalidOption, "name of a table is missing"),
    (
        "CREATE TABLE c {kind} CLONE t VERSION AS OF 1 LOCATION '{place}/c'",
        InvalidOption,
        "rows that the table has",
    ),
    ("CREATE OR REPLACE TABLE c {kind} CLONE t LOCATION '{place}/c'", InvalidOption, "OR REPLACE is not possible"),
    ("CREATE TABLE c {kind} CLONE t", InvalidOption, "nothing says where it is to be"),
    ("CREATE TABLE c {kind} CLONE t LOCATION '{place}/t/c'", InvalidOption, "need folders of their own"),
    ("CREATE TABLE c {kind} CLONE t LOCATION '{place}/t'", InvalidOption, "need folders of their own"),
    ("CREATE TABLE c {kind} CLONE t LOCATION '/proc/c'", StorageError, "no folder can be made there"),
    ("CREATE TABLE c {kind} CLONE t LOCATION '{place}/c' USING lakebed", InvalidOption, "goes on where it should end"),
]


@pytest.mark.parametrize("kind", ["SHALLOW", "DEEP"])
def test_what_cannot_be_cloned_leaves_nothing(t: lakebed.Table, tmp_path: Path, kind: str) -> None:
    before = files_below(t.uri).keys()
    for text, error, match in WRONG:
        with pytest.raises(error, match=match):
            lakebed.sql(text.format(kind=kind, place=tmp_path), {"t": t, "rows": {"id": [1]}})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]
    assert files_below(t.uri).keys() == before
    assert len(t.savepoints.list()) == 0
