"""Attaching a warehouse to a session of Spark: its methods ask lakebed for statements and names of the warehouse.

`sql` and `table` of the session and `tableExists` of its catalog are replaced in these two objects. Spark makes a new
reader or writer for each use: methods of their classes are replaced as long as a session is attached, and ask for the
session to which the reader or writer belongs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from string import Formatter
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakSet

import pyarrow as pa

from lakebed.catalog.names import using
from lakebed.config.commit_notes import MESSAGE
from lakebed.engine.base import session_of
from lakebed.engine.spark_python import use_this_python
from lakebed.engine.spark_session import is_connect
from lakebed.errors import InvalidOption, LakebedError
from lakebed.opened_table import noting
from lakebed.operations.result import WriteResult
from lakebed.queries import table_calls
from lakebed.secrets import without_users
from lakebed.statements.run import named_reference, run
from lakebed.statements.sources import Sources
from lakebed.statements.spark_views import drop_views, refresh_views
from lakebed.wording import Lines, Printed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.catalog.warehouses import Names
    from lakebed.table import Table

T = TypeVar("T")

# The name in Spark's error, each part of it in backquotes.
_RELATION = re.compile(r"table or view (`[^`]+`(?:\.`[^`]+`)*)")
_CLONED = re.compile(r"near .(?:SHALLOW|DEEP)\b.*\bCLONE\s+([\w.`]+)", re.DOTALL | re.IGNORECASE)
_ATTRIBUTE = "_lakebed_attachment"
_MISSING: Any = object()
_COUNTS = pa.schema(
    [(name, pa.int64()) for name in ("num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows")]
)
_lock = RLock()
_sessions: WeakSet[SparkSession] = WeakSet()
# The methods of classes that are replaced, by whether they are those of Spark Connect.
_of_classes: dict[bool, list[Replaced]] = {}
# Whether lakebed runs a statement: what it asks of the session meanwhile is Spark's.
_runs: ContextVar[bool] = ContextVar("runs", default=False)


@dataclass(frozen=True)
class Replaced:
    """An attribute of an object that has another value for some time. `former` is the value in the object itself."""

    owner: Any
    name: str
    former: Any
    present: Any

    @classmethod
    def by(cls, owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> Replaced:
        """Replace a method by the function that `make` makes of it."""
        original = getattr(owner, name)
        present = functools.wraps(original)(make(original))
        replaced = cls(owner, name, vars(owner).get(name, _MISSING), present)
        setattr(owner, name, present)
        return replaced

    def put_back(self) -> None:
        """Put the former value back, unless another one has been set since."""
        if vars(self.owner).get(self.name) is not self.present:
            return
        if self.former is _MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.former)


@dataclass(frozen=True)
class Attachment:
    """A warehouse that is attached to a session, and what was replaced in it."""

    spark: SparkSession
    names: Names
    storage_options: Mapping[str, str] = field(repr=False)
    replaced: list[Replaced] = field(default_factory=list[Replaced], repr=False)

    @contextmanager
    def running(self) -> Generator[None]:
        """Run a block in which names are those of the warehouse, and the session's methods are Spark's."""
        token = _runs.set(True)
        try:
            with using(self.names):
                yield
        finally:
            _runs.reset(token)

    def existing_name(self, name: str) -> str | None:
        """The name of a table of the warehouse from a text for Spark; None for any other text."""
        reference = named_reference(name)
        return None if reference is None else self._sources().uri_of(reference)

    def new_name(self, name: str) -> str | None:
        """The name in the warehouse from a text for Spark, whether there is a table or not; None for a text without a
        database. Raises `InvalidOption` for a text that is no name of a warehouse."""
        reference = named_reference(name)
        return None if reference is None else self._sources().new_name(reference)

    def table(self, name: str) -> Table | None:
        """The table of a name for Spark; None if the warehouse has none."""
        reference = named_reference(name)
        return None if reference is None else self._sources().table(reference)

    def note_names(self, error: Exception) -> None:
        """Add to an error of Spark about a name that it does not find the names of the warehouse that are similar. It
        stays Spark's error, with its class and its message."""
        text = str(error)
        # Spark has no CLONE, and names that word where the table to clone is none of the warehouse
        match = _RELATION.search(text) if "TABLE_OR_VIEW_NOT_FOUND" in text else _CLONED.search(text)
        if match is None:
            return
        name = match.group(1).replace("`", "")
        with suppress(LakebedError, OSError):  # the error is Spark's
            if name.count(".") == 1:
                near = self.names.near(self.names.parse(name.lower()))
            else:
                databases = [db for db in self.names.databases() if name.lower() in self.names.tables(db)]
                listed = " or ".join(repr(f"{database}.{name.lower()}") for database in databases)
                near = f"Did you mean {listed}? " if listed else ""
            error.add_note(f"{near}The warehouse {self.names.uri} has no table {name}.")

    def run(self, text: str, frames: Mapping[str, Any], args: Any = None, left: Any = None) -> DataFrame:
        """The result of a statement; that of `left` if it is none of lakebed."""
        calls = table_calls(self.storage_options)
        # a setting of the session: SET lakebed.message = ...
        with noting(self.spark.conf.get(MESSAGE, None)):
            return frame_of(run(text, frames, args, self.spark, calls, left), self.spark)

    def _sources(self) -> Sources:
        return Sources(None, table_calls(self.storage_options), self.spark)


