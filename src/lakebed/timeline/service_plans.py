"""Plans and results of the table services: compaction and cleaning, in the bodies that Hudi reads and finishes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lakebed.format.avro.encoder import write_avro_file
from lakebed.model import FileSlice, Instant
from lakebed.timeline.avro_schemas import schema_text
from lakebed.wording import count_text

# In plans and results of cleans: the savepoints that kept files from it.
SAVEPOINTED = "savepointed_timestamps"
_PLAN_VERSION = 2
_MEGABYTE = 1 << 20
# What Hudi expects a base file to become where there is none yet.
_NEW_BASE_MEGABYTES = 120


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file group of a compaction plan: its slice's instant, base file (a name, or empty) and log files (names)."""

    partition: str
    file_id: str
    instant: str
    base_file: str
    log_files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The file slices that a compaction, or a log compaction, merges; `missing` are partition paths that it leaves to
    the next one, None where plans do not remember any."""

    slices: tuple[FileSlice, ...]
    missing: tuple[str, ...] | None = ()
    is_log_compaction: bool = False

    def __str__(self) -> str:
        kind = "log compaction" if self.is_log_compaction else "compaction"
        logs = [log.size for file_slice in self.slices for log in file_slice.log_files]
        slices, files = count_text(len(self.slices), "file slice"), count_text(len(logs), "log file")
        return f"{kind} of {slices} with {files}, {sum(logs)} bytes"


class CleaningPolicy(StrEnum):
    """What cleaning goes by."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """What cleaning deletes, as names by partition path, and the first commit (if any) that it keeps whole.
    `partitions` are paths that have nothing left then, `savepoints` those that kept files from it."""

    files: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    earliest: Instant | None = None
    last_completed: str = ""
    policy: CleaningPolicy = CleaningPolicy.KEEP_LATEST_COMMITS
    partitions: tuple[str, ...] = ()
    savepoints: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many files go."""
        return sum(map(len, self.files.values()))

    def __str__(self) -> str:
        kept = f", what {self.earliest.time} and later commits see is kept" if self.earliest else ""
        files, partitions = count_text(self.count, "file"), count_text(len(self.files), "partition")
        return f"clean of {files} in {partitions} by {self.policy}{kept}"


def encode_compaction_plan(plan: CompactionPlan) -> bytes:
    """The requested body of a compaction or log compaction."""
    strategy = {"compactorClassName": _LOG_COMPACTOR, "strategyParams": {}, "version": 1}
    record = {
        "operations": [_operation(file_slice) for file_slice in plan.slices],
        "extraMetadata": {},
        "version": _PLAN_VERSION,
        "strategy": strategy if plan.is_log_compaction else None,
        "preserveHoodieMetadata": plan.is_log_compaction,
        "missingSchedulePartitions": None if plan.missing is None else list(plan.missing),
    }
    return write_avro_file(schema_text("HoodieCompactionPlan"), record)


def compaction_operations(plan: Mapping[str, Any]) -> list[CompactionOperation]:
    """The operations of a decoded compaction plan."""
    return [
        CompactionOperation(
            entry.get("partitionPath") or "",
            entry.get("fileId") or "",
            entry.get("baseInstantTime") or "",
            (entry.get("dataFilePath") or "").rpartition("/")[2],
            tuple(path.rpartition("/")[2] for path in entry.get("deltaFilePaths") or ()),
        )
        for entry in plan.get("operations") or ()
    ]


def encode_clean_plan(root: str, plan: CleanPlan) -> bytes:
    """The requested body of a clean of the table at `root`."""
    earliest = plan.earliest
    paths = {
        partition: [{"filePath": _absolute(root, partition, name), "isBootstrapBaseFile": False} for name in names]
        for partition, names in plan.files.items()
    }
    record = {
        "earliestInstantToRetain": earliest
        and {"timestamp": earliest.time, "action": earliest.action.value, "state": earliest.state.name},
        "lastCompletedCommitTimestamp": plan.last_completed,
        "policy": plan.policy.value,
        "filesToBeDeletedPerPartition": {},
        "version": _PLAN_VERSION,
        "filePathsToBeDeletedPerPartition": paths,
        "partitionsToBeDeleted": list(plan.partitions),
        "extraMetadata": {SAVEPOINTED: ",".join(plan.savepoints)} if plan.savepoints else {},
    }
    return write_avro_file(schema_text("HoodieCleanerPlan"), record)


