"""Rollbacks and markers that others left: a completed commit stays, and no file goes but the target's own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import CorruptFile, StorageError
from lakebed.format.avro.encoder import read_avro_file
from lakebed.format.log_file import block_bytes, rollback_block
from lakebed.handles.log_writer import token_of
from lakebed.metadata.lookups import MetadataTable, open_snapshot
from lakebed.metadata_records.definitions import load_definitions
from lakebed.model import Action, Instant, State
from lakebed.properties.file import load_table_config
from lakebed.storage import Storage, open_storage
from lakebed.table import Table
from lakebed.timeline.bodies.rollback import RollbackPlan, encode_rollback_plan
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.timeline.transitions import TimelineWriter
from support.write_tables import SCHEMA, content, rows

FIRST = (1, "oslo", "a", 1), (2, "rome", "a", 1)
SECOND = (1, "oslo", "b", 2)
AFTER = [(1, "oslo", "b", 2), (2, "rome", "a", 1), (3, "oslo", "c", 3)]
# Later than any commit of these tests.
AT = "29990101000000000"


def table_of(folder: Path, version: int = 9) -> Table:
    table = lakebed.create(
        str(folder / "t"), SCHEMA, key="id", partition_by="city", ordering="ts", index="simple", table_version=version
    )
    table.upsert(rows(*FIRST))
    table.upsert(rows(SECOND))
    return table


def loaded(table: Table) -> tuple[Storage, Timeline]:
    storage = open_storage(table.uri)
    return storage, load_timeline(storage, load_table_config(storage))


def opened_metadata(table: Table) -> MetadataTable:
    metadata = open_snapshot(open_storage(table.uri)).metadata
    assert metadata is not None
    return metadata


def left_behind(folder: Path, at: str) -> None:
    """Nobody has touched the instant for hours."""
    before = time.time() - 4 * 3600
    for path in folder.rglob(f"{at}*"):
        os.utime(path, (before, before))


def plan_rollback(table: Table, target: Instant, files: list[str], *, body: bytes | None = None) -> None:
    storage, timeline = loaded(table)
    writer = TimelineWriter(storage, timeline.config)
    at = f"{int(timeline.greatest_time[:17]) + 1}"
    plan = encode_rollback_plan(storage.url(), RollbackPlan(target, tuple(files))) if body is None else body
    writer.request(Action.ROLLBACK, at, plan)
    writer.inflight(Action.ROLLBACK, at)
    left_behind(Path(table.uri.removeprefix("file://")), at)


def files_of_last(timeline: Timeline) -> tuple[Instant, list[str]]:
    last = timeline.commits[-1]
    stats = timeline.commit_metadata(last).stats.values()
    return Instant(last.time, last.action, State.COMPLETED), [s.path for group in stats for s in group]


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_planned_rollback_of_a_completed_commit_is_removed_and_deletes_nothing(tmp_path: Path, version: int) -> None:
    table = table_of(tmp_path, version)
    storage, timeline = loaded(table)
    target, files = files_of_last(timeline)
    plan_rollback(table, target, files)
    lakebed.open(table.uri).upsert(rows(AFTER[2]))
    assert content(table) == AFTER
    assert all(storage.head(path) is not None for path in files)
    after = loaded(table)[1]
    assert target.time in {i.time for i in after.commits}
    assert not [i for i in after.instants if i.action is Action.ROLLBACK]
    assert lakebed.open(table.uri).indexes.verify().ok


@pytest.mark.parametrize("body", [b"", b"Obj\x01 cut off"])
def test_a_rollback_without_a_plan_is_removed(tmp_path: Path, body: bytes) -> None:
    table = table_of(tmp_path)
    plan_rollback(table, Instant(AT, Action.COMMIT, State.INFLIGHT), [], body=body)
    (tmp_path / "t" / ".hoodie" / ".temp" / "20990101000000000").mkdir(parents=True)
    lakebed.open(table.uri).upsert(rows(AFTER[2]))
    assert content(table) == AFTER
    assert not [i for i in loaded(table)[1].instants if i.action is Action.ROLLBACK]


@pytest.mark.parametrize("version", [9, 6])
def test_a_plan_deletes_only_files_of_its_own_instant(tmp_path: Path, version: int) -> None:
    table = table_of(tmp_path, version)
    storage, timeline = loaded(table)
    _, others = files_of_last(timeline)
    dead = f"{int(timeline.greatest_time[:17]) + 1}"
    TimelineWriter(storage, timeline.config).request(Action.COMMIT, dead)
    TimelineWriter(storage, timeline.config).inflight(Action.COMMIT, dead)
    own = f"oslo/11111111-1111-4111-8111-111111111111-0_0-1-0_{dead}.parquet"
    storage.write(own, b"half")
    outside = tmp_path / f"f-0_0-1-0_{dead}.parquet"
    outside.write_bytes(b"not of the table")
    hostile = [*others, own, ".hoodie/hoodie.properties", f"../{outside.name}"]
    plan_rollback(table, Instant(dead, Action.COMMIT, State.INFLIGHT), hostile)
    left_behind(tmp_path, dead)
    lakebed.open(table.uri).upsert(rows(AFTER[2]))
    assert content(table) == AFTER
    assert outside.exists()
    assert storage.head(own) is None
    assert lakebed.open(table.uri).indexes.verify().ok


@pytest.mark.parametrize("in_lines", [False, True])
def test_markers_delete_only_files_of_their_own_instant(tmp_path: Path, in_lines: bool) -> None:
    table = table_of(tmp_path)
    storage, timeline = loaded(table)
    _, others = files_of_last(timeline)
    dead = f"{int(timeline.greatest_time[:17]) + 1}"
    TimelineWriter(storage, timeline.config).request(Action.COMMIT, dead)
    TimelineWriter(storage, timeline.config).inflight(Action.COMMIT, dead)
    own = f"oslo/11111111-1111-4111-8111-111111111111-0_0-1-0_{dead}.parquet"
    storage.write(own, b"half")
    outside = tmp_path / f"f-0_0-1-0_{dead}.parquet"
    outside.write_bytes(b"not of the table")
    named = [*others, own, ".hoodie/hoodie.properties"]
    markers = tmp_path / "t" / ".hoodie" / ".temp" / dead
    if in_lines:
        named += [f"../{outside.name}", f"/{outside}", f"oslo/../../{outside.name}"]
        markers.mkdir(parents=True)
        (markers / "MARKERS0").write_text("".join(f"{path}.marker.CREATE\n" for path in named))
    else:
        for path in named:
            (markers / path).parent.mkdir(parents=True, exist_ok=True)
            (markers / f"{path}.marker.CREATE").write_bytes(b"")
    left_behind(tmp_path, dead)
    for path in markers.rglob("*"):
        os.utime(path, (0, 0))
    os.utime(tmp_path / "t" / own, (0, 0))
    for path in others:
        os.utime(tmp_path / "t" / path, (0, 0))
    os.utime(tmp_path / "t" / ".hoodie" / "hoodie.properties", (0, 0))
    lakebed.open(table.uri).upsert(rows(AFTER[2]))
    assert content(table) == AFTER
    assert outside.exists()
    assert storage.head(own) is None
    assert not markers.exists()
    assert lakebed.open(table.uri).indexes.verify().ok


def test_blocks_in_log_files_of_version_6_are_hidden_and_the_file_stays(tmp_path: Path) -> None:
    table = table_of(tmp_path, 6)
    storage, timeline = loaded(table)
    dead = f"{int(timeline.greatest_time[:17]) + 1}"
    TimelineWriter(storage, timeline.config).request(Action.DELTACOMMIT, dead)
    TimelineWriter(storage, timeline.config).inflight(Action.DELTACOMMIT, dead)
    stem = f"oslo/.11111111-1111-4111-8111-111111111111-0_{timeline.commits[0].time}"
    log = f"{stem}.log.4_0-1-0"
    storage.write(log, b"blocks of several commits")
    for path in (log, f"{stem}.log.9_0-1-0"):  # the other one was not begun
        storage.write(f".hoodie/.temp/{dead}/{path}.marker.APPEND", b"")
    for path in (tmp_path / "t").rglob("*"):
        if dead in str(path) or path.name.startswith(".1111"):
            os.utime(path, (0, 0))
    assert lakebed.open(table.uri).upsert(rows(AFTER[2])).rolled_back == (dead,)
    assert storage.read(log) == b"blocks of several commits"
    _, timeline = loaded(table)
    rollback = next(i for i in timeline.instants if i.action is Action.ROLLBACK)
    hiding_log = f"{stem}.log.5_{token_of(rollback.time, 1, 1)}"
    hiding = storage.read(hiding_log)
    assert hiding == block_bytes(rollback_block(dead, rollback.time))
    assert [i.time for i in timeline.pending] == []
    assert list(storage.list(".hoodie/.temp")) == []
    (done,) = read_avro_file(storage.read(f".hoodie/{rollback.file_name}"))["partitionMetadata"].values()
    # Hudi's size of a log file of which the marker alone tells
    assert done["logFilesFromFailedCommit"] == {f"{stem}.log.{n}_0-1-0".removeprefix("oslo/"): 1 for n in (4, 9)}
    assert list(done["rollbackLogFiles"].values()) == [len(hiding)]
    listed = opened_metadata(table).files()
    named = dict(zip(listed["name"].to_pylist(), listed["size"].to_pylist(), strict=True))
    assert named[hiding_log.removeprefix("oslo/")] == len(hiding)
    assert named[log.removeprefix("oslo/")] == 25


class TestLinks:
    """What lies behind a link is not the table's."""

    @pytest.fixture
    def elsewhere(self, tmp_path: Path) -> Path:
        folder = tmp_path / "elsewhere"
        (folder / "below").mkdir(parents=True)
        (folder / "precious").write_bytes(b"1")
        (folder / "below" / "precious").write_bytes(b"2")
        return folder

    def test_a_marker_folder_that_is_a_link_is_not_emptied(self, tmp_path: Path, elsewhere: Path) -> None:
        table = table_of(tmp_path)
        storage, timeline = loaded(table)
        dead = f"{int(timeline.greatest_time[:17]) + 1}"
        TimelineWriter(storage, timeline.config).request(Action.COMMIT, dead)
        TimelineWriter(storage, timeline.config).inflight(Action.COMMIT, dead)
        left_behind(tmp_path, dead)
        temp = tmp_path / "t" / ".hoodie" / ".temp"
        (temp / dead).symlink_to(elsewhere)
        (temp / "20200101000000000").symlink_to(elsewhere)
        lakebed.open(table.uri).upsert(rows(AFTER[2]))
        assert content(table) == AFTER
        assert sorted(p.name for p in elsewhere.rglob("*")) == ["below", "precious", "precious"]
        assert not (temp / dead).is_symlink()

    def test_a_link_in_a_marker_folder_goes_without_what_it_leads_to(self, tmp_path: Path, elsewhere: Path) -> None:
        table = table_of(tmp_path)
        old = tmp_path / "t" / ".hoodie" / ".temp" / "20200101000000000"
        old.mkdir(parents=True)
        (old / "oslo").symlink_to(elsewhere)
        lakebed.open(table.uri).upsert(rows(AFTER[2]))
        assert not old.exists()
        assert sorted(p.name for p in elsewhere.rglob("*")) == ["below", "precious", "precious"]

    @pytest.mark.parametrize("name", [".temp", ".heartbeat", "timeline", "metadata"])
    def test_a_folder_of_the_table_that_is_a_link_is_refused(self, tmp_path: Path, elsewhere: Path, name: str) -> None:
        table = table_of(tmp_path)
        folder = tmp_path / "t" / ".hoodie" / name
        moved = elsewhere / name
        if folder.exists():
            folder.rename(moved)
        else:
            moved.mkdir()
        (moved / "20200101000000000").mkdir()
        (moved / "20200101000000000" / "precious").write_bytes(b"3")
        folder.symlink_to(moved)
        with pytest.raises(lakebed.LakebedError, match="is a link to another folder"):
            lakebed.open(table.uri).upsert(rows(AFTER[2]))
        assert (moved / "20200101000000000" / "precious").exists()

    @pytest.mark.parametrize("metadata", [True, False])
    def test_a_partition_that_is_a_link_loses_no_rows(self, tmp_path: Path, elsewhere: Path, metadata: bool) -> None:
        table = table_of(tmp_path)
        partition = tmp_path / "t" / "oslo"
        partition.rename(elsewhere / "oslo")
        partition.symlink_to(elsewhere / "oslo")
        opened = lakebed.open(table.uri, options={"hoodie.metadata.enable": metadata})
        if metadata:
            assert opened.scan().count() == 2
        else:
            with pytest.raises(StorageError, match="is a link to another folder"):
                opened.scan().count()
        before = sorted(p.name for p in elsewhere.rglob("*"))
        with pytest.raises(StorageError, match="is a link to another folder"):
            opened.upsert(rows((1, "oslo", "z", 9)))
        assert sorted(p.name for p in elsewhere.rglob("*")) == before

    def test_the_table_path_may_be_a_link(self, tmp_path: Path) -> None:
        table = table_of(tmp_path)
        (tmp_path / "linked").symlink_to(tmp_path / "t")
        lakebed.open(str(tmp_path / "linked")).upsert(rows(AFTER[2]))
        assert content(table) == AFTER


def look_everywhere(table: Table) -> None:
    storage, timeline = loaded(table)
    load_definitions(storage, timeline.config)
    assert timeline.archived().instants == ()


@pytest.mark.parametrize(
    ("key", "version"),
    [
        ("hoodie.timeline.path", 9),
        ("hoodie.timeline.history.path", 8),
        ("hoodie.archivelog.folder", 6),
        ("hoodie.table.index.defs.path", 9),
    ],
)
@pytest.mark.parametrize("path", ["../../../outside", "a/../../outside", "/outside"])
def test_folders_in_the_properties_that_lead_out_of_the_table_are_refused(
    tmp_path: Path, key: str, version: int, path: str
) -> None:
    table = table_of(tmp_path, version)
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    lines = [line for line in properties.read_text().splitlines() if not line.startswith(f"{key}=")]
    properties.write_text("\n".join([*lines, f"{key}={path}"]) + "\n")
    with pytest.raises(CorruptFile, match="leads out of the table"):
        look_everywhere(table)
