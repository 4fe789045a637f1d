"""What an action says to the record index: keys that were added to a file group, keys that are in none any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings
from lakebed.metadata.kinds import record_index_records
from lakebed.metadata.kinds.key_changes import AFTER, BEFORE, KEY, GroupChanges
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm


def key_records(groups: Sequence[GroupChanges], instant: str, form: RecordForm, *, partitioned: bool) -> Records:
    """Records of `record_index`: each added key with its place, and deletes of the removed ones.

    A key that was added to one file group and removed from another is inserted, as in Hudi; one that was added twice
    (an insert that does not look) is where it was added last. `partitioned` keeps keys of different partition paths
    apart.
    """
    new, old = ([(g, _keys(g.changes, after=after)) for g in groups] for after in (True, False))
    places = latest_places(located(((g.partition, g.file_id, instant, keys) for g, keys in new)), partitioned)
    keys, values = encoded_places(places, form)
    removed = latest_places(located(((g.partition, g.file_id, instant, keys) for g, keys in old)), partitioned)
    if not partitioned:
        return Records(keys, values, removed["key"].combine_chunks())
    paths = [plain_strings(table["partition"]) for table in (places, removed)]
    return Records(keys, values, plain_strings(removed["key"]), *paths)


def encoded_places(places: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """Keys and values of entries (see `record_index_records.SCHEMA`), none for none."""
    if not places.num_rows:
        return pa.array([], pa.string()), pa.array([], pa.binary())
    return record_index_records.encode(places, form)


def located(parts: Iterable[tuple[str, str, str, pa.Array]]) -> pa.Table:
    """Entries from (partition path, file id, instant, keys in that file group)."""
    tables: list[pa.Table] = []
    for partition, file_id, instant, keys in parts:
        if len(keys):
            zeros = pa.array(np.zeros(len(keys), np.int32))
            encoded = [pa.DictionaryArray.from_arrays(zeros, [text]) for text in (partition, file_id, instant)]
            tables.append(pa.Table.from_arrays([keys, *encoded], schema=record_index_records.SCHEMA))
    if not tables:
        return record_index_records.SCHEMA.empty_table()
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def latest_places(places: pa.Table, partitioned: bool) -> pa.Table:
    """The last row of each key (in each partition path, where they are kept apart)."""
    if places.num_rows < 2:
        return places
    codes = place_codes(places, partitioned=partitioned)
    if int(codes.max()) + 1 == len(codes):
        return places
    last = np.full(int(codes.max()) + 1, -1, np.int64)
    last[codes] = np.arange(len(codes))
    return places.take(pa.array(np.sort(last)))


def place_codes(places: pa.Table, *, partitioned: bool) -> npt.NDArray[np.int64]:
    """A number for each key (in each partition path), from 0 on."""
    codes = plain_strings(places["key"]).dictionary_encode().indices.to_numpy().astype(np.int64)
    if partitioned:
        paths = plain_strings(places["partition"]).dictionary_encode()
        codes = codes * len(paths.dictionary) + paths.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def places_of(changes: pa.Table) -> tuple[pa.StringArray, pa.BooleanArray]:
    """The keys that were added to a file group or removed from it, and which of them were added."""
    rows = changes.filter(pc.xor(changes[BEFORE], changes[AFTER])).combine_chunks()
    return plain_strings(rows[KEY]).cast(pa.string()), rows[AFTER].combine_chunks()


def removed_keys(group: GroupChanges) -> pa.StringArray:
    """The keys that the file group held and holds no longer."""
    return _keys(group.changes, after=False)


def added_keys(group: GroupChanges) -> pa.StringArray:
    """The keys that were added to the file group."""
    return _keys(group.changes, after=True)


def _keys(changes: pa.Table, *, after: bool) -> pa.StringArray:
    """The added keys (`after`) or the removed ones."""
    side, other = (AFTER, BEFORE) if after else (BEFORE, AFTER)
    rows = changes.filter(pc.and_(changes[side], pc.invert(changes[other])))
    return plain_strings(rows[KEY]).cast(pa.string())
