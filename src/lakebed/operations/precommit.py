"""Pre-commit validators: queries over the table before and after a write, which decide whether it is committed.

The options, the classes and `<TABLE_NAME>` are those of real Hudi (`hoodie.precommit.validators`). The table of a query
is the rows of the partition paths that the write touches, with meta columns and log files. With a Spark session the
queries are Spark's SQL, otherwise DuckDB's. A table may record them for all its writers: each is one SELECT of that
table, and reaches nothing else.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lakebed.config.option_table import simple_name
from lakebed.config.settings import ValidationSettings
from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature, ValidationFailed
from lakebed.operations.context import WriteContext
from lakebed.read.scan import Scan, SliceScan
from lakebed.slices.snapshot import Snapshot
from lakebed.wording import count_text

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("lakebed")
_OPTION = "hoodie.precommit.validators"
_TABLE = "<TABLE_NAME>"

Kind = Literal["equality", "inequality", "single value"]
_KINDS: dict[str, Kind] = {
    "SqlQueryEqualityPreCommitValidator": "equality",
    "SqlQueryInequalityPreCommitValidator": "inequality",
    "SqlQuerySingleResultPreCommitValidator": "single value",
}

# Functions of Spark that call any method of Java, or whose name is a value.
_OUTSIDE = frozenset(("reflect", "try_reflect", "java_method", "identifier"))


@dataclass(frozen=True)
class Validation:
    """One query of a validator. `expected` is the text of the value that a query of a single value must give."""

    kind: Kind
    query: str
    expected: str = ""


def kinds_of_validators(settings: ValidationSettings) -> dict[str, Kind]:
    """The kind of each validator that the options name, by its name. Raises `InvalidOption` for a class that lakebed
    does not have."""
    kinds: dict[str, Kind] = {}
    for name in settings.validators:
        kind = _KINDS.get(simple_name(name))
        if kind is None:
            raise InvalidOption(
                f"{_OPTION} names {name}, which is no validator of lakebed",
                hint=f"it has {', '.join(_KINDS)}; other checks look at a stage before its commit (docs/stage.md)",
                context={"option": _OPTION, "value": name},
            )
        kinds[name] = kind
    return kinds


def check_validators(settings: ValidationSettings) -> None:
    """Raise `InvalidOption` for validators that no write could run: for a class that lakebed does not have, and for a
    text that neither Spark nor DuckDB could run as one query of the table. A validator may get its queries later."""
    for validation in validations_of(settings, is_complete=False):
        reason = _reason_not_run(validation.query)
        if reason is not None:
            raise InvalidOption(
                f"the validator's query {validation.query!r} can never be run: {reason}",
                hint=f"Give one SELECT that reads {_TABLE} and no other table.",
                context={"option": _OPTION, "query": validation.query},
            )


def _reason_not_run(query: str) -> str | None:
    """The reason why no engine runs a query; None if one does, or if DuckDB is not installed and could run it."""
    name = "rows_of_the_table"
    text = query.replace(_TABLE, name)
    try:
        _check_query(text, frozenset((name,)), is_raw=False)
    except _NoQuery as error:
        reason = str(error)
    else:
        return None
    from lakebed.format.duckdb_database import connect

    try:
        with connect(is_closed=True) as connection:
            is_query = _is_one_select(connection, text) and connection.get_table_names(text) <= {name}
    except UnsupportedFeature:
        return None
    except Exception:  # the parser of DuckDB has its own classes of errors
        return reason
    return None if is_query else reason


def validations_of(settings: ValidationSettings, *, is_complete: bool = True) -> tuple[Validation, ...]:
    """The queries of the validators that the options name.

    Raises `InvalidOption` for a class that lakebed does not have, for a validator without a query if all settings are
    there (`is_complete`), and for a query of a single value without one `#` before the value.
    """
    validations: list[Validation] = []
    texts = {
        "equality": settings.equality_queries,
        "inequality": settings.inequality_queries,
        "single value": settings.single_value_queries,
    }
    for name, kind in kinds_of_validators(settings).items():
        option = f"{_OPTION}.{kind.replace(' ', '.')}.sql.queries"
        queries = [query.strip() for query in texts[kind].split(";") if query.strip()]
        if not queries and is_complete:
            raise InvalidOption(
                f"{_OPTION} names {name}, and {option} has no query",
                hint=f"give its queries, separated by semicolons; {_TABLE} stands for the table",
                context={"option": option},
            )
        validations += [_validation(kind, query, option) for query in queries]
    return tuple(validations)


def _validation(kind: Kind, query: str, option: str) -> Validation:
    if kind != "single value":
        return Validation(kind, query)
    text, *expected = query.split("#")
    if len(expected) != 1:
        raise InvalidOption(
            f"{option} has {query!r}, which is not a query, one # and the expected value",
            hint=f"write it like this: SELECT count(*) FROM {_TABLE} WHERE fare < 0#0",
            context={"option": option, "value": query},
        )
    return Validation(kind, text.strip(), expected[0].strip())


class Runner(Protocol):
    """An engine that runs the queries over the rows of two views."""

    def count(self, query: str) -> int:
        """The number that a query of one number gives."""
        ...

    def texts(self, query: str) -> Sequence[str | None]:
        """The first values of the first column of a query as texts, at most two."""
        ...


Names = tuple[str, str]
"""The names under which an engine knows the rows before the write and after it."""


class _NoQuery(Exception):
    """A text that is not one query of the rows of a view: recorded texts read nothing else, and write nothing."""


class _OnDuckDB:
    """A connection that reaches no files and no network."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def _rows(self, query: str) -> duckdb.DuckDBPyRelation:
        if not _is_one_select(self._connection, query):
            raise _NoQuery("it is not one SELECT")
        return self._connection.sql(query)

    def count(self, query: str) -> int:
        return int(self._rows(query).fetchall()[0][0])

    def texts(self, query: str) -> Sequence[str | None]:
        rows = self._rows(query).limit(2).project("CAST(#1 AS VARCHAR)").fetchall()
        return [row[0] for row in rows]


