"""The bodies of an indexing: which partitions of the metadata table are to be built beside writers, and were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.format.avro.encoder import write_avro_file
from lakebed.timeline.avro_schemas import schema_text
from lakebed.timeline.timeline import Timeline

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
    record = {"version": _VERSION, "indexPartitionInfos": [one.record() for one in indexes]}
    return write_avro_file(schema_text("HoodieIndexPlan"), record)


def encode_index_metadata(indexes: Sequence[PlannedIndex]) -> bytes:
    """The completed body of an indexing that has built these."""
    infos = [one.record() for one in indexes]
    record = {"version": _VERSION, "operationType": None, "indexPartitionInfos": infos}
    return write_avro_file(schema_text("HoodieIndexCommitMetadata"), record)


def planned_indexes(plan: Mapping[str, Any]) -> list[PlannedIndex]:
    """What a decoded plan (or the body of a completed indexing) names."""
    return [
        PlannedIndex(
            info.get("metadataPartitionPath") or "", info.get("indexUptoInstant") or "", info.get("extraMetadata") or {}
        )
        for info in plan.get("indexPartitionInfos") or ()
    ]


def last_before_pending(timeline: Timeline) -> str:
    """The last completed commit before the first pending instant; empty where there is none."""
    first = min((i.time for i in timeline.pending), default="9")
    return max((i.time for i in timeline.commits if i.time < first), default="")
