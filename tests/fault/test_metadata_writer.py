"""Every storage mutation of the metadata table's own commits as the place where the writer dies or is refused.

Whatever happens, readers see the content before or after, and the next writer goes on. By default each piece of work
meets every fault on one version, in turn, at some mutations, within a week at each; with `LAKEBED_CRASH=all` at each of
them on all versions.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import md5

import pytest

from lakebed.errors import LakebedError
from lakebed.metadata_records.records import Records
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.creation import PARTITIONS, create, drop, drop_all, initialise
from lakebed.metadata_upkeep.resharding import reshard
from lakebed.metadata_upkeep.rollback import roll_back
from lakebed.metadata_upkeep.services import run_archival, run_cleaning, run_services
from lakebed.metadata_upkeep.store import MetadataSettings
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Crash, FaultPlan, FaultyStorage, Killed, Mode
from support.metadata_models import Change, Content, Maintained, Random, new_table
from support.sampling import CRASH, is_todays, whole

VERSIONS = [9, 8, 6]
# Dead before mutation k is what dead after k-1 leaves, so `unacknowledged` stands for `kill` from the second one on.
FAULTS: tuple[Mode, ...] = ("unacknowledged", "fail", "doubtful", "lost")
ALL = whole(CRASH)
CASES = [(version, mode) for at, mode in enumerate(FAULTS) for version in (VERSIONS if ALL else [VERSIONS[at % 3]])]
every_case = pytest.mark.parametrize(("version", "mode"), CASES)
SETTINGS = MetadataSettings(compact_after=4, clean_commits=2, archive_above=5, archive_down_to=3, threads=1)


@dataclass
class Prepared:
    """A table with a history of some commits, as files."""

    files: dict[str, bytes]
    content: Content
    changes: list[Change]


Grow = Callable[[Maintained, Random, Content], Content]


def committed(table: Maintained, changes: Random, content: Content, commits: int) -> Content:
    for _ in range(commits):
        change = changes.change(content)
        table.commit(change)
        content = change.on(content)
    return content


def grown(table: Maintained, changes: Random, content: Content) -> Content:
    """Two compactions with commits between and behind them, nothing cleaned or archived yet."""
    table.settings = MetadataSettings(compact_after=4, clean_commits=1000, archive_above=1000)
    for _ in range(2):
        content = committed(table, changes, content, 4)
        assert any("compaction" in text for text in run_services(table.store()))
        content = committed(table, changes, content, 3)
    return content


def with_many_keys(table: Maintained, changes: Random, content: Content) -> Content:
    """Enough keys that the record index outgrows small file groups, and compaction is due."""
    content = committed(table, changes, content, 1)
    assert reshard(table.store(), "record_index", 1)
    content = committed(table, changes, content, 2)
    change = Change(put={md5(str(n).encode()).hexdigest(): ("a", changes.file_id()) for n in range(1200)})
    table.commit(change)
    return committed(table, changes, change.on(content), 1)


@cache
def prepared(version: int, commits: int, grow: Grow | None) -> Prepared:
    storage = MemoryStorage(f"prepared-{uuid.uuid4().hex}")
    new_table(storage, version)
    table = Maintained(storage, version, SETTINGS)
    made, content = Random(7), Content()
    content = made.change(content).on(content)
    table.initialise(content)
    content = grow(table, made, content) if grow else committed(table, made, content, commits)
    table.archive_data(2)
    changes: list[Change] = []
    later = content
    for _ in range(3):
        changes.append(made.change(later))
        later = changes[-1].on(later)
    return Prepared({info.path: storage.read(info.path) for info in storage.list()}, content, changes)


@contextmanager
def copied(version: int, commits: int, grow: Grow | None = None) -> Generator[tuple[Maintained, Prepared]]:
    given = prepared(version, commits, grow)
    name = f"metadata-fault-{uuid.uuid4().hex}"
    storage = MemoryStorage(name)
    for path, body in given.files.items():
        storage.write(path, body)
    try:
        yield Maintained(storage, version, SETTINGS), given
    finally:
        MemoryStorage.drop(name)


def metadata_content(table: Maintained, content: Content) -> Content:
    return content if table.version >= 8 else Content(content.files, content.stats, {}, content.keys)


def struck(table: Maintained, at: int, mode: Mode, work: Callable[[Maintained], object]) -> tuple[Crash, bool]:
    """Do the work on a storage where the fault strikes; gives whether it went through."""
    crash = Crash(FaultPlan(at, mode))
    faulty = Maintained(FaultyStorage(table.storage, crash=crash), table.version, table.settings)
    try:
        work(faulty)
    except (Killed, LakebedError):
        return crash, False
    return crash, True


def go_on(table: Maintained, content: Content, changes: list[Change]) -> None:
    """The next writer: its commit, services, and nothing left of the dead."""
    table.commit(changes[0])
    content = changes[0].on(content)
    assert table.content() == metadata_content(table, content)
    run_services(table.store())
    assert table.content() == metadata_content(table, content)
    own = table.opened().slices
    assert own.timeline.pending == ()
    known = {i.time for i in (*own.timeline.completed, *own.timeline.archived().instants)}
    for partition in own.partitions:
        for file in own.storage.list(partition, recursive=False):
            name = file.path.rpartition("/")[2]
            if ".log." in name or name.endswith(".hfile"):
                instant = name.split("_")[1].split(".")[0] if ".log." in name else name.split("_")[2].split(".")[0]
                assert instant in known, f"{name} is left of a writer that died"


def each_point(strike: Callable[[int], Crash], least: int, *case: object) -> None:
    """Strike at today's of the mutations that a whole run has."""
    mutations = strike(0).mutations
    assert len(mutations) >= least
    for at in range(1, len(mutations) + 1):
        if is_todays(at, 13, CRASH, *case):
            assert strike(at).fired


