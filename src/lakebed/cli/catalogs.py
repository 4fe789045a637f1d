"""`lakebed catalog`: tables under names in catalogs."""

from __future__ import annotations

from typing import Annotated

import typer

import lakebed
from lakebed.catalog.base import SyncResult
from lakebed.cli.command import table_command
from lakebed.cli.output import Form, Output, StorageOptions, pairs, show_facts

app = typer.Typer(
    help="Tables under names in catalogs: Hive metastore, AWS Glue, Unity Catalog, Polaris.", no_args_is_help=True
)
CatalogOption = Annotated[
    str, typer.Option(help="The catalog, or the entry in it: hive://host:9083 or hive://host:9083/db/table.")
]
TableName = Annotated[
    str | None, typer.Option("--table", metavar="DB.TABLE", help="The entry, if --catalog does not name it.")
]


@app.command()
@table_command("registering")
def sync(
    table: lakebed.Table,
    options: dict[str, str],
    catalog: CatalogOption,
    name: TableName = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compare every partition, not only those written since the last sync.")
    ] = False,
) -> SyncResult:
    """Create or update the entry of a table in a catalog."""
    return table.register(catalog, name, full=full, options=options)


@app.command()
def find(
    catalog: CatalogOption, name: TableName = None, output: Output = Form.TABLE, storage_option: StorageOptions = None
) -> None:
    """Print the URI of a table that is in a catalog."""
    table = lakebed.open(catalog=catalog, name=name, storage_options=pairs(storage_option, "--storage-option"))
    if output.is_for_programs:
        show_facts({"uri": table.uri}, output)
    else:
        typer.echo(table.uri)
