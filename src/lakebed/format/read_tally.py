"""Counts of what was read of files, to report the cost of a search for keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Counted = Literal["opened", "bytes", "out_of_range", "filtered", "searched"]


@dataclass
class ReadTally:
    """Thread-safe counters of files and bytes that were read. A copy sent to a task counts separately."""

    _added: list[tuple[Counted, int]] = field(default_factory=list[tuple[Counted, int]])

    def add(self, counter: Counted, number: int = 1) -> None:
        """Add `number` to a counter."""
        self._added.append((counter, number))

    def add_reads(self, other: ReadTally) -> None:
        """Add the file and byte counters of another tally."""
        for kind in ("opened", "bytes"):
            self.add(kind, other.total(kind))

    def total(self, counter: Counted) -> int:
        """The current value of a counter."""
        return sum(number for name, number in self._added if name == counter)


def column_bytes(metadata: Any, columns: Collection[str], row_groups: Iterable[int]) -> int:
    """The bytes that some top-level columns take in a file, in some of its row groups, by its metadata; of a file of
    another format than Parquet the bytes of all columns."""
    schema = metadata.schema
    if not schema:
        return sum(metadata.row_group(number).total_byte_size for number in row_groups) if columns else 0
    leaf_numbers = [at for at in range(len(schema)) if schema.column(at).path.partition(".")[0] in columns]
    groups = map(metadata.row_group, row_groups)
    return sum([group.column(at).total_compressed_size for group in groups for at in leaf_numbers])
