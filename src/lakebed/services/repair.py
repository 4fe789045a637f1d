"""`repair` of a table: one part after the other, each under the table lock: properties, partition folders, orphan
files, keys in two forms, repeated keys, the metadata table.

A file is an orphan only if the timeline reaches back to its time and does not have its instant. If a key is stored
several times, the copy that was written last stays. The result lists the damage of each part, and whether it is
repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.lock import Lock
from lakebed.concurrency.providers import writers_lock
from lakebed.config.options import resolve_options
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Rows, persisted
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption, LakebedError, UnsupportedFeature
from lakebed.expressions.key_generators import NAMED, PLAIN
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.format.log_file import BlockType, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.handles.file_writer import write_partition_metadata
from lakebed.index.simple import positions_of
from lakebed.merge.locations import STORED_LOCATION
from lakebed.metadata.lookups import open_snapshot, snapshot_of
from lakebed.metadata_kinds.stored import DIFFERENCES
from lakebed.model import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    DERIVED,
    FILE_ID,
    FILE_NAME,
    HOODIE,
    INSTANT,
    PARTITION_PATH,
    RECORD_KEY,
    BaseFile,
    FileSlice,
    LogFile,
    WriteStat,
    has_completion_times,
    path_in,
)
from lakebed.operations.context import TableSchema, WriteContext, table_schema
from lakebed.operations.hudi_job import session_engine, write_context
from lakebed.operations.pipeline import Verb, admit, run
from lakebed.operations.placement import Placed, TaggedRows
from lakebed.operations.result import WriteResult
from lakebed.operations.upsert import upsert
from lakebed.operations.write import RowMatch, Write
from lakebed.properties.features import check_write
from lakebed.properties.file import (
    load_same_table,
    load_table_config,
    mend_properties,
    name_if_readable,
    refuse_other_table,
    update_table_config,
)
from lakebed.properties.table_config import INDEX_CHECKED, INDEX_REPEATED
from lakebed.read.lookup import KeyText, get
from lakebed.read.plan import data_columns
from lakebed.schema.evolution import project
from lakebed.services.verify import repair as repair_metadata
from lakebed.services.verify import verify
from lakebed.sharing import once
from lakebed.slices.key_rows import rows_of_keys
from lakebed.slices.listing import PARTITION_METADATA, list_metadata
from lakebed.slices.newest_files import named_keys
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot, metadata_damage_named, table_features
from lakebed.storage.base import FileInfo, Storage
from lakebed.timeline.history import has_unchecked_inserts
from lakebed.timeline.timeline import Timeline, completed_at, load_timeline
from lakebed.wording import Printed, count_text

_DELETES = RowMatch("keys", deletes=True)
_REPLACES = RowMatch("one")
_NEWEST = (COMMIT_TIME, COMMIT_SEQNO, FILE_ID)


@dataclass(frozen=True)
class Copies:
    """The rows of keys that are stored several times, except the newest row of each key. `elsewhere` has the locations
    of those in other file groups than the newest row. `nearby` counts those in the newest row's file group, by
    location."""

    elsewhere: pa.Table
    nearby: pa.Table

    def counts(self) -> pa.Table:
        """The number of rows of each key to delete (`count_sum`), in the order of the keys."""
        ones = self.elsewhere.select([RECORD_KEY]).append_column("count", pa.repeat(1, len(self.elsewhere)))
        counted = pa.concat_tables([ones, self.nearby.select([RECORD_KEY, "count"])])
        return counted.group_by(RECORD_KEY).aggregate([("count", "sum")]).sort_by(RECORD_KEY)


def find_copies(context: WriteContext, snapshot: Snapshot) -> Copies:
    """The rows of repeated keys that a repair deletes: all but the newest row of each key."""
    engine = context.engine
    names = [RECORD_KEY, PARTITION_PATH, COMMIT_TIME, COMMIT_SEQNO, *positions_of(snapshot)]
    stored = engine.read_columns(snapshot, snapshot.file_slices(), [*names, FILE_NAME])
    placed = engine.collect(engine.derive(stored, STORED_LOCATION, keep=names))
    by = [RECORD_KEY] if context.index.is_global else [RECORD_KEY, PARTITION_PATH]
    return _without_newest(placed, by)


def _without_newest(rows: pa.Table, by: list[str]) -> Copies:
    counts = rows.group_by(by).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1)).select(by)
    rows = rows.join(twice, keys=by, join_type="inner")
    if not rows.num_rows:
        return Copies(rows, rows.append_column("count", pa.array([], pa.int64())))
    newest: list[tuple[str, str]] = [(name, "descending") for name in _NEWEST]
    rows = rows.sort_by([*((name, "ascending") for name in by), *newest]).combine_chunks()
    begins = _begins(rows, by)
    keeper = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
    same = [pc.equal(rows[name], rows[name].take(pa.array(keeper))) for name in (PARTITION_PATH, FILE_ID)]
    in_same = pc.and_(*same).to_numpy()
    more = np.bincount(keeper[in_same], minlength=len(rows)) - begins
    nearby = rows.append_column("count", pa.array(more)).filter(pa.array(more > 0))
    return Copies(rows.filter(pa.array(~in_same)), nearby)


def _begins(rows: pa.Table, by: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Flags of the rows, which are sorted, that are the first of their key."""
    begins = np.zeros(len(rows), dtype=bool)
    begins[0] = True
    for name in by:
        values = rows[name].combine_chunks()
        begins[1:] |= pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    return begins


