"""How many buckets each partition path has: one count for all, rules for some, single buckets that were split."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from lakebed.errors import CorruptFile, InvalidOption
from lakebed.expressions.base import RowExpression
from lakebed.expressions.bucket import Buckets, StoredBucket, hash_of
from lakebed.expressions.key_generators import KeyGenerator
from lakebed.format.file_names import bucket_of_file_id
from lakebed.format.hashes import key_list_hash, plain_strings
from lakebed.index.base import KeyHash, Resizing
from lakebed.index.partition_counts import Rules, count_in, parse_rules, rule_of, rules_text
from lakebed.model import FileSlice

# What a file id has room for: eight digits.
MAX_BUCKETS = 100_000_000
ADVISED_BYTES = 3 << 30
"""The most bytes of a bucket that are advised: each write that meets it reads and writes as much."""
# A bucket of several keys that will not be divided is not worth more numbers.
_MOST_HALVINGS = 6

Splits = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


@dataclass(frozen=True)
class BucketCounts:
    """`count` buckets in each partition path, but for those that one of the `rules` (regular expression, count) is
    found in: the first one counts. `splits` are the buckets that came of splits, by partition path."""

    count: int
    rules: Rules = ()
    splits: Splits = ()

    def __post_init__(self) -> None:
        for count in (self.count, *(count for _, count in self.rules)):
            if not 0 < count <= MAX_BUCKETS:
                raise InvalidOption(
                    f"a bucket index cannot have {count} buckets",
                    hint=f"give a number from 1 to {MAX_BUCKETS}: the file groups of one partition path",
                    context={"buckets": count},
                )

    @property
    def is_uniform(self) -> bool:
        """Whether all partition paths have the same buckets."""
        return not self.rules and not self.splits

    @property
    def named(self) -> tuple[tuple[str, Buckets], ...]:
        """Partition paths where buckets were split, and all buckets of each."""
        return tuple((path, self.buckets_in(path)) for path, _ in self.splits)

    @property
    def numbers_end(self) -> int:
        """One more than the greatest number of a bucket in any partition path."""
        deep = [number + 1 for _, leaves in self.splits for number, _ in leaves]
        return max([self.count, *(count for _, count in self.rules), *deep])

    def buckets_in(self, path: str) -> Buckets:
        """The buckets of a partition path."""
        return _buckets_in(self, path)

    def resized(self, wanted: Resizing, sizes: Mapping[str, Mapping[int, int]]) -> BucketCounts:
        """These counts, changed as somebody wants them. `sizes` are the bytes of each bucket, by partition path and
        number, of the partition paths that are meant."""
        if wanted.split_over is not None:
            return self._split(wanted.split_over, sizes)
        if wanted.rules is not None:
            return BucketCounts(wanted.buckets or self.count, parse_rules(wanted.rules))
        if wanted.buckets is None:
            raise InvalidOption(
                "rescale takes the number of buckets",
                hint="Give buckets=, rules= for partition paths, or split_over= to split single buckets.",
            )
        if wanted.partitions is None:
            return BucketCounts(wanted.buckets)
        own = [rule_of(path) for path in wanted.partitions]
        others = tuple(rule for rule in self.rules if rule[0] not in own)
        split = tuple(one for one in self.splits if one[0] not in wanted.partitions)
        return BucketCounts(self.count, (*((rule, wanted.buckets) for rule in own), *others), split)

    def _split(self, limit: int, sizes: Mapping[str, Mapping[int, int]]) -> BucketCounts:
        """Buckets of more bytes are halved as often as it takes."""
        splits = dict(self.splits)
        for path, by_number in sorted(sizes.items()):
            buckets = self.buckets_in(path)
            for number, size in sorted(by_number.items()):
                if size > limit:
                    buckets = buckets.split(number, _times(size, limit, buckets.moduli[number]))
            if buckets.depths:
                splits[path] = buckets.depths
        return replace(self, splits=tuple(sorted(splits.items())))


@lru_cache(maxsize=1 << 14)
def _buckets_in(counts: BucketCounts, path: str) -> Buckets:
    count = count_in(counts.rules, path)
    depths = next((leaves for named, leaves in counts.splits if named == path), ())
    return Buckets(counts.count if count is None else count, depths)


def _times(size: int, limit: int, modulus: int) -> int:
    """How often a bucket is halved: until its share is within the limit, at most `_MOST_HALVINGS` times at once, or
    until its numbers take all digits there are."""
    most = int(math.log2(MAX_BUCKETS / modulus))
    return max(0, min(math.ceil(math.log2(size / limit)), _MOST_HALVINGS, most))


def splits_text(splits: Splits) -> str:
    """Splits as the properties have them."""
    return json.dumps({path: {str(n): depth for n, depth in leaves} for path, leaves in splits}, sort_keys=True)


def parse_splits(text: str) -> Splits:
    """The same as values."""
    if not text:
        return ()
    try:
        found = {path: {int(n): int(d) for n, d in leaves.items()} for path, leaves in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError) as cause:
        raise CorruptFile(
            f"lakebed.index.bucket.splits cannot be read: {cause}",
            hint="Restore .hoodie/hoodie.properties from a copy.",
            context={"property": "lakebed.index.bucket.splits"},
        ) from cause
    return tuple(sorted((path, tuple(sorted(leaves.items()))) for path, leaves in found.items()))


@dataclass(frozen=True)
class PathHash(KeyHash):
    """The hash of one partition path."""

    fields: tuple[str, ...]
    buckets: Buckets

    @property
    def groups(self) -> int:
        return self.buckets.numbers_end

    def group_column(self, keys: KeyGenerator, schema: pa.Schema) -> RowExpression:
        return self.stored_group()

    def stored_group(self) -> RowExpression:
        return StoredBucket(self.fields, _Everywhere(self.buckets))

    def groups_of(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        hashes = hash_of(key_list_hash(plain_strings(keys), self.fields))
        return pa.array(self.buckets.numbers(hashes), pa.int32())

    def slices_of(self, slices: Iterable[FileSlice], numbers: Collection[int]) -> list[FileSlice]:
        return slices_of_buckets(slices, numbers)

    @property
    def is_even(self) -> bool:
        return not self.buckets.depths

    def spread(self, group: int, other: KeyHash) -> tuple[int, ...] | None:
        if not isinstance(other, PathHash) or other.fields != self.fields or not self.buckets.has(group):
            return None
        return self.buckets.spread(group, other.buckets)


def slices_of_buckets(slices: Iterable[FileSlice], numbers: Collection[int]) -> list[FileSlice]:
    """The file slices of buckets with these numbers, and those whose names tell no bucket."""
    return [s for s in slices if (b := bucket_of_file_id(s.file_id)) is None or b in numbers]


@dataclass(frozen=True)
class _Everywhere:
    """The same buckets wherever."""

    buckets: Buckets
    rules: tuple[tuple[str, int], ...] = ()

    @property
    def count(self) -> int:
        return self.buckets.count

    @property
    def named(self) -> tuple[tuple[str, Buckets], ...]:
        return ()

    def buckets_in(self, path: str) -> Buckets:
        return self.buckets


def text_of(counts: BucketCounts) -> dict[str, str]:
    """What the table remembers of counts by partition path and of splits."""
    recorded: dict[str, str] = {}
    if counts.rules:
        recorded["bucket.partitions"] = rules_text(counts.rules)
    if counts.splits:
        recorded["bucket.splits"] = splits_text(counts.splits)
    return recorded


def counts_of(settings: Mapping[str, str], count: int) -> BucketCounts:
    """The counts that a table remembers."""
    return BucketCounts(
        count, parse_rules(settings.get("bucket.partitions", "")), parse_splits(settings.get("bucket.splits", ""))
    )


def sizes_by_number(slices: Iterable[tuple[str, int | None, int]]) -> dict[str, dict[int, int]]:
    """Bytes by partition path and number, of (partition path, number, bytes)."""
    found: dict[str, dict[int, int]] = {}
    for path, number, size in slices:
        if number is not None:
            by_number = found.setdefault(path, {})
            by_number[number] = by_number.get(number, 0) + size
    return found
