"""Erasure: rows are deleted for good. They are deleted, the files of their file groups are written again without them,
older file slices are cleaned, the metadata table is compacted and cleaned; then every file that is left is read, and
what still holds something of the rows is named.

Each step is an ordinary write or service under the table lock, so that readers and writers go on. Each step examines
the files as they are, so the next erasure finishes one that was cut off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.conflicts import COMPACT_OPERATION
from lakebed.errors import CommitConflict, CorruptFile, InvalidOption, TableNotFound, UnsupportedFeature
from lakebed.format.bootstrap import BASE_PATH
from lakebed.format.file_contents import row_batches
from lakebed.handles.compact import SliceCompactor
from lakebed.metadata_records.layout import LAYERED_INDEXES
from lakebed.metadata_upkeep.comparison import rebuild
from lakebed.metadata_upkeep.services import purge
from lakebed.model import ERASED_ROWS, PARTITION_PATH, RECORD_KEY, Action, FileGroupId, has_completion_times, path_in
from lakebed.operations.context import WriteContext, file_format
from lakebed.operations.delete import delete, selected_keys
from lakebed.operations.rejects import REJECTS_FOLDER, rejects_of, rejects_of_keys
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.policies.cleaning import retain_versions
from lakebed.read.row_traces import (
    OTHER,
    TIMELINE,
    RowKeys,
    RowTraces,
    SearchTerms,
    TableFile,
    TraceReader,
    metadata_store,
    table_files,
)
from lakebed.read.scan import Scan
from lakebed.services.cleaning import Cleaning, plan_retention, planned_slices, savepointed_files
from lakebed.services.compaction import Compaction, groups_in_plans, run_operations
from lakebed.services.driver import NothingToDo, run_service
from lakebed.services.erasure_report import ErasedStore, Remainder, TableErasure
from lakebed.services.publishing import publish_alone, publish_table, published_formats
from lakebed.services.service import ServiceTransaction
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.bodies.commit import recorded_ranges, without_recorded_ranges
from lakebed.timeline.bodies.plans import CleanPlan, CompactionOperation, CompactionPlan
from lakebed.timeline.timeline import COMMITS
from lakebed.wording import count_text

# A writer that commits between two steps may write a value of the rows into a new file, so the steps are repeated up to
# this many times.
_ROUNDS = 3
_UNEXPLAINED = "it was written meanwhile, or no step writes it again", "Erase again."


@dataclass
class Erasure:
    """The erasure of some rows of one table. `renew` returns the table's present state; `selector` selects the rows as
    for a delete. A run that another writer interrupts continues: `deleted` counts the rows deleted so far, `missing`
    the keys that no file had at first, and a savepoint that holds rows is then reported as remaining. `rejected` are
    the ids of the rows of the same keys in the table of rejects, None where it has none."""

    renew: Callable[[], WriteContext]
    selector: Any
    deleted: int = 0
    missing: int | None = None
    steps: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    has_rebuilt: bool = False
    rejected: pa.Array | None = None

    def run(self, *, dry_run: bool = False) -> TableErasure:
        """Erase the rows; with `dry_run` only find the files that contain something of them. Raises `InvalidOption` for
        rows that a savepoint holds, and the errors of a delete; then no row is deleted."""
        started = time.monotonic()
        context = self.renew()
        _refuse_source_files(context)
        keys, rows = self._select(context)
        reader, files = TraceReader(context.opened), _all_files(context.opened)
        traces = reader.rows_of(keys, files)
        terms = reader.search_terms(keys, traces, _staying(context.opened, files, traces.records))
        traced_paths, unreadable = reader.traces_in(terms, files)
        stores = _stores(files, traced_paths, ())
        if self.missing is None:
            self.missing = len(keys.texts.unique()) - traces.stored_keys
            self._find_rejected(context, keys)
        report = TableErasure(
            context.storage.spec.uri,
            rows + self.deleted,
            len(keys),
            terms.count,
            stores,
            checked_files=len(files),
            missing=self.missing,
            dry_run=dry_run,
        )
        saved = _savepoints_of(context.opened, traces.records)
        if dry_run:
            damage = tuple(_damage(path, why) for path, why in unreadable.items())
            return replace(
                report, notes=(*self.notes, *map(_savepoint_note, saved)), remainders=damage, **_took(started)
            )
        if not context.config.writes_base_files:
            context.check_write("erase")
        if saved and not self.deleted:
            raise InvalidOption(
                f"savepoint {', '.join(saved)} of table {context.config.name!r} holds rows that are to be erased, and"
                " the files of a savepoint are not deleted",
                hint="Delete it first: " + " ".join(f"t.savepoints.delete({savepoint!r})" for savepoint in saved),
                context={"savepoints": saved},
            )
        if rows:
            marked = {**context.settings.extra_metadata, ERASED_ROWS: str(rows)}
            settings = replace(context.settings, extra_metadata=marked)
            options = replace(context.options, write=settings)
            done = delete(replace(context, options=options), self.selector)
            deleted = rows if done.deleted is None else done.deleted  # None: the rows were not looked up again
            self.steps.append(f"delete {done.instant}: {count_text(deleted, 'row')}")
            self.deleted += deleted
            if deleted != rows:  # another writer has changed rows in the meantime: they are looked for again
                return replace(self.run(), **_took(started))
        if context.index.stores_locations:
            self.notes.append("the index has deleted the keys; HBase drops deleted cells at its next major compaction")
        holding = frozenset(traced_paths)
        left, checked, damage = self._remove([file for file in files if file.path in holding], keys, terms)
        return replace(
            report,
            stores=_stores(files, traced_paths, left),
            remainders=(*self._reasons(left), *damage),
            checked_files=checked,
            steps=tuple(self.steps),
            notes=tuple(self.notes),
            rows=self.deleted,
            **_took(started),
        )

    def _find_rejected(self, context: WriteContext, keys: RowKeys) -> None:
        """Find the rows of these keys in the table of rejects; keys that only it has are not missing."""
        rejects = rejects_of(context)
        if rejects is None:
            return
        rows = rejects_of_keys(context, rejects, keys.texts, keys.partitions)
        if rows.num_rows:
            texts = rows["key"].unique()
            self.rejected = rows["id"].combine_chunks()
            self.missing = max(0, (self.missing or 0) - len(texts) + _count_rows(context.opened, RowKeys(texts)))
            self.notes.append(f"the table of rejects has {count_text(rows.num_rows, 'row')} of these keys")

    def _erase_rejected(self, holding: Sequence[TableFile]) -> Iterable[str]:
        """Erase the rows of the same keys in the table of rejects, once. Returns a line of text about it."""
        ids, self.rejected = self.rejected, None
        if ids is None:
            return []

        def renew() -> WriteContext:
            rejects = rejects_of(self.renew())
            if rejects is None:
                raise TableNotFound("the table of rejects was dropped meanwhile", hint="erase again")
            return rejects

        done = Erasure(renew, ids.to_pylist()).run()
        self.notes += [str(remainder) for remainder in done.remainders]
        return [f"table of rejects: {count_text(done.rows, 'row')} erased"]

    def _select(self, context: WriteContext) -> tuple[RowKeys, int]:
        """The keys to search for, and the number of them for which the table has rows now."""
        table, scan = selected_keys(context, self.selector)
        texts = _texts(table.column(RECORD_KEY))
        paths = _texts(table.column(PARTITION_PATH)) if PARTITION_PATH in table.column_names else None
        if scan is None:
            keys = RowKeys(texts, paths)
            return keys, _count_rows(context.opened, keys)
        return _with_deleted_rows(context.opened, scan, RowKeys(texts, paths)), len(texts)

    def _remove(
        self, files: list[TableFile], keys: RowKeys, terms: SearchTerms
    ) -> tuple[dict[str, TableFile], int, list[Remainder]]:
        """Rewrite file groups and clean older slices until no file contains anything of the rows, or a round changes
        nothing. Returns the files that still contain something, the number of files that were read, and damage. `files`
        are those that contain something now."""
        holding = files
        left: dict[str, TableFile] = {}
        damage: list[Remainder] = []
        for _ in range(_ROUNDS):
            steps = (
                self._erase_rejected,
                self._rewrite,
                self._renew_lists,
                self._clean,
                self._rebuild,
                self._purge,
                self._forget_ranges,
            )
            for step in steps:
                self._step(step, holding)
            snapshot = self.renew().opened
            reader, files = TraceReader(snapshot), _all_files(snapshot)
            traced_paths, unreadable = reader.traces_in(terms, files)
            by_path = {file.path: file for file in files}
            before, left = set(left), {path: by_path[path] for path in traced_paths}
            damage = [_damage(path, why) for path, why in unreadable.items()]
            if not left:
                break
            narrowed = reader.search_terms(keys, RowTraces({}, terms.values, {}), _staying(snapshot, files, ()))
            if narrowed.count < terms.count:
                terms = narrowed  # a value that another row has by now is no trace of an erased one
            elif before == set(left):
                break
            holding = list(left.values())
        return left, len(files), damage

    def _step(self, step: Callable[[Sequence[TableFile]], Iterable[str]], holding: Sequence[TableFile]) -> None:
        """Run one step on the files that contain something of the rows; a conflict with another process is recorded,
        and the next round tries again."""
        try:
            self.steps += step(holding)
        except CommitConflict as conflict:
            self._note(str(conflict))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _rewrite(self, holding: Sequence[TableFile]) -> Iterable[str]:
        """Write the current base file of each file group again: all rows are encoded, and filters, ranges and
        dictionaries are those of the present rows. Returns a line of text about each run."""
        context, groups = self.renew(), _groups(holding)
        settings = replace(context.settings, copy_row_groups=False)
        context = replace(context, options=replace(context.options, write=settings))
        if context.config.table_type == "mor":
            done = run_service(context, _Rewriting(frozenset(groups)))
            self.notes += done.notes if groups else ()
            return map(str, done.runs)
        return _rewrite_base_files(context, groups)

    def _renew_lists(self, holding: Sequence[TableFile]) -> Iterable[str]:
        """Publish the table again in the formats for which it has lists, so that they no longer name the files that are
        cleaned next. A list that contains something of the rows retains only its newest version. Yields a line of text
        about each list."""
        context = self.renew()
        for form in published_formats(context.storage):
            try:
                if any(file.store == _list_store(form) for file in holding):
                    yield publish_alone(context.storage, form, context.settings)
                else:
                    yield from map(str, publish_table(context.storage, form, context.settings).published)
            except (UnsupportedFeature, CorruptFile) as error:
                self._note(f"{form} list: {error}")

    def _clean(self, holding: Sequence[TableFile]) -> Iterable[str]:
        done = run_service(self.renew(), _OlderSlices(frozenset(_groups(holding))))
        return map(str, done.runs)

    def _rebuild(self, holding: Sequence[TableFile]) -> Iterable[str]:
        """Build the vector indexes and the text indexes again, once: a code is made from the vector of its row, an
        entry from a word, and no search for traces finds them. Returns a line of text about each."""
        context = self.renew()
        names = [n for n in context.config.metadata_partitions if n.startswith(LAYERED_INDEXES)]
        if not names or self.has_rebuilt:
            return []
        with ServiceTransaction(context, Action.COMMIT, "ERASE") as tx, tx.begin():
            rebuild(tx.view(tx.timeline), names, tx.settings, tx.lock_is_held)
        self.has_rebuilt = True
        return [f"{name} built again" for name in names]

    def _purge(self, holding: Sequence[TableFile]) -> Iterable[str]:
        context = self.renew()
        if not context.config.metadata_partitions:
            return []
        with ServiceTransaction(context, Action.COMMIT, "ERASE") as tx, tx.begin():
            return [f"metadata table: {line}" for line in purge(tx.metadata_upkeep(tx.timeline).store)]

    def _forget_ranges(self, holding: Sequence[TableFile]) -> Iterable[str]:
        """Remove the column ranges that real Hudi records in delta commits of version 6 from the instants among the
        files. Returns a line of text about it, or none if no instant has ranges."""
        paths = {file.path for file in holding if file.store == TIMELINE}
        if not paths:
            return []
        context = self.renew()
        with ServiceTransaction(context, Action.COMMIT, "ERASE") as tx, tx.begin():
            timeline_paths = {f"{tx.config.timeline_path}/{name}" for name in tx.timeline.files}
            bodies = {path: tx.storage.read(path) for path in sorted(paths & timeline_paths)}
            ranged = {path: body for path, body in bodies.items() if recorded_ranges(body, path)}
            tx.refuse_lost("erase")
            for path, body in ranged.items():
                tx.storage.write(path, without_recorded_ranges(body, path))
        return [f"column ranges taken out of {count_text(len(ranged), 'instant')}"] if ranged else []

    def _reasons(self, left: Mapping[str, TableFile]) -> list[Remainder]:
        snapshot = self.renew().opened
        timeline = snapshot.timeline
        plans = timeline.groups_of_services()
        planned = {group: plans[group] for group in planned_slices(timeline) if group in plans}
        saved = savepointed_files(timeline)
        lists = {_list_store(form): folder for form, folder in published_formats(snapshot.storage).items()}
        recorded = {
            (file_slice.partition, file_slice.file_id) for file_slice in snapshot.file_slices()
        } | timeline.replaced_files.keys()
        building = {metadata_store(partition): partition for partition in snapshot.config.metadata_partitions_inflight}
        remainders: list[Remainder] = []
        for path, file in sorted(left.items()):
            savepoint = next((time for time, paths in saved.items() if path in paths), None)
            if savepoint is not None:
                why = f"savepoint {savepoint} holds it", f"t.savepoints.delete({savepoint!r}), then erase again."
            elif file.group in planned:
                plan = planned[file.group]
                run = "t.maintenance.cluster()" if timeline.is_pending_clustering(plan) else "t.maintenance.compact()"
                why = f"the pending {plan.action} {plan.time} reads it", f"Run it with {run}, then erase again."
            elif file.store in lists:
                why = "the list could not be published again", f"Delete {lists[file.store]}/, then publish again."
            elif file.store in building:
                name = building[file.store]
                why = f"{name} is being built", "t.indexes.build() finishes it, or drop it; then erase again."
            elif timeline.pending:
                pending = timeline.pending[0]
                way = "Wait for the process that runs it, or let t.maintenance.repair() roll it back if it died"
                if timeline.is_pending_clustering(pending):
                    way = "Run it with t.maintenance.cluster()"
                why = f"{pending.action} {pending.time} is pending", f"{way}; then erase again."
            elif path.startswith(f"{REJECTS_FOLDER}/"):
                why = (
                    "it is a file of the table of rejects",
                    "Erase the rows there as well, with t.rejects.erase(where=...); then erase again.",
                )
            elif file.data is None and file.store == OTHER:
                why = "it is no file of a commit", "Delete it by hand, then erase again."
            elif file.data is not None and file.group not in recorded:
                why = (
                    "no commit names it",
                    "t.maintenance.repair(['orphans']) deletes it, or delete it by hand; then erase again.",
                )
            elif (holder := _savepoint_of_group(file, saved)) is not None:
                why = (
                    f"savepoint {holder} holds its file slice",
                    f"t.savepoints.delete({holder!r}), then erase again.",
                )
            else:
                why = _UNEXPLAINED
            remainders.append(Remainder(path, *why))
        # the error message shows the first one, so one whose hint removes the cause
        return sorted(remainders, key=lambda left: left.reason == _UNEXPLAINED[0])


def _savepoint_of_group(file: TableFile, saved: Mapping[str, frozenset[str]]) -> str | None:
    """A savepoint that names a file of the same file group; None if there is none."""
    if file.group is None:
        return None
    partition, file_id = file.group
    starts = path_in(partition, f"{file_id}_"), path_in(partition, f".{file_id}_")
    return next((time for time, paths in saved.items() if any(path.startswith(starts) for path in paths)), None)


def _refuse_source_files(context: WriteContext) -> None:
    source = context.config.properties.get(BASE_PATH)
    if source:
        raise UnsupportedFeature(
            f"rows of table {context.config.name!r} are in source files below {source}, which are not written",
            hint="erase them there, or make a full copy of the table (lakebed.load) and erase from that",
            context={"feature": "erase", "path": source},
        )


def _groups(files: Iterable[TableFile]) -> set[FileGroupId]:
    return {file.group for file in files if file.group is not None}


def _list_store(form: str) -> str:
    return f"{form} list"


def _all_files(snapshot: Snapshot) -> list[TableFile]:
    """All files of the table. The `store` of a file that belongs to a published list names that list."""
    files = table_files(snapshot)
    for form, folder in published_formats(snapshot.storage).items():
        files = [
            replace(file, store=_list_store(form)) if file.data is None and file.path.startswith(f"{folder}/") else file
            for file in files
        ]
    return files


def _took(started: float) -> dict[str, Any]:
    return {"seconds": time.monotonic() - started}


def _texts(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    return values.cast(pa.string()) if values.type != pa.string() else values


def _count_rows(snapshot: Snapshot, keys: RowKeys) -> int:
    """The number of rows of the table with one of these keys."""

    def count(number: int) -> int:
        file_slice = slices[number]
        batches = snapshot.reader.read(file_slice, [RECORD_KEY])
        return sum(int(pc.sum(keys.among(batch.column(0), file_slice.partition)).as_py() or 0) for batch in batches)

    slices = snapshot.file_slices()
    return sum(parallel_map(count, range(len(slices))))


def _with_deleted_rows(snapshot: Snapshot, scan: Scan, keys: RowKeys) -> RowKeys:
    """The keys, and those of rows that fulfilled the condition in files of earlier commits and are deleted now."""
    predicate = scan.parsed_filter()
    if predicate is None or not predicate.runs_in_process:
        return keys
    condition, names = predicate.to_arrow(), {name.partition(".")[0] for name in predicate.columns}

    def matching(file: TableFile) -> pa.Table:
        parts: list[pa.Table] = []
        for batch in row_batches(snapshot.storage.read(file.path), file.path):
            if RECORD_KEY in batch.schema.names and names <= set(batch.schema.names):
                rows = pa.Table.from_batches([batch]).filter(condition)
                texts = rows.column(RECORD_KEY).cast(pa.string())
                path = pa.repeat(file.data.partition if file.data else "", len(texts))
                parts.append(pa.table({RECORD_KEY: texts, PARTITION_PATH: path}))
        return pa.concat_tables(parts) if parts else _NO_ROWS

    data = [file for file in table_files(snapshot) if file.data is not None]
    matching_rows = pa.concat_tables([_NO_ROWS, *parallel_map(matching, data)])
    by = [RECORD_KEY] if keys.partitions is None else [RECORD_KEY, PARTITION_PATH]
    living = Scan(
        snapshot, columns=by, where=pc.field(RECORD_KEY).isin(pc.unique(matching_rows[RECORD_KEY]))
    ).to_arrow()
    living = pa.table({name: living.column(name).cast(pa.string()) for name in by})
    deleted_rows = matching_rows.select(by).group_by(by).aggregate([]).join(living, keys=by, join_type="left anti")
    texts = pa.concat_arrays([keys.texts, _texts(deleted_rows.column(RECORD_KEY))])
    if keys.partitions is None:
        return RowKeys(texts)
    return RowKeys(texts, pa.concat_arrays([keys.partitions, _texts(deleted_rows.column(PARTITION_PATH))]))


_NO_ROWS = pa.table({RECORD_KEY: pa.array([], pa.string()), PARTITION_PATH: pa.array([], pa.string())})


def _staying(snapshot: Snapshot, files: Sequence[TableFile], erased_paths: Iterable[str]) -> list[TableFile]:
    """The files with rows that an erasure keeps: all but the older slices of the file groups that hold the erased
    rows."""
    paths = frozenset(erased_paths)
    touched = {file.group for file in files if file.path in paths}
    latest = {file.path for file_slice in snapshot.file_slices() for file in file_slice.files}
    return [file for file in files if file.path in latest or file.group not in touched]


def _stores(
    files: Sequence[TableFile], erased_paths: Iterable[str], left: Iterable[str] | Mapping[str, TableFile]
) -> tuple[ErasedStore, ...]:
    erased_paths, remaining = set(erased_paths), dict.fromkeys(left)
    stores = {file.path: file.store for file in files}
    if isinstance(left, Mapping):
        stores |= {path: file.store for path, file in left.items()}
    names = dict.fromkeys(stores[path] for path in sorted({*erased_paths, *remaining} & stores.keys()))
    return tuple(
        ErasedStore(
            name,
            tuple(sorted(path for path in erased_paths if stores.get(path) == name)),
            tuple(sorted(path for path in remaining if stores.get(path) == name)),
        )
        for name in names
    )


def _damage(path: str, why: str) -> Remainder:
    return Remainder(path, f"it cannot be read ({why})", "Repair or delete it, then erase again.")


def _savepoints_of(snapshot: Snapshot, records: Iterable[str]) -> list[str]:
    """The savepoints that hold a file with the rows."""
    record_paths = set(records)
    return [time for time, paths in sorted(savepointed_files(snapshot.timeline).items()) if record_paths & paths]


def _savepoint_note(savepoint: str) -> str:
    return f"savepoint {savepoint} holds the rows: t.savepoints.delete({savepoint!r}) first"


@dataclass(frozen=True)
class _Rewriting(Compaction):
    """A compaction of some file groups, whether they have log files or not."""

    groups: frozenset[FileGroupId]

    def plan(
        self, context: WriteContext, snapshot: Snapshot, instant: str, *, when_due: bool
    ) -> CompactionPlan | NothingToDo:
        waiting = next((i for i in snapshot.timeline.pending if i.action in COMMITS), None)
        if waiting is not None and not has_completion_times(snapshot.config.version):
            return NothingToDo(f"no file group was written again: {waiting.action} {waiting.time} is pending")
        busy = groups_in_plans(snapshot.timeline)
        slices = [s for s in snapshot.file_slices() if (s.partition, s.file_id) in self.groups - busy.keys()]
        if not slices:
            return NothingToDo("no file group holds the rows")
        return CompactionPlan(tuple(slices), None)


@dataclass(frozen=True)
class _OlderSlices(Cleaning):
    """A clean of everything but the last file slice of some file groups."""

    groups: frozenset[FileGroupId]

    def admit(self, context: WriteContext) -> None:
        context.check_write("clean")

    def plan(
        self, context: WriteContext, snapshot: Snapshot, instant: str, *, when_due: bool
    ) -> CleanPlan | NothingToDo:
        last_slices = retain_versions(1)
        assert last_slices is not None
        paths = frozenset(path for path, _ in self.groups)
        plan = plan_retention(snapshot, last_slices, paths, self.groups, later_logs_go=True)
        return plan if plan.files else NothingToDo("no file group that held the rows has an older slice")


def _rewrite_base_files(context: WriteContext, groups: set[FileGroupId]) -> list[str]:
    """Write the base files of a copy-on-write table again, in a commit that changes no row: readers of changes skip its
    operation. Returns a line of text about it, or none if no group has a base file."""
    planned = context.opened.index_settings
    with WriteTransaction(context, Action.COMMIT, COMPACT_OPERATION, planned_index=planned) as tx:
        with tx.begin():
            tx.prepare_metadata()
            slices = [s for s in tx.snapshot.file_slices() if (s.partition, s.file_id) in groups and s.base_file]
            if not slices:
                return []
            tx.request()
        tx.inflight()
        reader = replace(tx.snapshot.reader, memory=context.settings.memory)
        writer = SliceCompactor(reader, tx.instant, file_format(context, tx.snapshot))
        operations = [
            CompactionOperation(s.partition, s.file_id, s.instant, s.base_file.name if s.base_file else "", ())
            for s in slices
        ]
        done = run_operations(context, writer, operations, f"writing {count_text(len(slices), 'file')} again")
        tx.commit([outcome.status for outcome in done], tx.snapshot.avro_schema, {}, unchanged_rows=True)
    return [f"rewrite {tx.instant}: {count_text(len(slices), 'base file')}"]
