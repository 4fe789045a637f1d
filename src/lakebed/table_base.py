"""What every part of the public table goes by: its storage, its settings and the view of its last read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lakebed.config.features import Feature, features_of
from lakebed.config.options import resolve_options
from lakebed.config.settings import ReadSettings
from lakebed.operations.context import WriteContext
from lakebed.operations.job import bytes_of_files, check_verb, choose_engine, write_context
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.read.plan import data_columns
from lakebed.read.time_travel import When, in_local_zone
from lakebed.services.after_write import engine_for, engine_for_all
from lakebed.slices.facts import table_features
from lakebed.slices.reopening import read_again
from lakebed.slices.snapshot import Snapshot, open_snapshot
from lakebed.storage.base import Storage
from lakebed.table_views import FilesView, TimelineView, table_html

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
# Views of so many moments are kept while nothing changes.
_VIEWS = 4


class TableBase:
    """What a table is, and what reads, writes and services of it begin with."""

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        spark: SparkSession | None = None,
        reads: ReadSettings | None = None,
        *,
        worker_tuning: bool = True,
    ) -> None:
        self._storage = storage
        self._config = config
        self._spark = spark
        self._reads = reads or ReadSettings()
        self._worker_tuning = worker_tuning
        # the view of the last read: what it has listed and looked up holds until a timeline changes
        self._views: dict[str | None, Snapshot] = {}

    @property
    def uri(self) -> str:
        return self._storage.spec.uri

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def schema(self) -> pa.Schema:
        """The table's columns now, Hudi's meta columns left out."""
        return self._steadily(data_columns)

    @property
    def properties(self) -> Mapping[str, str]:
        """Everything in `hoodie.properties`, as it is now."""
        self._config = load_table_config(self._storage)
        return dict(self._config.properties)

    @property
    def timeline(self) -> TimelineView:
        """The instants of the active timeline: iterable, and a table to look at."""
        return TimelineView(self._snapshot().timeline)

    @property
    def files(self) -> FilesView:
        """The latest file slices: iterable, `.to_arrow()`, and a table to look at."""
        return self._steadily(_files)

    @property
    def partitions(self) -> Sequence[str]:
        """The partition paths that have files, in order; one empty text for a table without partitions."""
        slices = self._steadily(lambda view: view.file_slices())
        return tuple(dict.fromkeys(file_slice.partition for file_slice in slices))

    @property
    def features(self) -> tuple[Feature, ...]:
        """What this table has of the read and write matrix, each with what lakebed does about it."""
        return self._steadily(lambda view: features_of(view.config.properties, table_features(view)))

    # -- inside

    def _moment(self, when: When) -> When:
        return in_local_zone(when, None if self._spark is None else self._spark.conf.get("spark.sql.session.timeZone"))

    def _snapshot(self, as_of: str | None = None) -> Snapshot:
        # what the metadata table has may have changed since: an index that was dropped must not be asked
        self._config = load_table_config(self._storage)
        fresh = open_snapshot(self._storage, self._config, as_of, use_metadata=self._reads.use_metadata)
        known = self._views.pop(as_of, fresh)
        view = self._views[as_of] = known if known.shows_same(fresh) else fresh
        if len(self._views) > _VIEWS:
            del self._views[next(iter(self._views))]
        return view

    def _steadily(self, read: Callable[[Snapshot], T]) -> T:
        """What `read` gives of the latest view; of a later one where the table changed while it was read."""
        views = [self._snapshot()]

        def renew() -> bool:
            views.append(self._snapshot())
            return not views[-2].shows_same(views[-1])

        return read_again(self._storage, lambda: read(views[-1]), renew)

    def _again(self, serve: Callable[[], T]) -> T:
        """What a service gives, which begins again where the table changed while it was planned."""
        return read_again(self._storage, serve, lambda: True)

    def _service_context(self, options: Mapping[str, Any] | None, verb: str) -> WriteContext:
        """For a service that merges the table's log files."""
        context = self._context(None, options, verb)
        return replace(context, engine=engine_for(context.opened, context.engine, self._spark))

    def _rewriting_context(self, options: Mapping[str, Any] | None, verb: str) -> WriteContext:
        """For a service that may rewrite every file of the table."""
        context = self._context(None, options, verb)
        return replace(context, engine=engine_for_all(context.opened, context.engine, self._spark))

    def _context(self, data: Any, options: Mapping[str, Any] | None, verb: str) -> WriteContext:
        self._config = load_table_config(self._storage)
        resolved = resolve_options(options)
        check_verb(resolved, verb)
        tuning = self._worker_tuning and resolved.spark.worker_tuning
        engine = choose_engine(
            data,
            self._spark,
            resolved.write.tasks,
            worker_tuning=tuning,
            local_rows=resolved.spark.local_rows,
            table_bytes=lambda: bytes_of_files(self._snapshot()),
        )
        return write_context(self._storage, self._config, engine, resolved)

    def __getstate__(self) -> dict[str, Any]:
        # what was read of the files stays here, and so does the session: neither is another process's
        return {**self.__dict__, "_views": {}, "_spark": None}

    def __repr__(self) -> str:
        keys = ", ".join(self._config.key_fields) or "generated"
        partitions = ", ".join(self._config.partition_fields) or "none"
        return (
            f"lakebed.Table({self.name!r}, {self.uri}, version {self._config.version}, {self._config.table_type}, "
            f"key: {keys}, partitions: {partitions})"
        )

    def _repr_html_(self) -> str:
        return self._steadily(table_html)


def _files(view: Snapshot) -> FilesView:
    view.file_slices()  # listed now, while the view is the latest
    return FilesView(view)
