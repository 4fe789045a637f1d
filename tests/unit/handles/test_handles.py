"""Handles write file groups: create and merge, and one that somebody else brings for new groups."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Task
from lakebed.expressions.base import Constant
from lakebed.expressions.partition_paths import PathCheck
from lakebed.handles.base import GroupJob, GroupWrite, HashedTargets, PlannedTargets, Target
from lakebed.handles.create import CreateHandle
from lakebed.handles.file_writer import FileFormat
from lakebed.handles.group_writer import GroupWriter
from lakebed.merge.incoming import Incoming, Intake
from lakebed.merge.rules import MergeRules
from lakebed.model import RECORD_KEY, BaseFile, FileSlice, LogFile
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import with_meta
from lakebed.schema.avro import arrow_to_avro, avro_with_meta
from lakebed.slices.reader import SliceReader
from lakebed.storage.memory import MemoryStorage
from lakebed.write_status import WriteStatus, from_table

DATA = pa.schema([("v", pa.int64())])
COW = TableConfig({"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE"})


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    name = f"handles-{uuid.uuid4().hex}"
    yield MemoryStorage(name)
    MemoryStorage.drop(name)


def writer(storage: MemoryStorage, *targets: Target, instant: str = "1", config: TableConfig = COW) -> GroupWriter:
    format_ = FileFormat(with_meta(DATA), avro_with_meta(arrow_to_avro(DATA, "t")), WriteSettings())
    return GroupWriter(
        GroupJob(
            reader=SliceReader(storage, config),
            instant=instant,
            format=format_,
            intake=Intake(DATA, MergeRules(), combine=True, all_deletes=False, memory=1 << 20),
            on_match="keys",
            max_file_size=1 << 20,
            path_check=PathCheck(Constant("p")),
        ),
        targets=PlannedTargets(targets),
        existing_partitions=frozenset({"p"}),
        # type: ignore[arg-type],
    )


def rows(**given: int) -> pa.RecordBatch:
    return pa.record_batch({RECORD_KEY: list(given), "v": pa.array(given.values(), pa.int64())})


def run(to: GroupWriter, batch: pa.RecordBatch) -> list[WriteStatus]:
    return list(from_table(pa.Table.from_batches(to("p", 0, iter([batch]), Task()))))


def as_slice(storage: MemoryStorage, status: WriteStatus, instant: str) -> FileSlice:
    assert status.path is not None
    name = status.path.rpartition("/")[2]
    base = BaseFile("p", status.file_id, "0-0-0", instant, name, status.file_size)
    return FileSlice("p", status.file_id, instant, base)


def test_a_group_is_created_and_merged_into(storage: MemoryStorage) -> None:
    (created,) = run(writer(storage, Target("f-0", None, True)), rows(a=1, b=2))
    assert (created.file_id, created.num_inserts, created.prev_base_file) == ("f-0", 2, None)
    old = as_slice(storage, created, "1")
    (merged,) = run(writer(storage, Target("f-0", old, True), instant="2"), rows(b=3, c=4))
    assert (merged.num_updates, merged.num_inserts, merged.prev_commit) == (1, 1, "1")
    new = as_slice(storage, merged, "2")
    found = pa.Table.from_batches(SliceReader(storage, COW).read(new, [RECORD_KEY, "v"]))
    assert found.to_pydict() == {RECORD_KEY: ["a", "b", "c"], "v": [1, 3, 4]}


def test_a_slice_without_files_takes_a_first_base_file(storage: MemoryStorage) -> None:
    (status,) = run(writer(storage, Target("f-0", FileSlice("p", "f-0", "1", None), True)), rows(a=1))
    assert (status.file_id, status.num_inserts) == ("f-0", 1)


@dataclass(frozen=True)
class NotingHandle:
    """Writes one small file in a form of its own."""

    group: GroupWrite

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        path = f"{self.group.partition}/{self.group.target.file_id}.txt"
        self.group.job.storage.write(path, ",".join(incoming.keys.to_pylist()).encode())
        return [WriteStatus(self.group.partition, self.group.target.file_id, path=path, num_inserts=incoming.rows)]


def test_new_groups_go_to_the_handle_that_is_named(storage: MemoryStorage) -> None:
    (created,) = run(writer(storage, Target("f-0", None, True)), rows(a=1))
    own = replace(writer(storage, Target("g-0", None, True)), insert_handle=NotingHandle)
    assert (pickle.loads(pickle.dumps(own)).insert_handle, writer(storage).insert_handle) == (
        NotingHandle,
        CreateHandle,
    )
    (status,) = run(own, rows(x=1, y=2))
    assert (status.path, storage.read("p/g-0.txt")) == ("p/g-0.txt", b"x,y")
    targets = PlannedTargets((Target("f-0", as_slice(storage, created, "1"), True),))
    known = replace(own, targets=targets, job=replace(own.job, instant="2"))
    (merged,) = run(known, rows(a=2))
    assert (merged.num_updates, merged.path is not None) == (1, True)


def test_a_bucket_that_has_log_files_only_keeps_its_file_group() -> None:
    log = LogFile("p", "00000003-f-0", "2", 1, "0-0-0", ".00000003-f-0_2.log.1_0-0-0", 10)
    only_logs = FileSlice("p", "00000003-f-0", "2", None, (log,))
    targets = HashedTargets("5", {("p", 3): only_logs})
    assert targets.of("p", 3) == Target("00000003-f-0", only_logs, size_limited=False)
    fresh = targets.of("p", 4)
    assert (fresh.slice, fresh.file_id.startswith("00000004")) == (None, True)
