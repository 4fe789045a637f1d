"""The timeline of a table in the layout of another version: instants under their other names, bodies in their other
form, the archive in its other files.

The new files come beside the old ones, where nobody looks for them before the table's properties say so. Nothing is
renamed: whatever is cut off, one of the two timelines is whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from lakebed.errors import CommitConflict
from lakebed.model import Action, Instant, State, has_completion_times
from lakebed.storage.base import Storage
from lakebed.storage.parallel import is_remote, parallel_map
from lakebed.timeline.archive_writer import ARCHIVE_FILE, LOG_ARCHIVE
from lakebed.timeline.clock import following
from lakebed.timeline.commit_metadata import decode_commit, encode_commit
from lakebed.timeline.instants import completed_name, completes_as, inflight_name, parse_instant_file, requested_name
from lakebed.timeline.listed import COMMITS, Key, key_of
from lakebed.timeline.table_config import TableConfig
from lakebed.timeline.timeline import Timeline
from lakebed.timeline.versions.archive import copy_archive

# A small file that was not finished, on a file system where it has a name before it is.
_UNFINISHED = re.compile(r"^\.(\d{14,}|\.commits_\.archive|manifest_|_version_).*tmp$")
# Instants that are read and written at a time where an answer is long under way.
_COPIERS = 16


def copy_timeline(timeline: Timeline, config: TableConfig, still_mine: Callable[[], bool]) -> tuple[int, int]:
    """Write all instants, those of the archive too, in the layout of `config`, the settings that the table is to have;
    gives how many there are of both. Lock held, and nothing pending."""
    storage = timeline.storage
    remove_timeline(storage, config, still_mine)
    archived = [i for i in timeline.archived().instants if i.is_completed]
    times = completion_times((*archived, *timeline.completed))
    files = [(i, name) for name in timeline.files if (i := parse_instant_file(name, timeline.config.version))]
    threads = _COPIERS if is_remote(storage) else 1
    storage.make_folder(config.timeline_path)
    copies = [_Copy(timeline, config, instant, name, times) for instant, name in files]
    parallel_map(_Copy.write, copies, threads)
    copy_archive(timeline, config, times)
    return len(timeline.instants), len(archived)


def remove_timeline(storage: Storage, config: TableConfig, still_mine: Callable[[], bool] = lambda: True) -> int:
    """Delete the timeline, archive and all, that the layout of `config` has; gives how many files of instants it had.
    Never call it for the layout that the table has, which another process may change as soon as the lock is lost."""

    names = [name for name in storage.list_names(config.timeline_path) if _is_of_timeline(name, config.version)]
    doomed = [f"{config.timeline_path}/{name}" for name in names]
    is_archive = ARCHIVE_FILE.fullmatch if config.layout == 2 else LOG_ARCHIVE.match
    archived = (
        name for name in storage.list_names(config.archive_folder) if is_archive(name) or _UNFINISHED.match(name)
    )
    for path in (*doomed, *(f"{config.archive_folder}/{name}" for name in archived)):
        if not still_mine():
            raise CommitConflict(
                f"the lock of {storage.url()} was lost while a timeline of another version was removed",
                hint="Another process took it after it expired. Run the upgrade or downgrade again.",
            )
        storage.delete(path)
    if config.layout == 2 and next(storage.list(config.timeline_path), None) is None:
        storage.delete_folder(config.timeline_path)
    return len(names)


def _is_of_timeline(name: str, version: int) -> bool:
    return parse_instant_file(name, version) is not None or _UNFINISHED.match(name) is not None


def completion_times(completed: Iterable[Instant]) -> dict[Key, str]:
    """When each instant completed. Version 6 does not say (a file's time is lost when a table is copied): they complete
    right after they were requested, and so in the order in which version 6 shows and merges them."""
    found: dict[Key, str] = {}
    last = ""
    for instant in sorted(completed, key=key_of):
        if instant.completion_time:
            found[key_of(instant)] = instant.completion_time
            continue
        time = following(instant.time) or instant.time
        last = time if time > last else following(last)
        found[key_of(instant)] = last
    return found


class _Copy:
    """One file of the timeline, to be written in another layout."""

    def __init__(
        self, timeline: Timeline, config: TableConfig, instant: Instant, name: str, times: Mapping[Key, str]
    ) -> None:
        self._timeline, self._config, self._instant, self._name, self._times = timeline, config, instant, name, times

    def write(self) -> None:
        storage = self._timeline.storage
        storage.write(f"{self._config.timeline_path}/{self._new_name()}", self._body())

    def _new_name(self) -> str:
        instant, version = self._instant, self._config.version
        if instant.state is State.COMPLETED:
            return completed_name(instant.action, instant.time, self._times[key_of(instant)], version)
        action = Action.CLUSTERING if self._is_clustering() else instant.action
        named = requested_name if instant.state is State.REQUESTED else inflight_name
        return named(action, instant.time, version)

    def _is_clustering(self) -> bool:
        """Whether a replacecommit is a clustering, which only its plan tells on version 6."""
        instant, timeline = self._instant, self._timeline
        if instant.action is not Action.REPLACECOMMIT or has_completion_times(timeline.config.version):
            return False
        return bool(timeline.plan(instant).get("clusteringPlan"))

    def _body(self) -> bytes:
        instant, timeline = self._instant, self._timeline
        if instant.state is State.COMPLETED and instant.action in COMMITS:
            return encode_commit(timeline.commit_metadata(instant), self._config.version, instant.action)
        path = f"{timeline.config.timeline_path}/{self._name}"
        body = timeline.storage.read(path)
        if instant.state is State.INFLIGHT and body and completes_as(instant.action) is instant.action in COMMITS:
            return encode_commit(decode_commit(body, path), self._config.version, Action.COMMIT)
        return body
