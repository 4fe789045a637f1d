"""Real Hudi reads base files that lakebed wrote in place of its own, finds keys by their footers, and merges them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.format.base_file import base_file_footer, read_base_file, read_footer
from lakebed.format.bloom import BloomFilter, all_ones
from lakebed.format.key_order import KeyRange
from lakebed.format.parquet_writer import BaseFileWriter, ParquetSettings
from lakebed.model import RECORD_KEY
from lakebed.schema.arrow import normalise
from lakebed.schema.avro import arrow_to_avro, avro_to_arrow
from lakebed.schema.evolution import project
from lakebed.storage import open_storage
from oracle.client import HudiOracle
from support.golden_tables import GoldenTable, golden, golden_tables


def rewrite(folder: Path, table: GoldenTable, bloom: BloomFilter | None, settings: ParquetSettings) -> int:
    """Every base file again, by lakebed, under its own name."""
    storage = open_storage(str(folder))
    count = 0
    for info in list(storage.list()):
        if not info.path.endswith(".parquet") or info.path.startswith(".hoodie"):
            continue
        footer = read_footer(storage, info.path, info.size)
        schema = avro_to_arrow(footer.avro_schema) if footer.avro_schema else normalise(footer.schema)
        batches = [project(batch, schema) for batch in read_base_file(storage, info.path, info.size)]
        keys, filled = KeyRange(), bloom or BloomFilter.dynamic(2000, 1e-9, 8000)
        writer = BaseFileWriter(storage.create(info.path), schema, settings)
        for batch in batches:
            keys.add(batch.column(RECORD_KEY))
            if bloom is None:
                filled.add(batch.column(RECORD_KEY))
            writer.write(batch)
        low, high = keys.range()
        avro = arrow_to_avro(schema, table.name, meta=True)
        writer.close(base_file_footer(avro_schema_with_meta=avro, min_key=low, max_key=high, bloom=filled))
        (folder / info.path).with_name(f".{Path(info.path).name}.crc").unlink(missing_ok=True)
        count += 1
    return count


def differing_columns(found: pa.Table, expected: pa.Table) -> list[str]:
    """Columns that differ in a row; as text, where NaN equals itself and -0.0 is not 0.0."""
    return [n for n in expected.column_names if repr(found[n].to_pylist()) != repr(expected[n].to_pylist())]


@pytest.mark.parametrize("table", golden_tables(lambda t: "cow_rich_types" in t.name), ids=str)
def test_every_type_is_read_back(oracle: HudiOracle, table: GoldenTable, tmp_path: Path):
    folder = table.unpack_without_metadata_table(tmp_path)
    before = oracle.read(folder)
    assert rewrite(folder, table, None, ParquetSettings(row_group_rows=7))
    after = oracle.read(folder)
    assert after.schema.equals(before.schema)
    assert differing_columns(after, before) == []


@pytest.mark.parametrize("bloom", [None, all_ones()], ids=["real filter", "one byte"])
def test_keys_are_found_through_the_bloom_index(oracle: HudiOracle, bloom: BloomFilter | None, tmp_path: Path):
    table = golden("v9_cow_event_time")
    folder = table.unpack_without_metadata_table(tmp_path)
    before = oracle.read(folder)
    assert rewrite(folder, table, bloom, ParquetSettings())
    stored = before.slice(0, 5)
    key, ordering = table.entry["record_key"], table.entry["ordering"]
    names = [n for n in stored.column_names if not n.startswith("_hoodie_")]
    at = names.index(ordering)
    later = stored.select(names)
    later = later.set_column(
        at, later.schema.field(ordering), pa.array([10**15] * 5, later.schema.field(ordering).type)
    )
    oracle.write(folder, later, options={"hoodie.index.type": "BLOOM"})
    after = oracle.read(folder)
    assert after.num_rows == before.num_rows
    changed = set(later.column(key).to_pylist())
    assert {r[key] for r in after.to_pylist() if r[ordering] == 10**15} == changed


def test_keys_without_anything_in_common_are_read(oracle: HudiOracle, tmp_path: Path):
    table = golden("v9_cow_rich_types")
    folder = table.unpack_without_metadata_table(tmp_path)
    storage = open_storage(str(folder))
    names = [i for i in storage.list() if i.path.endswith(".parquet") and not i.path.startswith(".hoodie")]
    newest = max(names, key=lambda i: i.path.rsplit("_", 1)[1])
    footer = read_footer(storage, newest.path)
    schema = avro_to_arrow(footer.avro_schema or {})
    batch = pa.Table.from_batches([project(b, schema) for b in read_base_file(storage, newest.path)])
    random_text = pa.array([f"{hash((i, 'x')) & (2**64 - 1):016x}" * 2 for i in range(batch.num_rows)])
    batch = batch.set_column(batch.schema.get_field_index("text"), schema.field("text"), random_text)
    writer = BaseFileWriter(storage.create(newest.path), schema)
    writer.write(batch)
    writer.close(dict(footer.key_values))
    encodings = read_footer(storage, newest.path).metadata.row_group(0).column(schema.names.index("text")).encodings
    assert "DELTA_LENGTH_BYTE_ARRAY" in encodings
    read = oracle.read(folder, where=f"_hoodie_file_name = '{newest.path.rsplit('/', 1)[-1]}'")
    assert sorted(read.column("text").to_pylist()) == sorted(random_text.to_pylist())
