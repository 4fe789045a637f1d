"""Where rows and their values are in the files of a table: rows of base and log files, deletes, change logs, footers,
indexes and statistics of the metadata table, the timeline, and any other file.

Every file is read, with all that is compressed in it decompressed. A value counts as a row's own if no other row of the
table has it. Long texts are searched as bytes, so that they are found wherever they are; a short text or a number
would be found by chance, and is compared with the decoded values of its column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile, LakebedError
from lakebed.format.data_block import AFTER, BEFORE, KEY, OP
from lakebed.format.file_contents import (
    AVRO_MAGIC,
    Buffer,
    byte_runs,
    deletes_in,
    entries_in,
    footer_ranges,
    leaf_values,
    row_batches,
)
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.format.hashes import value_buffer
from lakebed.metadata_records import stats_codec
from lakebed.metadata_records.definitions import load_definitions
from lakebed.metadata_records.layout import (
    COLUMN_STATS,
    EXPRESSION_INDEX,
    METADATA_FOLDER,
    PARTITION_STATS,
    split_secondary_keys,
)
from lakebed.model import HOODIE, META_COLUMNS, RECORD_INDEX, RECORD_KEY, SECONDARY_INDEX, BaseFile, LogFile
from lakebed.slices.snapshot import Snapshot, table_keys
from lakebed.storage.base import FileInfo, Storage
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.bodies.commit import recorded_ranges

DATA, LOGS, CHANGE_LOGS = "data files", "log files", "change logs"
TIMELINE, ARCHIVE, OTHER = "timeline", "archive", "other files"
_READERS = 4
# A text of fewer bytes is compared as a value: so few occur by chance.
MIN_TEXT = 8
# A longer one is searched by its first bytes.
MAX_TEXT = 64
_STRETCH_BYTES = 16 << 20
_WORD, _ODD = 8, 0x9E3779B97F4A7C15
_LEVELS = re.compile(r"\.(list\.element|list|element|array|key_value|bag|array_element)(?=\.|$)")

Values = Mapping[str, pa.Array]
Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file under the table's folder. `store` is the part of the table that it belongs to; `data` is the base or log
    file of rows, None for another file."""

    path: str
    size: int
    store: str
    data: BaseFile | LogFile | None = None

    @property
    def group(self) -> tuple[str, str] | None:
        return None if self.data is None else (self.data.partition, self.data.file_id)


def metadata_store(partition: str) -> str:
    """The `store` of the files of a partition of the metadata table."""
    return f"metadata table: {partition}"


def table_files(snapshot: Snapshot) -> list[TableFile]:
    """All files under the table's folder, including those of no commit and the table's properties."""
    return [_table_file(info, snapshot) for info in snapshot.storage.list("")]


def _table_file(info: FileInfo, snapshot: Snapshot) -> TableFile:
    path, config = info.path, snapshot.config
    folder, _, name = path.rpartition("/")
    if path.startswith(f"{METADATA_FOLDER}/"):
        inner = path.removeprefix(f"{METADATA_FOLDER}/")
        part = "timeline" if inner.startswith(f"{HOODIE}/") else inner.partition("/")[0]
        return TableFile(path, info.size, metadata_store(part))
    if path.startswith(f"{HOODIE}/"):
        if path.startswith(f"{config.archive_folder}/"):
            return TableFile(path, info.size, ARCHIVE)
        is_instant = folder == config.timeline_path and name[:1].isdigit()
        return TableFile(path, info.size, TIMELINE if is_instant else OTHER)
    base = parse_base_file(folder, name, info.size)
    if base is not None:
        return TableFile(path, info.size, DATA, base)
    log = parse_log_file(folder, name, info.size)
    if log is not None:
        return TableFile(path, info.size, CHANGE_LOGS if log.is_cdc else LOGS, log)
    return TableFile(path, info.size, OTHER)


@dataclass(frozen=True)
class RowKeys:
    """The rows to search for, by key text. With `partitions` (a path for each key) a key counts only in its partition
    path."""

    texts: pa.Array
    partitions: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def among(self, texts: pa.Array, partition: str) -> pa.Array:
        """Flags of the key texts of a partition path that are searched for."""
        partition_texts = self.texts
        if self.partitions is not None:
            partition_texts = partition_texts.filter(pc.equal(self.partitions, partition))
        return pc.fill_null(pc.is_in(texts.cast(pa.string()), value_set=partition_texts), False)


