"""The versions of a key against a model: the rows of each key after each commit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.table import Table

Make = Callable[..., Table]
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
PATH = "_hoodie_partition_path"
LEFT = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}


def rows(*of: tuple[str, str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, one, strict=True)) for one in of], SCHEMA)


@pytest.mark.one_case
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", ["simple", "global_simple", "record", "bucket"])
def test_versions_are_those_of_a_model(make: Make, kind: str, index: str) -> None:
    t = make(SCHEMA, type=kind, index=index, properties=LEFT)
    seed = random.Random(f"{kind}{index}")
    keys = [f"k{n}" for n in range(4)]
    states: list[tuple[str, dict[tuple[str, str], dict[str, Any]]]] = []
    for step in range(8):
        chosen = seed.sample(keys, 2)
        if step % 3 == 2:
            done = t.delete(chosen)
        else:
            done = t.upsert(rows(*((key, f"c{seed.randrange(2)}", seed.randrange(99), step) for key in chosen)))
        if done.instant:
            # under a record index a row stays in its partition path when its city changes
            found = t.scan([*SCHEMA.names, PATH]).to_arrow().to_pylist()
            states.append((done.instant, {(row["id"], row.pop(PATH)): row for row in found}))
    for key in [*keys, "absent"]:
        expected: list[tuple[Any, ...]] = []
        before: dict[tuple[str, str], dict[str, Any]] = {}
        for instant, after in states:
            for place in sorted({p for p in (*before, *after) if p[0] == key}):
                old, new = before.get(place), after.get(place)
                if old != new:
                    change = "insert" if old is None else "delete" if new is None else "update"
                    expected.append((instant, change, place[1], old, new))
            before = after
        history = t.history([key])
        found = [(one.instant, one.change, one.partition_path, one.before, one.after) for one in history]
        assert sorted(found, key=lambda one: one[:3]) == sorted(expected, key=lambda one: one[:3])
        assert [one.instant for one in history] == sorted((one.instant for one in history), reverse=True)
        assert (history.before, history.note) == (None, "")


def test_a_history_goes_on_where_it_ended(make: Make) -> None:
    t = make(SCHEMA, index="global_simple", properties=LEFT)
    for step in range(6):
        t.upsert(rows(("a", "c", step, step)))
    complete = [(one.instant, one.change) for one in t.history(["a"])]
    found: list[tuple[str, str]] = []
    before: str | None = None
    for _ in range(10):
        part = t.history(["a"], before=before, lookups=3)
        found += [(one.instant, one.change) for one in part]
        before = part.before
        if before is None:
            break
        assert part.note == f"commits before {before} were not looked at"
    assert found == complete
    assert len(found) == 6


def test_versions_that_were_cleaned_are_named(make: Make) -> None:
    t = make(SCHEMA, index="global_simple", properties={**LEFT, "hoodie.clean.commits.retained": 2})
    for step in range(6):
        t.upsert(rows(("a", "c", step, step)))
    t.maintenance.clean()
    history = t.history(["a"])
    assert [one.after["v"] for one in history if one.after] == [5, 4, 3]
    assert [one.change for one in history] == ["update", "update", "write"]
    assert "cleaned away" in history.note


def test_services_make_no_version(make: Make) -> None:
    t = make(SCHEMA, type="mor", index="bucket", partition_by=None, properties=LEFT)
    for step in range(3):
        t.upsert(rows(("a", "c", step, step)))
    t.maintenance.compact()
    assert [one.change for one in t.history(["a"])] == ["update", "update", "insert"]
    assert t.history(["a"]).to_arrow()["after"].to_pylist()[0] == {"id": "a", "city": "c", "v": 2, "ts": 2}
    assert "<table>" in t.history(["a"])._repr_html_()


def test_a_history_is_of_one_key(make: Make) -> None:
    t = make(SCHEMA)
    t.upsert(rows(("a", "c", 1, 1)))
    with pytest.raises(lakebed.InvalidOption, match="a history is of one key, not of 2"):
        t.history(["a", "b"])


def test_before_is_an_instant_or_a_time_and_no_other_text(make: Make) -> None:
    t = make(SCHEMA, index="simple", properties=LEFT)
    for step in range(3):
        t.upsert(rows(("a", "x", step, step)))
    times = [one.instant for one in t.history(["a"])]
    assert [one.instant for one in t.history(["a"], before=times[0])] == times[1:]
    assert [one.instant for one in t.history(["a"], before="2099-01-01")] == times
    assert len(t.history(["a"], before="2001-01-01")) == 0
    with pytest.raises(lakebed.InvalidOption, match="before 'yesterday' is no time"):
        t.history(["a"], before="yesterday")
