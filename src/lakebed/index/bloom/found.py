"""What a search for keys gives: their places, and what was done to find them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.engine.base import Rows
from lakebed.index.base import KeyLookup
from lakebed.index.bloom.slice_search import SearchedSlice
from lakebed.model import FILE_ID, INSTANT, OLD_PARTITION, POSITION, RECORD_KEY, FileSlice

PLACES = pa.schema(
    [(RECORD_KEY, pa.string()), (OLD_PARTITION, pa.string()), (FILE_ID, pa.string()), (INSTANT, pa.string()),
     (POSITION, pa.int64())]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """A row of `PLACES` for every place of a key. With `small` they are few; `held` are rows to be released."""

    rows: Rows
    lookup: KeyLookup
    small: bool
    held: Rows | None = None


def places_in(one: FileSlice, held: SearchedSlice) -> pa.Table:
    """The rows of `PLACES` that a slice gave."""
    place = [
        pa.repeat(pa.scalar(text, pa.string()), len(held.found)) for text in (one.partition, one.file_id, one.instant)
    ]
    return pa.Table.from_arrays([held.found, *place, held.positions], schema=PLACES)


def counted_lookup(held: Sequence[SearchedSlice], *, keys: int, files: int, asked_files: int) -> KeyLookup:
    """The sum of what slices gave."""
    return KeyLookup(
        keys=keys,
        tagged=sum(len(one.found) for one in held),
        files=files,
        out_of_range=files - asked_files,
        filtered=sum(1 for one in held if not one.reads),
        searched=sum(1 for one in held if one.reads),
        asked=sum(one.asked for one in held),
        absent=sum(one.absent for one in held),
        false_positives=sum(one.false_positives for one in held),
        opened=sum(one.opened for one in held),
        bytes=sum(one.bytes for one in held),
    )
