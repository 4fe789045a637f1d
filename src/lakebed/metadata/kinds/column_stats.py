"""The kind `column_stats`: ranges and counts of columns in files."""

from __future__ import annotations

from lakebed.metadata.kinds.kind import MetadataKind
from lakebed.metadata.kinds.stats_merge import StatsUnion
from lakebed.metadata.layout import COLUMN_STATS

KIND = MetadataKind(COLUMN_STATS, file_id_start="col-stats", file_groups=2, union=StatsUnion(), build_position=10)
