"""Small views that a table hands out: its timeline, its files; each prints and turns into Arrow."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakebed.format.file_names import bucket_of_file_id
from lakebed.index.bucket_counts import ADVISED_BYTES
from lakebed.index.registry import index_of
from lakebed.model import Action, FileSlice, Instant
from lakebed.read.reopening import read_again
from lakebed.read.scan import Scan
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.wording import count_text, rows_html, size_text

# Services whose pending plans are shown, with the file slices that they merge.
_PLANNED = {Action.COMPACTION: "compact", Action.LOGCOMPACTION: "log_compact"}

_SKEW = pa.schema(
    [
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("file_id", pa.string()),
        ("bytes", pa.int64()),
        ("log_bytes", pa.int64()),
        ("of_mean", pa.float64()),
        ("of_advised", pa.float64()),
    ]
)
# The picture's bars, in its own units.
_MOST_BARS, _WIDTH, _HEIGHT, _ROOM = 400, 720, 160, 24


_TOTALS = pa.schema(
    [(name, pa.string()) for name in ("commit_time", "state_transition_time", "action")]
    + [
        (f"total_{name}", pa.int64())
        for name in (
            "bytes_written",
            "files_added",
            "files_updated",
            "partitions_written",
            "records_written",
            "update_records_written",
            "errors",
        )
    ]
)
_PREVIEWED = 50
# A view that shows the number of rows opens no more files for it.
_MOST_COUNTED = 64


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
        return table.slice(max(0, table.num_rows - _PREVIEWED) if self.newest_last else 0, _PREVIEWED)

    def _cut(self, table: pa.Table) -> list[str]:
        if table.num_rows <= _PREVIEWED:
            return []
        which, left = "newest" if self.newest_last else "first", table.num_rows - _PREVIEWED
        return [f"the {which} {_PREVIEWED} of {table.num_rows:,}, {left:,} more; to_arrow() has all"]


class TimelineView(View):
    """The active timeline: each action once, in its latest state, by requested time. Iterable; prints as a table.

    >>> [(instant.action.value, instant.state.name) for instant in t.timeline], len(t.timeline)
    ([('deltacommit', 'COMPLETED')], 1)
    """

    newest_last = True

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def __iter__(self) -> Iterator[Instant]:
        return iter(self._timeline.instants)

    def __len__(self) -> int:
        return len(self._timeline.instants)

    @property
    def last(self) -> Instant | None:
        """The newest completed commit; None without one.

        >>> t.timeline.last.action.value
        'deltacommit'
        """
        return self._timeline.last_completed

    def to_arrow(self) -> pa.Table:
        """Columns: time, action, state, completion_time, operation, files, inserted, updated, deleted.

        >>> t.timeline.to_arrow().select(["action", "operation", "inserted"]).to_pylist()
        [{'action': 'deltacommit', 'operation': 'upsert', 'inserted': 3}]
        """
        return read_again(self._timeline.storage, self._table, self._renew)

    def commit_totals(self) -> pa.Table:
        """A row for each completed commit, newest first, with the columns of Hudi's procedure `show_commits`.

        They are commit_time, state_transition_time, action, total_bytes_written, total_files_added,
        total_files_updated, total_partitions_written, total_records_written, total_update_records_written and
        total_errors (which is 0).

        >>> t.timeline.commit_totals().select(["action", "total_records_written"]).to_pylist()
        [{'action': 'deltacommit', 'total_records_written': 3}]
        """
        return read_again(self._timeline.storage, self._totals, self._renew)

    def _totals(self) -> pa.Table:
        rows: list[tuple[Any, ...]] = []
        for instant in reversed(self._timeline.commits):
            groups = self._timeline.commit_metadata(instant).stats
            stats = [stat for group in groups.values() for stat in group]
            new = sum(stat.prev_commit in ("", "null") for stat in stats)
            rows.append(
                (
                    *(instant.time, instant.completion_time, instant.action.value),
                    *(sum(stat.file_size for stat in stats), new, len(stats) - new, len(groups)),
                    *(sum(stat.num_writes for stat in stats), sum(stat.num_updates for stat in stats), 0),
                )
            )
        columns = zip(*rows, strict=True) if rows else [()] * len(_TOTALS)
        return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, _TOTALS, strict=True)], schema=_TOTALS)

    def _renew(self) -> bool:
        known, self._timeline = self._timeline, load_timeline(self._timeline.storage, self._timeline.config)
        return known.files != self._timeline.files

    def _table(self) -> pa.Table:
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


class BucketSkewView(View):
    """The size of each bucket (in a table without buckets: of each file group), the largest first.

    Prints as a table, and in a notebook also as a picture.

    >>> sorted(t.files.skew().to_arrow()["bucket"].to_pylist())
    [0, 1]
    """

    def __init__(self, slices: Sequence[FileSlice]) -> None:
        self._slices = slices

    def to_arrow(self) -> pa.Table:
        """Columns: partition, bucket, file_id, bytes, log_bytes, of_mean, of_advised.

        `bucket` is null for a file group of no bucket, `bytes` include `log_bytes`, `of_mean` is the size divided by
        the mean of all, `of_advised` divided by the 3 GB that a bucket is advised to have at most.

        >>> t.files.skew().to_arrow()["log_bytes"].to_pylist()
        [0, 0]
        """
        mean = sum(one.size for one in self._slices) / max(1, len(self._slices))
        found = sorted(self._slices, key=lambda one: (-one.size, one.partition, one.file_id))
        columns = [
            [one.partition for one in found],
            [bucket_of_file_id(one.file_id) for one in found],
            [one.file_id for one in found],
            [one.size for one in found],
            [one.size - (one.base_file.size if one.base_file else 0) for one in found],
            [round(one.size / mean, 3) if mean else 0.0 for one in found],
            [round(one.size / ADVISED_BYTES, 6) for one in found],
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SKEW, strict=True)]
        return pa.Table.from_arrays(arrays, schema=_SKEW)

    def plot(self) -> str:
        """The sizes as an SVG picture: a bar for each bucket in the order of partition path and number, a line for the
        mean.

        Bars of more than the advised size are red.

        >>> t.files.skew().plot()[:4]
        '<svg'
        """
        found = sorted(self._slices, key=lambda one: (one.partition, one.file_id))[:_MOST_BARS]
        sizes = [one.size for one in found]
        most, width = max(sizes, default=1) or 1, _WIDTH / max(1, len(found))
        bars = "".join(
            f'<rect x="{at * width:.1f}" y="{_HEIGHT - size / most * _HEIGHT:.1f}" width="{max(0.5, width * 0.85):.1f}"'
            f' height="{size / most * _HEIGHT:.1f}" fill="{"#c0392b" if size > ADVISED_BYTES else "#4878a8"}">'
            f"<title>{html.escape(one.label)}: {size_text(size)}</title></rect>"
            for at, (one, size) in enumerate(zip(found, sizes, strict=True))
        )
        mean = sum(sizes) / max(1, len(sizes))
        y = _HEIGHT - mean / most * _HEIGHT
        cut = f", the first {_MOST_BARS} of {len(self._slices)}" if len(self._slices) > _MOST_BARS else ""
        text = f"{count_text(len(self._slices), 'file group')}, mean {size_text(mean)}, largest {size_text(most)}{cut}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT + _ROOM}" width="{_WIDTH}"'
            f' role="img" aria-label="{text}">{bars}<line x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#888"'
            f' stroke-dasharray="4"/><text x="0" y="{_HEIGHT + _ROOM - 8}" font-size="12">{text}</text></svg>'
        )

    def _repr_html_(self) -> str:
        return self.plot() + super()._repr_html_()


class FilesView(View):
    """The latest file slice of every file group. Iterable; prints as a table.

    >>> len(t.files), [file_slice.log_files for file_slice in t.files]
    (2, [(), ()])
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __iter__(self) -> Iterator[FileSlice]:
        return iter(self._snapshot.file_slices())

    def __len__(self) -> int:
        return len(self._snapshot.file_slices())

    def skew(self) -> BucketSkewView:
        """The size of each bucket, or of each file group: a table, and in a notebook a picture.

        A bucket is advised to have 3 GB at most.

        >>> t.files.skew().to_arrow()["partition"].to_pylist()
        ['Rome', 'Oslo']
        """
        return BucketSkewView(self._snapshot.file_slices())

    def to_arrow(self) -> pa.Table:
        """Columns: partition, file_id, instant, base_file (its path), bytes (of the base file), log_files (their
        number).

        >>> t.files.to_arrow().select(["partition", "log_files"]).to_pylist()
        [{'partition': 'Oslo', 'log_files': 0}, {'partition': 'Rome', 'log_files': 0}]
        """
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
    """A table's notebook view: what it is, how large it is, and its columns."""
    config, slices = snapshot.config, snapshot.file_slices()
    # the footers of a few files have it
    is_counted = len(slices) <= _MOST_COUNTED and not any(one.log_files for one in slices)
    facts = {
        "location": snapshot.storage.spec.uri,
        "version": config.version,
        "type": config.table_type,
        "key": ", ".join(config.key_fields) or "generated",
        "partitions": ", ".join(config.partition_fields) or "none",
        "ordering": ", ".join(config.ordering_fields) or "commit time",
        "index": index_of(snapshot, for_write=False).name,
        "newest instant": snapshot.instant or "none",
        "rows": f"{Scan(snapshot).count():,}" if is_counted else "not counted; t.count() counts them",
        "size": f"{size_text(sum(one.size for one in slices))} in {count_text(len(slices), 'file group')}",
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
    return rows_html(table.column_names, (row.values() for row in table.to_pylist()))
