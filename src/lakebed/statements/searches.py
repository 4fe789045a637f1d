"""The table functions of search, `hudi_vector_search` and `hudi_vector_search_batch` with Hudi's arguments, and
`hudi_text_search` by the name in Hudi's proposal for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from lakebed.errors import InvalidOption
from lakebed.filters.text import resolve_column
from lakebed.read.search import DISTANCE, QUERY_INDEX, Search, SearchOptions
from lakebed.read.text_search import TextOptions, TextSearch
from lakebed.table import Table

SEARCH: Final = "hudi_vector_search"
SEARCH_BATCH: Final = "hudi_vector_search_batch"
TEXT_SEARCH: Final = "hudi_text_search"
_HINTS: Final = {
    SEARCH: "hudi_vector_search('table', 'column', array(1.0, 2.0), 10[, 'cosine'[, 'brute_force'[, 'condition'"
    "[, max_distance]]]])",
    SEARCH_BATCH: "hudi_vector_search_batch('table', 'column', 'queries', 'column', 10[, 'cosine'[, 'brute_force'"
    "[, 'condition'[, max_distance]]]])",
    TEXT_SEARCH: "hudi_text_search('table', 'column', 'words', 10[, 'condition'])",
}
_EXACT: Final = "brute_force"
_BY_INDEX: Final = "index"
_QUERY: Final = "_hudi_query_"


def search_rows(table: Table, arguments: Sequence[str]) -> Search:
    """The rows of `hudi_vector_search`; `arguments` are the texts of those after the table, an array as JSON.

    Raises `InvalidOption` for arguments that the function does not have.
    """
    if len(arguments) < 3:
        raise _wrong(SEARCH, f"{len(arguments) + 1} arguments")
    column, query, *others = arguments
    try:
        vector = json.loads(query)
    except ValueError:
        raise _wrong(SEARCH, f"the query {query[:60]!r}") from None
    options = _options(SEARCH, column, others)
    return _checked(Search(table.scan(where=_condition(others)), vector, options), others)


def text_rows(table: Table, arguments: Sequence[str]) -> TextSearch:
    """The rows of `hudi_text_search`; `arguments` are the texts of those after the table: column, query, number of
    rows and condition.

    Raises `InvalidOption` for arguments that the function does not have.
    """
    if len(arguments) < 3:
        raise _wrong(TEXT_SEARCH, f"{len(arguments) + 1} arguments")
    column, query, count, *others = arguments
    if not count.isdecimal() or not int(count):
        raise _wrong(TEXT_SEARCH, f"the number of rows {count!r}")
    condition = others[0] if others and others[0].strip() else None
    return TextSearch(table.scan(where=condition), TextOptions(query, int(count), column))


def batch_rows(table: Table, arguments: Sequence[str], queries: Any) -> pa.Table:
    """The rows of `hudi_vector_search_batch`: for each row of `queries` (a table, or data) the nearest rows, with the
    columns of both, `_hudi_distance` and `_hudi_query_index`. Columns of the queries with a name that is taken have
    `_hudi_query_` in front."""
    if len(arguments) < 4:
        raise _wrong(SEARCH_BATCH, f"{len(arguments) + 1} arguments")
    column, _, query_column, *others = arguments
    rows = queries.scan().to_arrow() if isinstance(queries, Table) else pa.table(queries)
    field = resolve_column(query_column, rows.schema)
    vectors = rows.column(field.name)
    if vectors.null_count:
        rows = rows.filter(vectors.is_valid())
        vectors = rows.column(field.name)
    search = Search(table.scan(where=_condition(others)), vectors.to_pylist(), _options(SEARCH_BATCH, column, others))
    nearest = _checked(search, others).to_arrow()
    matching = rows.drop_columns([field.name]).take(nearest.column(QUERY_INDEX))
    names = [_QUERY + name if name in nearest.column_names else name for name in matching.column_names]
    ends = [DISTANCE, QUERY_INDEX]
    columns = nearest.drop_columns(ends)
    arrays = [*columns.columns, *matching.columns, *(nearest.column(name) for name in ends)]
    fields = [*columns.schema, *(f.with_name(n) for f, n in zip(matching.schema, names, strict=True))]
    return pa.Table.from_arrays(arrays, schema=pa.schema([*fields, *(nearest.schema.field(name) for name in ends)]))


def _options(function: str, column: str, others: Sequence[str]) -> SearchOptions:
    """The options by position: k, metric, algorithm, condition, greatest distance."""
    count, metric, algorithm, _, distance = [*others, *[""] * (5 - len(others))]
    if not count.isdecimal():
        raise _wrong(function, f"the number of rows {count!r}")
    if algorithm.lower() not in ("", _EXACT, _BY_INDEX):
        raise _wrong(function, f"the algorithm {algorithm!r}; there are {_EXACT}, which is exact, and {_BY_INDEX}")
    try:
        limit = float(distance) if distance else None
    except ValueError:
        raise _wrong(function, f"the greatest distance {distance!r}") from None
    metric_name: Any = metric.lower() or "cosine"
    return SearchOptions(int(count), column, metric_name, limit, exact=algorithm.lower() != _BY_INDEX)


def _checked(search: Search, others: Sequence[str]) -> Search:
    """The search. Raises `InvalidOption` where a search by an index is asked for and the table has none for it."""
    if len(others) > 2 and others[2].lower() == _BY_INDEX and not search.has_index:
        raise InvalidOption(
            f"the table has no vector index on {search.column} for the metric {search.metric}",
            hint=f"make one: CREATE INDEX i ON t USING VECTOR ({search.column}) OPTIONS ('vector.metric' ="
            f" '{search.metric}'), or search by '{_EXACT}'",
            context={"column": search.column, "metric": search.metric},
        )
    return search


def _condition(others: Sequence[str]) -> str | None:
    return others[3] if len(others) > 3 and others[3].strip() else None


def _wrong(function: str, why: str) -> InvalidOption:
    return InvalidOption(f"{function} has {why}", hint=f"write {_HINTS[function]}", context={"function": function})
