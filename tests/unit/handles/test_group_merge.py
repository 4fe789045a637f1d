"""Merges that copy row groups and columns as bytes leave the files that merges make which encode every row."""

from __future__ import annotations

import io
import math
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Task
from lakebed.expressions.base import Constant
from lakebed.expressions.partition_paths import PathCheck
from lakebed.format.column_ranges import from_stream
from lakebed.format.log_file import avro_records, read_blocks
from lakebed.format.row_groups.assembled import AssembledFile
from lakebed.format.row_groups.stored import StoredGroups
from lakebed.handles import file_writer, merge
from lakebed.handles.base import GroupJob, PlannedTargets, Target
from lakebed.handles.file_writer import FileFormat, FileWriter
from lakebed.handles.group_writer import GroupWriter
from lakebed.handles.stored_rows import put_file
from lakebed.merge import incoming
from lakebed.merge.incoming import Intake
from lakebed.merge.row_merge import OnMatch
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.key_changes import from_bytes
from lakebed.model import COMMIT_SEQNO, COMMIT_TIME, DELETE, META_COLUMNS, RECORD_KEY, BaseFile, FileSlice
from lakebed.properties.table_config import TableConfig
from lakebed.schema.arrow import with_meta
from lakebed.schema.avro import arrow_to_avro, avro_with_meta
from lakebed.slices.reader import SliceReader
from lakebed.storage.base import Storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import FaultPlan, FaultyStorage, Killed, Mode
from lakebed.write_status import WriteStatus, from_table
from support.sampling import HISTORIES, todays_of

COW = TableConfig({"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE"})
COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("word", pa.string()),
        ("number", pa.float64()),
        ("narrow", pa.float32()),
        ("text", pa.string()),
        ("price", pa.decimal128(20, 3)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("place", pa.struct([("x", pa.float64()), ("name", pa.string())])),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.float64())),
    ]
)
RANGES = tuple(n for n in COLUMNS.names if n not in ("place", "list", "map"))
FULL = 40
ON_MATCH: Sequence[OnMatch] = ("keys", "keys", "keys", "keys", "keys", "keys", "none", "skip")


class Counted(AssembledFile):
    """Every file that was put together of stored row groups."""

    made: list[Counted]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        Counted.made.append(self)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", FULL)
    monkeypatch.setattr(file_writer, "SORTED_ROW_GROUP_ROWS", FULL)
    monkeypatch.setattr(file_writer, "AssembledFile", Counted)
    Counted.made = []


@pytest.fixture
def storages() -> Iterator[tuple[MemoryStorage, MemoryStorage]]:
    names = [f"groups-{uuid.uuid4().hex}" for _ in range(2)]
    yield MemoryStorage(names[0]), MemoryStorage(names[1])
    for name in names:
        MemoryStorage.drop(name)


def value(dice: random.Random, name: str) -> Any:
    if name not in ("id", "ts") and dice.random() < 0.1:
        return None
    match name:
        case "word":
            return dice.choice(["oak", "elm", "ash"])
        case "number" | "narrow":
            return dice.choice([math.nan, 0.0, -0.0, math.inf, *[float(dice.randrange(1000)) for _ in range(40)]])
        case "text":
            return "long" * 1500 if dice.random() < 0.02 else f"text {dice.randrange(10**6)}"
        case "price":
            return Decimal(dice.randrange(10**9)).scaleb(-3)
        case "day":
            return date(1969, 1, 1) + timedelta(days=dice.randrange(9000))
        case "at":
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=dice.randrange(10**9))
        case "flag":
            return dice.random() < 0.5
        case "raw":
            return dice.randbytes(dice.randrange(12))
        case "place":
            return {"x": dice.random(), "name": dice.choice(["a", None])}
        case "list":
            return [dice.randrange(9) for _ in range(dice.randrange(3))]
        case "map":
            return [(f"k{n}", dice.random()) for n in range(dice.randrange(3))]
        case _:
            return dice.randrange(100)


