"""Tables in AWS Glue, by moto: entries, partitions from commit to commit, and registrations that are cut off."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakebed
from lakebed.catalog.base import CatalogError, EntryName
from lakebed.catalog.glue import GlueCatalog
from lakebed.config.settings import CatalogSettings
from lakebed.services import catalog_sync
from support.catalog_entries import cut_at_each_request, entry_values

from .s3_server import ACCESS_KEY, REGION, S3, SECRET_KEY
from .service import HOST, free_ports
from .test_hive_catalog import INPUT, REALTIME, assert_shows, changed, expected, new_table, parsed
from .test_lock_services import running

pytest.importorskip("moto")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, running(S3()) as info:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("LAKEBED_GLUE_ENDPOINT", info["endpoint"])
        yield info["endpoint"]


@pytest.fixture
def store(endpoint: str) -> GlueCatalog:
    return GlueCatalog(REGION, endpoint, CatalogSettings(seconds=30))


@pytest.fixture
def name() -> str:
    return f"shop_{uuid.uuid4().hex[:8]}.trips"


GLUE = f"glue://{REGION}"


def test_entries_in_glue_have_the_columns_formats_and_properties_of_the_table(
    store: GlueCatalog, name: str, tmp_path: Path
) -> None:
    cow, mor = new_table(tmp_path / "cow"), new_table(tmp_path / "mor", type="mor")
    cow.catalogs.register(GLUE, name)
    assert parsed(entry_values(store, name)) == expected(cow, False, INPUT)
    mor.catalogs.register(GLUE, f"{name}_log")
    assert parsed(entry_values(store, f"{name}_log_ro")) == expected(mor, True, INPUT)
    assert parsed(entry_values(store, f"{name}_log_rt")) == expected(mor, False, REALTIME)
    assert [one.action for one in cow.catalogs.register(GLUE, name).entries] == ["unchanged"]
    assert lakebed.open(f"{GLUE}/{name.replace('.', '/')}").count() == 2


def test_partitions_in_glue_follow_the_commits(store: GlueCatalog, name: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.register(GLUE, name)
    table.upsert({"id": list(range(3, 153)), "City": [f"c{n}" for n in range(150)]}, partial=True)
    table.delete_partitions(["Oslo"])
    (change,) = table.catalogs.register(GLUE, name).entries
    assert (change.added, change.dropped, change.compared) == (150, 1, "touched")
    entry = store.find(EntryName.parse(name))
    assert entry is not None
    store.move_partitions(entry, {("Rome",): "/elsewhere/Rome"})
    (change,) = table.catalogs.register(GLUE, name, full=True).entries
    assert (change.added, change.moved, change.dropped) == (0, 1, 0)
    assert entry_values(store, name)["partitions"] == {(path,): f"{table.uri}/{path}" for path in table.partitions}
    table.columns.add("note", "string")
    table.catalogs.register(GLUE, name)
    assert entry_values(store, name)["columns"][-1] == ("note", "string", "")
    answer = store._glue.get_partitions(DatabaseName=name.split(".")[0], TableName="trips")
    assert {one["StorageDescriptor"]["Columns"][-1]["Name"] for one in answer["Partitions"]} == {"note"}


@pytest.mark.rest
@pytest.mark.parametrize("lost", [False, True])
def test_a_registration_in_glue_that_is_cut_off_is_finished_by_the_next_one(
    store: GlueCatalog, tmp_path: Path, lost: bool
) -> None:
    def prepared() -> tuple[lakebed.Table, str]:
        name = f"cut_{uuid.uuid4().hex[:8]}.trips"
        return changed(tmp_path / name, GLUE, name), name

    def check(table: lakebed.Table, name: str, again: bool) -> None:
        if not again:
            return
        assert_shows(store, name, table)
        answer = store._glue.get_partitions(DatabaseName=name.split(".")[0], TableName="trips")
        assert {one["StorageDescriptor"]["Columns"][-1]["Name"] for one in answer["Partitions"]} == {"note"}

    assert cut_at_each_request(store, prepared, check, lost=lost) == 3


def test_a_glue_that_does_not_answer_or_has_another_table_is_refused(
    store: GlueCatalog, name: str, tmp_path: Path
) -> None:
    table, other = new_table(tmp_path / "one"), new_table(tmp_path / "two")
    table.catalogs.register(GLUE, name)
    with pytest.raises(CatalogError, match=r"is the table at .*one/trips, not the one at .*two/trips"):
        other.catalogs.register(GLUE, name)
    (port,) = free_ports(1)
    down = {"hoodie.aws.glue.endpoint": f"http://{HOST}:{port}", "lakebed.catalog.timeout": 1}
    with pytest.raises(CatalogError, match=f"{GLUE} failed to look up {name}") as error:
        table.catalogs.register(GLUE, name, options=down)
    assert error.value.retryable
    job = {"hoodie.datasource.meta.sync.enable": True, "hoodie.aws.glue.region": REGION}
    job |= {"hoodie.meta.sync.client.tool.class": "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"}
    job |= {"hoodie.datasource.meta.sync.glue.database_name": "jobs", "hoodie.datasource.hive_sync.table": "t"}
    done = table.upsert({"id": [3], "City": ["Lima"]}, partial=True, options=job)
    assert done.services == (f"{GLUE} shows {done.instant}", "  created jobs.t: 3 partitions added")
    assert entry_values(store, "jobs.t")["properties"]["last_commit_time_sync"] == done.instant
    assert catalog_sync.entries_of(CatalogSettings(), "t") == ()
