"""Plans of clustering: which file slices are written anew together, in the bodies that Hudi reads and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lakebed.format.avro.encoder import write_avro_file
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.model import FileSlice, path_in
from lakebed.timeline.avro_schemas import schema_text
from lakebed.timeline.service_plans import CompactionOperation, cost_metrics
from lakebed.wording import count_text

Layout = Literal["LINEAR", "ZORDER", "HILBERT"]
LAYOUTS: tuple[Layout, ...] = ("LINEAR", "ZORDER", "HILBERT")

_STRATEGIES = "org.apache.hudi.client.clustering.run.strategy."
_SORT_AND_SIZE = _STRATEGIES + "SparkSortAndSizeExecutionStrategy"
_SINGLE_FILE_SORT = _STRATEGIES + "SparkSingleFileSortExecutionStrategy"
_CONSISTENT_BUCKETS = _STRATEGIES + "SparkConsistentBucketClusteringExecutionStrategy"
_SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
# Hudi's plans leave it to whoever runs them; one of lakebed's is run as it was planned.
_LAYOUT = "hoodie.layout.optimize.strategy"
_PLAN_VERSION = 1


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """File slices of one partition path whose rows are written together, to about `outputs` new file groups; `extra`
    is what the table's index has to say of those."""

    slices: tuple[FileSlice, ...]
    outputs: int = 1
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def partition(self) -> str:
        return self.slices[0].partition


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """The groups of a clustering and the order of the rows that it writes: by `sort_columns` one after another, or
    along a curve through all of them; without any as they come. With `single_file` each slice becomes one file, which
    goes by the bucket of the old one. `missing` are partition paths that are left to the next one."""

    groups: tuple[ClusteringGroup, ...]
    sort_columns: tuple[str, ...] = ()
    layout: Layout = "LINEAR"
    single_file: bool = False
    missing: tuple[str, ...] | None = ()

    def __str__(self) -> str:
        slices = [one for group in self.groups for one in group.slices]
        size = sum(one.size for one in slices)
        outputs = sum(group.outputs for group in self.groups)
        order = f", {_ORDERS[self.layout]} {', '.join(self.sort_columns)}" if self.sort_columns else ""
        read, written = count_text(len(slices), "file slice"), count_text(outputs, "file")
        return f"clustering of {read} of {size} bytes into about {written}{order}"


_ORDERS: Mapping[Layout, str] = {"LINEAR": "sorted by", "ZORDER": "in Z-order of", "HILBERT": "in Hilbert order of"}


@dataclass(frozen=True, slots=True)
class ClusteringOperation:
    """A group of a plan on the timeline: its slices by the names of their files, and what an index says of it."""

    slices: tuple[CompactionOperation, ...]
    outputs: int
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def partition(self) -> str:
        return self.slices[0].partition


@dataclass(frozen=True, slots=True)
class PlannedClustering:
    """A plan as it is read from the timeline; `layout` is None where it does not say."""

    operations: tuple[ClusteringOperation, ...]
    sort_columns: tuple[str, ...]
    layout: Layout | None
    single_file: bool


def encode_clustering_plan(root: str, plan: ClusteringPlan) -> bytes:
    """The requested body of a clustering of the table at `root`."""
    params = {_SORT_COLUMNS: ",".join(plan.sort_columns)} if plan.sort_columns else {}
    if plan.layout != "LINEAR":
        params[_LAYOUT] = plan.layout
    clustering = {
        "inputGroups": [_group(root, group) for group in plan.groups],
        "strategy": {
            "strategyClassName": _strategy(plan),
            "strategyParams": params,
            "version": _PLAN_VERSION,
        },
        "extraMetadata": {},
        "version": _PLAN_VERSION,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": None if plan.missing is None else list(plan.missing),
    }
    record = {
        "operationType": "CLUSTER",
        "clusteringPlan": clustering,
        "extraMetadata": {},
        "version": _PLAN_VERSION,
    }
    return write_avro_file(schema_text("HoodieRequestedReplaceMetadata"), record)


def _strategy(plan: ClusteringPlan) -> str:
    """The class by which Hudi runs the plan."""
    if any(group.extra for group in plan.groups):
        return _CONSISTENT_BUCKETS
    return _SINGLE_FILE_SORT if plan.single_file else _SORT_AND_SIZE


def planned_clustering(plan: Mapping[str, Any]) -> PlannedClustering:
    """What a decoded plan asks for, real Hudi's too."""
    clustering: Mapping[str, Any] = plan.get("clusteringPlan") or {}
    strategy: Mapping[str, Any] = clustering.get("strategy") or {}
    params: Mapping[str, str] = strategy.get("strategyParams") or {}
    layout = params.get(_LAYOUT, "").upper()
    return PlannedClustering(
        tuple(_operation(group) for group in clustering.get("inputGroups") or () if group.get("slices")),
        tuple(name for text in params.get(_SORT_COLUMNS, "").split(",") if (name := text.strip())),
        layout if layout in LAYOUTS else None,
        (strategy.get("strategyClassName") or "").endswith(_SINGLE_FILE_SORT.rpartition(".")[2]),
    )


def _operation(group: Mapping[str, Any]) -> ClusteringOperation:
    outputs = max(1, group.get("numOutputFileGroups") or 1)
    return ClusteringOperation(tuple(map(_slice, group["slices"])), outputs, group.get("extraMetadata") or {})


def _slice(info: Mapping[str, Any]) -> CompactionOperation:
    partition = info.get("partitionPath") or ""
    base = (info.get("dataFilePath") or "").rpartition("/")[2]
    logs = tuple(path.rpartition("/")[2] for path in info.get("deltaFilePaths") or ())
    return CompactionOperation(partition, info.get("fileId") or "", _instant(partition, base, logs), base, logs)


def _instant(partition: str, base: str, logs: Sequence[str]) -> str:
    """The instant of a slice, which the plan leaves to the names of its files."""
    file = parse_base_file(partition, base, 0) if base else None
    if file is not None:
        return file.instant
    parsed = (parse_log_file(partition, name, 0) for name in logs)
    return min((log.instant for log in parsed if log is not None), default="")


def _group(root: str, group: ClusteringGroup) -> dict[str, Any]:
    return {
        "slices": [_slice_info(root, one) for one in group.slices],
        "metrics": cost_metrics(group.slices),
        "numOutputFileGroups": group.outputs,
        "extraMetadata": dict(group.extra) or None,
        "version": _PLAN_VERSION,
    }


def _slice_info(root: str, one: FileSlice) -> dict[str, Any]:
    folder = root.removeprefix("file://").rstrip("/")

    def absolute(name: str) -> str:
        return f"{folder}/{path_in(one.partition, name)}"

    return {
        "dataFilePath": absolute(one.base_file.name) if one.base_file else "",
        # newest first
        "deltaFilePaths": [absolute(log.name) for log in reversed(one.log_files)],
        "fileId": one.file_id,
        "partitionPath": one.partition,
        "bootstrapFilePath": "",
        "version": _PLAN_VERSION,
    }