@dataclass(frozen=True, kw_only=True)
class _CopiesVerb(Verb):
    """A verb whose rows already have locations, so that no index is used."""

    unique: bool = False

    def schema(self, context: WriteContext, snapshot: Snapshot) -> TableSchema:
        return table_schema(context, snapshot, snapshot.schema)


@dataclass(frozen=True, kw_only=True)
class DeleteCopies(_CopiesVerb):
    """The verb that deletes the keys of copies from the file groups that do not have the newest row."""

    operation: str = "DELETE"
    match: RowMatch = _DELETES

    def prepare(self, write: Write) -> Rows:
        copies = find_copies(write.context, write.snapshot).elsewhere
        return write.context.engine.from_arrow(copies.drop_columns([COMMIT_TIME, COMMIT_SEQNO]))

    @contextmanager
    def place(self, write: Write, prepared: Rows) -> Generator[Placed]:
        with persisted(write.context.engine, prepared) as rows:
            yield TaggedRows(write, rows)


@dataclass(frozen=True, kw_only=True)
class KeepNewest(_CopiesVerb):
    """A verb that writes file groups with several rows of a key again, with the newest row alone."""

    operation: str = "UPSERT"
    match: RowMatch = _REPLACES

    def prepare(self, write: Write) -> Rows:
        near, schema = find_copies(write.context, write.snapshot).nearby, write.schema.data
        rows: list[pa.Table] = []
        for file_slice in write.snapshot.file_slices():
            in_slice = pc.and_(
                pc.equal(near[PARTITION_PATH], file_slice.partition), pc.equal(near[FILE_ID], file_slice.file_id)
            )
            newest = near.filter(in_slice).combine_chunks()
            if newest.num_rows:
                rows.append(_rows_of(write.snapshot.reader, file_slice, newest, schema))
        if not rows:
            raise CommitConflict(
                "the rows of repeated keys changed while they were repaired",
                hint="run the repair again",
                kind=ConflictKind.CHANGED,
            )
        return write.context.engine.from_arrow(pa.concat_tables(rows))

    @contextmanager
    def place(self, write: Write, prepared: Rows) -> Generator[Placed]:
        counted = write.context.engine.aggregate(prepared, [PARTITION_PATH, FILE_ID], [])
        groups = set(zip(counted[PARTITION_PATH].to_pylist(), counted[FILE_ID].to_pylist(), strict=True))
        busy = sorted(groups & write.snapshot.timeline.pending_compaction.keys())
        if busy:
            raise CommitConflict(
                f"file group {busy[0][1]} in partition {busy[0][0]!r} is in a pending compaction",
                hint="run t.maintenance.compact() first",
                kind=ConflictKind.PLANNED,
            )
        with persisted(write.context.engine, prepared) as rows:
            yield TaggedRows(write, rows, renewed=frozenset(groups))


