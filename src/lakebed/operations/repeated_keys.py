"""Inserts that store keys of a record index a second time: the table notes it, and keys are looked for in all files."""

from __future__ import annotations

import pyarrow.compute as pc

from lakebed.engine.base import Rows
from lakebed.errors import CommitConflict
from lakebed.metadata.kinds.key_indexes import KeyIndexes
from lakebed.metadata.layout import RECORD_INDEX
from lakebed.model import PARTITION_PATH, RECORD_KEY
from lakebed.operations.context import WriteContext
from lakebed.operations.write import RowMatch
from lakebed.read.record_index import find_keys
from lakebed.timeline.locks.providers import table_lock
from lakebed.timeline.properties_file import update_table_config
from lakebed.timeline.table_config import INDEX_REPEATED


def note_repeated_keys(context: WriteContext, rows: Rows, match: RowMatch) -> None:
    """Note in the table that it holds keys several times, before an insert without a look-up stores one again.

    A record index has one place for a key. Rows of a DataFrame are not looked at: that would be the cost of an upsert.
    """
    config = context.config
    if match.looks_up or config.repeats_keys or context.engine.is_distributed or not context.stores_keys:
        return
    indexed = KeyIndexes.of(context.storage, config).record_index
    if not (indexed or any(one.partition == RECORD_INDEX for one in context.index.metadata_indexes)):
        return
    if not _repeats(context, rows, combined=match.combine):
        return
    settings = context.settings
    with table_lock(context.storage, settings.lock, wait_seconds=settings.lock_wait_seconds, table=config.name) as lock:
        if not lock.still_mine():
            raise CommitConflict(
                f"the table lock was lost before {config.name!r} could note that it holds keys several times",
                hint="Another process took it after it expired; try again.",
            )
        update_table_config(context.storage, {INDEX_REPEATED: "true"})


def _repeats(context: WriteContext, rows: Rows, *, combined: bool) -> bool:
    """Whether a key comes twice, or is stored already (in its partition path, where each has keys of its own)."""
    columns = {RECORD_KEY: context.keys.record_key, PARTITION_PATH: context.keys.partition_path}
    table = context.engine.collect(context.engine.derive(rows, columns, keep=[])).rename_columns(["key", "partition"])
    by = ["key"] if context.index.is_global else ["key", "partition"]
    if not combined and table.group_by(by).aggregate([]).num_rows < table.num_rows:
        return True
    if not context.opened.commits:
        return False
    found = find_keys(context.opened, pc.unique(table["key"]))
    if found is None:
        return False
    return bool((found if context.index.is_global else found.of_pairs(table)).places.num_rows)
