"""The records of a metadata table compared with the data, every difference by name; and repaired: only records that
differ are written. Partitions with truncated, missing or changed files are built again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.lock import no_lock
from lakebed.config.settings import WriteSettings
from lakebed.errors import CorruptFile
from lakebed.metadata.lookups import snapshot_of
from lakebed.metadata.slices import open_slices
from lakebed.metadata_kinds.base import PartitionKind, StoredTable
from lakebed.metadata_kinds.registry import find_kind, kind_of
from lakebed.metadata_kinds.stats_values import has_meta_stats, stats_columns
from lakebed.metadata_kinds.stored import COMPARED, DIFFERENCES, joined, pending_removal
from lakebed.metadata_records.definitions import IndexDefinition, IndexName, load_definitions
from lakebed.metadata_records.layout import COLUMN_STATS, FILES, GroupSizing, group_number, parse_files
from lakebed.metadata_records.records import Records
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.creation import drop
from lakebed.metadata_upkeep.maintain import MetadataUpkeep
from lakebed.metadata_upkeep.store import REPAIRS, MetadataStore, Suffix
from lakebed.model import META_COLUMNS
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.instants import INSTANT_DIGITS, InstantClock, without_suffix
from lakebed.timeline.timeline import Timeline

_PREVIEWED = 20


Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Verification:
    """The result of `verify`. `differences` has one row per difference: index, problem (missing, extra, wrong,
    repeated), the item concerned, the data's value and the index's value. `checked` names the partitions that were
    compared, `left_out` those that were not."""

    differences: pa.Table
    checked: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.differences.num_rows

    def __bool__(self) -> bool:
        return self.ok

    def of(self, partition: str) -> pa.Table:
        """The differences of one index."""
        return self.differences.filter(pc.equal(self.differences["index"], partition))

    def __repr__(self) -> str:
        checked = ", ".join(self.checked) or "nothing: there is no metadata table"
        lines = [f"checked {checked}", *([f"not checked: {', '.join(self.left_out)}"] if self.left_out else [])]
        if self.ok:
            return "\n".join([*lines, "no difference"])
        lines.append(f"{self.differences.num_rows} difference(s)")
        for row in self.differences.slice(0, _PREVIEWED).to_pylist():
            detail = f"expected {row['expected']!r}, found {row['found']!r}" if row["problem"] == "wrong" else ""
            lines.append(f"{row['index']}: {row['problem']} {row['what']} {detail}".rstrip())
        return "\n".join(lines)


def verify_partitions(files: Snapshot, metadata: MetadataLookups, partitions: Sequence[str]) -> Verification:
    """The comparison of partitions of a metadata table with a snapshot that lists folders."""
    table = StoredTable(files)
    has_logs = any(file_slice.log_files for file_slice in table.snapshot.file_slices())
    kinds_by_partition: dict[str, PartitionKind] = {}
    for partition in partitions:
        upkeep = find_kind(partition)
        readable = upkeep is not None and not (has_logs and upkeep.needs_log_rows)
        if upkeep is not None and readable and upkeep.is_comparable(partition, table):
            kinds_by_partition[partition] = upkeep

    parts = [
        part
        for partition, kind in kinds_by_partition.items()
        for part in _differences(partition, kind, metadata, table)
    ]
    differences = pa.concat_tables([DIFFERENCES.empty_table(), *parts])
    return Verification(
        differences, tuple(kinds_by_partition), tuple(p for p in partitions if p not in kinds_by_partition)
    )


def _differences(
    partition: str, kind: PartitionKind, metadata: MetadataLookups, table: StoredTable
) -> Iterator[pa.Table]:
    """The differences of one partition, in parts."""
    removal = table.shared(pending_removal)
    removed = COMPARED.empty_table()
    if removal.files:
        keys, entries = kind.keys_of_clean(partition, removal)
        removed = pa.Table.from_arrays([keys, entries, keys, entries], schema=COMPARED)
    for expected, actual, alternatives in kind.comparisons(partition, metadata, table):
        if removed.num_rows:
            codes, removed_codes = _numbered(actual, removed)
            actual = actual.filter(pa.array(~np.isin(codes, removed_codes)))
        for right in alternatives:
            expected, actual = _without_right(expected, actual, right)
        yield compare(partition, expected, actual)


def compare(partition: str, expected: pa.Table, stored: pa.Table) -> pa.Table:
    """The rows that only one side has, or for which the texts differ."""
    codes, stored_codes = _numbered(expected, stored)
    at = _positions(codes, stored_codes)
    missing = expected.filter(pa.array(at < 0))
    extra = stored.filter(pa.array(~np.isin(stored_codes, codes)))
    shared_positions = np.flatnonzero(at >= 0)
    shared, counterparts = expected.take(pa.array(shared_positions)), stored.take(pa.array(at[shared_positions]))
    differ = pc.not_equal(shared["text"], counterparts["text"])
    wrong, instead = shared.filter(differ), counterparts.filter(differ)
    return pa.concat_tables(
        [
            rows_of(partition, "missing", missing, missing["text"], None),
            rows_of(partition, "extra", extra, None, extra["text"]),
            rows_of(partition, "wrong", wrong, wrong["text"], instead["text"]),
        ]
    )


def _without_right(expected: pa.Table, stored: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both sides without the records for which the stored side agrees with `right`, another valid content. A record
    that both do not have agrees, too."""
    tables = (expected, stored, right)
    codes = _numbered(*tables)
    of_expected, of_found, of_right = codes
    texts = [_texts(table, table_codes, of_expected) for table, table_codes in zip(tables[1:], codes[1:], strict=True)]
    same = pc.or_(pc.fill_null(pc.equal(*texts), False), pc.and_(*(t.is_null() for t in texts)))
    also = _texts(right, of_right, of_found)
    settled = pc.fill_null(pc.equal(stored["text"].combine_chunks(), also), False)
    return expected.filter(pc.invert(same)), stored.filter(pc.invert(settled))


