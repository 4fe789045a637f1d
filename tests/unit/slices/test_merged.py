"""Slices with log files as merged rows: random histories against a model, memory, positions, schemas, visibility."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptFile
from lakebed.format.data_block import encode_data_block
from lakebed.format.delete_block import encode_ordered_deletes
from lakebed.format.log_file import HeaderKey, LogBlock, block_bytes, delete_block, encode_positions, rollback_block
from lakebed.merge.log_entries import BlockView
from lakebed.model import META_COLUMNS, RECORD_KEY, BaseFile, FileSlice, LogFile
from lakebed.properties.table_config import TableConfig
from lakebed.schema.avro import arrow_to_avro
from lakebed.slices.key_rows import rows_of_keys
from lakebed.slices.logs import SliceLogs
from lakebed.slices.reader import MERGE_MEMORY, SliceReader
from lakebed.storage.memory import MemoryStorage

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("n", pa.int32()), ("w", pa.string())])
BASE = "20240101000000000"
Row = dict[str, Any]


def config(*, event_time: bool = True, version: int = 9) -> TableConfig:
    return TableConfig(
        {
            "hoodie.table.name": "t",
            "hoodie.table.type": "MERGE_ON_READ",
            "hoodie.table.version": str(version),
            "hoodie.timeline.layout.version": "2" if version >= 8 else "1",
            "hoodie.table.recordkey.fields": "id",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.record.merge.mode": "EVENT_TIME_ORDERING" if event_time else "COMMIT_TIME_ORDERING",
        }
    )


def batch(rows: Sequence[Row], instant: str, file_name: str, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Rows with their meta columns."""
    meta = {
        "_hoodie_commit_time": [instant] * len(rows),
        "_hoodie_commit_seqno": [f"{instant}_0_{n}" for n in range(len(rows))],
        RECORD_KEY: [row["id"] for row in rows],
        "_hoodie_partition_path": ["p"] * len(rows),
        "_hoodie_file_name": [file_name] * len(rows),
    }
    columns = [pa.array(values, pa.string()) for values in meta.values()]
    columns += [pa.array([row.get(f.name) for row in rows], f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, names=[*meta, *schema.names])


@dataclass
class History:
    """One file slice, written block by block into storage."""

    storage: MemoryStorage
    base: BaseFile | None = None
    logs: list[LogFile] = field(default_factory=list)

    def put_base(self, rows: Sequence[Row], schema: pa.Schema = SCHEMA, row_group_size: int = 1 << 20) -> None:
        sink = pa.BufferOutputStream()
        name = f"f_0-0-0_{BASE}.parquet"
        table = pa.Table.from_batches([batch(rows, BASE, name, schema)])
        pq.write_table(table, sink, row_group_size=row_group_size)
        data = sink.getvalue().to_pybytes()
        self.base = BaseFile("p", "f", "0-0-0", BASE, name, len(data))
        self.storage.write(self.base.path, data)

    def put_log(self, instant: str, *blocks: LogBlock | bytes) -> None:
        name = f".f_{instant}.log.1_0-0-0"
        data = b"".join(b if isinstance(b, bytes) else block_bytes(b) for b in blocks)
        self.logs.append(LogFile("p", "f", instant, 1, "0-0-0", name, len(data)))
        self.storage.write(f"p/{name}", data)

    @property
    def file_slice(self) -> FileSlice:
        return FileSlice("p", "f", BASE, self.base, tuple(self.logs))


@pytest.fixture
def history() -> History:
    return History(MemoryStorage("merged"))


def rows_block(instant: str, rows: Sequence[Row], schema: pa.Schema = SCHEMA, at: Sequence[int] = ()) -> LogBlock:
    return encode_data_block(
        [batch(rows, instant, "f", schema)], arrow_to_avro(schema, "t", meta=True), headers(instant, at)
    )


def deletes_block(instant: str, rows: Sequence[Row], forced: Sequence[bool], at: Sequence[int] = ()) -> LogBlock:
    ordering = pa.array([row["ts"] for row in rows], pa.int64())
    content = encode_ordered_deletes(pa.array([row["id"] for row in rows]), "p", [ordering], np.array(forced))
    block = delete_block(content, instant, arrow_to_avro(SCHEMA, "t", meta=True))
    return LogBlock(block.type, {**block.headers, **headers(instant, at)}, block.content)


def headers(instant: str, at: Sequence[int]) -> dict[int, str]:
    found: dict[int, str] = {int(HeaderKey.INSTANT_TIME): instant}
    if at:
        found[HeaderKey.RECORD_POSITIONS] = encode_positions(at)
        found[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS] = BASE
    return found


def instant(number: int) -> str:
    return f"2024010200000{number:04d}"


def plain(rows: Sequence[pa.RecordBatch], columns: Sequence[str] = SCHEMA.names) -> list[Row]:
    table = pa.Table.from_batches(rows).select(list(columns)) if rows else pa.schema(SCHEMA).empty_table()
    return sorted(table.to_pylist(), key=repr)


def random_rows(rng: np.random.Generator, keys: int, count: int) -> list[Row]:
    chosen = rng.choice(keys, count, replace=False)
    return [
        {"id": f"k{k}", "ts": int(rng.integers(0, 6)), "n": int(rng.integers(0, 99)), "w": f"w{rng.integers(0, 9)}"}
        for k in chosen
    ]


class Model:
    """Rows by key, as Hudi merges them: the log into one record a key, then that into the base row."""

    def __init__(self, base: Sequence[Row], *, event_time: bool) -> None:
        self.base = {row["id"]: row for row in base}
        self.log: dict[str, tuple[Row, bool, bool]] = {}
        self.event_time = event_time

    def add(self, row: Row, *, deleted: bool = False, forced: bool = False) -> None:
        old = self.log.get(row["id"])
        if old is not None and self.event_time:
            less = row["ts"] < old[0]["ts"]
            if (old[2] or (not forced and less)) if deleted else (not old[2] and less):
                return
        self.log[row["id"]] = (row, deleted, forced)

    def rows(self) -> list[Row]:
        found = dict(self.base)
        for key, (row, deleted, forced) in self.log.items():
            old = self.base.get(key)
            if old is not None and self.event_time and not forced and row["ts"] < old["ts"]:
                continue
            found.pop(key, None)
            if not deleted:
                found[key] = row
        return sorted(found.values(), key=repr)


@pytest.mark.parametrize("event_time", [True, False], ids=["event_time", "commit_time"])
@pytest.mark.parametrize("with_base", [True, False], ids=["base", "logs_only"])
@pytest.mark.parametrize("seed", range(6))
def test_a_slice_is_what_the_model_says(history: History, seed: int, with_base: bool, event_time: bool) -> None:
    rng = np.random.default_rng(seed)
    base = random_rows(rng, 60, 40) if with_base else []
    if with_base:
        history.put_base(base, row_group_size=16)
    model = Model(base, event_time=event_time)
    for number in range(1, 6):
        blocks: list[LogBlock] = []
        for _ in range(int(rng.integers(1, 3))):
            rows = random_rows(rng, 80, int(rng.integers(1, 30)))
            blocks.append(rows_block(instant(number), rows))
            for row in rows:
                model.add(row)
        gone = random_rows(rng, 80, int(rng.integers(1, 12)))
        forced = (rng.random(len(gone)) < 0.5).tolist()
        blocks.append(deletes_block(instant(number), gone, forced))
        for row, force in zip(gone, forced, strict=True):
            model.add(row, deleted=True, forced=force)
        history.put_log(instant(number), *blocks)
    expected = model.rows()
    reader = pickle.loads(pickle.dumps(SliceReader(history.storage, config(event_time=event_time))))
    reader = SliceReader(history.storage, reader.config, reader.blocks)
    one = history.file_slice
    assert plain(list(reader.read(one, schema=SCHEMA))) == expected
    assert reader.count(one) == len(expected)
    merged = reader.merged(one, SCHEMA)
    assert plain(list(merged.batches())) == expected
    counts = merged.counts
    assert len(base) - counts.deleted + counts.inserted == len(expected)
    assert counts.log_files == 5
    assert [f.name for f in next(iter(reader.merged(one, SCHEMA).batches())).schema][:5] == list(META_COLUMNS)
    assert plain(list(reader.read(one, ["w", "id"])), ["id", "w"]) == sorted(
        ({"id": r["id"], "w": r["w"]} for r in expected), key=repr
    )
    keys = pa.array(sorted(f"k{n}" for n in range(0, 90, 3)))
    found = rows_of_keys(reader, one, keys, ["id", "ts", "n", "w"], use_bloom=False)
    assert plain(found) == [row for row in expected if row["id"] in keys.to_pylist()]
    # a bound below the logs: records lie in a mapped file
    small = SliceReader(history.storage, config(event_time=event_time), memory=256)
    assert plain(list(small.read(one, schema=SCHEMA))) == expected


def test_rows_of_the_log_keep_their_own_meta_columns(history: History) -> None:
    history.put_base([{"id": "a", "ts": 1, "n": 1, "w": "x"}, {"id": "b", "ts": 1, "n": 2, "w": "y"}])
    history.put_log(instant(1), rows_block(instant(1), [{"id": "b", "ts": 2, "n": 3, "w": "z"}]))
    reader = SliceReader(history.storage, config())
    rows = pa.Table.from_batches(list(reader.read(history.file_slice))).to_pylist()
    assert [(r[RECORD_KEY], r["_hoodie_commit_time"], r["_hoodie_file_name"], r["n"]) for r in rows] == [
        ("a", BASE, f"f_0-0-0_{BASE}.parquet", 1),
        ("b", instant(1), "f", 3),
    ]
    placed = list(reader.read_placed(history.file_slice, [RECORD_KEY, "_hoodie_file_name"], SCHEMA))
    assert {r["_hoodie_file_name"] for r in pa.Table.from_batches(placed).to_pylist()} == {f"f_0-0-0_{BASE}.parquet"}


def test_the_first_row_of_a_repeated_key_is_merged_unless_positions_name_another(
    history: History,
) -> None:
    base = [{"id": k, "ts": 1, "n": n, "w": "b"} for n, k in enumerate(["a", "b", "a", "c"])]
    history.put_base(base)
    new = [{"id": "a", "ts": 2, "n": 10, "w": "l"}]
    history.put_log(instant(1), rows_block(instant(1), new))
    reader = SliceReader(history.storage, config())

    def numbers() -> list[int]:
        return sorted(row["n"] for row in plain(list(reader.read(history.file_slice, schema=SCHEMA))))

    assert numbers() == [1, 2, 3, 10]
    history.logs.clear()
    history.put_log(instant(2), rows_block(instant(2), new, at=[2]))
    assert numbers() == [0, 1, 3, 10]
    found = rows_of_keys(reader, history.file_slice, pa.array(["a"]), ["n"], use_bloom=False)
    assert sorted(pa.Table.from_batches(found)["n"].to_pylist()) == [0, 10]
    both = [{"id": "a", "ts": 3, "n": 20, "w": "l"}, {"id": "a", "ts": 3, "n": 21, "w": "l"}]
    history.put_log(instant(3), rows_block(instant(3), both, at=[0, 2]))
    assert numbers() == [1, 3, 20, 21]
    history.put_log(instant(4), deletes_block(instant(4), [{"id": "a", "ts": 9}], [False], at=[0]))
    assert numbers() == [1, 3, 21]
    assert reader.count(history.file_slice) == 3
    # one block that does not tell, and keys decide for all
    history.put_log(instant(5), rows_block(instant(5), [{"id": "b", "ts": 9, "n": 30, "w": "l"}]))
    assert numbers() == [2, 3, 30]


def test_every_file_is_read_in_the_requested_types(history: History) -> None:
    older = pa.schema([("id", pa.string()), ("ts", pa.int32()), ("n", pa.int32())])
    newer = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("n", pa.string()), ("more", pa.float64())])
    history.put_base([{"id": k, "ts": 5, "n": 7} for k in "abc"], older)
    history.put_log(instant(1), rows_block(instant(1), [{"id": "b", "ts": 6, "n": 8}], older))
    history.put_log(
        instant(2),
        rows_block(instant(2), [{"id": "c", "ts": 1 << 40, "n": "z", "more": 0.5}], newer),
    )
    reader = SliceReader(history.storage, config())
    expected = [
        {"id": "a", "ts": 5, "n": "7", "more": None},
        {"id": "b", "ts": 6, "n": "8", "more": None},
        {"id": "c", "ts": 1 << 40, "n": "z", "more": 0.5},
    ]
    for schema in (newer, None):
        found = pa.Table.from_batches(list(reader.read(history.file_slice, newer.names, schema=schema)))
        assert found.to_pylist() == expected
        assert found.schema.types == newer.types


