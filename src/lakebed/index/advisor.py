"""Which index fits a table that is to be made: a pure function of a few numbers, which says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lakebed.index.ranking import MIB, Workload, bucket_count, rank

# A table of this size is one or two base files: there is nothing to find.
_SMALL = 128 * MIB
# What "auto" takes: what needs no server, and what every table can have.
AUTO = ("bucket", "simple", "record")


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
            "simple: the size of the table is not known; t.indexes.advise(batch) says more once it has rows",
        )
    size = profile.rows * profile.row_bytes
    if size <= _SMALL:
        return Advice("simple", f"simple: about {_text(size)} in all, which is a base file or two to look through")
    if profile.partitions is None:
        return Advice(
            "simple",
            f"simple: about {_text(size)} in partition paths whose number is not known;"
            " t.indexes.advise(batch) says more once it has rows",
        )
    if profile.batch is not None:
        return _by_costs(profile, profile.rows, profile.row_bytes, profile.batch)
    partitions = max(1, profile.partitions)
    share = size / partitions
    if share <= _SMALL:
        return Advice(
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


def _by_costs(profile: TableProfile, rows: int, row_bytes: float, batch: int) -> Advice:
    """The cheapest of all indexes for batches of this size, which fall into as many partitions as they can."""
    partitions = max(1, profile.partitions or 0)
    touched = min(2, partitions) if profile.keys_grow else min(batch, partitions)
    workload = Workload(
        rows=rows,
        row_bytes=row_bytes,
        partitions=profile.partitions or 0,
        batch=batch,
        touched=touched,
        touched_rows=rows * touched // partitions,
        known=0.0 if profile.keys_grow else 1.0,
        grows=profile.keys_grow,
        unique=profile.unique_keys,
        mor=profile.table_type == "mor",
    )
    first, second, *_ = rank(workload, AUTO).candidates
    why = (
        f"{first.index}: upserts of {batch:,} rows that touch {touched:,} of {partitions:,} partitions take about"
        f" {first.seconds:.2g} s, under {second.index} {second.seconds:.2g} s; {first.words[0]}"
    )
    return Advice(first.index, why, first.settings)


def _text(size: float) -> str:
    return f"{size / (1024 * MIB):.1f} GB" if size >= 1024 * MIB else f"{max(1, round(size / MIB))} MB"
