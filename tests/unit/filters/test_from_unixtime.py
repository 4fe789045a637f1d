"""`from_unixtime` of numbers that are no seconds: as Spark prints them, far years and products that wrap around too."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.filters.sql import parse_filter

# as Spark 4.1 prints them in Asia/Kolkata
PRINTED = {
    253402300799: "+10000-01-01 05:29:59",
    10**12: "+33658-09-27 07:16:40",
    2**53: "+166375-10-30 06:15:30",
    2**62: "1970-01-01 05:30:00",
    2**63 - 1: "1970-01-01 05:29:59",
    -(2**63): "1970-01-01 05:30:00",
    9223372036854: "+294247-01-10 09:30:54",
    9223372036855: "-290308-12-22 01:52:33",
    -377736739201: "-10000-01-01 05:53:27",
    -9 * 10**12: "-283229-05-10 13:53:28",
}


SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.int64())])
NUMBERS = pa.table({"id": [0, *PRINTED], "s": [0, *PRINTED]}, SCHEMA)


def test_far_times_are_printed_as_spark_prints_them() -> None:
    for number, text in PRINTED.items():
        condition = parse_filter(f"from_unixtime(s) = '{text}' AND s != 0", SCHEMA, zone="Asia/Kolkata").to_arrow()
        assert number in NUMBERS.filter(condition)["s"].to_pylist()
        assert {PRINTED[n] for n in NUMBERS.filter(condition)["s"].to_pylist()} == {text}


@pytest.mark.parametrize("indexed", [False, True])
def test_times_out_of_range_do_not_stop_a_scan(indexed: bool) -> None:
    table = lakebed.create(f"memory://far-times/{indexed}", SCHEMA, key="id", index="simple")
    if indexed:
        table.upsert(NUMBERS.slice(0, 1))
        options = {"format": "yyyy-MM-dd"}
        table.indexes.create("by_day", column="s", function="from_unixtime", function_options=options)
    table.upsert(NUMBERS)
    found = table.scan(["s"], where="from_unixtime(s, 'yyyy-MM-dd') = '1970-01-01'").to_arrow()["s"].to_pylist()
    assert sorted(found) == [-(2**63), 0, 2**62]
