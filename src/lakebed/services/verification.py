"""Comparing a metadata table with the data: every partition, every difference by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.index.registry import recorded_index
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.slices.snapshot import Snapshot, open_snapshot
from lakebed.storage.base import Storage
from lakebed.upkeep.comparison import DIFFERENCES, SCHEMA, joined
from lakebed.upkeep.kind import KindUpkeep, StoredTable
from lakebed.upkeep.record_index import repeated_keys
from lakebed.upkeep.registry import find_upkeep

RECORD_KEYS = "record keys"
_SHOWN = 20
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Verification:
    """What `verify` found. `differences` has a row for each: index, problem (missing, extra, wrong, repeated), what it
    is about, what the data says and what the index says. `checked` names the partitions that were compared, `left_out`
    those that were not."""

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
        for row in self.differences.slice(0, _SHOWN).to_pylist():
            detail = f"expected {row['expected']!r}, found {row['found']!r}" if row["problem"] == "wrong" else ""
            lines.append(f"{row['index']}: {row['problem']} {row['what']} {detail}".rstrip())
        return "\n".join(lines)


def verify(storage: Storage) -> Verification:
    """Compare all partitions of the table's metadata table with its files and rows, as they are now, and look for
    record keys that stand twice where they should be unique (the differences of `record keys`).

    Reads the listing, the footers, the key column of all files, for secondary indexes the indexed columns and for
    expression indexes theirs.
    """
    snapshot = open_snapshot(storage)
    repeated = _repeated_keys(snapshot)
    if snapshot.metadata is None:
        return Verification(repeated, ())
    found = verify_partitions(snapshot, snapshot.metadata, snapshot.config.metadata_partitions)
    return replace(found, differences=pa.concat_tables([repeated, found.differences]))


def _repeated_keys(snapshot: Snapshot) -> pa.Table:
    """A row for each key that stands more than once: in the table under a global index, else in its partition path.
    Nothing for tables whose keys are not stored."""
    config = snapshot.config
    files = Snapshot(snapshot.storage, config, snapshot.timeline, use_metadata=False)
    stored = config.populate_meta_fields and bool(config.key_fields)
    if not stored:
        return DIFFERENCES.empty_table()
    recorded = recorded_index(config.index_settings)
    twice = repeated_keys(files, everywhere=recorded is not None and recorded.is_global)
    paths = pc.binary_join_element_wise("key ", twice["key"], " in ", twice["partition"], "")
    rows = pa.Table.from_arrays([twice["key"], twice["partition"], paths, twice["files"]], schema=SCHEMA)
    return _rows(RECORD_KEYS, "repeated", rows, None, rows["text"])


def verify_partitions(snapshot: Snapshot, metadata: MetadataTable, partitions: Sequence[str]) -> Verification:
    """The same for some partitions and a snapshot that is there already."""
    table = StoredTable(Snapshot(snapshot.storage, snapshot.config, snapshot.timeline, use_metadata=False))
    has_logs = any(file_slice.log_files for file_slice in table.snapshot.file_slices())
    known: dict[str, KindUpkeep] = {}
    for partition in partitions:
        upkeep = find_upkeep(partition)
        readable = upkeep is not None and not (has_logs and upkeep.needs_log_rows)
        if upkeep is not None and readable and upkeep.is_comparable(partition, table):
            known[partition] = upkeep

    def both(partition: str, upkeep: KindUpkeep) -> tuple[pa.Table, pa.Table]:
        expected, found = upkeep.compared(partition, metadata, table)
        for right in upkeep.right_as_well(partition, table):
            expected, found = _without_right(expected, found, right)
        return expected, found

    found = [compare(partition, *both(partition, upkeep)) for partition, upkeep in known.items()]
    differences = pa.concat_tables([DIFFERENCES.empty_table(), *found])
    return Verification(differences, tuple(known), tuple(p for p in partitions if p not in known))


def compare(partition: str, expected: pa.Table, found: pa.Table) -> pa.Table:
    """The rows that one side has and the other has not, or has with another text."""
    codes, other = _numbered(expected, found)
    at = _positions(codes, other)
    missing = expected.filter(pa.array(at < 0))
    extra = found.filter(pa.array(~np.isin(other, codes)))
    both = np.flatnonzero(at >= 0)
    shared, theirs = expected.take(pa.array(both)), found.take(pa.array(at[both]))
    differ = pc.not_equal(shared["text"], theirs["text"])
    wrong, instead = shared.filter(differ), theirs.filter(differ)
    return pa.concat_tables(
        [
            _rows(partition, "missing", missing, missing["text"], None),
            _rows(partition, "extra", extra, None, extra["text"]),
            _rows(partition, "wrong", wrong, wrong["text"], instead["text"]),
        ]
    )


def _without_right(expected: pa.Table, found: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both sides less the records that are as `right` has them (missing ones among them), which is right all the
    same."""
    tables = (expected, found, right)
    codes = _numbered(*tables)
    of_expected, of_found, of_right = codes
    texts = [_texts(table, own, of_expected) for table, own in zip(tables[1:], codes[1:], strict=True)]
    same = pc.or_(pc.fill_null(pc.equal(*texts), False), pc.and_(*(t.is_null() for t in texts)))
    also = _texts(right, of_right, of_found)
    settled = pc.fill_null(pc.equal(found["text"].combine_chunks(), also), False)
    return expected.filter(pc.invert(same)), found.filter(pc.invert(settled))


def _texts(table: pa.Table, codes: Int64s, requested: Int64s) -> pa.Array:
    """The table's text for each requested code; null where it has none."""
    at = _positions(requested, codes)
    return table["text"].combine_chunks().take(pa.array(at, mask=at < 0))


def _rows(partition: str, problem: str, rows: pa.Table, expected: object, found: object) -> pa.Table:
    n = rows.num_rows
    fixed = [pa.repeat(pa.scalar(text), n) for text in (partition, problem)]
    texts = [pa.nulls(n, pa.string()) if text is None else text for text in (expected, found)]
    return pa.Table.from_arrays([*fixed, rows["label"], *texts, rows["key"], rows["entry"]], schema=DIFFERENCES)


def _numbered(*tables: pa.Table) -> list[Int64s]:
    """A number for every (key, entry), the same in all tables."""
    all_rows = joined([table.select(SCHEMA.names) for table in tables])
    keys, entries = (all_rows[name].combine_chunks().dictionary_encode() for name in ("key", "entry"))
    codes = keys.indices.to_numpy().astype(np.int64) * max(1, len(entries.dictionary)) + entries.indices.to_numpy()
    return np.split(codes, np.cumsum([table.num_rows for table in tables])[:-1])


def _positions(codes: Int64s, other: Int64s) -> Int64s:
    """For each code its place among the others, -1 where it is not."""
    if not len(other):
        return np.full(len(codes), -1, np.int64)
    order = np.argsort(other, kind="stable")
    at = np.minimum(np.searchsorted(other[order], codes), len(other) - 1)
    return np.where(other[order][at] == codes, order[at], -1)
