"""What verification lets pass: facts that nobody expected but that are right all the same."""

from __future__ import annotations

import pyarrow as pa

from lakebed.metadata_upkeep.comparison import _without_right


def facts(*rows: tuple[str, str]) -> pa.Table:
    keys, texts = zip(*rows, strict=True) if rows else ((), ())
    columns = {"key": keys, "entry": [""] * len(keys), "label": keys, "text": texts}
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def test_right_facts_that_were_not_expected_are_no_difference() -> None:
    expected = facts(("a", "1"), ("b", "2"))
    found = facts(("a", "other"), ("zero", "0..0"), ("wrong", "5"), ("b", "2"))
    right = facts(("a", "other"), ("zero", "0..0"), ("wrong", "6"))
    left = _without_right(expected, found, right)
    assert [side.column("key").to_pylist() for side in left] == [["b"], ["wrong", "b"]]
    assert [side.num_rows for side in _without_right(expected, found, facts())] == [2, 4]
    assert _without_right(facts(), found, right)[1].column("key").to_pylist() == ["wrong", "b"]


def test_differences_that_both_sides_explain_are_left_out() -> None:
    expected, found = facts(("a", "1"), ("b", "2")), facts(("b", "2"))
    assert [s.column("key").to_pylist() for s in _without_right(expected, found, facts(("b", "2")))] == [[], []]
    assert [s.column("key").to_pylist() for s in _without_right(expected, found, expected)] == [["a"], []]
