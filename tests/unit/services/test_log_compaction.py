"""Log compaction: fewer blocks, the same rows and meta columns, also behind later writes and compactions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.model import Action
from lakebed.services.driver import run_plan
from lakebed.services.log_compaction import LogCompaction
from lakebed.services.service import ServiceTransaction
from lakebed.table import Table
from support.compaction_tables import bare, pending, snapshot
from support.tables import context_of
from support.write_tables import content, last_commit, rows

Make = Callable[..., Table]
BY_HAND = {"hoodie.compact.inline": False, "hoodie.log.compaction.blocks.threshold": 2}


@pytest.fixture
def mor(make: Make) -> Make:
    """Makes a merge-on-read table of one file group a city, that compacts only by hand."""

    def create(**given: Any) -> Table:
        return make(**({"type": "mor", "index": "bucket", "buckets": 1, "properties": BY_HAND} | given))

    return create


def blocks(table: Table) -> list[BlockHead]:
    storage = snapshot(table).storage
    logs = [log for s in snapshot(table).file_slices() for log in s.log_files]
    return [block for log in logs for block in scan_blocks(FileSource(storage, log.path, log.size))]


@pytest.mark.parametrize("version", [9, 8])
@pytest.mark.parametrize("ordering", ["ts", None])
def test_blocks_become_one_of_records_and_one_of_deletes(mor: Make, version: int, ordering: str | None) -> None:
    table = mor(table_version=version, ordering=ordering)
    table.upsert(rows((1, "a", "x", 1), (2, "a", "x", 1), (3, "a", "x", 1)))
    for at in range(2, 5):
        table.upsert(rows((1, "a", f"y{at}", at), (at + 10, "a", "new", 1)))
    table.delete([2])
    before = bare(table.scan(meta=True).to_arrow())
    covered = sorted({block.instant for block in blocks(table)})
    result = table.maintenance.compact(logs=True)
    (run,) = result.runs
    (merged,) = run.slices
    # the key that was updated, those that came, the one that went
    assert (merged.rows, merged.updated, merged.deleted, merged.log_files, merged.log_records) == (4, 4, 1, 4, 7)
    own = [block for block in blocks(table) if block.instant == run.instant]
    assert [block.type for block in own] == [BlockType.AVRO_DATA, BlockType.DELETE]
    assert {block.header(HeaderKey.COMPACTED_BLOCK_TIMES) for block in own} == {",".join(covered)}
    commit = last_commit(table)
    assert (commit.operation, commit.raw["compacted"]) == ("LOG_COMPACT", True)
    fresh = lakebed.open(table.uri)
    assert bare(fresh.scan(meta=True).to_arrow()) == before
    assert fresh.indexes.verify().ok
    fresh.upsert(rows((1, "a", "last", 9), (2, "a", "back", 9)))
    rest = [row for row in content(fresh) if row[0] not in (1, 2)]
    assert content(fresh) == [(1, "a", "last", 9), (2, "a", "back", 9), *rest]
    known = content(fresh)
    fresh.maintenance.compact()
    assert content(fresh) == known
    assert fresh.indexes.verify().ok


@pytest.mark.rest
def test_a_merged_log_is_merged_again(mor: Make) -> None:
    table = mor()
    for at in range(9):
        table.upsert(rows((1, "a", f"v{at}", at), (at, "a", f"v{at}", at)))
        before = bare(table.scan(meta=True).to_arrow())
        if at in (3, 6, 8):
            assert table.maintenance.compact(logs=True).runs
        assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before
    assert table.indexes.verify().ok


def test_ordered_deletes_keep_their_ordering_values(mor: Make) -> None:
    """A delete that is older than what comes later must lose against it, and win against what is older."""
    table = mor(properties=BY_HAND | {"hoodie.payload.delete.field": "v", "hoodie.payload.delete.marker": "gone"})
    table.upsert(rows((1, "a", "x", 1), (2, "a", "x", 1)))
    table.upsert(rows((1, "a", "gone", 5), (2, "a", "gone", 5)))
    table.upsert(rows((3, "a", "x", 1)))
    assert table.maintenance.compact(logs=True).runs
    table.upsert(rows((1, "a", "older", 4), (2, "a", "newer", 6)))
    assert content(table) == [(2, "a", "newer", 6), (3, "a", "x", 1)]
    table.maintenance.compact()
    assert content(table) == [(2, "a", "newer", 6), (3, "a", "x", 1)]


@pytest.mark.parametrize("version", [9, 8])
def test_ordered_deletes_keep_their_ordering_values_where_no_row_is_logged(mor: Make, version: int) -> None:
    marks = {"hoodie.payload.delete.field": "v", "hoodie.payload.delete.marker": "gone"}
    table = mor(table_version=version, properties=BY_HAND | marks)
    table.bulk_insert(rows((1, "a", "x", 1), (2, "a", "x", 1), (3, "a", "x", 1), (4, "a", "x", 1)))
    table.delete([1, 2])
    table.upsert(rows((3, "a", "gone", 9), (4, "a", "gone", 9)))
    table.upsert(rows((3, "a", "gone", 5), (4, "a", "gone", 5)))
    assert {block.type for block in blocks(table)} == {BlockType.DELETE}
    (run,) = table.maintenance.compact(logs=True).runs
    assert [block.type for block in blocks(table) if block.instant == run.instant] == [BlockType.DELETE]
    assert content(table) == []
    # 3 comes between the two deletes of it, 4 behind both; a delete by key is older than whatever comes next
    table.upsert(rows((1, "a", "back", 2), (3, "a", "late", 7), (4, "a", "back", 10)))
    assert content(table) == [(1, "a", "back", 2), (4, "a", "back", 10)]
    table.maintenance.compact()
    assert content(table) == [(1, "a", "back", 2), (4, "a", "back", 10)]


def test_a_pending_log_compaction_is_no_pending_compaction(mor: Make) -> None:
    """It begins no file slice, and a compaction of the same slices may be planned."""
    table = mor()
    for at in range(4):
        table.upsert(rows((1, "a", f"v{at}", at), *([(2, "b", "x", at)] if at < 2 else [])))
    known = content(table)
    begun = {s.file_id: s.instant for s in snapshot(table).file_slices()}
    least = {"hoodie.log.compaction.blocks.threshold": 3}
    merged = table.maintenance.compact(logs=True, plan_only=True, options=least).planned
    (in_a,) = {(s.partition, s.file_id) for s in snapshot(table).file_slices() if s.partition == "a"}
    timeline = snapshot(table).timeline
    assert timeline.pending_compaction == {}
    assert {group: i.time for group, i in timeline.pending_log_compaction.items()} == {in_a: merged}
    table.upsert(rows((1, "a", "w", 9)))
    assert {s.file_id: s.instant for s in snapshot(table).file_slices()} == begun
    compacted = table.maintenance.compact(plan_only=True).planned
    timeline = snapshot(table).timeline
    assert {i.time for i in timeline.pending_compaction.values()} == {compacted}
    assert {partition for partition, _ in timeline.pending_compaction} == {"a", "b"}
    assert {group: i.time for group, i in timeline.pending_log_compaction.items()} == {in_a: merged}
    assert content(table) == [(1, "a", "w", 9), *known[1:]]


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(4))
def test_random_histories_read_the_same_with_and_without(mor: Make, seed: int, make: Make) -> None:
    chance = random.Random(seed)
    table = mor()
    model: dict[int, tuple[int, str, str, int]] = {}
    for at in range(25):
        keys = chance.sample(range(12), 3)
        what = chance.random()
        if what < 0.6:
            given = [(k, "ab"[k % 2], f"v{at}", at) for k in keys]
            table.upsert(rows(*given))
            model |= {row[0]: row for row in given}
        elif what < 0.75:
            known = [k for k in keys if k in model]
            if known:
                table.delete(known)
            for key in known:
                del model[key]
        elif what < 0.9:
            table.maintenance.compact(logs=True)
        else:
            table.maintenance.compact()
        assert content(table) == sorted(model.values()), at
    assert table.indexes.verify().ok


def test_a_compaction_that_overtook_the_plan_takes_it_off(mor: Make) -> None:
    table = mor()
    for at in range(4):
        table.upsert(rows((1, "a", f"v{at}", at)))
    planned = table.maintenance.compact(logs=True, plan_only=True).planned or ""
    table.maintenance.compact()
    with pytest.raises(CommitConflict, match="begins new file slices"):
        run_plan(context_of(table), LogCompaction(), planned)
    assert pending(table) == []
    assert content(table) == [(1, "a", "v3", 3)]


def test_a_runner_that_died_leaves_no_plan(mor: Make) -> None:
    table = mor()
    for at in range(4):
        table.upsert(rows((1, "a", f"v{at}", at)))
    planned = table.maintenance.compact(logs=True, plan_only=True).planned or ""
    dead = ServiceTransaction(context_of(table), Action.LOGCOMPACTION, "LOG_COMPACT")
    dead.take_up(planned)
    dead.stop_heartbeat()
    result = table.maintenance.compact(logs=True)
    assert planned not in result.instants
    assert len(result.runs) == 1
    assert f"log compaction {planned} was not run" in str(result)
    assert pending(table) == []
    assert content(table) == [(1, "a", "v3", 3)]
    assert table.indexes.verify().ok


def test_large_logs_go_to_several_files_which_the_commit_names(mor: Make) -> None:
    table = mor()
    table.upsert(rows(*((i, "a", "x" * 50, 1) for i in range(400))))
    for at in range(3):
        table.upsert(rows(*((i, "a", f"{at}" * 50, 2 + at) for i in range(0, 400, 2))))
    before = bare(table.scan(meta=True).to_arrow())
    small = {"hoodie.logfile.data.block.max.size": 4096, "hoodie.logfile.max.size": 8192}
    (run,) = table.maintenance.compact(logs=True, options=small).runs
    files = {s.file for s in run.slices}
    assert len(files) > 1
    assert {s.path for s in last_commit(table).stats["a"]} == files
    assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before


def test_log_compaction_runs_after_writes_where_configured(make: Make) -> None:
    settings = {"hoodie.log.compaction.inline": True, "hoodie.log.compaction.blocks.threshold": 3}
    table = make(type="mor", index="bucket", buckets=1, properties=settings | {"hoodie.compact.inline": False})
    done = [table.upsert(rows((1, "a", f"v{at}", at))).services for at in range(9)]
    # the first makes a base file, the next three log blocks; so do three behind the merged one
    assert [bool(lines) for lines in done] == [False, False, False, True, False, False, True, False, False]
    assert "log_compact" in "".join(line for lines in done for line in lines)
    assert content(table) == [(1, "a", "v8", 8)]
    assert table.indexes.verify().ok


def test_version_6_and_few_blocks_say_why(mor: Make) -> None:
    table = mor(table_version=6)
    table.upsert(rows((1, "a", "x", 1)))
    assert "from version 8 on" in str(table.maintenance.compact(logs=True))


@pytest.mark.parametrize("payload", ["PartialUpdateAvroPayload", "OverwriteNonDefaultsWithLatestAvroPayload"])
def test_where_rows_of_a_log_fill_each_other_no_plan_is_made(make: Make, payload: str) -> None:
    settings = BY_HAND | {"hoodie.log.compaction.inline": True}
    table = make(type="mor", merge=payload, index="bucket", buckets=1, properties=settings)
    for n in range(4):
        wrote = table.upsert(rows((1, "c", None, n), (2, "c", f"v{n}", n)))
        assert not [done for done in wrote.services if "log compaction" in done]
    assert "by this table's merge mode" in str(table.maintenance.compact(logs=True))
    assert "by this table's merge mode" in str(table.maintenance.compact(logs=True, plan_only=True))
    assert "by this table's merge mode" in str(table.maintenance.compact(logs=True, dry_run=True))
    assert not [i for i in lakebed.open(table.uri).timeline if i.action is Action.LOGCOMPACTION]
    assert content(table) == [(1, "c", None, 3), (2, "c", "v3", 3)]


def test_nothing_to_merge_says_why(mor: Make) -> None:
    table = mor()
    table.upsert(rows((1, "a", "x", 1)))
    assert "no file slice has 2 blocks" in str(table.maintenance.compact(logs=True))
    assert "delta commits since" in str(table.maintenance.compact(logs=True, when_due=True))
