"""The partitions `vector_index_*`: codes of the vectors of a column, by clusters of near vectors.

An action adds one layer: the entries of the rows that it wrote, the rows whose earlier entries do not count any more,
and its witness. No row is read that it did not write, but those of commits without a witness (see `vector_coverage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds import bloom_filters
from lakebed.metadata_kinds.base import StoredTable, TableAction
from lakebed.metadata_kinds.layer_records import (
    COMMIT,
    NumberedGroups,
    batches_of_base,
    blocks_in_order,
    joined_hashes,
    metadata_of,
)
from lakebed.metadata_kinds.layered_kind import BuiltIndex, LayeredKind
from lakebed.metadata_kinds.vector_coverage import Coverage, first_witness, witness_of
from lakebed.metadata_kinds.vector_definitions import VectorIndex
from lakebed.metadata_kinds.vector_rows import VectorRows, WrittenVectors, empty, vector_kind, vectors_of_slices
from lakebed.metadata_kinds.vector_store import IndexRecords, StoredIndex, expected_rows, indexed_rows
from lakebed.metadata_records.definitions import IndexDefinition
from lakebed.metadata_records.layout import VECTOR_INDEX, HFileForm
from lakebed.metadata_records.records import RecordForm, Records
from lakebed.model import FileSlice
from lakebed.schema.logical_types import is_vector
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.parallel import parallel_map
from lakebed.vector_index.codes import Coder, trained
from lakebed.vector_index.entries import Entries, WrittenRows, coded_entries, row_hashes
from lakebed.vector_index.layers import Changes, Layer, LayerHead, write_layer
from lakebed.vector_index.runs import EntryRuns
from lakebed.vector_index.shape import IndexShape, default_clusters, sample_rows

# The bytes of codes that one commit writes at most. A commit that would write more is left to the next build.
MAX_BYTES = 1 << 30
# The entries of a build that are in memory at a time, by their bytes.
_RUN_BYTES = 64 << 20
# Rows that are made into codes together, of several file groups: each call takes some milliseconds.
_CODED_ROWS = 1 << 12
# The bytes of an entry without its code: factor, hash, group, position, key.
_ENTRY_BYTES = 48


class VectorIndexKind(LayeredKind[StoredIndex]):
    noun = "vector"

    @property
    def stored_type(self) -> type[StoredIndex]:
        return StoredIndex

    def column_of(self, definition: IndexDefinition) -> str:
        return VectorIndex.of(definition).column

    def serves(self, definition: IndexDefinition) -> tuple[str, ...]:
        index = VectorIndex.of(definition)
        return index.column, "by", index.metric

    def fits(self, kind: pa.DataType) -> bool:
        return is_vector(kind)

    def layer_of_action(
        self, action: TableAction, stored: StoredIndex, covered: Coverage
    ) -> tuple[IndexRecords, list[str]] | None:
        layer = _LayerOfRows(stored.coder)
        shape = stored.coder.shape
        written = WrittenVectors(action, shape.column, vector_kind(shape))
        for rows in written:
            layer.add(rows)
            if layer.nbytes > MAX_BYTES:
                return None
        for path, keys, is_certain in written.deleted():
            (layer.replaced if is_certain else layer.written).append(row_hashes(keys, path))
        caught_up = _catch_up(layer, covered, action.snapshot)
        records = IndexRecords(action.instant)
        records.add_layer(action.instant, layer.taken(), layer.groups.listed(), layer.changes())
        return records, caught_up

    def built(self, definition: IndexDefinition, snapshot: Snapshot) -> BuiltVectors:
        index, slices = VectorIndex.of(definition), snapshot.file_slices()
        rows = sum(parallel_map(snapshot.reader.count, slices))
        shape = _shape(index, snapshot, rows)
        coder = trained(shape, _sample(snapshot, slices, shape, rows))
        layer, runs = _LayerOfRows(coder), EntryRuns(coder)
        for part in vectors_of_slices(snapshot.reader, slices, None, shape.column, vector_kind(shape)):
            layer.add(part)
            if layer.nbytes > _RUN_BYTES:
                runs.add(layer.taken(), layer.groups.listed())
        built = runs.joined(layer.taken(), layer.groups.listed())
        return BuiltVectors(shape.column, first_witness(snapshot.timeline), snapshot.instant or "0" * 17, coder, built)

    def expected_values(self, snapshot: Snapshot, column: str) -> pa.Table:
        return expected_rows(snapshot, column, snapshot.schema.field(column).type)

    def found(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        return indexed_rows(StoredIndex(metadata, partition), table.snapshot)

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        """A layer with the entries of these rows, and a witness of these commits."""
        stored, snapshot = StoredIndex(metadata_of(table), partition), table.snapshot
        is_commit = pc.equal(rows["entry"], COMMIT)
        instants, lost = rows.filter(is_commit)["key"].to_pylist(), rows.filter(pc.invert(is_commit))
        hashes = row_hashes(lost["key"].combine_chunks(), lost["entry"].combine_chunks())
        layer, shape = _LayerOfRows(stored.coder), stored.coder.shape
        for part in vectors_of_slices(snapshot.reader, snapshot.file_slices(), None, shape.column, vector_kind(shape)):
            is_lost = np.isin(row_hashes(part.keys, part.partition), hashes)
            positions = None if part.positions is None else part.positions[is_lost]
            keys = part.keys.filter(pa.array(is_lost))
            layer.add(replace(part, keys=keys, vectors=part.vectors[is_lost], positions=positions))
        of = stored.name_of_repair(snapshot.instant)
        records = IndexRecords(snapshot.instant)
        records.add_layer(of, layer.taken(), layer.groups.listed(), None)
        records.add_witness(of, witness_of(snapshot.timeline, snapshot.instant, instants, ()))
        return records.encoded(table.form)


@dataclass(eq=False)
class BuiltVectors(BuiltIndex):
    """A vector index that was built. Its entries are in memory up to a bound, beyond it in temporary files."""

    instant: str
    coder: Coder
    layer: Layer

    def write_later(
        self, covered: Coverage, snapshot: Snapshot, put: Callable[[bytes], object]
    ) -> tuple[LayerHead, list[str]]:
        layer = _LayerOfRows(self.coder)
        instants = _catch_up(layer, covered, snapshot)
        return write_layer(layer.taken(), layer.groups.listed(), layer.changes(), put), instants

    def batches(self, form: RecordForm) -> Iterator[tuple[pa.Array, pa.Array]]:
        records = IndexRecords.of_base(self.instant, self.witness, self.coder)
        blocks, shape = blocks_in_order(self.layer), self.coder.shape.to_bytes()
        return batches_of_base(records, form, blocks, self.later, shape)


def _catch_up(layer: _LayerOfRows, covered: Coverage, snapshot: Snapshot) -> list[str]:
    """Add the rows of commits without a witness to a layer. Returns these commits; none where their rows are too
    many."""
    if not covered.gaps:
        return []
    instants = [gap.instant for gap in covered.gaps]
    slices = covered.lacking_slices(snapshot)
    shape = layer.coder.shape
    all_rows = not MergeRules.of_table(snapshot.config).picks_winners
    added: list[VectorRows] = []
    size = layer.nbytes
    for rows in vectors_of_slices(
        snapshot.reader, slices, None if all_rows else instants, shape.column, vector_kind(shape)
    ):
        added.append(rows)
        size += len(rows.keys) * _entry_bytes(shape)
        if size > MAX_BYTES:
            return []
    for rows in added:
        layer.add(rows)
    return instants


def _describe(definition: IndexDefinition | None) -> str:
    return "vector index"


def _shape(index: VectorIndex, snapshot: Snapshot, rows: int) -> IndexShape:
    kind = snapshot.schema.field(index.column).type
    element = "double" if pt.is_float64(kind.value_type) else "int8" if pt.is_int8(kind.value_type) else "float"
    return IndexShape(
        index.column,
        kind.list_size,
        element,
        index.metric,
        index.bits,
        clusters=index.clusters or default_clusters(rows),
        instant=snapshot.instant,
    )


def _entry_bytes(shape: IndexShape) -> int:
    return _ENTRY_BYTES + shape.dimension * shape.bits // 8


def _sample(snapshot: Snapshot, slices: Sequence[FileSlice], shape: IndexShape, rows: int) -> np.ndarray:
    """Vectors of rows all over the table, as many as a training takes."""
    requested = sample_rows(shape.clusters)
    share = min(1.0, 1.2 * requested / max(1, rows))
    random = np.random.default_rng(shape.seed)
    parts = [
        part.vectors if share >= 1 else part.vectors[random.random(len(part.vectors)) < share]
        for part in vectors_of_slices(snapshot.reader, slices, None, shape.column, vector_kind(shape))
    ]
    return np.concatenate(parts or [empty(vector_kind(shape))])


@dataclass
class _LayerOfRows:
    """Collects the entries of one layer."""

    coder: Coder
    replaced: list[np.ndarray] = field(default_factory=list[np.ndarray])
    written: list[np.ndarray] = field(default_factory=list[np.ndarray])
    groups: NumberedGroups = field(default_factory=NumberedGroups)
    nbytes: int = 0
    _entries: list[Entries] = field(default_factory=list[Entries])
    _waiting: list[WrittenRows] = field(default_factory=list[WrittenRows])

    def add(self, rows: VectorRows) -> None:
        """Add the entries of some rows of one file group."""
        if len(rows.replaced):
            self.replaced.append(row_hashes(rows.replaced, rows.partition))
        if not len(rows.keys):
            return
        hashes = row_hashes(rows.keys, rows.partition)
        numbers = np.full(len(hashes), self.groups.number((rows.partition, rows.file_id)), np.int64)
        self._waiting.append(WrittenRows(rows.vectors, rows.keys, hashes, numbers, rows.positions))
        self.written.append(hashes)
        self.nbytes += len(hashes) * _entry_bytes(self.coder.shape)
        if sum(len(part.hashes) for part in self._waiting) >= _CODED_ROWS:
            self._encode()

    def _encode(self) -> None:
        if self._waiting:
            self._entries.append(coded_entries(self.coder, WrittenRows.together(self._waiting)))
            self._waiting = []

    def taken(self) -> list[Entries]:
        """The entries so far, which are forgotten then."""
        self._encode()
        entries, self._entries, self.nbytes = self._entries, [], 0
        return entries

    def changes(self) -> Changes:
        """The rows whose earlier entries do not count any more, and those that may have another vector."""
        return Changes(joined_hashes(self.replaced), joined_hashes(self.written))


# Codes do not become smaller by a codec, and a search reads one cluster here and one there.
_HFILE = HFileForm("none", has_small_blocks=True)
KIND = VectorIndexKind(
    VECTOR_INDEX, is_prefix=True, decode=bloom_filters.decode, hfile=_HFILE, build_position=80, describe=_describe
)
