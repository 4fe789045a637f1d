"""Numbers of a whole column in Avro's form: the same bytes however many there are."""

from __future__ import annotations

import io

import fastavro
import numpy as np
import pytest

from lakebed.format.avro.columns import encode_longs

EDGES = [n for bits in range(64) for n in ((1 << bits) - 1, -(1 << bits), 1 << bits) if -(1 << 63) <= n < 1 << 63]


def by_fastavro(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "long"}, number)
    return out.getvalue()


@pytest.mark.parametrize("count", [0, 1, 64, 65, 190, 1000])
def test_longs_are_encoded_as_fastavro_does(count: int) -> None:
    numbers = [EDGES[n % len(EDGES)] for n in range(count)]
    assert encode_longs(np.array(numbers, np.int64)).to_pylist() == [by_fastavro(n) for n in numbers]
