"""`lakebed timeline` and `lakebed files`: what happened to a table, and what it consists of."""

from __future__ import annotations

from typing import Annotated

import pyarrow.compute as pc
import typer

import lakebed
from lakebed.cli.output import Form, Output, StorageOptions, Uri, pairs, show_rows, shown_rows, tell_cut
from lakebed.wording import count_text

timeline_app = typer.Typer(help="The table's instants.", no_args_is_help=True)
files_app = typer.Typer(help="The table's file slices.", no_args_is_help=True)


@timeline_app.command("show")
def show_timeline(
    uri: Uri,
    limit: Annotated[int | None, typer.Option(help="The newest this many; 0: all. Without it 20, in JSON all.")] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """Instants of the active timeline, oldest first."""
    instants = _open(uri, storage_option).timeline.to_arrow()
    most = shown_rows(limit, output)
    show_rows(instants.slice(max(0, len(instants) - most)) if most else instants, output)
    if 0 < most < len(instants):
        tell_cut(f"the newest {most} of {count_text(len(instants), 'instant')}", output)


@files_app.command("show")
def show_files(
    uri: Uri,
    partition: Annotated[str | None, typer.Option(help="Only this partition path.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most this many; 0: all. Without it 20, in JSON all.")] = None,
    output: Output = Form.TABLE,
    storage_option: StorageOptions = None,
) -> None:
    """The latest file slices: file group, base file, size, log files."""
    files = _open(uri, storage_option).files.to_arrow()
    if partition is not None:
        files = files.filter(pc.equal(files.column("partition"), partition))
    most = shown_rows(limit, output)
    show_rows(files.slice(0, most) if most else files, output)
    if 0 < most < len(files):
        tell_cut(f"{most} of {count_text(len(files), 'file slice')}", output)


@files_app.command("skew")
def show_skew(uri: Uri, output: Output = Form.TABLE, storage_option: StorageOptions = None) -> None:
    """How large the buckets are, the largest first; 3 GB at most are advised."""
    show_rows(_open(uri, storage_option).files.skew().to_arrow(), output)


def _open(uri: str, storage_option: list[str] | None) -> lakebed.Table:
    return lakebed.open(uri, storage_options=pairs(storage_option, "--storage-option"))
