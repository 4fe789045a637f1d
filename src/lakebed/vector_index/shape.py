"""What a vector index is: the column, its metric, and the numbers by which its codes are made."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import ceil, sqrt
from typing import Final, Literal

import numpy as np

from lakebed.errors import CorruptFile
from lakebed.format.text import parse_json_object
from lakebed.vector_index.frame import Kind, pack, unpack

Metric = Literal["cosine", "l2", "dot_product"]
METRICS: Final = ("cosine", "l2", "dot_product")
BITS: Final = (8, 4)
"""The bits of each element of a code."""
ELEMENTS: Final = {"float": "<f4", "double": "<f8", "int8": "i1"}
"""The types of numpy by the names of elements in Hudi's type VECTOR, in lower case."""
_SAMPLE_ROWS: Final = 64
_KIND: Final = Kind(b"LVIM", 1, "the description")


@dataclass(frozen=True, slots=True)
class IndexShape:
    """The description of a vector index, which all of its records depend on.

    `clusters` is the number that was asked for, or that a training found; `scale` is multiplied with each vector before
    anything else, so that vectors of any size have numbers of 32 bits. `generation` counts the folds since the build,
    `instant` is the newest commit that is in the base, and `new_rows` are the entries that folds brought into it.

    >>> shape = IndexShape("emb", 128, clusters=421)
    >>> IndexShape.from_bytes(shape.to_bytes()) == shape
    True
    """

    column: str
    dimension: int
    element: str = "float"
    metric: Metric = "cosine"
    bits: int = 8
    seed: int = 42
    clusters: int = 1
    generation: int = 0
    instant: str = ""
    scale: float = 1.0
    new_rows: int = 0

    def to_bytes(self) -> bytes:
        """The record of the index that describes it."""
        text = json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)
        return pack(_KIND, [np.frombuffer(text.encode(), np.uint8)])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> IndexShape:
        """The description in a record. Raises `CorruptFile` for damaged bytes, `UnsupportedFeature` for a record of a
        newer release."""
        (text,) = unpack(_KIND, data)
        fields = parse_json_object(text.tobytes())
        try:
            shape = cls(**fields)
            sizes = (shape.dimension, shape.clusters, shape.scale)
            is_valid = (shape.metric in METRICS, shape.bits in BITS, shape.element in ELEMENTS, min(sizes) > 0)
        except TypeError as cause:
            raise CorruptFile(f"the description of a vector index has other fields: {cause}", context={}) from cause
        if not all(is_valid):
            raise CorruptFile(f"the description of a vector index has impossible values: {fields}", context={})
        return shape


def default_clusters(rows: int) -> int:
    """The number of clusters for so many rows.

    >>> default_clusters(100_000), default_clusters(0)
    (422, 1)
    """
    return max(1, ceil(4 * sqrt(rows) / 3))


def sample_rows(clusters: int) -> int:
    """How many rows a training of so many clusters takes; more rows are left out by its caller."""
    return _SAMPLE_ROWS * clusters
