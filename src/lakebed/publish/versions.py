"""A table as each of its commits left it: the base files and columns that a list of another format names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.errors import InvalidOption
from lakebed.model import BaseFile, FileSlice, Instant
from lakebed.read.plan import data_columns
from lakebed.read.scan import refuse_cleaned
from lakebed.slices.reader import readable_slices
from lakebed.slices.schema_history import SchemaHistory
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.timeline import Timeline, completed_at


@dataclass(frozen=True, slots=True)
class Position:
    """The last commit that a published version shows: its requested time, and its completion time. Both are empty
    before the first commit."""

    instant: str = ""
    completed: str = ""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The table after a commit, as `view` shows it. `files` are its base files by path. `unmerged` are the file slices
    with log files: a list of base files does not show their newest rows."""

    position: Position
    operation: str
    schema: pa.Schema
    files: Mapping[str, BaseFile]
    unmerged: tuple[FileSlice, ...]
    history: SchemaHistory | None
    view: Snapshot

    @property
    def log_files(self) -> str:
        """A text that differs for other log files, or for log files of another size; empty if there are none."""
        files = sorted((log.path, log.size) for file_slice in self.unmerged for log in file_slice.log_files)
        text = "\n".join(f"{path} {size}" for path, size in files)
        return hashlib.sha256(text.encode()).hexdigest()[:32] if files else ""

    @property
    def changes_rows(self) -> bool:
        """Whether the commit changed rows; a clustering only moves them to other files."""
        return self.operation != "CLUSTER"


def unpublished(snapshot: Snapshot, published: Position | None) -> list[Instant]:
    """The commits that completed after the published one, in the order of completion; all of the active timeline if
    nothing is published. Commits whose files are cleaned are left out, except the last of all."""
    timeline = snapshot.timeline
    commits = timeline.commits_by_completion
    later: Sequence[Instant] = commits if published is None else timeline.commits_completed_after(published.completed)
    return [i for i in later if i is commits[-1] or is_readable(snapshot, i.time)]


def versions(snapshot: Snapshot, commits: Sequence[Instant]) -> Iterator[TableVersion]:
    """Yields the table after each of these commits, in the order of `commits`. The files are listed once."""
    snapshot.partitions()  # lists the files, for the views of all commits
    for commit in commits:
        view = _after(snapshot, commit)
        operation = view.timeline.commit_metadata(commit).operation
        yield _version(view, Position(commit.time, completed_at(commit)), operation)


def newest_version(snapshot: Snapshot, operation: str) -> TableVersion:
    """The table in its present state, also without commits."""
    commits = snapshot.timeline.commits_by_completion
    last = Position(commits[-1].time, completed_at(commits[-1])) if commits else Position()
    return _version(snapshot, last, operation)


def _version(view: Snapshot, position: Position, operation: str) -> TableVersion:
    slices = view.file_slices()
    bases = [file_slice.base_file for file_slice in readable_slices(view.config, slices, "read_optimized")]
    files = {base.path: base for base in bases if base is not None}
    unmerged = tuple(file_slice for file_slice in slices if file_slice.log_files and view.config.table_type == "mor")
    return TableVersion(position, operation, data_columns(view), files, unmerged, view.history, view)


def _after(snapshot: Snapshot, commit: Instant) -> Snapshot:
    """The view in which every later completed commit is inflight; the files that were listed are shared."""
    timeline = snapshot.timeline
    commits = timeline.commits_by_completion
    later = {i.file_name for i in commits[commits.index(commit) + 1 :]}
    if not later:
        return snapshot
    files = {name: info for name, info in timeline.files.items() if name not in later}
    return replace(snapshot, timeline=Timeline.of_files(timeline.storage, timeline.config, files))


def is_readable(snapshot: Snapshot, instant: str) -> bool:
    """Whether all files of the table as of a commit (by its requested time) exist."""
    try:
        refuse_cleaned(snapshot.at(instant))
    except InvalidOption:
        return False
    return True
