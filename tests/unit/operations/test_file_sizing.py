"""Which file takes an insert: small files first, no file much beyond the maximum, the size of a row estimated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.config.settings import WriteSettings
from lakebed.engine.base import GROUP
from lakebed.model import FILE_ID, PARTITION_PATH, BaseFile, FileSlice, LogFile
from lakebed.operations.assign import MAX_SMALL_FILES, assign
from lakebed.slices import row_size
from lakebed.slices.row_size import from_sample
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from support.write_tables import SCHEMA, rows

Make = Callable[..., Table]
SETTINGS = WriteSettings(max_file_size=1000, max_small_file_size=800)


def profile(*given: tuple[str, str | None, int]) -> pa.Table:
    partitions, ids, counts = zip(*given, strict=True)
    return pa.table(
        {PARTITION_PATH: pa.array(partitions), FILE_ID: pa.array(ids, pa.string()), "rows": pa.array(counts)}
    )


def base(file_id: str, size: int, partition: str = "p") -> FileSlice:
    file = BaseFile(partition, file_id, "0-0-0", "1", f"{file_id}_0-0-0_1.parquet", size)
    return FileSlice(partition, file_id, "1", file)


def placed(plan: object) -> list[tuple[str, str, int, int]]:
    return [(g.partition, g.target.file_id, g.updates, g.inserts) for g in plan.groups]  # pyright: ignore


def test_inserts_fill_small_files_first() -> None:
    files = [base("a", 500), base("b", 900), base("c", 700)]
    plan = assign(profile(("p", None, 100)), files, instant="2", record_size=10, settings=SETTINGS)
    assert placed(plan)[:2] == [("p", "a", 0, 50), ("p", "c", 0, 30)]
    assert [inserts for *_, inserts in placed(plan)] == [50, 30, 20]
    assert plan.groups[2].target.slice is None
    assert plan.inserts["bounds"].to_pylist() == [[0.5, 0.8, 1.0]]


def test_updates_stay_with_their_file_and_share_it_with_inserts() -> None:
    files = [base("a", 500), base("b", 900)]
    given = profile(("p", "b", 7), ("p", "a", 3), ("p", None, 10), ("q", None, 5))
    plan = assign(given, files, instant="2", record_size=10, settings=SETTINGS)
    assert placed(plan)[:2] == [("p", "a", 3, 10), ("p", "b", 7, 0)]
    assert [g[0] for g in placed(plan)] == ["p", "p", "q"]
    assert plan.updates.to_pylist() == [
        {PARTITION_PATH: "p", FILE_ID: "a", GROUP: 0},
        {PARTITION_PATH: "p", FILE_ID: "b", GROUP: 1},
    ]


def test_new_groups_take_what_fills_a_file() -> None:
    plan = assign(profile(("p", None, 250)), [], instant="2", record_size=10, settings=SETTINGS)
    assert [inserts for *_, inserts in placed(plan)] == [100, 100, 50]
    assert len({g.target.file_id for g in plan.groups}) == 3
    again = assign(profile(("p", None, 250)), [], instant="2", record_size=10, settings=SETTINGS)
    assert placed(again) == placed(plan)


def test_fixed_split_size_and_groups_to_avoid() -> None:
    settings = WriteSettings(max_file_size=1000, max_small_file_size=800, insert_auto_split=False, insert_split_size=40)
    files = [base("a", 100)]
    plan = assign(profile(("p", None, 100)), files, instant="2", record_size=10, settings=settings, avoid={("p", "a")})
    assert [(g.target.slice, g.inserts) for g in plan.groups] == [(None, 40), (None, 40), (None, 20)]


def test_no_small_file_limit_means_no_filling() -> None:
    settings = WriteSettings(max_file_size=1000, max_small_file_size=0)
    plan = assign(profile(("p", None, 5)), [base("a", 1)], instant="2", record_size=10, settings=settings)
    assert plan.groups[0].target.slice is None


def wide(first: int, count: int, seed: int = 0) -> pa.Table:
    """Rows of about 200 bytes that do not compress."""
    random = np.random.default_rng(seed)
    letters = random.integers(33, 127, size=(count, 200), dtype=np.uint8)
    texts = [line.tobytes().decode() for line in letters]
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "city": ["c"] * count,
            "v": texts,
            "ts": pa.array([1] * count, pa.int64()),
        },
        schema=SCHEMA,
    )


OPTIONS = {"hoodie.parquet.max.file.size": 100_000, "hoodie.parquet.small.file.limit": 80_000}


def sizes(table: Table) -> list[int]:
    return sorted(f.base_file.size for f in table.files if f.base_file)


@pytest.mark.parametrize("operation", ["upsert", "insert", "insert_overwrite", "bulk_insert"])
def test_no_file_goes_more_than_15_percent_beyond_the_maximum(make: Make, operation: str) -> None:
    table = make()
    getattr(table, operation)(wide(0, 5_000), options=OPTIONS)
    assert table.count() == 5_000
    assert max(sizes(table)) <= 115_000
    assert len(sizes(table)) <= 13


def test_the_next_inserts_fill_the_small_file(make: Make) -> None:
    table = make()
    table.upsert(wide(0, 200), options=OPTIONS)
    assert len(sizes(table)) == 1
    only = next(iter(table.files)).file_id
    table.upsert(wide(1_000, 200, 1), options=OPTIONS)
    assert [f.file_id for f in table.files] == [only]
    table.upsert(wide(2_000, 2_000, 2), options=OPTIONS)
    assert only in {f.file_id for f in table.files}
    assert 4 <= len(sizes(table)) <= 7
    assert max(sizes(table)) <= 115_000
    assert table.count() == 2_400


def test_a_bucket_is_one_file_however_big(make: Make) -> None:
    table = make(index="bucket", buckets=1)
    table.upsert(wide(0, 1_500), options=OPTIONS)
    table.upsert(wide(1_500, 500, 1), options=OPTIONS)
    assert len(sizes(table)) == 1
    assert sizes(table)[0] > 300_000


def test_a_row_is_as_big_as_it_is_encoded() -> None:
    sample = wide(0, 2_000)
    assert 150 < from_sample(sample, WriteSettings()) < 250
    narrow = pa.table({"a": pa.array([1] * 2_000)})
    assert from_sample(narrow, WriteSettings()) < 20
    assert from_sample(sample.slice(0, 0), WriteSettings()) == 1024.0


@pytest.mark.parametrize(("size", "rows"), [(1000, 16), (1001, 15), (16_000, 1), (20_000, 1)])
def test_a_sample_has_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch, size: int, rows: int) -> None:
    monkeypatch.setattr(row_size, "MAX_SAMPLE_BYTES", 16 * 1004)
    encoded: list[int] = []
    write = pq.write_table

    def noting(sample: pa.Table, *more: Any, **words: Any) -> None:
        encoded.append(sample.num_rows)
        write(sample, *more, **words)

    monkeypatch.setattr(pq, "write_table", noting)
    from_sample(pa.table({"a": pa.array([bytes(size)] * 40)}), WriteSettings())
    assert encoded == [rows]


def test_a_given_record_size_decides_the_number_of_files(make: Make) -> None:
    table = make()
    table.upsert(wide(0, 500), options={**OPTIONS, "hoodie.copyonwrite.record.size.estimate": 1_000})
    assert len(sizes(table)) == 5


WIDE = pa.schema([("id", pa.int64()), ("v", pa.binary()), ("ts", pa.int64())])
LIMIT = 300_000
# a file may outgrow its maximum by so much
TOLERANCE = 1.1


def stretches(kinds: str, start: int = 0) -> pa.Table:
    """Rows of 200 bytes, 1,500 of each kind: `r` random ones, which no codec makes smaller, `s` all the same."""
    dice = np.random.default_rng(start)
    parts = [dice.bytes(300_000) if kind == "r" else b"x" * 300_000 for kind in kinds]
    values = [part[at : at + 200] for part in parts for at in range(0, 300_000, 200)]
    ids = np.arange(start, start + len(values))
    return pa.table({"id": ids, "v": pa.array(values, pa.binary()), "ts": np.ones(len(ids), np.int64)}, WIDE)


@pytest.mark.parametrize("sort", ["none", "key"])
@pytest.mark.parametrize("kinds", ["rrrr", "ssss", "sssrrr", "rrrsss", "srsrsr"])
def test_no_file_outgrows_its_maximum(make: Make, uri: str, kinds: str, sort: str) -> None:
    sizes = {"hoodie.parquet.max.file.size": LIMIT, "hoodie.parquet.small.file.limit": LIMIT // 2}
    for operation in ("upsert", "insert", "bulk_insert", "insert_overwrite"):
        MemoryStorage.drop(uri.split("/")[2])
        table = make(WIDE, index="simple", partition_by=None, sort=sort)
        getattr(table, operation)(stretches(kinds), options=sizes)
        written = [file_slice.base_file.size for file_slice in table.files if file_slice.base_file]
        assert max(written) <= LIMIT * TOLERANCE, (operation, written)
        assert len(written) <= 2 * kinds.count("r") + 2, (operation, written)
        assert table.scan().to_arrow().sort_by("id").equals(stretches(kinds))


@pytest.mark.parametrize("sort", ["none", "key"])
def test_small_first_batches_and_then_larger_rows(make: Make, sort: str) -> None:
    sizes = {"hoodie.parquet.max.file.size": LIMIT, "hoodie.parquet.small.file.limit": LIMIT // 2}
    table = make(WIDE, index="simple", partition_by=None, sort=sort)
    given = [
        stretches("s").slice(0, 20),
        stretches("s", 10_000),
        stretches("rr", 20_000),
        stretches("srr", 30_000),
        stretches("r", 5_000),
    ]
    for part in given:
        table.upsert(part, options=sizes)
        written = [file_slice.base_file.size for file_slice in table.files if file_slice.base_file]
        assert max(written) <= LIMIT * TOLERANCE, written
    assert table.scan().to_arrow().sort_by("id").equals(pa.concat_tables(given).sort_by("id").combine_chunks())


@pytest.mark.parametrize("kinds", ["rrr", "srr"])
def test_services_keep_the_maximum(make: Make, kinds: str) -> None:
    """A clustering of many small files, and a compaction of inserts that went to log files."""
    small = {"hoodie.parquet.max.file.size": LIMIT, "hoodie.parquet.small.file.limit": 0}
    table = make(WIDE, index="simple", partition_by=None)
    given = [stretches(kind, n * 10_000).slice(0, 500) for n, kind in enumerate(kinds * 3)]
    for part in given:
        table.insert(part, options=small)
    assert len(sizes(table)) == len(given)
    asked = {"hoodie.clustering.plan.strategy.target.file.max.bytes": LIMIT, "hoodie.parquet.max.file.size": LIMIT}
    table.maintenance.cluster(options=asked)
    assert len(sizes(table)) < len(given)
    assert max(sizes(table)) <= LIMIT * TOLERANCE, sizes(table)
    assert table.scan().to_arrow().sort_by("id").equals(pa.concat_tables(given).sort_by("id").combine_chunks())


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_file_is_not_appended_to_one_that_it_would_make_too_large(make: Make, kind: str) -> None:
    """Nearly full ones and small ones; on a merge-on-read table some have log files, too."""
    table = make(WIDE, index="simple", partition_by=None, type=kind, properties={"hoodie.compact.inline": False})
    given = [stretches("r", n * 10_000).slice(0, count) for n, count in enumerate((1_350, 300, 1_200, 700, 700, 650))]
    limits = {"hoodie.parquet.max.file.size": LIMIT, "hoodie.parquet.small.file.limit": 0}
    for part in given:
        table.insert(part, options=limits)
    table.upsert(given[3].slice(0, 400), options=limits)
    table.maintenance.cluster(options=limits | {"hoodie.clustering.plan.strategy.target.file.max.bytes": LIMIT})
    assert max(sizes(table)) <= LIMIT * TOLERANCE, sizes(table)
    assert len(sizes(table)) == 4, sizes(table)
    assert table.scan().to_arrow().sort_by("id").equals(pa.concat_tables(given).sort_by("id").combine_chunks())


def test_a_compaction_keeps_the_maximum(make: Make) -> None:
    limits = {"hoodie.parquet.max.file.size": LIMIT, "hoodie.parquet.small.file.limit": LIMIT // 2}
    table = make(WIDE, index="simple", partition_by=None, type="mor")
    given = [stretches("rr"), stretches("r", 10_000), stretches("sr", 20_000)]
    for part in given:
        table.upsert(part, options=limits)
        table.upsert(part.slice(0, 300), options=limits)
    table.maintenance.compact(options=limits)
    assert max(sizes(table)) <= LIMIT * TOLERANCE, sizes(table)
    assert not any(file_slice.log_files for file_slice in table.files)
    assert table.scan().to_arrow().sort_by("id").equals(pa.concat_tables(given).sort_by("id").combine_chunks())


def deferred(files: list[FileSlice], *, avoid: frozenset[tuple[str, str]] = frozenset()) -> list[int | None]:
    """The sizes of the files that new rows go to where a merge-on-read table defers small files; None for a new one."""
    settings = replace(SETTINGS, small_files="deferred")
    plan = assign(
        profile(("p", None, 10)), files, instant="2", record_size=1, settings=settings, appends=True, avoid=avoid
    )
    slices = [group.target.slice for group in plan.groups]
    assert all(group.target.rewrites for group in plan.groups)
    return [None if one is None or one.base_file is None else one.base_file.size for one in slices]


def test_deferred_rows_fill_a_file_only_where_there_are_many_small_ones() -> None:
    few = [base(f"f{n}", 100 + n) for n in range(MAX_SMALL_FILES - 1)]
    assert deferred([]) == [None]
    assert deferred([*few, base("full", 800), base("other", 1, "q")]) == [None]
    many = [*few, replace(base("logged", 50), log_files=(LogFile("p", "logged", "1", 1, "0-0-0", "log", 9),))]
    assert deferred(many) == [50]
    assert deferred(many, avoid=frozenset({("p", "logged")})) == [None]
    assert deferred([*many, base("more", 20)], avoid=frozenset({("p", "more")})) == [50]


@pytest.mark.parametrize(("kind", "index", "expected"), [("mor", "record", "deferred"), ("mor", "bucket", None)])
def test_new_merge_on_read_tables_whose_keys_are_looked_up_defer_small_files(
    make: Make, kind: str, index: str, expected: str | None
) -> None:
    assert make(type=kind, index=index).properties.get("lakebed.small_files") == expected


def test_copy_on_write_tables_fill_small_files_whatever_the_setting(make: Make) -> None:
    table = make(index="record", properties={"lakebed.small_files": "deferred"})
    for n in range(3):
        table.upsert(rows((n, "c", "v", 1)))
    assert len(table.files) == 1
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == [0, 1, 2]


@pytest.mark.rest
@pytest.mark.parametrize("serviced", [True, False])
def test_fifty_upserts_leave_few_files(make: Make, serviced: bool) -> None:
    """With a service run now and then, and without any."""
    table = make(
        type="mor",
        index="record",
        partition_by=None,
        properties={"hoodie.compact.inline": False, "lakebed.file.sizing.files": 2},
    )
    most = 0
    for turn in range(50):
        table.upsert(rows((turn, "c", "new", 1), (turn // 2, "c", f"w{turn}", 2 + turn), (1000 + turn, "c", "new", 1)))
        if serviced and turn % 5 == 4:
            list(lakebed.maintenance.run([table.uri], once=True))
            assert len(lakebed.open(table.uri).files) == 1
        most = max(most, len(lakebed.open(table.uri).files))
    assert most == (5 if serviced else MAX_SMALL_FILES)
    found = lakebed.open(table.uri).scan().to_arrow().to_pylist()
    wanted = dict.fromkeys([*range(25, 50), *range(1000, 1050)], "new") | {n: f"w{2 * n + 1}" for n in range(25)}
    assert {row["id"]: row["v"] for row in found} == wanted
    assert len(found) == len(wanted)
    assert table.indexes.verify().ok
