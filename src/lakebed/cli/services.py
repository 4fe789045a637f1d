"""The table services on the command line: compact, cluster, merge-small-files, clean, archive, expire-partitions,
savepoint, restore, rollback, repair; and the examination of a table: doctor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

import lakebed
from lakebed.cli.command import (
    DryRun,
    PartitionPaths,
    PlanOnly,
    WriteOptions,
    open_table,
    show_result,
    table_command,
)
from lakebed.cli.hints import as_commands, hint_as_commands
from lakebed.cli.output import Form, Output, StorageOptions, Uri, names, pairs, show_facts, show_records, working
from lakebed.publish.publication import PublishResult
from lakebed.services.archival import ArchivalResult
from lakebed.services.cleaning import CleanResult
from lakebed.services.clustering import ClusteringResult
from lakebed.services.compaction import CompactionResult
from lakebed.services.partition_ttl import PartitionTtlResult
from lakebed.services.restore import RestoreResult, RollbackResult

_COLUMNS = ["instant", "user", "comment", "created", "partitions", "files"]


def savepoint(
    uri: Uri,
    instant: Annotated[str | None, typer.Argument(help="The commit to keep; by default the last one.")] = None,
    comment: Annotated[str, typer.Option(help="What the savepoint is for.")] = "",
    user: Annotated[str | None, typer.Option(help="Who makes it; by default the user who runs the command.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List the table's savepoints, and make none.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the savepoint of INSTANT.")] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Keep a commit for `lakebed restore`: cleaning and archival then leave it alone."""
    table, options = open_table(uri, storage_option), pairs(option, "--option")
    if show:
        show_records([entry.to_dict() for entry in table.savepoints()], _COLUMNS, output)
        return
    if delete:
        if instant is None:
            raise typer.BadParameter("--delete needs the INSTANT of the savepoint", param_hint="INSTANT")
        done = table.delete_savepoint(instant, options=options)
        if output.is_for_programs:
            show_facts({"deleted": done.to_dict() if done else {"instant": instant}}, output)
        else:
            typer.echo(f"deleted {done or 'what was left of savepoint ' + instant}")
        return
    show_result(table.savepoint(instant, comment=comment, user=user, options=options), output)


@table_command("restoring")
def restore(
    table: lakebed.Table,
    options: dict[str, str],
    instant: Annotated[
        str | None, typer.Argument(help="The commit to go back to; without it, an interrupted restore is finished.")
    ] = None,
    dry_run: DryRun = False,
) -> RestoreResult:
    """Go back to the table as it was when a commit completed. All later commits are rolled back for good."""
    return table.restore(instant, dry_run=dry_run, options=options)


@table_command("rolling back")
def rollback(
    table: lakebed.Table,
    options: dict[str, str],
    instant: Annotated[str, typer.Argument(help="The table's last completed commit.")],
    dry_run: DryRun = False,
) -> RollbackResult:
    """Undo the last completed commit. `lakebed restore` undoes several."""
    return table.rollback(instant, dry_run=dry_run, options=options)


class PublishFormat(StrEnum):
    """The formats of published lists."""

    DELTA = "delta"
    ICEBERG = "iceberg"


@table_command("publishing")
def publish(
    table: lakebed.Table,
    options: dict[str, str],
    form: Annotated[PublishFormat, typer.Option("--as", help="The format for whose readers the table is published.")],
) -> PublishResult:
    """Let readers of another format read the table: list its base files in that format's metadata, next to the data."""
    return table.publish(form.value, options=options)


class Layout(StrEnum):
    """How rows are ordered by several columns."""

    LINEAR = "linear"
    ZORDER = "zorder"
    HILBERT = "hilbert"


@table_command("clustering")
def cluster(
    table: lakebed.Table,
    options: dict[str, str],
    sort: Annotated[
        list[str] | None,
        typer.Option("--sort", metavar="A,B", help="The columns to sort rows by, separated by commas."),
    ] = None,
    layout: Annotated[
        Layout | None,
        typer.Option("--layout", help="How to sort by several columns: one after another, or along a curve."),
    ] = None,
    partition: PartitionPaths = None,
    plan_only: PlanOnly = False,
    dry_run: DryRun = False,
    when_due: Annotated[
        bool,
        typer.Option("--when-due", help="Do it only if as many commits were made as the table's settings ask for."),
    ] = False,
) -> ClusteringResult:
    """Rewrite small files as fewer and larger ones, with --sort in an order. Pending plans are run first."""
    return table.cluster(
        names(sort),
        layout=layout.value if layout else None,
        partitions=partition,
        plan_only=plan_only,
        dry_run=dry_run,
        when_due=when_due,
        options=options,
    )


