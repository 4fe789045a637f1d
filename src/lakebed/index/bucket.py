"""The bucket index: a hash of the key gives the file group, so no key is looked up and no data file is read to tag
rows.

A sample of the stored keys, or all of them, is checked against the buckets that their files are named after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import IndexInconsistent, InvalidOption
from lakebed.expressions.base import Column, RowExpression
from lakebed.expressions.bucket import Bucket, Buckets, StoredBucket
from lakebed.expressions.key_generators import KeyGenerator
from lakebed.format.file_names import BUCKET_ID, bucket_of_file_id
from lakebed.format.hashes import plain_strings
from lakebed.index.base import Hashed, Hashing, Index, IndexOptions, KeyHash, Resizing
from lakebed.index.bucket_counts import (
    MAX_BUCKETS,
    BucketCounts,
    PartitionCounts,
    PathHash,
    Rules,
    Splits,
    counts_of,
    forget_counts,
    has_counts,
    parse_rules,
    rules_for_all,
    sizes_by_number,
    slices_of_buckets,
    text_of,
    write_counts,
)
from lakebed.model import PARTITION_PATH, RECORD_KEY, FileSlice, path_in
from lakebed.schema.column_names import in_any_case, near_or_nothing
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage

if TYPE_CHECKING:
    from lakebed.engine.base import Engine, Rows

__all__ = ["DEFAULT_BUCKETS", "MAX_BUCKETS", "BucketIndex", "number_slices", "split_fields"]

_SAMPLE_SLICES = 32
_SAMPLE_KEYS = 4096
# Hash fields are tried in every combination up to this many key fields, beyond it one by one and all together.
_COMBINED_FIELDS = 6


class CheckedBuckets(Protocol):
    """The parts of a bucket index that a check of stored keys needs: its hash and its bucket counts."""

    fields: tuple[str, ...]

    @property
    def counts(self) -> BucketCounts: ...

    def in_partition(self, path: str) -> KeyHash: ...


@dataclass(frozen=True, slots=True)
class SampledSlice:
    """A sample of the record keys of a file slice, with the label of the slice and the bucket number in its file id."""

    label: str
    bucket: int
    keys: pa.Array
    partition: str = ""


def sample_slices(snapshot: Snapshot) -> list[SampledSlice]:
    """The first keys of some of the latest file slices, spread over the table; the file ids must be bucket numbers. If
    a slice has a base file only its keys are read."""
    slices = [s if s.base_file is None else s.without_logs() for s in snapshot.file_slices()]
    step = max(1, len(slices) // _SAMPLE_SLICES)
    sample = slices[::step][:_SAMPLE_SLICES]
    return [
        SampledSlice(_label(file_slice), _number(file_slice), first_keys(snapshot, file_slice), file_slice.partition)
        for file_slice in sample
    ]


def check_sample(snapshot: Snapshot, index: CheckedBuckets) -> None:
    """Raise `IndexInconsistent` for the first of some stored keys that does not hash to the bucket of its file."""
    for sampled in sample_slices(snapshot):
        _check_keys(sampled, index)


def check_all_keys(snapshot: Snapshot, index: CheckedBuckets) -> None:
    """Compare the buckets of all stored keys with the index, as `check_sample` does for a sample. Only the key column
    is read."""
    for file_slice in snapshot.file_slices():
        for keys in stored_keys(snapshot, file_slice):
            sampled = SampledSlice(_label(file_slice), _number(file_slice), keys, file_slice.partition)
            _check_keys(sampled, index)


def field_choices(key_fields: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The choices of key fields that may be hashed: all fields first (Hudi's default), then smaller choices."""
    keys = tuple(key_fields)
    yield keys
    sizes = range(len(keys) - 1, 0, -1) if len(keys) <= _COMBINED_FIELDS else [1] if len(keys) > 1 else []
    for size in sizes:
        yield from combinations(keys, size)


def _check_keys(sampled: SampledSlice, index: CheckedBuckets) -> None:
    numbers = as_numpy(index.in_partition(sampled.partition).groups_of(sampled.keys))
    wrong = np.flatnonzero(numbers != sampled.bucket)
    if len(wrong):
        key, hashed_bucket = sampled.keys[int(wrong[0])].as_py(), int(numbers[wrong[0]])
        count = index.counts.buckets_in(sampled.partition).count
        raise IndexInconsistent(
            f"record key {key!r} in {sampled.label} belongs to bucket {hashed_bucket} under {count} buckets hashed on"
            f" {', '.join(index.fields) or 'the whole key'}, but the file is bucket {sampled.bucket}",
            hint="the count or the hash fields are not those that the table was written with, or a writer without"
            " a bucket index has written to it",
            context={"record_key": key, "path": sampled.label, "bucket": sampled.bucket, "hashed_to": hashed_bucket},
        )