def some_rows(dice: random.Random, keys: Sequence[str], columns: pa.Schema = COLUMNS) -> pa.Table:
    made = [{"id": key, **{n: value(dice, n) for n in columns.names if n != "id"}} for key in keys]
    table = pa.Table.from_pylist(made, columns)
    return table.add_column(0, RECORD_KEY, table["id"])


@dataclass(frozen=True)
class Side:
    """A file group that is merged into, one way or the other."""

    storage: Storage
    format: FileFormat
    rules: MergeRules

    def write(
        self,
        rows: pa.Table,
        instant: int,
        target: FileSlice | None,
        on_match: OnMatch = "keys",
        absent: tuple[str, ...] = (),
    ) -> list[WriteStatus]:
        writer = GroupWriter(
            GroupJob(
                reader=SliceReader(self.storage, COW),
                instant=f"{instant:03}",
                format=self.format,
                intake=Intake(
                    COLUMNS, self.rules, combine=on_match == "keys", all_deletes=False, memory=1 << 20, absent=absent
                ),
                on_match=on_match,
                max_file_size=1 << 24,
                path_check=PathCheck(Constant("p")),
            ),
            targets=PlannedTargets((Target("f-0", target, True),)),
            existing_partitions=frozenset({"p"}),
            # type: ignore[arg-type],
        )
        batches = iter(rows.combine_chunks().to_batches())
        return list(from_table(pa.Table.from_batches(writer("p", 0, batches, Task()))))

    def table(self, status: WriteStatus) -> pa.Table:
        assert status.path is not None
        return pq.read_table(io.BytesIO(self.storage.read(status.path)), page_checksum_verification=True)

    def parquet(self, status: WriteStatus) -> Any:
        assert status.path is not None
        return pq.read_metadata(io.BytesIO(self.storage.read(status.path)))


def sides(
    storages: Sequence[MemoryStorage], rules: MergeRules, settings: WriteSettings | None = None, **given: Any
) -> tuple[Side, Side]:
    """One that copies, and one that does not."""
    settings = settings or WriteSettings()
    form = FileFormat(with_meta(COLUMNS), avro_with_meta(arrow_to_avro(COLUMNS, "t")), settings, **given)
    plain = replace(form, settings=replace(settings, copy_row_groups=False))
    return Side(storages[0], form, rules), Side(storages[1], plain, rules)


def slice_of(status: WriteStatus, instant: int) -> FileSlice:
    assert status.path is not None, status.error
    name = status.path.rpartition("/")[2]
    base = BaseFile("p", status.file_id, "0-0-0", f"{instant:03}", name, status.file_size)
    return FileSlice("p", status.file_id, f"{instant:03}", base)


def status_facts(status: WriteStatus) -> dict[str, Any]:
    """What a status says, but for times and sizes; ranges without the bytes that columns take."""
    plain = {name: getattr(status, name) for name in WriteStatus.__dataclass_fields__}
    for name in ("millis", "file_size", "ranges", "changes"):
        del plain[name]
    if status.ranges is not None:
        row = from_stream(status.ranges).to_pylist()[0]
        plain["ranges"] = repr({n: [v[k] for k in ("min", "max", "null_count", "value_count")] for n, v in row.items()})
    if status.changes:
        plain["changes"] = sorted(from_bytes(status.changes).to_pylist(), key=repr)
    return plain


def same(one: Side, other: Side, first: Sequence[WriteStatus], second: Sequence[WriteStatus]) -> None:
    assert [status_facts(s) for s in first] == [status_facts(s) for s in second]
    for mine, theirs in zip(first, second, strict=True):
        if mine.path is None:
            continue
        found, expected = one.table(mine), other.table(theirs)
        assert found.schema.equals(expected.schema)
        names = [name for name in found.column_names if name != COMMIT_SEQNO]
        assert repr(found.select(names).to_pylist()) == repr(expected.select(names).to_pylist())
        assert_numbered(found, expected)
        kv, expected_kv = one.parquet(mine).metadata, other.parquet(theirs).metadata
        assert kv == expected_kv
        for path, size in mine.cdc_stats or ():
            logged = [storage.read(path) for storage in (one.storage, other.storage)]
            assert [len(log) for log in logged] == [size, size]
            assert records(logged[0]) == records(logged[1])


