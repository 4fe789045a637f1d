"""A task attempt whose result nobody takes: its file is gone after the write, whenever it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

import lakebed
from lakebed.concurrency.markers import delete_markers, write_marker
from lakebed.engine.local import LocalEngine
from lakebed.errors import CommitConflict
from lakebed.storage import open_storage
from lakebed.storage.base import Durable, Storage
from lakebed.storage.opening import wrapping
from lakebed.testing import FaultyStorage
from support.write_tables import SCHEMA, content, files, last_commit, rows

When = Literal["before the commit", "during it"]


class TwoAttempts(FaultyStorage):
    """Of each data file there is a second attempt, which begins with the first and ends `when` said."""

    when: When = "before the commit"
    late: Callable[[], None] | None = None
    ended = 0

    def finish_create(self, path: str, upload: Any) -> None:
        super().finish_create(path, upload)
        file_id, token, instant = path.removesuffix(".parquet").split("_")
        other = f"{file_id}_{token}9_{instant}.parquet"
        write_marker(self._inner, instant, "", other, "MERGE")
        self.late = lambda: self._inner.write(other, b"late")
        if self.when == "before the commit":
            self._end()

    def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
        done = super().put_if_absent(path, data, durable=durable)
        if self.when == "during it" and self.late is not None and path.endswith(".commit"):
            self._end()
        return done

    def _end(self) -> None:
        assert self.late is not None
        self.late()
        self.ended += 1


@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize("when", ["before the commit", "during it"])
def test_files_of_a_lost_attempt_are_deleted(index: str, when: When, monkeypatch: pytest.MonkeyPatch) -> None:
    if when == "during it":
        monkeypatch.setattr(LocalEngine, "is_distributed", True)  # as on Spark: an attempt may go on then
    table = new_table(f"lost-{index}-{when.replace(' ', '-')}", index)
    seen: list[TwoAttempts] = []

    def wrap(inner: Storage) -> Storage:
        seen.append(TwoAttempts(inner))
        seen[-1].when = when
        return seen[-1]

    with wrapping(wrap):
        result = lakebed.open(table.uri).upsert(rows((1, "oslo", "b", 2)))
    assert sum(s.ended for s in seen) == 1
    assert [p for p in files(table.uri) if result.instant in p and ".hoodie" not in p] == list(result.files)
    assert not [p for p in files(table.uri) if ".temp" in p or ".heartbeat" in p]
    assert content(table) == [(1, "oslo", "b", 2)]


def test_an_attempt_that_ends_after_its_write_removes_its_own_file() -> None:
    table = new_table("late", "bucket")

    class Over(FaultyStorage):
        """While the attempt writes, the write ends: its markers go."""

        def finish_create(self, path: str, upload: Any) -> None:
            delete_markers(self._inner, path.removesuffix(".parquet").rpartition("_")[2])
            super().finish_create(path, upload)

    before = set(files(table.uri))
    with wrapping(Over), pytest.raises(CommitConflict, match="was over before"):
        lakebed.open(table.uri).upsert(rows((1, "oslo", "b", 2)))
    left = {p for p in set(files(table.uri)) - before if "rollback" not in p and ".lock" not in p}
    assert left == set()
    assert content(table) == [(1, "oslo", "a", 1)]
    assert open_storage(table.uri).list_folders(".hoodie/.temp") == []


def new_table(name: str, index: str, **words: Any) -> lakebed.Table:
    table = lakebed.create(
        f"memory://lost-attempts/{name}",
        SCHEMA,
        key="id",
        ordering="ts",
        index=index,
        buckets=1 if index == "bucket" else None,
        **words,
    )
    table.upsert(rows((1, "oslo", "a", 1)))
    return table


class TwoLogs(FaultyStorage):
    """Each log file of the data was written by an attempt before, whose status nobody took."""

    made = 0

    def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
        done = super().put_if_absent(path, data, durable=durable)
        if ".log." in path and not path.startswith(".hoodie") and done:
            other = f"{path}7"  # the same version with another token
            (marker,) = [m.path for m in self._inner.list(".hoodie/.temp") if path in m.path]
            self._inner.write(marker.replace(path, other), b"")
            self._inner.write(other, data)
            self.made += 1
        return done


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_log_file_of_a_lost_attempt_is_removed_or_has_the_same_rows(version: int) -> None:
    table = new_table(f"lost-log-{version}", "bucket", type="mor", table_version=version)
    seen: list[TwoLogs] = []

    def wrap(inner: Storage) -> Storage:
        seen.append(TwoLogs(inner))
        return seen[-1]

    with wrapping(wrap):
        result = lakebed.open(table.uri).upsert(rows((1, "oslo", "b", 2)))
    assert sum(s.made for s in seen) == 1
    logs = [p for p in files(table.uri) if ".log." in p and ".hoodie" not in p]
    # before version 8 the name does not say whose it is: it stays, and the commit names it
    assert len(logs) == (2 if version == 6 else 1)
    stats = [s for group in last_commit(table).stats.values() for s in group]
    assert sorted(s.path for s in stats) == sorted(logs)
    assert [s.num_updates for s in stats if s.path in result.files] == [1]
    assert sum(s.num_updates for s in stats) == 1
    assert content(table) == [(1, "oslo", "b", 2)]
    assert table.indexes.verify().ok
    assert not [p for p in files(table.uri) if ".temp" in p]


BUILT: dict[str, dict[str, Any]] = {
    "bloom_filters": {},
    "column_stats": {},
    "partition_stats": {},
    "record_index": {},
    "by_upper": {"column": "v", "function": "upper"},
}


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("index", list(BUILT))
def test_an_index_is_not_built_of_what_a_lost_attempt_left(index: str, version: int) -> None:
    """The file of an attempt that ended after all has the rows of the other, and other names no commit."""
    if version < {"partition_stats": 8, "by_upper": 9}.get(index, 6):
        pytest.skip("there is none of this version")
    table = new_table(f"lost-built-{index}-{version}", "global_simple", table_version=version, partition_by="city")
    if index == "partition_stats":
        with_column_stats(table)
    elif index == "column_stats" and version == 9:
        table.indexes.drop("column_stats")
    _leave_attempts(table)
    table.indexes.create(index, **BUILT[index])
    verified = table.indexes.verify()
    assert any(name.endswith(index) for name in verified.checked)
    assert verified.ok, verified
    assert content(table) == [(1, "oslo", "a", 1)]


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_metadata_table_is_not_built_of_what_a_lost_attempt_left(version: int) -> None:
    table = new_table(
        f"lost-built-files-{version}",
        "simple",
        table_version=version,
        properties={"hoodie.metadata.enable": False},
        partition_by="city",
    )
    _leave_attempts(table)
    table.upsert(rows((2, "rome", "b", 2)), options={"hoodie.metadata.enable": True})
    verified = lakebed.open(table.uri).indexes.verify()
    assert "files" in verified.checked
    assert verified.ok, verified
    assert content(table) == [(1, "oslo", "a", 1), (2, "rome", "b", 2)]


def with_column_stats(table: lakebed.Table) -> None:
    if table.properties["hoodie.table.version"] == "9":
        table.indexes.drop("column_stats")
    table.indexes.create("column_stats")


def _leave_attempts(table: lakebed.Table) -> None:
    """Beside each base file another one of its instant, which no write stat names."""
    storage = open_storage(table.uri)
    for path in [p for p in files(table.uri) if p.endswith(".parquet") and ".hoodie" not in p]:
        file_id, token, instant = path.removesuffix(".parquet").split("_")
        storage.write(f"{file_id}_{token}9_{instant}.parquet", storage.read(path))
