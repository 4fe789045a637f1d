"""The options of writes by `format("lakebed")`."""

from __future__ import annotations

import pytest

from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.spark_sink.options import refuse_memory, write_options

PATH = {"path": "memory://sink/options"}


def test_options_have_lakebeds_names_or_hudis() -> None:
    own = {"operation": "insert", "identifier": "a", "retries": "7", "storage.key": "secret"}
    options = write_options({**PATH, **own, "checkpointLocation": "c", "queryName": "q", "owner": "me"}, streaming=True)
    assert (options.operation, options.identifier, options.retries) == ("insert", "a", 7)
    assert (options.checkpoint, dict(options.storage_options)) == ("c", {"key": "secret"})
    of_hudi = {
        "hoodie.datasource.write.operation": "DELETE",
        "hoodie.datasource.write.streaming.checkpoint.identifier": "b",
        "hoodie.parquet.small.file.limit": "0",
        "lakebed.spark.worker.tuning": "false",
    }
    options = write_options({**PATH, **of_hudi}, streaming=True)
    assert (options.operation, options.identifier, options.retries, options.worker_tuning) == ("delete", "b", 3, False)
    assert options.options["hoodie.parquet.small.file.limit"] == "0"
    assert write_options(PATH, streaming=False).retries is None


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"operatoin": "delete"}, "no option 'operatoin'. Did you mean 'operation'"),
        ({"operation": "merge"}, r"no operation 'merge'. Take upsert, .*t.merge\(df\)"),
        ({"retries": "often"}, "retries='often' is no whole number"),
        ({"where": "id = 3"}, "'where' is an option of reads"),
        ({"hoodie.no.such.option": "1"}, "hoodie.no.such.option"),
        ({"path": ""}, "needs the table's path"),
    ],
)
def test_options_that_mean_nothing_are_refused(given: dict[str, str], message: str) -> None:
    options = {name: value for name, value in {**PATH, **given}.items() if value}
    with pytest.raises(InvalidOption, match=message):
        write_options(options, streaming=True)


def test_the_operation_follows_from_the_mode_where_none_is_named() -> None:
    options = write_options(PATH, streaming=True)
    assert [options.operation_of_stream(complete=False, has_key=key) for key in (True, False)] == [
        "upsert",
        "bulk_insert",
    ]
    assert options.operation_of_stream(complete=True, has_key=True) == "insert_overwrite_table"
    assert options.operation_of_batch(overwrite=False, has_key=True) == "upsert"
    assert options.operation_of_batch(overwrite=True, has_key=True) == "insert_overwrite_table"


def test_operations_that_contradict_the_mode_are_refused() -> None:
    inserts = write_options({**PATH, "operation": "insert"}, streaming=True)
    with pytest.raises(InvalidOption, match="would add a row again each time that it changes"):
        inserts.operation_of_stream(complete=True, has_key=True)
    assert inserts.operation_of_batch(overwrite=True, has_key=True) == "insert_overwrite_table"
    deletes = write_options({**PATH, "operation": "delete"}, streaming=False)
    with pytest.raises(InvalidOption, match="would not keep the rows that it is to delete from"):
        deletes.operation_of_batch(overwrite=True, has_key=True)


def test_a_table_in_memory_is_no_target_of_tasks() -> None:
    options = write_options(PATH, streaming=True)
    with pytest.raises(UnsupportedFeature, match=r"t.upsert\(df\), lakebed.stream_into\(df, t\)"):
        refuse_memory(options.path, options.storage())


def test_options_name_the_arguments_of_a_new_table() -> None:
    given = {"primaryKey": "id, day", "Partition_By": "day", "buckets": "8", "type": "MOR", "index": "bucket"}
    options = write_options({**PATH, **given}, streaming=False)
    expected = {"key": ["id", "day"], "partition_by": ["day"], "buckets": 8, "type": "mor", "index": "bucket"}
    assert dict(options.creation) == expected
    assert options.names_key
    assert write_options({**PATH, "hoodie.datasource.write.recordkey.field": "id"}, streaming=False).names_key
    for other in ({}, {"hoodie.table.name": "trips"}, {"key": " , "}):
        assert not write_options({**PATH, **other}, streaming=False).names_key
    with pytest.raises(InvalidOption, match="buckets takes a number, not 'many'"):
        write_options({**PATH, "buckets": "many"}, streaming=False)
