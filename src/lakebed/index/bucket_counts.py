"""How many buckets each partition path has: one count for all, rules for some paths, single buckets that were split;
and the files in which real Hudi stores such counts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from lakebed.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lakebed.expressions.base import RowExpression
from lakebed.expressions.bucket import Buckets, StoredBucket, hash_of
from lakebed.expressions.key_generators import KeyGenerator
from lakebed.format.file_names import bucket_of_file_id
from lakebed.format.hashes import key_list_hash, plain_strings
from lakebed.index.base import KeyHash, Resizing
from lakebed.model import HOODIE, FileSlice
from lakebed.properties.features import BUCKET_FOLDER
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage

CONFIGS = f"{BUCKET_FOLDER}/partition_bucket_index_meta/configs"
FIRST = "0" * 14
_SUFFIX = ".hashing_config"
# What Java and Python read the same way: no inline flags, named groups, possessive quantifiers, classes within classes.
_STRANGE = re.compile(r"\(\?(?![:=!])|[*+?}]\+|\\[pPGZzAQEhHvVRXkKbBuN]|\[[^\]]*(?:&&|\[)")

Rules = tuple[tuple[str, int], ...]


def parse_rules(text: str) -> Rules:
    """The rules in Hudi's text `regex,count;regex,count`. Raises `InvalidOption` for another form, and for expressions
    that Java and Python would read differently.

    >>> parse_rules("2026.*,8;^eu$,2")
    (('2026.*', 8), ('^eu$', 2))
    """
    rules: list[tuple[str, int]] = []
    for part in filter(None, (rule.strip() for rule in text.split(";"))):
        expression, comma, count = part.rpartition(",")
        if not comma or not count.strip().isdecimal() or not int(count) or "," in expression:
            raise InvalidOption(
                f"{part!r} is no rule for the bucket counts of partition paths",
                hint="Rules are regular expressions with a count each: '2026.*,8;eu,2'. An expression has no comma and"
                " no semicolon in it.",
                context={"rule": part},
            )
        _compiled(expression)
        rules.append((expression, int(count)))
    return tuple(rules)


def rules_text(rules: Rules) -> str:
    """The rules as Hudi's text: `regex,count;regex,count`."""
    return ";".join(f"{expression},{count}" for expression, count in rules)


def rule_of(path: str) -> str:
    """A regular expression that matches only this partition path."""
    # the two characters that rules are divided by, as Java and Python both write them otherwise
    escaped = re.sub(r"([^A-Za-z0-9_/=\-,;])", r"\\\1", path).replace(",", r"\x2c").replace(";", r"\x3b")
    return f"^{escaped}$"


@lru_cache(maxsize=256)
def _compiled(expression: str) -> re.Pattern[str]:
    try:
        strange = _STRANGE.search(expression)
        if strange is None:
            return re.compile(expression, re.ASCII)
        why = f"{strange.group()!r} means other things to Java and to Python"
    except re.error as cause:
        why = str(cause)
    raise InvalidOption(
        f"{expression!r} cannot be an expression for partition paths: {why}",
        hint="Use letters, '.', '*', '+', '?', classes, groups and alternatives.",
        context={"expression": expression},
    )


def count_in(rules: Rules, path: str) -> int | None:
    """The count of the first rule that matches a partition path; None if no rule does."""
    return next((count for expression, count in rules if _compiled(expression).search(path)), None)


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """One of real Hudi's files of bucket counts: the rules since an instant, and the count of all other partition
    paths."""

    instant: str
    rules: Rules
    count: int

    @property
    def path(self) -> str:
        """The path of the file, relative to the table."""
        return f"{CONFIGS}/{self.instant}{_SUFFIX}"

    def body(self) -> bytes:
        """The file's content in Hudi's form."""
        fields: Mapping[str, object] = {
            "expressions": rules_text(self.rules),
            "defaultBucketNumber": self.count,
            "rule": "regex",
            "version": 1,
            "instant": self.instant,
        }
        lines = ",\n".join(f"  {json.dumps(key)} : {json.dumps(value)}" for key, value in fields.items())
        return f"{{\n{lines}\n}}".encode()