def test_blocks_of_instants_that_do_not_count_are_left_out(history: History) -> None:
    history.put_base([{"id": "a", "ts": 1, "n": 1, "w": ""}])
    for number in (1, 2, 3):
        history.put_log(instant(number), rows_block(instant(number), [{"id": "a", "ts": 2, "n": 10 * number, "w": ""}]))
    view = BlockView(frozenset([BASE, instant(1), instant(3)]), frozenset([instant(2)]), BASE)

    def number(blocks: BlockView) -> int:
        reader = SliceReader(history.storage, config(version=6), blocks)
        (row,) = plain(list(reader.read(history.file_slice, schema=SCHEMA)))
        return row["n"]

    assert number(view) == 30
    assert number(BlockView(view.committed, view.pending, BASE, as_of=instant(2))) == 10
    assert number(BlockView(frozenset([BASE]), view.pending, instant(2))) == 10  # archived
    assert number(view.of_instants(frozenset([BASE, instant(1)]))) == 10


def test_rolled_back_and_damaged_blocks_are_left_out(history: History) -> None:
    history.put_base([{"id": "a", "ts": 1, "n": 1, "w": ""}])
    first, second = (rows_block(instant(n), [{"id": "a", "ts": 2, "n": 10 * n, "w": ""}]) for n in (1, 2))
    torn = block_bytes(rows_block(instant(3), [{"id": "a", "ts": 2, "n": 30, "w": ""}]))[:-30]
    history.put_log(instant(1), first, second, rollback_block(instant(2), instant(4)), torn, first, torn)
    merged = SliceReader(history.storage, config(version=6)).merged(history.file_slice, SCHEMA)
    assert [row["n"] for row in plain(list(merged.batches()))] == [10]
    counts = merged.counts
    assert (counts.corrupt_blocks, counts.rollback_blocks, counts.log_blocks, counts.log_records) == (2, 1, 2, 2)
    assert (counts.updated, counts.deleted, counts.inserted) == (1, 0, 0)


