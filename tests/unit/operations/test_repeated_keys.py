"""Keys that inserts store several times: all of their rows are found, though a record index has one place for a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import lakebed
from lakebed.config.options import resolve_options
from lakebed.engine.local import LocalEngine
from lakebed.metadata.lookups import open_snapshot
from lakebed.operations.hudi_job import write_context
from lakebed.operations.upsert import insert
from lakebed.properties.file import load_table_config, update_table_config
from lakebed.storage.opening import open_storage
from lakebed.table import Table
from lakebed.timeline import timeline
from lakebed.timeline.bodies.commit import encode_commit
from lakebed.timeline.timeline import load_timeline
from support.locks import held
from support.write_tables import content, files, rows

Make = Callable[..., Table]
EVERY_TYPE = pytest.mark.parametrize("kind", ["cow", "mor"])
APART = {"hoodie.parquet.small.file.limit": 0}
NOTE = "lakebed.index.repeated"


def matches_of_key(table: Table, key: int = 1) -> list[int]:
    """How many rows of a key each way to look for it gives."""
    table = lakebed.open(table.uri)
    filters = (f"id = {key}", f"id <= {key} AND id >= {key}", f"_hoodie_record_key = '{key}'")
    rows_of = [table.scan(where=text).to_arrow().num_rows for text in filters]
    return [*rows_of, table.scan(where=filters[0]).count(), table.get([key]).num_rows, table.locate([key]).num_rows]


@EVERY_TYPE
@pytest.mark.parametrize("index", ["record", "global_simple", "global_bloom", "simple", "bloom"])
@pytest.mark.parametrize("verb", ["insert", "bulk_insert"])
def test_all_rows_of_a_key_are_found_and_changed(make: Make, kind: str, index: str, verb: str) -> None:
    table = make(type=kind, index=index)
    for value in ("x", "y"):
        getattr(table, verb)(rows((1, "a", value, 1), (2 if value == "x" else 3, "a", value, 1)), options=APART)
    assert matches_of_key(table) == [2] * 6
    assert matches_of_key(table, 2) == [1] * 6
    table.upsert(rows((1, "a", "z", 2)))
    assert content(table) == [(1, "a", "z", 2), (1, "a", "z", 2), (2, "a", "x", 1), (3, "a", "y", 1)]
    table.delete([1])
    assert matches_of_key(table) == [0] * 6
    assert table.exists([1, 2]).to_pylist() == [False, True]


@EVERY_TYPE
def test_a_key_in_two_partitions_is_found_in_both(make: Make, kind: str) -> None:
    table = make(type=kind, index="record")
    table.insert(rows((1, "a", "x", 1)))
    table.insert(rows((1, "b", "y", 1)))
    assert matches_of_key(table) == [2] * 6


@EVERY_TYPE
def test_a_first_insert_that_repeats_a_key_is_noted(make: Make, kind: str) -> None:
    table = make(type=kind, index="record")
    table.insert(rows((1, "a", "x", 1), (1, "b", "y", 1)))
    assert table.properties[NOTE] == "true"
    assert matches_of_key(table) == [2] * 6


@EVERY_TYPE
def test_the_result_counts_rows_of_keys_that_are_stored_another_time(make: Make, kind: str) -> None:
    table = make(type=kind, index="record")
    assert table.insert(rows((1, "a", "x", 1), (2, "b", "x", 1))).duplicates == 0
    done = table.insert(rows((1, "a", "y", 1), (3, "a", "y", 1), (3, "b", "y", 1), (2, "a", "y", 1)))
    assert done.duplicates == 3  # 1 and 2 are stored, and 3 comes twice
    assert "3 with a key that is stored another time" in str(done)
    assert table.upsert(rows((4, "a", "z", 1))).duplicates == 0
    # from now on the index does not tell which keys are stored: they are read
    assert table.insert(rows((5, "a", "z", 1), (1, "b", "z", 1))).duplicates == 1


@EVERY_TYPE
def test_inserts_of_new_keys_are_found_by_the_index(make: Make, kind: str) -> None:
    table = make(type=kind, index="record")
    table.insert(rows((1, "a", "x", 1), (2, "b", "x", 1)))
    table.insert(rows((3, "a", "x", 1)))
    table.upsert(rows((3, "a", "y", 2)))
    assert NOTE not in lakebed.open(table.uri).properties
    assert matches_of_key(table, 3) == [1] * 6


def test_repaired_duplicates_are_found_by_the_index_again(make: Make) -> None:
    table = make(index="record")
    for value in ("x", "y"):
        table.insert(rows((1, "a", value, 1)), options=APART)
    assert lakebed.open(table.uri).properties[NOTE] == "true"
    table.maintenance.repair(["duplicates"])
    assert NOTE not in lakebed.open(table.uri).properties
    assert matches_of_key(table) == [1] * 6
    assert content(table) == [(1, "a", "y", 1)]


@EVERY_TYPE
@pytest.mark.parametrize("index", ["record", "record_level_index"])
def test_an_overwrite_that_repeats_a_key_is_noted(make: Make, kind: str, index: str) -> None:
    table = make(type=kind, index=index)
    table.insert(rows((1, "a", "x", 1), (2, "b", "x", 1)))
    table.insert_overwrite(rows((1, "a", "y", 1)))  # its own key: replaced
    assert NOTE not in lakebed.open(table.uri).properties
    table.insert_overwrite(rows((1, "a", "y", 1), (1, "a", "z", 1)))
    assert lakebed.open(table.uri).properties[NOTE] == "true"
    assert matches_of_key(table) == [2] * 6
    table.upsert(rows((1, "a", "w", 2)))
    assert content(table) == [(1, "a", "w", 2), (1, "a", "w", 2), (2, "b", "x", 1)]


def test_a_key_in_two_partitions_is_no_repeated_one_where_each_has_its_index(make: Make) -> None:
    table = make(index="record_level_index")
    table.insert(rows((1, "a", "x", 1), (1, "b", "x", 1)))
    table.insert(rows((1, "c", "x", 1)))
    assert NOTE not in lakebed.open(table.uri).properties
    assert matches_of_key(table) == [3] * 6
    table.insert(rows((1, "c", "y", 1)))
    assert lakebed.open(table.uri).properties[NOTE] == "true"
    assert matches_of_key(table) == [4] * 6


def test_keys_that_were_deleted_are_new_again(make: Make) -> None:
    table = make(index="record")
    table.insert(rows((1, "a", "x", 1)))
    table.delete([1])
    table.insert(rows((1, "b", "y", 1)))
    assert NOTE not in lakebed.open(table.uri).properties
    assert matches_of_key(table) == [1] * 6


@EVERY_TYPE
def test_an_index_of_keys_is_not_built_over_repeated_keys(make: Make, kind: str) -> None:
    table = make(type=kind, index="simple", partition_by=None)
    for value in ("x", "y"):
        table.insert(rows((1, "a", value, 1)), options=APART)
    with pytest.raises(lakebed.IndexInconsistent, match="1 record key"):
        table.indexes.create("record_index")
    with pytest.raises(lakebed.IndexInconsistent, match="1 record key"):
        table.indexes.use("record")
    assert matches_of_key(table) == [2] * 6


def as_if_by_another_writer(table: Table) -> None:
    """Take off the last commit, and off the table, what tells that lakebed has made and checked them."""
    storage = open_storage(table.uri)
    config = update_table_config(storage, {NOTE: None}, held)
    last = load_timeline(storage, config).commits[-1]
    commit = load_timeline(storage, config).commit_metadata(last)
    path = f"{config.timeline_path}/{last.file_name}"
    without = replace(commit, extra={k: v for k, v in commit.extra.items() if not k.startswith("lakebed.")})
    timeline._BODIES.clear()  # pyright: ignore[reportPrivateUsage] (bodies of completed instants do not change)
    storage.write(path, encode_commit(without, config.version, last.action))


@EVERY_TYPE
@pytest.mark.parametrize("version", [9, 8, 6])
def test_keys_that_another_writer_inserts_again_are_found(make: Make, kind: str, version: int) -> None:
    table = make(type=kind, index="record", table_version=version)
    table.insert(rows((1, "a", "x", 1), (2, "b", "x", 1)))
    table.insert(rows((1, "a", "y", 1)), options=APART)
    as_if_by_another_writer(table)
    assert matches_of_key(table) == [2] * 6
    table.upsert(rows((3, "a", "z", 2)))  # it notes what came before it
    assert lakebed.open(table.uri).properties[NOTE] == "true"
    table.delete([1])
    assert content(table) == [(2, "b", "x", 1), (3, "a", "z", 2)]


@EVERY_TYPE
def test_new_keys_of_another_writer_are_found_by_the_index(make: Make, kind: str) -> None:
    table = make(type=kind, index="record")
    table.upsert(rows((1, "a", "x", 1), (2, "b", "x", 1)))
    table.delete([2])
    table.insert(rows((3, "a", "y", 1)), options=APART)
    as_if_by_another_writer(table)
    assert not open_snapshot(open_storage(table.uri)).repeats_keys
    table.upsert(rows((4, "a", "z", 2)))
    assert NOTE not in lakebed.open(table.uri).properties
    assert matches_of_key(table, 3) == [1] * 6


def test_where_counting_takes_too_long_a_repair_says_that_keys_are_unique(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakebed.slices.repeated_keys.COUNTED_BYTES", 0)
    table = make(index="record")
    table.insert(rows((1, "a", "x", 1), (2, "b", "x", 1)))
    as_if_by_another_writer(table)
    assert open_snapshot(open_storage(table.uri)).repeats_keys
    assert matches_of_key(table) == [1] * 6
    table.maintenance.repair(["duplicates"])
    assert not open_snapshot(open_storage(table.uri)).repeats_keys
    table.insert(rows((2, "a", "y", 1)), options=APART)
    assert lakebed.open(table.uri).properties[NOTE] == "true"
    assert matches_of_key(table, 2) == [2] * 6


def test_two_inserts_of_one_key_at_a_time_are_noted(make: Make) -> None:
    """The second one looks at what the first has committed."""
    table = make(index="record")
    table.insert(rows((9, "z", "x", 1)))
    storage, config = open_storage(table.uri), load_table_config(open_storage(table.uri))
    ours = write_context(storage, config, LocalEngine(), resolve_options(APART))
    lakebed.open(table.uri).insert(rows((1, "a", "x", 1)))
    insert(ours, rows((1, "a", "y", 1)))
    assert lakebed.open(table.uri).properties[NOTE] == "true"
    assert matches_of_key(table) == [2] * 6


def test_a_refused_insert_notes_nothing(make: Make) -> None:
    table = make(index="record")
    table.insert(rows((1, "a", "x", 1)))
    before = files(table.uri)
    with pytest.raises(lakebed.LakebedError):
        table.insert(rows((1, "a", "x", 1)), options={"hoodie.datasource.insert.dup.policy": "fail"})
    assert NOTE not in lakebed.open(table.uri).properties
    assert content(table) == [(1, "a", "x", 1)]
    assert before.keys() <= files(table.uri).keys()


@EVERY_TYPE
@pytest.mark.parametrize("index", ["bucket", "simple", "record"])
def test_an_insert_of_a_stored_key_makes_a_second_row_that_an_upsert_updates_too(kind: Any, index: str) -> None:
    uri = f"memory://inserted-twice/{kind}-{index}"
    table = lakebed.create(uri, {"id": [1], "v": [1]}, key="id", type=kind, index=index)
    table.upsert({"id": [1], "v": [1]})
    table.insert({"id": [1], "v": [2]})
    merged = (kind, index) == ("mor", "bucket")
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == ([2] if merged else [1, 2])
    table.upsert({"id": [1], "v": [3]})
    assert table.scan().to_arrow()["v"].to_pylist() == ([3] if merged else [3, 3])


@EVERY_TYPE
@pytest.mark.parametrize("index", ["bucket", "bucket_groups", "simple", "bloom", "record"])
def test_a_delete_by_a_condition_takes_all_rows_of_a_key_in_one_base_file(make: Make, kind: str, index: str) -> None:
    table = make(type=kind, index=index)
    table.insert(rows((1, "a", "x", 1), (1, "a", "y", 1), (2, "a", "x", 1), (1, "b", "x", 1)))
    done = table.delete(where="id = 1 AND city = 'a'")
    assert (done.rows, done.deleted) == (2, 2)
    assert content(table) == [(1, "b", "x", 1), (2, "a", "x", 1)]
    if kind == "mor":
        table.maintenance.compact()
        assert content(table) == [(1, "b", "x", 1), (2, "a", "x", 1)]


@EVERY_TYPE
@pytest.mark.parametrize("index", ["bucket_groups", "simple", "global_simple", "bloom", "record"])
def test_an_update_by_a_condition_adds_no_row_to_those_of_a_key_in_one_base_file(
    make: Make, kind: str, index: str
) -> None:
    buckets = 1 if index == "bucket_groups" else None
    table = make(type=kind, index=index, buckets=buckets, partition_by="city")
    table.insert(rows((1, "a", "x", 1), (1, "a", "y", 1), (2, "a", "z", 1)), options={"lakebed.write.tasks": 1})
    result = table.update({"v": "'new'"}, where="v = 'x'")
    assert (result.updated, result.inserted) == (1, 0)
    other = "y" if (kind, index) == ("mor", "bucket_groups") else "new"
    assert sorted(row["v"] for row in table.scan().to_arrow().to_pylist()) == ["new", other, "z"]


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_an_erasure_by_a_condition_leaves_no_row_of_a_key_in_one_base_file(make: Make, index: str) -> None:
    table = make(type="mor", index=index)
    table.insert(rows((1, "a", "x", 1), (1, "a", "y", 1), (2, "a", "x", 1)))
    report = table.erase(where="id = 1")
    assert (report.rows, report.is_clean) == (2, True)
    assert content(table) == [(2, "a", "x", 1)]


@pytest.mark.parametrize("version", [9, 6])
def test_log_files_of_buckets_change_the_first_of_the_rows_of_a_key_in_one_base_file(make: Make, version: int) -> None:
    """As real Hudi reads these bytes: a log record without a row number is for one row. See docs/indexes.md."""
    table = make(type="mor", index="bucket", partition_by=None, table_version=version)
    table.insert(rows((1, "a", "x", 1), (1, "a", "y", 1), (2, "a", "x", 1)))
    table.upsert(rows((1, "a", "z", 2)))
    assert content(table) == [(1, "a", "y", 1), (1, "a", "z", 2), (2, "a", "x", 1)]
    assert table.delete([1]).deleted == 1
    assert content(table) == [(1, "a", "y", 1), (2, "a", "x", 1)]
