"""Two writers on one table: what they may both commit, and what they may not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from lakebed.concurrency.conflicts import Attempt, StartedAt, TouchedFiles, check_conflicts
from lakebed.errors import CommitConflict, ConflictKind
from lakebed.format.avro.encoder import write_avro_file
from lakebed.model import Action, CommitMetadata, Instant, State, WriteStat
from lakebed.properties.file import create_table
from lakebed.properties.new_table import new_table_properties
from lakebed.properties.table_config import TableConfig
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.bodies.commit import encode_commit
from lakebed.timeline.bodies.encoding import schema_text
from lakebed.timeline.bodies.rollback import RollbackPlan, encode_requested_replace, encode_rollback_plan
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.timeline.transitions import TimelineWriter

COMPACTION_PLAN_SCHEMA = {
    "type": "record",
    "name": "HoodieCompactionPlan",
    "fields": [
        {
            "name": "operations",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "HoodieCompactionOperation",
                    "fields": [{"name": "partitionPath", "type": "string"}, {"name": "fileId", "type": "string"}],
                },
            },
        }
    ],
}


def metadata(
    *groups: tuple[str, str], operation: str = "UPSERT", schema: str = "", replaced: bool = False
) -> CommitMetadata:
    stats: dict[str, tuple[WriteStat, ...]] = {}
    gone: dict[str, tuple[str, ...]] = {}
    for partition, file_id in groups:
        if replaced:
            gone[partition] = (*gone.get(partition, ()), file_id)
        else:
            stat = WriteStat(file_id, f"{partition}/.{file_id}_1.log.1_0-0-0", partition)
            stats[partition] = (*stats.get(partition, ()), stat)
    return CommitMetadata(operation, stats, gone, {"schema": schema})


@dataclass
class Table:
    """A table on which others commit."""

    storage: MemoryStorage
    config: TableConfig
    clock: int = 20261121110149000

    def now(self) -> Timeline:
        return load_timeline(self.storage, self.config)

    def next(self) -> str:
        self.clock += 1
        return str(self.clock)

    def begin(self, action: Action = Action.COMMIT, plan: bytes = b"", time: str = "") -> Instant:
        writer = TimelineWriter(self.storage, self.config)
        time = time or self.next()
        writer.request(action, time, plan)
        return writer.inflight(action, time)

    def complete(self, instant: Instant, meta: CommitMetadata) -> Instant:
        body = encode_commit(meta, self.config.version, instant.action)
        return TimelineWriter(self.storage, self.config).complete(instant.action, instant.time, self.next(), body)

    def commit(self, meta: CommitMetadata, action: Action = Action.COMMIT) -> Instant:
        return self.complete(self.begin(action), meta)


def table_of(version: int, table_type: str = "cow") -> Table:
    storage = MemoryStorage(uuid.uuid4().hex)
    props = new_table_properties(name="t", version=version, table_type="mor" if table_type == "mor" else "cow")
    return Table(storage, create_table(storage, props))


@pytest.fixture(params=[9, 8, 6])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    made = table_of(request.param)
    made.commit(metadata(("p", "a-0"), ("p", "b-0"), schema='{"s":0}'))
    yield made
    MemoryStorage.drop(made.storage.url().removeprefix("memory://"))


OURS = TouchedFiles.of(metadata(("p", "a-0")))


def test_a_writer_alone_has_no_conflict(table: Table) -> None:
    started = StartedAt.of(table.now())
    assert check_conflicts(Attempt(OURS, table.now(), started, schema="w")) == "w"


def test_a_timeline_is_unchanged_until_another_action_begins(table: Table) -> None:
    started = StartedAt.of(table.now())
    ours = table.begin()
    assert started.is_unchanged(table.now(), ours.time)
    table.begin()
    assert not started.is_unchanged(table.now(), ours.time)


def test_a_timeline_with_another_commit_is_changed(table: Table) -> None:
    started = StartedAt.of(table.now())
    ours = table.begin()
    table.commit(metadata(("q", "x-0")))
    assert not started.is_unchanged(table.now(), ours.time)


def test_a_timeline_is_never_unchanged_for_a_writer_that_began_beside_another_one(table: Table) -> None:
    table.begin()
    started = StartedAt.of(table.now())
    assert not started.is_unchanged(table.now(), table.begin().time)


def test_disjoint_file_groups_both_commit(table: Table) -> None:
    started = StartedAt.of(table.now())
    table.commit(metadata(("p", "b-0"), ("q", "a-0")))
    check_conflicts(Attempt(OURS, table.now(), started))


def test_the_same_file_group_is_a_conflict(table: Table) -> None:
    started = StartedAt.of(table.now())
    other = table.commit(metadata(("q", "x-0"), ("p", "a-0")))
    with pytest.raises(CommitConflict, match="file group a-0 in partition 'p'") as caught:
        check_conflicts(Attempt(OURS, table.now(), started))
    assert caught.value.context == {
        "conflict": "committed",
        "partition": "p",
        "file_id": "a-0",
        "instant": other.time,
    }
    assert caught.value.kind is ConflictKind.COMMITTED
    assert caught.value.retryable


def test_a_commit_completed_before_the_write_began_is_no_conflict(table: Table) -> None:
    table.commit(metadata(("p", "a-0")))
    check_conflicts(Attempt(OURS, table.now(), StartedAt.of(table.now())))


def test_a_commit_that_was_pending_when_we_began_counts(table: Table) -> None:
    other = table.begin()
    table.commit(metadata(("p", "c-0")))
    started = StartedAt.of(table.now())
    table.complete(other, metadata(("p", "a-0")))
    with pytest.raises(CommitConflict, match=other.time):
        check_conflicts(Attempt(OURS, table.now(), started))


def test_a_commit_that_was_requested_late_counts_though_its_instant_is_earlier(table: Table) -> None:
    """Real Hudi chooses its instant under the lock, and requests it when the lock is free again."""
    early = table.next()
    table.commit(metadata(("p", "c-0")))
    started = StartedAt.of(table.now())
    table.complete(table.begin(time=early), metadata(("p", "a-0")))
    with pytest.raises(CommitConflict, match=early):
        check_conflicts(Attempt(OURS, table.now(), started))
    check_conflicts(Attempt(TouchedFiles.of(metadata(("p", "b-0"))), table.now(), started))


def test_a_pending_write_is_no_conflict_yet(table: Table) -> None:
    table.begin()
    started = StartedAt.of(table.now())
    table.begin(Action.REPLACECOMMIT, encode_requested_replace())
    check_conflicts(Attempt(OURS, table.now(), started))


def test_replaced_file_groups_count(table: Table) -> None:
    started = StartedAt.of(table.now())
    table.commit(metadata(("p", "a-0"), operation="INSERT_OVERWRITE", replaced=True), Action.REPLACECOMMIT)
    with pytest.raises(CommitConflict, match="INSERT_OVERWRITE"):
        check_conflicts(Attempt(OURS, table.now(), started))
    ours = TouchedFiles.of(metadata(("p", "b-0"), replaced=True))
    check_conflicts(Attempt(ours, table.now(), started))


def test_a_pending_clustering_keeps_its_file_groups(table: Table) -> None:
    piece = {"dataFilePath": "x", "fileId": "a-0", "partitionPath": "p"}
    plan = {"operationType": "CLUSTER", "clusteringPlan": {"inputGroups": [{"slices": [piece]}]}}
    body = write_avro_file(schema_text("HoodieRequestedReplaceMetadata"), plan)
    pending = table.begin(Action.CLUSTERING, body)
    started = StartedAt.of(table.now())
    with pytest.raises(CommitConflict, match=f"pending .* at instant {pending.time}"):
        check_conflicts(Attempt(OURS, table.now(), started))
    check_conflicts(Attempt(TouchedFiles.of(metadata(("p", "b-0"))), table.now(), started))


@pytest.mark.parametrize(("version", "conflicts"), [(6, True), (8, False), (9, False)])
def test_a_compaction_planned_meanwhile_is_a_conflict_on_version_6_only(version: int, conflicts: bool) -> None:
    table = table_of(version, "mor")
    started = StartedAt.of(table.now())
    operations = [{"partitionPath": "p", "fileId": "a-0"}]
    table.begin(Action.COMPACTION, write_avro_file(COMPACTION_PLAN_SCHEMA, {"operations": operations}))
    # what knows of the compaction from its start names its log files after it
    check_conflicts(Attempt(OURS, table.now(), StartedAt.of(table.now())))
    if conflicts:
        with pytest.raises(CommitConflict, match="pending compaction"):
            check_conflicts(Attempt(OURS, table.now(), started))
    else:
        check_conflicts(Attempt(OURS, table.now(), started))


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_compaction_requested_before_the_write_is_no_conflict(version: int) -> None:
    table = table_of(version, "mor")
    compaction = table.begin(Action.COMPACTION)
    started = StartedAt.of(table.now())
    ours = table.begin(Action.DELTACOMMIT)
    table.complete(compaction, metadata(("p", "a-0"), operation="COMPACT"))
    check_conflicts(Attempt(OURS, table.now(), started, instant=ours.time))


def test_buckets_of_one_number_are_one_group(table: Table) -> None:
    started = StartedAt.of(table.now())
    table.commit(metadata(("p", "00000003-1111-0"), ("q", "00000004-1111-0")))
    ours = metadata(("p", "00000003-2222-0"), ("q", "00000003-2222-0"))
    check_conflicts(Attempt(TouchedFiles.of(ours), table.now(), started))
    with pytest.raises(CommitConflict, match="00000003-1111-0 in partition 'p'"):
        check_conflicts(Attempt(TouchedFiles.of(ours, by_bucket=True), table.now(), started))
    others = TouchedFiles.of(metadata(("q", "00000003-2222-0")), by_bucket=True)
    check_conflicts(Attempt(others, table.now(), started))


def test_being_rolled_back_is_a_conflict(table: Table) -> None:
    started = StartedAt.of(table.now())
    ours = table.begin()
    plan = encode_rollback_plan(table.storage.url(), RollbackPlan(ours))
    TimelineWriter(table.storage, table.config).request(Action.ROLLBACK, table.next(), plan)
    with pytest.raises(CommitConflict, match="being rolled back"):
        check_conflicts(Attempt(OURS, table.now(), started, instant=ours.time))
    other = Instant("1", Action.COMMIT, State.INFLIGHT)
    check_conflicts(Attempt(OURS, table.now(), started, instant=other.time))


# Table schema at start is {"s":0}.
@pytest.mark.parametrize(
    ("ours", "theirs", "committed"),
    [
        ('{"s":0}', '{"s":0}', '{"s":0}'),
        ('{"s":1}', '{"s":0}', '{"s":1}'),
        ('{"s":1}', '{"s": 1}', '{"s":1}'),
        ('{"s":0}', '{"s":1}', '{"s":1}'),
        ('{ "s":0 }', '{"s":1}', '{"s":1}'),
        ('{"s":1}', "", '{"s":1}'),
        ('{"s":1}', '{"s":2}', None),
    ],
)
def test_schema_changes_of_two_writers(table: Table, ours: str, theirs: str, committed: str | None) -> None:
    started = StartedAt.of(table.now())
    table.commit(metadata(("p", "b-0"), schema=theirs))
    if committed is None:
        with pytest.raises(CommitConflict, match="schema"):
            check_conflicts(Attempt(OURS, table.now(), started, schema=ours))
    else:
        assert check_conflicts(Attempt(OURS, table.now(), started, schema=ours)) == committed
