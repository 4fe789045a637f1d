"""Search by words: the rows whose texts match a query best, by a text index or from all texts.

Both ways end alike: candidates are named with their scores, their rows are read from the view, and the texts of these
rows decide. An index has exact scores too: rows of which it does not know the text are read when it is opened.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.arguments import refused, whole_number
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.filters.text import resolve_column
from lakebed.format.hashes import plain_strings
from lakebed.format.row_addresses import Hashes
from lakebed.metadata_kinds.text_store import (
    BATCH_ROWS,
    RowsInWords,
    StoredTextIndex,
    is_text,
    stored_text_index,
    text_indexes,
)
from lakebed.metadata_kinds.vector_coverage import Coverage
from lakebed.model import RECORD_KEY
from lakebed.read.batches import row_readers
from lakebed.read.index_search import MIN_ROWS, allowed_rows
from lakebed.read.keyed_rows import FILE_ID, PATH, KeyedRows
from lakebed.read.reopening import read_again
from lakebed.read.scan import Results, Scan, first_rows_html
from lakebed.read.search import SearchedColumns, check_condition
from lakebed.sharing import once
from lakebed.text_index.scores import Query
from lakebed.text_index.search import LayeredText, StoredText
from lakebed.text_index.words import query_words
from lakebed.wording import Lines, count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.slices.snapshot import Snapshot
    from lakebed.storage.base import Storage

SCORE: Final = "_score"
"""The column of the score, by the name in Hudi's proposal for search by words."""
# A search that finds too few rows looks at so many times the candidates.
_WIDER: Final = 4
# An index of which so great a share of the rows has to be read from the table is not used.
_MAX_READ_SHARE: Final = 0.2
# Views of one state of a table whose index stays open.
_OPEN_VIEWS: Final = 4
_EQUAL: Final = 1e-9
_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class TextOptions:
    """The query of a search by words, the number of rows, the column of the texts (None: the only one) and the columns
    of the result. An `exact` search uses no index. Raises `InvalidOption` for a query without words."""

    text: str
    k: int = 10
    column: str | None = None
    columns: Sequence[str] | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        whole_number("search", "k", self.k, minimum=1)
        try:
            words = query_words(self.text)
        except UnicodeEncodeError:  # half of a surrogate pair
            raise refused("search", "text", self.text, "a text of whole characters") from None
        if not words:
            raise InvalidOption(
                f"the query {self.text!r} of a search has no word",
                hint="a word is a run of letters or digits; give one that the texts may have",
                context={"text": self.text},
            )


