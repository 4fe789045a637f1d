"""The gate of a table's checks: the rows of a write are judged before it begins where they are in the memory of this
process, and otherwise in its tasks.

One evaluator judges everywhere: the conditions of `lakebed.filters`, as Arrow expressions over the table's columns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Rows, Task
from lakebed.errors import InvalidOption, SchemaConflict
from lakebed.filters.predicates import Opaque, Predicate, walk
from lakebed.merge.locations import IsNull
from lakebed.merge.row_checks import Flags, RowCheck, RowChecks
from lakebed.merge.rules import MergeRules
from lakebed.model import DERIVED
from lakebed.operations.context import WriteContext
from lakebed.properties.checks import BrokenRows, Check
from lakebed.schema.assignment import project_incoming
from lakebed.schema.plain_arrow import as_numpy
from lakebed.wording import count_text

_log = logging.getLogger("lakebed")
# Conditions mean the same for every writer, whatever its session says: times without a zone are in UTC.
ZONE = "UTC"
# Names of the checks that a row breaks, joined: those that put it into the table of rejects, and those that warn.
QUARANTINED, WARNED = f"{DERIVED}quarantined", f"{DERIVED}warned"
_NAMES = (QUARANTINED, WARNED)
_JOIN = ", "
_BATCH_ROWS = 1 << 17


def condition_of(check: Check, schema: pa.Schema) -> Predicate:
    """The condition of a check of rows with these columns. Raises `InvalidOption` for a condition that names no column,
    an unknown one, or that Arrow does not evaluate."""
    from lakebed.filters.sql import parse_filter

    predicate = parse_filter(check.condition, schema, zone=ZONE)
    if not predicate.columns:
        raise InvalidOption(
            f"the check {check.name} ({check.condition}) names no column",
            hint="a check of rows is a condition on their columns, such as fare >= 0; a condition on aggregates of all"
            ' rows, such as count(*) > 0, takes on="table"',
            context={"check": check.name},
        )
    if not predicate.runs_in_process:
        parts = [part for part in walk(predicate.root) if isinstance(part, Opaque) and part.expression is None]
        raise InvalidOption(
            f"the check {check.name} ({check.condition}) runs on Spark only: {parts[0].reason}",
            hint="write it in simpler SQL: each process that writes the table evaluates it, also without Spark",
            context={"check": check.name},
        )
    return predicate


def compiled_check(check: Check, schema: pa.Schema) -> RowCheck:
    """A check of rows with these columns, ready to be evaluated."""
    predicate = condition_of(check, schema)
    return RowCheck(check, predicate.columns, predicate.to_arrow())


def row_checks(
    context: WriteContext, schema: pa.Schema, absent: Sequence[str] = (), changed: frozenset[str] | None = None
) -> RowChecks | None:
    """The table's checks of rows with these columns; None if it has none. The rows lack the `absent` columns, whose
    stored values stay. `changed` are the columns that the write sets, if its rows have others that it only read: checks
    of those alone are left out.

    A check of absent columns alone says nothing about such a row, unless its key is new and the check is false for
    null: these columns are then required of new keys. Raises `SchemaConflict` for a check that compares an absent
    column with a present one, unless it only warns.
    """
    checks = [check for check in context.config.checks if check.on == "row"]
    if not checks:
        return None
    compiled, required = list[RowCheck](), dict[str, None]()
    for check in checks:
        row_check = compiled_check(check, schema)
        lacking = [name for name in row_check.columns if name in absent]
        if check.generates and len(lacking) == len(row_check.columns):
            continue
        if not lacking:
            compiled.append(row_check)
        elif check.on_failure == "warn" or (changed is not None and changed.isdisjoint(row_check.columns)):
            continue
        elif len(lacking) < len(row_check.columns):
            present = [name for name in row_check.columns if name not in absent]
            raise SchemaConflict(
                f"the check {check.name} ({check.condition}) of table {context.config.name!r} compares"
                f" {', '.join(present)} with {', '.join(lacking)}, which these partial rows lack",
                hint=f"give {', '.join(n for n in row_check.columns if n != check.generates)} together, or none of"
                " them",
                context={"check": check.name, "columns": lacking},
            )
        elif any(RowChecks("", (row_check,)).flags(pa.Table.from_pylist([{}], _loose(schema, lacking)))):
            required.update(dict.fromkeys(lacking))
    return RowChecks(context.config.name, tuple(compiled), tuple(required))


def _loose(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name).with_nullable(True) for name in names])


@dataclass(frozen=True)
class Judged:
    """The rows of a write after the table's checks.

    `in_tasks` are the checks that its tasks have yet to make; None if all rows are judged. `quarantined` are rows that
    go to the table of rejects, with the names of their checks in the column `QUARANTINED`. `broken` counts the rows
    that broke each check that does not stop the write.
    """

    rows: Rows
    in_tasks: RowChecks | None = None
    quarantined: Rows | None = None
    broken: Mapping[str, int] = field(default_factory=dict[str, int])
    rejected: int = 0


def judged_rows(context: WriteContext, rows: Rows, schema: pa.Schema, absent: Sequence[str] = ()) -> Judged:
    """The rows of a write into these columns of the table, judged as far as they can be before it begins. Raises
    `CheckFailed` for rows that break a check which rejects them."""
    checks = row_checks(context, schema, absent)
    if checks is None:
        return Judged(rows)
    engine = context.engine
    soft = [check for check in checks.checks if check.check.on_failure != "reject"]
    hard = replace(checks, checks=tuple(check for check in checks.checks if check.check.on_failure == "reject"))
    if soft and not engine.has_at_hand(rows) and not engine.is_distributed:
        rows = engine.from_arrow(engine.collect(rows))  # a stream is read once
    result = Judged(rows)
    if soft:
        result = _separated(context, rows, replace(checks, checks=tuple(soft)), schema)
    if not engine.has_at_hand(result.rows):
        return replace(result, in_tasks=hard)
    _refuse(context, engine.collect(result.rows), hard, schema)
    return replace(result, in_tasks=replace(hard, checks=()) if hard.required else None)


def _refuse(context: WriteContext, rows: pa.Table, checks: RowChecks, schema: pa.Schema) -> None:
    """Raise `CheckFailed` if one of these rows, which are all rows of the write, breaks a check."""
    if not checks.checks:
        return
    broken, first = BrokenRows(checks.table), 0
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        for check, flags in _flags(batch, checks, schema, context.rules):
            broken.note(check.check, pa.Table.from_batches([batch]), flags, first)
        first += batch.num_rows
    if broken.counts:
        raise broken.error(rows.num_rows)


def _flags(
    batch: pa.RecordBatch, checks: RowChecks, schema: pa.Schema, rules: MergeRules
) -> Iterator[tuple[RowCheck, Flags]]:
    """Each check with flags of the incoming rows that break it, by their values in the table's types."""
    deletes = rules.is_delete(batch)
    columns = project_incoming(batch, _loose(schema, checks.columns))
    return checks.flags(pa.Table.from_batches([columns]), None if deletes is None else as_numpy(deletes))