def read_counts(snapshot: Snapshot) -> PartitionCounts | None:
    """The newest rules of this view, from an instant that has completed. None if the table has no such file."""
    if BUCKET_FOLDER.removeprefix(f"{HOODIE}/") not in snapshot.hoodie_folders:
        return None
    names = snapshot.storage.list_names(CONFIGS)
    instants = sorted((n.removesuffix(_SUFFIX) for n in names if n.endswith(_SUFFIX)), reverse=True)
    for instant in instants:
        if instant == FIRST or snapshot.is_visible(instant):
            return _read(snapshot.storage, instant)
    return None


def write_counts(storage: Storage, counts: PartitionCounts) -> None:
    """Write the file of an instant that is about to complete; readers use it once the instant has completed."""
    storage.write(counts.path, counts.body())


def has_counts(storage: Storage) -> bool:
    """Whether the table has files of bucket counts by partition path, as real Hudi writes them."""
    return any(name.endswith(_SUFFIX) for name in storage.list_names(CONFIGS))


def rules_for_all(count: int) -> Rules:
    """The rules with one rule that sets the same count for all partition paths, for tables that have files of rules."""
    return ((".*", count),)


def forget_counts(storage: Storage, instant: str) -> None:
    """Remove the file of an instant that is undone."""
    storage.delete(f"{CONFIGS}/{instant}{_SUFFIX}")


def _read(storage: Storage, instant: str) -> PartitionCounts:
    path = f"{CONFIGS}/{instant}{_SUFFIX}"
    try:
        content = json.loads(storage.read(path))
        rule, count = str(content["rule"]), int(content["defaultBucketNumber"])
        expressions = str(content["expressions"])
    except (ValueError, KeyError, TypeError) as cause:
        raise CorruptFile(
            f"{path} cannot be read: {cause}", hint="Restore the file from a copy.", context={"path": path}
        ) from cause
    if rule.lower() != "regex":
        raise UnsupportedFeature(
            f"{path} has rules of the kind {rule!r}, of which lakebed knows regex alone",
            hint="Write the table with the engine that made them.",
            context={"feature": "bucket counts by partition", "rule": rule},
        )
    return PartitionCounts(instant, parse_rules(expressions), count)


# What a file id has room for: eight digits.
MAX_BUCKETS = 100_000_000
ADVISED_BYTES = 3 << 30
"""The largest advised size of a bucket in bytes: each write to a bucket may read and write as much."""
# The most halvings of a bucket at once. Where they do not divide its keys, more bucket numbers do not help.
_MAX_HALVINGS = 6

# A write makes no rule for one more partition path where there are this many rules: each rule is tried for each path.
MAX_RULES = 1_000

Splits = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


@dataclass(frozen=True)
class BucketCounts:
    """The bucket counts of partition paths: the count of the first of the `rules` (regular expression, count) that
    matches, otherwise `count`. `splits` are the buckets that were made by splits, by partition path."""

    count: int
    rules: Rules = ()
    splits: Splits = ()

    def __post_init__(self) -> None:
        for count in (self.count, *[count for _, count in self.rules]):
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
        """The partition paths in which buckets were split, with all buckets of each."""
        return tuple((path, self.buckets_in(path)) for path, _ in self.splits)

    @property
    def numbers_end(self) -> int:
        """The number after the greatest bucket number in any partition path."""
        deep = [number + 1 for _, leaves in self.splits for number, _ in leaves]
        return max([self.count, *[count for _, count in self.rules], *deep])

    def buckets_in(self, path: str) -> Buckets:
        """The buckets of a partition path."""
        return _buckets_in(self, path)

    def resized(self, resizing: Resizing, sizes: Mapping[str, Mapping[int, int]]) -> BucketCounts:
        """These counts, changed by a request. `sizes` are the bytes of each bucket, by partition path and number, of
        the partition paths that the request concerns."""
        if resizing.split_over is not None:
            return self._split(resizing.split_over, sizes)
        if resizing.rules is not None:
            return BucketCounts(resizing.buckets or self.count, parse_rules(resizing.rules))
        if resizing.buckets is None:
            raise InvalidOption(
                "rescale takes the number of buckets",
                hint="Give buckets=, rules= for partition paths, or split_over= to split single buckets.",
            )
        if resizing.partitions is None:
            return BucketCounts(resizing.buckets)
        expressions = [rule_of(path) for path in resizing.partitions]
        other_rules = tuple(rule for rule in self.rules if rule[0] not in expressions)
        split = tuple(
            partition_split for partition_split in self.splits if partition_split[0] not in resizing.partitions
        )
        return BucketCounts(self.count, (*((rule, resizing.buckets) for rule in expressions), *other_rules), split)

    def grown(self, sizes: Mapping[str, Mapping[int, int]], limit: int, *, by_path: bool) -> BucketCounts:
        """These counts, doubled as often as `grown_count` states for each partition path in `sizes` (in the form of
        `resized`) in which a bucket has more than `limit` bytes. Partition paths with splits of single buckets are not
        changed, and neither are further paths once there are many rules."""
        counts = self
        for path, by_number in sorted(sizes.items()):
            buckets = self.buckets_in(path)
            count = grown_count(by_number.values(), buckets.count, limit)
            if count == buckets.count or buckets.depths or (by_path and len(counts.rules) >= MAX_RULES):
                continue
            counts = counts.resized(Resizing(count, (path,) if by_path else None), {})
        return counts

    def _split(self, limit: int, sizes: Mapping[str, Mapping[int, int]]) -> BucketCounts:
        """These counts with every bucket of more than `limit` bytes halved until its share is within the limit."""
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


