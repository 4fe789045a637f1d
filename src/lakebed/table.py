"""The one public object: a table. Every method hands over to the room that does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from lakebed.config.arguments import public_methods_check_arguments
from lakebed.operations.bulk_insert import bulk_insert
from lakebed.operations.context import WriteContext
from lakebed.operations.delete import delete
from lakebed.operations.job import session_engine
from lakebed.operations.overwrite import delete_partitions, insert_overwrite
from lakebed.operations.plan import WritePlan
from lakebed.operations.result import WriteResult
from lakebed.operations.retries import asking_for, run_again
from lakebed.operations.upsert import explain_upsert, insert, upsert
from lakebed.services.after_write import run_due_services
from lakebed.table_indexes import IndexesView
from lakebed.table_reads import TableReads
from lakebed.table_services import TableServices


@public_methods_check_arguments
class Table(TableServices, TableReads):
    """A keyed table in Hudi's format. Made by `lakebed.create` and `lakebed.open`.

    Rows go in and come out as Spark DataFrames or as anything with the Arrow stream protocol. Every write verb takes
    `options`, a dict of `hoodie.*` or `lakebed.*` keys, and gives a `WriteResult`.
    """

    @property
    def indexes(self) -> IndexesView:
        """The index of writes and those of the metadata table: list, create, drop, verify, repair; and `adopt` to tell
        the index where real Hudi left no trace."""
        return IndexesView(
            self,
            lambda: session_engine(
                None if self._storage.spec.in_this_process else self._spark, worker_tuning=self._worker_tuning
            ),
            lambda options: self._rewriting_context(options, "use"),
        )

    def upsert(
        self,
        data: Any,
        *,
        partial: bool = False,
        retries: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Insert rows with new keys, and replace rows of known keys by the table's merge mode.

        With `partial` the rows may have some of the columns: key, partition and ordering columns and those to be
        changed. Known keys keep what is stored in the others, new keys have nulls there.

        A write that loses against a concurrent one is planned anew and run again up to `retries` times, with a growing
        pause, then raises `CommitConflict`; every verb takes that, and without it goes by the table's
        `hoodie.write.num.retries.on.conflict.failures` (0). A DataFrame is evaluated by each run.
        """
        return self._write(upsert, data, _partial(partial, options), "upsert", retries)

    def insert(self, data: Any, *, retries: int | None = None, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Add rows without looking for their keys.

        With `options={"hoodie.datasource.write.insert.drop.duplicates": True}` known keys are left out.
        """
        return self._write(insert, data, options, "insert", retries)

    def bulk_insert(
        self, data: Any, *, retries: int | None = None, options: Mapping[str, Any] | None = None
    ) -> WriteResult:
        """Load many rows into new file groups, without looking for keys and without filling small files."""
        return self._write(bulk_insert, data, options, "bulk_insert", retries)

    def delete(
        self, keys_or_predicate: Any, *, retries: int | None = None, options: Mapping[str, Any] | None = None
    ) -> WriteResult:
        """Delete rows by key or by a SQL predicate.

        Keys: a list of values of a single key field, of tuples, `lakebed.KeyText([...])`, or a table with the key
        columns (and partition columns, where known). Keys without their partition are looked for in all partitions.
        """
        return self._write(delete, keys_or_predicate, options, "delete", retries)

    def insert_overwrite(
        self,
        data: Any,
        scope: Literal["partitions", "table"] = "partitions",
        *,
        retries: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Replace all rows of the partitions that the data falls into, or of the whole table."""
        verb = "insert_overwrite_table" if scope == "table" else "insert_overwrite"
        return self._write(lambda context, rows: insert_overwrite(context, rows, scope), data, options, verb, retries)

    def delete_partitions(
        self,
        partitions: str | Sequence[str],
        *,
        retries: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Drop all rows of these partition paths (or of one); `*` in a path stands for any text."""
        paths = [partitions] if isinstance(partitions, str) else partitions
        return self._write(
            lambda context, _: delete_partitions(context, paths), None, options, "delete_partition", retries
        )

    def explain(self, *, upsert: Any, partial: bool = False, options: Mapping[str, Any] | None = None) -> WritePlan:
        """What `upsert(data)` would do: index, file groups, bytes rewritten. Counts the rows, writes nothing."""
        given = _partial(partial, options)
        return self._again(lambda: explain_upsert(self._context(upsert, given, "upsert"), upsert))

    def _write(
        self,
        verb: Callable[[WriteContext, Any], WriteResult],
        data: Any,
        options: Mapping[str, Any] | None,
        name: str,
        retries: int | None = None,
    ) -> WriteResult:
        """A write, run again where it lost and may be, and what the table's settings make due after it."""
        given = asking_for(retries, options)
        context, result = run_again(lambda: self._context(data, given, name), verb, data)
        return run_due_services(context, result, self._spark)


def _partial(partial: bool, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return {**(options or {}), "lakebed.write.partial": True} if partial else options
