"""Tables that real Hudi upgraded from version 6 after it archived: log files of the metadata table have the names of
version 6, and archived instants have no completion time."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from lakebed.metadata.layout import FILES
from lakebed.metadata.lookups import open_snapshot
from lakebed.storage import open_storage
from lakebed.timeline.instants import suffix_of
from support.golden_tables import golden
from support.same_rows import assert_same_rows

TABLES = ("up_v6_to_v9_archived_cow", "up_v6_to_v8_to_v9_archived_mor")
SOON = {
    "hoodie.metadata.compact.max.delta.commits": 2,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
    "hoodie.clean.commits.retained": 1,
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_those_that_real_hudi_reads(name: str, tmp_path: Path) -> None:
    folder = golden(name).unpack(tmp_path)
    table = lakebed.open(str(folder))
    assert_same_rows(table.scan(meta=True).to_arrow(), golden(name).expected)
    own = open_snapshot(open_storage(table.uri)).metadata
    assert own is not None
    names = [p.name for p in (folder / ".hoodie/metadata/files").glob(".files-0000-0_*")]
    assert any(suffix_of(name.split("_")[1].split(".")[0]) for name in names)
    (newest,) = own.slices.file_slices(FILES)
    assert newest.base_file is not None
    assert newest.log_files
    assert not [log.name for log in newest.log_files if suffix_of(log.instant)]


@pytest.mark.parametrize("name", TABLES)
def test_writes_and_services_work_on_a_table_that_hudi_upgraded(name: str, tmp_path: Path) -> None:
    table = lakebed.open(str(golden(name).unpack(tmp_path)))
    model = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    for n in range(8):
        rows = [row | {"ts": 1000 + n, "v": n} for row in list(model.values())[n : n + 3]]
        table.upsert(rows, options=SOON)
        model |= {row["id"]: row for row in rows}
        if n % 3 == 2:
            table.clean(options=SOON)
            table.archive(options=SOON)
            table = lakebed.open(table.uri)
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["id"]) == [model[k] for k in sorted(model)]
    assert table.indexes.verify().ok
    listed = lakebed.open(table.uri, options={"hoodie.metadata.enable": False})
    assert listed.scan().count() == len(model)
