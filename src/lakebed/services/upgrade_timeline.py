"""The timeline of a table in the layout of another version: instants under their other names, bodies in their other
form, the archive in its other files (the LSM history or the log archive).

The new files are written next to the old ones, where no reader looks for them before the table's properties name
them. Nothing is renamed: wherever it is cut off, one of the two timelines is complete.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakebed.errors import CommitConflict, ConflictKind
from lakebed.format.avro.encoder import write_avro_file
from lakebed.model import Action, Instant, State, has_completion_times
from lakebed.properties.table_config import TableConfig
from lakebed.storage.base import Storage
from lakebed.storage.parallel import is_remote, parallel_map
from lakebed.timeline.archive import LogArchive, LsmHistory, with_header
from lakebed.timeline.archive_writer import (
    ARCHIVE_FILE,
    HISTORY,
    LOG_ARCHIVE,
    log_entry,
    write_history,
    write_log_archive,
)
from lakebed.timeline.bodies.commit import UNKNOWN_OPERATION, commit_from_record, decode_commit, encode_commit
from lakebed.timeline.bodies.encoding import schema_text
from lakebed.timeline.bodies.rollback import decode_action
from lakebed.timeline.instants import (
    completed_name,
    completes_as,
    following,
    inflight_name,
    parse_instant_file,
    requested_name,
)
from lakebed.timeline.timeline import COMMITS, Key, Timeline, key_of

# Instants in a file of a history that is made from a log archive.
_ROWS_A_FILE = 100
_ACTIONS = {action.value: action for action in Action}
# The action of a plan in the history, by the operation that its completed commit names.
_PLANNED_AS = {"COMPACT": Action.COMPACTION, "LOG_COMPACT": Action.LOGCOMPACTION}
# The fields of an entry that hold what completed, and plans, with their schemas.
_BODIES = {
    "hoodieCleanMetadata": "HoodieCleanMetadata",
    "hoodieRollbackMetadata": "HoodieRollbackMetadata",
    "hoodieSavePointMetadata": "HoodieSavepointMetadata",
}
_COMMIT_BODIES = ("hoodieCommitMetadata", "hoodieReplaceCommitMetadata")
_PLANS = {
    "hoodieCompactionPlan": "HoodieCompactionPlan",
    "hoodieCleanerPlan": "HoodieCleanerPlan",
    "hoodieRequestedReplaceMetadata": "HoodieRequestedReplaceMetadata",
}


def copy_archive(
    timeline: Timeline, config: TableConfig, times: Mapping[Key, str], lock_is_held: Callable[[], bool]
) -> None:
    """Write the archived instants in the layout of `config`, which has no archive yet; `times` are the completion times
    of all. Only completed instants are copied: others have left no files."""
    storage, folder = timeline.storage, config.archive_folder
    if timeline.config.layout == config.layout:
        raise ValueError("the archive is in this layout")
    if config.layout == 2:
        rows = list(_history_rows(LogArchive(storage, timeline.config), times))
        parts = (rows[first : first + _ROWS_A_FILE] for first in range(0, len(rows), _ROWS_A_FILE))
        write_history(storage, folder, (pa.Table.from_pylist(part, HISTORY) for part in parts), lock_is_held)
        return
    history = LsmHistory(storage, timeline.config)
    written_keys: set[Key] = set()
    for number, file in enumerate(sorted(history.files, key=lambda f: (f.first, f.last)), 1):
        rows = history.rows(file).sort_by([("instantTime", "ascending"), ("action", "ascending")]).to_pylist()
        entries = [entry for row in rows for entry in _entries(row, f"{folder}/{file.name}", written_keys)]
        write_log_archive(storage, folder, number, entries)


def _entries(row: Mapping[str, Any], path: str, written: set[Key]) -> Iterator[dict[str, Any]]:
    """The entries of one instant of the history: its plan, if it had one, and the completed action."""
    time, action = row["instantTime"], _ACTIONS.get(row["action"])
    if action is None or (time, completes_as(action)) in written:
        return
    written.add((time, completes_as(action)))
    body, plan = (
        decode_action(with_header(row[column] or b"", row["action"], column, path), path)
        for column in ("metadata", "plan")
    )
    if plan:
        requested = _PLANNED_AS.get(str(body.get("operationType")), action)
        yield log_entry(time, requested, State.REQUESTED, plan)
    yield log_entry(time, action, State.COMPLETED, body)


def _history_rows(archive: LogArchive, times: Mapping[Key, str]) -> Iterator[dict[str, Any]]:
    """A row of the history for each instant that completed and whose body exists, in order."""
    entries_by_key: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in archive.entries:
        action = _ACTIONS.get(entry.get("actionType") or "")
        if action is not None:
            entries_by_key[entry.get("commitTime") or "", completes_as(action)].append(entry)
    for key, entries in sorted(entries_by_key.items()):
        completed = [e for e in entries if (e.get("actionState") or "COMPLETED") == State.COMPLETED.name]
        body = _completed_body(completed[-1], key[1]) if completed else None
        if body is None:
            continue
        yield {
            "instantTime": key[0],
            "completionTime": times[key],
            "action": key[1].value,
            "metadata": body,
            "plan": _plan(entries),
            "version": 1,
        }


def _completed_body(entry: Mapping[str, Any], action: Action) -> bytes | None:
    if action in COMMITS:
        record = next((entry[name] for name in _COMMIT_BODIES if entry.get(name)), None)
        record = record or {"operationType": UNKNOWN_OPERATION}
        return encode_commit(commit_from_record(record), 8, action)
    return next((_encoded(schema, entry[name]) for name, schema in _BODIES.items() if entry.get(name)), None)


def _plan(entries: Sequence[Mapping[str, Any]]) -> bytes | None:
    pending = [e for e in entries if (e.get("actionState") or "COMPLETED") != State.COMPLETED.name]
    return next((_encoded(s, e[name]) for e in pending for name, s in _PLANS.items() if e.get(name)), None)


def _encoded(schema: str, record: dict[str, Any]) -> bytes:
    return write_avro_file(schema_text(schema), record)


# An unfinished small file, on a file system where a file has a name while it is written.
_UNFINISHED = re.compile(r"^\.(\d{14,}|\.commits_\.archive|manifest_|_version_).*tmp$")
# Instants that are read and written at a time on a storage with slow answers.
_COPIERS = 16


def copy_timeline(timeline: Timeline, config: TableConfig, lock_is_held: Callable[[], bool]) -> tuple[int, int]:
    """Write all instants, including those of the archive, in the layout of `config`, the future settings of the table;
    returns the numbers of active and of archived instants. The caller holds the lock, and nothing is pending."""
    storage = timeline.storage
    remove_timeline(storage, config, lock_is_held)
    archived = [i for i in timeline.archived().instants if i.is_completed]
    times = completion_times((*archived, *timeline.completed))
    files = [(i, name) for name in timeline.files if (i := parse_instant_file(name, timeline.config.version))]
    threads = _COPIERS if is_remote(storage) else 1
    storage.make_folder(config.timeline_path)
    copies = [_Copy(timeline, config, instant, name, times) for instant, name in files]
    parallel_map(_Copy.write, copies, threads)
    copy_archive(timeline, config, times, lock_is_held)
    return len(timeline.instants), len(archived)


def remove_timeline(storage: Storage, config: TableConfig, lock_is_held: Callable[[], bool]) -> int:
    """Delete the timeline, including the archive, in the layout of `config`; returns the number of its instant files.
    Never call it for the layout that the table has, which another process may change as soon as the lock is lost."""

    names = [name for name in storage.list_names(config.timeline_path) if _is_of_timeline(name, config.version)]
    doomed = [f"{config.timeline_path}/{name}" for name in names]
    is_archive = ARCHIVE_FILE.fullmatch if config.layout == 2 else LOG_ARCHIVE.match
    archived = (
        name for name in storage.list_names(config.archive_folder) if is_archive(name) or _UNFINISHED.match(name)
    )
    for path in (*doomed, *(f"{config.archive_folder}/{name}" for name in archived)):
        if not lock_is_held():
            raise CommitConflict(
                f"the lock of {storage.url()} was lost while a timeline of another version was removed",
                hint="Another process took it after it expired. Run the upgrade or downgrade again.",
                kind=ConflictKind.LOCK_LOST,
            )
        storage.delete(path)
    if config.layout == 2 and next(storage.list(config.timeline_path), None) is None:
        storage.delete_folder(config.timeline_path)
    return len(names)


def _is_of_timeline(name: str, version: int) -> bool:
    return parse_instant_file(name, version) is not None or _UNFINISHED.match(name) is not None


def completion_times(completed: Iterable[Instant]) -> dict[Key, str]:
    """The completion time of each instant. Version 6 does not record it, and a file's time is lost when a table is
    copied. So each such instant gets a completion time right after its requested time, which preserves the order in
    which version 6 shows and merges them."""
    times: dict[Key, str] = {}
    last = ""
    for instant in sorted(completed, key=key_of):
        if instant.completion_time:
            times[key_of(instant)] = instant.completion_time
            continue
        time = following(instant.time) or instant.time
        last = time if time > last else following(last)
        times[key_of(instant)] = last
    return times


class _Copy:
    """One file of the timeline that is written in another layout."""

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
        """Whether a replacecommit is a clustering, which on version 6 only its plan shows."""
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
