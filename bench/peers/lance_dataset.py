"""Lance in one process: pylance."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa

from .base import DAYS, KEY, ProcessPeer, quoted


class Lance(ProcessPeer):
    """A dataset with a B-tree on the key, which is made with the load."""

    packages = ("pylance", "pyarrow")
    settings = (
        "a B-tree on the key, made by the load; defaults: Lance's own encodings, no compaction and no update of the"
        " B-tree for rows that were written later; changes are read from a table of its own with stable row ids"
    )
    missing = {"merge": "`merge_insert` writes whole rows; it has no expressions of stored values"}
    dataset: Any
    tracked: Any

    def load(self) -> None:
        self.dataset = lance.write_dataset(self.rows, self.path)
        self.dataset.create_scalar_index(KEY, "BTREE")

    def upsert(self) -> None:
        self.dataset.merge_insert(KEY).when_matched_update_all().when_not_matched_insert_all().execute(self.rows)

    def prepare_incremental(self, inputs: str, work: str) -> None:
        dataset = self.dataset
        self.give(f"{inputs}/load")
        self.dataset = lance.write_dataset(self.rows, f"{work}/tracked", enable_stable_row_ids=True)
        self.give(f"{inputs}/percent")
        self.upsert()
        self.dataset, self.tracked = dataset, self.dataset

    def incremental(self) -> None:
        delta = self.tracked.delta(compared_against=1)
        names = self.rows.column_names
        parts = [delta.get_inserted_rows().read_all(), delta.get_updated_rows().read_all()]
        self.result = pa.concat_tables([part.select(names) for part in parts])

    def delete(self) -> None:
        self.dataset.merge_insert(KEY).when_matched_delete().execute(self.rows)

    def lookup(self) -> None:
        self.result = self.dataset.to_table(filter=f"{KEY} IN ({quoted(self.keys())})")

    def fresh_get(self) -> list[str]:
        return self.process(
            "import sys, lance;"
            f' print(lance.dataset(sys.argv[1]).to_table(filter="{KEY} = \'" + sys.argv[2] + "\'").num_rows)'
        )

    def range(self) -> None:
        self.result = self.dataset.to_table(filter=f"day >= date '{DAYS[0]}' AND day <= date '{DAYS[1]}'")

    def scan(self) -> None:
        self.result = self.dataset.to_table()
