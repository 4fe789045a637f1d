"""Iceberg in one process: pyiceberg."""

from __future__ import annotations

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import BooleanExpression, In
from pyiceberg.table import Table

from .base import DAYS, KEY, ProcessPeer, folder


class PyIceberg(ProcessPeer):
    """A table of a catalog in SQLite."""

    packages = ("pyiceberg", "pyarrow")
    settings = "a catalog in SQLite; defaults: zstd, files rewritten by upserts and deletes, no maintenance"
    missing = {
        "incremental": "it reads what appends added, not what an upsert changed",
        "merge": "it has no MERGE",
    }
    table: Table

    def load(self) -> None:
        made = folder(self.path)
        catalog = SqlCatalog("bench", uri=f"sqlite:///{made}/catalog.db", warehouse=f"file://{made}")
        catalog.create_namespace("bench")
        self.table = catalog.create_table("bench.trips", schema=self.rows.schema)
        self.table.append(self.rows)

    def upsert(self) -> None:
        self.table.upsert(self.rows, join_cols=[KEY])

    def delete(self) -> None:
        self.table.delete(_one_of(self.keys()))

    def lookup(self) -> None:
        self.result = self.table.scan(row_filter=_one_of(self.keys())).to_arrow()

    def range(self) -> None:
        days = f"day >= '{DAYS[0]}' AND day <= '{DAYS[1]}'"
        self.result = self.table.scan(row_filter=days).to_arrow()

    def scan(self) -> None:
        self.result = self.table.scan().to_arrow()


def _one_of(keys: list[str]) -> BooleanExpression:
    return In(KEY, keys)  # pyright: ignore[reportCallIssue]
