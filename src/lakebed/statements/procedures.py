"""CALL: Hudi's procedures by their names and arguments, each as the method of the table that does the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.catalog.names import is_name
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.base import sql_literal
from lakebed.filters.sql import parse_filter
from lakebed.model import Action
from lakebed.schema.column_names import did_you_mean
from lakebed.statements.commands import (
    Query,
    exactly,
    newest_first,
    not_of_lakebed,
    nothing_to_cluster,
    paths_that_fulfil,
    rows_of,
    table_of,
    text_of,
)
from lakebed.statements.parts import Cursor
from lakebed.statements.sources import Sources
from lakebed.statements.statement import Reference, Statement
from lakebed.table import Table

_FORM = "write CALL run_compaction(op => 'run', table => 't'), or its arguments in their order; CALL help() lists all"
# A service that runs its pending plans makes a new one after so many commits.
_NEVER_DUE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Call:
    """CALL: runs a procedure with its arguments by name. `table` is None for a procedure without one."""

    procedure: str
    table: Reference | None = None
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])

    def run(self, sources: Sources, query: Query) -> Any:
        procedure = _PROCEDURES[self.procedure]
        if self.table is None:  # help: the procedures, or the one that `cmd` names, with their parameters
            name = text_of(self.arguments.get("cmd"))
            if name is not None and name not in _PROCEDURES:
                raise InvalidOption(f"there is no procedure {name!r}", hint=did_you_mean(name, sorted(_PROCEDURES)))
            names = sorted(_PROCEDURES) if name is None else [name]
            parameters = [", ".join(_PROCEDURES[procedure_name].parameters) for procedure_name in names]
            return rows_of(pa.table({"procedure": pa.array(names), "parameters": pa.array(parameters)}), sources)
        result = procedure.run(table_of(sources, self.table), _Arguments(self.procedure, self.arguments))
        return rows_of(result, sources) if isinstance(result, pa.Table) else result


def is_procedure(statement: Statement) -> bool:
    """Whether a CALL names a procedure of lakebed."""
    try:
        return _procedure_name(Cursor(statement, _FORM, at=1)) in _PROCEDURES
    except InvalidOption:
        return False


def _procedure_name(cursor: Cursor) -> str:
    return cursor.name("procedure").lower().removeprefix("system.")


def parse_call(statement: Statement, sources: Sources) -> Call | None:
    """The call of a procedure; None for one about a table that is not lakebed's, if there is a session.

    Raises `InvalidOption` for an unknown procedure or argument, `UnsupportedFeature` for one of Hudi's that lakebed
    does not have.
    """
    cursor = Cursor(statement, _FORM, at=1)
    name = _procedure_name(cursor)
    procedure = _PROCEDURES.get(name)
    if procedure is None:
        if sources.session is not None:
            return None
        if name in _OTHERS:
            raise UnsupportedFeature(
                f"lakebed does not have Hudi's procedure {name}", hint=_OTHERS[name], context={"procedure": name}
            )
        raise InvalidOption(
            f"there is no procedure {name!r} in the CALL near {statement.near(1)}",
            hint=did_you_mean(name, sorted(_PROCEDURES), "there are"),
            context={"procedure": name},
        )
    cursor.check_parentheses()
    arguments = _arguments(cursor, procedure.parameters)
    cursor.end()
    if not procedure.parameters or procedure.parameters == ("cmd",):
        return Call(name, None, arguments)
    named, path = arguments.pop("table", None), arguments.pop("path", None)
    table = path if named is None else named
    if not isinstance(table, str) or not table:
        raise cursor.wrong(1, "the argument table is missing")
    is_uri = named is None or "/" in table
    reference = Reference(0, 0, table, is_uri, in_database=not is_uri and is_name(table))
    if sources.uri_of(reference) is None:
        raise not_of_lakebed("CALL", reference, sources)
    required = next((argument for argument in procedure.required if arguments.get(argument) is None), None)
    if required is not None:
        raise cursor.wrong(1, f"the argument {required} is missing")
    return Call(name, reference, arguments)


def _arguments(cursor: Cursor, parameters: Sequence[str]) -> dict[str, Any]:
    """The arguments of a call by the names of the parameters."""
    if cursor.word == "(" and cursor.statement.word(cursor.at + 1) == ")":
        cursor.at += 2
        return {}
    first, stop = cursor.enclosed("the arguments")
    after, arguments = cursor.at, dict[str, Any]()
    by_case = {name.lower(): name for name in parameters}
    listed = list(cursor.listed(first, stop))
    is_named = [cursor.statement.word(start + 1) == "=>" for start, _ in listed]
    if any(is_named) and not all(is_named):
        raise cursor.wrong(first, "arguments with names and without are mixed")
    for number, (start, last) in enumerate(listed):
        cursor.at = start
        if is_named[number]:
            name = cursor.name("argument").lower()
            cursor.at += 1
        else:
            name = parameters[number].lower() if number < len(parameters) else ""
        if name not in by_case:
            raise cursor.wrong(start, f"there is no argument {name!r}: there are {', '.join(parameters)}")
        if by_case[name] in arguments:
            raise cursor.wrong(start, f"the argument {name} is given twice")
        arguments[by_case[name]] = cursor.literal(f"the argument {name}")
        if cursor.at != last:
            raise cursor.wrong(cursor.at, f"something follows the argument {name}")
    cursor.at = after
    return arguments


@dataclass(frozen=True)
class _Arguments:
    """The arguments of one call. Arguments that lakebed does not support are refused if they are given."""

    procedure: str
    values: Mapping[str, Any]

    def text(self, name: str) -> str:
        """An argument as text; empty if it is not given."""
        return text_of(self.values.get(name)) or ""

    def texts(self, name: str) -> list[str]:
        """The parts of an argument that commas separate."""
        return [part.strip() for part in self.text(name).split(",") if part.strip()]

    def number(self, name: str) -> int | None:
        """An argument as a whole number; None if it is missing. Raises `InvalidOption` for any other text."""
        text = self.text(name)
        if text and not text.isdecimal():
            raise InvalidOption(f"{self.procedure} takes a whole number as {name}, not {text!r}")
        return int(text) if text else None

    def without(self, *names: str) -> None:
        """Raise `UnsupportedFeature` for the first of these that is given, and is not false."""
        for name in names:
            if self.values.get(name) not in (None, False, ""):
                raise UnsupportedFeature(
                    f"{self.procedure} does not take {name} in lakebed",
                    hint="leave it out",
                    context={"procedure": self.procedure, "argument": name},
                )

    def options(self, **keys: str) -> dict[str, Any]:
        """The options of `options => 'key=value,key=value'`, and the arguments that are options, by their keys."""
        values: dict[str, Any] = {}
        for part in self.texts("options"):
            key, equal, value = part.partition("=")
            if not equal:
                raise InvalidOption(f"{self.procedure} takes key=value in options, not {part!r}")
            values[key.strip()] = value.strip()
        return values | {key: self.text(name) for name, key in keys.items() if self.text(name)}

    def operation(self) -> str:
        """The operation of a service: schedule, execute or both."""
        op = self.text("op").lower() or "scheduleandexecute"
        if op not in ("run", "schedule", "execute", "scheduleandexecute"):
            raise InvalidOption(
                f"{self.procedure} has no op {op!r}", hint="there are run, schedule, execute and scheduleAndExecute"
            )
        return "scheduleandexecute" if op == "run" else op


@dataclass(frozen=True, slots=True)
class _Procedure:
    """A procedure of Hudi: its parameters in their order, and the function that runs it on a table."""

    parameters: tuple[str, ...]
    run: Callable[[Table, _Arguments], Any]
    required: tuple[str, ...] = ()


def _run_compaction(table: Table, arguments: _Arguments) -> Any:
    arguments.without("timestamp", "instants", "limit")
    op, options = arguments.operation(), arguments.options()
    if op == "execute":
        never = {"trigger.strategy": "NUM_COMMITS", "max.delta.commits": _NEVER_DUE}
        options |= {f"hoodie.compact.inline.{key}": value for key, value in never.items()}
    return table.maintenance.compact(plan_only=op == "schedule", when_due=op == "execute", options=options)


def _run_clustering(table: Table, arguments: _Arguments) -> Any:
    arguments.without("instants", "show_involved_partition")
    op, options = arguments.operation(), arguments.options()
    paths: list[str] | None = arguments.texts("selected_partitions") or None
    if arguments.text("predicate"):
        paths = paths_that_fulfil(table, arguments.text("predicate"))
        if not paths:
            return nothing_to_cluster(arguments.text("predicate"))
    if op == "execute":
        options["hoodie.clustering.inline.max.commits"] = _NEVER_DUE
    layout: Any = arguments.text("order_strategy").lower().replace("-", "") or None
    return table.maintenance.cluster(
        arguments.texts("order") or None,
        layout=layout,
        partitions=paths,
        plan_only=op == "schedule",
        when_due=op == "execute",
        options=options,
    )


def _run_clean(table: Table, arguments: _Arguments) -> Any:
    arguments.without("skip_locking")
    options = arguments.options(
        clean_policy="hoodie.clean.policy",
        retain_commits="hoodie.clean.commits.retained",
        hours_retained="hoodie.clean.hours.retained",
        file_versions_retained="hoodie.clean.fileversions.retained",
        trigger_strategy="hoodie.clean.trigger.strategy",
        trigger_max_commits="hoodie.clean.trigger.max.commits",
    )
    return table.maintenance.clean(options=options)


def _archive_commits(table: Table, arguments: _Arguments) -> Any:
    if arguments.values.get("enable_metadata") is False:
        raise UnsupportedFeature(
            "archive_commits keeps the metadata table up to date", hint="leave out enable_metadata"
        )
    return table.maintenance.archive(
        options=arguments.options(
            min_commits="hoodie.keep.min.commits",
            max_commits="hoodie.keep.max.commits",
            retain_commits="hoodie.clean.commits.retained",
        )
    )


def _run_ttl(table: Table, arguments: _Arguments) -> Any:
    options = arguments.options(ttl_policy="hoodie.partition.ttl.strategy.type")
    return table.maintenance.expire_partitions(arguments.number("retain_days"), options=options)


def _savepoint_of(table: Table, arguments: _Arguments) -> str:
    """The instant of the named savepoint, or of the last one."""
    instants = [savepoint.instant for savepoint in table.savepoints.list()]
    instant = arguments.text("instant_time") or (instants[-1] if instants else "")
    if instant not in instants:
        raise InvalidOption(
            f"table {table.name!r} has no savepoint{f' {instant!r}' if instant else ''}",
            hint=f"it has {', '.join(instants) or 'none'}",
        )
    return instant


def _create_savepoint(table: Table, arguments: _Arguments) -> Any:
    user = arguments.text("user") or None
    return table.savepoints.create(arguments.text("commit_time") or None, name=arguments.text("comments"), user=user)


def _delete_savepoint(table: Table, arguments: _Arguments) -> Any:
    instants = arguments.texts("instant_time") or [_savepoint_of(table, arguments)]
    for instant in instants:
        _savepoint_of(table, _Arguments(arguments.procedure, {"instant_time": instant}))
    return [table.savepoints.delete(instant) for instant in instants][-1]


def _drop_partition(table: Table, arguments: _Arguments) -> Any:
    return table.delete_partitions(arguments.texts("partition"))


def _truncate_table(table: Table, arguments: _Arguments) -> Any:
    paths = arguments.texts("partitions") or exactly(table.partitions, table)
    return table.delete_partitions(paths) if paths else table.delete([])


def _version(arguments: _Arguments) -> int:
    """The number of a version that Hudi writes as NINE or 9."""
    names = {"SIX": 6, "EIGHT": 8, "NINE": 9}
    text = arguments.text("to_version").upper()
    if text not in names and not text.isdecimal():
        raise InvalidOption(f"{arguments.procedure} takes a table version, not {text!r}", hint="NINE, EIGHT or SIX")
    return names.get(text) or int(text)


def _show_timeline(table: Table, arguments: _Arguments) -> pa.Table:
    rows = newest_first(table.timeline.to_arrow())
    states = pa.array([str(state).upper() for state in rows["state"].to_pylist()], pa.string())
    times, action = rows["time"], rows["action"]
    names = ["instant_time", "action", "state", "requested_time", "completed_time"]
    columns = [times, action, states, times, rows["completion_time"]]
    return _limited(pa.table(columns, names=names), arguments, "instant_time")


def _show_actions(name: str, *actions: Action) -> Callable[[Table, _Arguments], pa.Table]:
    """The instants of some actions, newest first, with their time under Hudi's name."""

    def show(table: Table, arguments: _Arguments) -> pa.Table:
        rows = newest_first(table.timeline.to_arrow())
        instants = rows.filter(pc.is_in(rows["action"], pa.array([action.value for action in actions])))
        states = pa.array([str(state).upper() for state in instants["state"].to_pylist()], pa.string())
        columns = [instants["time"], instants["completion_time"], states, instants["action"]]
        return _limited(pa.table(columns, names=[name, "state_transition_time", "state", "action"]), arguments, name)

    return show


