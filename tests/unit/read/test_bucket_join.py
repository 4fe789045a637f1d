"""Joins of two tables in this process, bucket by bucket: the rows of each kind, what is read, what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, SchemaConflict, UnsupportedFeature
from lakebed.read.bucket_join import JoinTask

HOWS = {
    "inner": "inner",
    "left": "left outer",
    "right": "right outer",
    "full": "full outer",
    "semi": "left semi",
    "anti": "left anti",
}


def new_table(folder: Path, name: str, rows: dict[str, Any], **given: Any) -> lakebed.Table:
    data = pa.table(rows)
    table = lakebed.create(str(folder / name), data, **{"key": "id", "index": "bucket", "buckets": 4} | given)
    table.upsert(data)
    return table


def rows_of(data: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in data.to_pylist()), key=str)


def two(folder: Path, **given: Any) -> tuple[lakebed.Table, lakebed.Table]:
    left = {"id": [f"k{n}" for n in range(40)], "x": list(range(40)), "city": ["Oslo", "Rome"] * 20}
    right = {
        "id": [f"k{n}" for n in range(20, 60)],
        "x": [n * 10 for n in range(20, 60)],
        "tags": [[n] for n in range(40)],
    }
    return new_table(folder, "left", left, **given), new_table(folder, "right", right, buckets=2)


@pytest.mark.parametrize("how", list(HOWS))
def test_every_join_gives_the_rows_of_a_join_of_full_tables(tmp_path: Path, how: str) -> None:
    left, right = two(tmp_path, partition_by="city", type="mor")
    left.upsert(pa.table({"id": ["k1", "k30"], "x": [-1, -30], "city": ["Rome", "Oslo"]}))
    theirs = right.scan(["id", "x"]).to_arrow().rename_columns(["id", "x_right"])
    expected = left.scan().to_arrow().join(theirs, "id", join_type=HOWS[how])
    joined = left.join(right.scan(["id", "x"]), how=how)
    assert joined.buckets == 2
    expected = expected.select(joined.schema.names)
    assert rows_of(joined.to_arrow()) == rows_of(expected)
    assert joined.count() == expected.num_rows


@pytest.mark.parametrize(
    ("how", "condition"),
    list(itertools.product(HOWS, ["x > 25", "x_right < 400 AND x > 3", "x IS NULL OR x_right IS NULL", "id = 'k33'"])),
)
def test_a_filter_is_of_the_result_wherever_it_is_applied(tmp_path: Path, how: str, condition: str) -> None:
    left, right = two(tmp_path)
    whole = left.join(right.scan(["id", "x"]), how=how).to_arrow()
    if "x_right" not in whole.column_names:
        condition = condition.replace("x_right", "x")
    ids = left.join(right.scan(["id", "x"]), how=how, columns=["ID"], where=condition).to_arrow()
    known = {"x > 25": lambda r: r["x"] is not None and r["x"] > 25, "id = 'k33'": lambda r: r["id"] == "k33"}
    if condition in known:
        assert sorted(ids["id"].to_pylist()) == sorted(r["id"] for r in whole.to_pylist() if known[condition](r))
    else:
        import duckdb

        rows = duckdb.sql(f"SELECT id FROM whole WHERE {condition}").fetchall()
        assert sorted(ids["id"].to_pylist()) == sorted(row[0] for row in rows)


def test_lists_and_structs_come_along(tmp_path: Path) -> None:
    left, right = two(tmp_path)
    found = left.join(right, columns=["id", "tags"], where="x = 20").to_arrow()
    assert found.to_pylist() == [{"id": "k20", "tags": [0]}]


def test_a_bucket_is_read_at_a_time_and_only_where_both_have_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = two(tmp_path)
    read: list[int] = []
    real = JoinTask.__call__

    def counted(self: JoinTask, bucket: int) -> Any:
        read.append(bucket)
        return real(self, bucket)

    monkeypatch.setattr(JoinTask, "__call__", counted)
    batches = left.join(right).to_batches()
    assert read == []
    next(batches)
    assert read == [0]
    one = left.join(right, where="id = 'k33'")
    assert sum(len(some) for some in one._task.left.slices) == 1
    assert sum(len(some) for some in one._task.right.slices) == 1


def test_more_columns_and_other_names_may_be_compared(tmp_path: Path) -> None:
    left = new_table(tmp_path, "a", {"id": [1, 2, 3], "x": [1, 2, 3]})
    right = new_table(tmp_path, "b", {"number": [1, 2, 4], "y": [1, 5, 4]}, key="number", buckets=8)
    assert rows_of(left.join(right, {"id": "number"}).to_arrow()) == [(1, 1, 1, 1), (2, 2, 2, 5)]
    assert rows_of(left.join(right, {"id": "number", "x": "y"}, "left").to_arrow()) == [
        (1, 1, 1, 1),
        (2, 2, None, None),
        (3, 3, None, None),
    ]


def test_a_part_of_the_key_that_is_hashed_is_joined_on(tmp_path: Path) -> None:
    lines = {"order": [1, 1, 2, 3], "line": [1, 2, 1, 1], "sum": [5, 6, 7, 8]}
    left = new_table(tmp_path, "lines", lines, key=["order", "line"], hash_fields="order")
    right = new_table(tmp_path, "orders", {"order": [1, 2], "who": ["Ada", "Bo"]}, key="order", buckets=2)
    assert rows_of(left.join(right, columns=["sum", "who"]).to_arrow()) == [(5, "Ada"), (6, "Ada"), (7, "Bo")]


def test_a_text_next_to_the_hashed_field_may_be_read_as_it(tmp_path: Path) -> None:
    """Hudi's parser finds `id:9` inside the text of a composite key, so the whole key decides."""
    rows = {"note": ["a,id:9", "b"], "id": ["7", "7"]}
    left = new_table(tmp_path, "notes", rows, key=["note", "id"], hash_fields="id")
    right = new_table(tmp_path, "ids", {"id": ["7"], "y": [1]})
    with pytest.raises(InvalidOption, match="not made the same way"):
        left.join(right, "id")
    assert left.join(left).count() == 2


def test_tables_that_cannot_be_joined_by_buckets_are_refused(tmp_path: Path) -> None:
    left, right = two(tmp_path)
    simple = new_table(tmp_path, "simple", {"id": ["k1"]}, index="simple", buckets=None)
    with pytest.raises(UnsupportedFeature, match="'simple' are not in buckets"):
        left.join(simple)
    with pytest.raises(InvalidOption, match="does not compare 'id' with 'id'"):
        left.join(right, "x")
    with pytest.raises(InvalidOption, match="no join 'cross'"):
        left.join(right, how="cross")  # pyright: ignore[reportArgumentType]
    numbers = new_table(tmp_path, "numbers", {"id": [1]})
    with pytest.raises(InvalidOption, match="not made the same way"):
        left.join(numbers)
    with pytest.raises(SchemaConflict, match="need one type"):
        left.join(right, {"id": "id", "city": "x"})
