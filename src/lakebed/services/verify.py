"""Comparing a metadata table with the data, and mending it; and record keys that are stored twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption
from lakebed.index.registry import recorded_index
from lakebed.metadata.lookups import open_snapshot, snapshot_of
from lakebed.metadata_kinds.record_index import repeated_keys
from lakebed.metadata_kinds.stored import COMPARED, DIFFERENCES
from lakebed.metadata_records.layout import FILES
from lakebed.metadata_upkeep.comparison import Verification, align, rows_of, verify_partitions
from lakebed.metadata_upkeep.maintain import locked_table
from lakebed.model import Action
from lakebed.read.reopening import MAX_LOOKS
from lakebed.schema.column_names import near_or_nothing
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage

RECORD_KEYS = "record keys"


def verify(storage: Storage, name: str | None = None) -> Verification:
    """Compare one partition of the metadata table, or all, with the table's present files and rows. Also find record
    keys that are stored twice but should be unique: these are the differences named `record keys`, which is a `name` as
    well.

    Reads the listing, the footers, the key column of all files, and the columns of secondary and expression indexes. If
    the table changed meanwhile, it is compared again, and only differences found both times count.
    """
    snapshot = open_snapshot(storage)
    verification = _verify(snapshot, name)
    for _ in range(MAX_LOOKS):
        if verification.ok:
            break
        fresh = open_snapshot(storage)
        if snapshot.shows_same(fresh):
            break
        snapshot, verification = fresh, _in_both(verification, _verify(fresh, name))
    return verification


def _in_both(before: Verification, now: Verification) -> Verification:
    """The present differences that the earlier comparison also found."""
    names = ["index", "problem", "key", "entry"]
    rows = now.differences.select(names).append_column("at", pa.array(np.arange(now.differences.num_rows)))
    shared = rows.join(before.differences.select(names), keys=names, join_type="left semi").sort_by("at")
    return replace(now, differences=now.differences.take(shared["at"]))


def _verify(snapshot: Snapshot, name: str | None) -> Verification:
    names = (*snapshot.config.metadata_partitions, RECORD_KEYS)
    _check_names([] if name is None else [name], names)
    files = snapshot_of(snapshot.storage, snapshot.config, snapshot.timeline, use_metadata=False)
    repeated = _repeated_keys(files) if name in (None, RECORD_KEYS) else DIFFERENCES.empty_table()
    if snapshot.metadata is None or name == RECORD_KEYS:
        return Verification(repeated, () if name is None else (RECORD_KEYS,))
    selected = snapshot.config.metadata_partitions if name is None else [name]
    verification = verify_partitions(files, snapshot.metadata, selected)
    return replace(verification, differences=pa.concat_tables([repeated, verification.differences]))


def _check_names(names: Sequence[str], existing: Sequence[str]) -> None:
    """Raise `InvalidOption` for an index that the table does not have."""
    for name in names:
        if name not in existing:
            hint = f"{near_or_nothing(name, existing)}It has {', '.join(existing) or 'none'}."
            raise InvalidOption(f"the table has no index {name!r}", hint=hint, context={"index": name})


def _repeated_keys(snapshot: Snapshot) -> pa.Table:
    """A row for each key that is stored more than once: in the table under a global index, otherwise in its partition
    path. Empty for tables whose keys are not stored. The snapshot lists folders."""
    config = snapshot.config
    stored = config.populate_meta_fields and bool(config.key_fields)
    if not stored:
        return DIFFERENCES.empty_table()
    recorded = recorded_index(config.index_settings)
    twice = repeated_keys(snapshot, everywhere=recorded is not None and recorded.is_global)
    paths = pc.binary_join_element_wise("key ", twice["key"], " in ", twice["partition"], "")
    rows = pa.Table.from_arrays([twice["key"], twice["partition"], paths, twice["files"]], schema=COMPARED)
    return rows_of(RECORD_KEYS, "repeated", rows, None, rows["text"])


def repair(
    storage: Storage, partitions: Sequence[str] | None = None, *, settings: WriteSettings | None = None
) -> Verification:
    """Verify, and correct the differences: wrong records are deleted in one delta commit of the metadata table, then
    they and the missing ones are written in a second. Returns the differences found, which are then repaired.

    Partitions that cannot be read are built again before: the complete metadata table if its timeline or its list of
    files is damaged. The differences name them as "damaged".

    Raises `CommitConflict` while a write to the table is pending.
    """
    settings = settings or WriteSettings()
    with locked_table(storage, settings) as (snapshot, lock_is_held):
        config = snapshot.config
        names = config.metadata_partitions if partitions is None else partitions
        _check_names(names, config.metadata_partitions)
        if FILES not in config.metadata_partitions:
            return Verification(DIFFERENCES.empty_table(), ())
        waiting = next((i for i in snapshot.timeline.pending if i.action is not Action.SAVEPOINT), None)
        if waiting is not None:
            raise CommitConflict(
                f"the metadata table cannot be repaired while instant {waiting.time} is pending",
                hint="Try again when the writers are done. The next write undoes what dead ones left, and"
                " `lakebed maintenance run URI --once` runs the plans of services.",
                kind=ConflictKind.BUSY,
            )
        return align(snapshot, names, settings, lock_is_held)
