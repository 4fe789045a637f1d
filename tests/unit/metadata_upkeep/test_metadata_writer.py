"""Deltas, deletes and rollbacks through `MetadataStore`, read back with the reader, beside a dictionary."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import CommitConflict
from lakebed.metadata_kinds import record_index
from lakebed.metadata_kinds.routing import split_by_group
from lakebed.metadata_records.definitions import IndexDefinition
from lakebed.metadata_records.group_files import write_log
from lakebed.metadata_records.records import GroupRecords, Records
from lakebed.metadata_upkeep import services
from lakebed.metadata_upkeep.commit import apply_delta, begin_delta
from lakebed.metadata_upkeep.creation import drop, initialise
from lakebed.metadata_upkeep.resharding import reshard
from lakebed.metadata_upkeep.rollback import roll_back
from lakebed.metadata_upkeep.services import run_services
from lakebed.metadata_upkeep.store import MetadataSettings, MetadataStore
from lakebed.storage import parallel
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage
from support.locks import held
from support.metadata_models import Change, Content, Maintained, Random, lookups, new_table

VERSIONS = [9, 8, 6]
NO_SERVICES = MetadataSettings(compact_after=10_000)


def new_metadata_table(
    version: int, content: Content | None = None, settings: MetadataSettings = NO_SERVICES
) -> Maintained:
    storage = MemoryStorage(f"metadata-writer-{uuid.uuid4().hex}")
    new_table(storage, version)
    table = Maintained(storage, version, settings)
    table.initialise(content or Content())
    return table


def expected(table: Maintained, content: Content) -> Content:
    return content if table.version >= 8 else Content(content.files, content.stats, {}, content.keys)


@pytest.mark.parametrize("version", VERSIONS)
def test_delta_commits_add_up_to_the_model(version: int) -> None:
    table, changes, content = new_metadata_table(version), Random(version), Content()
    for _ in range(8):
        change = changes.change(content)
        table.commit(change)
        content = change.on(content)
        assert table.content() == expected(table, content)
    keys = [f"k{n}" for n in range(0, 210, 3)]
    assert lookups(table, keys) == {key: content.keys[key] for key in keys if key in content.keys}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_is_built_from_the_content_given(version: int) -> None:
    content = Content()
    changes = Random(5)
    for _ in range(4):
        content = changes.change(content).on(content)
    table = new_metadata_table(version, content)
    assert table.content() == expected(table, content)
    change = changes.change(content)
    table.commit(change)
    assert table.content() == expected(table, change.on(content))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("begun", [True, False])
def test_a_rollback_takes_a_delta_commit_back(version: int, begun: bool) -> None:
    table, changes, content = new_metadata_table(version), Random(3), Content()
    for number in range(6):
        change = changes.change(content)
        instant = table.begin()
        apply_delta(table.store(), instant, table.records(change, instant))
        if begun and number % 2:
            # the data table's writer tries again under the same instant
            change = changes.change(content)
            apply_delta(table.store(), instant, table.records(change, instant))
        assert table.content() == expected(table, content)
        if number % 3 == 2:
            table.undo(instant)
            assert table.opened().slices.timeline.pending == ()
        else:
            table.complete(instant)
            content = change.on(content)
        assert table.content() == expected(table, content)


@pytest.mark.parametrize("version", VERSIONS)
def test_compaction_cleaning_and_archival_change_no_record(version: int) -> None:
    changes, content = Random(version), Content()
    content = changes.change(content).on(content)
    table = new_metadata_table(version, content, MetadataSettings(compact_after=3, clean_commits=4))
    done: list[str] = []
    for number in range(16):
        change = changes.change(content)
        instant = table.begin()
        apply_delta(table.store(), instant, table.records(change, instant))
        if number % 5 == 4:
            table.undo(instant)
        else:
            table.complete(instant)
            content = change.on(content)
        done += run_services(table.store())
        assert table.content() == expected(table, content)
    keys = [f"k{n}" for n in range(0, 210, 3)]
    assert lookups(table, keys) == {key: content.keys[key] for key in keys if key in content.keys}
    assert sum("compaction" in text for text in done) >= 3
    assert sum("clean" in text for text in done) >= 2
    assert len(list(table.storage.list(".hoodie/metadata/files"))) < 25


@pytest.mark.parametrize(("min_bytes", "starts_threads"), [(1 << 20, False), (0, True)])
def test_small_file_slices_are_compacted_by_the_calling_thread(
    monkeypatch: pytest.MonkeyPatch, min_bytes: int, starts_threads: bool
) -> None:
    changes, content = Random(41), Content()
    table = new_metadata_table(9, content, MetadataSettings(compact_after=2))
    for _ in range(3):
        change = changes.change(content)
        table.commit(change)
        content = change.on(content)
    calls: list[int] = []

    def threads() -> None:
        calls.append(1)
        raise AssertionError("no thread is needed")

    monkeypatch.setattr(services, "_BYTES_FOR_THREADS", min_bytes)
    # the one place where threads of this process begin
    monkeypatch.setattr(parallel, "_threads", threads)
    if starts_threads:
        with pytest.raises(AssertionError, match="no thread"):
            run_services(table.store())
    else:
        assert any("compaction" in text for text in run_services(table.store()))
    assert bool(calls) is starts_threads


def test_a_delta_commit_takes_its_records_over() -> None:
    table = new_metadata_table(9)
    instant = table.begin()
    records = table.records(Change(added={"a": {"f": 9}}, ranges={"a": (1, 2)}), instant)
    assert records
    apply_delta(table.store(), instant, records)
    assert records == {}


def test_services_of_the_metadata_table_wait_for_a_compaction_that_is_due() -> None:
    """The write that compacts cleans and archives as well; the writes between pay for nothing but their records."""
    changes, content = Random(40), Content()
    settings = MetadataSettings(compact_after=4, clean_commits=3, archive_above=6, archive_down_to=4)
    table = new_metadata_table(9, content, settings)
    done: list[list[str]] = []
    for _ in range(24):
        change = changes.change(content)
        table.commit(change)
        content = change.on(content)
        done.append([text.partition(" ")[0] for text in run_services(table.store())])
    # the first builds of the partitions are delta commits, too: one more is due at once
    assert [bool(kinds) for kinds in done] == [n % 4 == 0 for n in range(24)]
    assert done[::4] == [["compaction"], ["clean", "compaction", "archival"], *[["clean", "compaction"]] * 4]
    assert table.content() == content


@pytest.mark.parametrize("version", VERSIONS)
def test_log_compaction_changes_no_record(version: int) -> None:
    changes, content = Random(version + 60), Content()
    content = changes.change(content).on(content)
    table = new_metadata_table(
        version, content, MetadataSettings(compact_after=9, log_compaction=True, log_compact_after=3)
    )
    done: list[str] = []
    for number in range(11):
        change = changes.change(content)
        instant = table.begin()
        apply_delta(table.store(), instant, table.records(change, instant))
        if number % 5 == 4:
            table.undo(instant)
        else:
            table.complete(instant)
            content = change.on(content)
        done += run_services(table.store())
        assert table.content() == expected(table, content)
    assert sum(text.startswith("log compaction") for text in done) >= 2
    assert any(text.startswith("compaction") for text in done)


@pytest.mark.parametrize("version", VERSIONS)
def test_archival_keeps_the_timeline_short_and_every_record(version: int) -> None:
    changes, content = Random(version + 20), Content()
    settings = MetadataSettings(compact_after=3, clean_commits=3, archive_above=6, archive_down_to=3)
    table = new_metadata_table(version, content, settings)
    done: list[str] = []
    instants: list[str] = []
    for number in range(20):
        change = changes.change(content)
        instants.append(table.commit(change))
        content = change.on(content)
        table.archive_data(3)
        done += run_services(table.store())
        if number % 7 == 6:
            assert table.content() == expected(table, content)
    assert table.content() == expected(table, content)
    assert sum("archival" in text for text in done) >= 4
    own = table.opened().slices.timeline
    assert len(own.commits) < 12
    archived = {i.time for i in own.archived().instants}
    assert archived.isdisjoint({i.time for i in own.instants})
    assert archived | {i.time for i in own.instants} >= set(instants)
    commit = next(i for i in own.archived().instants if i.time == instants[2])
    assert own.archived().commit_metadata(commit.time).operation == "UPSERT_PREPPED"
    if version >= 8:
        assert all(i.completion_time and i.completion_time > i.time for i in own.archived().instants)
    # the next partition is not built at an instant that was used before
    initialise(table.store(), "bloom_filters", [])
    assert len({i.time for i in own.archived().instants if i.time.startswith("0" * 14)}) == (4 if version >= 8 else 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_built_after_an_archival_leaves_file_groups_of_archived_instants_readable(version: int) -> None:
    first = Change(added={"a": {"f_0-0-0_1.parquet": 7}}, put={f"k{n}": ("a", "f") for n in range(60)})
    settings = MetadataSettings(compact_after=3, clean_commits=3, archive_above=6, archive_down_to=3)
    table, content = new_metadata_table(version, settings=settings), first.on(Content())
    table.commit(first)
    for number in range(20):  # of one file group of the record index; the others have what the first compaction wrote
        change = Change(added={"a": {f"g{number}_0-0-0_1.parquet": number}}, put={"k0": ("a", f"g{number}")})
        table.commit(change)
        content = change.on(content)
        table.archive_data(3)
        run_services(table.store())
    slices = table.opened().slices
    bases = {one.base_file.instant for one in slices.file_slices("record_index") if one.base_file}
    archived = {i.time for i in slices.timeline.archived().instants}
    assert bases & archived, "no file group is older than the timeline"
    initialise(table.store(), "bloom_filters", [])
    assert table.content() == expected(table, content)
    assert lookups(table, [f"k{n}" for n in range(60)]) == content.keys
    # other readers take the first instant of the timeline for its start: what is later and not there is not committed
    own = table.opened().slices.timeline
    assert all(i.time > max(bases & archived) for i in own.instants)
    assert any(i.time.startswith("0" * 14) for i in own.archived().instants)
    for number in range(20, 40):
        change = Change(added={"a": {f"g{number}_0-0-0_1.parquet": number}}, put={"k0": ("a", f"g{number}")})
        table.commit(change)
        content = change.on(content)
        table.archive_data(3)
        run_services(table.store())
    assert table.content() == expected(table, content)


@pytest.mark.parametrize("version", VERSIONS)
def test_resharding_changes_no_record(version: int) -> None:
    changes, content = Random(version + 40), Content()
    content = changes.change(content).on(content)
    table = new_metadata_table(version, content, MetadataSettings(compact_after=4, clean_commits=3))
    keys = [f"k{n}" for n in range(0, 210, 3)]
    counts: list[int] = []
    for number, shards in enumerate([7, 1, 1, 5]):
        instant = reshard(table.store(), "record_index", shards)
        assert (instant is None) == (number == 2)
        assert table.content() == expected(table, content)
        for _ in range(4):
            change = changes.change(content)
            table.commit(change)
            content = change.on(content)
            run_services(table.store())
        assert table.content() == expected(table, content)
        assert lookups(table, keys) == {key: content.keys[key] for key in keys if key in content.keys}
        counts.append(len(table.opened().slices.file_slices("record_index")))
    assert counts == [7, 1, 1, 5]
    names = {info.path.rpartition("/")[2] for info in table.storage.list(".hoodie/metadata/record_index")}
    assert not any("record-index-0000-" in name for name in names)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_small_delta_commit_asks_of_storage(version: int) -> None:
    table = new_metadata_table(version)
    for _ in range(3):
        table.commit(Random(9).change(Content()))
    counted = CountingStorage(table.storage)
    instant = table.begin()
    records = table.records(Change(added={"a": {f"f{n}": 9 for n in range(8)}}, ranges={"a": (1, 2)}), instant)
    del records["record_index"]
    store = MetadataStore(counted, table.config, table.timeline, lock_is_held=held)
    apply_delta(store, instant, dict(records))
    logs = 4 if version >= 8 else 3
    # properties and the timeline once; three timeline files and a log file for each file group. From version 8 on the
    # process knows the file slices that its last commit left, before each partition is listed once.
    lists = 1 if version >= 8 else 1 + len(records)
    # before version 8 a file's name does not tell it from another: the last delta commit's body is read again
    reads = 1 if version >= 8 else 2
    assert counted.counts == {"read": reads, "list": lists, "put_if_absent": 3, "write": logs}


def partitioned(version: int) -> tuple[Maintained, dict[tuple[str, str], str]]:
    table = new_metadata_table(version)
    first = {("a", "k1"): "f", ("a", "k2"): "g", ("x-1", "k1"): "h"}
    groups = [
        GroupRecords(*_located({key: v for key, v in first.items() if key[0] == path}, table), path)
        for path in ("a", "x-1")
    ]
    drop(table.store(), ["record_index"])
    definition = IndexDefinition("record_index", "record_index", options={"isPartitioned": "true"})
    initialise(table.store(), "record_index", groups, definition)
    return table, first


def _located(places: dict[tuple[str, str], str], table: Maintained) -> tuple[pa.StringArray, pa.BinaryArray]:
    rows = {
        "key": [key for _, key in places],
        "partition": [path for path, _ in places],
        "file_id": list(places.values()),
        "instant": ["20200101000000000"] * len(places),
    }
    return record_index.encode(pa.table(rows), table.form)


def _locations(table: Maintained) -> dict[tuple[str, str], str]:
    rows = [row for part in table.opened().entries("record_index") for row in part.to_pylist()]
    found = table.opened().record_locations(pa.array([row["key"] for row in rows])).to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, rows))
    return {(row["partition"], row["key"]): row["file_id"] for row in rows}


@pytest.mark.parametrize("version", [9, 8])
def test_a_partitioned_record_index_grows_with_the_data(version: int) -> None:
    table, known = partitioned(version)
    assert _locations(table) == known
    rng = np.random.default_rng(version)
    for number in range(8):
        paths = rng.choice(["a", "x-1", "b=2", "c/d", ""], 6)
        new = {(str(path), f"k{n}"): f"f{number}" for path, n in zip(paths, rng.integers(0, 9, 6), strict=True)}
        gone = [key for key in known if key not in new and rng.random() < 0.2]
        keys, values = _located(new, table)
        records = Records(
            keys,
            values,
            pa.array([key for _, key in gone], pa.string()),
            pa.array([path for path, _ in new]),
            pa.array([path for path, _ in gone], pa.string()),
        )
        instant = table.begin()
        apply_delta(table.store(), instant, {"record_index": records})
        if number == 3:
            table.undo(instant)
        else:
            table.complete(instant)
            known = {key: file for key, file in known.items() if key not in gone} | new
        assert _locations(table) == known
        if number == 5:
            assert reshard(table.store(), "record_index", {"a": 4, "x-1": 2})
            assert _locations(table) == known
    assert not table.opened().slices.timeline.pending


@pytest.mark.parametrize("version", VERSIONS)
def test_an_index_that_was_resharded_dropped_and_built_again(version: int) -> None:
    changes, content = Random(version + 80), Content()
    content = changes.change(content).on(content)
    table = new_metadata_table(version, content)
    assert reshard(table.store(), "record_index", 2)
    assert "record_index" not in drop(table.store(), ["record_index"]).metadata_partitions
    assert "record_index" not in table.opened().slices.definitions
    records = table.records(Change(put=content.keys), "20200101000000000")["record_index"]
    store = table.store()
    initialise(store, "record_index", table.groups(records, 3), table.definition("record_index"))
    assert table.content() == expected(table, content)
    change = changes.change(content)
    table.commit(change)
    assert table.content() == expected(table, change.on(content))


@pytest.mark.parametrize("version", VERSIONS)
def test_tasks_write_log_files(version: int) -> None:
    changes, content = Random(version + 90), Content()
    content = changes.change(content).on(content)
    table = new_metadata_table(version, content)
    for what in ("all is well", "rolled back", "re-sharded"):
        change, instant = changes.change(content), table.begin()
        records = table.records(change, instant)
        shared = records.pop("record_index")
        store = table.store()
        groups = begin_delta(store, instant, ["record_index"])["record_index"]
        parts = split_by_group("record_index", shared, [group.file_id for group in groups], 1)
        written = [write_log(table.storage, groups[at], instant, *part) for at, part in parts.items()]
        assert table.content() == expected(table, content)
        if what == "rolled back":
            roll_back(table.store(), instant, table.next_time())
        elif what == "re-sharded":
            with pytest.raises(CommitConflict, match="pending"):
                reshard(table.store(), "record_index", 5)
        if what == "rolled back":
            with pytest.raises(CommitConflict, match="not what it was"):
                apply_delta(table.store(), instant, dict(records), written)
            table.undo(instant)
        else:
            apply_delta(store, instant, dict(records), written)
            table.complete(instant)
            content = change.on(content)
        assert table.content() == expected(table, content)


def test_a_key_that_is_put_and_deleted_is_put() -> None:
    table = new_metadata_table(9)
    table.commit(Change(put={"a": ("p", Random(1).file_id())}, deleted=["a"]))
    assert list(table.content().keys) == ["a"]
