"""The kind `files`: the data table's partition paths, and the files of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings
from lakebed.metadata.kinds import files_records
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.kind import LaterLayers, MetadataKind
from lakebed.metadata.layout import FILES
from lakebed.metadata.read.merge_records import codes, decoded, runs
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm, record_schema

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


def newest_files(records: pa.Table) -> pa.Table:
    """The files of every partition, from all records that are alive, oldest first.

    Maps of one key are united; a delete takes the name off, or stays as a delete where there was none to take off; a
    file that is named again has the greater of its sizes. A key that keeps no entry has one row with a null name.
    """
    rows = records.combine_chunks()
    return _united(rows, codes(plain_strings(rows["key"])))


class _FilesUnion:
    """Lists of files are united."""

    def applies(self, value: bytes) -> bool:
        return True

    def encoded(
        self, keys: pa.Array, values: Any, schema_json: str, form: RecordForm, index_version: Callable[[], int]
    ) -> tuple[pa.Array, pa.Array]:
        return files_records.encode(newest_files(files_records.decode(keys, values, schema_json)), form)

    def decoded(self, records: pa.Table) -> pa.Table:
        return newest_files(records)


def _loses_files(
    records: Records, form: RecordForm, later: LaterLayers, definition: Callable[[], IndexDefinition | None]
) -> bool:
    """Whether a later requested instant (a cleaning) has taken off a partition path or a file that this one adds."""
    added = files_records.decode(records.keys, records.values, record_schema(form))
    added = added.filter(pc.and_(added["name"].is_valid(), pc.invert(added["is_deleted"])))
    entries = _entries(added)
    for layer in later(records.keys):
        if layer.records is None:
            return True
        for found in decoded(layer.records, files_records.decode):
            removed = found.filter(pc.fill_null(found["is_deleted"], False))
            if pc.any(pc.is_in(_entries(removed), value_set=entries)).as_py():
                return True
    return False


def _entries(files: pa.Table) -> pa.Array:
    return pc.binary_join_element_wise(files["key"], files["name"], "\0").combine_chunks()


def _united(rows: pa.Table, keys: Int64s) -> pa.Table:
    """One row for each live entry and each lasting delete, from all entries oldest first."""
    named = rows["name"].is_valid().to_numpy()
    names = pc.fill_null(plain_strings(rows["name"]), "").dictionary_encode().indices.to_numpy().astype(np.int64)
    order = np.flatnonzero(named)
    entry = keys[order] * (int(names.max(initial=0)) + 1) + names[order]
    order = order[np.argsort(entry, kind="stable")]
    starts, lasts = runs(np.sort(entry))
    deleted = pc.fill_null(rows["is_deleted"], False).to_numpy()[order]
    sizes = pc.fill_null(rows["size"], 0).to_numpy()[order]
    took_off = deleted[lasts] & (lasts > starts) & ~deleted[lasts - 1]
    size = np.where(deleted[lasts], sizes[lasts], _greatest_since_delete(sizes, deleted, starts, lasts))
    kept = order[lasts[~took_off]]
    table = rows.take(pa.array(kept)).set_column(2, "size", pa.array(size[~took_off]))
    blank, first = np.unique(keys, return_index=True)
    first = first[~np.isin(blank, keys[kept])]
    nulls = [pa.nulls(len(first), field.type) for field in list(files_records.SCHEMA)[1:]]
    empty = pa.Table.from_arrays(
        [plain_strings(rows["key"]).take(pa.array(first)), *nulls], schema=files_records.SCHEMA
    )
    return pa.concat_tables([table, empty]).sort_by([("key", "ascending"), ("name", "ascending")])


def _greatest_since_delete(sizes: Int64s, deleted: Bools, starts: Int64s, lasts: Int64s) -> Int64s:
    """The greatest size in each run behind its last delete."""
    if not len(starts):
        return sizes
    at = np.arange(len(sizes))
    behind = np.maximum.reduceat(np.where(deleted, at + 1, 0), starts)
    counts = at >= np.repeat(np.maximum(behind, starts), lasts + 1 - starts)
    return np.maximum.reduceat(np.where(counts, sizes, 0), starts)


KIND = MetadataKind(
    FILES,
    file_id_start=FILES,
    decode=files_records.decode,
    union=_FilesUnion(),
    is_overruled=_loses_files,
    build_position=0,
)
