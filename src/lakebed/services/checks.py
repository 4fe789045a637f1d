"""The checks of a table: adding and dropping them under the lock, and running them over the stored rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.concurrency.providers import writers_lock
from lakebed.errors import CheckFailed, CommitConflict, ConflictKind, InvalidOption, SchemaConflict
from lakebed.filters.predicates import Not
from lakebed.filters.text import quote_name
from lakebed.metadata.lookups import open_again
from lakebed.model import PARTITION_PATH
from lakebed.operations.checks import condition_of
from lakebed.operations.context import WriteContext
from lakebed.operations.table_checks import broken_checks, broken_table
from lakebed.properties.checks import EXAMPLES, Check
from lakebed.properties.file import load_same_table, update_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.read.scan import Scan
from lakebed.schema.column_names import did_you_mean
from lakebed.services.columns import field_path
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.timeline import load_timeline
from lakebed.wording import Printed, count_text

# How often the stored rows are read again because other writers have committed meanwhile.
_STORED_HINT = "Correct the rows, add the check with validate=False, or use another condition. Nothing was changed."
_ATTEMPTS = 5


@dataclass(frozen=True, repr=False)
class CheckRun(Printed):
    """What a check finds in the stored rows: the number of `rows` that break it, by `partitions`, and the `first` of
    them. `holds` is false for a check of the table as a whole that its rows break. It is true where nothing breaks the
    check.

    >>> bool(CheckRun(Check("positive", "fare >= 0"))), bool(CheckRun(Check("positive", "fare >= 0"), rows=2))
    (True, False)
    """

    check: Check
    rows: int = 0
    partitions: Mapping[str, int] = field(default_factory=dict[str, int])
    first: tuple[Mapping[str, Any], ...] = ()
    holds: bool = True

    def __bool__(self) -> bool:
        return self.holds and self.rows == 0

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            **self.check.to_dict(),
            "ok": bool(self),
            "rows": self.rows,
            "partitions": dict(self.partitions),
            "first": [dict(row) for row in self.first],
        }

    def __str__(self) -> str:
        named = f"{self.check.name} ({self.check.condition})"
        if self.check.on == "table":
            return f"{named}: {'holds' if self.holds else 'the table breaks it'}"
        if not self.rows:
            return f"{named}: no row breaks it"
        paths = ", ".join(f"{path}: {count:,}" for path, count in self.partitions.items() if path)
        return f"{named}: broken by {count_text(self.rows, 'row')} of the table{f' ({paths})' if paths else ''}"

    def error(self, table: str) -> CheckFailed:
        """The error for stored rows that break the check."""
        name = self.check.name
        if self.check.on == "table":
            return broken_table(table, [self.check], f"table {table!r}", _STORED_HINT)
        return CheckFailed(
            f"table {table!r} has rows that break the check: {self}",
            hint=_STORED_HINT,
            context={
                "table": table,
                "checks": {name: self.rows},
                "conditions": {name: self.check.condition},
                "rows": [{"check": name, "position": None, "row": dict(row)} for row in self.first],
                "partitions": dict(self.partitions),
            },
        )


@dataclass(frozen=True, repr=False)
class CheckReport(Printed):
    """What checks find in the stored rows: a `CheckRun` for each. It is true where no row breaks a check.

    >>> print(CheckReport((CheckRun(Check("positive", "fare >= 0")),)))
    positive (fare >= 0): no row breaks it
    """

    runs: tuple[CheckRun, ...]

    def __bool__(self) -> bool:
        return all(self.runs)

    def __iter__(self) -> Iterator[CheckRun]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {"ok": bool(self), "checks": [run.to_dict() for run in self.runs]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.runs)) or "the table has no checks"


def add_check(context: WriteContext, check: Check, *, validate: bool = True) -> Check:
    """Record a check of the table. With `validate` the stored rows are read first.

    Raises `InvalidOption` for a condition that cannot be evaluated, or a name that another check has; `CheckFailed` if
    stored rows break the check, unless it only warns.
    """
    storage, settings = context.storage, context.settings
    for _ in range(_ATTEMPTS):
        snapshot = open_again(storage, context.config)
        config = snapshot.config
        if (same := named_check(config, check.name)) is not None:
            if same == check:
                return check
            raise InvalidOption(
                f"table {config.name!r} has a check {same.name} already: {same.condition}",
                hint=f"take another name, or drop it first: t.checks.drop({same.name!r})",
                context={"check": same.name},
            )
        if not len(snapshot.schema):
            raise SchemaConflict(
                f"table {config.name!r} has no columns yet, so a check cannot name any",
                hint="Its first write, or create(uri, schema), gives it some.",
            )
        if check.on == "row":
            condition_of(check, snapshot.schema)
        if check.on == "table" or (validate and check.on_failure != "warn"):
            run = run_check(snapshot, check, context.spark)
            if not run and validate and check.on_failure != "warn":
                raise run.error(config.name)
        with writers_lock(storage, settings, config.name) as lock:
            now = load_same_table(storage, config)
            is_same = now == config and load_timeline(storage, now).commits == snapshot.timeline.commits
            if is_same or (not (validate and check.on_failure != "warn") and now.checks == config.checks):
                update_table_config(storage, {check.key: check.text}, lock.lock_is_held)
                return check
    raise CommitConflict(
        f"other writers committed to table {context.config.name!r} {_ATTEMPTS} times while its rows were read for the"
        f" check {check.name}",
        hint="Add it again when fewer write, or with validate=False and call t.checks.run() afterwards.",
        context={"check": check.name},
        kind=ConflictKind.BUSY,
    )


def drop_check(context: WriteContext, name: str) -> Check:
    """Remove a check of the table. Raises `InvalidOption` if there is none of this name."""
    storage = context.storage
    with writers_lock(storage, context.settings, context.config.name) as lock:
        config = load_same_table(storage, context.config)
        check = required_check(config, name)
        if check.generates:
            raise InvalidOption(
                f"the check {check.name} of table {config.name!r} is that of its generated column {check.generates!r}",
                hint="a column that is generated stays so",
                context={"check": check.name, "column": check.generates},
            )
        update_table_config(storage, {check.key: None}, lock.lock_is_held)
    return check


def required_check(config: TableConfig, name: str) -> Check:
    """The check of a name in any case. Raises `InvalidOption` if there is none."""
    check = named_check(config, name)
    if check is None:
        names = [check.name for check in config.checks]
        raise InvalidOption(
            f"table {config.name!r} has no check {name!r}",
            hint=did_you_mean(name, names, "its checks are") if names else "it has none",
            context={"check": name},
        )
    return check


def named_check(config: TableConfig, name: str) -> Check | None:
    """The check of a name in any case; None if there is none."""
    return next((check for check in config.checks if check.name.lower() == name.lower()), None)


def not_null_condition(snapshot: Snapshot, column: str) -> str:
    """The condition that a column, or a field inside one by its path, has a value. Raises `SchemaConflict` for an
    unknown column."""
    return f"{'.'.join(map(quote_name, field_path(snapshot, column).split('.')))} IS NOT NULL"


def run_checks(snapshot: Snapshot, checks: Sequence[Check], spark: Any = None) -> CheckReport:
    """Run checks over the stored rows. Files whose statistics show that no row can break a check are not read. Checks
    of the table as a whole run on the session `spark`, otherwise on DuckDB."""
    return CheckReport(tuple(run_check(snapshot, check, spark) for check in checks))


def broken_rows(snapshot: Snapshot, check: Check) -> Scan:
    """The stored rows that break a check, as a read of all columns."""
    return Scan(snapshot).narrowed([Not(condition_of(check, snapshot.schema).root)])


def run_check(snapshot: Snapshot, check: Check, spark: Any = None) -> CheckRun:
    """Run a check over the stored rows."""
    if not len(snapshot.schema):
        return CheckRun(check)
    if check.on == "table":
        session = None if snapshot.storage.spec.in_this_process else spark
        return CheckRun(check, holds=not broken_checks(session, [check], snapshot))
    scan = broken_rows(snapshot, check)
    has_paths = PARTITION_PATH in scan.available.names
    counts: dict[str, int] = {}
    for batch in scan.of_columns([PARTITION_PATH] if has_paths else []).to_batches():
        if not has_paths:
            counts[""] = counts.get("", 0) + batch.num_rows
            continue
        for value in batch.column(PARTITION_PATH).value_counts().to_pylist():  # one for each path in a batch
            counts[value["values"] or ""] = counts.get(value["values"] or "", 0) + value["counts"]
    rows = sum(counts.values())
    first = scan.head(EXAMPLES).to_pylist() if rows else []
    return CheckRun(check, rows, dict(sorted(counts.items())), tuple(first))
