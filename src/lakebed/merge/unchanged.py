"""Which incoming rows of an upsert change nothing: merging them with the stored row by the merge rules gives the stored
row.

Pure: Arrow in, masks out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.merge.incoming import Incoming
from lakebed.merge.pairs import Flags, Side, merge_into
from lakebed.merge.row_differences import rows_differ
from lakebed.merge.rules import MergeRules
from lakebed.model import RECORD_KEY
from lakebed.schema.plain_arrow import as_numpy


@dataclass
class Comparison:
    """The incoming rows of a file group, compared with its stored rows.

    `changes` marks the incoming rows that change a stored row, as far as stored rows were seen, `stored` those whose
    key has one.
    """

    rules: MergeRules
    incoming: Incoming
    changes: Flags = field(init=False)
    stored: Flags = field(init=False)

    def __post_init__(self) -> None:
        self.changes = np.zeros(self.incoming.rows, bool)
        self.stored = np.zeros(self.incoming.rows, bool)

    def see(self, rows: pa.RecordBatch) -> None:
        """Compare stored rows: their record keys, and the columns of the incoming rows in the same types. Rows of other
        keys are ignored."""
        indices = pc.fill_null(pc.index_in(rows.column(RECORD_KEY), value_set=self.incoming.keys), -1)
        positions = as_numpy(indices).astype(np.int64)
        matches = np.flatnonzero(positions >= 0)
        at = positions[matches]
        names = [name for name in rows.schema.names if name != RECORD_KEY]
        older = Side.of(rows.select(names).take(pa.array(matches)))
        merged, changed = merge_into(self.rules, older, self.incoming.side(at, names))
        changed = changed & (merged.deletes | rows_differ(older.rows, merged.rows))
        self.stored[at] = True
        self.changes[at[changed]] = True

    @property
    def to_write(self) -> Flags:
        """Flags of the incoming rows that have to be written: changed rows, new keys, and deletes of absent keys where
        an older row may follow, against which the delete has to win."""
        new = ~self.incoming.deletes | self.incoming.forced | bool(self.rules.ordering)
        return np.where(self.stored, self.changes, new)
