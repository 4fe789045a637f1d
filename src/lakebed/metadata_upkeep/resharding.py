"""Changing the number of file groups of a record index or secondary index, while the table stays in use.

A replacecommit on the metadata table's own timeline: new file groups get all entries, rehashed, the old ones are
replaced. A file group is chosen by a hash modulo their number, so all change at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.errors import CommitConflict, ConflictKind, InvalidOption
from lakebed.metadata.slice_merge import open_slice
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_records.definitions import index_version
from lakebed.metadata_records.group_files import FileGroup, KeysAndValues, WrittenBase, sorted_by_key, write_base
from lakebed.metadata_records.layout import group_number
from lakebed.metadata_records.records import into_form, record_schema
from lakebed.metadata_upkeep.creation import first_free_number
from lakebed.metadata_upkeep.rollback import finish_rollbacks, roll_back
from lakebed.metadata_upkeep.store import MetadataStore, Suffix
from lakebed.model import Action, FileSlice, State
from lakebed.storage.parallel import parallel_map

_OPERATION = "UPSERT_PREPPED"
# KeysAndValues in memory at a time, and how much larger than their files they are.
_PASS_BYTES = 512 << 20
_INFLATED = 8


@dataclass(frozen=True, slots=True)
class _Change:
    """The file groups of one partition path (of a global index: of the whole index) and the new ones that replace
    them."""

    old: tuple[FileSlice, ...]
    new: tuple[FileGroup, ...]


def reshard(store: MetadataStore, partition: str, counts: int | Mapping[str, int]) -> str | None:
    """Give a global index `counts` file groups, or a partitioned record index the number for each partition path in
    `counts`. Returns the replacecommit's instant, None if the index has these numbers already.

    Raises `InvalidOption` for another partition of the metadata table, `CommitConflict` while a commit of the data
    table is pending.
    """
    if not kind_of(partition).grows:
        raise InvalidOption(
            f"{partition!r} of the metadata table has a fixed number of file groups",
            hint="The record index and secondary indexes can be re-sharded.",
            context={"partition": partition},
        )
    undo_dead_replaces(store)
    if is_being_written(store):
        raise CommitConflict(
            f"{partition} cannot be re-sharded while a write to the table is pending",
            hint="Try again when the writers are done.",
            context={"partition": partition},
            kind=ConflictKind.BUSY,
        )
    changes = _changes(store, partition, counts)
    if not changes:
        return None
    instant = store.service_time(Suffix.RESHARDING)
    if instant is None:
        raise CommitConflict(
            "the metadata table was re-sharded since its last delta commit already",
            hint="On version 6 there is one re-sharding between two writes; write, then try again.",
            kind=ConflictKind.BUSY,
        )
    store.request(Action.REPLACECOMMIT, instant)
    store.transitions.inflight(Action.REPLACECOMMIT, instant)
    version = index_version(store.slices.definitions.get(partition), store.version)
    written = [base for change in changes for base in _rehash(store, change, instant, version)]
    old_file_ids = [file_slice.file_id for change in changes for file_slice in change.old]
    store.complete(
        Action.REPLACECOMMIT, instant, _OPERATION, [base.stat() for base in written], replaced={partition: old_file_ids}
    )
    return instant


def undo_dead_replaces(store: MetadataStore) -> None:
    """Undo re-shardings that were interrupted."""
    finish_rollbacks(store)
    for instant in store.pending(Action.REPLACECOMMIT):
        roll_back(store, instant.time, store.new_time())


def _changes(store: MetadataStore, partition: str, counts: int | Mapping[str, int]) -> list[_Change]:
    slices = store.slices.file_slices(partition)
    by_path: dict[str | None, list[FileSlice]] = {}
    for file_slice in slices:
        path = kind_of(partition).data_partition_of(file_slice.file_id)
        by_path.setdefault(path, []).append(file_slice)
    requested: Mapping[str | None, int] = {None: counts} if isinstance(counts, int) else {**counts}
    changes: list[_Change] = []
    for path, count in requested.items():
        old = by_path.get(path)
        if old is None or count < 1:
            kind = "partitioned" if None not in by_path else "global"
            raise InvalidOption(
                f"{partition} is {kind} and has no file groups of {path or 'the whole table'} to be made {count}",
                hint="Give a number for a global index, numbers by partition path for a partitioned one.",
                context={"partition": partition},
            )
        if len(old) != count:
            # numbers continue after all earlier ones: replaced groups stay until they are cleaned
            first = max(_highest_number(store, partition, path) + 1, first_free_number(store, partition, path))
            new = tuple(_new_group(store, partition, first + number, path) for number in range(count))
            changes.append(_Change(tuple(old), new))
    return changes


def _new_group(store: MetadataStore, partition: str, number: int, path: str | None) -> FileGroup:
    if number > 9999:
        raise InvalidOption(
            f"{partition} has used up its numbers for file groups",
            hint="Drop the index and build it again; file ids sort as texts, so they have four digits.",
            context={"partition": partition},
        )
    return store.new_group(partition, kind_of(partition).file_id(partition, number, path))


def _highest_number(store: MetadataStore, partition: str, path: str | None) -> int:
    kind = kind_of(partition)
    ids = {file.file_id for file in store.listed_files(partition)}
    return max((group_number(id_) for id_ in ids if kind.data_partition_of(id_) == path), default=-1)


def _rehash(store: MetadataStore, change: _Change, instant: str, version: int) -> list[WrittenBase]:
    """The base files of the new groups, each with its share of all old entries."""
    merges = [open_slice(store.slices, file_slice) for file_slice in change.old]
    form = max((merge.form for merge in merges), key=lambda f: f.version)
    written: list[WrittenBase] = []
    for groups in _passes(change):
        parts: dict[int, list[KeysAndValues]] = {group: [] for group in groups}
        for merge in merges:
            for keys, values in merge.content():
                _share_out(change, (keys, into_form(values, merge.schema_json, form)), version, parts)

        def write(group: int, parts: Mapping[int, Sequence[KeysAndValues]] = parts) -> WrittenBase:
            entries = _sorted(parts[group])
            return write_base(store.data_storage, change.new[group], instant, entries, schema_json=record_schema(form))

        written += parallel_map(write, list(groups), store.settings.threads)
    return written


def _passes(change: _Change) -> Iterator[range]:
    """The numbers of the new groups in runs whose entries fit into memory together: each run takes one reading of all
    old groups."""
    files = [file for old in change.old for file in (old.base_file, *old.log_files) if file is not None]
    expected = sum(file.size for file in files) * _INFLATED
    count = len(change.new)
    at_once = max(1, min(count, count * _PASS_BYTES // max(expected, 1)))
    return (range(first, min(first + at_once, count)) for first in range(0, count, at_once))


def _share_out(change: _Change, entries: KeysAndValues, version: int, parts: Mapping[int, list[KeysAndValues]]) -> None:
    """Add the entries to the parts of those new groups that are in `parts`."""
    keys, values = entries
    texts, count = keys.cast(pa.string()), len(change.new)
    groups = kind_of(change.new[0].partition).shard(texts, count, version)
    order = np.argsort(groups, kind="stable")
    edges = np.searchsorted(groups[order], np.arange(count + 1))
    for group, part in parts.items():
        rows = pa.array(order[edges[group] : edges[group + 1]])
        if len(rows):
            part.append((keys.take(rows), values.take(rows)))


def _sorted(parts: Sequence[KeysAndValues]) -> list[KeysAndValues]:
    if not parts:
        return []
    keys, values = (pa.concat_arrays(list(column)) for column in zip(*parts, strict=True))
    return [sorted_by_key(keys, values)]


def is_being_written(store: MetadataStore) -> bool:
    """Whether a writer may have sent records to the present file groups. A service that is only planned has not."""
    data = store.data_timeline
    planned = (Action.COMPACTION, Action.LOGCOMPACTION)
    busy = any(
        instant.state is not State.REQUESTED or not (instant.action in planned or data.is_pending_clustering(instant))
        for instant in data.pending
    )
    return busy or bool(store.pending(Action.DELTACOMMIT, Action.COMPACTION, Action.LOGCOMPACTION))
