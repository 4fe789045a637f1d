"""`lakebed serve`: the tables of the warehouse for every engine that reads Iceberg, by a catalog of its protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import StorageOptions, pairs
from lakebed.cli.warehouse import warn_if_missing
from lakebed.errors import InvalidOption, UnsupportedFeature

_TOKEN = "LAKEBED_SERVE_TOKEN"


def serve(
    port: Annotated[int, typer.Option(metavar="NUMBER", min=0, max=65535, help="The port; 0: any free port.")] = 8181,
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on; another than this machine needs a token.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"A file with the bearer token that each request needs; {_TOKEN} in the environment is one, too.",
        ),
    ] = None,
    vend: Annotated[
        bool, typer.Option("--vend", help="Give clients the storage options, with their keys, to read the files.")
    ] = False,
    only_published: Annotated[
        bool, typer.Option("--only-published", help="Publish nothing: show the lists that the tables have.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no line for each request.")] = False,
    storage_option: StorageOptions = None,
) -> None:
    """Serve the tables of the warehouse as a read-only Iceberg REST catalog, to DuckDB, Trino, polars, pyiceberg, ...

    A table whose list for Iceberg is missing or older than its last commit is published when a client asks for it.
    Needs `lakebed[inspect]`. Ctrl+C ends it.
    """
    try:
        from lakebed.catalog.warehouses import names_of
        from lakebed.catalog_server.server import CatalogServer
        from lakebed.catalog_server.tables import ServedTables
    except ImportError as error:
        hint = "pip install 'lakebed[inspect]'"
        raise UnsupportedFeature(f"the catalog's server needs the package {error.name}", hint=hint) from error
    options = pairs(storage_option, "--storage-option")
    warehouse = lakebed.Warehouse(storage_options=options)
    names = names_of(warehouse.uri, options)
    tables = ServedTables(names, options, publishes=not only_published, vends=vend)

    def log(line: str) -> None:
        if not quiet:
            typer.echo(line, err=True)

    try:
        server = CatalogServer(tables, port=port, address=address, token=_token(token_file), log=log)
    except OSError as error:
        hint = "Name another with --port, or take a free one with --port 0."
        raise InvalidOption(f"{address}:{port} cannot be used: {error.strerror}", hint=hint) from error
    warn_if_missing(names)
    typer.echo(f"catalog of {warehouse.uri}: {server.url} (Ctrl+C ends it)")
    server.run()


def _token(file: Path | None) -> str:
    """The token in a file, else in the environment; empty if there is none."""
    if file is None:
        return os.environ.get(_TOKEN, "").strip()
    try:
        token = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"the token file {file} cannot be read: {error}", hint="check the path") from error
    if not token:
        raise InvalidOption(f"the token file {file} is empty", hint="write a token into it")
    return token
