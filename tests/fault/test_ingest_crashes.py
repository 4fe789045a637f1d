"""Every storage mutation of rounds of ingest as the place where the process dies: started again, it has each row of the
source in one commit, in order, and each bad row once.

Some mutations are struck each day; `LAKEBED_CRASH=all` strikes all of them.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.ingestion.source import BadRow, IngestPoll, IngestSource, bad_table
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, Mode, crash_at
from lakebed.timeline.timeline import load_timeline
from support.sampling import CRASH, is_todays

KEYS = {9: "streamer.checkpoint.key.v2", 6: "deltastreamer.checkpoint.key"}
END = 6


class Numbers(IngestSource):
    """Rows 0 to 5, two a poll; 1 and 4 are bad."""

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        start = int(checkpoint or 0)
        if start >= END:
            return IngestPoll(None, None, checkpoint)
        good = [n for n in range(start, start + 2) if n not in (1, 4)]
        bad = [BadRow(f"n/{n}", b"%d" % n, "RECORD_CREATION", "bad") for n in range(start, start + 2) if n in (1, 4)]
        return IngestPoll(pa.table({"id": good}), bad_table(bad), str(start + 2), more=start + 2 < END)


def job_of(folder: str, kind: str, operation: str, version: int) -> dict[str, Any]:
    options = {"lakebed.write.tasks": 1, "hoodie.write.lock.wait_time_ms": 5000}
    index = {} if operation == "upsert" else {"index": "simple"}
    create = {"key": "id", "type": kind, "table_version": version, **index}
    target = {"uri": f"{folder}/t", "operation": operation, "create": create, "options": options}
    errors = {"table": f"{folder}/errors", "options": options}
    return {"source": Numbers(), "target": target, "errors": errors}


def commits(uri: str, version: int) -> list[tuple[str, int]]:
    """The checkpoint and the number of rows of each completed commit of the target."""
    t = lakebed.open(uri)
    timeline = load_timeline(open_storage(uri), t.opened.config)
    bodies = map(timeline.commit_metadata, timeline.commits)
    return [
        (b.extra[KEYS[version]], sum(s.num_writes for part in b.stats.values() for s in part))
        for b in bodies
        if KEYS[version] in b.extra
    ]


def ids(uri: str, column: str) -> list[Any]:
    return sorted(lakebed.open(uri).to_arrow()[column].to_pylist())


@pytest.mark.parametrize(
    ("kind", "operation", "version"),
    [("mor", "upsert", 9), ("cow", "insert", 9), ("mor", "bulk_insert", 6)],
)
@pytest.mark.parametrize("mode", ["kill", "unacknowledged"])
def test_a_job_that_died_anywhere_has_each_row_once(kind: str, operation: str, version: int, mode: Mode) -> None:
    name = f"ingest-{uuid.uuid4().hex}"
    with crash_at(0) as counted:
        lakebed.ingest(job_of(f"memory://{name}", kind, operation, version), once=True)
    full = commits(f"memory://{name}/t", version)
    assert [checkpoint for checkpoint, _ in full] == ["2", "4", "6"]
    MemoryStorage.drop(name)
    points = [
        at for at in range(1, len(counted.mutations) + 1) if is_todays(at, 40, CRASH, kind, operation, version, mode)
    ]
    for at in points:
        folder = f"memory://{name}-{at}"
        with crash_at(at, mode) as crash, suppress(Killed):
            lakebed.ingest(job_of(folder, kind, operation, version), once=True)
        assert crash.dead, at
        lakebed.ingest(job_of(folder, kind, operation, version), once=True)
        assert commits(f"{folder}/t", version) == full, crash
        assert ids(f"{folder}/t", "id") == [0, 2, 3, 5], crash
        assert ids(f"{folder}/errors", "position") == ["n/1", "n/4"], crash
        MemoryStorage.drop(f"{name}-{at}")
