"""One job of ingest, round by round: poll, transform, bad rows, then rows and checkpoint in one commit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed import lineage
from lakebed.api import create, exists
from lakebed.api import open as open_table
from lakebed.catalog.names import table_uri
from lakebed.errors import (
    CommitConflict,
    ConflictKind,
    InvalidOption,
    InvalidRecord,
    LakebedError,
    SchemaConflict,
    TableExists,
    TableNotFound,
)
from lakebed.ingestion.checkpoints import STREAM, StoredCheckpoint, read_checkpoint
from lakebed.ingestion.error_table import write_bad_rows
from lakebed.ingestion.field_names import possible_columns
from lakebed.ingestion.job import IngestJob
from lakebed.ingestion.json_messages import without_null_types
from lakebed.ingestion.moving_rows import index_defaults, searched_partition
from lakebed.ingestion.registry import source_of
from lakebed.ingestion.result import IngestEvent
from lakebed.ingestion.source import (
    RECORD_FAILURE,
    SCHEMA_FAILURE,
    TRANSFORM_FAILURE,
    WRITE_FAILURE,
    BadRow,
    IngestPoll,
    Origin,
    bad_table,
    poll_of,
)
from lakebed.ingestion.transform import failing_rows, transformed
from lakebed.merge.rules import MergeRules
from lakebed.model import IS_DELETED_COLUMN
from lakebed.operations.once import BatchBeforeIsMissing, NextBatch
from lakebed.operations.refused_rows import refused_rows
from lakebed.operations.result import WriteResult
from lakebed.progress import progress
from lakebed.properties.table_config import CURRENT_VERSION, TableConfig
from lakebed.schema.conversion import readable_texts
from lakebed.secrets import masked_text
from lakebed.services.daemon import run as run_services
from lakebed.storage import open_storage
from lakebed.table import Table

# How often a round begins again after another job of ingest committed first.
_ATTEMPTS = 5
_NULLS = "hoodie.write.set.null.for.missing.columns"
_NULL_ORDERING = "lakebed.write.null.ordering"
_PARTIAL = "lakebed.write.partial"


class JobRounds:
    """The rounds of one job. `checkpoint` and `ignore` are texts of the caller, each followed once."""

    def __init__(self, job: IngestJob, *, checkpoint: str | None = None, ignore: str | None = None) -> None:
        self.job = job
        self._checkpoint, self._ignore = checkpoint, ignore
        self._source = source_of(job.source)
        if self._source.repeats_rows and job.target.operation != "upsert":
            raise InvalidOption(
                f"{job.label}: the source reads rows of its last value again, and {job.target.operation} would write"
                " them twice",
                hint='set operation = "upsert" and name the key',
                context={"operation": job.target.operation},
            )
        self._storage_options: Mapping[str, str] = job.target.storage_options or {}
        self._was_there = False
        # the position of a job whose table cannot be created yet, since there were only bad rows so far
        self._position: str | None = None

    def bound(self) -> None:
        """Make polls stop at the present end of the source."""
        self._source.is_bounded = True

    def close(self) -> None:
        """Release the source's connections."""
        self._source.close()

    def run(self, *, services: bool = False) -> tuple[IngestEvent, bool]:
        """Run one round. Returns its event, and whether the next round can follow at once. Rows and checkpoint are
        committed together. A source without new rows makes no commit. With `services` the services that the table's
        settings make due run after a commit."""
        for _ in range(_ATTEMPTS):
            done = self._round(services=services)
            if done is not None:
                return done
        raise CommitConflict(
            f"other jobs of ingest wrote into {self.job.target.uri} {_ATTEMPTS} times while {self.job.label} read",
            hint="run one job at a time on a table, or several in one process",
            context={"uri": self.job.target.uri},
            kind=ConflictKind.CHANGED,
        )

    def _round(self, *, services: bool) -> tuple[IngestEvent, bool] | None:
        """The event of one round, and whether the next can follow at once; None if another job committed since the
        checkpoint was read, so that nothing was committed."""
        started = time.monotonic()
        table = self._open()
        with progress(f"ingesting {self.job.label}"):
            stored = StoredCheckpoint(True) if table is None else read_checkpoint(self._storage(), self.job.identifier)
            position = stored.start(self._checkpoint, self._ignore)
            if table is None and self._position is not None:
                position = self._position
            self._source.types = self._types(table)
            is_moved = self._source.moves_rows and self.job.transform is None
            create_arguments = self.job.target.create or {}
            self._source.partition_fields = searched_partition(table, create_arguments) if is_moved else ()
            poll = poll_of(self._source.poll(position, self.job.max_rows))
            if poll.checkpoint is None or poll.checkpoint == position:
                seconds = time.monotonic() - started
                uri = self.job.target.uri
                event = IngestEvent("nothing", self.job.label, uri, checkpoint=position, lag=poll.lag, seconds=seconds)
                return event, poll.more
            try:
                done = self._taken(poll, table, stored, position)
            except TableNotFound as error:
                if "job" in error.context:
                    raise
                raise self._dropped() from error
            if done is None:
                return None
            intake, result = done
        ran = self._serve() if services and result is not None else ()
        return IngestEvent(
            "committed",
            self.job.label,
            self.job.target.uri,
            rows=0 if intake.rows is None else intake.rows.num_rows,
            bad_rows=sum(part.num_rows for part in intake.bad),
            checkpoint=poll.checkpoint,
            lag=poll.lag,
            write=result,
            services=ran,
            seconds=time.monotonic() - started,
        ), poll.more

    def _taken(
        self, poll: IngestPoll, table: Table | None, stored: StoredCheckpoint, position: str | None
    ) -> tuple[_Taken, WriteResult | None] | None:
        """Write the rows of a poll with its checkpoint. Returns them and the write's result (None without a write);
        None if the table has another checkpoint meanwhile."""
        assert poll.checkpoint is not None
        intake = self._accepted(poll, table)
        self._write_bad(intake.bad)
        if intake.table is None:
            self._position = poll.checkpoint
            return intake, None
        if table is None:
            stored = read_checkpoint(self._storage(), self.job.identifier)
            if stored.value is not None:
                return None
        elif not stored.batch:
            self._check_still_there(stored)  # a checkpoint of Hudi Streamer, which counts no batches
        extra = stored.metadata(poll.checkpoint, self._checkpoint, self._ignore)
        try:
            result = self._written(intake.table, intake, (stored.batch, extra), (position, poll.checkpoint))
        except BatchBeforeIsMissing:
            self._check_still_there(stored)
            return None  # the table was restored: it is read after its own checkpoint
        return None if result.skipped else (intake, result)

    def _open(self) -> Table | None:
        """The target table; None if the job creates it with its first rows."""
        target = self.job.target
        try:
            table = open_table(target.uri, storage_options=self._storage_options)
        except TableNotFound as error:
            if self._was_there:
                raise self._dropped() from error
            if target.create is None:
                hint = "create it, or let the job do so: [target] create = { key = ... }"
                raise TableNotFound(error.message, hint=hint, context=error.context) from error
            if exists(target.uri, storage_options=self._storage_options):
                raise
            return None
        self._was_there = True
        return table

    def _dropped(self, event: str = "was dropped") -> TableNotFound:
        return TableNotFound(
            f"the table {self.job.target.uri} {event} while the job {self.job.label} ran",
            hint="start the job again to create it and to read the source from its start",
            context={"uri": self.job.target.uri, "job": self.job.label},
        )

    def _storage(self) -> Any:
        return open_storage(table_uri(self.job.target.uri), self._storage_options)

    def _check_still_there(self, stored: StoredCheckpoint) -> None:
        """Raise `TableNotFound` if the table does not have a checkpoint any more, so that it is a different table."""
        if stored.value is not None and read_checkpoint(self._storage(), self.job.identifier).value is None:
            raise self._dropped("was dropped and created again")

    def _types(self, table: Table | None) -> Mapping[str, pa.DataType]:
        """The types that the source's columns must have: the table's, unless the job has a transform."""
        if table is None or self.job.transform is not None:
            return {}
        return {column.name: column.type for column in table.schema}

    def _accepted(self, poll: IngestPoll, table: Table | None) -> _Taken:
        """The rows to write, the bad rows, and the table, which is created here. Raises `InvalidRecord` for a bad row
        if there is no table of errors."""
        bad = [] if poll.bad is None else [poll.bad]
        self._check(bad)
        rows, checkpoint = poll.rows, poll.checkpoint or ""
        if rows is not None and rows.num_rows and self.job.transform is not None:
            rows, failed = self._transform(rows, poll.origin)
            bad.append(failed)
            self._check(bad)
        intake = _Taken(rows, bad, table, None if self.job.transform is not None else poll.origin)
        self._check_names(intake, checkpoint)
        if table is None and intake.rows is not None and intake.rows.num_rows:
            # deletes alone have nothing to delete: no table is made for them
            is_delete = MergeRules().is_delete(intake.rows)
            if is_delete is None or not pc.all(is_delete).as_py():
                intake.table = table = self._create(intake.rows)
        if table is not None and intake.rows is not None and intake.rows.num_rows:
            lacks, text = _lack_keys(intake.rows, table, self.job.target.options)
            if lacks is not None:
                numbers = pc.indices_nonzero(lacks).to_pylist()
                texts = [text] * len(numbers)
                self._check([intake.leave_out(numbers, RECORD_FAILURE, texts, checkpoint)])
            if self._source.deletes_by_key:
                self._check_deletes(intake, table, checkpoint)
        return intake

    def _check_names(self, intake: _Taken, checkpoint: str) -> None:
        """Mark rows with a value in a field whose name no table can have as bad, and remove such fields."""
        if intake.rows is None or not intake.rows.num_rows:
            return
        intake.rows = rows = without_null_types(intake.rows)
        refused = possible_columns(rows).refused
        if self.job.transform is not None and len(refused) == rows.num_rows:
            return  # the query names columns that no table can have: the write says so
        numbers = sorted(refused)
        if numbers:
            texts = [refused[number] for number in numbers]
            self._check([intake.leave_out(numbers, SCHEMA_FAILURE, texts, checkpoint)])
        intake.rows = possible_columns(intake.rows).rows

    def _check_deletes(self, intake: _Taken, table: Table, checkpoint: str) -> None:
        """Mark deletes that no index finds, because their keys lack a partition column, as bad rows."""
        rows, fields = intake.rows, TableConfig(dict(table.properties)).partition_fields
        if rows is None or IS_DELETED_COLUMN not in rows.column_names or not fields or table.indexes.index.is_global:
            return
        lacks: Any = pc.is_null(rows.column(IS_DELETED_COLUMN))
        for name in fields:
            has = pc.is_valid(rows.column(name)) if name in rows.column_names else pa.scalar(False)
            lacks = pc.or_(lacks, pc.and_not(rows.column(IS_DELETED_COLUMN), has))
        numbers = pc.indices_nonzero(lacks).to_pylist()
        if numbers:
            text = f"a delete lacks a column of the partition path: {', '.join(fields)}"
            self._check([intake.leave_out(numbers, RECORD_FAILURE, [text] * len(numbers), checkpoint)])

    def _write_bad(self, bad: Sequence[pa.Table]) -> None:
        """Write bad rows into the table of errors."""
        if any(part.num_rows for part in bad):
            write_bad_rows(self.job.errors, pa.concat_tables(bad))

    def _check(self, bad: Sequence[pa.Table]) -> None:
        first = next((table for table in bad if table.num_rows), None)
        if first is None or not self.job.errors.fails:
            return
        position, _, reason, error = (first.column(name)[0].as_py() for name in first.column_names)
        count = sum(table.num_rows for table in bad)
        more = f"; so are {count - 1:,} more" if count > 1 else ""
        raise InvalidRecord(
            f"{self.job.label}: {position} is no row of the table: {error}{more}",
            hint="correct it in the source, or let a table take such rows: [errors] table = ...",
            context={"position": position, "reason": reason, "count": count, "job": self.job.label},
        )

    def _transform(self, rows: pa.Table, origin: Origin | None) -> tuple[pa.Table, pa.Table]:
        """The transformed rows, and the input rows for which the transform fails."""
        assert self.job.transform is not None
        try:
            return transformed(rows, self.job.transform), bad_table([])
        except InvalidRecord:
            failed = failing_rows(rows, self.job.transform)
            if not failed:
                raise  # the query fails only on all rows together
        numbers = [number for number, _ in failed]
        positions, payloads = _origins(rows, numbers, origin, "transform")
        errors = [error for _, error in failed]
        bad = [
            BadRow(*part) for part in zip(positions, payloads, [TRANSFORM_FAILURE] * len(failed), errors, strict=True)
        ]
        is_accepted = pc.invert(pc.is_in(pa.array(range(rows.num_rows)), pa.array(numbers)))
        return transformed(rows.filter(is_accepted), self.job.transform), bad_table(bad)

    def _create(self, rows: pa.Table) -> Table:
        target = self.job.target
        named = target.create or {}
        arguments = self._arguments(rows, named)
        try:
            table = create(target.uri, rows.schema, storage_options=self._storage_options, **arguments)
        except TableExists:  # another job made it meanwhile
            table = open_table(target.uri, storage_options=self._storage_options)
        except TypeError as error:  # an argument that create does not have
            raise InvalidOption(
                f"{self.job.label} [target] create: {error}", hint="its keys are the arguments of lakebed.create"
            ) from error
        self._was_there = True
        return table

    def _arguments(self, rows: pa.Table, named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a new table: the job's, otherwise the source's, which need no order if the job names one."""
        try:
            defaults = dict(self._source.table_defaults(rows, named.get("table_version", CURRENT_VERSION)))
        except InvalidOption:
            if "ordering" not in named and "merge" not in named:
                raise
            defaults = {}
        index = index_defaults(named) if self._source.moves_rows else {}
        properties = {**defaults.get("properties", {}), **index.get("properties", {}), **named.get("properties", {})}
        return {**defaults, **index, **named, **({"properties": properties} if properties else {})}

    def _written(
        self, table: Table, intake: _Taken, batch: tuple[int, Mapping[str, str]], span: tuple[str | None, str]
    ) -> WriteResult:
        """Write rows as a batch of ingest, with its entries of the commit metadata. A batch that the table has is not
        written: another job wrote it. Rows that the write refuses are bad rows."""
        try:
            return self._write(table, intake.rows, batch)
        except InvalidRecord as error:
            refused: list[tuple[int, str]] = []
            if intake.rows is not None:
                context = table.opened.context(intake.rows, self._options(), "upsert")
                refused = refused_rows(context, intake.rows)
            if not refused:
                raise self._of_span(error, span) from error
            numbers, texts = [number for number, _ in refused], [text for _, text in refused]
            bad = intake.leave_out(numbers, WRITE_FAILURE, texts, span[1])
            self._check([bad])
            self._write_bad([bad])
        except SchemaConflict as error:
            raise self._of_span(error, span) from error
        try:
            return self._write(table, intake.rows, batch)
        except (InvalidRecord, SchemaConflict) as error:
            raise self._of_span(error, span) from error

    def _write(self, table: Table, rows: pa.Table | None, batch: tuple[int, Mapping[str, str]]) -> WriteResult:
        data = table.schema.empty_table() if rows is None or not rows.num_rows else rows
        write = {"upsert": table.upsert, "insert": table.insert, "bulk_insert": table.bulk_insert}
        number, extra = batch
        once = NextBatch(STREAM, number, STREAM)
        options = {**self._options(), **extra}
        with lineage.reading(self._source.read_uris):
            return write[self.job.target.operation](data, progress=False, options=options, once=once)

    def _options(self) -> dict[str, Any]:
        """The options of each write of the job."""
        options: dict[str, Any] = dict(self.job.target.options)
        if not options.get(_PARTIAL):
            options.setdefault(_NULLS, True)
        return options

    def _of_span(
        self, error: InvalidRecord | SchemaConflict, span: tuple[str | None, str]
    ) -> InvalidRecord | SchemaConflict:
        """The error with the checkpoints between which its rows are."""
        message = f"{self.job.label}, rows after checkpoint {span[0]} up to {span[1]}: {error.message}"
        return type(error)(message, hint=error.hint, context={**error.context, "checkpoint": span[0]})

    def _serve(self) -> tuple[str, ...]:
        """Run the services that the table's settings make due; returns a line for each service that ran or failed."""
        events = run_services(self.job.target.uri, once=True, storage_options=self._storage_options)
        return tuple(str(event) for event in events if event.kind in ("ran", "failed"))


@dataclass
class _Taken:
    """The data that a round writes: rows and their origin, the bad rows, and the table; None for a table that does not
    exist."""

    rows: pa.Table | None
    bad: list[pa.Table]
    table: Table | None
    origin: Origin | None

    def leave_out(self, numbers: Sequence[int], reason: str, errors: Sequence[str], checkpoint: str) -> pa.Table:
        """Remove the rows with these numbers, and return them as bad rows."""
        rows, origin = self.rows, self.origin
        assert rows is not None
        positions, payloads = _origins(rows, list(numbers), origin, checkpoint)
        bad = bad_table([BadRow(*part) for part in zip(positions, payloads, repeat(reason), errors, strict=False)])
        left = np.delete(np.arange(rows.num_rows), list(numbers))

        def origin_of_left(of: Sequence[int]) -> tuple[list[str], list[bytes]]:
            return _origins(rows, [int(left[number]) for number in of], origin, checkpoint)

        self.rows, self.origin = rows.take(pa.array(left)), origin_of_left
        self.bad.append(bad)
        return bad


def _lack_keys(rows: pa.Table, table: Table, options: Mapping[str, Any]) -> tuple[pa.ChunkedArray | None, str]:
    """Flags of the rows that lack a record key or an ordering value, None if no row does; and the name of what they
    lack."""
    properties = {**table.properties, **options}
    config = TableConfig(properties)
    keys = config.key_fields
    is_smallest = str(properties.get(_NULL_ORDERING, "")).lower() == "lowest"
    orders = () if is_smallest else config.ordering_fields
    missing = [name for name in (*keys, *orders) if "." not in name and name not in rows.column_names]
    if missing or any("." in name for name in (*keys, *orders)):
        return None, ""  # the write names what is missing
    lacks: Any = None
    for name in orders:
        lacks = _either(lacks, pc.is_null(rows.column(name)))
    if keys:
        no_key = pc.is_null(rows.column(keys[0]))
        for name in keys[1:]:
            no_key = pc.and_(no_key, pc.is_null(rows.column(name)))
        lacks = _either(lacks, no_key)
    if lacks is None or not pc.any(lacks).as_py():
        return None, ""
    return lacks, f"a column of the record key or of the ordering is null: {', '.join((*keys, *orders))}"


def _either(flags: Any, other: Any) -> Any:
    return other if flags is None else pc.or_(flags, other)


def _origins(
    rows: pa.Table, numbers: list[int], origin: Origin | None, checkpoint: str
) -> tuple[list[str], list[bytes]]:
    """The positions and payloads of rows: those of the source, otherwise the number of the row before a checkpoint and
    its text."""
    if origin is not None:
        return origin(numbers)
    selected = readable_texts(rows.take(numbers))
    return [f"{checkpoint}#{number}" for number in numbers], [str(row).encode() for row in selected.to_pylist()]


def failure(job: IngestJob, error: Exception, seconds: float | None) -> IngestEvent:
    """The event of a round that failed and is tried again after `seconds`; None ends the job."""
    text = error.message if isinstance(error, LakebedError) else masked_text(f"{type(error).__name__}: {error}")
    return IngestEvent("failed", job.label, job.target.uri, text=text, seconds=seconds, error=error)
