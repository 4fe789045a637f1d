"""A pending clustering stops a writer for a while at most: it is a conflict that `retries` waits for, or gives way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.model import Action
from lakebed.table import Table
from lakebed.testing import Killed, Mutation, crash_at
from support.compaction_tables import pending
from support.golden_tables import GoldenTable, golden_tables
from support.sampling import HISTORIES, todays_of
from support.write_tables import content, rows

Make = Callable[..., Table]
SMALL = {"hoodie.parquet.small.file.limit": 0, "hoodie.compact.inline": False}
REJECT: dict[str, Any] = {**SMALL, "hoodie.clustering.updates.strategy": "SparkRejectUpdateStrategy"}
KINDS = todays_of((9, 8, 6), ("cow", "mor"), ("record", "simple", "bucket"), parts=3, variable=HISTORIES)
NEW = (1, "c1", "new", 500)
WRITES: dict[str, Callable[[Table, dict[str, Any]], Any]] = {
    "upsert": lambda t, options: t.upsert(rows(NEW), options=options),
    "delete": lambda t, options: t.delete([1], options=options),
    "delete of rows that match": lambda t, options: t.delete(where="id = 1", options=options),
    "insert_overwrite": lambda t, options: t.insert_overwrite(rows(NEW), options=options),
    "insert_overwrite of the table": lambda t, options: t.insert_overwrite(rows(NEW), "table", options=options),
    "delete_partitions": lambda t, options: t.delete_partitions(["c1"], options=options),
}


def planned(make: Make, **given: Any) -> tuple[Table, str]:
    """A table of several files, all of them in a plan of a clustering, and the plan's instant."""
    table = make(**given)
    for turn in range(3):
        table.upsert(rows(*((turn * 4 + n, f"c{n % 2}", f"v{turn}", turn) for n in range(4))), options=SMALL)
    plan = table.maintenance.cluster(["ts"], plan_only=True).planned
    assert plan is not None
    return table, plan


def is_completion(mutation: Mutation) -> bool:
    return mutation.path.endswith(".replacecommit") and ".hoodie/metadata" not in mutation.path


def run_that_dies(uri: str) -> None:
    with pytest.raises(Killed), crash_at(is_completion):
        lakebed.open(uri).maintenance.cluster()


@pytest.mark.parametrize(("version", "kind", "index"), KINDS)
@pytest.mark.parametrize("write", list(WRITES))
def test_a_write_to_its_file_groups_is_a_conflict_where_it_does_not_give_way(
    make: Make, version: int, kind: str, index: str, write: str
) -> None:
    table, plan = planned(make, table_version=version, type=kind, index=index)
    before = content(table)
    with pytest.raises(CommitConflict, match="clustering") as conflict:
        WRITES[write](table, REJECT)
    assert conflict.value.retryable
    assert conflict.value.context["instant"] == plan
    assert content(table) == before
    assert [i.time for i in pending(table)] == [plan]
    assert table.maintenance.cluster().instants[0] == plan
    WRITES[write](table, REJECT)
    assert content(table) != before
    assert table.indexes.verify().ok


@pytest.mark.parametrize(("version", "kind", "index"), KINDS)
@pytest.mark.parametrize("write", list(WRITES))
def test_a_clustering_of_a_new_table_gives_way_and_its_plan_is_removed(
    make: Make, version: int, kind: str, index: str, write: str
) -> None:
    table, _ = planned(make, table_version=version, type=kind, index=index)
    before = content(table)
    WRITES[write](table, SMALL)
    after = content(table)
    assert [row for row in after if row[1] == "c0"] == [
        row for row in before if row[1] == "c0" and write != "insert_overwrite of the table"
    ]
    assert (NEW in after) == (write in ("upsert", "insert_overwrite", "insert_overwrite of the table"))
    assert after != before
    assert pending(table) == []
    assert table.maintenance.cluster(["ts"]).notes == () or write.startswith(("insert_overwrite", "delete_partitions"))
    assert content(table) == after
    assert table.indexes.verify().ok


@pytest.mark.parametrize(("version", "kind", "index"), KINDS)
def test_a_clustering_whose_runner_died_gives_way(make: Make, version: int, kind: str, index: str) -> None:
    table, plan = planned(make, table_version=version, type=kind, index=index)
    run_that_dies(table.uri)
    assert [(i.time, i.state.name) for i in pending(table)] == [(plan, "INFLIGHT")]
    before = content(table)
    done = table.upsert(rows(NEW), options=REJECT)
    assert done.retries == 0
    assert content(table) == sorted({row[0]: row for row in (*before, NEW)}.values())
    assert pending(table) == []
    table.maintenance.cluster(["ts"])
    assert content(table) == sorted({row[0]: row for row in (*before, NEW)}.values())
    assert table.indexes.verify().ok


def test_a_running_clustering_does_not_give_way_where_writes_are_rejected(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.handles.cluster import GroupClusterer

    table, plan = planned(make)
    run, errors = GroupClusterer.cluster, list[CommitConflict]()

    def meets(self: Any, *given: Any) -> Any:
        if not errors:
            with pytest.raises(CommitConflict) as conflict:
                lakebed.open(table.uri).upsert(rows(NEW), options=REJECT)
            errors.append(conflict.value)
        return run(self, *given)

    monkeypatch.setattr(GroupClusterer, "cluster", meets)
    assert table.maintenance.cluster().instants == (plan,)
    assert errors[0].context["instant"] == plan
    assert NEW not in content(table)


@pytest.mark.rest
def test_retries_wait_for_its_end(make: Make) -> None:
    table, plan = planned(make)
    runner = threading.Timer(0.3, lambda: lakebed.open(table.uri).maintenance.cluster())
    runner.start()
    done = table.upsert(rows(NEW), retries=20, options=REJECT)
    runner.join()
    assert done.retries > 0
    assert NEW in content(table)
    commits = [i.time for i in lakebed.open(table.uri).timeline if i.action is Action.REPLACECOMMIT]
    assert commits == [plan]


def test_a_write_to_other_file_groups_leaves_its_plan(make: Make) -> None:
    table = make()
    table.upsert(rows((1, "c1", "a", 1), (0, "c0", "a", 1)), options=SMALL)
    table.upsert(rows((3, "c1", "a", 1)), options=SMALL)
    plan = table.maintenance.cluster(["ts"], partitions=["c1"], plan_only=True).planned
    table.upsert(rows((0, "c0", "b", 2)), options=SMALL)
    assert [i.time for i in pending(table)] == [plan]


@pytest.mark.parametrize("golden", golden_tables(lambda t: t.name.endswith("clustering_pending")), ids=str)
def test_tables_of_real_hudi_keep_their_strategy(golden: GoldenTable, tmp_path: Path) -> None:
    table = lakebed.open(str(golden.unpack(tmp_path)))
    with pytest.raises(CommitConflict, match="clustering") as conflict:
        table.delete_partitions(list(table.partitions))
    assert conflict.value.retryable
    with suppress(CommitConflict):
        table.delete_partitions(
            list(table.partitions), options={"hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy"}
        )
    assert table.count() == 0
