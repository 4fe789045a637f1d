"""The bloom indexes: they tag as the simple ones do, by any way, and look into fewer files."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.engine.local import LocalEngine
from lakebed.errors import InvalidOption
from lakebed.format.base_file import read_footer
from lakebed.format.bloom import ALL_ONES_TEXT, BloomFilter
from lakebed.format.footer_cache import FOOTERS
from lakebed.index.base import Tagged
from lakebed.index.bloom import known_files, search
from lakebed.index.bloom.index import BloomIndex, GlobalBloomIndex
from lakebed.index.bloom.known_files import SearchOptions
from lakebed.index.registry import make_index, recorded_index
from lakebed.index.simple import GlobalSimpleIndex, SimpleIndex
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import PARTITION_PATH, RECORD_KEY
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.testing import CountingStorage

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
ENGINE = LocalEngine()


class TaskEngine(LocalEngine):
    """The engine of this process as if its functions ran in tasks elsewhere."""

    is_distributed = True


@pytest.fixture(params=["here", "in tasks"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    if request.param == "here":
        return ENGINE
    monkeypatch.setattr(search, "KEYS_HERE", 0)
    monkeypatch.setattr(known_files, "_FOOTERS_HERE", 0)
    monkeypatch.setattr(search, "_KEYS_TOGETHER", 7)
    return TaskEngine()


def data(keys: Mapping[str, str], ts: int = 1) -> pa.Table:
    return pa.table([list(keys), list(keys.values()), [ts] * len(keys), [ts] * len(keys)], schema=SCHEMA)


def incoming(snapshot: Snapshot, keys: Mapping[str, str], ts: int = 5) -> pa.Table:
    names = [RECORD_KEY, PARTITION_PATH]
    return pa.table([list(keys), list(keys.values()), *data(keys, ts).columns], names=[*names, *SCHEMA.names])


def new_table(index: str, **words: Any) -> lakebed.Table:
    uri = f"memory://bloom-{uuid.uuid4().hex}/t"
    return lakebed.create(uri, SCHEMA, key="id", partition_by="region", ordering="ts", index=index, **words)


def snapshot_of(table: lakebed.Table) -> Snapshot:
    return open_snapshot(open_storage(table.uri))


def tagged(index: Any, rows: pa.Table, snapshot: Snapshot, engine: LocalEngine = ENGINE) -> Tagged:
    answer = index.place(engine.rows(rows), snapshot, engine)
    assert isinstance(answer, Tagged)
    return answer


def same_tags(ours: Any, theirs: Any, rows: pa.Table, snapshot: Snapshot, engine: LocalEngine) -> None:
    """Both indexes give every row the same place."""
    found, expected = (ENGINE.collect(tagged(i, rows, snapshot, e).rows) for i, e in ((ours, engine), (theirs, ENGINE)))
    order = sorted(expected.column_names)
    assert sorted(found.column_names) == order
    schema = expected.select(order).schema
    one, other = (sorted(t.select(order).cast(schema).to_pylist(), key=repr) for t in (found, expected))
    assert one == other


OPTIONS = [
    SearchOptions(),
    SearchOptions(prune_by_ranges=False, use_metadata=False),
    SearchOptions(use_metadata=True, keys_per_task=3),
]


@pytest.mark.parametrize("options", OPTIONS, ids=["default", "no ranges", "metadata"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_keys_are_tagged_as_the_simple_index_tags_them(engine: LocalEngine, kind: str, options: SearchOptions) -> None:
    chance = random.Random(kind)
    table = new_table("bloom", type=kind, indexes=["bloom_filters"], properties={"hoodie.compact.inline": False})
    regions = ("eu", "us", "é/x")
    keys = {f"k{i:03}\U0001f600"[: 4 + i % 2]: chance.choice(regions) for i in range(120)}
    for part in range(3):
        some = {k: p for n, (k, p) in enumerate(keys.items()) if n // 40 == part}
        table.insert(data(some), options={"hoodie.parquet.small.file.limit": 0})
    table.upsert(data(dict(list(keys.items())[::5]), ts=3))
    table.delete(list(keys)[7::20])
    snapshot = snapshot_of(table)
    wanted = dict(list(keys.items())[::3]) | {f"k{i:03}new": chance.choice(regions) for i in range(20)}
    for moved in list(wanted)[::4]:
        wanted[moved] = chance.choice((*regions, "elsewhere"))
    rows = incoming(snapshot, wanted)
    same_tags(BloomIndex(options), SimpleIndex(), rows, snapshot, engine)
    for moves in (True, False):
        same_tags(GlobalBloomIndex(moves, options), GlobalSimpleIndex(moves), rows, snapshot, engine)


@pytest.mark.parametrize("before", ["bucket", "simple", "record"])
def test_keys_that_stand_in_log_files_alone_are_found(engine: LocalEngine, before: str) -> None:
    """A bucket table's inserts go to log files, whose keys no filter knows."""
    buckets = {"buckets": 2} if before == "bucket" else {}
    table = new_table(before, type="mor", properties={"hoodie.compact.inline": False}, **buckets)
    table.upsert(data({"a": "eu", "b": "eu", "c": "us"}))
    table.upsert(data({"a": "eu", "n": "eu", "o": "us"}, ts=2))
    table.delete(["b"])
    snapshot = snapshot_of(table)
    assert (before != "bucket") or any(s.log_files for s in snapshot.file_slices())
    rows = incoming(snapshot, {"a": "eu", "b": "eu", "n": "eu", "o": "eu", "c": "us", "x": "us"})
    same_tags(BloomIndex(), SimpleIndex(), rows, snapshot, engine)
    same_tags(GlobalBloomIndex(), GlobalSimpleIndex(), rows, snapshot, engine)


