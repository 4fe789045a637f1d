"""Options in `create(properties=)`: a table remembers those that say how it is written, and refuses the others."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import sharing
from lakebed.config import options as options_module
from lakebed.config.option_table import canonical, options
from support.write_tables import SCHEMA, refused, rows

# What a table remembers, with a value that is not the default, and the name of the setting that a write then has.
REMEMBERED = [
    ("hoodie.metadata.record.index.min.filegroup.count", 3, "min_index_groups", 3),
    ("hoodie.index.bloom.fpp", 0.01, "bloom_fpp", 0.01),
    ("hoodie.parquet.max.file.size", 1 << 20, "max_file_size", 1 << 20),
    ("lakebed.index.bucket.advised.bytes", 1000, "bucket_bytes", 1000),
    ("hoodie.metadata.compact.max.delta.commits", 4, "metadata_compact_after", 4),
    ("hoodie.metadata.log.compaction.enable", True, "metadata_log_compaction", True),
    ("hoodie.metadata.index.column.stats.column.list", "id", "stats_columns", ("id",)),
    ("hoodie.metadata.index.column.stats.enable", False, "column_stats", False),
    ("hoodie.bulkinsert.sort.mode", "GLOBAL_SORT", "sort_mode", "GLOBAL_SORT"),
    ("hoodie.write.set.null.for.missing.columns", True, "missing_columns", "null"),
    ("hoodie.write.lock.wait_time_ms", 5000, "lock_wait_seconds", 5.0),
]


@pytest.mark.parametrize(("key", "value", "setting", "expected"), REMEMBERED, ids=[key for key, *_ in REMEMBERED])
def test_later_writes_follow_the_option(key: str, value: object, setting: str, expected: object) -> None:
    table = lakebed.create(f"memory://new-options-{setting}", SCHEMA, key="id", properties={key: value})
    own = options_module.with_table_settings(options_module.resolve_options({}), dict(table.properties)).write
    assert getattr(own, setting) == expected
    others = {"stats_columns": "v", "column_stats": "true"}
    given = options_module.resolve_options({key: others.get(setting) or options()[canonical(key) or ""].default})
    assert getattr(options_module.with_table_settings(given, dict(table.properties)).write, setting) != expected


def test_the_record_index_begins_with_the_file_groups_that_the_table_asks_for() -> None:
    table = lakebed.create(
        "memory://new-options-groups",
        SCHEMA,
        key="id",
        index="record",
        properties={"hoodie.metadata.record.index.min.filegroup.count": 3},
    )
    table.upsert(rows((1, "a", "b", 1)))
    assert {row["index"]: row["file_groups"] for row in table.indexes.to_arrow().to_pylist()}["record_index"] == 3


def test_indexes_that_options_ask_for_are_made_with_the_first_write() -> None:
    flags = (
        "hoodie.metadata.global.record.level.index.enable",
        "hoodie.metadata.index.bloom.filter.enable",
        "hoodie.metadata.index.column.stats.enable",
    )
    table = lakebed.create(
        "memory://new-options-indexes", SCHEMA, key="id", table_version=8, properties=dict.fromkeys(flags, True)
    )
    table.upsert(rows((1, "a", "b", 1)))
    made = {"files", "record_index", "bloom_filters", "column_stats"}
    assert made <= set(table.indexes.to_arrow()["index"].to_pylist())
    table.indexes.drop("column_stats")
    table.upsert(rows((2, "a", "b", 1)))
    assert "column_stats" not in table.indexes.to_arrow()["index"].to_pylist()


@pytest.mark.parametrize(
    "key",
    [
        "as.of.instant",
        "hoodie.datasource.write.operation",
        "hoodie.datasource.query.type",
        "hoodie.datasource.insert.dup.policy",
        "hoodie.static.overwrite.partition.paths",
        "hoodie.write.lock.zookeeper.url",
        "lakebed.write.partial",
        "_note",
    ],
)
def test_an_option_of_one_read_or_write_is_refused(key: str) -> None:
    words = {"hoodie.datasource.write.operation": "insert", "hoodie.datasource.query.type": "snapshot"}
    with refused("memory://new-options-refused", lakebed.errors.InvalidOption, key, "Give it to the verb"):
        lakebed.create(
            "memory://new-options-refused",
            SCHEMA,
            key="id",
            properties={key: words.get(key, "true" if "partial" in key else "drop" if "dup" in key else "x")},
        )


def test_every_option_of_a_new_table_is_taken_or_refused() -> None:
    """An option that is done but that a table neither remembers nor refuses would be dropped without a word."""
    for key, option in options().items():
        if option.verdict != "implemented" or not option.setting:
            continue
        is_of_verb = options_module._is_of_a_verb(option)
        assert option.remembered in ("" if is_of_verb else "write service creation").split(" "), key
        room = option.setting.partition(".")[0]
        if room in ("table", "index", "hbase", "keygen"):
            assert option.remembered == "creation", key
        elif room in ("compaction", "cleaning", "archival", "clustering", "partition_ttl", "publish", "catalog"):
            assert option.remembered == "service", key
        else:
            assert option.remembered != "write" or room in ("write", "missing", "validation"), key


def test_options_are_taken_by_the_names_of_rfc_29(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "matters", set[Any]())
    job = {
        "hoodie.index.type": "BUCKET_HASH_INDEX",
        "hoodie.hash.index.bucket.num": "4",
        "hoodie.datasource.write.indexkey.field": "id",
    }
    with caplog.at_level(logging.WARNING, logger="lakebed.options"):
        for _ in range(2):
            named = options_module.resolve_options(job).index
    assert (named.type, named.buckets, named.fields) == ("bucket", 4, ("id",))
    assert [record.getMessage() for record in caplog.records] == [
        "hoodie.index.type=BUCKET_HASH_INDEX is taken as hoodie.index.type=BUCKET; RFC-29 proposed it by that name",
        "hoodie.hash.index.bucket.num=4 is taken as hoodie.bucket.index.num.buckets=4; RFC-29 proposed it by that name",
        "hoodie.datasource.write.indexkey.field=id is taken as hoodie.bucket.index.hash.field=id; RFC-29 proposed it by"
        " that name",
    ]
    data = pa.table({"id": [1, 2], "v": ["a", "b"]})
    table_options = job | {"hoodie.datasource.write.recordkey.field": "id", "hoodie.table.name": "rfc"}
    lakebed.write(data, "memory://new-options-rfc", table_options)
    properties = lakebed.open("memory://new-options-rfc").properties
    assert (properties["lakebed.index.type"], properties["lakebed.index.bucket.count"]) == ("bucket", "4")
