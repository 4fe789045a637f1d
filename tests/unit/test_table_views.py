"""Views of a table: parts of a timeline, bodies of instants, versions of a file group, pictures."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakebed
from lakebed.model import Instant, State
from lakebed.pictures import Bar, Lane, Picture, Span, bars, spans
from lakebed.table import Table
from support.write_tables import SCHEMA

Make = Callable[..., Table]
LEFT = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.compact.inline": False}


def rows(step: int) -> pa.Table:
    return pa.table({"id": [1, 2, 3], "city": ["c0", "c0", "c1"], "v": ["a"] * 3, "ts": [step] * 3}, SCHEMA)


def test_a_part_of_a_timeline_has_its_own_instants_alone(make: Make) -> None:
    t = make(properties=LEFT)
    done = [t.upsert(rows(step)).instant for step in range(5)]
    part = t.timeline[-2:]
    assert [one.time for one in part] == part.to_arrow()["time"].to_pylist() == done[-2:]
    assert part.commit_totals()["commit_time"].to_pylist() == done[:-3:-1]
    assert t.timeline[0].time == done[0]
    assert t.timeline.to_arrow()["updated"].to_pylist() == [0, 3, 3, 3, 3]
    assert len(t.timeline.pending) == 0


def test_bodies_and_commits_are_those_of_the_instants(make: Make) -> None:
    t = make(properties=LEFT)
    for step in range(3):
        t.upsert(rows(step))
    last = t.timeline.last
    assert last is not None
    commit, body = t.timeline.commit(last), t.timeline.body(last)
    assert {path: sum(one.num_updates for one in group) for path, group in commit.stats.items()} == {"c0": 2, "c1": 1}
    assert set(body["partitionToWriteStats"]) == {"c0", "c1"}
    metadata = t.timeline.metadata_table
    assert metadata is not None
    assert last.time in [one.time for one in metadata]
    assert metadata.body(metadata[-1])["operationType"]


@pytest.mark.rest
def test_archived_instants_have_bodies(make: Make) -> None:
    t = make(properties={**LEFT, "hoodie.keep.min.commits": 12, "hoodie.keep.max.commits": 14})
    done = [t.upsert(rows(step)).instant for step in range(20)]
    t.maintenance.clean()
    t.maintenance.archive()
    archived = t.timeline.archived
    commits = [one for one in archived if one.action.value == "commit"]
    assert [one.time for one in commits] == done[: len(commits)]
    assert commits
    assert archived.commit(commits[0]).operation == "UPSERT"
    assert set(archived.body(commits[0])["partitionToWriteStats"]) == {"c0", "c1"}
    assert archived[:1].to_arrow()["inserted"].to_pylist() == [3]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_versions_of_a_group_are_all_stored_slices(make: Make, kind: str) -> None:
    t = make(type=kind, index="bucket", buckets=1, properties=LEFT)
    done = [t.upsert(rows(step)).instant for step in range(3)]
    if kind == "mor":
        done.append(t.maintenance.compact().instants[0])
    first = next(one for one in t.files if one.partition == "c0")
    versions = t.files.versions("c0", first.file_id)
    assert versions[-1] == first
    expected = done if kind == "cow" else [done[0], done[-1]]
    assert [one.instant for one in versions] == expected
    assert [len(one.log_files) for one in versions] == ([0, 0, 0] if kind == "cow" else [2, 0])
    assert t.files.base_rows(versions) == [2] * len(versions)
    assert t.files.versions("c0", "none") == ()


def test_a_plot_has_a_bar_for_each_instant_of_both_timelines(make: Make) -> None:
    t = make(properties=LEFT)
    for step in range(3):
        t.upsert(rows(step))
    plot = t.timeline.plot()
    metadata = t.timeline.metadata_table
    assert metadata is not None
    first = t.timeline[0].time
    together = len(t.timeline) + len([one for one in metadata if one.time >= first])
    assert plot.count('class="span completed"') == together
    assert isinstance(plot, Picture)
    assert plot._repr_html_() == plot


def test_idle_times_of_a_plot_are_cut_short() -> None:
    day = 86_400_000.0
    lane = Lane("commit", tuple(Span(n * day, n * day + 1000, "completed", str(n)) for n in range(3)))
    drawn = spans([("", [lane])], 3 * day, [])
    left = [float(x) for x in re.findall(r'class="span completed"[^>]*? x="([\d.]+)"', drawn)]
    width = [float(x) for x in re.findall(r'class="span completed"[^>]*? width="([\d.]+)"', drawn)]
    assert len(left) == 3
    assert all(one > 50 for one in width)
    assert drawn.count('class="cut"') == 2


def test_texts_in_pictures_are_escaped() -> None:
    evil = '<script>&"'
    for drawn in (
        bars([Bar(1.0, evil)], evil),
        spans([(evil, [Lane(evil, (Span(0.0, None, "inflight", evil),))])], 5.0, [(0.0, evil)]),
    ):
        assert "<script" not in drawn
        assert "&lt;script&gt;&amp;" in drawn


def test_an_unknown_instant_has_no_body(make: Make) -> None:
    t = make()
    t.upsert(rows(0))
    last = t.timeline.last
    assert last is not None
    with pytest.raises(lakebed.CorruptFile, match="is not in the archived timeline"):
        t.timeline.body(Instant("20000101000000000", last.action, State.COMPLETED, None, ""))
    assert lakebed.open(t.uri).timeline.body(last)
