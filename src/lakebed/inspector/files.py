"""The pages of files: partition paths, file groups and their slices, how even their sizes are, and what services would
do about them now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import Response

import lakebed
from lakebed.config.option_table import options
from lakebed.inspector.rendering import Pages, echo, is_asked_by_page, page_number, section
from lakebed.inspector.tables import InspectedTable, Problem, UnknownPage, problem_of
from lakebed.table_views import FilesView
from lakebed.wording import count_text, size_text

_PAGE = 50
_SMALL_FILE = "hoodie.parquet.small.file.limit"
# The largest file group over the mean from which the sizes count as uneven, and log bytes over base bytes as much.
_MAX_SIZE_RATIO, _MAX_LOG_RATIO = 4.0, 1.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of all file groups. `groups` has the columns of `t.files.skew()`."""

    groups: pa.Table
    small_limit: int
    names: pa.Table

    @property
    def base_bytes(self) -> pa.ChunkedArray:
        return pc.subtract(self.groups["bytes"], self.groups["log_bytes"])

    @property
    def is_small(self) -> pa.ChunkedArray:
        """Flags of the groups with a base file below the limit of small files."""
        return pc.and_(pc.greater(self.base_bytes, 0), pc.less(self.base_bytes, self.small_limit))

    def by_partition(self) -> pa.Table:
        """A row for each partition path: groups, bytes, log_bytes, small, largest."""
        table = self.groups.append_column("small", self.is_small.cast(pa.int64()))
        sums = [("file_id", "count"), ("bytes", "sum"), ("log_bytes", "sum"), ("small", "sum"), ("bytes", "max")]
        totals = table.group_by("partition", use_threads=False).aggregate(sums)
        named = ["partition", "groups", "bytes", "log_bytes", "small", "largest"]
        return totals.rename_columns(named).sort_by([("bytes", "descending"), ("partition", "ascending")])


