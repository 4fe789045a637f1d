"""`lakebed maintenance run`: one process that keeps many tables in shape; a line for each event, and on a terminal,
while nothing is due, the state of each table.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

import lakebed
from lakebed.cli.command import DryRun, WriteOptions, stopped_by_signals
from lakebed.cli.hints import as_commands
from lakebed.cli.output import Form, Output, StorageOptions, pairs, working
from lakebed.errors import LakebedError
from lakebed.wording import count_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from lakebed.services.daemon import ServiceEvent

_STYLES = {"ran": "green", "failed": "red", "held": "yellow", "due": "dim", "nothing": "dim", "stopped": "bold"}
_STATES = {"due": "at work", "ran": "in shape", "nothing": "in shape", "failed": "failed", "held": "left to others"}


@dataclass
class _Line:
    state: str = "in shape"
    style: str = ""
    service: str = ""
    at: str = ""
    ran: int = 0


class ServicesView:
    """Displays events as they arrive; as a context manager it restores the terminal."""

    # rich is imported when something is shown, not for the help of all commands

    def __init__(self, tables: Iterable[str] = (), console: Console | None = None) -> None:
        from rich.console import Console

        self._console = console or Console(markup=False, highlight=False, emoji=False)
        self._lines = {uri: _Line() for uri in tables}
        self._live: Live | None = None

    def show(self, event: ServiceEvent) -> None:
        """Print the line of one event, or the table of all tables while it waits."""
        from rich.live import Live
        from rich.text import Text

        self._end_live()
        if event.table:
            self._note(event)
        if event.kind == "waiting" and self._console.is_terminal:
            self._live = Live(self._table(event), console=self._console, transient=True, auto_refresh=False)
            self._live.start(refresh=True)
        elif self._console.is_terminal:
            self._console.print(
                Text(f"{_clock(event)}  {as_commands(str(event))}", style=_STYLES.get(event.kind, "")), soft_wrap=True
            )
        else:
            self._console.file.write(f"{event.at} {as_commands(str(event))}\n")
            self._console.file.flush()

    def _note(self, event: ServiceEvent) -> None:
        line = self._lines.setdefault(event.table, _Line())
        line.state, line.style = _STATES.get(event.kind, line.state), _STYLES.get(event.kind, "")
        if event.kind in ("ran", "failed"):
            line.service, line.at = event.service, _clock(event)
            line.ran += event.kind == "ran"

    def _table(self, event: ServiceEvent) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", caption=str(event), caption_justify="left")
        for column in ("table", "state", "last service", "at", "ran"):
            table.add_column(column, overflow="fold")
        for uri, line in self._lines.items():
            state = Text(line.state, style=line.style)
            table.add_row(Text(uri), state, line.service, line.at, f"{line.ran:,}")
        return table

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> ServicesView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end_live()


def _with_progress(events: Iterator[ServiceEvent]) -> Iterator[ServiceEvent]:
    """The events; a terminal shows the activity before each, except the wait for the next turn."""
    last: ServiceEvent | None = None
    while True:
        activity = (
            f"{last.service} of {last.table}" if last is not None and last.kind == "due" else "looking at the tables"
        )
        is_waiting = last is not None and last.kind == "waiting"
        with nullcontext() if is_waiting else working(activity):
            last = next(events, None)
        if last is None:
            return
        yield last


def _clock(event: ServiceEvent) -> str:
    return datetime.fromisoformat(event.at).astimezone().strftime("%H:%M:%S")


def run(
    uris: Annotated[
        list[str], typer.Argument(metavar="URI", help="The tables: paths, URIs or names.", show_default=False)
    ],
    once: Annotated[bool, typer.Option("--once", help="Run what is due now, then end.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="SECONDS", min=0.0, help="How long to wait before it looks at the tables again."
        ),
    ] = 60.0,
    dry_run: DryRun = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", metavar="PORT", min=0, max=65535, help="Serve metrics to Prometheus; 0: any port."
        ),
    ] = None,
    metrics_address: Annotated[
        str,
        typer.Option(
            "--metrics-address",
            metavar="ADDRESS",
            help="The address to serve metrics at; by default only this machine reaches it.",
        ),
    ] = "127.0.0.1",
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Run the services that are due on each table, again and again. Several such processes can share the tables.

    SIGTERM and SIGINT end it after the running service; a second one interrupts that service, and another process can
    finish it. With --output json each event is a line. With --once or --dry-run the exit code is that of the first
    error.
    """
    from lakebed.telemetry import serve_prometheus

    stop = threading.Event()
    first: Exception | None = None
    counts: Counter[str] = Counter()
    busy: set[str] = set()
    served = nullcontext(None) if metrics_port is None else serve_prometheus(metrics_port, metrics_address)
    with served as port, stopped_by_signals(stop), ServicesView(uris) as view:
        if port is not None:
            typer.echo(f"metrics are at http://{metrics_address}:{port}/metrics", err=True)
        events = lakebed.maintenance.run(
            uris,
            once=once,
            interval=interval,
            dry_run=dry_run,
            options=pairs(option, "--option"),
            storage_options=pairs(storage_option, "--storage-option"),
            stop=stop,
        )
        for event in _with_progress(events):
            first = first or event.error
            counts[event.kind] += 1
            busy.add(event.table)
            if output.is_for_programs:
                typer.echo(json.dumps(event.to_dict(), ensure_ascii=False, default=str))
            else:
                view.show(event)
    if (once or dry_run) and not output.is_for_programs:
        parts = [f"{count_text(counts[kind], 'service')} {kind}" for kind in ("due" if dry_run else "ran", "failed")]
        left = f", {count_text(counts['held'], 'table')} left to others" if counts["held"] else ""
        idle = len(set(uris) - busy)
        typer.echo(f"{count_text(len(set(uris)), 'table')}: {', '.join(parts)}{left}; nothing was due on {idle}")
    if first is not None and (once or dry_run):
        raise typer.Exit(first.exit_code if isinstance(first, LakebedError) else 1)
