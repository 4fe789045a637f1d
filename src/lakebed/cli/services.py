"""The table services on the command line: compact, cluster, merge-small-files, clean, archive, expire-partitions,
savepoint, restore, rollback, repair.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts, show_records
from lakebed.cli.rows import WriteOptions
from lakebed.services.restore import RestoreResult, RollbackResult

_COLUMNS = ["instant", "user", "comment", "created", "partitions", "files"]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]


def savepoint(
    uri: Uri,
    instant: Annotated[str | None, typer.Argument(help="The commit to keep; the last one where none is named.")] = None,
    comment: Annotated[str, typer.Option(help="What the savepoint is for.")] = "",
    user: Annotated[str | None, typer.Option(help="Who makes it; whoever runs this where not named.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the table's savepoints, make none.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the savepoint of INSTANT.")] = False,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Keep a commit for `lakebed restore`: cleaning leaves its files, archival its instant."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    if show:
        show_records([one.to_dict() for one in table.savepoints()], _COLUMNS, output)
        return
    if delete:
        if instant is None:
            raise typer.BadParameter("--delete needs the INSTANT of the savepoint", param_hint="INSTANT")
        done = table.delete_savepoint(instant)
        if output.is_for_programs:
            show_facts({"deleted": done.to_dict() if done else {"instant": instant}}, output)
        else:
            typer.echo(f"deleted {done or 'what was left of savepoint ' + instant}")
        return
    made = table.savepoint(instant, comment=comment, user=user)
    if output.is_for_programs:
        show_facts(made.to_dict(), output)
    else:
        typer.echo(str(made))


def restore(
    uri: Uri,
    instant: Annotated[
        str | None, typer.Argument(help="The commit to go back to; without it a restore that was cut off is finished.")
    ] = None,
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Make the table what it was when a commit completed: all that came later is rolled back for good."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    _show(table.restore(instant, dry_run=dry_run, options=pairs(option, "--option")), output)


def rollback(
    uri: Uri,
    instant: Annotated[str, typer.Argument(help="The table's last completed commit.")],
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Take the last completed commit back; `lakebed restore` takes back more."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    _show(table.rollback(instant, dry_run=dry_run, options=pairs(option, "--option")), output)


def _show(done: RestoreResult | RollbackResult, output: Form) -> None:
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
    else:
        typer.echo(str(done))


class Layout(StrEnum):
    """How rows are ordered by several columns."""

    LINEAR = "linear"
    ZORDER = "zorder"
    HILBERT = "hilbert"


def cluster(
    uri: Uri,
    sort: Annotated[
        list[str] | None, typer.Option("--sort", help="A column to order rows by; give it once for each.")
    ] = None,
    layout: Annotated[Layout | None, typer.Option("--layout", help="One column after another, or a curve.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option("--partition", help="A partition path to look at; give it once for each.")
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Only make the plan; `lakebed cluster` or real Hudi runs it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    when_due: Annotated[
        bool, typer.Option("--when-due", help="Make a plan only after so many commits as the table's settings say.")
    ] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Write small files anew as fewer and larger ones, in an order if one is given: pending plans first."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    done = table.cluster(
        sort,
        layout=layout.value if layout else None,
        partitions=partition,
        plan_only=plan_only,
        dry_run=dry_run,
        when_due=when_due,
        options=pairs(option, "--option"),
    )
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
    else:
        typer.echo(str(done))


def merge_small_files(
    uri: Uri,
    least: Annotated[
        int, typer.Option("--least", min=2, help="Only in partition paths with so many small files or more.")
    ] = 2,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Only make the plan; `lakebed cluster` or real Hudi runs it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Put small files together, up to the size that files are to have."""
    table = lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
    done = table.merge_small_files(least, plan_only=plan_only, dry_run=dry_run, options=pairs(option, "--option"))
    if output.is_for_programs:
        show_facts(done.to_dict(), output)
    else:
        typer.echo(str(done))


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
