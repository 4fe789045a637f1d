"""Which buckets a filter, or a set of keys, cannot touch. Any doubt keeps: nothing here may lose a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from lakebed.filters.predicates import Predicate
from lakebed.index.base import KeyPlaces
from lakebed.model import RECORD_KEY, FileSlice
from lakebed.read.pruning import MAX_KEYS, Alternative, equalities, has_one_text, key_rows


@dataclass(frozen=True)
class BucketLayout:
    """What bucket pruning needs of a table with a bucket index.

    `key_texts(rows)` gives the stored key texts that rows with these key columns may have (more than one where the
    table's way of writing them is not known), `places` their bucket numbers, and the file slices of those.

    Where a text is beside the hash fields `plain` tells of each file slice whether none of its keys can be misread.
    `trusted`: only of such slices is asked.
    """

    key_fields: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    key_texts: Callable[[pa.Table], pa.Array]
    places: KeyPlaces
    plain: Callable[[Sequence[FileSlice]], Sequence[bool]] | None = None
    trusted: bool = False

    def in_partition(self, path: str) -> BucketLayout:
        """The same for one partition path."""
        return replace(self, places=self.places.in_partition(path))

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The key fields that are hashed."""
        return self.places.fields

    def buckets_of(self, texts: pa.Array) -> pa.Array:
        """The bucket numbers of stored key texts."""
        return self.places.groups_of(texts)


def prune_buckets(predicate: Predicate, layout: BucketLayout) -> frozenset[int] | None:
    """The bucket numbers of a partition path that may hold matching rows; None where the filter settles neither the
    hash fields nor the stored key.

    Only equality with constants of the column's own type counts, on types with one key text for each value.
    """
    by_text, by_fields = _buckets_of_texts(predicate, layout), _buckets_of_fields(predicate, layout)
    if by_text is None or by_fields is None:
        return by_fields if by_text is None else by_text
    return by_text & by_fields


def slices_in_buckets(
    predicate: Predicate, layout: BucketLayout, slices: Sequence[FileSlice]
) -> list[FileSlice] | None:
    """The file slices whose buckets may hold matching rows; None where the filter tells nothing about that."""
    kept: list[FileSlice] = []
    settled = False
    for places, some in _by_places(slices, layout.places):
        own = replace(layout, places=places)
        found = prune_buckets(predicate, own)
        if found is not None:
            settled = True
            kept += places.slices_of(some, found)
            continue
        ruled_out = _ruled_out(predicate, own, some)
        settled = settled or bool(ruled_out)
        kept += [one for one in some if one not in ruled_out]
    return kept if settled else None


def _ruled_out(predicate: Predicate, layout: BucketLayout, slices: Sequence[FileSlice]) -> set[FileSlice]:
    """The file slices without keys that can be misread whose buckets hold no matching row."""
    if layout.plain is None:
        return set()
    found = prune_buckets(predicate, replace(layout, trusted=True))
    if found is None:
        return set()
    matching = set(layout.places.slices_of(slices, found))
    others = [one for one in slices if one not in matching]
    return {one for one, plain in zip(others, layout.plain(others), strict=True) if plain}


def buckets_of_keys(
    slices: Sequence[FileSlice], places: KeyPlaces, keys: pa.Array | pa.ChunkedArray
) -> list[FileSlice]:
    """The file slices of the buckets that these stored key texts hash to."""
    kept: list[FileSlice] = []
    for own, some in _by_places(slices, places):
        kept += own.slices_of(some, set(own.groups_of(keys).to_pylist()))
    return kept


def _by_places(slices: Iterable[FileSlice], places: KeyPlaces) -> Iterable[tuple[KeyPlaces, list[FileSlice]]]:
    """The slices of partition paths in which keys have the same numbers, together."""
    found: dict[KeyPlaces, list[FileSlice]] = {}
    for path, group in groupby(slices, key=lambda s: s.partition):
        found.setdefault(places.in_partition(path), []).extend(group)
    return found.items()


def _buckets_of_texts(predicate: Predicate, layout: BucketLayout) -> frozenset[int] | None:
    """By the stored record keys that the filter names."""
    alternatives = equalities(predicate.root, frozenset((RECORD_KEY,)))
    if alternatives is None:
        return None
    texts = {literal.value for alternative in alternatives for literal in alternative[RECORD_KEY]}
    if len(texts) > MAX_KEYS or None in texts:
        return None
    return frozenset(layout.buckets_of(pa.array(sorted(texts), pa.string())).to_pylist())


def _buckets_of_fields(predicate: Predicate, layout: BucketLayout) -> frozenset[int] | None:
    alternatives = equalities(predicate.root, frozenset(layout.key_fields))
    if alternatives is None:
        return None
    found: set[int] = set()
    for alternative in alternatives:
        buckets = _buckets_of(alternative, layout)
        if buckets is None:
            return None
        found |= buckets
    return frozenset(found)


def _some_value(type_: pa.DataType) -> Any:
    """A value for a field that has no part in the hash; a null beside nulls and empty texts would make no key."""
    if pa.types.is_fixed_size_binary(type_):
        return b"0" * type_.byte_width
    if pa.types.is_boolean(type_):
        return False
    is_number = not pa.types.is_nested(type_) and type_.num_buffers == 2
    return 0 if is_number else "0"


def _buckets_of(alternative: Alternative, layout: BucketLayout) -> set[int] | None:
    columns: dict[str, list[Any]] = {}
    count = 1
    for name in layout.key_fields:
        type_ = layout.types.get(name)
        values = alternative.get(name)
        if values is None or type_ is None or not has_one_text(type_):
            # text in another key field may look like a hash field to Hudi's key parser, and move the row
            if name in layout.hash_fields or type_ is None or (pa.types.is_string(type_) and not layout.trusted):
                return None
            columns[name] = [_some_value(type_)]
            continue
        columns[name] = [v.value for v in values]
        count *= len(columns[name])
        if count > MAX_KEYS:
            return None
    texts = layout.key_texts(key_rows(columns, layout.types)).drop_null()
    return set(layout.buckets_of(texts).to_pylist())