@dataclass
class ValueSet:
    """Distinct values by column name."""

    columns: dict[str, pa.Array] = field(default_factory=dict[str, pa.Array])

    def add(self, name: str, values: pa.Array) -> None:
        """Add texts, or binary values, of a column."""
        column = self.columns.get(name)
        if column is not None and column.type != values.type:
            values = values.cast(column.type, safe=False)
        self.columns[name] = pc.unique(values if column is None else pa.concat_arrays([column, values]))

    def add_all(self, values: Values) -> None:
        for name, part in values.items():
            self.add(name, part)

    def without(self, others: Values) -> ValueSet:
        """The values that no column of the same name in `others` has."""
        columns: dict[str, pa.Array] = {}
        for name, values in self.columns.items():
            other_values = others.get(name)
            remaining = (
                values if other_values is None else values.filter(pc.invert(pc.is_in(values, value_set=other_values)))
            )
            if len(remaining):
                columns[name] = remaining
        return ValueSet(columns)

    def have(self, name: str, values: pa.Array) -> int:
        """The number of these values of a column that are in the set."""
        column = self.columns.get(name)
        if column is None or not len(values):
            return 0
        if values.type != column.type:
            try:
                values = values.cast(column.type)
            except pa.ArrowException:
                return 0
        return int(pc.sum(pc.is_in(values, value_set=column)).as_py() or 0)

    def texts(self) -> pa.Array:
        """The distinct values of all columns."""
        parts = [values.cast(pa.binary()) for values in self.columns.values()]
        return pc.unique(pa.concat_arrays(parts)) if parts else pa.array([], pa.binary())

    def __len__(self) -> int:
        return sum(map(len, self.columns.values()))


class TextSearch:
    """Searches bytes for any of many texts of at least `MIN_TEXT` bytes; of a long text only for its first
    `MAX_TEXT` bytes.

    Where the first eight bytes of a text are, its last eight decide, then all of them.
    """

    def __init__(self, texts: pa.Array) -> None:
        long = texts.filter(pc.greater_equal(pc.binary_length(texts), MIN_TEXT)).cast(pa.binary())
        data, offsets = value_buffer(long)
        self._data, self._starts = data, offsets[:-1]
        self._lengths = np.minimum(offsets[1:] - offsets[:-1], MAX_TEXT)
        heads, tails = _words(data, self._starts), _words(data, self._starts + self._lengths - _WORD)
        self._heads = np.unique(heads)
        self._pairs = np.zeros(1 << 16, np.bool_)
        self._pairs[(heads & 0xFFFF).astype(np.int64)] = True
        self._by_length: list[tuple[int, Words, Int64s]] = []
        for length in np.unique(self._lengths).tolist():
            numbers = np.flatnonzero(self._lengths == length)
            mixed = _mixed(heads[numbers], tails[numbers])
            order = np.argsort(mixed, kind="stable")
            self._by_length.append((length, mixed[order], numbers[order]))

    def __len__(self) -> int:
        return len(self._starts)

    def text(self, number: int) -> bytes:
        """The text with this number, or its first bytes if it is long."""
        return self._data[self._starts[number] : self._starts[number] + self._lengths[number]].tobytes()

    def found_in(self, run: Buffer, *, only_one: bool = False) -> set[int]:
        """The numbers of the texts that occur in the bytes; with `only_one` at most one number."""
        data, text_numbers = np.frombuffer(run, np.uint8), set[int]()
        for start in range(0, len(data) - _WORD + 1 if len(self) else 0, _STRETCH_BYTES):
            part = data[start : start + _STRETCH_BYTES + MAX_TEXT]
            begins = min(_STRETCH_BYTES, len(part) - _WORD + 1)
            pairs = part[:begins].astype(np.uint16) | (part[1 : begins + 1].astype(np.uint16) << 8)
            at = np.flatnonzero(self._pairs[pairs])
            heads = _words(part, at)
            is_head = np.isin(heads, self._heads)
            at, heads = at[is_head], heads[is_head]
            for length, mixed, numbers in self._by_length if len(at) else ():
                fits = at + length <= len(part)
                self._match(part, at[fits], heads[fits], (length, mixed, numbers), text_numbers)
                if only_one and text_numbers:
                    return text_numbers
        return text_numbers

    def _match(
        self, part: Bytes, at: Int64s, heads: Words, texts: tuple[int, Words, Int64s], matches: set[int]
    ) -> None:
        """Add the numbers of the texts of one length that occur at these positions."""
        length, mixed, numbers = texts
        mixes = _mixed(heads, _words(part, at + length - _WORD))
        low, high = (np.searchsorted(mixed, mixes, side) for side in ("left", "right"))
        hits = np.flatnonzero(high > low)
        # each once: a text occurs many times
        _, first = np.unique(mixes[hits], return_index=True)
        for hit in hits[first].tolist():
            for number in numbers[low[hit] : high[hit]].tolist():
                if number not in matches:
                    text, same = self.text(number), hits[mixes[hits] == mixes[hit]]
                    if any(part[at[index] : at[index] + length].tobytes() == text for index in same.tolist()):
                        matches.add(number)


