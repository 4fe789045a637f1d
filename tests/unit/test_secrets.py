"""Secrets are neither stored for all readers of a table nor printed, logged or raised."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.config.options import check_options
from lakebed.errors import InvalidOption, LakebedError
from lakebed.ingestion.job import jobs_of
from lakebed.ingestion.rounds import failure
from lakebed.ingestion.sources.kafka import KafkaSettings
from lakebed.ingestion.sources.sql import SqlSettings
from lakebed.properties.file import update_table_config
from lakebed.secrets import masked, masked_text

SECRET = "Pa55-w0rd"
HIVE = f"hive://user:{SECRET}@host:9083/db/t"


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    return lakebed.create(str(tmp_path / "t"), {"id": [1]}, key="id", index="simple")


def stored(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_setting_with_a_credential_is_not_recorded(
    table: lakebed.Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[InvalidOption] = []
    for value in (HIVE, f"hive://host/db/t,{HIVE}", f"hive://host/db/t?password={SECRET}"):
        for call in (
            lambda v=value: table.configure({"lakebed.catalogs": v}),
            lambda v=value: table.configure({"lakebed.catalogs": v}, dry_run=True),
            lambda v=value: lakebed.create(
                str(tmp_path / "u"), {"id": [1]}, key="id", properties={"lakebed.catalogs": v}
            ),
        ):
            with pytest.raises(InvalidOption, match="would record a credential") as error:
                call()
            refused.append(error.value)
    assert not any(SECRET in f"{error} {error!r} {error.context}" for error in refused)
    assert SECRET not in caplog.text
    assert SECRET.encode() not in stored(tmp_path)
    table.configure({"lakebed.catalogs": "hive://host:9083/db/t"})
    assert lakebed.open(table.uri).properties["lakebed.catalogs"] == "hive://host:9083/db/t"


def test_a_credential_that_a_table_has_recorded_is_removed_without_being_shown(table: lakebed.Table) -> None:
    update_table_config(table.opened.storage, {"lakebed.catalogs": HIVE}, lambda: True)
    done = lakebed.open(table.uri).configure({"lakebed.catalogs": None})
    assert str(done) == "lakebed.catalogs: hive://***@host:9083/db/t -> (none)"
    assert SECRET not in f"{done!r} {done.to_dict()}"
    assert "lakebed.catalogs" not in lakebed.open(table.uri).properties


def test_a_credential_does_not_go_into_a_commit(table: lakebed.Table, tmp_path: Path) -> None:
    for options in ({"_source": HIVE}, {"_password": SECRET}, {"_jdbc": f"jdbc:mysql://h/db?user=u&password={SECRET}"}):
        with pytest.raises(InvalidOption, match="is a credential") as error:
            table.upsert([{"id": 1}], options=options)
        assert SECRET not in str(error.value)
    assert SECRET.encode() not in stored(tmp_path)
    table.upsert([{"id": 1}], options={"_source": "hive://host:9083/db/t"})
    assert table.count() == 1


def test_a_registration_that_fails_is_logged_without_its_password(
    table: lakebed.Table, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "lakebed"):
        result = table.upsert([{"id": 1}], options={"lakebed.catalogs": HIVE})
    assert "its registration in a catalog failed: hive://***@host:9083/db/t" in caplog.text
    assert SECRET not in f"{caplog.text} {result} {result!r}"


def test_options_are_checked_and_printed_without_secrets() -> None:
    options = {
        "hoodie.datasource.hive_sync.password": SECRET,
        "hoodie.datasource.hive_sync.jdbcurl": f"jdbc:hive2://user:{SECRET}@host:10000",
        "hoodie.aws.secret.key": SECRET,
        "_source": HIVE,
        "lakebed.catalogs": HIVE,
    }
    verdicts = check_options(options)
    assert [one.option for one in verdicts] == list(options)
    assert SECRET not in repr(verdicts)
    assert verdicts[3].verdict == "wrong"


def test_an_ingest_job_is_printed_without_secrets() -> None:
    description: dict[str, Any] = {
        "name": "orders",
        "source": {
            "kind": "kafka", "topic": "orders", "bootstrap": "host:9092", "format": "avro",
            "registry": f"https://user:{SECRET}@registry:8081",
            "registry_options": {"basic.auth.user.info": f"user:{SECRET}"},
            "options": {
                "sasl.username": "user", "sasl.password": SECRET, "ssl.key.pem": SECRET,
                "sasl.jaas.config": f'PlainLoginModule required username="u" password="{SECRET}";',
            },
            "storage_options": {"aws_secret_access_key": SECRET, "account_key": SECRET},
        },
        "target": {
            "uri": "/lake/orders", "options": {"hoodie.aws.secret.key": SECRET, "lakebed.catalogs": HIVE},
            "create": {"key": "id", "storage_options": {"sas_token": SECRET}},
            "storage_options": {"aws_secret_access_key": SECRET},
        },
        "errors": {"table": "/lake/errors", "options": {"hoodie.aws.session.token": SECRET}},
    }  # fmt: skip
    (job,) = jobs_of(description)
    shown = repr(job)
    assert SECRET not in shown
    assert job.source["options"]["sasl.password"] == SECRET, "the job has what it needs"
    for part in ("'topic': 'orders'", "'sasl.username': 'user'", "https://***@registry:8081", "'key': 'id'"):
        assert part in shown, part
    settings = (
        KafkaSettings(topic="t", bootstrap="h", registry=f"http://user:{SECRET}@r:1"),
        SqlSettings(uri=f"postgresql://user:{SECRET}@host/db", column="c", table="t"),
    )
    assert SECRET not in repr(settings)
    assert "postgresql://***@host/db" in repr(settings)
    event = failure(job, ValueError(f"cannot connect to postgresql://user:{SECRET}@host/db"), 1.0)
    assert SECRET not in f"{event} {event.text}"


def test_an_error_does_not_quote_a_secret() -> None:
    said = f'connection to postgresql://user:{SECRET}@host/db failed: password="{SECRET}" of {uuid.UUID(int=1)}'
    error = LakebedError(said, hint=f"try http://user:{SECRET}@host", context={"url": f"http://u:{SECRET}@h", "n": 1})
    assert SECRET not in f"{error} {error!r} {error.context} {error.to_json()} {error.args}"
    assert "postgresql://***@host/db failed" in str(error)
    assert error.context == {"url": "http://***@h", "n": 1}


def test_a_secret_is_hidden_however_it_is_written() -> None:
    for text in (
        "hive://user:p@SECRET@host:9083/db", "hive://user:SE/CRET@host:9083", "thrift://h1:1,thrift://u:SECRET@h2",
        "jdbc:sqlserver://h;user=a;password={SE;CRET}", "PASSWORD='SEC''RET'", 'password="SEC RET"',
        "passphrase=SECRET", "https://h/x?X-Amz-Signature=SECRET&X-Amz-Credential=SECRET",
        "AccountKey=SECRET==;EndpointSuffix=x",
        "Authorization: Bearer SECRET", "authorization: SECRET", "{'password': 'SECRET'}",
        '{"sasl.password": "SEC RET"}', '{"client_secret":"SECRET"}', "pwd = SECRET", "https://h/c?sv=1&sig=SECRET",
        "password=SEC{RET}",
    ):  # fmt: skip
        shown = masked_text(text)
        assert "***" in shown, text
        assert not any(part in shown for part in ("SEC", "RET", "SE;")), f"{text} -> {shown}"


def test_what_is_no_secret_stays_as_it_is() -> None:
    for text in (
        "hdfs://nn:8020/a@b/c", "http://[::1]:80/a@b", "unexpected token: foo", "kansas=5", "'kansas': 1",
        "secret_id = 4", "abfss://container@account.dfs.core.windows.net/t", "s3://bucket/a@b", "hive://host:9083/db/t",
        "a@example.com",
        "jdbc:hive2://host:10000/db;ssl=true", "id:1,code:x", "the token is long", "/folder/user:name@host",
    ):  # fmt: skip
        assert masked_text(text) == text
    kept = {"key": "id", "partition_by": ["city"], "sasl.mechanism": "PLAIN", "key_field": "id", "tokens": None}
    assert masked(kept) == kept