def first_keys(snapshot: Snapshot, file_slice: FileSlice) -> pa.Array:
    """The first record keys of a file slice, as a sample."""
    parts = [keys.slice(0, _SAMPLE_KEYS) for keys in islice(stored_keys(snapshot, file_slice, _SAMPLE_KEYS), 1)]
    return parts[0] if parts else pa.array([], pa.string())


def stored_keys(snapshot: Snapshot, file_slice: FileSlice, batch_rows: int = 1 << 16) -> Iterator[pa.Array]:
    """The record keys of a file slice, a batch at a time."""
    for batch in snapshot.reader.read(file_slice, [RECORD_KEY], batch_rows=batch_rows):
        yield plain_strings(batch.column(0))


def _label(file_slice: FileSlice) -> str:
    return file_slice.label if file_slice.base_file else path_in(file_slice.partition, file_slice.file_id)


def _number(file_slice: FileSlice) -> int:
    number = bucket_of_file_id(file_slice.file_id)
    if number is None:
        raise IndexInconsistent(
            f"file group {_label(file_slice)} does not start with a bucket number of eight digits",
            hint="it is not a bucket table's: t.indexes.adopt('simple') looks keys up",
            context={"path": _label(file_slice)},
        )
    return number


# For `index="bucket"` without a count.
DEFAULT_BUCKETS = 8
_PREVIEWED = 3


