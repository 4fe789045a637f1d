"""`lakebed clean` and `lakebed archive`: delete what nobody sees any more, and keep the timeline short."""

from __future__ import annotations

from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts
from lakebed.cli.rows import WriteOptions


def clean(
    uri: Uri,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Only make the plan; `lakebed clean` or real Hudi carries it out.")
    ] = False,
    when_due: Annotated[
        bool, typer.Option("--when-due", help="Make a plan only where commits since the last clean left something.")
    ] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Delete files that no commit can see any more which is kept: a pending plan first, then all that is left."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    options = pairs(option, "--option")
    done = table.clean(plan_only=plan_only, dry_run=dry_run, when_due=when_due, options=options)
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
        return
    typer.echo(str(done))
    if dry_run and done.plan is not None:
        for partition, names in done.plan.files.items():
            for name in names:
                typer.echo(f"  {partition}/{name}" if partition else f"  {name}")


def archive(
    uri: Uri,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be archived.")] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Move the oldest instants of a long timeline to the archived one."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    done = table.archive(dry_run=dry_run, options=pairs(option, "--option"))
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
    else:
        typer.echo(str(done))