def attachment_of(spark: Any) -> Attachment | None:
    """What is attached to a session; None without an attachment, and while lakebed runs a statement in it."""
    return None if _runs.get() else vars(spark).get(_ATTRIBUTE)


def attach_names(
    spark: SparkSession,
    names: Names,
    storage_options: Mapping[str, str],
    replace_methods: Callable[[bool], list[Replaced]],
) -> None:
    """Attach a warehouse to a session; `replace_methods` replaces the methods of readers and writers, for Connect or
    not. The same warehouse again changes nothing. Raises `InvalidOption` for another one."""
    use_this_python(spark)
    with _lock:
        present: Attachment | None = vars(spark).get(_ATTRIBUTE)
        if present is not None:
            if (present.names.uri, present.storage_options) == (names.uri, storage_options):
                return
            raise InvalidOption(
                f"the session has the warehouse {without_users(present.names.uri)}, and not {without_users(names.uri)}",
                hint="call lakebed.spark.detach(spark) first, or attach the other one to spark.newSession()",
                context={"argument": "warehouse"},
            )
        attachment = Attachment(spark, names, dict(storage_options))
        setattr(spark, _ATTRIBUTE, attachment)
        attachment.replaced.extend(
            [
                Replaced.by(spark, "sql", functools.partial(_sql, spark)),
                Replaced.by(spark, "table", functools.partial(_table, spark)),
                Replaced.by(spark.catalog, "tableExists", functools.partial(_table_exists, spark)),
            ]
        )
        _sessions.add(spark)
        if is_connect(spark) not in _of_classes:
            _of_classes[is_connect(spark)] = replace_methods(is_connect(spark))


def detach_names(spark: SparkSession) -> None:
    """Put back what `attach_names` replaced; does nothing in a session without a warehouse."""
    with _lock:
        attachment: Attachment | None = vars(spark).pop(_ATTRIBUTE, None)
        if attachment is None:
            return
        for replaced in reversed(attachment.replaced):
            replaced.put_back()
        drop_views(spark)
        _sessions.discard(spark)
        if not any(is_connect(session) == is_connect(spark) for session in _sessions):
            for replaced in _of_classes.pop(is_connect(spark), []):
                replaced.put_back()


