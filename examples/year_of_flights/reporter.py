"""The demo's progress messages, and its closing table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from lakebed import WriteResult
from year_of_flights.check import Check
from year_of_flights.year import Step

if TYPE_CHECKING:
    from year_of_flights.hourly import Day


@dataclass(frozen=True)
class Played:
    """One write that was done."""

    step: Step
    result: WriteResult
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        r = self.result
        return {
            "name": self.step.name,
            "operation": self.step.operation,
            "instant": r.instant,
            "rows_in": r.rows,
            "updated": r.updated,
            "inserted": r.inserted,
            "deleted": r.deleted,
            "unchanged": r.unchanged,
            "file_groups": len(r.files),
            "seconds": round(self.seconds, 3),
        }


class Reporter:
    """Prints to standard output, or in quiet nothing; the progress bar shows on terminals only."""

    def __init__(self, *, quiet: bool) -> None:
        self._out = Console(highlight=False, quiet=quiet)
        shown = Console(file=sys.stderr) if quiet else self._out
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=shown,
            transient=True,
            disable=not shown.is_terminal,
        )

    def say(self, text: str) -> None:
        self._out.print(text, soft_wrap=True, markup=False)

    def checked(self, check: Check) -> None:
        self.say(
            f"  equal: {check.name}: {check.rows:,} row{'s' * (check.rows != 1)}, {check.values:,} values,"
            f" checksum {check.checksum} ({check.seconds:.2f} s)"
        )

    def closing(self, played: Sequence[Played]) -> None:
        table = Table(title="The year, write by write", title_justify="left", box=None, padding=(0, 1, 0, 0))
        table.add_column("batch", vertical="bottom")
        table.add_column("operation", vertical="bottom")
        for name in ("rows in", "updated", "inserted", "deleted", "unchanged", "file\ngroups", "time"):
            table.add_column(name, justify="right", vertical="bottom")
        for one in played:
            r = one.result
            counts = (r.rows, r.updated, r.inserted, r.deleted, r.unchanged, len(r.files))
            table.add_row(
                one.step.name,
                one.step.operation,
                *("-" if n is None else f"{n:,}" for n in counts),
                f"{one.seconds:.1f} s",
            )
        self._out.print()
        self._out.print(table)
        self._out.print()

    def week(self, days: Sequence[Day]) -> None:
        """What was written day by day, as log files, and how often the table compacted itself meanwhile."""
        table = Table(box=None, padding=(0, 1, 0, 2))
        table.add_column("", vertical="bottom", no_wrap=True)
        for name in ("writes", "rows in", "log\nfiles", "log KB", "compac-\ntions", "time", "a write"):
            table.add_column(name, justify="right", vertical="bottom")
        for day in days:
            counts = (day.writes, day.rows, day.log_files, day.log_bytes // 1024, day.compactions)
            each = f"{1000 * day.seconds / day.writes:,.0f} ms"
            table.add_row(day.name, *(f"{n:,}" for n in counts), f"{day.seconds:.1f} s", each)
        self._out.print(table)
