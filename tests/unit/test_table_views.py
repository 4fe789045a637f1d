"""Views of a table: parts of a timeline, bodies of instants, versions of a file group, pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.model import Instant, State
from lakebed.pictures import WIDTH, Bar, Lane, Picture, Span, bars, ranges, spans
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


@pytest.mark.parametrize(("count", "named"), [(1, 1), (12, 12), (13, 7), (24, 12), (25, 9), (200, 12)])
def test_of_many_bars_some_have_their_names_and_none_reaches_the_next(count: int, named: int) -> None:
    drawn = bars([Bar(1.0, f"bar {at}", name=f"group {at} of a long name") for at in range(count)], "below")
    names = re.findall(r'x="([\d.]+)" y="176.0"[^>]*>([^<]*)<', drawn)
    assert len(names) == named
    assert names[0][1].startswith("group 0" if count < 100 else "group")
    places = [float(x) for x, _ in names]
    for (place, text), after in zip([(float(x), text) for x, text in names], [*places[1:], 960.0], strict=True):
        assert place + 6.2 * len(text) <= after
    assert all(f"<title>bar {at}</title>" in drawn for at in range(count))


def test_the_lines_of_a_picture_of_ranges_have_their_ends_under_the_pointer() -> None:
    drawn = ranges([(0.5, 0.75), (0.0, 0.25)], ("a", "z"), "two", ["m to p", "a & b"])
    assert re.findall(r'x="([\d.]+)"[^>]*><title>([^<]*)</title>', drawn) == [
        ("0.0", "a &amp; b"),
        (f"{WIDTH / 2:.1f}", "m to p"),
    ]
    table = lakebed.load("memory://views/ranges", {"id": [3, 7], "fare": [1.0, 2.0]}, key="id", progress=False)
    assert "<title>3 to 7</title>" in table.indexes.ranges().plot("id")


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


def test_every_view_is_a_frame_of_pandas_and_polars() -> None:
    table = lakebed.load("memory://views/frames", {"id": [1, 2, 3], "fare": [1.0, 2.0, 3.0]}, key="id")
    table.upsert({"id": [2], "fare": [9.0]})
    table.savepoints.create(name="s")
    views: list[Any] = [
        table.timeline,
        table.files,
        table.files.skew(),
        table.features,
        table.columns,
        table.versions,
        table.savepoints,
        table.catalogs,
        table.consumers,
        table.indexes,
        table.indexes.skew(),
        table.indexes.ranges(),
        table.history([2]),
        table.diff(1, 2),
        table.scan(),
        table.changes("earliest"),
        lakebed.sql("select * from t", {"t": table}),
    ]
    for view in views:
        rows = view.to_arrow()
        polars, pandas = view.to_polars(), view.to_pandas()
        assert polars.columns == list(pandas.columns) == rows.column_names, type(view)
        assert polars.height == len(pandas) == rows.num_rows, type(view)
        assert polars.to_arrow().num_rows == rows.num_rows


def test_a_sample_has_rows_of_the_table_each_with_the_same_chance() -> None:
    rows = pa.table({"id": list(range(200)), "v": [n % 7 for n in range(200)]})
    table = lakebed.create("memory://views/sample", rows, key="id", index="bucket", buckets=4)
    table.upsert(rows)
    stored = {(row["id"], row["v"]) for row in rows.to_pylist()}
    counts = dict.fromkeys(range(200), 0)
    for seed in range(120):
        sample = table.sample(20, seed=seed)
        found = [(row["id"], row["v"]) for row in sample.to_pylist()]
        assert len(set(found)) == 20
        assert set(found) <= stored
        for key, _ in found:
            counts[key] += 1
    assert sum(counts.values()) == 2_400
    assert all(1 <= count <= 30 for count in counts.values())
    assert table.sample(5, seed=3).equals(table.sample(5, seed=3))
    assert table.sample(500).num_rows == 200
    assert table.sample(0).num_rows == 0
    assert sorted(table.scan(["id"], where="id < 3").sample(9)["id"].to_pylist()) == [0, 1, 2]


def test_tables_of_notebooks_have_texts_on_the_left_and_numbers_on_the_right() -> None:
    table = lakebed.load("memory://views/sides", {"id": ["a", "b"], "fare": [1.0, 22.5]}, key="id")
    html = table.scan()._repr_html_()
    assert '<th style="text-align:left">id</th><th style="text-align:right">fare</th>' in html
    assert '<td style="text-align:left">a</td><td style="text-align:right">1.0</td>' in html
    first = table.timeline.to_arrow()["time"][0].as_py()
    assert f'<td style="text-align:left">{first}</td>' in table.timeline._repr_html_()


def test_a_history_marks_what_changed() -> None:
    table = lakebed.load("memory://views/marked", {"id": [1], "fare": [1.0], "city": ["<b>"]}, key="id")
    table.upsert({"id": [1], "fare": [3.0], "city": ["<b>"]})
    history = table.history([1])
    assert [version.changed for version in history] == [("fare",), ()]
    assert history.to_arrow()["changed"].to_pylist() == [["fare"], []]
    assert "changed: 'fare': 1.0 -> 3.0" in str(history)
    html = history._repr_html_()
    assert "id 1, <mark>fare 1.0</mark>, city &lt;b&gt;" in html
    assert "id 1, <mark>fare 3.0</mark>, city &lt;b&gt;" in html
    assert html.count("<mark>") == 2
    assert table.diff(1, 2)._repr_html_().count("<mark>") == 2