@dataclass(frozen=True, slots=True)
class _Flagged:
    """A task function that adds to each row the names of the checks that it breaks."""

    checks: RowChecks
    schema: pa.Schema
    rules: MergeRules

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            named: dict[str, list[pa.Array]] = {"quarantine": [], "warn": []}
            for check, flags in _flags(batch, self.checks, self.schema, self.rules):
                name = pa.scalar(check.check.name)
                named[check.check.on_failure].append(pc.if_else(pa.array(flags), name, pa.scalar(None, pa.string())))
            batch = batch.append_column(QUARANTINED, _joined(named["quarantine"], batch.num_rows))
            yield batch.append_column(WARNED, _joined(named["warn"], batch.num_rows))


def _joined(names: Sequence[pa.Array], rows: int) -> pa.Array:
    """The texts of each row that are not null, joined; null for a row without any."""
    if not names:
        return pa.nulls(rows, pa.string())
    first, *others = names
    for other in others:
        first = pc.coalesce(pc.binary_join_element_wise(first, other, _JOIN), first, other)
    return first


@dataclass(frozen=True, slots=True)
class _IsText:
    """Whether a column has a text."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def sql(self, schema: pa.Schema) -> str:
        return f"(NOT {IsNull(self.column).sql(schema)})"

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.invert(IsNull(self.column).arrow(batch))


def _separated(context: WriteContext, rows: Rows, checks: RowChecks, schema: pa.Schema) -> Judged:
    """The rows without those that break a check which quarantines them, which are apart. A row that breaks a check
    which warns stays."""
    engine = context.engine
    incoming = engine.schema(rows)
    with_names = pa.schema([*incoming, (QUARANTINED, pa.string()), (WARNED, pa.string())])
    flagged = engine.map(rows, _Flagged(checks, schema, context.rules), with_names)
    groups = engine.aggregate(flagged, [QUARANTINED, WARNED])
    counts: dict[str, int] = {}
    quarantined = 0
    for group in groups.to_pylist():  # one for each set of checks that a row breaks
        for name in (group[QUARANTINED] or group[WARNED] or "").split(_JOIN) if any(map(group.get, _NAMES)) else ():
            counts[name] = counts.get(name, 0) + group["rows"]
        quarantined += group["rows"] if group[QUARANTINED] is not None else 0
    if not counts:
        return Judged(rows)
    if not quarantined:
        return Judged(rows, broken=counts)
    good = engine.derive(engine.filter(flagged, IsNull(QUARANTINED)), {}, keep=incoming.names)
    bad = engine.derive(engine.filter(flagged, _IsText(QUARANTINED)), {}, keep=[*incoming.names, QUARANTINED])
    return Judged(good, quarantined=bad, broken=counts, rejected=quarantined)


def warn_of_broken(context: WriteContext, broken: Mapping[str, int]) -> None:
    """Log a warning for each check that rows of a write broke, and that did not stop it."""
    for check in context.config.checks:
        if count := broken.get(check.name):
            done = "went to the table of rejects" if check.on_failure == "quarantine" else "went to the table"
            _log.warning(
                "table %r: %s broke the check %s (%s) and %s",
                context.config.name,
                count_text(count, "row"),
                check.name,
                check.condition,
                done,
            )
