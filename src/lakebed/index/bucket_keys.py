"""Whether the keys of a table's rows lie in the buckets that their files are named after: a sample of them, or all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakebed.errors import IndexInconsistent
from lakebed.format.file_names import bucket_of_file_id
from lakebed.format.hashes import plain_strings
from lakebed.index.base import KeyHash
from lakebed.index.bucket_counts import BucketCounts
from lakebed.model import RECORD_KEY, FileSlice, path_in
from lakebed.slices.snapshot import Snapshot

_SAMPLE_SLICES = 32
_SAMPLE_KEYS = 4096
# Hash fields are tried in every combination up to this many key fields, beyond it one by one and all together.
_COMBINED_FIELDS = 6


class Buckets(Protocol):
    """A bucket index, as far as its keys are checked."""

    fields: tuple[str, ...]

    @property
    def counts(self) -> BucketCounts: ...

    def in_partition(self, path: str) -> KeyHash: ...


@dataclass(frozen=True, slots=True)
class SampledSlice:
    """A file slice by its label, the bucket number in its file id, and some of its record keys."""

    label: str
    bucket: int
    keys: pa.Array
    partition: str = ""


def sample_slices(snapshot: Snapshot) -> list[SampledSlice]:
    """The first keys of some of the latest file slices, spread over the table; their ids must be bucket numbers. Where
    there is a base file its keys tell enough."""
    slices = [s if s.base_file is None else s.without_logs() for s in snapshot.file_slices()]
    step = max(1, len(slices) // _SAMPLE_SLICES)
    chosen = slices[::step][:_SAMPLE_SLICES]
    return [SampledSlice(_label(one), _number(one), first_keys(snapshot, one), one.partition) for one in chosen]


def check_sample(snapshot: Snapshot, index: Buckets) -> None:
    """`IndexInconsistent` naming the first of some stored keys that does not hash to the bucket of its file."""
    for sampled in sample_slices(snapshot):
        _check_keys(sampled, index)


def check_all_keys(snapshot: Snapshot, index: Buckets) -> None:
    """The same for every stored key; only the key column is read."""
    for file_slice in snapshot.file_slices():
        for keys in stored_keys(snapshot, file_slice):
            sampled = SampledSlice(_label(file_slice), _number(file_slice), keys, file_slice.partition)
            _check_keys(sampled, index)


def field_choices(key_fields: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What may be hashed of a key: all fields first (Hudi's default), then the smaller choices."""
    keys = tuple(key_fields)
    yield keys
    sizes = range(len(keys) - 1, 0, -1) if len(keys) <= _COMBINED_FIELDS else [1] if len(keys) > 1 else []
    for size in sizes:
        yield from combinations(keys, size)


def _check_keys(sampled: SampledSlice, index: Buckets) -> None:
    numbers = index.in_partition(sampled.partition).groups_of(sampled.keys).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(numbers != sampled.bucket)
    if len(wrong):
        key, other = sampled.keys[int(wrong[0])].as_py(), int(numbers[wrong[0]])
        count = index.counts.buckets_in(sampled.partition).count
        raise IndexInconsistent(
            f"record key {key!r} in {sampled.label} belongs to bucket {other} under {count} buckets hashed on"
            f" {', '.join(index.fields) or 'the whole key'}, but the file is bucket {sampled.bucket}",
            hint="the count or the hash fields are not those that the table was written with, or a writer without"
            " a bucket index has written to it",
            context={"record_key": key, "path": sampled.label, "bucket": sampled.bucket, "hashed_to": other},
        )


def first_keys(snapshot: Snapshot, file_slice: FileSlice) -> pa.Array:
    """Some of the record keys of a file slice."""
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
