"""The rows of a slice's base file by its row groups: those that no log record touches can be taken as they are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.footer_cache import key_ranges
from lakebed.format.row_groups.stored import StoredGroups
from lakebed.merge.log_entries import KeyColumns
from lakebed.model import RECORD_KEY
from lakebed.slices.matching import STAYS, Matching, Stretch, Targets

_OF_META = KeyColumns((RECORD_KEY,))


@dataclass(frozen=True)
class RowGroups:
    """The row groups of a whole base file. `take` is offered each one whose rows all stay, with the number of log
    records that are to come behind the file's rows (0 until its last row group); where it says that it took the row
    group, no rows of that are given."""

    source: StoredGroups
    take: Callable[[int, int], bool]

    def stretches(
        self, matching: Matching, deciding: Sequence[str], columns: Sequence[str]
    ) -> Iterator[tuple[Stretch, Targets]]:
        """The row groups that were not taken, in these columns, with what becomes of their rows. Of the others nothing
        is read but the columns that decide, and not even these where the range of their keys tells."""
        ranges, wanted = key_ranges(self.source.footer.metadata), _sorted_keys(matching)
        last = len(self.source.groups) - 1
        for number, group in enumerate(self.source.groups):
            span = ranges[number]
            if wanted is not None and span is not None and not _any_between(wanted, *span):
                read, targets = None, np.full(group.rows, STAYS, np.int32)
            else:
                read = self._columns(number, deciding)
                targets = matching.targets([read])
            behind = len(matching.rest) if number == last else 0
            if (targets == STAYS).all() and self.take(number, behind):
                continue
            yield [self._with(number, columns, read)], targets

    def _columns(self, number: int, names: Sequence[str]) -> pa.RecordBatch:
        if not names:
            return pa.RecordBatch.from_struct_array(pa.nulls(self.source.groups[number].rows, pa.struct([])))
        return self.source.columns(number, names)

    def _with(self, number: int, columns: Sequence[str], read: pa.RecordBatch | None) -> pa.RecordBatch:
        """Columns of a row group, of which some were read before."""
        held = {} if read is None else dict(zip(read.schema.names, read.columns, strict=True))
        more = self._columns(number, [name for name in columns if name not in held])
        held |= dict(zip(more.schema.names, more.columns, strict=True))
        return pa.RecordBatch.from_arrays([held[name] for name in columns], names=list(columns))


def _sorted_keys(matching: Matching) -> pa.Array | None:
    """The keys that are looked for, in order; None where it is by rows that they are found, or by other columns than
    the one whose ranges a file tells."""
    if matching.entries.positions is not None or matching.keys != _OF_META:
        return None
    return matching.entries.keys.take(pc.sort_indices(matching.entries.keys))


def _any_between(keys: pa.Array, low: str, high: str) -> bool:
    at = bisect_left(range(len(keys)), low, key=lambda n: keys[n].as_py())
    return at < len(keys) and keys[at].as_py() <= high
