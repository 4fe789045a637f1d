"""The record index as an index of writes: its names, what a table remembers of it, tables that lack it yet."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import lakebed
from lakebed.engine.local import LocalEngine
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.index.record import RecordIndex
from lakebed.index.registry import check_same_index, index_of, index_properties, make_index, recorded_index
from lakebed.merge.locations import Differ, ShardOf
from lakebed.merge.rules import MergeRules
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_records.layout import file_group
from lakebed.model import DELETE, FILE_ID, PARTITION_PATH, RECORD_KEY
from lakebed.storage import open_storage
from lakebed.testing import CountingStorage
from support.tagged_rows import tagged_rows

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])


def data(*keys: str, region: str = "eu") -> pa.Table:
    return pa.table([list(keys), [region] * len(keys), [1] * len(keys)], schema=SCHEMA)


def incoming(*keys: str, region: str = "eu") -> pa.Table:
    return data(*keys, region=region).rename_columns([RECORD_KEY, PARTITION_PATH, "ts"])


def new_table(index: str, **words: object) -> lakebed.Table:
    uri = f"memory://record-{uuid.uuid4().hex}/t"
    return lakebed.create(uri, SCHEMA, key="id", partition_by="region", ordering="ts", index=index, **words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("record", {"type": "record", "update_partition": "false"}),
        ("RECORD_INDEX", {"type": "record", "update_partition": "false"}),
        ("global_record_level_index", {"type": "record", "update_partition": "false"}),
        ("record_level_index", {"type": "record", "partitioned": "true"}),
    ],
)
def test_every_hudi_name_of_the_record_index_is_recorded_the_same_way(name: str, settings: dict[str, str]) -> None:
    index = make_index(name, key_fields=("id",))
    assert index.settings() == settings
    assert index.is_global == ("partitioned" not in settings)
    recorded = recorded_index({k.removeprefix("lakebed.index."): v for k, v in index_properties(index).items()})
    assert recorded is not None
    check_same_index(recorded, index)
    assert "no data file is read" in index.explain()


def test_rows_move_between_partitions_only_on_request() -> None:
    assert make_index("record", key_fields=("id",), update_partition_path=True).settings()["update_partition"] == "true"
    with pytest.raises(InvalidOption):
        make_index("record_level_index", key_fields=("id",), update_partition_path=True)
    assert RecordIndex(True).for_existence_checks().settings()["update_partition"] == "false"


@pytest.mark.parametrize("index", ["record", "record_level_index"])
def test_a_table_without_record_index_is_tagged_as_by_a_simple_index(
    index: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is looked through as by the simple indexes, with one line a table; the next write builds the index."""
    table = new_table("simple" if index == "record_level_index" else "global_simple")
    table.upsert(data("a", "b"))
    snapshot = open_snapshot(open_storage(table.uri))
    engine = LocalEngine()
    chosen = make_index(index, key_fields=("id",))
    for _ in range(2):
        tagged = engine.collect(tagged_rows(chosen, incoming("a", "z"), snapshot, engine))
        assert [v is None for v in tagged.column(FILE_ID).to_pylist()] == [False, True]
    assert [r.getMessage() for r in caplog.records if "no record index yet" in r.getMessage()] == [
        caplog.records[-1].getMessage()
    ]
    table.indexes.adopt(index)
    table.upsert(data("b", "c"))
    assert index_of(open_snapshot(open_storage(table.uri))).settings() == chosen.settings()
    assert "record_index" in {fact.name for fact in table.indexes.list()}
    assert table.indexes.verify().ok


