"""The transform of an ingest job: a query of DuckDB over the rows of a round, which are the table `input`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.format.duckdb_database import connect
from lakebed.operations.refused_rows import find_refused

INPUT = "input"


def transformed(rows: pa.Table, sql: str) -> pa.Table:
    """The rows of the query. Raises `InvalidOption` for a query that DuckDB cannot parse, and `InvalidRecord` if it
    fails on the values."""
    import duckdb

    connection = connect()
    connection.register(INPUT, rows)
    try:
        relation: Any = connection.sql(sql)
        if relation is None:
            raise InvalidOption("the transform is no query", hint="write SELECT ... FROM input")
        result = relation.to_arrow_table()
        if not any(map(_lacks_type, rows.schema.types)):
            return result
        # DuckDB takes a value without a type for a whole number of 32 bits: what has no value has no type here
        return result.select([at for at, column in enumerate(result.columns) if column.null_count < len(column)])
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.SyntaxException) as error:
        raise InvalidOption(f"the transform is refused: {error}", hint=f"correct the query: {sql}") from error
    except duckdb.Error as error:
        raise InvalidRecord(f"the transform fails: {error}", hint="correct the query, or the value") from error
    finally:
        connection.close()


def _lacks_type(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_lacks_type(field.type) for field in kind)
    return pa.types.is_null(kind) or (pa.types.is_list(kind) and _lacks_type(kind.value_type))


def failing_rows(rows: pa.Table, sql: str) -> list[tuple[int, str]]:
    """The numbers of the rows for which the query fails when run on each alone, with the errors. They are found by
    halving."""
    return find_refused(rows, lambda part: transformed(part, sql))
