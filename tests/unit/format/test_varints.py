"""Numbers of seven bits a byte, against fastavro's, and what is none."""

from __future__ import annotations

import io

import fastavro
import pytest

from lakebed.format.varints import read_varint, unzigzag, varint, zigzag

EDGES = sorted({sign * (1 << bits) + step for bits in range(63) for step in (-1, 0) for sign in (1, -1)})


def by_fastavro(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "long"}, number)
    return out.getvalue()


def test_a_signed_number_has_avros_bytes_and_comes_back() -> None:
    for number in [*EDGES, (1 << 63) - 1, -(1 << 63)]:
        data = varint(zigzag(number))
        assert data == by_fastavro(number), number
        value, end = read_varint(b"\x80" + data + b"\x80", 1)
        assert (unzigzag(value), end) == (number, len(data) + 1), number


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9])
def test_a_number_that_is_cut_off_is_none(data: bytes) -> None:
    with pytest.raises(IndexError):
        read_varint(data, 0)


def test_a_number_of_more_than_ten_bytes_is_none() -> None:
    assert read_varint(b"\xff" * 9 + b"\x01", 0) == ((1 << 64) - 1, 10)
    with pytest.raises(IndexError, match="more than ten bytes"):
        read_varint(b"\x80" * 10 + b"\x01", 0)