def _rows_of(reader: SliceReader, file_slice: FileSlice, newest: pa.Table, schema: pa.Schema) -> pa.Table:
    """The newest row of each key in a slice, with its location, in the table's present columns."""
    keys = newest[RECORD_KEY].combine_chunks().cast(pa.string())
    full = pa.schema([*((name, pa.string()) for name in (RECORD_KEY, COMMIT_SEQNO)), *schema])
    batches = rows_of_keys(reader, file_slice, keys.take(pc.sort_indices(keys)), full.names, schema=full)
    stored = pa.Table.from_batches([project(batch, full) for batch in batches], full)
    wins = pc.equal(stored[COMMIT_SEQNO], newest[COMMIT_SEQNO].take(pc.index_in(stored[RECORD_KEY], value_set=keys)))
    stored = stored.filter(wins)
    # two rows of one key and sequence number are equal
    stored = stored.take(pc.index_in(keys, value_set=stored[RECORD_KEY].combine_chunks()))
    rows = newest.select([RECORD_KEY, PARTITION_PATH, FILE_ID, INSTANT])
    for name in schema.names:
        rows = rows.append_column(schema.field(name), stored[name])
    return rows


def delete_copies(context: WriteContext, copies: Copies) -> list[WriteResult]:
    """Delete all copies of a key except the newest: one commit for copies in other file groups, one for copies in the
    newest row's group."""
    done = [run(context, DeleteCopies())] if copies.elsewhere.num_rows else []
    if copies.nearby.num_rows:
        if done:
            context = replace(context, opened=open_snapshot(context.storage))
        done.append(run(context, KeepNewest()))
    return done


_FIELD_VALUE, _OTHER_FORM, _WINS = f"{DERIVED}field_value", f"{DERIVED}other_form", f"{DERIVED}wins"
_ROW = [RECORD_KEY, PARTITION_PATH, COMMIT_SEQNO]


def keys_in_other_form(context: WriteContext, snapshot: Snapshot, form: str) -> pa.Table:
    """The stored rows whose complex keys of one field are not in this form (`PLAIN`, `1`, or `NAMED`, `id:1`), with
    their locations, and flags of the winning row of each key: by the ordering fields, then by commit."""
    rules, engine = context.rules, context.engine
    ordering = list(rules.ordering) if rules.picks_winners and rules.compares_columns else []
    names = [RECORD_KEY, PARTITION_PATH, COMMIT_TIME, COMMIT_SEQNO, *ordering, *positions_of(snapshot)]
    stored = engine.read_columns(snapshot, snapshot.file_slices(), [*names, FILE_NAME])
    rows = engine.collect(engine.derive(stored, STORED_LOCATION, keep=names)).combine_chunks()
    keys, prefix = rows[RECORD_KEY].combine_chunks().cast(pa.string()), f"{snapshot.config.key_fields[0]}:"
    named = named_keys(keys, prefix)
    is_other = pc.invert(named) if form == NAMED else named
    if not is_other.true_count:
        return rows.slice(0, 0).append_column(_WINS, pa.array([], pa.bool_()))
    values = pc.if_else(named, pc.utf8_slice_codeunits(keys, len(prefix)), keys)
    rows = rows.append_column(_FIELD_VALUE, values).append_column(_OTHER_FORM, is_other)
    by = [_FIELD_VALUE] if context.index.is_global else [_FIELD_VALUE, PARTITION_PATH]
    descending = [*ordering, COMMIT_TIME, COMMIT_SEQNO, FILE_ID]
    rows = rows.sort_by([*((n, "ascending") for n in by), *((n, "descending") for n in descending)]).combine_chunks()
    wins = pa.array(_begins(rows, by))
    return rows.append_column(_WINS, wins).filter(rows[_OTHER_FORM]).drop_columns([_FIELD_VALUE, _OTHER_FORM])


def _row_ids(rows: pa.Table) -> pa.Array:
    """A text for each stored row that is unique to the row."""
    parts = [rows[name].cast(pa.string()).combine_chunks() for name in _ROW]
    return pc.binary_join_element_wise(*parts, "\0")


