"""Ordering values of deletes that name keys alone: they carry those of the rows that they delete.

A delete without an ordering value gives way, in a log, to any row that follows it. Where that row is older than the
base file's, readers would show the deleted row again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord, UnsupportedFeature
from lakebed.format.avro.wrappers import encode_ordering
from lakebed.handles.base import GroupWrite
from lakebed.merge.combine import winners
from lakebed.merge.incoming import GIVEN_ORDERING, Incoming
from lakebed.merge.rules import MergeRules
from lakebed.model import RECORD_KEY, FileSlice
from lakebed.schema.conversion import project
from lakebed.slices.key_rows import rows_of_keys

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Record keys and ordering fields of stored rows that are deleted, one row a key, in the table's types."""

    rules: MergeRules
    rows: pa.Table

    def has(self, keys: pa.Array) -> Flags:
        """Which of the keys have a row."""
        return pc.is_in(keys, value_set=self._keys).to_numpy(zero_copy_only=False)

    def ordering_of(self, keys: pa.Array) -> list[pa.Array]:
        """The ordering values of these keys, null where a key has no row."""
        at = pc.index_in(keys, value_set=self._keys)
        return [values.take(at) for values in self.rules.ordering_of(self.rows)]

    @property
    def _keys(self) -> pa.Array:
        return self.rows.column(RECORD_KEY).combine_chunks()


def without_absent(group: GroupWrite, incoming: Incoming) -> tuple[Incoming, DeletedRows | None]:
    """The rows without deletes of keys that the file group does not hold, and the stored rows that the others delete.

    Nothing is read, and None is returned, where no delete lacks an ordering value or none would count: under commit
    time, by the rules of payload classes whose delete blocks always win, and under `lakebed.delete.lookup=false`.
    """
    rules, slices = group.rules, group.target.stored_in
    counts = bool(rules.ordering) and not rules.delete_blocks_win and group.delete_lookup
    if not counts or not slices or not incoming.forced.any():
        return incoming, None
    keys = incoming.keys.filter(pa.array(incoming.forced))
    stored = _stored(group, slices, keys.take(pc.sort_indices(keys)))
    if stored is None:
        return incoming, None
    found = DeletedRows(rules, stored)
    held = ~incoming.forced
    held[incoming.forced] = found.has(keys)
    return (incoming if held.all() else incoming.where(held)), found


def delete_ordering(
    rules: MergeRules, incoming: Incoming, deletes: npt.NDArray[np.int64], stored: DeletedRows | None
) -> tuple[list[pa.Array], Flags]:
    """The ordering values of these deletes, and which of them win whatever the ordering value is."""
    forced = incoming.forced[deletes]
    own: list[pa.Array] = []
    if not forced.all():
        own = [_plain(values) for values in rules.ordering_of(incoming.take(deletes, rules.ordering_columns))]
    if stored is None or not forced.any():
        return own, forced
    values = stored.ordering_of(incoming.keys.take(pa.array(deletes)))
    given = [GIVEN_ORDERING + name for name in rules.ordering_columns]
    if set(given) <= set(incoming.columns):
        values = _greater(rules, values, incoming.take(deletes, given).rename_columns(rules.ordering_columns))
    lacking = np.zeros(len(deletes), np.bool_)
    for column in values:
        lacking |= pc.is_null(column).to_numpy(zero_copy_only=False)
    if not _can_be_encoded(values, lacking):
        return own, forced
    if own:
        pairs = zip(own, values, strict=True)
        values = [pc.if_else(pa.array(forced), looked_up.cast(value.type), value) for value, looked_up in pairs]
    return values, forced & lacking


def _stored(group: GroupWrite, slices: Sequence[FileSlice], keys: pa.Array) -> pa.Table | None:
    """Keys and ordering fields of the stored rows with these keys (ascending); None where files lack a field."""
    names = [RECORD_KEY, *group.rules.ordering_columns]
    fields = {field.name: field.with_nullable(True) for field in group.format.schema}
    fields[RECORD_KEY] = pa.field(RECORD_KEY, pa.string())
    if not set(names) <= fields.keys():
        return None
    schema = pa.schema([fields[name] for name in names])
    batches = [batch for one in slices for batch in rows_of_keys(group.reader, one, keys, names, schema=schema)]
    if any(not set(names) <= set(batch.schema.names) for batch in batches):
        return None
    rows = pa.Table.from_batches([project(batch, schema) for batch in batches], schema)
    rules = replace(group.rules, key_fields=None)  # compared before
    greatest = winners(rows, [RECORD_KEY], rules) if rows.num_rows else None
    return rows if greatest is None else rows.take(pa.array(greatest))


def _greater(rules: MergeRules, stored: Sequence[pa.Array], given: pa.RecordBatch) -> list[pa.Array]:
    """The greater of the stored and the caller's ordering values."""
    own = [_plain(values) for values in rules.ordering_of(given)]
    greater = rules.newer_wins(stored, own)
    for values in own:
        greater = pc.and_(greater, pc.is_valid(values))
    return [pc.if_else(greater, new, old) for new, old in zip(own, stored, strict=True)]


def _can_be_encoded(values: Sequence[pa.Array], lacking: Flags) -> bool:
    """Whether delete blocks have a form for the values: decimals with more places than 15 have none."""
    if not any(pa.types.is_decimal(column.type) for column in values):
        return True
    try:
        encode_ordering(values, lacking, len(lacking))
    except (InvalidRecord, UnsupportedFeature):
        return False
    return True


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