def grown_count(sizes: Collection[int], count: int, limit: int) -> int:
    """The number of buckets there should be, for `count` buckets with these bytes: doubled until the largest has at
    most `limit` bytes, but not if the mean of all buckets is at most half of the limit. More buckets do not help
    against a few large ones, and each doubling is followed by another when the number of rows has doubled.

    >>> grown_count([90, 110], 2, 100), grown_count([230, 250], 2, 100), grown_count([300, 1, 1, 1], 4, 200)
    (4, 8, 4)
    """
    largest, total = max(sizes, default=0), sum(sizes)
    while largest > limit and 2 * total > count * limit and 2 * count <= MAX_BUCKETS:
        count, largest = 2 * count, largest / 2
    return count


def _times(size: int, limit: int, modulus: int) -> int:
    """The number of times that a bucket is halved: until its share is within the limit, at most `_MAX_HALVINGS` times
    at once, and at most until the number of buckets reaches its maximum."""
    possible_halvings = int(math.log2(MAX_BUCKETS / modulus))
    return max(0, min(math.ceil(math.log2(size / limit)), _MAX_HALVINGS, possible_halvings))


def splits_text(splits: Splits) -> str:
    """The splits as the text that the properties store."""
    return json.dumps({path: {str(n): depth for n, depth in leaves} for path, leaves in splits}, sort_keys=True)


def parse_splits(text: str) -> Splits:
    """The splits in a text that `splits_text` made."""
    if not text:
        return ()
    try:
        splits = {path: {int(n): int(d) for n, d in leaves.items()} for path, leaves in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError) as cause:
        raise CorruptFile(
            f"lakebed.index.bucket.splits cannot be read: {cause}",
            hint="Restore .hoodie/hoodie.properties from a copy.",
            context={"property": "lakebed.index.bucket.splits"},
        ) from cause
    return tuple(sorted((path, tuple(sorted(leaves.items()))) for path, leaves in splits.items()))


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
    """The file slices of buckets with these numbers, and the slices whose file id is not a bucket's."""
    return [s for s in slices if (b := bucket_of_file_id(s.file_id)) is None or b in numbers]


@dataclass(frozen=True)
class _Everywhere:
    """Bucket counts with equal buckets in every partition path."""

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
    """The properties that record the counts by partition path and the splits."""
    recorded: dict[str, str] = {}
    if counts.rules:
        recorded["bucket.partitions"] = rules_text(counts.rules)
    if counts.splits:
        recorded["bucket.splits"] = splits_text(counts.splits)
    return recorded


def counts_of(settings: Mapping[str, str], count: int) -> BucketCounts:
    """The counts that a table remembers."""
    rules, splits = settings.get("bucket.partitions"), settings.get("bucket.splits")
    return BucketCounts(count, parse_rules(rules) if rules else (), parse_splits(splits) if splits else ())


def sizes_by_number(slices: Iterable[tuple[str, int | None, int]]) -> dict[str, dict[int, int]]:
    """The total bytes by partition path and number, of triples (partition path, number, bytes); triples without a
    number are skipped."""
    sizes: dict[str, dict[int, int]] = {}
    for path, number, size in slices:
        if number is not None:
            by_number = sizes.setdefault(path, {})
            by_number[number] = by_number.get(number, 0) + size
    return sizes
