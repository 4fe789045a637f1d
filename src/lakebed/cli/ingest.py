"""`lakebed ingest`: the jobs of a TOML file, a line for each round."""

from __future__ import annotations

import json
import threading
from typing import Annotated

import typer

import lakebed
from lakebed.cli.command import stopped_by_signals
from lakebed.cli.hints import as_commands
from lakebed.cli.output import Form, Output

_STYLES = {"committed": "green", "failed": "red", "nothing": "dim", "waiting": "dim", "stopped": "bold"}


def ingest(
    job: Annotated[str, typer.Argument(help="The TOML file that describes the job or jobs.", show_default=False)],
    once: Annotated[bool, typer.Option("--once", help="End when the sources have nothing more.")] = False,
    name: Annotated[
        list[str] | None,
        typer.Option("--job", metavar="NAME", help="Only this job of the file; give it once for each."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Start at this position of the source. A text is followed once: given again, it changes nothing.",
        ),
    ] = None,
    ignore_checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Start again at the beginning of the source. A text is followed once: another text starts again.",
        ),
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """Write the rows of sources into tables as they arrive: files, other tables, Kafka topics, SQL databases.

    Rows and the source's position are committed together, so after a crash nothing is lost and nothing is written
    twice. SIGTERM and SIGINT end it after the running round; a second one interrupts the round. With --output json
    each round is a line.
    """
    from rich.console import Console
    from rich.text import Text

    from lakebed.ingestion.job import jobs_of

    jobs = jobs_of(job)
    if name:
        labels = [ingest_job.label for ingest_job in jobs]
        missing = [label for label in name if label not in labels]
        if missing:
            raise typer.BadParameter(f"{job} has no job {missing[0]!r}: {', '.join(labels)}", param_hint="--job")
        jobs = [ingest_job for ingest_job in jobs if ingest_job.label in name]
    console = Console(markup=False, highlight=False, emoji=False)
    stop = threading.Event()

    def show(event: lakebed.IngestEvent) -> None:
        if output.is_for_programs:
            typer.echo(json.dumps(event.to_dict(), ensure_ascii=False, default=str))
        elif console.is_terminal:
            console.print(Text(as_commands(str(event)), style=_STYLES.get(event.kind, "")), soft_wrap=True)
        else:
            typer.echo(f"{event.at} {as_commands(str(event))}")

    with stopped_by_signals(stop):
        result = lakebed.ingest(
            jobs, once=once, checkpoint=checkpoint, ignore_checkpoint=ignore_checkpoint, stop=stop, on_event=show
        )
    if not output.is_for_programs:
        typer.echo(str(result))