def _texts(table: pa.Table, codes: Int64s, requested: Int64s) -> pa.Array:
    """The table's text for each requested code; null for a code that it does not have."""
    at = _positions(requested, codes)
    return table["text"].combine_chunks().take(pa.array(at, mask=at < 0))


def rows_of(partition: str, problem: str, rows: pa.Table, expected: object, stored: object) -> pa.Table:
    n = rows.num_rows
    fixed = [pa.repeat(pa.scalar(text), n) for text in (partition, problem)]
    texts = [pa.nulls(n, pa.string()) if text is None else text for text in (expected, stored)]
    return pa.Table.from_arrays([*fixed, rows["label"], *texts, rows["key"], rows["entry"]], schema=DIFFERENCES)


def _numbered(*tables: pa.Table) -> list[Int64s]:
    """A number for every (key, entry), the same in all tables."""
    all_rows = joined([table.select(COMPARED.names) for table in tables])
    keys, entries = (all_rows[name].combine_chunks().dictionary_encode() for name in ("key", "entry"))
    codes = as_numpy(keys.indices).astype(np.int64) * max(1, len(entries.dictionary)) + as_numpy(entries.indices)
    return np.split(codes, np.cumsum([table.num_rows for table in tables])[:-1])


def _positions(codes: Int64s, other: Int64s) -> Int64s:
    """The position of each code in `other`, -1 if it is missing there."""
    if not len(other):
        return np.full(len(codes), -1, np.int64)
    order = np.argsort(other, kind="stable")
    at = np.minimum(np.searchsorted(other[order], codes), len(other) - 1)
    return np.where(other[order][at] == codes, order[at], -1)


def rebuild_damaged(
    snapshot: Snapshot, partitions: Sequence[str], settings: WriteSettings, lock_is_held: Callable[[], bool]
) -> pa.Table:
    """Build the partitions that cannot be read again; returns a row of differences for each. The caller holds the lock.

    Raises `CorruptFile` if the table itself cannot be read; nothing is changed then.
    """
    table = StoredTable(snapshot_of(snapshot.storage, snapshot.config, snapshot.timeline, use_metadata=False))
    damage = _damage(snapshot, table, partitions)
    if not damage:
        return DIFFERENCES.empty_table()
    broken = list(snapshot.config.metadata_partitions) if FILES in damage else list(damage)
    for partition in broken:  # raises before anything is dropped
        for upkeep in _comparable(table, partition):
            upkeep.expected(partition, table)
    rebuild(snapshot, broken, settings, lock_is_held)
    columns = {"index": list(damage), "problem": ["damaged"] * len(damage), "what": list(damage.values())}
    empty = [None] * len(damage)
    return pa.table([pa.array(columns.get(f.name, empty), f.type) for f in DIFFERENCES], schema=DIFFERENCES)


