"""`lakebed warehouse`: the databases and tables that have names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, pairs, show_facts, show_records, working

if TYPE_CHECKING:
    from lakebed.catalog.warehouses import Names

app = typer.Typer(help="Databases and tables by their names, such as sales.orders.", no_args_is_help=True)


@app.command("list")
def list_names(
    database: Annotated[str | None, typer.Argument(help="Only tables of this database.", show_default=False)] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """List the names of the tables."""
    with working("listing"):
        names = _opened(storage_option, warns=True).list(database)
    show_records([{"name": name} for name in names], ["name"], output)


@app.command()
def databases(output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """List the databases."""
    with working("listing"):
        names = _opened(storage_option, warns=True).databases()
    show_records([{"database": name} for name in names], ["database"], output)


@app.command("create-database")
def create_database(
    name: Annotated[str, typer.Argument(help="The database.", show_default=False)],
    allow_existing: Annotated[bool, typer.Option("--allow-existing", help="No error where there is one.")] = False,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Make a database. A table's database need not be made before the table."""
    _opened(storage_option).create_database(name, allow_existing=allow_existing)
    if output.is_for_programs:
        show_facts({"database": name}, output)
    else:
        typer.echo(f"the database {name} is there")


@app.command()
def rename(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table, as db.table.", show_default=False)],
    to: Annotated[str, typer.Argument(metavar="TO", help="The new name, as db.table.", show_default=False)],
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Give a table another name. Its files move to the folder of the new name."""
    with working("renaming"):
        table = _opened(storage_option).rename(name, to)
    if output.is_for_programs:
        show_facts({"name": to, "location": table.uri}, output)
    else:
        typer.echo(f"{name} is now {to}, at {table.uri}")


def _opened(storage_option: list[str] | None, *, warns: bool = False) -> lakebed.Warehouse:
    """The warehouse of `--warehouse`, or of the environment. `warns`: a folder that does not exist is named, since a
    list would only look empty."""
    from lakebed.catalog.warehouses import names_of

    options = pairs(storage_option, "--storage-option")
    warehouse = lakebed.Warehouse(storage_options=options)
    if warns:
        warn_if_missing(names_of(warehouse.uri, options))
    return warehouse


def warn_if_missing(names: Names) -> None:
    """Write a warning if nothing is at the URI of the warehouse."""
    if names.is_missing:
        typer.echo(f"warning: there is nothing at {names.uri}; a first table or database makes the warehouse", err=True)
