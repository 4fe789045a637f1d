"""Checks of a table as a whole: aggregates of its rows, evaluated over the table with a write before it is committed.

The conditions are Spark SQL, which runs on the Spark session of the write if there is one, and otherwise on DuckDB.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakebed.errors import CheckFailed, InvalidOption
from lakebed.operations.context import WriteContext
from lakebed.operations.precommit import is_on_spark, refusals_of_engine, runner
from lakebed.properties.checks import Check
from lakebed.read.scan import Scan
from lakebed.slices.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakebed")
_TRUTHS = {"true": True, "false": False, None: None}


def parsed_aggregate(check: Check) -> Any:
    """The parser's tree of a condition over aggregates. Raises `InvalidOption` for a text that does not parse."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    from lakebed.filters.sql import SparkText

    try:
        return sqlglot.parse_one(check.condition, read=SparkText)
    except (SqlglotError, RecursionError) as error:
        raise InvalidOption(
            f"the check {check.name} is no SQL condition: {check.condition!r}",
            hint="write it as you would after HAVING in Spark SQL, such as count(DISTINCT vin) = count(*)",
            context={"check": check.name},
        ) from error


def columns_of_check(check: Check) -> list[str]:
    """The columns that a condition over aggregates names."""
    from sqlglot import exp

    return [column.parts[0].name for column in parsed_aggregate(check).find_all(exp.Column)]


def broken_checks(spark: SparkSession | None, checks: Sequence[Check], view: Snapshot) -> list[Check]:
    """The checks that are false for the rows of a view; one that is null holds. Without a session DuckDB evaluates
    them. Raises `InvalidOption` for a condition that the engine refuses, or that is no single truth."""
    broken: list[Check] = []
    with runner(spark, [Scan(view)]) as (engine, (name,)):
        for check in checks:
            tree = parsed_aggregate(check)
            text = check.condition if spark is not None else tree.sql(dialect="duckdb")
            with refusals_of_engine(
                f"the check {check.name} ({check.condition}) cannot be evaluated",
                'a check with on="table" is a condition on aggregates: count(DISTINCT vin) = count(*)',
                {"check": check.name},
            ):
                values = list(engine.texts(f"SELECT (\n{text}\n) FROM {name}"))
            if len(values) != 1 or values[0] not in _TRUTHS:
                raise InvalidOption(
                    f"the check {check.name} ({check.condition}) is not one truth about all rows",
                    hint='compare aggregates, such as count(DISTINCT vin) = count(*), or add it with on="row"',
                    context={"check": check.name},
                )
            if _TRUTHS[values[0]] is False:
                broken.append(check)
    return broken


def broken_table(table: str, checks: Sequence[Check], subject: str, hint: str) -> CheckFailed:
    """The error for checks that are false for all rows together; `subject` is what breaks them. No single row does, so
    each of them counts 0."""
    named = ", ".join(f"{check.name} ({check.condition})" for check in checks)
    return CheckFailed(
        f"{subject} breaks checks of the table as a whole: {named}",
        hint=hint,
        context={
            "table": table,
            "checks": {check.name: 0 for check in checks},
            "conditions": {check.name: check.condition for check in checks},
            "rows": [],
        },
    )


def refuse_broken_table(context: WriteContext, view: Snapshot) -> None:
    """Raise `CheckFailed` if a check of the table as a whole is false for a view with a pending commit. One that only
    warns is logged."""
    name = context.config.name
    spark = context.spark if is_on_spark(context) else None
    broken = broken_checks(spark, context.config.table_checks, view)
    for check in broken:
        if check.on_failure == "warn":
            _log.warning("table %r: the write breaks the check %s (%s)", name, check.name, check.condition)
    refused = [check for check in broken if check.on_failure == "reject"]
    if refused:
        hint = "Nothing of it is visible. t.stage() shows the table with a write before it is committed."
        raise broken_table(name, refused, f"a write to table {name!r}", hint)
