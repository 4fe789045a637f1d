"""Data files that no commit names: what lost attempts and dead writers left behind the back of every rollback.

Nothing is deleted that anybody may still need: a file is an orphan only where the timeline knows of its time, and does
not know its instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.format.log_file import BlockType, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.model import BaseFile, LogFile, WriteStat, has_completion_times, path_in
from lakebed.slices.listing import list_metadata
from lakebed.slices.metadata_view import naming_metadata
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import FileInfo

_ROWS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA, BlockType.DELETE)


class Orphans:
    """The orphans of a table; its `snapshot` was opened after the files were listed, so that whoever writes since has
    an instant there."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._timeline = snapshot.timeline

    def among(self, files: Iterable[FileInfo]) -> Iterator[FileInfo]:
        """Those of the data files that are orphans."""
        if not self._timeline.commits:
            return
        for info in files:
            file = data_file(info)
            if file is not None and self._is_orphan(file):
                yield info

    def _is_orphan(self, file: BaseFile | LogFile) -> bool:
        if isinstance(file, LogFile) and self._goes_by_slice(file):
            return self._has_lost_blocks_alone(file)
        timeline, instant = self._timeline, file.instant
        if instant >= self._before or file.path in self._named:
            return False
        if timeline.start is not None and instant < timeline.start and not self._is_unknown_to_archive(instant):
            return False
        if timeline.is_completed(instant) and not self._names_files(instant):
            return False
        return file.path not in self._listed

    def _goes_by_slice(self, log: LogFile) -> bool:
        """Whether a log file is named after its slice: on version 6, and what an upgrade left of it."""
        if not has_completion_times(self._snapshot.config.version):
            return True
        return not log.is_cdc and (log.partition, log.file_id, log.instant) in self._begun

    def _has_lost_blocks_alone(self, log: LogFile) -> bool:
        """Whether all blocks of a log file whose name does not tell who wrote it are of instants that were undone: by a
        writer that went on after that. What rollbacks hide is listed, and stays."""
        start = self._timeline.start
        if self._snapshot.metadata is None or start is None or log.path in self._named or log.path in self._listed:
            return False
        heads = list(scan_blocks(FileSource(self._snapshot.storage, log.path, log.size)))
        known = {i.time for i in self._timeline.instants}
        undone = (start < h.instant < self._before and h.instant not in known for h in heads)
        return bool(heads) and all(h.type in _ROWS for h in heads) and all(undone)

    @cached_property
    def _begun(self) -> frozenset[tuple[str, str, str]]:
        """The slices that base files of the timeline's commits began."""
        parts = (path.rpartition("/") for path in self._named)
        bases = (parse_base_file(folder, name, 0) for folder, _, name in parts)
        return frozenset((base.partition, base.file_id, base.instant) for base in bases if base is not None)

    @cached_property
    def _before(self) -> str:
        """Whatever is older than this no living writer has written."""
        pending = [i.time for i in self._timeline.pending]
        return min([*pending, self._timeline.greatest_time])

    @cached_property
    def _named(self) -> frozenset[str]:
        commits = self._timeline.commits_metadata(self._timeline.commits)
        stats = (stat for commit in commits for group in commit.stats.values() for stat in group)
        return frozenset(path for stat in stats for path in (*stat.paths, *_beside(stat)))

    def _names_files(self, instant: str) -> bool:
        commit = self._timeline.commit(instant)
        return commit is not None and any(self._timeline.commit_metadata(commit).stats.values())

    def _is_unknown_to_archive(self, instant: str) -> bool:
        archived = self._archived
        return bool(archived) and min(archived) < instant and instant not in archived

    @cached_property
    def _archived(self) -> frozenset[str]:
        return frozenset(i.time for i in self._timeline.archived().instants)

    @cached_property
    def _listed(self) -> frozenset[str]:
        """What the metadata table takes for files of the table; a difference there is another kind of damage."""
        if self._snapshot.metadata is None:
            return frozenset()
        with naming_metadata(self._snapshot.storage):
            listing = list_metadata(self._snapshot.metadata, self._snapshot.storage)
        return frozenset(f.path for f in (*listing.base_files, *listing.log_files))


def _beside(stat: WriteStat) -> Iterator[str]:
    """The other files of the slice, as a write saw them."""
    for name in (stat.base_file, stat.prev_base_file, *(stat.log_files or ())):
        if name:
            yield path_in(stat.partition, name.rpartition("/")[2])


def data_file(info: FileInfo) -> BaseFile | LogFile | None:
    """What a file in a partition folder is, if it is a base or log file."""
    folder, _, name = info.path.rpartition("/")
    return parse_base_file(folder, name, info.size) or parse_log_file(folder, name, info.size)


def folders_without_metadata(snapshot: Snapshot, files: Sequence[FileInfo], marked: Iterable[str]) -> dict[str, str]:
    """The folders of committed files that are not `marked` as partitions, each with the first commit that wrote to it.
    Real Hudi does not see them where it lists folders."""
    first: dict[str, str] = {}
    has_mark = set(marked)
    for info in files:
        file = data_file(info)
        if file is None or file.partition in has_mark or not snapshot.is_visible(file.instant):
            continue
        first[file.partition] = min(first.get(file.partition, file.instant), file.instant)
    return dict(sorted(first.items()))