@dataclass(frozen=True, kw_only=True)
class DeleteOtherForm(_CopiesVerb):
    """The verb that deletes rows with keys in the other form at their locations; rows that have changed since are not
    deleted."""

    form: str
    rows: pa.Table
    operation: str = "DELETE"
    match: RowMatch = _DELETES

    def prepare(self, write: Write) -> Rows:
        now = keys_in_other_form(write.context, write.snapshot, self.form)
        unchanged = now.filter(pc.is_in(_row_ids(now), value_set=_row_ids(self.rows)))
        location = [RECORD_KEY, PARTITION_PATH, FILE_ID, INSTANT, *positions_of(write.snapshot)]
        return write.context.engine.from_arrow(unchanged.select(location))

    @contextmanager
    def place(self, write: Write, prepared: Rows) -> Generator[Placed]:
        with persisted(write.context.engine, prepared) as rows:
            yield TaggedRows(write, rows)


def give_one_form(context: WriteContext, rows: pa.Table, form: str) -> list[str]:
    """Change keys in the other form to this one; returns the instants of the commits. The rows are upserted, unless
    another row of their key wins, and then deleted under their old key: if the second commit fails the keys are stored
    twice, as before, and the repair can be run again."""
    context = replace(context, opened=replace(context.opened, written_key_form=form))
    winners = rows.filter(rows[_WINS])
    instants: list[str] = []
    if winners.num_rows:
        columns = data_columns(context.opened).names
        stored = get(context.opened, KeyText(pc.unique(winners[RECORD_KEY].combine_chunks())), [*_ROW, *columns])
        whole_rows = stored.filter(pc.is_in(_row_ids(stored), value_set=_row_ids(winners))).select(columns)
        instants.append(upsert(context, whole_rows).instant)
    now = replace(open_snapshot(context.storage, context.opened.config), written_key_form=form)
    return [*instants, run(replace(context, opened=now), DeleteOtherForm(rows=rows, form=form)).instant]


_ROWS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA, BlockType.DELETE)


class Orphans:
    """A search for the orphans of a table. Its `snapshot` was opened after the files were listed, so that a writer
    since then has an instant in it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._timeline = snapshot.timeline

    def among(self, files: Iterable[FileInfo]) -> Iterator[FileInfo]:
        """The orphans among these data files."""
        if not self._timeline.commits:
            return
        for info in files:
            file = data_file(info)
            if file is not None and self._is_orphan(file):
                yield info

    def _is_orphan(self, file: BaseFile | LogFile) -> bool:
        if isinstance(file, LogFile) and self._goes_by_slice(file):
            return self._has_lost_blocks_alone(file)
        timeline, instant = self._timeline, file.instant
        is_completed = timeline.is_completed(instant)
        if file.path in self._named or (instant >= self._before and not is_completed):
            return False
        if timeline.start is not None and instant < timeline.start and not self._is_unknown_to_archive(instant):
            return False
        if is_completed and not self._names_files(instant):
            return False
        return file.path not in self._listed

    def _goes_by_slice(self, log: LogFile) -> bool:
        """Whether a log file is named after its slice: on version 6, and for files that an upgrade left from it."""
        if not has_completion_times(self._snapshot.config.version):
            return True
        return not log.is_cdc and (log.partition, log.file_id, log.instant) in self._begun

    def _has_lost_blocks_alone(self, log: LogFile) -> bool:
        """Whether all blocks of a log file belong to instants that were undone before their writers ended; the name of
        the log file does not show its writer. Blocks that rollbacks hide are in listed files, which stay."""
        start = self._timeline.start
        if self._snapshot.metadata is None or start is None or log.path in self._named or log.path in self._listed:
            return False
        heads = list(scan_blocks(FileSource(self._snapshot.storage, log.path, log.size)))
        times = {i.time for i in self._timeline.instants}
        undone = (start < h.instant < self._before and h.instant not in times for h in heads)
        return bool(heads) and all(h.type in _ROWS for h in heads) and all(undone)

    @once
    def _begun(self) -> frozenset[tuple[str, str, str]]:
        """The slices (partition path, file id, instant) that base files of the timeline's commits began."""
        parts = (path.rpartition("/") for path in self._named)
        bases = (parse_base_file(folder, name, 0) for folder, _, name in parts)
        return frozenset((base.partition, base.file_id, base.instant) for base in bases if base is not None)

    @once
    def _before(self) -> str:
        """The oldest instant whose files may belong to a living writer."""
        pending = [i.time for i in self._timeline.pending]
        return min([*pending, self._timeline.greatest_time])

    @once
    def _named(self) -> frozenset[str]:
        commits = self._timeline.commits_metadata(self._timeline.commits)
        stats = (stat for commit in commits for group in commit.stats.values() for stat in group)
        return frozenset(path for stat in stats for path in (*stat.paths, *_other_files(stat)))

    def _names_files(self, instant: str) -> bool:
        commit = self._timeline.commit(instant)
        return commit is not None and any(self._timeline.commit_metadata(commit).stats.values())

    def _is_unknown_to_archive(self, instant: str) -> bool:
        archived = self._archived
        return bool(archived) and min(archived) < instant and instant not in archived

    @once
    def _archived(self) -> frozenset[str]:
        return frozenset(i.time for i in self._timeline.archived().instants)

    @once
    def _listed(self) -> frozenset[str]:
        """The files that the metadata table lists. Raises `CorruptFile` if the list is damaged, which is another kind
        of damage."""
        if self._snapshot.metadata is None:
            return frozenset()
        with metadata_damage_named(self._snapshot.storage):
            listing = list_metadata(self._snapshot.metadata, self._snapshot.storage)
        return frozenset(f.path for f in (*listing.base_files, *listing.log_files))


