"""Erasure: no byte of the rows is left in any file, all other rows are as they were, and what cannot go is named."""

from __future__ import annotations

import json
import uuid
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.concurrency.heartbeat import Heartbeat
from lakebed.errors import CheckpointBehind, CommitConflict, ErasureIncomplete, InvalidOption
from lakebed.model import Action
from lakebed.operations.context import WriteContext
from lakebed.operations.delete import delete
from lakebed.operations.result import WriteResult
from lakebed.properties.file import load_table_config
from lakebed.services.erasure import Erasure
from lakebed.services.erasure_report import ErasureReport
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.transitions import TimelineWriter
from support.erased_tables import ERASED, KEY, MAIL, OPTIONS, VALUES, content, new_table, others, rows
from support.golden_tables import golden
from support.published import check_published, quiet
from support.table_bytes import files_with

CDC = {"hoodie.table.cdc.enabled": True}
CASES = [
    ("cow", "simple", 9, {}),
    ("cow", "record", 9, {}),
    ("cow", "bucket", 9, CDC),
    ("cow", "bloom", 9, {**CDC, "hoodie.table.cdc.supplemental.logging.mode": "OP_KEY_ONLY"}),
    ("mor", "bucket", 9, {}),
    ("mor", "record", 9, CDC),
    ("mor", "global_simple", 9, {}),
    ("cow", "global_bloom", 8, {}),
    ("mor", "record", 8, {}),
    ("cow", "record", 6, {}),
    ("mor", "simple", 6, {}),
]


def stores(report: ErasureReport) -> set[str]:
    """The stores that held the rows."""
    return {store.store for table in report.tables for store in table.stores if store.files}


def files_with_value(table: Table) -> dict[str, Any]:
    """The files that hold a value of the row, by another reading of all bytes than lakebed's."""
    return files_with(open_storage(table.uri), *VALUES)


def paths(table: Table) -> list[str]:
    return sorted(info.path for info in open_storage(table.uri).list(""))


@pytest.mark.parametrize(("kind", "index", "version", "properties"), CASES)
def test_no_file_holds_a_value_of_an_erased_row_and_other_rows_are_unchanged(
    kind: str, index: str, version: int, properties: dict[str, Any]
) -> None:
    table = new_table("memory://erasure/t", kind, index, version, **properties)
    before, expected, first = set(files_with_value(table)), others(table), next(iter(table.timeline)).time
    report = table.erase([KEY], options=OPTIONS)
    assert files_with_value(table) == {}
    assert (report.is_clean, report.rows) == (True, 1)
    assert {path for one in report.tables[0].stores for path in one.files} >= before
    assert content(table) == expected
    assert content(lakebed.open(table.uri, options={"hoodie.metadata.enable": False})) == expected
    assert table.indexes.verify().ok
    with pytest.raises(InvalidOption, match="cleaned away"):
        table.scan(as_of=first)
    # the table goes on, and what comes back is a new row
    table.upsert(rows([2, 6], 5), options=OPTIONS)
    table.upsert(rows([ERASED], 1, "again"), options=OPTIONS)
    assert table.get([KEY])["mail"].to_pylist() == ["again-mail-00000500"]
    assert table.count() == 7
    lakebed.drop(table.uri)


def test_rows_that_a_condition_finds_are_erased_with_those_that_were_deleted_before() -> None:
    table = new_table("memory://erasure/where")
    expected = others(table)
    table.delete([KEY])
    report = table.erase(where=f"mail LIKE 'new-mail-{ERASED:08d}%'")
    assert (report.rows, report.tables[0].keys, report.is_clean) == (0, 1, True)
    assert files_with_value(table) == {}
    assert content(table) == expected


def test_a_condition_erases_the_rows_that_fulfil_it_now() -> None:
    table = new_table("memory://erasure/now", "mor", "bucket")
    expected = others(table)
    report = table.erase(where=pc.field("num") > 9_000_000_000_000)
    assert (report.rows, report.is_clean) == (1, True)
    assert (files_with_value(table), content(table)) == ({}, expected)


def test_a_row_that_formerly_fulfilled_a_condition_stays() -> None:
    table = new_table("memory://erasure/former")
    before = content(table)
    report = table.erase(where=f"mail = 'old-mail-{ERASED:08d}'")
    assert (report.rows, report.tables[0].keys, content(table)) == (0, 0, before)