def test_only_the_file_groups_of_the_keys_are_opened() -> None:
    table = new_table("record")
    table.upsert(data(*(f"k{n}" for n in range(200))))
    storage = CountingStorage(open_storage(table.uri))
    snapshot = open_snapshot(storage)
    assert snapshot.metadata is not None
    groups = len(snapshot.metadata.slices.file_slices("record_index"))
    assert snapshot.schema.names  # from the newest commit, which is read once
    storage.reset()
    engine = LocalEngine()
    keys = ["k3", "k7", "new"]
    tagged_rows(RecordIndex(), incoming(*keys), snapshot, engine)
    touched = {f"record-index-{n:04d}-0" for n in file_group(pa.array(keys), groups).tolist()}
    opened = {path.rpartition("/")[2].lstrip(".").partition("_")[0] for path in storage.opened}
    assert opened <= touched
    assert len(touched) < groups
    assert not [path for path in storage.opened if path.endswith(".parquet")]


def test_a_key_that_moves_reads_its_old_file_group_alone() -> None:
    table = new_table("record", properties={"hoodie.record.index.update.partition.path": True})
    for region in ("eu", "us", "asia"):
        table.upsert(data(f"{region}1", f"{region}2", region=region))
    storage = CountingStorage(open_storage(table.uri))
    snapshot = open_snapshot(storage)
    index = index_of(snapshot)
    engine = LocalEngine()
    rows = pa.concat_tables([incoming("eu1", region="us"), incoming("us1", region="us")])
    tagged = engine.collect(tagged_rows(index, rows, snapshot, engine, MergeRules(("ts",)))).to_pylist()
    places = {(r[RECORD_KEY], r[PARTITION_PATH], r[FILE_ID] is None, r[DELETE]) for r in tagged}
    assert places == {("eu1", "us", True, False), ("eu1", "eu", False, True), ("us1", "us", False, False)}
    assert {p.partition("/")[0] for p in storage.opened if p.endswith(".parquet")} == {"eu"}


def test_row_expressions_of_the_record_index_compare_and_shard() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x", "y", None], "b": ["x", "z", "q"]})
    assert Differ("a", "b").arrow(batch).to_pylist() == [False, True, False]
    assert ShardOf("b", 10).arrow(batch).to_pylist() == file_group(batch.column("b"), 10).tolist()


@pytest.mark.parametrize("index", ["record", "record_level_index"])
def test_explain_of_a_table_without_its_record_index_says_that_files_are_read(index: str) -> None:
    data = pa.table({"id": ["a", "b"], "v": [1, 2]})
    uri = f"memory://unit/record/explained/{index}"
    table = lakebed.create(uri, data, key="id", index=index, properties={"hoodie.metadata.enable": "false"})
    assert "no data file is read" in repr(table.indexes)  # there is none
    table.upsert(data)
    for text in (str(table.explain(upsert=data)), repr(table.indexes)):
        assert "no data file is read" not in text
        assert "the table has no record index yet, keys are looked up as under" in text
        assert "base files" in text
    built = lakebed.create(f"{uri}/built", data, key="id", index=index)
    built.upsert(data)
    assert "no data file is read" in str(built.explain(upsert=data))


@pytest.mark.parametrize("version", [8, 6])
def test_versions_before_9_have_no_record_index_for_each_partition_path(version: int) -> None:
    uri = f"memory://record-{uuid.uuid4().hex}/t"
    words = {"key": "id", "partition_by": "region", "table_version": version}
    message = f"a record index for each partition path on a table of version {version}"
    with pytest.raises(UnsupportedFeature, match=message):
        lakebed.create(uri, SCHEMA, index="record_level_index", **words)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedFeature, match=message):
        lakebed.create(uri, SCHEMA, properties={"hoodie.index.type": "RECORD_LEVEL_INDEX"}, **words)  # type: ignore[arg-type]
    assert not lakebed.list_tables(uri, depth=0)
    table = new_table("simple", table_version=version)
    table.upsert(data("a"))
    for change in (table.indexes.adopt, table.indexes.use):
        with pytest.raises(UnsupportedFeature, match=message):
            change("record_level_index")
    assert table.indexes.adopt(" Global_Simple ").name == "global_simple"
    assert table.upsert(data("a", "b")).inserted == 1