def _other_files(stat: WriteStat) -> Iterator[str]:
    """The paths of the base files and log files that a write stat names beside the file that was written."""
    for name in (stat.base_file, stat.prev_base_file, *(stat.log_files or ())):
        if name:
            yield path_in(stat.partition, name.rpartition("/")[2])


def data_file(info: FileInfo) -> BaseFile | LogFile | None:
    """The base file or log file for this file of a partition folder; None for any other file."""
    folder, _, name = info.path.rpartition("/")
    return parse_base_file(folder, name, info.size) or parse_log_file(folder, name, info.size)


def folders_without_metadata(snapshot: Snapshot, files: Sequence[FileInfo], marked: Iterable[str]) -> dict[str, str]:
    """The folders of committed files that are not `marked` as partitions, each with the first commit that wrote to it.
    Real Hudi does not find them if it lists folders."""
    first: dict[str, str] = {}
    has_mark = set(marked)
    for info in files:
        file = data_file(info)
        if file is None or file.partition in has_mark or not snapshot.is_visible(file.instant):
            continue
        first[file.partition] = min(first.get(file.partition, file.instant), file.instant)
    return dict(sorted(first.items()))


Part = Literal["properties", "partition_metadata", "orphans", "metadata", "keys", "duplicates"]
_PREVIEWED = 5


@dataclass(frozen=True)
class RepairPart:
    """One kind of damage. `found` are descriptions of the damage; `mended` is whether it was repaired; `note` names the
    damage that was left, and the reason."""

    name: Part
    found: tuple[str, ...] = ()
    mended: bool = False
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is no damage (any more)."""
        return self.mended or not self.found

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {"part": self.name, "found": list(self.found), "mended": self.mended, "note": self.note}

    def __str__(self) -> str:
        if not self.found:
            return f"{self.name}: nothing found" + (f"; {self.note}" if self.note else "")
        state = "mended" if self.mended else "not mended"
        lines = [f"{self.name}: {len(self.found):,} found, {state}" + (f"; {self.note}" if self.note else "")]
        lines += [f"  {finding}" for finding in self.found[:_PREVIEWED]]
        return "\n".join(
            [*lines, *([f"  ... and {len(self.found) - _PREVIEWED:,} more"] * (len(self.found) > _PREVIEWED))]
        )


@dataclass(frozen=True, repr=False)
class RepairResult(Printed):
    """The result of `repair`, by `parts`: the damage that it found, and repaired or with `dry_run` would repair."""

    parts: tuple[RepairPart, ...]
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is no damage (any more)."""
        return all(part.ok for part in self.parts)

    def __bool__(self) -> bool:
        return self.ok

    def __getitem__(self, name: Part) -> RepairPart:
        return next(part for part in self.parts if part.name == name)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {"parts": [part.to_dict() for part in self.parts], "dry_run": self.dry_run, "ok": self.ok}

    def __str__(self) -> str:
        return "\n".join([*map(str, self.parts), *(["(nothing was done)"] if self.dry_run and not self.ok else [])])


PARTS: tuple[Part, ...] = get_args(Part)
# Rows are deleted only on request by name: a table of inserts may hold a key twice on purpose.
_BY_NAME: tuple[Part, ...] = ("keys", "duplicates")