def test_a_row_that_is_deleted_by_its_own_column_is_not_read(history: History) -> None:
    schema = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])
    history.put_base([{"id": k, "ts": 5, "n": 1, "w": ""} for k in "abc"])
    gone = [
        {"id": k, "ts": ts, "n": 2, "w": "", "_hoodie_is_deleted": True} for k, ts in (("a", 4), ("b", 5), ("z", 9))
    ]
    history.put_log(instant(1), rows_block(instant(1), gone, schema))
    reader = SliceReader(history.storage, config())
    assert [row["id"] for row in plain(list(reader.read(history.file_slice, schema=SCHEMA)))] == ["a", "c"]
    assert reader.count(history.file_slice) == 2


def test_only_what_instants_of_a_range_wrote_is_merged(history: History) -> None:
    history.put_base([{"id": "a", "ts": 9, "n": 1, "w": ""}, {"id": "b", "ts": 9, "n": 2, "w": ""}])
    history.put_log(instant(1), rows_block(instant(1), [{"id": "a", "ts": 5, "n": 10, "w": ""}]))
    reader = SliceReader(history.storage, config())
    assert [row["n"] for row in plain(list(reader.read(history.file_slice, schema=SCHEMA)))] == [1, 2]
    late = reader.of_instants(frozenset([instant(1)]))
    assert [row["n"] for row in plain(list(late.read(history.file_slice, schema=SCHEMA)))] == [10]
    assert late.count(history.file_slice) == 1


