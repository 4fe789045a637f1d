"""The records of a text index in its partition of the metadata table (`layer_records`), and the index that they are."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lakebed.format.row_addresses import Hashes
from lakebed.format.text import parse_json_object
from lakebed.metadata_kinds.layer_fold import Locators
from lakebed.metadata_kinds.layer_records import SHAPE, LayerRecords, NumberedGroups, StoredLayers, opened_once
from lakebed.metadata_kinds.stored import COMPARED
from lakebed.metadata_kinds.vector_coverage import Coverage, Witness
from lakebed.metadata_kinds.vector_definitions import complete_definitions
from lakebed.metadata_kinds.written_rows import ColumnRows, rows_of_slices
from lakebed.metadata_records.definitions import TEXT_KIND, IndexDefinition
from lakebed.metadata_records.layout import TEXT_INDEX
from lakebed.model import FileGroupId, FileSlice
from lakebed.sharing import once
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.text_index.fold import folded
from lakebed.text_index.lists import (
    InvertedLists,
    LayerHead,
    TextLayer,
    TextRows,
    matching_rows,
    memory_layer,
)
from lakebed.text_index.scores import Statistics
from lakebed.text_index.search import LayeredText, StoredText, text_marks
from lakebed.text_index.words import Words, words_of
from lakebed.vector_index.entries import row_hashes

RECORD_TYPE: Final = "LAKEBED_TEXT_1"
_VERSION: Final = 1
# Texts that are made into words at a time.
BATCH_ROWS: Final = 1 << 15
# An index is built again when more of its rows than this share have to be read from the table, or when less than this
# share of its entries counts.
_MAX_READ_SHARE: Final = 0.1
_MIN_LIVE_SHARE: Final = 0.5
_MARKED: Final = pa.schema([("key", pa.string()), ("entry", pa.string()), ("mark", pa.uint64())])


@dataclass(frozen=True)
class TextIndex:
    """A text index as its definition describes it. It compares no vectors: it has no metric, and no bits of codes."""

    metric: ClassVar[None] = None
    bits: ClassVar[None] = None

    partition: str
    column: str

    @classmethod
    def of(cls, definition: IndexDefinition) -> TextIndex:
        """The index of a definition. Raises `CorruptFile` for one that lakebed has not written so."""
        if len(definition.source_fields) != 1:
            raise CorruptFile(
                f"the definition of the text index {definition.name} is damaged: it names no column",
                hint="Drop the index and create it again.",
                context={"index": definition.name},
            )
        return cls(definition.name, definition.source_fields[0])


def text_partition(name: str) -> str:
    """The partition of the text index to which a user gives this name, with or without the prefix.

    >>> text_partition("body"), text_partition("text_index_body")
    ('text_index_body', 'text_index_body')
    """
    return TEXT_INDEX + name.removeprefix(TEXT_INDEX)


def text_index_definition(name: str, column: str, options: Mapping[str, Any]) -> IndexDefinition:
    """The definition of a text index on a column. Raises `InvalidOption` for an option."""
    if options:
        raise InvalidOption(
            f"a text index has no option {next(iter(options))!r}",
            hint="It has none: it holds the words of its column.",
            context={"option": next(iter(options))},
        )
    return IndexDefinition(text_partition(name), TEXT_KIND, "", (column,))


def text_indexes(snapshot: Snapshot) -> list[TextIndex]:
    """The complete text indexes that this view of a table can be searched by."""
    return list(map(TextIndex.of, complete_definitions(snapshot, TEXT_INDEX)))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type can be searched by words."""
    return pt.is_string(kind) or pt.is_large_string(kind)


