"""`lakebed repair`: find what is wrong with a table, and mend it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts
from lakebed.cli.rows import WriteOptions


def repair(
    uri: Uri,
    part: Annotated[
        list[str] | None,
        typer.Option(
            "--part",
            help="properties, partition_metadata, orphans, metadata or duplicates; give it once for each. Without it"
            " all are looked at and all but duplicates mended.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is wrong.")] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Find what is wrong with a table and mend it: broken properties, folders that are no partitions, files that no
    commit names, a metadata table that differs, and (if named) all but the newest copy of a key."""
    parts: Any = part
    done = lakebed.repair(
        uri,
        parts,
        dry_run=dry_run,
        options=pairs(option, "--option"),
        storage_options=pairs(storage_option, "--storage-option"),
    )
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
    else:
        typer.echo(str(done))
