"""The option dicts of the jobs that Hudi's documentation shows, a page after another: each runs as it is, or is refused
with what to write instead."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.options import check_options, resolve_options
from lakebed.errors import LakebedError

WRITE = "hoodie.datasource.write."
JOB: dict[str, Any] = {
    "hoodie.table.name": "trips",
    WRITE + "recordkey.field": "uuid",
    WRITE + "partitionpath.field": "partitionpath",
    WRITE + "precombine.field": "ts",
}
ROWS = pa.table(
    {
        "uuid": ["a", "b"],
        "partitionpath": ["americas/brazil/sao_paulo", "asia/india/chennai"],
        "ts": pa.array([1, 2], pa.int64()),
        "fare": [19.1, 27.7],
        "country": ["brazil", "india"],
        "date": ["2020-04-01T13:01:33Z", "20200401"],
    }
)
HIVE, META, LOCK = "hoodie.datasource.hive_sync.", "hoodie.meta.sync.", "hoodie.write.lock."
CALLBACK, METRICS, TIMES = "hoodie.write.commit.callback.", "hoodie.metrics.", "hoodie.keygen.timebased."
PLAN, MULTI = "hoodie.clustering.plan.strategy.", {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
PROVIDERS = "org.apache.hudi.client.transaction.lock."

RUN: dict[str, dict[str, Any]] = {
    "writing data": {
        WRITE + "table.name": "trips",
        WRITE + "operation": "upsert",
        "hoodie.upsert.shuffle.parallelism": 2,
        "hoodie.insert.shuffle.parallelism": 2,
    },
    "bulk insert": {WRITE + "operation": "bulk_insert", "hoodie.bulkinsert.sort.mode": "PARTITION_SORT"},
    "insert overwrite": {WRITE + "operation": "insert_overwrite"},
    "insert overwrite table": {WRITE + "operation": "insert_overwrite_table"},
    "merge on read": {WRITE + "table.type": "MERGE_ON_READ"},
    "clustering": {
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.clustering.inline": "true",
        "hoodie.clustering.inline.max.commits": "4",
        PLAN + "target.file.max.bytes": "1073741824",
        PLAN + "small.file.limit": "629145600",
        PLAN + "sort.columns": "fare,ts",
    },
    "clustering of its own": {
        "hoodie.clustering.async.enabled": "true",
        "hoodie.clustering.async.max.commits": "4",
        "hoodie.clustering.preserve.commit.metadata": "true",
        "hoodie.clustering.execution.strategy.class": (
            "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
        ),
    },
    "compaction": {
        WRITE + "table.type": "MERGE_ON_READ",
        "hoodie.compact.inline.trigger.strategy": "num_commits",
        "hoodie.compact.inline.max.delta.commits": 5,
        "hoodie.compaction.strategy": (
            "org.apache.hudi.table.action.compact.strategy.LogFileSizeBasedCompactionStrategy"
        ),
        "hoodie.compaction.logfile.size.threshold": 104857600,
        "hoodie.compaction.target.io": 10240,
    },
    "cleaning": {
        "hoodie.clean.automatic": "true",
        "hoodie.clean.async.enabled": "true",
        "hoodie.clean.policy": "KEEP_LATEST_BY_HOURS",
        "hoodie.clean.hours.retained": 24,
    },
    "file sizing": {
        "hoodie.parquet.max.file.size": 125829120,
        "hoodie.parquet.small.file.limit": 104857600,
        "hoodie.copyonwrite.record.size.estimate": 1024,
        "hoodie.logfile.max.size": 1073741824,
    },
    "metadata indexing": {
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.index.async": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.metadata.index.column.stats.column.list": "fare",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.metadata.index.check.timeout.seconds": 60,
    },
    "markers": {
        "hoodie.write.markers.type": "TIMELINE_SERVER_BASED",
        "hoodie.markers.timeline_server_based.batch.num_threads": 20,
        "hoodie.markers.timeline_server_based.batch.interval_ms": 50,
    },
    "change data": {"hoodie.table.cdc.enabled": "true", "hoodie.table.cdc.supplemental.logging.mode": "op_key_only"},
    "record merger": {"hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"},
    "partition ttl": {"hoodie.partition.ttl.inline": "true", "hoodie.partition.ttl.strategy.days.retain": 10},
    "one process": {LOCK + "provider": PROVIDERS + "InProcessLockProvider"},
    "storage lock": {**MULTI, LOCK + "provider": PROVIDERS + "StorageBasedLockProvider"},
    "early conflicts": {**MULTI, "hoodie.write.concurrency.early.conflict.detection.enable": "true"},
    "non-blocking": {
        WRITE + "table.type": "MERGE_ON_READ",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": 4,
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    },
    "key of several fields": {
        WRITE + "recordkey.field": "uuid,country",
        WRITE + "keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
    },
    "custom key generator": {
        WRITE + "partitionpath.field": "country:SIMPLE",
        WRITE + "keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
    },
    "key generator of times": {
        WRITE + "partitionpath.field": "date",
        WRITE + "keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        TIMES + "timestamp.type": "DATE_STRING",
        TIMES + "input.dateformat": "yyyy-MM-dd'T'HH:mm:ssZ,yyyy-MM-dd'T'HH:mm:ss.SSSZ,yyyyMMdd",
        TIMES + "input.dateformat.list.delimiter.regex": "",
        TIMES + "input.timezone": "UTC",
        TIMES + "output.dateformat": "MM/dd/yyyy",
        TIMES + "output.timezone": "UTC",
    },
    "metrics": {
        METRICS + "on": "true",
        METRICS + "reporter.type": "GRAPHITE",
        METRICS + "graphite.host": "192.168.0.106",
        METRICS + "graphite.port": "2003",
        METRICS + "graphite.metric.prefix": "trips",
    },
    "metrics of Prometheus": {
        METRICS + "reporter.type": "PROMETHEUS_PUSHGATEWAY",
        METRICS + "pushgateway.host": "push",
        METRICS + "pushgateway.port": "9091",
        METRICS + "pushgateway.delete.on.shutdown": "false",
        METRICS + "pushgateway.job.name": "trips",
        METRICS + "pushgateway.random.job.name.suffix": "false",
    },
    "streaming": {"checkpointLocation": "/tmp/checkpoints", WRITE + "streaming.ignore.failed.batch": "false"},
}
TAKEN: dict[str, dict[str, Any]] = {
    "Hive": {
        "hoodie.index.type": "SIMPLE",
        HIVE + "jdbcurl": "jdbc:hive2://hiveserver:10000/",
        HIVE + "database": "default",
        HIVE + "table": "trips",
        HIVE + "partition_fields": "partitionpath",
        HIVE + "enable": "true",
    },
    "ZooKeeper": {
        **MULTI,
        "hoodie.cleaner.policy.failed.writes": "LAZY",
        LOCK + "provider": PROVIDERS + "ZookeeperBasedLockProvider",
        LOCK + "zookeeper.url": "zookeeper",
        LOCK + "zookeeper.port": "2181",
        LOCK + "zookeeper.lock_key": "trips",
        LOCK + "zookeeper.base_path": "/locks",
    },
    "Hive metastore": {
        **MULTI,
        LOCK + "provider": "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
        LOCK + "hivemetastore.database": "lake",
        LOCK + "hivemetastore.table": "trips",
    },
    "DynamoDB": {
        **MULTI,
        LOCK + "provider": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
        LOCK + "dynamodb.table": "locks",
        LOCK + "dynamodb.partition_key": "trips",
        LOCK + "dynamodb.region": "us-east-1",
    },
    "DataHub, not switched on": {
        META + "datahub.emitter.server": "http://hub:8080",
        META + "datahub.emitter.token": "secret",
        META + "datahub.dataset.identifier.class": "org.example.Identifier",
    },
    "BigQuery, not switched on": {
        f"hoodie.gcp.bigquery.sync.{name}": "x"
        for name in (
            *("project_id", "dataset_name", "dataset_location", "table_name", "base_path", "partition_fields"),
            *("source_uri", "source_uri_prefix", "use_file_listing_from_metadata", "assume_date_partitioning"),
        )
    },
    "callbacks": {
        CALLBACK + "on": "true",
        CALLBACK + "http.url": "http://localhost/commits",
        CALLBACK + "http.timeout.seconds": 3,
    },
    "callbacks of Kafka and Pulsar, not switched on": {
        **{CALLBACK + f"kafka.{name}": "x" for name in ("topic", "bootstrap.servers")},
        **{CALLBACK + f"kafka.{name}": "1" for name in ("partition", "retries", "acks")},
        **{CALLBACK + f"pulsar.{name}": "x" for name in ("broker.service.url", "topic", "producer.send-timeout")},
    },
}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "hard deletes by payload": (
        {WRITE + "payload.class": "org.apache.hudi.common.model.EmptyHoodieRecordPayload"},
        {WRITE + "payload.class": "give hoodie.datasource.write.operation=delete"},
    ),
    "deletes in all partition paths": (
        {
            WRITE + "operation": "delete",
            WRITE + "keygenerator.class": "org.apache.hudi.keygen.GlobalDeleteKeyGenerator",
            "hoodie.index.type": "GLOBAL_BLOOM",
            "hoodie.bloom.index.update.partition.path": "false",
        },
        {WRITE + "keygenerator.class": "or call t.delete(keys)"},
    ),
    "schema on read": (
        {"hoodie.schema.on.read.enable": "true", WRITE + "reconcile.schema": "true"},
        {"hoodie.schema.on.read.enable": "leave the option out"},
    ),
    "times by the docs' misspelt keys, which real Hudi does not know either": (
        {"hoodie.streamer.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS"},
        {
            "hoodie.streamer.keygen.timebased.timestamp.type": (
                "did you mean hoodie.deltastreamer.keygen.timebased.timestamp.type?"
            )
        },
    ),
}


@pytest.mark.parametrize("page", RUN)
def test_a_job_of_the_docs_runs_as_it_is(page: str) -> None:
    uri, job = f"memory://hudis-docs/{page.replace(' ', '-')}", JOB | RUN[page]
    lakebed.write(ROWS, uri, job, mode="overwrite")
    lakebed.write(ROWS.set_column(2, "ts", pa.array([3, 4], pa.int64())), uri, job, mode="append")
    found = lakebed.open(uri).scan(columns=["uuid", "ts"]).to_arrow().sort_by("ts").to_pydict()
    rows = {"uuid": ["a", "b"], "ts": [3, 4]}
    if page == "bulk insert":  # which looks no key up
        rows = {"uuid": ["a", "b", "a", "b"], "ts": [1, 2, 3, 4]}
    assert found == rows


@pytest.mark.parametrize("page", TAKEN)
def test_a_job_that_needs_a_server_is_taken_as_it_is(page: str) -> None:
    assert {one.verdict for one in check_options(JOB | TAKEN[page])} <= {"implemented", "ignored"}
    resolve_options(JOB | TAKEN[page])


@pytest.mark.parametrize("page", REFUSED)
def test_a_job_that_is_refused_says_what_to_write_instead(page: str) -> None:
    given, instead = REFUSED[page]
    verdicts = {one.option: one for one in check_options(JOB | given) if one.verdict in ("refused", "unknown", "wrong")}
    assert verdicts.keys() == instead.keys()
    for option, words in instead.items():
        assert words in verdicts[option].note[0].lower() + verdicts[option].note[1:]
    with pytest.raises(LakebedError) as refused:
        lakebed.write(ROWS, "memory://hudis-docs/refused", JOB | given)
    assert all(
        option in str(refused.value) and words.lower() in str(refused.value).lower()
        for option, words in instead.items()
    )
    assert not lakebed.list_tables("memory://hudis-docs/refused", depth=0)