@pytest.mark.parametrize(
    "name",
    [
        "v6_cow_bloom",
        "w6_cow_bloom",
        "v8_cow_bloom",
        "v9_cow_bloom",
        "v9_cow_simple",
        "v9_mor_avro_log",
        "v9_cow_insert_dups",
    ],
)
def test_golden_tables_are_tagged_as_by_the_simple_index(
    golden: Callable[[str], Snapshot], engine: LocalEngine, name: str
) -> None:
    snapshot = golden(name)
    stored = ENGINE.read_columns(snapshot, snapshot.file_slices(), [RECORD_KEY, PARTITION_PATH]).table
    keys, paths = (stored.column(c).cast(pa.string()).to_pylist() for c in (RECORD_KEY, PARTITION_PATH))
    names = [RECORD_KEY, PARTITION_PATH]
    rows = pa.table([[*keys[::2], "nobody", keys[0]], [*paths[::2], paths[0], "nowhere"]], names=names)
    for options in OPTIONS:
        same_tags(BloomIndex(options), SimpleIndex(), rows, snapshot, engine)
        same_tags(GlobalBloomIndex(False, options), GlobalSimpleIndex(False), rows, snapshot, engine)
    lookup = tagged(BloomIndex(), rows, snapshot, engine).lookup
    assert lookup is not None
    assert lookup.tagged >= len(set(zip(keys[::2], paths[::2], strict=True)))
    if "bloom" in name:
        assert lookup.asked > 0, "the filters that real Hudi wrote are asked"
        assert lookup.false_positives == 0


def wide(**words: Any) -> lakebed.Table:
    """Thirty files of one partition path, whose keys follow one another but for `mixed` ones."""
    table = new_table("bloom", **words)
    for n in range(30):
        keys = {f"{n:02}-{i}": "eu" for i in range(4)}
        table.insert(data(keys), options={"hoodie.parquet.small.file.limit": 0})
    return table


@pytest.mark.rest
def test_files_are_ruled_out_by_range_then_by_filter_and_counted(engine: LocalEngine) -> None:
    table = wide()
    snapshot = snapshot_of(table)
    keys = {"03-1": "eu", "03-1x": "eu", "07-2": "eu", "09-1y": "eu", "40": "eu", "12-1": "us"}
    lookup = tagged(BloomIndex(), incoming(snapshot, keys), snapshot, engine).lookup
    assert lookup is not None
    assert (lookup.keys, lookup.tagged, lookup.files) == (6, 2, 30)
    assert (lookup.out_of_range, lookup.filtered, lookup.searched) == (27, 1, 2)
    assert (lookup.asked, lookup.absent, lookup.false_positives, lookup.false_positive_rate) == (4, 2, 0, 0)
    assert "27 ruled out by key range, 1 by bloom filter, 2 read" in str(lookup)
    no_ranges = tagged(BloomIndex(SearchOptions(False)), incoming(snapshot, keys), snapshot, engine).lookup
    assert no_ranges is not None
    assert (no_ranges.out_of_range, no_ranges.filtered, no_ranges.searched) == (0, 28, 2)
    assert no_ranges.asked == 30 * 5


