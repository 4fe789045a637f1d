"""Small views that a table hands out: its timeline, its files; each prints and turns into Arrow."""

from __future__ import annotations

import html
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import pyarrow as pa

from lakebed.concurrency.heartbeat import LastHeartbeat, last_heartbeat
from lakebed.config.commit_notes import NOTES, notes_of, operation_of
from lakebed.config.options import resolve_options, with_table_settings
from lakebed.errors import InvalidOption
from lakebed.format.base_file import read_footer
from lakebed.format.file_names import bucket_of_file_id
from lakebed.handles.base import Split
from lakebed.index.bucket_counts import ADVISED_BYTES
from lakebed.index.registry import index_of
from lakebed.metadata.slices import open_slices
from lakebed.model import COMMIT_ACTIONS, Action, BaseFile, CommitMetadata, FileSlice, Instant
from lakebed.operations.growth import next_splits
from lakebed.pictures import Bar, Lane, Picture, Span, bars, spans
from lakebed.properties.features import Feature
from lakebed.properties.table_config import TableConfig
from lakebed.read.reopening import read_again
from lakebed.read.scan import Frames, Scan
from lakebed.schema.logical_types import descriptor_of
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.instants import parse_time
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.wording import count_text, instant_text, rows_html, size_text

T = TypeVar("T")
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
        ("splits_into", pa.int32()),
    ]
)
# A picture has at most this many bars.
_MAX_BARS = 400
# The default number of instants in a picture of a timeline, and the number of labelled times.
_MAX_SPANS, _TICKS = 100, 12
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
# A view opens at most this many files to show the number of rows.
_MAX_COUNTED = 64


