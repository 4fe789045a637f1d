"""Which keys an action put where, and which are gone: for indexes that keep places of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings
from lakebed.metadata.kinds.record_index_updates import latest_places, located, places_of
from lakebed.slices.snapshot import Snapshot
from lakebed.upkeep.changed_keys import group_changes, is_reported, on_their_slices, removed_changes
from lakebed.write_status import WriteStatus


@dataclass(frozen=True, slots=True)
class ChangedPlaces:
    """`added` has the columns `key`, `partition` and `file_id` (text), a row for each key that came into a file group;
    `gone` the keys that left one and are in none any more."""

    added: pa.Table
    gone: pa.StringArray


def changed_places(
    statuses: Sequence[WriteStatus], replaced: Mapping[str, Sequence[str]], snapshot: Snapshot, instant: str
) -> ChangedPlaces:
    """What `Index.update` is told, as places of keys. Keys are unique in the table; of one that was added twice (an
    insert that does not look) the last place is given. Where log files hold deletes, what these take away shows when
    their slices are read."""
    reader = snapshot.reader
    own = replace(reader, blocks=reader.blocks.with_own(instant))
    deleted_from = {s.file_id for s in statuses if s.log_files is not None and s.num_deletes and not is_reported(s)}
    groups = group_changes(own, on_their_slices(statuses, deleted_from, snapshot))
    ids = {(partition, file_id) for partition, some in replaced.items() for file_id in some}
    if ids:
        slices = [s for s in snapshot.file_slices(set(replaced)) if (s.partition, s.file_id) in ids]
        groups += removed_changes(snapshot.reader, slices)
    parts: list[tuple[str, str, str, pa.Array]] = []
    lost: list[pa.Array] = [pa.array([], pa.string())]
    for group in groups:
        keys, are_added = places_of(group.changes)
        parts.append((group.partition, group.file_id, "", keys.filter(are_added)))
        lost.append(keys.filter(pc.invert(are_added)))
    places = latest_places(located(parts), partitioned=False)
    added = pa.table({name: plain_strings(places[name]).cast(pa.string()) for name in ("key", "partition", "file_id")})
    gone = pc.unique(pa.concat_arrays(lost))
    return ChangedPlaces(added, gone.filter(pc.invert(pc.is_in(gone, value_set=added["key"].combine_chunks()))))
