"""Reading file slices of the metadata table: whole, by keys, by prefixes; base file and log blocks as layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.delete_block import decode_deletes
from lakebed.format.hashes import plain_strings
from lakebed.format.hfile.entries import Entries
from lakebed.format.hfile.reader import HFileReader
from lakebed.format.log_file import BlockType
from lakebed.metadata.read.merge_records import Layer
from lakebed.metadata.store.slices import MetadataSlices
from lakebed.model import FileSlice

# A file with so many entries a key that is asked for is read whole: sorting keys costs more.
_DENSE = 4


def whole_slice(view: MetadataSlices, file_slice: FileSlice) -> list[Layer]:
    """All that a slice holds, oldest first, as `key`, `value` and `schema` (see `merge_records.decoded`)."""
    return _layers(view, file_slice, lambda file: file.read())


def slice_by_keys(view: MetadataSlices, file_slice: FileSlice, keys: pa.Array, behind: str = "") -> list[Layer]:
    """What a slice holds under these keys, oldest first, and maybe more: of a file with few entries for the number of
    keys all are given. With `behind` only what log blocks of later requested instants hold."""
    in_order: list[pa.Array] = []

    def ask(file: HFileReader) -> Entries:
        if len(keys) * _DENSE >= file.entry_count:
            return file.read()
        if not in_order:
            in_order.append(keys.take(pc.sort_indices(keys)) if len(keys) > 1 else keys)
        return file.lookup(in_order[0]).entries

    return _layers(view, file_slice, ask, behind)


def slice_by_prefixes(view: MetadataSlices, file_slice: FileSlice, prefixes: pa.Array) -> list[Layer]:
    """What a slice holds under keys that begin with one of these texts, oldest first."""
    return _layers(view, file_slice, lambda file: file.prefix(prefixes).entries)


def keys_by_group(keys: pa.Array, groups: npt.NDArray[np.integer[Any]], count: int) -> list[pa.Array]:
    """The keys of each of `count` file groups, in their order."""
    order = np.argsort(groups, kind="stable")
    edges = np.searchsorted(groups[order], np.arange(count + 1))
    sorted_keys = keys.take(pa.array(order))
    return [sorted_keys.slice(edges[i], edges[i + 1] - edges[i]) for i in range(count)]


def distinct_texts(values: Any) -> pa.StringArray:
    """Each text once, nulls left out."""
    return pc.drop_null(pc.unique(plain_strings(values).cast(pa.string())))


def _layers(
    view: MetadataSlices,
    file_slice: FileSlice,
    ask: Callable[[HFileReader], Entries],
    behind: str = "",
) -> list[Layer]:
    found: list[Layer] = []

    def add(file: HFileReader) -> None:
        entries = ask(file)
        if len(entries):
            schema = pa.DictionaryArray.from_arrays(np.zeros(len(entries), np.int32), pa.array([file.schema_json]))
            found.append(Layer(pa.table({"key": entries.strings(), "value": entries.values, "schema": schema})))

    base = view.base_file(file_slice)
    if base is not None and not behind:
        add(base)
    for block in view.log_blocks(file_slice):
        if block.instant <= behind:
            continue
        if block.type is BlockType.DELETE:
            deleted = decode_deletes(block.read(), block.source.name, block.offset).keys
            if len(deleted):
                found.append(Layer(deleted=deleted))
        else:
            add(view.data_block(block))
    return found
