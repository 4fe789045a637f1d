"""What a timeline's folder says is the same, taken in bit by bit or at once; what is known is not parsed again."""

from __future__ import annotations

import random

import pytest

from lakebed.model import Action
from lakebed.properties.table_config import TableConfig
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline import timeline as timeline_module
from lakebed.timeline.instants import completed_name, inflight_name, parse_instant_file, requested_name
from lakebed.timeline.timeline import Timeline, TimelineFiles, load_timeline

WRITES = [Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT, Action.COMPACTION, Action.CLUSTERING]
OTHERS = [Action.CLEAN, Action.ROLLBACK, Action.INDEXING, Action.RESTORE]


_LAYOUT = {"hoodie.timeline.layout.version": "2", "hoodie.timeline.path": "timeline"}


def config(version: int) -> TableConfig:
    return TableConfig({"hoodie.table.name": "t", "hoodie.table.version": str(version), **_LAYOUT})


def listed(files: TimelineFiles, config: TableConfig, before: Timeline | None = None) -> Timeline:
    return Timeline.of_files(MemoryStorage("listed"), config, files, before)


def facts(shown: Timeline) -> dict[str, object]:
    found = {name: value for name, value in vars(shown).items() if name not in ("storage", "config")}
    return {**found, "files": set(shown.files), "highest": dict(shown.highest), "requested": dict(shown.requested)}


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("seed", range(20))
def test_a_timeline_updated_in_steps_equals_one_that_is_read_at_once(seed: int, version: int) -> None:
    chance = random.Random(seed)
    waiting: list[list[str]] = []
    files: dict[str, None] = {}
    shown = listed({}, config(version))
    for n in range(60):
        time, action = f"202611221200{n:05d}", chance.choice(WRITES)
        if n % 3 == 2:  # a savepoint has the time of a commit
            time, action = (f"202611221200{n - 1:05d}", Action.SAVEPOINT) if n % 2 else (time, chance.choice(OTHERS))
        completion = f"202611221201{chance.randrange(60):05d}"
        waiting.append(
            [
                requested_name(action, time, version),
                inflight_name(action, time, version),
                completed_name(action, time, completion, version),
            ]
        )
        for _ in range(chance.randrange(4)):
            steps = chance.choice(waiting)
            if steps:
                files[steps.pop(0)] = None
        if files and chance.random() < 0.1:  # rolled back or archived
            del files[chance.choice(list(files))]
        if chance.random() < 0.5:
            shown = listed(dict(files), config(version), shown)
            assert facts(shown) == facts(listed(dict(files), config(version)))


def test_only_new_files_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counted(name: str, version: int) -> object:
        parsed.append(name)
        return parse_instant_file(name, version)

    monkeypatch.setattr(timeline_module, "parse_instant_file", counted)
    files: TimelineFiles = {}
    for n in range(1_000):
        time = f"20261122120000{n:03d}"
        names = [requested_name(Action.COMMIT, time, 9), inflight_name(Action.COMMIT, time, 9)]
        files = {**files, **dict.fromkeys([*names, completed_name(Action.COMMIT, time, time[:-1] + "9", 9)])}
    before = listed(files, config(9))
    assert len(parsed) == 3_000
    new = requested_name(Action.COMMIT, "20261122130000000", 9)
    after = listed({**files, new: None}, config(9), before)
    assert parsed[3_000:] == [new]
    assert len(after.instants) == 1_001
    assert after.commits == before.commits


def test_instants_are_found_by_their_times() -> None:
    storage = MemoryStorage("found-by-time")
    spans = [("100", "105"), ("101", "109"), ("102", "104")]
    for start, end in spans:
        times = f"20261122120000{start}", f"20261122120000{end}"
        storage.write(f".hoodie/timeline/{requested_name(Action.COMMIT, times[0], 9)}", b"")
        storage.write(f".hoodie/timeline/{completed_name(Action.COMMIT, *times, 9)}", b"")
    storage.write(f".hoodie/timeline/{requested_name(Action.COMPACTION, '20261122120000103', 9)}", b"")
    timeline = load_timeline(storage, config(9))
    assert [i.time[-3:] for i in timeline.commits_after("20261122120000100")] == ["101", "102"]
    assert [i.time[-3:] for i in timeline.completed_after("20261122120000101")] == ["102"]
    assert [i.time[-3:] for i in timeline.commits_completed_after("20261122120000104")] == ["100", "101"]
    commit = timeline.commit("20261122120000101")
    assert commit is not None
    assert commit.completion_time == "20261122120000109"
    assert timeline.commit("20261122120000103") is None
    pending = timeline.find("20261122120000103", Action.COMMIT)
    assert pending is not None
    assert pending.action is Action.COMPACTION
    assert not pending.is_completed
    MemoryStorage.drop("found-by-time")
