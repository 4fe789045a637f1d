"""`lakebed sql`: a query over tables, by DuckDB."""

from __future__ import annotations

from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, pairs, print_cut, row_limit, show_rows, working
from lakebed.wording import count_text


def sql(
    text: Annotated[
        str,
        typer.Argument(metavar="QUERY", help="One query; tables are names, or URIs in quotes.", show_default=False),
    ],
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME=URI", help="A name for a table; give it once for each."),
    ] = None,
    arg: Annotated[
        list[str] | None, typer.Option("--arg", metavar="NAME=TEXT", help="The text of :NAME in the query.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="At most this many rows; 0: all. Without it 20, in JSON all.")
    ] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Rows of a SQL query over tables (needs `lakebed[duckdb]`)."""
    most = row_limit(limit, output)
    args = pairs(arg, "--arg") or None
    options = pairs(storage_option, "--storage-option")
    with working("reading"):
        found = lakebed.sql(text, dict(pairs(table, "--table")), args, storage_options=options)
        assert isinstance(found, lakebed.QueryResult), "without a session"
        rows = found.head(most + 1) if most else found.to_arrow()
    show_rows(rows.slice(0, most) if most else rows, output)
    if most and rows.num_rows > most:
        print_cut(f"the first {count_text(most, 'row')}", output)