def test_bytes_left_by_a_delete_a_compaction_and_a_clean_are_erased() -> None:
    table = new_table("memory://erasure/cleaned", "cow", "record")
    table.delete([KEY], options=OPTIONS)
    last = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    table.maintenance.clean(options=last)
    assert any(path.endswith(".parquet") for path in files_with_value(table)), "the range of keys in the footer"
    report = table.erase([KEY], options=OPTIONS)
    assert (report.rows, report.is_clean, files_with_value(table)) == (0, True, {})
    assert {"data files", "metadata table: record_index"} <= stores(report)


def test_keys_that_the_table_never_had_leave_the_rows_alone() -> None:
    table = new_table("memory://erasure/none")
    before = content(table)
    report = table.erase(["key-never-there"])
    assert (report.rows, report.is_clean, stores(report), content(table)) == (0, True, set(), before)


@pytest.mark.rest
def test_a_key_in_another_partition_path_stays_where_the_caller_names_one() -> None:
    table = new_table("memory://erasure/partitions", "cow", "simple")
    twin = rows([ERASED], 1, "twin").set_column(1, "part", pa.array(["odd"]))
    table.upsert(twin)
    report = table.erase(pa.table({"id": [KEY], "part": ["even"]}))
    assert (report.rows, report.is_clean) == (1, True)
    assert table.get([KEY])["mail"].to_pylist() == [f"twin-mail-{ERASED:08d}"]
    assert not any(MAIL in values for values in files_with_value(table).values())


quiet_readers = pytest.fixture(quiet)
FORMS: tuple[Literal["delta", "iceberg"], ...] = ("delta", "iceberg")


