"""Facts that only the newest files of a table show, and no property and no schema of a commit.

**The column `_hoodie_operation`.** Real Hudi looks at a file of the newest commit, and reads the table's files with the
column or without it: without it, records that say of a row that it is deleted show the row again. So every writer has
to go on with it.

**The form of complex keys of one field**, `id:1` or `1`: releases of Hudi differ, and a job of Hudi may choose. A key
in the other form is another key.

Commits of lakebed have a note of each; a file of another writer's commit is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import LakebedError
from lakebed.expressions.key_generators import NAMED, PLAIN
from lakebed.format.base_file import read_footer
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.format.footer_cache import key_ranges
from lakebed.model import OPERATION_COLUMN, RECORD_KEY, WRITER_ID, CommitMetadata, FileSlice, Instant
from lakebed.properties.table_config import TableConfig
from lakebed.slices.reader import SliceReader
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.timeline import Timeline

OPERATIONS_NOTE = "lakebed.operations"
"""In the extra metadata of commits whose files have the column of operations."""
KEY_NOTE = "lakebed.complex.key"
"""In the extra metadata of commits to tables with a complex key of one field: its form."""

# So many files are opened to see what they have.
MAX_FILES = 16


def has_operations(timeline: Timeline, commits: Sequence[Instant], reader: SliceReader) -> bool:
    """Whether the newest files of these commits (a view's, in requested order) have the column of operations.

    A file that has deletes alone, or that was cleaned, does not show it, and the next one is opened. In a table that
    Flink made, commits of lakebed without a note may be of a release that did not know the column: what is before them
    counts.
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
        for file in files_of(commit):
            opened += 1
            names = _columns(file, reader)
            if names:
                return OPERATION_COLUMN in names
            if opened == MAX_FILES:
                return False
    return False


def files_of(commit: CommitMetadata) -> Iterator[FileSlice]:
    """The files of a commit, each as a separate file slice."""
    for partition, stats in commit.stats.items():
        for stat in stats:
            name = stat.path.rpartition("/")[2]
            base, log = parse_base_file(partition, name, 0), parse_log_file(partition, name, 0)
            if log is not None:
                yield FileSlice(partition, log.file_id, log.instant, None, (log,))
            elif base is not None:
                yield FileSlice(partition, base.file_id, base.instant, base, ())


def _columns(file: FileSlice, reader: SliceReader) -> Sequence[str]:
    with suppress(LakebedError, OSError):
        if file.base_file is not None:
            return read_footer(reader.storage, file.base_file.path, None).schema.names
        logs = reader.logs(file)
        return logs.block(logs.data[-1]).schema.names if logs.data else ()
    return ()


def newest_key_form(timeline: Timeline, commits: Sequence[Instant], reader: SliceReader) -> str | None:
    """The form of the keys in the newest files of these commits; None if none of them shows it. If files have both
    forms, the one in which real Hudi would write the next row: that of the release for the table's version."""
    opened = 0
    for instant in reversed(commits):
        commit = timeline.commit_metadata(instant)
        if commit.extra.get(KEY_NOTE) in (NAMED, PLAIN):
            return commit.extra[KEY_NOTE]
        for file in files_of(commit):
            opened += 1
            forms: frozenset[str] = frozenset()
            with suppress(LakebedError, OSError):
                forms = key_forms(file, reader)
            if forms:
                return main_key_form(reader.config, forms)
            if opened == MAX_FILES:
                return None
    return None


def main_key_form(config: TableConfig, forms: frozenset[str]) -> str:
    """The form in which a table with keys of these forms is continued."""
    if len(forms) == 1:
        return next(iter(forms))
    return NAMED if config.version >= NAMED_VERSION else PLAIN


# From this version on real Hudi writes the field's name, unless a job asks for the other form.
NAMED_VERSION = 9


def key_forms(file_slice: FileSlice, reader: SliceReader, *, every_key: bool = False) -> frozenset[str]:
    """The forms of the keys that a file slice stores: those of its least and greatest key, if only its base file has
    them, unless `every_key` is read."""
    base, prefix = file_slice.base_file, f"{reader.config.key_fields[0]}:"
    if base is not None and not file_slice.log_files and not every_key:
        ranges = key_ranges(read_footer(reader.storage, base.path, base.size or None).metadata)
        texts = [text for key_range in ranges if key_range is not None for text in key_range]
        if texts:
            return frozenset(NAMED if text.startswith(prefix) else PLAIN for text in texts)
    forms: set[str] = set()
    for batch in reader.read(file_slice, [RECORD_KEY]):
        named = named_keys(batch.column(0), prefix)
        forms |= {form for form, has in ((NAMED, named.true_count), (PLAIN, named.false_count)) if has}
        if len(forms) > 1:
            break
    return frozenset(forms)


_READERS = 16


def stored_key_forms(slices: Sequence[FileSlice], reader: SliceReader, *, every_key: bool = False) -> frozenset[str]:
    """The forms of the keys that these file slices store."""
    parts = parallel_map(lambda file_slice: key_forms(file_slice, reader, every_key=every_key), slices, _READERS)
    return frozenset[str]().union(*parts)


def named_keys(keys: pa.Array, prefix: str) -> pa.BooleanArray:
    """Flags of the keys that have the name of their field in front."""
    texts = keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys
    return pc.starts_with(texts, prefix)
