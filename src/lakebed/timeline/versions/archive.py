"""The archived timeline in the form of another layout: the LSM history as log archive, the log archive as history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakebed.format.avro.encoder import write_avro_file
from lakebed.model import Action, State
from lakebed.timeline.actions import decode_action
from lakebed.timeline.archive import LogArchive, LsmHistory
from lakebed.timeline.archive_writer import HISTORY, log_entry, write_history, write_log_archive
from lakebed.timeline.avro_schemas import schema_text
from lakebed.timeline.commit_metadata import UNKNOWN_OPERATION, commit_from_record, encode_commit
from lakebed.timeline.instants import completes_as
from lakebed.timeline.listed import COMMITS, Key
from lakebed.timeline.table_config import TableConfig
from lakebed.timeline.timeline import Timeline

# Instants in a file of a history that is made from a log archive.
_ROWS_A_FILE = 100
_ACTIONS = {action.value: action for action in Action}
# What a plan in the history was requested as, by the operation that a completed commit names.
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


def copy_archive(timeline: Timeline, config: TableConfig, times: Mapping[Key, str]) -> None:
    """Write the archived instants in the layout of `config`, which has no archive yet; `times` are the completion times
    of all. Only what completed is carried over: what did not has left nothing."""
    storage, folder = timeline.storage, config.archive_folder
    if timeline.config.layout == config.layout:
        raise ValueError("the archive is in this layout")
    if config.layout == 2:
        rows = list(_history_rows(LogArchive(storage, timeline.config), times))
        parts = (rows[first : first + _ROWS_A_FILE] for first in range(0, len(rows), _ROWS_A_FILE))
        write_history(storage, folder, (pa.Table.from_pylist(part, HISTORY) for part in parts))
        return
    history = LsmHistory(storage, timeline.config)
    seen: set[Key] = set()
    for number, file in enumerate(sorted(history.files, key=lambda f: (f.first, f.last)), 1):
        rows = history.rows(file).sort_by([("instantTime", "ascending"), ("action", "ascending")]).to_pylist()
        entries = [entry for row in rows for entry in _entries(row, f"{folder}/{file.name}", seen)]
        write_log_archive(storage, folder, number, entries)


def _entries(row: Mapping[str, Any], path: str, seen: set[Key]) -> Iterator[dict[str, Any]]:
    """The entries of one instant of the history: its plan, where it had one, and what completed."""
    time, action = row["instantTime"], _ACTIONS.get(row["action"])
    if action is None or (time, completes_as(action)) in seen:
        return
    seen.add((time, completes_as(action)))
    body, plan = decode_action(row["metadata"] or b"", path), decode_action(row["plan"] or b"", path)
    if plan:
        requested = _PLANNED_AS.get(str(body.get("operationType")), action)
        yield log_entry(time, requested, State.REQUESTED, plan)
    yield log_entry(time, action, State.COMPLETED, body)


def _history_rows(archive: LogArchive, times: Mapping[Key, str]) -> Iterator[dict[str, Any]]:
    """A row of the history for each instant that completed and whose body is there, in order."""
    found: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in archive.entries:
        action = _ACTIONS.get(entry.get("actionType") or "")
        if action is not None:
            found[entry.get("commitTime") or "", completes_as(action)].append(entry)
    for key, entries in sorted(found.items()):
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
