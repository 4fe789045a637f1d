"""A job's options against the settings of its table."""

from __future__ import annotations

import pytest

from lakebed.config.options import resolve_options
from lakebed.errors import InvalidOption
from lakebed.properties.conflicts import conflicts_with_table
from lakebed.properties.table_config import TableConfig

STORED = {
    "hoodie.table.name": "trips",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "city",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.table.keygenerator.type": "SIMPLE",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "lakebed.index.type": "bucket",
    "lakebed.index.bucket.count": "8",
    "lakebed.index.bucket.fields": "id",
}


@pytest.mark.parametrize(
    ("given", "shows"),
    [
        ({"hoodie.table.name": "rides"}, ["rides", "trips"]),
        ({"hoodie.datasource.write.recordkey.field": "id,code"}, ["id,code", "the table has id"]),
        ({"hoodie.datasource.write.partitionpath.field": ""}, ["(none)", "city"]),
        ({"hoodie.datasource.write.precombine.field": "at"}, ["at", "ts"]),
        ({"hoodie.write.table.version": "8"}, ["8", "9"]),
        ({"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}, ["commit_time", "event_time"]),
        ({"hoodie.datasource.write.hive_style_partitioning": "true"}, ["true", "false"]),
        ({"hoodie.index.type": "SIMPLE"}, ["simple", "bucket"]),
        ({"hoodie.bucket.index.num.buckets": "16"}, ["16", "8"]),
        ({"hoodie.datasource.write.keygenerator.type": "COMPLEX"}, ["COMPLEX", "SIMPLE"]),
    ],
)
def test_a_conflict_with_the_table_shows_both(given: dict[str, str], shows: list[str]):
    with pytest.raises(InvalidOption) as error:
        conflicts_with_table(resolve_options(given), TableConfig(STORED))
    assert all(text in error.value.message for text in shows), error.value.message


@pytest.mark.parametrize(
    ("index", "key"), [("record", "record"), ("global_simple", "simple"), ("global_bloom", "bloom"), ("hbase", "hbase")]
)
def test_a_write_that_asks_for_another_move_of_rows_is_refused(index: str, key: str):
    moves = f"hoodie.{key}.index.update.partition.path"
    stored = {"lakebed.index.type": index, "lakebed.index.update_partition": "false"}
    with pytest.raises(InvalidOption, match=rf"{moves}: the options have true, the table has false.*indexes\.use"):
        conflicts_with_table(resolve_options({moves: "true"}), TableConfig(stored))
    conflicts_with_table(resolve_options({moves: "False"}), TableConfig(stored))
    others = {"hoodie.bloom.index.update.partition.path", "hoodie.simple.index.update.partition.path"} - {moves}
    conflicts_with_table(resolve_options(dict.fromkeys(others, "true")), TableConfig(stored))


def test_an_option_equal_to_the_tables_is_no_conflict():
    said = {
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city:SIMPLE",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "8",
    }
    conflicts_with_table(resolve_options(said), TableConfig(STORED))


def test_an_old_table_is_read_by_its_class_names():
    stored = {
        "hoodie.table.name": "t",
        "hoodie.table.version": "6",
        "hoodie.table.precombine.field": "ts",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
        "hoodie.compaction.payload.class": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
    }
    conflicts_with_table(
        resolve_options(
            {"hoodie.table.precombine.field": "ts", "hoodie.datasource.write.keygenerator.type": "COMPLEX"}
        ),
        TableConfig(stored),
    )
    with pytest.raises(InvalidOption, match="event_time, the table has commit_time"):
        conflicts_with_table(resolve_options({"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}), TableConfig(stored))