def assert_numbered(found: pa.Table, expected: pa.Table) -> None:
    """Rows of a commit have the same sequence numbers; which of them has which is nothing that anybody promises."""
    numbers = [
        sorted(zip(*(t[c].to_pylist() for c in (COMMIT_TIME, COMMIT_SEQNO)), strict=True)) for t in (found, expected)
    ]
    assert len(set(numbers[0])) == len(numbers[0])
    assert numbers[0][-1][0] == numbers[1][-1][0]
    last = numbers[0][-1][0]
    assert [n for n in numbers[0] if n[0] == last] == [n for n in numbers[1] if n[0] == last]
    assert [n[0] for n in numbers[0]] == [n[0] for n in numbers[1]]


def records(log: bytes) -> list[str]:
    return sorted(repr(record) for block in read_blocks(log) for record in avro_records(block))


CASES: dict[str, dict[str, Any]] = {
    "commit_time": {"rules": MergeRules()},
    "event_time": {"rules": MergeRules(("ts",))},
    "sorted": {"rules": MergeRules(("ts",)), "sort": True},
    "sorted_commit_time": {"rules": MergeRules(), "sort": True},
    "nulls_keep": {"rules": MergeRules(("ts",), partial="IGNORE_DEFAULTS")},
    "changes": {"rules": MergeRules(), "change_fields": ("word", "place.name")},
    "sorted_changes": {"rules": MergeRules(("ts",)), "change_fields": ("word",), "sort": True},
    "log": {"rules": MergeRules(), "change_log": "DATA_BEFORE_AFTER"},
    "log_of_keys": {"rules": MergeRules(("ts",)), "change_log": "OP_KEY_ONLY"},
    "bloom": {"rules": MergeRules(), "settings": WriteSettings(bloom_filter=True)},
}


