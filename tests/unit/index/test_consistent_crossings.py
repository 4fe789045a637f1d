"""Writes under consistent hashing that cross with what changes rings: overwrites, and clusterings of buckets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.concurrency.lock import default_lock
from lakebed.errors import CommitConflict
from lakebed.index.consistent.ring import default_ring, ring_hashes
from lakebed.operations.placement import AssignedRows, EmptyLayout, HashedLayout, NumberedLayout
from lakebed.operations.rollback import Rollbacks
from lakebed.properties.file import load_table_config
from lakebed.slices.listing import list_table
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed
from lakebed.timeline.instants import InstantClock
from lakebed.timeline.timeline import load_timeline
from lakebed.write_status import WriteStatus
from support.write_tables import content, rows

SPLITS: dict[str, Any] = {"hoodie.bucket.index.max.num.buckets": 4, "hoodie.parquet.max.file.size": 900}
VERSIONS = [9, 8, 6]
Made = Callable[..., Table]
Row = tuple[Any, ...]
Model = dict[int, Row]
# of 20 even numbers those of the first bucket of two, and those of the second
_LOCATIONS = default_ring("c0", 2).node_numbers(ring_hashes(pa.array([str(n) for n in range(0, 40, 2)]), ()))
FIRST, SECOND = ([n for n, at in zip(range(0, 40, 2), _LOCATIONS, strict=True) if at == bucket] for bucket in (0, 1))


def batch(numbers: range | list[int], turn: int) -> list[Row]:
    return [(n, f"c{n % 2}", f"v{turn}", turn) for n in numbers]


def put(model: Model, numbers: range | list[int], turn: int) -> pa.Table:
    model.update({row[0]: row for row in batch(numbers, turn)})
    return rows(*batch(numbers, turn))


def new_table(make: Made, version: int, numbers: range | list[int] = range(40), **more: Any) -> tuple[Table, Model]:
    by_hand = {"hoodie.compact.inline": False, "hoodie.clean.automatic": False, **more}
    table = make(index="consistent", buckets=2, type="mor", table_version=version, properties=by_hand)
    model: Model = {}
    table.upsert(put(model, numbers, 0))
    return table, model


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, do: Callable[[], object], *, before: bool = False, of: type = NumberedLayout
) -> None:
    """The next write meets what another one does, before or after it has written its files."""
    run = of.run

    def crossing(layout: Any) -> list[WriteStatus]:
        monkeypatch.setattr(of, "run", run)
        if before:
            do()
        written = run(layout)
        if not before:
            do()
        return written

    monkeypatch.setattr(of, "run", crossing)


def check(table: Table, model: Model) -> None:
    """The rows are those of the model, also after writes to all buckets; no file is there that should not."""
    for _ in range(2):
        turn = 1 + max(row[3] for row in model.values())
        assert content(table) == sorted(model.values())
        fresh = lakebed.open(table.uri)
        verified, repaired = fresh.indexes.verify(), fresh.maintenance.repair(dry_run=True)
        assert verified.ok, verified
        assert repaired.ok, repaired
        fresh.upsert(put(model, range(44), turn))
    assert content(table) == sorted(model.values())


def named_after(table: Table, instant: str | None) -> list[str]:
    assert instant is not None
    listing = list_table(open_storage(table.uri))
    return [file.path for file in (*listing.base_files, *listing.log_files) if file.instant == instant]


def logs_of_c1(table: Table, instant: str | None) -> list[str]:
    return [path for path in named_after(table, instant) if path.startswith("c1/.")]


def overwrite(table: Table) -> None:
    table.insert_overwrite(rows(*batch(range(0, 40, 2), 1)))


def delete_partition(table: Table) -> None:
    table.delete_partitions(["c0"])


@pytest.mark.parametrize(("verb", "layout"), [(overwrite, NumberedLayout), (delete_partition, EmptyLayout)])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_overwrite_conflicts_with_a_resize_that_completes_meanwhile(
    make: Made, version: int, verb: Callable[[Table], None], layout: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would replace the buckets of before, whose rows are in others by now."""
    table, model = new_table(make, version)
    planned = table.maintenance.cluster(plan_only=True, options=SPLITS).planned
    other = lakebed.open(table.uri)
    meanwhile(monkeypatch, lambda: other.maintenance.cluster(options=SPLITS), of=layout)
    with pytest.raises(CommitConflict, match=rf"changed by another writer \(CLUSTER\) at instant {planned}"):
        verb(table)
    check(table, model)


