"""`lakebed cluster`: fewer and larger files, or rows in an order that filters gain from; `lakebed merge-small-files`:
the small ones alone."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_facts
from lakebed.cli.rows import WriteOptions


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