def repair_table(
    storage: Storage,
    parts: Sequence[Part] | None = None,
    *,
    dry_run: bool = False,
    options: Mapping[str, Any] | None = None,
    spark: Any | None = None,
) -> RepairResult:
    """Find the damage of the table, and repair the `parts` named, or without names all except "keys" and "duplicates".
    With `dry_run` nothing is repaired."""
    unknown = [name for name in parts or () if name not in PARTS]
    if unknown:
        raise InvalidOption(f"there is no part {unknown[0]!r} of a repair", hint=f"There are {', '.join(PARTS)}.")
    settings = resolve_options(options).write
    lock = writers_lock(storage, settings, name_if_readable(storage))
    listed = cache(partial(_files, storage))
    run: dict[Part, Callable[[bool], RepairPart]] = {
        "properties": lambda mends: _properties(storage, lock, mends=mends),
        "partition_metadata": lambda mends: _partition_metadata(storage, lock, *listed(), mends=mends),
        "orphans": lambda mends: _orphans(storage, lock, listed()[0], mends=mends),
        "metadata": lambda mends: _metadata(storage, settings, mends=mends),
        "keys": lambda mends: _keys(_context(storage, options, spark), mends=mends),
        "duplicates": lambda mends: _duplicates(_context(storage, options, spark), mends=mends),
    }
    names: Sequence[Part] = PARTS if parts is None else [name for name in PARTS if name in parts]
    named = parts or ()
    results: list[RepairPart] = []
    for name in names:
        try:
            results.append(run[name](not dry_run and (name in named or name not in _BY_NAME)))
        except (UnsupportedFeature, CommitConflict) as error:
            if name in named:
                raise
            is_left = isinstance(error, CommitConflict)
            results.append(RepairPart(name, (error.message,) if is_left else (), note="" if is_left else error.message))
    return RepairResult(tuple(results), dry_run)


def _context(storage: Storage, options: Mapping[str, Any] | None, spark: Any | None) -> WriteContext:
    return write_context(storage, load_table_config(storage), session_engine(spark), resolve_options(options))


def _properties(storage: Storage, lock: Lock, *, mends: bool) -> RepairPart:
    problem = mend_properties(storage, dry_run=True)
    if problem is None:
        load_table_config(storage)  # raises where there is no table
    if problem is None or not mends:
        return RepairPart("properties", (problem,) if problem else ())
    with lock:
        mend_properties(storage)
    return RepairPart("properties", (problem,), mended=True)


def _files(storage: Storage) -> tuple[list[FileInfo], set[str]]:
    """All files outside the table's own folder `.hoodie`, and the folders that are marked as partitions."""
    files: list[FileInfo] = []
    marked: set[str] = set()
    for info in storage.list():
        folder, _, name = info.path.rpartition("/")
        if folder.partition("/")[0] == HOODIE:
            continue
        if name.startswith(PARTITION_METADATA):
            marked.add(folder)
        else:
            files.append(info)
    return files, marked


def _partition_metadata(
    storage: Storage, lock: Lock, files: Sequence[FileInfo], marked: Collection[str], *, mends: bool
) -> RepairPart:
    snapshot = open_snapshot(storage)
    folders = folders_without_metadata(snapshot, files, marked)
    texts = tuple(f"{path or 'the table folder'} of {instant}" for path, instant in folders.items())
    if not folders or not mends:
        return RepairPart("partition_metadata", texts)
    with lock:
        load_same_table(storage, snapshot.config)
        for path, instant in folders.items():
            write_partition_metadata(storage, path, instant)
    return RepairPart("partition_metadata", texts, mended=True)


def _orphans(storage: Storage, lock: Lock, files: Sequence[FileInfo], *, mends: bool) -> RepairPart:
    # listed before the timeline is read, so that a writer since then has an instant on it
    snapshot = open_snapshot(storage)
    check_write(snapshot.config, table_features(snapshot), "clean")
    orphans = sorted(Orphans(snapshot).among(files), key=lambda info: info.path)
    texts = tuple(f"{info.path}, {info.size:,} bytes" for info in orphans)
    if not orphans or not mends:
        return RepairPart("orphans", texts)
    with lock as acquired:
        now = open_snapshot(storage)
        refuse_other_table(snapshot.config, now.config, storage.url())
        for info in Orphans(now).among(orphans):
            if not acquired.lock_is_held():
                raise _lock_lost(storage)
            storage.delete(info.path)
    return RepairPart("orphans", texts, mended=True)


