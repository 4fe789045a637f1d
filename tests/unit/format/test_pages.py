"""Rows that are read by the pages of a file are those of a plain read, whatever the file is made of."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakebed.format.base_file import read_footer
from lakebed.format.footer_cache import KeyFooter
from lakebed.format.parquet_footer import parse_footer, read_encoded
from lakebed.format.parquet_writer import INDEXED_PAGES, BaseFileWriter, ParquetSettings
from lakebed.format.row_groups import pages
from lakebed.format.row_groups.assembled import AssembledFile
from lakebed.format.row_groups.chunks import (
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Page,
    chunk_groups,
    integer,
    write_list,
    write_struct,
)
from lakebed.format.row_groups.offset_index import offset_index_range, read_offset_index, write_offset_index
from lakebed.format.row_groups.pages import INDEXES, PageReader
from lakebed.format.row_groups.stored import open_groups
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage

CODECS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
MAKERS: dict[str, Any] = {
    "long": lambda dice, n: pa.array([dice.randrange(-(1 << 60), 1 << 60) for _ in range(n)]),
    "int": lambda dice, n: pa.array([dice.choice([None, dice.randrange(50)]) for _ in range(n)], pa.int32()),
    "double": lambda dice, n: pa.array([dice.choice([None, dice.random(), float("nan")]) for _ in range(n)]),
    "flag": lambda dice, n: pa.array([dice.choice([None, True, False]) for _ in range(n)]),
    "word": lambda dice, n: pa.array([dice.choice(["", "a", "of few", "é€"]) for _ in range(n)]),
    "text": lambda dice, n: pa.array(["x" * dice.randrange(40) + str(dice.random()) for _ in range(n)]),
    "nothing": lambda _, n: pa.array([None] * n, pa.string()),
    "bytes": lambda dice, n: pa.array([dice.randbytes(dice.randrange(9)) for _ in range(n)]),
    "fixed": lambda dice, n: pa.array([dice.randbytes(5) for _ in range(n)], pa.binary(5)),
    "decimal": lambda dice, n: pa.array([dice.randrange(10**6) for _ in range(n)]).cast(pa.decimal128(30, 2)),
    "time": lambda dice, n: pa.array([dice.randrange(1 << 50) for _ in range(n)]).cast(pa.timestamp("us", "UTC")),
    "day": lambda dice, n: pa.array([dice.randrange(30_000) for _ in range(n)], pa.int32()).cast(pa.date32()),
    "list": lambda dice, n: pa.array(
        [
            dice.choice([None, [], [dice.choice([None, dice.random()]) for _ in range(dice.randrange(1, 6))]])
            for _ in range(n)
        ],
        pa.list_(pa.float64()),
    ),
    "map": lambda dice, n: pa.array(
        [dice.choice([None, [], [(str(k), k) for k in range(dice.randrange(4))]]) for _ in range(n)],
        pa.map_(pa.string(), pa.int64()),
    ),
    "struct": lambda dice, n: pa.array(
        [dice.choice([None, {"x": dice.random(), "y": {"z": str(dice.random())}}]) for _ in range(n)],
        pa.struct([("x", pa.float64()), ("y", pa.struct([("z", pa.string())]))]),
    ),
    "a.b": lambda dice, n: pa.array([dice.randrange(9) for _ in range(n)]),
}


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    INDEXES.clear()
    yield MemoryStorage("pages")
    MemoryStorage.drop("pages")


def random_table(dice: random.Random, rows: int, columns: int = 6) -> pa.Table:
    return pa.table({name: MAKERS[name](dice, rows) for name in dice.sample(sorted(MAKERS), columns)})


def stored(storage: MemoryStorage, name: str, table: pa.Table, **options: Any) -> int:
    out = pa.BufferOutputStream()
    settings: dict[str, Any] = {"write_page_index": True, "store_schema": False, **options}
    pq.write_table(table, out, **settings)
    storage.write(name, out.getvalue().to_pybytes())
    return out.getvalue().size


def by_page(storage: Any, path: str, size: int, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
    footer = KeyFooter(read_footer(storage, path, size, encoded=True), size)
    paged, metadata = footer.pages, footer.metadata
    assert paged is not None
    starts = np.cumsum([0, *(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))])
    wanted = np.array(sorted(rows))
    cuts = np.searchsorted(wanted, starts)
    groups = {n: wanted[cuts[n] : cuts[n + 1]] - starts[n] for n in range(len(starts) - 1) if cuts[n] < cuts[n + 1]}
    reader = PageReader(storage, path, size, paged)
    readable = reader.readable(list(groups), columns)
    assert {name for name in columns if name not in readable} <= {"struct", "list", "map"}
    assert not {"list", "map"} & set(readable)
    parts = list(reader.take(groups, readable))
    assert [n for some, _ in parts for n in some] == list(groups)
    return pa.concat_tables([table for _, table in parts])


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Equal, NaN as well."""
    return found.schema.equals(expected.schema) and repr(found.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(n, marks=pytest.mark.rest) for n in range(8, 150))])
