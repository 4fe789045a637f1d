"""Change data: which rows the commits of a range inserted, updated and deleted, each as it was and as it became."""

from __future__ import annotations

import html
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakebed.errors import InvalidOption
from lakebed.filters.text import resolve_columns
from lakebed.format.data_block import AFTER, BEFORE, OP, TIME
from lakebed.model import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY, Action, FileSlice
from lakebed.read.arrow_scan import RowReader, in_order, row_readers
from lakebed.read.cdc_plan import first_readable, plan_changes, select_changes
from lakebed.read.cdc_rows import CLEANED, ChangeReader, ChangeSource, gone, structs
from lakebed.read.incremental import CommitRange, When
from lakebed.read.plan import data_columns, plan_scan
from lakebed.read.scan import Results
from lakebed.schema.json_rows import json_texts
from lakebed.slices.reopening import MISSING, missing_path, read_again, reopened
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import once
from lakebed.timeline.timeline import completed_at
from lakebed.wording import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Images = Literal["rows", "json"]

ChangeJob = tuple[ChangeSource, RowReader | None, RowReader | None]
"""A source with the readers of its slices before and after."""


class ChangeLog(Results):
    """The changes that the commits in (start, end] made, in the order of the commits.

    Columns: `op` (`i`, `u` or `d`), `ts_ms` (the requested instant of the commit, as Hudi has it), `before` and
    `after`: the row's images, null where there is none. With `images="rows"` these are structs of the table's columns
    now (or of some of them), with "json" texts as real Hudi gives them. `end` is the checkpoint: the `start` of the
    next read.

    A row that several commits changed comes once for each of them. Within one commit the rows of a file group come in
    the order in which they are stored; deletes of whole file groups come first.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        start: When,
        end: When | None = None,
        columns: Sequence[str] | None = None,
        images: Images = "rows",
        spark: SparkSession | None = None,
        *,
        worker_tuning: bool = True,
    ) -> None:
        if images not in ("rows", "json"):
            raise InvalidOption(f"there are no images {images!r}", hint="take 'rows' (structs) or 'json' (texts)")
        super().__init__(spark)
        self._snapshot = snapshot
        self._start = start
        self._end = end
        self._names = columns
        self._as_text = images == "json"
        self._worker_tuning = worker_tuning

    @once
    def range(self) -> CommitRange:
        """Which commits are read."""
        return read_again(self._storage(), lambda: select_changes(self._snapshot, self._start, self._end), self._renew)

    def _storage(self) -> Storage:
        return self._snapshot.storage

    def _renew(self) -> bool:
        known: CommitRange | None = self.__dict__.get("range")
        fresh = reopened(self._snapshot)
        if fresh is None:
            return False
        if known is not None:
            self._end = known.end  # a checkpoint that was given stays
        self._snapshot = fresh
        for made in ("range", "image_schema", "sources", "jobs"):
            self.__dict__.pop(made, None)
        return True

    @property
    def end(self) -> str:
        """The checkpoint after these changes: give it as `start` to read what comes next."""
        return self.range.end

    @once
    def image_schema(self) -> pa.Schema:
        """The columns of the images."""
        available = read_again(self._storage(), lambda: data_columns(self._snapshot), self._renew)
        names = available.names
        if self._names is not None:
            names = resolve_columns(self._names, available)
        return pa.schema([pa.field(name, available.field(name).type) for name in names])

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the result."""
        image = pa.string() if self._as_text else pa.struct(list(self.image_schema))
        return pa.schema([(OP, pa.string()), (TIME, pa.string()), (BEFORE, image), (AFTER, image)])

    @once
    def sources(self) -> tuple[ChangeSource, ...]:
        """What is read."""
        with self._naming_checkpoint():
            return plan_changes(self._snapshot, self.range)

    @property
    def reader(self) -> ChangeReader:
        """Reads the sources; can be sent to tasks."""
        return ChangeReader(
            self._snapshot.reader,
            self.schema.field(BEFORE).type,
            json_texts if self._as_text else structs,
            max((i.time for i in self._snapshot.timeline.instants if i.action is Action.CLEAN), default=""),
        )

    @once
    def jobs(self) -> list[ChangeJob]:
        """The sources with what reads their slices."""
        with self._naming_checkpoint():
            return self._jobs()

    @contextmanager
    def _naming_checkpoint(self) -> Generator[None]:
        """A file that was cleaned as `InvalidOption` with the first start that can be read."""
        try:
            yield
        except MISSING as error:
            last = self.reader.cleaned
            path, commits = missing_path(error, self._snapshot.storage), self._snapshot.commits
            first = first_readable(self._snapshot, commits) if path and last else ""
            unread = next((i.time for i in reversed(commits) if completed_at(i) == first), "")
            if not first or unread >= last:
                raise
            raise gone(path, unread, first) from error
        except InvalidOption as error:
            if CLEANED not in error.context:
                raise
            first = first_readable(self._snapshot, self._snapshot.commits)
            raise gone(error.context[CLEANED], error.context["instant"], first) from error

    def _jobs(self) -> list[ChangeJob]:
        slices = dict.fromkeys(s for source in self.sources for s in (source.before, source.after) if s is not None)
        compared = any(source.kind == "appended" for source in self.sources)
        meta = [COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY] if compared else [RECORD_KEY]
        plan = plan_scan(self._snapshot, None, [*self.image_schema.names, *meta], slices=list(slices))
        readers: dict[FileSlice | None, RowReader] = dict(row_readers(plan, None))
        return [(source, readers.get(source.before), readers.get(source.after)) for source in self.sources]

    def _read(self) -> Iterator[pa.RecordBatch]:
        reader = self.reader
        jobs = [partial(reader.read, *job) for job in self.jobs]
        with self._naming_checkpoint():
            for batch in in_order(jobs, min(8, os.cpu_count() or 1)):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def to_spark(self) -> DataFrame:
        """A lazy DataFrame; its tasks read the sources."""
        from lakebed.read.cdc_spark import changes_frame

        spark = self._session(self._snapshot.storage)

        def frame() -> DataFrame:
            return changes_frame(self.jobs, self.reader, self.schema, spark, worker_tuning=self._worker_tuning)

        return read_again(self._storage(), frame, self._renew)

    def explain(self) -> str:
        """The commits of the range, and what tells their changes."""
        return read_again(self._storage(), self._explained, self._renew)

    def _explained(self) -> str:
        commits, sources = self.range, self.sources
        span = f"({commits.start or 'beginning'}, {commits.end}]"
        lines = [
            f"changes of {self._snapshot.config.name}: {count_text(len(commits.commits), 'commit')} in {span}",
            f"  columns     {', '.join(self.image_schema.names)}",
        ]
        for kind, what in _KINDS.items():
            found = [source for source in sources if source.kind == kind]
            if found:
                lines.append(f"  {kind:<11} {len(found)} {what} ({sum(s.size for s in found) / (1 << 20):.1f} MiB)")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.explain())}</pre>"


_KINDS: dict[str, Any] = {
    "logged": "change logs",
    "inserted": "base files of new rows",
    "deleted": "file slices whose rows are all gone",
    "appended": "file slices with new log files",
}
