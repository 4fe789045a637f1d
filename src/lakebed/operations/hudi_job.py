"""From options to a write: the engine and context of every verb, a Hudi job's options as one call, and the retry of
a write that lost against a concurrent one.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa
from pyarrow.types import is_time

from lakebed import telemetry
from lakebed.concurrency.lock import look_at_lock
from lakebed.concurrency.providers import writers_lock
from lakebed.config.options import (
    Options,
    creation_properties,
    resolve_options,
    with_table_settings,
)
from lakebed.config.settings import ReadSettings
from lakebed.engine.arrow_data import arrow_rows, is_read_once
from lakebed.engine.base import Engine, cluster_of, session_of
from lakebed.engine.local import LocalEngine
from lakebed.engine.spark import collect_within, max_collected_bytes
from lakebed.engine.spark_session import has_exact_leaves, is_in_one_process, optimizer_bytes, optimizer_rows
from lakebed.errors import (
    CommitConflict,
    ConflictKind,
    CorruptFile,
    InvalidOption,
    SourceError,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lakebed.index.registry import job_index, recorded_index_properties
from lakebed.metadata.lookups import open_again, open_snapshot
from lakebed.model import HOODIE, RECORD_KEY
from lakebed.operations.context import WriteContext, incoming_rows
from lakebed.operations.create import create, profile_of
from lakebed.operations.delete import delete, is_condition
from lakebed.operations.foreign_files import refuse_foreign_files
from lakebed.operations.once import AlreadyWritten, Once, refuse_written
from lakebed.operations.overwrite import delete_partitions, insert_overwrite
from lakebed.operations.recreate import load_settled, recreate
from lakebed.operations.result import WriteResult
from lakebed.operations.upsert import bulk_insert, insert, upsert
from lakebed.properties.conflicts import conflicts_with_table
from lakebed.properties.table_config import TableConfig
from lakebed.read.origin import is_noted, look_read, may_be_read
from lakebed.read.reopening import (
    MAX_LOOKS,
    MISSING,
    as_damage,
    deleted_file,
    deleted_since_planned,
    is_of_table,
    path_of,
    reopened,
)
from lakebed.read.scan import Scan
from lakebed.schema.arrow import leaf_paths
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.storage.parallel import at_once, is_remote
from lakebed.wording import count_text

RETRIES = "hoodie.write.num.retries.on.conflict.failures"

_log = logging.getLogger("lakebed")
# How often rows that changed while they were written are evaluated again.
_MAX_CHANGES = 3
_FIRST_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 10.0


def run_again(
    make_context: Callable[[], WriteContext],
    verb: Callable[[WriteContext, Any], WriteResult],
    data: Any,
    name: str,
    once: Once | None = None,
) -> tuple[WriteContext, WriteResult]:
    """Run a verb, and again after a `CommitConflict` as often as the job or the table allows. Returns the context of
    the run that committed, and its result. A run that lost leaves nothing visible; each run begins with the newest
    state of the table. A batch that the table already has is not written: the result has the commit that wrote it, and
    the `name` of the operation.

    Each run evaluates a DataFrame again, and that once if it may give other rows the next time. Rows that changed
    nevertheless, since a machine that held some of them has ended, are evaluated again. Data that can be read only once
    is cached.
    """
    lost = changed = 0
    looks, last_missing = 0, ""
    context: WriteContext | None = None
    while True:
        try:
            context = make_context()
            if lost == 0 and is_read_once(data) and retries_of(context):
                data = arrow_rows(data, {})
            if once is not None:
                refuse_written(context.opened.timeline, once)
                context = replace(context, stream_batch=once)
            with evaluated_once(context.engine, data, always=changed > 0) as rows:
                result = verb(context, rows)
        except AlreadyWritten as written:
            assert context is not None
            return context, WriteResult.of_written(written.instant, name)
        except MISSING as error:
            # an action left the timeline, or a file was cleaned, while the write was planned
            looks += 1
            if context is None or not is_of_table(error, context.storage):
                raise
            if str(error) == last_missing or reopened(context.opened) is None:
                raise deleted_since_planned(error, context.storage) or as_damage(error, context.storage) from error
            if looks > MAX_LOOKS or is_read_once(data):
                raise _overtaken(error) from error
            last_missing = str(error)  # the same file missing twice is damage
            _log.info("run again, since the table changed: %s", error)
            continue
        except SourceError as error:
            changed += 1
            if error.context.get("input") != "changed" or cluster_of(data) is None or changed > _MAX_CHANGES:
                raise
            _log.info("run again (%d of %d): %s", changed, _MAX_CHANGES, error.message)
            continue
        except CommitConflict as conflict:
            assert context is not None
            is_last = lost >= retries_of(context)
            telemetry.write_lost(context.storage.spec.uri, again=not is_last)
            if is_last:
                if lost:
                    conflict.context["retries"] = lost
                raise
            pause = _pause(lost)
            lost += 1
            _log.info("run again in %.1f s (%d of %d): %s", pause, lost, retries_of(context), conflict.message)
            time.sleep(pause)
            continue
        return context, replace(result, retries=lost) if lost else result


@contextmanager
def evaluated_once(engine: Engine, data: Any, *, always: bool = False) -> Generator[Any]:
    """Yields the caller's data in a form that has the same rows each time, until the end of the block."""
    rows = engine.repeatable(data, always=always)
    try:
        yield rows
    finally:
        if rows is not data:
            with suppress(Exception):  # a session that has ended
                engine.release(rows)


