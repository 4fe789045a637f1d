"""Names of tables: which texts are names, and the URI that each means in a warehouse."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.catalog.base import EntryName
from lakebed.catalog.names import is_name, table_uri, using, warehouse_names
from lakebed.catalog.warehouses import MAX_NAME, CatalogNames, FolderNames, checked_name, names_of
from lakebed.errors import InvalidOption, TableExists, TableNotFound, UnsupportedFeature
from lakebed.model import WAREHOUSE
from lakebed.model import WAREHOUSE_LOCATION as LOCATION
from lakebed.storage import open_storage

COLUMNS = pa.schema([("id", pa.int64())])


@pytest.fixture
def names(tmp_path: Path) -> FolderNames:
    return FolderNames(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        (".", "hidden"),
        ("..", "hidden"),
        (".hoodie", "hidden"),
        ("_hidden", "hidden"),
        ("a.b", "a dot or a slash"),
        ("a/b", "a dot or a slash"),
        ("a\\b", "a dot or a slash"),
        ("Orders", "capital letters"),
        ("straße", "beyond a to z"),
        ("оrders", "beyond a to z"),
        ("1st", "begins with a digit"),
        ("a-b", "it has '-'"),
        ("a b", "it has ' '"),
        ("a\0b", "it has '\\x00'"),
        ("a\n", "it has '\\n'"),
        ("a:b", "it has ':'"),
        ("n" * (MAX_NAME + 1), f"{MAX_NAME} are the most"),
    ],
)
def test_a_text_that_is_no_name_is_refused_with_the_reason(text: str, reason: str, names: FolderNames) -> None:
    with pytest.raises(InvalidOption) as refused:
        checked_name(text)
    assert reason in refused.value.message
    for full in (f"sales.{text}", f"{text}.orders"):
        with pytest.raises(InvalidOption):
            names.parse(full)


@pytest.mark.parametrize("text", ["a", "orders", "orders_2", "o" * MAX_NAME])
def test_words_are_names(text: str, names: FolderNames) -> None:
    assert names.parse(f"{text}.{text}") == EntryName(checked_name(text), text)


@pytest.mark.parametrize("text", ["orders", "main.sales.orders", "../sales.orders", "sales/orders.x"])
def test_a_name_in_a_folder_has_a_database_and_a_table(text: str, names: FolderNames) -> None:
    with pytest.raises(InvalidOption):
        names.parse(text)


def test_paths_and_uris_are_no_names() -> None:
    texts = [
        "orders",
        "./sales.orders",
        "../sales.orders",
        "~/a.b",
        "/a.b",
        "a/b.c",
        "C:\\a.b",
        "s3://a.b",
        "memory://a.b",
    ]
    assert [text for text in texts if is_name(text)] == []
    assert is_name("sales.orders")
    assert is_name("Sales.Orders.2026")


def test_a_name_is_a_path_without_a_warehouse_and_below_it_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WAREHOUSE, raising=False)
    assert warehouse_names() is None
    assert table_uri("sales.orders") == "sales.orders"
    monkeypatch.setenv(WAREHOUSE, str(tmp_path))
    assert table_uri("sales.orders") == f"{tmp_path}/sales/orders"
    assert table_uri("./sales.orders") == "./sales.orders"
    assert table_uri("s3://lake/sales.orders") == "s3://lake/sales.orders"
    assert table_uri(Path("sales.orders")) == "sales.orders"  # which is ./sales.orders, too
    with pytest.raises(InvalidOption, match=r"a path begins with \./"):
        table_uri("Sales.Orders")
    with using(FolderNames("memory://other")):
        assert table_uri("sales.orders") == "memory://other/sales/orders"
    assert table_uri("sales.orders") == f"{tmp_path}/sales/orders"


def test_databases_and_tables_are_the_folders_with_plain_names(names: FolderNames, tmp_path: Path) -> None:
    for name in ("sales/orders", "sales/items", "crm/people", "Sales/orders", "sales/.hidden", "sales/_x", "sales/a-b"):
        lakebed.create(str(tmp_path / name), COLUMNS, key="id")
    (tmp_path / "sales" / "raw").mkdir()
    (tmp_path / "sales" / "file.csv").write_text("id\n")
    assert names.databases() == ["crm", "sales"]
    assert names.tables("sales") == ["items", "orders"]
    with pytest.raises(TableNotFound, match="Did you mean 'sales'"):
        names.tables("sale")


def test_a_database_is_created_once_and_stays_without_tables(names: FolderNames, tmp_path: Path) -> None:
    names.create_database("sales")
    assert (names.databases(), names.tables("sales")) == (["sales"], [])
    with pytest.raises(TableExists):
        names.create_database("sales")
    names.create_database("sales", allow_existing=True)
    lakebed.create(str(tmp_path / "crm" / "people"), COLUMNS, key="id")
    with pytest.raises(TableExists):
        names.create_database("crm")
    with pytest.raises(InvalidOption):
        names.create_database("../crm")
    assert names.databases() == ["crm", "sales"]


def test_similar_names_are_for_messages(names: FolderNames, tmp_path: Path) -> None:
    lakebed.create(str(tmp_path / "sales" / "orders"), COLUMNS, key="id")
    assert names.near(EntryName("sales", "order")) == "Did you mean 'sales.orders'? "
    assert names.near(EntryName("sale", "orders")) == "Did you mean 'sales.orders'? "
    assert names.near(EntryName("x", "y")) == ""


def test_a_table_that_cannot_be_read_has_its_name(names: FolderNames) -> None:
    open_storage(names.uri).write("sales/broken/.hoodie/hoodie.properties", b"hoodie.table.name=")
    assert names.tables("sales") == ["broken"]
    assert names.has(EntryName("sales", "broken"))


def test_a_catalog_is_a_warehouse_and_an_entry_in_it_is_not() -> None:
    catalog = names_of("hive://metastore:9083/")
    assert isinstance(catalog, CatalogNames)
    assert (catalog.uri, catalog.catalog) == ("hive://metastore:9083", "hive://metastore:9083")
    assert catalog.parse("main.sales.orders") == EntryName("main.sales", "orders")
    with pytest.raises(InvalidOption, match="not a warehouse"):
        names_of("hive://metastore:9083/sales/orders")
    with pytest.raises(InvalidOption, match="has no other location"):
        names_of("memory://lake", None, "memory://other")
    with pytest.raises(UnsupportedFeature):
        catalog.folders(EntryName("a", "b"), EntryName("a", "c"))


def test_new_tables_of_a_catalog_need_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCATION, raising=False)
    monkeypatch.setattr(CatalogNames, "has", lambda self, name: False)
    with pytest.raises(InvalidOption, match=LOCATION):
        names_of("hive://m:9083").new_table_uri(EntryName("sales", "orders"))
    placed = names_of("hive://m:9083", location="s3://lake/w/")
    assert placed.new_table_uri(EntryName("main.sales", "orders")) == "s3://lake/w/main/sales/orders"
    monkeypatch.setenv(LOCATION, "s3://other")
    assert names_of("hive://m:9083").new_table_uri(EntryName("sales", "orders")) == "s3://other/sales/orders"
