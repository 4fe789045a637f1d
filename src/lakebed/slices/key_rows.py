"""The rows of some keys in one file slice: row groups are ruled out by key ranges and bloom filter, then rows are found
by their key column alone, and only the pages that hold one are read, or the batches where a file does not show its
pages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.format.base_file import check_rows, naming_damage, open_base_file, row_reader, without_shreds
from lakebed.format.base_formats import RowGroupReader, RowPicker
from lakebed.format.footer_cache import FOOTERS, POSITIONS, KeyFooter, KeyPositions
from lakebed.format.hashes import plain_strings
from lakebed.format.read_tally import ReadTally, column_bytes
from lakebed.format.row_addresses import FINGERPRINTS, StoredFingerprints
from lakebed.format.row_groups.pages import PageReader
from lakebed.merge.log_entries import roots
from lakebed.model import RECORD_KEY, BaseFile, FileSlice
from lakebed.slices.reader import SliceReader
from lakebed.storage.base import Storage
from lakebed.storage.parallel import begun

if TYPE_CHECKING:
    from lakebed.slices.base_rows import ColumnNames

# Row groups beyond this many bytes are read by batches.
_LARGE_ROW_GROUP = 256 << 20
# So many rows are decoded at a time, and none after the last that is asked for.
_TAKE_ROWS = 8_192
# If at least this share of the pages holds a requested row, row groups are decoded instead of single pages.
_MAX_PAGES = 0.75
# Columns whose values are picked are still read by pages where the row groups have so many rows: a request more.
_PICKED_ROWS = 16_384
# So few keys are searched one by one.
_MAX_KEYS = 1_000


def rows_of_keys(
    reader: SliceReader,
    file_slice: FileSlice,
    keys: pa.Array,
    columns: Sequence[str],
    *,
    use_bloom: bool = True,
    schema: pa.Schema | None = None,
    names: ColumnNames | None = None,
) -> list[pa.RecordBatch]:
    """The rows with one of the keys (in ascending order): the record key and the columns, in batches that have rows.

    `use_bloom` False skips the bloom filter, for keys that an index has found in this slice. The types are those of the
    file; of a slice with log files those of `schema`, where it is given. `names` maps columns that files with log files
    have under other names; without it the table's schema history does, for all files.
    """
    base = file_slice.base_file
    reader = reader if base is None else reader.buffering(base)
    if reader.is_merged(file_slice):
        if reader.tally is not None:
            reader.tally.add("searched")
        return _merged(reader, file_slice, keys, columns, use_bloom, schema, names)
    return [] if base is None else _stored(reader, file_slice, keys, columns, use_bloom, names)


def _stored(
    reader: SliceReader,
    file_slice: FileSlice,
    keys: pa.Array,
    columns: Sequence[str],
    use_bloom: bool,
    names: ColumnNames | None,
) -> list[pa.RecordBatch]:
    """The rows of the keys in the base file."""
    base = file_slice.base_file
    assert base is not None
    footer = FOOTERS.read(reader.storage, base.path, base.size)
    in_range = groups = row_groups_of_keys(footer, keys)
    if groups and use_bloom and footer.bloom is not None:
        groups = row_groups_of_keys(footer, keys.filter(footer.bloom.might_contain(keys)))
    if reader.tally is not None:
        reader.tally.add("searched" if groups else "filtered" if in_range else "out_of_range")
    if not groups:
        return []
    stored = list(dict.fromkeys([RECORD_KEY, *columns]))
    renaming = reader.renaming(base) if names is None else None
    if renaming is None:
        copy = None if base.is_skeleton or names is not None else reader.key_copy(footer.footer.schema)
        if copy is None or copy not in columns:
            return _from_row_groups(reader, file_slice, base, footer, groups, stored)
        other_columns = [name for name in stored if name not in (RECORD_KEY, copy)]
        batches = _from_row_groups(reader, file_slice, base, footer, groups, [copy, *other_columns])
        return [_with_record_key(batch, copy) for batch in batches]
    batches = _from_row_groups(reader, file_slice, base, footer, groups, renaming.in_file(stored))
    return [renaming.batch(batch) for batch in batches]


def _merged(
    reader: SliceReader,
    file_slice: FileSlice,
    keys: pa.Array,
    columns: Sequence[str],
    use_bloom: bool,
    schema: pa.Schema | None,
    names: ColumnNames | None,
) -> list[pa.RecordBatch]:
    """The rows of the keys in a slice whose log files are merged; in the base file only their rows are decoded."""
    from lakebed.merge.rules import MergeRules
    from lakebed.slices.base_rows import BufferedRows, plain_rows, stored_names

    column_names = list(dict.fromkeys([RECORD_KEY, *columns]))
    base, reads = file_slice.base_file, ReadTally()
    if base is None:
        merged = reader.open_merge(file_slice, schema, None, columns=column_names, names=names, keys=keys)
        return [plain_rows(batch) for batch in merged.batches()]
    # the heads of blocks are read while the base file is
    logs = begun(reader.storage, partial(reader.logs, file_slice))
    stored = FOOTERS.read(reader.storage, base.path, base.size).footer.schema
    by_name = names or reader.history
    requested_schema = schema if schema is not None else pa.schema([(name, pa.null()) for name in column_names])
    renamed = {} if by_name is None else by_name.stored_names(base.instant, requested_schema)
    needed = stored_names(column_names, stored, renamed)
    needed += roots(MergeRules.of_table(reader.config).ordering, stored)
    known_names = frozenset(stored.names)
    names_in_file = [n for n in needed if n is not None and n in known_names]
    plain = replace(reader, tally=reads, history=None)
    base_batches = _stored(plain, file_slice.without_logs(), keys, names_in_file, use_bloom, by_name)
    reader = replace(reader, opened=logs())
    if reader.tally is not None:
        reader.tally.add_reads(reads)
    rows = BufferedRows(base_batches, stored)
    merged = reader.open_merge(file_slice, schema, rows, columns=column_names, names=names, keys=keys)
    if merged.needs_every_row:
        every = reader.read(file_slice, column_names, schema=schema, names=names)
        return [batch for batch in (_with_keys(batch, keys) for batch in every) if batch.num_rows]
    return [plain_rows(batch) for batch in merged.batches()]


def row_groups_of_keys(footer: KeyFooter, keys: pa.Array) -> dict[int, pa.Array]:
    """The row groups of a file that can hold some of the keys (in ascending order), each with these keys."""
    from lakebed.format.key_order import KeyRanges

    if len(keys) > _MAX_KEYS:
        spans = KeyRanges(footer.ranges, java_order=False).spans(keys)
        numbers = np.flatnonzero(spans.counts).tolist()
        return {at: keys.take(pa.array(np.sort(spans.of(at)))) for at in numbers}
    ordered: list[str] = keys.to_pylist()
    keys_by_group: dict[int, pa.Array] = {}
    for number, key_range in enumerate(footer.ranges):
        # Python orders texts by code points, which is the order of their UTF-8 bytes
        start, end = 0, len(keys)
        if key_range is not None:
            start, end = bisect_left(ordered, key_range[0]), bisect_right(ordered, key_range[1])
        if start < end:
            keys_by_group[number] = keys.slice(start, end - start)
    return keys_by_group


def _from_row_groups(
    reader: SliceReader,
    file_slice: FileSlice,
    base: BaseFile,
    footer: KeyFooter,
    groups: Mapping[int, pa.Array],
    columns: Sequence[str],
) -> list[pa.RecordBatch]:
    """The rows of row groups that have one of the group's keys; the first of the columns has the keys."""
    metadata = footer.metadata
    location = reader.storage.url(base.path), base.size
    maybe = {number: POSITIONS.get((*location, number)) for number in groups}
    rows = {number: positions.rows(groups[number]) for number, positions in maybe.items() if positions is not None}
    if len(rows) < len(groups) and not base.is_skeleton:
        rows = _addressed(reader, base, footer, groups) or rows
    if len(rows) == len(groups) and not any(map(len, rows.values())):
        return []
    batches: list[pa.RecordBatch] = []
    if reader.tally is not None:
        reader.tally.add("opened")
        reader.tally.add("bytes", column_bytes(metadata, [RECORD_KEY], [n for n in groups if n not in rows]))
    is_large = max([metadata.row_group(number).total_byte_size for number in groups]) > _LARGE_ROW_GROUP
    if len(rows) == len(groups) and not is_large and not base.is_skeleton:
        hits = {number: group_rows for number, group_rows in rows.items() if len(group_rows)}
        with naming_damage(base.path):
            by_page = rows_by_pages(reader.storage, base, footer, None, hits, columns)
        if by_page is not None:
            return _of_groups(by_page, groups, hits, columns[0])
    with naming_damage(base.path), open_base_file(reader.storage, base.path, base.size) as source:
        file = row_reader(source, footer.footer)
        for number, keys in groups.items():
            if base.is_skeleton or metadata.row_group(number).total_byte_size > _LARGE_ROW_GROUP:
                untold = replace(reader, tally=None, history=None)
                read = untold.read(file_slice, columns, row_groups=[number])
                matches = (_with_keys(batch, keys, columns[0]) for batch in read)
                batches += [batch for batch in matches if batch.num_rows]
                rows.pop(number, None)
                continue
            if number not in rows:
                stored = file.read_row_group(number, columns=[RECORD_KEY], use_threads=False)[0]
                check_rows(base.path, len(stored), metadata.row_group(number).num_rows)
                positions = KeyPositions.of(plain_strings(stored))
                POSITIONS.put((*location, number), positions)
                rows[number] = positions.rows(keys)
        hits = {number: group_rows for number, group_rows in rows.items() if len(group_rows)}
        by_page = rows_by_pages(reader.storage, base, footer, file, hits, columns)
        if by_page is None:
            by_page = [b for n, group_rows in hits.items() for b in _take(file, base, footer, n, group_rows, columns)]
        return batches + _of_groups(by_page, groups, hits, columns[0])


