"""The append handle writes log files that hold what came in: names, blocks, headers, counts, on every table version."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakebed.concurrency.markers import list_markers
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Task
from lakebed.expressions.base import Constant
from lakebed.expressions.partition_paths import PathCheck
from lakebed.format.avro.wrappers import INT, LONG
from lakebed.format.column_ranges import from_stream
from lakebed.format.data_block import open_data_block
from lakebed.format.delete_block import Deletes, decode_deletes
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, decode_positions, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.handles.append import AppendHandle
from lakebed.handles.base import GroupJob, PlannedTargets, Target
from lakebed.handles.file_writer import FileFormat
from lakebed.handles.group_writer import GroupWriter
from lakebed.merge.incoming import Intake
from lakebed.merge.rules import MergeRules
from lakebed.model import DELETE, META_COLUMNS, POSITION, RECORD_KEY, BaseFile, FileSlice, LogFile
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import with_meta
from lakebed.schema.avro import arrow_to_avro, avro_with_meta
from lakebed.slices.reader import SliceReader
from lakebed.storage.memory import MemoryStorage
from lakebed.write_status import WriteStatus, from_table

DATA = pa.schema([("v", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
AVRO = avro_with_meta(arrow_to_avro(DATA, "t"))
BASE = BaseFile("p", "f-0", "0-0-0", "1", "f-0_0-0-0_1.parquet", 1)
SLICE = FileSlice("p", "f-0", "1", BASE)
INSTANT = "20260101000000002"


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    name = f"append-{uuid.uuid4().hex}"
    yield MemoryStorage(name)
    MemoryStorage.drop(name)


def mor(version: int = 9, **more: str) -> TableConfig:
    names = {"hoodie.table.name": "t", "hoodie.table.type": "MERGE_ON_READ", "hoodie.table.version": str(version)}
    return TableConfig(names | {key.replace("_", "."): value for key, value in more.items()})


def writer(
    storage: MemoryStorage,
    target: Target,
    config: TableConfig | None = None,
    *,
    settings: WriteSettings | None = None,
    ordering: tuple[str, ...] = ("v",),
    all_deletes: bool = False,
    log_blocks: Any = "avro",
) -> GroupWriter:
    return GroupWriter(
        GroupJob(
            reader=SliceReader(storage, config or mor()),
            instant=INSTANT,
            format=FileFormat(
                with_meta(DATA), AVRO, settings or WriteSettings(), range_columns=("v",), log_blocks=log_blocks
            ),
            intake=Intake(DATA, MergeRules(ordering), combine=True, all_deletes=all_deletes, memory=1 << 20),
            on_match="keys",
            max_file_size=1 << 20,
            path_check=PathCheck(Constant("p")),
        ),
        targets=PlannedTargets((target,)),
        existing_partitions=frozenset({"p"}),
        # type: ignore[arg-type],
    )


def run(to: GroupWriter, batch: pa.RecordBatch, task: Task | None = None) -> list[WriteStatus]:
    statuses = list(from_table(pa.Table.from_batches(to("p", 0, iter([batch]), task or Task(3, 2, 1)))))
    assert [s.error for s in statuses] == [None] * len(statuses)
    return statuses


def rows(*given: tuple[str, int, bool | None], forced: Sequence[bool] | None = None) -> pa.RecordBatch:
    keys, values, deleted = (list(c) for c in zip(*given, strict=True))
    columns = {RECORD_KEY: keys, "v": pa.array(values, pa.int64()), "_hoodie_is_deleted": pa.array(deleted, pa.bool_())}
    return pa.record_batch(columns | ({DELETE: pa.array(list(forced))} if forced is not None else {}))


def blocks(storage: MemoryStorage, path: str | None) -> list[BlockHead]:
    assert path is not None
    info = storage.head(path)
    assert info is not None
    return list(scan_blocks(FileSource(storage, path, info.size)))


def wrapped(deletes: Deletes) -> list[tuple[int, Any]]:
    """The branch and the value of each delete's ordering value."""
    found: dict[int, tuple[int, Any]] = {}
    for kind, (at, values) in deletes.ordering.values.items():
        found |= {n: (kind, value) for n, value in zip(at.tolist(), values.to_pylist(), strict=True)}
    return [found[n] for n in range(len(deletes))]


def records(head: BlockHead) -> list[dict[str, Any]]:
    block = open_data_block(head, "a log")
    return block.read(block.schema.names).to_pylist()


