"""`lakebed columns`: the columns of a table, and changes of them that write no file again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import lakebed
from lakebed.cli.command import open_table, table_command
from lakebed.cli.output import Form, Output, StorageOptions, Uri, show_rows

if TYPE_CHECKING:
    from lakebed.services.columns import ColumnsChanged
    from lakebed.table_columns import ColumnFacts


class _ListsByDefault(TyperGroup):
    """A group of commands whose first argument, if it is not a command, is the table to list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="The columns of a table: `lakebed columns URI` lists them.", no_args_is_help=True, cls=_ListsByDefault
)
Name = Annotated[str, typer.Argument(help="A column, or a field of a nested one, e.g. address.city.")]
After = Annotated[str | None, typer.Option(help="Put it after this column.")]
First = Annotated[bool, typer.Option("--first", help="Put it before all others.")]


@app.command("list")
def list_all(uri: Uri, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """List the columns with their types and comments."""
    show_rows(open_table(uri, storage_option).columns.to_arrow(), output)


@app.command()
@table_command("adding {name}")
def add(
    table: lakebed.Table,
    options: dict[str, str],
    name: Name,
    type: Annotated[str, typer.Argument(help="The type, by its SQL name: int, bigint, decimal(10,2), string, ...")],
    after: After = None,
    first: First = False,
    comment: Annotated[str | None, typer.Option(help="A comment on the column.")] = None,
    default: Annotated[str | None, typer.Option(help="The value where the rows of a write lack the column.")] = None,
) -> ColumnsChanged:
    """Add a column. Stored rows have null in it."""
    return table.columns.add(name, type, after, comment, first=first, default=default, options=options)


@app.command("set-default")
@table_command("setting the default of {name}")
def set_default(
    table: lakebed.Table,
    options: dict[str, str],
    name: Name,
    value: Annotated[str, typer.Argument(help="A constant of SQL: 0, \"'unknown'\", current_timestamp().")],
) -> ColumnFacts:
    """Set the value of a column where the rows of a write lack it."""
    return table.columns.set_default(name, value, options=options)


@app.command("drop-default")
@table_command("dropping the default of {name}")
def drop_default(table: lakebed.Table, options: dict[str, str], name: Name) -> ColumnFacts:
    """Remove the default of a column."""
    return table.columns.drop_default(name, options=options)


@app.command()
@table_command("dropping {name}")
def drop(table: lakebed.Table, options: dict[str, str], name: Name) -> ColumnsChanged:
    """Drop a column."""
    return table.columns.drop(name, options=options)


@app.command()
@table_command("renaming {name}")
def rename(
    table: lakebed.Table, options: dict[str, str], name: Name, new: Annotated[str, typer.Argument(help="The new name.")]
) -> ColumnsChanged:
    """Rename a column."""
    return table.columns.rename(name, new, options=options)


@app.command()
@table_command("widening {name}")
def widen(
    table: lakebed.Table,
    options: dict[str, str],
    name: Name,
    type: Annotated[str, typer.Argument(help="The wider type, by its SQL name.")],
) -> ColumnsChanged:
    """Give a column a wider type, which keeps every value."""
    return table.columns.widen(name, type, options=options)


@app.command()
@table_command("commenting on {name}")
def comment(
    table: lakebed.Table,
    options: dict[str, str],
    name: Name,
    text: Annotated[str, typer.Argument(help="The comment; an empty text removes it.")],
) -> ColumnsChanged:
    """Set a column's comment."""
    return table.columns.comment(name, text, options=options)


@app.command()
@table_command("moving {name}")
def move(
    table: lakebed.Table, options: dict[str, str], name: Name, after: After = None, first: First = False
) -> ColumnsChanged:
    """Move a column after another one, or to the front."""
    return table.columns.move(name, after, first=first, options=options)
