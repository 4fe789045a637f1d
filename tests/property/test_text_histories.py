"""Random histories of tables with a text index: after each step an exact search finds the rows and scores of a model,
and a search by the index finds the same, now and at earlier commits.

Some commits are made as by a writer that does not know the index. A seed that fails is in the message:
`LAKEBED_HISTORY=<seed>` runs it again.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.errors import InvalidOption
from support.index_histories import ONLY, SHARDS, IndexHistory, run_histories, run_history
from support.text_model import best_rows

WORDS = ["red", "green", "blue", "Été", "x1", "naïve", "東", "of", "the", "Blue"]


class TextHistory(IndexHistory):
    schema = pa.schema(
        [("id", pa.int64()), ("city", pa.string()), ("body", pa.string()), ("v", pa.int64()), ("ts", pa.int64())]
    )
    column = "body"
    partition = "text_index_body"

    def make_index(self) -> None:
        self.table().indexes.create("text", column="body")

    def value(self) -> str:
        return ", ".join(self.dice.choices(WORDS, k=self.dice.randrange(0, 9)))

    def compare(self, as_of: str | None) -> None:
        table, k = self.table(), self.dice.choice([1, 3, 10, 1000])
        query = " ".join(self.dice.choices(WORDS, k=self.dice.randrange(1, 4)))
        where = self.dice.choice([None, None, "v > 3", "city = 'c1'"])
        try:
            rows = table.scan(as_of=as_of).to_arrow().to_pylist()
        except InvalidOption:
            assert as_of is not None  # its files were cleaned, or it is archived
            return
        allowed = None if where is None else (lambda row: row["v"] > 3 if where == "v > 3" else row["city"] == "c1")
        expected = [(row["id"], row["city"], row["v"], score) for score, row in best_rows(rows, query, allowed)]
        for exact in (True, False):
            found = table.search(text=query, k=k, as_of=as_of, where=where, exact=exact).to_arrow().to_pylist()
            scores = [row["_score"] for row in found]
            assert scores == pytest.approx([score for *_, score in expected[:k]], rel=1e-6), (exact, query, where)
            # rows that are inserted twice have equal keys: which of several equally good ones comes is open
            last = scores[-1] if scores else 0
            some = {(i, c, v) for i, c, v, score in expected if score > last + 1e-6}
            names = [(row["id"], row["city"], row["v"]) for row in found]
            assert some <= set(names) <= {(i, c, v) for i, c, v, _ in expected}


@pytest.mark.skipif(ONLY is not None, reason="one history is run")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_searches_by_words_find_what_the_model_finds(shard: int) -> None:
    run_histories(TextHistory, shard)


@pytest.mark.skipif(ONLY is None, reason="LAKEBED_HISTORY names the history")
def test_the_text_history_that_the_variable_names() -> None:
    run_history(TextHistory, int(ONLY or 0))
