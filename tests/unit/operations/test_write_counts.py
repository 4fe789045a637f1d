"""The counts of a write mean the same for each verb, kind of table and index; the docs show this table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakebed
from lakebed.operations.result import WriteResult
from lakebed.table import Table
from support.sampling import some
from support.write_tables import content, rows

Make = Callable[..., Table]
Counts = tuple[int | None, ...]
NAMES = ("rows", "inserted", "updated", "deleted", "unchanged", "combined", "duplicates", "replaced_rows")
BEFORE = [(1, "a", "x", 1), (2, "a", "x", 1), (3, "b", "x", 1), (4, "b", "x", 1)]
KINDS = [
    *(
        (index, kind)
        for index in ("bucket", "simple", "global_simple", "bloom", "global_bloom", "record", "bucket_groups")
        for kind in ("cow", "mor")
    ),
    ("consistent", "mor"),
]
NEW = rows((1, "a", "y", 2), (5, "a", "y", 2))
LATE = rows((1, "a", "y", 2), (2, "a", "late", 0), (5, "a", "y", 2), (5, "a", "z", 3))
TWICE = rows((1, "a", "y", 2), (1, "a", "z", 3), (3, "b", "y", 2), (5, "a", "y", 2), (5, "a", "z", 3))
NEW_KEYS_ONLY = {"hoodie.datasource.write.insert.drop.duplicates": True}
CHANGED = {"v": "s.v", "ts": "s.ts"}

# What each verb does to the four rows, and its counts where the write looks keys up.
VERBS: dict[str, tuple[Callable[[Table], WriteResult], Counts]] = {
    "insert": (lambda t: t.insert(NEW), (2, 2, 0, 0, 0, 0, 1, 0)),
    "insert of new keys only": (lambda t: t.insert(TWICE, options=NEW_KEYS_ONLY), (5, 1, 0, 0, 2, 2, 0, 0)),
    "bulk_insert": (lambda t: t.bulk_insert(NEW), (2, 2, 0, 0, 0, 0, None, 0)),
    "upsert": (lambda t: t.upsert(LATE), (4, 1, 1, 0, 1, 1, 0, 0)),
    "delete of keys": (lambda t: t.delete([1, 3, 77]), (3, 0, 0, 2, 1, 0, 0, 0)),
    "delete of rows": (
        lambda t: t.delete(rows((1, "a", "", 9), (77, "a", "", 9)).select(["id", "city"])),
        (2, 0, 0, 1, 1, 0, 0, 0),
    ),
    "delete by a condition": (lambda t: t.delete(where="id <= 2"), (2, 0, 0, 2, 0, 0, 0, 0)),
    "update": (lambda t: t.update({"v": "'new'"}, where="id <= 2"), (2, 0, 2, 0, 0, 0, 0, 0)),
    "merge": (
        lambda t: t.merge(NEW).when_matched_update(CHANGED).when_not_matched_insert().execute(),
        (2, 1, 1, 0, 0, 0, 0, 0),
    ),
    "insert_overwrite": (lambda t: t.insert_overwrite(NEW), (2, 2, 0, 0, 0, 0, 0, 2)),
    "delete_partitions": (lambda t: t.delete_partitions("a"), (0, 0, 0, 0, 0, 0, 0, 2)),
}


def expected_counts(verb: str, index: str, kind: str) -> dict[str, int | None]:
    """The counts, with those that differ where a write appends to log files, and where keys are known anyhow."""
    counts: dict[str, int | None] = dict(zip(NAMES, VERBS[verb][1], strict=True))
    appends = kind == "mor" and index in ("bucket", "consistent")
    if verb == "upsert" and kind == "mor":  # values are not compared with the stored ones
        counts |= {"updated": 2, "unchanged": 0}
    if appends and verb in ("insert", "bulk_insert", "upsert"):
        counts |= {"inserted": None, "updated": None}
    if appends and verb in ("insert", "bulk_insert"):
        counts |= {"duplicates": 0}
    elif verb == "bulk_insert" and index in ("bucket", "bucket_groups", "record"):
        counts |= {"duplicates": 1}
    return counts


@pytest.mark.parametrize(
    ("verb", "index", "kind"),
    some(
        [(verb, *pair) for verb in VERBS for pair in KINDS],
        *((verb, *pair) for verb, pair in zip(VERBS, (KINDS * 2)[1::3], strict=False)),
        *(("upsert", *pair) for pair in (("bucket", "mor"), ("simple", "cow"))),
    ),
)
def test_counts_of_each_verb(make: Make, verb: str, index: str, kind: str) -> None:
    table = make(index=index, type=kind)
    table.upsert(rows(*BEFORE))
    done = VERBS[verb][0](table)
    expected = expected_counts(verb, index, kind)
    assert {name: getattr(done, name) for name in NAMES} == expected
    assert {name: done.to_dict()[name] for name in NAMES} == expected
    after = content(table)
    known = [expected[name] for name in ("inserted", "deleted", "replaced_rows")]
    if None not in known:
        inserted, deleted, replaced = (n or 0 for n in known)
        assert len(after) == len(BEFORE) + inserted - deleted - replaced
    for name, word in (("inserted", "inserted"), ("updated", "updated"), ("deleted", "deleted")):
        if expected["inserted"] is not None:
            assert (f"{expected[name]} {word}" in str(done)) == bool(expected[name])
    if expected["inserted"] is None:
        written = (expected["rows"] or 0) - (expected["unchanged"] or 0) - (expected["combined"] or 0)
        assert f"{written} rows " in str(done)


def test_a_load_counts_all_rows_as_inserted() -> None:
    table = lakebed.load("memory://counts/loaded", rows(*BEFORE), key="id")
    assert content(table) == BEFORE
    assert table.loaded is not None
    assert {name: getattr(table.loaded, name) for name in ("rows", "inserted", "updated", "deleted")} == {
        "rows": 4, "inserted": 4, "updated": 0, "deleted": 0
    }  # fmt: skip


def test_an_erasure_counts_the_rows_that_it_deleted(make: Make) -> None:
    table = make(index="simple", type="mor")
    table.upsert(rows(*BEFORE))
    assert table.erase([1, 77]).rows == 1
    assert content(table) == BEFORE[1:]


def test_the_docs_have_the_same_counts() -> None:
    page = (Path(__file__).parents[3] / "docs/merge_modes.md").read_text()
    for verb, (_, counts) in VERBS.items():
        cells = ["None" if n is None else str(n) for n in counts]
        assert f"| {verb} | {' | '.join(cells)} |" in page
