"""Paimon in one process: pypaimon."""

from __future__ import annotations

import time
from datetime import date
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from .base import DAYS, KEY, ORDERING, ProcessPeer, folder


class Paimon(ProcessPeer):
    """A table with a primary key in four buckets, merged by the ordering column."""

    packages = ("pypaimon", "pyarrow")
    settings = "primary key, 4 buckets, sequence field; deletes by rows with a row kind; defaults: zstd"
    missing = {"merge": "`merge_into` is for tables without a primary key"}
    table: Any
    since: int

    def load(self) -> None:
        catalog = CatalogFactory.create({"warehouse": str(folder(self.path))})
        catalog.create_database("bench", True)
        fields = [pa.field(field.name, field.type, field.name != KEY) for field in self.rows.schema]
        options = {"bucket": "4", "sequence.field": ORDERING}
        schema = Schema.from_pyarrow_schema(pa.schema(fields), primary_keys=[KEY], options=options)
        catalog.create_table("bench.trips", schema, False)
        self.table = catalog.get_table("bench.trips")
        self.upsert()

    def upsert(self) -> None:
        self._write(self.table, self.rows)

    def delete(self) -> None:
        kinds = pa.array(["-D"] * len(self.rows))
        rows = self.rows.set_column(self.rows.column_names.index("status"), "status", kinds)
        self._write(self.table.copy({"rowkind.field": "status"}), rows)

    def mark(self) -> None:
        time.sleep(0.01)
        self.since = int(time.time() * 1000)
        time.sleep(0.01)

    def incremental(self) -> None:
        between = {"incremental-between-timestamp": f"{self.since},{int(time.time() * 1000)}"}
        self._read(self.table.copy(between))

    def lookup(self) -> None:
        builder = self.table.new_read_builder().new_predicate_builder()
        self._read(self.table, builder.is_in(KEY, self.keys()))

    def range(self) -> None:
        builder = self.table.new_read_builder().new_predicate_builder()
        days = [date.fromisoformat(day) for day in DAYS]
        self._read(self.table, builder.between("day", *days))

    def scan(self) -> None:
        self._read(self.table)

    def _read(self, table: Any, predicate: Any = None) -> None:
        builder = table.new_read_builder()
        if predicate is not None:
            builder = builder.with_filter(predicate)
        self.result = builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def _write(self, table: Any, rows: pa.Table) -> None:
        fields = [pa.field(field.name, field.type, field.name != KEY) for field in rows.schema]
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(rows.cast(pa.schema(fields)))
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()
