"""Keys that stand in several file groups: the copy that was written last stays, the others are deleted."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Rows, persisted
from lakebed.index.simple import positions_of
from lakebed.merge.locations import STORED_LOCATION
from lakebed.model import COMMIT_SEQNO, COMMIT_TIME, FILE_ID, FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakebed.operations.context import TableSchema, WriteContext, table_schema
from lakebed.operations.pipeline import Verb, run
from lakebed.operations.placement import Placed, TaggedRows
from lakebed.operations.result import WriteResult
from lakebed.operations.write import RowMatch, Write
from lakebed.slices.snapshot import Snapshot

_DELETES = RowMatch("keys", deletes=True)
_NEWEST = (COMMIT_TIME, COMMIT_SEQNO, FILE_ID)


def find_copies(context: WriteContext, snapshot: Snapshot) -> pa.Table:
    """The copies that are to go, with their places. Copies in the file group of the newest one stay: a key is deleted
    from a whole file group."""
    engine = context.engine
    names = [RECORD_KEY, PARTITION_PATH, COMMIT_TIME, COMMIT_SEQNO, *positions_of(snapshot)]
    stored = engine.read_columns(snapshot, snapshot.file_slices(), [*names, FILE_NAME])
    placed = engine.collect(engine.derive(stored, STORED_LOCATION, keep=names))
    by = [RECORD_KEY] if context.index.is_global else [RECORD_KEY, PARTITION_PATH]
    return _without_newest(placed, by)


def _without_newest(rows: pa.Table, by: list[str]) -> pa.Table:
    counts = rows.group_by(by).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1)).select(by)
    rows = rows.join(twice, keys=by, join_type="inner")
    if not rows.num_rows:
        return rows
    newest: list[tuple[str, str]] = [(name, "descending") for name in _NEWEST]
    rows = rows.sort_by([*((name, "ascending") for name in by), *newest]).combine_chunks()
    begins = np.zeros(len(rows), dtype=bool)
    begins[0] = True
    for name in by:
        values = rows[name].combine_chunks()
        begins[1:] |= pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    keeper = pa.array(np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0)))
    elsewhere = [pc.not_equal(rows[name], rows[name].take(keeper)) for name in (PARTITION_PATH, FILE_ID)]
    return rows.filter(pc.or_(*elsewhere))


def delete_copies(context: WriteContext) -> WriteResult:
    """Delete all copies of a key but the newest one, in one commit."""
    return run(context, DeleteCopies())


@dataclass(frozen=True, kw_only=True)
class DeleteCopies(Verb):
    """Rows that are found by the write itself, with their places: no index is asked."""

    operation: str = "DELETE"
    match: RowMatch = _DELETES
    unique: bool = False

    def schema(self, context: WriteContext, snapshot: Snapshot) -> TableSchema:
        return table_schema(context, snapshot, snapshot.schema)

    def prepare(self, write: Write) -> Rows:
        copies = find_copies(write.context, write.snapshot)
        return write.context.engine.from_arrow(copies.drop_columns([COMMIT_TIME, COMMIT_SEQNO]))

    @contextmanager
    def place(self, write: Write, prepared: Rows) -> Generator[Placed]:
        with persisted(write.context.engine, prepared) as held:
            yield TaggedRows(write, held)