@pytest.mark.parametrize("verb", [overwrite, delete_partition])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_overwrite_takes_the_plan_of_a_resize_off_with_the_copies_of_other_writes(
    make: Made, version: int, verb: Callable[[Table], None]
) -> None:
    table, model = new_table(make, version)
    planned = table.maintenance.cluster(plan_only=True, options=SPLITS).planned
    table.upsert(put(model, range(10), 1))
    assert named_after(table, planned)
    verb(table)
    assert planned not in [i.time for i in lakebed.open(table.uri).timeline]
    assert named_after(table, planned) == []
    for n in range(0, 40, 2):
        del model[n]
    if verb is overwrite:
        put(model, range(0, 40, 2), 1)
    check(table, model)


@pytest.mark.parametrize("last", ["overwrite", "upsert"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_bucket_that_begins_during_an_overwrite_is_a_conflict(
    make: Made, version: int, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on no node of the ring that the overwrite leaves: its keys would be stored again in another bucket."""
    table, model = new_table(make, version, FIRST)
    other = lakebed.open(table.uri)
    if last == "overwrite":
        meanwhile(monkeypatch, lambda: other.upsert(put(model, SECOND, 2)))
        with pytest.raises(CommitConflict, match="gave it new buckets"):
            overwrite(table)
    else:
        meanwhile(monkeypatch, lambda: overwrite(other))
        with pytest.raises(CommitConflict, match="gave it new buckets"):
            table.upsert(rows(*batch(SECOND, 2)))
        put(model, range(0, 40, 2), 1)
    check(table, model)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_of_two_overwrites_of_an_empty_partition_path_loses(
    make: Made, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = new_table(make, version)
    delete_partition(table)
    for n in range(0, 40, 2):
        del model[n]
    other = lakebed.open(table.uri)
    meanwhile(monkeypatch, lambda: other.insert_overwrite(put(model, SECOND, 2)))
    with pytest.raises(CommitConflict, match="gave it new buckets"):
        table.insert_overwrite(rows(*batch(FIRST, 3)))
    check(table, model)


@pytest.mark.parametrize("before", [True, False], ids=["before-its-files", "after-its-files"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_write_during_a_resize_that_is_removed_leaves_nothing(
    make: Made, version: int, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The overwrite of another partition path took the plan off; what was written beside it would be of no slice."""
    table, model = new_table(make, version)
    planned = table.maintenance.cluster(plan_only=True, options=SPLITS).planned
    other = lakebed.open(table.uri)
    meanwhile(monkeypatch, lambda: overwrite(other), before=before)
    with pytest.raises(CommitConflict, match=f"clustering {planned}, .*, was taken off the timeline"):
        table.upsert(rows(*batch(range(1, 30, 2), 2)))
    put(model, range(0, 40, 2), 1)
    assert named_after(table, planned) == []
    check(table, model)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_that_came_after_an_overwrite_began_goes_with_the_copies(
    make: Made, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = new_table(make, version)
    other = lakebed.open(table.uri)
    plans: list[str | None] = []

    def plan_and_write() -> None:
        plans.append(other.maintenance.cluster(plan_only=True, options=SPLITS).planned)
        other.upsert(put(model, range(1, 30, 2), 2))

    meanwhile(monkeypatch, plan_and_write)
    overwrite(table)
    put(model, range(0, 40, 2), 1)
    assert named_after(table, plans[0]) == []
    check(table, model)


def take_for_dead(table: Table) -> None:
    """What another process does that takes the writer for dead: roll its delta commit back."""
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    with default_lock(storage) as lock:
        timeline = load_timeline(storage, config)
        (pending,) = [i for i in timeline.pending if not timeline.is_pending_clustering(i)]
        Rollbacks(storage, config, InstantClock(config.timezone), lock.lock_is_held).roll_back(timeline, pending)


@pytest.mark.parametrize("resize", ["pending", "completed", "taken off"])
@pytest.mark.parametrize("version", VERSIONS)
def test_copies_of_a_write_that_goes_on_after_its_rollback_are_removed(
    make: Made, version: int, resize: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = new_table(make, version)
    planned = table.maintenance.cluster(plan_only=True, options=SPLITS).planned
    other = lakebed.open(table.uri)

    def crossing() -> None:
        take_for_dead(table)
        if resize == "completed":
            other.maintenance.cluster(options=SPLITS)
        elif resize == "taken off":
            overwrite(other)
            put(model, range(0, 40, 2), 1)

    meanwhile(monkeypatch, crossing, before=True)
    with pytest.raises(CommitConflict):
        table.upsert(rows(*batch(range(1, 30, 2), 2)))
    if version > 6 or resize != "completed":  # there a command block hides them
        assert logs_of_c1(table, planned) == []
    check(table, model)


@pytest.mark.parametrize("resize", ["pending", "completed", "taken off"])
@pytest.mark.parametrize("version", VERSIONS)
def test_copies_of_a_write_that_dies_after_its_rollback_are_swept(
    make: Made, version: int, resize: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = new_table(make, version)
    planned = table.maintenance.cluster(plan_only=True, options=SPLITS).planned
    other = lakebed.open(table.uri)
    meanwhile(monkeypatch, partial(take_for_dead, table), before=True)
    run = NumberedLayout.run

    def die(layout: NumberedLayout) -> list[WriteStatus]:
        run(layout)
        raise Killed

    monkeypatch.setattr(NumberedLayout, "run", die)
    with pytest.raises(Killed):
        table.upsert(rows(*batch(range(1, 30, 2), 2)))
    monkeypatch.setattr(NumberedLayout, "run", run)
    monkeypatch.undo()
    assert logs_of_c1(table, planned)
    if resize == "completed":
        other.maintenance.cluster(options=SPLITS)
    elif resize == "taken off":
        overwrite(other)
        put(model, range(0, 40, 2), 1)
    lakebed.open(table.uri).upsert(put(model, [0], 3))
    if version > 6 or resize != "completed":
        assert logs_of_c1(table, planned) == []
    check(table, model)


@pytest.mark.parametrize("version", VERSIONS)
def test_copies_of_lost_attempts_go_or_count_once(make: Made, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table, model = new_table(make, version)
    planned = table.maintenance.cluster(plan_only=True, options=SPLITS).planned
    run = NumberedLayout.run

    def twice(layout: NumberedLayout) -> list[WriteStatus]:
        run(layout)
        return run(layout)

    monkeypatch.setattr(NumberedLayout, "run", twice)
    table.upsert(put(model, range(1, 30, 2), 2))
    monkeypatch.setattr(NumberedLayout, "run", run)
    assert len(logs_of_c1(table, planned)) == (4 if version == 6 else 2)
    check(table, model)
    table.maintenance.cluster(options=SPLITS)
    check(table, model)


@pytest.mark.parametrize("index", ["consistent", "bucket", "simple"])
def test_blocks_of_a_write_that_dies_after_its_rollback_never_show(
    make: Made, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On version 6 the log files are of the slices of others: what is older than the timeline would count."""
    by_hand = {"hoodie.compact.inline": False, "hoodie.clean.automatic": False, "hoodie.archive.automatic": False}
    buckets = None if index == "simple" else 2
    table = make(index=index, buckets=buckets, type="mor", table_version=6, properties=by_hand)
    model: Model = {}
    table.upsert(put(model, range(20), 0))
    layout = {"consistent": NumberedLayout, "bucket": HashedLayout, "simple": AssignedRows}[index]
    meanwhile(monkeypatch, partial(take_for_dead, table), before=True, of=layout)
    run = layout.run

    def die(rows_: Any) -> list[WriteStatus]:
        run(rows_)
        raise Killed

    monkeypatch.setattr(layout, "run", die)
    with pytest.raises(Killed):
        table.upsert(rows(*batch(range(10), 90)))
    monkeypatch.undo()
    for turn in range(1, 9):
        lakebed.open(table.uri).upsert(put(model, range(19, 20), turn))
    table.maintenance.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    check(table, model)