@contextmanager
def telling(crash: Crash) -> Generator[None]:
    """Errors of the checks say where the fault was."""
    try:
        yield
    except BaseException as error:
        error.add_note(str(crash))
        raise


def applying(change: Change, instant: str) -> Callable[[Maintained], object]:
    return lambda table: apply_delta(table.store(), instant, table.records(change, instant))


@every_case
def test_a_crash_in_a_delta_commit_leaves_old_or_new_records(version: int, mode: Mode) -> None:
    def strike(at: int) -> Crash:
        with copied(version, 2) as (table, given):
            instant = table.begin()
            change, content = given.changes[0], given.content
            crash, done = struck(table, at, mode, applying(change, instant))
            with telling(crash):
                assert table.content() == metadata_content(table, content)
                if at % 2:
                    if not done:  # the writer lives and tries again
                        applying(change, instant)(table)
                        assert table.content() == metadata_content(table, content)
                    table.complete(instant)
                    content = change.on(content)
                    go_on(table, content, given.changes[1:])
                else:
                    table.undo(instant)
                    go_on(table, content, given.changes)
        return crash

    each_point(strike, 7, version, mode)


@every_case
@pytest.mark.parametrize("completed", [True, False])
def test_the_next_writer_completes_a_rollback_that_crashed(version: int, mode: Mode, completed: bool) -> None:
    def strike(at: int) -> Crash:
        with copied(version, 2) as (table, given):
            instant = table.begin()
            write = applying(given.changes[0], instant)
            if completed:
                write(table)
            else:
                struck(table, 6, "kill", write)
            rollback = table.next_time()
            crash, _ = struck(table, at, mode, lambda t: roll_back(t.store(), instant, rollback))
            with telling(crash):
                assert table.content() == metadata_content(table, given.content)
                table.undo(instant)
                go_on(table, given.content, given.changes)
        return crash

    each_point(strike, 6, version, mode)


@every_case
def test_a_crash_in_compaction_changes_no_record(version: int, mode: Mode) -> None:
    def strike(at: int) -> Crash:
        done: list[str] = []
        with copied(version, 9) as (table, given):
            crash, _ = struck(table, at, mode, lambda t: done.extend(run_services(t.store())))
            with telling(crash):
                assert at or any("compaction" in text for text in done)
                assert table.content() == metadata_content(table, given.content)
                go_on(table, given.content, given.changes)
        return crash

    each_point(strike, 12, version, mode)


