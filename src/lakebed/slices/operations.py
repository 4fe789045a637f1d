"""Whether a table has the column `_hoodie_operation`, which no property and no schema of a commit tells.

Real Hudi looks at a file of the newest commit, and reads the table's files with the column or without it: without it,
records that say of a row that it is deleted show the row again. So every writer has to go on with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakebed.errors import LakebedError
from lakebed.format.base_file import read_footer
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.model import OPERATION_COLUMN, WRITER_ID, CommitMetadata, FileSlice, Instant, LogFile
from lakebed.slices.reader import SliceReader
from lakebed.timeline.timeline import Timeline

OPERATIONS_NOTE = "lakebed.operations"
"""In the extra metadata of commits whose files have the column."""

# So many files are opened to see whether they have the column.
MOST_FILES = 16


def has_operations(timeline: Timeline, commits: Sequence[Instant], reader: SliceReader) -> bool:
    """Whether the newest files of these commits (a view's, in requested order) have the column.

    Commits of lakebed say so. A file of another writer's commit is opened; one that has deletes alone, or that was
    cleaned, does not show it, and the next one is opened. In a table that Flink made, commits of lakebed which say
    nothing may be of a release that did not know the column: what is before them counts.
    """
    opened = 0
    for instant in reversed(commits):
        commit = timeline.commit_metadata(instant)
        if OPERATIONS_NOTE in commit.extra:
            return True
        if WRITER_ID in commit.extra:
            if timeline.config.is_of_flink:
                continue
            return False
        for names in _columns(commit, reader):
            opened += 1
            if names:
                return OPERATION_COLUMN in names
            if opened == MOST_FILES:
                return False
    return False


def _columns(commit: CommitMetadata, reader: SliceReader) -> Iterator[Sequence[str]]:
    """The columns of the files of a commit, one file after the other; none of a file that does not show them."""
    for partition, stats in commit.stats.items():
        for stat in stats:
            name = stat.path.rpartition("/")[2]
            log = parse_log_file(partition, name, 0)
            try:
                if log is not None:
                    yield _columns_of_log(log, reader)
                elif parse_base_file(partition, name, 0) is not None:
                    yield read_footer(reader.storage, stat.path, None).schema.names
            except (LakebedError, OSError):
                yield ()


def _columns_of_log(log: LogFile, reader: SliceReader) -> Sequence[str]:
    logs = reader.logs(FileSlice(log.partition, log.file_id, log.instant, None, (log,)))
    return logs.block(logs.data[-1]).schema.names if logs.data else ()
