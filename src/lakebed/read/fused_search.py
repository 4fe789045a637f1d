"""Search by a vector and by words at once: the ranks of rows in both answers are fused into one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.arguments import refused
from lakebed.errors import InvalidOption
from lakebed.format.hashes import plain_strings
from lakebed.model import PARTITION_PATH, RECORD_KEY
from lakebed.read.scan import Results, Scan, first_rows_html
from lakebed.read.search import Search, SearchOptions
from lakebed.read.text_search import SCORE, TextOptions, TextSearch, frame_of
from lakebed.wording import Lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.storage.base import Storage

# The score of a row is the sum of 1 / (60 + rank) over the answers that it is in, as is usual.
RANK_OFFSET: Final = 60
# So many rows of each answer are fused for each row of the result, and at least so many.
_DEPTH_OF_K: Final = 5
_DEPTH: Final = 100
_NO_OPTIONS: Final = SearchOptions()


def search_of(
    scan: Scan, vector: Any, by_vector: SearchOptions, by_text: TextOptions | None
) -> Search | TextSearch | FusedSearch:
    """The search for a vector, for the words of a text, or for both. Raises `InvalidOption` for neither, and for
    options that the search does not have."""
    if by_text is None:
        if vector is None:
            raise InvalidOption("a search has neither a vector nor a text", hint="give a vector, a text, or both")
        return Search(scan, vector, by_vector)
    if vector is not None:
        return FusedSearch(scan, vector, by_vector, by_text)
    for name in ("column", "metric", "max_distance", "probes", "rerank"):
        if getattr(by_vector, name) != getattr(_NO_OPTIONS, name):
            way = "name the column of the texts with text_column" if name == "column" else f"leave out {name}"
            raise InvalidOption(
                f"{name} is an option of a search for a vector, and this one is by words alone",
                hint=f"give a vector as well, or {way}",
                context={"argument": name},
            )
    return TextSearch(scan, by_text)


class FusedSearch(Results):
    """The rows of a table that are near to a vector, match a query, or both, lazily: `to_arrow`, `to_pandas`,
    `to_polars`, `to_spark`...

    `t.search` makes one. The rows come in descending order of `_score`, rows with equal ones by their keys.
    """

    def __init__(self, scan: Scan, vector: Any, by_vector: SearchOptions, by_text: TextOptions) -> None:
        super().__init__(scan._spark)  # pyright: ignore[reportPrivateUsage]
        self._rows = min(by_text.k, sys.maxsize)
        self._displayed = TextSearch(scan, by_text)
        names = (RECORD_KEY, PARTITION_PATH, *self._displayed.column_names)
        depth = max(_DEPTH, _DEPTH_OF_K * by_text.k)
        self._by_vector = Search(scan, vector, replace(by_vector, k=depth, columns=names))
        self._by_text = TextSearch(scan, replace(by_text, k=depth, columns=names))
        if self._by_vector.is_batch:
            raise refused("search", "vector", "a matrix", "one vector, where a text is given as well")

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result: the columns of the table, and `_score`."""
        return self._displayed.schema

    def _read(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        parts = [pa.Table.from_batches(search._read(), search.schema) for search in (self._by_vector, self._by_text)]  # pyright: ignore[reportPrivateUsage]
        ranks = np.concatenate([np.arange(1, len(part) + 1) for part in parts])
        names = [name for name in parts[1].column_names if name != SCORE]
        rows = pa.concat_tables([part.select(names) for part in parts]).combine_chunks()
        keys: Any = plain_strings(rows[RECORD_KEY].combine_chunks()).cast(pa.string())
        paths: Any = plain_strings(rows[PARTITION_PATH].combine_chunks()).cast(pa.string())
        fused = pa.table({"key": keys, "path": paths, "part": 1.0 / (RANK_OFFSET + ranks), "row": np.arange(len(rows))})
        sums = fused.group_by(["key", "path"]).aggregate([("part", "sum"), ("row", "min")])
        order = pc.sort_indices(sums, [("part_sum", "descending"), ("key", "ascending"), ("path", "ascending")])
        best = sums.take(order.slice(0, self._rows))
        answer = rows.take(best["row_min"]).select(self._displayed.column_names)
        arrays = [*answer.columns, best["part_sum"]]
        return iter(pa.Table.from_arrays(arrays, schema=self.schema).combine_chunks().to_batches())

    def _storage(self) -> Storage:
        return self._by_text._storage()  # pyright: ignore[reportPrivateUsage]

    def _renew(self) -> bool:
        searches = (self._displayed, self._by_vector, self._by_text)
        have_changed = [search._renew() for search in searches]  # pyright: ignore[reportPrivateUsage]
        return any(have_changed)

    def to_spark(self) -> DataFrame:
        """A DataFrame of the rows, which are searched in this process."""
        return frame_of(self, self._session(self._storage()))

    def explain(self) -> Lines:
        """The plans of both searches as text, and how many rows of each are fused."""
        depth = max(_DEPTH, _DEPTH_OF_K * self._rows)
        return Lines(
            f"{self._by_vector.explain()}\n{self._by_text.explain()}\n  fused       the {self._rows} best by the ranks"
            f" of up to {depth} rows of each"
        )

    def _repr_html_(self) -> str:
        return first_rows_html(self)
