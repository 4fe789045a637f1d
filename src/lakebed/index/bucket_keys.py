"""Whether the keys of a table's rows lie in the buckets that their files are named after: a sample of them, or all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakebed.errors import IndexInconsistent
from lakebed.format.base_file import read_base_file
from lakebed.format.file_names import bucket_of_file_id
from lakebed.format.hashes import plain_strings
from lakebed.model import RECORD_KEY, BaseFile
from lakebed.slices.snapshot import Snapshot

_SAMPLE_FILES = 32
_SAMPLE_KEYS = 4096


class Buckets(Protocol):
    """A bucket index, as far as its keys are checked."""

    buckets: int
    fields: tuple[str, ...]

    def groups_of(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class SampledFile:
    """A base file, the bucket number in its file id, and some of its record keys."""

    path: str
    bucket: int
    keys: pa.Array


def sample_files(snapshot: Snapshot) -> list[SampledFile]:
    """The first keys of some of the latest base files, spread over the table; their ids must be bucket numbers."""
    files = snapshot.base_files()
    step = max(1, len(files) // _SAMPLE_FILES)
    sampled: list[SampledFile] = []
    for file in files[::step][:_SAMPLE_FILES]:
        parts = [k.slice(0, _SAMPLE_KEYS) for k in islice(_stored_keys(snapshot, file, _SAMPLE_KEYS), 1)]
        keys = parts[0] if parts else pa.array([], pa.string())
        sampled.append(SampledFile(file.path, _number(file), keys))
    return sampled


def check_sample(snapshot: Snapshot, index: Buckets) -> None:
    """`IndexInconsistent` naming the first of some stored keys that does not hash to the bucket of its file."""
    for sampled in sample_files(snapshot):
        _check_keys(sampled, index)


def check_all_keys(snapshot: Snapshot, index: Buckets) -> None:
    """The same for every stored key; only the key column is read."""
    for file in snapshot.base_files():
        for keys in _stored_keys(snapshot, file):
            _check_keys(SampledFile(file.path, _number(file), keys), index)


def _check_keys(file: SampledFile, index: Buckets) -> None:
    numbers = index.groups_of(file.keys).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(numbers != file.bucket)
    if len(wrong):
        key, other = file.keys[int(wrong[0])].as_py(), int(numbers[wrong[0]])
        raise IndexInconsistent(
            f"record key {key!r} in {file.path} belongs to bucket {other} under {index.buckets} buckets hashed on"
            f" {', '.join(index.fields) or 'the whole key'}, but the file is bucket {file.bucket}",
            hint="the count or the hash fields are not those that the table was written with, or a writer without"
            " a bucket index has written to it",
            context={"record_key": key, "path": file.path, "bucket": file.bucket, "hashed_to": other},
        )


def _stored_keys(snapshot: Snapshot, file: BaseFile, batch_rows: int = 1 << 16) -> Iterator[pa.Array]:
    """The record keys of a base file, a batch at a time."""
    for batch in read_base_file(snapshot.storage, file.path, file.size, [RECORD_KEY], batch_rows=batch_rows):
        yield plain_strings(batch.column(0))


def _number(file: BaseFile) -> int:
    number = bucket_of_file_id(file.file_id)
    if number is None:
        raise IndexInconsistent(
            f"base file {file.path} does not start with a bucket number of eight digits",
            hint="it is not a bucket table's: t.indexes.adopt('simple') looks keys up",
            context={"path": file.path},
        )
    return number
