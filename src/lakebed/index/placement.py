"""Where an index places the rows of a write: in numbered file groups, or tagged with the file group of their key."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from lakebed.engine.base import Engine, Rows
from lakebed.model import FileSlice


@dataclass(frozen=True, slots=True)
class Hashed:
    """The file group follows from the row: its number is in the column that `KeyHash.group_column` derived.

    `existing` has the latest file slice of every (partition path, number) that is stored and that rows may go to.
    """

    existing: Mapping[tuple[str, int], FileSlice]
    several: Mapping[tuple[str, int], tuple[FileSlice, ...]] | None = None
    """Those of each number where it may have several file groups; the task that has its rows looks their keys up among
    them."""


class GroupNames(Protocol):
    """The file groups of numbers. It pickles: tasks ask it."""

    def file_id(self, partition: str, number: int) -> str:
        """The file group that rows of a partition path with this number go to, whether it is there or not."""
        ...

    def count(self, partition: str) -> int:
        """How many numbers a partition path has."""
        ...


@dataclass(frozen=True, slots=True)
class Numbered:
    """The rows with the number of their file group in the column `GROUP` (int32); it follows from the key, and from
    what the index has of each partition path.

    `existing` has the latest file slices of file groups that are there, by partition path and number. `parents` are
    those of file groups that a pending clustering makes, whose rows come twice: the slices that hold their rows until
    then.
    """

    rows: Rows
    names: GroupNames
    existing: Mapping[tuple[str, int], FileSlice]
    parents: Mapping[tuple[str, int], tuple[FileSlice, ...]] = field(
        default_factory=dict[tuple[str, int], tuple[FileSlice, ...]]
    )


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """What an index did to find the keys of a write.

    Of `keys` keys it found `tagged` places. The bloom indexes count a key once, others as often as rows have it. Of
    `files` file slices that could hold one by their partition path `out_of_range` were ruled out by their range of keys
    and `filtered` by their bloom filter; of `searched` ones stored keys were read. Filters were `asked` so often for a
    key, `absent` times for one that their file does not hold; `false_positives` of these they let through.

    `opened` data files (base and log files) were opened to read stored keys or ordering values, and `bytes` of key
    columns and of log files were read from them, None where that is not known: Spark's own reader does not say. Footers
    are in neither. `index_files` files of an index were opened, one that several tasks open as often. `by_hash`: the
    hash of a key names its file group, so that nobody looked whether it is there, and `tagged` is 0.
    """

    keys: int = 0
    tagged: int = 0
    files: int = 0
    out_of_range: int = 0
    filtered: int = 0
    searched: int = 0
    asked: int = 0
    absent: int = 0
    false_positives: int = 0
    opened: int = 0
    bytes: int | None = 0
    index_files: int = 0
    by_hash: bool = False

    @property
    def false_positive_rate(self) -> float:
        """Of the keys that a filter was asked for and that its file does not hold: the share that it let through."""
        return self.false_positives / self.absent if self.absent else 0.0

    def with_reads(self, opened: int, size: int | None) -> KeyLookup:
        """The same, and so many files and bytes that were read besides."""
        total = None if size is None or self.bytes is None else self.bytes + size
        return replace(self, opened=self.opened + opened, bytes=total)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "false_positive_rate": self.false_positive_rate}

    def __str__(self) -> str:
        found = f"{self.tagged:,} of {self.keys:,} found"
        if self.by_hash:
            found = f"{self.keys:,} placed by their hash"
        elif self.tagged > self.keys:
            found = f"{self.keys:,}, found in {self.tagged:,} places"
        parts = [f"keys: {found}"]
        if self.files:
            ruled_out = f"{self.out_of_range:,} ruled out by key range, {self.filtered:,} by bloom filter"
            parts.append(f"files: {self.files:,}, {ruled_out}, {self.searched:,} read")
        else:
            parts.append(f"data files read: {self.opened:,}")
        if self.index_files:
            parts.append(f"files of the index: {self.index_files:,}")
        if self.asked:
            parts.append(f"false positives of the filters: {self.false_positives:,} ({self.false_positive_rate:.2g})")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Tagged:
    """The rows with two columns more, `FILE_ID` and `INSTANT`: the file group that holds the row's key and the instant
    of its newest file, both null for a key that the table does not hold.

    A global index may have changed `_hoodie_partition_path` to where the key lives, or give two rows for a key that
    moves: one with `DELETE` true for its old place, one without location for the new one. A key that lives in several
    file groups comes back once per place.

    An index that reads base files to find keys may tell the rows that it found there in a third column, `POSITION`:
    log blocks then say for which rows they are (`TableConfig.has_record_positions`).

    `held` are rows that the index persisted for these: the caller releases them. `lookup` is what the index has to
    tell of its search.
    """

    rows: Rows
    held: Rows | None = None
    lookup: KeyLookup | None = None

    @contextmanager
    def released(self, engine: Engine) -> Generator[Rows]:
        """The rows; what is held for them goes at the end of the block."""
        try:
            yield self.rows
        finally:
            if self.held is not None:
                engine.release(self.held)


Placement = Hashed | Numbered | Tagged