def _is_one_select(connection: duckdb.DuckDBPyConnection, query: str) -> bool:
    return [statement.type.name for statement in connection.extract_statements(query)] == ["SELECT"]


class _OnSpark:
    """A session that runs queries of the views of these names alone."""

    def __init__(self, spark: SparkSession, names: Sequence[str]) -> None:
        self._spark = spark
        self._names = frozenset(names)

    def _rows(self, query: str) -> DataFrame:
        is_raw = self._spark.conf.get("spark.sql.parser.escapedStringLiterals", "false") == "true"
        _check_query(query, self._names, is_raw=is_raw)
        return self._spark.sql(query)

    def count(self, query: str) -> int:
        return int(self._rows(query).collect()[0][0])

    def texts(self, query: str) -> Sequence[str | None]:
        frame = self._rows(query).limit(2)
        named = frame.toDF(*[f"c{n}" for n in range(len(frame.columns))])
        return [row[0] for row in named.selectExpr("CAST(c0 AS STRING)").collect()]


def _check_query(query: str, names: frozenset[str], *, is_raw: bool) -> None:
    """Raise `_NoQuery` for a text of Spark SQL that is not one query, or that reads more than the tables `names`.
    `is_raw` is whether the session takes a backslash in a text as it is."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    from lakebed.filters.sql import SparkText

    # which Spark replaces, or reads as a longer comment or text than the parser here
    odd = next((sign for sign in ("${", "\\\n", "\\\r", *("\\" * is_raw)) if sign in query), None)
    if odd is not None:
        raise _NoQuery(f"it has {odd!r}, which a session may read in several ways")
    try:
        trees = sqlglot.parse(query, read=SparkText)
    except (SqlglotError, RecursionError) as error:
        raise _NoQuery(f"it cannot be read as one SELECT ({str(error).partition(chr(10))[0]})") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise _NoQuery("it is not one SELECT")
    for node in trees[0].find_all(exp.QueryTransform, exp.Anonymous, exp.Table):
        if isinstance(node, exp.QueryTransform):
            raise _NoQuery("it runs a program")
        name = node.name.lower()
        if isinstance(node, exp.Anonymous) and name in _OUTSIDE:
            raise _NoQuery(f"it calls {name}, which reaches more than the table")
        if not isinstance(node, exp.Table) or node.find_ancestor(exp.Hint):
            continue
        is_function = isinstance(node.this, exp.Func) and not isinstance(node.this, exp.Anonymous)
        is_plain = isinstance(node.this, exp.Identifier) and not node.db
        if not (is_function or (is_plain and (name in names or _is_of_with(node, name)))):
            raise _NoQuery(f"it reads {node.sql(dialect=SparkText)}, and may read the rows of this table alone")


def _is_of_with(table: Any, name: str) -> bool:
    """Whether a name in a query is that of a part of WITH around it, which is defined before the name is used."""
    from sqlglot import exp

    inside, node = None, table.parent
    while node is not None:
        if isinstance(node, exp.CTE):
            inside = node
        elif isinstance(node, exp.Query):
            for part in node.ctes:
                if part is inside:
                    break
                if part.alias.lower() == name:
                    return True
        node = node.parent
    return False


def is_on_spark(context: WriteContext) -> bool:
    """Whether the queries of a write run on its Spark session; otherwise they run on DuckDB."""
    return context.spark is not None and not context.storage.spec.in_this_process


@contextmanager
def runner(spark: SparkSession | None, scans: Sequence[Scan]) -> Generator[tuple[Runner, tuple[str, ...]]]:
    """The engine that runs queries over the rows of some reads, and the name by which it knows each of them: the
    session, or DuckDB without one."""
    number = uuid.uuid4().hex
    names = tuple(f"lakebed_{at}_{number}" for at in range(len(scans)))
    if spark is not None:
        try:
            for name, scan in zip(names, scans, strict=True):
                scan.in_session(spark).to_spark().createOrReplaceTempView(name)
            yield _OnSpark(spark, names), names
        finally:
            for name in names:
                spark.catalog.dropTempView(name)
        return
    from lakebed.format.duckdb_database import connect
    from lakebed.read.dataset import TableDataset

    with connect(is_closed=True) as connection:
        for name, scan in zip(names, scans, strict=True):
            connection.register(name, TableDataset(scan))
        yield _OnDuckDB(connection), names


def checked_validations(context: WriteContext) -> tuple[Validation, ...]:
    """The queries of a write's validators, before it begins. Raises what `validations_of` raises, and
    `UnsupportedFeature` if no engine can run them."""
    validations = validations_of(context.settings.validation)
    check_engine(context)
    return validations


def check_engine(context: WriteContext) -> None:
    """Raise `UnsupportedFeature` if no engine can run the queries of a write: before it begins."""
    if not is_on_spark(context):
        from lakebed.format.duckdb_database import connect

        connect(is_closed=True).close()


def validate(context: WriteContext, validations: Sequence[Validation], before: Snapshot, after: Snapshot) -> None:
    """Run the queries of validators over the table before a write and over `after`, the view with its pending commit.

    Raises `ValidationFailed` for the first query that does not hold, or logs a warning for each where the failure
    policy is WARN_LOG; `InvalidOption` for a query that the engine refuses.
    """
    assert after.pending is not None
    commit = after.pending.metadata
    paths = {*commit.stats, *commit.replaced}
    if not paths:
        return
    scans = [SliceScan(view, view.file_slices(paths), after, meta=True) for view in (before, after)]
    with runner(context.spark if is_on_spark(context) else None, scans) as (engine, (name_before, name_after)):
        for validation in validations:
            with refusals_of_engine(
                f"the validator's query {validation.query!r} cannot be run",
                "Nothing was committed. Without a Spark session the queries are DuckDB's SQL.",
                {"option": _OPTION, "query": validation.query},
            ):
                failure = _failure(validation, engine, (name_before, name_after))
            if failure is None:
                continue
            if context.settings.validation.failure_policy == "FAIL":
                raise failure
            _log.warning("%s", failure)


@contextmanager
def refusals_of_engine(message: str, hint: str, context: dict[str, Any]) -> Generator[None]:
    """Raise `InvalidOption` for an error of DuckDB or Spark in the block, with the first line of that error after the
    `message`."""
    try:
        yield
    except LakebedError:
        raise
    except Exception as error:  # each engine has its own classes
        first = str(error).strip().partition("\n")[0]
        raise InvalidOption(f"{message}: {first}", hint=hint, context=context) from error


def _failure(validation: Validation, runner: Runner, names: Names) -> ValidationFailed | None:
    """The error of a query that does not hold; None for one that does."""
    before, after = (validation.query.replace(_TABLE, name) for name in names)
    if validation.kind == "single value":
        values = runner.texts(after)
        if list(values) == [validation.expected]:
            return None
        value = values[0] if len(values) == 1 else f"{'several' if values else 'no'} rows"
        return _failed(validation, validation.expected, "null" if value is None else value)
    lost, new = (
        runner.count(f"SELECT count(*) FROM (({rows}\n) EXCEPT ALL ({others}\n)) AS differing")
        for rows, others in ((before, after), (after, before))
    )
    are_equal = lost == new == 0
    if are_equal == (validation.kind == "equality"):
        return None
    difference = "the same rows" if are_equal else f"{count_text(lost, 'row')} less and {count_text(new, 'row')} more"
    return _failed(validation, "other rows" if are_equal else "the rows from before the write", difference)


def _failed(validation: Validation, expected: str, result: str) -> ValidationFailed:
    return ValidationFailed(
        f"the {validation.kind} validator's query {validation.query!r} expects {expected}, and gives {result}",
        hint="Nothing was committed. Correct the rows, or the query.",
        context={"kind": validation.kind, "query": validation.query, "expected": expected, "found": result},
    )
