"""`lakebed sql`, `lakebed merge`, `lakebed update`: tables by statements."""

from __future__ import annotations

from typing import Annotated

import typer

import lakebed
from lakebed.cli.command import Message, Metadata, open_table, show_result, table_command
from lakebed.cli.output import (
    Delimiter,
    Encoding,
    Form,
    Output,
    Partitioning,
    PartitioningOption,
    Reading,
    StorageOptions,
    Uri,
    data_files,
    pairs,
    print_cut,
    row_limit,
    show_dropped,
    show_facts,
    show_rows,
    working,
)
from lakebed.wording import Lines, Printed, count_text


def sql(
    text: Annotated[
        str,
        typer.Argument(
            metavar="SQL", help="A statement: a query, MERGE, CREATE TABLE, OPTIMIZE, CALL, ...", show_default=False
        ),
    ],
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME=URI", help="A name for a table; give it once for each."),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="NAME=TEXT", help="The text for :NAME in the query; give it once for each."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Print at most N rows; 0 prints all. Default: 20 in a table, all in JSON and CSV."
        ),
    ] = None,
    message: Message = None,
    metadata: Metadata = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Run a SQL statement. Queries need the package `lakebed[duckdb]`."""
    max_rows = row_limit(limit, output)
    args = pairs(arg, "--arg") or None
    options = pairs(storage_option, "--storage-option")
    with working("working"):
        result = lakebed.sql(
            text,
            dict(pairs(table, "--table")),
            args,
            storage_options=options,
            message=message,
            metadata=pairs(metadata, "--metadata"),
        )
        if isinstance(result, lakebed.Table):
            show_facts({"table": result.uri, "name": result.name}, output)
            return
        if isinstance(result, list):
            if output.is_for_programs:
                show_facts({"other_files": result}, output)
            else:
                show_dropped("the table is dropped", result)
            return
        if isinstance(result, Lines):
            show_facts({"plan": str(result)}, output) if output.is_for_programs else typer.echo(result)
            return
        from lakebed.table_views import View

        if isinstance(result, View):  # the indexes or columns that there are now
            show_rows(result.to_arrow(), output)
            return
        if not isinstance(result, lakebed.QueryResult):
            assert isinstance(result, Printed), "without a session"
            show_result(result, output)
            return
        rows = result.head(max_rows + 1) if max_rows else result.to_arrow()
    show_rows(rows.slice(0, max_rows) if max_rows else rows, output)
    if max_rows and rows.num_rows > max_rows:
        print_cut(f"the first {count_text(max_rows, 'row')}", output)


def merge(
    uri: Uri,
    file: Annotated[str, typer.Argument(help="Data files with the source rows.", show_default=False)],
    on: Annotated[
        str | None,
        typer.Option(
            help="The columns that must be equal, such as a,b; or SQL such as 't.id = s.id'. By default the record key."
        ),
    ] = None,
    when: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLAUSE",
            help="A clause over t and s, such as 'MATCHED AND s.fare > 9 THEN UPDATE SET *'; give it once for each."
            " By default matched rows are updated, and others inserted.",
        ),
    ] = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    read: Reading = None,
    partitioning: PartitioningOption = Partitioning.HIVE,
    message: Message = None,
    metadata: Metadata = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Merge rows into the table by the clauses of SQL's MERGE."""
    table = open_table(uri, storage_option)
    condition = on or table.properties["hoodie.table.recordkey.fields"]
    if all(name.strip().replace("_", "").isalnum() for name in condition.split(",")):
        condition = " AND ".join(f"t.`{name.strip()}` = s.`{name.strip()}`" for name in condition.split(","))
    clauses = when or ["MATCHED THEN UPDATE SET *", "NOT MATCHED THEN INSERT *"]
    text = " ".join([f"MERGE INTO t USING s ON {condition}", *(f"WHEN {clause}" for clause in clauses)])
    with working(f"merging {file}"):
        tables = {"t": table, "s": data_files(file, delimiter, encoding, partitioning, read)}
        result = lakebed.sql(text, tables, message=message, metadata=pairs(metadata, "--metadata"))
    assert isinstance(result, lakebed.WriteResult)
    show_result(result, output)


@table_command("updating")
def update(
    table: lakebed.Table,
    options: dict[str, str],
    values: Annotated[
        list[str],
        typer.Option("--set", metavar="COLUMN=SQL", help="A column and its new value; give it once for each."),
    ],
    where: Annotated[str | None, typer.Option(help="A SQL condition; by default all rows are updated.")] = None,
    message: Message = None,
    metadata: Metadata = None,
) -> lakebed.WriteResult:
    """Change columns of the rows that fulfil a condition."""
    return table.update(
        dict(pairs(values, "--set")),
        where=where,
        message=message,
        metadata=pairs(metadata, "--metadata"),
        options=options,
    )
