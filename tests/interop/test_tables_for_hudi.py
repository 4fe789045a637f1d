"""Tables that lakebed writes, by every operation and with every type: real Hudi reads them and writes on."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakebed
from interop.hudi_jobs import assert_both_read, hudi_job, replaced, take_turns
from lakebed.table import Table
from oracle.client import HudiOracle
from support.same_rows import assert_same_rows
from support.sampling import some

W = "hoodie.datasource.write."
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())])
KEY = ["id", "city"]


def rows(ids: range, v: str, ts: int, cities: int = 3) -> pa.Table:
    return pa.table(
        [list(ids), [f"c{n % cities}" for n in ids], [f"{v}{n}" for n in ids], [ts] * len(ids)], schema=SCHEMA
    )


def make(folder: Path, schema: pa.Schema = SCHEMA, **settings: Any) -> Table:
    wanted = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "simple"} | settings
    if wanted["index"] == "bucket":
        wanted.setdefault("buckets", 3)
    wanted["properties"] = {"hoodie.metadata.enable": False, **wanted.get("properties", {})}
    return lakebed.create(str(folder / "table"), schema, **wanted)


def without(table: pa.Table, *conditions: pc.Expression) -> pa.Table:
    for condition in conditions:
        table = table.filter(~condition)
    return table


@pytest.mark.parametrize(
    ("version", "index"),
    some(
        [(9, "bucket"), (8, "simple"), (6, "bucket"), (9, "global_simple"), (9, "bloom"), (6, "global_bloom")],
        *((9, "bucket"), (8, "simple"), (9, "global_simple"), (6, "global_bloom")),
    ),
)
def test_hudi_reads_the_rows_of_every_operation(version: int, index: str, tmp_path: Path, oracle: HudiOracle):
    table = make(tmp_path, table_version=version, index=index)
    city = pc.field("city")
    table.bulk_insert(rows(range(30), "bulk", 1))
    table.insert(rows(range(30, 40), "insert", 1))
    model = pa.concat_tables([rows(range(30), "bulk", 1), rows(range(30, 40), "insert", 1)])
    assert_both_read(oracle, table, model)
    table.upsert(rows(range(5, 50), "upsert", 2))
    table.insert(rows(range(45, 55), "twice", 3), options={W + "insert.drop.duplicates": True})
    model = pa.concat_tables([model.slice(0, 5), rows(range(5, 50), "upsert", 2), rows(range(50, 55), "twice", 3)])
    assert_both_read(oracle, table, model)
    table.delete([1, 7, 54])
    table.delete(where="id between 20 and 24 and city = 'c1'")
    model = without(model, pc.field("id").isin([1, 7, 54]), pc.field("id").isin([20, 21, 22, 23, 24]) & (city == "c1"))
    assert_both_read(oracle, table, model)
    over = rows(range(0, 30, 3), "over", 4)
    table.insert_overwrite(over)
    table.delete_partitions(["c1"])
    model = pa.concat_tables([model.filter(city == "c2"), over])
    assert_both_read(oracle, table, model)

    later = rows(range(28, 60), "hudi", 5)
    oracle.write(table.uri, later, options=hudi_job(table))
    model = replaced(model, later, KEY)
    assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), model)
    table.insert_overwrite(rows(range(9), "all", 6), scope="table")
    oracle.write(table.uri, rows(range(5, 12), "hudi", 7), options=hudi_job(table))
    assert_both_read(oracle, table, pa.concat_tables([rows(range(5), "all", 6), rows(range(5, 12), "hudi", 7)]))


INNER = pa.struct([("x", pa.float64()), ("y", pa.string()), ("when", pa.timestamp("us", "UTC"))])
NESTED = pa.struct([("a", pa.int32()), ("B", pa.list_(INNER)), ("m", pa.map_(pa.string(), pa.list_(pa.int64())))])
UTC = dt.UTC
VALUES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "bool": (pa.bool_(), True, False),
    "int": (pa.int32(), -(2**31), 2**31 - 1),
    "long": (pa.int64(), -(2**63), 2**63 - 1),
    "float": (pa.float32(), 0.10000000149011612, float("-inf")),
    "double": (pa.float64(), 0.1, 1.7976931348623157e308),
    "string": (pa.string(), "", "ä\u0000😀"),
    "binary": (pa.binary(), b"", bytes(range(256))),
    "small_decimal": (pa.decimal128(9, 2), Decimal("-1234567.89"), Decimal("0.01")),
    "long_decimal": (pa.decimal128(18, 6), Decimal("123456789012.123456"), Decimal("-0.000001")),
    "wide_decimal": (pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789"), Decimal("-1e-10")),
    "date": (pa.date32(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "julian_date": (pa.date32(), dt.date(1582, 10, 4), dt.date(1500, 2, 28)),
    "micros": (pa.timestamp("us", "UTC"), dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1, 0, 0, 0, 1, UTC)),
    "ntz": (pa.timestamp("us"), dt.datetime(1883, 11, 18, 12, 3, 58), dt.datetime(2038, 1, 19, 3, 14, 8, 999999)),
    "millis": (pa.timestamp("ms", "UTC"), dt.datetime(1969, 12, 31, tzinfo=UTC), dt.datetime(2024, 1, 1, tzinfo=UTC)),
    "list": (pa.list_(pa.string()), [], ["a", None]),
    "struct": (
        NESTED,
        {"a": None, "B": None, "m": None},
        {"a": 1, "B": [{"x": 1.5, "y": None, "when": dt.datetime(1800, 1, 1, tzinfo=UTC)}], "m": [("k", [1])]},
    ),
    "lists": (pa.list_(pa.list_(pa.int32())), [[1, None], []], [[2]]),
    "map": (pa.map_(pa.string(), pa.decimal128(9, 2)), [], [("a", Decimal("1.50")), ("b", None)]),
    "Upper_Case": (pa.string(), "x", "y"),
    "größe": (pa.float64(), 1.0, 2.0),
}
# What real Hudi itself writes before 1900 it cannot read for its next update; what lakebed wrote it can.
OLD = ("micros", "struct")


def typed(*ids: int, swap: bool = False, old: bool = True) -> pa.Table:
    """Rows with a value of every type: the first one for even ids, the second for odd ones, null for multiples of 3."""
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("must", pa.string(), nullable=False)]
    arrays = [pa.array(ids, pa.int64()), pa.array([f"{swap}" for _ in ids])]
    for name, (kind, even, odd) in VALUES.items():
        values = [None if n % 3 == 0 or (not old and name in OLD) else (even, odd)[(n + swap) % 2] for n in ids]
        fields.append(pa.field(name, kind))
        arrays.append(pa.array(values, kind))
    return pa.table(arrays, schema=pa.schema(fields))


@pytest.mark.parametrize(("version", "index"), [(9, "bucket"), (8, "simple"), (6, "simple")])
def test_hudi_reads_and_updates_every_type(version: int, index: str, tmp_path: Path, oracle: HudiOracle):
    first = typed(*range(10))
    table = make(tmp_path, first.schema, partition_by=None, ordering=None, index=index, table_version=version)
    # two-level lists, real Hudi's default, have no room for a null; Spark has no milliseconds, the table has
    options = {"parquet.avro.write-old-list-structure": "false", W + "reconcile.schema": "true"}
    second = typed(*range(5, 14), swap=True, old=False)
    take_turns(
        oracle, table, first, second, ["id"], options=options, conf={"parquet.avro.write-old-list-structure": "false"}
    )
    stored = lakebed.open(table.uri).schema
    assert [stored.field(n).type for n in ("millis", "ntz")] == [pa.timestamp("ms", "UTC"), pa.timestamp("us")]


@pytest.mark.parametrize("version", [9, 6])
def test_hudi_reads_and_writes_a_table_without_meta_fields(version: int, tmp_path: Path, oracle: HudiOracle):
    table = make(tmp_path, table_version=version, properties={"hoodie.populate.meta.fields": False})
    table.insert(rows(range(10), "a", 1))
    table.bulk_insert(rows(range(10, 20), "b", 1))
    oracle.write(
        table.uri,
        rows(range(20, 30), "c", 1),
        "bulk_insert",
        {**hudi_job(table), "hoodie.populate.meta.fields": "false"},
    )
    model = pa.concat_tables([rows(range(10), "a", 1), rows(range(10, 20), "b", 1), rows(range(20, 30), "c", 1)])
    assert_both_read(oracle, table, model)


@pytest.mark.parametrize(("version", "index"), [(9, "bucket"), (6, "simple")])
def test_partition_columns_left_out_of_the_files(version: int, index: str, tmp_path: Path, oracle: HudiOracle):
    drop = {W + "drop.partition.columns": "true", W + "hive_style_partitioning": "true"}
    table = make(tmp_path, table_version=version, index=index, properties=drop)
    take_turns(oracle, table, rows(range(20), "a", 1), rows(range(10, 25), "b", 2), KEY, options=drop)
    for file in (tmp_path / "table").rglob("*.parquet"):
        assert "city" not in pq.read_schema(file).names


@pytest.mark.parametrize("version", [9, 8])
def test_a_delete_field_and_its_marker(version: int, tmp_path: Path, oracle: HudiOracle):
    marks = {"hoodie.payload.delete.field": "v", "hoodie.payload.delete.marker": "GONE"}
    table = make(tmp_path, table_version=version, properties=marks)
    gone = rows(range(5, 8), "", 3).set_column(2, "v", pa.array(["GONE"] * 3))
    more = rows(range(8, 11), "", 3).set_column(2, "v", pa.array(["GONE"] * 3))
    table.upsert(rows(range(20), "a", 1))
    table.upsert(gone)
    oracle.write(table.uri, more, options={**hudi_job(table), **marks})
    assert_both_read(oracle, table, without(rows(range(20), "a", 1), pc.field("id").isin([*range(5, 11)])))


@pytest.mark.parametrize("version", [9, 6])
def test_rows_that_say_they_are_deleted(version: int, tmp_path: Path, oracle: HudiOracle):
    flag = pa.field("_hoodie_is_deleted", pa.bool_())
    table = make(tmp_path, SCHEMA.append(flag), table_version=version, index="bucket")

    def flagged(given: pa.Table, deleted: bool) -> pa.Table:
        return given.append_column(flag, pa.array([deleted] * given.num_rows))

    table.upsert(flagged(rows(range(20), "a", 1), deleted=False))
    table.upsert(flagged(rows(range(3), "a", 2), deleted=True))
    oracle.write(table.uri, flagged(rows(range(3, 6), "a", 2), deleted=True), options=hudi_job(table))
    table.upsert(flagged(rows(range(4, 8), "late", 0), deleted=True))
    model = pa.concat_tables([rows(range(6, 20), "a", 1)])
    assert_both_read(oracle, table, flagged(model, deleted=False))


def test_generated_keys_of_both_writers_are_distinct(tmp_path: Path, oracle: HudiOracle):
    table = make(tmp_path, key=None, ordering=None)
    table.insert(rows(range(10), "a", 1))
    table.bulk_insert(rows(range(10), "a", 1))
    oracle.write(table.uri, rows(range(10), "a", 1), "insert", hudi_job(table))
    assert_both_read(oracle, table, pa.concat_tables([rows(range(10), "a", 1)] * 3))
    stored = oracle.read(table.uri).column("_hoodie_record_key").to_pylist()
    assert len(set(stored)) == 30


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_real_hudi_finds_keys_by_their_bloom_filter(index: str, real: bool, tmp_path: Path, oracle: HudiOracle):
    """A real filter that lakebed merged into is asked as well as one that holds every key."""
    table = make(tmp_path, index=index)
    filters = {"hoodie.parquet.bloom.filter.enabled": real}
    table.upsert(rows(range(30), "a", 1), options=filters)
    table.upsert(rows(range(20, 40), "b", 2), options=filters)
    sizes = [len(text) for text in bloom_texts(tmp_path / "table")]
    assert all((size > 1000) == real for size in sizes)
    later = rows(range(0, 60, 2), "c", 3)
    oracle.write(table.uri, later, options={**hudi_job(table), "hoodie.index.type": "BLOOM"})
    model = pa.concat_tables([rows(range(20), "a", 1), rows(range(20, 40), "b", 2)])
    assert_both_read(oracle, table, replaced(model, later, KEY))


def bloom_texts(folder: Path) -> list[bytes]:
    found = [pq.read_metadata(f).metadata or {} for f in folder.rglob("*.parquet")]
    return [m[b"org.apache.hudi.bloomfilter"] for m in found]


@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd", "uncompressed"])
def test_small_files_are_filled_by_both(codec: str, tmp_path: Path, oracle: HudiOracle):
    """Every writer puts its inserts into the one small file of a partition, whoever made it, in its own codec."""
    table = make(tmp_path, ordering=None)
    wanted = {"hoodie.parquet.compression.codec": codec}
    table.upsert(rows(range(9), "a", 1), options=wanted)
    groups = file_ids(oracle, table)
    oracle.write(table.uri, rows(range(9, 18), "b", 1), options={**hudi_job(table), **wanted})
    if codec in ("snappy", "zstd"):
        table.upsert(rows(range(18, 27), "c", 1), options=wanted)
    assert file_ids(oracle, table) == groups
    assert len(groups) == 3
    for stored in lakebed.open(table.uri).files:
        column = pq.read_metadata(tmp_path / "table" / stored.base_file.path).row_group(0).column(5)
        assert column.compression == codec.upper()


def file_ids(oracle: HudiOracle, table: Table) -> set[str]:
    partitions = oracle.ask("file_slices", table=table.uri)["partitions"]
    return {found["file_id"] for slices in partitions.values() for found in slices}