def test_updates_go_to_a_data_block_and_deletes_to_a_delete_block_after_it(storage: MemoryStorage) -> None:
    batch = rows(("a", 7, None), ("b", 8, True), ("c", 9, False))
    (status,) = run(writer(storage, Target("f-0", SLICE, False)), batch)
    assert status.path == f"p/.f-0_{INSTANT}.log.1_3-2-1"
    assert (status.num_writes, status.num_updates, status.num_inserts, status.num_deletes) == (2, 2, 0, 1)
    assert (status.prev_commit, status.base_file, status.log_files) == (INSTANT, "", [f".f-0_{INSTANT}.log.1_3-2-1"])
    assert (status.log_version, status.log_offset, status.rows_in, status.num_unchanged) == (1, 0, 3, 0)
    assert status.file_size == len(storage.read(status.path or ""))
    data, deletes = blocks(storage, status.path)
    assert (data.type, deletes.type) == (BlockType.AVRO_DATA, BlockType.DELETE)
    for head in (data, deletes):
        assert dict(head.headers) == {HeaderKey.INSTANT_TIME: INSTANT, HeaderKey.SCHEMA: AVRO}
    found = records(data)
    assert [[r[m] for m in META_COLUMNS] for r in found] == [
        [INSTANT, f"{INSTANT}_3_{n}", key, "p", "f-0"] for n, key in enumerate("ac")
    ]
    assert [(r["v"], r["_hoodie_is_deleted"]) for r in found] == [(7, None), (9, False)]
    listed = decode_deletes(deletes.read())
    assert (listed.keys.to_pylist(), listed.partitions.to_pylist()) == (["b"], ["p"])
    ranges = from_stream(status.ranges or b"").to_pylist()[0]["v"]
    assert {name: ranges[name] for name in ("min", "max", "null_count", "value_count")} == {
        "min": 7, "max": 9, "null_count": 0, "value_count": 2,
    }  # fmt: skip


def test_deletes_carry_their_ordering_value_and_forced_ones_none(storage: MemoryStorage) -> None:
    batch = rows(("a", 7, True), ("b", 8, None), ("c", 9, True), forced=(False, True, False))
    (status,) = run(writer(storage, Target("f-0", SLICE, False)), batch)
    (head,) = blocks(storage, status.path)
    found = decode_deletes(head.read())
    assert found.keys.to_pylist() == ["a", "b", "c"]
    assert wrapped(found) == [(LONG, 7), (INT, 0), (LONG, 9)]
    assert (status.num_writes, status.num_deletes) == (0, 3)
    ranges = from_stream(status.ranges or b"").to_pylist()[0]["v"]
    assert (ranges["min"], ranges["null_count"], ranges["value_count"]) == (None, 0, 0)


def test_a_delete_of_keys_alone_wins_whatever_is_stored(storage: MemoryStorage) -> None:
    keys = pa.record_batch({RECORD_KEY: ["a", "b", "a"]})
    (status,) = run(writer(storage, Target("f-0", SLICE, False), all_deletes=True), keys)
    (head,) = blocks(storage, status.path)
    found = decode_deletes(head.read())
    assert (found.keys.to_pylist(), wrapped(found)) == (["b", "a"], [(INT, 0), (INT, 0)])
    assert (status.rows_in, status.num_deletes, status.num_combined, status.num_unchanged) == (3, 2, 1, 0)


def test_before_version_8_a_log_file_is_named_after_its_slice(storage: MemoryStorage) -> None:
    first = LogFile("p", "f-0", "1", 1, "9-9-9", ".f-0_1.log.1_9-9-9", 10)
    held = replace(SLICE, log_files=(first,))
    (status,) = run(writer(storage, Target("f-0", held, False), mor(6)), rows(("a", 7, None)))
    assert (status.path or "").startswith("p/.f-0_1.log.2_3-")
    assert (status.prev_commit, status.base_file, status.log_version) == ("1", BASE.name, 2)
    assert status.log_files == [first.name, (status.path or "").removeprefix("p/")]
    (head,) = blocks(storage, status.path)
    assert dict(head.headers) == {HeaderKey.INSTANT_TIME: INSTANT, HeaderKey.SCHEMA: AVRO}
    assert [(m.path, m.kind) for m in list_markers(storage, INSTANT)] == [(status.path or "", "APPEND")]


def test_a_slice_that_a_compaction_has_begun_has_log_files_of_its_own(storage: MemoryStorage) -> None:
    old = LogFile("p", "f-0", "1", 4, "9-9-9", ".f-0_1.log.4_9-9-9", 10)
    target = Target("f-0", replace(SLICE, log_files=(old,)), False, log_instant="2")
    (status,) = run(writer(storage, target, mor(6)), rows(("a", 7, None)))
    assert (status.path or "").startswith("p/.f-0_2.log.1_3-")
    assert (status.prev_commit, status.base_file, len(status.log_files or ())) == ("2", "", 1)


