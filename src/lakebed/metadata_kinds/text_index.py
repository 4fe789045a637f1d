"""The partitions `text_index_*`: the words of a column, each with the rows that have it.

An action adds one layer: the words of the rows that it wrote, the rows whose earlier entries do not count any more, and
its witness. Rows of log files that may lose against others are noted, and a search reads them from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import UnsupportedFeature
from lakebed.metadata_kinds import bloom_filters
from lakebed.metadata_kinds.base import StoredTable, TableAction
from lakebed.metadata_kinds.layer_records import COMMIT, batches_of_base, blocks_in_order, joined_hashes, metadata_of
from lakebed.metadata_kinds.layered_kind import BuiltIndex, LayeredKind
from lakebed.metadata_kinds.text_store import (
    BATCH_ROWS,
    RowsInWords,
    StoredTextIndex,
    TextIndex,
    TextRecords,
    expected_texts,
    indexed_texts,
    is_text,
    shape_of,
    text_in_view,
    texts_of_slices,
)
from lakebed.metadata_kinds.vector_coverage import REPAIR, Coverage, first_witness, witness_of
from lakebed.metadata_kinds.written_rows import ColumnRows, WrittenRows
from lakebed.metadata_records.definitions import IndexDefinition
from lakebed.metadata_records.layout import TEXT_INDEX
from lakebed.metadata_records.records import RecordForm, Records
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot
from lakebed.text_index.lists import InvertedLists, LayerHead, TextLayer, write_layer
from lakebed.text_index.search import StoredText
from lakebed.vector_index.entries import row_hashes
from lakebed.vector_index.layers import Changes

# The bytes of entries that one commit or build writes at most. A commit that would write more is left to a build.
MAX_BYTES = 1 << 30


@dataclass
class _LayerOfTexts:
    """Collects the rows of one layer, and what their commit changed."""

    rows: RowsInWords = field(default_factory=RowsInWords)
    replaced: list[np.ndarray] = field(default_factory=list[np.ndarray])
    possible: list[np.ndarray] = field(default_factory=list[np.ndarray])
    rewritten: list[int] = field(default_factory=list[int])

    def add(self, written: ColumnRows) -> None:
        """Add rows that a commit wrote."""
        group = (written.partition, written.file_id)
        if len(written.replaced):
            self.replaced.append(row_hashes(written.replaced, written.partition))
        if len(written.uncertain):
            self.possible.append(row_hashes(written.uncertain, written.partition))
            self.rows.add_uncertain(group, written.uncertain)
        certain = pa.array([], pa.bool_()) if written.values is None else _certain(written)
        if written.values is not None and pc.any(certain).as_py():
            self.rows.add(group, written.keys.filter(certain), written.values.filter(certain))

    def add_deleted(self, path: str, keys: pa.Array, *, is_certain: bool) -> None:
        """Add the keys of rows that a commit deleted."""
        (self.replaced if is_certain else self.possible).append(row_hashes(keys, path))

    def written(self, put: Callable[[bytes], object]) -> LayerHead:
        """Write the blocks of the layer; its head."""
        changes = Changes(joined_hashes(self.replaced), joined_hashes(self.possible))
        lists, groups = InvertedLists.of(self.rows.parts), self.rows.groups.listed()
        return write_layer(lists, groups, changes, np.array(self.rewritten, np.int64), put)

    def add_to(self, records: TextRecords, of: str) -> None:
        """Add the layer to the records of an index, under its name."""
        numbers = iter(range(1 << 32))
        head = self.written(lambda data: records.add_block(of, next(numbers), data))
        records.add_head(of, head.to_bytes())


class TextIndexKind(LayeredKind[StoredTextIndex]):
    noun = "text"

    @property
    def stored_type(self) -> type[StoredTextIndex]:
        return StoredTextIndex

    def column_of(self, definition: IndexDefinition) -> str:
        return TextIndex.of(definition).column

    def fits(self, kind: pa.DataType) -> bool:
        return is_text(kind)

    def layer_of_action(
        self, action: TableAction, stored: StoredTextIndex, covered: Coverage
    ) -> tuple[TextRecords, list[str]] | None:
        layer = _LayerOfTexts()
        written = WrittenRows(action, stored.column, BATCH_ROWS)
        for rows in written:
            layer.add(rows)
            if layer.rows.nbytes > MAX_BYTES:
                return None
        for path, keys, is_certain in written.deleted():
            layer.add_deleted(path, keys, is_certain=is_certain)
        caught_up = _catch_up(layer, covered, action.snapshot, stored.column, stored.in_view)
        records = TextRecords(action.instant)
        layer.add_to(records, action.instant)
        return records, caught_up

    def built(self, definition: IndexDefinition, snapshot: Snapshot) -> BuiltTexts:
        column = TextIndex.of(definition).column
        rows = RowsInWords()
        for part in texts_of_slices(snapshot.reader, snapshot.file_slices(), column):
            rows.add((part.partition, part.file_id), part.keys, part.values)
            if rows.nbytes > MAX_BYTES:
                raise UnsupportedFeature(
                    f"a text index over {column} takes more than {MAX_BYTES >> 30} GB",
                    hint="Search without an index: name the column, t.search(text=..., text_column=...).",
                    context={"feature": "text index", "column": column},
                )
        return BuiltTexts(column, first_witness(snapshot.timeline), snapshot.instant or "0" * 17, rows.layer())

    def expected_values(self, snapshot: Snapshot, column: str) -> pa.Table:
        return expected_texts(snapshot, column)

    def found(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        return indexed_texts(StoredTextIndex(metadata, partition), table.snapshot)

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        """A layer with the words of these rows as they are now, and a witness of these commits."""
        stored, snapshot = StoredTextIndex(metadata_of(table), partition), table.snapshot
        is_commit = pc.equal(rows["entry"], COMMIT)
        lost = _hashes(rows.filter(pc.invert(is_commit)))
        layer = _LayerOfTexts(replaced=[lost])
        for part in texts_of_slices(snapshot.reader, snapshot.file_slices(), stored.column) if len(lost) else ():
            is_lost = pa.array(np.isin(row_hashes(part.keys, part.partition), lost))
            assert part.values is not None
            layer.rows.add((part.partition, part.file_id), part.keys.filter(is_lost), part.values.filter(is_lost))
        # a name after that of the layer of extra rows, which is written first
        of = f"{stored.name_of_repair(snapshot.instant)}{REPAIR}"
        return self._repair(of, layer, rows.filter(is_commit)["key"], table)

    def repair_extra(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        """A layer by which the entries of these rows do not count any more."""
        of = StoredTextIndex(metadata_of(table), partition).name_of_repair(table.snapshot.instant)
        return self._repair(of, _LayerOfTexts(replaced=[_hashes(rows)]), rows["key"].slice(0, 0), table)

    def _repair(self, of: str, layer: _LayerOfTexts, commits: pa.ChunkedArray, table: StoredTable) -> Records:
        snapshot = table.snapshot
        records = TextRecords(snapshot.instant)
        layer.add_to(records, of)
        records.add_witness(of, witness_of(snapshot.timeline, snapshot.instant, commits.to_pylist(), ()))
        return records.encoded(table.form)


@dataclass(eq=False)
class BuiltTexts(BuiltIndex):
    """A text index that was built; `layer` has its entries."""

    instant: str
    layer: TextLayer

    def write_later(
        self, covered: Coverage, snapshot: Snapshot, put: Callable[[bytes], object]
    ) -> tuple[LayerHead, list[str]]:
        layer = _LayerOfTexts()
        instants = _catch_up(layer, covered, snapshot, self.column, partial(text_in_view, [self.layer]))
        return layer.written(put), instants

    def batches(self, form: RecordForm) -> Iterator[tuple[pa.Array, pa.Array]]:
        records = TextRecords.of_base(self.instant, self.witness)
        return batches_of_base(records, form, blocks_in_order(self.layer), self.later, shape_of(self.column))


def _catch_up(
    layer: _LayerOfTexts,
    covered: Coverage,
    snapshot: Snapshot,
    column: str,
    in_view: Callable[[Snapshot, Coverage], StoredText],
) -> list[str]:
    """Add the rows of file groups with commits that have no witness to a layer; earlier entries of these file groups do
    not count. Returns these commits; none where rows are too many. Rows that were moved since their entry was written
    may be in these file groups, or deleted there: searches read them. `in_view` opens the index as it is."""
    if not covered.gaps:
        return []
    added: list[ColumnRows] = []
    size = layer.rows.nbytes
    for rows in texts_of_slices(snapshot.reader, covered.lacking_slices(snapshot), column):
        added.append(rows)
        size += rows.keys.nbytes + rows.values.nbytes if rows.values is not None else 0
        if size > MAX_BYTES:
            return []
    changed = joined_hashes(layer.replaced)  # by the action itself
    for rows in added:
        hashes = row_hashes(rows.keys, rows.partition)
        layer.replaced.append(hashes)
        is_unchanged = pa.array(~np.isin(hashes, changed))
        assert rows.values is not None
        layer.rows.add((rows.partition, rows.file_id), rows.keys.filter(is_unchanged), rows.values.filter(is_unchanged))
    read = joined_hashes([row_hashes(rows.keys, rows.partition) for rows in added])
    moved = in_view(snapshot, covered).uncertain_hashes()
    layer.possible.append(moved[~np.isin(moved, np.concatenate([read, changed]))])
    layer.rewritten = [layer.rows.groups.number(group) for group in sorted(covered.groups)]
    return [gap.instant for gap in covered.gaps]


def _certain(written: ColumnRows) -> pa.Array:
    return pc.invert(pc.is_in(written.keys, value_set=written.uncertain))


def _hashes(rows: pa.Table) -> np.ndarray:
    return row_hashes(rows["key"].combine_chunks(), rows["entry"].combine_chunks())


def _describe(definition: IndexDefinition | None) -> str:
    return "text index"


KIND = TextIndexKind(TEXT_INDEX, is_prefix=True, decode=bloom_filters.decode, build_position=85, describe=_describe)