@table_command("merging small files")
def merge_small_files(
    table: lakebed.Table,
    options: dict[str, str],
    least: Annotated[
        int,
        typer.Option("--least", metavar="N", min=2, help="Only in partitions that have at least N small files."),
    ] = 2,
    plan_only: PlanOnly = False,
    dry_run: DryRun = False,
) -> ClusteringResult:
    """Merge small files into larger ones, up to the size that the table's settings ask for."""
    return table.merge_small_files(least, plan_only=plan_only, dry_run=dry_run, options=options)


def _files_to_delete(result: CleanResult) -> Iterator[str]:
    """The files of a plan that was only shown."""
    if result.plan is not None and result.planned is None:
        for partition, names in result.plan.files.items():
            yield from (f"{partition}/{name}" if partition else name for name in names)


@table_command("cleaning", _files_to_delete)
def clean(
    table: lakebed.Table,
    options: dict[str, str],
    plan_only: PlanOnly = False,
    dry_run: DryRun = False,
    when_due: Annotated[
        bool, typer.Option("--when-due", help="Do it only if commits since the last clean left files to delete.")
    ] = False,
) -> CleanResult:
    """Delete files that belong only to versions no longer retained. A pending plan is carried out first."""
    return table.clean(plan_only=plan_only, dry_run=dry_run, when_due=when_due, options=options)


@table_command("archiving")
def archive(table: lakebed.Table, options: dict[str, str], dry_run: DryRun = False) -> ArchivalResult:
    """Move the oldest instants of a long timeline to the archived timeline."""
    return table.archive(dry_run=dry_run, options=options)


@table_command("compacting")
def compact(
    table: lakebed.Table,
    options: dict[str, str],
    plan_only: PlanOnly = False,
    dry_run: DryRun = False,
    when_due: Annotated[
        bool, typer.Option("--when-due", help="Do it only if the table's settings make it due.")
    ] = False,
    logs: Annotated[
        bool, typer.Option("--logs", help="Merge log files with each other only, not into base files.")
    ] = False,
) -> CompactionResult:
    """Merge the log files of a merge-on-read table into base files. Pending plans are run first."""
    run = table.compact_logs if logs else table.compact
    return run(plan_only=plan_only, dry_run=dry_run, when_due=when_due, options=options)


@table_command("expiring partitions", lambda result: [f"{path} since {since}" for path, since in result.paths.items()])
def expire_partitions(
    table: lakebed.Table,
    options: dict[str, str],
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            metavar="N",
            help="Delete partitions without a write for N days; by default as the table's settings say.",
        ),
    ] = None,
    partition: PartitionPaths = None,
    dry_run: DryRun = False,
) -> PartitionTtlResult:
    """Delete partitions that were not written to for a number of days."""
    return table.expire_partitions(days, partitions=partition, dry_run=dry_run, options=options)


def repair(
    uri: Uri,
    part: Annotated[
        list[str] | None,
        typer.Option(
            "--part",
            metavar="A,B",
            help="What to examine and repair, separated by commas: properties, partition_metadata, orphans, metadata,"
            " duplicates. By default all are examined, and all but duplicates are repaired.",
        ),
    ] = None,
    dry_run: DryRun = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Find and repair damage to a table: broken properties, partitions without their metadata file, files that no
    commit names, a metadata table that differs from the files, and with --part duplicates rows with the same key."""
    parts: Any = names(part)
    done = lakebed.repair(
        uri,
        parts,
        dry_run=dry_run,
        options=pairs(option, "--option"),
        storage_options=pairs(storage_option, "--storage-option"),
    )
    show_result(done, output)


def doctor(
    uri: Uri,
    verify: Annotated[bool, typer.Option("--verify", help="Also compare the indexes with all rows.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Write nothing: no test file in the storage, and no test of the lock.")
    ] = False,
    option: WriteOptions = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Examine a table, its storage and this installation, and say what to do about each finding.

    The exit code is 0 if all is well, 1 after warnings and 2 after errors.
    """
    with working("examining"):
        page = lakebed.doctor(
            uri,
            verify=verify,
            read_only=read_only,
            options=pairs(option, "--option"),
            storage_options=pairs(storage_option, "--storage-option"),
        )
    findings = (replace(f, text=as_commands(f.text), remedy=hint_as_commands(f.remedy)) for f in page.findings)
    page = type(page).of(page.uri, findings)
    show_result(page, output)
    if not page.ok:
        raise typer.Exit(int(page.severity))
