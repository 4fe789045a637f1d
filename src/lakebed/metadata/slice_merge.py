"""A file slice of the metadata table as the entries of one base file: base and log blocks merged, still encoded.

A record that only one file or block has is copied as bytes. Only records that are united (lists of files, ranges) are
decoded and encoded again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.delete_block import decode_deletes
from lakebed.format.hfile.entries import Entries
from lakebed.format.hfile.reader import HFileReader
from lakebed.format.log_file import BlockType
from lakebed.metadata.slices import MetadataSlices
from lakebed.metadata_kinds.base import Union
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_records.definitions import index_version
from lakebed.metadata_records.merge_records import Layer, alive, newest
from lakebed.metadata_records.records import RecordForm, into_form, record_form, record_form_of, record_schema
from lakebed.model import FileSlice
from lakebed.schema.plain_arrow import as_numpy, one_array

_ENTRIES = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class Unordered(Exception):
    """The error for a base file whose keys do not ascend in byte order, as Hudi's writers may write it."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a slice's log blocks: keys in ascending order, and their entries, null for deleted keys."""

    keys: pa.BinaryArray
    values: pa.BinaryArray


@dataclass(frozen=True, eq=False)
class SliceMerge:
    """One file slice, opened for merging. `form` is the form of the merged entries: the form of the table's version, or
    the newest that occurs in the slice."""

    view: MetadataSlices
    file_slice: FileSlice
    form: RecordForm
    base: HFileReader | None
    layers: tuple[tuple[HFileReader | None, pa.Array | None], ...]

    @property
    def schema_json(self) -> str:
        return record_schema(self.form)

    def entries(self, *, in_order: bool = True) -> Iterator[tuple[pa.Array, pa.Array]]:
        """The merged entries in ascending byte order of their keys, in batches.

        Raises `Unordered` if the base file is not in that order; with `in_order=False` it is read whole and sorted.
        """
        changes = self.changes()
        if self.base is None:
            yield from _present(changes.keys, changes.values)
        elif in_order:
            yield from _put_in(map(self._of_base, _ascending(self.base.batches())), changes)
        else:
            keys, values = _distinct(*self._of_base(self.base.read()))
            yield from _put_in([(keys, values)], changes)

    def content(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """The merged entries in batches of keys and values, in any order."""
        changes = self.changes()
        for entries in self.base.batches() if self.base is not None else ():
            keys, values = self._of_base(entries)
            is_unchanged = pc.invert(pc.is_in(keys, value_set=changes.keys))
            yield keys.filter(is_unchanged), values.filter(is_unchanged)
        yield from _present(changes.keys, changes.values)

    def changes(self, *, with_base: bool = True) -> Changes:
        """The changes of the log blocks, united with the base file's entries of the same keys (unless `with_base` is
        false)."""
        logged = [
            Layer(self._table(file.read(), file.schema_json) if file else None, deleted)
            for file, deleted in self.layers
        ]
        named = [layer.records["key"].chunks if layer.records is not None else [layer.deleted] for layer in logged]
        keys = pc.unique(pa.chunked_array([part for parts in named for part in parts], pa.binary()))
        keys = keys.take(pc.sort_indices(keys))
        union = self._union(logged)
        if union is not None:
            if with_base and self.base is not None and len(keys):
                base_entries = self.base.lookup(keys).entries
                logged.insert(0, Layer(self._table(base_entries, self.base.schema_json)))
            merged = self._united(union, alive(logged))
        else:
            merged = newest(logged)
        if merged is None:
            return Changes(keys, pa.nulls(len(keys), pa.binary()))
        merged = merged.combine_chunks()
        at = pc.index_in(keys, value_set=one_array(merged["key"]))
        return Changes(keys, one_array(merged["value"]).take(at))

    def _of_base(self, entries: Entries) -> tuple[pa.Array, pa.Array]:
        assert self.base is not None
        return entries.keys.cast(pa.binary()), into_form(entries.values, self.base.schema_json, self.form)

    def _table(self, entries: Entries, schema_json: str) -> pa.Table:
        values = into_form(entries.values, schema_json, self.form)
        return pa.Table.from_arrays([entries.keys.cast(pa.binary()), values.cast(pa.binary())], schema=_ENTRIES)

    def _union(self, layers: Sequence[Layer]) -> Union | None:
        """The way in which records of one key become one record; None if the newest replaces all others."""
        union = kind_of(self.file_slice.partition).union
        first = next((layer.records for layer in layers if layer.records is not None and len(layer.records)), None)
        return union if union and first is not None and union.applies(first["value"][0].as_py()) else None

    def _index_version(self) -> int:
        return index_version(self.view.definitions.get(self.file_slice.partition), self.view.config.version)

    def _united(self, union: Union, records: pa.Table | None) -> pa.Table | None:
        """The records united to one per key, from all records that count, oldest first; None if there are none."""
        if records is None:
            return None
        codes = as_numpy(one_array(records["key"]).dictionary_encode().indices)
        several = np.bincount(codes, minlength=1)[codes] > 1
        if not several.any():
            return records
        single, more = records.filter(pa.array(~several)), records.filter(pa.array(several))
        keys, values = one_array(more["key"]).cast(pa.string()), one_array(more["value"])
        keys, values = union.encoded(keys, values, self.schema_json, self.form, self._index_version)
        return pa.concat_tables([single, pa.Table.from_arrays([keys.cast(pa.binary()), values], schema=_ENTRIES)])


def open_slice(view: MetadataSlices, file_slice: FileSlice) -> SliceMerge:
    """The slice with its base file and its visible log blocks opened."""
    view.open_files(file_slice)
    base = view.base_file(file_slice)
    layers: list[tuple[HFileReader | None, pa.Array | None]] = []
    for block in view.log_blocks(file_slice):
        if block.type is BlockType.DELETE:
            deleted = decode_deletes(block.read(), block.source.name, block.offset).keys
            if len(deleted):
                layers.append((None, deleted.cast(pa.binary())))
        else:
            layers.append((view.data_block(block), None))
    form = record_form(view.config.version)
    for file in (base, *(file for file, _ in layers)):
        if file is not None and file.entry_count:
            file_form = record_form_of(file.schema_json) or record_form(9)
            form = max(form, file_form, key=lambda f: f.version)
    return SliceMerge(view, file_slice, form, base, tuple(layers))


def _put_in(batches: Iterable[tuple[pa.Array, pa.Array]], changes: Changes) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The entries (ascending by key), with the changes inserted, replaced or removed."""
    at = 0
    for keys, values in batches:
        if not len(keys):
            continue
        last = keys[len(keys) - 1].as_py()
        end = bisect_right(range(len(changes.keys)), last, lo=at, key=lambda row: changes.keys[row].as_py())
        if end == at:
            yield keys, values
            continue
        changed_keys, new = changes.keys.slice(at, end - at), changes.values.slice(at, end - at)
        is_unchanged = pc.invert(pc.is_in(keys, value_set=changed_keys))
        parts = list(_present(changed_keys, new))
        keys = pa.concat_arrays([keys.filter(is_unchanged), *(part for part, _ in parts)])
        values = pa.concat_arrays([values.filter(is_unchanged), *(part for _, part in parts)])
        order = pc.sort_indices(keys)
        yield keys.take(order), values.take(order)
        at = end
    yield from _present(changes.keys.slice(at), changes.values.slice(at))


def _present(keys: pa.Array, values: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    is_present = values.is_valid()
    if pc.any(is_present).as_py():
        yield keys.filter(is_present), values.filter(is_present)


def _ascending(batches: Iterator[Entries]) -> Iterator[Entries]:
    before: bytes | None = None
    for entries in batches:
        keys = entries.keys
        if not len(keys):
            continue
        ascends = len(keys) < 2 or pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py()
        if not ascends or (before is not None and keys[0].as_py() <= before):
            raise Unordered
        before = keys[len(keys) - 1].as_py()
        yield entries


def _distinct(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The entries in ascending order of their keys; only the last entry of a repeated key."""
    codes = keys.dictionary_encode()
    last = np.zeros(len(codes.dictionary), np.int64)
    last[as_numpy(codes.indices)] = np.arange(len(keys))
    order = pa.array(last).take(pc.sort_indices(codes.dictionary))
    return keys.take(order), values.take(order)
