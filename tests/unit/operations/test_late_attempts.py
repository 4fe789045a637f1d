"""An attempt of a task that begins after its write has completed leaves nothing."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.concurrency.markers import TEMP_FOLDER, list_markers, write_marker
from lakebed.engine.base import Task
from lakebed.engine.local import LocalEngine
from lakebed.handles.group_writer import GroupWriter
from lakebed.write_status import from_table
from support.write_tables import SCHEMA, content, rows

GIVEN = [(n, "oslo", f"v{n}", n) for n in range(6)]


class Recorded:
    """What the tasks of a write get."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.writer: GroupWriter | None = None
        self.groups: list[tuple[str, int, pa.Table]] = []
        real = LocalEngine.group_map

        def group_map(engine: LocalEngine, given: Any, fn: Any, schema: pa.Schema, **more: Any) -> Any:
            if isinstance(fn, GroupWriter):
                self.writer = fn
                for group in pa.compute.unique(given.table["_lakebed_group"]).to_pylist():
                    mask = pa.compute.equal(given.table["_lakebed_group"], group)
                    part = given.table.filter(mask)
                    self.groups.append((part["_hoodie_partition_path"][0].as_py(), group, part))
            return real(engine, given, fn, schema, **more)

        patch.setattr(LocalEngine, "group_map", group_map)

    def late(self) -> Iterator[str | None]:
        """The errors of attempts that begin now."""
        assert self.writer is not None
        for partition, group, part in self.groups:
            task = Task(group, 0, 77, may_be_late=True)
            for batch in self.writer(partition, group, iter(part.to_batches()), task):
                yield from (status.error for status in from_table(pa.Table.from_batches([batch])))


CASES = [(index, kind, version) for index in ("bucket", "simple") for kind in ("cow", "mor") for version in (9, 6)]


@pytest.mark.every_case
@pytest.mark.parametrize(("index", "kind", "version"), CASES)
def test_a_late_attempt_leaves_neither_a_file_nor_a_marker(
    index: str, kind: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    buckets = 2 if index == "bucket" else None
    uri = f"memory://{uuid.uuid4().hex}"
    table = lakebed.create(
        uri, SCHEMA, key="id", partition_by="city", ordering="ts", type=kind, index=index, buckets=buckets,
        table_version=version,
    )  # fmt: skip
    table.upsert(rows(*GIVEN))
    recorded = Recorded(monkeypatch)
    newer = [(n, "oslo", "newer", 100) for n in (0, 1, 9)]
    table.upsert(rows(*newer))
    storage = table.opened.storage
    before = sorted(info.path for info in storage.list() if "/metadata/" not in info.path)
    errors = list(recorded.late())
    assert errors
    assert all(error is not None and "was over before" in error for error in errors)
    assert sorted(info.path for info in storage.list() if "/metadata/" not in info.path) == before
    assert not list(storage.list(TEMP_FOLDER))
    assert lakebed.open(uri).indexes.verify().ok
    expected = {row[0]: row for row in GIVEN} | {row[0]: row for row in newer}
    assert content(lakebed.open(uri)) == sorted(expected.values())


def test_a_marker_of_a_pending_instant_is_written_and_one_of_a_completed_instant_is_not() -> None:
    table = lakebed.create(f"memory://{uuid.uuid4().hex}", SCHEMA, key="id")
    instant = table.upsert(rows(*GIVEN)).instant
    storage, later = table.opened.storage, f"{int(instant) + 1}"
    for state in ("requested", "inflight"):
        storage.write(f".hoodie/timeline/{later}.deltacommit.{state}", b"")
        write_marker(storage, later, "oslo", f"f_{state}_{later}.parquet", "CREATE", may_be_late=True)
    assert len(list_markers(storage, later)) == 2
    for over in (instant, f"{int(instant) + 2}"):
        with pytest.raises(lakebed.CommitConflict, match="was over before"):
            write_marker(storage, over, "oslo", f"f_0-0-0_{over}.parquet", "CREATE", may_be_late=True)
        assert not list_markers(storage, over)


@pytest.mark.every_case
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_file_of_the_newest_commit_that_it_does_not_name_is_an_orphan(kind: str) -> None:
    table = lakebed.create(f"memory://{uuid.uuid4().hex}", SCHEMA, key="id", type=kind, index="bucket", buckets=1)
    table.upsert(rows(*GIVEN))
    result = table.upsert(rows((1, "oslo", "newer", 100)))
    storage = table.opened.storage
    (path,) = result.files
    folder, _, name = path.rpartition("/")
    late = re.sub(r"_(\d+)-(\d+)-", r"_\1-99-", name, count=1)
    assert late != name
    left = f"{folder}/{late}" if folder else late
    storage.write(left, storage.read(path))
    assert left in str(table.maintenance.repair(["orphans"]))
    assert storage.head(left) is None
    assert storage.head(path) is not None
    assert content(table) == sorted([row for row in GIVEN if row[0] != 1] + [(1, "oslo", "newer", 100)])
