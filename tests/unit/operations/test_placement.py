"""Rows of a write are counted by the place that the index gives them; each has a file group before it is written."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pyarrow as pa

import lakebed
from lakebed.operations.pipeline import RowsVerb
from lakebed.operations.placement import HashedLayout, Layout, Placed, TaggedRows, looked_up_in_tasks, placed
from lakebed.operations.upsert import admitted_rows
from lakebed.operations.write import RowMatch, Write
from lakebed.write_status import LOOKUP_COUNTS, WriteStatus
from support.tables import context_of, new_table
from support.write_tables import rows

STORED = rows((1, "oslo", "a", 1), (2, "oslo", "b", 1), (3, "rome", "c", 1))
# Two stored keys of Oslo, one that comes twice, a new one of Rome, and a partition path of its own.
GIVEN = rows(
    (1, "oslo", "x", 2),
    (2, "oslo", "x", 2),
    (2, "oslo", "y", 3),
    (4, "rome", "x", 2),
    (5, "bern", "x", 2),
)


def file_ids(table: lakebed.Table) -> dict[str, str]:
    """The file group of each partition path, which has one."""
    return {row["partition"]: row["file_id"] for row in table.files.to_arrow().to_pylist()}


@contextmanager
def places(table: lakebed.Table, data: pa.Table, match: RowMatch) -> Generator[Placed]:
    """The rows of an upsert of this kind, placed; nothing is written."""
    context = context_of(table)
    verb = RowsVerb(operation="UPSERT", match=match, rows=admitted_rows(context, data, "UPSERT", match).rows)
    snapshot = context.opened
    write = Write(context, snapshot, verb.schema(context, snapshot), "UPSERT", "20260101000000000", match)
    with placed(write, verb.prepare(write)) as found:
        yield found


def counts(found: Placed) -> dict[tuple[str, str | None], int]:
    """The written rows of each partition path and file group; None for rows that have no file group yet."""
    assert isinstance(found, TaggedRows)
    return {(path, group): rows for path, group, rows in (tuple(row.values()) for row in found.profile.to_pylist())}


def planned(layout: Layout) -> dict[tuple[str, str | None], tuple[int, int | None, int | None]]:
    """Rows, updates and inserts of each file group."""
    return {(f.partition, f.file_id): (f.rows, f.updates, f.inserts) for f in layout.plan().files}


def test_rows_of_stored_keys_have_their_file_group_and_others_fill_small_ones_or_open_new_ones() -> None:
    table = new_table(STORED, index="simple")
    oslo, rome = file_ids(table)["oslo"], file_ids(table)["rome"]
    with places(table, GIVEN, RowMatch("keys")) as found:
        assert counts(found) == {("oslo", oslo): 3, ("rome", None): 1, ("bern", None): 1}
        layout = found.assign()
        bern = planned(layout).keys() - {("oslo", oslo), ("rome", rome)}
        assert [path for path, _ in bern] == ["bern"]
        assert planned(layout) == {("oslo", oslo): (3, 3, 0), ("rome", rome): (1, 0, 1), bern.pop(): (1, 0, 1)}
        lookup = layout.lookup([])
        assert lookup is not None
        assert (lookup.keys, lookup.tagged) == (5, 3)


def test_an_insert_that_skips_stored_keys_counts_them_and_sends_the_others_alone() -> None:
    table = new_table(STORED, index="simple")
    with places(table, GIVEN, RowMatch("skip")) as found:
        assert counts(found) == {("rome", None): 1, ("bern", None): 1}
        layout = found.assign()
        assert sorted(path for path, _ in planned(layout)) == ["bern", "rome"]
        (skipped,) = layout.skipped
        # three rows of two stored keys: one of a key is the row that was not written, the other was combined with it
        assert (skipped.rows_in, skipped.num_unchanged, skipped.num_combined) == (3, 2, 1)


def test_an_insert_that_looks_no_key_up_knows_no_updates() -> None:
    table = new_table(STORED, index="simple")
    for combine in (False, True):
        with places(table, GIVEN, RowMatch("none", combine)) as found:
            assert counts(found) == {("oslo", None): 3, ("rome", None): 1, ("bern", None): 1}, combine
            layout = found.assign()
            assert planned(layout)["oslo", file_ids(table)["oslo"]] == (3, 0, 3), combine
            assert layout.lookup([]) is None, combine


def test_a_key_that_moves_deletes_its_row_at_the_old_place_and_is_new_at_the_other() -> None:
    for index, moved in (("global_simple", 1), ("simple", 0)):
        table = new_table(STORED, index=index)
        oslo, rome = file_ids(table)["oslo"], file_ids(table)["rome"]
        with places(table, rows((1, "rome", "moved", 5)), RowMatch("keys")) as found:
            layout = found.assign()
            old = {("oslo", oslo): (1, 1, 0)} if moved else {}
            assert planned(layout) == {**old, ("rome", rome): (1, 0, 1)}, index
            assert layout.moved == moved, index
            assert layout.plan().rows == 1, index  # a row that only deletes is none of the caller's
            lookup = layout.lookup([])
            assert lookup is not None
            assert (lookup.keys, lookup.tagged) == (1, moved), index


def test_an_index_that_hashes_keys_assigns_nothing_and_reads_nothing() -> None:
    table = new_table(STORED, index="bucket")
    oslo, rome = file_ids(table)["oslo"], file_ids(table)["rome"]
    for match in (RowMatch("keys"), RowMatch("skip"), RowMatch("none")):
        with places(table, GIVEN, match) as found:
            assert isinstance(found, HashedLayout)
            layout = found.assign()
            assert layout is found, match
            assert layout.profile() == b"", match
            expected = {("oslo", oslo): 3, ("rome", rome): 1, ("bern", None): 1}
            assert {group: rows for group, (rows, _, _) in planned(layout).items()} == expected, match
            lookup = layout.lookup([WriteStatus("oslo", rows_in=3), WriteStatus("rome", rows_in=1)])
            assert lookup is not None
            assert (lookup.keys, lookup.by_hash, lookup.opened) == (4, True, 0), match


def test_searches_of_tasks_are_summed_and_tasks_that_searched_nothing_do_not_count() -> None:
    first, second = tuple(range(1, 9)), tuple(range(10, 90, 10))
    statuses = [WriteStatus("a", lookup=first), WriteStatus("b"), WriteStatus("c", lookup=second)]
    summed = looked_up_in_tasks(statuses)
    assert [getattr(summed, name) for name in LOOKUP_COUNTS] == [11, 22, 33, 44, 55, 66, 77, 88]
    assert looked_up_in_tasks([]).keys == 0
