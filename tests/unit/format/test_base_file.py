from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptFile, InvalidOption
from lakebed.format.base_file import MAX_KEY, MIN_KEY, base_file_footer, read_base_file, read_footer
from lakebed.format.bloom import BloomFilter, all_ones
from lakebed.format.parquet_writer import BaseFileWriter, ParquetSettings
from lakebed.model import COMMIT_TIME, FILE_NAME, META_COLUMNS, RECORD_KEY
from lakebed.schema.arrow import normalise, with_meta, without_meta
from lakebed.schema.avro import arrow_to_avro, avro_to_arrow
from lakebed.schema.conversion import project
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from support.golden_tables import GoldenTable, golden_cow_tables, spread

UTC = datetime.UTC
EVERY_TYPE = pa.schema(
    [
        pa.field("id", pa.string(), False),
        pa.field("UPPER", pa.bool_()),
        pa.field("größe 数", pa.int32()),
        pa.field("with.dot", pa.int64()),
        pa.field("with", pa.float32()),
        pa.field("a space", pa.float64()),
        pa.field("dec5", pa.decimal128(5, 2)),
        pa.field("dec18", pa.decimal128(18, 6)),
        pa.field("dec38", pa.decimal128(38, 10)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("at_ms", pa.timestamp("ms", "UTC")),
        pa.field("at_ntz", pa.timestamp("us")),
        pa.field("time", pa.time64("us")),
        pa.field("bin", pa.binary()),
        pa.field(
            "st",
            pa.struct([pa.field("a", pa.int32(), False), pa.field("in", pa.struct([("x", pa.decimal128(10, 3))]))]),
        ),
        pa.field("arr", pa.list_(pa.field("element", pa.int32()))),
        pa.field("arr_st", pa.list_(pa.field("element", pa.struct([("k", pa.string())]), False))),
        pa.field("m", pa.map_(pa.string(), pa.list_(pa.field("element", pa.float32())))),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "id": "1",
        "UPPER": True,
        "größe 数": -(2**31),
        "with.dot": 2**63 - 1,
        "with": 1.5,
        "a space": float("inf"),
        "dec5": Decimal("-999.99"),
        "dec18": Decimal("123456789012.123456"),
        "dec38": Decimal("-9999999999999999999999999999.9999999999"),
        "day": datetime.date(1200, 2, 3),
        "at": datetime.datetime(1492, 1, 1, 0, 0, 0, 1, UTC),
        "at_ms": datetime.datetime(9999, 1, 1, tzinfo=UTC),
        "at_ntz": datetime.datetime(1, 1, 1, 0, 0, 0, 999999),
        "time": datetime.time(23, 59, 59, 999999),
        "bin": b"\x00\xff",
        "st": {"a": 1, "in": {"x": Decimal("1.125")}},
        "arr": [1, None, 3],
        "arr_st": [{"k": "é"}, {"k": None}],
        "m": [("a", [1.5, None]), ("b", None)],
    },
    {"id": "2"} | {f.name: None for f in EVERY_TYPE if f.name != "id"},
    {"id": "3"}
    | {f.name: None for f in EVERY_TYPE if f.name != "id"}
    | {"arr": [], "m": [], "st": {"a": 2, "in": None}},
]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "table"))


def write(storage: Storage, path: str, data: pa.Table, settings: ParquetSettings | None = None, **footer: str) -> int:
    writer = BaseFileWriter(storage.create(path), plain(data.schema), settings)
    for batch in data.to_batches():
        writer.write(batch)
    return writer.close(footer)


def plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema])


def read(storage: Storage, path: str, columns: list[str] | None = None, **options: Any) -> pa.Table:
    batches = list(read_base_file(storage, path, None, columns, **options))
    return pa.Table.from_batches(batches, batches[0].schema if batches else read_footer(storage, path).schema)


def parquet_file(storage: Storage, path: str) -> pq.ParquetFile:
    return pq.ParquetFile(storage.open_input(path))