@pytest.mark.usefixtures("quiet_readers")
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_published_lists_hold_no_value_of_an_erased_row_and_show_the_others(kind: str, tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"), kind, "bucket")
    for number in (2, 4, 6):  # versions with files that come and files that leave
        table.upsert(rows([number], 4 + number))
        table.maintenance.compact() if kind == "mor" else None
        versions = [table.catalogs.publish(form).version for form in FORMS]
    expected = others(table)
    assert {path.partition("/")[0] for path in files_with_value(table)} >= {"_delta_log", "metadata"}
    report = table.erase([KEY], options=OPTIONS)
    assert (files_with_value(table), report.is_clean, content(table)) == ({}, True, expected)
    assert {"delta list", "iceberg list"} <= stores(report)
    for form, version in zip(FORMS, versions, strict=True):
        check_published(table, form)
        result = table.catalogs.publish(form)
        assert (result.published, result.version > version) == ((), True)
        assert table.consumers.get(f"published-{form}").lag_commits == 0
    table.upsert(rows([2, 7], 20))
    for form in FORMS:
        table.catalogs.publish(form)
        check_published(table, form)


@pytest.mark.usefixtures("quiet_readers")
def test_copies_of_rows_in_fresh_lists_are_erased(tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"), "mor", "bucket")
    table.upsert(rows([ERASED, 6], 8))
    table.catalogs.publish("iceberg", fresh=True)
    table.upsert(rows([4], 9))
    table.catalogs.publish("iceberg")
    expected = others(table)
    assert [path for path in files_with_value(table) if path.endswith("-rows.parquet")] != []
    report = table.erase([KEY], options=OPTIONS)
    assert (files_with_value(table), report.is_clean, content(table)) == ({}, True, expected)
    check_published(table, "iceberg", fresh=True)
    table.upsert(rows([2, 7], 20))
    table.catalogs.publish("iceberg")
    check_published(table, "iceberg", fresh=True)


@pytest.mark.rest
@pytest.mark.usefixtures("quiet_readers")
def test_published_lists_without_values_of_an_erased_row_show_the_others_and_keep_their_versions(
    tmp_path: Path,
) -> None:
    table = new_table(str(tmp_path / "t"))
    table.upsert(rows([100], 4))  # neither the least nor the greatest of its file
    first = [table.catalogs.publish(form).version for form in FORMS]
    report = table.erase(["key-00000004"])
    assert report.is_clean
    assert not {"delta list", "iceberg list"} & stores(report)
    for form in FORMS:
        check_published(table, form)
    assert Path(table.uri, "_delta_log", f"{first[0]:020}.json").exists()
    assert Path(table.uri, "metadata", "v1.metadata.json").exists()


@pytest.mark.rest
def test_a_list_that_another_engine_has_changed_is_named_as_left(tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    table.catalogs.publish("delta")
    log = Path(table.uri, "_delta_log")
    last = max(log.glob("*.json"))
    foreign = json.dumps({"commitInfo": {"operation": "WRITE", "engineInfo": "other"}})
    last.with_name(f"{int(last.stem) + 1:020}.json").write_text(foreign)
    with pytest.raises(ErasureIncomplete) as error:
        table.erase([KEY])
    (left,) = {(one.reason, one.hint) for one in error.value.report.tables[0].remainders}
    assert left == ("the list could not be published again", "Delete _delta_log/, then publish again.")
    assert any("is of other, operation WRITE" in note for note in error.value.report.tables[0].notes)
    for file in log.iterdir():
        file.unlink()
    assert table.erase([KEY]).is_clean


def test_a_partition_path_with_the_name_of_a_list_is_erased_as_others_are(tmp_path: Path) -> None:
    data = pa.table({"id": ["key-one", KEY], "part": ["metadata", "metadata"], "num": [1, 2]})
    table = lakebed.load(str(tmp_path / "t"), data, key="id", partition_by="part")
    report = table.erase([KEY])
    assert (report.is_clean, files_with_value(table), stores(report) & {"iceberg list"}) == (True, {}, set())
    assert table.scan(["id"]).to_arrow()["id"].to_pylist() == ["key-one"]


def overwritten(table: Table) -> None:
    table.insert_overwrite(rows([2], 9))


def partition_deleted(table: Table) -> None:
    table.delete_partitions("even")


def clustered(table: Table) -> None:
    table.maintenance.cluster(["mail"])


def rolled_back(table: Table) -> None:
    table.upsert(rows([ERASED, 6], 9), options={**OPTIONS, "hoodie.compact.inline": False})
    table.rollback(table.timeline.last.time if table.timeline.last else "")


def archived(table: Table) -> None:
    few = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    for at in range(4, 12):
        table.upsert(rows([ERASED], at), options={**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 2, **few})
    assert table.maintenance.archive(options=few) is not None


def restored(table: Table) -> None:
    saved = table.savepoints.create().instant
    table.upsert(rows([6, ERASED], 9), options=OPTIONS)
    table.restore(saved)
    table.savepoints.delete(saved)


HISTORIES = [overwritten, partition_deleted, clustered, rolled_back, archived, restored]


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 6), ("mor", 9)])
def test_rows_are_erased_whatever_happened_to_their_file_groups(history: Any, kind: str, version: int) -> None:
    table = new_table(f"memory://erasure/{history.__name__}-{kind}-{version}", kind, "simple", version)
    history(table)
    expected = others(table)
    report = table.erase([KEY], options=OPTIONS)
    assert (report.is_clean, files_with_value(table), content(table)) == (True, {}, expected)
    assert table.indexes.verify().ok
    lakebed.drop(table.uri)


def test_a_short_key_and_a_text_within_a_longer_one_are_compared_as_values() -> None:
    data = pa.table({"id": ["7", "user-0001", "user-00012"], "n": [41, 42, 43], "t": ["street 1", "street 12", "x"]})
    table = lakebed.create("memory://erasure/short", data, key="id", indexes=["record_index", "t"], index="record")
    table.upsert(data, options=OPTIONS)
    report = table.erase(["7", "user-0001"], options=OPTIONS)
    assert (report.rows, report.is_clean) == (2, True)
    assert table.scan().to_arrow().to_pylist() == [{"id": "user-00012", "n": 43, "t": "x"}]
    found = {store.store for store in report.tables[0].stores}
    assert {
        "metadata table: record_index",
        "metadata table: secondary_index_t",
        "metadata table: column_stats",
    } <= found


def test_a_savepoint_that_holds_the_rows_is_named_before_anything_is_done() -> None:
    table = new_table("memory://erasure/saved")
    saved = table.savepoints.create().instant
    before = paths(table)
    with pytest.raises(InvalidOption, match=f"savepoint {saved}.*holds rows") as error:
        table.erase([KEY])
    assert f"t.savepoints.delete('{saved}')" in error.value.hint
    assert paths(table) == before
    assert saved in str(table.erase([KEY], dry_run=True))
    table.savepoints.delete(saved)
    assert table.erase([KEY]).is_clean
    assert files_with_value(table) == {}


