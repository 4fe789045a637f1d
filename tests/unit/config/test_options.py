"""The table of options and what a job's options become."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import lakebed
from lakebed import sharing
from lakebed.config.option_table import asks_for_nothing, canonical, options, parse_value
from lakebed.config.options import WriteSettings, check_options, resolve_options
from lakebed.errors import InvalidOption, UnsupportedFeature


def test_table_holds_every_option_of_hudi_and_each_row_is_complete():
    rows = options()
    modules = 26 + 12 + 13 + 16  # AWS, GCP, DataHub, callbacks of Kafka and Pulsar
    older = 3 + 1  # options that Hudi's documentation shows and its classes have no more, and Spark's own
    assert len(rows) == 613 + 27 + 44 + modules + older + 50, (
        "Hudi's classes, its HBase index's (up to 1.0), its data source's own options, its modules', lakebed's"
    )
    for row in rows.values():
        assert row.verdict in ("implemented", "refused", "ignored")
        if row.verdict == "implemented":
            assert row.values, row.key
        else:
            assert row.note, f"{row.key} does not say why it is {row.verdict}"
            assert not row.setting


def test_every_default_is_accepted():
    """A job that spells out Hudi's defaults gets a write, or at most one log line, never an error."""
    for row in options().values():
        if row.verdict == "refused":
            assert asks_for_nothing(row, row.default) or row.key == "hoodie.prewrite.cleaner.policy", row.key
        elif row.verdict == "implemented" and row.default and row.key != "hoodie.parquet.compression.codec":
            parse_value(row, row.default)


def test_no_alias_hides_a_key():
    for row in options().values():
        assert canonical(row.key) == row.key
        for alias in row.aliases:
            assert canonical(alias) in options()


def test_no_options_give_the_defaults():
    resolved = resolve_options({})
    assert resolved.write == WriteSettings()
    assert resolved.operation is None
    assert resolved.table.key_fields is None


def test_all_options_of_a_hudi_job_are_read():
    resolved = resolve_options(
        {
            "hoodie.table.name": "trips",
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
            "hoodie.datasource.write.recordkey.field": "id, code",
            "hoodie.datasource.write.partitionpath.field": "day:TIMESTAMP,city:SIMPLE",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
            "hoodie.datasource.write.hive_style_partitioning": True,
            "hoodie.datasource.write.operation": "upsert",
            "hoodie.index.type": "bucket",
            "hoodie.bucket.index.num.buckets": 8,
            "hoodie.bucket.index.hash.field": "id",
            "hoodie.parquet.compression.codec": "SNAPPY",
            "hoodie.write.table.version": "8",
            "hoodie.write.lock.wait_time_ms": "1500",
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "_checkpoint": "42",
        }
    )
    table = resolved.table
    assert (table.name, table.type, table.version) == ("trips", "cow", 8)
    assert (table.key_fields, table.ordering_fields) == (("id", "code"), ("ts",))
    assert (table.partition_fields, table.partition_types) == (("day", "city"), ("TIMESTAMP", "SIMPLE"))
    assert (table.key_generator, table.hive_style, table.url_encode) == ("CUSTOM", True, None)
    assert table.timestamp == {"hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS"}
    assert (resolved.index.type, resolved.index.buckets, resolved.index.fields) == ("bucket", 8, ("id",))
    assert (resolved.write.compression_codec, resolved.write.lock_wait_seconds) == ("snappy", 1.5)
    assert resolved.write.extra_metadata == {"_checkpoint": "42"}
    assert resolved.operation == "upsert"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hoodie.indx.type": "BUCKET"}, "Did you mean hoodie.index.type"),
        ({"zzzz": "1"}, "lakebed options list"),
        ("hoodie.index.type=BUCKET", "options of type str. Give a dict"),
        ({"hoodie.bucket.index.num.buckets": "many"}, "not a whole number above 0"),
        ({"hoodie.bucket.index.num.buckets": "0"}, "not a whole number above 0"),
        ({"hoodie.bucket.index.num.buckets": "9223372036854775808"}, "of 64 bits"),
        ({"hoodie.keep.max.commits": "-9223372036854775809"}, "of 64 bits"),
        ({"lakebed.write.compression.level": "23"}, "a level of zstd from -100 to 22"),
        ({"hoodie.index.bloom.fpp": "NaN"}, "not a finite number"),
        ({"hoodie.index.bloom.fpp": "1e400"}, "not a finite number"),
        ({"hoodie.combine.before.insert": "yes"}, "not true or false"),
        ({"hoodie.datasource.write.operation": "upsret"}, "not one of upsert"),
        (
            {"hoodie.datasource.write.recordkey.field": "a", "hoodie.table.recordkey.fields": "b"},
            "recordkey.field",
        ),
        (
            {
                "hoodie.datasource.write.payload.class": "OverwriteWithLatestAvroPayload",
                "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
            },
            "merges by commit_time",
        ),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], said: str):
    with pytest.raises(InvalidOption, match=said):
        resolve_options(given)


