"""The rows of a vector index: codes of vectors with the keys of their rows, and where the rows are.

Entries are columns. Blocks are their bytes: the entries of one cluster, up to 2,048 of them, or those of several small
clusters that follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from lakebed.errors import CorruptFile
from lakebed.format.hashes import plain_strings
from lakebed.format.row_addresses import Hashes, key_hashes
from lakebed.schema.plain_arrow import as_numpy
from lakebed.vector_index.centroids import Numbers
from lakebed.vector_index.codes import Coded, Coder
from lakebed.vector_index.frame import Kind, pack, unpack
from lakebed.vector_index.shape import ELEMENTS, IndexShape

_KIND: Final = Kind(b"LVIP", 1, "a block of entries")
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
NO_ROW: Final = 0xFFFFFFFF
_NARROW: Final = 0xFFFF


def row_hashes(keys: pa.Array, partitions: pa.Array | str) -> Hashes:
    """A hash of 64 bits of each row, by its record key and the partition path that it is in: a key of a table without a
    global index may be in several. `partitions` is the path of each row, or the one path of all.

    >>> hashes = row_hashes(pa.array(["a", "a", "b"]), pa.array(["p=1", "p=2", "p=1"]))
    >>> len(set(hashes.tolist())), hashes[0] == row_hashes(pa.array(["a"]), "p=1")[0]
    (3, np.True_)
    """
    hashes = key_hashes(keys)
    if isinstance(partitions, str):
        hashes ^= np.uint64(xxhash.xxh64_intdigest(partitions.encode()))
    elif len(hashes):
        paths = plain_strings(partitions).dictionary_encode()
        of_paths = [xxhash.xxh64_intdigest(path.encode()) for path in paths.dictionary.to_pylist()]
        hashes ^= np.array(of_paths, np.uint64)[as_numpy(paths.indices)]
    hashes *= _FACTOR
    hashes ^= hashes >> _HALF
    return hashes


@dataclass(frozen=True, eq=False)
class WrittenRows:
    """Rows that an index gets: `vectors` is a matrix of the column's element type with a row for each, `hashes` come
    from `row_hashes`, `groups` are numbers of file groups in the list of their layer.

    `rows` are positions in base files, -1 or None where there is none. `is_exact` marks the rows whose vector is stored
    as it is, since it would cost much to read it again: those of log files. None marks no row.
    """

    vectors: npt.NDArray[Any]
    keys: pa.Array
    hashes: Hashes
    groups: npt.NDArray[np.integer[Any]]
    rows: npt.NDArray[np.integer[Any]] | None = None
    is_exact: npt.NDArray[np.bool_] | None = None

    @staticmethod
    def together(parts: Sequence[WrittenRows]) -> WrittenRows:
        """The rows of all parts, of which there is at least one and none has exact vectors, in order."""
        if len(parts) == 1:
            return parts[0]
        positions = [np.full(len(part.hashes), -1) if part.rows is None else part.rows for part in parts]
        return WrittenRows(
            np.concatenate([part.vectors for part in parts]),
            pa.concat_arrays([plain_strings(part.keys).cast(pa.string()) for part in parts]),
            np.concatenate([part.hashes for part in parts]),
            np.concatenate([part.groups for part in parts]),
            np.concatenate(positions),
        )


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of a vector index, a row of each column for each entry.

    `hashes` are those of `row_hashes`; `groups` the numbers of file groups in the list of the layer; `rows` the
    positions in the base file, `NO_ROW` where none is recorded. `vectors` are the exact vectors of some entries, and
    `vector_rows` tells their rows in this matrix, in ascending order: -1 for an entry without.
    """

    coded: Coded
    hashes: Hashes
    groups: npt.NDArray[np.integer[Any]]
    rows: npt.NDArray[np.uint32]
    keys: pa.StringArray
    vectors: npt.NDArray[Any]
    vector_rows: Numbers

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """The bytes of the columns in memory."""
        coded = self.coded
        numbers = (coded.clusters, coded.codes, coded.factors, coded.norms, self.hashes, self.groups, self.rows)
        return sum(column.nbytes for column in (*numbers, self.keys, self.vectors, self.vector_rows))

    def take(self, rows: Numbers) -> Entries:
        """The entries with these row numbers, in their order."""
        vectors, vector_rows = self.vectors, self.vector_rows[rows]
        if len(vectors):
            exact = vector_rows >= 0
            vectors = self.exact_vectors(rows)
            vector_rows = vector_positions(exact)
        return Entries(
            self.coded.take(rows),
            self.hashes[rows],
            self.groups[rows],
            self.rows[rows],
            self.keys.take(pa.array(rows)),
            vectors,
            vector_rows,
        )

    def exact_vectors(self, rows: Numbers) -> npt.NDArray[Any]:
        """The exact vectors of those of these entries that have one, in their order."""
        exact = self.vector_rows[rows]
        return self.vectors[exact[exact >= 0]]

    def slice(self, start: int, end: int) -> Entries:
        """The entries of a range of rows; their columns are not copied."""
        part = slice(start, end)
        vectors, vector_rows = self.vectors, self.vector_rows[part]
        if len(vectors):
            exact = vector_rows[vector_rows >= 0]
            first, last = (int(exact[0]), int(exact[-1]) + 1) if len(exact) else (0, 0)
            vectors, vector_rows = vectors[first:last], np.where(vector_rows >= 0, vector_rows - first, -1)
        return Entries(
            self.coded.take(part),
            self.hashes[part],
            self.groups[part],
            self.rows[part],
            self.keys.slice(start, end - start),
            vectors,
            vector_rows,
        )

    @staticmethod
    def together(parts: Sequence[Entries]) -> Entries:
        """The entries of all parts, of which there is at least one, in order."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(len(part.vectors) for part in parts)])
        vector_rows = [np.where(p.vector_rows >= 0, p.vector_rows + n, -1) for p, n in zip(parts, starts, strict=False)]
        return Entries(
            Coded.together([part.coded for part in parts]),
            np.concatenate([part.hashes for part in parts]),
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.rows for part in parts]),
            pa.concat_arrays([part.keys for part in parts]),
            np.concatenate([part.vectors for part in parts]),
            np.concatenate(vector_rows),
        )

    def to_bytes(self) -> bytes:
        """The entries as a block."""
        clusters = self.coded.clusters
        is_one = len(clusters) > 0 and bool((clusters == clusters[0]).all())
        has_rows = bool((self.rows != NO_ROW).any())
        exact = self.vector_rows >= 0
        columns = [
            clusters[: 1 if is_one else None].astype(np.uint32),
            self.hashes,
            self.coded.factors,
            self.coded.norms,
            self.rows if has_rows else self.rows[:0],
            self.groups.astype(np.uint16 if int(self.groups.max(initial=0)) <= _NARROW else np.uint32),
            self.coded.codes,
            self.keys,
            exact.astype(np.uint8) if exact.any() else np.empty(0, np.uint8),
            self.vectors[self.vector_rows[exact]],
        ]
        return pack(_KIND, columns)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, shape: IndexShape) -> Entries:
        """The entries in a block; the columns use its bytes. Raises `CorruptFile` for damaged bytes and for a block of
        an index of another shape, `UnsupportedFeature` for a block of a newer release."""
        clusters, hashes, factors, norms, rows, groups, codes, keys, exact, vectors = unpack(_KIND, data)
        count, of_vectors = len(hashes), int(np.count_nonzero(exact))
        width = code_bytes(shape)
        is_whole = (
            len(clusters) in (1, count),
            len(factors) == len(groups) == len(keys) == count,
            len(norms) == (count if shape.metric == "l2" else 0),
            len(rows) in (0, count),
            len(codes) == count * width,
            len(exact) in (0, count),
            len(vectors) == of_vectors * shape.dimension,
            vectors.dtype == np.dtype(ELEMENTS[shape.element]) or not of_vectors,
            int(clusters.max(initial=0)) < shape.clusters,
        )
        if not all(is_whole):
            raise CorruptFile(
                f"a block of entries of the vector index on {shape.column} is of another index",
                hint="Build the vector index again: drop it, and create it with the same name.",
                context={"column": shape.column},
            )
        coded = Coded(np.broadcast_to(clusters, count), codes.reshape(count, width), factors, norms)
        vector_rows = vector_positions(exact != 0) if of_vectors else np.full(count, -1)
        if not len(rows):
            rows = np.full(count, NO_ROW, np.uint32)
        matrix = vectors.reshape(-1, shape.dimension).astype(ELEMENTS[shape.element], copy=False)
        return cls(coded, hashes, groups, rows, keys, matrix, vector_rows)


def vector_positions(is_exact: npt.NDArray[np.bool_]) -> Numbers:
    """The rows of entries in a matrix of the exact vectors of those that have one, -1 for the others.

    >>> vector_positions(np.array([True, False, True])).tolist()
    [0, -1, 1]
    """
    return np.where(is_exact, np.cumsum(is_exact) - 1, -1)


def code_bytes(shape: IndexShape) -> int:
    """The bytes of a code."""
    return shape.dimension if shape.bits == 8 else -(-shape.dimension // 2)


def coded_entries(coder: Coder, written: WrittenRows) -> Entries:
    """Entries for rows with vectors, in the order of the rows."""
    count = len(written.keys)
    exact = np.zeros(count, np.bool_) if written.is_exact is None else written.is_exact
    rows = np.full(count, NO_ROW, np.uint32) if written.rows is None else written.rows
    return Entries(
        coder.encode(written.vectors),
        written.hashes,
        written.groups,
        np.where(rows >= 0, rows, NO_ROW).astype(np.uint32),
        plain_strings(written.keys).cast(pa.string()),
        written.vectors[exact],
        vector_positions(exact),
    )
