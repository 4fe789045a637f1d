"""A table as its methods and views share it: storage, settings, the latest view, and how calls read and commit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.config.settings import ReadSettings
from lakebed.engine.spark_session import zone_of
from lakebed.errors import InvalidOption
from lakebed.metadata.lookups import open_again
from lakebed.progress import display
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.read.reopening import read_again
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage

# Methods import what they run: a process that reads some rows does not import the write verbs, services and views.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.engine.base import Engine
    from lakebed.inputs.files import Partitioning
    from lakebed.operations import hudi_job
    from lakebed.operations.context import WriteContext
    from lakebed.operations.merge import MergeResult
    from lakebed.operations.once import Once
    from lakebed.operations.result import WriteResult
    from lakebed.read.moments import When
    from lakebed.services.driver import Reads

T = TypeVar("T")
# Views of this many moments are cached while nothing changes.
_VIEWS = 4
# The message and the metadata of the statement that runs, which calls the methods of tables.
_note_around: ContextVar[tuple[str | None, Mapping[str, Any] | None]] = ContextVar("note_around", default=(None, None))


@contextmanager
def noting(message: str | None, metadata: Mapping[str, Any] | None = None) -> Generator[None]:
    """Note this with the writes in the block that note nothing themselves. Raises `InvalidOption` for another type."""
    if message is not None and not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"a message is a text, not {message!r}", context={"option": "message"})
    if metadata is not None and not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"metadata is a dict of names and values, not {metadata!r}", context={"option": "metadata"})
    token = _note_around.set((message, metadata))
    try:
        yield
    finally:
        _note_around.reset(token)


class OpenedTable:
    """A table that was opened or created. Every method and view of a `Table` reads and commits through this object.

    `config` are the properties as they were read last, `spark` is the session that the table was opened with, `reads`
    has the settings of its reads, and of the workers that its tasks run in.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        spark: SparkSession | None = None,
        reads: ReadSettings | None = None,
    ) -> None:
        self.storage = storage
        self.config = config
        self.spark = spark
        self.reads = reads or ReadSettings()
        # the view of the last read: its listings and lookups stay valid until a timeline changes
        self._views: dict[str | None, Snapshot] = {}

    @property
    def uri(self) -> str:
        """The table's path or URL."""
        return self.storage.spec.uri

    def reload(self) -> TableConfig:
        """The properties, read from their file again."""
        self.config = load_table_config(self.storage)
        return self.config

    def write(
        self,
        verb: Callable[[WriteContext, Any], WriteResult],
        data: Any,
        options: Mapping[str, Any] | None,
        name: str,
        retries: int | None = None,
        progress: bool = True,
        once: Once | None = None,
    ) -> WriteResult:
        """Run a write, with its retries after conflicts, then the services that the table's settings make due, and
        return its result."""
        from lakebed import lineage
        from lakebed.operations import hudi_job
        from lakebed.operations.group_commit import UpsertTarget, commit
        from lakebed.services.due import run_due_services

        begins = self._begins(data, hudi_job.with_retries(retries, options), name)
        run = partial(hudi_job.run_again, begins.context, data=data, name=name, once=once)
        target = None if once else UpsertTarget(self.storage, self.config, begins.options)
        write = partial(commit, run, verb, data, target, partial(run_due_services, spark=self.spark))
        with display(enabled=progress):
            if lineage.is_active():
                from lakebed.read.origin import source_of

                result = self.reported(write, source_of(data), begins.options, name)
            else:
                result = write()
        if begins.was_read:  # not where another thread wrote the rows
            self.config = begins.config
        return result

    def reported(
        self, write: Callable[[], WriteResult], source: str | None, options: Mapping[str, Any] | None, name: str
    ) -> WriteResult:
        """Run a write of rows from `source` (None: unknown), and send events of its beginning and end."""
        from lakebed import lineage
        from lakebed.config.commit_notes import notes_of_options

        operation, notes = notes_of_options(options or {}, name)
        with lineage.reported(self.uri, self.config.name, operation, [source] if source else ()) as outcome:
            outcome.notes = notes
            result = write()
            if result.instant and not result.skipped:
                outcome.instant, outcome.schema = result.instant, self.snapshot().schema
                outcome.rows, outcome.files, outcome.size = result.rows, len(result.files), result.bytes
        return result

    @staticmethod
    def noted(
        options: Mapping[str, Any] | None,
        message: str | None,
        metadata: Mapping[str, Any] | None,
        operation: str = "",
    ) -> Mapping[str, Any]:
        """The options of a write with what its caller notes about it, and with its operation where Hudi has no word for
        it."""
        if message is None and not metadata:
            message, metadata = _note_around.get()
        if message is None and not metadata and not operation:
            return options or {}
        from lakebed.config.commit_notes import with_note

        return with_note(options or {}, message, metadata, operation)

    def data(self, data: Any, partitioning: Partitioning | None) -> Any:
        """The rows that a caller gave: the data files for a path, any other value unchanged."""
        from lakebed.inputs.files import data_of

        return data_of(data, partitioning, (self.storage.spec.uri, self.storage.spec.options))

    def merge(
        self,
        verb: Callable[[WriteContext, Any], MergeResult],
        source: Any,
        options: Mapping[str, Any] | None,
        retries: int | None,
        once: Once | None,
    ) -> MergeResult:
        """Run the write of a merge, and return its result. The result of a skipped merge has no counts."""
        from lakebed.operations.merge import MergeResult

        result = self.write(verb, source, options, "upsert", retries, once=once)
        if result.skipped:
            return MergeResult(result.instant, result.checkpoint, "merge", skipped=True)
        assert isinstance(result, MergeResult)
        return result

    def plan_merge(self, plan: Callable[[WriteContext], T], source: Any, options: Mapping[str, Any] | None) -> T:
        """The plan of a merge. Nothing is written."""
        return self.again(lambda: plan(self.context(source, options, "upsert")))

    def moment(self, when: When) -> When:
        """A time that a caller gave, with a zone. A time without a zone is in the zone of the Spark session, otherwise
        in that of the machine."""
        from lakebed.read.moments import in_local_zone

        return in_local_zone(when, None if self.spark is None else zone_of(self.spark))

    def snapshot(self, as_of: str | None = None, *, looks_up: bool = False, for_keys: bool = False) -> Snapshot:
        """The newest view of the table, or the view as of an instant. With `looks_up` the view also opens its metadata
        table, to find files or `for_keys`."""
        # the metadata table may have changed since: a dropped index must not be used
        cached, use = self._views.pop(as_of, None), self.reads.use_metadata
        too = looks_up if cached is None else cached.metadata_is_open
        fresh = open_again(self.storage, self.config, as_of, use_metadata=use, metadata_too=too)
        self.config = fresh.config
        view = self._views[as_of] = cached if cached is not None and cached.shows_same(fresh) else fresh
        if view is fresh:
            fresh.open_ahead(for_keys=for_keys)
        if len(self._views) > _VIEWS:
            del self._views[next(iter(self._views))]
        return view

    def view(self, as_of: When | None, *, option: str = "as_of") -> Snapshot:
        """The view as of a moment that a caller gave as `option` (None: as of now). Raises `InvalidOption` if that time
        is cleaned, before the first commit or in the future, and for names that the table does not have."""
        if as_of is None:
            return self.snapshot(looks_up=True)
        from lakebed.read.incremental import refuse_outside
        from lakebed.read.moments import resolve_as_of
        from lakebed.read.scan import refuse_cleaned

        cut = resolve_as_of(self.moment(as_of), self.config, lambda: self.snapshot().timeline, option=option)

        def opened() -> Snapshot:
            view = self.snapshot(cut, looks_up=True)
            refuse_outside(view)
            refuse_cleaned(view)
            return view

        return self.again(opened)

    def steadily(self, read: Callable[[Snapshot], T], *, looks_up: bool = False) -> T:
        """The result of `read` with the latest view. If the table changes during the read, the read is repeated with a
        later view."""
        views = [self.snapshot(looks_up=looks_up, for_keys=looks_up)]

        def renew() -> bool:
            views.append(self.snapshot())
            return not views[-2].shows_same(views[-1])

        return read_again(self.storage, lambda: read(views[-1]), renew)

    def again(self, serve: Callable[[], T], *, progress: bool = True) -> T:
        """The result of the service `serve`, which is started again if the table changed while the service was
        planned."""
        with display(enabled=progress):
            return read_again(self.storage, serve, lambda: True)

    def committed(
        self, serve: Callable[[], T], options: Mapping[str, Any] | None, *, preview: bool = False, progress: bool = True
    ) -> T:
        """The result of a service that commits. Unless it is a preview, published lists and catalogs are updated as
        well."""
        from lakebed.services.due import AFTER_SERVICE_SETTINGS, show_after_service

        done = self.again(serve, progress=progress)
        if not preview and AFTER_SERVICE_SETTINGS & {*self.config.properties, *(options or {})}:
            show_after_service(self.storage, self.config.properties, options)
        return done

    def engine(self) -> Engine:
        """The engine of a call that writes only indexes of the metadata table."""
        from lakebed.operations import hudi_job

        spark = None if self.storage.spec.in_this_process else self.spark
        return hudi_job.session_engine(spark, self.reads)

    def service_context(self, options: Mapping[str, Any] | None, verb: str, reads: Reads = "logs") -> WriteContext:
        """The context of a service that merges the table's log files, or may rewrite every file ("files")."""
        from lakebed.services.driver import fitting_context

        return fitting_context(self.context(None, options, verb), reads, self.spark)

    def context(self, data: Any, options: Mapping[str, Any] | None, verb: str) -> WriteContext:
        """The context of a call that writes: the table's state, the engine for these rows, the options."""
        begins = self._begins(data, options, verb)
        context = begins.context()
        self.config = begins.config
        return context

    def _begins(self, data: Any, options: Mapping[str, Any] | None, verb: str) -> hudi_job.Beginning:
        from lakebed.operations import hudi_job

        return hudi_job.Beginning(self.storage, self.config, verb, data, options, self.spark, self.reads)

    def __getstate__(self) -> dict[str, Any]:
        # cached views and the session are not pickled: another process cannot use them
        return {**self.__dict__, "_views": {}, "spark": None}
