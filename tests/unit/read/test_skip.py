"""Data skipping on golden tables: no file with a match is dropped, and those that exact statistics rule out are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.config.settings import ReadSettings
from lakebed.errors import InvalidOption
from lakebed.filters.predicates import Predicate
from lakebed.filters.ranges import Bounds, may_match
from lakebed.filters.sql import parse_filter
from lakebed.format.file_names import parse_base_file
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import FileSlice
from lakebed.read.plan import plan_scan, table_columns
from lakebed.read.scan import Scan
from lakebed.read.skip import skip_slices
from lakebed.slices.snapshot import Snapshot
from lakebed.spark_source.options import source_options
from lakebed.testing import CountingStorage
from lakebed.wording import count_text
from support.golden_tables import golden
from support.random_filters import FilterMaker, can_filter
from support.sampling import HISTORIES, todays, whole
from support.tables_in_memory import WITH_INDEXES, in_memory

WITH_STATS = [n for n in WITH_INDEXES if "column_stats" in golden(n).entry["metadata_partitions"]]
READABLE = WITH_INDEXES
FILTERS = 600 if whole(HISTORIES) else 40


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


def on_match(predicate: Predicate, rows: pa.Table) -> int:
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
                assert not on_match(predicate, rows), f"{predicate}: {one.base_file.path} was dropped"
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
    for predicate in todays(predicates(whole, whole.schema, seed=7, count=FILTERS // 2), 2, HISTORIES):
        found = Scan(snapshot, where=predicate.text, meta=True).to_arrow()
        expected = whole.filter(predicate.to_arrow())
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist())), predicate.text
    for commit in listed.commits[:-1]:
        old, old_listed = snapshot.at(commit.time), listed.at(commit.time)
        rows = Scan(old_listed, meta=True).to_arrow()
        for predicate in todays(predicates(rows, rows.schema, seed=11, count=FILTERS // 8), 2, HISTORIES):
            found = Scan(old, where=predicate.text, meta=True).to_arrow()
            assert found.num_rows == on_match(predicate, rows), predicate.text


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


def kept_by(name: str, text: str) -> tuple[int, str]:
    scan = Scan(open_snapshot(storage_of(name)), where=text)
    return len(scan.files), scan.explain()


def test_explain_names_what_pruned_how_many_files() -> None:
    name = "v9_cow_mdt_all"
    row = golden(name).expected.to_pylist()[0]
    files = len(open_snapshot(storage_of(name)).file_slices())
    for text, what in (
        (f"id = '{row['id']}'", "record index"),
        (f"_hoodie_record_key in ('{row['id']}', 'nobody')", "record index"),
        (f"name = '{row['name']}' and qty > -100000", "secondary index idx_name"),
        ("qty > 100000", "column statistics"),
        ("lower(id) = 'nobody'", "expression index idx_lower"),
    ):
        kept, explained = kept_by(name, text)
        assert kept < files, text
        assert f"pruned      {count_text(files - kept, 'file')} by {what}" in explained, explained


def test_keys_that_are_in_no_file_open_no_file() -> None:
    assert kept_by("v9_cow_record_index", "id = 'nobody'")[0] == 0
    assert kept_by("v9_cow_mdt_secondary", "name = 'nothing of this name'")[0] == 0


def test_results_of_an_expression_index() -> None:
    name = "v9_cow_mdt_expression"
    names = [n for n in golden(name).expected["name"].to_pylist() if n]
    kept, explained = kept_by(name, "substring(name, 1, 3) > 'zzz'")
    assert kept == 0
    assert "expression index idx_sub" in explained
    assert kept_by(name, f"substring(name, 1, 3) = '{names[0][:3]}'")[0] > 0
    assert kept_by(name, "substring(name, 1, 2) > 'zzz'")[0] > 0  # another function
    assert kept_by(name, "year(at) = 1890")[0] == 0
    years = [at.year for at in golden(name).expected["at"].to_pylist() if at]
    assert kept_by(name, f"year(at) = {years[0]}")[0] > 0


def test_partitions_are_dropped_by_their_statistics() -> None:
    """Tables of few slices do without: here the least number is set to none."""
    name = "v9_cow_rich_types"
    snapshot = open_snapshot(storage_of(name))
    latest = pc.max(golden(name).expected["ts"]).as_py()
    predicate = parse_filter(f"ts > {latest} and part != 'x'", table_columns(snapshot))
    slices = snapshot.file_slices()
    assert len({s.partition for s in slices}) > 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakebed.read.skip._MAX_SLICES", 0)
        kept, pruned = skip_slices(snapshot, predicate, slices, table_columns(snapshot), log_files=True)
        old = snapshot.at(snapshot.commits[0].time)
        _, pruned_before = skip_slices(old, predicate, slices, table_columns(snapshot), log_files=True)
    assert not kept
    assert pruned == {"partition statistics": list(slices)}
    assert "partition statistics" not in pruned_before


def test_each_metadata_partition_in_use_is_listed_once() -> None:
    storage = in_memory("v9_cow_mdt_all", "skipping-counted")
    scan = Scan(open_snapshot(storage), where="qty > 100000 or ts < -1")
    assert not scan.files
    listed = storage.counts["list"]
    assert listed == 4  # two timelines, `files`, `column_stats`
    assert scan.to_arrow().num_rows == 0
    assert storage.counts["list"] == listed
    assert not [path for path in storage.opened if not path.startswith(".hoodie")]


def test_without_data_skipping_files_are_listed_and_none_is_skipped() -> None:
    snapshot = open_snapshot(storage_of("v9_cow_mdt_all"))
    scan = Scan(snapshot, where="qty > 100000", reads=ReadSettings(data_skipping=False))
    assert len(scan.files) == len(snapshot.file_slices())
    assert "statistics" not in scan.explain()


def test_the_data_source_s_filter_prunes_too(tmp_path: Path) -> None:
    uri = str(golden("v9_cow_mdt_all").unpack(tmp_path))
    given = {"path": uri, "where": "qty > 100000"}
    assert len(source_options(given).scan().files) == 0
    assert len(source_options({**given, "hoodie.enable.data.skipping": "false"}).scan().files) > 0
    assert len(source_options({**given, "metadata": "false"}).scan().files) > 0
    assert len(source_options({**given, "hoodie.metadata.enable": "false"}).scan().files) > 0
    opened = lakebed.open(uri, options={"hoodie.metadata.enable": False})
    assert len(opened.scan(where="qty > 100000").files) > 0
    with pytest.raises(InvalidOption, match="takes no option"):
        lakebed.open(uri, options={"hoodie.datasource.write.operation": "upsert"})
