"""Plans and results of the table services: compaction, cleaning, clustering and indexing, in the bodies that Hudi
reads and finishes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from lakebed.format.avro.encoder import write_avro_file
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.model import FileSlice, Instant, path_in
from lakebed.timeline.bodies.encoding import schema_text
from lakebed.timeline.timeline import Timeline
from lakebed.wording import count_text

# In plans and results of cleans: the savepoints that kept files from it.
SAVEPOINTED = "savepointed_timestamps"
# The same for the consumers that more files are retained for.
RETAINED_FOR = "lakebed.retained.for.consumers"
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
    """The file slices that a compaction, or a log compaction, merges; `missing` are partition paths that are left to
    the next one, None if plans do not record them."""

    slices: tuple[FileSlice, ...]
    missing: tuple[str, ...] | None = ()
    is_log_compaction: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The numbers of this compaction plan as plain values, for JSON."""
        logs = [log.size for file_slice in self.slices for log in file_slice.log_files]
        return {"file_groups": len(self.slices), "log_files": len(logs), "log_bytes": sum(logs)}

    def __str__(self) -> str:
        kind = "log compaction" if self.is_log_compaction else "compaction"
        logs = [log.size for file_slice in self.slices for log in file_slice.log_files]
        slices, files = count_text(len(self.slices), "file slice"), count_text(len(logs), "log file")
        return f"{kind} of {slices} with {files}, {sum(logs)} bytes"


class CleaningPolicy(StrEnum):
    """The policy by which cleaning decides what it retains."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """The files that a clean deletes, as names by partition path, and the first commit (if any) that it retains
    completely. `partitions` are paths that have no files afterwards, `savepoints` those that prevent further deletions,
    `consumers` the names of consumers that hold back more files."""

    files: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    earliest: Instant | None = None
    last_completed: str = ""
    policy: CleaningPolicy = CleaningPolicy.KEEP_LATEST_COMMITS
    partitions: tuple[str, ...] = ()
    savepoints: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of files that the clean deletes."""
        return sum(map(len, self.files.values()))

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "files": {partition: list(names) for partition, names in self.files.items()},
            "deleted_partitions": list(self.partitions),
            "earliest_kept": self.earliest.time if self.earliest else "",
            "policy": self.policy.value,
            "consumers": list(self.consumers),
        }

    def __str__(self) -> str:
        earliest_text = f", what {self.earliest.time} and later commits see is kept" if self.earliest else ""
        files, partitions = count_text(self.count, "file"), count_text(len(self.files), "partition")
        return f"clean of {files} in {partitions} by {self.policy}{earliest_text}{retained_text(self.consumers)}"


def retained_text(consumers: Sequence[str]) -> str:
    """The end of a line about a clean from which consumers hold files back; empty without such consumers."""
    names = ", ".join(map(repr, consumers))
    return f"; more is retained for {'consumer' if len(consumers) == 1 else 'consumers'} {names}" if consumers else ""


@dataclass(frozen=True, slots=True)
class RequestedBody:
    """The body of a requested instant of a service: its `record`, with Hudi's field names, of an Avro schema."""

    schema: str
    record: dict[str, Any]

    def encode(self) -> bytes:
        """The bytes of the requested file."""
        return write_avro_file(schema_text(self.schema), self.record)


def compaction_body(plan: CompactionPlan) -> RequestedBody:
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
    return RequestedBody("HoodieCompactionPlan", record)


def compaction_operations(plan: Mapping[str, Any]) -> list[CompactionOperation]:
    """The operations of a decoded compaction plan."""
    return [
        CompactionOperation(
            entry.get("partitionPath") or "",
            entry.get("fileId") or "",
            entry.get("baseInstantTime") or "",
            (entry.get("dataFilePath") or "").rpartition("/")[2],
            tuple([path.rpartition("/")[2] for path in entry.get("deltaFilePaths") or ()]),
        )
        for entry in plan.get("operations") or ()
    ]


