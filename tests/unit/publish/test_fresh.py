"""Published lists that show the rows of log files: their rows for other readers, the forms that readers take wrongly,
and what becomes of the copies of rows."""

from __future__ import annotations

import json
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import lakebed
from lakebed.config.settings import WriteSettings
from lakebed.publish import foreign, iceberg
from lakebed.publish import fresh as fresh_module
from lakebed.publish.iceberg_manifests import DELETES, Manifest, numbered_entries
from lakebed.publish.publication import publish
from lakebed.services import publishing
from lakebed.testing import Killed, crash_at
from support.golden_tables import golden
from support.published import READERS, check_published, expected_rows, masked, newest_metadata, quiet, sorted_rows

quiet_readers = pytest.fixture(autouse=True)(quiet)
KEYS = 40


def rows(ids: list[int], v: int, cities: tuple[Any, ...] = ("Oslo", "Rome")) -> pa.Table:
    city = pa.array([cities[n % len(cities)] for n in ids], pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), "city": city, "v": pa.array([v] * len(ids), pa.int64())})


def new_table(folder: Path, **words: Any) -> lakebed.Table:
    """A merge-on-read table whose base files have 40 rows, and its logs changes of three, one new row and a delete."""
    given = {"key": "id", "partition_by": "city", "type": "mor", "index": "bucket", "buckets": 2, **words}
    table = lakebed.create(str(folder / "t"), rows([], 0), **given)
    table.upsert(rows(list(range(KEYS)), 0))
    table.upsert(rows([1, 2, 3, 100], 1))
    table.delete([5])
    return table


def manifests(table: lakebed.Table) -> list[Manifest]:
    listed = iceberg.IcebergFormat().newest(table.opened.storage)
    assert listed is not None
    return list(listed.content.manifests)


def entries(table: lakebed.Table, content: int) -> list[dict[str, Any]]:
    return [entry for manifest in manifests(table) if manifest.content == content for entry in manifest.live]


def snapshots(table: lakebed.Table) -> list[dict[str, Any]]:
    return json.loads(Path(newest_metadata(table.uri)).read_text())["snapshots"]


def logged_files(table: lakebed.Table) -> set[str]:
    """The names of the copies of rows, and of the masks, that are stored."""
    folder = Path(table.uri, "metadata")
    return {file.name for end in ("-rows.parquet", "-masks.parquet") for file in folder.glob(f"*{end}")}


