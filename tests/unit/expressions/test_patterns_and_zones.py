"""Patterns that Spark SQL has no text for, the short names of Java's zones, and writes of no rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest

from lakebed.errors import SchemaConflict
from lakebed.filters.coercion import parse_timestamp, parse_zone
from lakebed.schema.spark import spark_json_to_arrow
from lakebed.table import Table
from support.write_tables import SCHEMA, content, rows

Make = Callable[..., Table]
TIMESTAMPS = {
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
}


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("yyyy-MM-dd hh", "2023-11-14 10"),
        ("yyyyDDD", "2023318"),
        ("EEE", "Tue"),
        ("kk", "22"),
        ("xxxx-'W'ww", "2023-W46"),
        ("CC", "20"),
        ("KK a", "10 PM"),
    ],
)
def test_partition_paths_of_every_letter_of_a_pattern(make: Make, pattern: str, path: str) -> None:
    properties = {**TIMESTAMPS, "hoodie.keygen.timebased.output.dateformat": pattern}
    table = make(partition_by="ts", properties=properties)
    table.upsert(rows((1, "a", "x", 1_700_000_000)))
    assert table.scan(meta=True).to_arrow()["_hoodie_partition_path"].to_pylist() == [path]
    assert content(table) == [(1, "a", "x", 1_700_000_000)]


@pytest.mark.parametrize("pattern", ["EEE", "yyyy"])
def test_a_column_that_makes_no_time_is_refused_whatever_the_pattern(make: Make, pattern: str) -> None:
    properties = {**TIMESTAMPS, "hoodie.keygen.timebased.output.dateformat": pattern}
    schema = pa.schema([("id", pa.int64()), ("city", pa.binary())])
    with pytest.raises(SchemaConflict, match="`city` of type binary holds no time"):
        make(schema, partition_by="city", ordering=None, properties=properties)


@pytest.mark.parametrize(
    ("zone", "offset"),
    [
        ("PST", timedelta(hours=-8)),
        ("CST", timedelta(hours=-6)),
        ("IST", timedelta(hours=5, minutes=30)),
        ("JST", timedelta(hours=9)),
        ("EST", timedelta(hours=-5)),
        ("+08:30:15", timedelta(hours=8, minutes=30, seconds=15)),
        ("-083015", -timedelta(hours=8, minutes=30, seconds=15)),
    ],
)
def test_zones_are_known_by_javas_short_names_and_by_seconds(zone: str, offset: timedelta) -> None:
    assert parse_timestamp(f"2024-01-01 00:00:00 {zone}").utcoffset() == offset


@pytest.mark.parametrize("zone", ["+08:77", "+08:00:60", "XST", "+25:00"])
def test_an_unknown_zone_is_an_error(zone: str) -> None:
    with pytest.raises(ValueError, match=r"zone|offset"):
        parse_zone(zone)


@pytest.mark.parametrize("index", ["simple", "global_simple", "bloom", "global_bloom", "record", "bucket"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_writes_of_no_rows_change_nothing(make: Make, index: str, kind: str) -> None:
    table = make(type=kind, index=index)
    stored = [(1, "a", "x", 1)]
    table.upsert(rows(*stored))
    none = SCHEMA.empty_table()
    for write in (table.insert_overwrite, table.upsert, table.insert, table.bulk_insert, table.delete):
        write(none)
        assert content(table) == stored
    result = table.insert_overwrite(none, scope="table")
    assert result.replaced_file_groups == 1
    assert content(table) == []


def test_spark_types_of_nothing_but_void_are_arrows_null() -> None:
    array = {"type": "array", "elementType": "void", "containsNull": False}
    empty_map = {"type": "map", "keyType": "void", "valueType": "void", "valueContainsNull": False}
    struct = {"type": "struct", "fields": [{"name": "v", "type": "void", "nullable": False, "metadata": {}}]}
    for kind in (array, empty_map, struct):
        field = {"name": "c", "type": kind, "nullable": False, "metadata": {}}
        (found,) = spark_json_to_arrow(json.dumps({"type": "struct", "fields": [field]}))
        inner = found.type.field(found.type.num_fields - 1)
        assert pa.types.is_null(inner.type if kind is not empty_map else found.type.item_type)


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("ts > -2L", 1),
        ("ts > -(-1L)", 0),
        ("ts = -(-1L)", 1),
        ("ts > -2.5D", 1),
        ("ts < -2.5D", 0),
        ("ts < 1.5BD", 1),
        ("ts < -1.5BD", 0),
        ("ts > -9223372036854775808L", 1),
        ("ts > -CAST('2' AS INT)", 1),
    ],
)
def test_numbers_with_a_suffix_and_a_sign_are_read(make: Make, condition: str, count: int) -> None:
    table = make()
    table.upsert(rows((1, "a", "x", 1)))
    assert table.scan(where=condition).count() == count
