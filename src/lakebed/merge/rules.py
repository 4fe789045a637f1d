"""Which of two rows with one key wins: the table's merge mode as vectorised decisions over Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidRecord, UnsupportedFeature
from lakebed.model import IS_DELETED_COLUMN, RECORD_KEY
from lakebed.schema.java_text import to_java_text
from lakebed.timeline.table_config import TableConfig


@dataclass(frozen=True, slots=True)
class MergeRules:
    """The table's merge mode, reduced to what decides between two rows.

    `ordering` names the ordering fields under event-time ordering and is empty under commit-time ordering, where the
    later row always wins. `delete_field` and `delete_marker` mark a row as a delete besides `_hoodie_is_deleted`.
    """

    ordering: tuple[str, ...] = ()
    delete_field: str | None = None
    delete_marker: str | None = None

    @classmethod
    def of(
        cls,
        mode: str,
        ordering: Sequence[str],
        delete_field: str | None = None,
        delete_marker: str | None = None,
    ) -> MergeRules:
        if mode == "custom":
            raise UnsupportedFeature(
                "the table merges rows by a custom merger or payload class",
                hint="write to it with the engine that has that class; reading works",
                context={"feature": "custom merge mode"},
            )
        return cls(tuple(ordering) if mode == "event_time" else (), delete_field, delete_marker)

    @classmethod
    def of_table(cls, config: TableConfig) -> MergeRules:
        """The rules that a table's properties name."""
        return cls.of(config.merge_mode, config.ordering_fields, config.delete_field, config.delete_marker)

    def is_delete(self, rows: pa.Table | pa.RecordBatch) -> pa.Array | None:
        """Which rows are deletes (no nulls), or None when the rows have no column that could say so."""
        flags: list[pa.Array] = []
        names = rows.schema.names
        if IS_DELETED_COLUMN in names:
            flags.append(pc.fill_null(_flat(rows.column(IS_DELETED_COLUMN)).cast(pa.bool_()), False))
        if self.delete_field and self.delete_field in names:
            text = to_java_text(_flat(rows.column(self.delete_field)))
            flags.append(pc.fill_null(pc.equal(text, self.delete_marker or ""), False))
        if not flags:
            return None
        return flags[0] if len(flags) == 1 else pc.or_(flags[0], flags[1])

    def check_ordering(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Raise `InvalidRecord` for a null ordering value: real Hudi could not read such a row back."""
        for name in self.ordering:
            column = rows.column(name)
            if column.null_count:
                at = pc.indices_nonzero(pc.is_null(_flat(column)))[0].as_py()
                key = rows.column(RECORD_KEY)[at].as_py()
                raise InvalidRecord(
                    f"ordering field {name!r} is null in {column.null_count} row(s), first at record key {key!r}",
                    hint="fill the ordering field, or create the table with merge='commit_time'",
                    context={"column": name, "record_key": key, "rows": column.null_count},
                )

    def incoming_wins(self, incoming: pa.Table | pa.RecordBatch, stored: pa.Table | pa.RecordBatch) -> pa.Array | None:
        """Row by row, whether the incoming one replaces the stored one; None when it always does. Ties: it does."""
        if not self.ordering:
            return None
        return compare_ordering(
            [_flat(incoming.column(f)) for f in self.ordering],
            [_flat(stored.column(f)) for f in self.ordering],
        )


def compare_ordering(incoming: Sequence[pa.Array], stored: Sequence[pa.Array]) -> pa.Array:
    """Lexicographic `incoming >= stored` over several columns; a null is smaller than anything."""
    result: pa.Array | None = None
    for new, old in zip(reversed(incoming), reversed(stored), strict=True):
        new, old = _comparable(new), _comparable(old)
        greater = pc.fill_null(pc.greater(new, old), pc.and_(pc.is_valid(new), pc.is_null(old)))
        equal = pc.fill_null(pc.equal(new, old), pc.and_(pc.is_null(new), pc.is_null(old)))
        result = pc.or_(greater, equal if result is None else pc.and_(equal, result))
    assert result is not None
    return result


def _comparable(values: pa.Array) -> pa.Array:
    """Booleans as numbers; floating point as integers of the same order, so that NaN is greatest as in Java."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if not pa.types.is_floating(values.type):
        return values
    as_double = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    bits = np.where(np.isnan(as_double), np.nan, as_double).view(np.int64)
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    return pa.array(ordered, mask=pc.is_null(values).to_numpy(zero_copy_only=False))


def combine(rows: pa.Table, keys: Sequence[str], rules: MergeRules) -> pa.Table:
    """One row per key, in the order of the rows; see `winners`."""
    places = winners(rows, keys, rules)
    return rows if places is None else rows.take(pa.array(places))


def winners(rows: pa.Table, keys: Sequence[str], rules: MergeRules) -> npt.NDArray[np.int64] | None:
    """Positions of the one row per key that stays: the greatest ordering value, of equals the later row; without
    ordering the later row. None when no key comes twice.

    Ordering values are not null (`check_ordering`). Costs a hash of the keys when there are no duplicates.
    """
    codes, distinct = key_codes(rows, keys)
    if distinct == rows.num_rows:
        return None
    counts = np.bincount(codes, minlength=distinct)
    several = np.nonzero(counts[codes] > 1)[0]
    part = rows.select(list(rules.ordering)).take(pa.array(several))
    order = pa.table(
        {
            "key": codes[several],
            **{f"o{i}": _comparable(_flat(part.column(f))) for i, f in enumerate(rules.ordering)},
            "at": several,
        }
    )
    ranked = pc.sort_indices(order, sort_keys=[(name, "ascending") for name in order.column_names]).to_numpy()
    sorted_codes = codes[several][ranked]
    last = np.append(sorted_codes[1:] != sorted_codes[:-1], True)
    keep = np.ones(rows.num_rows, dtype=bool)
    keep[several] = False
    keep[several[ranked[last]]] = True
    return np.flatnonzero(keep)


def key_codes(rows: pa.Table | pa.RecordBatch, keys: Sequence[str]) -> tuple[np.ndarray, int]:
    """Each row's key as a number from 0, and how many different keys there are; nulls are one key."""
    combined: np.ndarray | None = None
    distinct = 1
    for name in keys:
        encoded = _flat(rows.column(name)).dictionary_encode()
        size = len(encoded.dictionary)
        codes = pc.fill_null(encoded.indices.cast(pa.int64()), size).to_numpy(zero_copy_only=False)
        size += 1 if encoded.null_count or not size else 0
        combined = codes if combined is None else combined * size + codes
        distinct *= size
    assert combined is not None
    if len(keys) > 1:
        unique, combined = np.unique(combined, return_inverse=True)
        distinct = len(unique)
    return combined, distinct


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
