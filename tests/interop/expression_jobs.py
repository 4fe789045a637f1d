"""Expression indexes of real Hudi and of lakebed on the same tables: rows, indexes, the bytes of their records."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata
from lakebed.metadata.lookups import full_slice, open_snapshot
from lakebed.metadata_kinds.expression_results import expression_index_definition, expression_partition
from lakebed.metadata_records.definitions import IndexDefinition
from lakebed.metadata_records.merge_records import newest
from lakebed.storage import open_storage
from lakebed.table import Table
from oracle.client import HudiOracle

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("secs", pa.int64()),
        ("ts", pa.int64()),
        ("price", pa.float64()),
        ("paid", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("ok", pa.bool_()),
    ]
)
CITIES = ("oslo", "rome", "são paulo")
NAMES = (" Ada ", "ÉMILE", "bob", "żółw", "xxyx", "日本", "Ωmega", "", "Zoë  ")
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
# What a statement of SQL needs to build an index.
LOCKED = {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}


@dataclass(frozen=True)
class Index:
    """An expression index by Hudi's words."""

    name: str
    column: str
    function: str
    options: Mapping[str, str] = field(default_factory=dict)
    kind: str = "column_stats"

    @property
    def partition(self) -> str:
        return expression_partition(self.name)

    @property
    def definition(self) -> IndexDefinition:
        return expression_index_definition(self.name, self.column, self.function, self.options, self.kind)

    @property
    def sql(self) -> str:
        options = ", ".join(f"{key}='{value}'" for key, value in {"expr": self.function, **self.options}.items())
        return f"create index {self.name} on {{t}} using {self.kind}({self.column}) options({options})"


STATS = (
    Index("low", "name", "lower"),
    Index("up", "name", "upper"),
    Index("tr", "name", "trim"),
    Index("ltr", "name", "ltrim", {"trimString": " x"}),
    Index("rtr", "name", "rtrim"),
    Index("len", "name", "length"),
    Index("sub", "name", "substring", {"pos": "2", "len": "3"}),
    Index("tail", "name", "substring", {"pos": "-2", "len": "9"}),
    Index("fmt", "at", "date_format", {"format": "yyyy-MM-dd HH:mm"}),
    Index("fmt_day", "day", "date_format", {"format": "yy/M/d"}),
    Index("unix", "secs", "from_unixtime", {"format": "yyyy-MM-dd"}),
    Index("unix_plain", "n", "from_unixtime"),
    Index("secs_of", "at", "unix_timestamp"),
    Index("secs_of_day", "day", "unix_timestamp"),
    Index("date_of", "at", "to_date"),
    Index("date_of_day", "day", "to_date"),
    Index("time_of_day", "day", "to_timestamp"),
    Index("later", "day", "date_add", {"days": "30"}),
    Index("sooner", "at", "date_sub", {"days": "3"}),
    Index("y", "at", "year"),
    Index("m", "day", "month"),
    Index("d", "at", "day"),
    Index("h", "at", "hour"),
)
FILTERS = (
    Index("f_low", "city", "lower", kind="bloom_filters"),
    Index("f_fmt", "at", "date_format", {"format": "yyyy-MM", "numentries": "50", "fpp": "0.01"}, "bloom_filters"),
    Index("f_simple", "city", "upper", {"filtertype": "SIMPLE", "numentries": "100"}, "bloom_filters"),
    Index("f_hour", "at", "hour", {"maxentries": "200", "numentries": "10"}, "bloom_filters"),
)


def rows(chance: random.Random, count: int = 25, keys: int = 60) -> list[dict[str, Any]]:
    """Rows without two of one key, with nulls but in the columns of FILTERS, where Hudi fails on them."""

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    return [
        {
            "id": i,
            "city": chance.choice(CITIES),
            "name": maybe(chance.choice(NAMES)),
            "n": maybe(chance.randrange(-(10**6), 10**6)),
            "secs": maybe(chance.randrange(-(10**9), 2 * 10**9)),
            "ts": chance.randrange(20),
            "price": maybe(chance.uniform(-9, 9)),
            "paid": maybe(Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-2)),
            "day": maybe(date(2020, 2, 29) + timedelta(days=chance.randrange(-30000, 10000))),
            "at": EPOCH + timedelta(microseconds=chance.randrange(-(10**15), 10**14)),
            "ok": maybe(chance.random() < 0.5),
        }
        for i in chance.sample(range(keys), count)
    ]


def data_of(given: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(given, SCHEMA)


def make(uri: str, *, partitioned: bool, index: str = "simple") -> Table:
    return lakebed.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city" if partitioned else None,
        ordering="ts",
        index=index,
        buckets=2 if index == "bucket" else None,
    )


def options_of(table: Table) -> dict[str, str]:
    """Options of real Hudi's job that keeps the indexes; clean beside an expression index pollutes others."""
    return {**hudi_job(table), **keeping_metadata(table), "hoodie.clean.automatic": "false"}


def build_by_hudi(oracle: HudiOracle, table: Table, index: Index) -> None:
    oracle.ask("sql", sql=index.sql, table=table.uri, conf=LOCKED)


def stored_records(table: Table, partition: str) -> dict[str, bytes]:
    """The value of every record, as it is stored."""
    metadata = open_snapshot(open_storage(table.uri)).metadata
    assert metadata is not None
    found: dict[str, bytes] = {}
    for one in metadata.slices.file_slices(partition):
        merged = newest(full_slice(metadata.slices, one))
        if merged is not None:
            keys, values = merged["key"].to_pylist(), merged["value"].to_pylist()
            found |= {str(k): bytes(v) for k, v in zip(keys, values, strict=True)}
    return found
