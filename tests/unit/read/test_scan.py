"""The scan object in this process: columns, filters, plans, formats, what is opened."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lakebed.filters.sql import parse_filter
from lakebed.format.base_file import SMALL_BYTES
from lakebed.format.file_names import bucket_of_file_id
from lakebed.metadata.lookups import open_snapshot, snapshot_of
from lakebed.model import META_COLUMNS
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.read.batches import in_order
from lakebed.read.incremental import Changes, select_commits
from lakebed.read.scan import Scan
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage
from support.golden_tables import golden


def opened(folder: Path, name: str, **properties: str) -> tuple[Snapshot, CountingStorage]:
    storage = CountingStorage(open_storage(str(golden(name).unpack(folder))))
    config = load_table_config(storage)
    recorded = {k.replace("__", "."): v for k, v in properties.items()}
    return open_snapshot(storage, TableConfig({**config.properties, **recorded})), storage


def data_files(storage: CountingStorage) -> set[str]:
    return {p for p in storage.opened if p.endswith(".parquet") and not p.startswith(".hoodie")}


def test_columns_are_selected_without_regard_to_case(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_simple")
    assert not set(Scan(snapshot).schema.names) & set(META_COLUMNS)
    assert tuple(Scan(snapshot, meta=True).schema.names[:5]) == META_COLUMNS
    assert Scan(snapshot, columns=["ID", "_hoodie_record_key"]).schema.names == ["id", "_hoodie_record_key"]
    assert Scan(snapshot, columns=["id"], meta=True).schema.names == [*META_COLUMNS, "id"]
    with pytest.raises(InvalidOption, match="Did you mean 'region'"):
        _ = Scan(snapshot, columns=["regio"]).schema
    with pytest.raises(InvalidOption, match="query type"):
        Scan(snapshot, query="incremental")


@pytest.mark.parametrize("dropped", ["true", "false"])
def test_no_columns_give_all_rows(dropped: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
    dropping = {"hoodie.datasource.write.drop.partition.columns": dropped}
    uri = f"memory://no-columns-{dropped}/t"
    table = lakebed.create(uri, schema, key="id", partition_by="city", index="simple", properties=dropping)
    table.upsert(pa.table({"id": [1, 2, 3], "city": ["oslo", "rome", "rome"]}, schema=schema))
    for condition, count in ((None, 3), ("id > 1", 2), ("city = 'oslo'", 1), ("id > 9", 0), ("1 = 1", 3)):
        for scan in (table.scan([], condition), table.changes("000", columns=[], where=condition)):
            assert (scan.to_arrow().num_rows, scan.to_arrow().num_columns) == (count, 0)
            assert sum(batch.num_rows for batch in scan.to_batches()) == count
            assert scan.to_reader().read_all().num_rows == count
            assert scan.to_pandas().shape == (count, 0)
            assert scan.to_polars().height == count
            assert scan.count() == count
    assert table.get([1, 3, 9], columns=[]).num_rows == 2
    MemoryStorage.drop(f"no-columns-{dropped}")


def test_filter_on_a_column_that_is_not_asked_for(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_simple")
    everything = Scan(snapshot).to_arrow()
    found = Scan(snapshot, columns=["id"], where="qty > 500").to_arrow()
    assert found.column_names == ["id"]
    assert sorted(found["id"].to_pylist()) == sorted(
        everything.filter(pc.greater(everything["qty"], 500))["id"].to_pylist()
    )
    by_expression = Scan(snapshot, columns=["id"], where=pc.field("qty") > 500)
    assert by_expression.to_arrow().equals(found)
    assert by_expression.count() == found.num_rows


def test_partition_pruning_opens_only_what_it_needs(tmp_path: Path) -> None:
    snapshot, storage = opened(tmp_path, "v9_cow_simple")
    whole = Scan(snapshot).plan
    storage.reset()
    scan = Scan(snapshot, where="region = 'eu' and qty > 0")
    found = scan.to_arrow()
    assert set(found["region"].to_pylist()) == {"eu"}
    assert data_files(storage) == {f.path for f in scan.files}
    assert {f.partition for f in scan.files} == {"eu"}
    text = scan.explain()
    assert f"{len(scan.files)} of {len(whole.files)}" in text
    assert f"{len(whole.files) - len(scan.files)} files by partition" in text
    assert "region = 'eu'" in repr(scan)
    assert scan._repr_html_().startswith("<pre>")


def test_pruning_names_every_file_slice_once_with_the_step_that_rules_it_out() -> None:
    uri = "memory://pruning-names/t"
    rows = pa.table({"id": [f"k{n}" for n in range(40)], "city": ["Oslo", "Rome"] * 20, "fare": range(40)})
    t = lakebed.load(uri, rows, key="id", partition_by="city", index="bucket", buckets=4, type="mor")
    t.insert(pa.table({"id": ["k100"], "city": ["Lima"], "fare": [7]}))
    scan = t.scan(where="city != 'Rome' and id in ('k0', 'k100', 'k2')")
    found = scan.pruning()
    read = {s.label for s in scan.plan.slices}
    listed = {(s.partition, s.file_id): s for s in t.files}
    assert len(listed) == found.num_rows
    steps: list[str | None] = []
    for row in found.to_pylist():
        one = listed.pop((row["partition"], row["file_id"]))
        stored = (one.base_file and one.base_file.name, len(one.log_files), one.size)
        assert (row["base_file"], row["log_files"], row["bytes"]) == stored
        assert (row["pruned_by"] is None) == (one.label in read)
        steps += [row["pruned_by"]] if row["pruned_by"] not in steps else []
    assert steps == [None, "bucket", "partition statistics"]
    counts = {step: len(found.filter(pc.equal(found["pruned_by"], step))) for step in steps[1:]}
    assert counts == {step: count for step, count in scan.plan.pruned_by.items() if count}


def test_explain_names_no_more_files_than_asked_for() -> None:
    t = lakebed.load("memory://pruning-names/few", {"id": range(9), "p": range(9)}, key="id", partition_by="p")
    scan = t.scan(where="p < 2")
    paths = [f"    {s.label}" for s in t.files]
    assert not [line for line in scan.explain().splitlines() if line in paths]
    lines = scan.explain(files=2).splitlines()
    assert [line for line in lines if line in paths] == paths[:4]
    assert lines[lines.index(paths[3]) + 1] == "    and 5 more"
    assert [line for line in scan.explain(files=7).splitlines() if line in paths] == paths
    assert "more" not in scan.explain(files=7)
    with pytest.raises(InvalidOption, match="files"):
        scan.explain(files=-1)


def test_a_filter_on_the_hash_key_opens_one_bucket(tmp_path: Path) -> None:
    index = {
        "lakebed__index__type": "bucket",
        "lakebed__index__bucket__count": "4",
        "lakebed__index__bucket__fields": "id",
    }
    snapshot, storage = opened(tmp_path, "v9_cow_bucket_simple", **index)
    rows = Scan(snapshot, meta=True).to_arrow()
    row = rows.slice(7, 1).to_pylist()[0]
    storage.reset()
    scan = Scan(snapshot, where=f"id = '{row['id']}' and code = '{row['code']}'")
    assert row["id"] in scan.to_arrow()["id"].to_pylist()
    assert len({bucket_of_file_id(f.file_id) for f in scan.files}) == 1
    assert len(scan.files) < len(Scan(snapshot).files)
    assert data_files(storage) == {f.path for f in scan.files}
    assert "by bucket" in scan.explain()


def test_count_reads_footers_only(tmp_path: Path) -> None:
    snapshot, storage = opened(tmp_path, "v9_cow_simple")
    scan = Scan(snapshot)
    wanted = scan.to_arrow().num_rows
    storage.reset()
    assert scan.count() == wanted
    assert sorted(storage.opened) == sorted(f.path for f in scan.files)


def test_a_scan_turns_into_pandas_polars_and_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_simple")
    scan = Scan(snapshot, columns=["id", "qty"])
    table = scan.to_arrow()
    assert scan.to_pandas().shape == table.shape
    assert scan.to_polars().equals(pl.from_arrow(table))
    assert pa.table(scan).equals(table)
    assert sum(b.num_rows for b in scan.to_batches()) == table.num_rows
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UnsupportedFeature, match=r"lakebed\[polars\]"):
        scan.to_polars()


def test_a_snapshot_merges_log_files_and_a_read_optimized_query_leaves_them_away(tmp_path: Path) -> None:
    table = golden("v9_mor_compaction")
    snapshot, _ = opened(tmp_path, table.name)
    assert any(s.log_files for s in snapshot.file_slices())
    assert Scan(snapshot).to_arrow().num_rows == table.expected.num_rows
    read_optimized = Scan(snapshot, query="read_optimized").to_arrow()
    assert read_optimized.num_rows == table.more("ro.parquet").num_rows


def test_a_table_that_cannot_be_read_right_is_refused_by_name(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_simple", hoodie__table__format="iceberg")
    with pytest.raises(UnsupportedFeature, match="foreign table format"):
        Scan(snapshot).to_arrow()


def test_damage_names_the_file(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_simple")
    victim = Scan(snapshot).files[0]
    (tmp_path / "v9_cow_simple" / victim.path).write_bytes(b"\0" * victim.size)
    with pytest.raises(CorruptFile, match=victim.name):
        Scan(snapshot).to_arrow()


def test_threads_keep_the_order_and_stop_early() -> None:
    batches = [pa.record_batch({"n": [i]}) for i in range(40)]
    jobs = [lambda i=i: iter(batches[i * 10 : i * 10 + 10]) for i in range(4)]
    assert [b["n"][0].as_py() for b in in_order(jobs, 3)] == list(range(40))
    reader = in_order(jobs, 3)
    assert next(reader)["n"][0].as_py() == 0
    reader.close()  # type: ignore[attr-defined]

    def broken():
        yield batches[0]
        raise CorruptFile("bad")

    with pytest.raises(CorruptFile):
        list(in_order([jobs[0], broken, jobs[1]], 2))


def test_changes_take_instants_and_completion_times(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_simple")
    first, *_, last = snapshot.commits
    assert first.completion_time
    assert last.completion_time
    # an instant stands for its completion time: the commit itself does not come back
    by_instant, by_completion = (select_commits(snapshot, s) for s in (first.time, first.completion_time))
    assert by_instant == by_completion
    assert first not in by_instant.commits
    assert by_instant.end == last.completion_time
    moment = datetime.strptime(first.completion_time[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    assert len(select_commits(snapshot, moment).commits) == len(snapshot.commits)
    after = Changes(snapshot, last.completion_time)
    assert after.to_arrow().num_rows == 0
    assert after.end == last.completion_time
    assert Changes(snapshot, "earliest").count() == Scan(snapshot).count()


def test_changes_take_a_filter_and_columns(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_simple")
    start = snapshot.commits[0].time
    everything = Changes(snapshot, start, meta=True).to_arrow()
    eu = Changes(snapshot, start, where="region = 'eu'", columns=["id"])
    assert eu.to_arrow().column_names == ["id"]
    assert eu.count() == pc.sum(pc.equal(everything["region"], "eu")).as_py()
    assert "commits" in eu.explain()


def test_changes_of_missing_files_are_read_from_the_newest_snapshot(tmp_path: Path) -> None:
    snapshot, storage = opened(tmp_path, "v9_cow_simple")
    commits = snapshot.commits
    whole = Scan(snapshot, meta=True).to_arrow()
    middle = commits[1]
    old = snapshot_of(snapshot.storage, snapshot.config, snapshot.timeline, middle.time)
    newest = {f.path for f in snapshot.base_files()}
    for base_file in old.base_files():
        if base_file.path not in newest:
            storage.delete(base_file.path)
    # by listing: a cleaner would have taken them off the metadata table too
    fresh = open_snapshot(storage, snapshot.config, use_metadata=False)
    found = Changes(fresh, "000", middle.time, meta=True).to_arrow()
    wanted = {i.time for i in commits[:2]}
    expected = whole.filter(pc.is_in(whole["_hoodie_commit_time"], value_set=pa.array(sorted(wanted))))
    assert sorted(found["_hoodie_record_key"].to_pylist()) == sorted(expected["_hoodie_record_key"].to_pylist())


def test_changes_need_meta_fields(tmp_path: Path) -> None:
    snapshot, _ = opened(tmp_path, "v9_cow_no_meta")
    with pytest.raises(InvalidOption, match="no meta fields"):
        Changes(snapshot, "000")


@pytest.mark.parametrize("condition", [None, "fare > 100 and fare < 300 or part = 'p1'", "part = 'p3'", "fare > 1e9"])
def test_many_small_files_give_the_rows_of_a_table_of_one(condition: str | None) -> None:
    rows = pa.table(
        {
            "id": pa.array(range(600), pa.int64()),
            "part": [f"p{n % 10}" for n in range(600)],
            "fare": [float(n) for n in range(600)],
        }
    )
    shared: dict[str, Any] = {"key": "id", "index": "bucket", "type": "mor"}
    many = lakebed.create(f"memory://scan/many-{condition}", rows, partition_by="part", buckets=10, **shared)
    single = lakebed.create(f"memory://scan/single-{condition}", rows, buckets=1, **shared)
    for table in (many, single):
        table.upsert(rows)
        table.delete([5, 17])
    found = [t.scan(where=condition).to_arrow().sort_by("id").to_pydict() for t in (many, single)]
    assert found[0] == found[1]
    assert many.scan(columns=[], where=condition).to_arrow().num_rows == len(found[0]["id"])
    assert sum(b.num_rows for b in many.scan(columns=[], where=condition).to_batches()) == len(found[0]["id"])
    assert many.scan(where=condition).limit(3).to_arrow().num_rows == min(3, len(found[0]["id"]))


def test_a_condition_that_chooses_files_leaves_their_rows_as_they_are() -> None:
    rows = pa.table({"id": [1, 2, 3], "s": ["a", "B", "b"]})
    table = lakebed.create("memory://scan/choosing", rows, key="id", partition_by="s", index="simple")
    table.upsert(rows)
    combined, odd = (
        parse_filter(text, rows.schema).root
        for text in ("(s = 'b' and upper(s) = 'B') or (s = 'B' and length(s) = 1)", "id % 2 = 1")
    )
    scan = table.scan(["id"]).choosing_files([combined, odd])
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [2, 3]
    assert (len(scan.files), scan.plan.predicate) == (2, None)
    filtered = table.scan(["id"], where="id > 2").choosing_files([combined, odd])
    assert filtered.to_arrow()["id"].to_pylist() == [3]
    assert (len(filtered.files), str(filtered.plan.predicate)) == (1, "id > 2")
    lakebed.drop(table.uri)


@pytest.mark.parametrize(("rows", "threads"), [(20, False), (20_000, True)])
def test_a_few_small_files_are_read_without_threads_and_larger_ones_with_some(
    tmp_path: Path, rows: int, threads: bool
) -> None:
    texts = [f"{n * 7919 % 1_000_003:06d}" for n in range(rows)]
    data = pa.table({"id": range(rows), "text": texts})
    table = lakebed.create(str(tmp_path), data, key="id", index="bucket", buckets=4)
    table.bulk_insert(data)
    files = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert (files > SMALL_BYTES) is threads
    batches = table.scan().to_batches()
    first = next(batches)
    assert any(thread.name.startswith("lakebed-scan") for thread in threading.enumerate()) is threads
    scanned = pa.Table.from_batches([first, *batches]).sort_by("id")
    assert scanned["id"].to_pylist() == list(range(rows))
    assert scanned["text"].to_pylist() == texts
