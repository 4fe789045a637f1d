"""Every record form, decoded from what real Hudi wrote, compared with the Avro library's reading, and encoded again."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.metadata_kinds import files, record_index
from lakebed.metadata_records import stats_codec
from lakebed.metadata_records.records import V8, V9, record_form_of, record_schema
from lakebed.metadata_records.stats_codec import as_type
from support.golden_tables import golden_tables
from support.metadata_hfiles import HFile, hfiles

# One writer, form or kind of record each; the others hold more of the same.
TABLES = {
    "v6_mor_mdt_basic",
    "v8_mor_mdt_basic",
    "v9_cow_mdt_all",
    "v9_cow_mdt_compacted",
    "v9_cow_rich_types",
    "v9_cow_record_index",
    "down_v9_to_v6_mor",
    "up_v8_to_v9_mor",
    "v9_cow_delete_partition",
}
by_table = pytest.mark.parametrize("table", [t.name for t in golden_tables(lambda t: t.name in TABLES)])
FILE_ID = "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}"


@cache
def parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))


def records(file: HFile) -> list[dict[str, Any]]:
    schema = parsed(file.schema)
    return [fastavro.schemaless_reader(io.BytesIO(value), schema, None) for value in file.values.to_pylist()]


def of_partition(table: str, *starts: str) -> Iterator[HFile]:
    for file in hfiles(table):
        if file.partition.startswith(starts) and len(file.keys):
            yield file


def plain_values(file: HFile) -> bool:
    """Whether the meta columns are null, as lakebed writes them."""
    return pc.all(pc.starts_with(file.values.cast(pa.binary()), b"\x00" * 6)).as_py()


def undocumented(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {k: undocumented(v) for k, v in schema.items() if k != "doc"}
    return [undocumented(v) for v in schema] if isinstance(schema, list) else schema


@by_table
def test_schemas_are_those_of_real_hudi_but_for_their_docs(table: str) -> None:
    for text in {file.schema for file in hfiles(table)}:
        form = record_form_of(text)
        assert form is not None
        assert undocumented(json.loads(record_schema(form))) == undocumented(json.loads(text))


@by_table
def test_files_records_are_decoded_and_encoded_as_hudi_has_them(table: str) -> None:
    for file in of_partition(table, "files"):
        decoded = files.decode(file.keys, file.values, file.schema)
        expected = []
        for key, record in zip(file.keys.to_pylist(), records(file), strict=True):
            entries = record["filesystemMetadata"]
            expected += [(key, name, info["size"], info["isDeleted"]) for name, info in entries.items()]
            expected += [] if entries else [(key, None, None, None)]
        assert [tuple(row.values()) for row in decoded.to_pylist()] == expected
        keys, values = files.encode(decoded, record_form_of(file.schema))
        assert keys.equals(file.keys)
        assert not plain_values(file) or values.equals(file.values)


def test_long_lists_of_files_are_distinguished_by_their_bytes() -> None:
    """Of a list with many files it is kept where its entries are."""

    def rows(key: str, count: int, size: int) -> list[dict[str, Any]]:
        return [{"key": key, "name": f"f{n:04d}.parquet", "size": size + n, "is_deleted": n == 7} for n in range(count)]

    for asked in (
        rows("p", 400, 5),
        rows("p", 400, 6),
        [*rows("another, longer", 1, 1), *rows("p", 400, 5)],  # the same list elsewhere
        [*rows("p", 399, 5), *rows("q", 400, 5)],
        rows("p", 400, 5),
    ):
        keys, values = files.encode(pa.Table.from_pylist(asked, files.SCHEMA), V9)
        assert files.decode(keys, values, record_schema(V9)).to_pylist() == asked


@by_table
def test_record_index_entries_are_decoded_and_encoded_as_hudi_has_them(table: str) -> None:
    for file in of_partition(table, "record_index"):
        decoded = record_index.decode(file.keys, file.values, file.schema)
        rows = zip(decoded.to_pylist(), records(file), strict=True)
        for row, record in rows:
            info = record["recordIndexMetadata"]
            assert row["partition"] == info["partitionName"]
            assert row["file_id"] == file_id(info)
        keys, values = record_index.encode(decoded, record_form_of(file.schema))
        assert keys.equals(file.keys)
        assert not plain_values(file) or values.equals(file.values)


def file_id(info: dict[str, Any]) -> str:
    bits = (info["fileIdHighBits"] % 2**64) << 64 | info["fileIdLowBits"] % 2**64
    parts = bits >> 96, bits >> 80 & 0xFFFF, bits >> 64 & 0xFFFF, bits >> 48 & 0xFFFF, bits & 0xFFFFFFFFFFFF
    return FILE_ID.format(*parts) + (f"-{info['fileIndex']}" if info["fileIndex"] >= 0 else "")


STATS = {
    "fileName": "file_name",
    "valueCount": "value_count",
    "nullCount": "null_count",
    "totalSize": "total_size",
    "totalUncompressedSize": "total_uncompressed",
    "isDeleted": "is_deleted",
    "isTightBound": "is_tight",
}


@by_table
def test_statistics_are_decoded_and_encoded_as_hudi_has_them(table: str) -> None:
    for file in of_partition(table, "column_stats", "partition_stats", "expr_index"):
        infos = [record["ColumnStatsMetadata"] for record in records(file)]
        rows = list(zip(file.keys.to_pylist(), infos, strict=True))
        if not rows[0][1]:
            continue
        decoded = stats_codec.decode(file.keys, file.values, file.schema)
        assert sum(map(len, decoded.values())) == len(rows)
        for column, stats in decoded.items():
            own = [(key, info) for key, info in rows if info["columnName"] == column]
            assert stats["key"].to_pylist() == [key for key, _ in own]
            for theirs, ours in STATS.items():
                assert stats[ours].to_pylist() == [info.get(theirs, False) for _, info in own]
            for theirs, ours in (("minValue", "min"), ("maxValue", "max")):
                for value, (_, info) in zip(stats[ours].to_pylist(), own, strict=True):
                    assert same_bound(value, info[theirs], info.get("valueType"))
        assert_encoded_again(file, decoded, dict(rows))


def same_bound(value: Any, wrapper: dict[str, Any] | None, value_type: dict[str, Any] | None) -> bool:
    raw = None if wrapper is None else wrapper["value"]
    if isinstance(value, Decimal) and isinstance(raw, bytes):
        scale = int(value_type["additionalInfo"].split(",")[1])
        raw = Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale)
    if isinstance(value, date) and isinstance(raw, int) and not hasattr(value, "hour"):
        raw = date.fromordinal(raw + date(1970, 1, 1).toordinal())
    elif hasattr(value, "hour"):
        return pa.scalar(value, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py() == raw
    return value == raw or (value != value and raw != raw)


def assert_encoded_again(file: HFile, decoded: dict[str, pa.Table], infos: dict[str, dict[str, Any]]) -> None:
    """Byte for byte, but for what 0.15.0's compaction made of dates and decimals."""
    form = record_form_of(file.schema)
    assert form is not None
    original = dict(zip(file.keys.to_pylist(), file.values.to_pylist(), strict=True))
    for column, stats in decoded.items():
        version = 2 if any(infos[key].get("valueType") for key in stats["key"].to_pylist()) else 1
        keys, values = stats_codec.encode({column: stats}, form, index_version=version)
        for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
            wrapped = infos[key]["minValue"] or infos[key]["maxValue"] or infos[key].get("valueType")
            if not original[key].startswith(bytes(6)) or (not wrapped and form.has_value_type):
                continue
            as_theirs = value[:6] + original[key][6:7] + value[7:]
            assert as_theirs == original[key]


