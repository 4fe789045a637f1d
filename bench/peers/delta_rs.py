"""Delta Lake in one process: deltalake (delta-rs)."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from .base import DAYS, KEY, ProcessPeer, quoted

_SAME = f"t.{KEY} = s.{KEY}"


class DeltaRs(ProcessPeer):
    """Upserts and deletes by `merge`, reads by deltalake's own engine."""

    packages = ("deltalake", "pyarrow")
    settings = "defaults; changes are read from a table of its own with the change data feed"
    table: DeltaTable
    fed: DeltaTable

    def load(self) -> None:
        write_deltalake(self.path, self.rows)
        self.table = DeltaTable(self.path)

    def upsert(self) -> None:
        merge = self.table.merge(self.rows, _SAME, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def prepare_incremental(self, inputs: str, work: str) -> None:
        path, table = f"{work}/fed", self.table
        self.give(f"{inputs}/load")
        write_deltalake(path, self.rows, configuration={"delta.enableChangeDataFeed": "true"})
        self.fed = self.table = DeltaTable(path)
        self.give(f"{inputs}/percent")
        self.upsert()
        self.table = table

    def incremental(self) -> None:
        feed = self.fed.load_cdf(starting_version=1, predicate="_change_type <> 'update_preimage'")
        self.result = pa.table(feed)

    def delete(self) -> None:
        self.table.merge(self.rows, _SAME, source_alias="s", target_alias="t").when_matched_delete().execute()

    def merge(self) -> None:
        merge = self.table.merge(self.rows, _SAME, source_alias="s", target_alias="t")
        merge = merge.when_matched_update({"fare": "t.fare + s.fare", "ts": "s.ts"})
        merge.when_not_matched_insert_all().execute()

    def lookup(self) -> None:
        self._read(f"{KEY} IN ({quoted(self.keys())})")

    def range(self) -> None:
        self._read(f"day >= '{DAYS[0]}' AND day <= '{DAYS[1]}'")

    def scan(self) -> None:
        self._read(None)

    def _read(self, predicate: str | None) -> None:
        self.result = pa.table(self.table.scan(predicate=predicate))