def test_a_false_positive_is_looked_up_counted_and_reported() -> None:
    table = new_table("bloom")
    loose = {"hoodie.index.bloom.fpp": 0.3, "hoodie.index.bloom.num_entries": 100}
    table.insert(data({f"k{i:03}": "eu" for i in range(0, 200, 2)}), options=loose)
    plan = table.explain(upsert=data({f"k{i:03}": "eu" for i in range(199)}))
    assert plan.lookup is not None
    assert (plan.lookup.keys, plan.lookup.tagged, plan.lookup.absent) == (199, 100, 99)
    assert 10 < plan.lookup.false_positives < 60
    assert f"false positives of the filters: {plan.lookup.false_positives}" in str(plan)
    result = table.upsert(data({f"k{i:03}": "eu" for i in range(199)}, ts=2))
    assert (result.updated, result.inserted, result.lookup) == (100, 99, plan.lookup)
    assert result.to_dict()["lookup"]["false_positive_rate"] == plan.lookup.false_positives / 99


def test_keys_that_are_in_several_places_are_reported() -> None:
    table = new_table("bloom")
    table.insert(data({"a": "eu", "b": "eu"}))
    table.insert(data({"a": "eu"}), options={"hoodie.parquet.small.file.limit": 0})
    lookup = table.upsert(data({"a": "eu", "b": "eu"}, ts=2)).lookup
    assert str(lookup).startswith("keys: 2, found in 3 places; files: 2")


@pytest.mark.rest
@pytest.mark.parametrize("use_metadata", [None, True, False])
def test_the_metadata_table_knows_which_files_need_not_be_opened(use_metadata: bool | None) -> None:
    table = wide(indexes=["bloom_filters"])
    FOOTERS.clear()
    storage = CountingStorage(open_storage(table.uri))
    snapshot = open_snapshot(storage)
    rows = incoming(snapshot, {"03-1": "eu", "05-2x": "eu"})
    lookup = tagged(BloomIndex(SearchOptions(use_metadata=use_metadata)), rows, snapshot).lookup
    assert lookup is not None
    assert (lookup.tagged, lookup.searched, lookup.filtered) == (1, 1, 1)
    opened = {path for path in storage.opened if path.endswith(".parquet")}
    # of two candidates few footers are read by themselves, of thirty files the metadata table has the ranges
    assert len(opened) == {None: 2, True: 1, False: 30}[use_metadata]


def test_row_groups_out_of_range_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table("bloom", properties={"lakebed.sort": "key"})
    keys = {f"{i:06}": "eu" for i in range(100_000)}
    table.bulk_insert(data(keys))
    snapshot = snapshot_of(table)
    (one,) = snapshot.file_slices()
    assert one.base_file is not None
    groups = read_footer(snapshot.storage, one.base_file.path).row_groups
    assert groups > 2
    rows = incoming(snapshot, {"000005": "eu"})
    asked: list[list[int]] = []

    class Counted(pq.ParquetFile):
        def iter_batches(self, *args: Any, **words: Any) -> Any:
            asked.append(words["row_groups"])
            return super().iter_batches(*args, **words)

    monkeypatch.setattr(pq, "ParquetFile", Counted)
    lookup = tagged(BloomIndex(), rows, snapshot).lookup
    assert lookup is not None
    assert (lookup.tagged, lookup.searched) == (1, 1)
    assert asked == [[0]]


def filters(table: lakebed.Table) -> list[tuple[str, str]]:
    snapshot = snapshot_of(table)
    bases = [s.base_file for s in snapshot.file_slices() if s.base_file is not None]
    return [read_footer(snapshot.storage, b.path).stored_bloom or ("", "") for b in bases]


def test_a_merge_adds_new_keys_to_the_filter_and_a_dynamic_one_grows() -> None:
    small = {"hoodie.index.bloom.num_entries": 10, "hoodie.bloom.index.filter.dynamic.max.entries": 40}
    one, two = (new_table("bloom") for _ in range(2))
    for start in range(0, 40, 5):
        one.upsert(data({f"k{i:02}": "eu" for i in range(max(0, start - 3), start + 5)}), options=small)
    two.upsert(data({f"k{i:02}": "eu" for i in range(40)}), options=small)
    (grown,), (at_once,) = filters(one), filters(two)
    assert grown[0] == at_once[0] == "DYNAMIC_V0"
    assert grown == at_once, "a filter says which keys came to it and in which order"
    assert len(BloomFilter.from_text(grown[1], grown[0])._rows) == 4
    lookup = one.explain(upsert=data({f"k{i:02}": "eu" for i in range(40)})).lookup
    assert lookup is not None
    assert lookup.tagged == 40


