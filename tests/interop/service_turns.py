"""A table that lakebed and real Hudi write in turn between services, and a dict of what it should hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from interop.hudi_jobs import hudi_job
from interop.metadata_jobs import keeping_metadata
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.timeline.timeline import Timeline, load_timeline
from oracle.client import HudiOracle

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())])
# Services run where a test calls for them.
QUIET = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.log.compaction.inline": "false",
}


class ServiceTurns:
    """One table; `expected` are the texts of its rows by key."""

    def __init__(
        self, folder: Path, oracle: HudiOracle, kind: Any, version: int, index: str, options: dict[str, str]
    ) -> None:
        self.uri = str(folder / "turns")
        self.oracle = oracle
        self.quiet = {**QUIET, **options}
        table = lakebed.create(
            self.uri,
            SCHEMA,
            key="id",
            partition_by="city",
            ordering="ts",
            type=kind,
            index=index,
            buckets=1 if index == "bucket" else None,
            table_version=version,
            properties=dict(self.quiet),
        )
        self.job = {**hudi_job(table), **keeping_metadata(table), **self.quiet}
        self.expected: dict[int, str] = {}
        self.turn = 0

    @property
    def table(self) -> lakebed.Table:
        return lakebed.open(self.uri)

    @property
    def timeline(self) -> Timeline:
        storage = open_storage(self.uri)
        return load_timeline(storage, load_table_config(storage))

    def instants(self, action: Action, *, pending: bool = False) -> list[str]:
        return [i.time for i in self.timeline.instants if i.action is action and i.is_completed is not pending]

    def write(self, *, by_hudi: bool) -> str:
        """Two known keys and a new one; gives the instant."""
        self.turn += 1
        numbers = [1, 2, 100 + self.turn]
        cities, mark = [f"c{n % 2}" for n in numbers], f"t{self.turn}"
        rows = pa.table({"id": numbers, "city": cities, "v": [mark] * 3, "ts": [self.turn] * 3}, schema=SCHEMA)
        self.expected |= dict.fromkeys(numbers, mark)
        if not by_hudi:
            return self.table.upsert(rows, options=self.quiet).instant
        self.oracle.write(self.uri, rows, "upsert", self.job)
        return self.timeline.commits[-1].time

    def ask(self, call: str, instant: str = "", **options: str) -> list[dict[str, Any]]:
        """Have real Hudi do something; gives the instants that appeared."""
        job = self.job | options
        return self.oracle.ask("service", table=self.uri, call=call, instant=instant, options=job)["new_instants"]

    def check(self) -> None:
        """Both read the rows that there should be, and find nothing wrong with the metadata table."""
        for found in (self.table.scan().to_arrow(), self.oracle.read(self.uri)):
            assert {row["id"]: row["v"] for row in found.to_pylist()} == self.expected
        verified = self.table.indexes.verify()
        assert verified.ok, verified
        assert self.oracle.problems(self.uri) == []
