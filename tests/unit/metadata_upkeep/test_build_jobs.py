"""Records of many keys made by jobs are those that one process makes, and so are indexes that jobs build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakebed.engine.base import each
from lakebed.engine.local import LocalEngine
from lakebed.errors import CorruptFile, IndexInconsistent
from lakebed.metadata_upkeep import build_jobs, maintain
from lakebed.services import build_index, create_index
from lakebed.table import Table
from support.write_tables import rows

Make = Callable[..., Table]
FIRST = [(n, f"c{n % 3}", f"v{n % 4}", 10) for n in range(60)]


@pytest.fixture
def by_jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every write's keys and every index go through jobs, on the in-process engine."""
    ran: list[int] = []
    monkeypatch.setattr(maintain, "is_large", lambda *_, **__: True)
    monkeypatch.setattr(create_index, "is_large", lambda *_, **__: True)
    monkeypatch.setattr(build_index, "is_large", lambda *_, **__: True)
    run = maintain.KeyJobs.run

    def counted(self: Any, *given: Any) -> Any:
        written = run(self, *given)
        ran.append(len(written))
        return written

    monkeypatch.setattr(maintain.KeyJobs, "run", counted)
    return ran


@pytest.mark.parametrize(("version", "index"), [(9, "record"), (8, "record"), (6, "record"), (9, "record_level_index")])
def test_indexes_kept_by_jobs_are_right_after_every_write(
    make: Make, by_jobs: list[int], version: int, index: str
) -> None:
    secondary = ["v"] if version > 6 and index == "record" else []
    properties = {"hoodie.record.index.update.partition.path": True} if index == "record" else {}
    table = make(index=index, table_version=version, indexes=secondary, properties=properties)
    steps: list[Callable[[], Any]] = [
        lambda: table.upsert(rows(*FIRST)),
        lambda: table.upsert(rows((1, "c2", "moves", 11), (3, "c0", None, 11), (90, "c1", "new", 1))),
        lambda: table.delete([0, 7]),
        lambda: table.upsert(rows((95, "c7", "new", 1))),
        lambda: table.insert_overwrite(rows((200, "c1", "over", 1), (4, "c1", "over", 1))),
        lambda: table.delete_partitions(["c0"]),
    ]
    for step in steps:
        step()
        found = table.indexes.verify()
        assert found.ok, found
    assert len(by_jobs) == len(steps)
    assert sum(by_jobs)


@pytest.mark.parametrize("version", [9, 8, 6])
def test_indexes_built_by_jobs_are_right(make: Make, by_jobs: list[int], version: int) -> None:
    table = make(index="global_simple", table_version=version)
    table.upsert(rows(*FIRST))
    names = ["record_index", *(["v", "ts", "city"] if version > 6 else [])]
    for name in names:
        table.indexes.create(name, groups=3)
    assert [f.file_groups for f in table.indexes.list() if "index" in f.name] == [3] * len(names)
    assert table.indexes.verify().ok
    table.upsert(rows((1, "c1", "changed", 11), (90, "c1", "new", 1)))
    assert table.indexes.verify().ok


def test_a_partitioned_index_that_is_built(make: Make, by_jobs: list[int]) -> None:
    table = make(index="simple")
    table.upsert(rows(*FIRST, (0, "c1", "twice", 1)))
    table.indexes.create("record_index", groups=2)
    assert {f.name: f.file_groups for f in table.indexes.list()}["record_index"] == 6
    assert table.indexes.verify().ok


def test_keys_that_are_not_unique(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(index="global_simple")
    table.bulk_insert(rows((1, "c0", "a", 1), (1, "c1", "b", 1)))
    for large in (False, True):
        monkeypatch.setattr(create_index, "is_large", lambda *_, large=large: large)
        with pytest.raises(IndexInconsistent, match="'1'"):
            table.indexes.create("record_index")
        assert "record_index" not in {f.name for f in table.indexes.list()}
    table.delete([1])
    table.upsert(rows(*FIRST))
    table.indexes.create("record_index")
    assert table.indexes.verify().ok


def test_the_local_engine_never_builds_indexes_by_jobs() -> None:
    assert not maintain.is_large([], LocalEngine())
    assert build_jobs.LARGE_ROWS > 0


def test_each_runs_a_function_over_things_in_order() -> None:
    assert each(LocalEngine(), len, ["a", "bcd", ""]) == [1, 3, 0]
    assert each(LocalEngine(), len, []) == []

    def fails(number: int) -> int:
        if number > 1:
            raise CorruptFile(f"file {number}", hint="restore it", context={"number": number})
        return number

    with pytest.raises(CorruptFile, match="file 2") as error:
        each(LocalEngine(), fails, [0, 1, 2, 3])
    assert (error.value.hint, error.value.context) == ("Restore it.", {"number": 2})


@pytest.mark.parametrize(
    ("index", "name", "how"),
    [
        ("global_simple", "record_index", {"groups": 3}),
        ("simple", "record_index", {"partitioned": True}),
        ("record", "v", {"groups": 2}),
    ],
)
def test_indexes_are_built_by_jobs_while_others_write(
    make: Make, by_jobs: list[int], monkeypatch: pytest.MonkeyPatch, index: str, name: str, how: dict[str, Any]
) -> None:
    table = make(index=index)
    table.upsert(rows(*FIRST))
    table.indexes.create(name, wait=False, **how)
    write, wrote = build_index.written_by_job, list[int]()

    def beside(*given: Any) -> Any:
        table.upsert(rows((1, "c1", "changed", 11), (90, "c1", "new", 1), (91, "new", "new", 1)))
        written = write(*given)
        table.delete([0, 90])
        wrote.append(len(written))
        return written

    monkeypatch.setattr(build_index, "written_by_job", beside)
    assert table.indexes.build().runs
    assert wrote
    table.upsert(rows((2, "c2", "last", 12), (92, "c2", "new", 1)))
    found = table.indexes.verify()
    assert found.ok, found
    assert table.get([92]).num_rows == 1
    assert table.get([0, 90]).num_rows == 0