def flights(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = pa.array([rng.bytes(16).hex() for _ in range(rows)])
    return pa.table(
        {
            COMMIT_TIME: pa.array(["20240102030405006"] * rows).dictionary_encode(),
            "_hoodie_commit_seqno": pa.array([f"20240102030405006_0_{i}" for i in range(rows)]),
            RECORD_KEY: keys,
            "_hoodie_partition_path": pa.array(["city=x"] * rows).dictionary_encode(),
            FILE_NAME: pa.array(["f.parquet"] * rows).dictionary_encode(),
            "id": keys,
            "city": pa.array([f"city{i}" for i in rng.integers(0, 20, rows)]),
            "fare": pa.array(rng.random(rows)),
        }
    )


def test_every_type_comes_back(storage: Storage):
    data = pa.Table.from_pylist(ROWS, EVERY_TYPE)
    size = write(storage, "p/f.parquet", data)
    head = storage.head("p/f.parquet")
    assert head is not None
    assert head.size == size
    back = read(storage, "p/f.parquet")
    assert back.schema.equals(EVERY_TYPE)
    assert back.to_pylist() == data.to_pylist()


def test_parquet_types_are_hudis(storage: Storage):
    write(storage, "f", pa.Table.from_pylist(ROWS, EVERY_TYPE))
    file = parquet_file(storage, "f")
    columns = {c.path: c for c in (file.schema.column(i) for i in range(len(file.schema)))}
    lengths = {"dec5": 3, "dec18": 8, "dec38": 16, "st.in.x": 5}
    for path, length in lengths.items():
        assert (columns[path].physical_type, columns[path].length) == ("FIXED_LEN_BYTE_ARRAY", length)
    shown = str(file.schema)
    for line in (
        "required binary field_id=-1 id (String);",
        "optional int64 field_id=-1 at (Timestamp(isAdjustedToUTC=true, timeUnit=microseconds",
        "optional int64 field_id=-1 at_ms (Timestamp(isAdjustedToUTC=true, timeUnit=milliseconds",
        "optional int64 field_id=-1 at_ntz (Timestamp(isAdjustedToUTC=false, timeUnit=microseconds",
        "optional int64 field_id=-1 time (Time(isAdjustedToUTC=true, timeUnit=microseconds",
    ):
        assert line in shown
    assert {"arr.list.element", "arr_st.list.element.k", "m.key_value.key", "m.key_value.value.list.element"} <= set(
        columns
    )
    assert columns["st.a"].max_definition_level == 1
    assert "INT96" not in {c.physical_type for c in columns.values()}


def test_a_null_in_a_required_column_leaves_nothing(storage: Storage):
    writer = BaseFileWriter(storage.create("f"), pa.schema([pa.field("a", pa.int32(), False)]))
    writer.write(pa.record_batch({"a": pa.array([1, None], pa.int32())}))
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        writer.close({})
    assert list(storage.list()) == []


def test_an_aborted_base_file_leaves_no_file(storage: Storage):
    data = flights(10)
    writer = BaseFileWriter(storage.create("f"), plain(data.schema), ParquetSettings(row_group_rows=4))
    writer.write(data)
    writer.abort()
    del writer
    assert list(storage.list()) == []


def test_row_groups_are_full_whatever_the_batches(storage: Storage):
    data = flights(1000)
    writer = BaseFileWriter(storage.create("f"), plain(data.schema), ParquetSettings(row_group_rows=300))
    for start, rows in ((0, 1), (1, 450), (451, 549)):
        writer.write(data.slice(start, rows))
    assert writer.rows == 1000
    writer.close({})
    metadata = parquet_file(storage, "f").metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [300, 300, 300, 100]
    assert read(storage, "f").to_pylist() == data.to_pylist()


def test_a_file_without_rows(storage: Storage):
    size = BaseFileWriter(storage.create("f"), EVERY_TYPE).close({"k": "v"})
    footer = read_footer(storage, "f", size)
    assert (footer.rows, footer.key_values["k"]) == (0, "v")
    assert footer.schema.equals(EVERY_TYPE)
    assert list(read_base_file(storage, "f", size)) == []


def test_dictionaries_and_plain_values_may_mix(storage: Storage):
    data = flights(20)
    as_text = data.cast(plain(data.schema))
    for first, second in ((data, as_text), (as_text, data)):
        writer = BaseFileWriter(storage.create("f"), plain(data.schema))
        writer.write(first)
        writer.write(second)
        writer.close({})
        assert read(storage, "f").to_pylist() == [*data.to_pylist(), *data.to_pylist()]


def test_dictionaries_that_differ_stay_dictionaries(storage: Storage):
    schema = pa.schema([(COMMIT_TIME, pa.string())])
    writer = BaseFileWriter(storage.create("f"), schema)
    for word in ("a", "b", "c"):
        writer.write(pa.record_batch({COMMIT_TIME: pa.array([word] * 1000 + [None]).dictionary_encode()}))
    writer.close({})
    column = parquet_file(storage, "f").metadata.row_group(0).column(0)
    assert column.dictionary_page_offset is not None
    assert column.total_uncompressed_size < 1500
    assert read(storage, "f").column(0).value_counts().to_pylist()[1] == {"values": None, "counts": 3}


def test_encodings_follow_the_values(storage: Storage):
    write(storage, "f", flights(5000))
    group = parquet_file(storage, "f").metadata.row_group(0)
    encodings = {group.column(i).path_in_schema: set(group.column(i).encodings) for i in range(group.num_columns)}
    dictionary = {name for name, used in encodings.items() if "RLE_DICTIONARY" in used}
    assert dictionary == {COMMIT_TIME, "_hoodie_partition_path", FILE_NAME, "city"}
    assert "DELTA_LENGTH_BYTE_ARRAY" in encodings[RECORD_KEY]
    assert encodings["fare"] == {"PLAIN", "RLE"}
    assert {group.column(i).compression for i in range(group.num_columns)} == {"ZSTD"}
    with_statistics = {group.column(i).path_in_schema for i in range(group.num_columns) if group.column(i).is_stats_set}
    assert with_statistics == set(encodings) - {"_hoodie_commit_seqno", FILE_NAME}


@pytest.mark.parametrize(
    ("codec", "stored"),
    [("GZIP", "GZIP"), ("snappy", "SNAPPY"), ("UNCOMPRESSED", "UNCOMPRESSED"), ("lz4_raw", "LZ4"), ("ZSTD", "ZSTD")],
)
def test_codecs_by_hudis_names(storage: Storage, codec: str, stored: str):
    data = flights(100)
    write(storage, "f", data, ParquetSettings(compression=codec, level=1))
    assert parquet_file(storage, "f").metadata.row_group(0).column(2).compression == stored
    assert read(storage, "f").to_pylist() == data.to_pylist()


def test_an_unknown_codec_is_refused_by_name(storage: Storage):
    with pytest.raises(InvalidOption, match="'lzo'"):
        BaseFileWriter(storage.create("f"), EVERY_TYPE, ParquetSettings(compression="lzo"))


@pytest.mark.parametrize("row_group_rows", [1000, 100_000])
def test_bytes_written_is_the_size_of_the_finished_file(storage: Storage, row_group_rows: int):
    data = flights(20_000)
    writer = BaseFileWriter(storage.create("f"), plain(data.schema), ParquetSettings(row_group_rows=row_group_rows))
    assert writer.bytes_written == 0
    told: list[int] = []
    for start in range(0, 20_000, 5000):
        writer.write(data.slice(start, 5000))
        told.append(writer.bytes_written)
    size = writer.close({})
    assert [round(t / size, 1) for t in told] == pytest.approx([0.25, 0.5, 0.75, 1.0], abs=0.1)


def test_footer_says_what_readers_look_for(storage: Storage):
    data = flights(10)
    avro = arrow_to_avro(plain(data.schema), "t", meta=True)
    keys = BloomFilter.dynamic(100, 0.01, 200)
    keys.add(data.column(RECORD_KEY))
    size = write(
        storage, "f", data, None, **base_file_footer(avro_schema_with_meta=avro, min_key="a", max_key="é", bloom=keys)
    )
    footer = read_footer(storage, "f", size)
    assert [footer.key_values[name] for name in (MIN_KEY, MAX_KEY)] == ["a", "é"]
    assert footer.key_values["org.apache.spark.version"] >= "3"
    assert footer.avro_schema is not None
    assert [f["name"] for f in footer.avro_schema["fields"]][:5] == list(META_COLUMNS)
    found = footer.bloom()
    assert found is not None
    assert (found.type_code, found.to_text()) == ("DYNAMIC_V0", keys.to_text())
    assert set(footer.key_values) == {
        "org.apache.spark.version",
        "parquet.avro.schema",
        "org.apache.hudi.bloomfilter",
        "hoodie_bloom_filter_type_code",
        "hoodie_min_record_key",
        "hoodie_max_record_key",
    }


def test_footers_with_little_to_say():
    assert set(base_file_footer(avro_schema_with_meta="{}", min_key=None, max_key=None, bloom=None)) == {
        "org.apache.spark.version",
        "parquet.avro.schema",
    }
    simple = base_file_footer(avro_schema_with_meta="{}", min_key=None, max_key=None, bloom=all_ones())
    assert "hoodie_bloom_filter_type_code" not in simple


def test_columns_in_the_order_asked_for(storage: Storage):
    data = pa.Table.from_pylist(ROWS, EVERY_TYPE)
    write(storage, "f", data)
    asked = read(storage, "f", ["st", "with", "missing", "id"])
    assert asked.column_names == ["st", "with", "id"]
    assert asked.column("with").to_pylist() == data.column("with").to_pylist()
    assert read(storage, "f", ["with.dot"]).to_pylist() == data.select(["with.dot"]).to_pylist()


def test_text_columns_are_read_as_dictionaries_on_request(storage: Storage):
    data = flights(100)
    write(storage, "f", data)
    asked = read(storage, "f", ["fare", "city", FILE_NAME], dictionary=["city", FILE_NAME, "missing", "fare"])
    assert [str(t) for t in asked.schema.types] == [
        "double",
        "dictionary<values=string, indices=int32, ordered=0>",
        "dictionary<values=string, indices=int32, ordered=0>",
    ]
    assert asked.to_pylist() == data.select(["fare", "city", FILE_NAME]).to_pylist()


def test_batches_are_no_larger_than_asked(storage: Storage):
    write(storage, "f", flights(1000), ParquetSettings(row_group_rows=700))
    assert [b.num_rows for b in read_base_file(storage, "f", batch_rows=300)] == [300, 300, 100, 300]
    assert [b.num_rows for b in read_base_file(storage, "f", columns=[], batch_rows=300)] == [300, 300, 100, 300]


def test_int96_is_read_as_an_instant(storage: Storage, tmp_path: Path):
    when = datetime.datetime(2024, 2, 3, 4, 5, 6, 123456)
    data = pa.table({"at": pa.array([when, None], pa.timestamp("us")), "n": [1, 2]})
    (tmp_path / "table").mkdir()
    pq.write_table(data, tmp_path / "table" / "f", use_deprecated_int96_timestamps=True, store_schema=False)
    back = read(storage, "f")
    assert back.schema.field("at").type == pa.timestamp("us", "UTC")
    assert back.column("at").to_pylist() == [when.replace(tzinfo=UTC), None]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all, but long enough to hold a footer" * 9])
def test_a_file_that_is_no_parquet_is_named(storage: Storage, content: bytes):
    storage.write("p/f.parquet", content)
    with pytest.raises(CorruptFile, match=r"p/f\.parquet"):
        read_footer(storage, "p/f.parquet")
    with pytest.raises(CorruptFile, match=r"p/f\.parquet"):
        list(read_base_file(storage, "p/f.parquet"))


def test_damage_in_the_middle_is_named(storage: Storage):
    write(storage, "f", flights(20_000), ParquetSettings(compression="zstd"))
    data = bytearray(storage.read("f"))
    data[100:4000] = b"\xff" * 3900
    storage.write("f", bytes(data))
    with pytest.raises(CorruptFile, match="base file f"):
        list(read_base_file(storage, "f"))


def test_a_large_row_group_is_read_in_little_memory(storage: Storage, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    rows = 400_000
    data = pa.table({"a": rng.random(rows), "b": rng.random(rows), "c": rng.integers(0, 2**62, rows)})
    write(storage, "f", data, ParquetSettings(row_group_rows=rows))
    monkeypatch.setattr("lakebed.format.base_file._PREFETCH_BYTES", 1 << 20)
    del data
    before, peak, seen = pa.total_allocated_bytes(), 0, 0
    for batch in read_base_file(storage, "f", batch_rows=8192):
        peak = max(peak, pa.total_allocated_bytes() - before)
        seen += batch.num_rows
    assert seen == rows
    assert peak < 6 << 20


@pytest.mark.parametrize("table", spread(golden_cow_tables()), ids=str)
def test_every_file_real_hudi_wrote_is_read(table: GoldenTable, tmp_path: Path):
    folder = table.unpack(tmp_path)
    storage = open_storage(str(folder))
    rows = 0
    for info in list(storage.list()):
        if not info.path.endswith(".parquet") or info.path.startswith(".hoodie"):
            continue
        footer = read_footer(storage, info.path, info.size)
        data = read(storage, info.path)
        assert data.num_rows == footer.rows
        rows += data.num_rows
        stored = normalise(footer.schema)
        if footer.avro_schema is not None:
            declared = avro_to_arrow(footer.avro_schema)
            assert [(f.name, f.nullable) for f in stored] == [(f.name, f.nullable) for f in declared]
            for batch in data.to_batches():
                assert project(batch, declared).num_rows == batch.num_rows
            assert project_types(stored, declared)
        assert without_meta(with_meta(stored)).names == without_meta(stored).names
    assert rows or not table.expected.num_rows


def project_types(stored: pa.Schema, declared: pa.Schema) -> bool:
    """Equal but for the elements of two-level lists, which that form cannot declare nullable."""
    return str(stored).replace(" not null", "") == str(declared).replace(" not null", "")