def _sql(spark: SparkSession, original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def sql(sqlQuery: Any, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: N803
        attachment = attachment_of(spark)

        def left() -> DataFrame:
            return with_names(attachment, lambda: original(sqlQuery, args, **kwargs))

        # Spark refuses what is no text, and values that are neither a dict nor a list
        if attachment is None or not isinstance(sqlQuery, str) or not isinstance(args, dict | list | None):
            return left()
        text, frames = sqlQuery, dict[str, Any]()
        if kwargs:
            try:
                text, frames = formatted(spark, sqlQuery, kwargs)
            except Exception:  # Spark finds it again, with its own message
                return left()
        with attachment.running():
            refresh_views(spark)
            return attachment.run(text, frames, args, left)

    return sql


def _table(spark: SparkSession, original: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def table(tableName: Any) -> DataFrame:  # noqa: N803
        attachment = attachment_of(spark)
        frame = table_rows(attachment, tableName)
        return with_names(attachment, lambda: original(tableName)) if frame is None else frame

    return table


def with_names(attachment: Attachment | None, call: Callable[[], T]) -> T:
    """The result of a call of Spark. Its error about a name gets a note with similar names of the warehouse."""
    try:
        return call()
    except Exception as error:
        if attachment is not None:
            attachment.note_names(error)
        raise


def table_rows(attachment: Attachment | None, name: Any) -> DataFrame | None:
    """The rows of the table of a name as it is now; None if it is none of the warehouse."""
    if attachment is None or not isinstance(name, str):
        return None
    with attachment.running():
        refresh_views(attachment.spark)
        table = attachment.table(name)
        return None if table is None else table.scan().to_spark()


def _table_exists(spark: SparkSession, original: Callable[..., bool]) -> Callable[..., bool]:
    def table_exists(tableName: Any, dbName: str | None = None) -> bool:  # noqa: N803
        attachment = attachment_of(spark)
        if attachment is not None and isinstance(tableName, str):
            name = tableName if dbName is None else f"{dbName}.{tableName}"
            with attachment.running():
                if attachment.existing_name(name) is not None:
                    return True
        return original(tableName, dbName)

    return table_exists


# -- results and variables of statements


def frame_of(result: Any, spark: SparkSession) -> DataFrame:
    """The result of a statement as a DataFrame: the rows of a query as they are, a row of counts for a statement that
    changes rows, a row with its plan for an EXPLAIN of such a statement, a row with the text of the result for a
    service, and no columns for any other, as Spark has it."""
    if session_of(result) is not None:
        return result
    if isinstance(result, WriteResult):
        return spark.createDataFrame(counts_of(result))
    if isinstance(result, Lines):
        return spark.createDataFrame(pa.table({"plan": pa.array([str(result)], pa.string())}))
    if isinstance(result, Printed):
        return spark.createDataFrame(pa.table({"result": pa.array([str(result)], pa.string())}))
    return spark.range(0).select()


def counts_of(result: WriteResult) -> pa.Table:
    """The counts of a write as one row; null for rows that the write did not count.

    >>> import lakebed
    >>> t = lakebed.create("memory://docs/counts", {"id": [1]}, key="id")
    >>> counts_of(t.insert({"id": [1, 2]})).to_pylist()
    [{'num_affected_rows': 2, 'num_updated_rows': 0, 'num_deleted_rows': 0, 'num_inserted_rows': 2}]
    """
    counts = (result.updated, result.deleted, result.inserted)
    counted = [count for count in counts if count is not None]
    total = sum(counted) if len(counted) == len(counts) else None
    return pa.table([pa.array([count], pa.int64()) for count in (total, *counts)], _COUNTS)


def formatted(spark: SparkSession, text: str, variables: Mapping[str, Any]) -> tuple[str, dict[str, DataFrame]]:
    """The text of `spark.sql(text, **variables)` with the values of the variables, and the DataFrames among these by
    the names that they have in it. Raises Spark's errors for what it refuses."""
    from pyspark.sql import DataFrame

    if is_connect(spark):
        from pyspark.sql.connect.sql_formatter import SQLStringFormatter
    else:
        from pyspark.sql.sql_formatter import SQLStringFormatter
    of_spark: Any = SQLStringFormatter(cast("Any", spark))
    frames: dict[str, DataFrame] = {}

    class NamedFrames(Formatter):
        def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
            value, first = Formatter.get_field(self, field_name, args, kwargs)
            if not isinstance(value, DataFrame):
                return of_spark.get_field(field_name, args, kwargs)
            names = (name for name, frame in frames.items() if frame is value)
            name = next(names, f"_lakebed_frame_{len(frames)}")
            frames[name] = value
            return name, first

    return NamedFrames().format(text, **variables), frames
