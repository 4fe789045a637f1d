"""Reading HFiles: all of the golden tables', many blocks, odd orders, HBase's forms, requests, the cache."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.bloom import BloomFilter
from lakebed.format.hfile.entries import BLOCKS, BlockCache, Entries, parse_entries
from lakebed.format.hfile.reader import HFileReader, LookupMatches, open_hfile
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.sources import BytesSource, FileSource, SliceSource
from lakebed.storage.local import LocalStorage
from lakebed.testing import CountingStorage
from support.golden_tables import GoldenTable, golden_tables, spread
from support.hfile_model import Entry, build, golden_hfiles, parse
from support.sampling import HISTORIES, todays_of

# A few keys are looked up in another way than many.
FEW, MANY = 3, 20
# Heads and tails of entries, where only a value should be.
HEAD = bytes.fromhex("0000001000000004 0004")
TAIL = b"\0\x7f" + b"\xff" * 7 + b"\x04"


def pairs(entries: Entries) -> list[Entry]:
    return list(zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True))


def answers(found: LookupMatches) -> list[tuple[int, bytes, bytes]]:
    return sorted((query, *entry) for query, entry in zip(found.query.to_pylist(), pairs(found.entries), strict=True))


def expected(
    entries: Sequence[Entry], asked: Sequence[bytes | None], *, prefix: bool
) -> list[tuple[int, bytes, bytes]]:
    def answered(key: bytes, query: bytes) -> bool:
        return key.startswith(query) if prefix else key == query

    return sorted(
        (n, key, value)
        for n, query in enumerate(asked)
        for key, value in entries
        if query is not None and answered(key, query)
    )


def assert_answers(file: HFileReader, entries: Sequence[Entry], asked: Sequence[bytes | None]) -> None:
    for keys in (asked, [*asked] * MANY, *(asked[at : at + FEW] for at in range(0, len(asked), FEW))):
        assert answers(file.lookup(pa.array(keys, pa.binary()))) == expected(entries, keys, prefix=False)
    assert answers(file.prefix(pa.array(asked, pa.binary()))) == expected(entries, asked, prefix=True)


@pytest.mark.parametrize("table", spread(golden_tables()), ids=str)
def test_golden_hfiles_give_all_their_entries(table: GoldenTable) -> None:
    for name, data in golden_hfiles(table):
        model, file = parse(data), open_hfile(BytesSource(data, name))
        assert pairs(file.read()) == model.entries
        assert (file.entry_count, dict(file.info)) == (len(model.entries), model.info)
        assert file.schema_json.encode() == model.info[b"schema"]
        assert (file.bloom is not None) == (b"bloomFilter" in model.metas)
        keys = pa.array([key for key, _ in model.entries], pa.binary())
        if file.bloom is not None and len(keys):
            assert file.bloom.might_contain(keys.cast(pa.string())).to_pylist() == [True] * len(keys)
        found = file.lookup(keys)
        assert (found.query.to_pylist(), pairs(found.entries)) == (list(range(len(keys))), model.entries)
        assert len(file.lookup(pa.array([key + b"." for key in keys.to_pylist()], pa.binary()))) == 0
        assert len(file.prefix(pa.array([""]))) == len(keys)


Lengths = Callable[[random.Random], int]
EVEN_AND_UNEVEN: dict[str, tuple[Lengths, Lengths]] = {
    "even": (lambda _: 8, lambda _: 9),
    "even rows": (lambda _: 8, lambda rng: rng.randrange(40)),
    "even values": (lambda rng: rng.randrange(16), lambda _: 9),
    "few lengths of values": (lambda rng: rng.randrange(16), lambda rng: rng.choice((57, 58, 59, 400))),
    "few lengths of values, long rows": (lambda rng: rng.randrange(600), lambda rng: rng.choice((9, 10, 11))),
    "uneven": (lambda rng: rng.randrange(16), lambda rng: rng.randrange(40)),
}


@pytest.mark.parametrize(
    ("kind", "block_size", "codec"),
    todays_of([*EVEN_AND_UNEVEN], [1, 300, 4096, 1 << 20], ["gzip", "none"], parts=2, variable=HISTORIES),
)
def test_entries_of_even_and_uneven_sizes_are_read_back(kind: str, codec: str, block_size: int) -> None:
    rng = random.Random(block_size)
    row_size, value_size = EVEN_AND_UNEVEN[kind]
    keys = {(rng.randbytes(300).hex())[: row_size(rng)] for _ in range(300)}
    entries = [(key.encode(), rng.randbytes(value_size(rng))) for key in sorted(keys)]
    data = write_hfile(*columns(entries), schema_json="{}", codec=codec, block_size=block_size)  # type: ignore[arg-type]
    file = open_hfile(data)
    assert pairs(file.read()) == entries
    some = rng.sample([key for key, _ in entries], 20)
    assert_answers(file, entries, [*some, b"", None, b"0", b"a", some[0], some[0] + b"0", b"zz"])


def columns(entries: Sequence[Entry]) -> tuple[pa.Array, pa.Array]:
    return pa.array([key for key, _ in entries], pa.binary()), pa.array([value for _, value in entries], pa.binary())


def test_keys_that_share_much_and_values_that_look_like_entries() -> None:
    rng = random.Random(7)
    alphabet = [b"", b"a", b"b", b"\0", b"a" * 9, b"k" * 17, b"\xc3\xa9", HEAD, TAIL]
    for block_size in (64, 500, 1 << 20):
        keys = {b"".join(rng.choices(alphabet, k=rng.randrange(4))) for _ in range(200)}
        entries = [
            (key, b"".join(rng.choices([HEAD, TAIL, b"v", bytes(6)], k=rng.randrange(5)))) for key in sorted(keys)
        ]
        file = open_hfile(write_hfile(*columns(entries), schema_json="{}", block_size=block_size))
        assert pairs(file.read()) == entries
        asked = [b"".join(rng.choices(alphabet, k=rng.randrange(5))) for _ in range(60)]
        assert_answers(file, entries, [*asked, *rng.sample(sorted(keys), 20)])


def test_a_value_that_is_an_entry_is_no_entry() -> None:
    inner = HEAD + b"keyx" + TAIL + b"four\0"
    entries = [(b"k%d" % n, inner * (n % 3) + b"x" * n) for n in range(9)]
    assert pairs(open_hfile(write_hfile(*columns(entries), schema_json="{}")).read()) == entries


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("codec", [1, 2])
def test_hbase_files_with_index_levels_and_shortened_index_keys(levels: int, codec: int) -> None:
    blocks = [[(b"key%02d%d" % (n, i), b"v" * (n + i)) for i in range(3, 7)] for n in range(20)]
    shortened = [b"key", *(b"key%02d" % n for n in range(1, 20))]
    entries = [entry for block in blocks for entry in block]
    file = open_hfile(build(blocks, index=shortened, levels=levels, codec=codec))
    assert pairs(file.read()) == entries
    assert_answers(file, entries, [b"key000", b"key003", b"key199", b"key1", b"key", b"key056", b"key06", b"l", b"a"])


@pytest.mark.parametrize("version", [None, b"\x8f\x12", b"\x05"])
def test_versions_other_than_zero(version: bytes | None) -> None:
    blocks = [[(b"a%d" % i, b"v" * i) for i in range(30)], [(b"b%02d" % i, b"w") for i in range(30)]]
    entries = [entry for block in blocks for entry in block]
    file = open_hfile(build(blocks, version=version))
    assert pairs(file.read()) == entries
    assert answers(file.lookup(pa.array(["a7", "b20", "c"]))) == [(0, b"a7", b"v" * 7), (1, b"b20", b"w")]


def test_cell_keys_with_a_family_and_a_qualifier() -> None:
    tail = b"\1fq" + bytes(8) + b"\4"
    file = open_hfile(build([[(b"a", b"1"), (b"bb", b"22")]], tail=tail))
    assert pairs(file.read()) == [(b"a", b"1"), (b"bb", b"22")]
    assert_answers(file, [(b"a", b"1"), (b"bb", b"22")], [b"bb", b"b"])


ODD_KEYS = [
    "a",
    "\u4e2d",
    "zz",
    "\U0001f600 k",
    "\U0001f600",
    "\ue000 k",
    "\uff01",
    "\ufffd k",
    "z\U0001f600",
    "z\uff01",
]


@pytest.mark.parametrize("per_block", [1, 2, 3, 99])
def test_keys_in_the_order_of_java_strings(per_block: int) -> None:
    rng = random.Random(1)
    keys = {*ODD_KEYS, *("".join(rng.choices(["a", "\uff01", "\U0001f600", "\u4e2d"], k=4)) for _ in range(60))}
    for order in (lambda key: key.encode("utf-16-be"), lambda key: key.encode()):
        entries = [(key.encode(), b"%d" % n) for n, key in enumerate(sorted(keys, key=order))]
        blocks = [entries[n : n + per_block] for n in range(0, len(entries), per_block)]
        file = open_hfile(build(blocks))
        assert pairs(file.read()) == entries
        assert_answers(file, entries, [*(key for key, _ in entries), b"a", b"\xf0\x9f", b"\xef", b"\xee\x80\x80", b"x"])


def test_keys_in_no_order_are_found() -> None:
    rng = random.Random(3)
    entries = [(b"%03d" % n, b"v") for n in rng.sample(range(100), 60)]
    file = open_hfile(build([entries[n : n + 7] for n in range(0, 60, 7)]))
    assert_answers(file, entries, [*(b"%03d" % n for n in range(0, 100, 7)), b"0", b"01", b"1"])


def test_equal_keys_are_all_found() -> None:
    entries = [(b"a", b"0"), (b"k", b"1"), (b"k", b"2"), (b"k", b"3"), (b"k1", b"4")]
    assert_answers(open_hfile(build([entries])), entries, [b"k", b"a", b"k"])


def test_an_hfile_without_entries_is_written_and_read() -> None:
    file = open_hfile(write_hfile(pa.array([], pa.string()), pa.array([], pa.binary()), schema_json="{}"))
    assert (file.entry_count, len(file.read()), file.info[b"hfile.LASTKEY"]) == (0, 0, b"")
    assert (len(file.lookup(pa.array(["a"]))), len(file.prefix(pa.array([""])))) == (0, 0)


def test_any_column_of_keys_may_be_asked() -> None:
    file = open_hfile(write_hfile(pa.array(["a", "b", "c"]), pa.array([b"1", b"2", b"3"]), schema_json="{}"))
    for asked in (
        pa.chunked_array([["c"], [None, "a"]]),
        pa.array(["c", None, "a"], pa.large_string()),
        pa.array([b"c", None, b"a"], pa.large_binary()),
        pa.array(["c", None, "a"]).dictionary_encode(),
        pa.array(["x", "c", None, "a"]).slice(1),
    ):
        assert answers(file.lookup(asked)) == [(0, b"c", b"3"), (2, b"a", b"1")]
    assert len(file.lookup(pa.array([], pa.string()))) == 0


def test_keys_are_given_as_strings_and_other_bytes_are_refused() -> None:
    keys = pa.array(["é", "😀"])
    file = open_hfile(write_hfile(keys, pa.array([b"", b""]), schema_json="{}"))
    assert file.read().strings().equals(keys)
    with pytest.raises(CorruptFile, match="not UTF-8"):
        Entries(pa.array([b"\xff"]), pa.array([b""])).strings()


def large_file(folder: Path) -> tuple[CountingStorage, list[Entry]]:
    """About 1.5 MB in blocks of 64 KiB, so that opening does not fetch it whole."""
    rng = random.Random(5)
    entries = [(b"%08d" % n, rng.randbytes(100)) for n in range(15_000)]
    data = write_hfile(*columns(entries), schema_json="{}", block_size=1 << 16, bloom=BloomFilter.simple(10, 0.1))
    storage = LocalStorage(str(folder))
    storage.write("f.hfile", data)
    return CountingStorage(storage), entries


def test_a_few_keys_cost_two_requests_and_nothing_once_cached(tmp_path: Path) -> None:
    storage, entries = large_file(tmp_path)
    size = (tmp_path / "f.hfile").stat().st_size
    file = open_hfile(FileSource(storage, "f.hfile", size))
    assert storage.counts["read_ranges"] == 1
    asked = [key for key, _ in entries[500::1500]]
    assert [key for _, key, _ in answers(file.lookup(pa.array(asked)))] == asked
    assert storage.counts["read_ranges"] == 2
    again = open_hfile(FileSource(storage, "f.hfile", size))
    assert len(again.lookup(pa.array(asked))) == len(asked)
    assert len(file.lookup(pa.array([b"%08d" % 501, b"!"]))) == 1
    assert storage.counts["read_ranges"] == 2
    assert pairs(file.read()) == entries
    assert sum(storage.counts.values()) - storage.counts["read_ranges"] == 0


def test_a_few_large_entries_are_those_of_a_walk_through_the_block() -> None:
    entries = [(b"%04d" % number, bytes([number]) * (2_000 + number)) for number in range(40)]
    keys, values = columns(entries)
    for block_size in (1 << 14, 1 << 17):  # some seven entries in a block, then all forty
        file = open_hfile(write_hfile(keys, values, schema_json="{}", codec="none", block_size=block_size))
        assert pairs(file.read()) == entries
        asked = pa.array([b"0039", b"0003", b"none"])
        assert pairs(file.lookup(asked).entries) == [entries[3], entries[39]]


def test_at_most_one_block_a_key_is_read(tmp_path: Path) -> None:
    storage, entries = large_file(tmp_path)
    source = Recorded(FileSource(storage, "f.hfile"))
    file = open_hfile(source)
    opening, source.ranges = source.ranges, []
    assert len(opening) == 1
    assert len(file.lookup(pa.array([entries[n][0] for n in (3, 7000, 14_999)]))) == 3
    assert len(source.ranges) == 3
    assert sum(length for _, length in source.ranges) < 3 * 80_000
    source.ranges = []
    assert len(file.lookup(pa.array([b"!"]))) == 0
    assert source.ranges == []


class Recorded:
    """Remembers the ranges that were asked for; keeps out of the cache."""

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self.size, self.name, self.key = source.size, source.name, ()
        self.ranges: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> bytes:
        self.ranges.append((offset, length))
        return self._source.read(offset, length)

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        self.ranges += ranges
        return self._source.read_many(ranges)


def test_a_file_inside_another(tmp_path: Path) -> None:
    entries = [(b"a", b"1"), (b"b", b"2")]
    data = write_hfile(*columns(entries), schema_json="{}")
    storage = LocalStorage(str(tmp_path))
    storage.write("log", b"before" + data + b"behind")
    file = open_hfile(SliceSource(FileSource(storage, "log"), 6, len(data)))
    assert pairs(file.read()) == entries
    assert answers(file.lookup(pa.array(["b"]))) == [(0, b"b", b"2")]
    with pytest.raises(CorruptFile, match="beyond its end"):
        SliceSource(FileSource(storage, "log"), 6, len(data) + 7)


def test_the_cache_is_bounded() -> None:
    block = parse_entries(bytes.fromhex("0000000d 00000001 0001 61") + TAIL + b"v\0", mvcc=True)
    cache = BlockCache(max_bytes=2 * block.nbytes)
    for name in "abc":
        cache.put(name, block)
    assert [cache.get(name) is None for name in "abc"] == [True, False, False]
    assert cache.nbytes == 2 * block.nbytes
    cache.clear()
    assert (cache.get("c"), cache.nbytes) == (None, 0)
    assert BLOCKS.nbytes >= 0


def test_a_codec_that_hudi_does_not_write_is_named() -> None:
    data = bytearray(write_hfile(pa.array(["a"]), pa.array([b"1"]), schema_json="{}"))
    at = data.index(b"\x60\x01", len(data) - 4096)
    data[at + 1] = 3
    with pytest.raises(UnsupportedFeature, match="snappy"):
        open_hfile(bytes(data))
    data[at + 1] = 9
    with pytest.raises(CorruptFile, match="codec 9"):
        open_hfile(bytes(data))


def test_damage_names_the_file_and_the_block(tmp_path: Path) -> None:
    large_file(tmp_path)
    whole = (tmp_path / "f.hfile").read_bytes()
    data = bytearray(whole)
    data[100] ^= 0xFF
    with pytest.raises(CorruptFile, match=r"f\.hfile \(block at 0\)") as raised:
        open_hfile(BytesSource(bytes(data), "f.hfile")).read()
    assert raised.value.context == {"path": "f.hfile", "offset": 0}
    for cut in (0, 50, 4095, 4096, len(whole) - 1):
        with pytest.raises(CorruptFile):
            open_hfile(whole[:cut])


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    storage, entries = large_file(tmp_path)
    file = open_hfile(FileSource(storage, "f.hfile"))
    (tmp_path / "f.hfile").write_bytes(b"short")
    with pytest.raises(CorruptFile):
        file.prefix(pa.array([entries[-1][0]]))


def test_a_block_that_inflates_beyond_its_size_is_refused() -> None:
    data = bytearray(build([[(b"a", bytes(3_000_000))]]))
    data[12:16] = (500).to_bytes(4, "big")
    with pytest.raises(CorruptFile, match="holds more"):
        open_hfile(bytes(data)).read()
