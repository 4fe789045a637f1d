"""Tables that real Hudi upgraded from version 6 after it archived: log files of the metadata table have the names of
version 6, and archived instants have no completion time."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from lakebed.errors import CorruptFile
from lakebed.format.avro.encoder import is_avro_file
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_records.layout import FILES
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.timeline.archive import LsmHistory, with_header
from lakebed.timeline.instants import suffix_of
from lakebed.timeline.timeline import COMMITS, load_timeline
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
            table.maintenance.clean(options=SOON)
            table.maintenance.archive(options=SOON)
            table = lakebed.open(table.uri)
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["id"]) == [model[k] for k in sorted(model)]
    assert table.indexes.verify().ok
    listed = lakebed.open(table.uri, options={"hoodie.metadata.enable": False})
    assert listed.scan().count() == len(model)


@pytest.mark.parametrize("name", TABLES)
def test_bodies_of_every_archived_instant_are_read(name: str, tmp_path: Path) -> None:
    """Hudi 1.0 moved them into the history without the header of an Avro file."""
    folder = golden(name).unpack(tmp_path)
    for storage in (open_storage(str(folder)), open_storage(str(folder / ".hoodie/metadata"))):
        timeline = load_timeline(storage, load_table_config(storage))
        archived = timeline.archived()
        commits = [i for i in archived.instants if i.action in COMMITS]
        assert commits
        for commit in commits:
            body, plan = archived.commit_metadata(commit.time), archived.plan(commit.time)
            paths = [stat.path for group in body.stats.values() for stat in group]
            assert paths
            assert all(stat.path.startswith(path) for path, group in body.stats.items() for stat in group)
            assert bool(plan) == (body.operation == "COMPACT")
            assert all(operation["fileId"] for operation in plan.get("operations", []))


def test_a_bare_record_that_is_cut_off_is_damage(tmp_path: Path) -> None:
    table = lakebed.open(str(golden(TABLES[1]).unpack(tmp_path)))
    history = LsmHistory(open_storage(table.uri), load_table_config(open_storage(table.uri)))
    (body,) = {
        row["metadata"]
        for file in history.files
        for row in history.rows(file).to_pylist()
        if row["instantTime"] == "20261125212945996"
    }
    assert not is_avro_file(body)
    assert is_avro_file(with_header(body, "deltacommit", "metadata", "f"))
    for cut in (1, len(body) // 2, len(body) - 1):
        with pytest.raises(CorruptFile, match="f: the metadata of a deltacommit cannot be decoded"):
            with_header(body[:cut], "deltacommit", "metadata", "f")