class View(Frames):
    """Rows that print as a table."""

    _newest_last = False
    """Whether the last rows are shown if there are too many for a preview."""

    def _preview(self) -> tuple[pa.Table, int]:
        """The rows that are shown, and the number of all rows."""
        table = self.to_arrow()
        start = max(0, table.num_rows - _PREVIEWED) if self._newest_last else 0
        return table.slice(start, _PREVIEWED), table.num_rows

    def __repr__(self) -> str:
        preview, total = self._preview()
        rows = [preview.column_names, *([str(v) for v in r.values()] for r in preview.to_pylist())]
        widths = [max(len(str(r[i])) for r in rows) for i in range(len(preview.column_names))]
        lines = ["  ".join(str(c).ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return "\n".join([*lines, *self._cut(total)])

    def _repr_html_(self) -> str:
        preview, total = self._preview()
        cut = "".join(f"<p>{html.escape(line)}</p>" for line in self._cut(total))
        return arrow_html(preview) + cut

    def _cut(self, total: int) -> list[str]:
        if total <= _PREVIEWED:
            return []
        which, left = "newest" if self._newest_last else "first", total - _PREVIEWED
        return [f"the {which} {_PREVIEWED} of {total:,}, {left:,} more; to_arrow() has all"]


class EntriesView(View, Generic[T]):
    """A view that also is an iterable of its entries, with their number as its length."""

    def _entries(self) -> Sequence[T]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())


class FeaturesView(EntriesView[Feature]):
    """The features of the read and write matrix that a table has, each with lakebed's support for it. Prints as a
    table.

    >>> print(t.features)
    feature         read  write  note
    metadata table  yes   yes
    merge-on-read   yes   yes
    """

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = features

    def _entries(self) -> Sequence[Feature]:
        return self._features

    def __getitem__(self, at: int) -> Feature:
        return self._features[at]

    def to_arrow(self) -> pa.Table:
        """A table with the columns feature, read, write ("yes", "some" or "no"), and note, which says why lakebed does
        not have the feature, and what to do.

        >>> t.features.to_arrow()["feature"].to_pylist()
        ['metadata table', 'merge-on-read']
        """
        rows = [(f.name, f.read, f.write, "; ".join(filter(None, (f.why, f.hint)))) for f in self._features]
        columns = zip(("feature", "read", "write", "note"), zip(*rows, strict=True) if rows else [()] * 4, strict=True)
        return pa.table({name: pa.array(values, pa.string()) for name, values in columns})


class TimelineView(EntriesView[Instant]):
    """The active timeline: each action once, in its latest state, by requested time. Prints as a table.

    A sequence of instants: `t.timeline[-20:]` is a view of the newest 20. A view reads only the bodies of its own
    instants.

    >>> [(instant.action.value, instant.state.name) for instant in t.timeline], len(t.timeline)
    ([('deltacommit', 'COMPLETED')], 1)
    """

    _newest_last = True

    def __init__(self, timeline: Timeline, instants: Sequence[Instant] | None = None) -> None:
        self._timeline = timeline
        self._selected = instants

    def _entries(self) -> Sequence[Instant]:
        return self._timeline.instants if self._selected is None else self._selected

    @overload
    def __getitem__(self, at: int) -> Instant: ...
    @overload
    def __getitem__(self, at: slice) -> TimelineView: ...
    def __getitem__(self, at: int | slice) -> Instant | TimelineView:
        return TimelineView(self._timeline, self._entries()[at]) if isinstance(at, slice) else self._entries()[at]

    @property
    def last(self) -> Instant | None:
        """The newest completed commit; None if there is no commit.

        >>> t.timeline.last.action.value
        'deltacommit'
        """
        return self._timeline.last_completed

    def heartbeat(self, instant: Instant) -> LastHeartbeat | None:
        """The last heartbeat of a pending instant's writer: its process, the seconds since then, and whether the
        process has ended. None without a heartbeat, for example for a plan that waits for its run, or for the single
        writer of real Hudi.

        >>> t.timeline.heartbeat(t.timeline.last) is None
        True
        """
        return last_heartbeat(self._timeline.storage, instant.time)

    @property
    def pending(self) -> TimelineView:
        """The instants that are requested or inflight.

        >>> len(t.timeline.pending)
        0
        """
        return TimelineView(self._timeline, self._timeline.pending)

    @property
    def archived(self) -> TimelineView:
        """The instants that archival moved off the active timeline. Reads the archive.

        >>> len(t.timeline.archived)
        0
        """
        return TimelineView(self._timeline, self._timeline.archived().instants)

    @property
    def metadata_table(self) -> TimelineView | None:
        """The timeline of the metadata table; None for a table without one. Raises `CorruptFile` if the metadata table
        is missing.

        >>> t.timeline.metadata_table.last.action.value
        'deltacommit'
        """
        slices = open_slices(self._timeline.storage, self._timeline.config, self._timeline)
        return None if slices is None else TimelineView(slices.timeline)

    def commit(self, instant: Instant) -> CommitMetadata:
        """The write stats of a completed commit of the active or archived timeline, by partition path.

        Raises `CorruptFile` if its body is damaged.

        >>> commit = t.timeline.commit(t.timeline.last)
        >>> commit.operation, {path: stats[0].num_inserts for path, stats in commit.stats.items()}
        ('UPSERT', {'Oslo': 2, 'Rome': 1})
        """
        return read_again(self._timeline.storage, lambda: self._timeline.commit_metadata(instant), self._renew)

    def body(self, instant: Instant) -> Mapping[str, Any]:
        """The decoded body of an instant, with Hudi's field names. The body of a pending instant is its plan.

        Raises `CorruptFile` if the body is damaged.

        >>> t.timeline.body(t.timeline.last)["operationType"]
        'UPSERT'
        """

        def read() -> Mapping[str, Any]:
            timeline = self._timeline
            if not instant.is_completed:
                return timeline.plan(instant)
            if instant.action in COMMIT_ACTIONS:
                return timeline.commit_metadata(instant).raw
            return timeline.metadata(instant) if instant.file_name else timeline.archived().plan(instant.time)

        return read_again(self._timeline.storage, read, self._renew)

    def plot(self, newest: int = _MAX_SPANS) -> Picture:
        """The newest instants as bars from requested to completed on a time axis, a lane for each action, as SVG.

        Below them are the instants of the metadata table in that time, where the table has one.

        >>> t.timeline.plot()[:4]
        '<svg'
        """
        zone = self._timeline.config.timezone
        selected = [i for i in self[-newest:] if _millis(i.time, zone) is not None]
        groups = [("", _lanes(selected, zone))]
        metadata = self.metadata_table
        if metadata is not None and selected:
            first, last = selected[0].time, max(i.completion_time or i.time for i in selected)
            groups = [("data table", groups[0][1])]
            groups.append(("metadata table", _lanes([i for i in metadata if first <= i.time <= last], zone)))
        times = [(_millis(i.time, zone) or 0.0, instant_text(i.time[:14])) for i in selected]
        return spans(groups, time.time() * 1000, times[:: max(1, len(times) // _TICKS)])

    def _preview(self) -> tuple[pa.Table, int]:
        return without_empty_notes(self[-_PREVIEWED:].to_arrow()), len(self)

    def to_arrow(self) -> pa.Table:
        """A table with the columns time, action, state, completion_time, operation, files, inserted, updated, deleted,
        and of who wrote it user, host, program, message and metadata (a JSON object).

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
        commits = [i for i in self._entries() if i.is_completed and i.action in COMMIT_ACTIONS]
        for instant, commit in zip(reversed(commits), self._timeline.commits_metadata(reversed(commits)), strict=True):
            groups = commit.stats
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
        previous, self._timeline = self._timeline, load_timeline(self._timeline.storage, self._timeline.config)
        return previous.files != self._timeline.files

    def _table(self) -> pa.Table:
        rows: list[dict[str, Any]] = []
        commits = [i for i in self._entries() if i.is_completed and i.action in COMMIT_ACTIONS]
        bodies = dict(zip(commits, self._timeline.commits_metadata(commits), strict=True))
        for instant in self._entries():
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
            if instant in bodies:
                meta = bodies[instant]
                row |= {
                    "operation": operation_of(meta.operation, meta.extra),
                    "files": sum(map(len, meta.stats.values())),
                    **meta.row_counts,
                    **notes_of(meta.extra),
                }
            rows.append(row)
        schema = pa.schema(
            [(n, pa.string()) for n in ("time", "action", "state", "completion_time", "operation")]
            + [(n, pa.int64()) for n in ("files", "inserted", "updated", "deleted")]
            + [(n, pa.string()) for n in NOTES]
        )
        return pa.Table.from_pylist(rows, schema)


def without_empty_notes(rows: pa.Table) -> pa.Table:
    """The rows without the columns of notes that are too wide for a preview, or have no value."""
    hidden = ("host", "program", "metadata")
    return rows.drop_columns([n for n in NOTES if n in hidden or rows[n].null_count == rows.num_rows])


class BucketSkewView(View):
    """The size of each bucket (in a table without buckets: of each file group), the largest first.

    Prints as a table, and in a notebook also as a picture.

    >>> sorted(t.files.skew().to_arrow()["bucket"].to_pylist())
    [0, 1]
    """

    def __init__(
        self, slices: Sequence[FileSlice], advised: int = ADVISED_BYTES, splits: Mapping[str, Split] | None = None
    ) -> None:
        self._slices, self._advised, self._splits = slices, advised, splits or {}

    def to_arrow(self) -> pa.Table:
        """A table with the columns partition, bucket, file_id, bytes, log_bytes, of_mean, of_advised, splits_into.

        `bucket` is null for a file group of no bucket, `bytes` include `log_bytes`, `of_mean` is the size divided by
        the mean of all, `of_advised` divided by the size that a bucket is advised to have at most, 3 GB or that of the
        table (`lakebed.index.bucket.advised.bytes`). `splits_into` is how many buckets the next write of rows to a
        bucket's partition path makes of it, null where that splits none.

        >>> t.files.skew().to_arrow()["log_bytes"].to_pylist()
        [0, 0]
        """
        mean = sum(file_slice.size for file_slice in self._slices) / max(1, len(self._slices))
        slices = self._largest_first()
        columns = [
            [file_slice.partition for file_slice in slices],
            [bucket_of_file_id(file_slice.file_id) for file_slice in slices],
            [file_slice.file_id for file_slice in slices],
            [file_slice.size for file_slice in slices],
            [file_slice.size - (file_slice.base_file.size if file_slice.base_file else 0) for file_slice in slices],
            [round(file_slice.size / mean, 3) if mean else 0.0 for file_slice in slices],
            [round(file_slice.size / self._advised, 6) for file_slice in slices],
            [
                self._splits[file_slice.partition].factor if file_slice.partition in self._splits else None
                for file_slice in slices
            ],
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SKEW, strict=True)]
        return pa.Table.from_arrays(arrays, schema=_SKEW)

    def _largest_first(self) -> list[FileSlice]:
        return sorted(self._slices, key=lambda file_slice: (-file_slice.size, file_slice.partition, file_slice.file_id))

    def plot(self) -> Picture:
        """The sizes as an SVG picture: a bar for each bucket with its name, the largest first as in the table, and a
        line for the mean. Bars of more than the advised size are red.

        >>> t.files.skew().plot()[:4]
        '<svg'
        """
        slices = self._largest_first()
        sizes = [file_slice.size for file_slice in slices]
        cut = f", the first {_MAX_BARS} drawn" if len(slices) > _MAX_BARS else ""
        mean, largest = sum(sizes) / max(1, len(sizes)), max(sizes, default=0)
        text = f"{count_text(len(slices), 'file group')}, mean {size_text(mean)}, largest {size_text(largest)}{cut}"
        drawn = slices[:_MAX_BARS]

        def name_of(file_slice: FileSlice) -> str:
            bucket = bucket_of_file_id(file_slice.file_id)
            return file_slice.file_id[:8] if bucket is None else f"bucket {bucket}"

        return bars(
            [
                Bar(
                    file_slice.size,
                    f"{file_slice.label}: {size_text(file_slice.size)}",
                    file_slice.size > self._advised,
                    f"{file_slice.partition} {name_of(file_slice)}".strip(),
                )
                for file_slice in drawn
            ],
            text,
        )

    def _repr_html_(self) -> str:
        return self.plot() + super()._repr_html_()


class FilesView(EntriesView[FileSlice]):
    """The latest file slice of every file group. Iterable; prints as a table.

    >>> len(t.files), [file_slice.log_files for file_slice in t.files]
    (2, [(), ()])
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def _entries(self) -> Sequence[FileSlice]:
        return self._snapshot.file_slices()

    def skew(self) -> BucketSkewView:
        """The size of each bucket, or of each file group: a table, and in a notebook a picture.

        A bucket is advised to have 3 GB at most, or what `lakebed.index.bucket.advised.bytes` of the table says.

        >>> t.files.skew().to_arrow()["partition"].to_pylist()
        ['Rome', 'Oslo']
        """
        slices, config = self._snapshot.file_slices(), self._snapshot.config
        settings = with_table_settings(resolve_options({}), config.properties).write
        return BucketSkewView(slices, settings.bucket_bytes or ADVISED_BYTES, next_splits(self._snapshot, settings))

    def versions(self, partition: str, file_id: str) -> Sequence[FileSlice]:
        """The file slices of a file group that are still stored, oldest first. Empty if there is no such file group.

        >>> first = t.files.to_arrow().to_pylist()[0]
        >>> len(t.files.versions(first["partition"], first["file_id"]))
        1
        """
        return self._snapshot.versions(partition, file_id)

    def base_rows(self, slices: Sequence[FileSlice]) -> Sequence[int | None]:
        """The number of rows in the base file of each slice, by its footer; None for a slice that has only log files.

        >>> t.files.base_rows(list(t.files))
        [2, 1]
        """
        storage = self._snapshot.storage

        def rows(base: BaseFile | None) -> int | None:
            return None if base is None else read_footer(storage, base.path, base.size or None).rows

        return parallel_map(rows, [file_slice.base_file for file_slice in slices])

    def to_arrow(self) -> pa.Table:
        """A table with the columns partition, file_id, instant, base_file (its path), bytes (of the base file),
        log_files (their number).

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


class PropertiesView(dict[str, str]):
    """The properties of a table: a dict that prints a line for each, in order.

    >>> from lakebed.table_views import PropertiesView
    >>> PropertiesView({"hoodie.table.version": "9", "hoodie.table.name": "trips"})
    hoodie.table.name     trips
    hoodie.table.version  9
    """

    @property
    def merge_mode(self) -> str:
        """The mode by which rows of one key are merged: `event_time`, `commit_time` or `custom`."""
        return TableConfig(self).merge_mode

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{key:<{width}}  {value}".rstrip() for key, value in sorted(self.items()))

    def _repr_html_(self) -> str:
        return rows_html(["property", "value"], sorted(self.items()))


def listed_files(view: Snapshot) -> FilesView:
    """The files of a view, as a `FilesView`. They are listed at once, while the view is the latest."""
    view.file_slices()
    return FilesView(view)


def _lanes(instants: Sequence[Instant], zone: str) -> list[Lane]:
    """A lane for each action that occurs, in the order of `Action`."""
    by_action: dict[str, list[Span]] = {action.value: [] for action in Action}
    for instant in instants:
        start = _millis(instant.time, zone)
        if start is not None:
            end = _millis(instant.completion_time or instant.time, zone) if instant.is_completed else None
            title = f"{instant.action.value} {instant.time} {instant.state.name.lower()}"
            by_action[instant.action.value].append(Span(start, end, instant.state.name.lower(), title))
    return [Lane(name, tuple(lane_spans)) for name, lane_spans in by_action.items() if lane_spans]


def _millis(instant_time: str, zone: str) -> float | None:
    """The milliseconds of an instant time since 1970; None for the special times that are not dates."""
    try:
        return parse_time(instant_time, zone).timestamp() * 1000
    except InvalidOption:
        return None


def table_html(snapshot: Snapshot) -> str:
    """The view of a table for a notebook: its type, its size and its columns."""
    config, slices = snapshot.config, snapshot.file_slices()
    # only the footers of a few files have to be read
    is_counted = len(slices) <= _MAX_COUNTED and not any(file_slice.log_files for file_slice in slices)
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
        "size": f"{size_text(sum(part.size for part in slices))} in {count_text(len(slices), 'file group')}",
    }
    rows = "".join(f"<tr><th>{k}</th><td>{html.escape(str(v))}</td></tr>" for k, v in facts.items())
    columns = "".join(
        f"<tr><td>{html.escape(f.name)}</td><td>{html.escape(descriptor_of(f) or str(f.type))}</td></tr>"
        for f in snapshot.schema
    )
    return (
        f"<b>{html.escape(config.name)}</b><table>{rows}</table>"
        f"<table><thead><tr><th>column</th><th>type</th></tr></thead>{columns}</table>"
    )


def arrow_html(table: pa.Table) -> str:
    from lakebed.row_texts import with_texts

    return rows_html(table.column_names, (row.values() for row in with_texts(table).to_pylist()))
