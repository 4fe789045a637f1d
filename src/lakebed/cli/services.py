"""`lakebed services run`: one process that keeps many tables in shape."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, pairs
from lakebed.cli.rows import WriteOptions
from lakebed.cli.services_view import ServicesView
from lakebed.errors import LakebedError

app = typer.Typer(help="Table services: cleaning, archival, compaction, clustering, ...", no_args_is_help=True)


@app.callback()
def services() -> None:
    """Table services as a process of their own."""


@app.command("run")
def run(
    uris: Annotated[list[str], typer.Argument(metavar="URI...", help="The tables.", show_default=False)],
    once: Annotated[bool, typer.Option("--once", help="Run what is due now, and end.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.0, help="Seconds between two looks.")] = 60.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is due.")] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Run what is due on each table, one after another, until told to stop; other such processes share the tables.

    SIGTERM and SIGINT let the service that runs end; a second one cuts it off, and its plan is left to others. With
    --output json each event is a line. With --once and --dry-run the exit code is that of the first error.
    """
    stop = threading.Event()
    first: Exception | None = None
    with _stopped_by_signals(stop), ServicesView(uris) as view:
        for event in lakebed.run_services(
            uris,
            once=once,
            interval=interval,
            dry_run=dry_run,
            options=pairs(option, "--option"),
            storage_options=pairs(storage_option, "--storage-option"),
            stop=stop,
        ):
            first = first or event.error
            if output.is_for_programs:
                typer.echo(json.dumps(event.to_dict(), ensure_ascii=False, default=str))
            else:
                view.show(event)
    if first is not None and (once or dry_run):
        raise typer.Exit(first.exit_code if isinstance(first, LakebedError) else 1)


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Generator[None]:
    """In the block the first SIGTERM or SIGINT sets `stop`, the next one interrupts."""

    def asked(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield
        return
    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
