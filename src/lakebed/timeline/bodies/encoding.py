"""How bodies of instants are written and checked: the Avro schemas as Hudi's Java classes embed them
(`schemas/*.avsc`), JSON laid out as Hudi's Java writer does, and the fields that lakebed reads with their types.

Bodies of version 6 are JSON of any shape, and an Avro body comes with its own schema, so types are checked after
decoding.
"""

from __future__ import annotations

import json
from functools import cache
from pkgutil import get_data
from typing import Any, cast

from lakebed.errors import CorruptFile

EACH = "*"
"""In a shape: every entry of a map."""

_NAMES = {str: "a text", int: "a whole number", bool: "a boolean"}
_Shape = type | list[Any] | dict[str, Any]
_TEXTS: dict[str, Any] = {EACH: str}
_LISTS: dict[str, Any] = {EACH: [str]}
_INSTANT = {"commitTime": str, "action": str, "timestamp": str, "state": str}
_SLICE = {
    "partitionPath": str,
    "fileId": str,
    "baseInstantTime": str,
    "dataFilePath": str,
    "deltaFilePaths": [str],
    "bootstrapFilePath": str,
}
_ROLLBACK_REQUEST = {
    "partitionPath": str,
    "fileId": str,
    "latestBaseInstant": str,
    "filesToBeDeleted": [str],
    "logBlocksToBeDeleted": {EACH: int},
}
_OF_PARTITION = {
    "partitionPath": str,
    "deletePathPatterns": [str],
    "successDeleteFiles": [str],
    "failedDeleteFiles": [str],
    "rollbackLogFiles": {EACH: int},
    "logFilesFromFailedCommit": {EACH: int},
    "savepointDataFile": [str],
}
_WRITE_STAT = {
    "fileId": str,
    "path": str,
    "prevCommit": str,
    "prevBaseFile": str,
    "numWrites": int,
    "numInserts": int,
    "numUpdateWrites": int,
    "numDeletes": int,
    "fileSizeInBytes": int,
    "runtimeStats": {"totalCreateTime": int, "totalUpsertTime": int},
    "logVersion": int,
    "logOffset": int,
    "baseFile": str,
    "logFiles": [str],
    "cdcStats": {EACH: int},
}
COMMIT: dict[str, Any] = {
    "partitionToWriteStats": {EACH: [_WRITE_STAT]},
    "partitionToReplaceFileIds": _LISTS,
    "extraMetadata": _TEXTS,
    "operationType": str,
}
"""Bodies of commits, delta commits and replace commits."""

# Names are never used for two things at this level, so one shape serves all.
ACTION: dict[str, Any] = {
    **COMMIT,
    "clusteringPlan": {"inputGroups": [{"slices": [_SLICE]}]},
    "operations": [_SLICE],
    "instantToRollback": _INSTANT,
    "RollbackRequests": [_ROLLBACK_REQUEST],
    "savepointToRestoreTimestamp": str,
    "savepointedBy": str,
    "savepointedAt": int,
    "comments": str,
    "instantsRollback": [_INSTANT],
    "commitsRollback": [str],
    "earliestInstantToRetain": _INSTANT,
    "lastCompletedCommitTimestamp": str,
    "policy": str,
    "filesToBeDeletedPerPartition": _LISTS,
    "filePathsToBeDeletedPerPartition": {EACH: [{"filePath": str}]},
    "partitionsToBeDeleted": [str],
    "partitionMetadata": {EACH: _OF_PARTITION},
    "indexPartitionInfos": [{"metadataPartitionPath": str, "indexUptoInstant": str, "extraMetadata": _TEXTS}],
}
"""Plans and bodies of every action."""

ARCHIVED: dict[str, Any] = {
    "commitTime": str,
    "actionType": str,
    "actionState": str,
    "hoodieCommitMetadata": COMMIT,
    "hoodieReplaceCommitMetadata": COMMIT,
    "hoodieCompactionPlan": ACTION,
    "hoodieCleanerPlan": ACTION,
    "hoodieRequestedReplaceMetadata": ACTION,
}
"""Entries of version 6's archive."""


def check_shape(value: Any, shape: Any, path: str, where: str = "") -> None:
    """Raise `CorruptFile` with `path` and the field if a field that is present and not null has the wrong type. `where`
    names the field that has the value."""
    if isinstance(shape, type):
        if type(value) is not shape:
            raise _corrupt(path, where, value, _NAMES[shape])
        return
    if isinstance(shape, list):
        if not isinstance(value, list):
            raise _corrupt(path, where, value, "a list")
        (item,) = shape
        for entry in value:
            check_shape(entry, item, path, where)
        return
    if not isinstance(value, dict):
        raise _corrupt(path, where, value, "an object")
    fields = cast("dict[str, Any]", value)
    every = shape.get(EACH)
    pairs = (
        [(name, entry, every) for name, entry in fields.items()]
        if every is not None
        else [(name, fields.get(name), inner) for name, inner in shape.items()]
    )
    for name, entry, inner in pairs:
        # most values are of a plain type and right
        if entry is not None and type(entry) is not inner:
            check_shape(entry, inner, path, f"{where}.{name}" if where else name)


def _corrupt(path: str, where: str, value: Any, expected: str) -> CorruptFile:
    path = path or "this instant's body"
    return CorruptFile(
        f"{path}: {where or 'the body'} is {value!r:.60}, not {expected}",
        hint="The file was changed since it was written; restore it from a copy.",
        context={"path": path, "field": where},
    )


def pretty_json(value: Any, depth: int = 0) -> str:
    """A JSON text in Hudi's layout: an object takes several lines, with two blanks per level and ` : ` after keys; a
    list takes one line.

    >>> print(pretty_json({"a": [1, 2], "b": {}}))
    {
      "a" : [ 1, 2 ],
      "b" : { }
    }
    """
    if isinstance(value, dict):
        return _object(cast("dict[str, Any]", value), depth)
    if isinstance(value, list | tuple):
        items = ", ".join([pretty_json(item, depth) for item in cast("list[Any]", value)])
        return f"[ {items} ]" if items else "[ ]"
    if value is None:
        return "null"
    if type(value) is int:
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _object(fields: dict[str, Any], depth: int) -> str:
    if not fields:
        return "{ }"
    indent = "  " * (depth + 1)
    lines = [
        f"{indent}{json.dumps(key, ensure_ascii=False)} : {pretty_json(v, depth + 1)}" for key, v in fields.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n" + "  " * depth + "}"


_SCHEMAS = (
    "HoodieArchivedMetaEntry",
    "HoodieCleanMetadata",
    "HoodieCleanerPlan",
    "HoodieCommitMetadata",
    "HoodieCompactionPlan",
    "HoodieIndexCommitMetadata",
    "HoodieIndexPlan",
    "HoodieReplaceCommitMetadata",
    "HoodieRequestedReplaceMetadata",
    "HoodieRestoreMetadata",
    "HoodieRestorePlan",
    "HoodieRollbackMetadata",
    "HoodieRollbackPlan",
    "HoodieSavepointMetadata",
)
# read as the module is imported: later the process may be short of file descriptors
_SCHEMA_TEXTS = {
    name: (get_data("lakebed.timeline.bodies", f"schemas/{name}.avsc") or b"").decode() for name in _SCHEMAS
}


@cache
def schema_text(name: str) -> str:
    """The schema of a record such as `HoodieCommitMetadata` as compact JSON.

    >>> schema_text("HoodieRollbackPlan")[:44]
    '{"type":"record","name":"HoodieRollbackPlan"'
    """
    return json.dumps(json.loads(_SCHEMA_TEXTS[name]), separators=(",", ":"))
