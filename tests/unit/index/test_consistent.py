"""Tables under consistent hashing: rows go to logs, buckets split and merge while writes go on, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidOption, InvalidRecord
from lakebed.index.consistent.ring import Ring
from lakebed.index.consistent.ring_files import FOLDER
from lakebed.operations.placement import NumberedLayout
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.write_status import WriteStatus
from support.write_tables import content, refused, rows

SPLITS = {"hoodie.bucket.index.max.num.buckets": 4, "hoodie.parquet.max.file.size": 900}
MERGES = {"hoodie.bucket.index.min.num.buckets": 1, "hoodie.bucket.index.merge.threshold": 2.0}
Made = Callable[..., Table]
Row = tuple[Any, ...]


def batch(numbers: range, turn: int) -> list[Row]:
    return [(n, f"c{n % 2}", f"v{turn}", turn) for n in numbers]


REJECT = {"hoodie.clustering.updates.strategy": "SparkRejectUpdateStrategy"}


def new_table(make: Made, version: int = 9, **given: Any) -> tuple[Table, dict[int, Row]]:
    words: dict[str, Any] = {"index": "consistent", "buckets": 2, "type": "mor", "table_version": version}
    table = make(**{"properties": {"hoodie.compact.inline": False}, **words} | given)
    table.upsert(rows(*batch(range(40), 0)))
    return table, {row[0]: row for row in batch(range(40), 0)}


def write(table: Table, model: dict[int, Row], numbers: range, turn: int) -> lakebed.WriteResult:
    model.update({row[0]: row for row in batch(numbers, turn)})
    return table.upsert(rows(*batch(numbers, turn)))


def check(table: Table, model: dict[int, Row]) -> None:
    assert content(table) == sorted(model.values())
    verified = lakebed.open(table.uri).indexes.verify()
    assert verified.ok, verified
    found = table.get([0, 1, 39, 55, 99]).to_pylist()
    assert sorted(tuple(r.values()) for r in found) == sorted(model[n] for n in (0, 1, 39, 55, 99) if n in model)


def last(table: Table) -> str:
    newest = table.timeline.last
    assert newest is not None
    return newest.time


def rings(table: Table) -> dict[str, Ring]:
    """The newest ring of each partition path."""
    storage = open_storage(table.uri)
    paths = sorted(f.path for f in storage.list(FOLDER) if f.path.endswith(".hashing_meta"))
    read = (Ring.decode(storage.read(path), path) for path in paths)
    return {ring.partition: ring for ring in read}


def test_every_row_goes_to_the_log_of_its_bucket(make: Made) -> None:
    table, model = new_table(make)
    result = write(table, model, range(30, 60), 1)
    assert (result.rows, result.updated, result.inserted) == (30, None, None)
    files = table.files.to_arrow().to_pylist()
    assert [(f["base_file"], f["log_files"]) for f in files] == [(None, 2)] * 4
    assert {f["file_id"] for f in files} == {n.file_id for ring in rings(table).values() for n in ring.nodes}
    check(table, model)
    assert lakebed.open(table.uri).indexes.index.settings() == {
        "type": "consistent",
        "bucket.count": "2",
        "bucket.fields": "id",
    }


def test_look_ups_and_filters_read_one_bucket_of_a_partition_path(make: Made) -> None:
    table, _ = new_table(make, buckets=8)
    plan = table.scan(where="id = 7").explain()
    assert "by bucket" in str(plan)
    assert table.scan(where="id = 7").to_arrow().column("v").to_pylist() == ["v0"]
    located = table.locate([7]).to_pylist()
    assert [row["partition_path"] for row in located] == ["c1"] or [*located[0].values()][1] == "c1"


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_overwritten_partitions_have_the_new_rows(make: Made, version: int, metadata: bool) -> None:
    """On version 6 its log files are listed before it is completed: it does not replace itself."""
    listed = {"hoodie.compact.inline": False, "hoodie.metadata.enable": metadata}
    table, model = new_table(make, version, properties=listed)
    table.insert_overwrite(rows(*batch(range(1, 90, 20), 7)))
    kept = {n: row for n, row in model.items() if n % 2 == 0}
    assert content(table) == sorted([*kept.values(), *batch(range(1, 90, 20), 7)])


@pytest.mark.parametrize("version", [6, 8, 9])
def test_writes_continue_during_a_pending_split(make: Made, version: int) -> None:
    table, model = new_table(make, version)
    plan = table.maintenance.cluster(plan_only=True, options=SPLITS)
    assert plan.planned is not None
    result = write(table, model, range(30, 60), 1)
    assert result.rows == 30
    assert len(result.files) > 4, "the new file groups get their rows as well"
    table.delete([1, 55])
    del model[1], model[55]
    table.delete(where="id = 2")
    del model[2]
    write(table, model, range(58, 62), 2)
    check(table, model)
    before = sorted(model.values())
    at = last(table)
    done = table.maintenance.cluster(options=SPLITS)
    assert plan.planned in done.instants
    check(table, model)
    assert all(len(r.nodes) > 2 and r.sequence for r in rings(table).values())
    write(table, model, range(60, 70), 3)
    check(table, model)
    table.maintenance.compact()
    check(table, model)
    past = table.scan(as_of=at).to_arrow().to_pylist()
    assert sorted(tuple(r.values()) for r in past) == before


RESIZES = {"split": (2, SPLITS), "merge": (4, MERGES)}


@pytest.mark.parametrize("resize", list(RESIZES))
@pytest.mark.parametrize("version", [6, 8, 9])
def test_stored_keys_are_left_out_of_files_of_a_pending_resize(make: Made, version: int, resize: str) -> None:
    buckets, sizes = RESIZES[resize]
    table, model = new_table(make, version, buckets=buckets)
    assert table.maintenance.cluster(plan_only=True, options=sizes).planned is not None
    model.update({row[0]: row for row in batch(range(40, 60), 1)})
    known_and_new = rows(*batch(range(30, 60), 1))
    assert table.insert(known_and_new, options={"hoodie.datasource.insert.dup.policy": "drop"}).inserted == 20
    check(table, model)
    with pytest.raises(InvalidRecord, match="is in the table already"):
        table.insert(known_and_new, options={"hoodie.datasource.insert.dup.policy": "fail"})
    table.maintenance.cluster(options=sizes)
    assert rings(table)["c0"].sequence, "the resize ran"
    check(table, model)


@pytest.mark.parametrize("resize", list(RESIZES))
@pytest.mark.parametrize("version", [6, 8, 9])
def test_partial_rows_are_complete_in_files_of_a_pending_resize(make: Made, version: int, resize: str) -> None:
    buckets, sizes = RESIZES[resize]
    table, model = new_table(make, version, buckets=buckets)
    assert table.maintenance.cluster(plan_only=True, options=sizes).planned is not None
    some = rows(*batch(range(20), 1)).drop_columns(["v"])
    table.upsert(some, partial=True)
    model.update({n: (*model[n][:2], "v0", 1) for n in range(20)})
    check(table, model)
    table.maintenance.cluster(options=sizes)
    check(table, model)


def test_rows_brought_along_count_in_the_order_of_their_writes_whatever_their_files_are_called(make: Made) -> None:
    """Real Hudi numbers neither: the names of two of its writes beside a plan are in any order."""
    words: dict[str, Any] = {"index": "consistent", "buckets": 2, "type": "mor", "ordering": None}
    table = make(properties={"hoodie.compact.inline": False, "hoodie.metadata.enable": False}, **words)
    model: dict[int, Row] = {}
    write(table, model, range(40), 0)
    plan = table.maintenance.cluster(plan_only=True, options=SPLITS).planned
    assert plan is not None
    write(table, model, range(30, 60), 1)
    write(table, model, range(30, 60), 2)
    storage = open_storage(table.uri)
    copies = [file.path for file in storage.list("") if f"_{plan}.log.2_" in file.path]
    assert copies, "the second write's"
    for path in copies:
        storage.write(f"{path.partition('.log.')[0]}.log.1_0-0-0", storage.read(path))
        storage.delete(path)
    no_more = {"hoodie.bucket.index.max.num.buckets": 1, "hoodie.bucket.index.min.num.buckets": 9}
    assert table.maintenance.cluster(options=no_more).instants == (plan,)
    assert content(table) == sorted(model.values())
    table.maintenance.compact()
    assert content(table) == sorted(model.values())


def test_small_neighbours_merge_into_one(make: Made) -> None:
    table, model = new_table(make, buckets=4)
    assert table.maintenance.cluster(options=MERGES).runs
    assert {p: len(r.nodes) for p, r in rings(table).items()} == {"c0": 1, "c1": 1}
    check(table, model)
    write(table, model, range(20, 80), 1)
    check(table, model)


def test_a_delete_of_a_log_file_stays_a_delete_in_a_rewritten_slice(make: Made) -> None:
    table, model = new_table(make)
    table.delete(where="id = 2")
    del model[2]
    assert table.maintenance.cluster(options=SPLITS).runs
    check(table, model)


def test_buckets_of_the_right_size_are_not_rewritten(make: Made) -> None:
    table, model = new_table(make)
    assert not table.maintenance.cluster().runs, "without bounds of their own buckets stay as they are"
    assert table.maintenance.cluster(["ts"]).runs, "sort columns are a reason of their own"
    check(table, model)


def test_a_completed_resize_is_rolled_back(make: Made) -> None:
    table, model = new_table(make)
    table.maintenance.cluster(options=SPLITS)
    table.rollback(last(table))
    assert {p: (len(r.nodes), r.sequence) for p, r in rings(table).items()} == {"c0": (2, 0), "c1": (2, 0)}
    write(table, model, range(30, 60), 1)
    check(table, model)


def test_a_restore_takes_a_pending_resize_and_its_copies_back(make: Made) -> None:
    table, model = new_table(make)
    at = last(table)
    table.maintenance.cluster(plan_only=True, options=SPLITS)
    write(table, dict(model), range(30, 60), 1)
    table.restore(at)
    check(table, model)
    write(table, model, range(10, 50), 2)
    assert table.maintenance.cluster(options=SPLITS).runs
    check(table, model)


def test_a_table_with_an_index_of_keys_is_not_written_during_a_plan(make: Made, uri: str) -> None:
    table, model = new_table(make, partition_by=None, indexes=["record_index"])
    assert table.maintenance.cluster(plan_only=True, options=SPLITS).planned is not None
    with refused(uri, CommitConflict, "pending clustering"):
        table.upsert(rows(*batch(range(40), 1)), options=REJECT)
    write(table, model, range(40), 1)
    check(table, model)
    assert table.maintenance.cluster(options=SPLITS).runs
    write(table, model, range(30, 60), 1)
    check(table, model)


def test_replaced_partitions_get_buckets_of_their_own(make: Made) -> None:
    table, model = new_table(make)
    old = rings(table)["c0"]
    table.insert_overwrite(rows(*batch(range(0, 10, 2), 5)))
    model = {n: row for n, row in model.items() if n % 2} | {row[0]: row for row in batch(range(0, 10, 2), 5)}
    check(table, model)
    new = rings(table)["c0"]
    assert [n.value for n in new.nodes] == [n.value for n in old.nodes]
    assert not {n.prefix for n in new.nodes} & {n.prefix for n in old.nodes}
    write(table, model, range(20), 6)
    table.delete_partitions(["c1"])
    model = {n: row for n, row in model.items() if not n % 2}
    check(table, model)
    write(table, model, range(20), 7)
    check(table, model)


@pytest.mark.rest
@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "its-writer-died-first"])
@pytest.mark.parametrize("verb", ["insert_overwrite", "delete_partitions", "cluster"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_buckets_stay_those_of_an_action_that_is_archived(make: Made, version: int, verb: str, is_noted: bool) -> None:
    """Nobody wrote to the partition path between the action that renewed its ring and the archival."""
    by_hand = {"hoodie.compact.inline": False, "hoodie.archive.automatic": False, "hoodie.clean.automatic": False}
    table, model = new_table(make, version, properties=by_hand)
    if verb == "cluster":
        table.maintenance.cluster(options={**SPLITS, "hoodie.clustering.plan.strategy.partition.selected": "c0"})
    elif verb == "insert_overwrite":
        table.insert_overwrite(rows(*batch(range(0, 40, 2), 1)))
        model.update({row[0]: row for row in batch(range(0, 40, 2), 1)})
    else:
        table.delete_partitions(["c0"])
        model = {n: row for n, row in model.items() if n % 2}
    at, storage = last(table), open_storage(table.uri)
    new, note = rings(table)["c0"], f"{FOLDER}/c0/{at}.commit"
    assert new.instant == at
    assert storage.head(note) is not None
    if not is_noted:
        storage.delete(note)
    for turn in range(2, 9):
        write(table, model, range(1, 9, 2), turn)
    retained = {"hoodie.clean.commits.retained": 1}
    table.maintenance.clean(options=retained)
    table.maintenance.archive(options={**retained, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    assert at not in [i.time for i in lakebed.open(table.uri).timeline]
    write(table, model, range(0, 44, 2), 9)
    check(table, model)
    assert {f["file_id"] for f in table.files.to_arrow().to_pylist() if f["partition"] == "c0"} <= {
        node.file_id for node in new.nodes
    }


def test_options_of_a_job_name_it_as_hudi_does(uri: str) -> None:
    job = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.num.buckets": "2",
    }
    for turn in range(2):
        lakebed.write(rows(*batch(range(turn, 10), turn)), uri, job, mode="append")
    table = lakebed.open(uri)
    assert table.indexes.index.settings()["type"] == "consistent"
    assert content(table) == sorted([(0, "c0", "v0", 0), *batch(range(1, 10), 1)])


def test_a_cow_table_and_a_write_with_another_index_are_refused(make: Made, uri: str) -> None:
    with pytest.raises(InvalidOption, match="'consistent' is for mor tables, and this one is cow"):
        make(index="consistent", buckets=2)
    table, _ = new_table(make)
    with refused(uri, InvalidOption, "the options have simple"):
        table.upsert(rows(*batch(range(3), 1)), options={"hoodie.index.type": "SIMPLE"})


def between(monkeypatch: pytest.MonkeyPatch, table: Table, *services: str) -> None:
    """The next write comes to its commit when these services have run, which began after it."""
    run = NumberedLayout.run

    def with_services(rows: NumberedLayout) -> list[WriteStatus]:
        monkeypatch.setattr(NumberedLayout, "run", run)
        other = lakebed.open(table.uri)
        written = run(rows)
        for service in services:
            getattr(other.maintenance, service)()
        return written

    monkeypatch.setattr(NumberedLayout, "run", with_services)


@pytest.mark.parametrize("version", [6, 9])
def test_a_split_may_complete_while_a_write_is_under_way(
    make: Made, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = new_table(make, version)
    planned = table.maintenance.cluster(plan_only=True, options=SPLITS).planned
    between(monkeypatch, table, "cluster")
    write(table, model, range(30, 60), 1)
    assert planned is not None
    check(table, model)
    assert all(ring.sequence for ring in rings(table).values())
    write(table, model, range(5), 2)
    table.maintenance.compact()
    check(table, model)


def test_a_compaction_of_the_new_buckets_loses_no_write(make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    table, model = new_table(make)
    table.maintenance.cluster(plan_only=True, options=SPLITS)
    write(table, model, range(30, 45), 1)
    between(monkeypatch, table, "cluster", "compact")
    with pytest.raises(CommitConflict, match=r"another writer \(COMPACT\)"):
        write(table, dict(model), range(30, 60), 2)
    check(table, model)
    write(table, model, range(30, 60), 2)
    check(table, model)


def test_writers_that_do_not_wait_append_to_the_same_buckets(make: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    table, model = new_table(make)
    beside = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
    run = NumberedLayout.run

    def with_another(rows_: NumberedLayout) -> list[WriteStatus]:
        monkeypatch.setattr(NumberedLayout, "run", run)
        written = run(rows_)
        lakebed.open(table.uri).upsert(rows(*batch(range(10, 50), 2)), options=beside)
        return written

    monkeypatch.setattr(NumberedLayout, "run", with_another)
    table.upsert(rows(*batch(range(5, 45), 1)), options=beside)
    model.update({row[0]: row for row in batch(range(5, 45), 1)})
    model.update({row[0]: row for row in batch(range(10, 50), 2)})
    check(table, model)
    table.maintenance.compact()
    check(table, model)