def test_rows_by_page_are_those_of_a_plain_read(storage: MemoryStorage, seed: int) -> None:
    dice = random.Random(seed)
    count = dice.choice([1, 40, 700])
    table = random_table(dice, count)
    table = table if "long" in table.column_names else table.append_column("long", MAKERS["long"](dice, count))
    codec = dice.choice(CODECS)
    size = stored(
        storage,
        "f",
        table,
        compression=codec,
        row_group_size=dice.choice([7, 100, 10_000]),
        data_page_version=dice.choice(["1.0", "2.0"]),
        max_rows_per_page=dice.choice([1, 3, 50]),
        data_page_size=dice.choice([64, 1 << 20]),
        write_batch_size=dice.choice([1, 16]),
        use_dictionary=dice.choice([True, False, table.column_names[:2]]),
        dictionary_pagesize_limit=dice.choice([16, 1 << 20]),
        write_page_checksum=dice.choice([True, False]),
    )
    plain = pq.read_table(pa.BufferReader(storage.read("f")), use_threads=False)
    rows = sorted(dice.sample(range(count), dice.choice([1, min(3, count), count])))
    columns = dice.sample(table.column_names, dice.randint(1, 6))
    columns = list(dict.fromkeys([*columns, "long"]))
    found = by_page(storage, "f", size, rows, columns)
    assert same(found, plain.select(found.column_names).take(rows))