def _of_groups(
    batches: Sequence[pa.RecordBatch], groups: Mapping[int, pa.Array], hits: Collection[int], column: str
) -> list[pa.RecordBatch]:
    """The rows of the batches that have, in the key column `column`, one of the keys of the row groups in `hits`."""
    keys = pa.concat_arrays([groups[number] for number in hits]) if hits else pa.array([], pa.string())
    return [_with_keys(batch, keys, column) for batch in batches]


def _addressed(
    reader: SliceReader, base: BaseFile, footer: KeyFooter, groups: Mapping[int, pa.Array]
) -> dict[int, npt.NDArray[np.int64]] | None:
    """The rows of row groups that may have one of the group's keys, by the file's row addresses; None if the file has
    none, or those of another file."""
    with naming_damage(base.path):
        stored = _fingerprints(reader, base, footer)
    if stored is None:
        return None
    keys = pa.concat_arrays(list(groups.values())).unique()
    rows = stored.find(keys)
    starts = np.array(footer.footer.group_starts)
    cuts = np.searchsorted(rows, starts)
    return {n: rows[cuts[n] : cuts[n + 1]] - starts[n] for n in groups}


def _fingerprints(reader: SliceReader, base: BaseFile, footer: KeyFooter) -> StoredFingerprints | None:
    """The row addresses of a base file; None if the file has none, or those of another file."""
    addresses = footer.addresses
    if addresses is None:
        return None
    location = reader.storage.url(base.path), base.size
    stored = FINGERPRINTS.get(location)
    if stored is None:
        stored = addresses.read(lambda ranges: reader.storage.read_ranges(base.path, ranges))
        if reader.tally is not None:
            reader.tally.add("bytes", addresses.nbytes)
        if stored is not None:
            FINGERPRINTS.put(location, stored)
    return stored


