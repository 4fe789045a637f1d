"""The example with real texts: the topics of Python's manual that answer a question are those that a reader expects."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed")

_EXAMPLES = Path(__file__).parents[2] / "examples"


def test_questions_find_the_topics_that_answer_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_EXAMPLES))
    from nearest_texts.run import QUESTIONS, answers, build, topics

    table, embedding = build("memory://examples/topics")
    loop, error, part, module = (answers(table, embedding, question, 5) for question in QUESTIONS)
    assert {"while", "break"} <= set(loop)
    assert {"exceptions", "try", "raise"} <= set(error)
    assert "slicings" in part
    assert "import" in module
    assert answers(table, embedding, topics()["lambda"], 1) == ["lambda"]
    short = "variant_get(facts, '$.characters', 'int') < 1500"
    assert "while" not in answers(table, embedding, QUESTIONS[1], 1, where="topic <> 'exceptions'")
    assert all(len(topics()[topic]) < 1500 for topic in answers(table, embedding, QUESTIONS[0], 5, where=short))
