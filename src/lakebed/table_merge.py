"""`Table.merge`: a merge as it is put together, clause by clause, and carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from lakebed.config.arguments import public_methods_check_arguments
from lakebed.errors import MissingAttribute
from lakebed.opened_table import OpenedTable
from lakebed.operations.context import WriteContext
from lakebed.operations.merge import MergeResult, explain_merge, merge
from lakebed.operations.merge_statement import Action, ClauseText, MergeStatement, When
from lakebed.operations.once import Once
from lakebed.wording import Lines

Values = Mapping[str, Any] | Literal["all"]
Run = Callable[[Callable[[WriteContext, Any], Any], Any, Mapping[str, Any] | None, int | None, Once | None], Any]
Plan = Callable[[Callable[[WriteContext], Any], Any, Mapping[str, Any] | None], Any]


@public_methods_check_arguments
class Merge:
    """A merge of source rows into a table. `Table.merge` returns one; each method returns another with one more clause.

    Clauses run in order: the first whose condition is true acts on a row, and a condition that is null is not true.
    Conditions and values are Spark SQL over the target `t` and the source `s`; a value may be a constant, too. A name
    without alias is that of the one side that has it. `"all"` sets all columns that the source has.

    >>> import lakebed
    >>> rides = lakebed.create("memory://docs/rides_merged", {"id": [1], "fare": [1.0], "open": [True]}, key="id")
    >>> _ = rides.upsert({"id": [1, 2, 3], "fare": [9.0, 8.0, 7.0], "open": [True, True, False]})
    >>> changes = {"id": [1, 2, 4], "fare": [9.5, None, 5.0]}
    >>> done = (rides.merge(changes)
    ...     .when_matched_delete(condition="s.fare IS NULL")
    ...     .when_matched_update({"fare": "s.fare + 1"})
    ...     .when_not_matched_insert({"id": "s.id", "fare": "s.fare", "open": True})
    ...     .execute())
    >>> done.updated, done.deleted, done.inserted
    (1, 1, 1)
    >>> rides.scan(["id", "fare"]).to_arrow().sort_by("id").to_pylist()
    [{'id': 1, 'fare': 10.5}, {'id': 3, 'fare': 7.0}, {'id': 4, 'fare': 5.0}]
    """

    def __init__(self, source: Any, statement: MergeStatement, run: Run, plan: Plan) -> None:
        self._source = source
        self._statement = statement
        self._run = run
        self._plan = plan

    def when_matched_update(
        self, set: Values = "all", *, condition: str | None = None, except_columns: Sequence[str] = ()
    ) -> Merge:
        """Update the stored row of a pair: the columns in `set`, or all columns of the source.

        Raises `InvalidOption` if an earlier clause for matched rows has no condition.
        """
        return self._with("matched", "update", condition, set, except_columns)

    def when_matched_delete(self, *, condition: str | None = None) -> Merge:
        """Delete the stored row of a pair."""
        return self._with("matched", "delete", condition)

    def when_not_matched_insert(
        self, values: Values = "all", *, condition: str | None = None, except_columns: Sequence[str] = ()
    ) -> Merge:
        """Insert a row for a source row that matches no stored row. Columns without a value are null."""
        return self._with("not_matched", "insert", condition, values, except_columns)

    def when_not_matched_by_source_update(self, set: Mapping[str, Any], *, condition: str | None = None) -> Merge:
        """Update a stored row that no source row matches."""
        return self._with("not_matched_by_source", "update", condition, set)

    def when_not_matched_by_source_delete(self, *, condition: str | None = None) -> Merge:
        """Delete a stored row that no source row matches."""
        return self._with("not_matched_by_source", "delete", condition)

    def with_schema_evolution(self) -> Merge:
        """Add columns of the source that the table lacks to the table."""
        return Merge(self._source, replace(self._statement, evolves=True), self._run, self._plan)

    def explain(self, *, options: Mapping[str, Any] | None = None) -> Lines:
        """The plan of the merge: by key or by a join and the reason, the columns and the files. Nothing is written."""
        return self._plan(lambda context: explain_merge(context, self._source, self._statement), self._source, options)

    def execute(
        self,
        *,
        retries: int | None = None,
        once: Once | None = None,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> MergeResult:
        """Carry out the merge in one commit, and return its result.

        Raises `AmbiguousMerge` if several source rows would change one stored row or insert one key,
        `InvalidRecord` for a null key to insert and for a key to insert that is stored, `UnsupportedFeature` for an
        update of a key field. Nothing is written then.
        """
        noted = OpenedTable.noted(options, message, metadata, "merge")
        return self._run(
            lambda context, source: merge(context, source, self._statement), self._source, noted, retries, once
        )

    def _with(
        self, when: When, action: Action, condition: str | None, values: Values = "all", left: Sequence[str] = ()
    ) -> Merge:
        names = (left,) if isinstance(left, str) else tuple(left)
        clause = ClauseText(when, action, condition, values, names)
        return Merge(self._source, self._statement.with_clause(clause), self._run, self._plan)

    if not TYPE_CHECKING:  # for type checkers an attribute is one of those above

        def __getattr__(self, name: str) -> Any:
            raise MissingAttribute("a merge", name, dir(type(self)))

    def __repr__(self) -> str:
        clauses = "".join(f"\n  {clause}" for clause in self._statement.clauses)
        return f"merge on {self._statement.on or 'the record key'}, not carried out{clauses}"
