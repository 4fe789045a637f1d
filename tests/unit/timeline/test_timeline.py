"""What a timeline says beyond the listing: states, visibility, metadata on demand."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import pytest

from lakebed.errors import CorruptFile
from lakebed.model import Action, CommitMetadata, State, WriteStat
from lakebed.properties.file import create_table
from lakebed.properties.new_table import new_table_properties
from lakebed.properties.table_config import TableConfig
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage
from lakebed.timeline.bodies.commit import encode_commit
from lakebed.timeline.timeline import Timeline, load_timeline

T = [f"2026112111014968{n}" for n in range(10)]
BODY = encode_commit(
    CommitMetadata("UPSERT", {"p": (WriteStat("f-0", "p/.f-0_1.log.1_0-0-0", "p"),)}), 9, Action.COMMIT
)


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    name = uuid.uuid4().hex
    yield MemoryStorage(name)
    MemoryStorage.drop(name)


def timeline_of(storage: MemoryStorage, names: list[str], version: int = 9) -> Timeline:
    config = create_table(storage, new_table_properties(name="t", version=version))
    for name in names:
        storage.write(f"{config.timeline_path}/{name}", BODY if version >= 8 and name.endswith("commit") else b"")
    return load_timeline(storage, config)


def test_the_highest_state_of_each_action_is_shown_once(storage: MemoryStorage) -> None:
    timeline = timeline_of(
        storage,
        [
            f"{T[0]}.commit.requested",
            f"{T[0]}.inflight",
            f"{T[0]}_{T[1]}.commit",
            f"{T[2]}.compaction.requested",
            f"{T[2]}.compaction.inflight",
            f"{T[3]}.clustering.requested",
            f"{T[4]}.commit.requested",
            f"{T[4]}.inflight",
            f"{T[0]}.savepoint.inflight",
            f"{T[0]}_{T[5]}.savepoint",
            f"{T[6]}.commit.requested.{uuid.uuid4()}",
            f".{T[0]}_{T[1]}.commit.crc",
            "history/manifest_1",
        ],
    )
    assert [(i.time, i.action, i.state, i.completion_time) for i in timeline.instants] == [
        (T[0], Action.COMMIT, State.COMPLETED, T[1]),
        (T[0], Action.SAVEPOINT, State.COMPLETED, T[5]),
        (T[2], Action.COMPACTION, State.INFLIGHT, None),
        (T[3], Action.CLUSTERING, State.REQUESTED, None),
        (T[4], Action.COMMIT, State.INFLIGHT, None),
    ]
    assert [i.time for i in timeline.pending] == [T[2], T[3], T[4]]
    assert [i.time for i in timeline.commits] == [T[0]]
    assert timeline.last_completed == timeline.commits[0]
    assert timeline.completion_time(T[0]) == T[1], "the commit's, not the savepoint's"
    assert timeline.greatest_time == T[5]


def test_an_empty_timeline_has_no_instants_and_no_times(storage: MemoryStorage) -> None:
    timeline = timeline_of(storage, [])
    assert (timeline.instants, timeline.start, timeline.last_completed, timeline.greatest_time) == ((), None, None, "")
    assert not timeline.is_committed(T[0])
    assert timeline.completion_time(T[0]) is None
    assert timeline.archived().instants == ()


def test_archived_instants_are_committed_and_pending_ones_are_not(storage: MemoryStorage) -> None:
    timeline = timeline_of(
        storage, [f"{T[2]}.commit.requested", f"{T[2]}.inflight", f"{T[4]}_{T[5]}.commit", f"{T[7]}.clean.requested"]
    )
    assert timeline.start == T[4]
    visible = {time for time in T if timeline.is_committed(time)}
    # Older than the first commit is archived; a pending instant is not, however old.
    assert visible == {T[0], T[1], T[3], T[4]}
    assert timeline.is_completed(T[4])
    assert not timeline.is_completed(T[0])


def test_the_first_pending_write_shows_nothing(storage: MemoryStorage) -> None:
    timeline = timeline_of(storage, [f"{T[1]}.commit.requested", f"{T[1]}.inflight"])
    assert not timeline.is_committed(T[1])


def test_archival_may_have_passed_savepoints(storage: MemoryStorage) -> None:
    timeline = timeline_of(
        storage,
        [f"{T[0]}_{T[1]}.commit", f"{T[0]}_{T[2]}.savepoint", f"{T[5]}_{T[6]}.commit", f"{T[3]}_{T[4]}.restore"],
    )
    assert timeline.start == T[5]
    assert timeline.is_committed(T[3])


def test_a_legacy_completed_file_completed_when_it_was_modified(storage: MemoryStorage) -> None:
    timeline = timeline_of(storage, [f"{T[0]}.commit"])
    (instant,) = timeline.instants
    assert instant.completion_time is not None
    assert len(instant.completion_time) == 17
    assert instant.completion_time.startswith("20")


def test_version_6_has_no_completion_times(storage: MemoryStorage) -> None:
    timeline = timeline_of(storage, [f"{T[0]}.commit", f"{T[0]}.inflight", f"{T[1]}_{T[2]}.commit"], version=6)
    assert [(i.time, i.completion_time) for i in timeline.instants] == [(T[0], None)]
    assert timeline.completion_time(T[0]) is None
    assert timeline.is_committed(T[0])


def test_metadata_is_read_once_for_all_timelines(storage: MemoryStorage) -> None:
    timeline_of(storage, [f"{T[0]}_{T[1]}.commit", f"{T[2]}_{T[3]}.commit"])
    counting = CountingStorage(storage)
    config = TableConfig(new_table_properties(name="t"))
    for _ in range(3):
        timeline = load_timeline(counting, config)
        metas = timeline.commits_metadata(timeline.commits)
        assert [meta.operation for meta in metas] == ["UPSERT", "UPSERT"]
        assert timeline.replaced_files == {}
    assert counting.counts["read"] == 2
    assert counting.counts["list"] == 3


def test_a_body_of_the_same_name_is_read_again_where_the_name_is_ambiguous(storage: MemoryStorage) -> None:
    timeline = timeline_of(storage, [f"{T[0]}.commit"], version=6)
    for operation in ("UPSERT", "BULK_INSERT"):
        body = encode_commit(CommitMetadata(operation), 6, Action.COMMIT)
        storage.write(f"{timeline.config.timeline_path}/{T[0]}.commit", body)
        timeline = load_timeline(storage, timeline.config)
        assert timeline.commit_metadata(timeline.commits[0]).operation == operation


@pytest.mark.parametrize("version", [9, 6])
def test_instants_that_came_and_went_since_the_last_listing_are_seen(storage: MemoryStorage, version: int) -> None:
    """A listing that builds on the one before shows what one from scratch does."""
    files = random.Random(version)
    config = create_table(storage, new_table_properties(name="t", version=version))
    done = "{0}_{0}" if version == 9 else "{0}"
    forms = [
        "{0}.commit.requested",
        "{0}.inflight",
        f"{done}.commit",
        "{0}.clean.requested",
        f"{done}.clean",
        ".{0}.crc",
    ]
    every = [f"{config.timeline_path}/{form.format(time)}" for time in T for form in forms]
    for _ in range(200):
        if files.random() < 0.8:
            storage.write(files.choice(every), b"")
        else:
            storage.delete(files.choice(every))
        fresh = MemoryStorage(uuid.uuid4().hex)
        for info in storage.list():
            fresh.write(info.path, storage.read(info.path))
        seen, expected = load_timeline(storage, config), load_timeline(fresh, config)
        assert seen.instants == expected.instants
        assert dict(seen.requested) == dict(expected.requested)
        assert seen.files.keys() == expected.files.keys()
        MemoryStorage.drop(fresh.url().removeprefix("memory://").rstrip("/"))


def test_an_empty_or_broken_commit_is_an_error_that_names_it(storage: MemoryStorage) -> None:
    timeline = timeline_of(storage, [f"{T[0]}_{T[1]}.clean", f"{T[2]}_{T[3]}.commit", f"{T[4]}_{T[5]}.commit"])
    storage.write(f".hoodie/timeline/{T[2]}_{T[3]}.commit", b"")
    with pytest.raises(CorruptFile, match=f"{T[2]}_{T[3]}.commit is empty"):
        timeline.commit_metadata(timeline.commits[0])
    storage.write(f".hoodie/timeline/{T[4]}_{T[5]}.commit", b"{not json")
    with pytest.raises(CorruptFile, match=f"timeline/{T[4]}_{T[5]}.commit"):
        timeline.commit_metadata(timeline.commits[1])


def test_json_on_a_newer_table_is_read_as_an_upgrade_left_it(storage: MemoryStorage) -> None:
    timeline = timeline_of(storage, [f"{T[0]}.commit"])
    body = encode_commit(CommitMetadata("INSERT", extra={"schema": "s"}), 6, Action.COMMIT)
    storage.write(f".hoodie/timeline/{T[0]}.commit", body)
    assert timeline.commit_metadata(timeline.commits[0]).schema == "s"


def test_plans_come_from_the_requested_file(storage: MemoryStorage) -> None:
    timeline = timeline_of(storage, [f"{T[0]}_{T[1]}.commit", f"{T[0]}.commit.requested"])
    assert timeline.plan(timeline.commits[0]) == {}