def test_a_name_that_is_taken_is_left_and_the_next_version_written(storage: MemoryStorage) -> None:
    taken = f"p/.f-0_{INSTANT}.log.1_3-2-1"
    storage.write(taken, b"another's")
    (status,) = run(writer(storage, Target("f-0", SLICE, False)), rows(("a", 7, None)))
    assert (status.path, status.log_version) == (f"p/.f-0_{INSTANT}.log.2_3-2-1", 2)
    assert storage.read(taken) == b"another's"
    assert [m.kind for m in list_markers(storage, INSTANT)] == ["CREATE", "CREATE"]


def test_large_writes_roll_over_with_one_status_a_file(storage: MemoryStorage) -> None:
    settings = WriteSettings(log_block_bytes=2_000, log_file_bytes=5_000)
    given = [(f"k{n:04}", n, None) for n in range(1_000)]
    to = writer(storage, Target("f-0", SLICE, False), settings=settings)
    statuses = run(to, rows(*given, ("gone", 5, True)))
    assert len(statuses) > 3
    assert [s.log_version for s in statuses] == list(range(1, len(statuses) + 1))
    names = [(s.path or "").removeprefix("p/") for s in statuses]
    assert [s.log_files for s in statuses] == [names[: n + 1] for n in range(len(names))]
    assert sum(s.num_updates for s in statuses) == 1_000
    assert [s.num_deletes for s in statuses] == [*[0] * (len(statuses) - 1), 1]
    assert [s.rows_in for s in statuses] == [1_001, *[0] * (len(statuses) - 1)]
    heads = [head for s in statuses for head in blocks(storage, s.path)]
    assert len(heads) > len(statuses)
    assert [h.type for h in heads] == [*[BlockType.AVRO_DATA] * (len(heads) - 1), BlockType.DELETE]
    assert [r[RECORD_KEY] for h in heads[:-1] for r in records(h)] == [key for key, _, _ in given]
    for status in statuses:
        if status.num_updates:
            values = [r["v"] for h in blocks(storage, status.path) if h.type is BlockType.AVRO_DATA for r in records(h)]
            found = from_stream(status.ranges or b"").to_pylist()[0]["v"]
            assert (found["min"], found["max"], found["value_count"]) == (min(values), max(values), len(values))


def test_a_file_beyond_what_is_held_is_written_as_it_comes(storage: MemoryStorage, monkeypatch: Any) -> None:
    monkeypatch.setattr("lakebed.handles.log_writer._BUFFERED_BYTES", 3_000)
    storage.write(f"p/.f-0_{INSTANT}.log.1_3-2-1", b"another's")
    settings = WriteSettings(log_block_bytes=2_000)
    given = [(f"k{n:04}", n, None) for n in range(1_000)]
    (status,) = run(writer(storage, Target("f-0", SLICE, False), settings=settings), rows(*given))
    assert status.log_version == 2
    found = [r[RECORD_KEY] for head in blocks(storage, status.path) for r in records(head)]
    assert found == [key for key, _, _ in given]


def test_a_table_that_logs_changes_names_the_files_below(storage: MemoryStorage) -> None:
    log = LogFile("p", "f-0", "2", 1, "0-0-0", ".f-0_2.log.1_0-0-0", 10)
    config = TableConfig({**mor().properties, "hoodie.table.cdc.enabled": "true"})
    (status,) = run(
        writer(storage, Target("f-0", replace(SLICE, log_files=(log,)), False), config), rows(("a", 7, None))
    )
    assert (status.prev_commit, status.base_file) == ("1", BASE.name)
    assert status.log_files == [log.name, (status.path or "").removeprefix("p/")]


def test_a_new_file_group_begins_with_inserts_and_forgets_nothing(storage: MemoryStorage) -> None:
    to = replace(writer(storage, Target("f-0", None, False)), insert_handle=AppendHandle)
    (status,) = run(to, rows(("a", 7, None), ("b", 8, True), ("c", 9, None), forced=(False, False, True)))
    assert (status.num_inserts, status.num_updates, status.num_deletes, status.num_unchanged) == (1, 0, 1, 1)
    (nothing,) = run(to, rows(("a", 7, None), forced=(True,)))
    assert (nothing.path, nothing.rows_in, nothing.num_unchanged) == (None, 1, 1)


