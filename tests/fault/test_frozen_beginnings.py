"""A process that stands still while it begins a write, for longer than its lock is valid, takes a living writer's delta
commit of the metadata table for one that was left: it has read the table before that writer began."""

from __future__ import annotations

import pytest

import lakebed
from lakebed.concurrency import process_queue
from lakebed.errors import CommitConflict, LockTimeout
from lakebed.testing import Mutation
from support.crash_tables import OPTIONS, copied, prepared, put, rows, state
from support.frozen import FrozenWriter
from support.table_states import jumping

OURS = [(0, "c0", "ours", 9)]
THEIRS = [(1, "c1", "theirs", 9)]
LAST = [(2, "c0", "last", 11)]
# The other writer holds the lock until the first one has ended.
SOON = OPTIONS | {"hoodie.write.lock.wait_time_ms": 100}


def completes_delta(mutation: Mutation) -> bool:
    return mutation.path.startswith(".hoodie/metadata/.hoodie/") and mutation.path.endswith(".deltacommit")


def never(_: Mutation) -> bool:
    return False


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_process_that_begins_leaves_the_records_of_a_living_writer(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, old = prepared("simple", version)
    with copied("memory", files) as uri:
        lakebed.open(uri).maintenance.cluster(
            ["v"], plan_only=True, options=OPTIONS
        )  # each writer looks at what is pending
        with jumping(0, lambda: None) as counted:
            table = lakebed.open(uri)
        counted.names.clear()
        table.upsert(rows(*OURS), options=OPTIONS)
    reads = ("list_names .hoodie/metadata/", "read .hoodie/metadata/")
    points = [number for number, call in enumerate(counted.names, 1) if call.startswith(reads)]
    assert points
    for at in points:
        with copied("memory", files) as uri, monkeypatch.context() as patch:
            lakebed.open(uri).maintenance.cluster(["v"], plan_only=True, options=OPTIONS)
            writers = list[FrozenWriter]()
            with jumping(0, lambda: writers[0].stand()) as jumped:  # noqa: B023
                ours = FrozenWriter(uri, lambda table: table.upsert(rows(*OURS), options=SOON), never, patch)
            writers.append(ours)
            jumped.calls, jumped.at = 0, at
            theirs = FrozenWriter(
                uri, lambda table: table.upsert(rows(*THEIRS), options=OPTIONS), completes_delta, patch
            )
            ours.freeze()
            ours.time_is_over()
            assert theirs.freeze()
            theirs._queues = dict(process_queue._queues)
            ours.thaw()
            theirs.thaw()
            try:
                expected = old
                for writer, given in ((ours, OURS), (theirs, THEIRS)):
                    assert writer.error is None or isinstance(writer.error, (CommitConflict, LockTimeout))
                    expected = expected if writer.error else put(expected, *given)
                assert state(uri) == expected
                lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
                assert state(uri) == put(expected, *LAST)
                verification = lakebed.open(uri).indexes.verify()
                assert verification.ok, verification
            except BaseException as problem:
                problem.add_note(f"stood still before call {at}: {jumped.call}; {ours.error!r}, {theirs.error!r}")
                raise
