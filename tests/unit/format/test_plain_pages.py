"""Values that are picked from plain pages are those that Arrow reads, and what is not plain is left to Arrow."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import CorruptFile
from lakebed.format.base_file import read_footer
from lakebed.format.footer_cache import FOOTERS, POSITIONS, KeyFooter
from lakebed.format.row_groups import pages, plain_pages
from lakebed.format.row_groups.pages import INDEXES, PageReader
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage

ROWS = 2_000
PAGE_ROWS = 300
GROUP_ROWS = 1_100
# First and last rows of pages and row groups, and some between.
WANTED = [0, 1, 299, 300, 450, 899, 900, 1_099, 1_100, 1_399, 1_400, 1_999]
PICKED_CODECS = ("none", "snappy", "gzip", "zstd", "lz4")


def integers(dice: random.Random, bits: int) -> list[int]:
    return [dice.randrange(-(1 << bits - 1), 1 << bits - 1) for _ in range(ROWS)]


def texts(dice: random.Random, length: int) -> list[str]:
    return ["".join(dice.choices("abcdefgh", k=length)) for _ in range(ROWS)]


def decimals(dice: random.Random) -> list[Decimal]:
    return [Decimal(dice.randrange(-(10**11), 10**11)).scaleb(-2) for _ in range(ROWS)]


def columns() -> dict[str, pa.Array]:
    dice = random.Random(5)
    moments = pa.array(integers(dice, 42))
    return {
        "int": pa.array(integers(dice, 32), pa.int32()),
        "unsigned": pa.array([abs(n) for n in integers(dice, 32)], pa.uint32()),
        "long": pa.array(integers(dice, 64)),
        "float": pa.array([dice.random() for _ in range(ROWS)], pa.float32()),
        "double": pa.array([dice.choice([dice.random(), float("nan"), -0.0]) for _ in range(ROWS)]),
        "day": pa.array([dice.randrange(30_000) for _ in range(ROWS)], pa.int32()).cast(pa.date32()),
        "clock": pa.array([dice.randrange(86_400_000) for _ in range(ROWS)], pa.int32()).cast(pa.time32("ms")),
        "micros": pa.array([dice.randrange(86_400_000_000) for _ in range(ROWS)]).cast(pa.time64("us")),
        "at": moments.cast(pa.timestamp("us", "UTC")),
        "at_millis": moments.cast(pa.timestamp("ms", "UTC")),
        "local": moments.cast(pa.timestamp("us")),
        "nanos": moments.cast(pa.timestamp("ns", "UTC")),
        "fixed": pa.array([dice.randbytes(5) for _ in range(ROWS)], pa.binary(5)),
        "decimal": pa.array(decimals(dice), pa.decimal128(20, 2)),
        "wide": pa.array(decimals(dice), pa.decimal128(38, 10)),
        "text": pa.array(texts(dice, 12)),
        "bytes": pa.array([dice.randbytes(7) for _ in range(ROWS)]),
        "empty": pa.array([""] * ROWS),
        "delta": pa.array(texts(dice, 20)),
        "delta_empty": pa.array([""] * ROWS),
    }


def other_columns() -> dict[str, pa.Array]:
    """Those that are left to Arrow."""
    dice = random.Random(6)
    return {
        "flag": pa.array([dice.choice([True, False]) for _ in range(ROWS)]),
        "small": pa.array([dice.randrange(100) for _ in range(ROWS)], pa.int16()),
        "lengths": pa.array([dice.choice(["", "a", "of few", "é€"]) for _ in range(ROWS)]),
        "two_lengths": pa.array(["abc"] * 1_000 + ["abcd"] * 1_000),
        "last_longer": pa.array([*["abc"] * (ROWS - 1), "abcd"]),
        "delta_lengths": pa.array([dice.choice(["ab", "abc"]) for _ in range(ROWS)]),
        "one_null": pa.array([None if n == 450 else n for n in range(ROWS)]),
        "null_text": pa.array([None if n == 1_999 else "abcd" for n in range(ROWS)]),
        "nulls": pa.array([dice.choice([None, n]) for n in range(ROWS)]),
        "nothing": pa.array([None] * ROWS, pa.string()),
        "digits": pa.array([dice.randrange(5) for _ in range(ROWS)]),
        "split": pa.array([dice.random() for _ in range(ROWS)]),
        "differences": pa.array(range(ROWS)),
        "coded": pa.array([f"word {n % 5}" for n in range(ROWS)]),
        "struct": pa.array([{"x": n} for n in range(ROWS)]),
    }


ENCODED = {"delta": "DELTA_LENGTH_BYTE_ARRAY", "delta_empty": "DELTA_LENGTH_BYTE_ARRAY"}
OTHERS_ENCODED = {
    "delta_lengths": "DELTA_LENGTH_BYTE_ARRAY",
    "split": "BYTE_STREAM_SPLIT",
    "differences": "DELTA_BINARY_PACKED",
}


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    INDEXES.clear()
    yield MemoryStorage("plain-pages")
    MemoryStorage.drop("plain-pages")


def stored(storage: MemoryStorage, table: pa.Table, encoded: dict[str, str], **options: Any) -> int:
    out = pa.BufferOutputStream()
    settings: dict[str, Any] = {
        "write_page_index": True,
        "store_schema": False,
        "use_dictionary": [name for name in table.column_names if name == "coded"],
        "column_encoding": {name: how for name, how in encoded.items() if name in table.column_names},
        "row_group_size": GROUP_ROWS,
        "max_rows_per_page": PAGE_ROWS,
        "write_batch_size": 100,
        "write_page_checksum": True,
        **options,
    }
    pq.write_table(table, out, **settings)
    storage.write("f", out.getvalue().to_pybytes())
    return out.getvalue().size


def read(storage: MemoryStorage, size: int, wanted: Sequence[int]) -> tuple[pa.Table, set[str]]:
    """The wanted rows by their pages, and the columns whose values were picked."""
    footer = KeyFooter(read_footer(storage, "f", size, encoded=True), size)
    assert footer.pages is not None
    starts = range(0, footer.metadata.num_rows, GROUP_ROWS)
    rows = {
        n: np.array([row - start for row in wanted if 0 <= row - start < GROUP_ROWS]) for n, start in enumerate(starts)
    }
    rows = {n: group_rows for n, group_rows in rows.items() if len(group_rows)}
    reader = PageReader(storage, "f", size, footer.pages)
    readable = reader.readable(list(rows), footer.footer.schema.names)
    ((_, found),) = reader.take(rows, readable)
    return found, set(reader.plain(list(rows), readable))


def same(found: pa.Table, expected: pa.Table) -> None:
    found.validate(full=True)
    for name in expected.column_names:
        assert found[name].type == expected[name].type, name
        assert repr(found[name].to_pylist()) == repr(expected[name].to_pylist()), name


@pytest.mark.parametrize("codec", [*PICKED_CODECS, "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("required", [False, True], ids=["optional", "required"])
def test_picked_values_are_those_that_arrow_reads(
    storage: MemoryStorage, codec: str, version: str, required: bool
) -> None:
    table = pa.table(columns())
    table = table.cast(pa.schema([field.with_nullable(not required) for field in table.schema]))
    size = stored(storage, table, ENCODED, compression=codec, data_page_version=version)
    plain = pq.read_table(pa.BufferReader(storage.read("f")), use_threads=False)
    for wanted in (WANTED, [777], [0], [ROWS - 1], range(ROWS)):
        found, picked = read(storage, size, wanted)
        same(found, plain.take(list(wanted)))
        assert picked == (set(table.column_names) if codec in PICKED_CODECS else set())


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_is_not_plain_is_left_to_arrow(storage: MemoryStorage, codec: str, version: str, checksum: bool) -> None:
    table = pa.table(columns() | other_columns())
    size = stored(
        storage,
        table,
        ENCODED | OTHERS_ENCODED,
        compression=codec,
        data_page_version=version,
        write_page_checksum=checksum,
    )
    plain = pq.read_table(pa.BufferReader(storage.read("f")), use_threads=False)
    found, picked = read(storage, size, WANTED)
    same(found, plain.take(WANTED))
    # row groups may have different lengths of texts; a page without nulls is plain, whatever the others are
    assert picked == {*columns(), "digits"}
    found, picked = read(storage, size, [100, 1_500])
    same(found, plain.take([100, 1_500]))
    assert picked == {*columns(), "digits", "one_null", "null_text", "two_lengths", "last_longer"}


@pytest.mark.parametrize("seed", range(20))
def test_random_rows_of_random_files(storage: MemoryStorage, seed: int) -> None:
    dice = random.Random(seed)
    everything = columns() | other_columns()
    names = dice.sample(sorted(everything), 6)
    table = pa.table({name: everything[name] for name in names}).slice(0, dice.choice([1, 7, 8, 9, 301, ROWS]))
    size = stored(
        storage,
        table,
        ENCODED | OTHERS_ENCODED,
        compression=dice.choice(PICKED_CODECS),
        data_page_version=dice.choice(["1.0", "2.0"]),
        max_rows_per_page=dice.choice([1, 7, 8, 300, 5_000]),
        write_batch_size=dice.choice([1, 8, 1_000]),
        write_page_checksum=dice.choice([True, False]),
        use_dictionary=dice.choice([False, [n for n in names if n not in ENCODED | OTHERS_ENCODED]]),
        dictionary_pagesize_limit=dice.choice([100, 1 << 20]),
    )
    plain = pq.read_table(pa.BufferReader(storage.read("f")), use_threads=False)
    wanted = sorted(dice.sample(range(len(table)), dice.choice([1, len(table)])))
    found, _ = read(storage, size, wanted)
    same(found, plain.select(found.column_names).take(wanted))


@pytest.mark.parametrize("more", [-1, 0])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_beyond_a_bound_are_left_to_arrow(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch, version: str, more: int
) -> None:
    table = pa.table({"long": columns()["long"].slice(0, PAGE_ROWS)})
    size = stored(storage, table, {}, data_page_version=version)
    # version 2 has the levels elsewhere
    monkeypatch.setattr(plain_pages, "_MAX_BYTES", PAGE_ROWS * 8 + (7 if version == "1.0" else 0) + more)
    found, picked = read(storage, size, [3])
    assert found.equals(table.take([3]))
    assert picked == ({"long"} if more == 0 else set())


@pytest.mark.parametrize("codec", PICKED_CODECS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("checksum", [True, False])
def test_damaged_pages_give_the_right_values_or_an_error(
    storage: MemoryStorage, codec: str, version: str, checksum: bool
) -> None:
    dice = random.Random(f"{codec} {version} {checksum}")
    names = ("long", "text", "delta", "decimal", "empty", "int")
    table = pa.table({name: columns()[name].slice(0, 600) for name in names})
    size = stored(storage, table, ENCODED, compression=codec, data_page_version=version, write_page_checksum=checksum)
    whole = storage.read("f")
    footer = KeyFooter(read_footer(storage, "f", size, encoded=True), size)
    assert footer.pages is not None
    pages = [
        (name, at, length)
        for name in names
        for index in (
            PageReader(storage, "f", size, footer.pages).indexes([0], [name])[0, footer.pages.columns[name].leaves[0]],
        )
        for at, length in zip(index.starts, index.sizes, strict=True)
    ]
    wanted = [0, 5, 299, 300, 421, 599]
    refused = 0
    for number in range(600):
        _, at, length = dice.choice(pages)
        # all of the head, and some of the rest
        place = at + (number % min(40, length) if number % 2 else dice.randrange(length))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << dice.randrange(8)
        storage.write("f", bytes(damaged))
        INDEXES.clear()
        try:
            arrow = pq.ParquetFile(pa.BufferReader(bytes(damaged)), page_checksum_verification=True).read(
                use_threads=False
            )
        except (OSError, ValueError, pa.ArrowException):
            arrow = None
        try:
            found, _ = read(storage, size, wanted)
        except (OSError, ValueError, pa.ArrowException):
            refused += 1
            continue
        if checksum:
            same(found, table.take(wanted))
        elif not found.equals(table.take(wanted)):
            # without a checksum a changed value looks like any other
            assert arrow is not None
            assert found.equals(arrow.take(wanted))
    assert refused > 100


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_damaged_file_is_reported_by_a_lookup(place: str) -> None:
    dice = np.random.default_rng(3)
    rows = pa.table({"id": [f"key-{n:06d}" for n in range(40_000)], "v": dice.integers(0, 1 << 60, 40_000)})
    storage = MemoryStorage(f"picked-{place}")
    table = lakebed.create(f"memory://picked-{place}", rows.schema, key="id", index="bucket", buckets=1)
    table.upsert(rows)
    keys = rows["id"].to_pylist()[:: 40_000 // 500]
    expected = rows.take(list(range(0, 40_000, 80)))
    assert table.get(keys).select(["id", "v"]).sort_by("id").equals(expected)
    (path,) = (info.path for info in storage.list("") if info.path.endswith(".parquet") and ".hoodie" not in info.path)
    data = bytearray(storage.read(path))
    chunk = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata.row_group(0).column(6)
    assert chunk.path_in_schema == "v"
    data[chunk.data_page_offset + (100 if place == "first" else chunk.total_compressed_size - 1)] ^= 4
    storage.write(path, bytes(data))
    for cache in (FOOTERS, INDEXES, POSITIONS):
        cache.clear()
    with pytest.raises(CorruptFile):
        table.get(keys)
    MemoryStorage.drop(f"picked-{place}")


WIDE = 600


def wide_columns() -> pa.Table:
    """Values of one length that are wide enough to be read alone, and one that is not."""
    dice = random.Random(9)
    wide = [dice.randbytes(WIDE) for _ in range(ROWS)]
    return pa.table(
        {
            "wide": pa.array(wide, pa.binary(WIDE)),
            "one_null": pa.array([None if n == 450 else value for n, value in enumerate(wide)], pa.binary(WIDE)),
            "long": pa.array(integers(dice, 64)),
        }
    )


def placed(storage: MemoryStorage, size: int, wanted: Sequence[int]) -> tuple[pa.Table, set[str]]:
    """The wanted rows by their pages, and the columns whose values were read one by one."""
    found, _ = read(storage, size, wanted)
    footer = KeyFooter(read_footer(storage, "f", size, encoded=True), size)
    assert footer.pages is not None
    reader = PageReader(storage, "f", size, footer.pages)
    hits = {0: np.array([row for row in wanted if row < GROUP_ROWS])}
    names = reader.readable([0], footer.footer.schema.names)
    ((_, rows),) = reader.take(hits, names)
    assert rows.equals(found.slice(0, rows.num_rows))
    return found, set(reader.placed(hits, names))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("required", [False, True], ids=["optional", "required"])
@pytest.mark.parametrize("checks", [False, True], ids=["without checksums", "with checksums"])
def test_wide_values_are_read_one_by_one(storage: MemoryStorage, version: str, required: bool, checks: bool) -> None:
    table = wide_columns().select(["wide", "long"])
    table = table.cast(pa.schema([field.with_nullable(not required) for field in table.schema]))
    size = stored(storage, table, {}, compression="none", data_page_version=version, write_page_checksum=checks)
    for wanted in ([0, 299, 300, 1_099], [777, 1_100, 1_999], [0]):
        found, names = placed(storage, size, wanted)
        same(found, table.take(wanted))
        assert names == {"wide"}


def test_wide_values_with_nulls_or_a_codec_are_read_by_their_pages(storage: MemoryStorage) -> None:
    table = wide_columns()
    wanted = [0, 449, 450, 451, 1_500]
    size = stored(storage, table, {}, compression="none")
    found, names = placed(storage, size, wanted)
    same(found, table.take(wanted))
    assert names == {"wide"}
    size = stored(storage, table, {}, compression="snappy")
    found, names = placed(storage, size, wanted)
    same(found, table.take(wanted))
    assert names == set()
    size = stored(storage, table, {"wide": "BYTE_STREAM_SPLIT"}, compression="none")
    found, names = placed(storage, size, wanted)
    same(found, table.take(wanted))
    assert "wide" not in names


@pytest.mark.parametrize(("cost", "is_alone"), [(0, True), (1 << 40, False)])
def test_many_wide_values_are_read_by_their_pages(
    storage: MemoryStorage, cost: int, is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = wide_columns()
    size = stored(storage, table, {}, compression="none")
    monkeypatch.setattr(pages, "_BYTES_A_VALUE", cost)
    for wanted in ([5], WANTED, range(ROWS)):
        found, names = placed(storage, size, list(wanted))
        same(found, table.take(list(wanted)))
        assert ("wide" in names) is is_alone


@pytest.mark.parametrize(("limit", "is_alone"), [(WIDE, True), (WIDE + 1, False)])
def test_values_that_are_not_wide_are_read_by_their_pages(
    storage: MemoryStorage, limit: int, is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = wide_columns()
    size = stored(storage, table, {}, compression="none")
    monkeypatch.setattr(plain_pages, "PLACED_BYTES", limit)
    found, names = placed(storage, size, WANTED)
    same(found, table.take(WANTED))
    assert ("wide" in names) is is_alone


def test_one_request_reads_wide_values_and_the_heads_of_their_pages(storage: MemoryStorage) -> None:
    size = stored(storage, wide_columns().select(["wide"]), {}, compression="none")
    footer = KeyFooter(read_footer(storage, "f", size, encoded=True), size)
    assert footer.pages is not None
    requests: list[int] = []

    class Sizes(CountingStorage):
        def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Any:
            requests.append(sum(length for _, length in ranges))
            return super().read_ranges(path, ranges)

    reader = PageReader(Sizes(storage), "f", size, footer.pages)
    reader.readable([0], ["wide"])
    requests.clear()
    for wanted in ([3, 700], [4, 701]):
        ((_, found),) = reader.take({0: np.array(wanted)}, ["wide"])
        assert found.num_rows == 2
    assert requests == [2 * WIDE + 2 * plain_pages.HEAD_BYTES, 2 * WIDE]