def _lock_lost(storage: Storage) -> CommitConflict:
    return CommitConflict(
        f"the table lock was lost while {storage.url()} was repaired",
        hint="What was mended stays so; run it again for the rest.",
        kind=ConflictKind.LOCK_LOST,
    )


def _keys(context: WriteContext, *, mends: bool) -> RepairPart:
    if not context.config.has_two_key_forms:
        return RepairPart("keys")
    admit(context, "upsert")
    files = snapshot_of(context.storage, context.config, context.opened.timeline, use_metadata=False)
    target = context.requested_key_form or files.key_form or NAMED
    rows = keys_in_other_form(context, files, target)
    if not rows.num_rows:
        return RepairPart("keys")
    texts = tuple(rows[RECORD_KEY].cast(pa.string()).to_pylist())
    field = context.config.key_fields[0]
    form = f"keys of the table are to be stored as {'1' if target == PLAIN else f'{field}:1'!r}"
    if not mends:
        return RepairPart("keys", texts, note=f"{form}; name the part to store these so")
    instants = give_one_form(context, rows, target)
    return RepairPart("keys", texts, mended=True, note=f"{form}; mended by {', '.join(instants)}")


def _duplicates(context: WriteContext, *, mends: bool) -> RepairPart:
    config = context.config
    if not config.populate_meta_fields or not config.key_fields:
        return RepairPart("duplicates", note="rows have no keys to compare")
    admit(context, "delete")
    files = snapshot_of(context.storage, config, context.opened.timeline, use_metadata=False)
    copies = find_copies(context, files)
    counts = copies.counts()
    texts = tuple(
        f"{key}: {count + 1} copies"
        for key, count in zip(counts[RECORD_KEY].to_pylist(), counts["count_sum"].to_pylist(), strict=True)
    )
    if not mends:
        by_name = "name the part to delete all but the newest copy of each" if texts else ""
        return RepairPart("duplicates", texts, note=by_name)
    if not texts:
        _note_unique(context, files.timeline)
        return RepairPart("duplicates")
    done = delete_copies(context, copies)
    # an index of keys took the deletes for the keys' ends
    _metadata(context.storage, context.settings, mends=True)
    instants = [result.instant for result in done]
    _note_unique(context, files.timeline, instants)
    deleted = count_text(sum(result.deleted or 0 for result in done), "row")
    return RepairPart("duplicates", texts, mended=True, note=f"{deleted} deleted by {', '.join(instants)}")


def _note_unique(context: WriteContext, checked: Timeline, mended_by: Sequence[str] = ()) -> None:
    """Record that no key is in several file groups, as `checked` showed the table and the commits `mended_by` left it.
    Nothing is recorded if other writers have committed since."""
    storage, settings = context.storage, context.settings
    before = context.config
    with writers_lock(storage, settings, before.name) as lock:
        config, now = load_same_table(storage, before), load_timeline(storage, before)
        checked_times = {*mended_by, *(i.time for i in checked.commits)}
        if not now.commits or any(i.time not in checked_times for i in now.commits):
            return
        if config.repeats_keys or has_unchecked_inserts(now, config.keys_checked_until):
            last = completed_at(now.commits_by_completion[-1])
            update_table_config(storage, {INDEX_REPEATED: None, INDEX_CHECKED: last}, lock.lock_is_held)


def _metadata(storage: Storage, settings: WriteSettings, *, mends: bool) -> RepairPart:
    if not load_table_config(storage).metadata_partitions:
        return RepairPart("metadata", note="the table has no metadata table")
    try:
        lock = WriteSettings(lock=settings.lock, lock_wait_seconds=settings.lock_wait_seconds)
        verification = repair_metadata(storage, settings=lock) if mends else verify(storage)
    except LakebedError as error:
        if mends:
            raise
        return RepairPart("metadata", (error.message,))
    rows = verification.differences.select([f.name for f in DIFFERENCES]).to_pylist()
    about_indexes = [row for row in rows if row["problem"] != "repeated"]
    texts = tuple(f"{row['index']}: {row['problem']} {row['what']}" for row in about_indexes)
    return RepairPart("metadata", texts, mended=mends and bool(texts))
