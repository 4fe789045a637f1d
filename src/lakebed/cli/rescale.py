"""`lakebed rescale`: another number of buckets."""

from __future__ import annotations

from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts
from lakebed.cli.restore import DryRun
from lakebed.cli.rows import WriteOptions
from lakebed.services.rescaling.run import Rescaled


def rescale(
    uri: Uri,
    buckets: Annotated[int | None, typer.Option(help="Buckets of each partition path.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option("--partition", help="Only this partition path; give it once for each.")
    ] = None,
    rules: Annotated[str | None, typer.Option(help="Counts by partition path: 'regex,count;regex,count'.")] = None,
    split_over: Annotated[int | None, typer.Option(help="Split the buckets of more bytes, and no others.")] = None,
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Give a table's bucket index another number of buckets, in the cheapest way."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    done = table.rescale(
        buckets,
        partitions=partition,
        rules=rules,
        split_over=split_over,
        dry_run=dry_run,
        options=pairs(option, "--option"),
    )
    show_rescaled(done, output)


def show_rescaled(done: Rescaled, output: Form) -> None:
    """What a change of the index did, or would do."""
    if output is Form.JSON:
        show_facts(done.to_dict(), output)
    else:
        typer.echo(str(done))