def _show_savepoints(table: Table, arguments: _Arguments) -> pa.Table:
    savepoints = table.savepoints.list()[::-1]
    columns = {
        "savepoint_time": [savepoint.instant for savepoint in savepoints],
        "savepointed_by": [savepoint.user for savepoint in savepoints],
        "comments": [savepoint.name for savepoint in savepoints],
    }
    rows = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    return _limited(rows, arguments, "savepoint_time")


def _show_properties(table: Table, arguments: _Arguments) -> pa.Table:
    properties = sorted(table.properties.items())
    columns = {"key": [key for key, _ in properties], "value": [value for _, value in properties]}
    return _limited(
        pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}), arguments, "key"
    )


def _limited(rows: pa.Table, arguments: _Arguments, time: str) -> pa.Table:
    """The rows that `startTime`, `endTime` and `filter` select, at most `limit`."""
    arguments.without("showArchived")
    start, end = arguments.text("startTime"), arguments.text("endTime")
    texts = [f"{time} >= {sql_literal(start)}"] if start else []
    texts += [f"{time} <= {sql_literal(end)}"] if end else []
    texts += [arguments.text("filter")] if arguments.text("filter") else []
    for text in texts:
        rows = rows.filter(parse_filter(text, rows.schema).to_arrow())
    limit = arguments.number("limit")
    return rows if limit is None else rows.slice(0, limit)


