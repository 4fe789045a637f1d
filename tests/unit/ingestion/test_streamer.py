"""Properties of Hudi Streamer: their places in a description, and the verdict on each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.config.options import check_options
from lakebed.config.streamer import OTHERS, PROPERTIES
from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from lakebed.ingestion.job import jobs_of

TARGET = {"uri": "memory://streamer/t"}
KAFKA = {
    "hoodie.streamer.source.kafka.topic": "trips",
    "bootstrap.servers": "h:9092",
    "auto.offset.reset": "latest",
    "security.protocol": "SSL",
    "group.id": "g",
    "hoodie.deltastreamer.kafka.source.maxEvents": "1000",
    "hoodie.streamer.source.kafka.enable.failOnDataLoss": "false",
    "hoodie.streamer.schemaprovider.registry.url": "http://r:8081/subjects/trips-value/versions/latest",
    "hoodie.streamer.transformer.sql": "SELECT a.* FROM <SRC> a",
    "hoodie.datasource.write.recordkey.field": "id,day",
    "hoodie.datasource.write.precombine.field": "at",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.operation": "UPSERT",
    "hoodie.parquet.max.file.size": "1048576",
    "hoodie.errortable.enable": "true",
    "hoodie.errortable.base.path": "/errors",
}


def job_of(properties: Any, **more: Any) -> Any:
    (job,) = jobs_of({"properties": properties, "target": TARGET, **more})
    return job


def test_a_job_of_kafka_is_a_description() -> None:
    job = job_of(KAFKA)
    assert job.source == {
        "kind": "kafka",
        "topic": "trips",
        "bootstrap": "h:9092",
        "start": "latest",
        "options": {"security.protocol": "SSL"},
        "on_data_loss": "earliest",
        "registry": "http://r:8081",
        "format": "avro",
    }
    assert (job.transform, job.max_rows, job.errors.table) == ("SELECT a.* FROM input a", 1000, "/errors")
    assert job.target.create == {"key": ["id", "day"], "ordering": "at", "type": "mor"}
    assert (job.target.operation, job.target.options) == ("upsert", {"hoodie.parquet.max.file.size": "1048576"})


def test_jobs_of_files_tables_and_databases_are_descriptions() -> None:
    files = job_of({"hoodie.deltastreamer.source.dfs.root": "/in", "hoodie.streamer.csv.sep": ";"})
    assert files.source == {"kind": "files", "path": "/in", "delimiter": ";"}
    table = job_of(
        {
            "hoodie.streamer.source.hoodieincr.path": "/from",
            "hoodie.streamer.source.hoodieincr.num_instants": "7",
            "hoodie.streamer.source.hoodieincr.missing.checkpoint.strategy": "READ_LATEST",
        }
    )
    assert table.source == {"kind": "table", "uri": "/from", "max_commits": 7, "start": "latest"}
    sql = job_of(
        {
            "hoodie.streamer.jdbc.url": "jdbc:postgresql://db:5432/shop",
            "hoodie.streamer.jdbc.user": "me",
            "hoodie.streamer.jdbc.password": "a@b",
            "hoodie.streamer.jdbc.table.name": "rides",
            "hoodie.streamer.jdbc.table.incr.column.name": "at",
            "hoodie.streamer.jdbc.incr.pull": "true",
        }
    )
    assert sql.source == {
        "kind": "sql",
        "uri": "postgresql://me:a%40b@db:5432/shop",
        "table": "rides",
        "column": "at",
    }


def test_properties_come_from_a_file_and_run(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,at\n1,2\n")
    path = tmp_path / "job.properties"
    path.write_text(
        f"hoodie.streamer.source.dfs.root={tmp_path}/in\nhoodie.datasource.write.recordkey.field=id\n"
        "hoodie.datasource.write.precombine.field: at\n"
    )
    assert lakebed.ingest({"properties": str(path), "target": {"uri": str(tmp_path / "t")}}, once=True).rows == 1
    t = lakebed.open(str(tmp_path / "t"))
    assert (t.to_arrow().to_pylist(), t.properties["hoodie.table.ordering.fields"]) == ([{"id": 1, "at": 2}], "at")


def test_settings_that_a_description_repeats_have_to_be_equal() -> None:
    job = job_of(KAFKA, source={"format": "debezium-avro", "options": {"group.instance.id": "x"}}, max_rows=1000)
    assert (job.source["format"], job.source["options"]) == (
        "debezium-avro",
        {"security.protocol": "SSL", "group.instance.id": "x"},
    )
    with pytest.raises(InvalidOption, match=r"\[source\] topic is 'other', and the properties have 'trips'"):
        job_of(KAFKA, source={"topic": "other"})


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("hoodie.streamer.source.kafka.topc", "x", InvalidOption, "hoodie.streamer.source.kafka.topic"),
        ("hoodie.streamer.source.kafka.checkpoint.type", "timestamp", InvalidOption, "one of string"),
        ("hoodie.streamer.kafka.source.maxEvents", "many", InvalidOption, "whole number"),
        ("hoodie.streamer.jdbc.incr.pull", "false", InvalidOption, "one of true"),
        ("hoodie.streamer.ingestion.tablesToBeIngested", "a,b", UnsupportedFeature, "jobs.NAME"),
    ],
)
def test_a_property_without_an_equal_is_named(name: str, value: str, error: type[LakebedError], message: str) -> None:
    with pytest.raises(error, match=message) as found:
        job_of({**KAFKA, name: value})
    assert found.value.context["option"] == name
    (verdict,) = [one for one in check_options({**KAFKA, name: value}) if one.option == name]
    assert not verdict.is_taken


def test_the_check_of_options_has_a_verdict_on_each_property_of_a_job() -> None:
    verdicts = {one.option: (one.verdict, one.note) for one in check_options(KAFKA)}
    assert all(verdict in ("implemented", "ignored") for verdict, _ in verdicts.values()), verdicts
    assert verdicts["hoodie.streamer.source.kafka.topic"] == ("implemented", "lakebed ingest: [source] topic")
    assert verdicts["hoodie.deltastreamer.kafka.source.maxEvents"] == ("implemented", "lakebed ingest: max_rows")
    assert verdicts["security.protocol"] == ("implemented", "a setting of the Kafka client")
    # of a write they are what they were
    assert [one.verdict for one in check_options({"bootstrap.servers": "h"})] == ["unknown"]
    assert [one.verdict for one in check_options({"hoodie.errortable.enable": "true"})] == ["refused"]


def test_each_implemented_property_has_a_key_and_each_other_a_reason() -> None:
    for known in (*PROPERTIES.values(), *OTHERS.values()):
        assert bool(known.key) == (known.verdict == "implemented")
        assert known.key or known.note