def overview(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page with totals, the skew of sizes with advice, and partition paths or the file groups of one."""
    partition = request.query_params.get("partition")
    page = page_number(request)
    with table.opened() as opened:
        values, damage = table.without_metadata(opened, lambda t: _overview(t, partition, page))
    values = {**values, "damage": damage, "partition": partition, "page": page}
    if is_asked_by_page(request) and page:
        return pages.show(table, "part_files.html", values, request)
    return pages.show(table, "files.html", values, request)


def _overview(opened: lakebed.Table, partition: str | None, page: int) -> Mapping[str, Any]:
    files = opened.files
    skew = files.skew()
    limit = opened.properties.get(_SMALL_FILE) or options()[_SMALL_FILE].default
    sizes = Sizes(skew.to_arrow(), int(limit), files.to_arrow())
    if partition is None:
        paths = sizes.by_partition()
        left = max(0, paths.num_rows - (page + 1) * _PAGE)
        listed = {"partitions": paths.slice(page * _PAGE, _PAGE).to_pylist(), "groups": None, "left": left}
    else:
        listed = _groups(files, partition, page)
        if not listed["groups"] and not page and partition not in opened.partitions:
            raise UnknownPage(f"The table has no files in a partition path {echo(partition)}.")
    return {
        "totals": _totals(sizes),
        "advice": _advice(sizes, opened.indexes.index.name),
        "plot": section(skew.plot),
        **listed,
    }


def _totals(sizes: Sizes) -> Mapping[str, Any]:
    size, logs = pc.sum(sizes.groups["bytes"]).as_py() or 0, pc.sum(sizes.groups["log_bytes"]).as_py() or 0
    base = size - logs
    return {
        "partitions": len(pc.unique(sizes.groups["partition"])),
        "groups": sizes.groups.num_rows,
        "base": base,
        "logs": pc.sum(sizes.names["log_files"]).as_py() or 0,
        "log_bytes": logs,
        "ratio": logs / base if base else None,
        "small": pc.sum(sizes.is_small).as_py() or 0,
        "small_limit": sizes.small_limit,
    }


def _advice(sizes: Sizes, index: str) -> list[str]:
    """Sentences about the sizes that are out of proportion, with the calls that change them."""
    totals, lines = _totals(sizes), list[str]()
    if not totals["groups"]:
        return lines
    largest_ratio, over = (
        pc.max(sizes.groups["of_mean"]).as_py(),
        pc.sum(pc.greater(sizes.groups["of_advised"], 1)).as_py(),
    )
    is_bucketed = sizes.groups["bucket"].null_count < sizes.groups.num_rows and "bucket" in index
    if over:
        call = "t.maintenance.rescale(buckets=...)" if is_bucketed else "t.maintenance.cluster()"
        lines.append(f"{count_text(over, 'file group')} of more than the advised 3 GB: {call} splits them.")
    # files of a small table stay small, however even they are
    largest = pc.max(sizes.groups["bytes"]).as_py()
    if largest_ratio >= _MAX_SIZE_RATIO and totals["groups"] > 1 and largest > totals["small_limit"]:
        call = "t.maintenance.rescale(split_over=...)" if is_bucketed else "t.maintenance.merge_small_files()"
        lines.append(f"The largest file group has {largest_ratio:.1f} times the mean size: {call} evens them out.")
    is_large = totals["base"] + totals["log_bytes"] > totals["small_limit"]
    if totals["ratio"] is not None and totals["ratio"] > _MAX_LOG_RATIO and is_large:
        lines.append(
            f"Log files have {totals['ratio']:.1f} times the bytes of base files: t.maintenance.compact() merges them."
        )
    if totals["small"] > 1 and not is_bucketed and totals["base"] > totals["small_limit"]:
        limit = size_text(totals["small_limit"])
        lines.append(f"{count_text(totals['small'], 'base file')} below {limit}: new rows go to them first.")
    return lines


def _groups(files: FilesView, partition: str, page: int) -> Mapping[str, Any]:
    slices = sorted(
        (file_slice for file_slice in files if file_slice.partition == partition),
        key=lambda file_slice: (-file_slice.size, file_slice.file_id),
    )
    selected = slices[page * _PAGE : (page + 1) * _PAGE]
    rows = section(lambda: files.base_rows(selected))
    counts = rows.content if rows.content is not None else [None] * len(selected)
    listed = [{"slice": file_slice, "rows": count} for file_slice, count in zip(selected, counts, strict=True)]
    left = max(0, len(slices) - (page + 1) * _PAGE)
    return {"partitions": None, "groups": listed, "left": left, "footers": rows.problem}


def group(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page of one file group: every stored file slice, with its files."""
    partition, file_id = request.query_params.get("partition", ""), request.query_params.get("file_id", "")

    def versions(opened: lakebed.Table) -> list[dict[str, Any]]:
        files = opened.files
        slices = list(files.versions(partition, file_id))[::-1]
        entries: list[dict[str, Any]] = []
        for file_slice in slices:
            rows = section(lambda file_slice=file_slice: files.base_rows([file_slice])[0])
            entries.append({"slice": file_slice, "rows": rows.content, "problem": rows.problem})
        return entries

    with table.opened() as opened:
        version_entries, damage = table.without_metadata(opened, versions)
        is_archived = not version_entries and partition not in opened.partitions
    if is_archived:
        raise UnknownPage(f"The table has no file group {echo(file_id)} in a partition path {echo(partition)}.")
    values = {"partition": partition, "file_id": file_id, "versions": version_entries, "damage": damage}
    return pages.show(table, "group.html", values, request)


def plans(pages: Pages, table: InspectedTable, request: Request) -> Response:
    """The page with a dry run of each service, and whether the table's settings request it now; nothing is written."""
    with table.opened() as opened:
        services: tuple[tuple[str, str, Callable[..., object], bool], ...] = (
            ("Compaction", "merges log files into base files", opened.maintenance.compact, True),
            ("Clustering", "rewrites files, sorted or joined", opened.maintenance.cluster, True),
            ("Small files", "joins files below the limit", opened.maintenance.merge_small_files, False),
            ("Cleaning", "deletes files that no retained commit needs", opened.maintenance.clean, True),
            ("Archival", "moves old instants off the timeline", opened.maintenance.archive, False),
        )
        listed = [(name, purpose, *_preview(call, has_trigger=trigger)) for name, purpose, call, trigger in services]
    return pages.show(table, "part_plans.html", {"listed": listed}, request)


def _preview(call: Callable[..., Any], *, has_trigger: bool) -> tuple[str, str, Problem | None]:
    """The result of a service's dry run as a text, the reason why its settings do or do not request it now, and the
    problem if the dry run failed, otherwise None."""
    try:
        result = call(dry_run=True)
        due = call(dry_run=True, when_due=True) if has_trigger and result.plan is not None else None
    except (lakebed.UnsupportedFeature, lakebed.InvalidOption) as refusal:
        return f"not for this table: {refusal.message}", "", None
    except Exception as error:
        return "", "", problem_of(error)
    if due is None:
        return str(result), "", None
    return str(result), "Its trigger is reached." if due.plan is not None else str(due), None