def test_files_of_another_index_get_a_filter_when_they_are_written_again() -> None:
    table = new_table("simple")
    table.upsert(data({"a": "eu", "b": "eu"}))
    assert [text for _, text in filters(table)] == [ALL_ONES_TEXT]
    table.indexes.adopt("bloom")
    table = lakebed.open(table.uri)
    table.upsert(data({"b": "eu", "c": "eu"}, ts=2))
    (stored,) = filters(table)
    assert stored[0] == "DYNAMIC_V0"
    lookup = table.explain(upsert=data({"a": "eu", "b": "eu", "c": "eu", "aa": "eu"})).lookup
    assert lookup is not None
    assert (lookup.tagged, lookup.asked, lookup.absent, lookup.false_positives) == (3, 4, 1, 0)


@pytest.mark.parametrize("pruned", [True, False])
def test_a_global_index_finds_keys_of_all_partition_paths_however_it_prunes(pruned: bool) -> None:
    """Real Hudi 1.2.0 looks at the rows' own partition paths alone without ranges, and makes duplicates."""
    table = new_table("global_bloom")
    table.upsert(data({f"k{i}": "eu" for i in range(10)}))
    result = table.upsert(
        data({f"k{i}": "us" for i in range(3)}, ts=2), options={"hoodie.bloom.index.prune.by.ranges": pruned}
    )
    assert result.lookup is not None
    assert result.lookup.tagged == 3
    rows = table.scan().to_arrow().to_pylist()
    assert sorted((r["id"], r["region"]) for r in rows) == [(f"k{i}", "us" if i < 3 else "eu") for i in range(10)]


def test_names_settings_and_what_does_not_belong_to_them() -> None:
    assert make_index("BLOOM", key_fields=("id",)).settings() == {"type": "bloom"}
    stays = make_index("global_bloom", key_fields=("id",), update_partition_path=False)
    assert stays.settings() == {"type": "global_bloom", "update_partition": "false"}
    again = recorded_index(stays.settings())
    assert again is not None
    assert again.settings() == stays.settings()
    assert again.is_global
    for name, words in (("bloom", {"update_partition_path": True}), ("global_bloom", {"buckets": 3})):
        with pytest.raises(InvalidOption, match="does not belong to the index"):
            make_index(name, key_fields=("id",), **words)  # type: ignore[arg-type]


def test_a_job_of_real_hudi_names_the_index_and_its_options() -> None:
    uri = f"memory://bloom-{uuid.uuid4().hex}/t"
    job = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "region",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.index.type": "GLOBAL_BLOOM",
        "hoodie.bloom.index.update.partition.path": "false",
        "hoodie.bloom.index.use.metadata": "true",
        "hoodie.bloom.index.keys.per.bucket": "100",
        "hoodie.bloom.index.parallelism": "4",
        "hoodie.bloom.index.filter.type": "SIMPLE",
        "hoodie.index.bloom.num_entries": "100",
    }
    lakebed.write(data({"a": "eu", "b": "us"}), uri, job, mode="append")
    result = lakebed.write(data({"a": "us", "c": "us"}, ts=2), uri, job, mode="append")
    assert result.lookup is not None
    assert (result.updated, result.inserted, result.lookup.tagged) == (1, 1, 1)
    table = lakebed.open(uri)
    assert table.indexes.index.settings() == {"type": "global_bloom", "update_partition": "false"}
    assert [kind for kind, _ in filters(table)] == ["SIMPLE"] * 2


def test_lookups_of_many_keys_go_through_row_group_ranges_and_filters() -> None:
    table = new_table("bloom", properties={"lakebed.sort": "key", "hoodie.compact.inline": False}, type="mor")
    stored = {f"{i:06}": "eu" for i in range(0, 60_000, 2)}
    table.bulk_insert(data(stored))
    table.upsert(data({"000002": "eu"}, ts=2))
    wanted = [f"{i:06}" for i in range(2, 3_000)]
    found = {row["id"]: row["ts"] for row in table.get(wanted).to_pylist()}
    assert found == {key: 2 if key == "000002" else 1 for key in wanted if key in stored}
    assert table.exists(wanted).to_pylist() == [key in stored for key in wanted]
    assert sorted(table.locate(wanted)["key"].to_pylist()) == sorted(found)
    table.delete(wanted)
    assert table.count() == 30_000 - len(found)