@pytest.mark.parametrize(
    "given",
    [
        {"hoodie.compaction.strategy": "com.example.MyCompactionStrategy"},
        {"hoodie.index.type": "INMEMORY"},
        {"hoodie.bulkinsert.sort.mode": "PARTITION_PATH_REPARTITION"},
        {"hoodie.write.table.version": "7"},
        {"hoodie.base.file.format": "ORC"},
        {"hoodie.datasource.write.payload.class": "org.example.MyPayload"},
        {"hoodie.write.lock.provider": "com.example.MyLockProvider"},
        {"hoodie.metadata.index.expression.enable": "true"},
        {"hoodie.schema.on.read.enable": "true"},
        {"hoodie.datasource.hive_sync.mode": "jdbc"},
        {"hoodie.meta.sync.client.tool.class": "org.apache.hudi.sync.datahub.DataHubSyncTool"},
    ],
)
def test_unsupported_options_are_refused_by_name(given: dict[str, str]):
    with pytest.raises(UnsupportedFeature) as error:
        resolve_options(given)
    key = canonical(next(iter(given)))
    assert error.value.message.startswith(str(key))
    assert error.value.hint


def test_a_refused_option_that_asks_for_nothing_passes():
    resolve_options({"hoodie.clustering.inline": "false", "hoodie.base.file.format": "parquet"})


@pytest.mark.parametrize(
    "given",
    [
        {"hoodie.gcp.bigquery.sync.project_id": "p", "hoodie.gcp.bigquery.sync.use_bq_manifest_file": "true"},
        {"hoodie.meta.sync.datahub.emitter.server": "http://datahub:8080"},
        {"hoodie.datasource.meta.sync.glue.skip_table_archive": "false", "hoodie.aws.glue.region": "eu-west-1"},
        {"hoodie.write.lock.dynamodb.read_capacity": "5"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_options_of_hudis_cloud_modules_are_known(given: dict[str, str]):
    resolve_options(given)


def test_a_job_may_name_the_data_source_that_it_wrote_through():
    job = {"className": "org.apache.hudi", "hoodie.datasource.write.recordkey.field": "id", "hoodie.table.name": "t"}
    done = lakebed.write({"id": [1]}, "memory://options/class-name", job)
    assert done is not None
    assert done.inserted == 1


@pytest.mark.parametrize("key", ["hoodie.aws.access.key", "hoodie.aws.secret.key", "hoodie.aws.session.token"])
def test_credentials_are_refused_with_their_place_and_never_said_again(key: str):
    with pytest.raises(UnsupportedFeature, match="storage_options") as error:
        resolve_options({key: "s3cret-value"})
    assert "s3cret-value" not in f"{error.value} {error.value.context}"


@pytest.mark.parametrize("key", ["_db_password", "fs.s3a.secret.key", "fs.azure.account.key", "_aws_session_token"])
def test_credentials_do_not_go_into_commit_metadata(key: str):
    given = {key: "s3cret-value", "hoodie.datasource.write.commitmeta.key.prefix": key[:1]}
    with pytest.raises(InvalidOption, match=f"{key} is a credential") as error:
        resolve_options(given)
    assert "s3cret-value" not in f"{error.value} {error.value.context}"
    assert {(v.verdict, v.value) for v in check_options(given) if v.option == key} == {("wrong", "***")}


def test_a_secret_without_effect_is_not_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharing, "matters", set[Any]())
    given = {"hoodie.meta.sync.datahub.emitter.token": "s3cret", "hoodie.datasource.hive_sync.password": "s3cret"}
    with caplog.at_level(logging.WARNING, logger="lakebed.options"):
        resolve_options(given)
    assert [record.getMessage().split(" ")[0] for record in caplog.records] == [f"{key}=***" for key in given]
    assert [verdict.value for verdict in check_options(given)] == ["***", "***"]


def test_no_effect_is_logged_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharing, "matters", set[Any]())
    with caplog.at_level(logging.WARNING, logger="lakebed.options"):
        for _ in range(3):
            resolve_options({"hoodie.metadata.metrics.enable": "true", "hoodie.cleaner.parallelism": "5"})
    assert [record.getMessage().split("=")[0] for record in caplog.records] == [
        "hoodie.metadata.metrics.enable",
        "hoodie.clean.parallelism",
    ]


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"hoodie.write.set.null.for.missing.columns": "true"}, "null"),
        ({"hoodie.datasource.write.reconcile.schema": "true"}, "null"),
        ({"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}, "drop"),
        (
            {
                "hoodie.datasource.write.reconcile.schema": "false",
                "hoodie.write.set.null.for.missing.columns": "true",
            },
            "null",
        ),
        ({"hoodie.write.set.null.for.missing.columns": "false"}, "error"),
    ],
)
def test_options_decide_what_happens_to_missing_columns(given: dict[str, str], missing: str):
    assert resolve_options(given).write.missing_columns == missing


def test_an_upsert_that_may_not_touch_known_keys_is_an_insert():
    resolved = resolve_options(
        {
            "hoodie.datasource.write.operation": "upsert",
            "hoodie.datasource.write.insert.drop.duplicates": "true",
        }
    )
    assert (resolved.operation, resolved.write.dup_policy) == ("insert", "drop")