def test_bounds_of_a_column_that_changed_its_type() -> None:
    assert as_type(pa.array([1, 2], pa.int32()), pa.int64()).to_pylist() == [1, 2]
    assert as_type(pa.array([0.1], pa.float32()), pa.float64()).to_pylist() == [0.1]
    assert as_type(pa.array([10], pa.int32()), pa.string()).to_pylist() == [None]
    assert as_type(pa.array([3], pa.int32()), pa.date32()).to_pylist() == [date(1970, 1, 4)]
    raw = pa.array([(-(2_250_000_000_000_000)).to_bytes(8, "big", signed=True)], pa.binary())
    assert as_type(raw, pa.decimal128(12, 2)).to_pylist() == [Decimal("-2.25")]
    assert as_type(pa.array([2**40, 7]), pa.int32()).to_pylist() == [None, 7]


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -128, -129, 2**63, -(2**63), 10**37, -(10**37), 255, 256])
@pytest.mark.parametrize("version", [1, 2])
def test_decimals_take_as_few_bytes_as_hold_them(number: int, version: int) -> None:
    form = V9 if version == 2 else V8
    scale = 2 if abs(number) < 10**20 else 0
    if version == 1 and abs(number) >= 10**20:
        return
    kind = pa.decimal128(38, scale) if version == 2 else pa.decimal128(22, 2)
    value = Decimal(number).scaleb(-scale)
    row = {"key": "k", "file_name": "f", "min": value, "max": None, "is_deleted": False, "is_tight": True}
    table = pa.Table.from_pylist([row], stats_codec.stats_schema(kind))
    keys, values = stats_codec.encode({"c": table}, form, index_version=version)
    record = fastavro.schemaless_reader(io.BytesIO(values[0].as_py()), parsed(record_schema(form)), None)
    stored = record["ColumnStatsMetadata"]["minValue"]["value"]
    if version == 2:
        assert stored == number.to_bytes(max(1, (number + (number < 0)).bit_length() // 8 + 1), "big", signed=True)
    else:
        assert stored == value
    decoded = stats_codec.decode(keys, values, record_schema(form), {"c": kind})["c"]
    assert decoded["min"].to_pylist() == [value]
    assert decoded["max"].to_pylist() == [None]


def test_stats_of_many_columns_are_encoded_together() -> None:
    file = next(f for f in hfiles("v9_cow_mdt_all") if f.partition == "column_stats" and len(f.keys))
    decoded = stats_codec.decode(file.keys, file.values, file.schema)
    keys, values = stats_codec.encode(decoded, V9, index_version=2)
    original = dict(zip(file.keys.to_pylist(), file.values.to_pylist(), strict=True))
    again = dict(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    assert len(keys) == len(again)
    assert again.keys() == original.keys()
    plain = {key: value for key, value in original.items() if value.startswith(bytes(6))}
    assert plain == {key: again[key] for key in plain}
    assert stats_codec.encode({}, V9, index_version=2)[0].to_pylist() == []
