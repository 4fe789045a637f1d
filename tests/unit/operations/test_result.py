"""What writes and views tell: rows that went with their file groups, the newest of many, that there is more."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from lakebed.storage import open_storage
from lakebed.table import Table
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


def test_a_damaged_file_does_not_keep_its_partition(make: Make) -> None:
    table = make(index="bucket")
    table.upsert(rows(*FIRST))
    storage = open_storage(table.uri)
    path = next(f.base_file.path for f in table.files if f.partition == "c1" and f.base_file)
    storage.write(path, b"no parquet")
    assert table.delete_partitions("c1").replaced_rows is None
    assert table.count() == 5


def test_views_show_the_newest_instants_and_say_what_they_leave_out(make: Make) -> None:
    table = make(partition_by=None, properties={"hoodie.clean.automatic": False, "hoodie.archive.automatic": False})
    for n in range(60):
        last = table.upsert(rows((n, "c", "a", n)))
    shown = repr(table.timeline).splitlines()
    assert len(shown) == 52
    assert last.instant in shown[-2]
    assert shown[-1] == "the newest 50 of 60; to_arrow() has all"
    assert "the newest 50 of 60" in table.timeline._repr_html_()
    assert last.instant in table.timeline._repr_html_()
    assert isinstance(table.timeline.to_arrow(), pa.Table)
    assert table.timeline.to_arrow().num_rows == 60
    assert "of" not in repr(table.files).splitlines()[-1].split()
