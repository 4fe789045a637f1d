"""Instants moved to the archive, read back with the archive's reader, beside the files of real Hudi."""

from __future__ import annotations

import io
import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import sleep
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakebed.errors import CommitConflict
from lakebed.format.avro.encoder import write_avro_file
from lakebed.format.log_file import avro_records, read_blocks
from lakebed.model import Action, CommitMetadata, FileSlice, Instant
from lakebed.properties.file import create_table
from lakebed.properties.new_table import new_table_properties
from lakebed.properties.table_config import TableConfig
from lakebed.storage.base import Storage
from lakebed.storage.folder import WrappedStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage
from lakebed.timeline import archive_writer
from lakebed.timeline.archive import LsmHistory
from lakebed.timeline.archive_writer import archive
from lakebed.timeline.bodies.commit import encode_commit
from lakebed.timeline.bodies.encoding import schema_text
from lakebed.timeline.bodies.plans import (
    CleanPlan,
    CompactionPlan,
    clean_body,
    clean_files,
    compaction_body,
    compaction_operations,
    encode_clean_metadata,
)
from lakebed.timeline.bodies.rollback import (
    RollbackPlan,
    clustering_groups,
    decode_action,
    encode_requested_replace,
    encode_rollback_metadata,
    encode_rollback_plan,
)
from lakebed.timeline.instants import parse_instant_file
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.timeline.transitions import TimelineWriter
from support.golden_tables import golden
from support.locks import held

VERSIONS = [9, 6]


class Table:
    def __init__(self, version: int) -> None:
        self.storage: Storage = MemoryStorage(f"archive-{uuid.uuid4().hex}")
        properties = new_table_properties(name="t", table_type="mor", version=version, key_fields=["id"])
        self.config: TableConfig = create_table(self.storage, properties)
        self.second = 0

    @property
    def timeline(self) -> Timeline:
        return load_timeline(self.storage, self.config)

    def add(self, action: Action, requested: bytes = b"", inflight: bytes = b"", completed: bytes = b"") -> Instant:
        self.second += 2
        time = f"202601010000{self.second // 60:02d}{self.second % 60:02d}000"[:17].ljust(17, "0")
        steps = TimelineWriter(self.storage, self.config)
        steps.request(action, time, requested)
        steps.inflight(action, time, inflight)
        body = completed or encode_commit(CommitMetadata("UPSERT", extra={"n": time}), self.config.version, action)
        return steps.complete(action, time, str(int(time) + 1000), body)


