"""The bucket index with as many file groups to a bucket as its rows need: a bucket that is skewed, or has grown, stays
one for look-ups while its files stay within the file size."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lakebed.engine.base import GROUP, Engine, Rows, distinct_values
from lakebed.errors import IndexInconsistent, InvalidOption
from lakebed.format.file_names import bucket_of_file_id
from lakebed.index.base import Hashed, IndexOptions, Resizing
from lakebed.index.bucket import BucketIndex, check_sample
from lakebed.model import PARTITION_PATH, FileSlice
from lakebed.slices.snapshot import Snapshot


@dataclass
class BucketGroupsIndex(BucketIndex):
    """An index that finds the bucket of a key by the key's hash; a bucket has several file groups where one would grow
    beyond the file size.

    The hash of a key names its bucket; in the bucket it is looked for by key ranges, bloom filters and the key column
    of those files that are left. Real Hudi reads the table; its bucket writer refuses one with two file groups to a
    bucket.

    >>> BucketGroupsIndex(8, ("id",)).settings()
    {'type': 'bucket_groups', 'bucket.count': '8', 'bucket.fields': 'id'}
    """

    name: ClassVar[str] = "bucket_groups"
    has_fixed_groups = False
    rows_can_move = False
    needs_bloom_filters = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rules or self.splits:
            raise InvalidOption(
                "partition_buckets does not belong to the index 'bucket_groups'",
                hint="its buckets get as many file groups as their rows need; bucket counts of partition paths are the"
                " bucket index's",
                context={"index": self.name, "option": "partition_buckets"},
            )

    @property
    def modulo(self) -> int | None:
        return None

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> BucketGroupsIndex:
        """The index that `settings()` describes."""
        return cls(**vars(BucketIndex.from_settings(settings)))

    @classmethod
    def from_options(cls, options: IndexOptions) -> BucketGroupsIndex:
        """The index that a caller names."""
        return cls(**vars(BucketIndex.from_options(options)))

    def resized(self, resizing: Resizing, snapshot: Snapshot) -> BucketGroupsIndex:
        raise InvalidOption(
            f"the index {self.name!r} keeps its number of buckets: they get further file groups as they grow",
            hint="Make a new table with another number of buckets and write the rows of this one to it.",
            context={"index": self.name},
        )

    def check(self, snapshot: Snapshot) -> None:
        self._by_number(snapshot.file_slices())
        if snapshot.config.populate_meta_fields:
            check_sample(snapshot, self)

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Hashed:
        """Place rows by their hash; the task with a bucket's rows looks the keys up among the bucket's file groups."""
        if engine.is_distributed:
            return Hashed({}, self._by_number(snapshot.file_slices()))
        counted = engine.aggregate(rows, [PARTITION_PATH, GROUP])
        partitions, numbers = distinct_values(counted, PARTITION_PATH, GROUP)
        return Hashed({}, self._by_number(snapshot.file_slices(partitions), set(numbers)))

    def _by_number(
        self, slices: Sequence[FileSlice], numbers: Collection[int] | None = None
    ) -> dict[tuple[str, int], tuple[FileSlice, ...]]:
        """The file slices of every (partition path, bucket), of some buckets or all."""
        slices_by_bucket: dict[tuple[str, int], tuple[FileSlice, ...]] = {}
        for file_slice in slices:
            number = bucket_of_file_id(file_slice.file_id)
            if number is None or number >= self.groups:
                raise IndexInconsistent(
                    f"file id {file_slice.file_id} in partition {file_slice.partition!r} is of no bucket of"
                    f" {self.groups}",
                    hint="a writer without the table's index wrote it: write the rows of that partition again with"
                    " insert_overwrite",
                    context={"partition": file_slice.partition, "file_id": file_slice.file_id, "buckets": self.groups},
                )
            if numbers is None or number in numbers:
                slices_by_bucket[file_slice.partition, number] = (
                    *slices_by_bucket.get((file_slice.partition, number), ()),
                    file_slice,
                )
        return slices_by_bucket

    def explain(self) -> str:
        hashed = ", ".join(self.fields) or "the whole key"
        return (
            f"bucket_groups: hash of {hashed} modulo {self.buckets} names the bucket; among its file groups keys are"
            " found by key range, bloom filter and key column"
        )
