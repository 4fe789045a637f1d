from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from support.sampling import rounds

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.float64()), ("tags", pa.list_(pa.string()))])
TAGS = [None, [], ["x"]]
Rows = dict[tuple[str, int], dict[str, Any]]


def modelled(before: Rows, after: Rows) -> dict[str, list[Any]]:
    """The difference of two states by key, as a table of `Diff` has it in no order."""
    changed = [
        (key, [name for name in before[key] if before[key][name] != after[key][name]])
        for key in sorted(before.keys() & after.keys())
        if before[key] != after[key]
    ]
    return {
        "insert": [after[key] for key in sorted(after.keys() - before.keys())],
        "update": [(names, before[key], after[key]) for key, names in changed],
        "delete": [before[key] for key in sorted(before.keys() - after.keys())],
    }


def found(diff: Any) -> dict[str, list[Any]]:
    parts: dict[str, list[Any]] = {"insert": [], "update": [], "delete": []}
    for row in diff.to_arrow().to_pylist():
        kind = row["change"]
        sides = {"insert": row["after"], "delete": row["before"]}
        parts[kind].append(sides.get(kind) or (row["changed"], row["before"], row["after"]))
    key = lambda row: (row["city"], row["id"])  # noqa: E731
    parts["update"].sort(key=lambda row: key(row[1]))
    return {kind: rows if kind == "update" else sorted(rows, key=key) for kind, rows in parts.items()}


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 9])
def test_the_difference_of_any_two_commits_is_that_of_their_rows(tmp_path: Path, kind: Any, version: int) -> None:
    for number in range(rounds(8, small=2)):
        dice = Random(number)
        place = str(tmp_path / str(number))
        table = lakebed.create(place, SCHEMA, key="id", partition_by="city", type=kind, table_version=version)
        rows: Rows = {}
        states: list[tuple[str, Rows]] = []
        for _ in range(6):
            ids = dice.sample(range(12), dice.randint(1, 6))
            if rows and dice.random() < 0.3:
                keys = dice.sample(sorted(rows), min(len(rows), 3))
                done = table.delete([{"id": i, "city": c} for c, i in keys])
                for key in keys:
                    del rows[key]
            else:
                new = [
                    {
                        "id": i,
                        "city": "ab"[i % 2],
                        "n": dice.choice([None, 0.5, float(i)]),
                        "tags": dice.choice(TAGS),
                    }
                    for i in ids
                ]
                done = table.upsert(pa.Table.from_pylist(new, SCHEMA))
                rows |= {(row["city"], row["id"]): row for row in new}
            states.append((done.instant, dict(rows)))
            if dice.random() < 0.4:
                table.maintenance.compact() if kind == "mor" else table.maintenance.cluster()
        for first in range(len(states)):
            for last in range(first, len(states)):
                diff = table.diff(states[first][0], states[last][0])
                assert found(diff) == modelled(states[first][1], states[last][1]), (number, first, last)


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1], "n": [1.0], "note": ["a"]}, key="id")
    table.upsert({"id": [1, 2, 3], "n": [1.0, float("nan"), 3.0], "note": ["a", "b", None]})
    return table


def summary(diff: Any) -> tuple[int, int, int, Mapping[str, int]]:
    return diff.summary.inserted, diff.summary.updated, diff.summary.deleted, diff.summary.changed


def test_equal_values_that_are_written_again_are_no_difference(table: lakebed.Table) -> None:
    table.upsert({"id": [2, 3], "n": [float("nan"), 3.0], "note": ["b", None]})
    table.maintenance.cluster()
    assert summary(table.diff(1)) == (0, 0, 0, {})
    assert len(table.diff(1)) == 0
    assert str(table.diff(1)) == "0 inserted, 0 updated, 0 deleted"


