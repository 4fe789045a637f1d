"""`lakebed advise`: which index fits, for a table and a batch or for rows that are to become a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import lakebed
from lakebed.cli.files import read_rows
from lakebed.cli.output import Form, Output, StorageOptions, pairs, show_rows


def advise(
    target: Annotated[str, typer.Argument(help="A table, or with --key a file of rows.", show_default=False)],
    batch: Annotated[Path | None, typer.Option(help="A file with rows as they are written at a time.")] = None,
    batch_rows: Annotated[int, typer.Option(help="Instead of a file: how many rows that are.")] = 0,
    key: Annotated[list[str] | None, typer.Option(help="The key column(s) of the rows in a file.")] = None,
    partition_by: Annotated[list[str] | None, typer.Option(help="Their partition column(s).")] = None,
    expected_rows: Annotated[int, typer.Option(help="How many rows the table will have, if the file is a part.")] = 0,
    deletes: Annotated[bool, typer.Option("--deletes", help="Batches are keys that are deleted.")] = False,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Rank the indexes by what a batch costs: finding its keys, writing, reading. Nothing is written."""
    written = read_rows(batch) if batch is not None else batch_rows or None
    if key:
        advice = lakebed.advise(
            read_rows(Path(target)),
            key=key,
            partition_by=partition_by,
            batch=written,
            expected_rows=expected_rows or None,
            deletes=deletes,
        )
    else:
        options = pairs(storage_option, "--storage-option")
        advice = lakebed.open(target, storage_options=options).indexes.advise(written, deletes=deletes)
    if output is Form.JSON:
        show_rows(advice.to_arrow(), output)
    else:
        typer.echo(str(advice))
