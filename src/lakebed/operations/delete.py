"""Deletes: by keys, by rows that hold the key columns, or by a condition. A dry run counts the rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Engine, Rows, count_rows, distinct_values, persisted
from lakebed.errors import InvalidOption
from lakebed.expressions.base import Column
from lakebed.index.base import key_hash_of
from lakebed.index.simple import positions_of
from lakebed.merge.incoming import INCOMING_ORDERING
from lakebed.merge.locations import STORED_LOCATION, BooleanLiteral
from lakebed.model import DELETE, FILE_ID, FILE_NAME, PARTITION_PATH, RECORD_INDEX, RECORD_KEY, FileSlice
from lakebed.operations.context import (
    TableSchema,
    WriteContext,
    check_key_types,
    incoming_rows,
    incoming_schema,
    keyed_by_meta,
    require_columns,
    table_schema,
)
from lakebed.operations.pipeline import Verb, admit, run
from lakebed.operations.placement import Placed, TaggedRows
from lakebed.operations.result import WriteResult
from lakebed.operations.write import RowMatch, Write, derive_keys
from lakebed.read.lookup import LookupKeys, are_stored, is_keys, parse_lookup_keys, plain_texts
from lakebed.read.prune import buckets_of_keys
from lakebed.read.reopening import reopened
from lakebed.read.scan import Scan
from lakebed.slices.snapshot import Snapshot

_DELETES = RowMatch("keys", deletes=True)
# So many keys are looked up first, and the others only if the table has none of these.
MAX_LOOKED_UP = 1_000


@dataclass(frozen=True)
class Where:
    """A condition on stored rows: SQL, or an Arrow expression."""

    condition: Any


def rows_to_delete(keys: Any, where: Any, verb: str = "delete") -> Any:
    """The rows that a caller wants to delete, as keys, as rows with the key columns, or as `Where`. Raises
    `InvalidOption` for a text or an expression in place of keys, and unless exactly one of `keys` and `where` is given.
    `verb` is the method that was called."""
    if (keys is None) == (where is None):
        arguments = "both keys and a condition" if where is not None else "neither keys nor a condition"
        hint = f"give t.{verb}([key, ...]) or t.{verb}(where=condition)"
        raise InvalidOption(f"{verb}() was given {arguments}", hint=hint)
    if where is not None:
        return Where(where)
    _refuse_ambiguous(keys, verb)
    return keys


def _refuse_ambiguous(keys: Any, verb: str = "delete") -> None:
    if isinstance(keys, str):
        raise InvalidOption(
            f"{keys!r} may be a key or a condition",
            hint=f"{verb} the row of a key with t.{verb}([{keys!r}]), all rows that fulfil a condition with"
            f" t.{verb}(where={keys!r})",
            context={"argument": "keys"},
        )
    if isinstance(keys, pc.Expression):
        raise InvalidOption(f"{keys} is a condition, not keys", hint=f"give it by its name: t.{verb}(where=...)")
    if isinstance(keys, bytes | int | float | date | Decimal):
        raise InvalidOption(f"{verb}() takes keys as a list, not {keys!r}", hint=f"t.{verb}([{keys!r}])")


def delete(context: WriteContext, selector: Any) -> WriteResult:
    """Delete by `Where`, by a list of keys, or by rows with key (and partition) columns.

    Keys without their partition columns are looked up in every partition, and every row found is deleted.

    A delete that finds nothing makes no commit, with three exceptions. One with `once=` or with metadata of the caller
    makes a commit, which records these. So does one that does not look: a merge-on-read table with a bucket index logs
    deletes of keys, unless it has no file for their buckets. And on Spark one of rows that have the partition columns.
    """
    admit(context, "delete")
    verb = _verb(context, selector)
    if context.records_more:
        return _run(context, verb)
    if context.engine.is_distributed and isinstance(verb, DeleteWhere | DeleteKeys):
        engine = context.engine
        with persisted(engine, verb.located(context, context.opened)) as rows:
            if count_rows(engine, engine.head(rows, 1)) == 0 and reopened(context.opened) is None:
                requested = 0 if isinstance(verb, DeleteWhere) else count_rows(engine, verb.keys)
                return _nothing_found(context, requested)
            return _run(context, replace(verb, found=(context.opened, rows)))
    if not context.engine.is_distributed:
        verb, requested = _looked_up(context, verb)
        # a key that was written meanwhile is deleted
        if requested is not None and reopened(context.opened) is None:
            return _nothing_found(context, requested)
    return _run(context, verb)


def _nothing_found(context: WriteContext, requested: int) -> WriteResult:
    last = context.opened.timeline.last_completed
    checkpoint = "" if last is None else last.completion_time or last.time
    return WriteResult("", checkpoint, "delete", rows=requested, unchanged=requested)


def _run(context: WriteContext, verb: AnyDelete) -> WriteResult:
    if isinstance(verb, DeleteRows) and context.index.hashing is None:
        # the index gives a row for each stored row of a key
        with persisted(context.engine, verb.rows) as rows:
            result = run(context, replace(verb, rows=rows))
            return replace(result, rows=count_rows(context.engine, rows))
    if not isinstance(verb, DeleteKeys) or verb.texts is not None:
        return verb.counted(run(context, verb))
    with persisted(context.engine, verb.keys) as keys:  # they are looked up, and counted
        verb = replace(verb, keys=keys)
        return verb.counted(run(context, verb))


def _looked_up(context: WriteContext, verb: AnyDelete) -> tuple[AnyDelete, int | None]:
    """The verb, with the rows that it will delete where they are already known; and the number of its keys if the table
    has none of them (for a condition 0), otherwise None. Rows of a stream are not looked up."""
    engine, snapshot = context.engine, context.opened
    if isinstance(verb, DeleteWhere):
        rows = verb.located(context, snapshot)
        stored = engine.collect(rows)
        return replace(verb, found=(snapshot, engine.from_arrow(stored))), None if stored.num_rows else 0
    if isinstance(verb, DeleteRows):
        if not engine.has_at_hand(verb.rows):
            return verb, None
        keys = engine.collect(derive_keys(context, verb.rows, engine.schema(verb.rows), keep=[]))
    else:
        keys = verb.keys if isinstance(verb, DeleteHashed) else engine.collect(verb.keys)
    hashing = context.index.hashing
    if hashing is not None and context.config.table_type == "mor" and not isinstance(verb, DeleteKeys):
        # nothing is stored where there is no file; writers that do not wait for others delete what they do not see, too
        locations = None if context.is_non_blocking else hashing.key_locations(snapshot)
        paths = pc.unique(keys.column(PARTITION_PATH)).to_pylist() if PARTITION_PATH in keys.column_names else None
        files = locations and buckets_of_keys(snapshot.file_slices(paths), locations, keys.column(RECORD_KEY))
        return verb, keys.num_rows if files == [] else None
    # a record index is asked for keys in all paths: one that has a row elsewhere counts as found
    is_searched = isinstance(verb, DeleteRows) and not context.index.is_global
    in_partitions = is_searched and RECORD_INDEX not in snapshot.config.metadata_partitions
    # most deletes find one of their first keys
    for part in (keys.slice(0, MAX_LOOKED_UP), keys.slice(MAX_LOOKED_UP)):
        partitions = plain_texts(part.column(PARTITION_PATH)) if in_partitions else None
        lookup = LookupKeys(plain_texts(part.column(RECORD_KEY)), partitions)
        if part.num_rows and pc.any(are_stored(snapshot, lookup)).as_py():
            return verb, None
    return verb, keys.num_rows


def count_deletes(context: WriteContext, selector: Any) -> WriteResult:
    """The result of a dry run: the number of rows that `delete(context, selector)` would delete. It reads the stored
    keys, and raises the errors of a delete."""
    admit(context, "delete")
    verb, engine = _verb(context, selector), context.engine
    if isinstance(verb, DeleteWhere):
        count = verb.stored_rows(context, context.opened).count()
        return WriteResult("", "", "delete", rows=count, deleted=count, dry_run=True)
    names = [RECORD_KEY]
    if isinstance(verb, DeleteRows):
        keys = derive_keys(context, verb.rows, engine.schema(verb.rows), keep=[])
        names += [] if context.index.is_global else [PARTITION_PATH]
    else:
        keys = engine.from_arrow(verb.keys) if isinstance(verb, DeleteHashed) else verb.keys
    keys = engine.distinct(engine.derive(keys, {}, keep=names))
    slices = context.opened.file_slices()
    stored = engine.read_columns(context.opened, slices, [RECORD_KEY, PARTITION_PATH, FILE_NAME])
    stored = engine.derive(stored, {}, keep=[RECORD_KEY, PARTITION_PATH])
    matches = engine.join(stored, keys, names, "inner")
    distinct = engine.distinct(engine.derive(matches, {}, keep=names))  # a key may have several rows
    deleted, present, requested = (count_rows(engine, rows) for rows in (matches, distinct, keys))
    return WriteResult("", "", "delete", rows=requested, deleted=deleted, unchanged=requested - present, dry_run=True)


def selected_keys(context: WriteContext, selector: Any) -> tuple[pa.Table, Scan | None]:
    """The distinct keys that `delete(context, selector)` deletes: record key, and partition path if the caller or the
    condition names one. For a condition also the scan of its rows, otherwise None. Raises the errors of a delete."""
    admit(context, "delete")
    verb, engine = _verb(context, selector), context.engine
    names = [RECORD_KEY] if context.index.is_global else [RECORD_KEY, PARTITION_PATH]
    if isinstance(verb, DeleteWhere):
        scan = verb.stored_rows(context, context.opened)
        rows = engine.rows(scan.to_spark() if engine.is_distributed else scan.to_arrow())
        return engine.collect(engine.distinct(engine.derive(rows, {}, keep=names))), scan
    if isinstance(verb, DeleteRows):
        keys = derive_keys(context, verb.rows, engine.schema(verb.rows), keep=[])
    else:
        keys = engine.from_arrow(verb.keys) if isinstance(verb, DeleteHashed) else verb.keys
        names = [RECORD_KEY]
    return engine.collect(engine.distinct(engine.derive(keys, {}, keep=names))), None


def _verb(context: WriteContext, selector: Any) -> AnyDelete:
    snapshot, engine = context.opened, context.engine
    if is_condition(selector):
        selector = selector.condition
        if not context.config.populate_meta_fields:
            keyed_by_meta(context, "delete")
        verb = DeleteWhere(condition=selector)
        # a condition that is invalid, or invalid for this table, is refused before the write begins
        selection = verb.stored_rows(context, snapshot)
        predicate = selection.parsed_filter()
        try:
            if predicate is not None:
                predicate.to_arrow()
        except InvalidOption:
            if not engine.is_distributed:
                raise
            selection.to_spark()  # only Spark can tell whether the condition is valid
        return verb
    _refuse_ambiguous(selector)
    keyed_by_meta(context, "delete")
    if is_keys(selector):
        selection = parse_lookup_keys(snapshot, selector)
        texts = selection.texts
        if texts.null_count:
            raise InvalidOption("a key to delete is null", hint="leave null keys out")
        keys = _with_fields(context, selection)
        if key_hash_of(context.index) is not None and not context.keys.partition_fields:
            return DeleteHashed(keys=keys)
        return DeleteKeys(keys=engine.from_arrow(keys), texts=texts)
    rows = incoming_rows(context, selector)
    present = engine.schema(rows)
    check_key_types(context, snapshot.schema, incoming_schema(present))
    missing = [f for f in context.keys.partition_fields if f not in present.names]
    if missing:
        fields = _key_columns(context, present)
        return DeleteKeys(keys=engine.derive(rows, {RECORD_KEY: context.keys.record_key}, keep=fields))
    require_columns(context, present, ordering=False)
    return DeleteRows(rows=rows)


def _key_columns(context: WriteContext, present: pa.Schema) -> list[str]:
    """The key fields that are written in addition to the key text: they distinguish rows that share a key text."""
    fields = context.rules.key_fields
    return [] if fields is None else fields.columns(present)


def _with_fields(context: WriteContext, lookup_keys: LookupKeys) -> pa.Table:
    """The key texts, with the key fields if the caller gave them."""
    keys = pa.table({RECORD_KEY: lookup_keys.texts})
    if lookup_keys.fields is None:
        return keys
    for name in _key_columns(context, lookup_keys.fields.schema):
        keys = keys.append_column(name, lookup_keys.fields.column(name))
    return keys


def is_condition(selector: Any) -> bool:
    """Whether a selector of rows is a condition."""
    return isinstance(selector, Where)


@dataclass(frozen=True, kw_only=True)
class _Delete(Verb):
    operation: str = "DELETE"
    match: RowMatch = _DELETES
    unique: bool = False

    def schema(self, context: WriteContext, snapshot: Snapshot) -> TableSchema:
        return table_schema(context, snapshot, snapshot.schema)

    def counted(self, result: WriteResult) -> WriteResult:
        """The result, with the counts that no task of the write has added."""
        return result


@dataclass(frozen=True, kw_only=True)
class DeleteRows(_Delete):
    """A delete of rows with key and partition path; the index locates them, as in an upsert."""

    rows: Rows

    def incoming(self, context: WriteContext) -> Rows:
        return self.rows

    def prepare(self, write: Write) -> Rows:
        context = write.context
        rows, ordering = self._with_given_ordering(context)
        present = context.engine.schema(rows)
        prepared = derive_keys(context, rows, present, keep=[*_key_columns(context, present), *ordering])
        if key_hash_of(context.index) is not None:
            return prepared
        # marked as deletes before the lookup: a global index then deletes a key where it is, and does not move it
        return context.engine.derive(prepared, {DELETE: BooleanLiteral(True)})

    def _with_given_ordering(self, context: WriteContext) -> tuple[Rows, list[str]]:
        """The rows, and the names of those of their ordering columns that deletes in log files store."""
        names = context.rules.ordering_columns if context.config.table_type == "mor" else []
        if not names or not set(names) <= set(context.engine.schema(self.rows).names):
            return self.rows, []
        ordering = {INCOMING_ORDERING + name: Column(name) for name in names}
        return context.engine.derive(self.rows, ordering), list(ordering)


@dataclass(frozen=True, kw_only=True)
class DeleteHashed(_Delete):
    """A delete of keys, for a table with one partition path and an index that hashes keys: nothing is looked up."""

    keys: pa.Table

    def incoming(self, context: WriteContext) -> Rows:
        return context.engine.from_arrow(self.keys)

    def prepare(self, write: Write) -> Rows:
        key_hash, texts = key_hash_of(write.context.index), self.keys.column(RECORD_KEY)
        assert key_hash is not None
        path = pa.repeat(pa.scalar("", pa.string()), len(texts))
        rows = self.keys.append_column(PARTITION_PATH, path)
        rows = rows.append_column(GROUP, key_hash.in_partition("").groups_of(texts))
        return write.context.engine.from_arrow(rows)


@dataclass(frozen=True, kw_only=True)
class _DeleteLocated(_Delete):
    """Deletes of stored rows whose location is known, so that the index looks nothing up."""

    found: tuple[Snapshot, Rows] | None = field(default=None, repr=False, compare=False)
    """The rows to delete in a view of the table, which are taken where the table has not changed since."""

    @abstractmethod
    def located(self, context: WriteContext, snapshot: Snapshot) -> Rows:
        """The stored rows to delete, with their locations."""

    def prepare(self, write: Write) -> Rows:
        if self.found is not None and write.snapshot.shows_same(self.found[0]):
            return self.found[1]
        return self.located(write.context, write.snapshot)

    def count_keys(self, rows: Rows, engine: Engine) -> None:
        """Record how many of the keys these rows have."""
        return

    def with_all_rows_of_keys(self, rows: Rows, write: Write) -> Rows:
        """The rows to delete; they are unchanged here. `DeleteWhere` adds the other stored rows of their keys."""
        return rows

    @contextmanager
    def place(self, write: Write, prepared: Rows) -> Generator[Placed]:
        context = write.context
        with persisted(context.engine, prepared) as rows:
            self.count_keys(rows, context.engine)
            rows = self.with_all_rows_of_keys(rows, write)
            resizing, engine = context.index.resizing, context.engine
            located = rows if resizing is None else resizing.with_child_locations(rows, write.snapshot, engine)
            yield TaggedRows(replace(write, stored=True), located)


@dataclass(frozen=True, kw_only=True)
class DeleteKeys(_DeleteLocated):
    """Deletes of keys in any partition path; `texts` are the keys if they are in memory, otherwise None."""

    keys: Rows
    texts: pa.Array | pa.ChunkedArray | None = None
    # number of keys given, of distinct keys, and of keys that are stored
    _counts: list[int] = field(default_factory=list[int], init=False, compare=False)

    def counted(self, result: WriteResult) -> WriteResult:
        """The result with counts of keys: `rows` is the number of requested keys, `combined` that of repeated ones, and
        `unchanged` that of keys that the table does not have."""
        if not self._counts or result.deleted is None:
            return result
        requested, distinct, stored = self._counts
        return replace(result, rows=requested, combined=requested - distinct, unchanged=distinct - stored)

    def count_keys(self, rows: Rows, engine: Engine) -> None:
        """Count the keys, and those that stored rows have."""
        keys = engine.derive(self.keys, {}, keep=[RECORD_KEY])
        stored_keys = engine.derive(rows, {}, keep=[RECORD_KEY])
        parts = (keys, engine.distinct(keys), engine.distinct(stored_keys))
        self._counts[:] = [count_rows(engine, part) for part in parts]

    def located(self, context: WriteContext, snapshot: Snapshot) -> Rows:
        """The rows to delete: all locations of these keys in all partition paths, from the index or by a join with the
        key column of all base files (only of the buckets of the keys, if the index hashes)."""
        engine = context.engine
        stored, located = context.index.stored_locations, None
        if stored is not None:
            located = stored.locate(engine.derive(self.keys, {}, keep=[RECORD_KEY]), snapshot, engine)
        if located is not None and engine.schema(self.keys).names == [RECORD_KEY]:
            return located
        if located is not None:
            return engine.join(located, engine.distinct(self.keys), [RECORD_KEY], "inner")
        names = [RECORD_KEY, PARTITION_PATH, *positions_of(snapshot)]
        rows = engine.read_columns(snapshot, self._slices(context, snapshot), [*names, FILE_NAME])
        locations = engine.derive(rows, STORED_LOCATION, keep=names)
        return engine.join(locations, engine.distinct(self.keys), [RECORD_KEY], "inner")

    def _slices(self, context: WriteContext, snapshot: Snapshot) -> Sequence[FileSlice]:
        hashing, engine = context.index.hashing, context.engine
        locations = None if hashing is None else hashing.key_locations(snapshot)
        slices = snapshot.file_slices()
        texts = self.texts
        if texts is None and not engine.is_distributed:
            texts = engine.collect(self.keys).column(RECORD_KEY)
        if locations is None or texts is None:
            return slices
        return buckets_of_keys(slices, locations, texts)


@dataclass(frozen=True, kw_only=True)
class DeleteWhere(_DeleteLocated):
    """A delete of every stored row that fulfils a condition."""

    condition: Any

    def located(self, context: WriteContext, snapshot: Snapshot) -> Rows:
        scan, engine = self.stored_rows(context, snapshot), context.engine
        rows = engine.rows(scan.to_spark() if engine.is_distributed else scan.to_arrow())
        return engine.derive(rows, STORED_LOCATION, keep=[RECORD_KEY, PARTITION_PATH])

    def with_all_rows_of_keys(self, rows: Rows, write: Write) -> Rows:
        """The rows, with the numbers of all rows of their keys. In log files a key is deleted once, unless its rows are
        deleted by their numbers in the base file, and inserts can store several rows of a key in one file group."""
        engine, snapshot = write.context.engine, write.snapshot
        position, names = positions_of(snapshot), [RECORD_KEY, PARTITION_PATH, FILE_ID]
        if snapshot.config.table_type == "cow" or not position:
            return rows
        distinct = engine.distinct(engine.derive(rows, {}, keep=names))
        if count_rows(engine, rows) == count_rows(engine, distinct):
            return rows
        (paths,) = distinct_values(engine.aggregate(distinct, [PARTITION_PATH]), PARTITION_PATH)
        stored = engine.read_columns(snapshot, snapshot.file_slices(paths), [*names[:2], *position, FILE_NAME])
        locations = engine.derive(stored, STORED_LOCATION, keep=[*names[:2], *position])
        return engine.join(locations, distinct, names, "inner")

    def stored_rows(self, context: WriteContext, snapshot: Snapshot) -> Scan:
        columns = [RECORD_KEY, PARTITION_PATH, FILE_NAME]
        spark = getattr(context.engine, "spark", None)
        return Scan(snapshot, columns=columns, where=self.condition, spark=spark, reads=context.options.read)


AnyDelete = DeleteWhere | DeleteKeys | DeleteHashed | DeleteRows