@dataclass
class BucketIndex(Index, Hashing):
    """Hudi's bucket index (engine SIMPLE): every partition path has up to `buckets` file groups, one a bucket.

    `fields` are the key fields that are hashed, a subset of the table's key fields; empty means all of them. `rules`
    give partition paths a count of their own, `splits` are single buckets that were split (see `BucketCounts`). While
    the table has rows, only a rescale changes these settings: they decide where every stored row is.

    >>> BucketIndex(8, ("id",)).settings()
    {'type': 'bucket', 'bucket.count': '8', 'bucket.fields': 'id'}
    """

    buckets: int
    fields: tuple[str, ...] = ()
    rules: Rules = ()
    splits: Splits = ()

    name: ClassVar[str] = "bucket"
    is_global = False
    # what real Hudi takes where a job names the bucket index without a count
    HUDI_SETTINGS: ClassVar[Mapping[str, str]] = {"bucket.count": "256"}

    def __post_init__(self) -> None:
        self.fields = tuple(self.fields)
        _ = self.counts

    @property
    def counts(self) -> BucketCounts:
        """The number of buckets in each partition path."""
        return BucketCounts(self.buckets, self.rules, self.splits)

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> BucketIndex:
        """The index that `settings()` describes."""
        text = settings.get("bucket.count", "")
        if not text.isdecimal():
            raise InvalidOption(
                f"the table's lakebed.index.bucket.count is {text!r}, not a number",
                hint="restore the property to the number of buckets the table was made with",
                context={"option": "lakebed.index.bucket.count", "value": text},
            )
        return cls.of_counts(counts_of(settings, int(text)), split_fields(settings.get("bucket.fields", "")))

    @classmethod
    def of_counts(cls, counts: BucketCounts, fields: tuple[str, ...]) -> BucketIndex:
        """The index with these counts and hash fields."""
        return cls(counts.count, fields, counts.rules, counts.splits)

    @classmethod
    def from_options(cls, options: IndexOptions) -> BucketIndex:
        """The index that a caller names."""
        options.refuse_all_but("buckets", "fields", "partition_buckets")
        defaults = {"bucket.count": str(DEFAULT_BUCKETS), **options.defaults}
        named = cls.from_settings(defaults)
        rules = named.rules if options.partition_buckets is None else parse_rules(options.partition_buckets)
        same = rules == named.rules and options.buckets in (None, named.buckets)
        return cls(
            options.buckets or named.buckets, options.fields or named.fields, rules, named.splits if same else ()
        )

    def settings(self) -> Mapping[str, str]:
        recorded = {"type": self.name, "bucket.count": str(self.buckets)}
        return recorded | ({"bucket.fields": ",".join(self.fields)} if self.fields else {}) | text_of(self.counts)

    def resolved(self, key_fields: Sequence[str]) -> BucketIndex:
        """This index with its hash fields spelled out, in the order of the key. Raises `InvalidOption` for a field that
        is not in the key.

        >>> BucketIndex(4, ("b",)).resolved(["a", "b"]).fields
        ('b',)
        >>> BucketIndex(4).resolved(["a", "b"]).fields
        ('a', 'b')
        """
        if not key_fields:
            raise InvalidOption(
                "a bucket index needs key fields, this table's keys are generated",
                hint="name the key fields, or take the index 'simple'",
                context={"buckets": self.buckets},
            )
        fields = self.fields
        if not set(fields) <= set(key_fields):
            fields = tuple(in_any_case(f, key_fields) for f in fields)
        foreign = [f for f in fields if f not in key_fields]
        if foreign:
            raise InvalidOption(
                f"hash field {foreign[0]!r} of the bucket index is none of the key fields ({', '.join(key_fields)})",
                hint=f"{near_or_nothing(foreign[0], key_fields)}A bucket is found from the key alone: name key fields"
                " only, or none for all of them",
                context={"fields": list(self.fields), "key_fields": list(key_fields)},
            )
        hash_fields = fields or tuple(key_fields)
        return replace(self, fields=tuple([f for f in key_fields if f in hash_fields]))

    def hashed_fields(self, key_fields: Sequence[str]) -> tuple[str, ...]:
        return self.resolved(key_fields).fields

    @property
    def hashing(self) -> BucketIndex:
        return self

    @property
    def key_hash(self) -> KeyHash:
        return self

    @property
    def groups(self) -> int:
        return self.counts.numbers_end

    @property
    def modulo(self) -> int | None:
        return self.buckets if self.counts.is_uniform else None

    def group_column(self, keys: KeyGenerator, schema: pa.Schema) -> RowExpression:
        """The derived column (int32) with the bucket number of each row of data with this schema.

        SchemaConflict where the data lacks a column that the key is made of.
        """
        expression = Bucket(keys, self.fields, self.buckets)
        for name in expression.columns:
            Column(name).type_in(schema)
        return expression if self.counts.is_uniform else self.stored_group()

    def stored_group(self) -> RowExpression:
        return StoredBucket(self.fields, self.counts)

    def in_partition(self, path: str) -> KeyHash:
        return PathHash(self.fields, self.counts.buckets_in(path))

    def groups_of(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The bucket number (int32) of each stored key text, in a partition path without rule and splits."""
        return PathHash(self.fields, self.counts.buckets_in("")).groups_of(keys)

    @property
    def is_even(self) -> bool:
        return not self.counts.splits

    def spread(self, group: int, other: KeyHash) -> tuple[int, ...] | None:
        return None

    def resized(self, resizing: Resizing, snapshot: Snapshot) -> BucketIndex:
        sizes: dict[str, dict[int, int]] = {}
        if resizing.split_over is not None:
            slices = snapshot.file_slices(resizing.partitions)
            sizes = sizes_by_number((s.partition, bucket_of_file_id(s.file_id), s.size) for s in slices)
        return BucketIndex.of_counts(self.counts.resized(resizing, sizes), self.fields)

    def grown(self, sizes: Mapping[str, Mapping[int, int]], limit: int, *, by_path: bool) -> BucketIndex | None:
        counts = self.counts.grown(sizes, limit, by_path=by_path)
        return None if counts == self.counts else BucketIndex.of_counts(counts, self.fields)

    def before_change(self, instant: str, storage: Storage) -> None:
        """Write the file in which real Hudi finds the counts of partition paths, if some have, or had, a count of their
        own."""
        if self.rules or has_counts(storage):
            rules = self.rules or rules_for_all(self.buckets)
            write_counts(storage, PartitionCounts(instant, rules, self.buckets))

    def rollback(self, instant: str, snapshot: Snapshot) -> None:
        forget_counts(snapshot.storage, instant)

    def slices_of(self, slices: Iterable[FileSlice], numbers: Collection[int]) -> list[FileSlice]:
        return slices_of_buckets(slices, numbers)

    def check(self, snapshot: Snapshot) -> None:
        number_slices(snapshot.file_slices(), self.counts)
        if snapshot.config.populate_meta_fields:
            check_sample(snapshot, self)

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Hashed:
        """Place rows by their hash. In this process only the buckets of the rows are looked up; on Spark all buckets,
        since counting the buckets of the rows would be a job."""
        from lakebed.engine.base import GROUP, distinct_values

        if engine.is_distributed:
            return Hashed(self.bucket_map(snapshot))
        counted = engine.aggregate(rows, [PARTITION_PATH, GROUP])
        return Hashed(self.bucket_map(snapshot, *distinct_values(counted, PARTITION_PATH, GROUP)))

    def bucket_map(
        self, snapshot: Snapshot, partitions: Collection[str] | None = None, numbers: Collection[int] | None = None
    ) -> dict[tuple[str, int], FileSlice]:
        """The latest file slice of every (partition path, bucket), in the given partitions or all; `numbers`: of these
        buckets and maybe more.

        Raises `IndexInconsistent` if file ids are no bucket numbers of this index, or one of the buckets has two
        file groups.
        """
        slices = snapshot.file_slices(partitions, None if numbers is None else partial(_of_buckets, self, numbers))
        return number_slices(slices, self.counts)

    def explain(self) -> str:
        hashed = ", ".join(self.fields) or "the whole key"
        special_counts = [f"{count} in {rule}" for rule, count in self.rules[:_PREVIEWED]]
        split = sum(len(leaves) for _, leaves in self.splits)
        special_counts += [f"{split} of split ones"] if split else []
        counts = f"{self.buckets} ({', '.join(special_counts)})" if special_counts else str(self.buckets)
        return f"bucket: hash of {hashed} modulo {counts} names the file group; no file is read to tag"


def split_fields(text: str) -> tuple[str, ...]:
    """Field names from a comma-separated property."""
    return tuple([name.strip() for name in text.split(",") if name.strip()])


def _of_buckets(index: BucketIndex, numbers: Collection[int], ids: pa.Array, sizes: pa.Array) -> pa.Array:
    """A mask of the file ids that belong to one of some buckets; true for all ids if one of them is not a bucket's id,
    so that the caller reports it."""
    del sizes
    bucketed = pc.all(pc.match_substring_regex(ids, f"^{BUCKET_ID}")).as_py()
    texts = pc.utf8_slice_codeunits(ids, 0, 8)
    if not bucketed or pc.any(pc.greater_equal(texts, pa.scalar(f"{index.groups:08d}", pa.string()))).as_py():
        return pc.is_valid(ids)
    return pc.is_in(texts, value_set=pa.array([f"{number:08d}" for number in numbers], pa.string()))


def number_slices(slices: Sequence[FileSlice], counts: BucketCounts) -> dict[tuple[str, int], FileSlice]:
    """File slices by (partition path, bucket number). Raises `IndexInconsistent` if a file id cannot be a bucket's."""
    slices_by_bucket: dict[tuple[str, int], FileSlice] = {}
    for file_slice in slices:
        number = bucket_of_file_id(file_slice.file_id)
        if number is None or not counts.buckets_in(file_slice.partition).has(number):
            raise _not_a_bucket(file_slice, number, counts.buckets_in(file_slice.partition))
        existing = slices_by_bucket.setdefault((file_slice.partition, number), file_slice)
        if existing is not file_slice:
            raise _two_groups(existing, file_slice, number)
    return slices_by_bucket


def _not_a_bucket(file_slice: FileSlice, number: int | None, buckets: Buckets) -> IndexInconsistent:
    where = f"{file_slice.partition!r}" if file_slice.partition else "the table folder"
    context = {"partition": file_slice.partition, "file_id": file_slice.file_id, "buckets": buckets.count}
    if number is None:
        return IndexInconsistent(
            f"file id {file_slice.file_id} in {where} does not start with a bucket number of eight digits",
            hint="a writer without a bucket index wrote it: write the rows of that partition again with"
            " insert_overwrite, or let lakebed look keys up with t.indexes.adopt('simple')",
            context=context,
        )
    has = "has other ones: some were split" if buckets.depths else f"has {buckets.count} buckets"
    return IndexInconsistent(
        f"file id {file_slice.file_id} in {where} is bucket {number}, but the table's index {has}",
        hint="the table was written with more buckets: give the right number with"
        " t.indexes.adopt('bucket', buckets=...)",
        context=context | {"bucket": number},
    )


def _two_groups(file_slice: FileSlice, other: FileSlice, number: int) -> IndexInconsistent:
    first, second = file_slice.label, other.label
    return IndexInconsistent(
        f"bucket {number} of partition {file_slice.partition!r} has two file groups: {first} and {second}",
        hint="a second bulk insert or two unguarded writers made them: read the partition, drop duplicate keys and"
        " write it again with insert_overwrite",
        context={"partition": file_slice.partition, "bucket": number, "files": [first, second]},
    )
