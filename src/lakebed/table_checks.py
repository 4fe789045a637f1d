"""`Table.checks`: conditions that the rows of a table have to fulfil, whoever writes them with lakebed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakebed.config.arguments import public_methods_check_arguments
from lakebed.errors import InvalidOption
from lakebed.opened_table import OpenedTable
from lakebed.operations.checks import condition_of
from lakebed.operations.table_checks import columns_of_check
from lakebed.properties.checks import Check, CheckedOn, OnFailure
from lakebed.services.checks import (
    CheckReport,
    add_check,
    drop_check,
    named_check,
    not_null_condition,
    required_check,
    run_checks,
)
from lakebed.services.columns import field_path
from lakebed.slices.snapshot import Snapshot
from lakebed.table_views import EntriesView

SCHEMA = pa.schema([(name, pa.string()) for name in ("name", "condition", "on", "on_failure")])


@public_methods_check_arguments
class ChecksView(EntriesView[Check]):
    """The checks of a table: iterable, and printed as a table. Its methods add, drop and run them.

    A check is a condition in Spark SQL over the columns of a row. A row for which it is false breaks the check; one for
    which it is null passes, as under SQL's CHECK. Every write of lakebed evaluates the checks, in this process and on
    Spark. Other programs that write the table do not know them: `t.checks.run()` finds what they wrote.

    >>> print(t.checks.add("fare >= 0"))
    fare_check: fare >= 0 (reject)
    >>> t.upsert({"id": [9], "city": ["Oslo"], "fare": [-1.0], "ts": [9]})
    Traceback (most recent call last):
        ...
    lakebed.errors.CheckFailed: rows break checks of table 'trips', of 1 row: fare_check (fare >= 0): 1 row; the first \
is row 0, {'id': 9, 'city': 'Oslo', 'fare': -1.0, 'ts': 9}. Nothing of the write is visible. Correct these rows or \
leave them out; t.checks lists the checks.
    """

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened

    def _entries(self) -> Sequence[Check]:
        return self.list()

    def list(self) -> list[Check]:
        """The table's checks, by name.

        >>> _ = t.checks.add("positive", "fare >= 0")
        >>> [(check.name, check.condition) for check in t.checks.list()]
        [('positive', 'fare >= 0')]
        """
        return list(self._opened.reload().checks)

    def add(
        self,
        name: str,
        condition: str | None = None,
        *,
        on: CheckedOn = "row",
        on_failure: OnFailure = "reject",
        validate: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> Check:
        """Add a check, which every later write evaluates. With one argument it is the condition, and the check gets a
        name from its columns.

        With `on="table"` the condition is about aggregates of all rows (`count(DISTINCT vin) = count(*)`): each write
        evaluates it over the table with its rows before it commits, on the Spark session or on DuckDB.

        A write with rows that break the check raises `CheckFailed` ("reject"), writes them to `t.rejects` and the other
        rows to the table ("quarantine"), or writes all rows and counts them ("warn"). The stored rows are read first:
        raises `CheckFailed` if some break the check, unless it only warns; without `validate` they are not read. Raises
        `InvalidOption` for a condition that does not parse, names unknown columns or needs Spark.

        >>> t.checks.add("positive", "fare >= 0").name
        'positive'
        """
        text = name if condition is None else condition

        def serve() -> Check:
            context = self._opened.context(None, options, "checks")
            check = Check("new", text, on, on_failure)
            if condition is None:
                view = context.opened
                columns = columns_of_check(check) if on == "table" else condition_of(check, view.schema).columns
                parts = [_plain(column) for column in dict.fromkeys(columns)]
                check = replace(check, name=_unused(view, "_".join([*(parts[:3] or ["table"]), "check"])))
            else:
                check = replace(check, name=name)
            return add_check(context, check, validate=validate)

        return self._changed(serve)

    def require(self, column: str, *, validate: bool = True, options: Mapping[str, Any] | None = None) -> Check:
        """Add the check that a column, or a field inside one by its path, is not null. A column that has it is left as
        it is.

        >>> print(t.checks.require("fare"))
        fare_not_null: `fare` IS NOT NULL (reject)
        """

        def serve() -> Check:
            context = self._opened.context(None, options, "checks")
            condition = not_null_condition(context.opened, column)
            for check in context.config.checks:
                if check.condition == condition and check.on_failure == "reject":
                    return check
            name = _unused(context.opened, f"{_plain(field_path(context.opened, column))}_not_null")
            return add_check(context, Check(name, condition), validate=validate)

        return self._changed(serve)

    def drop(self, name: str, *, options: Mapping[str, Any] | None = None) -> Check:
        """Remove a check, which is found in any case. Returns it. Raises `InvalidOption` if there is none of this name.

        >>> _ = t.checks.add("positive", "fare >= 0")
        >>> t.checks.drop("positive").condition, len(t.checks)
        ('fare >= 0', 0)
        """
        return self._changed(lambda: drop_check(self._opened.context(None, options, "checks"), name))

    def drop_required(self, column: str, *, options: Mapping[str, Any] | None = None) -> Check:
        """Remove the check that a column is not null, which `require` added. Returns it. Raises `InvalidOption` if the
        column has none.

        >>> _ = t.checks.require("fare")
        >>> t.checks.drop_required("fare").name
        'fare_not_null'
        """

        def serve() -> Check:
            context = self._opened.context(None, options, "checks")
            condition = not_null_condition(context.opened, column)
            for check in context.config.checks:
                if check.condition == condition:
                    return drop_check(context, check.name)
            raise InvalidOption(
                f"no check of table {context.config.name!r} requires a value in column {column!r}",
                hint="t.checks lists the checks",
                context={"column": column},
            )

        return self._changed(serve)

    def run(self, name: str | None = None) -> CheckReport:
        """Run all checks, or the one of this name, over the stored rows. The report has the number of rows that break
        each check, by partition path, and the first of them.

        >>> _ = t.checks.add("cheap", "fare < 10", validate=False)
        >>> report = t.checks.run()
        >>> print(report)
        cheap (fare < 10): broken by 1 row of the table (Rome: 1)
        """

        def read(view: Snapshot) -> CheckReport:
            checks = view.config.checks if name is None else (required_check(view.config, name),)
            return run_checks(view, checks, self._opened.spark)

        return self._opened.steadily(read)

    def to_arrow(self) -> pa.Table:
        """A table with the columns name, condition, on and on_failure.

        >>> _ = t.checks.add("fare >= 0")
        >>> t.checks.to_arrow().to_pylist()
        [{'name': 'fare_check', 'condition': 'fare >= 0', 'on': 'row', 'on_failure': 'reject'}]
        """
        rows = [[getattr(check, name) for check in self.list()] for name in SCHEMA.names]
        return pa.table([pa.array(column, pa.string()) for column in rows], schema=SCHEMA)

    def _changed(self, serve: Any) -> Check:
        done: Check = self._opened.again(serve)
        self._opened.reload()
        return done


def _plain(column: str) -> str:
    """The name of a column in letters, digits and underscores."""
    text = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in column)
    return text if text[:1].isalpha() or text[:1] == "_" else f"_{text}"


def _unused(view: Snapshot, name: str) -> str:
    """The name, with a number after it if a check of the table has it."""
    number, unused = 1, name[:100]
    while named_check(view.config, unused) is not None:
        number += 1
        unused = f"{name[:100]}_{number}"
    return unused
