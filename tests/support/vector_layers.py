"""Small vector indexes for tests: layers in memory, and how exact distances are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.vector_index.codes import Coder, trained
from lakebed.vector_index.entries import WrittenRows, coded_entries, row_hashes
from lakebed.vector_index.layers import Changes, Groups, Layer, LayerHead, write_layer
from lakebed.vector_index.search import LayeredIndex, Relocation
from lakebed.vector_index.shape import IndexShape

Matrix = npt.NDArray[Any]


def exact_distances(vectors: Matrix, query: Matrix, metric: str) -> npt.NDArray[np.float64]:
    """The distance of a query to each vector, as exact search defines it."""
    rows, query = vectors.astype(np.float64), query.astype(np.float64)
    if metric == "l2":
        return np.sqrt(((rows - query) ** 2).sum(axis=1))
    dots = rows @ query
    if metric == "dot_product":
        return -dots
    sizes = np.sqrt((rows**2).sum(axis=1)) * np.sqrt((query**2).sum())
    return np.where(sizes > 0, 1 - dots / np.where(sizes > 0, sizes, 1), 1.0)


def small_coder(vectors: Matrix, clusters: int = 6, **fields: Any) -> Coder:
    """A coder that fits these vectors."""
    return trained(IndexShape("emb", vectors.shape[1], clusters=clusters, **fields), vectors)


def memory_layer(
    coder: Coder,
    instant: str,
    rows: WrittenRows | Sequence[WrittenRows],
    groups: Groups | None = None,
    changes: Changes | None = None,
) -> Layer:
    """A layer with these rows, which has been through its bytes."""
    parts = [rows] if isinstance(rows, WrittenRows) else rows
    blocks: list[bytes] = []
    groups = groups or Groups(pa.array([""]), pa.array(["group"]))
    head = write_layer((coded_entries(coder, part) for part in parts), groups, changes, blocks.append)
    head = LayerHead.from_bytes(head.to_bytes())
    return Layer(instant, head, lambda numbers: [blocks[number] for number in numbers])


def folded_layer(index: LayeredIndex, instant: str, relocation: Relocation | None = None) -> Layer:
    """The layer that a fold of an index makes."""
    blocks: list[bytes] = []
    fold = index.fold(relocation)
    while True:
        try:
            blocks.append(next(fold))
        except StopIteration as end:
            return Layer(instant, end.value, lambda numbers: [blocks[number] for number in numbers])


def written(vectors: Matrix, keys: Sequence[str], partition: str = "", **fields: Any) -> WrittenRows:
    """Rows of one partition, in the file group 0."""
    texts = pa.array(keys, pa.string())
    return WrittenRows(vectors, texts, row_hashes(texts, partition), np.zeros(len(keys), np.int64), **fields)