@dataclass
class RowsInWords:
    """Collects rows with their words, and with the numbers of their file groups. With `only` some words are looked for,
    rows without them are counted as `others`."""

    only: Mapping[str, int] | None = None
    groups: NumberedGroups = field(default_factory=NumberedGroups)
    parts: list[tuple[TextRows, Words]] = field(default_factory=list[tuple[TextRows, Words]])
    others: Statistics = field(default_factory=lambda: Statistics(0, 0))
    nbytes: int = 0

    def add(self, group: FileGroupId, keys: pa.Array, texts: pa.Array) -> None:
        """Add rows of one file group, with their keys and texts (without nulls)."""
        words = words_of(texts)
        rows = self._rows(group, keys, words.lengths)
        if self.only is not None:
            rows, words, others = matching_rows(rows, words, self.only)
            self.others = Statistics(self.others.texts + others.texts, self.others.words + others.words)
        self._put(rows, words)

    def add_uncertain(self, group: FileGroupId, keys: pa.Array) -> None:
        """Add rows whose text a search reads from the table."""
        none = np.empty(0, np.int64)
        rows = self._rows(group, keys, np.full(len(keys), -1))
        self._put(rows, Words(none, none, pa.array([], pa.string()), none))

    def _rows(self, group: FileGroupId, keys: pa.Array, lengths: np.ndarray) -> TextRows:
        numbers = np.full(len(keys), self.groups.number(group), np.int64)
        return TextRows(keys.cast(pa.string()), row_hashes(keys, group[0]), numbers, lengths)

    def _put(self, rows: TextRows, words: Words) -> None:
        self.parts.append((rows, words))
        self.nbytes += rows.keys.nbytes + 20 * len(rows) + 8 * len(words.codes)

    def layer(self) -> TextLayer:
        """The rows as a layer in memory."""
        return memory_layer(InvertedLists.of(self.parts), self.groups.listed())


@dataclass
class TextRecords(LayerRecords):
    """Collects records of a text index, which an instant writes."""

    record_type: str = field(default=RECORD_TYPE, init=False)

    @classmethod
    def of_base(cls, instant: str, witness: Witness) -> TextRecords:
        """The witness of a base."""
        records = cls(instant)
        records.add_base(witness)
        return records


def shape_of(column: str) -> bytes:
    """The description of an index on this column."""
    return json.dumps({"column": column, "version": _VERSION}).encode()


@dataclass(frozen=True, eq=False)
class StoredTextIndex(StoredLayers):
    """The records of a text index in a metadata table; each is read when it is needed."""

    record_type: str = field(default=RECORD_TYPE, init=False)
    opened: dict[Any, LayeredText] = field(default_factory=dict, repr=False)
    """The index of views that were searched before."""

    @once
    def column(self) -> str:
        """The column of the index. Raises `UnsupportedFeature` for an index of a newer release."""
        shape = parse_json_object(bytes(self.described(SHAPE)))
        version, column = shape.get("version"), shape.get("column")
        if isinstance(version, int) and version > _VERSION:
            raise UnsupportedFeature(
                f"the index {self.partition} has version {version}, and this release reads version {_VERSION}",
                hint="Upgrade lakebed, or drop the index and create it again.",
                context={"version": version},
            )
        if version != _VERSION or not isinstance(column, str):
            raise CorruptFile(
                f"the description of the index {self.partition} is damaged",
                hint=f"Build it again: t.indexes.repair({self.partition!r}).",
                context={"index": self.partition},
            )
        return column

    def reason_by_entries(self, snapshot: Snapshot, covered: Coverage, least_rows: int) -> str | None:
        text = self.in_view(snapshot, covered)
        rows, live, read = len(text.rows), int(text.is_live.sum()), len(text.uncertain_hashes())
        if rows < least_rows or (read <= _MAX_READ_SHARE * rows and live >= _MIN_LIVE_SHARE * rows):
            return None
        return f"of {rows:,} entries {live:,} count, and {read:,} are of rows that a search has to read"

    def counting(self, snapshot: Snapshot, covered: Coverage) -> tuple[int, int]:
        is_live = self.in_view(snapshot, covered).is_live
        return int(is_live.sum()), len(is_live)

    @once
    def layer_heads(self) -> Mapping[str, LayerHead]:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.column  # noqa: B018  an index of a newer release is refused here
        return {of: LayerHead.from_bytes(head) for of, head in self.heads.items()}

    def beginning(self, instant: str, witness: Witness) -> TextRecords:
        return TextRecords.of_base(instant, witness)

    def fold(self, names: tuple[str, ...], snapshot: Snapshot) -> Generator[bytes, None, LayerHead]:
        text = StoredText.of(self._layers(names))
        return folded(text, Locators(snapshot, text.groups))

    def shape_after_fold(self, instant: str, new_rows: int) -> bytes:
        return shape_of(self.column)

    def _layers(self, names: tuple[str, ...]) -> list[TextLayer]:
        return [TextLayer(self.layer_heads[of], partial(self.blocks, of)) for of in names]

    def in_view(self, snapshot: Snapshot, covered: Coverage) -> StoredText:
        """The layers as of a view of the table."""
        return text_in_view(self._layers(self.names_in(snapshot)), snapshot, covered)


