"""lakebed in one process."""

from __future__ import annotations

import sys
from typing import Any, Literal

import lakebed

from .base import DAYS, KEY, ORDERING, ProcessPeer


class Lakebed(ProcessPeer):
    """A bucket index of four buckets; all else is as lakebed has it by default."""

    packages = ("lakebed", "pyarrow")
    settings = (
        "merge-on-read, bucket index of 4 buckets, ordering column, metadata table; defaults: zstd of level 1, plain"
        " text columns, each file synced; writes clean, archive, and compact file slices by what their logs weigh"
    )
    kind: Literal["mor", "cow"] = "mor"
    table: lakebed.Table
    columns: list[str]
    since: str

    def load(self) -> None:
        self.columns = self.rows.column_names
        words: dict[str, Any] = {"key": KEY, "ordering": ORDERING, "type": self.kind, "index": "bucket", "buckets": 4}
        self.table = lakebed.create(self.path, self.rows, **words)
        self.since = self.table.bulk_insert(self.rows).checkpoint

    def upsert(self) -> None:
        self.services = len(self.table.upsert(self.rows).services)

    def incremental(self) -> None:
        self.result = self.table.changes(self.since, columns=self.columns).to_arrow()

    def delete(self) -> None:
        self.table.delete(self.rows[KEY])

    def merge(self) -> None:
        merge = self.table.merge(self.rows).when_matched_update({"fare": "t.fare + s.fare", "ts": "s.ts"})
        merge.when_not_matched_insert().execute()

    def lookup(self) -> None:
        self.result = self.table.get(self.rows[KEY], columns=self.columns)

    def range(self) -> None:
        condition = f"day >= DATE '{DAYS[0]}' AND day <= DATE '{DAYS[1]}'"
        self.result = self.table.scan(where=condition, columns=self.columns).to_arrow()

    def scan(self) -> None:
        self.result = self.table.scan(columns=self.columns).to_arrow()

    def fresh_get(self) -> list[str]:
        return self.process(
            "import sys, lakebed; print(lakebed.open(sys.argv[1]).get([sys.argv[2]]).num_rows)",
        )

    def shell_get(self) -> list[str]:
        started = "from lakebed.cli.start import run; run()"
        return [sys.executable, "-c", started, "get", self.path, self.keys()[0]]


class CopyOnWrite(Lakebed):
    settings = (
        "copy-on-write, bucket index of 4 buckets, ordering column, metadata table; defaults: zstd of level 1, plain"
        " text columns, each file synced; writes clean and archive"
    )
    kind = "cow"
