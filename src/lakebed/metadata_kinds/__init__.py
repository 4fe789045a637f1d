"""The partitions of the metadata table: one file for each kind.

A kind of one's own is one more module with a `PartitionKind`, and its name here. The order is that in which the records
of an action are written.
"""

from lakebed.metadata_kinds import (
    bloom_filters,
    column_stats,
    expression_index,
    files,
    record_index,
    secondary_index,
)
from lakebed.metadata_kinds.registry import register

for _kind in (
    files.KIND,
    column_stats.COLUMN_STATS_KIND,
    column_stats.PARTITION_STATS_KIND,
    bloom_filters.KIND,
    expression_index.KIND,
    record_index.KIND,
    secondary_index.KIND,
):
    register(_kind)
