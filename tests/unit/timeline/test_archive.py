"""The archived timeline of both layouts, on tables that real Hudi archived."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptFile
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.testing import CountingStorage
from lakebed.timeline.archive import ArchivedTimeline, history_parts
from support.golden_tables import GoldenTable, golden, golden_tables

Open = Callable[[GoldenTable], Any]
PRESENT = {table.name for table in golden_tables()}


def tables(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name in names if name in PRESENT])


lsm = tables("v9_cow_archival", "v9_mor_archival")


def archive(folder: Path) -> tuple[ArchivedTimeline, CountingStorage]:
    storage = CountingStorage(open_storage(str(folder)))
    return ArchivedTimeline(storage, load_table_config(storage)), storage


@pytest.fixture
def copy_of(opened: Open, tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(opened(golden(name)).folder, tmp_path / name))

    return copy


def history(folder: Path) -> Path:
    return folder / ".hoodie/timeline/history"


@lsm
def test_only_files_whose_range_holds_the_instant_are_opened(name: str, opened: Open) -> None:
    archived, storage = archive(opened(golden(name)).folder)
    last = opened(golden(name)).timeline.start
    storage.opened.clear()
    assert archived.completion_time(last) is None
    assert archived.completion_time("20000101000000000") is None
    assert not [path for path in storage.opened if path.endswith(".parquet")]
    times = [i.time for i in archived.instants]
    storage.opened.clear()
    assert all(archived.completion_time(time) for time in times)
    assert storage.opened == [], "times are kept once read"


@lsm
def test_a_missing_version_file_is_made_up_for(name: str, copy_of: Callable[[str], Path]) -> None:
    folder = copy_of(name)
    expected = archive(folder)[0].instants
    (history(folder) / "_version_").unlink()
    (history(folder) / "manifest_99.tmp").write_text("{")
    assert archive(folder)[0].instants == expected != ()


@lsm
def test_files_outside_of_the_manifest_do_not_count(name: str, copy_of: Callable[[str], Path]) -> None:
    folder = copy_of(name)
    named = archive(folder)[0].instants
    for path in history(folder).glob("*_0.parquet"):
        shutil.copy(path, path.with_name("20000101000000000_20990101000000000_0.parquet"))
    assert archive(folder)[0].instants == named


@lsm
def test_damaged_archives_are_errors_that_name_the_file(name: str, copy_of: Callable[[str], Path]) -> None:
    folder = copy_of(name)
    for path in history(folder).glob("*.parquet"):
        path.write_bytes(b"PAR1" + b"x" * (path.stat().st_size - 4))
    with pytest.raises(CorruptFile, match=r"history/.*\.parquet cannot be read"):
        assert archive(folder)[0].instants
    version = (history(folder) / "_version_").read_text()
    (history(folder) / f"manifest_{version}").write_text("{}")
    with pytest.raises(CorruptFile, match="manifest"):
        assert archive(folder)[0].instants


@lsm
def test_plans_are_archived_with_cleans(name: str, opened: Open) -> None:
    archived = opened(golden(name)).timeline.archived()
    cleans = [i for i in archived.instants if i.action is Action.CLEAN]
    for clean in cleans:
        assert "filePathsToBeDeletedPerPartition" in archived.plan(clean.time)
    for commit in archived.instants:
        if commit.action is Action.COMMIT and archived.commit_metadata(commit.time).operation != "COMPACT":
            assert archived.plan(commit.time) == {}


@tables("v9_cow_archival", "v9_mor_archival", "v6_cow_archival")
def test_an_unknown_instant_is_not_in_the_archive(name: str, opened: Open) -> None:
    archived = opened(golden(name)).timeline.archived()
    with pytest.raises(FileNotFoundError, match="not in the archived timeline"):
        archived.commit_metadata("20000101000000000")


@tables("v9_cow_simple", "v6_cow_bloom")
def test_a_table_without_archive_has_no_archived_instants(name: str, opened: Open) -> None:
    archived, storage = archive(opened(golden(name)).folder)
    assert archived.instants == ()
    assert archived.completion_time("20000101000000000") is None
    assert not [path for path in storage.opened if "properties" not in path and "_version_" not in path]


@tables("v6_cow_archival")
def test_the_log_archive_keeps_bodies_and_plans(name: str, opened: Open) -> None:
    archived = opened(golden(name)).timeline.archived()
    commits = [i for i in archived.instants if i.action is Action.COMMIT]
    assert all(archived.commit_metadata(i.time).stats for i in commits)
    cleans = [i for i in archived.instants if i.action is Action.CLEAN]
    assert cleans
    assert all("filePathsToBeDeletedPerPartition" in archived.plan(i.time) for i in cleans)
    assert archived.completion_time(commits[0].time) is None


def threads_of_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts the threads that Linux shows")
def test_bodies_are_read_by_the_calling_thread(tmp_path: Path) -> None:
    rows = pa.table({name: [b"body" * 1000] * 300 for name in "abcdefgh"})
    pq.write_table(rows, tmp_path / "history.parquet")
    size, before = (tmp_path / "history.parquet").stat().st_size, pa.cpu_count()
    pa.set_cpu_count(before + 4)  # Arrow starts threads of its own when it first has work for them
    threads = threads_of_process()
    try:
        parts = list(history_parts(open_storage(str(tmp_path)), "history.parquet", size, list("abcdefgh")))
        assert threads_of_process() == threads
    finally:
        pa.set_cpu_count(before)
    assert pa.concat_tables(parts).equals(rows)
