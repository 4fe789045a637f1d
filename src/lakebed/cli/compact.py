"""`lakebed compact`: merge log files, now or as a job beside writers."""

from __future__ import annotations

from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts
from lakebed.cli.rows import WriteOptions


def compact(
    uri: Uri,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Only make the plan; `lakebed compact` or real Hudi runs it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    when_due: Annotated[
        bool, typer.Option("--when-due", help="Make a plan only where the table's trigger says so.")
    ] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Merge log blocks with each other only.")] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Merge the log files of a merge-on-read table into base files: pending plans first, then all that is left."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    run = table.compact_logs if logs else table.compact
    done = run(plan_only=plan_only, dry_run=dry_run, when_due=when_due, options=pairs(option, "--option"))
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
    else:
        typer.echo(str(done))
