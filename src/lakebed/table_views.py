"""Small views that a table hands out: its timeline, its files; each prints and turns into Arrow."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.index.registry import index_of
from lakebed.model import Action, FileSlice, Instant
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.timeline import Timeline

if TYPE_CHECKING:
    from lakebed.bucket_view import BucketSkewView

# Services whose pending plans are shown, with the file slices that they merge.
_PLANNED = {Action.COMPACTION: "compact", Action.LOGCOMPACTION: "log_compact"}


_SHOWN = 50


class View:
    """Rows that print as a table."""

    def to_arrow(self) -> pa.Table:
        raise NotImplementedError

    newest_last = False
    """Whether the last rows are those to show where there are too many."""

    def __repr__(self) -> str:
        table = self.to_arrow()
        shown = self._shown(table)
        rows = [table.column_names, *([str(v) for v in r.values()] for r in shown.to_pylist())]
        widths = [max(len(str(r[i])) for r in rows) for i in range(len(table.column_names))]
        lines = ["  ".join(str(c).ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return "\n".join([*lines, *self._cut(table)])

    def _repr_html_(self) -> str:
        table = self.to_arrow()
        cut = "".join(f"<p>{html.escape(line)}</p>" for line in self._cut(table))
        return arrow_html(self._shown(table)) + cut

    def _shown(self, table: pa.Table) -> pa.Table:
        return table.slice(max(0, table.num_rows - _SHOWN) if self.newest_last else 0, _SHOWN)

    def _cut(self, table: pa.Table) -> list[str]:
        if table.num_rows <= _SHOWN:
            return []
        which = "the newest " if self.newest_last else ""
        return [f"{which}{_SHOWN} of {table.num_rows}; to_arrow() has all"]


class TimelineView(View):
    """The active timeline: each action once, in its highest state, by requested time."""

    newest_last = True

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def __iter__(self) -> Iterator[Instant]:
        return iter(self._timeline.instants)

    def __len__(self) -> int:
        return len(self._timeline.instants)

    @property
    def last(self) -> Instant | None:
        """The newest completed commit."""
        return self._timeline.last_completed

    def to_arrow(self) -> pa.Table:
        """Columns: time, action, state, completion_time, operation, files, rows."""
        rows: list[dict[str, Any]] = []
        commits = {i.time: i for i in self._timeline.commits}
        for instant in self._timeline.instants:
            row: dict[str, Any] = {
                "time": instant.time,
                "action": instant.action.value,
                "state": instant.state.name.lower(),
                "completion_time": instant.completion_time,
            }
            planned = _PLANNED.get(instant.action)
            if planned is not None and not instant.is_completed:
                operations = self._timeline.plan(instant).get("operations") or ()
                row |= {"operation": planned, "files": len(operations)}
            if instant.time in commits and instant.is_completed and commits[instant.time] is instant:
                meta = self._timeline.commit_metadata(instant)
                stats = [s for group in meta.stats.values() for s in group]
                row |= {
                    "operation": meta.operation.lower(),
                    "files": len(stats),
                    "inserted": sum(s.num_inserts for s in stats),
                    "updated": sum(s.num_updates for s in stats),
                    "deleted": sum(s.num_deletes for s in stats),
                }
            rows.append(row)
        schema = pa.schema(
            [(n, pa.string()) for n in ("time", "action", "state", "completion_time", "operation")]
            + [(n, pa.int64()) for n in ("files", "inserted", "updated", "deleted")]
        )
        return pa.Table.from_pylist(rows, schema)


class FilesView(View):
    """The latest file slice of every file group."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __iter__(self) -> Iterator[FileSlice]:
        return iter(self._snapshot.file_slices())

    def __len__(self) -> int:
        return len(self._snapshot.file_slices())

    def skew(self) -> BucketSkewView:
        """How large the buckets (or other file groups) are: a table, and in a notebook a picture. A bucket is advised
        to have 3 GB at most."""
        from lakebed.bucket_view import BucketSkewView

        return BucketSkewView(self._snapshot.file_slices())

    def to_arrow(self) -> pa.Table:
        """Columns: partition, file_id, instant, base_file, bytes, log_files."""
        slices = self._snapshot.file_slices()
        return pa.table(
            {
                "partition": pa.array([s.partition for s in slices], pa.string()),
                "file_id": pa.array([s.file_id for s in slices], pa.string()),
                "instant": pa.array([s.instant for s in slices], pa.string()),
                "base_file": pa.array([s.base_file.path if s.base_file else None for s in slices], pa.string()),
                "bytes": pa.array([s.base_file.size if s.base_file else None for s in slices], pa.int64()),
                "log_files": pa.array([len(s.log_files) for s in slices], pa.int64()),
            }
        )


def table_html(snapshot: Snapshot) -> str:
    """A table's notebook view: what it is, and its columns."""
    config = snapshot.config
    facts = {
        "location": snapshot.storage.spec.uri,
        "version": config.version,
        "type": config.table_type,
        "key": ", ".join(config.key_fields) or "generated",
        "partitions": ", ".join(config.partition_fields) or "none",
        "ordering": ", ".join(config.ordering_fields) or "commit time",
        "index": index_of(snapshot, for_write=False).name,
        "newest instant": snapshot.instant or "none",
    }
    rows = "".join(f"<tr><th>{k}</th><td>{html.escape(str(v))}</td></tr>" for k, v in facts.items())
    columns = "".join(
        f"<tr><td>{html.escape(f.name)}</td><td>{html.escape(str(f.type))}</td></tr>" for f in snapshot.schema
    )
    return (
        f"<b>{html.escape(config.name)}</b><table>{rows}</table>"
        f"<table><thead><tr><th>column</th><th>type</th></tr></thead>{columns}</table>"
    )


def arrow_html(table: pa.Table) -> str:
    head = "".join(f"<th>{html.escape(n)}</th>" for n in table.column_names)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape('' if v is None else str(v))}</td>" for v in row.values()) + "</tr>"
        for row in table.to_pylist()
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
