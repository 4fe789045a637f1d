"""Record keys and partition paths of tables that lakebed writes: real Hudi finds each row again and updates it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import take_turns
from interop.make_key_vectors import loops
from oracle.client import HudiOracle
from support.sampling import INTEROP, some, todays

KEYGEN = "hoodie.datasource.write.keygenerator.class"
W = "hoodie.datasource.write."
TIMEBASED = "hoodie.keygen.timebased."
LOCATIONS = ["oslo", "", None, "são paulo", "a/b", "x=1", "50%", "c:d"]
SIZE = 24


def columns(**more: tuple[pa.DataType, list[Any]]) -> pa.Table:
    """Rows with an `id`, a `place` of a few, `v`, `ts` and more columns, whose values are taken in turn."""
    given: dict[str, tuple[pa.DataType, list[Any]]] = {
        "id": (pa.string(), [f"k{n}" for n in range(SIZE)]),
        "place": (pa.string(), LOCATIONS),
        "v": (pa.int64(), list(range(SIZE))),
        "ts": (pa.int64(), [10]),
        **more,
    }
    return pa.table({name: pa.array([v[n % len(v)] for n in range(SIZE)], t) for name, (t, v) in given.items()})


def later(rows: pa.Table, new_ids: int = 4) -> pa.Table:
    """The second half of the rows with other values and a later time, and a few with new keys."""
    half = rows.slice(rows.num_rows // 2)
    changed = half.set_column(half.schema.get_field_index("v"), "v", pa.array([-n for n in range(half.num_rows)]))
    changed = changed.set_column(changed.schema.get_field_index("ts"), "ts", pa.array([20] * half.num_rows))
    new = changed.slice(0, new_ids)
    ids = pa.array([f"new{n}" for n in range(new_ids)], pa.string())
    return pa.concat_tables([changed, new.set_column(new.schema.get_field_index("id"), "id", ids)])


STAMPS = [dt.datetime(2024, 2, 3, 4, 5, 6, n, tzinfo=dt.UTC) for n in range(SIZE)]
CASES: dict[str, dict[str, Any]] = {
    "simple": {
        "key": "id",
        "partition_by": "place",
        "index": "simple",
        "properties": {W + "partitionpath.urlencode": True},
    },
    "simple hive style": {
        "key": "id",
        "partition_by": "place",
        "index": "bucket",
        "properties": {W + "partitionpath.urlencode": True, W + "hive_style_partitioning": True},
    },
    "complex, hashed on one": {
        "key": ["n", "id"],
        "partition_by": ["city", "day"],
        "index": "bucket",
        "hash_fields": "id",
        "properties": {W + "hive_style_partitioning": True},
    },
    "complex, typed keys": {
        "key": ["id", "day", "price", "flag", "real", "at"],
        "partition_by": "city",
        "index": "bucket",
    },
    "complex of one field": {
        "key": "id",
        "partition_by": "city",
        "index": "bucket",
        "properties": {KEYGEN: "org.apache.hudi.keygen.ComplexKeyGenerator"},
    },
    "no partitions": {"key": ["id", "n"], "index": "simple"},
    "timestamp key": {"key": "at", "partition_by": "city", "index": "bucket"},
    "timestamp key as text": {
        "key": ["at", "id"],
        "partition_by": "city",
        "index": "simple",
        "properties": {W + "keygenerator.consistent.logical.timestamp.enabled": True},
    },
    "slashed dates": {
        "key": "id",
        "partition_by": "written_day",
        "index": "simple",
        "properties": {W + "slash.separated.date.partitioning": True},
    },
    "epoch seconds": {
        "key": "id",
        "partition_by": "seconds",
        "index": "bucket",
        "properties": {
            KEYGEN: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
            TIMEBASED + "timestamp.type": "UNIX_TIMESTAMP",
            TIMEBASED + "output.dateformat": "yyyy/MM/dd",
        },
    },
    "date text": {
        "key": "id",
        "partition_by": "text",
        "index": "simple",
        "properties": {
            KEYGEN: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
            TIMEBASED + "timestamp.type": "DATE_STRING",
            TIMEBASED + "input.dateformat": "yyyy-MM-dd HH:mm",
            TIMEBASED + "output.dateformat": "yyyyMMdd",
            TIMEBASED + "timezone": "GMT+8:00",
        },
    },
    "custom": {
        "key": ["id", "n"],
        "partition_by": ["city:SIMPLE", "seconds:TIMESTAMP"],
        "index": "bucket",
        "properties": {
            KEYGEN: "org.apache.hudi.keygen.CustomKeyGenerator",
            TIMEBASED + "timestamp.type": "UNIX_TIMESTAMP",
            TIMEBASED + "output.dateformat": "yyyyMMdd",
            W + "hive_style_partitioning": True,
        },
    },
}  # fmt: skip
KEYED_BY = {"timestamp key": ["at"], "timestamp key as text": ["at", "id"]}


def rows() -> pa.Table:
    days = [dt.date(2024, 2, n) for n in (1, 2, 3)]
    return columns(
        n=(pa.int32(), [1, None, 3]),
        city=(pa.string(), ["oslo", "rome"]),
        day=(pa.date32(), days),
        price=(pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-7.00"), None]),
        flag=(pa.bool_(), [True, False, None]),
        real=(pa.float64(), [1.5, 1e10, 0.1, None]),
        at=(pa.timestamp("us", "UTC"), STAMPS),
        seconds=(pa.int64(), [1706933106, 1710054000, 1706933106 - 86400 * 3]),
        written_day=(pa.string(), ["2024-02-03", "2024-03-10"]),
        text=(pa.string(), ["2024-02-03 17:05", "2024-03-10 02:30"]),
    )


UPDATED = (
    *((9, case) for case in CASES),
    (8, "complex of one field"),
    (8, "custom"),
    (6, "simple hive style"),
    (6, "complex, hashed on one"),
    (6, "complex of one field"),
    (6, "epoch seconds"),
    (6, "custom"),
)


@pytest.mark.parametrize(("version", "case"), todays(UPDATED, 2, INTEROP))
def test_real_hudi_updates_the_same_rows(version: int, case: str, tmp_path: Path, oracle: HudiOracle):
    first = rows()
    wanted = CASES[case]
    table = lakebed.create(
        str(tmp_path / "keys"),
        first.schema,
        ordering="ts",
        table_version=version,
        buckets=4 if wanted["index"] == "bucket" else None,
        **{**wanted, "properties": {"hoodie.metadata.enable": False, **wanted.get("properties", {})}},
    )
    second = later(first, 0 if case == "timestamp key" else 4)
    partition = [f.partition(":")[0] for f in as_list(wanted.get("partition_by", []))]
    take_turns(oracle, table, first, second, [*as_list(wanted["key"]), *partition])


def as_list(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


ODD = ["a", "a,b", "a:b", "a,b:c", ":", ",", "a,id:5", "x,ts:7", "__null__", "__empty__", "é😀,:", "a:b,c", ",,::",
    "2014-10-22 13:50:42", "id:x,ts:y", "ts:1,id:2"]  # fmt: skip


@pytest.mark.parametrize("version", some([9, 6], 9))
def test_single_keys_that_look_like_composite_ones(version: int, tmp_path: Path, oracle: HudiOracle):
    keys = [key for key in ODD if not loops(key, ("id",))]
    assert len(keys) > 10
    first = odd_rows(id=keys, ts=["t"] * len(keys))
    table = lakebed.create(
        str(tmp_path / "odd"),
        first.schema,
        key="id",
        index="bucket",
        buckets=7,
        table_version=version,
        ordering="at",
        properties={"hoodie.metadata.enable": False},
    )
    take_turns(oracle, table, first, newer(first), ["id"])


@pytest.mark.parametrize(
    ("hashed", "version"), some([(("id", "ts"), 9), (("id",), 9), (("ts",), 6)], (("id", "ts"), 9), (("ts",), 6))
)
def test_composite_keys_that_confuse_the_hash(
    hashed: tuple[str, ...], version: int, tmp_path: Path, oracle: HudiOracle
):
    # a null and the text `__null__` make the same key, so there is only one of the two in a column
    times = ["", None, "a", "a,b:c", "a,id:5", ",,::", "ts:1,id:2"]
    pairs = [(i, t) for i in ODD for t in times if not loops(f"id:{i},ts:{t or '__null__'}", hashed)]
    assert len(pairs) > 30
    first = odd_rows(id=[i for i, _ in pairs], ts=[t for _, t in pairs])
    table = lakebed.create(
        str(tmp_path / "odd"),
        first.schema,
        key=["id", "ts"],
        index="bucket",
        buckets=7,
        hash_fields=hashed,
        table_version=version,
        ordering="at",
        properties={"hoodie.metadata.enable": False},
    )
    take_turns(oracle, table, first, newer(first), ["id", "ts"])


def odd_rows(**keys: list[Any]) -> pa.Table:
    size = len(keys["id"])
    return pa.table({n: pa.array(v, pa.string()) for n, v in keys.items()} | {"v": list(range(size)), "at": [1] * size})


def newer(first: pa.Table) -> pa.Table:
    names = [n for n in first.column_names if n not in ("v", "at")]
    size = first.num_rows
    return pa.table({n: first.column(n) for n in names} | {"v": [-n for n in range(size)], "at": [2] * size})