def test_a_fresh_list_shows_the_rows_of_a_scan_and_is_written_once(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    result = table.catalogs.publish("iceberg", fresh=True)
    assert (result.unmerged, [one.operation for one in result.published]) == ((), ["UPSERT", "UPSERT", "DELETE"])
    check_published(table, "iceberg", fresh=True)
    assert len(expected_rows(table, fresh=True)) == KEYS
    before = logged_files(table)
    for fresh in (True, None):
        assert table.catalogs.publish("iceberg", fresh=fresh).published == ()
    assert logged_files(table) == before


def test_each_version_of_a_fresh_list_shows_the_rows_as_of_its_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    result = table.catalogs.publish("iceberg", fresh=True)
    for version in result.published:
        read = sorted_rows(READERS["iceberg"]["pyiceberg"](table.uri, version.version))
        assert read == expected_rows(table, version.instant, fresh=True)
    assert len(result.published) == 3


def test_commits_compactions_and_restores_leave_old_masks_and_rows_out(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish("iceberg", fresh=True)
    counts: list[tuple[int, int]] = []
    saved = table.savepoints.create()
    for change in (
        lambda: table.upsert(rows([1, 7], 2)),
        lambda: table.maintenance.compact(),
        lambda: table.upsert(rows([8], 3)),
        lambda: table.restore(saved),
        lambda: table.savepoints.delete(saved.instant) and table.rollback(table.timeline.last.time),
    ):
        change()
        assert len(table.catalogs.publish("iceberg").published) == 1
        check_published(table, "iceberg", fresh=True)
        counts.append(
            (len(entries(table, DELETES)), sum("-rows" in e["data_file"]["file_path"] for e in entries(table, 0)))
        )
    # base files with masks, and files with copies of rows
    assert counts == [(2, 2), (0, 0), (1, 1), (2, 2), (2, 2)]


def test_a_list_becomes_fresh_and_back_without_a_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert len(table.catalogs.publish("iceberg").unmerged) == 3
    check_published(table, "iceberg")
    for fresh in (True, False, True):
        (version,) = table.catalogs.publish("iceberg", fresh=fresh).published
        assert version.operation == "PUBLISH"
        check_published(table, "iceberg", fresh=fresh)
    table.upsert(rows([9], 4))
    table.catalogs.publish("iceberg", fresh=False)
    check_published(table, "iceberg")
    assert entries(table, DELETES) == []
    assert "total-position-deletes" not in snapshots(table)[-1]["summary"]


def test_tables_without_log_files_have_the_list_of_base_files(tmp_path: Path) -> None:
    table = new_table(tmp_path, type="cow")
    table.catalogs.publish("iceberg", fresh=True)
    check_published(table, "iceberg", fresh=True)
    assert (entries(table, DELETES), logged_files(table)) == ([], set())
    assert table.catalogs.publish("iceberg").published == ()


@pytest.mark.parametrize(
    ("name", "groups_of_logs_alone"),
    [
        ("flinklike_v8_mor_state", 3),
        ("v8_mor_partial_update_sql", 0),
        ("v6_mor_rollback", 0),
        ("v9_mor_compaction_pending", 0),
        ("v9_mor_delete_marker", 0),
        ("v9_mor_parquet_log", 0),
    ],
)
def test_tables_of_hudi_are_shown_as_scans_show_them(name: str, groups_of_logs_alone: int, tmp_path: Path) -> None:
    table = lakebed.open(str(golden(name).unpack(tmp_path)))
    slices = table.opened.snapshot().file_slices()
    assert len([one for one in slices if one.base_file is None]) == groups_of_logs_alone
    assert any(one.log_files for one in slices)
    table.catalogs.publish("iceberg", fresh=True)
    for reader in ("pyiceberg", "polars"):
        assert sorted_rows(READERS["iceberg"][reader](table.uri, None)) == expected_rows(table, fresh=True)


def test_deletes_alone_need_masks_and_no_copies(tmp_path: Path) -> None:
    table = lakebed.load(str(tmp_path / "t"), rows([1, 2, 3], 0), key="id", type="mor", progress=False)
    table.delete([2])
    table.catalogs.publish("iceberg", fresh=True)
    check_published(table, "iceberg", fresh=True)
    assert [name.partition("-")[2] for name in logged_files(table)] == ["masks.parquet"]


def test_a_late_record_that_loses_against_its_base_row_is_not_shown(tmp_path: Path) -> None:
    given = {"key": "id", "ordering": "v", "type": "mor", "index": "bucket", "buckets": 1}
    table = lakebed.load(str(tmp_path / "t"), rows([1, 2, 3], 5), progress=False, **given)
    table.upsert(pa.concat_tables([rows([1], 4), rows([2], 6)]))
    table.catalogs.publish("iceberg", fresh=True)
    check_published(table, "iceberg", fresh=True)
    (mask,) = entries(table, DELETES)
    assert mask["data_file"]["record_count"] == 1


def test_a_slice_whose_rows_are_merged_from_several_records_is_shown_by_copies_of_all_its_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert({"id": [2], "city": ["Oslo"]}, partial=True)
    table.catalogs.publish("iceberg", fresh=True)
    check_published(table, "iceberg", fresh=True)


def test_the_null_and_the_empty_text_of_one_partition_path_have_files_of_their_own(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), rows([], 0), key="id", partition_by="city", type="mor", index="bucket")
    table.upsert(rows([1, 2, 3], 0, (None, "", "a")))
    table.delete([100])
    table.catalogs.publish("iceberg", fresh=True)
    check_published(table, "iceberg", fresh=True)
    copies = [e["data_file"] for e in entries(table, 0) if "-rows" in e["data_file"]["file_path"]]
    values = sorted((repr(file["partition"]["city"]), file["record_count"]) for file in copies)
    assert values in ([("''", 1), ("'a'", 1), ("None", 1)], [])


@pytest.mark.parametrize("together", [1, 16])
def test_slices_are_read_some_at_a_time(together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_module, "_TOGETHER", together)
    table = new_table(tmp_path)
    table.catalogs.publish("iceberg", fresh=True)
    check_published(table, "iceberg", fresh=True)


def test_a_mask_is_of_one_base_file_and_of_its_partition_path_text_and_snapshot(tmp_path: Path) -> None:
    """Readers that match masks by these show masked rows where one differs."""
    table = new_table(tmp_path)
    table.catalogs.publish("iceberg", fresh=True)
    data = {entry["data_file"]["file_path"]: entry for entry in entries(table, 0)}
    masks = entries(table, DELETES)
    for entry in masks:
        mask = entry["data_file"]
        stored = pq.ParquetFile(mask["file_path"])
        paths = set(stored.read().column("file_path").to_pylist())
        assert paths == {mask["referenced_data_file"]}
        masked_file = data[mask["referenced_data_file"]]  # the same text, byte by byte
        assert mask["partition"] == masked_file["data_file"]["partition"]
        assert mask["partition"]["city"] is not None
        assert entry["sequence_number"] >= masked_file["sequence_number"]
        assert [field.metadata[b"PARQUET:field_id"] for field in stored.schema_arrow] == [b"2147483546", b"2147483545"]
        positions = stored.read().column("pos").to_pylist()
        assert positions == sorted(set(positions))
        assert len(positions) == mask["record_count"]
        bounds = [mask[name] for name in ("lower_bounds", "upper_bounds")]
        assert bounds == [[{"key": 2147483546, "value": mask["referenced_data_file"].encode()}]] * 2
    assert len(masks) == len({entry["data_file"]["referenced_data_file"] for entry in masks}) == 2
    headers = {manifest.path: manifest.record for manifest in manifests(table)}
    assert [record["content"] for record in headers.values()].count(DELETES) == 1


def test_summaries_count_masked_rows_in_the_records_and_name_the_positions(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish("iceberg", fresh=True)
    summary = snapshots(table)[-1]["summary"]
    assert {
        name: summary[name] for name in summary if "records" in name or "delete-" in name or "position" in name
    } == {
        "added-records": "4",
        "total-records": str(KEYS + 4),
        "added-delete-files": "2",
        "total-delete-files": "2",
        "added-position-deletes": "4",
        "total-position-deletes": "4",
    }
    assert summary["operation"] == "overwrite"


def test_copies_of_rows_leave_with_the_snapshots_of_cleaned_commits(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    first = table.catalogs.publish("iceberg", fresh=True)
    old = logged_files(table)
    for n in range(3):
        table.upsert(rows([1], 10 + n))
        table.maintenance.compact()
        table.catalogs.publish("iceberg")
    table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
    table.upsert(rows([1], 20))
    table.catalogs.publish("iceberg")
    assert first.version not in {snapshot["snapshot-id"] for snapshot in snapshots(table)}
    assert not old & logged_files(table)
    check_published(table, "iceberg", fresh=True)


def test_leftovers_of_dead_publishers_are_deleted_and_files_of_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "TIDY_EVERY", 1)
    monkeypatch.setattr(iceberg, "_ORPHAN_SECONDS", -60)
    table = new_table(tmp_path)
    table.catalogs.publish("iceberg", fresh=True)
    named = logged_files(table)
    folder = Path(table.uri, "metadata")
    for name in ("0-" + "0" * 32 + "-rows.parquet", "0" * 32 + "-masks.parquet", "of-others-rows.parquet"):
        (folder / name).write_bytes(b"")
    table.upsert(rows([1], 2))
    table.catalogs.publish("iceberg")
    assert logged_files(table) >= named | {"of-others-rows.parquet"}
    assert not {name for name in logged_files(table) if "0" * 32 in name}
    for snapshot in snapshots(table):
        assert READERS["iceberg"]["pyiceberg"](table.uri, snapshot["snapshot-id"]).num_rows


def test_a_publisher_that_comes_second_deletes_its_copies_of_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish("iceberg", fresh=True)
    table.upsert(rows([1], 2))
    other, form = lakebed.open(table.uri), publishing.list_formats()["iceberg"]

    class Overtaken:
        """A format whose first version of a publication is written by another publisher."""

        overtaken = False

        def __getattr__(self, name: str) -> Any:
            return getattr(form, name)

        def append(self, *given: Any) -> Any:
            if not self.overtaken:
                self.overtaken = True
                publishing.publish_table(other.opened.storage, "iceberg", WriteSettings())
                stored.update(logged_files(table))
            return form.append(*given)

    stored: set[str] = set()
    result, _ = publish(table.opened.storage, table.opened.snapshot, Overtaken())  # pyright: ignore[reportArgumentType]
    assert (result.published, result.instant) == ((), table.timeline.last.time)
    assert logged_files(table) == stored
    check_published(table, "iceberg", fresh=True)


def test_a_failure_between_two_files_of_rows_leaves_no_file_that_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    fails = iter([False, True])

    class Broken(fresh_module.BaseFileWriter):
        def write(self, data: Any) -> None:
            if next(fails):
                raise OSError("no space left")
            super().write(data)

    with monkeypatch.context() as patch:
        patch.setattr(fresh_module, "BaseFileWriter", Broken)
        with pytest.raises(OSError, match="no space left"):
            table.catalogs.publish("iceberg", fresh=True)
    table.catalogs.publish("iceberg", fresh=True)
    check_published(table, "iceberg", fresh=True)


def test_columns_that_came_and_were_renamed_have_their_names_of_today(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.columns.add("note", "string")
    table.upsert({"id": [7], "city": ["Rome"], "v": [7], "note": ["new"]})
    table.catalogs.publish("iceberg", fresh=True)
    check_published(table, "iceberg", fresh=True)
    table.columns.rename("note", "remark")
    table.upsert({"id": [8], "city": ["Oslo"], "v": [8], "remark": ["newer"]})
    table.catalogs.publish("iceberg")  # no base file has the column
    check_published(table, "iceberg", fresh=True)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_tables_of_every_version_are_shown(version: int, tmp_path: Path) -> None:
    table = new_table(tmp_path, table_version=version)
    table.catalogs.publish("iceberg", fresh=True)
    check_published(table, "iceberg", fresh=True)
    table.rollback(table.timeline.last.time)
    table.catalogs.publish("iceberg")
    check_published(table, "iceberg", fresh=True)


def test_the_setting_publishes_fresh_lists_after_writes_and_services(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.configure({"lakebed.publish": "iceberg", "lakebed.publish.fresh": True})
    for change in (
        lambda: table.upsert(rows([1], 2)),
        lambda: table.delete(where="id = 7"),
        lambda: table.maintenance.compact(),
        lambda: table.upsert(rows([3], 4)),
        lambda: table.rollback(table.timeline.last.time),
        lambda: table.columns.add("note", "string"),
    ):
        change()
        check_published(table, "iceberg", fresh=True)
        assert table.consumers.get("published-iceberg").lag_commits == 0
    table.configure({"lakebed.publish.fresh": False})
    table.delete([3])
    check_published(table, "iceberg")
    with pytest.raises(lakebed.InvalidOption, match="true or false"):
        table.configure({"lakebed.publish.fresh": "often"})


def test_the_option_of_a_call_counts_before_the_setting_and_the_argument_before_both(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.configure({"lakebed.publish.fresh": True})
    table.catalogs.publish("iceberg", options={"lakebed.publish.fresh": False})
    check_published(table, "iceberg")
    table.catalogs.publish("iceberg")
    check_published(table, "iceberg", fresh=True)
    table.catalogs.publish("iceberg", fresh=False, options={"lakebed.publish.fresh": True})
    check_published(table, "iceberg")


def test_masks_are_of_the_rows_that_a_reader_by_ids_leaves_out(tmp_path: Path) -> None:
    from pyiceberg.table import StaticTable

    table = new_table(tmp_path)
    table.catalogs.publish("iceberg", fresh=True)
    tasks = list(StaticTable.from_metadata(newest_metadata(table.uri)).scan().plan_files())
    hidden = {
        pq.read_table(task.file.file_path, partitioning=None).column("id")[row].as_py()
        for task in tasks
        for row in masked(task)
    }
    assert hidden == {1, 2, 3, 5}


VECTORS = {"lakebed.publish.masks": "vectors"}


def data_of(table: lakebed.Table) -> dict[str, Any]:
    return json.loads(Path(newest_metadata(table.uri)).read_text())


def test_deletion_vectors_show_the_rows_of_a_scan_in_a_list_of_version_3(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish("iceberg", fresh=True)
    table.configure(VECTORS)
    for change in (
        lambda: table.upsert(rows([1, 7], 2)),
        lambda: table.maintenance.compact(),
        lambda: table.upsert(rows([8], 3)),
        lambda: table.configure({"lakebed.publish.masks": "positions"}),
        lambda: table.upsert(rows([10], 3)),  # a list of version 3 stays one
    ):
        change()
        table.catalogs.publish("iceberg")
        metadata = data_of(table)
        assert metadata["format-version"] == 3
        assert {e["data_file"]["file_format"] for e in entries(table, DELETES)} <= {"PUFFIN"}
        for reader in ("pyiceberg", "polars"):
            assert sorted_rows(READERS["iceberg"][reader](table.uri, None)) == expected_rows(table, fresh=True)
        foreign._NEWEST.clear()
    for snapshot in metadata["snapshots"]:
        read = sorted_rows(READERS["iceberg"]["pyiceberg"](table.uri, snapshot["snapshot-id"]))
        assert read == expected_rows(table, snapshot["summary"]["hudi.instant"], fresh=True)
    table.catalogs.publish("iceberg", fresh=False)
    check_published(table, "iceberg")


@pytest.mark.parametrize("small", [0, 20])
def test_rows_have_numbers_of_their_own_that_stay_when_manifests_are_written_again(
    small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "MAX_SMALL_MANIFESTS", small)
    table = new_table(tmp_path)
    table.configure(VECTORS)
    numbers: dict[str, int] = {}
    for n in range(4):
        table.upsert(rows([n, 200 + n], n))
        if n == 2:
            table.maintenance.compact()
        table.catalogs.publish("iceberg", fresh=True)
        metadata = data_of(table)
        newest = metadata["snapshots"][-1]
        assert newest["first-row-id"] + newest["added-rows"] == metadata["next-row-id"]
        spans: list[tuple[int, int]] = []
        for manifest in manifests(table):
            for entry in numbered_entries(manifest) if manifest.content == 0 else ():
                file = entry["data_file"]
                spans.append((file["first_row_id"], file["first_row_id"] + file["record_count"]))
                assert numbers.setdefault(file["file_path"], file["first_row_id"]) == file["first_row_id"]
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert spans[-1][1] <= metadata["next-row-id"]


def test_a_publication_that_fails_leaves_the_numbers_of_rows_for_the_next_one(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish("iceberg", fresh=True)
    table.configure(VECTORS)
    table.upsert(rows([1], 8))
    with crash_at(lambda call: call.path.endswith(".metadata.json")), pytest.raises(Killed):
        lakebed.open(table.uri).catalogs.publish("iceberg")
    table.catalogs.publish("iceberg")
    metadata = data_of(table)
    records = [manifest.record for manifest in manifests(table) if manifest.content == 0]
    starts = sorted((r["first_row_id"], r["added_rows_count"] + r["existing_rows_count"]) for r in records)
    assert [start for start, _ in starts] == [sum(n for _, n in starts[:at]) for at in range(len(starts))]
    assert metadata["next-row-id"] == sum(n for _, n in starts) == KEYS + 4


def test_a_vector_is_where_its_entry_says_and_names_its_data_file(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.catalogs.publish("iceberg", fresh=True, options=VECTORS)
    masks = entries(table, DELETES)
    (path,) = {entry["data_file"]["file_path"] for entry in masks}
    body = Path(path).read_bytes()
    size = int.from_bytes(body[-12:-8], "little")
    blobs = {blob["offset"]: blob for blob in json.loads(body[-12 - size : -12])["blobs"]}
    assert (body[:4], body[-4:], len(masks)) == (b"PFA1", b"PFA1", 2)
    data = {entry["data_file"]["file_path"] for entry in entries(table, 0)}
    for mask in (entry["data_file"] for entry in masks):
        blob = blobs[mask["content_offset"]]
        assert blob["length"] == mask["content_size_in_bytes"]
        facts = {"referenced-data-file": mask["referenced_data_file"], "cardinality": str(mask["record_count"])}
        assert blob["properties"] == facts
        assert mask["referenced_data_file"] in data
        vector = body[blob["offset"] + 4 : blob["offset"] + blob["length"] - 4]
        assert body[blob["offset"] : blob["offset"] + 4] == len(vector).to_bytes(4, "big")
        assert body[blob["offset"] + blob["length"] - 4 :][:4] == zlib.crc32(vector).to_bytes(4, "big")
        assert len(BitMap64.deserialize(vector[4:])) == mask["record_count"]


def test_lists_of_version_3_forget_earlier_versions_too(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.configure(VECTORS)
    table.catalogs.publish("iceberg", fresh=True)
    table.upsert(rows([1, 7], 2))
    table.maintenance.compact()
    table.upsert(rows([1, 7], 3))
    table.catalogs.publish("iceberg")
    publishing.publish_alone(table.opened.storage, "iceberg", WriteSettings())
    assert len(snapshots(table)) == 1
    assert len(list(Path(table.uri, "metadata").glob("*.puffin"))) == 1
    for reader in ("pyiceberg", "polars"):
        assert sorted_rows(READERS["iceberg"][reader](table.uri, None)) == expected_rows(table, fresh=True)