def test_an_attempt_that_outlives_its_write_takes_its_file_back(storage: MemoryStorage, monkeypatch: Any) -> None:
    monkeypatch.setattr("lakebed.handles.log_writer.write_marker", lambda *_, **words: None)
    to = writer(storage, Target("f-0", SLICE, False))
    (status,) = list(from_table(pa.Table.from_batches(to("p", 0, iter([rows(("a", 7, None))]), Task()))))
    assert "CommitConflict" in (status.error or "")
    assert [info.path for info in storage.list("p")] == []


def numbered(*numbers: int | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(POSITION, pa.array(numbers, pa.int64()))


def positions_in_header(head: BlockHead) -> tuple[str | None, list[int] | None]:
    """The instant of the base file and the rows that a block names."""
    header = head.header(HeaderKey.RECORD_POSITIONS)
    found = None if header is None else decode_positions(header, 1000).tolist()
    return head.header(HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS), found


def test_known_rows_of_the_base_file_are_named_in_their_order(storage: MemoryStorage) -> None:
    given = rows(("a", 1, None), ("b", 2, True), ("c", 3, None), ("d", 4, True), ("e", 5, None))
    (status,) = run(writer(storage, Target("f-0", SLICE, False)), numbered(9, 8, 2, 70_000, 5, batch=given))
    data, deletes = blocks(storage, status.path)
    assert (positions_in_header(data), positions_in_header(deletes)) == (("1", [2, 5, 9]), ("1", [8, 70_000]))
    assert [(r[RECORD_KEY], r["v"]) for r in records(data)] == [("c", 3), ("e", 5), ("a", 1)]
    assert decode_deletes(deletes.read()).keys.to_pylist() == ["b", "d"]
    assert wrapped(decode_deletes(deletes.read())) == [(LONG, 2), (LONG, 4)]


@pytest.mark.parametrize("settings", [WriteSettings(), WriteSettings(record_positions=False)], ids=["on", "off"])
def test_a_block_with_a_row_that_is_not_known_names_none(storage: MemoryStorage, settings: WriteSettings) -> None:
    given = rows(("a", 1, None), ("b", 2, True), ("c", 3, None), ("d", 4, True))
    to = writer(storage, Target("f-0", SLICE, False), settings=settings)
    (status,) = run(to, numbered(7, 6, None, 1, batch=given))
    data, deletes = blocks(storage, status.path)
    assert positions_in_header(data) == (None, None)
    assert positions_in_header(deletes) == (("1", [1, 6]) if settings.record_positions else (None, None))
    assert sorted((r[RECORD_KEY], r["v"]) for r in records(data)) == [("a", 1), ("c", 3)]


def test_a_row_that_comes_twice_leaves_the_name_of_the_base_file(storage: MemoryStorage) -> None:
    to = writer(storage, Target("f-0", SLICE, False))
    to = replace(to, job=replace(to.job, intake=replace(to.job.intake, combine=False)))
    (status,) = run(to, numbered(7, 3, 7, batch=rows(("a", 1, None), ("b", 2, None), ("a", 3, None))))
    (data,) = blocks(storage, status.path)
    assert positions_in_header(data) == ("1", None)
    assert [(r[RECORD_KEY], r["v"]) for r in records(data)] == [("b", 2), ("a", 1), ("a", 3)]


def test_a_key_of_several_rows_is_written_for_each(storage: MemoryStorage) -> None:
    given = rows(*[("a", 1, None), ("a", 4, None), ("b", 2, None)] * 2)
    (status,) = run(writer(storage, Target("f-0", SLICE, False)), numbered(7, 7, 9, 3, 3, 9, batch=given))
    (data,) = blocks(storage, status.path)
    assert positions_in_header(data) == ("1", [3, 7, 9])
    assert [(r[RECORD_KEY], r["v"]) for r in records(data)] == [("a", 4), ("a", 4), ("b", 2)]


@pytest.mark.parametrize(
    ("version", "file_slice"), [(6, SLICE), (9, FileSlice("p", "f-0", "1", None))], ids=["version 6", "no base file"]
)
def test_no_rows_are_named_where_there_are_none(storage: MemoryStorage, version: int, file_slice: FileSlice) -> None:
    given = numbered(7, 7, batch=rows(("a", 1, None), ("a", 3, None)))
    (status,) = run(writer(storage, Target("f-0", file_slice, False), mor(version)), given)
    (data,) = blocks(storage, status.path)
    assert positions_in_header(data) == (None, None)
    assert [(r[RECORD_KEY], r["v"]) for r in records(data)] == [("a", 3)]
