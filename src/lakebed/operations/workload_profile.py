"""The body of an inflight instant: the workload profile, per partition the inserts and per file group the updates."""

from __future__ import annotations

from lakebed.operations.assign import Assignment, PlannedGroup
from lakebed.operations.context import WriteContext
from lakebed.timeline.commit_metadata import PartitionProfile, encode_inflight


def encode_profile(context: WriteContext, operation: str, plan: Assignment) -> bytes:
    by_partition: dict[str, list[PlannedGroup]] = {}
    for group in plan.groups:
        by_partition.setdefault(group.partition, []).append(group)
    profile = [
        PartitionProfile(
            partition,
            sum(g.inserts for g in groups),
            [(g.target.file_id, g.target.slice.instant, g.updates) for g in groups if g.target.slice is not None],
        )
        for partition, groups in sorted(by_partition.items())
    ]
    return encode_inflight(operation, profile, context.config.version)
