"""The bucket index: a hash of the key names the file group, so nothing is looked up and no data file is read to tag."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine, Rows
from lakebed.engine.groups import GROUP, distinct_values
from lakebed.errors import IndexInconsistent, InvalidOption
from lakebed.expressions.base import Column
from lakebed.expressions.bucket import Bucket
from lakebed.expressions.key_generators import KeyGenerator
from lakebed.format.file_names import BUCKET_ID, bucket_of_file_id
from lakebed.format.hashes import bucket_ids
from lakebed.index.base import Hashed, Index, IndexOptions, KeyHash
from lakebed.index.bucket_keys import check_sample
from lakebed.model import PARTITION_PATH, FileSlice
from lakebed.slices.snapshot import Snapshot

# What a file id has room for: eight digits.
MAX_BUCKETS = 100_000_000
# For `index="bucket"` without a count.
DEFAULT_BUCKETS = 8


@dataclass
class BucketIndex(Index):
    """Hudi's bucket index (engine SIMPLE): every partition path has up to `buckets` file groups, one a bucket.

    `fields` are the key fields that are hashed, a subset of the table's key fields; empty means all of them. Neither
    can change while the table has rows: they decide where every stored row lives.

    >>> BucketIndex(8, ("id",)).settings()
    {'type': 'bucket', 'bucket.count': '8', 'bucket.fields': 'id'}
    """

    buckets: int
    fields: tuple[str, ...] = ()

    name: ClassVar[str] = "bucket"
    is_global = False
    # what real Hudi takes where a job names the bucket index without a count
    HUDI_SETTINGS: ClassVar[Mapping[str, str]] = {"bucket.count": "256"}

    def __post_init__(self) -> None:
        self.fields = tuple(self.fields)
        if not 0 < self.buckets <= MAX_BUCKETS:
            raise InvalidOption(
                f"a bucket index cannot have {self.buckets} buckets",
                hint=f"give a number from 1 to {MAX_BUCKETS}: the file groups of one partition path",
                context={"buckets": self.buckets},
            )

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
        return cls(int(text), split_fields(settings.get("bucket.fields", "")))

    @classmethod
    def from_options(cls, options: IndexOptions) -> BucketIndex:
        """The index that a caller names."""
        options.refuse_all_but("buckets", "fields")
        defaults = {"bucket.count": str(DEFAULT_BUCKETS), **options.defaults}
        named = cls.from_settings(defaults)
        return cls(options.buckets or named.buckets, options.fields or named.fields)

    def settings(self) -> Mapping[str, str]:
        recorded = {"type": self.name, "bucket.count": str(self.buckets)}
        return recorded | ({"bucket.fields": ",".join(self.fields)} if self.fields else {})

    def resolved(self, key_fields: Sequence[str]) -> BucketIndex:
        """The same index with its hash fields spelled out, in the order of the key; InvalidOption for a foreign one.

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
        foreign = [f for f in self.fields if f not in key_fields]
        if foreign:
            raise InvalidOption(
                f"hash field {foreign[0]!r} of the bucket index is none of the key fields ({', '.join(key_fields)})",
                hint="a bucket is found from the key alone: name key fields only, or none for all of them",
                context={"fields": list(self.fields), "key_fields": list(key_fields)},
            )
        wanted = self.fields or tuple(key_fields)
        return BucketIndex(self.buckets, tuple(f for f in key_fields if f in wanted))

    @property
    def key_hash(self) -> KeyHash:
        return self

    @property
    def groups(self) -> int:
        return self.buckets

    def group_column(self, keys: KeyGenerator, schema: pa.Schema) -> Bucket:
        """The derived column (int32) that gives the bucket number of each row of data with this schema.

        SchemaConflict where the data lacks a column that the key is made of.
        """
        expression = Bucket(keys, self.fields, self.buckets)
        for name in expression.columns:
            Column(name).type_in(schema)
        return expression

    def groups_of(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Bucket number (int32) of each stored key text."""
        return pa.array(bucket_ids(keys, self.fields, self.buckets), pa.int32())

    def slices_of(self, slices: Iterable[FileSlice], numbers: Collection[int]) -> list[FileSlice]:
        """Those of buckets with these numbers, and those whose names tell no bucket."""
        return [s for s in slices if (b := bucket_of_file_id(s.file_id)) is None or b in numbers]

    def check(self, snapshot: Snapshot) -> None:
        number_slices(snapshot.file_slices(), self.buckets)
        if snapshot.config.populate_meta_fields:
            check_sample(snapshot, self)

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Hashed:
        """By the hash. In this process the buckets of the rows are looked at, on Spark, where counting them would be a
        job, all."""
        if engine.is_distributed:
            return Hashed(self.bucket_map(snapshot))
        counted = engine.aggregate(rows, [PARTITION_PATH, GROUP])
        return Hashed(self.bucket_map(snapshot, *distinct_values(counted, PARTITION_PATH, GROUP)))

    def bucket_map(
        self, snapshot: Snapshot, partitions: Collection[str] | None = None, numbers: Collection[int] | None = None
    ) -> dict[tuple[str, int], FileSlice]:
        """The latest file slice of every (partition path, bucket), in the given partitions or all; `numbers`: of these
        buckets and maybe more.

        Raises `IndexInconsistent` where file ids are no bucket numbers of this index, or one of the buckets has two
        file groups.
        """
        slices = snapshot.file_slices(partitions, None if numbers is None else partial(_of_buckets, self, numbers))
        return number_slices(slices, self.buckets)

    def explain(self) -> str:
        hashed = ", ".join(self.fields) or "the whole key"
        return f"bucket: hash of {hashed} modulo {self.buckets} names the file group; no file is read to tag"


def split_fields(text: str) -> tuple[str, ...]:
    """Field names from a comma-separated property."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _of_buckets(index: BucketIndex, numbers: Collection[int], ids: pa.Array, sizes: pa.Array) -> pa.Array:
    """Which file ids are those of some buckets: all of them where one is of no bucket, so that it is met."""
    del sizes
    bucketed = pc.all(pc.match_substring_regex(ids, f"^{BUCKET_ID}")).as_py()
    texts = pc.utf8_slice_codeunits(ids, 0, 8)
    if not bucketed or pc.any(pc.greater_equal(texts, f"{index.buckets:08d}")).as_py():
        return pc.is_valid(ids)
    return pc.is_in(texts, value_set=pa.array([f"{number:08d}" for number in numbers], pa.string()))


def number_slices(slices: Sequence[FileSlice], buckets: int) -> dict[tuple[str, int], FileSlice]:
    """File slices by (partition path, bucket number); `IndexInconsistent` where the ids cannot be such numbers."""
    found: dict[tuple[str, int], FileSlice] = {}
    for file_slice in slices:
        number = bucket_of_file_id(file_slice.file_id)
        if number is None or number >= buckets:
            raise _not_a_bucket(file_slice, number, buckets)
        other = found.setdefault((file_slice.partition, number), file_slice)
        if other is not file_slice:
            raise _two_groups(other, file_slice, number)
    return found


def _not_a_bucket(file_slice: FileSlice, number: int | None, buckets: int) -> IndexInconsistent:
    where = f"{file_slice.partition!r}" if file_slice.partition else "the table folder"
    context = {"partition": file_slice.partition, "file_id": file_slice.file_id, "buckets": buckets}
    if number is None:
        return IndexInconsistent(
            f"file id {file_slice.file_id} in {where} does not start with a bucket number of eight digits",
            hint="a writer without a bucket index wrote it: write the rows of that partition again with"
            " insert_overwrite, or tell lakebed to look keys up with t.indexes.adopt('simple')",
            context=context,
        )
    return IndexInconsistent(
        f"file id {file_slice.file_id} in {where} is bucket {number}, but the table's index has {buckets} buckets",
        hint="the table was written with more buckets: tell lakebed the right number with"
        " t.indexes.adopt('bucket', buckets=...)",
        context=context | {"bucket": number},
    )


def _two_groups(one: FileSlice, other: FileSlice, number: int) -> IndexInconsistent:
    first, second = one.label, other.label
    return IndexInconsistent(
        f"bucket {number} of partition {one.partition!r} has two file groups: {first} and {second}",
        hint="a second bulk insert or two unguarded writers made them: read the partition, drop duplicate keys and"
        " write it again with insert_overwrite",
        context={"partition": one.partition, "bucket": number, "files": [first, second]},
    )
