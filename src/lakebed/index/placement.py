"""Where an index places the rows of a write: in numbered file groups, or tagged with the file group of their key."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """What an index that looks into files did to find the keys of a write.

    Of `keys` different keys it found `tagged` places. Of `files` file slices that could hold one by their partition
    path `out_of_range` were ruled out by their range of keys and `filtered` by their bloom filter; of `searched` ones
    stored keys were read. Filters were `asked` so often for a key, `absent` times for one that their file does not
    hold; `false_positives` of these they let through.
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

    @property
    def false_positive_rate(self) -> float:
        """Of the keys that a filter was asked for and that its file does not hold: the share that it let through."""
        return self.false_positives / self.absent if self.absent else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "false_positive_rate": self.false_positive_rate}

    def __str__(self) -> str:
        ruled_out = f"{self.out_of_range:,} ruled out by key range, {self.filtered:,} by bloom filter"
        rate = f"; false positives of the filters: {self.false_positives:,} ({self.false_positive_rate:.2g})"
        found = f"{self.tagged:,} of {self.keys:,} found"
        if self.tagged > self.keys:
            found = f"{self.keys:,}, found in {self.tagged:,} places"
        files = f"{self.files:,}, {ruled_out}, {self.searched:,} read"
        return f"keys: {found}; files: {files}{rate if self.asked else ''}"


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


Placement = Hashed | Tagged
