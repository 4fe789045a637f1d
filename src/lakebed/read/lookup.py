"""Point lookups in this process: `get`, `exists` and `locate`. Which file slices can hold a key, and its rows, with
as few bytes read as the index allows.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption, InvalidRecord, LakebedError
from lakebed.expressions.base import Column as KeyColumn
from lakebed.expressions.key_generators import KeyGenerator, exact_cast
from lakebed.expressions.key_text import CompositeKey, SingleKey
from lakebed.filters.text import resolve_columns
from lakebed.format.footer_cache import FOOTERS
from lakebed.merge.key_fields import KeyFields
from lakebed.model import ALL_META_COLUMNS, OPERATION_COLUMN, RECORD_KEY, FileSlice
from lakebed.read.batches import RowReader, row_readers
from lakebed.read.keys import (
    IndexedKeys,
    bucket_layout,
    find_keys,
    partition_paths_may_be_stale,
    usable_record_index,
)
from lakebed.read.plan import ScanPlan, plan_scan, table_columns
from lakebed.read.prune import buckets_of_keys
from lakebed.schema.arrow import is_text
from lakebed.schema.layouts import check_texts
from lakebed.schema.plain_arrow import as_numpy, text_scalar
from lakebed.sharing import once
from lakebed.slices.snapshot import Snapshot, table_keys
from lakebed.storage.parallel import at_once, is_remote, parallel_map

__all__ = ["LOCATION_SCHEMA", "KeyText", "LookupKeys", "exists", "get", "locate", "parse_lookup_keys"]


class KeyText:
    """Record keys by their text, for every function that takes keys: as the table stores them (`_hoodie_record_key`),
    or with `typed` as users write them.

    A typed text is read by the types of the key columns: `42`, `2024-01-31 10:00:00`, and of several columns
    `id:42,day:7`. A complex key of one column is given as `42` or as `id:42`. Where a text cannot be a
    key of the table, what takes it raises `InvalidOption`.

    >>> import lakebed
    >>> len(lakebed.KeyText(["id:1,code:x"]))
    1
    """

    def __init__(self, keys: Any, *, typed: bool = False) -> None:
        self.typed = typed
        try:
            listed = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(list(keys), pa.string())
        except (pa.ArrowException, TypeError) as error:
            raise InvalidOption(f"KeyText takes a list of texts: {error}") from error
        self.keys: pa.Array = plain_texts(listed)
        if isinstance(keys, pa.Array | pa.ChunkedArray):
            check_texts(pa.chunked_array([self.keys]), "KeyText")

    def stored_in(self, snapshot: Snapshot) -> pa.Array:
        """The texts of these keys as the table stores them."""
        config, schema = snapshot.config, snapshot.schema
        if not self.typed or not config.key_fields or not len(self.keys):
            return self.keys
        generator = table_keys(snapshot)
        record_key = generator.record_key
        if not isinstance(record_key, SingleKey | CompositeKey):
            return self.keys
        kinds = ", ".join(f"{name} of type {KeyColumn(name).type_in(schema)}" for name in record_key.columns)
        try:
            stored = plain_texts(generator.key_text_of(record_key.values_in(self.keys, schema), schema))
        except InvalidRecord as error:
            text, why = error.context.get("text"), error.message
            raise InvalidOption(
                f"{text!r} cannot be a key of table {config.name!r}: its key is {kinds}" if text is not None else why,
                hint=error.hint if text is None else "write a value of that type",
                context={"key": text, "column": record_key.columns[0]},
            ) from None
        if stored.null_count:
            raise InvalidOption(f"an empty text cannot be a key of table {config.name!r}: its key is {kinds}")
        return stored

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class LookupKeys:
    """The keys to look up: `texts` has one per requested key (null: no such key can exist), `partitions` the partition
    path of each if the caller gave the partition columns, `fields` the columns from which the keys are made, unless
    stored key text was given."""

    texts: pa.Array
    partitions: pa.Array | None = None
    fields: pa.Table | None = None

    def where(self, mask: pa.Array) -> LookupKeys:
        """The keys that a mask marks."""
        parts = (self.texts, self.partitions, self.fields)
        return LookupKeys(*(None if part is None else part.filter(mask) for part in parts))


def parse_lookup_keys(snapshot: Snapshot, keys: Any) -> LookupKeys:
    """The key texts of the user's `keys`, and partition paths if the keys have the partition columns and these
    determine where a row is."""
    config = snapshot.config
    if isinstance(keys, KeyText):
        return LookupKeys(keys.stored_in(snapshot))
    if not config.key_fields:
        raise InvalidOption(
            f"the keys of table {config.name!r} are made by the writer, not from columns",
            hint="give stored keys: lakebed.KeyText([...])",
        )
    schema = snapshot.schema
    generator = table_keys(snapshot)
    try:
        table = _key_table(keys, tuple(config.key_fields), schema)
        for field in config.key_fields:
            if field in schema.names and pa.types.is_temporal(schema.field(field).type):
                table = _with_times(table, generator, schema)
                break
    except InvalidOption as error:
        # the footer of a base file has a stored key
        bases = (file_slice.base_file for file_slice in snapshot.file_slices() if "column" in error.context)
        base = next((file for file in bases if file is not None), None)
        ranges = [] if base is None else FOOTERS.read(snapshot.storage, base.path, base.size).ranges
        stored = next((key_range[0] for key_range in ranges if key_range is not None), None)
        example = "" if stored is None else f" A stored key is {generator.readable_text(stored, schema)!r}."
        raise InvalidOption(error.message, hint=f"{error.hint}{example}", context=error.context) from None
    if not isinstance(keys, list | tuple | set | frozenset):  # Python's own texts can be no broken ones
        for name, column in zip(table.column_names, table.columns, strict=True):
            check_texts(column, name)
    texts = plain_texts(generator.key_text_of(table, schema))
    return LookupKeys(texts, _partitions_of(snapshot, table), table)


def _partitions_of(snapshot: Snapshot, table: pa.Table) -> pa.Array | None:
    config = snapshot.config
    fields = [f.partition(".")[0] for f in config.partition_fields]
    if not fields or not {*fields} <= {*table.column_names} or partition_paths_may_be_stale(snapshot.storage, config):
        return None
    columns = [
        table.column(f).cast(snapshot.schema.field(f).type) if f in snapshot.schema.names else table.column(f)
        for f in fields
    ]
    plain = pa.Table.from_arrays(columns, names=fields).combine_chunks()
    paths = [config.keys.partition_path.arrow(b) for b in plain.to_batches()]
    return pa.concat_arrays(paths) if paths else pa.array([], pa.string())


def is_keys(value: Any) -> bool:
    """Whether the value is a collection or a column of keys, not a table of rows."""
    if isinstance(value, KeyText | list | tuple | set | frozenset):
        return not _are_rows(value)
    return hasattr(value, "__array__") and not hasattr(value, "columns") and not hasattr(value, "schema")


def _are_rows(keys: Any) -> bool:
    """Whether keys are given as dicts, or as one dict of columns, with the key columns by name."""
    if isinstance(keys, list):
        listed = cast("list[Any]", keys)
        return bool(listed) and isinstance(listed[0], Mapping)
    return isinstance(keys, Mapping)


def _key_table(keys: Any, fields: tuple[str, ...], schema: pa.Schema) -> pa.Table:
    if _are_rows(keys):
        from lakebed.engine.arrow_data import to_arrow_table

        return to_arrow_table(keys)
    if isinstance(keys, pa.RecordBatch):
        return pa.Table.from_batches([keys])
    if isinstance(keys, pa.Table):
        return keys
    if hasattr(keys, "__arrow_c_stream__"):
        try:
            keys = pa.chunked_array(keys)  # of a frame its rows as structs, of a column (a series) its values
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidOption(f"these keys are no columns: {error}", hint="give a column one type") from None
        if pa.types.is_struct(keys.type):
            return pa.Table.from_struct_array(keys)
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        columns: list[Any] = [keys]
    else:
        if isinstance(keys, str | bytes):
            keys = [keys]
        # a frame whose rows are in a cluster is iterated by its column names, if at all
        is_remote_frame = hasattr(keys, "columns")
        if not isinstance(keys, Iterable) or getattr(keys, "ndim", 1) == 0 or is_remote_frame:
            raise InvalidOption(
                f"keys are given as a collection, not as {type(keys).__name__}",
                hint="give a list of keys, of tuples, a table with the key columns, or lakebed.KeyText([...])",
            )
        listed = list(cast("Iterable[Any]", keys))
        columns = [listed] if len(fields) == 1 else _transposed(listed, fields)
    if len(columns) != len(fields):
        raise InvalidOption(
            f"keys of one value given, but the record key is made of {', '.join(fields)}",
            hint="give tuples in that order, or a table with these columns",
        )
    return pa.table({f: _typed(c, f, schema) for f, c in zip(fields, columns, strict=True)})


def _with_times(table: pa.Table, generator: KeyGenerator, schema: pa.Schema) -> pa.Table:
    """The table with times in place of the texts and dates that are given for them. A text is read as in
    `KeyText(typed=True)`."""
    for name, written in generator.time_texts(schema).items():
        at = table.schema.get_field_index(name)
        if at < 0:
            continue
        column, kind = table.column(at), schema.field(name).type
        if pa.types.is_date(column.type) and pa.types.is_timestamp(kind):
            column = column.cast(pa.string())
        if not is_text(column.type):
            continue
        try:
            table = table.set_column(at, name, written.values_of(plain_texts(column), schema))
        except InvalidRecord as error:
            raise _no_fit(name, kind, f"{error.context['text']!r} is no {kind}") from None
    return table


def _transposed(keys: list[Any], fields: tuple[str, ...]) -> list[list[Any]]:
    if any(not isinstance(k, tuple | list) or len(k) != len(fields) for k in keys):
        raise InvalidOption(
            f"every key has to be a tuple of {len(fields)} values: {', '.join(fields)}",
            hint="or give a table with these columns, or lakebed.KeyText([...])",
        )
    return [[k[i] for k in keys] for i in range(len(fields))]


def _typed(values: Any, field: str, schema: pa.Schema) -> Any:
    from lakebed.inputs.python_rows import check_times

    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    type_ = schema.field(field).type if field in schema.names else None
    try:
        if type_ is None:
            return pa.array(values)
        if pa.types.is_temporal(type_):
            kinds = set(map(type, values)) - {type(None)}
            if kinds == {str} or (kinds == {date} and pa.types.is_timestamp(type_)):
                return pa.array(values, pa.string() if kinds == {str} else pa.date32())  # `_with_times` reads them
            check_times(values, type_)
        typed, kinds = pa.array(values, type_), set(map(type, values))
        # of its own type a value is exact; to infer the type of others, pyarrow imports pandas
        if kinds != {str if pa.types.is_string(type_) else int if pa.types.is_integer(type_) else None}:
            with suppress(pa.ArrowNotImplementedError):
                exact_cast(pa.chunked_array([pa.array(values)]), type_)
        return typed
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        types = ", ".join(dict.fromkeys(type(value).__name__ for value in values))
        # Arrow's own words speak of bytes and classes of Python
        why = f"they are of type {types}" if isinstance(error, pa.ArrowTypeError) or "<class" in str(error) else error
        raise _no_fit(field, type_, why) from None


def _no_fit(field: str, type_: pa.DataType | None, why: object) -> InvalidOption:
    return InvalidOption(
        f"these keys do not fit the key column {field!r} of type {type_}: {why}",
        hint="give values of the column's type, or stored keys as lakebed.KeyText([...])",
        context={"column": field, "type": str(type_)},
    )


def plain_texts(values: Any) -> pa.Array:
    """A column of texts in whatever form as one plain string array."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


