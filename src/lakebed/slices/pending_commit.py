"""`PendingCommit`: a commit whose files are written and which is not completed, for a view that shows the table with
it (`Snapshot.with_pending`).

Nothing on storage names these files as a part of the table: no completed instant, and no record of the metadata table.
The view takes them from the write stats.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakebed.format.file_names import written_files
from lakebed.model import Action, BaseFile, CommitMetadata, LogFile
from lakebed.sharing import once
from lakebed.slices.listing import Listing
from lakebed.timeline.timeline import Timeline


@dataclass(frozen=True)
class PendingCommit:
    """The requested time and the action of a commit that is not completed, and the body that its completed instant
    would have."""

    instant: str
    action: Action
    metadata: CommitMetadata

    def completed_on(self, timeline: Timeline) -> Timeline:
        """The timeline with this commit as completed after all of its commits."""
        return timeline.with_commit(self.action, self.instant, self.metadata)

    def added_to(self, listing: Listing, partitions: Collection[str] | None) -> Listing:
        """The listing of some partition paths, or of all (None), with the files of this commit. A log file that the
        commit has appended to has the size that it has now."""
        base_files, log_files = self._files
        if partitions is not None:
            base_files = tuple(file for file in base_files if file.partition in partitions)
            log_files = tuple(file for file in log_files if file.partition in partitions)
        base = {file.path: file for file in (*listing.base_files, *base_files)}
        logs = {file.path: file for file in (*listing.log_files, *log_files)}
        paths = {*listing.partitions, *(file.partition for file in (*base_files, *log_files))}
        return Listing(tuple(base.values()), tuple(logs.values()), tuple(sorted(paths)))

    @once
    def _files(self) -> tuple[tuple[BaseFile, ...], tuple[LogFile, ...]]:
        """The base files and the log files that the write stats name."""
        files = list(written_files(self.metadata))
        base = tuple(file for file in files if isinstance(file, BaseFile))
        return base, tuple(file for file in files if isinstance(file, LogFile))
