"""Delta logs that show the rows of log files: their rows for other readers, and the forms that readers take wrongly."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.config.settings import WriteSettings
from lakebed.format.bounded_cache import BoundedCache
from lakebed.publish import delta, foreign
from lakebed.services import publishing
from support.published import READERS, check_published, expected_rows, quiet, sorted_rows

quiet_readers = pytest.fixture(autouse=True)(quiet)
KEYS = 40


def rows(ids: list[int], v: int) -> pa.Table:
    cities = pa.array([("Oslo", "Rome")[n % 2] for n in ids], pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), "city": cities, "v": pa.array([v] * len(ids), pa.int64())})


def new_table(folder: Path, name: str = "t", **words: Any) -> lakebed.Table:
    given = {"key": "id", "partition_by": "city", "type": "mor", "index": "bucket", "buckets": 1, **words}
    table = lakebed.create(str(folder / name), rows([], 0), **given)
    table.upsert(rows(list(range(KEYS)), 0))
    table.upsert(rows([1, 2, 3, 100], 1))
    table.delete([5])
    return table


def actions(table: lakebed.Table, version: int, kind: str) -> list[dict[str, Any]]:
    text = Path(table.uri, "_delta_log", f"{version:020}.json").read_text()
    return [action[kind] for action in map(json.loads, text.splitlines()) if kind in action]


def logged_files(table: lakebed.Table) -> set[str]:
    """The names of the copies of rows, and of the files of vectors, that are stored."""
    folder = Path(table.uri, "_delta_log")
    return {file.name for end in ("*-rows.parquet", "deletion_vector_*.bin") for file in folder.glob(end)}


def check(table: lakebed.Table, *, fresh: bool = True) -> None:
    check_published(table, "delta", fresh=fresh)


def test_a_fresh_log_shows_the_rows_of_a_scan_and_is_written_once(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    result = table.catalogs.publish("delta", fresh=True)
    assert (result.unmerged, [one.operation for one in result.published]) == ((), ["UPSERT", "UPSERT", "DELETE"])
    check(table)
    for version in result.published:
        for read in READERS["delta"].values():
            read_rows = sorted_rows(read(table.uri, version.version))
            assert read_rows == expected_rows(table, version.instant, fresh=True)
    before = logged_files(table)
    foreign._NEWEST.clear()
    for fresh in (True, None):
        assert table.catalogs.publish("delta", fresh=fresh).published == ()
    assert logged_files(table) == before


@pytest.mark.parametrize("is_cached", [True, False])
def test_commits_compactions_and_rollbacks_leave_old_masks_and_rows_out(
    is_cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_cached:
        monkeypatch.setattr(foreign, "_NEWEST", BoundedCache[Any](0))
    table = new_table(tmp_path)
    table.catalogs.publish("delta", fresh=True)
    for change in (
        lambda: table.upsert(rows([1, 7], 2)),
        lambda: table.rollback(table.timeline.last.time),
        lambda: table.maintenance.compact(),
        lambda: table.upsert(rows([8], 3)),
    ):
        change()
        assert len(table.catalogs.publish("delta").published) == 1
        check(table)


def test_a_log_becomes_fresh_and_back_without_a_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = new_table(tmp_path)
    assert len(table.catalogs.publish("delta").unmerged) == 2
    check(table, fresh=False)
    for fresh, warnings in ((True, 1), (False, 0), (True, 1)):
        with caplog.at_level(logging.WARNING, logger="lakebed"):
            (version,) = table.catalogs.publish("delta", fresh=fresh).published
        assert version.operation == "PUBLISH"
        assert sum("deltalake before 1.0 and count() of ClickHouse" in line for line in caplog.messages) == warnings
        caplog.clear()
        check(table, fresh=fresh)
    table.upsert(rows([9], 4))
    with caplog.at_level(logging.WARNING, logger="lakebed"):
        table.catalogs.publish("delta")
    assert caplog.messages == []
    check(table)


def test_the_protocol_and_the_property_come_with_the_first_vectors(tmp_path: Path) -> None:
    """Readers that look at one of the two show masked rows where it lacks."""
    table = new_table(tmp_path)
    base = table.catalogs.publish("delta").version
    fresh = table.catalogs.publish("delta", fresh=True).version
    (protocol,) = actions(table, fresh, "protocol")
    assert protocol == {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    (metadata,) = actions(table, fresh, "metaData")
    assert metadata["configuration"] == {"delta.enableDeletionVectors": "true"}
    assert (fresh, actions(table, base, "protocol")) == (base + 1, [])
    table.upsert(rows([9], 4))
    later = table.catalogs.publish("delta").version
    assert (actions(table, later, "protocol"), actions(table, later, "metaData")) == ([], [])


def test_tables_with_timestamps_without_a_zone_need_both_features(tmp_path: Path) -> None:
    at = pa.array([1_000_000], pa.timestamp("us"))
    table = lakebed.load(str(tmp_path / "t"), {"id": [1], "at": at}, key="id", type="mor", progress=False)
    table.upsert({"id": [1], "at": at})
    table.catalogs.publish("delta")
    version = table.catalogs.publish("delta", fresh=True).version
    (protocol,) = actions(table, version, "protocol")
    assert protocol["readerFeatures"] == protocol["writerFeatures"] == ["deletionVectors", "timestampNtz"]
    check(table)


def test_vectors_are_in_files_of_a_new_name_and_numbers_of_records_are_those_of_files(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    names: list[str] = []
    for n in range(2):
        table.upsert(rows([10 + 2 * n, 21 + 2 * n], 5))
        version = table.catalogs.publish("delta", fresh=True).version
        masked = [add for add in actions(table, version, "add") if "deletionVector" in add]
        assert {add["deletionVector"]["storageType"] for add in masked} == {"u"}
        assert len(masked) == 2
        names += {add["deletionVector"]["pathOrInlineDv"] for add in masked}
        for add in masked:
            stats = json.loads(add["stats"])
            assert stats["numRecords"] == pq.ParquetFile(Path(table.uri, add["path"])).metadata.num_rows
            assert stats["tightBounds"] is False
    assert len({*names}) == 2
    check(table)


def test_a_file_with_the_same_mask_is_left_alone(tmp_path: Path) -> None:
    """Most readers lose a file that one version removes and adds with the same vector."""
    table = new_table(tmp_path)
    table.catalogs.publish("delta", fresh=True)
    foreign._NEWEST.clear()
    table.upsert(rows([12], 7))  # Oslo
    version = table.catalogs.publish("delta").version
    changed = [action["path"] for kind in ("add", "remove") for action in actions(table, version, kind)]
    assert {path.partition("/")[0] for path in changed} == {"Oslo", "_delta_log"}
    (removed,) = [action for action in actions(table, version, "remove") if action["path"].startswith("Oslo")]
    (added,) = [action for action in actions(table, version, "add") if action["path"].startswith("Oslo")]
    assert removed["deletionVector"] != added["deletionVector"]
    check(table)


def test_a_checkpoint_has_the_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 3)
    table = new_table(tmp_path)
    version = table.catalogs.publish("delta", fresh=True).version
    while version < 3:
        table.upsert(rows([9], version))
        version = table.catalogs.publish("delta").version
    log = Path(table.uri, "_delta_log")
    for file in log.glob("*.json"):
        if int(file.stem) < 3:
            file.unlink()
    checkpoint = pq.read_table(log / f"{3:020}.checkpoint.parquet").column("add").to_pylist()
    masked = [add for add in checkpoint if add is not None and add["deletionVector"] is not None]
    assert sorted(add["deletionVector"]["cardinality"] for add in masked) == [1, 4]
    check(table)
    foreign._NEWEST.clear()
    table.upsert(rows([11], 8))
    table.catalogs.publish("delta")
    check(table)
    table.catalogs.publish("delta", fresh=False)
    check(table, fresh=False)


def test_old_vectors_are_deleted_with_old_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 1)
    table = new_table(tmp_path)
    table.catalogs.publish("delta", fresh=True)
    for n, days in ((20, delta.RETAINED_DAYS - 0.1), (22, delta.RETAINED_DAYS + 0.1)):
        before = {name for name in logged_files(table) if name.endswith(".bin")}
        for name in before:
            old = time.time() - days * 86_400
            os.utime(Path(table.uri, "_delta_log", name), (old, old))
        table.upsert(rows([n, n + 1], 3))
        table.catalogs.publish("delta")
        vectors = {name for name in logged_files(table) if name.endswith(".bin")}
        assert (before <= vectors) == (days < delta.RETAINED_DAYS)
        check(table)


def test_copies_of_rows_leave_after_their_commits_are_cleaned(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    first = table.catalogs.publish("delta", fresh=True).instant
    for n in range(3):
        table.upsert(rows([1], 10 + n))
        table.maintenance.compact()
        table.catalogs.publish("delta")
    assert any(name.startswith(first) for name in logged_files(table))
    table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
    table.upsert(rows([1], 20))
    table.catalogs.publish("delta")
    assert not any(name.startswith(first) for name in logged_files(table))
    check(table)


def test_the_newest_version_stays_alone_with_its_copies_and_vectors(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish("delta", fresh=True)
    table.upsert(rows([20, 21], 6))
    before = table.catalogs.publish("delta").version
    line = publishing.publish_alone(table.opened.storage, "delta", WriteSettings())
    assert line.startswith("delta list: ")
    log = Path(table.uri, "_delta_log")
    assert [int(file.stem) for file in log.glob("*.json")] == [before + 1]
    assert sorted(name.rpartition(".")[2] for name in logged_files(table)) == ["bin", "parquet", "parquet"]
    check(table)
    assert table.catalogs.publish("delta").published == ()


def test_a_publisher_that_comes_second_deletes_its_copies_and_vectors(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish("delta", fresh=True)
    table.upsert(rows([1, 2], 6))
    form = delta.DeltaFormat()
    before = form.newest(table.opened.storage)
    assert before is not None
    other = lakebed.open(table.uri)
    other.catalogs.publish("delta")
    stored = logged_files(table)
    from lakebed.publish import publication

    progress = publication._Progress(True)
    done = publication._bring_up_to_date(table.opened.storage, table.opened.snapshot(), form, before, progress)
    assert (done, logged_files(table)) == (None, stored)
    check(table)


@pytest.mark.parametrize("name", ["my table", "tåble", "100%", "a#b"])
def test_files_whose_paths_urls_escape_are_refused_and_shown_without_log_files(name: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, name)
    with pytest.raises(lakebed.UnsupportedFeature, match="has a character that URLs escape"):
        table.catalogs.publish("delta", fresh=True)
    assert logged_files(table) == set()
    assert table.catalogs.publish("delta", fresh=False).published != ()


@pytest.mark.parametrize(
    ("city", "is_refused"), [("New York", True), ("a,b", True), ("a+b", True), ("a-b_c.d~e", False)]
)
def test_partition_paths_that_the_log_escapes_are_refused(city: str, is_refused: bool, tmp_path: Path) -> None:
    given: dict[str, Any] = {"key": "id", "partition_by": "city", "type": "mor"}
    table = lakebed.load(str(tmp_path / "t"), {"id": [1, 2], "city": [city] * 2}, progress=False, **given)
    table.delete([1])
    if is_refused:
        with pytest.raises(lakebed.UnsupportedFeature, match="has a character that URLs escape"):
            table.catalogs.publish("delta", fresh=True)
    else:
        table.catalogs.publish("delta", fresh=True)
        check(table)


def test_the_setting_of_delta_is_its_own(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.configure({"lakebed.publish": "delta,iceberg", "lakebed.publish.fresh": True})
    table.upsert(rows([1], 5))
    check(table, fresh=False)
    check_published(table, "iceberg", fresh=True)
    table.configure({"lakebed.publish.fresh.delta": True})
    table.upsert(rows([2], 5))
    check(table)


def test_copies_of_rows_in_a_fresh_log_are_erased(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert({"id": [500, 6], "city": ["Oslo", "Oslo"], "v": [77_123_456_789, 1]})
    table.catalogs.publish("delta", fresh=True)
    table.upsert(rows([2], 6))
    table.catalogs.publish("delta")
    held = {name for name in logged_files(table) if name.endswith(".parquet")}
    report = table.erase([500])
    assert report.is_clean
    assert not held & logged_files(table)
    check(table)