# Reading the footers of so many files costs less than asking the metadata table for their key ranges.
_MAX_FILES = 16
# Key ranges rule nothing out for more keys than so many.
_MAX_BY_STATISTICS = 10_000


@dataclass(frozen=True, slots=True)
class Candidates:
    """The file slices that can hold a key. `indexed` is the record index's answer if it named them, otherwise None."""

    slices: Sequence[FileSlice]
    indexed: IndexedKeys | None = None


class KeySearch:
    """The file slices that can hold the keys, and the matching rows of each.

    Where the table has a record index that answers for this view, it names the file group of each key. Else the bucket
    hash does, else files are ruled out by the key ranges and bloom filters in their footers. If the text of a key may
    be that of other field values (`compares`), only the rows with the requested fields match.
    """

    def __init__(self, snapshot: Snapshot, lookup: LookupKeys, columns: Sequence[str]) -> None:
        config = snapshot.config
        self.snapshot = snapshot
        self.lookup = lookup
        self.keys = plain_texts(lookup.texts.drop_null().unique())
        self.meta = config.populate_meta_fields
        self.compares = _shared(snapshot, lookup) is not None
        names = [*columns, *((RECORD_KEY,) if self.meta else config.key_fields)]
        if self.compares and lookup.fields is not None:
            fields = KeyFields.of(config)
            names += fields.columns(lookup.fields.schema) if fields is not None else []
        self.columns = list(dict.fromkeys(names))

    @once
    def partitions(self) -> frozenset[str] | None:
        """The partition paths to search; None: all."""
        if self.lookup.partitions is None:
            return None
        return frozenset(p for p in self.lookup.partitions.unique().to_pylist() if p is not None)

    @once
    def candidates(self) -> Candidates:
        """The file slices that can hold a key, and the index's answer if it named them."""
        if not len(self.keys):
            return Candidates(())
        indexed = self._indexed()
        named = None if indexed is None else indexed.slices(self.snapshot)
        if named is not None:
            return Candidates(named, indexed)
        slices = self.snapshot.file_slices(self.partitions)
        bucketed = bucket_layout(self.snapshot, table_columns(self.snapshot))
        if bucketed is None:
            return Candidates(self._by_statistics(slices))
        return Candidates(buckets_of_keys(slices, bucketed.locations, self.keys))

    def _indexed(self) -> IndexedKeys | None:
        """The record index's answer; None if it cannot answer."""
        indexed_keys = find_keys(self.snapshot, self.keys, self.partitions)
        if indexed_keys is None or self.lookup.partitions is None:
            return indexed_keys
        return indexed_keys.of_pairs(pa.table({"key": self.lookup.texts, "partition": self.lookup.partitions}))

    def _by_statistics(self, slices: Sequence[FileSlice]) -> list[FileSlice]:
        """The slices whose key range in the metadata table includes one of the keys, so that fewer footers are read."""
        from lakebed.filters.predicates import Column, In, Literal, Predicate
        from lakebed.read.skip import skip_slices

        if len(slices) <= _MAX_FILES or len(self.keys) > _MAX_BY_STATISTICS or not self.meta:
            return list(slices)
        column = Column((RECORD_KEY,), pa.string())
        of_keys = Predicate(In(column, tuple(Literal(key, column.type) for key in self.keys.to_pylist())))
        return skip_slices(self.snapshot, of_keys, slices, table_columns(self.snapshot), log_files=True)[0]

    @once
    def plan(self) -> ScanPlan:
        return plan_scan(self.snapshot, None, self.columns, slices=self.candidates.slices)

    def texts(self, rows: pa.Table) -> pa.Array:
        """The key texts of rows that were found."""
        if self.meta:
            return plain_texts(rows.column(RECORD_KEY))
        config = self.snapshot.config
        return plain_texts(config.keys.key_text_of(rows.select(list(config.key_fields))))

    def run(self) -> Iterator[tuple[FileSlice, pa.Table]]:
        """All file slices that were searched, with their matching rows."""
        jobs = row_readers(self.plan, None)

        def search(job: tuple[FileSlice, RowReader]) -> tuple[FileSlice, pa.Table]:
            file_slice, reader = job
            return file_slice, pa.Table.from_batches(self._rows(file_slice, reader), self.plan.schema)

        cores = os.cpu_count() or 1
        matches = parallel_map(search, jobs, min(8, 2 * cores if is_remote(self.snapshot.storage) else cores))
        fields, requested_fields = KeyFields.of(self.snapshot.config), self.lookup.fields
        if not self.compares or fields is None or requested_fields is None:
            yield from matches
            return
        requested = _pair(self.lookup.texts, fields.identities(requested_fields))
        for file_slice, rows in matches:
            stored = _pair(plain_texts(self.texts(rows)), fields.identities(rows))
            yield file_slice, rows.filter(pc.is_in(stored, value_set=requested))

    def _rows(self, file_slice: FileSlice, reader: RowReader) -> list[pa.RecordBatch]:
        keys, slices = self.keys_in(file_slice), self.snapshot.reader
        if self.meta:
            return reader.rows_of_keys(slices, file_slice, keys, use_bloom=self.candidates.indexed is None)
        batches: list[pa.RecordBatch] = []
        for batch in reader.read(slices, file_slice):
            mask = pc.is_in(self.texts(pa.Table.from_batches([batch])), value_set=keys)
            batches.append(batch.filter(mask))
        return batches

    def keys_in(self, file_slice: FileSlice) -> pa.Array:
        """The keys, in ascending order, that one of the candidate slices may hold."""
        if self.candidates.indexed is not None:
            return self.candidates.indexed.groups[file_slice.partition, file_slice.file_id]
        if self.lookup.partitions is None:
            return self._sorted_keys
        path = text_scalar(file_slice.partition)
        in_partition = pc.and_(pc.equal(self.lookup.partitions, path), pc.is_valid(self.lookup.texts))
        return _in_order(plain_texts(self.lookup.texts.filter(in_partition).unique()))

    @once
    def _sorted_keys(self) -> pa.Array:
        return _in_order(self.keys)