def located_keys(
    reader: SliceReader, base: BaseFile, keys: pa.Array, hints: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """The rows of a base file that may have each of the keys: pairs of the number of a key and the position of a row,
    all that have it and rarely one with another key. `hints` has a position where each key probably is, -1 for none.
    None if the file has no row addresses."""
    with naming_damage(base.path):
        stored = _fingerprints(reader, base, FOOTERS.read(reader.storage, base.path, base.size))
    return None if stored is None else stored.locate(keys, hints)


def rows_by_pages(
    storage: Storage,
    base: BaseFile,
    footer: KeyFooter,
    file: RowGroupReader | None,
    hits: Mapping[int, npt.NDArray[np.int64]],
    columns: Sequence[str],
) -> list[pa.RecordBatch] | None:
    """The rows of row groups (ascending numbers), read from only the pages that hold them. None if most pages hold some
    of the rows and no column's values can be picked, or if the file has no page index or a wrong one: then the caller
    reads row groups, which also reports damage. `file` reads the opened file (None: not opened), from which columns are
    read that cannot be read by pages; a format that reads single rows has the rows read so."""
    batches: list[pa.RecordBatch] = []
    if isinstance(file, RowPicker):
        known_names = frozenset(footer.footer.schema.names)
        stored = [name for name in columns if name in known_names]
        picked = (file.take(number, rows, stored) for number, rows in hits.items() if len(rows))
        return [batch for table in picked for batch in table.combine_chunks().to_batches()]
    try:
        paged = footer.pages
        if paged is None or not hits:
            return None
        stored = [name for name in columns if name in paged.columns]
        pages = PageReader(storage, base.path, base.size, paged)
        by_page = pages.readable(list(hits), stored)
        placed = pages.placed(hits, by_page)
        others = [name for name in by_page if name not in placed]
        if others and pages.share(hits, others) >= _MAX_PAGES:
            many = sum(paged.groups[number][0] for number in hits) >= _PICKED_ROWS
            others = pages.plain(list(hits), others) if many else []
        by_page = [*others, *placed]
        unpaged = [name for name in stored if name not in by_page]
        if not by_page or (unpaged and file is None):
            return None
        for groups, table in pages.take(hits, by_page):
            if unpaged and file is not None:
                parts = [b for n in groups for b in _take(file, base, footer, n, hits[n], unpaged)]
                unpaged_rows = pa.Table.from_batches(parts)
                table = pa.Table.from_arrays(
                    [*table.columns, *unpaged_rows.columns], names=[*by_page, *unpaged_rows.column_names]
                )
            batches += table.combine_chunks().to_batches()
    except (ValueError, IndexError, pa.ArrowException):
        return None
    return batches


def _with_maps(rows: pa.RecordBatch) -> pa.RecordBatch:
    from lakebed.format.optional_map_keys import batch_with_maps

    return batch_with_maps(without_shreds(rows)) if any(map(pt.is_nested, rows.schema.types)) else rows


def _take(
    file: RowGroupReader,
    base: BaseFile,
    footer: KeyFooter,
    row_group: int,
    rows: npt.NDArray[np.int64],
    columns: Sequence[str],
) -> list[pa.RecordBatch]:
    """The rows (ascending numbers) of a row group; no row after the last of them is decoded, unless most batches have a
    requested row."""
    stored = footer.metadata.row_group(row_group).num_rows
    if len(rows) * _TAKE_ROWS >= stored:
        table = file.read_row_group(row_group, columns=list(columns), use_threads=False)
        check_rows(base.path, table.num_rows, stored)
        return [_with_maps(b) for b in table.take(pa.array(rows)).combine_chunks().to_batches()]
    batches: list[pa.RecordBatch] = []
    start = end = 0
    for batch in file.iter_batches(_TAKE_ROWS, row_groups=[row_group], columns=list(columns), use_threads=False):
        first, end = np.searchsorted(rows, [start, start + batch.num_rows])
        if end > first:
            batches.append(_with_maps(batch.take(pa.array(rows[first:end] - start))))
        start += batch.num_rows
        if end == len(rows):
            break
    if end < len(rows):
        check_rows(base.path, start, stored)
    return batches


def _with_keys(batch: pa.RecordBatch, keys: pa.Array, column: str = RECORD_KEY) -> pa.RecordBatch:
    return batch.filter(pc.is_in(batch.column(column), value_set=keys))


def _with_record_key(batch: pa.RecordBatch, copy: str) -> pa.RecordBatch:
    names = [RECORD_KEY, *batch.schema.names]
    return pa.RecordBatch.from_arrays([batch.column(copy), *batch.columns], names=names)
