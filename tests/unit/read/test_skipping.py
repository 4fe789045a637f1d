"""Data skipping on golden tables: no file with a match is dropped, and those that exact statistics rule out are."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from golden_tables import golden
from lakebed.errors import InvalidOption
from lakebed.format.file_names import parse_base_file
from lakebed.model import HOODIE, FileSlice
from lakebed.read.filters import parse_filter
from lakebed.read.plan import plan_scan, table_columns
from lakebed.read.predicates import Predicate
from lakebed.read.ranges import Bounds, may_match
from lakebed.read.scan import Scan
from lakebed.read.skipping import skip_slices
from lakebed.slices.snapshot import Snapshot, open_snapshot
from lakebed.storage.counting import CountingStorage
from tables_in_memory import WITH_INDEXES, in_memory

from .random_filters import FilterMaker, can_filter

WITH_STATS = [n for n in WITH_INDEXES if "column_stats" in golden(n).entry["metadata_partitions"]]
READABLE = [n for n in WITH_INDEXES if golden(n).type == "cow"]
# LAKEBED_ALL_GOLDEN=1 tries more of them
FILTERS = 600 if os.environ.get("LAKEBED_ALL_GOLDEN") == "1" else 40


@cache
def storage_of(name: str) -> CountingStorage:
    return in_memory(name, "skipping")


@dataclass(frozen=True)
class Files:
    """Every base file of a table, old ones too, each as a slice of its own; and its rows."""

    snapshot: Snapshot
    slices: tuple[FileSlice, ...]
    rows: tuple[pa.Table, ...]
    columns: pa.Schema


@cache
def files_of(name: str) -> Files:
    """In a view that is not the newest, so that statistics of files alone are asked."""
    snapshot = open_snapshot(storage_of(name))
    assert snapshot.metadata is not None
    slices: list[FileSlice] = []
    rows: list[pa.Table] = []
    for row in snapshot.metadata.files().to_pylist():
        base = parse_base_file(row["partition"], row["name"], row["size"])
        if base is None:
            continue
        one = FileSlice(base.partition, base.file_id, base.instant, base)
        plan = plan_scan(snapshot, None, list(table_columns(snapshot).names), slices=[one])
        scan = Scan(snapshot)
        scan.__dict__["plan"] = plan
        slices.append(one)
        rows.append(scan.to_arrow())
    view = snapshot.at(snapshot.commits[0].time)
    assert not view.is_latest
    return Files(view, tuple(slices), tuple(rows), table_columns(snapshot))


def predicates(rows: pa.Table, columns: pa.Schema, seed: int, count: int = FILTERS) -> list[Predicate]:
    made = FilterMaker(rows, seed)
    found: list[Predicate] = []
    while len(found) < count:
        one = parse_filter(made.filter(), columns)
        try:
            one.to_arrow()
        except InvalidOption:
            continue  # for Spark alone
        found.append(one)
    return found


def matching(predicate: Predicate, rows: pa.Table) -> int:
    return rows.filter(predicate.to_arrow()).num_rows


def exact_bounds(parts: tuple[pa.Table, ...], columns: pa.Schema) -> dict[tuple[str, ...], Bounds]:
    """What the best statistics would say; nothing of floating columns."""
    known: dict[tuple[str, ...], Bounds] = {}
    for field in columns:
        if not can_filter(field.type) or pa.types.is_floating(field.type):
            continue
        ends = [pc.min_max(rows[field.name]).as_py() for rows in parts]
        nulls = np.array([rows[field.name].null_count for rows in parts])
        counts = np.array([len(rows) for rows in parts])
        low, high = (pa.array([e[side] for e in ends], field.type) for side in ("min", "max"))
        known[field.name,] = Bounds(low, high, nulls < counts, nulls > 0)
    return known


def without_claims(known: dict[tuple[str, ...], Bounds]) -> dict[tuple[str, ...], Bounds]:
    """A file of nulls alone is not believed to be one where a writer may have had no statistics."""
    doubted = (pa.types.is_string, pa.types.is_timestamp)
    return {
        path: replace(b, may_hold=np.ones(len(b), np.bool_)) if any(d(b.low.type) for d in doubted) else b
        for path, b in known.items()
    }


@pytest.mark.parametrize("name", [n for n in WITH_STATS if golden(n).type == "cow"])
def test_files_with_a_match_are_kept_and_others_dropped_as_by_exact_statistics(name: str) -> None:
    files = files_of(name)
    everything = pa.concat_tables(files.rows)
    best = without_claims(exact_bounds(files.rows, files.columns))
    indexed = known_columns(files.snapshot)
    best = {path: bounds for path, bounds in best.items() if path[0] in indexed}
    dropped = 0
    for predicate in predicates(everything, files.columns, seed=5):
        kept, _ = skip_slices(files.snapshot, predicate, files.slices, files.columns, log_files=True)
        paths = {s.base_file.path for s in kept if s.base_file}
        exact = may_match(predicate.root, best, len(files.slices))
        for one, rows, may in zip(files.slices, files.rows, exact.tolist(), strict=True):
            assert one.base_file
            if one.base_file.path in paths:
                assert may, f"{predicate}: {one.base_file.path} could have been dropped"
            else:
                assert not matching(predicate, rows), f"{predicate}: {one.base_file.path} was dropped"
                dropped += 1
    assert dropped > FILTERS // 3


def known_columns(snapshot: Snapshot) -> set[str]:
    assert snapshot.metadata is not None
    definition = snapshot.metadata.slices.definitions.get("column_stats")
    return set(definition.source_fields) if definition else set(table_columns(snapshot).names)


@pytest.mark.parametrize("name", READABLE)
def test_a_filtered_scan_gives_the_same_rows_with_and_without(name: str) -> None:
    storage = storage_of(name)
    snapshot, listed = open_snapshot(storage), open_snapshot(storage, use_metadata=False)
    whole = Scan(listed, meta=True).to_arrow()
    for predicate in predicates(whole, whole.schema, seed=7, count=FILTERS // 2):
        found = Scan(snapshot, filter=predicate.text, meta=True).to_arrow()
        expected = whole.filter(predicate.to_arrow())
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist())), predicate.text
    for commit in listed.commits[:-1]:
        old, old_listed = snapshot.at(commit.time), listed.at(commit.time)
        rows = Scan(old_listed, meta=True).to_arrow()
        for predicate in predicates(rows, rows.schema, seed=11, count=FILTERS // 8):
            found = Scan(old, filter=predicate.text, meta=True).to_arrow()
            assert found.num_rows == matching(predicate, rows), predicate.text


@pytest.mark.parametrize("name", [n for n in WITH_INDEXES if golden(n).type == "mor"])
def test_slices_with_log_files_are_kept_where_a_merged_row_matches(name: str) -> None:
    """By the rows that real Hudi read."""
    snapshot = open_snapshot(storage_of(name))
    rows = golden(name).expected
    columns = table_columns(snapshot)
    rows = rows.select([n for n in columns.names if n in rows.column_names])
    rows = rows.cast(pa.schema([columns.field(n) for n in rows.column_names]))
    slices = snapshot.file_slices()
    holders = list(
        zip(
            rows["_hoodie_partition_path"].to_pylist(),
            [n.partition("_")[0] for n in rows["_hoodie_file_name"].to_pylist()],
            strict=True,
        )
    )
    dropped = 0
    for predicate in predicates(rows, columns, seed=13, count=FILTERS):
        kept, _ = skip_slices(snapshot, predicate, slices, columns, log_files=True)
        held = {(s.partition, s.file_id) for s in kept}
        hits = rows.append_column("holder", pa.array(range(len(rows)))).filter(predicate.to_arrow())["holder"]
        assert {holders[at] for at in hits.to_pylist()} <= held, predicate.text
        dropped += len(slices) - len(kept)
    if "column_stats" in golden(name).entry["metadata_partitions"]:
        assert dropped > FILTERS // 3
