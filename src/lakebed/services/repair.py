"""Making a metadata table say what the data says: only the records that differ are written, to their file groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.lock import default_lock
from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict
from lakebed.metadata.layout import FILES
from lakebed.metadata.records import Records
from lakebed.metadata.store.slices import open_slices
from lakebed.metadata.store.suffixes import REPAIRS, Suffix
from lakebed.metadata.store.writer import MetadataWriter
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.services.rebuilding import rebuild_damaged
from lakebed.services.verification import Verification, verify_partitions
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.instants import INSTANT_DIGITS, InstantClock, without_suffix
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.upkeep.comparison import DIFFERENCES
from lakebed.upkeep.kind import StoredTable
from lakebed.upkeep.registry import upkeep_of


def repair(storage: Storage, partitions: Sequence[str] | None = None) -> Verification:
    """Verify, and write what differs: the records that are wrong are deleted in one delta commit of the metadata table,
    then they and the missing ones are written in a second. Gives what was found (and is right now).

    What cannot be read is built again before, the whole metadata table where its timeline or its list of files is
    damaged; the differences name it as "damaged".

    Raises `CommitConflict` while a write to the table is pending.
    """
    settings = WriteSettings()
    with default_lock(storage, wait_seconds=settings.lock_wait_seconds):
        config = load_table_config(storage)
        timeline = load_timeline(storage, config)
        snapshot = Snapshot(storage, config, timeline)
        wanted = config.metadata_partitions if partitions is None else partitions
        if FILES not in config.metadata_partitions:
            return Verification(DIFFERENCES.empty_table(), ())
        waiting = next((i for i in timeline.pending if i.action is not Action.SAVEPOINT), None)
        if waiting is not None:
            raise CommitConflict(
                f"the metadata table cannot be repaired while instant {waiting.time} is pending",
                hint="Try again when the writers are done; what dead ones left is undone by the next write.",
            )
        return align(snapshot, wanted, settings)


def align(
    snapshot: Snapshot,
    partitions: Sequence[str],
    settings: WriteSettings,
    still_mine: Callable[[], bool] = lambda: True,
) -> Verification:
    """Make these partitions of the metadata table say what the table is now. Lock held, `snapshot` read under it. Gives
    what differed."""
    storage, config, timeline = snapshot.storage, snapshot.config, snapshot.timeline
    damage = rebuild_damaged(snapshot, partitions, settings)
    if damage.num_rows:
        config = load_table_config(storage)
        snapshot = Snapshot(storage, config, timeline)
    assert snapshot.metadata is not None
    found = verify_partitions(snapshot, snapshot.metadata, partitions)
    if found.ok:
        return Verification(damage, found.checked, found.left_out)
    for records in _corrections(snapshot, found):
        if records:
            writer = MetadataWriter(storage, config, timeline, still_mine=still_mine)
            writer.apply(metadata_instant(storage, config, timeline), records)
    return Verification(pa.concat_tables([damage, found.differences]), found.checked, found.left_out)


def _corrections(snapshot: Snapshot, found: Verification) -> Iterator[dict[str, Records]]:
    """The records that put the differences right: first those that take off what is wrong or too much, then those of
    what is missing or was wrong."""
    table = StoredTable(Snapshot(snapshot.storage, snapshot.config, snapshot.timeline, use_metadata=False))
    extra = {partition: _rows(found, partition, "extra", "wrong") for partition in found.checked}
    yield {p: upkeep_of(p).extra_records(p, rows, table) for p, rows in extra.items() if rows.num_rows}
    missing = {partition: _rows(found, partition, "missing", "wrong") for partition in found.checked}
    yield {p: upkeep_of(p).missing_records(p, rows, table) for p, rows in missing.items() if rows.num_rows}


def _rows(found: Verification, partition: str, *problems: str) -> pa.Table:
    rows = found.of(partition)
    return rows.filter(pc.is_in(rows["problem"], value_set=pa.array(problems)))


def metadata_instant(storage: Storage, config: TableConfig, timeline: Timeline) -> str:
    """An instant for a commit of the metadata table alone."""
    own = open_slices(storage, config, timeline)
    assert own is not None
    times = {i.time for i in own.timeline.instants}
    fresh = InstantClock(config.timezone).next(after=max(timeline.greatest_time, own.timeline.greatest_time))
    if config.version >= 8:
        return fresh
    last = without_suffix(max((i.time for i in own.timeline.commits), default="0" * INSTANT_DIGITS))
    for suffix in REPAIRS:
        if f"{last}{suffix}" not in times and f"{last}{suffix}" > max(times):
            return f"{last}{suffix}"
    return f"{fresh}{Suffix.RESTORE}"  # as real Hudi's, which puts what differs after a restore there
