"""Plans and bodies of rollbacks, restores and savepoints, with Hudi's field names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.format.avro.encoder import is_avro_file, read_avro_file, write_avro_file
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.format.text import parse_json_object
from lakebed.model import Action, FileGroupId, Instant, State, path_in
from lakebed.timeline.bodies.encoding import ACTION, check_shape, schema_text
from lakebed.wording import count_text


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The deletions that undo an instant: `files`, relative to the table. `logs` (version 6) are log files, with their
    sizes, in which a command block must hide the instant's blocks."""

    target: Instant
    files: tuple[str, ...] = ()
    logs: Mapping[str, int] = field(default_factory=dict[str, int])

    def __str__(self) -> str:
        hidden = f", blocks in {count_text(len(self.logs), 'log file')} hidden" if self.logs else ""
        files = count_text(len(self.files), "file")
        return f"rollback of {self.target.action} {self.target.time}: {files} deleted{hidden}"


def decode_action(data: bytes, path: str = "") -> dict[str, Any]:
    """The body of any timeline file as a record with Hudi's field names; empty for an empty file.

    Which record it is follows from the action and state: `HoodieCleanerPlan` for a requested clean, and so on. Raises
    `CorruptFile` naming `path`.
    """
    if not data:
        return {}
    record = read_avro_file(data, path) if is_avro_file(data) else parse_json_object(data, path, label="instant body")
    check_shape(record, ACTION, path)
    return record


def clustering_groups(plan: Mapping[str, Any]) -> frozenset[FileGroupId]:
    """The (partition, file id) of the file groups that a clustering plan replaces; empty for other plans."""
    return frozenset(
        (piece.get("partitionPath") or "", piece.get("fileId") or "")
        for group in (plan.get("clusteringPlan") or {}).get("inputGroups") or []
        for piece in group.get("slices") or []
    )


def rollback_target(plan: Mapping[str, Any]) -> str:
    """The requested time of the instant that a rollback plan undoes; empty if it names none."""
    time = str((plan.get("instantToRollback") or {}).get("commitTime") or "")
    return time if time.isascii() and time.isdigit() else ""


def rollback_files(plan: Mapping[str, Any]) -> list[str]:
    """The files a rollback plan deletes, relative to the table.

    Plans hold absolute paths in the spelling of their writer, so only partition path and name are taken.
    """
    return [
        _join(request.get("partitionPath") or "", file.rpartition("/")[2])
        for request in plan.get("RollbackRequests") or []
        for file in request.get("filesToBeDeleted") or []
    ]


def encode_requested_replace(operation: str | None = None) -> bytes:
    """The requested body of a replacecommit without a clustering plan. Hudi omits the operation for insert overwrite
    and names it for DELETE_PARTITION."""
    record = {
        "operationType": operation,
        "extraMetadata": {} if operation else None,
        "version": 1 if operation else None,
    }
    return write_avro_file(schema_text("HoodieRequestedReplaceMetadata"), record)


def encode_rollback_plan(root: str, plan: RollbackPlan) -> bytes:
    """The requested body of a rollback of the table at `root`."""
    requests = [_rollback_request(_plain(root), plan.target, path, None) for path in plan.files]
    requests += [_rollback_request(_plain(root), plan.target, path, size) for path, size in plan.logs.items()]
    record = {"instantToRollback": _instant_info(plan.target), "RollbackRequests": requests, "version": 1}
    return write_avro_file(schema_text("HoodieRollbackPlan"), record)


def rollback_logs(plan: Mapping[str, Any]) -> dict[str, int]:
    """The log files, relative to the table, whose blocks a version 6 rollback plan hides, with their sizes.

    Plans made from markers hold names, those made by listing absolute paths.
    """
    return {
        _join(request.get("partitionPath") or "", name.rpartition("/")[2]): size
        for request in plan.get("RollbackRequests") or []
        for name, size in (request.get("logBlocksToBeDeleted") or {}).items()
    }


def command_log_names(record: Mapping[str, Any]) -> set[str]:
    """The names of the log files with command blocks that a completed rollback wrote (version 6)."""
    parts = (record.get("partitionMetadata") or {}).values()
    return {path.rpartition("/")[2] for part in parts for path in part.get("rollbackLogFiles") or ()}


def encode_rollback_metadata(
    root: str,
    plan: RollbackPlan,
    instant: str,
    deleted: Sequence[str],
    millis: int,
    command_logs: Mapping[str, int] | None = None,
) -> bytes:
    """The completed body of a rollback that has deleted the plan's files, of which `deleted` existed. `command_logs`
    are the log files with the command blocks (version 6), with their sizes."""
    record = {
        "startRollbackTime": instant,
        "timeTakenInMillis": millis,
        "totalFilesDeleted": len(deleted),
        "commitsRollback": [plan.target.time],
        "partitionMetadata": _rolled_back(root, plan, command_logs or {}),
        "version": 1,
        "instantsRollback": [_instant_info(plan.target)],
    }
    return write_avro_file(schema_text("HoodieRollbackMetadata"), record)


