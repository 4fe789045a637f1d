"""No table service makes a writer fail that does not touch its files: each runs from begin to end while a write to
other file groups is under way, and both are there afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lakebed
from lakebed.format.bounded_cache import BoundedCache
from lakebed.model import Action
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.properties.file import load_table_config
from lakebed.services.due import run_due_services
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.timeline import load_timeline
from support.crash_tables import OPTIONS, copied, leftovers, prepared, put, rows, state
from support.sampling import CRASH, todays_of

OURS = (0, "c0", "ours", 90)
NEW_FILES = {**OPTIONS, "hoodie.parquet.small.file.limit": 0}
SERVICES: dict[str, Callable[[Table], Any]] = {
    "clean": lambda t: t.maintenance.clean(options={"hoodie.clean.commits.retained": 1}),
    "archive": lambda t: t.maintenance.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}),
    "cluster": lambda t: t.maintenance.cluster(["v"], partitions=["c1"]),
    "savepoint": lambda t: t.savepoints.create(),
    "configure": lambda t: t.configure({"hoodie.clean.commits.retained": 7}),
    "expire": lambda t: t.maintenance.expire_partitions(10_000),
    "repair": lambda t: t.maintenance.repair(["properties"]),
    "compact": lambda t: t.maintenance.compact(),
    "compact_logs": lambda t: t.maintenance.compact(logs=True, options={"hoodie.log.compaction.blocks.threshold": 2}),
    "index": lambda t: (t.indexes.create("bloom_filters", wait=False), t.indexes.build()),
    "services": lambda t: list(lakebed.maintenance.run([t.uri], once=True)),
}
_OF_LOGS, _OF_V8 = ("compact", "compact_logs"), ("index",)
KINDS = (("simple", 9), ("record", 8), ("mor-bucket", 9), ("mor-record", 8), ("bucket", 6))


@contextmanager
def beside_a_write(do: Callable[[], object]) -> Iterator[None]:
    """It happens when the next write has written its files and is about to commit."""
    commit, done = WriteTransaction.commit, list[bool]()

    def held(self: WriteTransaction, *given: Any, **more: Any) -> Any:
        if not done:
            done.append(True)
            do()
        return commit(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteTransaction, "commit", held)
        yield
    assert done


@pytest.mark.parametrize(
    ("service", "kind"), todays_of(list(SERVICES), KINDS, parts=2, variable=CRASH), ids=lambda one: str(one)
)
def test_the_write_commits_and_so_does_the_service(service: str, kind: tuple[str, int]) -> None:
    index, version = kind
    if (service in _OF_LOGS and not index.startswith("mor")) or (service in _OF_V8 and version < 8):
        pytest.skip("there is none for such a table")
    files, old = prepared(index, version)
    others = [(1, "c1", f"more {n}", 10 + n) for n in range(3)]
    with copied("memory", files) as uri:
        for one in others:
            lakebed.open(uri).upsert(rows(one), options=NEW_FILES)
        told: list[Any] = []
        with beside_a_write(lambda: told.append(SERVICES[service](lakebed.open(uri)))):
            lakebed.open(uri).upsert(rows(OURS), options=OPTIONS)
        assert told
        assert "was left" not in str(told[0])
        assert "failed" not in str(told[0])
        assert state(uri) == put(old, *others, OURS)
        assert lakebed.open(uri).indexes.verify().ok
        assert [line for line in leftovers(uri) if "pending" in line] == []
        storage = open_storage(uri)
        done = {i.action for i in load_timeline(storage, load_table_config(storage)).completed}
        expected = {"clean": Action.CLEAN, "cluster": Action.REPLACECOMMIT, "savepoint": Action.SAVEPOINT}
        if service in expected and (service != "clean" or not index.startswith("mor")):
            assert expected[service] in done


TIDY: dict[str, Any] = {
    **OPTIONS,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
}


@pytest.mark.parametrize("version", [9, 6])
def test_services_due_after_a_write_run_where_another_process_archived(
    version: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last clean that the write has seen is on the archived timeline by then."""
    files, old = prepared("bucket", version)
    with copied("memory", files) as uri:
        for n in range(6):
            lakebed.open(uri).upsert(rows((1, "c1", f"before {n}", 10 + n)), options=TIDY)
        cleans = {i.time for i in lakebed.open(uri).timeline if i.action is Action.CLEAN}
        assert cleans

        def others() -> None:
            for n in range(8):
                lakebed.open(uri).upsert(rows((1, "c1", f"beside {n}", 20 + n)), options=TIDY)
            assert not cleans & {i.time for i in lakebed.open(uri).timeline}

        due, done = run_due_services, list[bool]()

        def held(*given: Any, **named: Any) -> Any:
            if not done:
                done.append(True)
                others()
                # what another process has read of them is not known here
                monkeypatch.setattr("lakebed.timeline.history._CLEANS", BoundedCache[Any](0))
            return due(*given, **named)

        monkeypatch.setattr("lakebed.services.due.run_due_services", held)
        result = lakebed.open(uri).upsert(rows(OURS), options=TIDY)
        assert "failed" not in caplog.text
        assert done
        assert result.instant
        assert state(uri) == put(old, (1, "c1", "beside 7", 27), OURS)
        assert lakebed.open(uri).indexes.verify().ok
