"""How evenly the entries of record and secondary indexes are spread over their file groups, and giving them another
number of file groups under the table lock.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption
from lakebed.metadata_kinds.registry import key_index_of, kind_of
from lakebed.metadata_upkeep.maintain import locked_table
from lakebed.metadata_upkeep.resharding import reshard
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage

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
    slices = [file_slice for partition in partitions for file_slice in metadata.slices.file_slices(partition)]
    entries = [count for partition in partitions for count in metadata.entry_counts(partition)]
    columns = [
        [s.partition for s in slices],
        [kind_of(s.partition).data_partition_of(s.file_id) for s in slices],
        [s.file_id for s in slices],
        entries,
        [s.size for s in slices],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SHARDS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SHARDS)


def summed_up(shards: pa.Table) -> pa.Table:
    """For each index (and partition path) the number of shards, the least, mean and largest of their entries and bytes,
    and `skew`: the largest number of entries divided by the mean, 1.0 for an even or empty index."""
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


# Replaced file groups keep their numbers until they are cleaned, and file ids have four digits.
_MAX_ITEMS = 4096


def reshard_index(
    storage: Storage, name: str, file_groups: int | Mapping[str, int], *, settings: WriteSettings | None = None
) -> str | None:
    """Change the number of file groups of an index to `file_groups`. `name` is a name that `create_index` takes, or the
    index's partition of the metadata table.

    A partitioned record index gets a number for each partition path that `file_groups` names, or the same for all of
    them. Gives the instant of the replacecommit on the metadata table's timeline, None where nothing changes.

    Raises `InvalidOption` for an index that the table does not have, one of another kind or a number out of range,
    `CommitConflict` while a write to the table is pending, `LockTimeout`; nothing is changed then.
    """
    settings = settings or WriteSettings()
    with locked_table(storage, settings) as (snapshot, lock_is_held):
        config = snapshot.config
        partition = key_index_of(config, name)
        _check_numbers(partition, file_groups)
        store = MetadataStore(storage, config, snapshot.timeline, lock_is_held=lock_is_held)
        kind = kind_of(partition)
        if isinstance(file_groups, int) and kind.by_data_partition:
            slices = store.slices.file_slices(partition)
            paths = sorted({path for s in slices if (path := kind.data_partition_of(s.file_id)) is not None})
            if paths:
                file_groups = dict.fromkeys(paths, file_groups)
        return reshard(store, partition, file_groups)


def _check_numbers(partition: str, file_groups: int | Mapping[str, int]) -> None:
    numbers = [file_groups] if isinstance(file_groups, int) else list(file_groups.values())
    wrong = [n for n in numbers if not 1 <= n <= _MAX_ITEMS]
    if wrong or not numbers:
        raise InvalidOption(
            f"{partition} with file_groups={wrong[0] if wrong else file_groups}",
            hint=f"An index has 1 to {_MAX_ITEMS} file groups, a partitioned one for each partition path.",
            context={"index": partition, "file_groups": file_groups},
        )
