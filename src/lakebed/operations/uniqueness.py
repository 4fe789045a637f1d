"""Keys that two writers insert at the same time.

Writers that insert the same new key share no file group, so the keys themselves are compared: under the lock, and only
if another writer has committed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CommitConflict, ConflictKind
from lakebed.format.file_names import BASE_EXTENSIONS
from lakebed.index.base import Index
from lakebed.metadata_kinds.key_changes import GroupChanges, group_changes
from lakebed.metadata_kinds.record_index import added_keys
from lakebed.metadata_kinds.stored import base_slice, stored_rows
from lakebed.model import RECORD_KEY, CommitMetadata, WriteStat
from lakebed.slices.reader import SliceReader
from lakebed.write_status import WriteStatus

Uniqueness = Literal["nowhere", "partition", "table"]
"""Where a write keeps its keys unique by comparing them with what was committed since it began."""

# This many keys of other writers are compared at a time.
_KEYS_TOGETHER = 4_000_000


def uniqueness_of(index: Index) -> Uniqueness:
    """The scope in which an index that looks keys up makes them unique. Under an index that hashes keys no check is
    needed: two writers of one key conflict in its file group."""
    return "table" if index.is_global else "partition"


def check_unique(
    reader: SliceReader, statuses: Sequence[WriteStatus], others: Sequence[CommitMetadata], where: Uniqueness
) -> None:
    """Raise `CommitConflict` if a key that this write inserts is in a file into which another write inserted keys.

    `others` are the commits since this write began, in requested order; none of their file groups is one of its own.
    """
    inserting = [s for s in statuses if s.path is not None and s.num_inserts]
    if where == "nowhere" or not inserting:
        return
    other_stats = _inserted_into(others)
    for partition in sorted({p for p, _ in other_stats}) if where == "partition" else [None]:
        partition_statuses = [s for s in inserting if partition in (None, s.partition)]
        files = [stat for (p, _), stat in sorted(other_stats.items()) if partition in (None, p)]
        for keys in _stored(reader, files) if partition_statuses else ():
            for status in partition_statuses:
                (changes,) = group_changes(reader, [status])
                _refuse_common(changes, keys)


def _inserted_into(others: Sequence[CommitMetadata]) -> dict[tuple[str, str], WriteStat]:
    """The last file of each file group that the commits inserted keys into and did not replace."""
    last: dict[tuple[str, str], WriteStat] = {}
    inserted: set[tuple[str, str]] = set()
    for commit in others:
        for partition, stats in commit.stats.items():
            for stat in stats:
                if not stat.path.endswith(BASE_EXTENSIONS):
                    continue  # new keys go to base files
                last[partition, stat.file_id] = stat
                if stat.num_inserts or stat.prev_base_file is None:
                    inserted.add((partition, stat.file_id))
        for partition, ids in commit.replaced.items():
            for file_id in ids:
                last.pop((partition, file_id), None)
    return {group: stat for group, stat in last.items() if group in inserted}


def _stored(reader: SliceReader, files: Sequence[WriteStat]) -> Iterator[pa.Array]:
    """The record keys of the files, many at a time."""
    chunks: list[pa.Array] = []
    for file in files:
        file_slice = base_slice(file.partition, file.file_id, file.path, file.file_size)
        chunks.append(stored_rows(reader, file_slice, [RECORD_KEY]).column(0).cast(pa.string()))
        if sum(map(len, chunks)) >= _KEYS_TOGETHER:
            yield pa.concat_arrays(chunks)
            chunks.clear()
    if chunks:
        yield pa.concat_arrays(chunks)


def _refuse_common(changes: GroupChanges, other_keys: pa.Array) -> None:
    added = added_keys(changes)
    common = added.filter(pc.is_in(added, value_set=other_keys))
    if len(common):
        raise CommitConflict(
            f"record key {common[0].as_py()!r} was inserted by another writer since this write began"
            + (f", and {len(common) - 1} more" if len(common) > 1 else ""),
            hint="Nothing of this write is visible; run it again: it then finds the keys.",
            context={"record_key": common[0].as_py(), "keys": len(common), "partition": changes.partition},
            kind=ConflictKind.KEY,
        )
