"""Which index fits a table that is to be made: a pure function of a few numbers, which says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lakebed.index.costs import Batch, record_cost, simple_cost

MIB = 1 << 20
# A table of this size is one or two base files: there is nothing to find.
_SMALL = 128 * MIB
# Buckets cannot be added later, so they start out at a quarter of the gigabyte they may grow to.
_BUCKET_START = 256 * MIB
_MOST_BUCKETS = 4096


@dataclass(frozen=True, slots=True)
class TableProfile:
    """What is known of a table before it exists. None means not known.

    `rows` and `row_bytes` (bytes of a row in a base file) describe the expected size; `partitions` is the number of
    partition paths (0: not partitioned); `keys_grow` says that new keys are greater than old ones and old ones are
    seldom written again (event ids, time-ordered ids); `unique_keys` that a key exists once in the whole table;
    `batch` is the usual number of rows of an upsert.
    """

    rows: int | None = None
    row_bytes: float | None = None
    partitions: int | None = None
    keys_grow: bool = False
    unique_keys: bool = False
    batch: int | None = None
    has_key: bool = True
    table_type: Literal["cow", "mor"] = "cow"


@dataclass(frozen=True, slots=True)
class Advice:
    """The index to take, its arguments for `make_index`, and one sentence that says why."""

    index: str
    why: str
    settings: Mapping[str, int] = field(default_factory=dict)


def advise(profile: TableProfile, buckets: int | None = None, fields: Sequence[str] = ()) -> Advice:
    """The index for `index="auto"`. Who gives a number of `buckets`, or the `fields` to hash, wants a bucket index.

    >>> advise(TableProfile(rows=100_000_000, row_bytes=100, partitions=0)).settings
    {'buckets': 64}
    """
    if buckets or fields:
        given = f"{buckets} buckets were" if buckets else f"the fields to hash ({', '.join(fields)}) were"
        return Advice("bucket", f"bucket: {given} given", {"buckets": buckets} if buckets else {})
    if not profile.has_key:
        return Advice("simple", "simple: keys are generated, so no write ever looks one up")
    if profile.rows is None or profile.row_bytes is None:
        return Advice(
            "simple",
            "simple: the size of the table is not known, and a bucket count could not be changed later",
        )
    size = profile.rows * profile.row_bytes
    if size <= _SMALL:
        return Advice("simple", f"simple: about {_text(size)} in all, which is a base file or two to look through")
    if profile.partitions is None:
        return Advice(
            "simple",
            f"simple: about {_text(size)} in partition paths whose number is not known, and a bucket count could not be"
            " changed later",
        )
    partitions = max(1, profile.partitions)
    share = size / partitions
    if share <= _SMALL:
        return _for_small_partitions(
            profile.batch if profile.unique_keys else None, profile.rows, partitions
        ) or Advice(
            "simple",
            f"simple: about {_text(share)} in each of {partitions} partitions, too little to split into buckets",
        )
    if profile.keys_grow and partitions > 1:
        return Advice(
            "simple",
            "simple: new keys in new partitions, so a write looks only through the few partitions it touches",
        )
    buckets = bucket_count(share)
    place = f"in each of {partitions} partitions" if partitions > 1 else "in all"
    return Advice(
        "bucket",
        f"bucket: about {_text(share)} {place} make {buckets} buckets of {_text(share / buckets)}, with room to grow to"
        " a gigabyte each, and no write has to look keys up",
        {"buckets": buckets},
    )


def _for_small_partitions(batch: int | None, rows: int, partitions: int) -> Advice | None:
    """The record index, where keys are unique in the table and it finds those of a batch in half the time or less that
    looking through the partitions takes which as many rows can touch."""
    if batch is None:
        return None
    touched = min(batch, partitions)
    by_record = record_cost(Batch(batch, partitions, rows))
    by_simple = simple_cost(Batch(batch, touched, round(rows * touched / partitions)))
    if by_record > by_simple / 2:
        return None
    return Advice(
        "record",
        f"record: upserts of {batch:,} rows may touch {touched:,} of {partitions:,} partitions, and the record index"
        f" finds their keys {by_simple / by_record:.0f} times as fast as reading those of the files there",
    )


def bucket_count(partition_bytes: float) -> int:
    """Buckets for a partition of this size: a power of two, at most 256 MB in each to begin with.

    >>> bucket_count(10 * MIB), bucket_count(3000 * MIB)
    (1, 16)
    """
    buckets = 1
    while buckets * _BUCKET_START < partition_bytes and buckets < _MOST_BUCKETS:
        buckets *= 2
    return buckets


def _text(size: float) -> str:
    return f"{size / (1024 * MIB):.1f} GB" if size >= 1024 * MIB else f"{max(1, round(size / MIB))} MB"
