"""Scores are BM25: a search in layers gives those of a model, with ties by key."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from lakebed.text_index.lists import InvertedLists, TextRows, memory_layer
from lakebed.text_index.scores import Query, Statistics
from lakebed.text_index.search import LayeredText
from lakebed.text_index.words import query_words, words_of
from lakebed.vector_index.entries import row_hashes
from lakebed.vector_index.layers import Groups
from support.text_model import best_rows

WORDS = ["a", "b", "c", "d", "é"]


def of_table(rows: list[dict[str, str]]) -> LayeredText:
    keys, texts = (pa.array([row[name] for row in rows], pa.string()) for name in ("id", "body"))
    words = words_of(texts)
    part = TextRows(keys, row_hashes(keys, "p"), np.zeros(len(rows), np.int64), words.lengths)
    layer = memory_layer(InvertedLists.of([(part, words)]), Groups(pa.array(["p"]), pa.array(["f"])))
    return LayeredText.of_table(layer, Statistics(0, 0))


@pytest.mark.parametrize("seed", range(8))
def test_the_best_rows_are_those_of_the_model_with_ties_by_key(seed: int) -> None:
    dice = random.Random(seed)
    rows = [
        {"id": f"k{n:03d}", "body": " ".join(dice.choices(WORDS, k=dice.randrange(0, 5)))}
        for n in dice.sample(range(200), 120)
    ]
    text = of_table(rows)
    for words in ("a", "a b", "b b é", "none", "c none"):
        expected = [(row["id"], pytest.approx(score, rel=1e-9)) for score, row in best_rows(rows, words)]
        query = text.query(query_words(words))
        for count in (1, 7, 120, 500):
            best = text.search(query, count)
            found = list(zip(best.rows["key"].to_pylist(), best.scores.tolist(), strict=True))
            assert found == expected[:count]
            assert best.is_all == (count >= len(expected))
        allowed = text.search(query, 500, row_hashes(pa.array(["k001", "k002", "k003"]), "p")).rows["key"].to_pylist()
        assert allowed == [key for key, _ in expected if key in ("k001", "k002", "k003")]
        of_texts = query.scores(pa.array([row["body"] for row in rows]))
        by_key = dict(zip((row["id"] for row in rows), of_texts.tolist(), strict=True))
        assert [(key, by_key[key]) for key, _ in expected] == expected


def test_a_table_without_words_has_scores_for_none() -> None:
    text = of_table([{"id": "k", "body": ""}])
    query = text.query({"a": 1})
    assert len(text.search(query, 3).scores) == 0
    assert text.statistics == Statistics(1, 0)
    assert query.scores(pa.array(["", "b"])).tolist() == [0.0, 0.0]
    assert Query({"a": 1}, {"a": 0}, Statistics(0, 0)).scores(pa.array(["a"])).tolist() > [0.0]
