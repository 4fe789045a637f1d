"""Records merge in the order in which their instants were requested. These checks tell whether those of a delta commit
still come out right where records of later requested instants were written before it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.metadata.keys import FILE_KEY_LENGTH
from lakebed.metadata.kinds import files_records, stats_records
from lakebed.metadata.layout import BLOOM_FILTERS, FILES, PARTITION_STATS, is_expression_index
from lakebed.metadata.read.lookup import decoded, slice_by_keys
from lakebed.metadata.read.merge_records import Layer
from lakebed.metadata.routing import Records
from lakebed.metadata.schemas import RecordForm, record_schema
from lakebed.metadata.store.slices import MetadataSlices


def overruled(view: MetadataSlices, instant: str, records_of: Mapping[str, Records], form: RecordForm) -> str | None:
    """The partition of the metadata table in which records of later requested instants would override this instant's
    (`records_of`, by partition) wrongly; None where all come out right.

    Records of files and of keys do not cross: two writers that change the same file group are in conflict.
    """
    if view.config.version < 8 or not any(i.time > instant for i in view.timeline.commits):
        return None  # before version 8 a log file comes behind those that are there, whatever its instant
    for partition, records in records_of.items():
        if partition == FILES and _loses_files(view, instant, records, form):
            return partition
        if _has_ranges_of_paths(view, partition) and _narrows_ranges(view, partition, instant, records):
            return partition
    return None


def _has_ranges_of_paths(view: MetadataSlices, partition: str) -> bool:
    if not is_expression_index(partition):
        return partition == PARTITION_STATS
    definition = view.definitions.get(partition)
    return definition is not None and definition.type != BLOOM_FILTERS


def _loses_files(view: MetadataSlices, instant: str, records: Records, form: RecordForm) -> bool:
    """Whether a later requested instant (a cleaning) has taken off a partition path or a file that this one adds."""
    store = files_records.decode(records.keys, records.values, record_schema(form))
    store = store.filter(pc.and_(store["name"].is_valid(), pc.invert(store["is_deleted"])))
    entries = _entries(store)
    for layer in _behind(view, FILES, instant, records.keys):
        if layer.records is None:
            return True
        for found in decoded(layer.records, files_records.decode):
            gone = found.filter(pc.fill_null(found["is_deleted"], False))
            if pc.any(pc.is_in(_entries(gone), value_set=entries)).as_py():
                return True
    return False


def _entries(files: pa.Table) -> pa.Array:
    return pc.binary_join_element_wise(files["key"], files["name"], "\0").combine_chunks()


def _narrows_ranges(view: MetadataSlices, partition: str, instant: str, records: Records) -> bool:
    """Whether ranges of partition paths leave out what this instant adds: a record that is not tight is united with the
    one of this instant, a tight one takes its place, any stands where this one says that nothing is known, and a delete
    takes this one off: real Hudi then takes the path for empty where others have a record."""
    keys = pa.concat_arrays([records.keys, records.deleted])
    upserts = np.arange(len(keys)) < len(records.keys)
    of_paths = pc.not_equal(pc.utf8_length(keys), FILE_KEY_LENGTH)
    keys, upserts = keys.filter(of_paths), upserts[of_paths.to_numpy(zero_copy_only=False)]
    stands = upserts.copy()  # whether a record is there, and this instant's is in it
    wrong = np.zeros(len(keys), np.bool_)
    for layer in _behind(view, partition, instant, keys):
        if layer.records is None:
            at = pc.index_in(layer.deleted, value_set=keys).drop_null().to_numpy()
            stands[at], wrong[at] = False, upserts[at]
            continue
        for stats in decoded(layer.records, stats_records.decode):
            for table in stats.values():
                at = pc.index_in(table["key"], value_set=keys).to_numpy()
                gone, tight = (table[name].to_numpy() for name in ("is_deleted", "is_tight"))
                wrong[at] = np.where(gone, upserts[at], wrong[at] | tight | ~stands[at])
                stands[at] &= ~gone
    return bool(wrong.any())


def _behind(view: MetadataSlices, partition: str, instant: str, keys: pa.Array) -> list[Layer]:
    """What instants that were requested later say of these keys, oldest first; deletes of other keys left out."""
    found: list[Layer] = []
    for file_slice in view.file_slices(partition):
        for layer in slice_by_keys(view, file_slice, keys, behind=instant):
            known = layer.deleted if layer.records is None else layer.records["key"]
            mine = pc.is_in(known, value_set=keys)
            if pc.any(mine).as_py():
                found.append(
                    Layer(*(None if part is None else part.filter(mine) for part in (layer.records, layer.deleted)))
                )
    return found
