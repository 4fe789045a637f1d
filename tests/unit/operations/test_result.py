"""What writes and views tell: rows that went with their file groups, the newest of many, that there is more."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pyarrow as pa
import pytest

from lakebed.operations.result import WriteResult
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.wording import size_text
from support.write_tables import rows

Make = Callable[..., Table]
FIRST = [(n, f"c{n % 2}", "a", 1) for n in range(10)]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_overwrites_and_dropped_partitions_count_the_rows_that_went(make: Make, kind: str) -> None:
    table = make(index="bucket", type=kind)
    table.upsert(rows(*FIRST))
    table.upsert(rows((10, "c0", "log", 2), (0, "c0", "log", 2)))
    done = table.insert_overwrite(rows((0, "c0", "new", 3)))
    assert (done.replaced_rows, done.inserted) == (6, 1)
    assert "with 6 rows replaced" in str(done)
    gone = table.delete_partitions("c1")
    assert (gone.replaced_rows, gone.to_dict()["replaced_rows"]) == (5, 5)
    assert ": no rows written (0 files, 0 B, 1 file group with 5 rows replaced" in str(gone)
    assert table.insert_overwrite(rows((0, "c0", "new", 3)), "table").replaced_rows == 1
    assert table.upsert(rows((0, "c0", "new", 4))).replaced_rows == 0


def unaligned(html: str) -> str:
    """A table of a notebook without the sides of its cells."""
    return re.sub(r' style="text-align:\w+"', "", html)


def test_a_damaged_file_does_not_keep_its_partition(make: Make) -> None:
    table = make(index="bucket")
    table.upsert(rows(*FIRST))
    storage = open_storage(table.uri)
    path = next(f.base_file.path for f in table.files if f.partition == "c1" and f.base_file)
    storage.write(path, b"no parquet")
    assert table.delete_partitions("c1").replaced_rows is None
    assert table.count() == 5


@pytest.mark.rest
def test_views_show_the_newest_instants_and_say_what_they_leave_out(make: Make) -> None:
    table = make(partition_by=None, properties={"hoodie.clean.automatic": False, "hoodie.archive.automatic": False})
    for n in range(60):
        last = table.upsert(rows((n, "c", "a", n)))
    shown = repr(table.timeline).splitlines()
    assert len(shown) == 52
    assert last.instant in shown[-2]
    assert shown[-1] == "the newest 50 of 60, 10 more; to_arrow() has all"
    assert "the newest 50 of 60" in table.timeline._repr_html_()
    assert last.instant in table.timeline._repr_html_()
    assert isinstance(table.timeline.to_arrow(), pa.Table)
    assert table.timeline.to_arrow().num_rows == 60
    assert "of" not in repr(table.files).splitlines()[-1].split()


def test_a_notebook_shows_what_a_write_did_besides_its_rows() -> None:
    result = WriteResult(
        "1",
        "2",
        "upsert",
        inserted=1,
        schema_changes=("column <new> is new (BIGINT)",),
        rolled_back=("20260101000000000",),
        services=("compaction: 1 file",),
    )
    assert str(result).splitlines()[1:] == [
        "column <new> is new (BIGINT)",
        "rolled back 20260101000000000, which had not completed",
        "compaction: 1 file",
    ]
    shown = result._repr_html_()
    assert "column &lt;new&gt; is new (BIGINT)\n" in shown
    assert "rolled back 20260101000000000, which had not completed\ncompaction: 1 file</pre>" in shown


def test_a_notebook_shows_how_large_a_table_is(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(index="bucket", buckets=1, type="cow")
    table.upsert(rows((1, "c0", "a", 1), (2, "c1", "b", 1), (3, "c1", "c", 1)))
    size = size_text(sum(one.size for one in table.files))
    monkeypatch.setattr("lakebed.table_views._MAX_COUNTED", 2)
    shown = table._repr_html_()
    assert "<th>rows</th><td>3</td>" in shown
    assert f"<th>size</th><td>{size} in 2 file groups</td>" in shown
    monkeypatch.setattr("lakebed.table_views._MAX_COUNTED", 1)
    assert "<th>rows</th><td>not counted; t.count() counts them</td>" in table._repr_html_()


def test_a_notebook_counts_no_rows_that_log_files_change(make: Make) -> None:
    table = make(partition_by=None, index="bucket", buckets=1, type="mor")
    for n in range(2):
        table.upsert(rows((n, "c0", "a", n)))
    assert any(one.log_files for one in table.files)
    assert "<th>rows</th><td>not counted; t.count() counts them</td>" in table._repr_html_()


@pytest.mark.parametrize("count", [10, 11])
def test_a_notebook_shows_the_first_rows_of_a_read(make: Make, count: int) -> None:
    table = make(partition_by=None)
    table.upsert(rows(*((n, "c0", f"<{n}>", 1) for n in range(count))))
    for read in (table.scan(), table.changes("000"), table.scan().limit(20)):
        shown = read._repr_html_()
        assert shown.startswith(f"<pre>{html.escape(read.explain(), quote=False)}</pre><table>")
        assert shown.count("<tr><td ") == 10
        assert ">&lt;3&gt;</td>" in shown
        assert ("the first 10 rows; to_arrow() reads all" in shown) == (count > 10)


def test_a_notebook_shows_what_changed_of_each_row_of_a_change_log(make: Make) -> None:
    table = make(partition_by=None, properties={"hoodie.table.cdc.enabled": True})
    table.upsert(rows((1, "c0", "<a>", 1), (2, "c0", "b", 1)))
    table.upsert(rows((1, "c0", "c", 2)))
    table.delete([2])
    shown = unaligned(table.cdc("000")._repr_html_())
    first, second, third = (instant.time for instant in table.timeline)
    expected = [
        f"<td>i</td><td>{first}</td><td>1</td><td>c0</td><td>&lt;a&gt;</td><td>1</td>",
        f"<td>u</td><td>{second}</td><td>1</td><td>c0</td><td>&lt;a&gt; → c</td><td>1 → 2</td>",
        f"<td>d</td><td>{third}</td><td>2</td><td>c0</td><td>b</td><td>1</td>",
    ]
    assert [row for row in expected if row not in shown] == []
    assert shown.startswith("<pre>changes of ")
    texts = unaligned(table.cdc("000", images="json")._repr_html_())
    assert texts.count("<tr><td>") == 4


def test_properties_print_a_line_each(make: Make) -> None:
    table = make(partition_by=None)
    properties = table.properties
    lines = repr(properties).splitlines()
    assert [line.split()[0] for line in lines] == sorted(properties)
    assert properties["hoodie.table.version"] == "9"
    assert f"<td>{table.name}</td>" in unaligned(properties._repr_html_())
    assert properties == dict(properties)


def test_plans_show_their_lines_wherever_they_are_shown(make: Make) -> None:
    table = make(partition_by=None)
    table.upsert(rows((1, "c0", "a", 1)))
    for read in (table.scan(), table.changes("000"), table.scan().limit(2)):
        plan = read.explain()
        assert repr(plan) == plan == str(plan)
        assert plan._repr_html_().startswith("<pre>")
        assert len(repr(plan).splitlines()) > 3


def test_changes_print_as_changes(make: Make) -> None:
    table = make(partition_by=None)
    table.upsert(rows((1, "c0", "a", 1)))
    lines = repr(table.changes("000")).splitlines()
    assert lines[0] == f"changes of {table.name}: the rows written by 1 commit"
    assert not any("_hoodie_commit_time" in line for line in lines)
    assert lines[-1].startswith("  commits     1 in (000, ")
    assert "id > 0" in repr(table.changes("000", where="id > 0"))


def test_files_and_their_skew_show_the_top_and_say_how_many_more(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(index="bucket", buckets=1)
    table.upsert(rows(*((n, f"c{n}", "a", 1) for n in range(5))))
    monkeypatch.setattr("lakebed.table_views._PREVIEWED", 3)
    for view in (table.files, table.files.skew()):
        assert repr(view).splitlines()[-1] == "the first 3 of 5, 2 more; to_arrow() has all"
        assert unaligned(view._repr_html_()).count("<tr><td>") == 3
        assert "the first 3 of 5, 2 more" in view._repr_html_()
    monkeypatch.setattr("lakebed.table_views._PREVIEWED", 5)
    assert "more" not in repr(table.files) + repr(table.files.skew())


def test_features_print_as_a_table(make: Make) -> None:
    table = make(type="mor")
    table.upsert(rows(*FIRST))
    features = table.features
    assert repr(features).splitlines() == [
        "feature         read  write  note",
        "metadata table  yes   yes",
        "merge-on-read   yes   yes",
    ]
    assert "<tr><td>merge-on-read</td><td>yes</td><td>yes</td><td></td></tr>" in unaligned(features._repr_html_())
    assert [f.name for f in features] == [features[0].name, features[1].name] == ["metadata table", "merge-on-read"]
    assert len(features) == 2


@pytest.mark.parametrize(
    ("kind", "index"),
    [
        *(("cow", index) for index in ("bucket", "simple", "bloom", "record")),
        *(("mor", index) for index in ("bucket", "consistent", "simple", "bloom", "record")),
    ],
)
def test_counts_mean_the_same_on_every_table_and_are_none_where_no_key_was_looked_up(
    make: Make, kind: str, index: str
) -> None:
    table = make(index=index, type=kind, merge="commit_time", ordering=None)
    table.upsert(rows(*FIRST))
    looks_up = kind == "cow" or index not in ("bucket", "consistent")
    done = table.upsert(rows((0, "c0", "b", 1), (1, "c1", "b", 1), (10, "c0", "b", 1)))
    assert (done.rows, done.inserted, done.updated) == (3, *((1, 2) if looks_up else (None, None)))
    assert ("1 inserted, 2 updated" if looks_up else ": 3 rows upserted (") in str(done)
    assert table.delete([0, 98, 99]).deleted == 1  # keys without their partition path are looked up
    assert ("not looked up" in done._repr_html_()) is not looks_up
    assert table.count() == 10


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", ["bucket", "simple", "bloom", "record", "global_simple"])
def test_a_key_with_several_stored_rows_counts_once_among_the_rows_of_a_delete(
    make: Make, kind: str, index: str
) -> None:
    given = {"index": index, "type": kind, "partition_by": None, "merge": "commit_time", "ordering": None}
    table = make(**given, **({"buckets": 1} if index == "bucket" else {}))
    for _ in range(2):
        table.insert(rows((1, "c", "a", 1)), options={"hoodie.parquet.small.file.limit": 0})
    stored = table.count()
    gone = table.delete(pa.table({"id": pa.array([1, 7, 7], table.schema.field("id").type)}))
    assert (gone.rows, gone.combined) == (3, 1)
    if gone.deleted is None:
        assert (kind, index) == ("mor", "bucket")
    else:
        assert (gone.deleted, gone.unchanged) == (stored, 1)
    assert table.count() == 0


def test_a_bulk_insert_counts_no_duplicates_and_one_that_leaves_stored_keys_out_makes_none(make: Make) -> None:
    table = make(index="simple")
    done = table.bulk_insert(rows((1, "c0", "a", 1)))
    assert done.duplicates is None
    assert "<th>duplicates</th>" in unaligned(done._repr_html_())
    assert "<td>not looked up</td>" in unaligned(done._repr_html_())
    assert "duplicates" not in str(done)
    drop = {"hoodie.datasource.write.insert.drop.duplicates": True}
    done = table.insert(rows((4, "c0", "a", 1), (1, "c0", "a", 1)), options=drop)
    assert (done.duplicates, done.inserted) == (0, 1)


def test_deletes_of_hashed_keys_are_not_looked_up_and_not_counted(make: Make) -> None:
    table = make(index="bucket", type="mor", partition_by=None, merge="commit_time", ordering=None)
    table.upsert(rows(*FIRST))
    gone = table.delete([0, 98, 99])
    assert (gone.rows, gone.deleted) == (3, None)
    assert ": 3 deletes (" in str(gone)
    assert table.delete(where="id = 1").deleted == 1
    assert table.count() == 8


def test_deletes_that_carry_ordering_values_are_counted(make: Make) -> None:
    table = make(index="bucket", type="mor")
    table.upsert(rows(*FIRST))
    assert table.delete([0, 1, 98]).deleted == 2