def _rollback_request(root: str, target: Instant, path: str, log_size: int | None) -> dict[str, Any]:
    """A request to delete a file, or (with its size) to hide the instant's blocks of a log file."""
    partition, name = _split(path)
    return {
        "partitionPath": partition,
        "fileId": _file_id(partition, name),
        "latestBaseInstant": target.time if log_size is None else _base_instant(partition, name),
        "filesToBeDeleted": [_join(root, path)] if log_size is None else [],
        "logBlocksToBeDeleted": {} if log_size is None else {name: log_size},
    }


def _rolled_back(root: str, plan: RollbackPlan, command_logs: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = {}

    def entry(path: str) -> dict[str, Any]:
        partition = _split(path)[0]
        empty = {"successDeleteFiles": [], "failedDeleteFiles": [], "rollbackLogFiles": {}}
        return entries.setdefault(partition, {"partitionPath": partition, **empty, "logFilesFromFailedCommit": {}})

    for path in plan.files:
        entry(path)["successDeleteFiles"].append(_join(_plain(root), path))
    for path, size in command_logs.items():
        entry(path)["rollbackLogFiles"][_join(root.rstrip("/"), path)] = size
    for path, size in plan.logs.items():
        entry(path)["logFilesFromFailedCommit"][_split(path)[1]] = size
    return entries


def _instant_info(instant: Instant) -> dict[str, str]:
    return {"commitTime": instant.time, "action": instant.action.value}


def _file_id(partition: str, name: str) -> str:
    file = parse_base_file(partition, name, 0) or parse_log_file(partition, name, 0)
    return file.file_id if file else ""


def _base_instant(partition: str, name: str) -> str:
    """The instant in a log file's name, which on version 6 is that of its slice's base file."""
    file = parse_log_file(partition, name, 0)
    return file.instant if file else ""


def _split(path: str) -> tuple[str, str]:
    partition, _, name = path.rpartition("/")
    return partition, name


def _join(folder: str, name: str) -> str:
    return path_in(folder, name)


def _plain(root: str) -> str:
    """The table's URL without the slash at its end; local paths have no scheme, as in Hudi."""
    return root.removeprefix("file://").rstrip("/")


_PLAN_VERSION = 2
_ACTIONS = frozenset(action.value for action in Action)


def encode_restore_plan(instants: Sequence[Instant], to: str) -> bytes:
    """The requested body of a restore to the instant `to`, which takes these back in this order."""
    record = {
        "instantsToRollback": [_info(instant) for instant in instants],
        "version": _PLAN_VERSION,
        "savepointToRestoreTimestamp": to,
    }
    return write_avro_file(schema_text("HoodieRestorePlan"), record)


def planned_rollbacks(plan: Mapping[str, Any]) -> list[Instant]:
    """The instants that the plan of a restore rolls back, in the plan's order. All are returned as pending, in whatever
    state they are."""
    instants: list[Instant] = []
    for info in plan.get("instantsToRollback") or ():
        time, action = (info.get("commitTime"), info.get("action")) if isinstance(info, dict) else (None, None)
        if isinstance(time, str) and time.isdigit() and action in _ACTIONS:
            instants.append(Instant(time, Action(action), State.INFLIGHT))
    return instants


def undone_by_restore(body: Mapping[str, Any]) -> Sequence[str]:
    """The requested times of the instants that a completed restore rolled back, by its body."""
    return [str(time) for time in body.get("instantsToRollback") or ()]


def restored_instant(plan: Mapping[str, Any]) -> str:
    """The requested time of the instant to which a restore returns; empty if its plan does not have it."""
    return str(plan.get("savepointToRestoreTimestamp") or "")


def encode_restore_metadata(
    instant: str, instants: Sequence[Instant], rollbacks: Mapping[str, Sequence[Mapping[str, Any]]], millis: int
) -> bytes:
    """The completed body of the restore `instant`, with the decoded bodies of the rollbacks of each instant."""
    record = {
        "startRestoreTime": instant,
        "timeTakenInMillis": millis,
        "instantsToRollback": [i.time for i in instants],
        "hoodieRestoreMetadata": {time: list(bodies) for time, bodies in rollbacks.items()},
        "version": 1,
        "restoreInstantInfo": [_info(i) for i in instants],
    }
    return write_avro_file(schema_text("HoodieRestoreMetadata"), record)


def _info(instant: Instant) -> dict[str, str]:
    return {"commitTime": instant.time, "action": instant.action.value}


def encode_savepoint(files: Mapping[str, Sequence[str]], *, user: str, comment: str, at_millis: int) -> bytes:
    """The completed body of a savepoint of these files: their names by partition path."""
    record = {
        "savepointedBy": user,
        "savepointedAt": at_millis,
        "comments": comment,
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": list(names)}
            for partition, names in files.items()
        },
        "version": 1,
    }
    return write_avro_file(schema_text("HoodieSavepointMetadata"), record)


def savepointed_names(record: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The names of the files that a savepoint keeps, by partition path."""
    parts: Mapping[str, Mapping[str, Any]] = record.get("partitionMetadata") or {}
    return {
        (part.get("partitionPath") or ""): tuple(
            name.rpartition("/")[2] for name in part.get("savepointDataFile") or ()
        )
        for part in parts.values()
    }


def savepointed_paths(record: Mapping[str, Any]) -> list[str]:
    """The paths, relative to the table, of the files that a savepoint keeps."""
    return [path_in(partition, name) for partition, names in savepointed_names(record).items() for name in names]