@pytest.mark.rest
@every_case
def test_killed_cleaning_and_archival_lose_no_record(version: int, mode: Mode) -> None:
    def strike(at: int) -> Crash:
        done: list[str] = []

        def services(table: Maintained) -> None:
            """Without the compaction that makes them due."""
            done.extend(run_cleaning(table.store()))
            done.extend(run_archival(table.store()))

        with copied(version, 0, grown) as (table, given):
            crash, _ = struck(table, at, mode, services)
            with telling(crash):
                assert at or {text.split()[0] for text in done} == {"clean", "archival"}
                assert table.content() == metadata_content(table, given.content)
                go_on(table, given.content, given.changes)
        return crash

    each_point(strike, 30, version, mode)


@every_case
def test_a_crash_in_resharding_changes_no_record(version: int, mode: Mode) -> None:
    def strike(at: int) -> Crash:
        with copied(version, 3) as (table, given):
            crash, done = struck(table, at, mode, lambda t: reshard(t.store(), "record_index", 5))
            with telling(crash):
                shards = len(table.opened().slices.file_slices("record_index"))
                assert shards in ({5} if done else {3, 5})
                assert table.content() == metadata_content(table, given.content)
                go_on(table, given.content, given.changes)
        return crash

    each_point(strike, 8, version, mode)


@every_case
def test_resharding_of_an_index_that_has_grown(version: int, mode: Mode) -> None:
    settings = dataclasses.replace(SETTINGS, shard_max_bytes=6_000, clean_commits=1000, archive_above=1000)

    def strike(at: int) -> Crash:
        done: list[str] = []
        with copied(version, 5, with_many_keys) as (table, given):
            table.settings = settings
            crash, _ = struck(table, at, mode, lambda t: done.extend(run_services(t.store())))
            with telling(crash):
                assert at or any(text.startswith("re-sharding") for text in done)
                shards = len(table.opened().slices.file_slices("record_index"))
                assert shards in (1, 8)
                assert table.content() == metadata_content(table, given.content)
                table.settings = SETTINGS
                go_on(table, given.content, given.changes)
                assert len(table.opened().slices.file_slices("record_index")) in ({shards} if shards > 1 else {1, 8})
        return crash

    each_point(strike, 15, version, mode)


@every_case
def test_killed_builds_and_drops_of_partitions_can_be_done_again(version: int, mode: Mode) -> None:
    """Creation, the building of every partition, then the drop of one and of all."""
    content = Random(2).change(Content()).on(Content())

    def work(table: Maintained) -> None:
        table.initialise(content)
        drop(table.store(), ["column_stats"])
        drop_all(table.store())

    def strike(at: int) -> Crash:
        storage = MemoryStorage(f"metadata-fault-{uuid.uuid4().hex}")
        new_table(storage, version)
        table = Maintained(storage, version, SETTINGS)
        crash, done = struck(table, at, mode, work)
        with telling(crash):
            built = table.config.metadata_partitions
            if done:
                assert table.config.properties[PARTITIONS] == ""
                assert not list(storage.list(".hoodie/metadata"))
            if "files" in built:
                assert table.opened().partitions() == tuple(sorted(content.files))
            for partition in built:
                assert table.opened().slices.file_slices(partition)
            rebuild(table, content)
            assert table.content() == metadata_content(table, content)
        return crash

    each_point(strike, 25, version, mode)


def rebuild(table: Maintained, content: Content) -> None:
    """The next writer builds what is missing."""
    store = table.store()
    create(store)
    first = Change(added=content.files, ranges=content.partition_stats, put=content.keys)
    records: dict[str, Records] = table.records(first, "20200101000000000")
    groups = {"files": 1, "column_stats": 2, "record_index": 3, "partition_stats": 1}
    for partition, number in groups.items():
        if partition in records and partition not in store.partitions:
            initialise(store, partition, table.groups(records[partition], number), table.definition(partition))
