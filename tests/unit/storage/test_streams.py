"""Range reading: few requests, right bytes, bounded memory."""

from __future__ import annotations

import io
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from lakebed.storage.streams import RangeFile, coalesce, read_coalesced

DATA = bytes(i * 7 % 251 for i in range(5000))


class Fetcher:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.requests: list[tuple[int, int]] = []

    def __call__(self, offset: int, length: int) -> bytes:
        assert offset >= 0
        assert length > 0
        assert offset + length <= len(self.data)
        self.requests.append((offset, length))
        return self.data[offset : offset + length]


@given(
    st.lists(st.tuples(st.integers(0, 4900), st.integers(0, 100)), max_size=20),
    st.integers(0, 300),
)
def test_coalesced_ranges_are_the_same_bytes(ranges: list[tuple[int, int]], gap: int) -> None:
    fetch = Fetcher(DATA)
    assert read_coalesced(ranges, gap, fetch) == [DATA[o : o + n] for o, n in ranges]
    assert len(fetch.requests) == len(coalesce(ranges, gap))
    ends = [o + n for o, n in fetch.requests]
    assert all(b[0] - a > gap for a, b in zip(ends, fetch.requests[1:], strict=False))


@given(
    st.lists(st.tuples(st.integers(0, 5200), st.integers(-1, 2000)), max_size=30),
    st.sampled_from([16, 100, 1024, 10_000]),
    st.integers(1, 8),
)
def test_reads_like_a_file(reads: list[tuple[int, int]], block: int, blocks: int) -> None:
    file, plain = RangeFile(Fetcher(DATA), len(DATA), block=block, blocks=blocks), io.BytesIO(DATA)
    for offset, length in reads:
        file.seek(offset)
        plain.seek(offset)
        assert file.read(length) == plain.read(length)
        assert file.tell() == min(plain.tell(), max(offset, len(DATA)))


def test_sequential_reading_asks_ahead() -> None:
    fetch = Fetcher(DATA)
    file = RangeFile(fetch, len(DATA), block=100, blocks=8)
    while file.read(50):
        pass
    assert fetch.requests[:3] == [(0, 100), (100, 400), (500, 400)]
    assert len(fetch.requests) == 14


def test_columns_side_by_side_find_their_blocks_again() -> None:
    fetch = Fetcher(DATA)
    file = RangeFile(fetch, len(DATA), block=100, blocks=24)
    for step in range(0, 100, 10):
        for column in (0, 1200, 2400, 3600):
            file.seek(column + step)
            assert file.read(10) == DATA[column + step : column + step + 10]
    assert len(fetch.requests) == 4


def test_parquet_by_batches_reads_each_byte_about_once() -> None:
    table = pa.table({f"c{c}": np.arange(c, 60_000 + c) for c in range(6)})
    out = io.BytesIO()
    pq.write_table(table, out, compression="none", use_dictionary=False, data_page_size=16 << 10)
    data = out.getvalue()
    fetch = Fetcher(data)
    source = pa.PythonFile(RangeFile(fetch, len(data), block=16 << 10, blocks=64), mode="r")
    reader = pq.ParquetFile(source, pre_buffer=False, buffer_size=8 << 10)
    assert pa.Table.from_batches(list(reader.iter_batches(batch_size=5000))) == table
    assert sum(length for _, length in fetch.requests) < 1.2 * len(data)


def test_threads_share_a_file() -> None:
    file = pa.PythonFile(RangeFile(Fetcher(DATA), len(DATA), block=64, blocks=6), mode="r")
    right: list[bool] = []

    def read(start: int) -> None:
        right.extend(bytes(file.read_at(50, o)) == DATA[o : o + 50] for o in range(start, 4900, 37))

    threads = [threading.Thread(target=read, args=(i * 5,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(right) > 500
    assert all(right)