def clean_files(plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names, by partition path, that a decoded clean plan deletes."""
    paths: Mapping[str, Any] = plan.get("filePathsToBeDeletedPerPartition") or {}
    found = {
        part: [info["filePath"].rpartition("/")[2] for info in infos if info.get("filePath")]
        for part, infos in paths.items()
    }
    old: Mapping[str, Any] = plan.get("filesToBeDeletedPerPartition") or {}
    return found or {part: [name.rpartition("/")[2] for name in names] for part, names in old.items()}


def encode_clean_metadata(instant: str, plan: Mapping[str, Any], millis: int, *, gone: Collection[str] = ()) -> bytes:
    """The completed body of a clean that has carried this decoded plan out; `gone` are the partition paths that it
    deleted."""
    files = clean_files(plan)
    partitions = {
        partition: {
            "partitionPath": partition,
            "policy": plan.get("policy") or CleaningPolicy.KEEP_LATEST_COMMITS.value,
            "deletePathPatterns": names,
            "successDeleteFiles": names,
            "failedDeleteFiles": [],
            "isPartitionDeleted": partition in gone,
        }
        for partition, names in files.items()
    }
    record = {
        "startCleanTime": instant,
        "timeTakenInMillis": millis,
        "totalFilesDeleted": sum(map(len, files.values())),
        "earliestCommitToRetain": (plan.get("earliestInstantToRetain") or {}).get("timestamp") or "",
        "lastCompletedCommitTimestamp": plan.get("lastCompletedCommitTimestamp") or "",
        "partitionMetadata": partitions,
        "version": _PLAN_VERSION,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(plan.get("extraMetadata") or {}),
    }
    return write_avro_file(schema_text("HoodieCleanMetadata"), record)


# its name alone tells the two kinds of plans apart
_LOG_COMPACTOR = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"


@dataclass(frozen=True, slots=True)
class CompactionCost:
    """What the compaction of a slice reads and writes, as Hudi reckons it: whole megabytes."""

    log_bytes: int
    read_megabytes: int
    written_megabytes: int

    @classmethod
    def of(cls, file_slice: FileSlice) -> CompactionCost:
        base = file_slice.base_file
        log_bytes = sum(log.size for log in file_slice.log_files)
        read = ((base.size if base else 0) + log_bytes) // _MEGABYTE
        return cls(log_bytes, read, base.size // _MEGABYTE if base else _NEW_BASE_MEGABYTES)

    @property
    def megabytes(self) -> int:
        return self.read_megabytes + self.written_megabytes


def cost_metrics(slices: Sequence[FileSlice]) -> dict[str, float]:
    """What Hudi's plans say of the work on some slices together."""
    costs = [CompactionCost.of(file_slice) for file_slice in slices]
    return {
        "TOTAL_LOG_FILES": float(sum(len(file_slice.log_files) for file_slice in slices)),
        "TOTAL_IO_MB": float(sum(cost.megabytes for cost in costs)),
        "TOTAL_IO_READ_MB": float(sum(cost.read_megabytes for cost in costs)),
        "TOTAL_LOG_FILES_SIZE": float(sum(cost.log_bytes for cost in costs)),
        "TOTAL_IO_WRITE_MB": float(sum(cost.written_megabytes for cost in costs)),
    }


def _operation(file_slice: FileSlice) -> dict[str, Any]:
    base, logs = file_slice.base_file, file_slice.log_files
    return {
        "baseInstantTime": file_slice.instant,
        "deltaFilePaths": [log.name for log in logs],
        "dataFilePath": base.name if base else None,
        "fileId": file_slice.file_id,
        "partitionPath": file_slice.partition,
        "metrics": cost_metrics([file_slice]),
        "bootstrapFilePath": None,
    }


def _absolute(root: str, partition: str, name: str) -> str:
    folder = root.removeprefix("file://").rstrip("/")
    return f"{folder}/{partition}/{name}" if partition else f"{folder}/{name}"
