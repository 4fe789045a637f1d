from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.vector_index.frame import Kind, pack, unpack

KIND = Kind(b"LVIx", 3, "an example")
COLUMNS = (
    np.array([0, 255], np.uint8),
    np.array([1, 65535], np.uint16),
    np.array([1 << 31], np.uint32),
    np.array([1 << 63, 2], np.uint64),
    np.array([-128, 127], np.int8),
    np.array([-5], np.int32),
    np.array([-(1 << 40)], np.int64),
    np.array([0.5, -0.25], np.float32),
    np.array([1e300], np.float64),
    np.empty(0, np.float32),
    pa.array(["", "é", "k"]),
    pa.array([], pa.string()),
    pa.array(["a" * 300, "b"]),
    pa.array(["c" * 70_000]),
)


def test_columns_come_back_from_their_bytes() -> None:
    columns = unpack(KIND, pack(KIND, COLUMNS))
    assert len(columns) == len(COLUMNS)
    for column, expected in zip(columns, COLUMNS, strict=True):
        if isinstance(expected, np.ndarray):
            assert column.dtype == expected.dtype
        assert column.tolist() == expected.tolist() if isinstance(expected, np.ndarray) else column.equals(expected)


def test_the_bytes_are_those_of_earlier_releases() -> None:
    columns = [np.array([1, 2], np.uint16), pa.array(["a", "bc"]), np.array([[1.5], [2.5]], np.float32)]
    head = "4c564978030320000000ae2a62902b6e2afe"
    directory = "0102000000" + "8002000000" + "0702000000"
    values = "01000200" + "0102616263" + "0000c03f00002040"
    assert pack(KIND, columns).hex() == head + directory + values


def test_numbers_and_texts_are_read_without_a_copy() -> None:
    data = pack(KIND, [np.arange(100, dtype=np.uint64), pa.array(["abc"] * 100)])
    numbers, texts = unpack(KIND, data)
    address = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    assert address <= numbers.__array_interface__["data"][0] < address + len(data)
    assert address <= texts.buffers()[2].address < address + len(data)


def test_a_slice_of_texts_has_its_own_bytes_alone() -> None:
    texts = pa.array(["a", "bc", "def", "g"]).slice(1, 2)
    data = pack(KIND, [texts])
    assert unpack(KIND, data)[0].to_pylist() == ["bc", "def"]
    assert data == pack(KIND, [pa.array(["bc", "def"])])


def test_bytes_that_are_cut_off_or_changed_are_an_error_by_name() -> None:
    data = pack(KIND, COLUMNS[:-2])
    for end in range(len(data)):
        with pytest.raises(CorruptFile, match="an example of a vector index is damaged"):
            unpack(KIND, data[:end])
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x41
        error = UnsupportedFeature if at == 4 else CorruptFile  # a version that is higher
        with pytest.raises(error, match="an example of a vector index"):
            unpack(KIND, bytes(changed))
    with pytest.raises(CorruptFile, match="damaged"):
        unpack(KIND, data + b"\0")
    with pytest.raises(CorruptFile, match="damaged"):
        unpack(Kind(b"LVIy", 3, "another"), data)


def test_columns_that_do_not_fit_their_bytes_are_an_error_though_the_checksum_is_right() -> None:
    bodies = ("07ffffff00", "630100000061", "00010000006162", "80010000000561", "8502000000", "00")
    for body in map(bytes.fromhex, bodies):
        head = struct.pack("<4sBBIQ", KIND.letters, KIND.version, 1, len(body), xxhash.xxh3_64_intdigest(body))
        with pytest.raises(CorruptFile, match="damaged"):
            unpack(KIND, head + body)


def test_a_newer_version_says_to_upgrade_or_to_rebuild() -> None:
    data = pack(Kind(b"LVIx", 4, "an example"), COLUMNS)
    with pytest.raises(UnsupportedFeature, match="has version 4, and this release reads up to 3") as error:
        unpack(KIND, data)
    assert "Upgrade lakebed" in error.value.hint
    assert "Build the vector index again" in error.value.hint
