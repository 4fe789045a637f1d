from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile
from lakebed.vector_index.codes import Coder
from lakebed.vector_index.entries import NO_ROW, Entries, coded_entries, row_hashes
from support.vector_layers import small_coder, written

RANDOM = np.random.default_rng(4)
VECTORS = RANDOM.normal(size=(50, 6)).astype(np.float32)
KEYS = [f"kéy{n}" * (n % 3) for n in range(50)]


def entries_of(coder: Coder) -> Entries:
    """Entries some of which have an exact vector, and some a position."""
    numbers = np.arange(50)
    rows = written(VECTORS, KEYS, rows=np.where(numbers % 2, numbers, -1), is_exact=numbers % 3 == 0)
    return coded_entries(coder, replace(rows, groups=numbers * 3))


def same(left: Entries, right: Entries) -> bool:
    columns = (
        (left.coded.clusters, right.coded.clusters),
        (left.coded.codes, right.coded.codes),
        (left.coded.factors, right.coded.factors),
        (left.coded.norms, right.coded.norms),
        (left.hashes, right.hashes),
        (left.groups, right.groups),
        (left.rows, right.rows),
        (left.vector_rows >= 0, right.vector_rows >= 0),
        (
            left.vectors[left.vector_rows[left.vector_rows >= 0]],
            right.vectors[right.vector_rows[right.vector_rows >= 0]],
        ),
    )
    return left.keys.equals(right.keys) and all(np.array_equal(a, b) for a, b in columns)


@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.parametrize("bits", [8, 4])
def test_entries_come_back_from_their_bytes(metric: str, bits: int) -> None:
    coder = small_coder(VECTORS, metric=metric, bits=bits)
    entries = entries_of(coder)
    found = Entries.from_bytes(entries.to_bytes(), coder.shape)
    assert same(found, entries)
    assert found.keys.to_pylist() == KEYS
    assert found.rows.tolist() == [n if n % 2 else NO_ROW for n in range(50)]
    assert (found.vectors == VECTORS[::3]).all()
    assert found.vector_rows.tolist() == [n // 3 if n % 3 == 0 else -1 for n in range(50)]
    order = RANDOM.permutation(50)
    assert same(Entries.from_bytes(entries.take(order).to_bytes(), coder.shape), entries.take(order))
    assert same(Entries.together([entries.slice(0, 17), entries.slice(17, 17), entries.slice(17, 50)]), entries)
    assert same(entries.slice(10, 30), entries.take(np.arange(10, 30)))


@pytest.mark.parametrize("element", ["float", "double", "int8"])
def test_exact_vectors_have_the_type_of_the_column(element: str) -> None:
    vectors = (VECTORS * 40).astype({"float": np.float32, "double": np.float64, "int8": np.int8}[element])
    coder = small_coder(vectors, element=element)
    entries = coded_entries(coder, written(vectors, KEYS, is_exact=np.ones(50, np.bool_)))
    found = Entries.from_bytes(entries.to_bytes(), coder.shape)
    assert found.vectors.dtype == vectors.dtype
    assert (found.vectors == vectors).all()


def test_no_entries_and_entries_of_one_cluster_come_back() -> None:
    coder = small_coder(VECTORS, clusters=1)
    entries = coded_entries(coder, written(VECTORS, KEYS))
    found = Entries.from_bytes(entries.to_bytes(), coder.shape)
    assert same(found, entries)
    assert len(found.vectors) == 0
    assert (found.rows == NO_ROW).all()
    assert same(Entries.from_bytes(entries.slice(0, 0).to_bytes(), coder.shape), entries.slice(0, 0))


@pytest.mark.parametrize("last", [65535, 65536, (1 << 32) - 1])
def test_numbers_of_file_groups_come_back_whatever_their_width(last: int) -> None:
    coder = small_coder(VECTORS)
    groups = np.full(50, last)
    entries = coded_entries(coder, replace(written(VECTORS, KEYS), groups=groups))
    found = Entries.from_bytes(entries.to_bytes(), coder.shape)
    assert found.groups.tolist() == groups.tolist()
    assert found.groups.dtype == (np.uint16 if last < 65536 else np.uint32)


def test_the_bytes_are_those_of_earlier_releases() -> None:
    coder = small_coder(VECTORS)
    rows = written(VECTORS[:2], ["a", "bc"], rows=np.array([5, -1]), is_exact=np.array([True, False]))
    entries = coded_entries(coder, rows)
    coded = replace(
        entries.coded,
        clusters=np.array([3, 4]),
        codes=np.arange(12, dtype=np.uint8).reshape(2, 6),
        factors=np.array([0.5, 1.5], np.float32),
    )
    vectors = np.array([[1, 2, 3, 4, 5, 6]], np.float32)
    data = replace(entries, coded=coded, vectors=vectors).to_bytes()
    assert data.hex() == (
        "4c564950010a8900000018e150cdcefa7da2020200000003020000000702000000070000000002020000000102000000000c"
        "000000800200000000020000000706000000030000000400000095ed410aeb13f55edae7eb507d9017690000003f0000c03f"
        "05000000ffffffff00000000000102030405060708090a0b010261626301000000803f0000004000004040000080400000a0"
        "400000c040"
    )


def test_bytes_that_are_damaged_or_of_another_index_are_an_error_by_name() -> None:
    coder = small_coder(VECTORS, metric="l2")
    data = entries_of(coder).to_bytes()
    for damaged in (b"", data[:-1], data[: len(data) // 2], b"x" * 1000, data[:40] + b"\xff" + data[41:]):
        with pytest.raises(CorruptFile, match="a block of entries of a vector index is damaged"):
            Entries.from_bytes(damaged, coder.shape)
    for fields in ({"dimension": 7}, {"metric": "cosine"}, {"bits": 4}, {"element": "double"}, {"clusters": 2}):
        with pytest.raises(CorruptFile, match="on emb is of another index"):
            Entries.from_bytes(data, replace(coder.shape, **fields))


def test_a_row_is_named_by_its_partition_and_its_key() -> None:
    keys = pa.array(["a", "b", "a", "", "a"])
    hashes = row_hashes(keys, pa.array(["p", "p", "q", "", "p"]))
    assert hashes[0] == hashes[4]
    assert len(set(hashes.tolist())) == 4
    assert row_hashes(pa.array(["a"]), "q").tolist() == [hashes[2]]
    assert row_hashes(pa.array([""]), "").tolist() == [hashes[3]]
    assert row_hashes(pa.array([], pa.string()), pa.array([], pa.string())).tolist() == []
    chunked = pa.chunked_array([["a", "b"], ["a", "", "a"]])
    assert (row_hashes(chunked, pa.array(["p", "p", "q", "", "p"]).dictionary_encode()) == hashes).all()


def test_hashes_of_rows_are_those_of_earlier_releases() -> None:
    hashes = row_hashes(pa.array(["k1", "a key of more than eight bytes"]), "p=1")
    assert [hex(number) for number in hashes.tolist()] == ["0x4203663735aa5241", "0x2cd23e1b86e636f4"]
