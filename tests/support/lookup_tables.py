"""What each index has to tell of one small write: keys looked up, files opened and bytes read to find them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.index.base import KeyLookup
from lakebed.table import Table

FIRST = pa.table(
    {
        "id": [f"a{n}" for n in range(10)] + [f"b{n}" for n in range(10)],
        "region": ["eu"] * 10 + ["us"] * 10,
        "v": [1] * 20,
    }
)
# two known keys, one that another partition path has, and a new one in a partition path without files
NEXT = pa.table({"id": ["a0", "a1", "b0", "n0"], "region": ["eu", "eu", "eu", "asia"], "v": [2] * 4})


@dataclass(frozen=True)
class Counts:
    """Of `NEXT`: places found, file slices that could hold a key, those whose keys were read, and data files opened."""

    index: str
    tagged: int
    files: int
    searched: int
    opened: int
    kinds: tuple[str, ...] = ("cow", "mor")
    by_hash: bool = False
    opens_index: bool = False


COUNTS = (
    Counts("simple", 2, files=1, searched=1, opened=1),
    Counts("global_simple", 3, files=2, searched=2, opened=2),
    Counts("bloom", 2, files=1, searched=1, opened=1),
    Counts("global_bloom", 3, files=2, searched=2, opened=2),
    Counts("bucket_groups", 2, files=1, searched=1, opened=1),
    Counts("record", 3, files=0, searched=0, opened=0, opens_index=True),
    Counts("record_level_index", 2, files=0, searched=0, opened=0, opens_index=True),
    Counts("bucket", 0, files=0, searched=0, opened=0, by_hash=True),
    Counts("consistent", 0, files=0, searched=0, opened=0, kinds=("mor",), by_hash=True),
)
CASES = [(counts, kind) for counts in COUNTS for kind in counts.kinds]
NAMES = [f"{counts.index} {kind}" for counts, kind in CASES]


def lookup_table(uri: str, index: str, kind: Any) -> Table:
    """A table of `FIRST` whose keys are in base files, one a partition path."""
    buckets = {"buckets": 1} if index in ("bucket", "bucket_groups", "consistent") else {}
    table = lakebed.create(
        uri, FIRST.schema, key="id", partition_by="region", type=kind, index=index, merge="commit_time", **buckets
    )
    table.upsert(FIRST)
    return table


def check(counts: Counts, found: KeyLookup | None, *, knows_bytes: bool) -> None:
    """That a lookup of `NEXT` has these counts."""
    assert found is not None
    assert (found.keys, found.tagged, found.by_hash) == (4, counts.tagged, counts.by_hash)
    assert (found.files, found.searched, found.opened) == (counts.files, counts.searched, counts.opened)
    assert (found.index_files > 0) is counts.opens_index
    if not counts.opened:
        assert found.bytes == 0
    elif knows_bytes:
        # a key column and no more
        assert found.bytes is not None
        assert 0 < found.bytes < 1_000 * counts.opened
    else:
        assert found.bytes is None
