"""Checkpoints of ingest: Hudi Streamer's keys by the version of the table, and which commit counts."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.ingestion.checkpoints import StoredCheckpoint, read_checkpoint
from lakebed.storage import open_storage
from lakebed.timeline.timeline import load_timeline

V2, V1, RESET = "streamer.checkpoint.key.v2", "deltastreamer.checkpoint.key", "streamer.checkpoint.reset.key.v2"
ROWS = pa.table({"id": [1], "at": [1]})


def table(version: int, name: str = "", **arguments: object) -> lakebed.Table:
    uri = f"memory://checkpoints/{version}{name}{'-'.join(map(str, arguments.values()))}"
    if lakebed.list_tables(uri, depth=0):
        lakebed.drop(uri)
    return lakebed.create(uri, ROWS, key="id", table_version=version, **arguments)  # type: ignore[arg-type]


def stored(t: lakebed.Table, identifier: str = "") -> StoredCheckpoint:
    return read_checkpoint(open_storage(t.uri), identifier)


@pytest.mark.parametrize(("version", "key"), [(9, V2), (8, V2), (6, V1)])
def test_the_key_is_that_of_the_version_of_the_table(version: int, key: str) -> None:
    t = table(version)
    assert stored(t).value is None
    assert stored(t).metadata("a,0:1", None, None) == {key: "a,0:1"}
    t.upsert(ROWS, options={key: "a,0:1"})
    assert stored(t).value == "a,0:1"


def test_a_pair_of_the_older_key_is_continued_and_the_newer_key_is_read_first() -> None:
    t = table(9)
    t.upsert(ROWS, options={V1: "a,0:1"})
    assert stored(t).value == "a,0:1"
    assert stored(t).metadata("a,0:2", None, None) == {V2: "a,0:2", V1: "a,0:2"}
    t.upsert(ROWS, options={V1: "a,0:1", V2: "a,0:2"})
    assert stored(t).value == "a,0:2"


def test_commits_without_a_checkpoint_are_passed_by_also_where_the_checkpoint_is_archived() -> None:
    t = table(9, "-archived", index="bucket", buckets=1)
    t.upsert(ROWS, options={V2: "a,0:7"})
    options = {"hoodie.keep.max.commits": 3, "hoodie.keep.min.commits": 2, "hoodie.clean.commits.retained": 1}
    for at in range(2, 6):
        t.upsert(pa.table({"id": [1], "at": [at]}), options=options)
    t.maintenance.clean(options=options)
    first = open_storage(t.uri)
    t.maintenance.archive(options=options)
    timeline = load_timeline(first, t.opened.config)
    assert not any(V2 in timeline.commit_metadata(commit).extra for commit in timeline.commits)
    assert stored(t).value == "a,0:7"


def test_only_delta_commits_of_a_merge_on_read_table_count() -> None:
    t = table(9, type="mor", index="bucket", buckets=1)
    t.upsert(ROWS, options={V2: "1"})
    t.upsert(ROWS, options={V2: "2"})
    t.maintenance.compact(options={V2: "of a compaction"})
    assert stored(t).value == "2"


def test_a_text_of_the_caller_is_followed_once() -> None:
    empty = StoredCheckpoint(True)
    assert empty.start("a,0:5", None) == "a,0:5"
    followed = StoredCheckpoint(True, empty.metadata("a,0:9", "a,0:5", None))
    assert followed.extra == {V2: "a,0:9", RESET: "a,0:5"}
    assert followed.start("a,0:5", None) == "a,0:9"
    assert followed.start("a,0:6", None) == "a,0:6"
    ignored = StoredCheckpoint(True, followed.metadata("a,0:3", None, "once"))
    assert (followed.start(None, "once"), ignored.start(None, "once"), ignored.start(None, "again")) == (
        None,
        "a,0:3",
        None,
    )


def test_a_checkpoint_of_several_lines_has_its_first_line_under_the_key_of_hudi() -> None:
    entries = StoredCheckpoint(True).metadata('17\n["a"]', None, None)
    assert entries == {V2: "17", "lakebed.ingest.checkpoint": '17\n["a"]'}
    assert StoredCheckpoint(True, entries).value == '17\n["a"]'
    # Hudi went on from it
    assert StoredCheckpoint(True, {**entries, V2: "18"}).value == "18"


def test_several_jobs_have_a_checkpoint_each() -> None:
    one = StoredCheckpoint(True, {}, "one")
    extra = one.metadata("a,0:1", None, None)
    assert json.loads(extra[V1]) == {"one": "a,0:1"}
    both = StoredCheckpoint(True, extra, "two").metadata("b,0:2", None, None)
    assert json.loads(both[V1]) == {"one": "a,0:1", "two": "b,0:2"}
    assert StoredCheckpoint(True, both, "one").value == "a,0:1"
    with pytest.raises(InvalidOption, match="one, two"):
        StoredCheckpoint(True, both).start(None, None)
    alone = StoredCheckpoint(True, {**both, V2: "c"})
    assert alone.value == "c"
    assert alone.metadata("d", None, None) == {V2: "d", V1: both[V1]}
