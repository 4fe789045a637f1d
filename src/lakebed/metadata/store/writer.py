"""`MetadataWriter`: all that is written to the metadata table, by whoever holds the data table's lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.records import GroupRecords, Records
from lakebed.metadata.store import building, creation, deltacommit, resharding, rollback
from lakebed.metadata.store.creation import NewPartition
from lakebed.metadata.store.group_files import FileGroup, WrittenBase, WrittenLog
from lakebed.metadata.store.services import finish_services, run_services
from lakebed.metadata.store.store import MetadataSettings, MetadataStore
from lakebed.properties.table_config import TableConfig
from lakebed.storage.base import Storage
from lakebed.timeline.timeline import Timeline

__all__ = ["GroupRecords", "MetadataSettings", "MetadataWriter", "NewPartition", "Records"]


class MetadataWriter:
    """Writes the metadata table of one table. `timeline` is the data table's, loaded under its lock, which the caller
    holds throughout; `still_mine` says whether that is so.

    What a dead writer left half done is undone or finished by the first call that finds it.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        timeline: Timeline,
        settings: MetadataSettings | None = None,
        still_mine: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = MetadataStore(storage, config, timeline, settings, still_mine)

    @property
    def config(self) -> TableConfig:
        """The data table's settings, with the changes that this writer made."""
        return self._store.data_config

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that every write must maintain: the complete ones and those that are being built."""
        return self._store.partitions

    def view(self) -> MetadataTable:
        """The metadata table as this writer has read it."""
        return MetadataTable(self._store.slices)

    # its partitions

    def create(self) -> None:
        """Make the metadata table where there is none, without partitions. One in which nothing ever completed is made
        anew."""
        creation.create(self._store)

    def initialise(
        self, partition: str, groups: Sequence[GroupRecords], definition: IndexDefinition | None = None
    ) -> TableConfig:
        """Build a partition from records in memory, one entry of `groups` for each file group; readers use it when this
        returns. `definition` goes to the table's index definitions. Gives the data table's new settings."""
        return creation.initialise(self._store, partition, groups, definition)

    def begin_partition(self, partition: str, counts: int | Mapping[str, int]) -> NewPartition:
        """Begin to build a partition whose base files tasks write with `write_base`: so many file groups, or so many
        for each partition path of the data."""
        return creation.begin_partition(self._store, partition, counts)

    def complete_partition(
        self, new: NewPartition, written: Sequence[WrittenBase], definition: IndexDefinition | None = None
    ) -> TableConfig:
        """Complete what `begin_partition` began with the base files of the groups that have records."""
        return creation.complete_partition(self._store, new, written, definition)

    def begin_building(
        self, partition: str, counts: int | Mapping[str, int], definition: IndexDefinition | None, since: str
    ) -> NewPartition | None:
        """Begin to build a partition beside writers, which log to it from now on: what completes after the instant
        `since`. None where it is complete. What another builder began that died is taken up."""
        return building.begin(self._store, partition, counts, definition, since)

    def groups_now(self, new: NewPartition) -> NewPartition:
        """What is being built beside writers with the file groups that there are now."""
        return building.groups_now(self._store, new)

    def complete_building(self, new: NewPartition, written: Sequence[WrittenBase]) -> TableConfig:
        """Complete what `begin_building` began with the base files of the groups that have records. Raises
        `CommitConflict` where others changed or dropped it meanwhile."""
        return building.complete(self._store, new, written)

    def drop(self, partitions: Sequence[str]) -> TableConfig:
        """Take partitions off, their definitions too; with `files` the whole metadata table."""
        return creation.drop(self._store, partitions)

    def drop_all(self) -> TableConfig:
        """Take the metadata table off."""
        return creation.drop_all(self._store)

    # delta commits

    def apply(self, instant: str, records: Mapping[str, Records], written: Sequence[WrittenLog] = ()) -> None:
        """Write a delta commit of the data table's instant: a log file for each file group that gets records, then the
        completed instant. Visible once the data table's instant is completed.

        If the metadata table has the instant already, that is rolled back first. `written` are log files that tasks
        wrote since `begin`; they are taken into the same delta commit. Raises `InvalidOption` for a partition that the
        table does not have, `CommitConflict` where `written` do not fit any more.
        """
        deltacommit.apply_delta(self._store, instant, records, written)

    def begin(self, instant: str, partitions: Sequence[str]) -> dict[str, tuple[FileGroup, ...]]:
        """Begin a delta commit to which tasks write log files with `write_log`; gives the file groups of these
        partitions. `apply` with what they wrote ends it."""
        return deltacommit.begin_delta(self._store, instant, partitions)

    def file_groups(self, partition: str) -> tuple[FileGroup, ...]:
        """The file groups of a partition, in the order of their ids."""
        return deltacommit.file_groups(self._store, partition)

    def roll_back(self, instant: str, rollback_instant: str) -> bool:
        """Undo the delta commit of an instant of the data table, which is rolled back at `rollback_instant`; False
        where there is none."""
        has_any = bool(self._store.partitions) and self._store.exists()
        return has_any and rollback.roll_back(self._store, instant, rollback_instant)

    def take_off(self, instant: str) -> None:
        """Remove all that an instant left here whose data another writer has rolled back meanwhile."""
        if self._store.partitions and self._store.exists():
            rollback.take_off(self._store, instant)

    def take_off_strays(self) -> None:
        """The same for every delta commit of a writer that went on after it was rolled back."""
        if self._store.partitions and self._store.exists():
            rollback.take_off_strays(self._store)

    def is_folded(self, instant: str) -> bool:
        """Whether taking off the delta commit of an instant would leave records of it: see `rollback.is_folded`."""
        return bool(self._store.partitions) and self._store.exists() and rollback.is_folded(self._store, instant)

    # services

    def settle(self) -> None:
        """Finish what writers that died left half done, and nothing else."""
        if self._store.partitions and self._store.exists():
            finish_services(self._store)

    def run_services(self) -> list[str]:
        """Compact, clean and archive the metadata table as far as it is due; gives a line about each."""
        return run_services(self._store)

    def reshard(self, partition: str, counts: int | Mapping[str, int]) -> str | None:
        """Give the record index or a secondary index another number of file groups, a partitioned record index other
        numbers for these partition paths; gives the replacecommit's instant, None where nothing changes.

        Raises `CommitConflict` while a write to the table is pending, `InvalidOption` for other partitions.
        """
        return resharding.reshard(self._store, partition, counts)
