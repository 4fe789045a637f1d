"""The catalog as clients ask it: what each request gets, what is refused, and what real clients read."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed import web_server
from lakebed.catalog.warehouses import FolderNames
from lakebed.catalog_server import server as server_module
from lakebed.catalog_server import tables as tables_module
from lakebed.catalog_server.server import MAX_PAGE, MIN_TOKEN, CatalogServer
from lakebed.catalog_server.tables import ServedTables
from lakebed.errors import InvalidOption
from lakebed.properties.file import moving_properties
from support.inspected import running
from support.processes import wait_for

ROWS = pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", "Rome"], "fare": [9.5, 12.0, None]})
LOADED = {"GET /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"}


@pytest.fixture
def w(tmp_path: Path) -> lakebed.Warehouse:
    warehouse = lakebed.Warehouse(str(tmp_path / "lake"))
    warehouse.load("sales.orders", ROWS, key="id", progress=False)
    warehouse.load("sales.log", ROWS, key="id", type="mor", partition_by="city", progress=False)
    warehouse.create_database("empty")
    return warehouse


@contextmanager
def serving(
    w: lakebed.Warehouse, *, token: str = "", publishes: bool = True, vends: bool = False, **storage_options: str
) -> Generator[CatalogServer]:
    lines: list[str] = []
    tables = ServedTables(FolderNames(w.uri), storage_options, publishes=publishes, vends=vends)
    server = CatalogServer(tables, token=token, log=lines.append)
    server.lines = lines  # pyright: ignore[reportAttributeAccessIssue]
    with running(server):
        yield server


@pytest.fixture
def server(w: lakebed.Warehouse) -> Iterator[CatalogServer]:
    with serving(w) as running:
        yield running


def ask(
    server: CatalogServer, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
) -> tuple[int, Any, Mapping[str, str]]:
    """Status, content and headers of one answer."""
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    try:
        connection.request(method, path, body or None, headers=dict(headers or {}))
        response = connection.getresponse()
        text = response.read()
        content = json.loads(text) if text.startswith(b"{") else text.decode()
        return response.status, content, {k.lower(): v for k, v in response.getheaders()}
    finally:
        connection.close()


def loaded(server: CatalogServer, table: str, query: str = "") -> dict[str, Any]:
    status, content, _ = ask(server, f"/v1/namespaces/sales/tables/{table}{query}")
    assert status == 200, content
    return content


def read(server: CatalogServer, name: str, **settings: str) -> pa.Table:
    """The rows of a table as pyiceberg reads them."""
    return catalog(server, **settings).load_table(name).scan().to_arrow()


def same_rows(rows: pa.Table, expected: pa.Table) -> bool:
    """Whether two tables have the same columns and rows, in any order."""
    return sorted(map(str, rows.to_pylist())) == sorted(map(str, expected.to_pylist()))


def catalog(server: CatalogServer, **settings: str) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("lakebed", type="rest", uri=server.url, **settings)


def test_the_answers_about_names_are_those_of_the_protocol(server: CatalogServer) -> None:
    status, config, _ = ask(server, "/v1/config?warehouse=any")
    assert (status, config["defaults"], config["overrides"]) == (200, {}, {})
    assert set(config["endpoints"]) >= LOADED
    assert [line for line in config["endpoints"] if line.split()[0] not in ("GET", "HEAD")] == []
    assert ask(server, "/v1/namespaces")[1] == {"namespaces": [["empty"], ["sales"]]}
    assert ask(server, "/v1/namespaces?parent=sales")[1] == {"namespaces": []}
    assert ask(server, "/v1/namespaces/sales")[1] == {"namespace": ["sales"], "properties": {}}
    assert ask(server, "/v1/namespaces/sales/tables")[1] == {
        "identifiers": [{"namespace": ["sales"], "name": "log"}, {"namespace": ["sales"], "name": "orders"}]
    }
    assert ask(server, "/v1/namespaces/empty/tables")[1] == {"identifiers": []}
    assert ask(server, "/v1/namespaces/sales/views")[1] == {"identifiers": []}
    for path, code in (("sales", 204), ("nope", 404), ("sales/tables/orders", 204), ("sales/tables/nope", 404)):
        status, content, _ = ask(server, f"/v1/namespaces/{path}", "HEAD")
        assert (status, content) == (code, "")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/namespaces/nope", "NoSuchNamespaceException"),
        ("/v1/namespaces/nope/tables", "NoSuchNamespaceException"),
        ("/v1/namespaces/nope/views", "NoSuchNamespaceException"),
        ("/v1/namespaces/sales%1Finner/tables", "NoSuchNamespaceException"),
        ("/v1/namespaces/..%2F..%2Fetc/tables", "NoSuchEndpointException"),
        ("/v1/namespaces/../tables", "NoSuchNamespaceException"),
        ("/v1/namespaces/sales/tables/nope", "NoSuchTableException"),
        ("/v1/namespaces/nope/tables/orders", "NoSuchTableException"),
        ("/v1/namespaces/sales/tables/..", "NoSuchTableException"),
        ("/v1/namespaces/sales/tables/.hoodie", "NoSuchTableException"),
        ("/v1/namespaces/sales/tables/Orders", "NoSuchTableException"),
        ("/v1/namespaces/sales/tables/%00", "NoSuchTableException"),
        ("/v1/namespaces/sales/tables/orders%2F.hoodie", "NoSuchEndpointException"),
        ("/v1/other", "NoSuchEndpointException"),
        ("/", "NoSuchEndpointException"),
        ("/v1/namespaces/" + "n" * 5_000 + "/tables", "NoSuchNamespaceException"),
    ],
)
def test_what_is_not_there_is_an_error_of_the_protocol(path: str, kind: str, server: CatalogServer) -> None:
    status, content, headers = ask(server, path)
    assert (status, headers["content-type"]) == (404, "application/json")
    assert (content["error"]["code"], content["error"]["type"]) == (404, kind)
    assert "Traceback" not in json.dumps(content)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_is_written(method: str, server: CatalogServer, w: lakebed.Warehouse) -> None:
    before = sorted(str(path) for path in Path(w.uri).rglob("*"))
    for path in ("namespaces", "namespaces/sales", "namespaces/sales/tables", "namespaces/sales/tables/orders"):
        status, content, headers = ask(server, f"/v1/{path}", method, body=b"{}" * 1_000)
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        assert content["error"]["type"] == "UnsupportedOperationException"
    assert ask(server, "/v1/transactions/commit", method)[0] == 405
    assert sorted(str(path) for path in Path(w.uri).rglob("*")) == before


def test_reports_of_clients_are_taken_and_not_kept(server: CatalogServer) -> None:
    assert ask(server, "/v1/namespaces/sales/tables/orders/metrics", "POST", body=b"{}")[0] == 204


def test_a_loaded_table_has_the_newest_list_with_file_before_local_paths(
    server: CatalogServer, w: lakebed.Warehouse
) -> None:
    content = loaded(server, "orders")
    assert content["metadata-location"] == f"file://{w.uri}/sales/orders/metadata/v1.metadata.json"
    assert content["metadata"]["location"] == f"file://{w.uri}/sales/orders"
    assert content["config"] == {}
    assert len(content["metadata"]["snapshots"]) == 1


def test_a_table_that_changes_is_published_when_it_is_asked_for(server: CatalogServer, w: lakebed.Warehouse) -> None:
    table = w.open("sales.orders")
    assert same_rows(read(server, "sales.orders"), ROWS)
    table.upsert({"id": [4], "city": ["Bern"], "fare": [1.0]})
    table.delete([1])
    content = loaded(server, "orders")
    assert content["metadata-location"].endswith("/v3.metadata.json")
    assert len(content["metadata"]["snapshots"]) == 3
    assert [
        len(loaded(server, "orders", f"?snapshots={mode}")["metadata"]["snapshots"]) for mode in ("all", "refs")
    ] == [3, 1]
    assert ask(server, "/v1/namespaces/sales/tables/orders?snapshots=some")[0] == 400
    assert same_rows(read(server, "sales.orders"), table.to_arrow())
    table.catalogs.publish("iceberg")
    assert loaded(server, "orders") == content


def test_an_unchanged_table_is_not_sent_again(server: CatalogServer, w: lakebed.Warehouse) -> None:
    path = "/v1/namespaces/sales/tables/orders"
    tag = ask(server, path)[2]["etag"]
    for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        status, content, headers = ask(server, path, headers={"If-None-Match": sent})
        assert (status, content, headers["etag"]) == (304, "", tag)
    assert ask(server, path, headers={"If-None-Match": '"other"'})[0] == 200
    assert ask(server, f"{path}?snapshots=refs")[2]["etag"] == tag  # one snapshot, so the same content
    w.open("sales.orders").upsert({"id": [9], "city": ["Bern"], "fare": [1.0]})
    status, _, headers = ask(server, path, headers={"If-None-Match": tag})
    assert (status, headers["etag"] != tag) == (200, True)


def test_a_table_that_is_dropped_or_made_again_is_shown_as_it_is(server: CatalogServer, w: lakebed.Warehouse) -> None:
    loaded(server, "orders")
    w.drop("sales.orders")
    assert ask(server, "/v1/namespaces/sales/tables/orders")[0] == 404
    assert ask(server, "/v1/namespaces/sales/tables")[1]["identifiers"] == [{"namespace": ["sales"], "name": "log"}]
    w.load("sales.orders", {"id": [7], "town": ["Bern"]}, key="id", progress=False)
    assert read(server, "sales.orders").to_pylist() == [{"id": 7, "town": "Bern"}]
    renamed = w.rename("sales.orders", "empty.moved")
    assert ask(server, "/v1/namespaces/sales/tables/orders")[0] == 404
    assert same_rows(read(server, "empty.moved"), renamed.to_arrow())


def test_only_published_tables_are_shown_where_nothing_is_published(w: lakebed.Warehouse) -> None:
    with serving(w, publishes=False) as server:
        status, content, _ = ask(server, "/v1/namespaces/sales/tables/orders")
        assert (status, content["error"]["type"]) == (404, "NoSuchTableException")
        assert "lakebed catalogs publish" in content["error"]["message"]
        assert not Path(w.uri, "sales/orders/metadata").exists()
        table = w.open("sales.orders")
        table.catalogs.publish("iceberg")
        assert same_rows(read(server, "sales.orders"), ROWS)
        table.upsert({"id": [4], "city": ["Bern"], "fare": [1.0]})
        assert same_rows(read(server, "sales.orders"), ROWS)
        table.catalogs.publish("iceberg")
        assert read(server, "sales.orders").num_rows == 4


def test_pages_have_all_names_once(w: lakebed.Warehouse, server: CatalogServer) -> None:
    for number in range(5):
        w.create(f"empty.t{number}", ROWS, key="id")
    path, names, token, pages = "/v1/namespaces/empty/tables", list[str](), "", 0
    while token is not None:
        status, content, _ = ask(server, f"{path}?pageSize=2&pageToken={token}")
        assert status == 200
        names += [listed["name"] for listed in content["identifiers"]]
        token, pages = content["next-page-token"], pages + 1
    assert (names, pages) == ([f"t{number}" for number in range(5)], 3)
    assert ask(server, "/v1/namespaces?pageToken=&pageSize=1")[1]["namespaces"] == [["empty"]]
    assert ask(server, f"{path}?pageToken=")[1]["next-page-token"] is None
    for query in ("pageToken=%21%21", "pageToken=&pageSize=0", "pageToken=&pageSize=x", "pageToken=_w=="):
        assert ask(server, f"{path}?{query}")[0] == 400


@pytest.mark.parametrize("count", [MAX_PAGE, MAX_PAGE + 1])
def test_a_page_has_at_most_so_many_names(count: int, server: CatalogServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServedTables, "tables", lambda self, database: [f"t{n:05}" for n in range(count)])
    content = ask(server, "/v1/namespaces/sales/tables?pageToken=&pageSize=999999")[1]
    assert (len(content["identifiers"]), content["next-page-token"] is None) == (MAX_PAGE, count == MAX_PAGE)
    assert len(ask(server, "/v1/namespaces/sales/tables")[1]["identifiers"]) == count


def test_with_a_token_each_request_needs_it(w: lakebed.Warehouse) -> None:
    token = "t" * MIN_TOKEN
    with serving(w, token=token) as server:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {token}"},
            {"Authorization": token},
        ):
            status, content, answered = ask(server, "/v1/config", headers=headers)
            assert (status, content["error"]["type"]) == (401, "NotAuthorizedException")
            assert answered["www-authenticate"] == "Bearer"
            assert ask(server, "/v1/namespaces/sales/tables/orders", "DELETE", headers=headers)[0] == 401
        assert ask(server, "/v1/config", headers={"Authorization": f"bearer {token}"})[0] == 200
        assert same_rows(read(server, "sales.orders", token=token), ROWS)


def test_an_address_of_others_needs_a_token(w: lakebed.Warehouse) -> None:
    tables = ServedTables(FolderNames(w.uri), publishes=True, vends=False)
    with pytest.raises(InvalidOption, match="token"):
        CatalogServer(tables, address="0.0.0.0")
    for token in ("t" * (MIN_TOKEN - 1), "t" * MIN_TOKEN + " x", "é" * MIN_TOKEN):
        with pytest.raises(InvalidOption, match="token"):
            CatalogServer(tables, token=token)
    CatalogServer(tables, address="0.0.0.0", token="t" * MIN_TOKEN).close()
    CatalogServer(tables, address="127.0.0.1").close()


def test_a_request_to_another_host_is_refused(server: CatalogServer) -> None:
    for host in ("evil.example", "evil.example:8181", "127.0.0.1.evil.example", ""):
        assert ask(server, "/v1/config", headers={"Host": host})[0] == 400
    for host in ("localhost", "127.0.0.1:1", "[::1]"):
        assert ask(server, "/v1/config", headers={"Host": host})[0] == 200


def test_settings_of_the_storage_are_given_only_where_asked(w: lakebed.Warehouse) -> None:
    options = {"endpoint_url": "http://s3:9000", "aws_secret_access_key": "hidden-key", "region": "eu-west-1"}
    settings = tables_module.vended_settings({**options, "aws_access_key_id": "someone"})
    assert settings == {
        "s3.endpoint": "http://s3:9000",
        "s3.access-key-id": "someone",
        "s3.secret-access-key": "hidden-key",
        "s3.region": "eu-west-1",
        "client.region": "eu-west-1",
        "s3.path-style-access": "true",
    }
    assert tables_module.vended_settings({}) == {}
    with serving(w) as server:
        assert loaded(server, "orders")["config"] == {}


def test_a_line_is_logged_for_each_request_without_secrets(w: lakebed.Warehouse) -> None:
    token = "secret-token-of-this-test"
    with serving(w, token=token) as server:
        ask(server, "/v1/namespaces/a%0Ab%22c?pageToken=x", headers={"Authorization": f"Bearer {token}"})
        ask(server, "/v1/config", "POST")
        lines = server.lines  # pyright: ignore[reportAttributeAccessIssue]
        wait_for(lambda: len(lines) == 2)  # a line is written after its answer is sent
        assert lines[0].startswith('127.0.0.1 "GET /v1/namespaces/a%0Ab%22c" 404 ')
        assert lines[1].startswith('127.0.0.1 "POST /v1/config" 401 ')
        assert token not in "".join(lines)


def test_tables_that_are_kept_ready_are_bounded(w: lakebed.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = ServedTables(FolderNames(w.uri), publishes=True, vends=False)
    size = len(tables.load("sales", "orders", "all").body) + len(tables.load("sales", "log", "all").body)
    assert [str(name) for name in tables._tables] == ["sales.orders", "sales.log"]
    for bound, value, kept in (
        ("MAX_TABLES", 2, 2),
        ("MAX_TABLES", 1, 1),
        ("MAX_BYTES", size, 2),
        ("MAX_BYTES", size - 1, 1),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(tables_module, bound, value)
            for name in ("orders", "log"):
                assert len(tables.load("sales", name, "all").body) > 0
            assert [str(name) for name in tables._tables][-1:] == ["sales.log"]
            assert len(tables._tables) == kept


def test_many_clients_at_once_get_one_publication(server: CatalogServer, w: lakebed.Warehouse) -> None:
    answers: list[str] = []

    def load() -> None:
        answers.append(loaded(server, "log")["metadata-location"])

    threads = [threading.Thread(target=load) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [f"file://{w.uri}/sales/log/metadata/v1.metadata.json"] * 12


def test_the_former_list_is_shown_while_the_storage_refuses_a_new_one(
    server: CatalogServer, w: lakebed.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = loaded(server, "orders")
    w.open("sales.orders").upsert({"id": [4], "city": ["Bern"], "fare": [1.0]})

    def refuse(*_: object) -> None:
        raise lakebed.StorageError("no space is left")

    with monkeypatch.context() as patch:
        patch.setattr(tables_module, "publish_table", refuse)
        assert loaded(server, "orders") == before
        status, content, _ = ask(server, "/v1/namespaces/sales/tables/log")
        assert (status, content["error"]["type"]) == (503, "ServiceUnavailableException")
    assert len(loaded(server, "orders")["metadata"]["snapshots"]) == 2


def test_more_connections_than_the_bound_are_turned_away(w: lakebed.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 3)
    with serving(w) as server:
        address = urlsplit(server.url)
        assert ask(server, "/v1/config")[0] == 200
        idle = [socket.create_connection((address.hostname, address.port or 0)) for _ in range(6)]
        try:
            for connection in idle:  # requests that never end
                connection.sendall(b"GET /v1/config HTTP/1.1\r\nHost: localhost\r\nX: ")
            status, content, headers = ask(server, "/v1/config")
            assert (status, content["error"]["code"], headers["retry-after"]) == (503, 503, "5")
        finally:
            for connection in idle:
                connection.close()


def test_pyiceberg_lists_and_reads_and_does_not_write(server: CatalogServer, w: lakebed.Warehouse) -> None:
    client = catalog(server)
    assert client.list_namespaces() == [("empty",), ("sales",)]
    assert client.list_tables("sales") == [("sales", "log"), ("sales", "orders")]
    assert (client.table_exists("sales.orders"), client.table_exists("sales.nope")) == (True, False)
    assert (client.namespace_exists("sales"), client.namespace_exists("nope")) == (True, False)
    table = client.load_table("sales.log")
    assert same_rows(
        table.scan(row_filter="city = 'Rome'").to_arrow(), w.open("sales.log").scan(where="city = 'Rome'").to_arrow()
    )
    with pytest.raises(Exception, match=r"(?i)not support|not implemented|read-only"):
        client.create_namespace("new")
    with pytest.raises(Exception, match=r"(?i)not support|not implemented|read-only"):
        client.drop_table("sales.log")
    assert w.databases() == ["empty", "sales"]


def test_polars_reads_a_table_of_the_catalog(
    server: CatalogServer, w: lakebed.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # the other planner is a package of its own
    frame = pl.scan_iceberg(catalog(server).load_table("sales.log")).filter(pl.col("fare") > 1).collect()
    assert same_rows(frame.to_arrow(), w.open("sales.log").scan(where="fare > 1").to_arrow())


def test_tables_with_the_setting_are_shown_with_the_rows_of_their_log_files(
    server: CatalogServer, w: lakebed.Warehouse
) -> None:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("r", type="rest", uri=server.url)
    table = w.open("sales.log")
    table.upsert({"id": [2, 4], "city": ["Rome", "Bern"], "fare": [7.0, 1.0]})

    def read() -> list[dict[str, Any]]:
        return catalog.load_table("sales.log").scan().to_arrow().sort_by("id").to_pylist()

    assert read() == table.scan(query="read_optimized").to_arrow().sort_by("id").to_pylist()
    for fresh in (True, False, True):
        table.configure({"lakebed.publish.fresh": fresh})  # no commit, and the next answer shows it
        expected = table.scan(query="snapshot" if fresh else "read_optimized").to_arrow()
        assert read() == expected.sort_by("id").to_pylist()
    table.delete([1])
    assert read() == table.scan().to_arrow().sort_by("id").to_pylist()


def test_duckdb_reads_the_catalog(server: CatalogServer, w: lakebed.Warehouse) -> None:
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    try:
        for name in ("httpfs", "avro", "iceberg"):  # files of packages, or what is installed; nothing is fetched
            package = importlib.util.find_spec(f"duckdb_extension_{name}")
            folders = [] if package is None else list(package.submodule_search_locations or ())
            files = [str(file) for folder in folders for file in Path(folder).rglob("*.duckdb_extension")]
            connection.execute(f"load '{files[0]}'" if files else f"load {name}")
    except duckdb.Error as error:
        pytest.skip(f"DuckDB {duckdb.__version__} has no extension for Iceberg here: {str(error).splitlines()[0]}")
    options = f"type iceberg, read_only, endpoint '{server.url.rstrip('/')}', authorization_type 'none'"
    connection.execute(f"attach 'any' as lake ({options})")
    assert connection.execute("select id from lake.sales.orders order by id").fetchall() == [(1,), (2,), (3,)]
    before = sorted(str(path) for path in Path(w.uri).rglob("*"))
    with pytest.raises(duckdb.Error):
        connection.execute("insert into lake.sales.orders values (9, 'x', 1.0)")
    assert sorted(str(path) for path in Path(w.uri).rglob("*")) == before


def test_a_server_that_is_killed_and_started_again_shows_the_same(w: lakebed.Warehouse) -> None:
    with serving(w) as server:
        before = loaded(server, "orders")
    with serving(w) as server:
        assert loaded(server, "orders") == before


def test_parts_of_an_answer_do_not_wait_for_one_another(server: CatalogServer) -> None:
    assert server._socket.proto == socket.IPPROTO_TCP  # by which asyncio knows that it may turn Nagle's algorithm off


def test_a_dropped_table_takes_its_lists_with_it(w: lakebed.Warehouse) -> None:
    table, folder = w.open("sales.orders"), Path(w.uri, "sales/orders")
    table.catalogs.publish("iceberg")
    table.catalogs.publish("delta")
    (folder / "notes.txt").write_text("mine")
    assert w.drop("sales.orders") == ["notes.txt"]
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    other = w.open("sales.log")
    other.catalogs.publish("iceberg")
    Path(w.uri, "sales/log/metadata/00000-of-others.metadata.json").write_text("{}")
    left = w.drop("sales.log")
    assert "metadata/00000-of-others.metadata.json" in left
    assert all((Path(w.uri) / "sales/log" / path).exists() for path in left)


def test_a_list_that_was_deleted_beside_the_table_is_published_again(
    server: CatalogServer, w: lakebed.Warehouse, tmp_path: Path
) -> None:
    loaded(server, "orders")
    shutil.rmtree(tmp_path / "lake/sales/orders/metadata")
    path = urlsplit(loaded(server, "orders")["metadata-location"]).path
    assert Path(path).exists()
    w.rename("sales.orders", "sales.parts")
    assert ask(server, "/v1/namespaces/sales/tables/orders")[0] == 404
    w.rename("sales.parts", "sales.orders")
    assert Path(urlsplit(loaded(server, "orders")["metadata-location"]).path).exists()


def test_a_table_that_is_being_renamed_is_not_there_for_a_while(server: CatalogServer, tmp_path: Path) -> None:
    properties = tmp_path / "lake/sales/orders/.hoodie/hoodie.properties"
    properties.write_bytes(moving_properties("sales/orders", "sales/parts"))
    status, content, headers = ask(server, "/v1/namespaces/sales/tables/orders")
    assert (status, headers["retry-after"]) == (503, "5")
    assert "sales.orders is being renamed to sales.parts" in content["error"]["message"]
    assert str(tmp_path) not in content["error"]["message"]


def test_connections_without_a_request_make_way_for_others(
    w: lakebed.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(web_server, "IDLE_SECONDS", 0.2)
    with serving(w) as server:
        address = urlsplit(server.url)
        idle = [socket.create_connection((address.hostname, address.port or 0)) for _ in range(3)]
        try:
            idle[0].sendall(b"GET /v1/config HTTP/1.1\r\nHo")
            assert ask(server, "/v1/config")[0] == 503
            time.sleep(0.3)
            # each of them closes one that waits, the first the one that has waited longest
            assert [ask(server, "/v1/config")[0] for _ in range(5)] == [200] * 5
            idle[0].settimeout(30)
            assert idle[0].recv(1) == b""
        finally:
            for connection in idle:
                connection.close()


@pytest.mark.parametrize(
    "sent", [b"no HTTP\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"\x16\x03\x01\r\n\r\n"]
)
def test_what_is_no_request_gets_an_error_of_the_protocol(sent: bytes, server: CatalogServer) -> None:
    host, _, port = urlsplit(server.url).netloc.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(sent)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head
    error = {"message": "this is no request of HTTP", "type": "BadRequestException", "code": 400}
    assert json.loads(body) == {"error": error}


@pytest.mark.parametrize("sent", [b"", b"GET /v1/config HTTP/1.1\r\nHo"])
def test_a_connection_without_a_request_is_closed(
    sent: bytes, w: lakebed.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "REQUEST_SECONDS", 0.3)
    monkeypatch.setattr(server_module, "_KEEP_ALIVE_SECONDS", 1)
    with serving(w) as server:
        host, _, port = urlsplit(server.url).netloc.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as idle:
            idle.sendall(sent)
            assert idle.recv(1) == b""
        with socket.create_connection((host, int(port)), timeout=30) as late:  # a first request does not change that
            late.sendall(b"GET /v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert late.recv(100).startswith(b"HTTP/1.1 200")
            late.sendall(sent)
            while late.recv(1 << 16):
                pass
        assert ask(server, "/v1/config")[0] == 200


def test_a_table_that_takes_long_holds_few_threads(w: lakebed.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "MAX_WAITING", 1)
    publish, begun, go_on = tables_module.publish_table, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return publish(*arguments)

    monkeypatch.setattr(tables_module, "publish_table", slow)
    with serving(w) as server:
        answers: list[int] = []

        def load() -> None:
            answers.append(ask(server, "/v1/namespaces/sales/tables/orders")[0])

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert begun.wait(60)
        wait_for(lambda: len(answers) == 2)  # one publishes, one waits
        assert answers == [503, 503]
        assert ask(server, "/v1/namespaces")[0] == 200
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert sorted(answers) == [200, 200, 503, 503]


def test_a_request_through_a_proxy_has_a_token_instead_of_the_host(w: lakebed.Warehouse) -> None:
    with serving(w, token="t" * MIN_TOKEN) as server:
        headers = {"Host": "catalog.example.com", "Authorization": f"Bearer {'t' * MIN_TOKEN}"}
        assert ask(server, "/v1/config", headers=headers)[0] == 200
    with serving(w) as server:
        status, content, _ = ask(server, "/v1/config", headers={"Host": "catalog.example.com"})
        assert (status, content["error"]["type"]) == (400, "BadRequestException")
        status, content, _ = ask(server, "/v1/namespaces/sales/tables/orders/metrics")
        assert (status, content["error"]["code"]) == (405, 405)


def test_what_no_list_shows_is_not_found_and_nothing_is_written_through_a_link(
    server: CatalogServer, w: lakebed.Warehouse, tmp_path: Path
) -> None:
    lakebed.load(str(tmp_path / "other/t"), ROWS, key="id", progress=False)
    (tmp_path / "lake/linked").symlink_to(tmp_path / "other")
    (tmp_path / "lake/sales/linked").symlink_to(tmp_path / "other/t")
    before = sorted(path.name for path in (tmp_path / "other/t").iterdir())
    for path in ("linked/tables", "linked/tables/t", "sales/tables/linked", "linked", "nope/tables", "nope/views"):
        status, content, _ = ask(server, f"/v1/namespaces/{path}")
        assert (status, content["error"]["code"]) == (404, 404), path
        assert str(tmp_path) not in content["error"]["message"]
    assert ask(server, "/v1/namespaces/nope/tables")[1]["error"]["message"] == "there is no namespace nope"
    assert sorted(path.name for path in (tmp_path / "other/t").iterdir()) == before


@pytest.mark.parametrize("query", ["pageSize=abc", "pageSize=0", "pageToken=" + "A" * 1004, "pageToken=?"])
def test_a_page_that_cannot_be_is_refused(server: CatalogServer, query: str) -> None:
    status, content, _ = ask(server, f"/v1/namespaces?{query}")
    assert (status, content["error"]["type"]) == (400, "BadRequestException")


@pytest.mark.parametrize("path", ["/v1/namespaces/", "/v1/config/"])
def test_a_slash_at_the_end_leads_nowhere(server: CatalogServer, path: str) -> None:
    status, content, _ = ask(server, path)
    assert (status, content["error"]["type"]) == (404, "NoSuchEndpointException")


@pytest.mark.parametrize("host", ["localhost:8391@evil", "[::1]evil", "localhost:x", "[::1", "a b"])
def test_a_host_that_is_no_host_is_refused(server: CatalogServer, host: str) -> None:
    assert ask(server, "/v1/config", headers={"Host": host})[0] == 400
