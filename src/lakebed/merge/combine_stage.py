"""Combining duplicates of a key before a global index looks it up: a shuffle by key, then one row per key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakebed.engine.base import Engine, Rows, Task
from lakebed.merge.combine import combine
from lakebed.merge.rules import MergeRules
from lakebed.model import RECORD_KEY


@dataclass(frozen=True, slots=True)
class _Combine:
    rules: MergeRules

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if held:
            yield from combine(pa.Table.from_batches(held), [RECORD_KEY], self.rules.in_batch).to_batches()


def combine_by_key(engine: Engine, rows: Rows, rules: MergeRules) -> Rows:
    """One row per record key over all partition paths."""
    return engine.map_by_key(rows, RECORD_KEY, _Combine(rules))
