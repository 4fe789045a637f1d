"""The locations of keys that an action added, and the keys that it removed, for indexes that store locations; and
re-inserted keys whose base-file row is hidden by a delete block.

Real Hudi's simple and bloom indexes look into base files alone. If the new row of such a key went elsewhere, Hudi
would find the key twice. So the row goes to the file group that has the key, whose base file is written again.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine, Rows, Task, persisted
from lakebed.expressions.base import Column
from lakebed.format.hashes import plain_strings
from lakebed.index.base import Index, KeyLookup, Tagged
from lakebed.merge.locations import Coalesce, IsNotNull, IsNull
from lakebed.metadata_kinds.key_changes import group_changes, is_reported, on_their_slices, removed_changes
from lakebed.metadata_kinds.record_index import latest_locations, located, locations_of
from lakebed.model import DERIVED, FILE_ID, INSTANT, PARTITION_PATH, RECORD_KEY, FileGroupId
from lakebed.schema.plain_arrow import grouped_rows
from lakebed.slices.snapshot import Snapshot
from lakebed.write_status import WriteStatus

_KEY = [RECORD_KEY, PARTITION_PATH]
_GROUP, _SINCE = f"{DERIVED}left_group", f"{DERIVED}left_since"
# So many places are sent to every task.
_MAX_LOCATIONS = 200_000


def may_come_back(index: Index, snapshot: Snapshot) -> bool:
    """Whether a write has to insert keys again that log files delete, because real Hudi's index looks for keys in base
    files alone. A global index does this only on a table without partition paths under the merge mode `commit_time`."""
    config = snapshot.config
    if not index.ignores_log_deletes or config.table_type != "mor" or not snapshot.commits:
        return False
    return not index.is_global or (not config.partition_fields and config.merge_mode == "commit_time")


class ReappearingKeys(NamedTuple):
    """Tagged rows, the file groups of the re-inserted keys among them, and the counts of the search for these keys."""

    rows: Rows
    renewed: frozenset[FileGroupId] = frozenset()
    lookup: KeyLookup = KeyLookup()


@contextmanager
def restore_reappearing_keys(
    tagged: Rows, new_in: Collection[str], index: Index, snapshot: Snapshot, engine: Engine
) -> Generator[ReappearingKeys]:
    """The tagged rows, in which a row that re-inserts a key has the location of its key.

    `tagged` are evaluated several times; those without a place are in the partition paths `new_in`.
    """
    with _reappearing_keys(tagged, new_in, index, snapshot, engine) as (locations, lookup):
        if locations is None:
            yield ReappearingKeys(tagged)
            return
        counted = engine.aggregate(locations, [PARTITION_PATH, _GROUP])
        if not counted.num_rows:
            yield ReappearingKeys(tagged, lookup=lookup)
            return
        names = [n for n in engine.schema(tagged).names if n not in (FILE_ID, INSTANT)]
        few = (pc.sum(counted["rows"]).as_py() or 0) <= _MAX_LOCATIONS
        joined = engine.join(tagged, locations, _KEY, "left", small=few)
        settled = {FILE_ID: Coalesce((FILE_ID, _GROUP)), INSTANT: Coalesce((INSTANT, _SINCE))}
        groups = zip(counted[PARTITION_PATH].to_pylist(), counted[_GROUP].to_pylist(), strict=True)
        with persisted(engine, engine.derive(joined, settled, keep=names)) as rows:
            yield ReappearingKeys(rows, frozenset(groups), lookup)


@contextmanager
def _reappearing_keys(
    tagged: Rows, new_in: Collection[str], index: Index, snapshot: Snapshot, engine: Engine
) -> Generator[tuple[Rows | None, KeyLookup]]:
    """One location for each untagged key that is in a base file below log files, and the counts of the search for them.
    The locations are None if there cannot be such a key."""
    below = snapshot.below_logs()
    if not new_in or not below.file_slices(set(new_in) & set(snapshot.partitions())):
        yield None, KeyLookup()
        return
    new = engine.filter(tagged, IsNull(FILE_ID))
    with persisted(engine, engine.distinct(engine.derive(new, {}, keep=_KEY))) as keys:
        answer = index.for_existence_checks().place(keys, below, engine)
        assert isinstance(answer, Tagged)  # only an index that looks keys up can miss a delete
        with answer.released(engine) as rows:
            locations = engine.filter(engine.derive(rows, {}, keep=[*_KEY, FILE_ID, INSTANT]), IsNotNull(FILE_ID))
            renamed = engine.derive(locations, {_GROUP: Column(FILE_ID), _SINCE: Column(INSTANT)}, keep=_KEY)
            with persisted(engine, engine.map_by_key(renamed, RECORD_KEY, _first_locations)) as first_locations:
                yield first_locations, answer.lookup or KeyLookup()


def _first_locations(batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    """The first location of each key."""
    parts = list(batches)
    if not parts:
        return
    rows = pa.Table.from_batches(parts)
    numbered = rows.select(_KEY).append_column("number", pa.array(np.arange(rows.num_rows)))
    first = grouped_rows(numbered, _KEY, [("number", "min")])
    yield from rows.take(first["number_min"]).combine_chunks().to_batches()


@dataclass(frozen=True, slots=True)
class ChangedLocations:
    """The changed locations of keys. `added` has the text columns `key`, `partition` and `file_id`, one row for each
    key that was added to a file group; `removed` are the keys that left a file group and are in no other now."""

    added: pa.Table
    removed: pa.StringArray


def changed_locations(
    statuses: Sequence[WriteStatus], replaced: Mapping[str, Sequence[str]], snapshot: Snapshot, instant: str
) -> ChangedLocations:
    """The changes for `Index.update`, as locations of keys. Keys are unique in the table; for a key that was added
    twice (by an insert that does not look keys up) the last location is given. If log files hold deletes, their slices
    are read to find the deleted keys."""
    reader = snapshot.reader
    reader_at_instant = replace(reader, blocks=reader.blocks.with_writer_of(instant))
    deleted_from = {s.file_id for s in statuses if s.log_files is not None and s.num_deletes and not is_reported(s)}
    groups = group_changes(reader_at_instant, on_their_slices(statuses, deleted_from, snapshot))
    ids = {(partition, file_id) for partition, file_ids in replaced.items() for file_id in file_ids}
    if ids:
        slices = [s for s in snapshot.file_slices(set(replaced)) if (s.partition, s.file_id) in ids]
        groups += removed_changes(snapshot.reader, slices)
    parts: list[tuple[str, str, str, pa.Array]] = []
    lost: list[pa.Array] = [pa.array([], pa.string())]
    for group in groups:
        keys, are_added = locations_of(group.changes)
        parts.append((group.partition, group.file_id, "", keys.filter(are_added)))
        lost.append(keys.filter(pc.invert(are_added)))
    locations = latest_locations(located(parts), partitioned=False)
    added = pa.table(
        {name: plain_strings(locations[name]).cast(pa.string()) for name in ("key", "partition", "file_id")}
    )
    removed_keys = pc.unique(pa.concat_arrays(lost))
    return ChangedLocations(
        added, removed_keys.filter(pc.invert(pc.is_in(removed_keys, value_set=added["key"].combine_chunks())))
    )
