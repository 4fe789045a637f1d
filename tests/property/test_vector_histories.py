"""Random histories of tables with a vector index: after each step a search that looks at all clusters finds what an
exact search finds, and one that looks at few finds rows of the table with their distances, now and at earlier commits.

Some commits are made as by a writer that does not know the index. A seed that fails is in the message:
`LAKEBED_HISTORY=<seed>` runs it again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from support.index_histories import ONLY, SHARDS, IndexHistory, run_histories, run_history

DIMENSION = 6
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("emb", lakebed.vector(DIMENSION)),
        ("v", pa.int64()),
        ("ts", pa.int64()),
    ]
)


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["id"], row["city"], row["v"], round(row["_hudi_distance"], 9)


class VectorHistory(IndexHistory):
    schema = SCHEMA
    column = "emb"
    partition = "vector_index_emb"

    def make_index(self) -> None:
        self.metric: Any = self.dice.choice(["cosine", "l2", "dot_product"])
        bits, clusters = self.dice.choice([4, 8]), self.dice.randrange(1, 8)
        self.table().indexes.create("vector", column="emb", metric=self.metric, bits=bits, clusters=clusters)

    def value(self) -> list[float]:
        return self.random.standard_normal(DIMENSION).tolist()

    def compare(self, as_of: str | None) -> None:
        table, query, k = self.table(), self.random.standard_normal(DIMENSION), self.dice.randrange(1, 12)
        try:
            exact = table.search(query, k, "emb", self.metric, as_of=as_of, exact=True).to_arrow()
        except InvalidOption:
            assert as_of is not None  # its files were cleaned, or it is archived
            return
        every = table.search(query, k, "emb", self.metric, as_of=as_of, probes=1000, rerank=10_000).to_arrow()
        assert every["_hudi_distance"].to_pylist() == pytest.approx(exact["_hudi_distance"].to_pylist(), abs=1e-12)
        few = table.search(query, k, "emb", self.metric, as_of=as_of, probes=1, rerank=k).to_arrow()
        whole = table.search(query, 1000, "emb", self.metric, as_of=as_of, exact=True).to_arrow()
        assert Counter(map(identity, few.to_pylist())) <= Counter(map(identity, whole.to_pylist()))
        assert len(few) == len(exact)

    def __str__(self) -> str:
        return f"{self.metric}, {super().__str__()}"


@pytest.mark.skipif(ONLY is not None, reason="one history is run")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_searches_by_an_index_find_what_exact_searches_find(shard: int) -> None:
    run_histories(VectorHistory, shard)


@pytest.mark.skipif(ONLY is None, reason="LAKEBED_HISTORY names the history")
def test_the_vector_history_that_the_variable_names() -> None:
    run_history(VectorHistory, int(ONLY or 0))
