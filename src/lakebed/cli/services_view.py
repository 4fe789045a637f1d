"""How `lakebed services run` looks to people: a line for each event, and on a terminal, while nothing is due, where
each table stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lakebed.services.running.event import ServiceEvent

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
    """Shows events as they come; as a context manager it leaves the terminal as it was."""

    def __init__(self, tables: Iterable[str] = (), console: Console | None = None) -> None:
        self._console = console or Console(markup=False, highlight=False, emoji=False)
        self._lines = {uri: _Line() for uri in tables}
        self._live: Live | None = None

    def show(self, event: ServiceEvent) -> None:
        """One event: its line, or the table of all tables while it waits."""
        self._end_live()
        if event.table:
            self._note(event)
        if event.kind == "waiting" and self._console.is_terminal:
            self._live = Live(self._table(event), console=self._console, transient=True, auto_refresh=False)
            self._live.start(refresh=True)
        elif self._console.is_terminal:
            self._console.print(Text(f"{_clock(event)}  {event}", style=_STYLES.get(event.kind, "")), soft_wrap=True)
        else:
            self._console.file.write(f"{event.at} {event}\n")
            self._console.file.flush()

    def _note(self, event: ServiceEvent) -> None:
        line = self._lines.setdefault(event.table, _Line())
        line.state, line.style = _STATES.get(event.kind, line.state), _STYLES.get(event.kind, "")
        if event.kind in ("ran", "failed"):
            line.service, line.at = event.service, _clock(event)
            line.ran += event.kind == "ran"

    def _table(self, event: ServiceEvent) -> Table:
        shown = Table(box=None, pad_edge=False, header_style="bold", caption=str(event), caption_justify="left")
        for column in ("table", "state", "last service", "at", "ran"):
            shown.add_column(column, overflow="fold")
        for uri, line in self._lines.items():
            state = Text(line.state, style=line.style)
            shown.add_row(Text(uri), state, line.service, line.at, f"{line.ran:,}")
        return shown

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


def _clock(event: ServiceEvent) -> str:
    return datetime.fromisoformat(event.at).astimezone().strftime("%H:%M:%S")
