"""The metadata table as it goes to tasks."""

from __future__ import annotations

from dataclasses import replace

from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.store.slices import MetadataSlices
from lakebed.timeline.timeline import Timeline


def to_be_sent(metadata: MetadataTable, partition: str) -> MetadataTable:
    """The metadata table with no more than looking into one partition takes: timelines and its file slices."""
    slices = metadata.slices
    listed = slices.file_slices(partition)
    bare = MetadataSlices(
        slices.storage,
        slices.config,
        _bare(slices.timeline),
        slices.data_storage,
        slices.data_config,
        _bare(slices.data_timeline),
        {partition: listed},
    )
    return MetadataTable(bare)


def _bare(timeline: Timeline) -> Timeline:
    """A timeline without what it has read and listed: its instants alone."""
    return replace(timeline, listed=timeline.listed.without_files())
