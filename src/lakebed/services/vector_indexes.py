"""Vector indexes and text indexes: building them again, when that is due, and how many of the nearest rows a search by
a vector index finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds.text_store import TextIndex, stored_text_index, text_indexes
from lakebed.metadata_kinds.vector_definitions import VectorIndex, vector_indexes
from lakebed.metadata_kinds.vector_store import stored_index
from lakebed.metadata_records.layout import TEXT_INDEX, VECTOR_INDEX
from lakebed.metadata_upkeep.comparison import rebuild
from lakebed.metadata_upkeep.maintain import locked_table
from lakebed.read.index_search import DISTANCE, MIN_ROWS, QUERY_INDEX
from lakebed.read.scan import Scan
from lakebed.read.search import Search, SearchOptions
from lakebed.schema.column_names import near_or_nothing
from lakebed.schema.logical_types import vector_matrix
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.wording import Printed, count_text

Index = TypeVar("Index", VectorIndex, TextIndex, VectorIndex | TextIndex)


@dataclass(frozen=True, repr=False)
class Recall(Printed):
    """How many of the `k` nearest rows searches by a vector index find, on average over rows of the table as queries.

    `recall` is the share, 1.0 for all; `queries` is the number of searches."""

    index: str
    recall: float
    queries: int
    k: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {"index": self.index, "recall": self.recall, "queries": self.queries, "k": self.k}

    def __str__(self) -> str:
        return f"{self.index}: {self.recall:.3f} of the {self.k} nearest rows, over {self.queries:,} searches"


def named_index(snapshot: Snapshot, name: str) -> VectorIndex:
    """The vector index with this name, or that on the column with this name. Raises `InvalidOption` for another."""
    return _named(snapshot, name, vector_indexes(snapshot), "vector index")


def _named(snapshot: Snapshot, name: str, indexes: Sequence[Index], kind: str) -> Index:
    for index in indexes:
        of_name = (index.partition, index.column, index.partition.removeprefix(VECTOR_INDEX).removeprefix(TEXT_INDEX))
        if name in of_name:
            return index
    names = [index.partition for index in indexes]
    raise InvalidOption(
        f"table {snapshot.config.name!r} has no {kind} {name!r}",
        hint=f"{near_or_nothing(name, names)}It has {', '.join(names) or 'none'}.",
        context={"index": name},
    )


def rebuild_index(storage: Storage, name: str, *, settings: WriteSettings | None = None) -> None:
    """Build a vector index or a text index again: with clusters that fit the rows of today, and as one layer. Searches
    read all rows meanwhile.

    Raises `InvalidOption` for an index that the table does not have.
    """
    settings = settings or WriteSettings()
    with locked_table(storage, settings) as (snapshot, lock_is_held):
        indexes = [*vector_indexes(snapshot), *text_indexes(snapshot)]
        index = _named(snapshot, name, indexes, "vector index or text index")
        rebuild(snapshot, [index.partition], settings, lock_is_held)


def indexes_to_rebuild(snapshot: Snapshot) -> dict[str, str]:
    """The vector indexes and text indexes that are to be built again, by their partitions, each with the reason."""
    due: dict[str, str] = {}
    metadata = snapshot.metadata
    for index in vector_indexes(snapshot) if metadata is not None else ():
        assert metadata is not None
        stored = stored_index(metadata, index.partition)
        covered = stored.coverage(snapshot)
        if covered.reason is not None:
            due[index.partition] = covered.reason
            continue
        statistics = stored.layered(snapshot).statistics()
        if statistics.rows >= MIN_ROWS and statistics.needs_rebuild:
            due[index.partition] = (
                f"{count_text(statistics.new_rows, 'row')} of {statistics.rows:,} came after it was built, and its"
                f" largest cluster has {statistics.largest_cluster:,}"
            )
    for text_index in text_indexes(snapshot) if metadata is not None else ():
        assert metadata is not None
        reason = stored_text_index(metadata, text_index.partition).reason_to_rebuild(snapshot, MIN_ROWS)
        if reason is not None:
            due[text_index.partition] = reason
    return due


def measured_recall(storage: Storage, name: str, queries: int, k: int) -> Recall:
    """The recall of searches by a vector index for vectors of the table's own rows, chosen at random."""
    snapshot = open_snapshot(storage)
    index = named_index(snapshot, name)
    scan = Scan(snapshot)
    sample = scan.of_columns([index.column]).sample(queries)[index.column].combine_chunks().drop_null()
    if not len(sample):
        return Recall(index.partition, 1.0, 0, k)
    matrix = np.asarray(vector_matrix(sample), np.float64)

    def searched(*, exact: bool) -> pa.Table:
        options = SearchOptions(k, index.column, index.metric, exact=exact)
        return Search(scan, matrix, options).to_arrow()

    # rows as far away as the last one are as good
    nearest, by_index = searched(exact=True), searched(exact=False)
    shares: list[float] = []
    for query in range(len(matrix)):
        right = _distances(nearest, query)
        right_enough = np.count_nonzero(_distances(by_index, query) <= right.max(initial=0) + 1e-9)
        shares.append(min(right_enough, len(right)) / max(1, len(right)))
    return Recall(index.partition, float(np.mean(shares)), len(matrix), k)


def _distances(rows: pa.Table, query: int) -> np.ndarray:
    at = rows[QUERY_INDEX].to_numpy() == query
    return rows[DISTANCE].to_numpy()[at]
