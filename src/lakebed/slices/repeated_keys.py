"""Whether a table holds record keys several times: a record index has one location of each key, so it misses rows then.

Lakebed records this in the table's properties. Real Hudi does not: where it has inserted rows, the number of rows is
compared with the number of index entries. If counting would read too much, keys count as repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.model import RECORD_INDEX, FileSlice, WriteStat
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.reader import SliceReader
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.timeline import Timeline

# So many bytes of a record index, and of file slices whose rows no commit counts, are read to count: about a second.
COUNTED_BYTES = 32 << 20
_READERS = 16


def holds_one_row_a_key(
    timeline: Timeline, slices: Sequence[FileSlice], metadata: MetadataLookups, reader: SliceReader
) -> bool:
    """Whether the table has as many rows as its record index has entries; False where counting takes too long."""
    index = metadata.slices.file_slices(RECORD_INDEX)
    commits = timeline.commits_metadata(timeline.commits)
    stats = {stat.path: stat for commit in commits for stats in commit.stats.values() for stat in stats}
    rows = {id(file_slice): _rows_of(file_slice, stats) for file_slice in slices}
    unknown = [file_slice for file_slice in slices if rows[id(file_slice)] is None]
    if sum(file_slice.size for file_slice in (*index, *unknown)) > COUNTED_BYTES:
        return False
    counted = sum(n for n in rows.values() if n is not None) + sum(parallel_map(reader.count, unknown, _READERS))
    return counted == sum(table.num_rows for table in metadata.entries(RECORD_INDEX))


def _rows_of(file_slice: FileSlice, stats: Mapping[str, WriteStat]) -> int | None:
    """The number of rows in a slice, from the commits that wrote its files; None if log files may add or delete
    some."""
    base = None if file_slice.base_file is None else stats.get(file_slice.base_file.path)
    logs = [stats.get(log.path) for log in file_slice.log_files]
    if base is None or any(log is None or log.num_inserts or log.num_deletes for log in logs):
        return None
    return base.num_writes