@pytest.mark.rest
@pytest.mark.parametrize(("case", "seed"), todays_of(list(CASES), range(4), parts=4, variable=HISTORIES))
def test_random_merges_leave_the_same_both_ways(
    storages: tuple[MemoryStorage, MemoryStorage], case: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed == 0:  # as of rows that take much memory
        monkeypatch.setattr(merge, "_MAX_BYTES", 0)
        monkeypatch.setattr(incoming, "_BATCH_ROWS", 3)
    dice = random.Random(f"{case}{seed}")
    one, other = sides(storages, range_columns=RANGES, **CASES[case])
    keys = [f"key-{n:04}" for n in range(0, 1400, 2)]
    known = dice.sample(keys, 350)
    load = some_rows(dice, sorted(known) if dice.random() < 0.5 else known)
    (mine,), (theirs,) = one.write(load, 1, None), other.write(load, 1, None)
    same(one, other, [mine], [theirs])
    old = slice_of(mine, 1), slice_of(theirs, 1)
    for instant in range(2, 9):
        low = dice.randrange(0, 1300)
        near = [key for key in known if dice.random() < 0.02 or low <= int(key[4:]) < low + 60]
        new = [f"key-{dice.randrange(1400):04}" for _ in range(dice.choice([0, 0, 1, 5, 60]))]
        chosen = list(dict.fromkeys([*dice.sample(near, dice.randrange(len(near) + 1)), *new])) or [known[0]]
        batch = some_rows(dice, chosen)
        on_match = dice.choice(ON_MATCH)
        absent: tuple[str, ...] = ()
        if on_match == "keys" and dice.random() < 0.4:
            gone = [dice.random() < dice.choice([0.05, 0.9]) for _ in chosen]
            batch = batch.append_column(DELETE, pa.array(gone))
        elif on_match == "keys" and dice.random() < 0.5:
            absent = tuple(n for n in COLUMNS.names if n not in ("id", "ts") and dice.random() < 0.7)
            batch = batch.drop_columns(list(absent))
        first, second = (
            side.write(batch, instant, at, on_match, absent) for side, at in zip((one, other), old, strict=True)
        )
        same(one, other, first, second)
        if first[0].path is not None:
            old = slice_of(first[0], instant), slice_of(second[0], instant)
            known = list(dict.fromkeys(one.table(first[0])["id"].to_pylist()))
    assert Counted.made


def test_row_groups_without_an_incoming_key_are_copied_and_columns_that_stay(
    storages: tuple[MemoryStorage, MemoryStorage],
) -> None:
    dice = random.Random(1)
    side, _ = sides(storages, MergeRules())
    keys = [f"key-{n:04}" for n in range(8 * FULL)]
    (loaded,) = side.write(some_rows(dice, keys), 1, None)
    (merged,) = side.write(some_rows(dice, keys[FULL + 3 : FULL + 9]), 2, slice_of(loaded, 1))
    made = Counted.made[-1]
    assert (merged.num_updates, merged.num_writes, made.traffic.copied_groups) == (6, 8 * FULL, 7)
    old, new = side.parquet(loaded), side.parquet(merged)
    stored = [side.storage.read(s.path or "") for s in (loaded, merged)]
    for group in range(8):
        for at in range(new.num_columns):
            before, after = old.row_group(group).column(at), new.row_group(group).column(at)
            chunks = [
                data[start : start + c.total_compressed_size]
                for data, c in zip(stored, (before, after), strict=True)
                for start in [c.dictionary_page_offset or c.data_page_offset]
            ]
            name = after.path_in_schema
            if name == "_hoodie_file_name":
                assert chunks[0] != chunks[1]
            elif group != 1 or name in ("_hoodie_record_key", "_hoodie_partition_path", "id"):
                assert chunks[0] == chunks[1]
    assert set(side.table(merged)["_hoodie_file_name"].to_pylist()) == {(merged.path or "").rpartition("/")[2]}


@pytest.mark.parametrize("step_rows", [0, 3 * FULL, 1 << 16])
def test_row_groups_that_follow_one_another_are_merged_together(
    storages: tuple[MemoryStorage, MemoryStorage], step_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "_STEP_ROWS", step_rows)
    read: list[tuple[int, int]] = []
    columns = StoredGroups.columns

    def spied(self: StoredGroups, number: int, names: Sequence[str], **given: Any) -> pa.RecordBatch:
        stop = given.get("stop")
        read.append((number, number + 1 if stop is None else stop))
        return columns(self, number, names, **given)

    dice = random.Random(5)
    one, other = sides(storages, MergeRules(("ts",)), sort=True)
    keys = [f"key-{n:04}" for n in range(8 * FULL)]
    load = some_rows(dice, keys)
    (mine,), (theirs,) = one.write(load, 1, None), other.write(load, 1, None)
    # all row groups but the sixth and the last get a row; the third one's comes too late, the fifth a new row as well
    touched = [group * FULL + 7 for group in (0, 1, 2, 3, 4, 6)]
    batch = some_rows(dice, [*(keys[at] for at in touched), keys[4 * FULL + 3] + "a"])
    times = [-1 if at == 2 else 1_000 for at in range(batch.num_rows)]
    batch = batch.set_column(batch.schema.get_field_index("ts"), "ts", pa.array(times))
    monkeypatch.setattr(StoredGroups, "columns", spied)
    first, second = one.write(batch, 2, slice_of(mine, 1)), other.write(batch, 2, slice_of(theirs, 1))
    same(one, other, first, second)
    assert (first[0].num_updates, first[0].num_inserts, first[0].num_unchanged) == (5, 1, 1)
    made = Counted.made[-1]
    assert made.traffic.copied_groups == 3  # the third, the sixth, the last
    assert not any(start <= unread < stop for start, stop in read for unread in (5, 7))
    widest = max(stop - start for start, stop in read)
    assert widest == {0: 1, 3 * FULL: 3, 1 << 16: 5}[step_rows]


def test_a_partial_update_reads_and_encodes_its_columns_only(storages: tuple[MemoryStorage, MemoryStorage]) -> None:
    dice = random.Random(2)
    side, _ = sides(storages, MergeRules())
    keys = [f"key-{n:04}" for n in range(4 * FULL)]
    (loaded,) = side.write(some_rows(dice, keys), 1, None)
    (whole,) = side.write(some_rows(dice, keys), 2, slice_of(loaded, 1))
    every = Counted.made[-1].traffic
    absent = tuple(n for n in COLUMNS.names if n not in ("id", "flag"))
    batch = some_rows(dice, keys).drop_columns(list(absent))
    (merged,) = side.write(batch, 3, slice_of(whole, 2), absent=absent)
    some = Counted.made[-1].traffic
    assert merged.num_updates == 4 * FULL
    assert some.encoded_bytes < every.encoded_bytes / 4
    assert some.copied_bytes > 3 * every.copied_bytes
    before, after = side.table(whole).to_pylist(), side.table(merged).to_pylist()
    flags = dict(zip(batch["id"].to_pylist(), batch["flag"].to_pylist(), strict=True))
    for old, new in zip(before, after, strict=True):
        changed = {"flag": flags[old["id"]], **{n: new[n] for n in META_COLUMNS if n != RECORD_KEY}}
        assert repr(new) == repr(old | changed)


@pytest.mark.rest
@pytest.mark.parametrize("sort", [False, True])
def test_few_rows_at_a_time_make_no_small_row_groups(storages: tuple[MemoryStorage, MemoryStorage], sort: bool) -> None:
    dice = random.Random(3)
    side, _ = sides(storages, MergeRules(), sort=sort)
    keys = [f"key-{n:05}" for n in range(0, 6 * FULL * 10, 10)]
    (status,) = side.write(some_rows(dice, keys), 1, None)
    alive = set(keys)
    for instant in range(2, 60):
        new = {f"key-{dice.randrange(6 * FULL * 10):05}" for _ in range(7)}
        gone = set(dice.sample(sorted(alive), 4))
        batch = some_rows(dice, sorted(new | gone))
        batch = batch.append_column(DELETE, pa.array([key in gone for key in sorted(new | gone)]))
        (status,) = side.write(batch, instant, slice_of(status, instant - 1))
        alive = (alive | new) - gone
    found = side.table(status)["id"].to_pylist()
    assert sorted(found) == sorted(alive)
    groups = [side.parquet(status).row_group(n).num_rows for n in range(side.parquet(status).num_row_groups)]
    assert len(groups) <= 3 * len(alive) / FULL
    assert max(groups) <= 1.5 * FULL
    if sort:
        assert all(before < after for before, after in pairwise(found))


@pytest.mark.parametrize("on_match", ["keys", "fail"])
def test_nothing_is_written_where_no_row_changes(
    storages: tuple[MemoryStorage, MemoryStorage], on_match: OnMatch
) -> None:
    dice = random.Random(4)
    side, _ = sides(storages, MergeRules(("ts",)))
    keys = [f"key-{n:04}" for n in range(4 * FULL)]
    load = some_rows(dice, keys).drop_columns(["ts"]).append_column("ts", pa.array([500] * len(keys)))
    (loaded,) = side.write(load.select([RECORD_KEY, *COLUMNS.names]), 1, None)
    before = [info.path for info in side.storage.list()]
    (merged,) = side.write(some_rows(dice, keys[50:60]), 2, slice_of(loaded, 1), on_match)
    assert merged.path is None
    if on_match == "fail":
        assert "key-0050" in (merged.error or "")
    else:
        assert (merged.num_unchanged, merged.error) == (10, None)
    assert [info.path for info in side.storage.list()] == before


def test_a_damaged_page_is_not_carried_on(storages: tuple[MemoryStorage, MemoryStorage]) -> None:
    dice = random.Random(5)
    side, _ = sides(storages, MergeRules())
    keys = [f"key-{n:04}" for n in range(4 * FULL)]
    (loaded,) = side.write(some_rows(dice, keys), 1, None)
    assert loaded.path is not None
    whole = side.storage.read(loaded.path)
    parquet = side.parquet(loaded)
    batch = some_rows(dice, keys[:3])
    for group in range(1, 4):
        for at in range(parquet.num_columns):
            chunk = parquet.row_group(group).column(at)
            if chunk.path_in_schema == "_hoodie_file_name":
                continue
            end = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
            side.storage.write(loaded.path, whole[: end - 2] + bytes([whole[end - 2] ^ 1]) + whole[end - 1 :])
            files = [info.path for info in side.storage.list("p")]
            (merged,) = side.write(batch, 2, slice_of(loaded, 1))
            assert "CorruptFile" in (merged.error or "")
            assert loaded.path in (merged.error or "")
            assert [info.path for info in side.storage.list("p")] == files


@pytest.mark.parametrize("bloom", [None, True])
def test_files_are_put_together_to_one(storages: tuple[MemoryStorage, MemoryStorage], bloom: bool | None) -> None:
    dice = random.Random(6)
    settings = WriteSettings(bloom_filter=bloom)
    one, other = sides(storages, MergeRules(), settings, change_fields=("word",), range_columns=RANGES)
    parts: list[tuple[FileSlice, pa.Table]] = []
    for number, count in enumerate([3 * FULL, FULL + 3, 2, 2 * FULL]):
        load = some_rows(dice, [f"key-{number}-{n:03}" for n in range(count)])
        for side in (one, other):
            (status,) = side.write(load, number + 1, None)
            side.storage.move(status.path or "", f"p/g-{number}_0-0-0_{number + 1:03}.parquet")
        name = f"g-{number}_0-0-0_{number + 1:03}.parquet"
        base = BaseFile("p", f"g-{number}", "0-0-0", f"{number + 1:03}", name, status.file_size)
        moved = replace(status, path=f"p/{name}")
        parts.append((FileSlice("p", base.file_id, base.instant, base), one.table(moved)))
    made: list[WriteStatus] = []
    for side in (one, other):
        writer = FileWriter(
            side.storage, side.format, "009", "p", "h", Task(), "CREATE", side.format.bloom(), copies=True
        )
        counts = [put_file(writer, SliceReader(side.storage, COW), side.format, part) for part, _ in parts]
        assert counts == [table.num_rows for _, table in parts]
        made.append(writer.finish(sum(counts)))
    assert Counted.made[-2].traffic.copied_groups == 3 + 1 + 2
    assert Counted.made[-1].traffic.copied_groups == 0
    same(one, other, [made[0]], [made[1]])
    found = one.table(made[0])
    expected = pa.concat_tables([table for _, table in parts])
    assert repr(found.drop(["_hoodie_file_name"]).to_pylist()) == repr(expected.drop(["_hoodie_file_name"]).to_pylist())
    assert set(found["_hoodie_file_name"].to_pylist()) == {"h_0-00-0_009.parquet"}


@pytest.mark.parametrize("mode", ["fail", "kill"])
def test_a_merge_that_breaks_off_leaves_no_file(mode: Mode) -> None:
    dice = random.Random(7)
    keys = [f"key-{n:04}" for n in range(6 * FULL)]
    load, batch = some_rows(dice, keys), some_rows(dice, keys[50:60])
    at = 0
    while True:
        at += 1
        name = f"crash-{uuid.uuid4().hex}"
        try:
            storage = MemoryStorage(name)
            side, _ = sides((storage, storage), MergeRules())
            (loaded,) = side.write(load, 1, None)
            before = {info.path: storage.read(info.path) for info in storage.list("p")}
            faulty = FaultyStorage(storage, FaultPlan(at, mode))
            try:
                statuses = replace(side, storage=faulty).write(batch, 2, slice_of(loaded, 1))
                broken = statuses[0].error is not None
            except Killed:
                broken = True
            if not broken:
                break
            assert {info.path: storage.read(info.path) for info in storage.list("p")} == before, faulty.crash
        finally:
            MemoryStorage.drop(name)
    assert at == 3  # the marker, and the file as it appears
