"""Change data of writes beside a pending compaction, which begins a slice of each file group that has no base file yet:
what was there before the write is in the slice before, until the compaction is done and afterwards."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.format.file_names import parse_base_file
from lakebed.table import Table
from support.crash_tables import rows

QUIET: dict[str, Any] = {
    "hoodie.table.cdc.enabled": True,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
}
EXPECTED = [
    ("d", 2, "a", None),
    ("i", 3, None, "d"),
    ("u", 0, "b", "c"),
    ("u", 0, "c", "d"),
    ("u", 1, "a", "c"),
]
MORE = sorted([*EXPECTED, ("u", 0, "d", "e")], key=str)
_numbers = itertools.count()


def changes(table: Table, start: str) -> list[tuple[str, int, str | None, str | None]]:
    found: list[tuple[str, int, str | None, str | None]] = []
    for row in lakebed.open(table.uri).cdc(start).to_arrow().to_pylist():
        before, after = row["before"] or {}, row["after"] or {}
        found.append((row["op"], (after or before)["id"], before.get("v"), after.get("v")))
    return sorted(found, key=str)


def bases(table: Table) -> list[str]:
    """The base files in the folder, oldest first."""
    names = table.scan().snapshot.storage.list_names("c0")
    found = [base for name in names if (base := parse_base_file("c0", name, 0)) is not None]
    return [base.path for base in sorted(found, key=lambda base: base.instant)]


def written(index: str, version: int, *, has_base: bool = True, **properties: Any) -> tuple[Table, str]:
    """A file slice with a base file and log files, or with log files alone, whose compaction is pending, and two writes
    and a delete behind that; the checkpoint before those."""
    table = lakebed.create(
        f"memory://changes-beside-compactions/t{next(_numbers)}",
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type="mor",
        index=index,
        buckets=1 if index == "bucket" else None,
        table_version=version,
        properties={**QUIET, **properties},
    )
    table.upsert(rows(*((n, "c0", "a", 0) for n in range(3))))
    if has_base:
        table.maintenance.compact()
    table.upsert(rows((0, "c0", "b", 1)))
    start = table.cdc("000").end
    assert table.maintenance.compact(plan_only=True).plan is not None
    table.upsert(rows((0, "c0", "c", 2), (1, "c0", "c", 2)))
    table.delete([2])
    table.upsert(rows((0, "c0", "d", 3), (3, "c0", "d", 3)))
    return table, start


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("has_base", [True, False])
@pytest.mark.parametrize("index", ["bucket", "simple", "record"])
def test_writes_during_a_pending_compaction_have_their_images(index: str, has_base: bool, version: int) -> None:
    table, start = written(index, version, has_base=has_base)
    assert changes(table, start) == EXPECTED
    assert table.maintenance.compact().runs
    assert changes(table, start) == EXPECTED
    table.upsert(rows((0, "c0", "e", 4)))
    assert changes(table, start) == MORE
    assert table.maintenance.cluster().runs
    assert changes(table, start) == MORE


@pytest.mark.parametrize("version", [9, 8, 6])
def test_images_are_there_until_the_compacted_slice_is_cleaned(version: int) -> None:
    table, start = written("bucket", version)
    begun = next(i.time for i in table.timeline if not i.is_completed)
    table.maintenance.compact()
    table.upsert(rows((0, "c0", "e", 4)))
    if version == 6:  # the slice that the compaction began has all that the change data of its log files takes
        older = [path for path in bases(table) if not path.endswith(f"_{begun}.parquet")][:1]
        table.maintenance.clean(options={"hoodie.clean.commits.retained": 3})
        assert not set(older) & set(bases(table))
        assert changes(table, start) == MORE
    for n in range(5, 8):
        table.maintenance.compact()
        table.upsert(rows((0, "c0", f"f{n}", n)))
    table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
    with pytest.raises(InvalidOption, match="are not known any more"):
        changes(table, start)


def test_a_missing_compacted_base_file_is_no_slice_of_log_files_alone() -> None:
    """Of a clean that was killed: it has deleted the base file, and not yet the log files of its slice."""
    table, start = written("bucket", 6, **{"hoodie.metadata.enable": False})
    table.maintenance.compact()
    storage = table.scan().snapshot.storage
    for path in bases(table):
        storage.delete(path)
    with pytest.raises(InvalidOption, match="are not known any more"):
        changes(table, start)


@pytest.mark.parametrize("is_compacted", [True, False])
def test_images_of_version_6_are_the_same_after_an_upgrade(is_compacted: bool) -> None:
    table, start = written("bucket", 6)
    if is_compacted:
        table.maintenance.compact()
    table.maintenance.upgrade(9)
    assert changes(table, start) == EXPECTED
    table.upsert(rows((0, "c0", "e", 4)))
    assert changes(table, start) == MORE
