"""`lakebed catalogs`: where programs of others find a table: entries in catalogs, and lists of other formats."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

import lakebed
from lakebed.cli.command import open_table, table_command
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts, show_rows

if TYPE_CHECKING:
    from lakebed.catalog.base import SyncResult
    from lakebed.publish.publication import PublishResult

app = typer.Typer(
    help="Tables in catalogs (Hive metastore, AWS Glue, Unity Catalog, Polaris) and as Delta Lake and Iceberg.",
    no_args_is_help=True,
)
Catalog = Annotated[
    str,
    typer.Argument(
        help="The catalog, or the entry in it: hive://host:9083 or hive://host:9083/db/table.", show_default=False
    ),
]
EntryName = Annotated[
    str | None, typer.Argument(metavar="[DB.TABLE]", help="The entry, if CATALOG does not name it.", show_default=False)
]


class PublishFormat(StrEnum):
    """The formats of published lists."""

    DELTA = "delta"
    ICEBERG = "iceberg"


@app.command("list")
def list_catalogs(uri: Uri, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """List the entries in catalogs that the table's settings name, and the lists of other formats that it has."""
    show_rows(open_table(uri, storage_option).catalogs.to_arrow(), output)


@app.command()
@table_command("registering")
def register(
    table: lakebed.Table,
    options: dict[str, str],
    catalog: Catalog,
    name: EntryName = None,
    full: Annotated[
        bool, typer.Option("--full", help="Compare every partition, not only those written since the last time.")
    ] = False,
) -> SyncResult:
    """Create or update the entry of a table in a catalog."""
    return table.catalogs.register(catalog, name, full=full, options=options)


@app.command()
@table_command("publishing")
def publish(
    table: lakebed.Table,
    options: dict[str, str],
    form: Annotated[
        PublishFormat,
        typer.Argument(
            metavar="FORMAT", help="The format for whose readers it is: delta or iceberg.", show_default=False
        ),
    ],
    fresh: Annotated[
        bool | None,
        typer.Option(
            "--fresh/--no-fresh",
            help="Show the rows of log files too, or base files alone; without it the list stays as it is.",
        ),
    ] = None,
) -> PublishResult:
    """Let readers of another format read the table: list its base files in that format's metadata, next to the data."""
    return table.catalogs.publish(form.value, fresh=fresh, options=options)


@app.command()
def find(
    catalog: Catalog, name: EntryName = None, output: Output = Form.TABLE, storage_option: StorageOptions = None
) -> None:
    """Print the URI of a table that is in a catalog."""
    table = lakebed.open(catalog=catalog, name=name, storage_options=pairs(storage_option, "--storage-option"))
    if output.is_for_programs:
        show_facts({"uri": table.uri}, output)
    else:
        typer.echo(table.uri)