def retries_of(context: WriteContext) -> int:
    """The number of times that a write is repeated after a conflict, from its options or otherwise from those of the
    table."""
    return context.services.retries.on_conflict


def with_retries(retries: int | None, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The options of a write, with the number of retries that its caller gave (None: unchanged)."""
    return options if retries is None else {**(options or {}), RETRIES: retries}


def with_partial(partial: bool, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The options of an upsert, with the option for rows that may lack columns if `partial` is set."""
    return {**(options or {}), "lakebed.write.partial": True} if partial else options


def _overtaken(error: Exception) -> CommitConflict:
    path = path_of(error)
    return CommitConflict(
        f"{path} was deleted while this write was planned or written: another process cleaned the table, archived its"
        " timeline or rolled a commit back",
        hint="Nothing of it is visible; run it again. A higher hoodie.clean.commits.retained keeps files for slow"
        " writers.",
        context={"path": path},
        kind=ConflictKind.CHANGED,
    )


def _pause(lost: int) -> float:
    """The seconds to wait after `lost` lost runs: twice as long each time, and randomised, so that two writers that
    conflicted do not meet again."""
    longest = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0**lost)
    return longest * random.uniform(0.5, 1.0)


Mode = Literal["append", "overwrite", "errorifexists", "ignore"]

OPERATION = "hoodie.datasource.write.operation"
_CALLS = {
    "upsert": "t.upsert(rows)",
    "insert": "t.insert(rows)",
    "bulk_insert": "t.bulk_insert(rows)",
    "delete": "t.delete(keys) or t.delete(where=condition)",
    "delete_partition": "t.delete_partitions(paths)",
    "insert_overwrite": "t.insert_overwrite(rows)",
    "insert_overwrite_table": 't.insert_overwrite(rows, "table")',
}
# Where a Hudi job leaves it open, it is done as real Hudi does it.
_HUDI_DEFAULTS = {"lakebed.write.evolution": "widen"}
# DataFrames of no more rows are written in this process, if their bytes fit there.
LOCAL_ROWS = 20_000
# If Spark runs in one process, larger DataFrames are written in this process too: Spark must estimate them at no more
# than this and half of the driver's limit for collected rows, and the table must be no larger than this. A job that
# hands each row from the JVM to Python and back would gain nothing.
LOCAL_BYTES, LOCAL_TABLE_BYTES = 512 << 20, 1 << 30
# Arrow data up to this size is written in this process even where there is a Spark session.
IN_PROCESS_BYTES = 128 << 20
# Services after a write on Spark are run in this process where they read no more than this: a job takes longer.
JOB_BYTES = 16 << 20
# So many stored rows are compared with rows that may have been read from a table with generated keys.
_COMPARED_ROWS = 1_000_000
_IN_MEMORY = "the table is in the memory of this process, which Spark's workers cannot see: everything is done here"


def choose_engine(
    data: Any,
    spark: Any | None,
    options: Options | None = None,
    *,
    table_bytes: Callable[[], int] = lambda: 0,
) -> Engine:
    """The engine for data: their own cluster for Datasets of Ray and DataFrames of Dask, Spark for its DataFrames, for
    conditions and big Arrow data if there is a session, otherwise this process with the options' tasks as threads.

    A DataFrame that the optimizer knows to have no more than `SparkSettings.local_rows` is written in this process,
    too, if its bytes fit there: it is collected here, and the engine has its rows. None means lakebed's own bound; then
    the DataFrame may also be larger if Spark runs in one process and the table's files take no more than
    `LOCAL_TABLE_BYTES`."""
    session, options = session_of(data) or spark, options or Options({})
    tasks = options.write.tasks
    if not isinstance(data, pa.Table | None) and (engine := engine_of(data)) is not None:
        return engine
    if session is None:
        return LocalEngine(tasks)
    if session_of(data) is not None:
        if (engine := _collected(data, options, table_bytes)) is not None:
            return engine
    elif not is_condition(data) and getattr(data, "nbytes", 0) <= IN_PROCESS_BYTES:
        return LocalEngine(tasks)
    elif _has_times(data):
        return LocalEngine(tasks, note="there is no way to Spark for columns of Arrow's time: the data is written here")
    return session_engine(session, options.read)


