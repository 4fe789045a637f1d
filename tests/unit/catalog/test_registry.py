"""URIs of catalogs, and tables opened by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import lakebed
from lakebed.catalog.base import EntryName
from lakebed.catalog.registry import CatalogUri, is_catalog_uri
from lakebed.errors import InvalidOption, UnsupportedFeature


@pytest.mark.parametrize(
    ("uri", "kind", "authority", "entry"),
    [
        ("hive://a:1,b:2/shop/trips", "hive", "a:1,b:2", EntryName("shop", "trips")),
        ("hive", "hive", "", None),
        ("glue://eu-west-1/shop/trips", "glue", "eu-west-1", EntryName("shop", "trips")),
        ("glue:///shop/trips", "glue", "", EntryName("shop", "trips")),
    ],
)
def test_a_uri_names_a_catalog_and_an_entry(uri: str, kind: str, authority: str, entry: EntryName | None) -> None:
    parsed = CatalogUri.parse(uri)
    assert (parsed.kind, parsed.authority, parsed.entry) == (kind, authority, entry)
    assert is_catalog_uri(uri) == ("://" in uri)


@pytest.mark.parametrize("scheme", ["file", "memory", "s3", "gs", "az", "abfs", "abfss", "hdfs"])
def test_the_uri_of_a_storage_is_no_catalogs_whatever_is_installed(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakebed.catalog.registry.kinds", lambda: [scheme, "shelf"])
    assert not is_catalog_uri(f"{scheme}://lake/t")
    assert is_catalog_uri("shelf://lake/t")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("ftp://host/db/t", "'ftp' is no kind of catalog"),
        ("hive://user:secret@host/db/t", "has credentials or a query"),
        ("hive://host/db", "names one of database and table"),
    ],
)
def test_a_uri_that_is_no_catalogs_is_refused(uri: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words) as error:
        CatalogUri.parse(uri)
    assert "secret" not in str(error.value)


def test_a_table_is_named_once() -> None:
    with pytest.raises(InvalidOption, match="is given nowhere"):
        lakebed.open(catalog="hive://host:1")
    with pytest.raises(InvalidOption, match="is given twice"):
        lakebed.open("hive://host:1/db/t", name="db.t")
    with pytest.raises(InvalidOption, match="'t' is no name of a table"):
        lakebed.open(catalog="hive://host:1", name="t")
    with pytest.raises(InvalidOption, match="a URI and a catalog"):
        lakebed.open("/tmp/t", catalog="hive://host:1", name="db.t")
    with pytest.raises(InvalidOption, match="no URI"):
        lakebed.open()


@pytest.mark.parametrize(
    ("catalog", "package", "extra"),
    [("hive://h:1", "pymetastore.hive_metastore.ttypes", "hive"), ("glue://eu-west-1", "boto3", "glue")],
)
def test_a_missing_package_names_the_extra(
    catalog: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1]}, key="id")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedFeature, match=rf"pip install 'lakebed\[{extra}\]'"):
        table.catalogs.register(catalog, "db.t")


def test_a_table_in_the_memory_of_a_process_is_not_registered() -> None:
    table = lakebed.create("memory://catalog/t", {"id": [1]}, key="id")
    with pytest.raises(UnsupportedFeature, match="memory of this process"):
        table.catalogs.register("hive://localhost:1", "db.t")
