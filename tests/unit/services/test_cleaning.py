"""Cleaning: what retained views need stays to the last file, all else goes; plans that wait, runners that died."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import time_machine

import lakebed
from lakebed.cli.main import invoke
from lakebed.concurrency.heartbeat import Heartbeat
from lakebed.concurrency.running_call import RunningCall
from lakebed.config.settings import CleaningSettings
from lakebed.errors import CommitConflict, InvalidOption
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import Action, State
from lakebed.services.cleaning import Cleaning, find_cleanable
from lakebed.services.driver import NothingToDo, run_plan
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Mutation
from lakebed.timeline.bodies.plans import CleanPlan, clean_body
from lakebed.timeline.history import last_clean
from lakebed.timeline.instants import format_time, parse_time
from lakebed.timeline.transitions import TimelineWriter
from support.cleaning_tables import data_files, files_of_views, savepoint, snapshot, timeline
from support.compaction_tables import bare
from support.frozen import FrozenWriter
from support.golden_tables import GoldenTable, golden_tables
from support.sampling import HISTORIES, todays
from support.tables import context_of
from support.write_tables import content, rows

Make = Callable[..., Table]
OFF = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}
KEEP = {"hoodie.clean.commits.retained": 2}


@pytest.fixture
def plain(make: Make) -> Make:
    """Makes a copy-on-write bucket table that is cleaned by hand."""

    def create(**given: Any) -> Table:
        return make(**({"index": "bucket", "buckets": 1, "properties": OFF} | given))

    return create


def put(table: Table, number: int, cities: str = "ab") -> None:
    table.upsert(rows(*((k, city, f"{k}-{number}", number) for k, city in enumerate(cities))))


def after(number: int, cities: str = "ab") -> list[tuple[Any, ...]]:
    return sorted((k, city, f"{k}-{number}", number) for k, city in enumerate(cities))


# -- against what views need


class History:
    """A table with a random past, and its rows at each commit."""

    def __init__(self, make: Make, seed: int, type: str, version: int, metadata: bool) -> None:
        self.chance = random.Random(f"{seed} {type} {version} {metadata}")
        self.table = make(
            type=type,
            index="bucket",
            buckets=self.chance.choice([1, 2]),
            table_version=version,
            properties={
                **OFF,
                "hoodie.metadata.enable": metadata,
                "hoodie.compact.inline.max.delta.commits": self.chance.choice([1, 2, 4]),
            },
        )
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.past: dict[str, list[tuple[Any, ...]]] = {}
        self.number = 0

    def step(self) -> None:
        self.number += 1
        chance, table = self.chance, self.table
        kind = chance.choices(["upsert", "delete", "overwrite", "drop", "plan"], [8, 2, 1, 1, 1])[0]
        if kind == "plan" and table.features and snapshot(table).config.table_type == "mor":
            table.maintenance.compact(plan_only=True)
            return
        if kind == "delete":
            gone = chance.sample(sorted(self.rows), min(2, len(self.rows)))
            done = table.delete(gone)
            self.rows = {k: row for k, row in self.rows.items() if k not in gone}
        elif kind == "drop":
            if timeline(table).pending:  # nothing is dropped that a plan is about
                return
            city = chance.choice("abc")
            if city not in snapshot(table).partitions():
                return
            done = table.delete_partitions([city])
            self.rows = {k: row for k, row in self.rows.items() if row[1] != city}
        else:
            keys = chance.sample(range(12), chance.choice([1, 4, 12]))
            made = {k: (k, "abc"[k % 3], f"{k}-{self.number}", self.number) for k in keys}
            given = rows(*made.values())
            if kind == "overwrite":
                cities = {row[1] for row in made.values()}
                done = table.insert_overwrite(given)
                self.rows = {k: row for k, row in self.rows.items() if row[1] not in cities}
            else:
                done = table.upsert(given)
            self.rows |= made
        if done.instant:
            self.past[done.instant] = sorted(self.rows.values())

    def clean(self) -> int:
        """Clean, and look at every view that was to be kept, and at every file."""
        table, chance = self.table, self.chance
        retained = chance.choice([1, 2, 3, 5])
        before = timeline(table)
        found = find_cleanable(before, before.commits, CleaningSettings(commits=retained), "9" * 17, when_due=False)
        kept = data_files(table)
        if not isinstance(found, NothingToDo):
            assert found.retention.earliest is not None
            first = found.retention.earliest.time
            older = [i.time for i in before.commits if i.time < first][-1:]
            kept = files_of_views(table, [*older, *(i.time for i in before.commits if i.time >= first)])
        done = table.maintenance.clean(options={"hoodie.clean.commits.retained": retained})
        # what waits in a plan may be seen by nobody else; a file group that was replaced goes as a whole
        waits = {*before.pending_compaction, *before.replaced_files}
        waiting = {p for p in data_files(table) if any(p.startswith(c) and f"{g}_" in p for c, g in waits)}
        assert kept <= data_files(table)
        # an incremental clean does not come back to what an earlier one, that kept more, had left
        if done.files and last_only(table):
            assert data_files(table) <= kept | waiting
        self.check()
        return done.files

    def check(self) -> None:
        table = lakebed.open(self.table.uri)
        assert content(table) == sorted(self.rows.values())
        without = lakebed.open(table.uri, options={"hoodie.metadata.enable": False})
        assert sorted(tuple(r.values()) for r in without.scan().to_arrow().to_pylist()) == sorted(self.rows.values())
        verified = table.indexes.verify()
        assert verified.ok, verified
        for time, then in self.past.items():
            try:
                found = table.scan(as_of=time).to_arrow().to_pylist()
            except InvalidOption:  # it was cleaned
                continue
            assert sorted(tuple(row.values()) for row in found) == then, time


def last_only(table: Table) -> bool:
    return sum(i.action is Action.CLEAN for i in timeline(table).instants) == 1


HISTORY_KINDS = list(product(["cow", "mor"], [9, 8, 6], [True, False]))


@pytest.mark.rest
@pytest.mark.parametrize(("kind", "seed"), todays([(k, s) for s in range(4) for k in HISTORY_KINDS], 8, HISTORIES))
def test_random_histories_keep_every_view_that_is_promised(make: Make, kind: tuple[Any, ...], seed: int) -> None:
    history = History(make, seed, *kind)
    deleted = 0
    for _ in range(3):
        for _ in range(history.chance.randint(3, 8)):
            history.step()
        deleted += history.clean()
    assert deleted


def test_all_files_that_no_view_needs_go_with_one_clean(plain: Make) -> None:
    table = plain()
    for n in range(8):
        put(table, n)
    times = [i.time for i in timeline(table).commits]
    needed = files_of_views(table, times[-4:])  # the last three, and what their readers may have begun with
    assert needed < data_files(table)
    done = table.maintenance.clean(options={"hoodie.clean.commits.retained": 3})
    assert data_files(table) == needed
    assert done.files == 8
    assert content(table) == after(7)


# -- policies


def test_so_many_versions_of_each_file_group_stay(plain: Make) -> None:
    table = plain()
    put(table, 1, "aab")
    for n in range(2, 7):
        put(table, n, "a")
    options = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 2}
    assert table.maintenance.clean(options=options).files == 4
    by_city = {city: [p for p in data_files(table) if p.startswith(city)] for city in "ab"}
    assert {city: len(paths) for city, paths in by_city.items()} == {"a": 2, "b": 1}
    assert str(table.maintenance.clean(options=options)).startswith("nothing to clean")
    assert table.indexes.verify().ok
    first, *_, last = (i.time for i in timeline(table).commits)
    with pytest.raises(InvalidOption, match="cleaned away"):
        table.scan(as_of=first)
    assert table.scan(as_of=last).count() == 3


def test_hours_are_counted_by_the_time_of_commits(plain: Make) -> None:
    table = plain()
    for n in range(4):
        put(table, n)
    now = timeline(table)
    settings = CleaningSettings(policy="KEEP_LATEST_BY_HOURS", hours=2)

    def found(hours: float, settings: CleaningSettings = settings) -> Any:
        zone = now.config.timezone
        time = format_time(parse_time(now.commits[2].time, zone) + timedelta(hours=hours), zone)
        return find_cleanable(now, now.commits, settings, time, when_due=True)

    exact = found(2)
    assert exact.retention.earliest == now.commits[2]
    assert "no commit before" in found(1).why  # nothing before the first commit
    assert "of the last 2 hours" in found(9).why  # nothing since: it all stays
    by_hand = table.maintenance.clean(options={"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS"})
    assert by_hand.files == 0


def test_hours_count_by_this_clock_where_instants_are_ahead_of_it(plain: Make) -> None:
    """The clock of one host was ahead once. All later instants are ahead since then, and nothing is that old."""
    table = plain()
    for n in range(4):
        put(table, n)
    with time_machine.travel(datetime.now(UTC) + timedelta(days=9), tick=True):
        put(table, 4)
    put(table, 5)
    by_hours = {"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained": 24}
    before = data_files(table)
    assert table.maintenance.clean(options=by_hours).files == 0
    assert data_files(table) == before
    with time_machine.travel(datetime.now(UTC) + timedelta(days=11), tick=True):
        put(table, 6)
        assert table.maintenance.clean(options=by_hours).files > 0


def test_wrong_settings_are_refused(plain: Make) -> None:
    table = plain()
    put(table, 1)
    for option, value in (
        ("hoodie.clean.fileversions.retained", 0),
        ("hoodie.clean.partition.filter.selected", "a"),
        ("hoodie.clean.policy", "KEEP_ALL"),
        ("hoodie.archive.beyond.savepoint", True),
    ):
        with pytest.raises(lakebed.LakebedError):
            table.maintenance.clean(options={option: value})
    with pytest.raises(InvalidOption, match=r"hoodie\.keep\.max\.commits=10 is not above"):
        table.maintenance.archive(options={"hoodie.keep.max.commits": 10})


def test_only_selected_partitions_are_cleaned_without_incremental(plain: Make) -> None:
    for chosen in ({"hoodie.clean.partition.filter.selected": "a"}, {"hoodie.clean.partition.filter.regex": "[xa]"}):
        table = plain()
        for n in range(5):
            put(table, n)
        done = table.maintenance.clean(options={**KEEP, **chosen, "hoodie.clean.incremental.enabled": False})
        assert set(done.runs[0].files) == {"a"}
        lakebed.open(table.uri)
        open_storage(table.uri).delete_folder("")


def test_a_clean_passes_at_most_so_many_commits(plain: Make) -> None:
    table = plain()
    for n in range(4):
        put(table, n)
    assert table.maintenance.clean(options=KEEP).files == 2  # the first of both groups
    for n in range(4, 9):
        put(table, n)
    done = table.maintenance.clean(options={**KEEP, "hoodie.clean.max.commits.to.clean": 2})
    assert done.files == 4
    assert table.maintenance.clean(options=KEEP).files == 6


# -- incremental


def test_only_partitions_that_changed_are_looked_at(plain: Make) -> None:
    table = plain()
    put(table, 0, "ab")
    for n in range(1, 5):
        put(table, n, "a")
    table.maintenance.clean(options=KEEP)
    for n in range(5, 8):
        put(table, n, "a")
    now = timeline(table)
    found = find_cleanable(now, now.commits, CleaningSettings(commits=2), now.greatest_time, when_due=True)
    assert not isinstance(found, NothingToDo)
    assert found.partitions == {"a"}
    assert set(table.maintenance.clean(options=KEEP).runs[0].files) == {"a"}


def test_a_clean_that_finds_nothing_writes_nothing(plain: Make) -> None:
    table = plain()
    for n in range(4):
        table.insert(rows((n, "a", "", 1)))
    before = {info.path for info in open_storage(table.uri).list()}
    assert str(table.maintenance.clean()) == "nothing to clean: the last 10 commits are kept, and there are 4"
    table.maintenance.clean(dry_run=True)
    assert {info.path for info in open_storage(table.uri).list()} == before


def test_files_of_a_savepoint_are_deleted_after_it_is_dropped(plain: Make) -> None:
    table = plain()
    for n in range(5):
        put(table, n)
    saved = timeline(table).commits[1]
    named = savepoint(table, saved)
    table.maintenance.clean(options=KEEP)
    assert named < data_files(table)
    put(table, 5)
    table.maintenance.clean(options=KEEP)
    last = last_clean(timeline(table))
    assert last is not None
    assert last.savepoints == (saved.time,)
    then = table.scan(as_of=saved.time).to_arrow().to_pylist()
    assert sorted(tuple(r.values()) for r in then) == after(1)
    table.savepoints.delete(saved.time)
    table.maintenance.clean(options=KEEP)
    assert not named & data_files(table)
    assert table.indexes.verify().ok


# -- replaced file groups and partition paths


@pytest.mark.parametrize("version", [9, 6])
def test_a_dropped_partition_is_cleaned_when_no_reader_can_see_it(make: Make, version: int, tmp_path: Path) -> None:
    table = lakebed.create(
        str(tmp_path / "t"),
        rows((0, "a", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        index="bucket",
        buckets=1,
        table_version=version,
        properties=OFF,
    )
    put(table, 0)
    table.delete_partitions(["b"])
    assert table.maintenance.clean(options=KEEP).files == 0  # two commits
    put(table, 1, "a")
    put(table, 2, "a")
    assert (tmp_path / "t" / "b").is_dir()
    done = table.maintenance.clean(options=KEEP)
    assert done.runs[0].partitions == ("b",)
    assert not (tmp_path / "t" / "b").exists()
    assert snapshot(table).partitions() == ("a",)
    assert table.indexes.verify().ok
    now = timeline(table)
    assert now.metadata(now.completed[-1])["partitionMetadata"]["b"]["isPartitionDeleted"]
    put(table, 3)  # it comes back
    assert content(lakebed.open(table.uri)) == after(3)
    assert table.indexes.verify().ok


def test_a_clean_that_loses_its_lock_deletes_no_further_folder(plain: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = plain()
    put(table, 0)
    table.delete_partitions(["a", "b"])
    put(table, 1, "c")
    put(table, 2, "c")

    def is_folder(mutation: Mutation) -> bool:
        return mutation.verb == "delete" and mutation.path.endswith("/.hoodie_partition_metadata")

    with monkeypatch.context() as patch:
        frozen = FrozenWriter(table.uri, lambda t: t.maintenance.clean(options=KEEP), is_folder, patch)
        assert frozen.freeze()
        frozen.lose_lock()
        frozen.thaw()
        assert isinstance(frozen.error, CommitConflict), frozen.error
    assert open_storage(table.uri).list_folders("") == [".hoodie", "b", "c"]
    assert lakebed.open(table.uri).maintenance.clean().runs[0].partitions == ("a", "b")
    assert open_storage(table.uri).list_folders("") == [".hoodie", "c"]
    assert lakebed.open(table.uri).indexes.verify().ok


def test_a_dropped_partition_of_a_savepoint_stays(plain: Make) -> None:
    table = plain()
    put(table, 0)
    saved = timeline(table).commits[0]
    named = savepoint(table, saved)
    table.delete_partitions(["b"])
    for n in range(1, 5):
        put(table, n, "a")
    done = table.maintenance.clean(options=KEEP)
    assert done.files > 0
    assert named <= data_files(table)
    assert {row["id"] for row in table.scan(as_of=saved.time).to_arrow().to_pylist()} == {0, 1}
    assert "b" in snapshot(table).partitions()


def test_a_partition_that_is_written_to_meanwhile_stays(plain: Make) -> None:
    table = plain()
    put(table, 0)
    table.delete_partitions(["b"])
    put(table, 1, "a")
    put(table, 2, "a")
    planned = table.maintenance.clean(plan_only=True, options=KEEP)
    assert planned.plan is not None
    assert planned.plan.partitions == ("b",)
    put(table, 3)  # before the plan is carried out
    done = lakebed.open(table.uri).maintenance.clean()
    assert done.instants == (planned.planned,)
    assert done.runs[0].partitions == ()
    assert content(table) == after(3)
    assert table.indexes.verify().ok


# -- plans


@pytest.mark.parametrize("state", ["requested", "inflight"])
def test_a_pending_clean_is_carried_out_first(plain: Make, state: str) -> None:
    table = plain()
    for n in range(5):
        put(table, n)
    planned = table.maintenance.clean(plan_only=True, options=KEEP)
    if state == "inflight":  # of a runner that died, and had deleted something
        storage = open_storage(table.uri)
        with Heartbeat(storage, planned.planned or "", "dead"):
            TimelineWriter(storage, timeline(table).config).inflight(Action.CLEAN, planned.planned or "")
        assert planned.plan is not None
        storage.delete(f"a/{planned.plan.files['a'][0]}")
    put(table, 5)
    assert (
        str(table.maintenance.clean(plan_only=True, options=KEEP))
        == f"no clean was planned: {planned.planned} is pending"
    )
    done = table.maintenance.clean(options=KEEP)
    assert done.instants[0] == planned.planned
    assert len(done.runs) == 2
    assert content(table) == after(5)
    assert table.indexes.verify().ok
    assert timeline(table).pending == ()


def test_a_clean_that_another_process_carries_out_is_left_to_it(plain: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunningCall, "is_running", lambda self: True)  # the test is the call that runs the plan
    table = plain()
    for n in range(5):
        put(table, n)
    planned = table.maintenance.clean(plan_only=True, options=KEEP).planned or ""
    with Cleaning().transaction(context_of(table)) as other:
        other.take_up(planned)
        done = table.maintenance.clean(options=KEEP)
        assert done.runs == ()
        assert "being carried out by another process" in done.notes[0]
        put(table, 5)  # writers go on beside it
        other.abort()  # as if it died here
    assert run_plan(context_of(table), Cleaning(), planned).count == 4
    assert content(table) == after(5)


def test_a_plan_deletes_only_files_of_its_folders(plain: Make) -> None:
    table = plain()
    put(table, 0)
    storage = open_storage(table.uri)
    name = next(p for p in data_files(table) if p.startswith("a/")).removeprefix("a/")
    storage.write(".hoodie/precious_1-0-1_2.parquet", b"kept")
    storage.write("a/notes.txt", b"kept")
    hostile = {".hoodie": ["precious_1-0-1_2.parquet", "hoodie.properties"], "../a": [name], "a": ["notes.txt"]}
    time = str(int(timeline(table).greatest_time) + 1)
    body = clean_body(storage.url(), CleanPlan(hostile, partitions=("..", ".hoodie", ""))).encode()
    TimelineWriter(storage, timeline(table).config).request(Action.CLEAN, time, body)
    assert table.maintenance.clean().files == 0
    assert storage.read(".hoodie/precious_1-0-1_2.parquet") == storage.read("a/notes.txt") == b"kept"
    assert content(table) == after(0)


@pytest.mark.parametrize("version", [9, 6])
def test_slices_of_a_pending_compaction_stay(make: Make, version: int) -> None:
    table = make(
        type="mor",
        index="bucket",
        buckets=1,
        table_version=version,
        properties={**OFF, "hoodie.compact.inline": False},
    )
    put(table, 0)
    put(table, 1)
    table.maintenance.compact(plan_only=True)
    for n in range(2, 8):
        put(table, n)
    assert table.maintenance.clean(options={"hoodie.clean.commits.retained": 1}).files == 0
    assert content(table) == after(7)
    options = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    assert table.maintenance.clean(options=options).files == 0
    table.maintenance.compact()
    assert content(table) == after(7)
    assert table.maintenance.clean(options=options).files > 0
    assert content(table) == after(7)
    assert table.indexes.verify().ok


def test_pending_writes_hold_cleaning_back(plain: Make) -> None:
    table = plain()
    for n in range(3):
        put(table, n)
    storage, config = open_storage(table.uri), timeline(table).config
    time = str(int(timeline(table).greatest_time) + 1)
    with Heartbeat(storage, time, "alive"):
        TimelineWriter(storage, config).request(Action.COMMIT, time)
        for n in range(3, 8):
            put(table, n)
        done = table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
        assert done.files == 2
        assert done.runs[0].earliest == timeline(table).commits[2].time
    assert content(table) == after(7)


# -- tables of real Hudi


@pytest.mark.parametrize("table", todays(golden_tables(), 8, HISTORIES), ids=str)
def test_golden_tables_hold_the_same_rows_afterwards(table: GoldenTable, tmp_path: Path) -> None:
    uri = str(table.unpack(tmp_path))
    opened = lakebed.open(uri)
    try:
        before = bare(opened.scan(meta=True).to_arrow()) if opened.schema and _has_meta(opened) else []
        plain_rows = sorted(map(str, opened.scan().to_arrow().to_pylist()))
        wrong = {str(d) for d in opened.indexes.verify().differences.to_pylist()}
        opened.maintenance.clean(
            options={"hoodie.clean.commits.retained": 1, "hoodie.clean.incremental.enabled": False}
        )
        opened.maintenance.archive(options={"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, **KEEP})
    except lakebed.UnsupportedFeature as refused:
        pytest.skip(str(refused))
    fresh = lakebed.open(uri)
    assert sorted(map(str, fresh.scan().to_arrow().to_pylist())) == plain_rows
    if before:
        assert bare(fresh.scan(meta=True).to_arrow()) == before
    folders = lakebed.open(uri, options={"hoodie.metadata.enable": False})
    assert sorted(map(str, folders.scan().to_arrow().to_pylist())) == plain_rows
    assert [d for d in fresh.indexes.verify().differences.to_pylist() if str(d) not in wrong] == []


def _has_meta(table: Table) -> bool:
    return table.properties.get("hoodie.populate.meta.fields", "true") != "false"


# -- the faces


def test_views_of_the_past_that_were_cleaned_are_refused_by_name(plain: Make) -> None:
    table = plain()
    for n in range(6):
        put(table, n)
    times = [i.time for i in timeline(table).commits]
    table.maintenance.clean(options=KEEP)
    for n, time in enumerate(times):
        if n < 3:
            with pytest.raises(InvalidOption, match=rf"as of {time} .* before {times[4]} see") as refused:
                table.scan(as_of=time)
            assert f"as of {times[4]} or later" in (refused.value.hint or "")
        else:
            found = table.scan(as_of=time).to_arrow().to_pylist()
            assert sorted(tuple(r.values()) for r in found) == after(n)
    assert table.scan(as_of=times[-1]).count() == 2


def test_the_command_line_cleans_and_archives(plain: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = plain()
    for n in range(5):
        put(table, n)
    keep = ["--option", "hoodie.clean.commits.retained=2"]
    before = data_files(table)
    assert invoke(["maintenance", "clean", table.uri, "--dry-run", *keep]) == 0
    said = capsys.readouterr().out
    assert "would be a clean of 4 files in 2 partitions" in said
    listed = {line.strip() for line in said.splitlines()[1:]}
    assert data_files(table) == before
    assert invoke(["maintenance", "clean", table.uri, "--output", "json", *keep]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["runs"][0]["files"] == 4
    assert before - data_files(table) == listed
    assert invoke(["maintenance", "clean", table.uri, *keep]) == 0
    assert "nothing to clean" in capsys.readouterr().out
    assert invoke(["maintenance", "archive", table.uri]) == 0
    assert "nothing to archive: the timeline has 5 commits" in capsys.readouterr().out


def test_lost_files_of_a_pending_instant_are_no_version(plain: Make) -> None:
    table = plain(properties={**OFF, "hoodie.metadata.enable": False})
    for n in range(3):
        put(table, n, "a")
    storage, config = open_storage(table.uri), timeline(table).config
    time = str(int(timeline(table).greatest_time) + 1)
    newest = max(data_files(table), key=lambda p: p.rpartition("_")[2])
    stray = newest.rpartition("_")[0] + f"_{time}.parquet"
    with Heartbeat(storage, time, "alive"):
        TimelineWriter(storage, config).request(Action.COMMIT, time)
        storage.write(stray, b"half")
        options = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
        assert table.maintenance.clean(options=options).files == 2
        assert data_files(table) == {newest, stray}
        assert open_snapshot(storage).timeline.pending[0].state is State.REQUESTED
