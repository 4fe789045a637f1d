"""`lakebed maintenance`: compact, cluster, merge-small-files, clean, archive, expire-partitions, rescale, repair,
doctor, upgrade, downgrade. `lakebed.cli.daemon` has `run`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lakebed
from lakebed.cli.command import (
    DryRun,
    PartitionPaths,
    PlanOnly,
    WriteOptions,
    show_result,
    table_command,
)
from lakebed.cli.hints import as_commands, hint_as_commands
from lakebed.cli.indexes import PartitionBuckets
from lakebed.cli.output import Form, Output, StorageOptions, Uri, names, pairs, working

if TYPE_CHECKING:
    from lakebed.services.archival import ArchivalResult
    from lakebed.services.change_index import Rescaled
    from lakebed.services.cleaning import CleanResult
    from lakebed.services.clustering import ClusteringResult
    from lakebed.services.compaction import CompactionResult
    from lakebed.services.partition_ttl import PartitionTtlResult
    from lakebed.services.upgrade import VersionChange

app = typer.Typer(
    help="What keeps a table in shape: compaction, clustering, cleaning, repair, versions.", no_args_is_help=True
)


class Layout(StrEnum):
    """The ways to order rows by several columns."""

    LINEAR = "linear"
    ZORDER = "zorder"
    HILBERT = "hilbert"


@app.command()
@table_command("clustering")
def cluster(
    table: lakebed.Table,
    options: dict[str, str],
    sort_columns: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="The columns to sort rows by, separated by commas."),
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
    """Rewrite small files as fewer and larger ones, with --sort-columns in an order. Pending plans are run first."""
    return table.maintenance.cluster(
        names(sort_columns),
        layout=layout.value if layout else None,
        partitions=partition,
        plan_only=plan_only,
        dry_run=dry_run,
        when_due=when_due,
        options=options,
    )


@app.command()
@table_command("merging small files")
def merge_small_files(
    table: lakebed.Table,
    options: dict[str, str],
    min_files: Annotated[
        int,
        typer.Option("--min-files", metavar="N", min=2, help="Only in partitions that have at least N small files."),
    ] = 2,
    plan_only: PlanOnly = False,
    dry_run: DryRun = False,
) -> ClusteringResult:
    """Merge small files into larger ones, up to the size that the table's settings ask for."""
    return table.maintenance.merge_small_files(min_files, plan_only=plan_only, dry_run=dry_run, options=options)


def _files_to_delete(result: CleanResult) -> Iterator[str]:
    """The files of a plan that was only shown."""
    if result.plan is not None and result.planned is None:
        for partition, names in result.plan.files.items():
            yield from (f"{partition}/{name}" if partition else name for name in names)


@app.command()
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
    return table.maintenance.clean(plan_only=plan_only, dry_run=dry_run, when_due=when_due, options=options)


@app.command()
@table_command("archiving")
def archive(table: lakebed.Table, options: dict[str, str], dry_run: DryRun = False) -> ArchivalResult:
    """Move the oldest instants of a long timeline to the archived timeline."""
    return table.maintenance.archive(dry_run=dry_run, options=options)


@app.command()
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
    return table.maintenance.compact(
        logs=logs, plan_only=plan_only, dry_run=dry_run, when_due=when_due, options=options
    )


@app.command()
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
    return table.maintenance.expire_partitions(days, partitions=partition, dry_run=dry_run, options=options)


@app.command()
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
    done = lakebed.maintenance.repair(
        uri,
        parts,
        dry_run=dry_run,
        options=pairs(option, "--option"),
        storage_options=pairs(storage_option, "--storage-option"),
    )
    show_result(done, output)


@app.command()
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
    """Examine a table, its storage and this installation, and show each finding with its remedy.

    The exit code is 0 if all is well, 1 after warnings and 2 after errors.
    """
    with working("examining"):
        page = lakebed.maintenance.doctor(
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


@app.command()
@table_command("rescaling")
def rescale(
    table: lakebed.Table,
    options: dict[str, str],
    buckets: Annotated[int | None, typer.Option(help="The new number of buckets of each partition.")] = None,
    partition: PartitionPaths = None,
    partition_buckets: PartitionBuckets = None,
    split_over: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Split only the buckets that are larger than this.")
    ] = None,
    dry_run: DryRun = False,
) -> Rescaled:
    """Change the number of buckets of a table's bucket index, in the cheapest way."""
    if buckets is None and partition_buckets is None and split_over is None:
        raise typer.BadParameter("give --buckets, --partition-buckets or --split-over", param_hint="--buckets")
    return table.maintenance.rescale(
        buckets,
        partitions=partition,
        partition_buckets=partition_buckets,
        split_over=split_over,
        dry_run=dry_run,
        options=options,
    )


@app.command()
@table_command("upgrading")
def upgrade(
    table: lakebed.Table,
    options: dict[str, str],
    to: Annotated[int, typer.Option(help="The version to bring it to: 8 or 9.")] = 9,
    dry_run: DryRun = False,
) -> VersionChange:
    """Bring a table to a later version of Hudi's table format; its rows stay."""
    return table.maintenance.upgrade(to=to, dry_run=dry_run, options=options)


@app.command()
@table_command("downgrading")
def downgrade(
    table: lakebed.Table,
    options: dict[str, str],
    to: Annotated[int, typer.Option(help="The version to bring it to: 8 or 6.")],
    dry_run: DryRun = False,
) -> VersionChange:
    """Bring a table to an earlier version of Hudi's table format, for older releases of Hudi; its rows stay."""
    return table.maintenance.downgrade(to=to, dry_run=dry_run, options=options)
