"""Which partition paths and buckets a filter, or a set of keys, cannot touch. Where there is doubt they are read:
pruning never loses a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from lakebed.index.base import KeyLocations
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice
from lakebed.schema.plain_arrow import as_numpy

if TYPE_CHECKING:
    from lakebed.filters.predicates import Literal, Node, Predicate
    from lakebed.filters.ranges import Bools, Bounds, Path

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# Above a text with any number of slashes at its end, and below every other text that is above that.
_LOST_SLASHES = "/\U0010ffff"


@dataclass(frozen=True)
class PartitionLayout:
    """The way in which a table's partition paths are made from its columns.

    `plain` is for each field whether its path text is the value's own text (so that it can be read back); a field that
    goes through a time format is not plain. `path_of(field, literal)` gives the whole partition path of a value where
    one field makes it and the answer cannot depend on the writer's time zone, else None.
    """

    fields: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    plain: tuple[bool, ...]
    hive_style: bool = False
    url_encode: bool = False
    slash_dates: bool = False
    path_of: Callable[[str, Literal], str | None] = field(default=lambda _field, _literal: None)

    def bounds_in(self, partitions: Sequence[str]) -> dict[Path, Bounds]:
        """The bounds of the fields, and of what is written of each in the path, by partition path."""
        from lakebed.filters.ranges import Bounds

        paths = pa.array(partitions, pa.string())
        everything, nothing = np.ones(len(paths), np.bool_), np.zeros(len(paths), np.bool_)
        bounds: dict[Path, Bounds] = {(PARTITION_PATH,): Bounds(paths, paths, everything, nothing)}
        parts = [self._parts(partition) for partition in partitions]
        for name in self.fields:
            texts = [part.get(name) for part in parts]
            is_default = np.array([text == DEFAULT_PARTITION for text in texts], np.bool_)
            if self.is_text(name):
                bounds |= self._bounds_of_texts(name, texts, is_default)
                continue
            bounds[_written(name)] = Bounds(paths, paths, ~is_default, is_default, exact=False)
            if name in self.types:
                type_ = self.types[name]
                values = pa.array([None if text is None else parse_key_text(text, type_) for text in texts], type_)
                bounds[(name,)] = Bounds(values, values, ~is_default, as_numpy(values.is_null()))
        return bounds

    def is_text(self, name: str) -> bool:
        """Whether a field is a column of texts."""
        return name in self.types and pa.types.is_string(self.types[name])

    def written_texts(self, name: str, constants: Sequence[Literal]) -> list[Literal] | None:
        """The texts that the path may hold for the field if it equals one of the constants; None if they are
        unknown."""
        from lakebed.filters.predicates import Literal

        texts: list[str] = []
        for literal in constants:
            if self.is_text(name):
                written = self._written_texts(literal.value)
            else:
                path = self.path_of(name, literal)
                written = [] if path is None else [path]
            if not written:
                return None
            texts += written
        return [Literal(text, pa.string()) for text in texts]

    def _written_texts(self, value: str) -> list[str]:
        if not value:
            return ["", DEFAULT_PARTITION]
        if self.url_encode:
            return [value]
        steps = _steps(value)
        return [] if "." in steps or ".." in steps else ["/".join(steps)]

    def _parts(self, partition: str) -> dict[str, str]:
        if self.slash_dates:
            ok = len(self.fields) == 1 and pa.types.is_date32(self.types.get(self.fields[0], pa.null()))
            return {self.fields[0]: partition.replace("/", "-")} if ok else {}
        if len(self.fields) == 1:
            parts = [partition]
        else:
            parts = partition.split("/")
            parts = self._whole(parts)
        values: dict[str, str] = {}
        for name, plain, part in zip(self.fields, self.plain, parts, strict=False):
            if not plain:
                continue
            prefix = f"{name}=" if self.hive_style else ""
            if part.startswith(prefix):
                values[name] = part[len(prefix) :]
        return values

    def _whole(self, parts: list[str]) -> list[str]:
        """The parts of a path that certainly belong to one field each, from the first on: a slash inside a text that is
        not encoded shifts the parts after it."""
        types = [self.types.get(name) for name in self.fields]
        texts = [at for at, t in enumerate(types) if not self.url_encode and (t is None or pa.types.is_string(t))]
        spare = len(parts) - len(self.fields)
        if spare > 0 and len(texts) == 1 and all(self.plain):
            end = texts[0] + spare + 1
            return [*parts[: texts[0]], "/".join(parts[texts[0] : end]), *parts[end:]]
        if spare and 0 in texts:
            return []
        return parts if not spare and all(self.plain) else parts[:1]

    def _bounds_of_texts(self, name: str, texts: Sequence[str | None], is_default: Bools) -> dict[Path, Bounds]:
        """The bounds of a text field; of the field for comparisons with constants without a slash; and of its text in
        the path."""
        from lakebed.filters.ranges import Bounds

        may_null = is_default | np.array([text is None for text in texts], np.bool_)

        def bounds(ends: Sequence[tuple[str | None, str | None]], exact: Bools | bool = True) -> Bounds:
            low, high = (pa.array([end[side] for end in ends], pa.string()) for side in (0, 1))
            return Bounds(low, high, np.ones(len(texts), np.bool_), may_null, exact)

        if self.url_encode:
            values = [None if text is None else unquote(text) for text in texts]
            ends = [_DEFAULTS if text == DEFAULT_PARTITION else (text, text) for text in values]
            return {(name,): bounds(ends), _written(name): bounds([(text, text) for text in values], ~is_default)}
        written = [None if text is None else "/".join(_steps(text)) for text in texts]
        ends = [_DEFAULTS if default else _UNKNOWN for default in is_default.tolist()]
        return {
            (name,): bounds(ends),
            _without_slashes(name): bounds([_ends_without_slashes(text) for text in texts]),
            _written(name): bounds([(text, text) for text in written], exact=False),
        }


_UNKNOWN = (None, None)
# The least and the greatest text that are written into the default path, beside null.
_DEFAULTS = ("", DEFAULT_PARTITION)


def _ends_without_slashes(text: str | None) -> tuple[str | None, str | None]:
    """The least and the greatest value, for constants without a slash, of a text in a path; null for unknown ones."""
    if text == DEFAULT_PARTITION:
        return _DEFAULTS
    return _UNKNOWN if text is None or "/" in text else (text, text + _LOST_SLASHES)


def _written(name: str) -> Path:
    """The path, for bounds, of what a partition path holds of a field."""
    return PARTITION_PATH, name


def _without_slashes(name: str) -> Path:
    """The path, for bounds, of a text that is compared with constants without a slash."""
    return PARTITION_PATH, name, "without slashes"


def _steps(text: str) -> list[str]:
    """The folders of a text that became a path without encoding: slashes at its ends, and double ones, are lost."""
    return [step for step in text.split("/") if step]


def parse_key_text(text: str, type_: pa.DataType) -> Any:
    """The value with this key text, for types in which only one value has it; otherwise None.

    >>> parse_key_text("-7", pa.int64()), parse_key_text("1.50", pa.float64())
    (-7, None)
    """
    try:
        if pa.types.is_integer(type_):
            value = int(text)
            return pa.scalar(value, type_).as_py() if str(value) == text else None
        if pa.types.is_date32(type_):
            day = date.fromisoformat(text)
            return day if day.isoformat() == text else None
    except (ValueError, OverflowError):
        return None
    if pa.types.is_boolean(type_):
        return {"true": True, "false": False}.get(text)
    return None


def prune_partitions(predicate: Predicate, layout: PartitionLayout, partitions: Iterable[str]) -> list[str]:
    """The partition paths that may hold rows for which the filter is true."""
    from lakebed.filters.ranges import may_match

    paths = list(partitions)
    if not paths or not depends_on_path(predicate, layout.fields):
        return paths
    matching = may_match(_of_paths(predicate.root, layout), layout.bounds_in(paths), len(paths))
    return [path for path, matches in zip(paths, matching.tolist(), strict=True) if matches]


def depends_on_path(predicate: Predicate, partition_fields: Sequence[str]) -> bool:
    """Whether the filter has a condition on partition columns or on the partition path."""
    from lakebed.filters.predicates import columns_of

    return not {*partition_fields, PARTITION_PATH}.isdisjoint(columns_of(predicate.root))


def _of_paths(node: Node, layout: PartitionLayout) -> Node:
    """The condition with what it demands of the partition path, in place of equality of a field whose path text cannot
    be converted back. What the path does not show stays open."""
    from lakebed.filters.predicates import And, Column, Compare, In, Literal, Not, Or

    match node:
        case And(parts):
            return And(tuple(_of_paths(part, layout) for part in parts))
        case Or(parts):
            return Or(tuple(_of_paths(part, layout) for part in parts))
        case Not(part):
            return Not(_of_paths(part, layout))
        case Compare(Column((name,)), "=" | "<=>" | "!=" as op, Literal() as right) if name in layout.fields:
            texts = layout.written_texts(name, (right,))
            if texts is None:
                return node
            written = Column(_written(name), pa.string())
            equal = Or(tuple(Compare(written, "=" if op == "!=" else op, text) for text in texts))
            return Not(equal) if op == "!=" else equal
        case In(Column((name,)), values, has_null) if name in layout.fields and values:
            texts = layout.written_texts(name, values)
            return node if texts is None else In(Column(_written(name), pa.string()), tuple(texts), has_null)
        case Compare(Column((name,)), op, Literal(str(value)) as right) if layout.is_text(name):
            is_known = layout.url_encode or "/" in value
            return node if is_known else Compare(Column(_without_slashes(name), pa.string()), op, right)
        case _:
            return node


# -- what a filter demands of columns

MAX_ALTERNATIVES = 64
# So many keys or values are looked up in indexes for a filter that names them.
MAX_KEYS = 100_000

Alternative: TypeAlias = "Mapping[str, frozenset[Literal]]"


def equalities(node: Node, fields: frozenset[str]) -> list[Alternative] | None:
    """The values that the filter requires of `fields`, as alternatives of "field is one of these constants"; None: any
    value. An empty list means that no row can match.

    No alternative at all means that no row can match.
    """
    from lakebed.filters.predicates import And, Column, Compare, Constant, In, Literal, Or

    match node:
        case Constant(value):
            return None if value is True else []
        case Compare(Column((name,)), "=" | "<=>", Literal() as right) if name in fields:
            return [{name: frozenset((right,))}]
        case In(Column((name,)), values) if name in fields:
            return [{name: frozenset(values)}] if values else []
        case Or(parts):
            alternatives: list[Alternative] = []
            for part in parts:
                part_alternatives = equalities(part, fields)
                if part_alternatives is None or len(alternatives) + len(part_alternatives) > MAX_ALTERNATIVES:
                    return None
                alternatives.extend(part_alternatives)
            return alternatives
        case And(parts):
            return _all_of(parts, fields)
        case _:
            return None


def demands_keys(predicate: Predicate, key_fields: Sequence[str]) -> bool:
    """Whether the filter requires values of the stored record key or of key fields, by which buckets are ruled out."""
    by_key = equalities(predicate.root, frozenset((RECORD_KEY,)))
    return by_key is not None or equalities(predicate.root, frozenset(key_fields)) is not None


def _all_of(parts: Sequence[Node], fields: frozenset[str]) -> list[Alternative] | None:
    joined: list[Alternative] | None = None
    for part in parts:
        alternatives = equalities(part, fields)
        if alternatives is None:
            continue
        if joined is None:
            joined = alternatives
        elif len(joined) * len(alternatives) <= MAX_ALTERNATIVES:
            combined = (_both(a, b) for a in joined for b in alternatives)
            joined = [alternative for alternative in combined if alternative is not None]
    return joined


def _both(a: Alternative, b: Alternative) -> Alternative | None:
    values_of_both = dict(a)
    for name, values in b.items():
        values_of_both[name] = values_of_both[name] & values if name in values_of_both else values
        if not values_of_both[name]:
            return None
    return values_of_both


def has_one_text(type_: pa.DataType) -> bool:
    """Whether equal values of the type have equal key text; floats (0.0 and -0.0) and timestamps (which have two forms)
    do not."""
    return (
        pa.types.is_string(type_)
        or pa.types.is_integer(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_decimal(type_)
    )


def key_rows(columns: Mapping[str, list[Any]], types: Mapping[str, pa.DataType]) -> pa.Table:
    """All combinations of the values, one row each."""
    rows: list[tuple[Any, ...]] = [()]
    for values in columns.values():
        rows = [(*row, v) for row in rows for v in values]
    arrays = [pa.array([r[i] for r in rows], types[name]) for i, name in enumerate(columns)]
    return pa.Table.from_arrays(arrays, names=list(columns))


@dataclass(frozen=True)
class BucketLayout:
    """The data about a table with a bucket index that bucket pruning needs.

    `key_texts(rows)` gives the stored key texts that rows with these key columns may have (more than one where the
    table's way of writing them is not known), `locations` their bucket numbers, and the file slices of those.

    If the key has a text that is no hash field, `plain` is for each file slice whether none of its keys can be misread.
    `trusted`: only such slices are used.
    """

    key_fields: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    key_texts: Callable[[pa.Table], pa.Array]
    locations: KeyLocations
    plain: Callable[[Sequence[FileSlice]], Sequence[bool]] | None = None
    trusted: bool = False

    def in_partition(self, path: str) -> BucketLayout:
        """This layout in one partition path."""
        return replace(self, locations=self.locations.in_partition(path))

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The key fields that are hashed."""
        return self.locations.fields

    def buckets_of(self, texts: pa.Array) -> pa.Array:
        """The bucket numbers of stored key texts."""
        return self.locations.groups_of(texts)


def prune_buckets(predicate: Predicate, layout: BucketLayout) -> frozenset[int] | None:
    """The bucket numbers of a partition path that may hold matching rows; None if the filter determines neither the
    hash fields nor the stored key.

    Only equality with constants of the column's own type counts, on types with one key text for each value.
    """
    by_text, by_fields = _buckets_of_texts(predicate, layout), _buckets_of_fields(predicate, layout)
    if by_text is None or by_fields is None:
        return by_fields if by_text is None else by_text
    return by_text & by_fields


def slices_without(slices: Sequence[FileSlice], remaining: Sequence[FileSlice]) -> list[FileSlice]:
    """The slices in `slices` except the objects in `remaining`."""
    left = {id(file_slice) for file_slice in remaining}
    return [file_slice for file_slice in slices if id(file_slice) not in left]


def slices_in_buckets(
    predicate: Predicate, layout: BucketLayout, slices: Sequence[FileSlice]
) -> list[FileSlice] | None:
    """The file slices whose buckets may have matching rows; None if the filter does not determine the buckets."""
    matching_slices: list[FileSlice] = []
    settled = False
    for locations, located_slices in _by_locations(slices, layout.locations):
        path_layout = replace(layout, locations=locations)
        buckets = prune_buckets(predicate, path_layout)
        if buckets is not None:
            settled = True
            matching_slices += locations.slices_of(located_slices, buckets)
            continue
        ruled_out = _ruled_out(predicate, path_layout, located_slices)
        settled = settled or bool(ruled_out)
        matching_slices += [file_slice for file_slice in located_slices if file_slice not in ruled_out]
    return matching_slices if settled else None


def _ruled_out(predicate: Predicate, layout: BucketLayout, slices: Sequence[FileSlice]) -> set[FileSlice]:
    """The file slices whose keys cannot be misread and whose buckets have no matching row."""
    if layout.plain is None:
        return set()
    buckets = prune_buckets(predicate, replace(layout, trusted=True))
    if buckets is None:
        return set()
    matching = set(layout.locations.slices_of(slices, buckets))
    unmatched = [file_slice for file_slice in slices if file_slice not in matching]
    return {file_slice for file_slice, plain in zip(unmatched, layout.plain(unmatched), strict=True) if plain}


def buckets_of_keys(
    slices: Sequence[FileSlice], key_locations: KeyLocations, keys: pa.Array | pa.ChunkedArray
) -> list[FileSlice]:
    """The file slices of the buckets that these stored key texts hash to."""
    matching_slices: list[FileSlice] = []
    for locations, located_slices in _by_locations(slices, key_locations):
        matching_slices += locations.slices_of(located_slices, set(locations.groups_of(keys).to_pylist()))
    return matching_slices


def _by_locations(
    slices: Iterable[FileSlice], key_locations: KeyLocations
) -> Iterable[tuple[KeyLocations, list[FileSlice]]]:
    """The slices of partition paths in which keys have the same numbers, together."""
    slices_by_locations: dict[KeyLocations, list[FileSlice]] = {}
    for path, group in groupby(slices, key=lambda s: s.partition):
        slices_by_locations.setdefault(key_locations.in_partition(path), []).extend(group)
    return slices_by_locations.items()


def _buckets_of_texts(predicate: Predicate, layout: BucketLayout) -> frozenset[int] | None:
    """The buckets of the stored record keys that the filter names; None if it names none."""
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
    all_buckets: set[int] = set()
    for alternative in alternatives:
        buckets = _buckets_of(alternative, layout)
        if buckets is None:
            return None
        all_buckets |= buckets
    return frozenset(all_buckets)


def _some_value(type_: pa.DataType) -> Any:
    """Any value for a field that is not hashed; not null, since a key of nulls and empty texts is invalid."""
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
