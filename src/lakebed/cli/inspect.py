"""`lakebed inspect`: a read-only web page about tables, for this machine's browser."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import StorageOptions, pairs
from lakebed.errors import CorruptFile, InvalidOption, UnsupportedFeature


def inspect(
    uri: Annotated[
        list[str], typer.Argument(metavar="URI", help="The tables: paths, URIs or names.", show_default=False)
    ],
    port: Annotated[int, typer.Option(metavar="NUMBER", min=0, max=65535, help="The port; 0: any free port.")] = 7000,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    storage_option: StorageOptions = None,
) -> None:
    """Show tables as web pages: timeline, files, indexes, the life of a record, the plan of a query.

    The pages are read-only and served to this machine alone (127.0.0.1). Needs `lakebed[inspect]`. Ctrl+C ends it.
    """
    try:
        from lakebed.inspector.server import InspectorServer
    except ImportError as error:
        hint = "pip install 'lakebed[inspect]'"
        raise UnsupportedFeature(f"the inspector needs the package {error.name}", hint=hint) from error
    options = pairs(storage_option, "--storage-option")
    for table_uri in uri:
        with suppress(CorruptFile):  # the pages say what is wrong with it
            lakebed.open(table_uri, storage_options=options)
    try:
        server = InspectorServer(uri, port=port, storage_options=options)
    except OSError as error:
        hint = "Name another with --port, or take a free one with --port 0."
        raise InvalidOption(f"port {port} cannot be used: {error.strerror}", hint=hint) from error
    typer.echo(f"inspector: {server.url} (Ctrl+C ends it)")
    if open_browser:
        import webbrowser

        webbrowser.open(server.url)
    server.run()
