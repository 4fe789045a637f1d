"""A plan counts what a write is about to do, and prints it."""

from __future__ import annotations

from lakebed.operations.plan import PlannedFile, WritePlan, waiting_services
from support.compaction_tables import snapshot
from support.tables import new_table
from support.write_tables import rows

FILES = (
    PlannedFile("oslo", "f1", 3, 2, 1, 5 << 20),
    PlannedFile("oslo", "f2", 1, 1, 0, 0, True),
    PlannedFile("", None, 2, 0, 2, 0),
)


def test_files_are_rewritten_appended_to_or_new() -> None:
    plan = WritePlan("UPSERT", "simple", "local", FILES, "a note")
    assert (plan.rows, plan.rewritten, plan.appended) == (6, 1, 1)
    assert plan.touched() == {("oslo", "f1"), ("oslo", "f2")}
    assert str(plan).splitlines() == [
        "upsert of 6 rows on the local engine",
        "  index: simple",
        "  file groups: 3, 1 of them rewritten (5.0 MiB of base files), 1 appended to",
        "  a note",
        "    oslo f1 rewrite: 3 rows (2 updates, 1 inserts)",
        "    oslo f2 append: 1 row (1 updates, 0 inserts)",
        "    (no partition) - new: 2 rows (0 updates, 2 inserts)",
    ]
    told = plan.to_dict()
    assert (told["file_groups"], told["file_groups_rewritten"], told["bytes_rewritten"]) == (3, 1, 5 << 20)
    assert [file["file_id"] for file in told["files"]] == ["f1", "f2", None]


def test_ten_files_are_shown_and_the_others_are_counted() -> None:
    for count, more in ((10, []), (11, ["    ... and 1 more"])):
        files = tuple(PlannedFile("p", f"f{n}", 1, None, None, 0) for n in range(count))
        lines = str(WritePlan("INSERT", "bucket", "local", files)).splitlines()
        assert lines[3:] == [f"    p f{n} new: 1 row" for n in range(10)] + more, count


def test_rows_that_only_delete_a_key_at_its_old_place_are_not_the_callers() -> None:
    assert WritePlan("UPSERT", "global", "local", FILES, twice=2).rows == 4


def test_a_compaction_that_is_planned_and_not_run_is_a_line_of_its_own() -> None:
    turns = (rows((1, "oslo", "a", turn), (2, "rome", "b", turn)) for turn in (1, 2))
    table = new_table(*turns, type="mor")
    assert waiting_services(snapshot(table).timeline) == ()
    table.maintenance.compact(plan_only=True)
    (pending,) = snapshot(table).timeline.pending
    assert waiting_services(snapshot(table).timeline) == (f"compaction {pending.time} of 2 file slices is pending",)


def test_an_upsert_of_a_merge_on_read_table_appends_to_groups_of_stored_keys() -> None:
    for kind, appended in (("mor", 1), ("cow", 0)):
        table = new_table(rows((1, "oslo", "a", 1)), type=kind, index="simple")
        plan = table.explain(upsert=rows((1, "oslo", "b", 2), (2, "rome", "b", 2)))
        assert (plan.rows, plan.appended, plan.rewritten) == (2, appended, 1 - appended), kind
        assert {(f.partition, f.updates, f.inserts) for f in plan.files} == {("oslo", 1, 0), ("rome", 0, 1)}, kind
