"""`lakebed expire-partitions`: delete partitions that are over their time."""

from __future__ import annotations

from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts
from lakebed.cli.rows import WriteOptions


def expire_partitions(
    uri: Uri,
    days: Annotated[int | None, typer.Option("--days", help="For how many days a partition stays.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option("--partition", help="A partition path that may go; give it once for each.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Delete partitions that nobody has written to for so many days, by the table's settings or --days."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    options = pairs(option, "--option")
    done = table.expire_partitions(days, partitions=partition, dry_run=dry_run, options=options)
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
        return
    typer.echo(str(done))
    for path, since in done.paths.items():
        typer.echo(f"  {path} since {since}")