def rebuild(
    snapshot: Snapshot, partitions: Sequence[str], settings: WriteSettings, lock_is_held: Callable[[], bool]
) -> None:
    """Drop these partitions and build them again, with their definitions, from the table; `files` means the complete
    metadata table. The caller holds the lock."""
    storage, config = snapshot.storage, snapshot.config
    definitions = load_definitions(storage, config)
    sizings = sizings_of(snapshot, partitions, definitions)
    upkeep = MetadataUpkeep(snapshot, settings, None, lock_is_held)
    config = drop(upkeep.store, partitions)
    build_as_defined(replace(snapshot, config=config), partitions, definitions, sizings, settings, lock_is_held)


def build_as_defined(
    snapshot: Snapshot,
    partitions: Sequence[str],
    definitions: Mapping[str, IndexDefinition],
    sizings: Mapping[str, GroupSizing | None],
    settings: WriteSettings,
    lock_is_held: Callable[[], bool],
) -> TableConfig:
    """Build these partitions, which the table does not have, by their definitions. Returns the table's new settings.
    The caller holds the lock."""
    storage, config = snapshot.storage, snapshot.config
    names = _names(partitions, definitions)
    settings = replace(settings, column_stats=False, stats_columns=_stats_columns(snapshot, definitions, settings))
    for name in [IndexName(FILES), *names] if FILES in partitions else names:
        upkeep = MetadataUpkeep(snapshot_of(storage, config, snapshot.timeline), settings, None, lock_is_held)
        config = upkeep.add(name, sizing=sizings.get(name.partition))
    return config


def sizings_of(
    snapshot: Snapshot, partitions: Sequence[str], definitions: Mapping[str, IndexDefinition]
) -> dict[str, GroupSizing | None]:
    """The sizing of each of these partitions: the number of file groups that a global index has. None for the other
    indexes."""
    return {name.partition: _sizing(snapshot, name) for name in _names(partitions, definitions)}


def _names(partitions: Sequence[str], definitions: Mapping[str, IndexDefinition]) -> list[IndexName]:
    kinds_by_partition = {p: upkeep for p in partitions if p != FILES and (upkeep := find_kind(p)) is not None}
    return [upkeep.index_name(p, definitions.get(p)) for p, upkeep in kinds_by_partition.items()]


def _damage(snapshot: Snapshot, table: StoredTable, partitions: Sequence[str]) -> dict[str, str]:
    """The partitions that cannot be read, with the reason; `files` means the complete metadata table."""
    try:
        metadata = snapshot.metadata
        if metadata is None:
            return {}
        metadata.partitions()
    except (CorruptFile, FileNotFoundError) as error:
        return {FILES: _reason(error)}
    damage: dict[str, str] = {}
    for partition in partitions:
        try:
            metadata.check_readable(partition)
            for upkeep in _comparable(table, partition):
                upkeep.found(partition, metadata, table)
        except (CorruptFile, FileNotFoundError) as error:
            damage[partition] = _reason(error)
    for partition in partitions:
        if (needed := kind_of(partition).dropped_with) in damage:
            damage.setdefault(partition, f"goes with {needed}")
    return damage


def _comparable(table: StoredTable, partition: str) -> Iterator[PartitionKind]:
    """The kind of a partition, if it can be compared; otherwise nothing."""
    upkeep = find_kind(partition)
    if upkeep is not None and upkeep.is_comparable(partition, table):
        yield upkeep


def _reason(error: CorruptFile | FileNotFoundError) -> str:
    return error.message if isinstance(error, CorruptFile) else f"{error} is missing"


