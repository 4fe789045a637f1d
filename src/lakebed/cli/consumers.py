"""`lakebed consumers`: the named consumers of a table; and `lakebed consume`, which reads as one of them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

import lakebed
from lakebed.cli.command import WriteOptions, open_table, show_result, stopped_by_signals
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_records, show_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.read.scan import Results

app = typer.Typer(help="Named consumers: how far each has read the table.", no_args_is_help=True)
_COLUMNS = ("consumer", "position", "created", "moved", "batches", "lag_commits", "lag_seconds")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The consumer's name.", show_default=False)]


@app.command("list")
def list_consumers(uri: Uri, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """List the consumers: their positions, and by how many commits and seconds each is behind."""
    consumers = open_table(uri, storage_option).consumers.list()
    show_records([consumer.to_dict() for consumer in consumers], _COLUMNS, output)


@app.command("move")
def move(
    uri: Uri,
    name: Name,
    to: Annotated[
        str,
        typer.Argument(metavar="TO", help="The new position: earliest, latest, a checkpoint, an instant or a time."),
    ] = "earliest",
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Move a consumer to another position, forward or back."""
    consumers = open_table(uri, storage_option).consumers
    show_result(consumers.move(name, to, options=pairs(option, "--option")), output)


@app.command("delete")
def delete(uri: Uri, name: Name, storage_option: StorageOptions = None) -> None:
    """Delete a consumer. Files and instants are no longer retained for it."""
    is_deleted = open_table(uri, storage_option).consumers.delete(name)
    typer.echo(f"consumer {name!r} is deleted" if is_deleted else f"there was no consumer {name!r}", err=not is_deleted)


@dataclass(frozen=True)
class Following:
    """The batches that `lakebed consume` reads, and the form of its output; `interval` is in seconds, None for one
    batch."""

    consumer: str
    cdc: bool
    start: str
    columns: list[str] | None
    where: str | None
    max_commits: int | None
    output: Form
    interval: float | None

    def run(self, table: lakebed.Table) -> None:
        """Print batch after batch, or one; the consumer advances when a batch is printed and flushed. SIGINT and
        SIGTERM end it after the batch that is being printed."""
        stop = threading.Event()
        with stopped_by_signals(stop):
            while True:
                end, is_new = self._print_batch(table)
                if is_new or self.interval is None:
                    typer.echo(f"consumer {self.consumer!r} is at {end or 'the beginning'}", err=True)
                if self.interval is None or stop.is_set() or (not is_new and stop.wait(self.interval)):
                    return

    def _print_batch(self, table: lakebed.Table) -> tuple[str, bool]:
        """Print one batch; returns its end, and whether it has a commit."""
        with table.consume(
            self.consumer,
            cdc=self.cdc,
            start=self.start,
            max_commits=self.max_commits,
            columns=self.columns,
            where=self.where,
            images="rows" if self.output in (Form.JSON, Form.NDJSON) else "json",
        ) as batch:
            is_new = batch.end != batch.start
            if is_new or self.interval is None:
                for rows in _tables(batch, self.output):
                    show_rows(rows, self.output)
                sys.stdout.flush()
            return batch.end, is_new


def _tables(batch: Results, output: Form) -> Iterator[pa.Table]:
    """The rows in parts if each row is a line; otherwise all together."""
    if output is not Form.NDJSON:
        yield batch.to_arrow()
        return
    import pyarrow as pa

    for rows in batch.to_batches():
        yield pa.Table.from_batches([rows])
