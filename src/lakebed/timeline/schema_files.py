"""The schema history of a table (`.hoodie/.schema`): which of its files counts, and how a commit continues it.

As in real Hudi every commit of a table with a history carries the newest version, and adds a file with all of them.
A file counts once its commit is completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.errors import CorruptFile
from lakebed.model import HOODIE, LATEST_SCHEMA, has_completion_times
from lakebed.storage.base import Storage
from lakebed.timeline.schema_versions import (
    Version,
    first_version,
    history_text,
    next_version,
    parse_history,
    version_text,
)
from lakebed.timeline.timeline import Timeline

FOLDER = f"{HOODIE}/.schema"
_SUFFIX = ".schemacommit"


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """The versions in a history's file, the newest first."""

    path: str
    versions: tuple[Version, ...]

    def with_commit(self, instant: str, avro: str, renamed: Mapping[str, str] | None = None) -> tuple[Version, ...]:
        """The versions after a commit that changes the table's Avro schema to `avro` (empty: leaves it), the newest
        first."""
        if not avro:
            return self.versions
        newest = next_version(self.versions[0], avro, int(instant), renamed)
        return self.versions if newest is self.versions[0] else (newest, *self.versions)


def stored_history(storage: Storage, timeline: Timeline) -> StoredHistory | None:
    """The newest file of the schema history whose commit is completed; None if there is none."""
    paths = [info.path for info in storage.list(FOLDER, recursive=False) if info.path.endswith(_SUFFIX)]
    completed = {time: path for path in paths if (time := _time(path)) and timeline.is_committed(time)}
    if not completed:
        return None
    active = [time for time in completed if time in timeline.commit_times]
    path = completed[max(active or completed)]
    return StoredHistory(path, parse_history(storage.read(path), path))


def continued(
    storage: Storage, timeline: Timeline, instant: str, avro: str, renamed: Mapping[str, str] | None = None
) -> tuple[Version, ...]:
    """The versions of a table with a history after a commit that changes its Avro schema to `avro`, the newest
    first."""
    history = stored_history(storage, timeline)
    if history is None:
        raise CorruptFile(
            f"the table has a schema history, and {FOLDER} has no file of a completed commit",
            hint="restore the folder from a copy",
            context={"path": FOLDER},
        )
    return history.with_commit(instant, avro, renamed)


def begun(before: str, after: str, instant: str, renamed: Mapping[str, str]) -> tuple[Version, ...]:
    """The versions of a table that gets its history by this commit, the newest first."""
    first = first_version(before)
    newest = next_version(first, after, int(instant), renamed)
    return (first,) if newest is first else (newest, first)


def write_history(
    storage: Storage, timeline: Timeline, instant: str, completion: str, versions: Sequence[Version]
) -> dict[str, str]:
    """Write the history's file of a commit that is not completed yet, and return the entries for the commit's metadata.
    Files of commits that were taken back are removed."""
    times = {i.time for i in timeline.instants}
    for info in storage.list(FOLDER, recursive=False):
        time = _time(info.path)
        if time and time != instant and time not in times and not timeline.is_committed(time):
            storage.delete(info.path)
    stem = f"{FOLDER}/{instant}{_SUFFIX}"
    for pending in (f"{stem}.requested", f"{stem}.inflight"):
        storage.write(pending, b"")
    named = f"{FOLDER}/{instant}_{completion}{_SUFFIX}" if has_completion_times(timeline.config.version) else stem
    storage.write(named, history_text(versions).encode())
    return {LATEST_SCHEMA: version_text(versions[0])}


def _time(path: str) -> str:
    time = path.rpartition("/")[2].split(".")[0].split("_")[0]
    return time if time.isdigit() else ""
