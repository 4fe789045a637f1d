"""Records merge in the order in which their instants were requested. These checks tell whether those of a delta commit
still come out right where records of later requested instants were written before it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.registry import kind_of
from lakebed.metadata.read.lookup import slice_by_keys
from lakebed.metadata.read.merge_records import Layer
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm
from lakebed.metadata.store.slices import MetadataSlices


def overruled(view: MetadataSlices, instant: str, records: Mapping[str, Records], form: RecordForm) -> str | None:
    """The partition of the metadata table where records of instants that were requested after this one would make what
    it says untrue; None where everything holds.

    Records of files and of keys do not cross: two writers that change the same file group are in conflict.
    """
    if view.config.version < 8 or not any(i.time > instant for i in view.timeline.commits):
        return None  # before version 8 a log file comes behind those that are there, whatever its instant
    for partition, its_records in records.items():
        is_overruled = kind_of(partition).is_overruled
        if is_overruled is None:
            continue
        later = partial(_behind, view, partition, instant)
        if is_overruled(its_records, form, later, partial(_definition, view, partition)):
            return partition
    return None


def _definition(view: MetadataSlices, partition: str) -> IndexDefinition | None:
    return view.definitions.get(partition)


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