class Interrupted(WrappedStorage):
    """A storage whose process stands still before its `at`-th change (from 1), while `meanwhile` happens."""

    def __init__(self, inner: Storage, at: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self.changes: list[str] = []
        self._at, self._meanwhile = at, meanwhile

    def _before(self, verb: str, path: str) -> None:
        if verb in ("write", "put_if_absent", "put_if_match", "delete"):
            self.changes.append(f"{verb} {path}")
            if len(self.changes) == self._at:
                self._meanwhile()


class Remote(WrappedStorage):
    """A storage far away whose first deletion of a completed instant takes longest; `left` has the completed ones that
    were there after each."""

    def __init__(self, inner: Storage, folder: str) -> None:
        super().__init__(inner)
        self.left: list[list[str]] = []
        self._folder = folder
        self._is_first = True

    def url(self, path: str = "") -> str:
        return f"s3a://far/{path}"

    def delete(self, path: str, *, durable: bool = True) -> bool:
        if path.endswith(".deltacommit") and self._is_first:
            self._is_first = False
            sleep(0.02)
        done = super().delete(path, durable=durable)
        self.left.append([name for name in self.list_names(self._folder) if name.endswith(".deltacommit")])
        return done


@pytest.mark.parametrize("version", VERSIONS)
def test_completed_instants_go_from_the_oldest_on(version: int) -> None:
    """Wherever a listing falls, no commit is missing between two that it shows."""
    table = Table(version)
    added = [table.add(Action.DELTACOMMIT) for _ in range(6)]
    names = [instant.file_name for instant in added]
    table.storage = far = Remote(table.storage, table.config.timeline_path)
    archive(table.timeline, added[:5], held)
    assert [names[-len(left) :] for left in far.left] == far.left
    assert far.left[-1] == names[-1:]


@pytest.mark.parametrize("version", VERSIONS)
def test_many_archivals_keep_every_instant(version: int) -> None:
    table = Table(version)
    added = [table.add(Action.DELTACOMMIT) for _ in range(26)]
    for instant in added[:-1]:
        archive(table.timeline, [instant], held)
    timeline = table.timeline
    assert [i.time for i in timeline.instants] == [added[-1].time]
    archived = timeline.archived()
    assert [(i.time, i.action) for i in archived.instants] == [(i.time, Action.DELTACOMMIT) for i in added[:-1]]
    assert archived.commit_metadata(added[3].time).extra["n"] == added[3].time
    if version >= 8:
        assert [i.completion_time for i in archived.instants] == [str(int(i.time) + 1000) for i in added[:-1]]
        names = [info.path.rpartition("/")[2] for info in table.storage.list(table.config.archive_folder)]
        # two files of the next level and five of the first, and those that the kept manifests name besides
        assert sum(name.endswith("_1.parquet") for name in names) == 2
        assert sum(name.startswith("manifest_") for name in names) == 3
        assert sum(name.endswith("_0.parquet") for name in names) == 5


def test_an_archival_opens_no_history_file_of_earlier_instants() -> None:
    table = Table(9)
    added = [table.add(Action.DELTACOMMIT) for _ in range(6)]
    for instant in added[:4]:
        archive(table.timeline, [instant], held)
    files = [name for name in table.storage.list_names(table.config.archive_folder) if name.endswith(".parquet")]
    assert len(files) == 4
    table.storage = counting = CountingStorage(table.storage)
    archive(table.timeline, added[4:], held)
    assert not set(files) & {path.rpartition("/")[2] for path in counting.opened}
    archived = table.timeline.archived()
    between = archived.instants_between(added[2].time, added[3].time)
    assert [i.time for i in between] == [added[2].time, added[3].time]
    assert [i.time for i in archived.instants] == [i.time for i in added]


@pytest.mark.parametrize("version", VERSIONS)
def test_names_on_the_timeline_are_parsed_equally_often_for_few_and_many_archived_instants(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []

    def counted(name: str, table_version: int) -> Any:
        parsed.append(name)
        return parse_instant_file(name, table_version)

    monkeypatch.setattr(archive_writer, "parse_instant_file", counted)
    times: list[float] = []
    for many in (10, 60):
        table = Table(version)
        added = [table.add(Action.DELTACOMMIT) for _ in range(many)]
        timeline = table.timeline
        parsed.clear()
        archive(timeline, added, held)
        times.append(len(parsed) / len(timeline.files))
    assert times[1] <= times[0] + 1


@pytest.mark.parametrize("version", VERSIONS)
def test_an_archival_that_was_cut_off(version: int) -> None:
    table = Table(version)
    added = [table.add(Action.DELTACOMMIT) for _ in range(4)]
    files = {info.path: table.storage.read(info.path) for info in table.storage.list(table.config.timeline_path)}
    archive(table.timeline, added[:2], held)
    for path, body in files.items():
        table.storage.write(path, body)
    archive(table.timeline, added[:3], held)
    assert [i.time for i in table.timeline.instants] == [added[3].time]
    assert [i.time for i in table.timeline.archived().instants] == [i.time for i in added[:3]]


def check_archive(table: Table, added: Sequence[Instant]) -> None:
    """Every instant is on one of the timelines, with its body."""
    timeline = table.timeline
    archived = timeline.archived()
    assert {i.time for i in (*timeline.completed, *archived.instants)} == {i.time for i in added}
    for instant in archived.instants:
        assert archived.commit_metadata(instant.time).extra["n"] == instant.time


def archived_in_part(version: int) -> tuple[Mapping[str, bytes], list[Instant]]:
    """The files of a table whose first instants are archived, as many as one fewer than become one file; and all its
    instants."""
    table = Table(version)
    added = [table.add(Action.DELTACOMMIT) for _ in range(18)]
    for instant in added[:9]:
        archive(table.timeline, [instant], held)
    return {info.path: table.storage.read(info.path) for info in table.storage.list()}, added


def copy_of(files: Mapping[str, bytes], version: int) -> Table:
    table = Table(version)
    for path, data in files.items():
        table.storage.write(path, data)
    return table


def points(changes: Sequence[str]) -> list[int]:
    """The changes of storage (from 1) with the first and last deletion of each folder for all of them."""
    deletions: dict[str, list[int]] = {}
    for at, change in enumerate(changes, 1):
        if change.startswith("delete"):
            deletions.setdefault(change.rpartition("/")[0], []).append(at)
    ends = {at for found in deletions.values() for at in (found[0], found[-1])}
    return [at for at, change in enumerate(changes, 1) if at in ends or not change.startswith("delete")]


@pytest.mark.parametrize("is_noticed", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_archival_that_another_process_overtakes_loses_no_instant(version: int, is_noticed: bool) -> None:
    """It stands still before a change of storage for longer than its lock is valid, and another process archives more;
    not noticed: it asked for its lock right before."""
    files, added = archived_in_part(version)

    def overtaken(at: int) -> tuple[Table, list[str], bool]:
        table, is_held = copy_of(files, version), [True]
        inner = table.storage

        def meanwhile() -> None:
            table.storage, is_held[0] = inner, not is_noticed
            for last in (14, 16):
                archive(table.timeline, [i for i in table.timeline.completed if i.time <= added[last].time], held)

        table.storage = interrupted = Interrupted(inner, at, meanwhile)
        try:
            archive(table.timeline, added[9:12], lambda: is_held[0])
        except CommitConflict:
            return table, interrupted.changes, False
        return table, interrupted.changes, True

    ends = set[bool]()
    for at in points(overtaken(0)[1]):
        table, changes, is_done = overtaken(at)
        ends.add(is_done)
        try:
            check_archive(table, added)
            archive(table.timeline, table.timeline.completed, held)
            check_archive(table, added)
        except Exception as error:
            error.add_note(f"overtaken before {changes[at - 1]}")
            raise
    assert ends == {True, False}


@pytest.mark.parametrize("limit", [1, 200_000, 1 << 30])
def test_files_of_the_history_become_one_up_to_a_number_of_bytes(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are larger stay, and do not keep smaller ones apart."""
    monkeypatch.setattr(archive_writer, "_MERGED_BYTES", limit)
    monkeypatch.setattr(archive_writer, "_GROUP_BYTES", 40_000)
    table = Table(9)
    added: list[Instant] = []
    for number in range(24):
        noise = random.Random(number).randbytes(200_000 if number in (0, 5) else 100).hex()
        body = CommitMetadata("UPSERT", extra={"n": "", "noise": noise})
        added.append(table.add(Action.COMMIT, completed=encode_commit(body, 9, Action.COMMIT)))
        archive(table.timeline, added[-1:], held)
    archived = table.timeline.archived()
    assert [i.time for i in archived.instants] == [i.time for i in added]
    sizes = [len(archived.commit_metadata(i.time).extra["noise"]) for i in added]
    assert sizes == [400_000 if n in (0, 5) else 200 for n in range(24)]
    files = LsmHistory(table.storage, table.config).files
    levels = Counter(file.name[-9] for file in files)
    assert levels == {1: {"0": 24}, 200_000: {"0": 4, "1": 3}, 1 << 30: {"0": 4, "1": 2}}[limit]


@pytest.mark.parametrize("version", VERSIONS)
def test_plans_and_results_of_services(version: int) -> None:
    table = Table(version)
    plan = compaction_body(CompactionPlan((FileSlice("p", "f", "1", None),))).encode()
    compaction = table.add(Action.COMPACTION, plan)
    clean_plan = clean_body("file:///t", CleanPlan({"p": ["gone"]})).encode()
    clean = table.add(Action.CLEAN, clean_plan, completed=encode_clean_metadata("1", decode_action(clean_plan), 5))
    target = Instant("1", Action.DELTACOMMIT, compaction.state)
    undone = encode_rollback_metadata("file:///t", RollbackPlan(target, ("p/f",)), "2", [], 1)
    rollback = table.add(
        Action.ROLLBACK, encode_rollback_plan("file:///t", RollbackPlan(target, ("p/f",))), completed=undone
    )
    archive(table.timeline, [compaction, clean, rollback], held)
    archived = table.timeline.archived()
    assert {(i.time, i.action) for i in archived.instants} == {
        (compaction.time, Action.COMMIT),
        (clean.time, Action.CLEAN),
        (rollback.time, Action.ROLLBACK),
    }
    assert [o.file_id for o in compaction_operations(archived.plan(compaction.time))] == ["f"]
    assert clean_files(archived.plan(clean.time)) == {"p": ["gone"]}
    assert archived.commit_metadata(compaction.time).operation == "UPSERT"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_plan_of_a_replacecommit_is_archived(version: int) -> None:
    table = Table(version)
    slices = [{"fileId": "f1", "partitionPath": "p"}]
    plan = write_avro_file(
        schema_text("HoodieRequestedReplaceMetadata"),
        {"operationType": "CLUSTER", "clusteringPlan": {"inputGroups": [{"slices": slices, "numOutputFileGroups": 1}]}},
    )
    clustering = table.add(Action.REPLACECOMMIT, plan)
    deleted = table.add(Action.REPLACECOMMIT, encode_requested_replace("DELETE_PARTITION"))
    profile = encode_commit(CommitMetadata("INSERT_OVERWRITE"), version, Action.COMMIT)
    overwritten = table.add(Action.REPLACECOMMIT, encode_requested_replace(None), inflight=profile)
    archive(table.timeline, [clustering, deleted, overwritten], held)
    archived = table.timeline.archived()
    assert clustering_groups(archived.plan(clustering.time)) == {("p", "f1")}
    assert archived.plan(deleted.time)["operationType"] == "DELETE_PARTITION"
    assert archived.commit_metadata(clustering.time).extra["n"] == clustering.time
    if version >= 8:  # an inflight body stands for the requested one, which says less
        assert archived.plan(overwritten.time)["operationType"] == "INSERT_OVERWRITE"


def test_a_pending_replacecommit_has_its_own_fields_in_the_log_archive() -> None:
    table = Table(6)
    profile = encode_commit(CommitMetadata("INSERT_OVERWRITE"), 6, Action.COMMIT)
    instant = table.add(Action.REPLACECOMMIT, encode_requested_replace("DELETE_PARTITION"), inflight=profile)
    plan = clean_body("file:///t", CleanPlan({"p": ["gone"]})).encode()
    clean = table.add(Action.CLEAN, plan, completed=encode_clean_metadata("1", decode_action(plan), 5))
    commits = [table.add(Action.COMMIT) for _ in range(3)]
    archive(table.timeline, [instant, clean, *commits], held)
    (path,) = [i.path for i in table.storage.list(table.config.archive_folder)]
    blocks = [list(avro_records(b)) for b in read_blocks(table.storage.read(path))]
    assert [len(block) for block in blocks] == [10, 5]
    entries = [entry for block in blocks for entry in block]
    bodies = [{k for k, v in entry.items() if v is not None and "oodie" in k} for entry in entries[:6]]
    assert bodies == [
        {"hoodieRequestedReplaceMetadata"},
        {"HoodieInflightReplaceMetadata"},
        {"hoodieReplaceCommitMetadata"},
        {"hoodieCleanerPlan"},
        {"hoodieCleanerPlan"},
        {"hoodieCleanMetadata"},
    ]
    assert entries[0]["hoodieRequestedReplaceMetadata"]["operationType"] == "DELETE_PARTITION"
    assert entries[1]["HoodieInflightReplaceMetadata"]["operationType"] == "INSERT_OVERWRITE"


def test_history_files_are_as_hudi_writes_them() -> None:
    files = golden("v9_cow_archival").files()
    name = next(n for n in files if "/timeline/history/" in n and n.endswith("_0.parquet"))
    theirs = pq.ParquetFile(io.BytesIO(files[name]))
    table = Table(9)
    instant = table.add(Action.COMMIT)
    archive(table.timeline, [instant], held)
    (path,) = [i.path for i in table.storage.list(table.config.archive_folder) if i.path.endswith(".parquet")]
    ours = pq.ParquetFile(io.BytesIO(table.storage.read(path)))
    assert ours.schema_arrow == theirs.schema_arrow
    assert ours.metadata.metadata[b"parquet.avro.schema"] == theirs.metadata.metadata[b"parquet.avro.schema"]
    assert ours.metadata.row_group(0).column(0).compression == "GZIP"


def test_entries_of_the_log_archive_are_those_of_hudi() -> None:
    files = golden("v6_cow_archival").files()
    name = next(n for n in sorted(files) if "/metadata/" in n and ".commits_.archive.1" in n)
    theirs = [r for b in read_blocks(files[name]) for r in avro_records(b)]
    table = Table(6)
    instant = table.add(Action.DELTACOMMIT)
    archive(table.timeline, [instant], held)
    (path,) = [i.path for i in table.storage.list(table.config.archive_folder)]
    ours = [r for b in read_blocks(table.storage.read(path)) for r in avro_records(b)]
    assert path.endswith("/.commits_.archive.1_1-0-1")

    def filled(entries: list[dict[str, object]]) -> list[set[str]]:
        return [{k for k, v in entry.items() if v is not None} - {"version"} for entry in entries]

    assert filled(ours) == filled(theirs)
    assert [e["actionState"] for e in ours] == [e["actionState"] for e in theirs]
    assert ours[0]["hoodieCommitMetadata"]["operationType"] == theirs[0]["hoodieCommitMetadata"]["operationType"]
