"""URIs and options: one spelling of each place, every usual option name, no credentials in any text."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from lakebed.storage import StorageSpec, open_storage
from lakebed.storage.base import parse_uri
from lakebed.storage.object_options import object_settings

SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("uri", "normal", "hadoop"),
    [
        ("s3://b/t", "s3://b/t", "s3a://b/t"),
        ("s3a://b/t/", "s3://b/t", "s3a://b/t"),
        ("S3N://b", "s3://b", "s3a://b"),
        ("gs://b/a/t", "gs://b/a/t", "gs://b/a/t"),
        ("gcs://b/t", "gs://b/t", "gs://b/t"),
        ("az://c/t", "az://c/t", "abfss://c@acc.dfs.core.windows.net/t"),
        (
            "abfss://c@other.dfs.core.windows.net/t",
            "abfss://c@other.dfs.core.windows.net/t",
            "abfss://c@other.dfs.core.windows.net/t",
        ),
        ("memory://m/t", "memory://m/t", "memory://m/t"),
    ],
)
def test_every_spelling_of_a_uri_is_one_table(uri: str, normal: str, hadoop: str) -> None:
    options = {"account_name": "acc", "account_key": "aGVsbG8="} if uri.startswith("az") else {}
    storage = open_storage(uri, options)
    assert storage.spec.uri == normal
    assert storage.url() == hadoop
    assert storage.url("p/f") == f"{hadoop}/p/f"


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://h/x",
        "s3:b/t",
        "s3:///t",
        f"s3://key:{SECRET}@b/t",
        f"s3a://b/t?aws_secret_access_key={SECRET}",
        f"abfss://c@acc.dfs.core.windows.net/t?sv=2024&sig={SECRET}",
        f"gs://b?access_token={SECRET}",
        "file://otherhost/t",
        "gs://",
    ],
)
def test_bad_uris_are_refused_without_showing_secrets(uri: str) -> None:
    with pytest.raises(InvalidOption) as error:
        parse_uri(uri)
    assert SECRET not in str(error.value)
    assert error.value.hint


S3_NAMES = [
    {"access_key_id": "AK", "secret_access_key": SECRET, "endpoint": "http://h:1", "region": "eu"},
    {"aws_access_key_id": "AK", "aws_secret_access_key": SECRET, "aws_endpoint": "http://h:1", "aws_region": "eu"},
    {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": "http://h:1", "AWS_REGION": "eu"},
    {"key": "AK", "secret": SECRET, "endpoint_url": "http://h:1", "region_name": "eu"},
    {"access_key": "AK", "secret_key": SECRET, "endpoint_override": "http://h:1", "region": "eu"},
    {
        "fs.s3a.access.key": "AK",
        "fs.s3a.secret.key": SECRET,
        "fs.s3a.endpoint": "h:1",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.endpoint.region": "eu",
        "fs.s3a.connection.maximum": "10",
    },
]


@pytest.mark.parametrize("options", [*S3_NAMES, {f"spark.hadoop.{k}": v for k, v in S3_NAMES[-1].items()}])
def test_s3_options_go_by_every_common_name(options: Mapping[str, str]) -> None:
    settings = object_settings(parse_uri("s3a://b/t"), options)
    assert settings.store == {
        "access_key_id": "AK",
        "secret_access_key": SECRET,
        "endpoint": "http://h:1",
        "region": "eu",
    }
    assert settings.client == {"allow_http": True}


def test_path_style_and_anonymous() -> None:
    settings = object_settings(
        parse_uri("s3://b/t"), {"fs.s3a.path.style.access": "true", "anon": "true", "timeout": "5s", "max_retries": "3"}
    )
    assert settings.store == {"virtual_hosted_style_request": False, "skip_signature": True}
    assert settings.client == {"timeout": "5s"}
    assert settings.tuning == {"max_retries": 3}


def test_azure_options_go_by_every_common_name() -> None:
    text = f"DefaultEndpointsProtocol=https;AccountName=acc;AccountKey={SECRET};EndpointSuffix=core.windows.net"
    for options in (
        {"connection_string": text},
        {"account_name": "acc", "account_key": SECRET},
        {"azure_storage_account_name": "acc", "azure_storage_account_key": SECRET},
        {"account_name": "acc", "fs.azure.account.key.acc.dfs.core.windows.net": SECRET},
    ):
        settings = object_settings(parse_uri("az://c/t"), options)
        assert settings.store == {"account_name": "acc", "account_key": SECRET}
    settings = object_settings(parse_uri("abfss://c@acc.dfs.core.windows.net/t"), {})
    assert (settings.bucket, settings.store) == ("c", {"account_name": "acc"})


def test_gcs_options_go_by_every_common_name() -> None:
    for name in (
        "application_credentials",
        "google_application_credentials",
        "fs.gs.auth.service.account.json.keyfile",
    ):
        assert object_settings(parse_uri("gs://b/t"), {name: "/k.json"}).store == {"application_credentials": "/k.json"}


@pytest.mark.parametrize("uri", ["s3://b/t", "gs://b/t", "az://c/t"])
def test_unknown_option_names_the_nearest(uri: str) -> None:
    with pytest.raises(InvalidOption) as error:
        open_storage(uri, {"endpoint_ur": "x", "secret": SECRET} if uri.startswith("s3") else {"endpoint_ur": "x"})
    assert "endpoint_ur" in str(error.value)
    assert "'endpoint_url'" in error.value.hint
    assert SECRET not in str(error.value)


def test_no_text_shows_a_credential() -> None:
    options = {"aws_access_key_id": "AKIA-VERY-OWN", "aws_secret_access_key": SECRET, "endpoint": "http://127.0.0.1:9"}
    storage = open_storage("s3://b/t", {**options, "max_retries": "0"})
    texts = [repr(storage), repr(storage.spec), storage.url("x"), str(storage.spec)]
    for call in (lambda: storage.read("x"), lambda: storage.put_if_absent("x", b"1"), lambda: list(storage.list())):
        with pytest.raises(LakebedError) as error:
            call()
        texts += [str(error.value), error.value.to_json(), repr(error.value)]
        assert error.value.__suppress_context__
    for text in texts:
        assert SECRET not in text
        assert "AKIA-VERY-OWN" not in text
    assert pickle.loads(pickle.dumps(storage)).spec == storage.spec == StorageSpec("s3://b/t", storage.spec.options)


def test_hdfs_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hdfs_native", None)
    with pytest.raises(UnsupportedFeature) as error:
        open_storage("hdfs://h:1/t")
    assert "pip install 'lakebed[hdfs]'" in str(error.value)
