"""The kind `partition_stats`: ranges and counts of columns in partition paths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.metadata.keys import FILE_KEY_LENGTH
from lakebed.metadata.kinds import stats_records
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.kind import LaterLayers, MetadataKind
from lakebed.metadata.kinds.stats_merge import StatsUnion
from lakebed.metadata.layout import COLUMN_STATS, PARTITION_STATS
from lakebed.metadata.read.merge_records import decoded
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm


def narrows_ranges(
    records: Records, form: RecordForm, later: LaterLayers, definition: Callable[[], IndexDefinition | None]
) -> bool:
    """Whether later ranges of partition paths leave out what these records add: a record that is not tight is united
    with an earlier one, a tight one takes its place, any stands where the earlier one says that nothing is known, and a
    delete takes the earlier one off: real Hudi then takes the path for empty where others have a record."""
    keys = pa.concat_arrays([records.keys, records.deleted])
    added = np.arange(len(keys)) < len(records.keys)
    of_paths = pc.not_equal(pc.utf8_length(keys), FILE_KEY_LENGTH)
    keys, added = keys.filter(of_paths), added[of_paths.to_numpy(zero_copy_only=False)]
    stands = added.copy()  # whether a record is there, and these are in it
    wrong = np.zeros(len(keys), np.bool_)
    for layer in later(keys):
        if layer.records is None:
            at = pc.index_in(layer.deleted, value_set=keys).drop_null().to_numpy()
            stands[at], wrong[at] = False, added[at]
            continue
        for stats in decoded(layer.records, stats_records.decode):
            for table in stats.values():
                at = pc.index_in(table["key"], value_set=keys).to_numpy()
                removed, tight = (table[name].to_numpy() for name in ("is_deleted", "is_tight"))
                wrong[at] = np.where(removed, added[at], wrong[at] | tight | ~stands[at])
                stands[at] &= ~removed
    return bool(wrong.any())


KIND = MetadataKind(
    PARTITION_STATS,
    file_id_start="partition-stats",
    union=StatsUnion(),
    is_overruled=narrows_ranges,
    build_position=60,
    dropped_with=COLUMN_STATS,
)
