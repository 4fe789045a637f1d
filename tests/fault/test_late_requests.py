"""A writer that requests its instant after it has lost the table lock, when later instants are archived by now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import lakebed
from lakebed.concurrency.heartbeat import Heartbeat
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.timeline.instants import following
from lakebed.timeline.timeline import load_timeline
from lakebed.timeline.transitions import TimelineWriter
from support.crash_tables import OPTIONS, Model, copied, prepared, put, rows, state

CASES = [
    ("simple", 9),
    ("global_bloom", 8),
    ("bloom", 6),
    ("mor-record", 9),
    ("mor-simple", 8),
    ("mor-global_simple", 6),
]
CASES += [("mor-global_simple", 6), ("record_level_index", 9)]
KEEPS = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
SERVICES = OPTIONS | KEEPS | {"hoodie.metadata.compact.max.delta.commits": 1, "hoodie.parquet.small.file.limit": 0}
NEW = [(n, f"c{n % 2}", "n", 3) for n in range(20, 27)]


def archived(uri: str) -> tuple[Model, str]:
    """Write until instants are archived; gives the rows that are added, and a time behind that of the first commit."""
    first = next(iter(lakebed.open(uri).timeline)).time
    written = [lakebed.open(uri).upsert(rows(one), options=SERVICES).instant for one in NEW]
    assert written[0] not in {i.time for i in lakebed.open(uri).timeline}
    return put({}, *NEW), following(first)


@contextmanager
def requested(uri: str, time: str) -> Iterator[None]:
    """A write of this time is pending, and its writer lives."""
    storage = open_storage(uri)
    config = load_table_config(storage)
    action = Action.COMMIT if config.table_type == "cow" else Action.DELTACOMMIT
    with Heartbeat(storage, time, "late"):
        TimelineWriter(storage, config).request(action, time)
        yield


@pytest.mark.parametrize(("index", "version"), CASES)
def test_reads_and_writes_see_what_is_archived(index: str, version: int) -> None:
    files, old = prepared(index, version)
    with copied("memory", files) as uri:
        new, time = archived(uri)
        newest = load_timeline(open_storage(uri), load_table_config(open_storage(uri))).commits[-1].time
        with requested(uri, time):
            assert state(uri) == old | new
            found = lakebed.open(uri).get(sorted(old | new))
            assert found.num_rows == len(old | new)
            assert lakebed.open(uri).scan(as_of=newest).count() == len(old | new)
            again = [(key, city, "again", 9) for key, (city, _, _) in (old | new).items()]
            lakebed.open(uri).upsert(rows(*again), options=OPTIONS)
            assert state(uri) == put({}, *again)
            assert lakebed.open(uri).indexes.verify().ok
        assert state(uri) == put({}, *again)
