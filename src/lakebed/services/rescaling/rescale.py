"""Rescaling: another number of buckets, for all partition paths or some, or single buckets that are split."""

from __future__ import annotations

from dataclasses import replace

from lakebed.errors import InvalidOption
from lakebed.index.base import Resizing
from lakebed.operations.context import WriteContext
from lakebed.operations.overwrite import match_partitions
from lakebed.services.rescaling.run import Rescaled, admit_change, change_index, plan_change


def rescale(context: WriteContext, wanted: Resizing, *, dry_run: bool = False) -> Rescaled:
    """Give the table's index other buckets; see `Table.rescale`. With `dry_run` only say what that takes."""
    snapshot = context.opened
    _check(context, wanted)
    if wanted.partitions is not None:
        chosen = match_partitions(wanted.partitions, snapshot.partitions())
        wanted = replace(wanted, partitions=tuple(chosen))
    new = context.index.resized(wanted, snapshot)
    admit_change(context, new, "rescale")
    plan = plan_change(context, snapshot, new)
    if dry_run or new.settings() == snapshot.index_settings:
        return Rescaled(plan)
    return change_index(context, new, "rescale", plan=plan)


def _check(context: WriteContext, wanted: Resizing) -> None:
    given = [name for name in ("buckets", "rules", "split_over") if getattr(wanted, name) is not None]
    if not given or (wanted.split_over is not None and len(given) > 1) or (wanted.rules and wanted.partitions):
        raise InvalidOption(
            "rescale takes buckets= (for all partition paths, or some partitions=), rules= (with buckets= for what no"
            " rule is found in), or split_over=",
            context={"given": given},
        )
    by_path = wanted.rules is not None or (wanted.partitions is not None and wanted.split_over is None)
    if by_path and not context.config.partition_fields:
        raise InvalidOption(
            f"table {context.config.name!r} has no partition paths that could have bucket counts of their own",
            hint="Give buckets= alone.",
            context={"table": context.config.name},
        )
