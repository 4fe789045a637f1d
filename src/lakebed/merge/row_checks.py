"""Checks of a table against rows: which rows break which check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.merge.clauses import evaluate
from lakebed.properties.checks import BrokenRows, Check
from lakebed.schema.plain_arrow import as_numpy

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RowCheck:
    """A check, with its condition as an Arrow expression over these `columns` of the table."""

    check: Check
    columns: tuple[str, ...]
    expression: pc.Expression


@dataclass(frozen=True, slots=True)
class RowChecks:
    """The checks that a write evaluates against the rows that it was given, in the columns and types of the table.

    `required` are columns that a row of a new key may not lack, since a check is false for null there.
    """

    table: str
    checks: tuple[RowCheck, ...]
    required: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the checks read."""
        return tuple(dict.fromkeys(name for check in self.checks for name in check.columns))

    def refuse(self, rows: pa.Table, deletes: Flags | None = None) -> None:
        """Raise `CheckFailed` if a row breaks a check. Rows flagged in `deletes` are not looked at."""
        if not self.checks:
            return
        broken = BrokenRows(self.table)
        for check, flags in self.flags(rows, deletes):
            broken.note(check.check, rows, flags, None)
        if broken.counts:
            raise broken.error()

    def flags(self, rows: pa.Table, deletes: Flags | None = None) -> Iterator[tuple[RowCheck, Flags]]:
        """Each check that rows break, with flags of these rows: the condition is false there, neither true nor null.
        Rows flagged in `deletes` break none."""
        checked, alive = rows.select(list(self.columns)), None
        if deletes is not None and deletes.any():
            alive = np.flatnonzero(~deletes)
            checked = checked.take(pa.array(alive))
        results = evaluate(checked, [check.expression for check in self.checks])
        for check, holds in zip(self.checks, results, strict=True):
            if pc.all(holds, skip_nulls=True, min_count=0).as_py():
                continue
            broken = ~as_numpy(pc.fill_null(holds, True))
            if alive is None:
                yield check, broken
                continue
            flags = np.zeros(rows.num_rows, np.bool_)
            flags[alive] = broken
            yield check, flags