def engine_of(data: Any) -> Engine | None:
    """The engine of the cluster that has the rows of the data, where that is not Spark's; None for other data."""
    if cluster_of(data) in (None, "spark"):
        return None
    from lakebed.engine.tasks import task_engine

    return task_engine(data)


def _has_times(data: Any) -> bool:
    schema: Any = None if hasattr(data, "collect_schema") else getattr(data, "schema", None)
    return isinstance(schema, pa.Schema) and any(is_time(kind) for _, kind in leaf_paths(schema))


def _collected(data: Any, options: Options, table_bytes: Callable[[], int]) -> LocalEngine | None:
    """The engine of this process with the collected rows of a DataFrame that is written in it; None for a DataFrame
    that is not."""
    local_rows = options.spark.local_rows
    max_rows = LOCAL_ROWS if local_rows is None else local_rows
    if max_rows <= 0 or getattr(data, "isStreaming", False):
        return None
    rows = optimizer_rows(data)
    if rows is None:
        return None
    bound = max_collected_bytes(data.sparkSession)
    if rows <= max_rows:
        note = f"the DataFrame has about {count_text(rows, 'row')}"
    elif local_rows is None and is_in_one_process(data.sparkSession):
        size = optimizer_bytes(data)
        if size is None or size > min(LOCAL_BYTES, bound // 2) or table_bytes() > LOCAL_TABLE_BYTES:
            return None
        note = f"Spark runs in one process, and the DataFrame takes about {size >> 20} MiB"
    else:
        return None
    # Spark's statistics may leave out the bytes of a row beyond its columns: its estimate may be half of the rows
    try:
        table = collect_within(data, 2 * rows if has_exact_leaves(data) else max(max_rows, 2 * rows), bound)
    except CorruptFile as error:
        if not error.context.get("missing"):
            raise
        raise deleted_file(str(error.context["path"])) from error
    return (
        None
        if table is None
        else LocalEngine(options.write.tasks, note=f"{note}: it is collected and written here", collected=(data, table))
    )


def session_engine(spark: Any | None, reads: ReadSettings | None = None) -> Engine:
    """Spark's engine if there is a session, otherwise that of this process. `reads` has the settings of its tasks."""
    if spark is None:
        return LocalEngine()
    from lakebed.engine.spark import SparkEngine

    return SparkEngine(spark, tuning=reads is None or reads.worker_tuning)


def bytes_of_files(snapshot: Snapshot) -> int:
    """The bytes of the files in the table's latest view."""
    return sum(file_slice.size for file_slice in snapshot.file_slices())


def write_context(
    storage: Storage,
    config: TableConfig,
    engine: Engine,
    options: Options,
    *,
    defaults: Mapping[str, str] | None = None,
    snapshot: Snapshot | None = None,
) -> WriteContext:
    """The context of a write to this table; `defaults` are options for settings that neither the job nor the table has,
    `snapshot` is the table if it was just read. Raises `InvalidOption` if options contradict the table."""
    if engine.is_distributed and storage.spec.in_this_process:
        engine = LocalEngine(options.write.tasks, note=_IN_MEMORY)
    snapshot = snapshot or open_snapshot(storage, config)
    if options.explicit:
        conflicts_with_table(options, TableConfig({**config.properties, **recorded_index_properties(snapshot)}))
    settled = with_table_settings(options, config.properties, defaults=defaults)
    return WriteContext(snapshot, engine, settled)


@dataclass
class Beginning:
    """The beginning of a call that writes. Its `context` is made each time that the call is run: with the table in its
    state then, the engine that fits the rows, and the options of the caller.

    `verb` is the operation that was called; `config` are the table's properties as they were read last, by this call
    where `was_read`.
    """

    storage: Storage
    config: TableConfig
    verb: str
    data: Any = None
    options: Mapping[str, Any] | None = None
    spark: Any | None = None
    reads: ReadSettings = field(default_factory=ReadSettings)
    was_read: bool = field(default=False, init=False)

    def context(self) -> WriteContext:
        """The context of a run. Raises `InvalidOption` if the options name another operation than the call."""
        opened = self._open()
        self.config, self.was_read = opened.config, True
        options = resolve_options(self.options)
        named = options.explicit.get(OPERATION, self.verb).strip().lower()
        if named != self.verb:
            raise InvalidOption(
                f"{OPERATION}={named} contradicts the {self.verb} that was called",
                hint=f"leave the option out, or call {_CALLS.get(named, 'lakebed.write')}",
                context={"option": OPERATION, "given": named, "verb": self.verb},
            )
        if options.read.worker_tuning and not self.reads.worker_tuning:
            options = replace(options, read=replace(options.read, worker_tuning=False))
        engine = choose_engine(self.data, self.spark, options, table_bytes=lambda: bytes_of_files(opened))
        context = write_context(self.storage, opened.config, engine, options, snapshot=opened)
        return replace(context, spark=session_of(self.data) or self.spark)

    def _open(self) -> Snapshot:
        """The table in its state now. On a slow storage it also reads the data that every write needs before it
        acquires the table lock: the folders that show the table's features, and the lock file."""
        if not is_remote(self.storage):
            return open_again(self.storage, self.config)
        snapshot, folders, _ = at_once(
            self.storage,
            lambda: open_again(self.storage, self.config),
            lambda: frozenset(self.storage.list_folders(HOODIE)),
            lambda: look_at_lock(self.storage),
        )
        return snapshot.with_folders(folders)


def write(
    df: Any,
    uri: str,
    options: Mapping[str, Any],
    mode: str = "append",
    *,
    storage_options: Mapping[str, str] | None = None,
    once: Once | None = None,
    after: Callable[[WriteContext, WriteResult], WriteResult] = lambda _, result: result,
) -> WriteResult | None:
    """Run the write of an existing Hudi job, and then the services that the table's settings make due. Returns the
    result of the write; None if `mode` is "ignore" and the table exists."""
    mode = save_mode(mode)
    job = resolve_options(options)
    storage = open_storage(uri, storage_options)
    if job.path and open_storage(job.path, storage_options).spec.uri != storage.spec.uri:
        raise InvalidOption(
            f"the options have path={job.path}, the call has {uri}",
            hint="leave path out of the options, or write to that place",
            context={"option": "path", "given": job.path, "uri": uri},
        )
    operation = job.operation or ""
    if operation in ("delete", "delete_partition") and mode != "append":
        raise InvalidOption(
            f"the operation {operation} with mode={mode!r} would not keep the table that it is to delete from",
            hint='write it with mode="append"',
            context={"operation": operation, "mode": mode},
        )
    try:
        config: TableConfig | None = load_settled(storage)
    except TableNotFound:
        if operation in ("delete", "delete_partition"):
            raise
        config = None
    if once is not None and mode == "overwrite" and operation != "insert_overwrite_table":
        raise InvalidOption(
            f"mode={mode!r} makes the table again, without the batches that it has recorded",
            hint=f"set {OPERATION}=insert_overwrite_table to replace its rows, or leave once= out",
            context={"mode": mode, "argument": "once"},
        )
    if config is not None and mode == "errorifexists":
        raise TableExists(f"there is a table at {uri}", hint='write with mode="append" or "overwrite"')
    if config is not None and mode == "ignore":
        return None
    engine = choose_engine(
        df,
        None,
        job,
        table_bytes=lambda: 0 if config is None else bytes_of_files(open_snapshot(storage, config)),
    )
    if config is None:
        refuse_foreign_files(storage, only_data=mode != "errorifexists")
        result = _write_new(storage, engine, df, job, once)
        return after(write_context(storage, load_settled(storage), engine, job), result)
    if mode == "overwrite" and operation != "insert_overwrite_table":
        named = replace(job, table=replace(job.table, name=job.table.name or config.name))
        lock = writers_lock(storage, job.write, config.name)
        result = recreate(storage, config, lambda staged: _write_new(staged, engine, df, named), lock)
        return after(write_context(storage, load_settled(storage), engine, named), result)
    verb = operation or _default_operation(config)
    if not operation and not config.key_fields:
        data, df = df, _repeatable(engine, df)
        _refuse_generated_keys(engine, data, df, open_snapshot(storage, config))

    def opened() -> WriteContext:
        return write_context(storage, load_settled(storage), engine, job, defaults=_HUDI_DEFAULTS)

    return after(*run_again(opened, lambda context, rows: run(context, verb, rows), df, verb, once))


def save_mode(mode: Any) -> Mode:
    """Spark's name of a save mode, in any case, or its `SaveMode` object.

    >>> save_mode("ErrorIfExists"), save_mode("error"), save_mode("default")
    ('errorifexists', 'errorifexists', 'errorifexists')
    """
    name = str(mode).strip().lower()
    if name in ("error", "default"):
        return "errorifexists"
    if name not in ("append", "overwrite", "errorifexists", "ignore"):
        raise InvalidOption(
            f"there is no save mode {mode!r}",
            hint="use append, overwrite, errorifexists or ignore",
            context={"mode": str(mode)},
        )
    return name


def _write_new(storage: Storage, engine: Engine, df: Any, job: Options, once: Once | None = None) -> WriteResult:
    """Create a table with the columns of the data, and write the data to it."""
    df = _repeatable(engine, df)
    config = _create(storage, engine, df, job)
    context = replace(write_context(storage, config, engine, job), stream_batch=once)
    with evaluated_once(engine, df) as rows:
        return run(context, job.operation or _default_operation(config), rows)


def _default_operation(config: TableConfig) -> str:
    return "upsert" if config.key_fields else "bulk_insert"


def _repeatable(engine: Engine, df: Any) -> Any:
    """The data in a form that can be read twice: a stream can be read only once, and a DataFrame is evaluated only
    once."""
    if cluster_of(df) is None:
        return arrow_rows(df, {})
    return df if engine.is_distributed else engine.rows(df).table


def _refuse_generated_keys(engine: Engine, data: Any, rows: Any, snapshot: Snapshot) -> None:
    """Raise an error for data that was read from the table, or that has its generated keys; `rows` are the rows of the
    data. Real Hudi would update the stored rows by these keys. Here each row would be stored a second time."""
    uri, name = snapshot.storage.spec.uri, snapshot.config.name
    has_keys = RECORD_KEY in engine.schema(engine.rows(rows)).names
    is_read = has_keys or is_noted(data, uri) or is_noted(rows, uri)
    if not is_read and may_be_read(data, uri):
        is_read = look_read(arrow_rows(rows, {}), Scan(snapshot).limit(_COMPARED_ROWS).to_batches())
    if not is_read:
        return
    problem = f"the rows bring record keys ({RECORD_KEY})" if has_keys else "the rows were read from this table"
    raise UnsupportedFeature(
        f"{problem}, but table {name!r} generates its keys, so that the rows would not be updated but added once more",
        hint="To update rows, make the table with a key (hoodie.datasource.write.recordkey.field). To add these rows"
        f" once more, set {OPERATION}=bulk_insert.",
        context={"column": RECORD_KEY} if has_keys else {"table": name},
    )


def _create(storage: Storage, engine: Engine, df: Any, job: Options) -> TableConfig:
    options = job.index
    rows = engine.rows(df)
    schema = engine.schema(rows)
    return create(
        storage,
        schema,
        settings=job.table,
        index=job_index(options, job.table.key_fields or ()) or options.type or "simple",
        buckets=options.buckets,
        hash_fields=options.fields or (),
        update_partition_path=options.update_partition,
        partition_buckets=options.partition_buckets,
        properties=creation_properties(job.explicit),
        profile=lambda: profile_of(schema, job.table, options, engine, rows),
    )


def run(context: WriteContext, operation: str, data: Any) -> WriteResult:
    """Run the Hudi operation named `operation`."""
    match operation.lower():
        case "upsert":
            return upsert(context, data)
        case "insert":
            return insert(context, data)
        case "bulk_insert":
            return bulk_insert(context, data)
        case "delete":
            return delete(context, data)
        case "insert_overwrite":
            return insert_overwrite(context, data, "partitions")
        case "insert_overwrite_table":
            return insert_overwrite(context, data, "table")
        case "delete_partition":
            partitions = context.settings.partitions_to_delete
            return delete_partitions(context, partitions or _partitions_of(context, data))
        case _:
            raise InvalidOption(f"there is no operation {operation!r}", context={"operation": operation})


def _partitions_of(context: WriteContext, data: Any) -> list[str]:
    """The partition paths of the rows, for a delete_partition job that does not name any."""
    engine = context.engine
    rows = engine.derive(incoming_rows(context, data), {"_hoodie_partition_path": context.keys.partition_path}, keep=[])
    return [p for p in engine.aggregate(rows, ["_hoodie_partition_path"]).column(0).to_pylist() if p is not None]
