"""Conditions over a target and a source, taken apart."""

from __future__ import annotations

import pytest

from lakebed.filters.pairs import conjunct_texts


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
