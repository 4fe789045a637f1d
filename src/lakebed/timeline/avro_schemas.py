"""The Avro schemas of the timeline bodies that lakebed writes, text for text as Hudi's Java classes embed them.

Bodies are always decoded with the schema embedded in the file; these are for encoding only.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

_Type = str | dict[str, Any] | list[Any]
_STRING: dict[str, Any] = {"type": "string", "avro.java.string": "String"}
_NAMESPACE = "org.apache.hudi.avro.model"


@cache
def schema_text(name: str) -> str:
    """The schema of a record such as `HoodieCommitMetadata` as compact JSON.

    >>> schema_text("HoodieRollbackPlan")[:44]
    '{"type":"record","name":"HoodieRollbackPlan"'
    """
    return json.dumps(_BODIES[name](), separators=(",", ":"))


def _record(name: str, *fields: dict[str, Any], top: bool = False) -> dict[str, Any]:
    space = {"namespace": _NAMESPACE} if top else {}
    return {"type": "record", "name": name, **space, "fields": list(fields)}


def _field(name: str, kind: _Type, **default: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **default}


def _optional(name: str, kind: _Type, doc: str = "") -> dict[str, Any]:
    described = {"doc": doc} if doc else {}
    return _field(name, ["null", kind], **described, default=None)


def _array(items: _Type, **default: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **default}


def _map(values: _Type, **default: Any) -> dict[str, Any]:
    return {"type": "map", "values": values, "avro.java.string": "String", **default}


def _version() -> dict[str, Any]:
    return _field("version", ["int", "null"], default=1)


def _longs(*names: str) -> list[dict[str, Any]]:
    return [_optional(name, "long") for name in names]


def _write_stat() -> dict[str, Any]:
    return _record(
        "HoodieWriteStat",
        *[_optional(name, _STRING) for name in ("fileId", "path", "prevCommit")],
        *_longs("numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes", "totalWriteErrors"),
        _optional("partitionPath", _STRING),
        *_longs("totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted", "numInserts"),
        *_longs("totalLogBlocks", "totalCorruptLogBlock", "totalRollbackBlocks", "fileSizeInBytes"),
        _optional("logVersion", "int"),
        _optional("logOffset", "long"),
        _optional("baseFile", _STRING),
        _optional("logFiles", _array(_STRING, default=None)),
        _optional("cdcStats", _map("long", default=None)),
        _optional("prevBaseFile", _STRING),
        *_longs("minEventTime", "maxEventTime"),
        _optional(
            "runtimeStats",
            _record("HoodieRuntimeStats", *_longs("totalScanTime", "totalCreateTime", "totalUpsertTime")),
        ),
        *_longs("totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted"),
        _optional("tempPath", _STRING),
        _optional("numUpdates", "long"),
    )


def _commit_fields(**extra_default: Any) -> list[dict[str, Any]]:
    return [
        _optional("partitionToWriteStats", _map(_array(_write_stat()))),
        _optional("compacted", "boolean"),
        _optional("extraMetadata", _map(_STRING, **extra_default)),
        _version(),
        _optional("operationType", _STRING),
    ]


def _commit() -> dict[str, Any]:
    return _record("HoodieCommitMetadata", *_commit_fields(default=None), top=True)


def _replace_commit() -> dict[str, Any]:
    replaced = _optional("partitionToReplaceFileIds", _map(_array(_STRING)))
    return _record("HoodieReplaceCommitMetadata", *_commit_fields(), replaced, top=True)


def _clustering_plan() -> dict[str, Any]:
    slice_info = _record(
        "HoodieSliceInfo",
        _optional("dataFilePath", _STRING),
        _optional("deltaFilePaths", _array(_STRING)),
        _field("fileId", ["null", _STRING]),
        _optional("partitionPath", _STRING),
        _optional("bootstrapFilePath", _STRING),
        _version(),
    )
    group = _record(
        "HoodieClusteringGroup",
        _optional("slices", _array(slice_info)),
        _optional("metrics", _map("double")),
        _field("numOutputFileGroups", ["int", "null"], default=1),
        _optional("extraMetadata", _map(_STRING)),
        _version(),
    )
    strategy = _record(
        "HoodieClusteringStrategy",
        _optional("strategyClassName", _STRING),
        _optional("strategyParams", _map(_STRING)),
        _version(),
    )
    return _record(
        "HoodieClusteringPlan",
        _optional("inputGroups", _array(group)),
        _optional("strategy", strategy),
        _optional("extraMetadata", _map(_STRING)),
        _version(),
        _optional("preserveHoodieMetadata", "boolean"),
        _optional("missingSchedulePartitions", _array(_STRING)),
    )


def _requested_replace() -> dict[str, Any]:
    return _record(
        "HoodieRequestedReplaceMetadata",
        _optional("operationType", _STRING),
        _optional("clusteringPlan", _clustering_plan()),
        _optional("extraMetadata", _map(_STRING)),
        _version(),
        top=True,
    )


def _instant_info() -> dict[str, Any]:
    return _record("HoodieInstantInfo", _field("commitTime", _STRING), _field("action", _STRING))


def _rollback_plan() -> dict[str, Any]:
    request = _record(
        "HoodieRollbackRequest",
        _field("partitionPath", _STRING),
        _optional("fileId", _STRING),
        _optional("latestBaseInstant", _STRING),
        _field("filesToBeDeleted", _array(_STRING, default=[]), default=[]),
        _optional("logBlocksToBeDeleted", _map("long")),
    )
    return _record(
        "HoodieRollbackPlan",
        _optional("instantToRollback", _instant_info(), doc="Hoodie instant that needs to be rolled back"),
        _optional("RollbackRequests", _array(request)),
        _version(),
        top=True,
    )


def _rollback_metadata() -> dict[str, Any]:
    partition = _record(
        "HoodieRollbackPartitionMetadata",
        _field("partitionPath", _STRING),
        _field("successDeleteFiles", _array(_STRING)),
        _field("failedDeleteFiles", _array(_STRING)),
        _optional("rollbackLogFiles", _map("long")),
        _optional("logFilesFromFailedCommit", _map("long")),
    )
    return _record(
        "HoodieRollbackMetadata",
        _field("startRollbackTime", _STRING),
        _field("timeTakenInMillis", "long"),
        _field("totalFilesDeleted", "int"),
        _field("commitsRollback", _array(_STRING)),
        _field("partitionMetadata", _map(partition)),
        _version(),
        _field("instantsRollback", _array(_instant_info(), default=[]), default=[]),
        top=True,
    )


def _compaction_plan() -> dict[str, Any]:
    operation = _record(
        "HoodieCompactionOperation",
        _field("baseInstantTime", ["null", _STRING]),
        _optional("deltaFilePaths", _array(_STRING)),
        _optional("dataFilePath", _STRING),
        _field("fileId", ["null", _STRING]),
        _optional("partitionPath", _STRING),
        _optional("metrics", _map("double")),
        _optional("bootstrapFilePath", _STRING),
    )
    strategy = _record(
        "HoodieCompactionStrategy",
        _optional(
            "compactorClassName",
            _STRING,
            doc="The class name that is provided here should extend CompactionExecutionStrategy abstract class, idea "
            "is that the plan generator will also provide the execution strategy to use.",
        ),
        _optional(
            "strategyParams",
            _map(_STRING),
            doc="These parameters play a key role in determining which action type it is i.e. compaction or "
            "logcompaction and it will also include configs that determine how compaction needs to be executed.",
        ),
        _version(),
    )
    return _record(
        "HoodieCompactionPlan",
        _optional("operations", _array(operation)),
        _optional("extraMetadata", _map(_STRING)),
        _version(),
        _optional("strategy", strategy),
        _field("preserveHoodieMetadata", ["boolean", "null"], default=False),
        _optional("missingSchedulePartitions", _array(_STRING)),
        top=True,
    )


def _cleaner_plan() -> dict[str, Any]:
    instant = _record("HoodieActionInstant", *[_field(name, _STRING) for name in ("timestamp", "action", "state")])
    file_info = _record(
        "HoodieCleanFileInfo", _optional("filePath", _STRING), _optional("isBootstrapBaseFile", "boolean")
    )
    return _record(
        "HoodieCleanerPlan",
        _optional("earliestInstantToRetain", instant),
        _field("lastCompletedCommitTimestamp", _STRING, default=""),
        _field("policy", _STRING),
        _optional("filesToBeDeletedPerPartition", _map(_array(_STRING))),
        _version(),
        _optional(
            "filePathsToBeDeletedPerPartition",
            _map(_array(file_info)),
            doc="This field replaces the field filesToBeDeletedPerPartition",
        ),
        _optional("partitionsToBeDeleted", _array(_STRING), doc="partitions to be deleted"),
        _optional("extraMetadata", _map(_STRING, default=None)),
        top=True,
    )


def _clean_metadata() -> dict[str, Any]:
    partition = _record(
        "HoodieCleanPartitionMetadata",
        *[_field(name, _STRING) for name in ("partitionPath", "policy")],
        *[_field(name, _array(_STRING)) for name in ("deletePathPatterns", "successDeleteFiles", "failedDeleteFiles")],
        _optional("isPartitionDeleted", "boolean"),
    )
    return _record(
        "HoodieCleanMetadata",
        _field("startCleanTime", _STRING),
        _field("timeTakenInMillis", "long"),
        _field("totalFilesDeleted", "int"),
        _field("earliestCommitToRetain", _STRING),
        _field("lastCompletedCommitTimestamp", _STRING, default=""),
        _field("partitionMetadata", _map(partition)),
        _version(),
        _optional("bootstrapPartitionMetadata", _map("HoodieCleanPartitionMetadata", default=None)),
        _optional("extraMetadata", _map(_STRING, default=None)),
        top=True,
    )


def _archived_entry() -> dict[str, Any]:
    """The fields that an archived commit, replacecommit, clean, rollback or compaction sets; readers fill the others
    in."""
    clean, rollback, compaction, plan = (_clean_metadata(), _rollback_metadata(), _compaction_plan(), _cleaner_plan())
    replace = _record(
        "HoodieReplaceCommitMetadata",
        _optional("partitionToWriteStats", _map(_array("HoodieWriteStat"))),
        *_commit_fields()[1:],
        _optional("partitionToReplaceFileIds", _map(_array(_STRING))),
    )
    return _record(
        "HoodieArchivedMetaEntry",
        _optional("hoodieCommitMetadata", _commit()),
        _optional("hoodieCleanMetadata", clean),
        _optional("hoodieRollbackMetadata", rollback),
        *[_optional(name, _STRING) for name in ("commitTime", "actionType")],
        _version(),
        _optional("hoodieCompactionPlan", compaction),
        _optional("hoodieCleanerPlan", plan),
        _optional("actionState", _STRING),
        _optional("hoodieReplaceCommitMetadata", replace),
        _optional("hoodieRequestedReplaceMetadata", _requested_replace()),
        _optional("HoodieInflightReplaceMetadata", "HoodieCommitMetadata"),
        _optional("stateTransitionTime", _STRING),
        top=True,
    )


_BODIES = {
    "HoodieArchivedMetaEntry": _archived_entry,
    "HoodieCleanMetadata": _clean_metadata,
    "HoodieCleanerPlan": _cleaner_plan,
    "HoodieCommitMetadata": _commit,
    "HoodieCompactionPlan": _compaction_plan,
    "HoodieReplaceCommitMetadata": _replace_commit,
    "HoodieRequestedReplaceMetadata": _requested_replace,
    "HoodieRollbackPlan": _rollback_plan,
    "HoodieRollbackMetadata": _rollback_metadata,
}
