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

    def broken(self, rows: pa.Table) -> Flags:
        """Flags of the rows that break the check: its condition is false there, neither true nor null."""
        (holds,) = evaluate(rows.select(list(self.columns)), [self.expression])
        return ~as_numpy(pc.fill_null(holds, True))


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
        """Each check with flags of the rows that break it. Rows flagged in `deletes` break none."""
        checked = rows.select(list(self.columns))
        if deletes is None or not deletes.any():
            yield from ((check, check.broken(checked)) for check in self.checks)
            return
        alive = np.flatnonzero(~deletes)
        checked = checked.take(pa.array(alive))
        for check in self.checks:
            flags = np.zeros(rows.num_rows, np.bool_)
            flags[alive] = check.broken(checked)
            yield check, flags
