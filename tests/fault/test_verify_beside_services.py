"""Verification of a healthy table while services run on it, or when their process died: no difference."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, Literal

import pytest

import lakebed
from fault.test_reads_of_later_states import create as new_states
from fault.test_reads_of_later_states import met, upsert
from lakebed.model import Action
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed, Mutation, crash_at
from lakebed.timeline.bodies.plans import clean_files
from support.changing_tables import QUIET
from support.cleaning_tables import data_files, timeline
from support.crash_tables import OPTIONS, copied, rows
from support.table_states import States

Kind = Literal["cow", "mor"]
KINDS: tuple[tuple[Kind, int, str], ...] = (
    ("cow", 9, "simple"),
    ("mor", 9, "record"),
    ("cow", 8, "bucket"),
    ("mor", 6, "simple"),
)
CLEAN = {**OPTIONS, "hoodie.clean.commits.retained": 1}
SETTINGS = {**QUIET, "hoodie.clean.automatic": False, "hoodie.metadata.compact.max.delta.commits": 2}
SERVICES: dict[str, Callable[[Table], Any]] = {
    "clean": lambda t: t.maintenance.clean(options=CLEAN),
    "cluster": lambda t: t.maintenance.cluster(options=OPTIONS),
    "upsert": lambda t: t.upsert(rows((0, "c0", "late", 9)), options=CLEAN),
    "rollback": lambda t: t.rollback(timeline(t).commits[-1].time),
}


def create(kind: Kind, version: int, index: str) -> States:
    """A table with files that no retained commit reads, and a partition path that has no other ones."""
    states = new_states(kind, version, index, SETTINGS, ["bloom_filters", "column_stats"])
    upsert(states, 0, 1)
    lakebed.open(states.uri).delete_partitions(["c1"], options=OPTIONS)
    for n in range(5):
        upsert(states, 0)
        if kind == "mor" and n % 2:
            lakebed.open(states.uri).maintenance.compact(
                options={**OPTIONS, "hoodie.compact.inline.max.delta.commits": 1}
            )
    return states


def contents(uri: str) -> dict[str, bytes]:
    storage = open_storage(uri)
    return {info.path: storage.read(info.path) for info in storage.list()}


@pytest.mark.parametrize(("kind", "version", "index"), KINDS)
def test_files_that_a_dead_clean_has_deleted_are_no_difference(kind: Kind, version: int, index: str) -> None:
    """They are in the metadata table until another process completes the clean. No view of the table needs them."""
    files = contents(create(kind, version, index).uri)
    for dies_at in (2, 3):
        deletes = list[Mutation]()

        def dies(mutation: Mutation, deletes: list[Mutation] = deletes, dies_at: int = dies_at) -> bool:
            if mutation.verb == "delete" and not mutation.path.startswith(".hoodie"):
                deletes.append(mutation)
            return len(deletes) >= dies_at

        with copied("memory", files) as uri:
            before = data_files(lakebed.open(uri))
            with crash_at(dies) as crash, pytest.raises(Killed):
                lakebed.open(uri).maintenance.clean(options=CLEAN)
            deleted = before - data_files(lakebed.open(uri))
            assert deleted
            table = lakebed.open(uri)
            assert [i.action for i in timeline(table).pending] == [Action.CLEAN]
            verified = table.indexes.verify()
            assert verified.ok, f"{crash}\n{deleted}\n{verified}"
            assert table.maintenance.repair(["metadata"], dry_run=True).ok
            table.maintenance.clean(options=CLEAN)
            assert table.indexes.verify().ok


@pytest.mark.rest
@pytest.mark.parametrize("version", [9, 6])
def test_a_file_that_no_clean_plans_to_delete_is_a_difference_beside_one(version: int) -> None:
    uri = create("mor", version, "simple").uri
    table = lakebed.open(uri)
    assert table.maintenance.clean(plan_only=True, options=CLEAN).planned
    storage = open_storage(uri)
    (clean,) = timeline(table).pending
    plan = clean_files(timeline(table).plan(clean))
    planned = {f"{partition}/{name}" for partition, names in plan.items() for name in names}
    lost = max(path for path in data_files(table) if path not in planned and ".log." in path)
    for path in (lost, min(planned)):
        storage.delete(path)
    differences = table.indexes.verify("files").differences.to_pylist()
    assert [(row["problem"], row["what"]) for row in differences] == [("extra", lost)]


@pytest.mark.rest
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_log_files_of_a_pending_or_dead_writer_are_no_difference_on_version_6(index: str) -> None:
    """Their names show the slice, not the writer."""
    files = contents(create("mor", 6, index).uri)
    late = rows((0, "c0", "late", 9), (2, "c0", "late", 9))

    def state(uri: str) -> str:
        return str(lakebed.open(uri).indexes.verify())

    for at in count(2, 9):
        with copied("memory", files) as uri:
            with crash_at(at) as crash, suppress(Killed):
                lakebed.open(uri).upsert(late, options=OPTIONS)
            if not crash.fired:
                assert at > 20
                break
            assert "no difference" in state(uri), crash
            # the next writer dies while it takes that one back
            with crash_at(at // 2) as second, suppress(Killed):
                lakebed.open(uri).upsert(rows((1, "c1", "next", 9)), options=OPTIONS)
            assert "no difference" in state(uri), f"{crash}\n{second}"
            lakebed.open(uri).upsert(rows((1, "c1", "last", 9)), options=OPTIONS)
            assert "no difference" in state(uri), f"{crash}\n{second}"


@pytest.mark.rest
@pytest.mark.parametrize("service", list(SERVICES))
@pytest.mark.parametrize(("kind", "version", "index"), KINDS)
def test_verification_that_meets_a_later_state_shows_no_difference(
    service: str, kind: Kind, version: int, index: str
) -> None:
    states = create(kind, version, index)
    first = len(states.files) - 1
    SERVICES[service](lakebed.open(states.uri))
    states.note(service)

    def verify() -> str:
        return str(lakebed.open(states.uri).indexes.verify())

    for call, found in met(states, first, first + 1, verify):
        assert "no difference" in found, f"{call}\n{found}"