@dataclass
class TextMatches:
    """A search by words in one view. `text` are the texts of all rows, `allowed` the hashes of the rows that a
    condition leaves (None: all rows). `index` names the index, if there is one."""

    text: LayeredText
    query: Query
    candidates: KeyedRows
    column: str
    count: int
    schema: pa.Schema
    allowed: Hashes | None
    index: str | None = None
    read: int = 0

    def rows(self) -> pa.Table:
        """The rows with the highest scores, in descending order; rows with equal ones by their keys."""
        count = self.count
        while True:
            best = self.text.search(self.query, count, self.allowed)
            rows, scores = self._scored(self.candidates.read(best.rows))
            self.read = best.rows.num_rows
            # of rows that are not candidates none has a higher score than the last candidate
            if best.is_all or (len(scores) >= self.count and scores[self.count - 1] >= best.scores[-1] - _EQUAL):
                break
            count *= _WIDER
        columns = {SCORE: pa.array(scores)}
        arrays = [columns[f.name] if f.name in columns else rows[f.name] for f in self.schema]
        return pa.Table.from_arrays(arrays, schema=self.schema).slice(0, self.count)

    def _scored(self, rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The rows that match, with their scores, in the order of an answer."""
        rows = rows.filter(rows[self.column].is_valid()).combine_chunks()
        texts: Any = rows[self.column]
        scores = self.query.scores(texts.combine_chunks())
        ordered = pa.table(
            {"score": scores, "key": plain_strings(rows[RECORD_KEY]).cast(pa.string()), "path": rows[PATH]}
        )
        order = pc.sort_indices(ordered, [("score", "descending"), ("key", "ascending"), ("path", "ascending")])
        order = order.filter(pc.greater(pa.array(scores), 0.0).take(order))
        return rows.take(order), scores[np.asarray(order)]

    def explanation(self) -> str:
        """Lines with the index, the texts and the rows that the search looks at; it runs for that."""
        self.rows()
        having = ", ".join(f"{word} in {count:,}" for word, count in self.query.having.items())
        texts = count_text(self.query.statistics.texts, "text")
        way = "all texts   read" if self.index is None else f"by index    {self.index}"
        return f"  {way}: {texts}, {having}; {count_text(self.read, 'row')} read"


class TextSearch(Results):
    """The rows of a table whose texts match a query best, lazily: `to_arrow`, `to_pandas`, `to_polars`, `to_spark`...

    `t.search` makes one. The rows come in descending order of the score, rows with equal scores by their keys.
    """

    _plans = ("matches",)

    def __init__(self, scan: Scan, options: TextOptions) -> None:
        super().__init__(scan._spark)  # pyright: ignore[reportPrivateUsage]
        if not scan.snapshot.config.populate_meta_fields:
            raise UnsupportedFeature(
                f"a search by words in table {scan.snapshot.config.name!r}, which has no meta columns",
                hint="filter the rows by a condition on their texts, or load them into a table with meta columns",
                context={"feature": "search by words"},
            )
        self._scan = scan
        self._options = options
        self._column = text_column(scan, options.column)

    @property
    def column(self) -> str:
        """The column of the texts that are searched."""
        return self._column

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the table in the result: those that were asked for, else all."""
        if self._options.columns is None:
            return tuple(self._scan.column_names)
        names = [resolve_column(name, self._scan.available).name for name in self._options.columns]
        return tuple(dict.fromkeys(names))

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result: the columns of the table, and `_score`."""
        available = self._scan.available
        return pa.schema([*(available.field(name) for name in self.column_names), pa.field(SCORE, pa.float64())])

    @property
    def snapshot(self) -> Snapshot:
        """The view of the table that is searched."""
        return self._scan.snapshot

    @once
    def matches(self) -> TextMatches:
        """The search, ready to run in this process."""
        scan, options = self._scan, self._options
        words = query_words(options.text)
        plan = scan.of_columns([RECORD_KEY, self._column, *self.column_names]).plan
        check_condition(plan.predicate)
        opened = None if options.exact else opened_index(scan, self._column)
        index, text = opened or (None, all_texts(scan, self._column, words))
        is_narrowed = plan.predicate is not None or scan.parsed_filter() is not None
        readers = {(s.partition, s.file_id): (s, reader) for s, reader in row_readers(plan, plan.predicate)}
        schema = pa.schema([plan.read_schema.field(name) for name in plan.columns])
        return TextMatches(
            text,
            text.query(words),
            KeyedRows(scan.snapshot, scan.reader, readers, schema, min(_THREADS, os.cpu_count() or 1)),
            self._column,
            min(options.k, sys.maxsize),
            self.schema,
            allowed_rows(scan) if is_narrowed else None,
            index,
        )

    def _read(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        return iter(self.matches.rows().to_batches())

    def _storage(self) -> Storage:
        return self._scan.snapshot.storage

    def _renew(self) -> bool:
        for plan in self._plans:
            self.__dict__.pop(plan, None)
        return self._scan._renew()  # pyright: ignore[reportPrivateUsage]

    def to_spark(self) -> DataFrame:
        """A DataFrame of the rows, which are searched in this process."""
        return frame_of(self, self._session(self._storage()))

    def explain(self) -> Lines:
        """The plan as text: the files whose rows may be read, and what is searched for."""
        options = self._options
        plan = self._scan.of_columns([self._column]).plan

        def text() -> str:
            return (
                f"{plan.text()}\n  search      the {options.k} best for {' '.join(query_words(options.text))} in"
                f" {self._column}\n  then        {', '.join(self.column_names)} of these rows\n"
                + self.matches.explanation()
            )

        return Lines(read_again(self._storage(), text, self._renew))

    def _repr_html_(self) -> str:
        return first_rows_html(self)


def frame_of(results: Results, spark: Any) -> DataFrame:
    """The rows of a read as a DataFrame, by way of this process."""
    return spark.createDataFrame(results.to_arrow())


_TEXTS = SearchedColumns(
    "text", is_text, "a search by words", "no column of texts", "text_column", "t.columns.add('body', 'string')"
)


def text_column(scan: Scan, column: str | None) -> str:
    """The name of the column to search by words: the named one, that of the only text index, or the only text. Raises
    `InvalidOption` for a column that is no text, and where the table has none or several."""
    indexed = list(dict.fromkeys(index.column for index in text_indexes(scan.snapshot))) if column is None else []
    return _TEXTS.resolved(scan, column, indexed).name


def opened_index(scan: Scan, column: str) -> tuple[str, LayeredText] | None:
    """The name of the table's text index on a column, and the texts of the view by it; None where the table has none
    that covers the view, and where a search of all texts takes less."""
    snapshot = scan.snapshot
    metadata = snapshot.metadata
    names = [index.partition for index in text_indexes(snapshot) if index.column == column]
    if not names or metadata is None or snapshot.repeats_keys:
        return None
    stored = stored_text_index(metadata, names[0])
    covered = stored.coverage(snapshot)
    if covered.reason is not None:
        return None
    view = (stored.names_in(snapshot), snapshot.instant, snapshot.as_of, covered.groups)
    if view not in stored.opened:
        text = _opened(scan, stored, covered, column)
        if text is None:
            return None
        while len(stored.opened) >= _OPEN_VIEWS:
            stored.opened.pop(next(iter(stored.opened)))
        stored.opened[view] = text
    return names[0], stored.opened[view]


def _opened(scan: Scan, stored: StoredTextIndex, covered: Coverage, column: str) -> LayeredText | None:
    text = stored.in_view(scan.snapshot, covered)
    if len(text.uncertain) > max(MIN_ROWS, _MAX_READ_SHARE * len(text.rows)):
        return None
    rows = RowsInWords()
    _add_uncertain(rows, scan, text, covered, column)
    if covered.groups:
        _add_all(rows, scan, column, covered)
    return text.with_rows(rows.layer())


def _add_uncertain(rows: RowsInWords, scan: Scan, text: StoredText, covered: Coverage, column: str) -> None:
    """Add the rows that have to be read, but for those of file groups that are not covered."""
    if not len(text.uncertain):
        return
    every = Scan(scan.snapshot, reads=scan.reads).of_columns([RECORD_KEY, column])
    by_group = {(s.partition, s.file_id): (s, reader) for s, reader in row_readers(every.plan, None)}
    readers = {group: reader for group, reader in by_group.items() if group not in covered.groups}
    schema = pa.schema([every.plan.read_schema.field(name) for name in every.plan.columns])
    threads = min(_THREADS, os.cpu_count() or 1)
    current = KeyedRows(scan.snapshot, every.reader, readers, schema, threads).read(text.uncertain_rows())
    current = current.filter(current[column].is_valid())
    for group in current.select([PATH, FILE_ID]).group_by([PATH, FILE_ID]).aggregate([]).to_pylist():
        is_of_group = pc.and_(pc.equal(current[PATH], group[PATH]), pc.equal(current[FILE_ID], group[FILE_ID]))
        of_group: Any = current.filter(is_of_group).combine_chunks()
        keys = plain_strings(of_group[RECORD_KEY].combine_chunks())
        rows.add((group[PATH], group[FILE_ID]), keys, of_group[column].combine_chunks())


def _add_all(rows: RowsInWords, scan: Scan, column: str, covered: Coverage | None = None) -> None:
    """Add the rows of the file groups that are not covered (None: of all)."""
    every = Scan(scan.snapshot, reads=scan.reads).of_columns([RECORD_KEY, column])
    for file_slice, reader in row_readers(every.plan, None):
        group = (file_slice.partition, file_slice.file_id)
        if covered is not None and group not in covered.groups:
            continue
        for batch in reader.read(every.reader, file_slice):
            for start in range(0, batch.num_rows, BATCH_ROWS):
                part = batch.slice(start, BATCH_ROWS)
                part = part.filter(part.column(column).is_valid())
                rows.add(group, plain_strings(part.column(RECORD_KEY)), part.column(column))


def all_texts(scan: Scan, column: str, words: dict[str, int]) -> LayeredText:
    """All texts of a view, as far as they have one of some words; the others are counted. They are read from the
    table."""
    rows = RowsInWords(only=words)
    _add_all(rows, scan, column)
    return LayeredText.of_table(rows.layer(), rows.others)
