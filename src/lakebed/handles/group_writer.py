"""The row function of every write: all rows of one file group in, its new base file and one status row out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.engine.base import Task
from lakebed.engine.spill import Spill
from lakebed.errors import LakebedError
from lakebed.expressions.partition_checks import PathCheck
from lakebed.format.base_file import Footer, read_base_file, read_footer
from lakebed.format.bloom import BloomFilter
from lakebed.format.file_names import bucket_of_file_id, new_file_id
from lakebed.format.key_range import KeyRange
from lakebed.format.parquet_encodings import encodings_of
from lakebed.handles.file_writer import FileFormat, FileWriter, with_meta, write_partition_metadata
from lakebed.handles.merge_file import FileMerge, OnMatch
from lakebed.handles.record_size import SAMPLE_ROWS, from_sample
from lakebed.handles.sorted_merge import SortedMerge
from lakebed.handles.targets import Target, Targets
from lakebed.merge.incoming import Incoming, Intake
from lakebed.model import RECORD_KEY, BaseFile
from lakebed.storage.base import Storage
from lakebed.timeline.markers import MarkerKind
from lakebed.upkeep.write_status import WriteStatus, to_batch


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """Sent to the tasks. Called with a partition path, a group number and the group's batches.

    `matching` says what happens to a stored row of the same key.
    An error of the rows comes back in the status, so that the driver can raise it as it was.
    """

    storage: Storage
    instant: str
    format: FileFormat
    intake: Intake
    targets: Targets
    on_match: OnMatch
    max_file_size: int
    known_partitions: frozenset[str]
    path_check: PathCheck

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        try:
            statuses = self.write(partition, group, batches, task)
        except LakebedError as error:
            statuses = [WriteStatus(partition, error=error.to_json())]
        yield to_batch(statuses)

    def write(self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task) -> list[WriteStatus]:
        target = self.targets.of(partition, group)
        with Spill(self.intake.memory) as spill:
            incoming = self.intake.collect(batches, spill, task)
            if self.format.sort:
                incoming = incoming.by_key()
            files = _Files(self, self.storage, partition, group, target, task)
            if target.base is None:
                return files.create(incoming)
            return files.merge(incoming, target.base)


class _Files:
    """The files one group becomes: usually one, more where a new group outgrows the maximum file size."""

    def __init__(
        self, to: GroupWriter, storage: Storage, partition: str, group: int, target: Target, task: Task
    ) -> None:
        self._to = to
        self._storage = storage
        self._partition = partition
        self._group = group
        self._target = target
        self._task = task
        self._done: list[WriteStatus] = []
        self._new_partition = partition not in to.known_partitions
        # what the plan thought to fit may be a little more: better so than a second, tiny file
        self._limit = int(to.max_file_size * 1.05)

    def create(self, incoming: Incoming) -> list[WriteStatus]:
        skipped = WriteStatus(
            self._partition,
            self._target.file_id,
            rows_in=incoming.received,
            num_unchanged=incoming.rows - incoming.alive,
        )
        if incoming.alive == 0:
            return [skipped]
        self._prepare_partition()
        rows = (
            with_meta(data, keys, self._to.format, self._to.instant, self._partition, self._task)
            for keys, data in incoming.alive_batches()
        )
        self._add(rows, None)
        first = self._done[0]
        self._done[0] = replace(first, rows_in=incoming.received, num_unchanged=skipped.num_unchanged)
        return self._done

    def merge(self, incoming: Incoming, base: BaseFile) -> list[WriteStatus]:
        footer = read_footer(self._storage, base.path, base.size)
        encodings = encodings_of(footer.metadata)
        merge = self._merge_of(incoming, base, footer, encodings)
        if not merge.changes_anything():
            return [WriteStatus(self._partition, base.file_id, rows_in=incoming.received, num_unchanged=incoming.rows)]
        writer = self._writer(base.file_id, "MERGE", *self._known_keys(base, footer), encodings)
        try:
            merge.run(writer)
            if isinstance(merge, SortedMerge) and writer.rows:
                # what found no place in the order of this file goes to another
                self._finish(writer, merge.counts.inserts)
                self._add(merge.rest(), None)
            else:
                self._add(merge.rest(), writer)
        except BaseException:
            writer.abort()
            raise
        counts = merge.counts
        first = self._done[0]
        self._done[0] = replace(
            first,
            prev_commit=base.instant,
            prev_base_file=base.name,
            rows_in=incoming.received,
            num_inserts=first.num_inserts,
            num_updates=counts.updates,
            num_deletes=counts.deletes,
            num_unchanged=counts.unchanged,
        )
        return self._done

    def _merge_of(self, incoming: Incoming, base: BaseFile, footer: Footer, encodings: Mapping[str, str]) -> FileMerge:
        to = self._to
        common: tuple[Any, ...] = (
            self._storage,
            base,
            footer,
            incoming,
            to.intake.rules,
            to.format,
            to.instant,
            self._task,
            to.on_match,
            encodings,
        )
        if not to.format.sort:
            return FileMerge(*common)
        room = self._room_among(incoming, base, footer) if self._target.size_limited else None
        return SortedMerge(*common, room=room, memory=to.intake.memory)

    def _room_among(self, incoming: Incoming, base: BaseFile, footer: Footer) -> int:
        """How many new rows a sorted file takes in among its own, which are of the size of the larger of the two."""
        left, size = max(0, self._limit - base.size), max(1, base.size) / max(1, footer.rows)
        if incoming.alive and incoming.data_bytes > left:
            some = np.unique(np.linspace(0, incoming.rows - 1, min(SAMPLE_ROWS, incoming.rows), dtype=np.int64))
            sampled = from_sample(pa.Table.from_batches([incoming.take(some)]), self._to.format.settings)
            size = max(size, 0.9 * sampled)  # a sample takes somewhat more than the same rows among others
        return int(left / size)

    def _add(self, batches: Iterator[pa.RecordBatch], writer: FileWriter | None) -> None:
        """Write new rows, going on to a further file group whenever the file is full."""
        inserted = 0
        try:
            for batch in batches:
                while batch.num_rows:
                    if writer is None:
                        n = len(self._done)
                        file_id = self._target.file_id if n == 0 else self._next_file_id(n)
                        writer = self._writer(file_id, "CREATE", None, KeyRange())
                    fits = writer.room(self._limit, batch) if self._target.size_limited else batch.num_rows
                    if not fits:
                        self._finish(writer, inserted)
                        writer, inserted = None, 0
                        continue
                    part, batch = batch.slice(0, fits), batch.slice(fits)
                    writer.write(part, new_keys=None)
                    inserted += part.num_rows
        except BaseException:
            if writer is not None:
                writer.abort()
            raise
        if writer is not None:
            self._finish(writer, inserted)

    def _finish(self, writer: FileWriter, inserted: int) -> None:
        size = writer.close()
        self._done.append(
            WriteStatus(
                self._partition,
                writer.file_id,
                path=writer.path,
                num_writes=writer.rows,
                num_inserts=inserted,
                file_size=size,
                millis=writer.millis,
                ranges=writer.ranges,
                **writer.told_changes(),
            )
        )

    def _next_file_id(self, n: int) -> str:
        bucket = bucket_of_file_id(self._target.file_id) if not self._target.size_limited else None
        return new_file_id(self._to.instant, self._partition, self._group, bucket=bucket, n=n)

    def _writer(
        self,
        file_id: str,
        kind: MarkerKind,
        bloom: BloomFilter | None,
        keys: KeyRange,
        encodings: Mapping[str, str] | None = None,
    ) -> FileWriter:
        if bloom is None:
            bloom = self._to.format.bloom()
        return FileWriter(
            self._storage,
            self._to.format,
            self._to.instant,
            self._partition,
            file_id,
            self._task,
            kind,
            bloom,
            keys,
            encodings,
        )

    def _known_keys(self, base: BaseFile, footer: Footer) -> tuple[BloomFilter | None, KeyRange]:
        """Bloom filter and key range of the old file, to which only new keys are added.

        A filter is carried on only where one is to be written; where the old file has none that can be used, all
        its keys are added anew.
        """
        if footer.key_range is None:
            return self._filled(base)
        keys = KeyRange(*footer.key_range)
        if not self._to.format.settings.bloom_filter:
            return None, keys
        bloom = footer.bloom()
        return (bloom, keys) if bloom is not None else self._filled(base)

    def _filled(self, base: BaseFile) -> tuple[BloomFilter | None, KeyRange]:
        bloom, keys = self._to.format.bloom(), KeyRange()
        for batch in read_base_file(self._storage, base.path, base.size, [RECORD_KEY]):
            keys.add(batch.column(0))
            if bloom is not None:
                bloom.add(batch.column(0))
        return bloom, keys

    def _prepare_partition(self) -> None:
        if self._new_partition:
            self._to.path_check.require(self._partition)
            write_partition_metadata(self._storage, self._partition, self._to.instant)
            self._new_partition = False
