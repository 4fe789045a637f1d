from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptFile
from lakebed.format.bloom import ALL_ONES_TEXT, BloomFilter, all_ones, murmur2
from lakebed.model import RECORD_KEY
from support.golden_tables import GoldenTable, golden_tables
from support.hudi_reference import DynamicFilter, SimpleFilter
from support.hudi_reference import murmur2 as reference_murmur2

any_key = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
GOLDEN = ("v6_cow_event_time", "v8_cow_event_time", "v9_cow_event_time", "v9_cow_complex_keys")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.none(), any_key), max_size=30), st.integers(0, 2**32 - 1))
def test_murmur2_of_any_text(keys: list[str | None], seed: int):
    expected = [0 if k is None else reference_murmur2(k.encode(), seed) for k in keys]
    column = pa.array(keys, pa.string())
    assert murmur2(column, seed).tolist() == expected
    assert murmur2(column[1:], seed).tolist() == expected[1:]


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_murmur2_of_few_long_keys_is_that_of_many(rows: int):
    keys = [chr(97 + row) * 4003 for row in range(rows)]
    assert murmur2(pa.array(keys), 7).tolist() == [reference_murmur2(key.encode(), 7) for key in keys]


def test_filters_have_hudis_bytes():
    simple, dynamic = BloomFilter.simple(2, 0.1), BloomFilter.dynamic(2, 0.1, 3)
    simple.add(pa.array(["a", "b"]))
    dynamic.add(pa.array(["a", "b", "c"]))
    assert simple.to_text() == "/////wAAAAQBAAAACr0C"
    assert dynamic.to_text() == ("/////wAAAAQBAAAACgAAAAIAAAABAAAAAv////8AAAAEAQAAAAq9Av////8AAAAEAQAAAAo2AA==")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(any_key.filter(bool), max_size=12), max_size=6),
    st.integers(1, 7),
    st.integers(1, 25),
)
def test_filters_are_byte_for_byte_hudis(batches: list[list[str]], entries: int, max_entries: int):
    simple, dynamic = BloomFilter.simple(entries, 0.01), BloomFilter.dynamic(entries, 0.01, max_entries)
    expected_simple, expected = SimpleFilter(entries, 0.01), DynamicFilter(entries, 0.01, max_entries)
    for batch in batches:
        simple.add(pa.array(batch, pa.string()))
        dynamic.add(pa.array(batch, pa.string()))
        for key in batch:
            expected_simple.add(key.encode())
            expected.add(key.encode())
    assert simple.to_text() == expected_simple.text()
    assert dynamic.to_text() == expected.text()
    probes = ["x", "yy", "zzz", *[k for b in batches for k in b]]
    assert dynamic.might_contain(pa.array(probes)).to_pylist() == [expected.has(p.encode()) for p in probes]


def test_a_filter_read_back_answers_and_grows_as_before():
    first, whole = BloomFilter.dynamic(10, 0.01, 40), BloomFilter.dynamic(10, 0.01, 40)
    keys = pa.array([f"k{i}" for i in range(35)])
    first.add(keys[:17])
    again = BloomFilter.from_text(first.to_text(), first.type_code, max_entries=40)
    again.add(keys[17:])
    whole.add(keys)
    assert again.to_text() == whole.to_text()
    assert all(again.might_contain(keys).to_pylist())


def test_nulls_are_neither_added_nor_answered():
    keys = BloomFilter.simple(100, 0.001)
    keys.add(pa.array(["a", None]))
    assert keys.might_contain(pa.array([None, "a", "b"])).to_pylist() == [None, True, False]


def test_default_size_is_hudis():
    keys = BloomFilter.dynamic()
    assert (keys.bits, keys.hashes, len(keys.to_text())) == (2_587_966, 30, 431_380)


def test_the_filter_of_one_byte_holds_everything():
    assert all_ones().to_text() == ALL_ONES_TEXT == "/////wAAAAEBAAAACP8="
    read = BloomFilter.from_text(ALL_ONES_TEXT)
    assert all(read.might_contain(pa.array([f"é{i}" for i in range(100)])).to_pylist())
    assert read.type_code == "SIMPLE"


@pytest.mark.parametrize("text", ["", "AAAA", "no base64!", "/////wAAAAQBAAAACr0=", "AAAABAEAAAAKvQI="])
@pytest.mark.parametrize("type_code", ["SIMPLE", "DYNAMIC_V0"])
def test_text_that_is_no_filter(text: str, type_code: str):
    with pytest.raises(CorruptFile, match="bloom filter"):
        BloomFilter.from_text(text, type_code)


@pytest.mark.parametrize("table", golden_tables(lambda t: t.name in GOLDEN), ids=str)
def test_a_filter_made_from_a_real_files_keys_is_that_files(table: GoldenTable, tmp_path: Path):
    files = [p for p in sorted(table.unpack(tmp_path).rglob("*.parquet")) if ".hoodie" not in p.parts]
    assert files
    for path in files[:8]:
        footer = {k.decode(): v.decode() for k, v in pq.read_metadata(path).metadata.items()}
        text = footer["org.apache.hudi.bloomfilter"]
        stored = BloomFilter.from_text(text, footer["hoodie_bloom_filter_type_code"])
        keys = pq.read_table(path, columns=[RECORD_KEY]).column(0)
        made = BloomFilter.dynamic(2000, 1e-9, 8000)
        made.add(keys)
        assert stored.to_text() == text
        assert all(stored.might_contain(keys.combine_chunks()).to_pylist())
        assert made.to_text() == text
