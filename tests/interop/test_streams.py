"""A stream whose writer changes: real Hudi's sink and lakebed go on with one checkpoint, each behind the other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from lakebed import Once, Table
from lakebed.errors import InvalidOption
from lakebed.timeline.streams import SINK_CHECKPOINT, STREAMS
from oracle.client import HudiOracle


def batch(number: int) -> pa.Table:
    return pa.table({"id": [number, number + 1], "n": [number, number]})


def commits(t: Table) -> list[tuple[dict[str, str], dict[str, int]]]:
    """Of each write Hudi's record and lakebed's, the first one first."""
    timeline = t.opened.snapshot().timeline
    found: list[Any] = []
    for body in timeline.commits_metadata(timeline.commits_by_completion):
        if body.operation == "COMPACT":
            continue
        found.append((json.loads(body.extra.get(SINK_CHECKPOINT, "{}")), json.loads(body.extra.get(STREAMS, "{}"))))
    return found


@pytest.mark.parametrize(("kind", "version"), [("mor", 9), ("cow", 8), ("cow", 6)])
def test_a_stream_goes_from_real_hudi_to_lakebed_and_back(
    kind: str, version: int, tmp_path: Path, oracle: HudiOracle
) -> None:
    t = lakebed.create(
        str(tmp_path / "t"),
        batch(0),
        key="id",
        type=kind,  # pyright: ignore[reportArgumentType]
        table_version=version,
        index="bucket",
        buckets=1,
    )
    incoming = tmp_path / "in"
    incoming.mkdir()

    def arrives(number: int) -> None:
        pq.write_table(batch(number), incoming / f"{number}.parquet")
        os.utime(incoming / f"{number}.parquet", (number + 1, number + 1))

    def hudi() -> str:
        options = {**hudi_job(t), "hoodie.compact.inline": "false"}
        where = {"folder": str(incoming), "checkpoint": str(tmp_path / "checkpoint")}
        return str(oracle.ask("stream", table=t.uri, options=options, **where)["query"])

    arrives(0)
    arrives(1)
    stream = hudi()
    assert commits(t) == [({"default_single_writer": "0"}, {}), ({"default_single_writer": "1"}, {})]
    # batch 1 may be of this stream or of another one
    with pytest.raises(InvalidOption, match="real Hudi has recorded batch 1"):
        t.insert(batch(1), once=Once(stream, 1))
    assert not t.upsert(batch(1), once=Once(stream, 1)).skipped
    assert not t.upsert(batch(2), once=Once(stream, 2)).skipped
    assert commits(t)[2:] == [
        ({"default_single_writer": "1"}, {stream: 1}),
        ({"default_single_writer": "2"}, {stream: 2}),
    ]
    t.upsert(batch(0).set_column(1, "n", pa.array([0, 1])))  # no batch
    # real Hudi runs batch 2 of its checkpoint, which lakebed has written, and goes on behind it
    arrives(2)
    arrives(3)
    assert hudi() == stream
    assert commits(t)[5:] == [({"default_single_writer": "3"}, {stream: 2})]
    assert t.upsert(batch(2), once=Once(stream, 2)).skipped
    # a job of real Hudi without a stream keeps both records, as the properties of the table say
    oracle.write(t.uri, batch(7), options={**hudi_job(t), "hoodie.compact.inline": "false"})
    assert commits(t)[6:] == [({"default_single_writer": "3"}, {stream: 2})]
    expected = {0: 0, 1: 1, 2: 2, 3: 3, 4: 3, 7: 7, 8: 7}
    assert dict(zip(*t.scan(["id", "n"]).to_arrow().to_pydict().values(), strict=True)) == expected