_SHOW = ("table", "path", "limit", "showArchived", "filter", "startTime", "endTime")
_SAVEPOINT = ("table", "instant_time", "path")
_PROCEDURES: dict[str, _Procedure] = {
    "run_compaction": _Procedure(
        ("op", "table", "path", "timestamp", "options", "instants", "limit"), _run_compaction, ("op",)
    ),
    "run_clustering": _Procedure(
        (
            *("table", "path", "predicate", "order", "show_involved_partition", "op", "order_strategy", "options"),
            *("instants", "selected_partitions"),
        ),
        _run_clustering,
    ),
    "run_clean": _Procedure(
        (
            *("table", "skip_locking", "schedule_in_line", "clean_policy", "retain_commits", "hours_retained"),
            *("file_versions_retained", "trigger_strategy", "trigger_max_commits", "options"),
        ),
        _run_clean,
    ),
    "run_ttl": _Procedure(("table", "ttl_policy", "retain_days", "options"), _run_ttl),
    "archive_commits": _Procedure(
        ("table", "path", "min_commits", "max_commits", "retain_commits", "enable_metadata"), _archive_commits
    ),
    "rollback_to_instant": _Procedure(
        ("table", "instant_time"),
        lambda table, arguments: table.rollback(arguments.text("instant_time")),
        ("instant_time",),
    ),
    "create_savepoint": _Procedure(("table", "commit_time", "user", "comments", "path"), _create_savepoint),
    "delete_savepoint": _Procedure(_SAVEPOINT, _delete_savepoint),
    "rollback_to_savepoint": _Procedure(
        _SAVEPOINT, lambda table, arguments: table.restore(_savepoint_of(table, arguments))
    ),
    "drop_partition": _Procedure(("table", "partition"), _drop_partition, ("partition",)),
    "truncate_table": _Procedure(("table", "partitions"), _truncate_table),
    "upgrade_table": _Procedure(
        ("table", "to_version"),
        lambda table, arguments: table.maintenance.upgrade(_version(arguments)),
        ("to_version",),
    ),
    "downgrade_table": _Procedure(
        ("table", "to_version"),
        lambda table, arguments: table.maintenance.downgrade(_version(arguments)),
        ("to_version",),
    ),
    "show_commits": _Procedure(
        _SHOW, lambda table, arguments: _limited(table.timeline.commit_totals(), arguments, "commit_time")
    ),
    "show_timeline": _Procedure(_SHOW, _show_timeline),
    "show_compaction": _Procedure(_SHOW, _show_actions("compaction_time", Action.COMPACTION)),
    "show_clustering": _Procedure(_SHOW, _show_actions("timestamp", Action.CLUSTERING)),
    "show_cleans": _Procedure(_SHOW, _show_actions("clean_time", Action.CLEAN)),
    "show_rollbacks": _Procedure(_SHOW, _show_actions("instant", Action.ROLLBACK, Action.RESTORE)),
    "show_savepoints": _Procedure(_SHOW, _show_savepoints),
    "show_indexes": _Procedure(("table", "path"), lambda table, arguments: table.indexes.to_arrow()),
    "show_fsview_latest": _Procedure(
        ("table", "path", "limit"), lambda t, arguments: _limited(t.files.to_arrow(), arguments, "")
    ),
    "show_table_properties": _Procedure(("table", "path", "limit", "filter"), _show_properties),
    "help": _Procedure(("cmd",), lambda table, arguments: None),
}
_REPAIR = "t.maintenance.repair() finds and mends damage"
_METADATA = "t.indexes lists, makes, drops, verifies and repairs what the metadata table has"
_OTHERS = {
    "show_archived_commits": "t.timeline has the active timeline",
    "show_commit_files": "lakebed_files('t') has the files",
    "show_commits_metadata": "show_commits has the totals of each commit",
    "run_bootstrap": "lakebed.convert(source, uri, key=..., in_place=True) makes a table over data files",
    "hdfs_parquet_import": "lakebed.load(uri, 'files', key=...) loads data files",
    "delete_marker": _REPAIR,
    "repair_add_partition_meta": _REPAIR,
    "repair_corrupted_clean_files": _REPAIR,
    "repair_deduplicate": "t.maintenance.repair(['duplicates']) does it",
    "repair_migrate_partition_meta": _REPAIR,
    "repair_overwrite_hoodie_props": _REPAIR,
    "create_metadata_table": _METADATA,
    "delete_metadata_table": _METADATA,
    "init_metadata_table": _METADATA,
    "validate_metadata_table_files": "t.indexes.verify() does it",
    "copy_to_table": "CREATE TABLE ... AS SELECT, or INSERT INTO",
    "copy_to_temp_view": "lakebed.spark.create_views(spark, {'name': t})",
    "hive_sync": "no catalog is changed",
}
