"""Conditions over a target and a source, taken apart."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.filters.pairs import PairReader, Side, conjunct_texts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("t.id = s.id AND t.a = 'x) and ('", ["t.id = s.id", "t.a = 'x) and ('"]),
        ("(t.id = s.id and t.end > 1) and s.case = 2", ["(t.id = s.id and t.end > 1)", "s.case = 2"]),
        ("t.end = 1 AND t.id == s.id", ["t.end = 1", "t.id == s.id"]),
        ("case when t.a = 1 and t.b = 2 then true end and t.id = s.id", None),
        ("t.a between 1 and 2 and `t`.`and` = 1", ["t.a between 1 and 2", "`t`.`and` = 1"]),
    ],
)
def test_a_join_condition_is_taken_apart_at_each_and_outside_of_parentheses(text: str, parts: list[str] | None) -> None:
    expected = parts or ["case when t.a = 1 and t.b = 2 then true end", "t.id = s.id"]
    assert conjunct_texts(text) == expected


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("t.open = s.open", "open"),
        ("(s.open == (t.open))", "open"),
        ("t.open = (s.open OR s.late)", "open"),
        ("t.open = s.open OR s.late", None),
        ("s.late AND (t.n = 1 AND s.open)", None),
        ("NOT t.open = s.open", None),
    ],
)
def test_an_equality_has_the_full_other_side_as_its_value(text: str, column: str | None) -> None:
    schema = pa.schema([("open", pa.bool_()), ("n", pa.int64())])
    source = pa.schema([("open", pa.bool_()), ("late", pa.bool_())])
    on = PairReader(Side.target(schema), Side.source(source)).on(text)
    assert [one.column for one in on.equalities] == ([] if column is None else [column])
    assert bool(on.others) == (column is None)


def test_a_merge_by_an_equality_or_another_condition_matches_the_rows_of_both() -> None:
    schema = pa.schema([("id", pa.int64()), ("open", pa.bool_()), ("n", pa.int64())])
    table = lakebed.create("memory://pairs/or", schema, key="id", index="simple")
    table.upsert({"id": [1, 2], "open": [True, False], "n": [1, 1]})
    source = pa.table({"open": [False], "late": [True]})
    merge = table.merge(source, "t.open = s.open OR s.late").when_matched_update({"n": "5"})
    assert merge.execute().updated == 2
    assert table.to_arrow()["n"].to_pylist() == [5, 5]
    lakebed.drop(table.uri)
