"""`repair`: each kind of damage is named, a dry run changes nothing, and what is mended is the table that it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.concurrency.heartbeat import Heartbeat
from lakebed.errors import CommitConflict, CorruptFile, InvalidOption
from lakebed.format.text import parse_properties
from lakebed.handles import file_writer
from lakebed.metadata_kinds.files import file_records
from lakebed.metadata_kinds.stored import NewFile
from lakebed.metadata_records.records import record_form
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.model import Action
from lakebed.properties.file import BACKUP_PATH, PROPERTIES_PATH, load_table_config
from lakebed.services.repair import PARTS
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.timeline import load_timeline
from lakebed.timeline.transitions import TimelineWriter
from support.cleaning_tables import data_files, timeline
from support.golden_tables import GoldenTable, golden_tables
from support.locks import held
from support.sampling import HISTORIES, todays
from support.write_tables import content, files, rows

Make = Callable[..., Table]
LISTED: dict[str, Any] = {"index": "bucket", "buckets": 1, "properties": {"hoodie.compact.inline": False}}
# Most damage is the same without a metadata table, and sooner made.
BUCKET: dict[str, Any] = LISTED | {"properties": {"hoodie.compact.inline": False, "hoodie.metadata.enable": False}}
APART = {"hoodie.parquet.small.file.limit": 0}


def filled(make: Make, **given: Any) -> Table:
    table = make(**(BUCKET | given))
    table.upsert(rows((1, "a", "a1", 1), (2, "b", "b1", 1)))
    table.upsert(rows((1, "a", "a2", 2)))
    table.upsert(rows((3, "c", "c3", 3)))
    return table


ROWS = [(1, "a", "a2", 2), (2, "b", "b1", 1), (3, "c", "c3", 3)]


def repaired(table: Table, part: Any, *found: str) -> None:
    """A dry run finds this and changes nothing, a repair mends it, and there is no more."""
    before = files(table.uri)
    dry = lakebed.maintenance.repair(table.uri, dry_run=True)
    assert dry[part].found == found
    assert (dry.ok, dry[part].mended) == (False, False)
    assert files(table.uri) == before
    done = lakebed.maintenance.repair(table.uri)
    assert done[part].found == found
    assert done[part].mended
    check_intact(table)


def check_intact(table: Table) -> None:
    after = lakebed.maintenance.repair(table.uri)
    assert [part.found for part in after.parts] == [()] * len(PARTS)
    assert after
    verified = table.indexes.verify()
    assert verified.ok, verified


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 6])
def test_an_intact_table_is_not_changed(make: Make, kind: str, version: int) -> None:
    table = filled(make, type=kind, table_version=version, properties=LISTED["properties"])
    table.delete_partitions(["b"])
    before = files(table.uri)
    check_intact(table)
    assert files(table.uri) == before | {k: v for k, v in files(table.uri).items() if "/.locks/" in k}
    assert str(table.maintenance.repair()).splitlines()[0] == "properties: nothing found"


# -- properties


def test_the_backup_is_used_where_the_file_is_missing(make: Make) -> None:
    table = filled(make)
    storage = open_storage(table.uri)
    body = storage.read(PROPERTIES_PATH)
    storage.write(BACKUP_PATH, body)
    storage.delete(PROPERTIES_PATH)
    repaired(table, "properties", f"{PROPERTIES_PATH} cannot be used; its backup can")
    assert (storage.read(PROPERTIES_PATH), storage.head(BACKUP_PATH)) == (body, None)
    assert content(table) == ROWS


def test_the_backup_comes_back_where_the_file_is_cut(make: Make) -> None:
    table = filled(make)
    storage = open_storage(table.uri)
    body = storage.read(PROPERTIES_PATH)
    storage.write(BACKUP_PATH, body)
    storage.write(PROPERTIES_PATH, body[: len(body) // 2])
    repaired(table, "properties", f"{PROPERTIES_PATH} cannot be used; its backup can")
    assert storage.read(PROPERTIES_PATH) == body


def test_a_backup_that_was_left_goes(make: Make) -> None:
    table = filled(make)
    storage = open_storage(table.uri)
    body = storage.read(PROPERTIES_PATH)
    storage.write(BACKUP_PATH, b"")
    repaired(table, "properties", f"{BACKUP_PATH} is left of an update that was cut short")
    assert (storage.read(PROPERTIES_PATH), storage.head(BACKUP_PATH)) == (body, None)


@pytest.mark.parametrize("backup", [None, b"", b"hoodie.table.name=x"])
def test_a_checksum_that_is_missing_or_wrong_is_written(make: Make, backup: bytes | None) -> None:
    table = filled(make)
    storage = open_storage(table.uri)
    before = parse_properties(storage.read(PROPERTIES_PATH))
    lines = storage.read(PROPERTIES_PATH).splitlines(keepends=True)
    without = b"".join(line for line in lines if not line.startswith(b"hoodie.table.checksum"))
    for broken, what in (
        (without, "no checksum"),
        (without + b"hoodie.table.checksum=17\n", "the checksum of another table name"),
    ):
        storage.write(PROPERTIES_PATH, broken)
        if backup is not None:
            storage.write(BACKUP_PATH, backup)
        with pytest.raises(CorruptFile):
            lakebed.open(table.uri)
        (found,) = lakebed.maintenance.repair(table.uri, ["properties"], dry_run=True).parts
        assert found.found == (f"{PROPERTIES_PATH} has {what}",)
        assert storage.read(PROPERTIES_PATH) == broken
        assert lakebed.maintenance.repair(table.uri).ok
        assert parse_properties(storage.read(PROPERTIES_PATH)) == before
        assert storage.head(BACKUP_PATH) is None
        assert content(table) == ROWS


def test_lost_properties_are_not_made_up(make: Make) -> None:
    table = filled(make)
    storage = open_storage(table.uri)
    body = storage.read(PROPERTIES_PATH)
    for broken in (body[:200], b"hoodie.table.name=t\nhoodie.table.version=9\n", b""):
        storage.write(PROPERTIES_PATH, broken)
        with pytest.raises(CorruptFile, match="cannot be mended"):
            lakebed.maintenance.repair(table.uri)
        assert storage.read(PROPERTIES_PATH) == broken


# -- folders


def test_folders_become_partitions_again(make: Make) -> None:
    table = filled(make)
    storage = open_storage(table.uri)
    first, _, last = (i.time for i in timeline(table).commits)
    body = storage.read("a/.hoodie_partition_metadata")
    for path in "ac":
        storage.delete(f"{path}/.hoodie_partition_metadata")
    storage.write("d/notes.txt", b"no partition")
    repaired(table, "partition_metadata", f"a of {first}", f"c of {last}")
    assert parse_properties(storage.read("a/.hoodie_partition_metadata")) == parse_properties(body)
    assert parse_properties(storage.read("c/.hoodie_partition_metadata"))["commitTime"] == last
    assert storage.head("d/.hoodie_partition_metadata") is None
    assert content(table) == ROWS


def test_the_folder_of_a_table_without_partitions(make: Make) -> None:
    table = make(**(BUCKET | {"partition_by": None}))
    instant = table.upsert(rows((1, "a", "x", 1))).instant
    open_storage(table.uri).delete(".hoodie_partition_metadata")
    repaired(table, "partition_metadata", f"the table folder of {instant}")
    assert content(table) == [(1, "a", "x", 1)]


# -- orphans


def _name(path: str, *, instant: str = "", file_id: str = "") -> str:
    """The name of a base file with another instant or file id."""
    folder, _, name = path.rpartition("/")
    own, token, time = name.removesuffix(".parquet").split("_")
    return f"{folder}/{file_id or own}_{token}_{instant or time}.parquet"


def test_files_that_no_commit_names_go_and_no_others(make: Make) -> None:
    table = filled(make, properties=LISTED["properties"])
    storage = open_storage(table.uri)
    first, second, third = (i.time for i in timeline(table).commits)
    base = min(path for path in data_files(table) if path.startswith("a/") and first in path)
    body = storage.read(base)
    between = str(int(first) + 1)
    orphans = [
        _name(base, instant=between),  # of a write that is nowhere
        _name(base, file_id="0a0a0a0a-0000-4000-8000-000000000000-0"),  # of an attempt that was lost
        f"a/.0a0a0a0a-0000-4000-8000-000000000000-0_{between}.log.1_0-1-0",
    ]
    stay = [
        _name(base, instant=str(int(third) + 10**9)),  # nobody knows of its time yet
        "a/notes.txt",
        f"a/.{base.rpartition('/')[2]}.crc",
        "notes.parquet",
    ]
    for path in (*orphans, *stay):
        storage.write(path, body)
    assert second > between
    repaired(table, "orphans", *(f"{path}, {len(body):,} bytes" for path in sorted(orphans)))
    assert all(storage.head(path) is None for path in orphans)
    assert all(storage.read(path) == body for path in stay)
    assert content(table) == ROWS
    assert sorted(table.scan(as_of=first).to_arrow()["v"].to_pylist()) == ["a1", "b1"]


def test_files_of_a_writer_that_is_at_work_stay(make: Make) -> None:
    table = filled(make)
    storage = open_storage(table.uri)
    first = timeline(table).commits[0].time
    base = min(path for path in data_files(table) if path.startswith("a/") and first in path)
    between, later = str(int(first) + 1), str(int(first) + 2)
    body = storage.read(base)
    config = load_table_config(storage)
    with Heartbeat(storage, between, "writer"):
        writer = TimelineWriter(storage, config)
        requested = writer.request(Action.COMMIT, between)
        for instant in (between, later):
            storage.write(_name(base, instant=instant), body)
        assert lakebed.maintenance.repair(table.uri, ["orphans"]).ok
        writer.remove_pending(requested)
    found = lakebed.maintenance.repair(table.uri, ["orphans"])["orphans"]
    assert len(found.found) == 2
    assert found.mended
    assert content(table) == ROWS


def test_a_log_file_of_version_6_with_blocks_of_an_undone_commit_alone_goes(make: Make) -> None:
    table = make(**(LISTED | {"type": "mor", "table_version": 6}))
    table.upsert(rows((1, "a", "v0", 0)))
    before = data_files(table)
    undone = table.upsert(rows((1, "a", "v1", 1))).instant
    (log,) = data_files(table) - before
    storage = open_storage(table.uri)
    body = storage.read(log)
    table.rollback(undone)
    hidden = data_files(table) - before
    table.upsert(rows((1, "a", "v2", 2)))
    assert table.maintenance.repair(["orphans"]).ok
    late = log.replace(".log.1_", ".log.9_")
    storage.write(late, body)  # by a writer that went on
    repaired(table, "orphans", f"{late}, {len(body):,} bytes")
    assert storage.head(late) is None
    assert hidden <= data_files(table)
    assert content(table) == [(1, "a", "v2", 2)]


@pytest.mark.parametrize("version", [9, 6])
def test_files_of_archived_commits_stay(make: Make, version: int) -> None:
    quiet = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.metadata.enable": False}
    table = make(**(BUCKET | {"properties": quiet, "table_version": version}))
    instants = [table.upsert(rows((1, "a", f"v{n}", n))).instant for n in range(7)]
    few = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 1}
    assert len(table.maintenance.archive(options=few).instants) >= 3
    before = data_files(table)
    storage = open_storage(table.uri)
    base = next(path for path in before if instants[0] in path)
    hole = _name(base, instant=str(int(instants[0]) + 1))
    early = _name(base, instant="20200101000000000")
    for path in (hole, early):
        storage.write(path, storage.read(base))
    done = table.maintenance.repair(["orphans"])["orphans"]
    assert [what.partition(",")[0] for what in done.found] == [hole]
    assert data_files(table) == before | {early}
    assert content(table) == [(1, "a", "v6", 6)]


def test_log_files_of_version_6_are_not_judged(make: Make) -> None:
    table = filled(make, type="mor", table_version=6)
    first = timeline(table).commits[0].time
    storage = open_storage(table.uri)
    stray = f"a/.0a0a0a0a-0000-4000-8000-000000000000-0_{int(first) + 1}.log.1_0-1-0"
    storage.write(stray, b"")
    assert table.maintenance.repair(["orphans"]).ok
    assert storage.head(stray) is not None


# -- a metadata table that differs


def test_a_metadata_table_that_differs_from_the_data_is_repaired(make: Make) -> None:
    table = filled(make, properties=LISTED["properties"])
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    now = load_timeline(storage, config)
    base = max(path for path in data_files(table) if path.startswith("c/"))
    said = file_records(
        [NewFile("c", "ghost.parquet", 5)],
        record_form(9),
        removed={"c": [base.rpartition("/")[2]]},
    )
    apply_delta(
        MetadataStore(storage, config, now, lock_is_held=held), str(int(now.commits[-1].time) + 1), {"files": said}
    )
    found = lakebed.maintenance.repair(table.uri, dry_run=True)["metadata"].found
    assert {what.split(" ")[1] for what in found if what.startswith("files")} == {"missing", "extra"}
    assert table.maintenance.repair()["metadata"].mended
    check_intact(table)
    assert content(table) == ROWS


def test_repair_of_a_table_without_metadata_table_says_so(make: Make) -> None:
    table = filled(make)
    assert table.maintenance.repair()["metadata"].note == "the table has no metadata table"


# -- duplicates


@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 9), ("cow", 6)])
def test_the_newest_copy_of_a_key_stays(make: Make, kind: str, version: int) -> None:
    table = make(type=kind, table_version=version, index="simple", properties=LISTED["properties"])
    # an older value may be written last: what counts is the commit
    table.insert(rows((1, "a", "first", 9), (2, "a", "alone", 1)), options=APART)
    table.insert(rows((1, "a", "second", 8), (1, "b", "elsewhere", 1)), options=APART)
    table.insert(rows((1, "a", "third", 7), (3, "a", "beside", 1)), options=APART)
    assert len(content(table)) == 6
    before = files(table.uri)
    found = table.maintenance.repair()["duplicates"]
    assert (found.found, found.mended) == (("1: 3 copies",), False)
    assert found.note == "name the part to delete all but the newest copy of each"
    assert "_hoodie_" not in str(found)
    assert {k for k in files(table.uri) if "/.locks/" not in k} == {k for k in before if "/.locks/" not in k}
    done = table.maintenance.repair(["duplicates"])["duplicates"]
    assert done.mended
    assert done.note.startswith("2 rows deleted by ")
    left = [(1, "a", "third", 7), (1, "b", "elsewhere", 1), (2, "a", "alone", 1), (3, "a", "beside", 1)]
    assert content(table) == left
    check_intact(table)
    table.upsert(rows((1, "a", "after", 20)))
    assert content(table) == [(1, "a", "after", 20), *left[1:]]
    assert table.scan(where="v = 'second'").count() == 0


@pytest.mark.rest
def test_a_table_of_a_global_index_has_each_key_once(make: Make) -> None:
    table = make(index="global_simple", indexes=["record_index", "v"], properties=LISTED["properties"])
    table.insert(rows((1, "a", "first", 1), (2, "a", "alone", 1)), options=APART)
    table.insert(rows((1, "b", "second", 2)), options=APART)
    assert table.maintenance.repair(["duplicates"]).ok
    assert content(table) == [(1, "b", "second", 2), (2, "a", "alone", 1)]
    check_intact(table)
    assert table.scan(where="v = 'second'").to_arrow()["city"].to_pylist() == ["b"]


ODD = pa.schema(
    [
        *(("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())),
        ("s", pa.struct([("a", pa.list_(pa.int32()))])),
    ]
)
KINDS = [
    *(("cow", 9, "bucket", "none"), ("mor", 9, "simple", "none"), ("cow", 6, "simple", "none")),
    *(
        pytest.param(*kind, marks=pytest.mark.rest)
        for kind in (
            *(("cow", 8, "bucket", "key"), ("mor", 8, "bloom", "key"), ("mor", 6, "bloom", "none")),
            *(("mor", 9, "record", "key"), ("cow", 9, "global_bloom", "none"), ("cow", 9, "bloom", "key")),
        )
    ),
]


@pytest.mark.parametrize(("kind", "version", "index", "sort"), KINDS)
def test_copies_in_one_base_file_are_repaired(tmp_path: Path, kind: str, version: int, index: str, sort: str) -> None:
    given: dict[str, Any] = {"type": kind, "sort": sort, "index": index}
    given |= {"buckets": 1} if index == "bucket" else {}
    table = lakebed.create(
        str(tmp_path / "t"),
        ODD,
        key="id",
        partition_by="city",
        ordering="ts",
        table_version=version,
        properties={"hoodie.compact.inline": False},
        **given,
    )

    def odd(*found: tuple[int, str, str | None, int]) -> pa.Table:
        return pa.Table.from_pylist(
            [{"id": i, "city": c, "v": v, "ts": t, "s": {"a": [t, None]}} for i, c, v, t in found], ODD
        )

    table.insert(odd((1, "a", "first", 9), (2, "a", None, 1), (3, "b", "alone", 1)))
    # into the same files; the newest has the lowest ordering value
    table.insert(odd((1, "a", "second", 3), (1, "a", "third \u00fc", 2), (4, "a", "beside", 1), (4, "a", "beside", 1)))
    if kind == "mor":
        table.upsert(odd((4, "a", "in a log file", 5)))
    four = (4, "a", "in a log file", 5) if kind == "mor" else (4, "a", "beside", 1)
    assert table.count() == 7
    assert lakebed.maintenance.repair(table.uri)["duplicates"].found == ("1: 3 copies", "4: 2 copies")
    done = table.maintenance.repair(["duplicates"])["duplicates"]
    assert (done.mended, done.note.split(" deleted")[0]) == (True, "3 rows")
    expected = odd((1, "a", "third \u00fc", 2), (2, "a", None, 1), (3, "b", "alone", 1), four)
    assert table.to_arrow().sort_by("id").to_pylist() == expected.to_pylist()
    check_intact(table)
    assert table.get([1, 4], columns=["v"])["v"].to_pylist() == ["third \u00fc", four[2]]
    result = table.upsert(odd((1, "a", "after", 20), (4, "a", "after", 20)))
    assert result.updated in (2, None)
    after = odd((1, "a", "after", 20), (2, "a", None, 1), (3, "b", "alone", 1), (4, "a", "after", 20))
    assert table.to_arrow().sort_by("id").to_pylist() == after.to_pylist()


@pytest.mark.rest
@pytest.mark.parametrize("sort", ["key", "none"])
def test_copies_in_several_row_groups_of_one_file_are_repaired(
    make: Make, sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "SORTED_ROW_GROUP_ROWS", 10_000)
    table = make(index="bucket", buckets=1, sort=sort, properties=LISTED["properties"])
    # in the order of keys two row groups meet within the rows of one key
    many = [(number % 6_000, "a", f"v{number}", number) for number in range(20_000)]
    for start in range(0, 20_000, 5_000):
        table.insert(rows(*many[start : start + 5_000]))
    last = table.timeline.last
    assert last is not None
    (body,) = (body for path, body in files(table.uri).items() if path.endswith(f"{last.time}.parquet"))
    assert pq.ParquetFile(pa.BufferReader(body)).metadata.num_row_groups == (2 if sort == "key" else 1)
    assert len(table.maintenance.repair(["duplicates"])["duplicates"].found) == 6_000
    assert content(table) == sorted((n % 6_000, "a", f"v{n}", n) for n in range(14_000, 20_000))
    check_intact(table)


@pytest.mark.parametrize("part", [["--part", "duplicates"], []])
def test_the_command_that_doctor_names_repairs_what_verify_reports(
    make: Make, part: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    table = make(index="bucket", buckets=1, properties=LISTED["properties"])
    table.insert(rows((1, "a", "old", 1), (2, "a", "alone", 1)))
    table.insert(rows((1, "a", "new", 2)))
    assert not table.indexes.verify().ok
    named = table.maintenance.doctor(verify=True).of_check("indexes")
    assert f"lakebed maintenance repair {table.uri} --part duplicates" in str(named)
    assert invoke(["maintenance", "repair", table.uri, *part]) == 0 or not part
    capsys.readouterr()
    assert table.indexes.verify().ok is bool(part)
    assert content(table) == [(1, "a", "new", 2), *([] if part else [(1, "a", "old", 1)]), (2, "a", "alone", 1)]


def test_a_repair_of_copies_waits_for_a_planned_compaction(make: Make) -> None:
    table = make(type="mor", index="simple", properties=LISTED["properties"])
    table.insert(rows((1, "a", "x", 1), (1, "a", "y", 1)))
    table.upsert(rows((1, "a", "z", 2)))
    table.maintenance.compact(plan_only=True)
    with pytest.raises(CommitConflict, match="pending compaction"):
        table.maintenance.repair(["duplicates"])
    table.maintenance.compact()
    assert table.maintenance.repair(["duplicates"]).ok
    assert content(table) == [(1, "a", "z", 2)]


def test_rows_without_keys_have_no_duplicates(make: Make) -> None:
    table = make(key=None, index="simple", properties=BUCKET["properties"])
    table.insert(rows((1, "a", "x", 1), (1, "a", "x", 1)))
    assert table.maintenance.repair()["duplicates"].note == "rows have no keys to compare"
    assert len(content(table)) == 2


# -- tables of real Hudi


@pytest.mark.parametrize("table", todays(golden_tables(), 24, HISTORIES), ids=str)
def test_golden_tables_have_no_orphans(table: GoldenTable, tmp_path: Path) -> None:
    done = lakebed.maintenance.repair(str(table.unpack(tmp_path)), dry_run=True)
    assert [done[part].found for part in ("properties", "partition_metadata", "orphans", "duplicates")] == [()] * 4


# -- faces


def test_a_part_that_cannot_be_repaired_does_not_stop_the_others(make: Make) -> None:
    table = filled(make, properties=LISTED["properties"])
    storage = open_storage(table.uri)
    storage.delete("b/.hoodie_partition_metadata")
    later = str(int(timeline(table).commits[-1].time) + 1)
    with Heartbeat(storage, later, "writer"):
        TimelineWriter(storage, load_table_config(storage)).request(Action.COMMIT, later)
        done = table.maintenance.repair()
        assert done["partition_metadata"].mended
        assert "while instant" in done["metadata"].found[0]
        assert not done
        with pytest.raises(CommitConflict, match="while instant"):
            table.maintenance.repair(["metadata"])
    assert content(table) == ROWS


def test_parts_are_named(make: Make) -> None:
    table = filled(make)
    assert [part.name for part in table.maintenance.repair(["orphans", "properties"]).parts] == [
        "properties",
        "orphans",
    ]
    wrong: Any = ["orphan"]
    with pytest.raises(InvalidOption, match="there is no part 'orphan'"):
        table.maintenance.repair(wrong)


def test_the_command_line_repairs(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    table = filled(make)
    open_storage(table.uri).delete("b/.hoodie_partition_metadata")
    assert invoke(["maintenance", "repair", table.uri, "--dry-run"]) == 0
    first = timeline(table).commits[0].time
    shown = f"partition_metadata: 1 found, not mended\n  b of {first}\n"
    said = capsys.readouterr().out
    assert shown in said
    assert said.endswith("(nothing was done)\n")
    assert invoke(["maintenance", "repair", table.uri, "--part", "partition_metadata", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "parts": [{"part": "partition_metadata", "found": [f"b of {first}"], "mended": True, "note": ""}],
        "dry_run": False,
        "ok": True,
    }
    check_intact(table)