def test_a_difference_prints_its_counts_and_first_rows(table: lakebed.Table) -> None:
    table.upsert({"id": [1, 3, 4], "n": [1.5, 3.0, 4.0], "note": ["a", "c", "d"]})
    table.delete([2])
    assert str(table.diff(1)).splitlines() == [
        "1 inserted, 2 updated (n 1, note 1), 1 deleted",
        "insert  {'id': 4, 'n': 4.0, 'note': 'd'}",
        "update  n: 1.0 -> 1.5",
        "update  note: None -> 'c'",
        "delete  {'id': 2, 'n': nan, 'note': 'b'}",
    ]
    assert ">insert</td>" in table.diff(1)._repr_html_()  # pyright: ignore[reportPrivateUsage]


def test_columns_bound_what_is_compared(table: lakebed.Table) -> None:
    table.upsert({"id": [1, 3], "n": [1.5, 3.0], "note": ["a", "c"]})
    diff = table.diff(1, columns=["note"])
    assert summary(diff) == (0, 1, 0, {"note": 1})
    assert diff.to_arrow()["after"].to_pylist() == [{"note": "c"}]
    with pytest.raises(InvalidOption, match="no column"):
        table.diff(1, columns=["nope"])


def test_a_column_that_was_added_is_null_before(table: lakebed.Table) -> None:
    table.columns.add("city", "string")
    table.upsert({"id": [1], "n": [1.0], "note": ["a"], "city": ["Oslo"]})
    (row,) = table.diff(1).to_arrow().to_pylist()
    assert (row["changed"], row["before"]["city"], row["after"]["city"]) == (["city"], None, "Oslo")


def test_the_copies_of_a_key_are_counted(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1], "n": [1]}, key="id")
    table.bulk_insert({"id": [1, 1, 2], "n": [1, 2, 1]})
    table.bulk_insert({"id": [1], "n": [3]})
    assert summary(table.diff(1)) == (1, 0, 0, {})
    assert table.diff(1).to_arrow()["after"].to_pylist() == [{"id": 1, "n": 3}]


def test_a_row_that_moves_is_deleted_and_inserted(tmp_path: Path) -> None:
    rows = {"id": [1], "city": ["a"]}
    table = lakebed.create(str(tmp_path / "t"), rows, key="id", partition_by="city", index="global_bloom")
    table.upsert({"id": [1, 2], "city": ["a", "a"]})
    table.upsert({"id": [1], "city": ["b"]})
    parts = table.diff(1).to_arrow().to_pylist()
    assert sorted((row["change"], (row["after"] or row["before"])["city"]) for row in parts) == [
        ("delete", "a"),
        ("insert", "b"),
    ]


def test_a_table_without_meta_fields_has_a_difference_too(tmp_path: Path) -> None:
    properties = {"hoodie.populate.meta.fields": "false"}
    table = lakebed.create(str(tmp_path / "t"), {"id": [1], "n": [1]}, key="id", properties=properties)
    table.bulk_insert({"id": [1, 2], "n": [1, 1]})
    table.bulk_insert({"id": [2, 3], "n": [5, 1]})
    assert [row["after"] for row in table.diff(1).to_arrow().to_pylist()] == [{"id": 2, "n": 5}, {"id": 3, "n": 1}]


def test_unchanged_file_groups_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1], "city": ["a"]}, key="id", partition_by="city")
    table.upsert({"id": [1, 2], "city": ["a", "b"]})
    table.upsert({"id": [3], "city": ["b"]})
    (unread,) = (tmp_path / "t" / "a").glob("*.parquet")
    unread.write_bytes(b"damaged")
    assert table.diff(1).to_arrow()["after"].to_pylist() == [{"id": 3, "city": "b"}]


@pytest.mark.parametrize(("rows", "last"), [(20, "insert  {'id': 19}"), (21, "and 1 more; to_arrow() has all")])
def test_a_difference_shows_its_first_twenty_rows(tmp_path: Path, rows: int, last: str) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [0]}, key="id")
    table.upsert({"id": [100]})
    table.upsert({"id": list(range(rows))})
    assert str(table.diff(1)).splitlines()[-1] == last
