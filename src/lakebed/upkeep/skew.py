"""How evenly the entries of record and secondary indexes lie in their file groups (shards)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.log_file import BlockType
from lakebed.metadata.kinds.index_names import key_index_of
from lakebed.metadata.kinds.registry import kind_of
from lakebed.metadata.store.shard_growth import slice_bytes
from lakebed.metadata.store.slices import MetadataSlices
from lakebed.model import FileSlice
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map

SHARDS = pa.schema(
    [
        ("index", pa.string()),
        ("partition_path", pa.string()),
        ("file_id", pa.string()),
        ("entries", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


def shards(snapshot: Snapshot, name: str | None = None) -> pa.Table:
    """A row of `SHARDS` for each file group of one index (named as for `reshard_index`) or of all of that kind;
    partition paths are those of a partitioned record index.

    Costs a listing of each index, and the trailers and block headers of its files. Entries in log files are counted as
    they are: until compaction a key that was written again counts twice, a deleted one too.
    """
    metadata = snapshot.metadata
    if name is not None:
        partitions = [key_index_of(snapshot.config, name)]
    else:
        partitions = sorted(p for p in snapshot.config.metadata_partitions if kind_of(p).grows)
    if metadata is None or not partitions:
        return SHARDS.empty_table()
    view = metadata.slices
    slices = [file_slice for partition in partitions for file_slice in view.file_slices(partition)]
    entries = parallel_map(lambda file_slice: _entries(view, file_slice), slices)
    columns = [
        [s.partition for s in slices],
        [kind_of(s.partition).data_partition_of(s.file_id) for s in slices],
        [s.file_id for s in slices],
        entries,
        [slice_bytes(s) for s in slices],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SHARDS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SHARDS)


def summed_up(shards: pa.Table) -> pa.Table:
    """For each index (and partition path) its number of shards, the least, mean and largest of their entries and bytes,
    and `skew`: the largest number of entries over the mean, 1.0 for an even index (and an empty one)."""
    sums = [(column, how) for column in ("entries", "bytes") for how in ("min", "mean", "max")]
    by = ["index", "partition_path"]
    grouped = shards.group_by(by, use_threads=False).aggregate([("file_id", "count"), *sums])
    grouped = grouped.sort_by([(name, "ascending") for name in by])
    means = grouped["entries_mean"].cast(pa.float64())
    even = pc.equal(means, 0.0)
    skew = pc.if_else(even, 1.0, pc.divide(grouped["entries_max"], pc.if_else(even, 1.0, means)))
    columns = {
        "index": grouped["index"],
        "partition_path": grouped["partition_path"],
        "shards": grouped["file_id_count"],
    }
    for name in ("entries_min", "entries_mean", "entries_max", "bytes_min", "bytes_mean", "bytes_max"):
        columns[name] = pc.round(grouped[name]).cast(pa.int64())
    return pa.table({**columns, "skew": pc.round(skew, 2)})


def _entries(view: MetadataSlices, file_slice: FileSlice) -> int:
    base = view.base_file(file_slice)
    logged = [block for block in view.log_blocks(file_slice) if block.type is not BlockType.DELETE]
    return (base.entry_count if base is not None else 0) + sum(view.data_block(b).entry_count for b in logged)
