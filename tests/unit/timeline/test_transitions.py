"""Moving instants on: exactly once, also when storage does not answer."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakebed.errors import CommitConflict, CommitStateUnknown, StorageError
from lakebed.model import Action, Instant, State
from lakebed.properties.file import create_table
from lakebed.properties.new_table import new_table_properties
from lakebed.properties.table_config import TableConfig
from lakebed.storage import atomic_file
from lakebed.storage.base import Durable
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import FaultPlan, FaultyStorage, Killed
from lakebed.timeline.timeline import load_timeline
from lakebed.timeline.transitions import TimelineWriter

T, C = "20261121110149683", "20261121110150908"
BODY = b"{} writer 1"


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    name = uuid.uuid4().hex
    yield MemoryStorage(name)
    MemoryStorage.drop(name)


@pytest.fixture(params=[9, 8, 6])
def config(storage: MemoryStorage, request: pytest.FixtureRequest) -> TableConfig:
    return create_table(storage, new_table_properties(name="t", version=request.param))


def files(storage: MemoryStorage, config: TableConfig) -> set[str]:
    names = {info.path.rpartition("/")[2] for info in storage.list(config.timeline_path, recursive=False)}
    return names - {"hoodie.properties"}


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT, Action.ROLLBACK])
def test_an_instant_goes_through_its_states(storage: MemoryStorage, config: TableConfig, action: Action) -> None:
    writer = TimelineWriter(storage, config)
    requested = writer.request(action, T)
    assert load_timeline(storage, config).instants == (requested,)
    inflight = writer.inflight(action, T)
    assert load_timeline(storage, config).instants == (inflight,)
    done = writer.complete(action, T, C, BODY)
    assert load_timeline(storage, config).instants == (done,)
    assert [i.state for i in (requested, inflight, done)] == list(State)
    assert {(i.time, i.action) for i in (requested, inflight, done)} == {(T, action)}
    assert done.completion_time == (C if config.version >= 8 else None)
    assert len(files(storage, config)) == 3


def test_a_requested_file_without_a_body_is_made_to_last_by_the_inflight_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(str(tmp_path))
    config = create_table(storage, new_table_properties(name="t", version=9))
    writer = TimelineWriter(storage, config)
    storage.make_folder(config.timeline_path)
    synced: list[str] = []
    monkeypatch.setattr(atomic_file.os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    writer.request(Action.DELTACOMMIT, T)
    assert synced == []
    writer.inflight(Action.DELTACOMMIT, T)
    assert synced == [str(tmp_path / config.timeline_path)]
    writer.request(Action.COMPACTION, C, b"plan")  # others run it
    assert len(synced) == 3


def test_a_compaction_completes_as_a_commit(storage: MemoryStorage, config: TableConfig) -> None:
    writer = TimelineWriter(storage, config)
    writer.request(Action.COMPACTION, T, b"plan")
    writer.inflight(Action.COMPACTION, T)
    done = writer.complete(Action.COMPACTION, T, C, BODY)
    assert done.action is Action.COMMIT
    assert load_timeline(storage, config).instants == (done,)


def test_a_time_is_claimed_once(storage: MemoryStorage, config: TableConfig) -> None:
    TimelineWriter(storage, config).request(Action.COMMIT, T)
    with pytest.raises(CommitConflict, match="another writer has created"):
        TimelineWriter(storage, config).request(Action.COMMIT, T)


def test_pending_files_go_inflight_first(storage: MemoryStorage, config: TableConfig) -> None:
    faulty = FaultyStorage(storage)
    writer = TimelineWriter(faulty, config)
    writer.request(Action.COMMIT, T)
    pending = writer.inflight(Action.COMMIT, T)
    writer.remove_pending(pending)
    assert files(storage, config) == set()
    deleted = [mutation.path for mutation in faulty.mutations if mutation.verb == "delete"]
    assert [path.rpartition("/")[2] for path in deleted] == [f"{T}.inflight", f"{T}.commit.requested"]


def test_a_rolled_back_instant_cannot_complete(storage: MemoryStorage, config: TableConfig) -> None:
    writer = TimelineWriter(storage, config)
    writer.request(Action.COMMIT, T)
    writer.remove_pending(writer.inflight(Action.COMMIT, T))
    with pytest.raises(CommitConflict, match="rolled it back"):
        writer.complete(Action.COMMIT, T, C, BODY)
    assert files(storage, config) == set()


def pending_writer(storage: Any, config: TableConfig) -> TimelineWriter:
    writer = TimelineWriter(storage, config)
    writer.request(Action.COMMIT, T)
    writer.inflight(Action.COMMIT, T)
    return writer


@pytest.mark.parametrize("mode", ["doubtful", "lost"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_answer_in_doubt_is_settled(storage: MemoryStorage, config: TableConfig, at: int, mode: Any) -> None:
    faulty = FaultyStorage(storage, FaultPlan(at, mode))
    done = pending_writer(faulty, config).complete(Action.COMMIT, T, C, BODY)
    assert faulty.crash.fired
    assert load_timeline(storage, config).instants == (done,)
    assert storage.read(f"{config.timeline_path}/{done.file_name}") == BODY


def test_a_refused_put_is_no_commit(storage: MemoryStorage, config: TableConfig) -> None:
    writer = pending_writer(FaultyStorage(storage, FaultPlan(3, "fail")), config)
    with pytest.raises(StorageError, match="failed as planned"):
        writer.complete(Action.COMMIT, T, C, BODY)
    assert [i.state for i in load_timeline(storage, config).instants] == [State.INFLIGHT]


class Unreachable(FaultyStorage):
    """From the first doubtful put on nothing answers; the put itself may have worked."""

    def __init__(self, inner: MemoryStorage, *, worked: bool) -> None:
        super().__init__(inner)
        self.worked = worked
        self.gone = False

    def _silence(self) -> StorageError:
        return StorageError("no answer", context={"doubtful": True})

    def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
        if data and not self.gone:
            self.gone = True
            if self.worked:
                super().put_if_absent(path, data, durable=durable)
        if self.gone:
            raise self._silence()
        return super().put_if_absent(path, data, durable=durable)

    def read(self, path: str) -> bytes:
        if self.gone:
            raise StorageError("no answer")
        return super().read(path)


@pytest.mark.parametrize("worked", [True, False])
def test_an_unsettled_transition_is_an_error(storage: MemoryStorage, config: TableConfig, worked: bool) -> None:
    unreachable = Unreachable(storage, worked=worked)
    writer = pending_writer(unreachable, config)
    before = len(unreachable.mutations)
    with pytest.raises(CommitStateUnknown, match=T) as caught:
        writer.complete(Action.COMMIT, T, C, BODY)
    assert caught.value.instant == T
    assert all(mutation.verb != "delete" for mutation in unreachable.mutations[before:])
    state = State.COMPLETED if worked else State.INFLIGHT
    assert [i.state for i in load_timeline(storage, config).instants] == [state]


def test_the_caller_of_a_rollback_runs_it_again(storage: MemoryStorage, config: TableConfig) -> None:
    writer = TimelineWriter(Unreachable(storage, worked=True), config)
    writer.request(Action.ROLLBACK, T)
    writer.inflight(Action.ROLLBACK, T)
    with pytest.raises(StorageError):
        writer.complete(Action.ROLLBACK, T, C, BODY)


def test_another_writers_completed_file_is_a_conflict(storage: MemoryStorage, config: TableConfig) -> None:
    pending_writer(storage, config).complete(Action.COMMIT, T, C, b"{} writer 2")
    with pytest.raises(CommitConflict, match="another writer has created"):
        TimelineWriter(storage, config).complete(Action.COMMIT, T, C, BODY)


def test_a_client_that_retried_by_itself_has_committed(storage: MemoryStorage, config: TableConfig) -> None:
    """Its second try is told that the file exists; the bytes tell that it is ours."""
    done = pending_writer(storage, config).complete(Action.COMMIT, T, C, BODY)
    assert TimelineWriter(storage, config).complete(Action.COMMIT, T, C, BODY) == done


@pytest.mark.every_case
@pytest.mark.parametrize("mode", ["kill", "torn", "unacknowledged"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_killed_writer_leaves_a_readable_timeline(
    storage: MemoryStorage, config: TableConfig, at: int, mode: Any
) -> None:
    faulty = FaultyStorage(storage, FaultPlan(at, mode))
    with pytest.raises(Killed):
        pending_writer(faulty, config).complete(Action.COMMIT, T, C, BODY)
    shown = {i.state for i in load_timeline(storage, config).instants}
    reached = at if mode == "unacknowledged" else at - 1
    assert shown == ({State(reached - 1)} if reached else set())


def test_removing_a_missing_instant_changes_nothing(storage: MemoryStorage, config: TableConfig) -> None:
    TimelineWriter(storage, config).remove_pending(Instant(T, Action.COMMIT, State.INFLIGHT))
    assert files(storage, config) == set()
