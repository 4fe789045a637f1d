"""What verification lets pass: facts that nobody expected but that are right all the same."""

from __future__ import annotations

import pyarrow as pa

from lakebed.services.index_verification import _without_right


def facts(*rows: tuple[str, str]) -> pa.Table:
    keys, texts = zip(*rows, strict=True) if rows else ((), ())
    columns = {"key": keys, "entry": [""] * len(keys), "label": keys, "text": texts}
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def test_right_facts_that_nobody_expected_are_no_difference() -> None:
    expected = facts(("a", "1"), ("b", "2"))
    found = facts(("a", "other"), ("zero", "0..0"), ("wrong", "5"), ("b", "2"))
    right = facts(("a", "other"), ("zero", "0..0"), ("wrong", "6"))
    assert _without_right(expected, found, right).column("key").to_pylist() == ["a", "wrong", "b"]
    assert _without_right(expected, found, facts()).num_rows == 4
    assert _without_right(facts(), found, right).column("key").to_pylist() == ["wrong", "b"]
