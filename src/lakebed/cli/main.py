"""`lakebed`: the program. Errors become a message, a hint and an exit code of their class."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from copy import copy
from traceback import print_exc
from typing import Annotated

import typer
from typer.main import get_command_name

import lakebed
from lakebed.cli import (
    catalogs,
    checks,
    columns,
    consumers,
    daemon,
    indexes,
    ingest,
    inspect,
    maintenance,
    options,
    rows,
    savepoints,
    serve,
    sql,
    tables,
    versions,
    warehouse,
)
from lakebed.cli.examples import add_examples
from lakebed.cli.hints import Warnings, hint_as_commands, message_as_commands, name_program
from lakebed.errors import LakebedError

_TRACEBACK = "--traceback"
app = typer.Typer(
    name="lakebed",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"lakebed {lakebed.__version__}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where in the code an error arose.")] = False,
) -> None:
    """Upserts, deletes and incremental reads on data-lake tables in Apache Hudi's format.

    Exit codes: 0 success, 1 an unexpected error, 2 wrong usage, from 3 on one for each class of error (docs/errors.md),
    20 a key that the table does not have.
    """


_COMMANDS = (
    *(tables.create, tables.load, tables.convert, tables.clone, tables.describe, tables.list_tables, tables.drop),
    *(rows.scan, rows.search, rows.count, rows.get, rows.locate, rows.changes, rows.cdc, rows.consume),
    *(rows.upsert, rows.insert, rows.bulk_insert, rows.insert_overwrite, rows.delete, rows.delete_partitions),
    *(rows.erase, rows.explain, sql.sql, sql.merge, sql.update, ingest.ingest),
    *(versions.versions, versions.history, versions.diff, versions.undo),
    *(tables.configure, savepoints.restore, savepoints.rollback, inspect.inspect, serve.serve),
)
for command in _COMMANDS:
    app.command()(command)
maintenance.app.command()(daemon.run)
app.add_typer(maintenance.app, name="maintenance")
app.add_typer(savepoints.app, name="savepoints")
app.add_typer(catalogs.app, name="catalogs")
app.add_typer(indexes.app, name="indexes")
app.add_typer(columns.app, name="columns")
app.add_typer(checks.app, name="checks")
app.add_typer(consumers.app, name="consumers")
app.add_typer(tables.timeline_app, name="timeline")
app.add_typer(tables.files_app, name="files")
app.add_typer(options.app, name="options")
app.add_typer(warehouse.app, name="warehouse")
add_examples(app)
name_program(app)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the console script; the process ends with the exit code."""
    sys.exit(invoke(sys.argv[1:] if arguments is None else arguments))


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    warnings = Warnings(logging.WARNING)
    logging.getLogger("lakebed").addHandler(warnings)
    try:
        _program_for(arguments)(args=list(arguments), prog_name="lakebed")
    except LakebedError as error:
        _print_error(error, as_json=_wants_json(arguments))
        if _TRACEBACK in arguments:
            print_exc()
        return error.exit_code
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0
    except Exception as error:
        typer.echo(f"error: {type(error).__name__}: {error}", err=True)
        if _TRACEBACK in arguments:
            print_exc()
        else:
            typer.echo(f"hint:  this should not have happened; lakebed {_TRACEBACK} ... shows where it did", err=True)
        return 1
    finally:
        logging.getLogger("lakebed").removeHandler(warnings)
    return 0


def _program_for(arguments: Sequence[str]) -> typer.Typer:
    """The program, with no other command than the one that the arguments begin with: typer would make all of them."""
    name = arguments[0] if arguments else ""
    commands = [c for c in app.registered_commands if c.callback and get_command_name(c.callback.__name__) == name]
    if not commands:
        return app
    program = copy(app)
    program.registered_commands, program.registered_groups = commands, []
    return program


def _wants_json(arguments: Sequence[str]) -> bool:
    return any(
        argument in ("--output=json", "-ojson", "--output=ndjson", "-ondjson")
        or (argument in ("--output", "-o") and following in ("json", "ndjson"))
        for argument, following in zip(arguments, [*arguments[1:], ""], strict=True)
    )


def _print_error(error: LakebedError, *, as_json: bool) -> None:
    if as_json:
        record = json.loads(error.to_json()) | {"retryable": error.retryable, "exit_code": error.exit_code}
        record["message"] = message_as_commands(error.message)
        record["hint"] = hint_as_commands(error.hint)
        typer.echo(json.dumps({"error": record}), err=True)
        return
    typer.echo(f"error: {message_as_commands(error.message)}", err=True)
    if error.hint:
        typer.echo(f"hint:  {hint_as_commands(error.hint)}", err=True)
