"""Tables in Unity Catalog and Polaris, by a stand-in for their servers: entries, refusals, registrations after commits,
servers that are down, and registrations that are cut off at each request."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.catalog.rest import server_root
from lakebed.errors import CatalogError, InvalidOption, TableNotFound, UnsupportedFeature
from support.catalog_entries import silent
from support.catalog_server import CREDENTIAL, TOKEN, CatalogServer, catalog_server

NAME = "main.shop.trips"
KEY = ("main", "shop", "trips")


@pytest.fixture
def server() -> Iterator[CatalogServer]:
    with catalog_server() as started:
        yield started


@pytest.fixture(params=["unity", "polaris"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def new_table(folder: Path, **given: Any) -> lakebed.Table:
    table = lakebed.load(str(folder / "trips"), {"id": [1, 2], "city": ["Oslo", "Rome"]}, key="id", **given)
    table.catalogs.publish("delta")
    return table


def test_an_entry_is_created_once_and_opens_the_table_by_name(server: CatalogServer, kind: str, tmp_path: Path) -> None:
    table, uri = new_table(tmp_path), f"{kind}://{server.address}"
    done = table.catalogs.register(uri, NAME)
    assert (done.catalog, [str(one) for one in done.entries]) == (uri, [f"created {NAME}"])
    server.requests.clear()
    assert [one.action for one in table.catalogs.register(f"{uri}/main/shop/trips").entries] == ["unchanged"]
    assert [method for method, _ in server.requests] == ["GET"]
    assert lakebed.open(f"{uri}/main/shop/trips").count() == 2
    assert lakebed.open(catalog=uri, name=NAME).uri == table.uri
    with pytest.raises(TableNotFound, match=r"has no table main\.shop\.none"):
        lakebed.open(catalog=uri, name="main.shop.none")


def test_entries_of_others_are_refused_by_name(server: CatalogServer, kind: str, tmp_path: Path) -> None:
    table, other, uri = new_table(tmp_path / "one"), new_table(tmp_path / "two"), f"{kind}://{server.address}"
    table.catalogs.register(uri, NAME)
    with pytest.raises(CatalogError, match=f"{NAME} in {uri} is the table at .*one/trips, not the one at .*two/trips"):
        other.catalogs.register(uri, NAME)
    server.tables[KEY]["properties"].pop("hudi.table")
    for verb in (lambda: other.catalogs.register(uri, NAME), lambda: lakebed.open(catalog=uri, name=NAME)):
        with pytest.raises(CatalogError, match=f"{NAME} in {uri} is no Hudi table"):
            verb()
    # the table's own place: another writer has listed it, and what it added stays
    server.tables[KEY]["properties"]["team"] = "rides"
    assert [one.action for one in table.catalogs.register(uri, NAME).entries] == ["updated"]
    properties = server.tables[KEY]["properties"]
    assert (properties["hudi.table"], properties["team"]) == ("trips", "rides")


def test_a_name_or_schema_that_the_catalog_cannot_have_is_refused(
    server: CatalogServer, kind: str, tmp_path: Path
) -> None:
    table, uri = new_table(tmp_path), f"{kind}://{server.address}"
    with pytest.raises(InvalidOption, match=r"'shop\.trips' is no name of a table in"):
        table.catalogs.register(uri, "shop.trips")
    with pytest.raises(CatalogError, match=r"has no schema main\.shop"):
        table.catalogs.register(uri, NAME, options={"hoodie.datasource.hive_sync.auto_create_database": False})
    assert not server.tables
    assert not server.schemas


def test_each_commit_is_registered_and_a_catalog_that_is_down_is_caught_up_with(
    server: CatalogServer, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(tmp_path)
    host = server.address
    with silent() as port, caplog.at_level(logging.INFO, "lakebed"):
        entry = f"{kind}://127.0.0.1:{port}/main/shop/trips"
        settings = {"lakebed.catalogs": entry, "lakebed.catalog.timeout": 1, "lakebed.publish": "delta"}
        table.configure(settings)
        table.upsert({"id": [3], "city": ["Lima"]})
        table.upsert({"id": [4], "city": ["Cork"]})
        with pytest.raises(CatalogError) as error:
            table.catalogs.register(entry)
        assert error.value.retryable
    failures = [r for r in caplog.records if "registration in a catalog failed" in r.getMessage()]
    assert [r.levelname for r in failures] == ["WARNING", "INFO"]
    assert f"`lakebed catalogs register {table.uri} {entry}`" in failures[0].getMessage()
    assert table.count() == 4
    table.configure({"lakebed.catalogs": f"{kind}://{host}/main/shop/trips"})
    done = table.upsert({"id": [5], "city": ["Bonn"]})
    assert f"{kind}://{host} shows {done.instant}" in done.services
    assert KEY in server.tables


def test_tokens_are_sent_to_the_catalog_and_appear_in_no_error(
    server: CatalogServer, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, uri = new_table(tmp_path), f"{kind}://{server.address}"
    server.token = TOKEN
    variable = f"LAKEBED_{kind.upper()}_TOKEN"
    monkeypatch.setenv(variable, "a-wrong-token")
    with pytest.raises(CatalogError, match=f"failed to look up {NAME}: Refused: 401") as error:
        table.catalogs.register(uri, NAME)
    assert not error.value.retryable
    assert "a-wrong-token" not in f"{error.value} {error.value.to_json()}"
    monkeypatch.setenv(variable, TOKEN)
    assert TOKEN not in str(table.catalogs.register(uri, NAME))
    assert KEY in server.tables


def test_the_environment_names_the_server_of_a_catalog_without_a_host(
    server: CatalogServer, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"LAKEBED_{kind.upper()}_URL"
    monkeypatch.setenv(variable, f"http://{server.address}")
    assert new_table(tmp_path).catalogs.register(kind, NAME).catalog == f"{kind}://{server.address}"
    monkeypatch.setenv(variable, "http://user:secret@host")
    with pytest.raises(InvalidOption, match=variable) as error:
        lakebed.open(catalog=kind, name=NAME)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("authority", "configured", "root"),
    [
        ("uc.example.com", "", "https://uc.example.com"),
        ("localhost:8080", "", "http://localhost:8080"),
        ("localhost.example.com", "", "https://localhost.example.com"),
        ("", "http://uc.internal:8080/base", "http://uc.internal:8080/base"),
        ("uc.internal:8080", "http://uc.internal:8080", "http://uc.internal:8080"),
        ("other", "http://uc.internal:8080", "https://other"),
    ],
)
def test_only_this_machine_and_the_environments_server_are_asked_without_tls(
    authority: str, configured: str, root: str
) -> None:
    assert server_root("unity", authority, "LAKEBED_UNITY_URL", configured, 8080)[1] == root


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("scenario", ["new", "other"])
def test_a_registration_that_is_cut_off_is_finished_by_the_next_one(
    server: CatalogServer, kind: str, tmp_path: Path, scenario: str, lost: bool
) -> None:
    table, uri = new_table(tmp_path), f"{kind}://{server.address}"
    server.lost = lost
    last = cuts = 0
    while True:
        server.tables.clear()
        server.schemas.clear()
        if scenario == "other":
            table.catalogs.register(uri, NAME)
            server.tables[KEY]["properties"] = {"team": "rides"}
        server.requests.clear()
        server.last = last
        try:
            table.catalogs.register(uri, NAME)
        except CatalogError:
            cuts += 1
        else:
            break
        finally:
            server.last = None
        table.catalogs.register(uri, NAME)
        entry = server.tables[KEY]
        assert entry["properties"]["hudi.table"] == "trips"
        assert str(entry.get("storage_location") or entry["base-location"]) == f"file://{table.uri}"
        last += 1
    assert cuts == (5 if scenario == "new" else 3 + (kind == "unity"))


def test_an_entry_that_is_not_accepted_leaves_the_former_one(server: CatalogServer, kind: str, tmp_path: Path) -> None:
    table, uri = new_table(tmp_path), f"{kind}://{server.address}"
    table.catalogs.register(uri, NAME)
    before = server.tables[KEY] = {**server.tables[KEY], "properties": {"team": "rides"}}
    server.refused = True
    with pytest.raises(CatalogError, match="type_json is wrong"):
        table.catalogs.register(uri, NAME)
    assert server.tables[KEY]["properties"] == before["properties"]


def test_a_table_in_memory_is_refused(server: CatalogServer, kind: str) -> None:
    table = lakebed.load(f"memory://rest/{kind}", {"id": [1]}, key="id")
    with pytest.raises(UnsupportedFeature, match="in the memory of this process"):
        table.catalogs.register(f"{kind}://{server.address}", NAME)


def test_polaris_gives_a_token_for_the_credential_of_a_principal(
    server: CatalogServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = TOKEN
    table, uri = new_table(tmp_path), f"polaris://{server.address}"
    monkeypatch.setenv("LAKEBED_POLARIS_CREDENTIAL", "root:wrong-secret")
    with pytest.raises(CatalogError, match="failed to fetch a token: Refused: 401 The client") as error:
        table.catalogs.register(uri, NAME)
    assert "wrong-secret" not in str(error.value)
    monkeypatch.setenv("LAKEBED_POLARIS_CREDENTIAL", CREDENTIAL)
    table.catalogs.register(uri, "main.eu.shop.trips")
    location = f"file://{table.uri}"
    assert server.tables == {
        ("main", "eu\x1fshop", "trips"): {
            "name": "trips",
            "format": "hudi",
            "base-location": location,
            "properties": {"hudi.table": "trips", "path": location},
        }
    }
