"""The report of an erasure: by table and store the files that held the rows, and what is left with the reason.

A report has paths and counts, never a key or a value of an erased row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from lakebed.errors import ErasureIncomplete
from lakebed.wording import Printed, count_text, rows_html, text_html

_PREVIEWED = 20


@dataclass(frozen=True, repr=False)
class ErasedStore(Printed):
    """One store of a table (data files, log files, change logs, a partition of the metadata table, timeline, archive):
    the paths of the files that contained something of the rows, and of those that still do."""

    store: str
    files: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        left = f"{count_text(len(self.left), 'file')} left" if self.left else "none left"
        return f"{self.store}: {count_text(len(self.files), 'file')} held them, {left}"


@dataclass(frozen=True, repr=False)
class Remainder(Printed):
    """A file that still contains something of the rows, or that could not be read, with the reason and a hint."""

    path: str
    reason: str
    hint: str

    def __str__(self) -> str:
        return f"left in {self.path}: {self.reason}. {self.hint}"


@dataclass(frozen=True, repr=False)
class TableErasure(Printed):
    """The erasure of rows of one table.

    `rows` were deleted by it (by a dry run: would be), `keys` were looked for, of which `missing` were in no file,
    `values` are the keys and the other
    values that no other row has. `checked_files` were read to the last byte for them afterwards. `steps` are what was
    done, in order. `error` is why the erasure ended early, if it did.
    """

    uri: str
    rows: int = 0
    keys: int = 0
    values: int = 0
    stores: tuple[ErasedStore, ...] = ()
    remainders: tuple[Remainder, ...] = ()
    checked_files: int = 0
    missing: int = 0
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    dry_run: bool = False
    error: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether no file of the table contains anything of the rows."""
        return not self.error and not self.remainders and not (self.dry_run and any(s.files for s in self.stores))

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "uri": self.uri,
            "clean": self.is_clean,
            "rows": self.rows,
            "keys": self.keys,
            "missing": self.missing,
            "values": self.values,
            "checked_files": self.checked_files,
            "stores": [store.to_dict() for store in self.stores],
            "remainders": [remainder.to_dict() for remainder in self.remainders],
            "steps": list(self.steps),
            "notes": list(self.notes),
            "seconds": round(self.seconds, 4),
            "dry_run": self.dry_run,
            "error": self.error or None,
        }

    def _lines(self) -> Iterator[str]:
        missing = f"{count_text(self.missing, 'key')} {'is' if self.missing == 1 else 'are'} in no file"
        missing += ": never stored, or erased before"
        checked = f"checked {count_text(self.values, 'value')} in {count_text(self.checked_files, 'file')}"
        # of keys that no file has there is nothing to say that was erased, or that is left
        none_stored = 0 < self.missing == self.keys and not (self.rows or self.stores or self.remainders)
        if self.error:
            yield f"{self.uri}: not erased: {self.error}"
        elif none_stored:
            yield f"{self.uri}: {missing} ({checked})"
        elif self.dry_run:
            count = sum(len(store.files) for store in self.stores)
            files = count_text(count, "file")
            yield f"{self.uri}: {count_text(self.rows, 'row')} would be deleted, {files} would be rewritten or deleted"
        else:
            state = "nothing is left" if self.is_clean else f"{count_text(len(self.remainders), 'file')} left"
            yield f"{self.uri}: {count_text(self.rows, 'row')} erased, {state} ({checked}, {self.seconds:.2f} s)"
        if self.missing and not none_stored:
            yield f"  {missing}"
        for store in self.stores:
            count = count_text(len(store.files), "file")
            yield f"  {store.store}: {count} with them" if self.dry_run else f"  {store}"
        yield from (f"  {step}" for step in self.steps)
        yield from (f"  {remainder}" for remainder in self.remainders[:_PREVIEWED])
        if len(self.remainders) > _PREVIEWED:
            yield f"  and {len(self.remainders) - _PREVIEWED} more files"
        yield from (f"  {note}" for note in self.notes)

    def __str__(self) -> str:
        return "\n".join(self._lines())


@dataclass(frozen=True, repr=False)
class ErasureReport(Printed):
    """The result of `erase`, with one entry per table in `tables`. It has paths and counts, and no value of an erased
    row.

    >>> import lakebed
    >>> t = lakebed.create("memory://docs/erasures", {"id": [1, 2]}, key="id", index="simple")
    >>> _ = t.upsert({"id": [1, 2]})
    >>> report = t.erase([1])
    >>> [(store.store, len(store.files), store.left) for store in report.tables[0].stores][-1]
    ('data files', 1, ())
    """

    tables: tuple[TableErasure, ...]

    @property
    def is_clean(self) -> bool:
        """Whether no file of any of the tables contains anything of the rows."""
        return all(table.is_clean for table in self.tables)

    @property
    def rows(self) -> int:
        """The number of rows that were deleted, in all tables."""
        return sum(table.rows for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {"clean": self.is_clean, "tables": [table.to_dict() for table in self.tables]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.tables))

    def _repr_html_(self) -> str:
        names = ["table", "store", "files that held the rows", "left"]
        rows = [
            [table.uri, store.store, len(store.files), len(store.left)]
            for table in self.tables
            for store in table.stores or (ErasedStore("all files"),)
        ]
        return rows_html(names, rows) + text_html(str(self))

    def checked(self) -> ErasureReport:
        """This report. Raises `ErasureIncomplete`, which has the report, if something of the rows remains."""
        failed = [table for table in self.tables if not table.is_clean and not table.dry_run]
        if not failed:
            return self
        raise _incomplete(self, failed)


def _incomplete(report: ErasureReport, failed: list[TableErasure]) -> ErasureIncomplete:
    """The error of a report in which these tables are not clean."""
    first = failed[0]
    problem, hint = first.error, "Remove the cause and erase again: it goes on from there."
    if not problem:
        left = first.remainders[0]
        count = count_text(len(first.remainders), "file")
        problem, hint = f"the rows are not erased: {count} left, {left.path} for example: {left.reason}", left.hint
    more = f" ({count_text(len(failed) - 1, 'other table')} not erased either)" if len(failed) > 1 else ""
    error = ErasureIncomplete(f"{first.uri}: {problem}{more}", hint=hint, context={"report": report.to_dict()})
    error.report = report
    return error


def failed_table(uri: str, error: Exception) -> TableErasure:
    """The entry of a table whose erasure raised an error."""
    return replace(TableErasure(uri), error=str(error))