def clean_body(root: str, plan: CleanPlan) -> RequestedBody:
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
        "extraMetadata": {
            name: ",".join(values)
            for name, values in ((SAVEPOINTED, plan.savepoints), (RETAINED_FOR, plan.consumers))
            if values
        },
    }
    return RequestedBody("HoodieCleanerPlan", record)


def clean_files(plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names, by partition path, that a decoded clean plan deletes."""
    paths: Mapping[str, Any] = plan.get("filePathsToBeDeletedPerPartition") or {}
    names_by_partition = {
        part: [info["filePath"].rpartition("/")[2] for info in infos if info.get("filePath")]
        for part, infos in paths.items()
    }
    old: Mapping[str, Any] = plan.get("filesToBeDeletedPerPartition") or {}
    return names_by_partition or {part: [name.rpartition("/")[2] for name in names] for part, names in old.items()}


def encode_clean_metadata(
    instant: str, plan: Mapping[str, Any], millis: int, *, deleted_partitions: Collection[str] = ()
) -> bytes:
    """The completed body of a clean that has run this decoded plan; `deleted_partitions` are the partition paths that
    it deleted."""
    files = clean_files(plan)
    partitions = {
        partition: {
            "partitionPath": partition,
            "policy": plan.get("policy") or CleaningPolicy.KEEP_LATEST_COMMITS.value,
            "deletePathPatterns": names,
            "successDeleteFiles": names,
            "failedDeleteFiles": [],
            "isPartitionDeleted": partition in deleted_partitions,
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


# its name alone distinguishes the two kinds of plans
_LOG_COMPACTOR = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"


TOTAL_MEGABYTES = "TOTAL_IO_MB"


def cost_metrics(slices: Sequence[FileSlice]) -> dict[str, float]:
    """The work that some slices take, in the form of Hudi's plans: a compaction reads and writes whole megabytes of
    each slice."""
    log_files = log_bytes = read = written = 0
    for file_slice in slices:
        base, of_logs = file_slice.base_file, file_slice.log_bytes
        log_files += len(file_slice.log_files)
        log_bytes += of_logs
        read += ((base.size if base else 0) + of_logs) // _MEGABYTE
        written += base.size // _MEGABYTE if base else _NEW_BASE_MEGABYTES
    return {
        "TOTAL_LOG_FILES": float(log_files),
        TOTAL_MEGABYTES: float(read + written),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_LOG_FILES_SIZE": float(log_bytes),
        "TOTAL_IO_WRITE_MB": float(written),
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


Layout = Literal["LINEAR", "ZORDER", "HILBERT"]
LAYOUTS: tuple[Layout, ...] = ("LINEAR", "ZORDER", "HILBERT")

_STRATEGIES = "org.apache.hudi.client.clustering.run.strategy."
_SORT_AND_SIZE = _STRATEGIES + "SparkSortAndSizeExecutionStrategy"
_SINGLE_FILE_SORT = _STRATEGIES + "SparkSingleFileSortExecutionStrategy"
_CONSISTENT_BUCKETS = _STRATEGIES + "SparkConsistentBucketClusteringExecutionStrategy"
_SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
# Hudi's plans leave this to the process that runs them; a plan of lakebed is run as it was planned.
_LAYOUT = "hoodie.layout.optimize.strategy"
_CLUSTERING_PLAN_VERSION = 1


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """File slices of one partition path whose rows are written together, to about `outputs` new file groups; `extra` is
    the metadata that the table's index adds."""

    slices: tuple[FileSlice, ...]
    outputs: int = 1
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def partition(self) -> str:
        return self.slices[0].partition


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """The groups of a clustering and the order of the rows that it writes: by `sort_columns` one after another, or
    along a curve through all of them; in their stored order without any. With `single_file` each slice becomes one
    file, which belongs to the bucket of the old one. `missing` are partition paths that are left to the next one."""

    groups: tuple[ClusteringGroup, ...]
    sort_columns: tuple[str, ...] = ()
    layout: Layout = "LINEAR"
    single_file: bool = False
    missing: tuple[str, ...] | None = ()

    def to_dict(self) -> dict[str, Any]:
        """The numbers and the row order of this clustering plan as plain values, for JSON."""
        slices = [file_slice for group in self.groups for file_slice in group.slices]
        return {
            "groups": len(self.groups),
            "slices": len(slices),
            "bytes": sum(file_slice.size for file_slice in slices),
            "files": sum(group.outputs for group in self.groups),
            "sort_columns": list(self.sort_columns),
            "layout": self.layout,
        }

    def __str__(self) -> str:
        slices = [file_slice for group in self.groups for file_slice in group.slices]
        size = sum(file_slice.size for file_slice in slices)
        outputs = sum(group.outputs for group in self.groups)
        order = f", {_ORDERS[self.layout]} {', '.join(self.sort_columns)}" if self.sort_columns else ""
        read, written = count_text(len(slices), "file slice"), count_text(outputs, "file")
        return f"clustering of {read} of {size} bytes into about {written}{order}"


_ORDERS: Mapping[Layout, str] = {"LINEAR": "sorted by", "ZORDER": "in Z-order of", "HILBERT": "in Hilbert order of"}


@dataclass(frozen=True, slots=True)
class ClusteringOperation:
    """A group of a plan on the timeline: its slices by the names of their files, and the metadata that an index adds to
    it."""

    slices: tuple[CompactionOperation, ...]
    outputs: int
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def partition(self) -> str:
        return self.slices[0].partition


@dataclass(frozen=True, slots=True)
class PlannedClustering:
    """A plan as it is read from the timeline; `layout` is None if it does not have one."""

    operations: tuple[ClusteringOperation, ...]
    sort_columns: tuple[str, ...]
    layout: Layout | None
    single_file: bool


def clustering_body(root: str, plan: ClusteringPlan) -> RequestedBody:
    """The requested body of a clustering of the table at `root`."""
    params = {_SORT_COLUMNS: ",".join(plan.sort_columns)} if plan.sort_columns else {}
    if plan.layout != "LINEAR":
        params[_LAYOUT] = plan.layout
    clustering = {
        "inputGroups": [_group(root, group) for group in plan.groups],
        "strategy": {
            "strategyClassName": _strategy(plan),
            "strategyParams": params,
            "version": _CLUSTERING_PLAN_VERSION,
        },
        "extraMetadata": {},
        "version": _CLUSTERING_PLAN_VERSION,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": None if plan.missing is None else list(plan.missing),
    }
    record = {
        "operationType": "CLUSTER",
        "clusteringPlan": clustering,
        "extraMetadata": {},
        "version": _CLUSTERING_PLAN_VERSION,
    }
    return RequestedBody("HoodieRequestedReplaceMetadata", record)


def _strategy(plan: ClusteringPlan) -> str:
    """The name of the Java class that runs the plan in Hudi."""
    if any(group.extra for group in plan.groups):
        return _CONSISTENT_BUCKETS
    return _SINGLE_FILE_SORT if plan.single_file else _SORT_AND_SIZE


def planned_clustering(plan: Mapping[str, Any]) -> PlannedClustering:
    """The clustering that a decoded plan describes, also one of real Hudi."""
    clustering: Mapping[str, Any] = plan.get("clusteringPlan") or {}
    strategy: Mapping[str, Any] = clustering.get("strategy") or {}
    params: Mapping[str, str] = strategy.get("strategyParams") or {}
    layout = params.get(_LAYOUT, "").upper()
    return PlannedClustering(
        tuple(_clustering_operation(group) for group in clustering.get("inputGroups") or () if group.get("slices")),
        tuple(name for text in params.get(_SORT_COLUMNS, "").split(",") if (name := text.strip())),
        layout if layout in LAYOUTS else None,
        (strategy.get("strategyClassName") or "").endswith(_SINGLE_FILE_SORT.rpartition(".")[2]),
    )


def _clustering_operation(group: Mapping[str, Any]) -> ClusteringOperation:
    outputs = max(1, group.get("numOutputFileGroups") or 1)
    return ClusteringOperation(tuple(map(_slice, group["slices"])), outputs, group.get("extraMetadata") or {})


def _slice(info: Mapping[str, Any]) -> CompactionOperation:
    partition = info.get("partitionPath") or ""
    base = (info.get("dataFilePath") or "").rpartition("/")[2]
    logs = tuple(path.rpartition("/")[2] for path in info.get("deltaFilePaths") or ())
    return CompactionOperation(partition, info.get("fileId") or "", _instant(partition, base, logs), base, logs)


def _instant(partition: str, base: str, logs: Sequence[str]) -> str:
    """The instant of a slice, taken from the names of its files since the plan does not have it."""
    file = parse_base_file(partition, base, 0) if base else None
    if file is not None:
        return file.instant
    parsed = (parse_log_file(partition, name, 0) for name in logs)
    return min((log.instant for log in parsed if log is not None), default="")


def _group(root: str, group: ClusteringGroup) -> dict[str, Any]:
    return {
        "slices": [_slice_info(root, file_slice) for file_slice in group.slices],
        "metrics": cost_metrics(group.slices),
        "numOutputFileGroups": group.outputs,
        "extraMetadata": dict(group.extra) or None,
        "version": _CLUSTERING_PLAN_VERSION,
    }


def _slice_info(root: str, file_slice: FileSlice) -> dict[str, Any]:
    folder = root.removeprefix("file://").rstrip("/")

    def absolute(name: str) -> str:
        return f"{folder}/{path_in(file_slice.partition, name)}"

    return {
        "dataFilePath": absolute(file_slice.base_file.name) if file_slice.base_file else "",
        # newest first
        "deltaFilePaths": [absolute(log.name) for log in reversed(file_slice.log_files)],
        "fileId": file_slice.file_id,
        "partitionPath": file_slice.partition,
        "bootstrapFilePath": "",
        "version": _CLUSTERING_PLAN_VERSION,
    }


_VERSION = 1


@dataclass(frozen=True, slots=True)
class PlannedIndex:
    """A partition of the metadata table that is to be built; `upto` is the last commit before everything that was
    pending when that was planned."""

    partition: str
    upto: str
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    def record(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "metadataPartitionPath": self.partition,
            "indexUptoInstant": self.upto,
            "extraMetadata": dict(self.extra),
        }


def encode_index_plan(indexes: Sequence[PlannedIndex]) -> bytes:
    """The requested body of an indexing."""
    record = {"version": _VERSION, "indexPartitionInfos": [index.record() for index in indexes]}
    return write_avro_file(schema_text("HoodieIndexPlan"), record)


def encode_index_metadata(indexes: Sequence[PlannedIndex]) -> bytes:
    """The completed body of an indexing that has built these indexes."""
    infos = [index.record() for index in indexes]
    record = {"version": _VERSION, "operationType": None, "indexPartitionInfos": infos}
    return write_avro_file(schema_text("HoodieIndexCommitMetadata"), record)


def planned_indexes(plan: Mapping[str, Any]) -> list[PlannedIndex]:
    """The indexes that a decoded plan (or the body of a completed indexing) names."""
    return [
        PlannedIndex(
            info.get("metadataPartitionPath") or "", info.get("indexUptoInstant") or "", info.get("extraMetadata") or {}
        )
        for info in plan.get("indexPartitionInfos") or ()
    ]


def last_before_pending(timeline: Timeline) -> str:
    """The last completed commit before the first pending instant; empty if there is none."""
    first = min((i.time for i in timeline.pending), default="9")
    return max((i.time for i in timeline.commits if i.time < first), default="")