@pytest.mark.parametrize("memory", [MERGE_MEMORY, 1 << 16, 256])
def test_blocks_that_are_read_together_are_merged_in_their_order(history: History, memory: int) -> None:
    rng = np.random.default_rng(memory)
    narrow = pa.schema([("id", pa.string()), ("ts", pa.int32()), ("n", pa.int32()), ("w", pa.string())])
    large = [{"id": f"l{n}", "ts": 3, "n": n, "w": "x" * 400} for n in range(3000)]
    model = Model([], event_time=True)
    for number in range(1, 13):
        rows = large if number == 6 else random_rows(rng, 80, int(rng.integers(0, 30)))
        gone = random_rows(rng, 80, int(rng.integers(1, 12)))
        blocks = [rows_block(instant(number), rows, narrow if number % 3 else SCHEMA)]
        if number % 4 == 0:
            blocks.append(deletes_block(instant(number), gone, [False] * len(gone)))
        history.put_log(instant(number), *blocks)
        for row in rows:
            model.add(row)
        for row in gone if number % 4 == 0 else []:
            model.add(row, deleted=True)
    reader = SliceReader(history.storage, config(), memory=memory)
    assert plain(list(reader.read(history.file_slice, schema=SCHEMA))) == model.rows()
    assert reader.count(history.file_slice) == len(model.rows())
    logs = SliceLogs.scan(history.storage, history.logs, reader.blocks, memory)
    for number in logs.data:
        block = logs.block(number)
        rows = block.read(["id", "n"])
        assert rows.num_rows == block.rows
        odd = np.arange(1, block.rows, 2)
        assert block.read(["id", "n"], odd).equals(rows.take(pa.array(odd)))


def test_the_broken_block_of_several_read_together_is_named(history: History) -> None:
    for number in range(1, 5):
        block = rows_block(instant(number), [{"id": f"k{number}", "ts": 1, "n": number, "w": "v" * 9}])
        if number == 3:
            block = LogBlock(block.type, block.headers, block.content.replace(b"v" * 9, b"\xff" * 9))
        history.put_log(instant(number), block)
    with pytest.raises(CorruptFile) as caught:
        list(SliceReader(history.storage, config()).read(history.file_slice, schema=SCHEMA))
    assert caught.value.context == {"path": f"p/{history.logs[2].name}", "offset": 0}