def _stats_columns(
    snapshot: Snapshot, definitions: Mapping[str, IndexDefinition], settings: WriteSettings
) -> tuple[str, ...]:
    """The columns that have statistics: those of the definition, and columns that the table got later."""
    definition, config = definitions.get(COLUMN_STATS), snapshot.config
    if definition is None:
        return ()
    kinds = stats_columns(
        snapshot.schema,
        definition,
        version=config.version,
        with_meta=has_meta_stats(config),
        limit=settings.max_stats_columns,
    )
    return tuple(column for column in kinds if column not in META_COLUMNS)


def _sizing(snapshot: Snapshot, name: IndexName) -> GroupSizing | None:
    """The number of file groups that a global index has, by its file names, as a sizing; None for other indexes, and if
    there are no files."""
    if not kind_of(name.partition).grows or name.partitioned:
        return None
    store = MetadataStore(snapshot.storage, snapshot.config, snapshot.timeline, lock_is_held=no_lock)
    files = (parse_files(name.partition, file, 0) for file in store.storage.list_names(name.partition))
    try:
        replaced = store.timeline.replaced_files
    except (CorruptFile, FileNotFoundError):
        return None
    ids = {file.file_id for file in files if file is not None and (name.partition, file.file_id) not in replaced}
    numbers = [group_number(file_id) for file_id in ids]
    count = max(numbers) - min(numbers) + 1 if numbers else 0
    return GroupSizing(minimum=count, maximum=count) if count else None


def align(
    snapshot: Snapshot,
    partitions: Sequence[str],
    settings: WriteSettings,
    lock_is_held: Callable[[], bool],
) -> Verification:
    """Make these partitions of the metadata table match the table. The caller holds the lock, and `snapshot` was read
    under it. Returns the differences."""
    storage, config, timeline = snapshot.storage, snapshot.config, snapshot.timeline
    damage = rebuild_damaged(snapshot, partitions, settings, lock_is_held)
    if damage.num_rows:
        config = load_table_config(storage)
        snapshot = snapshot_of(storage, config, timeline)
    assert snapshot.metadata is not None
    files = snapshot_of(storage, config, timeline, use_metadata=False)
    verification = verify_partitions(files, snapshot.metadata, partitions)
    if verification.ok:
        return Verification(damage, verification.checked, verification.left_out)
    for records in _corrections(files, verification):
        if records:
            store = MetadataStore(storage, config, timeline, lock_is_held=lock_is_held)
            apply_delta(store, metadata_instant(storage, config, timeline), records)
    return Verification(
        pa.concat_tables([damage, verification.differences]), verification.checked, verification.left_out
    )


def _corrections(files: Snapshot, verification: Verification) -> Iterator[dict[str, Records]]:
    """The records that repair the differences: first deletes of wrong and extra records, then upserts of missing and
    wrong ones."""
    table = StoredTable(files)
    extra = {partition: _repair_rows(verification, partition, "extra", "wrong") for partition in verification.checked}
    yield {p: kind_of(p).repair_extra(p, rows, table) for p, rows in extra.items() if rows.num_rows}
    missing = {
        partition: _repair_rows(verification, partition, "missing", "wrong") for partition in verification.checked
    }
    yield {p: kind_of(p).repair_missing(p, rows, table) for p, rows in missing.items() if rows.num_rows}


def _repair_rows(verification: Verification, partition: str, *problems: str) -> pa.Table:
    rows = verification.of(partition)
    return rows.filter(pc.is_in(rows["problem"], value_set=pa.array(problems)))


def metadata_instant(storage: Storage, config: TableConfig, timeline: Timeline) -> str:
    """An instant for a commit of the metadata table alone."""
    view = open_slices(storage, config, timeline)
    assert view is not None
    times = {i.time for i in view.timeline.instants}
    fresh = InstantClock(config.timezone).next(after=max(timeline.greatest_time, view.timeline.greatest_time))
    if config.version >= 8:
        return fresh
    last = without_suffix(max((i.time for i in view.timeline.commits), default="0" * INSTANT_DIGITS))
    for suffix in REPAIRS:
        if f"{last}{suffix}" not in times and f"{last}{suffix}" > max(times):
            return f"{last}{suffix}"
    return f"{fresh}{Suffix.RESTORE}"  # as in real Hudi, which writes corrections after a restore at such instants
