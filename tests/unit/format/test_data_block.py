"""Data blocks that are whole files: Parquet and HFile contents, read by ranges; contents made to do harm."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.data_block import DataBlock, encode_data_block, open_data_block
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, LogBlock, block_bytes, scan_blocks
from lakebed.format.parquet_footer import page_sizes
from lakebed.format.parquet_writer import ParquetSettings
from lakebed.format.sources import BytesSource
from lakebed.schema.conversion import cast_column
from support.avro_values import MAKERS, NULL, batch_of, by_fastavro, record
from support.golden_tables import GoldenTable, golden_tables, spread

with_parquet = pytest.mark.parametrize("table", spread(golden_tables(lambda t: t.type == "mor")), ids=str)
NOT_IN_PARQUET = {"wide"}
RICH = record(*((name, [NULL, kind]) for name, (kind, _) in MAKERS.items() if name not in NOT_IN_PARQUET))


def rich_rows(count: int) -> list[dict[str, Any]]:
    chance = random.Random(3)
    made = {name: make for name, (_, make) in MAKERS.items() if name not in NOT_IN_PARQUET}
    return [{name: make() if chance.random() < 0.8 else None for name, make in made.items()} for _ in range(count)]


def head_of(block: LogBlock) -> BlockHead:
    # something before it: positions inside the content are not those of the file
    before = block_bytes(LogBlock(BlockType.COMMAND, {HeaderKey.INSTANT_TIME: "1"}))
    _, head = scan_blocks(BytesSource(before + block_bytes(block), "a.log"))
    return head


def opened(block: LogBlock) -> DataBlock:
    return open_data_block(head_of(block), "a.log")


def holding(kind: BlockType, schema: str, content: bytes) -> DataBlock:
    return opened(LogBlock(kind, {HeaderKey.SCHEMA: schema}, content))


def test_rows_of_a_parquet_block_come_back() -> None:
    rows = batch_of(rich_rows(500), RICH)
    written = encode_data_block([rows.slice(0, 100), rows.slice(100)], RICH, {0: "2"}, BlockType.PARQUET_DATA)
    stored = pq.read_metadata(io.BytesIO(written.content))
    assert stored.row_group(0).column(0).compression == "GZIP"
    assert stored.metadata[b"parquet.avro.schema"].decode() == RICH
    assert b"org.apache.hudi.bloomfilter" not in stored.metadata
    block = opened(written)
    assert block.rows == 500
    assert block.schema.equals(rows.schema)
    assert block.read(rows.schema.names).equals(rows)
    some = np.array([0, 7, 499])
    assert block.read(["point", "int", "no such"], some).equals(rows.select(["point", "int"]).take(pa.array(some)))
    assert (block.read([]).num_rows, block.read([], some).num_rows, block.read(["int"], some[:0]).num_rows) == (
        500,
        3,
        0,
    )


def test_a_parquet_block_of_many_row_groups_gives_single_rows_of_some() -> None:
    schema = record(("_hoodie_file_name", [NULL, "string"]), ("n", "long"), ("text", [NULL, "string"]))
    names = ["f-0"] * 50_000
    columns = {"_hoodie_file_name": names, "n": range(50_000), "text": [f"t{n % 9}" for n in range(50_000)]}
    rows = pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})
    settings = ParquetSettings(compression="zstd", row_group_rows=20_000)
    block = opened(encode_data_block([rows], schema, {}, BlockType.PARQUET_DATA, settings))
    found = block.read(rows.schema.names)
    assert pa.types.is_dictionary(found["_hoodie_file_name"].type)
    assert [c.to_pylist() for c in found.columns] == [c.to_pylist() for c in rows.columns]
    picked = np.array([1, 8191, 8192, 19_999, 40_000, 49_999])
    assert block.read(["n"], picked)["n"].to_pylist() == picked.tolist()
    assert block.read(["text"], picked)["text"].to_pylist() == [f"t{n % 9}" for n in picked.tolist()]


def parquet_contents(table: GoldenTable) -> Iterator[tuple[str, BlockHead]]:
    for name, data in table.files().items():
        if ".log." in name and "/metadata/" not in name:
            heads = scan_blocks(BytesSource(data, name))
            yield from ((name, head) for head in heads if head.type is BlockType.PARQUET_DATA)


@with_parquet
def test_parquet_blocks_of_real_hudi_are_read_as_arrow_reads_them(table: GoldenTable) -> None:
    for name, head in parquet_contents(table):
        block = open_data_block(head, name)
        plain = pq.read_table(io.BytesIO(bytes(head.read())))
        found = block.read(block.schema.names)
        assert block.rows == plain.num_rows
        for field in block.schema:
            wanted = cast_column(plain[field.name].combine_chunks(), field.type)
            assert repr(found[field.name].cast(field.type).to_pylist()) == repr(wanted.to_pylist())


def test_records_of_an_hfile_block_come_back_with_their_keys() -> None:
    schema = record(("key", "string"), ("n", [NULL, "long"]), ("text", "string"))
    rows = [{"key": "", "n": n if n % 3 else None, "text": f"t{n}"} for n in range(3000)]
    keys = [f"k{n:05}" for n in range(3000)]
    records = [by_fastavro([row], schema)[4:] for row in rows]
    content = write_hfile(pa.array(keys), pa.array(records, pa.binary()), schema_json=schema)
    block = holding(BlockType.HFILE_DATA, schema, content)
    assert block.rows == 3000
    assert block.read(["text", "key", "n"]).to_pylist() == [
        {**row, "key": key} for row, key in zip(rows, keys, strict=True)
    ]
    some = np.array([5, 2999])
    assert block.read(["key", "n"], some).to_pylist() == [{"key": "k00005", "n": 5}, {"key": "k02999", "n": 2999}]


def refused(kind: BlockType, schema: str, content: bytes, columns: Sequence[str]) -> str:
    with pytest.raises(CorruptFile) as error:
        holding(kind, schema, content).read(columns)
    assert error.value.context == {"path": "a.log", "offset": 55}
    return str(error.value)


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", store_schema=False, **options)
    return sink.getvalue()


@pytest.mark.rest
def test_parquet_blocks_that_become_large_are_refused() -> None:
    text = record(("v", [NULL, "string"]))
    pages = parquet(pa.table({"v": ["x" * (1 << 20)] * 400}), use_dictionary=False, write_statistics=False)
    assert len(pages) < 1 << 20
    assert "its pages declare" in refused(BlockType.PARQUET_DATA, text, pages, ["v"])
    once = parquet(pa.table({"v": ["x" * (1 << 19)] * 2000}), write_statistics=False)
    assert len(once) < 1 << 16
    assert "1024 times" in refused(BlockType.PARQUET_DATA, text, once, ["v"])
    lists = record(("v", [NULL, {"type": "array", "items": [NULL, "long"]}]))
    nulls = pa.ListArray.from_arrays([0, 100_000_000], pa.nulls(100_000_000, pa.int64()))
    items = pa.chunked_array([nulls] * 4)
    many = parquet(pa.table({"v": items}), data_page_size=1 << 40, write_batch_size=1 << 30)
    del nulls, items
    assert len(many) < 1 << 20
    assert "values" in refused(BlockType.PARQUET_DATA, lists, many, ["v"])


def test_sizes_of_pages_are_read_and_cut_pages_are_refused() -> None:
    for version in ("1.0", "2.0"):
        data = parquet(pa.table({"v": range(30_000)}), data_page_version=version, data_page_size=4096)
        chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0)
        start, size = chunk.dictionary_page_offset or chunk.data_page_offset, chunk.total_compressed_size
        told = page_sizes(data[start : start + size])
        assert told.values == 30_000
        assert told.inflated <= chunk.total_uncompressed_size < told.inflated + 10_000
        for cut in (1, 5, size - 1):
            with pytest.raises(ValueError, match="page"):
                page_sizes(data[start : start + cut])


def test_blocks_without_rows_or_schema_are_refused() -> None:
    with pytest.raises(CorruptFile, match="no schema"):
        opened(LogBlock(BlockType.AVRO_DATA, {}, b""))
    with pytest.raises(UnsupportedFeature, match="holds no rows"):
        opened(LogBlock(BlockType.DELETE, {HeaderKey.SCHEMA: RICH}, b""))
    for kind in (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA):
        for content in (b"", b"\x00" * 7, b"PAR1", b"\x00" * 5000):
            refused(kind, RICH, content, ["int"])
        with pytest.raises(CorruptFile):
            holding(kind, "{no json", b"")