def _in_order(keys: pa.Array) -> pa.Array:
    return keys.take(pc.sort_indices(keys))


LOCATION_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("partition_path", pa.string()),
        ("file_id", pa.string()),
        ("instant", pa.string()),
    ]
)


def get(snapshot: Snapshot, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of these keys, in the order of the search; all data columns, or `columns` (meta columns by name).

    `keys`: a list or array for a single key field, tuples or a table for several (with partition columns, if known),
    or `KeyText`. On a table that is not global every partition is searched unless the partition columns are given.
    """
    if is_remote(snapshot.storage):  # the schema is read while the record index is listed
        with suppress(LakebedError, FileNotFoundError):  # the lookup reports what is wrong
            at_once(snapshot.storage, lambda: snapshot.schema, lambda: usable_record_index(snapshot))
    lookup = parse_lookup_keys(snapshot, keys)
    available = table_columns(snapshot, operations=OPERATION_COLUMN in (columns or ()))
    names = [n for n in available.names if n not in ALL_META_COLUMNS] if columns is None else list(columns)
    names = resolve_columns(names, available)
    search = KeySearch(snapshot, lookup, names)
    tables = [t for _, t in search.run() if t.num_rows]
    rows = pa.concat_tables(tables) if tables else search.plan.schema.empty_table()
    return rows.select(names)


def exists(snapshot: Snapshot, keys: Any) -> pa.BooleanArray:
    """Whether the table has each key, as a boolean for each, in the order of `keys`. A record index answers without
    reading files."""
    return are_stored(snapshot, parse_lookup_keys(snapshot, keys))


def are_stored(snapshot: Snapshot, lookup: LookupKeys) -> pa.BooleanArray:
    """Whether the table has each of the keys, as a boolean for each."""
    shared = _shared(snapshot, lookup)
    if shared is None:
        return _exist(snapshot, lookup)
    alone = pc.invert(shared)
    flags = np.zeros(len(shared), np.bool_)
    for mask, of in ((alone, _exist), (shared, _exist_with_fields)):
        flags[as_numpy(mask)] = as_numpy(of(snapshot, lookup.where(mask)))
    return pa.array(flags)


def _exist(snapshot: Snapshot, lookup: LookupKeys) -> pa.BooleanArray:
    search = KeySearch(snapshot, lookup, ())
    indexed = search.candidates.indexed
    if indexed is not None and not search.compares:
        keys, paths = (plain_texts(indexed.locations.column(name)) for name in ("key", "partition"))
    else:
        rows = _found_rows(search)
        keys, paths = (plain_texts(rows.column(name)) for name in ("key", "partition_path"))
    if lookup.partitions is None:
        return pc.is_in(lookup.texts, value_set=keys)
    stored_pairs = _pair(paths, keys)
    return pc.is_in(_pair(lookup.partitions, lookup.texts), value_set=stored_pairs)


def _exist_with_fields(snapshot: Snapshot, lookup: LookupKeys) -> pa.BooleanArray:
    """Whether the table has each key, as a boolean for each, for keys whose text other field values may have: the key
    fields of stored rows are compared as well."""
    fields = KeyFields.of(snapshot.config)
    assert fields is not None
    assert lookup.fields is not None
    requested, stored = _pair(lookup.texts, fields.identities(lookup.fields)), [pa.array([], pa.string())]
    search = KeySearch(snapshot, lookup, ())
    for file_slice, rows in search.run():
        path = pa.repeat(pa.scalar(file_slice.partition), rows.num_rows)
        of_rows = _pair(plain_texts(search.texts(rows)), fields.identities(rows))
        stored.append(of_rows if lookup.partitions is None else _pair(path, of_rows))
    requested = requested if lookup.partitions is None else _pair(lookup.partitions, requested)
    return pc.is_in(requested, value_set=pa.concat_arrays(stored))


def locate(snapshot: Snapshot, keys: Any) -> pa.Table:
    """The locations of the keys: key text, partition path, file id and instant of the base file, one row per location.
    A record index answers without reading files."""
    return _lookup_rows(snapshot, parse_lookup_keys(snapshot, keys))


def _lookup_rows(snapshot: Snapshot, lookup: LookupKeys) -> pa.Table:
    search = KeySearch(snapshot, lookup, ())
    candidates = search.candidates
    if candidates.indexed is not None and not search.compares:
        return _locations(candidates.indexed, candidates.slices)
    return _found_rows(search)


def _found_rows(search: KeySearch) -> pa.Table:
    """The locations of the rows that a search finds in files."""
    tables: list[pa.Table] = []
    for file_slice, rows in search.run():
        if rows.num_rows:
            texts = plain_texts(search.texts(rows))
            location = (file_slice.partition, file_slice.file_id, file_slice.instant)
            constants = [pa.repeat(pa.scalar(value, pa.string()), len(texts)) for value in location]
            tables.append(pa.Table.from_arrays([texts, *constants], schema=LOCATION_SCHEMA))
    return pa.concat_tables(tables) if tables else LOCATION_SCHEMA.empty_table()


def _shared(snapshot: Snapshot, lookup: LookupKeys) -> pa.Array | None:
    """Flags of the keys whose text other field values may have; None if no key has such a text."""
    fields = KeyFields.of(snapshot.config)
    if fields is None or lookup.fields is None:
        return None
    shared = pc.fill_null(fields.shared.of_texts(lookup.texts), False)
    return shared if fields.columns(lookup.fields.schema) and pc.any(shared).as_py() else None


def _locations(indexed: IndexedKeys, slices: Collection[FileSlice]) -> pa.Table:
    """The index's answer with the instants of the file slices."""
    instants = pa.table(
        {
            "partition": pa.array([s.partition for s in slices], pa.string()),
            "file_id": pa.array([s.file_id for s in slices], pa.string()),
            "instant": pa.array([s.instant for s in slices], pa.string()),
        }
    )
    joined = indexed.locations.join(instants, ["partition", "file_id"])
    columns = [joined[name] for name in ("key", "partition", "file_id", "instant")]
    return pa.Table.from_arrays(columns, schema=LOCATION_SCHEMA)


def _pair(left: pa.Array, right: pa.Array) -> pa.Array:
    """The texts of two columns joined, so that different pairs give different texts."""
    size = pc.utf8_length(left).cast(pa.string())
    return pc.binary_join_element_wise(size, left, right, text_scalar("/"))