@pytest.mark.every_case
@pytest.mark.parametrize("failing", ["the count of the delete", "a read after the delete"])
def test_a_savepoint_that_is_made_while_rows_are_erased_is_named_after_the_delete(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    table = new_table("memory://erasure/late-savepoint", "cow", "bucket")
    other, saved, cleaned, remove = f"key-{2:08d}", list[str](), list[str](), Erasure._remove  # pyright: ignore

    def delete_after_another_writer(context: WriteContext, selector: Any) -> WriteResult:
        if not saved:
            saved.append(lakebed.open(table.uri).savepoints.create().instant)
            if failing == "the count of the delete":
                lakebed.open(table.uri).delete([other])
        return delete(context, selector)

    def remove_after_a_clean(erasure: Erasure, *given: Any) -> Any:
        if failing == "a read after the delete" and not cleaned:
            cleaned.append(lakebed.open(table.uri).upsert(rows([7], 1, "other")).instant)
            raise FileNotFoundError("a file that another process has cleaned")
        return remove(erasure, *given)

    with monkeypatch.context() as patched:
        patched.setattr("lakebed.services.erasure.delete", delete_after_another_writer)
        # a read fails after the delete and before the first rewrite; no storage request is only there
        patched.setattr(Erasure, "_remove", remove_after_a_clean)
        with pytest.raises(ErasureIncomplete, match=r"savepoint .* holds it") as raised:
            table.erase([other, KEY], options=OPTIONS)
    assert raised.value.report.rows == (2 if cleaned else 1)
    assert f"t.savepoints.delete('{saved[0]}')" in str(raised.value)
    assert table.get([other, KEY]).num_rows == 0
    table.savepoints.delete(saved[0])
    assert table.erase([other, KEY], options=OPTIONS).is_clean
    assert files_with_value(table) == {}
    lakebed.drop(table.uri)


@pytest.mark.rest
def test_a_savepoint_of_a_commit_without_the_rows_does_not_hinder() -> None:
    table = new_table("memory://erasure/saved-others")
    assert table.erase([KEY]).is_clean
    table.savepoints.create()
    table.upsert(rows([ERASED + 2], 1, "late"))
    assert table.erase([f"key-{ERASED + 2:08d}"]).is_clean


@pytest.mark.parametrize("version", [6, 8, 9])
def test_rows_that_came_after_a_savepoint_are_erased_and_the_savepoint_stays(version: int) -> None:
    schema = pa.schema([("id", pa.int64()), ("mail", pa.string())])
    uri = f"memory://erasure/after-a-savepoint-{version}"
    table = lakebed.create(uri, schema, key="id", type="mor", index="bucket", buckets=1, table_version=version)
    table.upsert({"id": [1, 2], "mail": ["one", "two"]})
    saved = table.savepoints.create().instant
    table.upsert({"id": [2, 3], "mail": ["new", "late.person@example.org"]})
    if version == 6:  # a log file is named after its slice, which the savepoint holds
        with pytest.raises(ErasureIncomplete, match=f"savepoint {saved} holds its file slice"):
            table.erase([3])
        table.savepoints.delete(saved)
    assert table.erase([3]).is_clean
    assert not files_with(open_storage(uri), "late.person@example.org")
    assert sorted(table.to_arrow()["mail"].to_pylist()) == ["new", "one"]
    if version > 6:
        assert sorted(table.scan(as_of=saved).to_arrow()["mail"].to_pylist()) == ["one", "two"]
        table.restore(saved)
        assert sorted(table.to_arrow()["mail"].to_pylist()) == ["one", "two"]


def test_a_dry_run_changes_nothing_and_names_the_files() -> None:
    table = new_table("memory://erasure/dry", "mor", "record")
    before = paths(table)
    report = table.erase([KEY], dry_run=True, options=OPTIONS)
    assert paths(table) == before
    assert {path for one in report.tables[0].stores for path in one.files} == set(files_with_value(table))
    assert (report.rows, report.tables[0].dry_run, report.is_clean) == (1, True, False)
    assert "1 row would be deleted" in str(report)


@pytest.mark.rest
def test_a_report_has_no_value_of_a_row() -> None:
    table = new_table("memory://erasure/report", "mor", "record", **CDC)
    report = table.erase([KEY], options=OPTIONS)
    shown = [str(report), report._repr_html_(), json.dumps(report.to_dict())]  # pyright: ignore[reportPrivateUsage]
    assert not any(str(value) in text for value in VALUES for text in shown)
    assert report.to_dict()["tables"][0]["stores"][0].keys() == {"store", "files", "left"}
    assert "none left" in str(report)


REJECTS = {"hoodie.clustering.updates.strategy": "SparkRejectUpdateStrategy"}


@pytest.mark.rest
def test_a_pending_clustering_of_the_rows_is_named_before_anything_is_done() -> None:
    table = new_table("memory://erasure/clustering")
    table.maintenance.cluster(["mail"], plan_only=True)
    before = paths(table)
    with pytest.raises(CommitConflict, match="pending clustering") as error:
        table.erase([KEY], options=REJECTS)
    assert "t.maintenance.cluster()" in error.value.hint
    assert paths(table) == before
    table.maintenance.cluster()
    assert table.erase([KEY], options=REJECTS).is_clean
    assert files_with_value(table) == {}


@pytest.mark.rest
def test_a_pending_clustering_of_files_that_held_the_rows_is_named_and_the_next_erasure_finishes() -> None:
    table = new_table("memory://erasure/clustering-later")
    expected = others(table)
    table.delete([KEY])
    planned = table.maintenance.cluster(["mail"], plan_only=True).planned
    with pytest.raises(ErasureIncomplete, match=f"pending clustering {planned} reads it") as error:
        table.erase([KEY], options=REJECTS)
    assert "t.maintenance.cluster()" in error.value.hint
    assert {one.path for one in error.value.report.tables[0].remainders} == set(files_with_value(table))
    table.maintenance.cluster()
    assert table.erase([KEY], options=REJECTS).is_clean
    assert (files_with_value(table), content(table)) == ({}, expected)


@pytest.mark.rest
def test_a_pending_writer_that_the_metadata_table_waits_for_is_named_and_the_next_erasure_finishes() -> None:
    table = new_table("memory://erasure/writer", "cow", "record", 6)
    expected = others(table)
    storage = open_storage(table.uri)
    writer, instant = TimelineWriter(storage, load_table_config(storage)), "20300101000000000"
    requested = writer.request(Action.COMMIT, instant)
    with Heartbeat(storage, instant, "another"):
        with pytest.raises(ErasureIncomplete, match=f"commit {instant} is pending") as error:
            table.erase([KEY], options=OPTIONS)
        assert content(table) == expected
    assert {one.path for one in error.value.report.tables[0].remainders} >= set(files_with_value(table)) != set()
    writer.remove_pending(requested)
    assert table.erase([KEY], options=OPTIONS).is_clean
    assert (files_with_value(table), content(table)) == ({}, expected)


@pytest.mark.rest
def test_a_file_that_no_commit_names_is_left_and_named() -> None:
    table = new_table("memory://erasure/orphan")
    storage = open_storage(table.uri)
    source = next(path for path in files_with_value(table) if path.startswith("even/"))
    storage.write("even/0000aaaa-0000-4000-8000-000000000000-0_0-0-0_20200101000000000.parquet", storage.read(source))
    storage.write("even/_copy.txt", b"a copy of " + MAIL.encode())
    with pytest.raises(ErasureIncomplete) as error:
        table.erase([KEY])
    left = {one.path: one.hint for one in error.value.report.tables[0].remainders}
    assert (
        left.keys()
        == set(files_with_value(table))
        == {
            "even/0000aaaa-0000-4000-8000-000000000000-0_0-0-0_20200101000000000.parquet",
            "even/_copy.txt",
        }
    )
    assert "t.maintenance.repair(['orphans'])" in " ".join(left.values())


@pytest.mark.rest
def test_column_ranges_that_hudi_left_in_delta_commits_are_taken_out(tmp_path: Any) -> None:
    table = lakebed.open(str(golden("v6_mor_mdt_basic").unpack(tmp_path)))
    storage = open_storage(table.uri)
    instants = [
        info.path for info in storage.list(".hoodie", recursive=False) if b"recordsStats" in storage.read(info.path)
    ]
    ranges = json.loads(storage.read(instants[0]))["partitionToWriteStats"]["eu"][0]["recordsStats"]["val"]
    key = ranges["_hoodie_record_key"]["minValue"]
    expected = [row for row in content(table) if row["_hoodie_record_key"] != key]
    report = table.erase(lakebed.KeyText([key]))
    assert "timeline" in stores(report)
    assert b"recordsStats" not in storage.read(instants[0])
    assert (report.is_clean, content(table)) == (True, expected)
    assert table.indexes.verify().ok


@pytest.mark.rest
def test_tables_are_erased_one_by_one_and_a_failure_does_not_stop_the_others() -> None:
    first, saved, last = (new_table(f"memory://erasure/several-{n}") for n in range(3))
    saved.savepoints.create()
    with pytest.raises(ErasureIncomplete, match="several-1: savepoint") as error:
        lakebed.maintenance.erase(
            {first: [KEY], saved.uri: [KEY], "memory://erasure/nowhere": [KEY], last.uri: pc.field("id") == KEY}
        )
    report = error.value.report
    assert [table.is_clean for table in report.tables] == [True, False, False, True]
    assert [(files_with_value(table) == {}) for table in (first, saved, last)] == [True, False, True]
    assert "1 other table" in error.value.message
    assert error.value.context["report"]["tables"][1]["error"]
    assert lakebed.maintenance.erase({first: [KEY]}).is_clean


@pytest.mark.parametrize(("given", "said"), [("one", "erase"), (7, "list"), (None, "neither")])
def test_a_key_that_may_be_a_condition_is_refused(given: Any, said: str) -> None:
    table = new_table(f"memory://erasure/refused-{said}")
    with pytest.raises(InvalidOption, match=said):
        table.erase(given)


@pytest.mark.rest
def test_reads_of_changes_before_an_erasure_raise_and_pass_over_the_rewrite() -> None:
    table = new_table("memory://erasure/changes", "cow", "bucket", **CDC)
    before = table.changes("000").end
    report = table.erase([KEY])
    assert report.is_clean
    with pytest.raises(InvalidOption, match="cleaned"):
        table.cdc("000").to_arrow()
    assert table.changes(before).to_arrow().num_rows == 0
    after = table.cdc(table.timeline.last.completion_time or "").end if table.timeline.last else ""
    table.upsert(rows([2], 9, "next"))
    assert table.cdc(after).to_arrow()["op"].to_pylist() == ["u"]


def test_the_rewrite_of_a_copy_on_write_table_is_no_compaction_plan() -> None:
    table = new_table("memory://erasure/rewrite")
    table.erase([KEY])
    assert [i.action for i in table.timeline] == [Action.COMMIT] * 5 + [Action.CLEAN]


def test_a_reader_that_has_seen_everything_goes_on_after_an_erasure() -> None:
    for cdc, kind, version, erased in product((False, True), ("cow", "mor"), (9, 8, 6), ([1], [1, 2, 3])):
        table = lakebed.create(
            f"memory://{uuid.uuid4().hex}/t", {"id": [1], "v": [1]}, key="id", index="simple", type=kind,
            table_version=version, properties={"hoodie.table.cdc.enabled": str(cdc).lower()},
        )  # fmt: skip
        case = f"{cdc} {kind} {version} {erased}"

        def read(name: str, table: Table = table, cdc: bool = cdc, **limits: int) -> list[Any]:
            with table.consume(name, cdc=cdc, **limits) as batch:
                return [
                    (one["op"], one["before"], one["after"]) if cdc else one for one in batch.to_arrow().to_pylist()
                ]

        for name in ("all", "one", "late"):
            table.consumers.start(name)
        table.upsert({"id": [1, 2, 3], "v": [1, 2, 3]})
        assert len(read("all")) == len(read("one", max_commits=1)) == 3, case
        assert table.erase(erased).is_clean, case
        gone = [("d", None, None)] * len(erased) if cdc else []
        assert read("all") == gone, case
        table.upsert({"id": [4], "v": [4]})
        new = {"id": 4, "v": 4}
        added = [("i", None, new)] if cdc else [new]
        assert read("all") == added, case
        batches = [read("one", max_commits=1) for _ in range(4)]
        assert [one for batch in batches for one in batch] == [*gone, *added], case
        assert read("all") == read("one") == [], case
        if cdc:  # what it has not read yet is erased
            with pytest.raises(CheckpointBehind):
                read("late")
        else:
            assert sorted(one["id"] for one in read("late")) == [*({1, 2, 3} - set(erased)), 4], case
