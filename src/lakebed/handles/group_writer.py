"""The row function of every write: all rows of one file group in, through a handle to its files, status rows out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.engine.base import Task
from lakebed.engine.spill import Spill
from lakebed.errors import LakebedError
from lakebed.expressions.partition_checks import PathCheck
from lakebed.handles.append import AppendHandle
from lakebed.handles.base import GroupWrite, HandleType
from lakebed.handles.bucket_groups import BucketHandle
from lakebed.handles.create import CreateHandle
from lakebed.handles.file_writer import FileFormat
from lakebed.handles.merge import MergeHandle
from lakebed.handles.targets import Target, Targets
from lakebed.merge.incoming import Intake
from lakebed.merge.row_merge import OnMatch
from lakebed.slices.reader import SliceReader
from lakebed.storage.base import Storage
from lakebed.timeline.conflicts.early import EarlyConflicts
from lakebed.upkeep.write_status import WriteStatus, to_batch


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """Sent to the tasks. Called with a partition path, a group number and the group's batches.

    `on_match` says what happens to a stored row of the same key, `insert_handle` writes the rows of new file groups,
    `located` that the keys of rows for others were looked up. With `early` it looks for writers that are at a file
    group before it is.
    An error of the rows comes back in the status, so that the driver can raise it as it was.
    """

    reader: SliceReader
    instant: str
    format: FileFormat
    intake: Intake
    targets: Targets
    on_match: OnMatch
    max_file_size: int
    known_partitions: frozenset[str]
    path_check: PathCheck
    insert_handle: HandleType = CreateHandle
    located: bool = False
    early: EarlyConflicts | None = None

    @property
    def storage(self) -> Storage:
        return self.reader.storage

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        try:
            statuses = self.write(partition, group, batches, task)
        except LakebedError as error:
            statuses = [WriteStatus(partition, error=error.to_json())]
        yield to_batch(statuses)

    def write(self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task) -> list[WriteStatus]:
        """Collect the group's rows and hand them to its handle."""
        to = self._group(partition, group, task)
        if self.early is not None:
            self.early.check(self.storage, partition, to.target.file_id)
        handle = self._handle_type(to.target)(to)
        appends = isinstance(handle, AppendHandle)
        intake = replace(self.intake, numbered=appends and to.base_of_positions is not None)
        with Spill(intake.memory) as spill:
            incoming = intake.collect(batches, spill, task)
            return handle.write(incoming.by_key() if self.format.sort else incoming)

    def _handle_type(self, target: Target) -> HandleType:
        if target.among is not None:
            return BucketHandle
        if target.slice is None:
            return self.insert_handle
        return AppendHandle if self.reader.config.table_type == "mor" and not target.rewrites else MergeHandle

    def _group(self, partition: str, number: int, task: Task) -> GroupWrite:
        return GroupWrite(
            reader=self.reader,
            instant=self.instant,
            format=self.format,
            rules=self.intake.rules,
            on_match=self.on_match,
            max_file_size=self.max_file_size,
            memory=self.intake.memory,
            path_check=self.path_check,
            new_partition=partition not in self.known_partitions,
            partition=partition,
            number=number,
            target=self.targets.of(partition, number),
            task=task,
            located=self.located,
        )
