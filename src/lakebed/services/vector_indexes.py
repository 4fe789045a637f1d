"""Vector indexes and text indexes: building them again, when that is due, and how many of the nearest rows a search by
a vector index finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds.layered_kind import layered_kind
from lakebed.metadata_kinds.text_store import TextIndex, text_indexes
from lakebed.metadata_kinds.vector_definitions import VectorIndex, complete_definitions, vector_indexes
from lakebed.metadata_records.definitions import IndexDefinition
from lakebed.metadata_records.layout import TEXT_INDEX, VECTOR_INDEX
from lakebed.metadata_records.records import record_form
from lakebed.metadata_upkeep.maintain import MetadataUpkeep, locked_table
from lakebed.metadata_upkeep.services import compact_with
from lakebed.read.index_search import DISTANCE, QUERY_INDEX
from lakebed.read.scan import Scan
from lakebed.read.search import Search, SearchOptions
from lakebed.schema.column_names import near_or_nothing
from lakebed.schema.logical_types import vector_matrix
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.wording import Printed

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


def named_layered_index(snapshot: Snapshot, name: str) -> VectorIndex | TextIndex:
    """The vector index or text index with this name, or that on the column with this name. Raises `InvalidOption` for
    another."""
    indexes = [*vector_indexes(snapshot), *text_indexes(snapshot)]
    return _named(snapshot, name, indexes, "vector index or text index")


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
    """Build a vector index again, with clusters that fit the rows of today, or a text index, as one layer.

    It is built beside the one that there is, while others search and write. Then it takes its place under the table
    lock, with the rows of commits that came meanwhile, in a compaction of the metadata table. Raises `InvalidOption`
    for an index that the table does not have, and `CommitConflict` where the index or a commit that it was built from
    is taken back meanwhile, or a dead writer is not rolled back; the index stays as it is then.
    """
    settings = settings or WriteSettings()
    snapshot = open_snapshot(storage)
    index = named_layered_index(snapshot, name)
    definition = _definition(snapshot, index.partition)
    assert definition is not None
    built = layered_kind(index.partition).built(definition, snapshot)
    with locked_table(storage, settings) as (current, lock_is_held):
        if _definition(current, index.partition) != definition:
            raise CommitConflict(
                f"{index.partition} was dropped or defined anew while it was built",
                hint="Build it again, if the table has it.",
                context={"index": index.partition},
                kind=ConflictKind.TABLE,
            )
        built.catch_up(current)
        store = MetadataUpkeep(current, settings, None, lock_is_held).store
        compact_with(store, index.partition, built.batches(record_form(current.config.version)))


def _definition(snapshot: Snapshot, partition: str) -> IndexDefinition | None:
    """The definition of a complete index; None where the table does not have it."""
    definitions = complete_definitions(snapshot, partition)
    return next((definition for definition in definitions if definition.name == partition), None)


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