@pytest.mark.parametrize("most", [0, 1 << 40])
def test_row_groups_are_read_together_up_to_a_bound(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(pages, "_READ_BYTES", most)
    table = pa.table({"a": range(900), "b": [f"text {n}" for n in range(900)]})
    size = stored(storage, "f", table, row_group_size=300, max_rows_per_page=10)
    counted = CountingStorage(storage)
    footer = KeyFooter(read_footer(counted, "f", size, encoded=True), size)
    assert footer.pages is not None
    rows = {0: np.array([5, 299]), 2: np.array([0])}
    parts = list(PageReader(counted, "f", size, footer.pages).take(rows, ["b", "a"]))
    assert [list(groups) for groups, _ in parts] == ([[0], [2]] if most == 0 else [[0, 2]])
    found = pa.concat_tables([part for _, part in parts])
    assert found.to_pydict() == {"b": ["text 5", "text 299", "text 600"], "a": [5, 299, 600]}


def written(storage: MemoryStorage, table: pa.Table, settings: ParquetSettings) -> int:
    writer = BaseFileWriter(storage.create("f"), table.schema, settings)
    writer.write(table)
    return writer.close({"key": "value"})


def index_of(storage: MemoryStorage, group: int, leaf: int, path: str = "f") -> Any:
    data = storage.read(path)
    footer = read_encoded(pa.BufferReader(data))
    groups = chunk_groups(footer, len(data) - len(footer) - 8)
    assert groups is not None
    chunk = groups[group].chunks[leaf]
    place = offset_index_range(chunk.entry)
    if place is None:
        return None
    return read_offset_index(data[place[0] :][: place[1]], chunk.start, chunk.start + chunk.length, groups[group].rows)


@pytest.mark.parametrize("rows_more", [0, 1])
def test_files_with_enough_pages_have_an_offset_index_and_no_column_index(
    storage: MemoryStorage, rows_more: int
) -> None:
    rows = (INDEXED_PAGES - 1) * 20 + rows_more
    table = pa.table({"a": range(rows), "b": [float("nan") if n == 3 else n for n in range(rows)]})
    size = written(storage, table, ParquetSettings(page_rows=20))
    metadata = parse_footer(read_encoded(pa.BufferReader(storage.read("f"))))
    chunks = [metadata.row_group(0).column(n) for n in range(2)]
    assert [chunk.has_offset_index for chunk in chunks] == [rows_more == 1] * 2
    assert not any(chunk.has_column_index for chunk in chunks)
    assert chunks[0].statistics.max == rows - 1
    assert chunks[1].statistics is None or not chunks[1].statistics.has_min_max
    assert pq.read_table(pa.BufferReader(storage.read("f"))).column("a").to_pylist() == list(range(rows))
    assert metadata.metadata[b"key"] == b"value"
    if rows_more:
        assert index_of(storage, 0, 0).first_rows.tolist() == list(range(0, rows, 20))
        assert same(
            by_page(storage, "f", size, [3, rows - 1], ["b", "a"]), table.select(["b", "a"]).take([3, rows - 1])
        )


@pytest.mark.parametrize("width", [199, 200])
def test_files_of_wide_rows_have_an_offset_index_and_share_is_of_bytes(storage: MemoryStorage, width: int) -> None:
    texts = pa.array([f"{n:03d}" + "x" * (width - 3 - 4) for n in range(2 * 10)])  # each has an offset of 4 bytes
    table = pa.table({"a": range(20), "wide": texts.cast(pa.binary())})
    settings = ParquetSettings(page_size=10 * 200, page_rows=1000)
    has_index = table["wide"].nbytes >= INDEXED_PAGES * settings.page_size
    size = written(storage, table, settings)
    metadata = parse_footer(read_encoded(pa.BufferReader(storage.read("f"))))
    assert metadata.row_group(0).column(1).has_offset_index == has_index
    assert pq.read_table(pa.BufferReader(storage.read("f"))).equals(table)
    if has_index:
        assert same(by_page(storage, "f", size, [3, 19], ["a", "wide"]), table.take([3, 19]))


def test_moved_and_encoded_chunks_have_offset_indexes(storage: MemoryStorage) -> None:
    table = pa.table(
        {
            "a": range(600),
            "w": [f"w{n % 3}" for n in range(600)],
            "l": [[n, n] for n in range(600)],
            "name": ["before"] * 600,
        }
    )
    settings = ParquetSettings(row_group_rows=200, page_rows=10)
    size = written(storage, table, settings)
    footer = read_footer(storage, "f", size, encoded=True)
    to = AssembledFile(storage.create("g"), table.schema, settings, constants={"name": pa.scalar("after")})
    with open_groups(storage, "f", size, footer, {"zstd"}) as groups:
        assert groups is not None
        to.copy(groups, 0)
        to.copy(groups, 1, pa.record_batch({"a": pa.array(range(1000, 1200))}))
        fresh = table.slice(400, 150)
        to.write(fresh)
    size = to.close({})
    names = pa.array(["after"] * 400 + ["before"] * 150)
    numbers = [*range(200), *range(1000, 1200), *range(400, 550)]
    expected = pa.table({"a": numbers, "w": table["w"][:550], "l": table["l"][:550], "name": names})
    assert pq.read_table(pa.BufferReader(storage.read("g"))).to_pydict() == expected.to_pydict()
    for group, leaf in ((0, 0), (1, 0), (0, 1), (2, 1), (0, 3)):
        rows = index_of(storage, group, leaf, "g").first_rows
        assert rows.tolist() == list(range(0, 150 if group == 2 else 200, 10)), (group, leaf)
    # pages of lists may start within a row
    assert index_of(storage, 0, 2, "g") is None
    assert index_of(storage, 2, 2, "g") is None
    assert index_of(storage, 0, 2, "f") is None
    wanted = [0, 199, 200, 385, 400, 549]
    found = by_page(storage, "g", size, wanted, ["name", "a", "w"])
    assert found.to_pydict() == expected.take(wanted).select(["name", "a", "w"]).to_pydict()


@pytest.mark.parametrize(
    "broken",
    [
        [Page(4, 10, 0), Page(14, 7, 100)],
        [Page(3, 10, 0)],
        [Page(4, 10, 1)],
        [Page(4, 10, 0), Page(14, 6, 150)],
        [Page(4, 10, 0), Page(13, 6, 100)],
        [Page(4, 10, 0), Page(14, 6, 0)],
        [Page(4, 0, 0)],
        [],
    ],
)
def test_offset_indexes_that_do_not_fit_their_chunk_are_refused(broken: list[Page]) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        read_offset_index(write_offset_index(broken), 4, 20, 150)
    with pytest.raises(ValueError, match=r"cut off|does not fit"):
        read_offset_index(write_offset_index(broken)[:-1], 4, 20, 150)


def test_indexes_whose_entries_have_other_fields_are_read() -> None:
    entries = [
        write_struct([integer(1, I64, 4), integer(2, I32, 10), integer(3, I64, 0), integer(9, I64, 5)]),
        write_struct([integer(3, I64, 70_000), integer(2, I32, 300), integer(1, I64, 14)]),
    ]
    data = write_struct([Field(1, LIST, write_list(STRUCT, entries)), integer(2, I64, 5)])
    found = read_offset_index(data, 4, 400, 80_000)
    assert found.pages() == [Page(4, 10, 0), Page(14, 300, 70_000)]
    plain = read_offset_index(write_offset_index(found.pages()), 4, 400, 80_000)
    assert plain.pages() == found.pages()
    large = write_struct([integer(1, I64, 1 << 66), integer(2, I32, 10), integer(3, I64, 0)])
    with pytest.raises(ValueError, match="more than eight bytes"):
        read_offset_index(write_struct([Field(1, LIST, write_list(STRUCT, [large]))]), 4, 400, 80_000)


@pytest.mark.parametrize("where", ["row", "place", "size"])
def test_pages_that_are_not_those_of_the_index_are_refused(storage: MemoryStorage, where: str) -> None:
    table = pa.table({"a": range(100)})
    size = stored(storage, "f", table, max_rows_per_page=10, use_dictionary=False, compression="none")
    footer = KeyFooter(read_footer(storage, "f", size, encoded=True), size)
    paged = footer.pages
    assert paged is not None
    reader = PageReader(storage, "f", size, paged)
    index = reader.indexes([0], ["a"])[0, 0]
    changed = {
        "row": index._replace(first_rows=np.append(index.first_rows[:-1], 95)),
        "place": index._replace(starts=[at + 1 for at in index.starts]),
        "size": index._replace(sizes=[each - 1 for each in index.sizes]),
    }[where]
    INDEXES.put((storage.url("f"), size, 0, 0), changed)
    with pytest.raises((ValueError, pa.ArrowException)):
        list(reader.take({0: np.array([99])}, ["a"]))


def test_files_that_do_not_show_their_pages_are_not_read_by_page(storage: MemoryStorage) -> None:
    table = pa.table({"a": range(100)})
    for name, options in (("plain", {"write_page_index": False}), ("typed", {"store_schema": True})):
        size = stored(storage, name, table, max_rows_per_page=10, **options)
        assert KeyFooter(read_footer(storage, name, size, encoded=True), size).pages is None
    size = stored(storage, "none", table.slice(0, 0))
    assert KeyFooter(read_footer(storage, "none", size, encoded=True), size).pages is None


def test_only_the_chosen_pages_are_read(storage: MemoryStorage) -> None:
    dice = np.random.default_rng(1)
    table = pa.table({"a": dice.integers(0, 1 << 60, 20_000), "b": dice.random(20_000)})
    size = stored(storage, "f", table, max_rows_per_page=500, use_dictionary=False)
    asked: list[tuple[int, int]] = []

    class Seen(CountingStorage):
        def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            asked.extend(ranges)
            return super().read_ranges(path, ranges)

    found = by_page(Seen(storage), "f", size, [7, 600, 19_999], ["a", "b"])
    assert found.equals(table.take([7, 600, 19_999]))
    assert pc.sum(pa.array([length for _, length in asked])).as_py() < size / 8