def _words(data: Bytes, at: Int64s) -> Words:
    """The eight bytes at each of these places as a number."""
    if not len(at):
        return np.empty(0, np.uint64)
    return data[at[:, None] + np.arange(_WORD)].copy().view("<u8")[:, 0]


def _mixed(heads: Words, tails: Words) -> Words:
    return heads * np.uint64(_ODD) ^ tails


@dataclass(frozen=True)
class SearchTerms:
    """The terms to search the files for: keys, and values that only their rows have."""

    keys: RowKeys
    values: ValueSet
    search: TextSearch

    @property
    def count(self) -> int:
        """How many keys and values are looked for."""
        return len(self.values)


@dataclass(frozen=True)
class RowTraces:
    """The rows of these keys in the base and log files of a table: the number of their records by path of the file, all
    their values, and the number of keys that have any record."""

    records: Mapping[str, int]
    values: ValueSet
    unreadable: Mapping[str, str]
    stored_keys: int = 0


class TraceReader:
    """A reader that searches the files of a table for traces of rows."""

    def __init__(self, snapshot: Snapshot, threads: int = _READERS) -> None:
        self._snapshot = snapshot
        self._storage: Storage = snapshot.storage
        self._threads = threads
        self._definitions = load_definitions(snapshot.storage, snapshot.config)

    def rows_of(self, keys: RowKeys, files: Sequence[TableFile]) -> RowTraces:
        """All versions of the rows of these keys in base files, log files and change logs, and all deletes. Values of
        partition columns are left out, since names of folders have them."""
        data = [file for file in files if file.data is not None]
        parts = parallel_map(lambda file: self._trace(keys, file), data, self._threads)
        values, records, unreadable, stored = ValueSet(), dict[str, int](), dict[str, str](), ValueSet()
        for file, (count, file_values, file_keys, damage) in zip(data, parts, strict=True):
            values.add_all(file_values.columns)
            stored.add_all(file_keys.columns)
            if count:
                records[file.path] = count
            if damage:
                unreadable[file.path] = damage
        for name in self._snapshot.config.partition_fields:
            values.columns.pop(name, None)
        if len(keys):
            values.add(RECORD_KEY, keys.texts.cast(pa.string()))
        return RowTraces(records, values, unreadable, len(stored.columns.get(RECORD_KEY, ())))

    def _trace(
        self, keys: RowKeys, file: TableFile, content: Buffer | None = None
    ) -> tuple[int, ValueSet, ValueSet, str]:
        values, stored, count = ValueSet(), ValueSet(), 0
        try:
            data = self._storage.read(file.path) if content is None else content
            for texts, rows in self._keyed_rows(data, file):
                matches = keys.among(texts, file.data.partition if file.data else "")
                met = int(pc.sum(matches).as_py() or 0)
                if met:
                    count += met
                    stored.add(RECORD_KEY, texts.cast(pa.string()).filter(matches))
                    _add_rows(values, rows.filter(matches))
            for deletes in deletes_in(data, file.path):
                matches = keys.among(deletes.keys, file.data.partition if file.data else "")
                count += int(pc.sum(matches).as_py() or 0)
                stored.add(RECORD_KEY, deletes.keys.cast(pa.string()).filter(matches))
        except FileNotFoundError:
            return 0, ValueSet(), ValueSet(), ""  # cleaned meanwhile
        except LakebedError as damage:
            return count, values, stored, damage.message
        return count, values, stored, ""

    def _keyed_rows(self, data: Buffer, file: TableFile) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Batches of rows with their key texts; for a change log the images and their keys."""
        for batch in row_batches(data, file.path):
            if RECORD_KEY in batch.schema.names:
                yield batch.column(RECORD_KEY), batch
            elif OP in batch.schema.names:
                if KEY in batch.schema.names:
                    yield batch.column(KEY), batch.select([KEY]).rename_columns([RECORD_KEY])
                yield from self._images(batch)

    def _rows_of_others(self, keys: RowKeys, file: TableFile) -> Iterator[pa.RecordBatch]:
        """Batches of the rows of other keys; for a file that cannot be read, those before the damage. `traces_in` names
        such files."""
        partition = file.data.partition if file.data else ""
        try:
            for texts, rows in self._keyed_rows(self._storage.read(file.path), file):
                yield rows.filter(pc.invert(keys.among(texts, partition)))
        except (FileNotFoundError, LakebedError):
            return

    def _images(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        for side in (BEFORE, AFTER):
            if side not in batch.schema.names:
                continue
            images = batch.column(side).drop_null()
            if len(images):
                rows = pa.RecordBatch.from_struct_array(images)
                table = pa.Table.from_batches([rows])
                texts = table_keys(self._snapshot).key_text_of(table, self._snapshot.schema)
                yield texts, rows

    def values_of_others(self, keys: RowKeys, values: ValueSet, files: Sequence[TableFile]) -> ValueSet:
        """The values of `values` that rows of other keys have in these files."""

        def shared(file: TableFile) -> ValueSet:
            file_values = ValueSet()
            for rows in self._rows_of_others(keys, file):
                _add_rows(file_values, rows, values)
            return file_values

        shared_values = ValueSet()
        for part in parallel_map(shared, [file for file in files if file.data is not None], self._threads):
            shared_values.add_all(part.columns)
        return shared_values

    def search_terms(self, keys: RowKeys, traces: RowTraces, files: Sequence[TableFile]) -> SearchTerms:
        """The keys, and the values of their rows that rows of other keys do not have in these files. A text that is
        part of a longer one is compared only as a value."""
        other_values = self.values_of_others(keys, traces.values, files)
        unique_values = traces.values.without(other_values.columns)
        search = TextSearch(unique_values.texts())
        if not len(search):
            return SearchTerms(keys, unique_values, search)
        within = self._texts_within(search, keys, files)
        texts = [search.text(number) for number in range(len(search)) if number not in within]
        return SearchTerms(keys, unique_values, TextSearch(pa.array(texts, pa.binary())))

    def _texts_within(self, search: TextSearch, keys: RowKeys, files: Sequence[TableFile]) -> set[int]:
        """The numbers of the texts that occur in the table outside the rows of these keys: in values of other rows,
        names of columns, partition paths and settings."""

        def within(file: TableFile) -> set[int]:
            file_numbers: set[int] = set()
            for rows in self._rows_of_others(keys, file):
                file_numbers |= _found_in_rows(search, rows)
            return file_numbers

        snapshot = self._snapshot
        settings = [snapshot.avro_schema, *snapshot.partitions(), *snapshot.config.properties.values()]
        numbers = search.found_in("\n".join(settings).encode())
        return numbers.union(*parallel_map(within, [f for f in files if f.data is not None], self._threads))

    def traces_in(self, terms: SearchTerms, files: Sequence[TableFile]) -> tuple[list[str], dict[str, str]]:
        """The paths of the files that contain one of the terms, and the paths of files that cannot be read, with the
        reason."""
        parts = parallel_map(lambda file: self._holds(terms, file), files, self._threads)
        paths = [file.path for file, (holds, _) in zip(files, parts, strict=True) if holds]
        return paths, {file.path: damage for file, (_, damage) in zip(files, parts, strict=True) if damage}

    def _holds(self, terms: SearchTerms, file: TableFile) -> tuple[bool, str]:
        try:
            data = self._storage.read(file.path)
            return any(self._signs(terms, file, data)), ""
        except FileNotFoundError:
            return False, ""
        except LakebedError as damage:
            return False, damage.message

    def _signs(self, terms: SearchTerms, file: TableFile, data: Buffer) -> Iterator[object]:
        """For each part of a file, a true value if it contains one of the terms."""
        yield terms.search.found_in(file.path.encode(), only_one=True)
        for run in byte_runs(data, file.path):
            yield terms.search.found_in(run, only_one=True)
        for name, values in self._values(data, file):
            yield terms.values.have(name, values)
        if file.store == ARCHIVE:  # the Avro bodies of archived instants
            for column in (column for batch in row_batches(data, file.path) for column in batch.columns):
                bodies = column.drop_null().to_pylist() if pa.types.is_binary(column.type) else []
                for body in (body for body in bodies if body[: len(AVRO_MAGIC)] == AVRO_MAGIC):
                    yield from (terms.search.found_in(run, only_one=True) for run in byte_runs(body, file.path))
        if file.data is not None:
            yield self._trace(terms.keys, file, data)[0]

    def _values(self, data: Buffer, file: TableFile) -> Iterator[tuple[str, pa.Array]]:
        """Yield pairs of a column's name and values that a file has outside its rows: the ranges in a Parquet footer,
        the ranges in a body on the timeline, and the keys and ranges in a file of the metadata table."""
        if file.data is not None:
            for name, values in footer_ranges(data, file.path):
                yield _LEVELS.sub("", name) or RECORD_KEY, values
        if file.store == TIMELINE:
            for name, bound in recorded_ranges(bytes(data), file.path):
                yield name, pa.array([bound])
        if not file.path.startswith(f"{METADATA_FOLDER}/"):
            return
        partition = file.path.removeprefix(f"{METADATA_FOLDER}/").partition("/")[0]
        for keys, values, schema in entries_in(data, file.path):
            yield from self._entries(partition, keys.cast(pa.string()), values, schema)
        for deletes in deletes_in(data, file.path):
            yield from self._keys(partition, deletes.keys)

    def _entries(self, partition: str, keys: pa.Array, values: pa.Array, schema: str) -> Iterator[tuple[str, pa.Array]]:
        yield from self._keys(partition, keys)
        if partition in (COLUMN_STATS, PARTITION_STATS) or partition.startswith(EXPRESSION_INDEX):
            present = pc.greater(pc.binary_length(values), 0)
            try:
                stats = stats_codec.decode(keys.filter(present), values.filter(present), schema)
            except CorruptFile:
                return  # bloom filters of an expression: they hold hashes
            for column, table in stats.items():
                for bound in ("min", "max"):
                    yield from leaf_values(column, table.column(bound).combine_chunks())

    def _keys(self, partition: str, keys: pa.Array) -> Iterator[tuple[str, pa.Array]]:
        if partition == RECORD_INDEX:
            yield RECORD_KEY, keys
        elif partition.startswith(SECONDARY_INDEX) and len(keys):
            values, record_keys = split_secondary_keys(keys)
            yield RECORD_KEY, record_keys
            definition = self._definitions.get(partition)
            for column in definition.source_fields if definition else ():
                yield column, values.drop_null()


def _add_rows(to: ValueSet, rows: pa.RecordBatch, only: ValueSet | None = None) -> None:
    """Add the values of rows: all, or only those in `only`."""
    if not rows.num_rows:
        return
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name in META_COLUMNS and name != RECORD_KEY:
            continue
        for leaf, values in leaf_values(name, column):
            allowed = None if only is None else only.columns.get(leaf)
            if only is None:
                to.add(leaf, values)
            elif allowed is not None:
                same = values if values.type == allowed.type else values.cast(allowed.type, safe=False)
                met = same.filter(pc.is_in(same, value_set=allowed))
                if len(met):
                    to.add(leaf, met)


def _found_in_rows(search: TextSearch, rows: pa.RecordBatch) -> set[int]:
    numbers: set[int] = set()
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for _, values in leaf_values(name, column):
            if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
                data, offsets = value_buffer(values)
                numbers |= search.found_in(data[offsets[0] : offsets[-1]].tobytes())
    return numbers
