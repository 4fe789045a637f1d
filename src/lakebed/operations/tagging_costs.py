"""What the cost model of tagging says of one batch and one table, from what is known without opening a data file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lakebed.index.costs import Batch, TaggingCosts
from lakebed.metadata.kinds.record_index import data_partition_of
from lakebed.metadata.layout import RECORD_INDEX
from lakebed.operations.context import WriteContext
from lakebed.slices.row_size import of_stored
from lakebed.slices.snapshot import Snapshot


def tagging_costs(
    context: WriteContext, snapshot: Snapshot, keys: int, partitions: Collection[str]
) -> TaggingCosts | None:
    """What finding so many keys of rows in these partition paths costs; None for a table without base files.

    A global index finds a key wherever it is, so it stands beside the global simple one; the others look into these
    partition paths alone.
    """
    index = context.index
    everywhere = index.is_global
    files = snapshot.base_files() if everywhere else snapshot.base_files(set(partitions) & set(snapshot.partitions()))
    if not snapshot.commits or not files:
        return None
    rows = round(sum(file.size for file in files) / of_stored(snapshot))
    batch = Batch(keys, len(files), rows, **_of_index(snapshot, None if everywhere else partitions))
    return TaggingCosts.of(index.name, batch, simple="global_simple" if everywhere else "simple")


def _of_index(snapshot: Snapshot, partitions: Collection[str] | None) -> dict[str, Any]:
    """Shards, files and bytes of the record index, if the table has one that speaks of these partition paths."""
    metadata = snapshot.metadata
    if metadata is None or not metadata.has(RECORD_INDEX):
        return {}
    slices = [
        s
        for s in metadata.slices.file_slices(RECORD_INDEX)
        if (path := data_partition_of(s.file_id)) is None or partitions is None or path in partitions
    ]
    sizes = [f.size for s in slices for f in (*([s.base_file] if s.base_file else []), *s.log_files)]
    if not sizes:
        return {}
    return {"shards": len(slices), "index_files": len(sizes), "index_bytes": sum(sizes)}
