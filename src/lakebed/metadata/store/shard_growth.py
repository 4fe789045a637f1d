"""Re-sharding of record and secondary indexes that have outgrown their file groups, as a service of the metadata table.

It runs when a compaction is due, instead of it: an index whose file groups are too large on average gets twice as many
(or four times, and so on). They are half as large then, so it runs once for each doubling of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.errors import CommitConflict, InvalidOption
from lakebed.metadata.kinds.registry import kind_of
from lakebed.metadata.store.compaction import is_compaction_due, is_held_up
from lakebed.metadata.store.resharding import is_being_written, reshard
from lakebed.metadata.store.store import MetadataStore
from lakebed.model import FileSlice

# File ids have four digits, and a re-sharding takes new ones.
_MOST = 4096
# What a file has in any case (schemas, headers, trailer), at most: it does not become less when entries are spread.
_FIXED_BYTES = 16 << 10


def run_resharding(store: MetadataStore) -> list[str]:
    """Re-shard what has outgrown its file groups, if compaction is due; gives a line about each. While others write it
    waits for the next time."""
    bound = store.settings.shard_max_bytes
    if not bound or not is_compaction_due(store) or is_held_up(store):
        return []
    done: list[str] = []
    for partition in store.data_config.metadata_partitions:
        if not kind_of(partition).grows:
            continue
        counts = grown(store.slices.file_slices(partition), bound)
        if not counts or is_being_written(store):
            continue
        requested = counts[None] if None in counts else {path: n for path, n in counts.items() if path is not None}
        try:
            instant = reshard(store, partition, requested)
        except (CommitConflict, InvalidOption):
            continue  # no number is left, or version 6 has no instant for it before the next write
        done.append(f"re-sharding {instant} of {partition}")
    return done


def grown(slices: Sequence[FileSlice], bound: int) -> Mapping[str | None, int]:
    """The new numbers of file groups by partition path (None: a global index) of those whose mean is beyond the bound:
    so many times doubled that it no longer is."""
    sizes: dict[str | None, list[int]] = {}
    for file_slice in slices:
        path = kind_of(file_slice.partition).data_partition_of(file_slice.file_id)
        sizes.setdefault(path, []).append(_entry_bytes(file_slice))
    counts: dict[str | None, int] = {}
    for path, each in sizes.items():
        count = len(each)
        while sum(each) > bound * count and count * 2 <= _MOST:
            count *= 2
        if count > len(each):
            counts[path] = count
    return counts


def _entry_bytes(file_slice: FileSlice) -> int:
    base = file_slice.base_file.size if file_slice.base_file else 0
    return sum(max(0, size - _FIXED_BYTES) for size in (base, *(log.size for log in file_slice.log_files)))


def slice_bytes(file_slice: FileSlice) -> int:
    """Bytes of a file slice's base file and log files."""
    base = file_slice.base_file.size if file_slice.base_file else 0
    return base + sum(log.size for log in file_slice.log_files)