def text_in_view(layers: Sequence[TextLayer], snapshot: Snapshot, covered: Coverage) -> StoredText:
    """Layers as of a view of the table."""
    if not covered.gaps:
        return StoredText.of(layers)
    lacking = pa.array(sorted({file_id for _, file_id in covered.groups}), pa.string())
    existing = pa.array([file_slice.file_id for file_slice in snapshot.file_slices()], pa.string())
    return StoredText.of(layers, lacking, existing)


def stored_text_index(metadata: MetadataLookups, partition: str) -> StoredTextIndex:
    """The records of an index, with what was read of them from this view of the metadata table before."""
    return opened_once(metadata, StoredTextIndex, partition)


def texts_of_slices(reader: SliceReader, slices: Sequence[FileSlice], column: str) -> Iterator[ColumnRows]:
    """The rows with a text in these slices."""
    for rows in rows_of_slices(reader, slices, None, column, BATCH_ROWS):
        assert rows.values is not None
        if len(rows.keys):
            yield rows


def expected_texts(snapshot: Snapshot, column: str) -> pa.Table:
    """A row for each row of the table with a text, with a number of its words."""
    slices = snapshot.file_slices()
    return _by_key([_compared(rows) for rows in texts_of_slices(snapshot.reader, slices, column)])


def indexed_texts(stored: StoredTextIndex, snapshot: Snapshot) -> pa.Table:
    """A row for each row whose entries count, and for each row of the table that a search reads from it."""
    stored.usable(snapshot)
    text = stored.in_view(snapshot, Coverage())
    rows, marks = text.marked_rows()
    parts = [_rows_of(rows["key"].combine_chunks(), rows["partition"].combine_chunks(), marks)]
    uncertain = text.uncertain_hashes()
    for of_slice in texts_of_slices(snapshot.reader, snapshot.file_slices(), stored.column) if len(uncertain) else ():
        is_read = np.isin(row_hashes(of_slice.keys, of_slice.partition), uncertain)
        parts.append(_compared(of_slice).filter(pa.array(is_read)))
    return _by_key(parts)


def _by_key(parts: Sequence[pa.Table]) -> pa.Table:
    """One row for each key: of a key that was inserted again with the sum of the numbers."""
    rows = pa.concat_tables([_MARKED.empty_table(), *parts])
    sums = rows.group_by(["key", "entry"]).aggregate([("mark", "sum")])
    keys = sums["key"]
    columns = [keys, sums["entry"], keys, sums["mark_sum"].cast(pa.string())]
    return pa.Table.from_arrays(columns, schema=COMPARED).combine_chunks()


def _compared(rows: ColumnRows) -> pa.Table:
    paths = pa.repeat(pa.scalar(rows.partition), len(rows.keys))
    return _rows_of(rows.keys.cast(pa.string()), paths, text_marks(words_of(rows.values)))


def _rows_of(keys: pa.Array, paths: pa.Array, marks: Hashes) -> pa.Table:
    return pa.Table.from_arrays([keys, paths, pa.array(marks, pa.uint64())], schema=_MARKED)
