"""The contents of files of every format: no value hides behind a codec, an encoding or a page."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptFile
from lakebed.format.delete_block import encode_deletes
from lakebed.format.file_contents import byte_runs, deletes_in, entries_in, footer_ranges, leaf_values, row_batches
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.log_file import block_bytes, delete_block, hfile_data_block

TEXT = "unmistakable-text"
SCHEMA = '"bytes"'


def has(data: bytes, text: str = TEXT) -> bool:
    return any(text.encode() in bytes(run) for run in byte_runs(data, "f"))


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)  # pyright: ignore[reportUnknownMemberType]
    return sink.getvalue()


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_parquet_are_decompressed(codec: str, version: str) -> None:
    table = pa.table({"a": [None, TEXT, "x" * 500] * 9, "b": [[1], None, []] * 9})
    for dictionary in (True, False):
        options = {"compression": codec, "data_page_version": version, "use_dictionary": dictionary}
        assert has(parquet(table, **options, write_statistics=False))
        assert not has(parquet(table, **options, write_statistics=False), "another text")


def test_a_value_of_a_dictionary_that_no_row_has_is_in_the_pages_and_not_among_the_rows() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array(["a", TEXT]))
    data = parquet(pa.table({"a": column}), compression="gzip", store_schema=False)
    rows = [batch.column("a").to_pylist() for batch in row_batches(data, "f")]
    assert (has(data), rows) == (True, [["a", "a"]])


def test_the_ranges_and_texts_of_a_footer() -> None:
    table = pa.table({"n": [3, 7]}).replace_schema_metadata({"hoodie_max_record_key": TEXT})
    found = {name: values.to_pylist() for name, values in footer_ranges(parquet(table), "f")}
    assert found["n"] == ["3", "7"]
    assert TEXT in found[""]


def test_an_hfile_and_one_in_a_log_file_give_their_entries() -> None:
    content = write_hfile(pa.array([TEXT]), pa.array([b"value"]), schema_json=SCHEMA)
    for data in (content, block_bytes(hfile_data_block(SCHEMA, content, "1"))):
        assert has(data)
        ((keys, values, schema),) = entries_in(data, "f")
        assert (keys.to_pylist(), values.to_pylist(), schema) == ([TEXT.encode()], [b"value"], SCHEMA)


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_an_avro_file_is_decompressed(codec: str) -> None:
    sink = io.BytesIO()
    fastavro.writer(sink, "string", [TEXT, "x" * 500], codec=codec)  # pyright: ignore[reportUnknownMemberType]
    assert has(sink.getvalue())


def test_deletes_of_a_log_file_give_their_keys() -> None:
    data = block_bytes(delete_block(encode_deletes(pa.array([TEXT])), "1"))
    assert [keys.keys.to_pylist() for keys in deletes_in(data, "f")] == [[TEXT]]
    assert list(deletes_in(b"text", "f")) == list(row_batches(b"text", "f")) == []


def test_a_file_that_is_cut_off_raises() -> None:
    data = parquet(pa.table({"a": [TEXT]}))
    with pytest.raises(CorruptFile):
        list(byte_runs(data[:-20], "cut.parquet"))


def test_nested_values_have_the_names_of_their_fields() -> None:
    rows = [{"s": {"x": 1, "l": ["a", None]}, "m": [("k", 2.5)]}]
    kind = pa.struct(
        [("s", pa.struct([("x", pa.int8()), ("l", pa.list_(pa.string()))])), ("m", pa.map_(pa.string(), pa.float64()))]
    )
    batch = pa.RecordBatch.from_struct_array(pa.array(rows, kind))
    found = [part for name in ("s", "m") for part in leaf_values(name, batch.column(name))]
    assert {name: values.to_pylist() for name, values in found} == {
        "s.x": ["1"],
        "s.l": ["a"],
        "m.key": ["k"],
        "m.value": ["2.5"],
    }
