"""Delta Lake in one process: deltalake (delta-rs)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake

from .base import DAYS, KEY, ProcessPeer, quoted

_SAME = f"t.{KEY} = s.{KEY}"


class DeltaRs(ProcessPeer):
    """Upserts and deletes by `merge`, reads by deltalake's own engine."""

    packages = ("deltalake", "pyarrow")
    settings = (
        "defaults: snappy, text columns as views, no compaction and no vacuum; changes are read from a table of its own"
        " with the change data feed"
    )
    table: DeltaTable
    fed: DeltaTable

    def load(self) -> None:
        write_deltalake(self.path, self.rows, writer_properties=self._writer)
        self.table = DeltaTable(self.path)

    @property
    def _writer(self) -> WriterProperties | None:
        return None

    def _merging(self) -> Any:
        return self.table.merge(self.rows, _SAME, source_alias="s", target_alias="t", writer_properties=self._writer)

    def upsert(self) -> None:
        merge = self._merging()
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def prepare_incremental(self, inputs: str, work: str) -> None:
        path, table = f"{work}/fed", self.table
        self.give(f"{inputs}/load")
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(path, self.rows, configuration=feed, writer_properties=self._writer)
        self.fed = self.table = DeltaTable(path)
        self.give(f"{inputs}/percent")
        self.upsert()
        self.table = table

    def incremental(self) -> None:
        feed = self.fed.load_cdf(starting_version=1, predicate="_change_type <> 'update_preimage'")
        self.result = pa.table(feed)

    def delete(self) -> None:
        self._merging().when_matched_delete().execute()

    def merge(self) -> None:
        merge = self._merging()
        merge = merge.when_matched_update({"fare": "t.fare + s.fare", "ts": "s.ts"})
        merge.when_not_matched_insert_all().execute()

    def lookup(self) -> None:
        self._read(f"{KEY} IN ({quoted(self.keys())})")

    def range(self) -> None:
        self._read(f"day >= '{DAYS[0]}' AND day <= '{DAYS[1]}'")

    def scan(self) -> None:
        self._read(None)

    def fresh_get(self) -> list[str]:
        return self.process(
            "import sys, pyarrow; from deltalake import DeltaTable;"
            f' condition = "{KEY} = \'" + sys.argv[2] + "\'";'
            " print(pyarrow.table(DeltaTable(sys.argv[1]).scan(predicate=condition)).num_rows)"
        )

    def _read(self, predicate: str | None) -> None:
        self.result = pa.table(self.table.scan(predicate=predicate))


class Zstd(DeltaRs):
    settings = "as above, but with the zstd codec of level 1, as lakebed has it"

    @property
    def _writer(self) -> WriterProperties:
        return WriterProperties(compression="ZSTD", compression_level=1)


class PlainText(Zstd):
    settings = "as above with zstd, and what is read has plain text columns instead of views, as lakebed gives them"

    def _read(self, predicate: str | None) -> None:
        super()._read(predicate)
        plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
        fields = [field.with_type(plain.get(field.type, field.type)) for field in self.result.schema]
        self.result = self.result.cast(pa.schema(fields))
