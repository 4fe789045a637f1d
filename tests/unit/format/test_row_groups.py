"""Column chunks are moved as bytes, and the footer that names their places keeps what nobody knows."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from lakebed.errors import CorruptFile
from lakebed.format.base_file import read_footer
from lakebed.format.parquet_footer import parse_footer, read_encoded
from lakebed.format.parquet_writer import ParquetSettings
from lakebed.format.row_groups.assembled import AssembledFile, NewFile
from lakebed.format.row_groups.chunks import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I64,
    LIST,
    MAP,
    STRUCT,
    TRUE,
    Field,
    PlacedChunk,
    check_pages,
    chunk_groups,
    footer_of,
    integer,
    number_in,
    read_list,
    read_struct,
    write_list,
    write_struct,
)
from lakebed.format.row_groups.stored import has_columns, open_groups
from lakebed.storage.memory import MemoryStorage
from support.golden_tables import golden_tables

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("n", pa.int64()),
        ("word", pa.string()),
        ("place", pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])),
        ("file", pa.string()),
    ]
)


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    columns = [
        [f"key-{n}" for n in numbers],
        [None if n % 7 == 0 else n * n for n in numbers],
        [f"word {n % 5}" for n in numbers],
        [None if n % 11 == 0 else {"x": n / 3, "names": ["a", None][: n % 3]} for n in numbers],
        ["before"] * count,
    ]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    yield MemoryStorage("chunks")
    MemoryStorage.drop("chunks")


def golden_footers() -> Iterator[tuple[str, bytes, int]]:
    for table in golden_tables():
        for name, data in table.files().items():
            if name.endswith(".parquet"):
                footer = read_encoded(pa.BufferReader(data))
                yield f"{table.name}/{name}", footer, len(data) - len(footer) - 8


def again(kind: int, value: bytes) -> bytes:
    """A value taken apart down to its leaves, and put together again."""
    if kind == STRUCT:
        fields, end = read_struct(value)
        assert end == len(value)
        return write_struct([Field(f.number, f.kind, again(f.kind, f.value)) for f in fields])
    if kind == LIST:
        inner, entries = read_list(value)
        return write_list(inner, [again(inner, entry) for entry in entries])
    return value


@pytest.mark.rest
@pytest.mark.larger_set
def test_footers_of_every_golden_file_are_the_same_bytes_again() -> None:
    seen = 0
    for name, footer, end in golden_footers():
        assert again(STRUCT, footer) == footer, name
        groups = chunk_groups(footer, end)
        assert groups is not None
        metadata = parse_footer(footer)
        shell = write_struct(
            [f if f.number != 4 else Field(4, LIST, write_list(STRUCT, [])) for f in read_struct(footer)[0]]
        )
        made = parse_footer(footer_of(shell, [(g.rows, [PlacedChunk(c, c.start) for c in g.chunks]) for g in groups]))
        assert made.schema.equals(metadata.schema)
        assert (made.num_rows, made.metadata, made.created_by) == (
            metadata.num_rows,
            metadata.metadata,
            metadata.created_by,
        )
        assert repr([column_facts(g) for g in groups_of(made)]) == repr(
            [column_facts(g) for g in groups_of(metadata)]
        ), name
        seen += 1
    assert seen > 20


def groups_of(metadata: Any) -> list[Any]:
    return [metadata.row_group(n) for n in range(metadata.num_row_groups)]


def column_facts(group: Any) -> list[dict[str, Any]]:
    return [without_index(group.column(n).to_dict()) for n in range(group.num_columns)]


def without_index(chunk: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in chunk.items() if "index_" not in name and "bloom" not in name}


def test_values_of_every_kind_stay_as_they_are() -> None:
    fields = [
        Field(1, TRUE, b""),
        Field(2, FALSE, b""),
        Field(3, BYTE, b"\x07"),
        integer(4, I16, -3),
        integer(70, I64, 1 << 62),
        Field(71, DOUBLE, b"12345678"),
        Field(72, BINARY, b"\x03abc"),
        Field(73, LIST, write_list(TRUE, [b"\x01", b"\x02"] * 10)),
        Field(74, MAP, b"\x01\x88\x01k\x01v"),
        Field(300, STRUCT, write_struct([integer(5, I64, 9)])),
        integer(20, I64, 4),  # numbers may come in any order
    ]
    data = write_struct(fields)
    assert read_struct(data) == (fields, len(data))
    assert number_in(fields[4].value) == 1 << 62


def test_mutated_footers_raise_or_are_read() -> None:
    dice = random.Random(4)
    sink = io.BytesIO()
    pq.write_table(rows(0, 50), sink, row_group_size=20, write_page_index=True)
    footer = read_encoded(pa.BufferReader(sink.getvalue()))
    end = len(sink.getvalue()) - len(footer) - 8
    raised = 0
    for _ in range(4000):
        data = bytearray(footer)
        for _ in range(dice.choice([1, 1, 2, 5])):
            data[dice.randrange(len(data))] = dice.randrange(256)
        some = bytes(data[: dice.randrange(len(data))] if dice.random() < 0.2 else data)
        try:
            groups = chunk_groups(some, end)
        except ValueError:
            raised += 1
            continue
        for chunk in (chunk for group in groups or () for chunk in group.chunks):
            assert 4 <= chunk.start <= chunk.start + chunk.length <= end
    assert raised > 500


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_mutated_pages_are_found(version: Any) -> None:
    dice = random.Random(5)
    sink = io.BytesIO()
    options: dict[str, Any] = {"data_page_version": version, "write_page_checksum": True, "data_page_size": 200}
    pq.write_table(rows(0, 300), sink, **options)
    data = sink.getvalue()
    footer = read_encoded(pa.BufferReader(data))
    groups = chunk_groups(footer, len(data) - len(footer) - 8)
    assert groups is not None
    for chunk in groups[0].chunks:
        whole = data[chunk.start : chunk.start + chunk.length]
        check_pages(whole, chunk.values)
        with pytest.raises(ValueError, match="values"):
            check_pages(whole, chunk.values + 1)
        with pytest.raises(ValueError, match=r"page"):
            check_pages(whole[:-1], chunk.values)
        for _ in range(200):
            changed = bytearray(whole)
            changed[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
            try:
                check_pages(bytes(changed), chunk.values)
            except ValueError:
                continue
            # what is left is the head of a page, of which there is no checksum
            differing = next(n for n, (a, b) in enumerate(zip(whole, changed, strict=True)) if a != b)
            assert b"".join(pages(whole)) == b"".join(pages(bytes(changed))), differing


def pages(chunk: bytes) -> list[bytes]:
    """The stored bytes of its pages."""
    found: list[bytes] = []
    at = 0
    while at < len(chunk):
        fields, at = read_struct(chunk, at)
        size = next(number_in(f.value) for f in fields if f.number == 3)
        found.append(chunk[at : at + size])
        at += size
    return found


def write(storage: MemoryStorage, path: str, table: pa.Table, **options: Any) -> int:
    sink = io.BytesIO()
    settings: dict[str, Any] = {"compression": "zstd", "store_schema": False, "row_group_size": 30, **options}
    pq.write_table(table, sink, **settings)
    storage.write(path, sink.getvalue())
    return len(sink.getvalue())


def assembled(storage: MemoryStorage, sizes: Sequence[tuple[str, int]], fresh: pa.Table | None = None) -> bytes:
    """The row groups of files, in a file with another name in each row; fresh rows behind each file."""
    settings = ParquetSettings(row_group_rows=50)
    file = AssembledFile(storage.create("made"), SCHEMA, settings, constants={"file": pa.scalar("after")})
    for path, size in sizes:
        footer = read_footer(storage, path, size, encoded=True)
        assert has_columns(footer, SCHEMA)
        with open_groups(storage, path, size, footer, {"zstd"}, ["word"]) as groups:
            assert groups is not None
            for number in range(len(groups.groups)):
                file.copy(groups, number)
        if fresh is not None:
            file.write(fresh)
    assert file.close({"told": "anew"}) == len(storage.read("made"))
    return storage.read("made")


@pytest.mark.parametrize("index", [False, True])
def test_row_groups_of_several_files_are_put_together(storage: MemoryStorage, index: bool) -> None:
    one, other, fresh = rows(0, 100), rows(500, 70), rows(900, 20)
    options: dict[str, Any] = {"write_page_index": index, "use_dictionary": ["word"]}
    sizes = [("one", write(storage, "one", one, **options)), ("other", write(storage, "other", other))]
    made = assembled(storage, sizes, fresh)
    after = pa.array(["after"] * 100)
    expected = pa.concat_tables(
        [
            one.set_column(4, "file", after),
            fresh,
            other.set_column(4, "file", after.slice(0, 70)),
            fresh,
        ]
    )
    found = pq.read_table(io.BytesIO(made), page_checksum_verification=True)
    assert found.equals(expected)
    assert pl.read_parquet(made).to_arrow().cast(SCHEMA).equals(expected)
    metadata = pq.read_metadata(io.BytesIO(made))
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [
        30,
        30,
        30,
        10,
        20,
        30,
        30,
        10,
        20,
    ]
    assert metadata.metadata[b"told"] == b"anew"
    for number, group in enumerate(groups_of(metadata)):
        told_rows = expected.slice(sum(metadata.row_group(n).num_rows for n in range(number)), group.num_rows)
        for at in range(group.num_columns):
            chunk = group.column(at)
            places = chunk.has_column_index, chunk.has_offset_index, chunk.bloom_filter_offset
            assert places == (False, False, None)
        statistics = group.column(1).statistics
        known = told_rows["n"].drop_null().to_pylist()
        assert (statistics.min, statistics.max, statistics.null_count) == (
            min(known),
            max(known),
            told_rows["n"].null_count,
        )
    # what was moved once can be moved again
    storage.write("again", made)
    twice = assembled(storage, [("again", len(made))])
    assert pq.read_table(io.BytesIO(twice)).drop(["file"]).equals(expected.drop(["file"]))


def test_files_that_must_be_encoded_again_are_listed(storage: MemoryStorage) -> None:
    table = rows(0, 40)

    def can_be_copied(path: str, size: int) -> bool:
        footer = read_footer(storage, path, size, encoded=True)
        if not has_columns(footer, SCHEMA):
            return False
        with open_groups(storage, path, size, footer, {"zstd"}) as groups:
            return groups is not None

    assert can_be_copied("a", write(storage, "a", table))
    assert not can_be_copied("b", write(storage, "b", table, compression="gzip"))
    assert not can_be_copied("c", write(storage, "c", table.select([1, 0, 2, 3, 4])))
    assert not can_be_copied("d", write(storage, "d", table.set_column(1, "n", table["n"].cast(pa.int32()))))
    assert not can_be_copied("e", write(storage, "e", table.cast(SCHEMA.set(0, SCHEMA.field(0).with_nullable(False)))))
    numbered = SCHEMA.set(1, SCHEMA.field(1).with_metadata({"PARQUET:field_id": "7"}))
    assert can_be_copied("f", write(storage, "f", table.cast(numbered)))  # the new footer has ids of its own
    assert not can_be_copied("g", write(storage, "g", table.slice(0, 0)))


def test_encrypted_chunks_and_those_of_other_files_are_not_moved() -> None:
    config = pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["key"]}, plaintext_footer=True)
    factory = pe.CryptoFactory(lambda _: _Plain())
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, SCHEMA, encryption_properties=properties) as to:
        to.write_table(rows(0, 30))
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    assert chunk_groups(data[-8 - length : -8], len(data) - length - 8) is None
    elsewhere: list[Any] = []
    pq.write_table(rows(0, 30), io.BytesIO(), metadata_collector=elsewhere)
    elsewhere[0].set_file_path("other.parquet")
    out = io.BytesIO()
    elsewhere[0].write_metadata_file(out)
    assert chunk_groups(read_encoded(pa.BufferReader(out.getvalue())), 1 << 20) is None


class _Plain(pe.KmsClient):  # pyright: ignore[reportUntypedBaseClass]
    """Keys as they are."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return key_bytes

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return wrapped_key


def test_a_file_that_ends_early_or_is_changed_is_corrupt(storage: MemoryStorage) -> None:
    size = write(storage, "a", rows(0, 90), write_page_checksum=True)
    footer = read_footer(storage, "a", size, encoded=True)
    data = storage.read("a")
    storage.write("a", data[:50] + bytes([data[50] ^ 255]) + data[51:])
    with open_groups(storage, "a", size, footer, {"zstd"}) as groups:
        assert groups is not None
        with pytest.raises(CorruptFile, match="a cannot be read"):
            groups.stored(0, groups.groups[0].chunks)
    storage.write("a", data[:200])
    with open_groups(storage, "a", size, footer, {"zstd"}) as groups:
        assert groups is not None
        with pytest.raises(CorruptFile, match="a cannot be read"):
            groups.stored(1, groups.groups[1].chunks)


def test_each_byte_of_a_file_is_read_once(storage: MemoryStorage) -> None:
    table = rows(0, 3000)
    size = write(storage, "a", table)
    footer = read_footer(storage, "a", size, encoded=True)
    with open_groups(storage, "a", size, footer, {"zstd"}, ["word"]) as groups:
        assert groups is not None
        for number in range(len(groups.groups)):
            some = groups.columns(number, ["n", "place", "word"])
            assert pa.types.is_dictionary(some.column(2).type)
            expected = table.slice(30 * number, 30).select(["n", "place"]).combine_chunks().to_batches()[0]
            assert some.select(["n", "place"]).equals(expected)
            data, _ = groups.stored(number, groups.groups[number].chunks)
            assert data.nbytes


@pytest.mark.parametrize(("count", "is_assembled"), [(16_383, False), (16_384, True)])
@pytest.mark.parametrize("differs", [False, True])
def test_record_keys_of_a_large_new_file_are_the_bytes_of_the_key_column(
    storage: MemoryStorage, count: int, is_assembled: bool, differs: bool
) -> None:
    keys = [f"key-{n * 7919 % 100_003:06}" for n in range(count)]
    record_keys = [*keys[:-1], "another"] if differs else keys
    constant = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["20260101000000000"]))
    table = pa.table(
        {
            "_hoodie_commit_time": constant,
            "_hoodie_record_key": record_keys,
            "id": keys,
            "number": range(count),
            "nan": [float("nan") if n == 5 else n for n in range(count)],
            "list": [[n] for n in range(count)],
        }
    )
    schema = pa.schema([f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in table.schema])
    file = NewFile(storage.create("new"), schema, ParquetSettings(text_codec="lz4_raw", key_column="id", page_rows=500))
    file.write(table)
    end = file.end_rows()
    file.append(b"addresses")
    file.close({"k": "v"})
    data = storage.read("new")
    assert data[end : end + 9] == b"addresses"
    stored = pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
    assert stored.drop_columns(["nan"]).equals(table.cast(schema).drop_columns(["nan"]))
    metadata = pq.read_metadata(pa.BufferReader(data))
    chunks = {
        c.path_in_schema: c for c in (metadata.row_group(0).column(n) for n in range(metadata.row_group(0).num_columns))
    }
    starts = {name: chunk.dictionary_page_offset or chunk.data_page_offset for name, chunk in chunks.items()}
    key_bytes, id_bytes = (
        data[starts[name] :][: chunks[name].total_compressed_size] for name in ("_hoodie_record_key", "id")
    )
    assert (key_bytes == id_bytes) is not differs
    assert (file.traffic.encoded_bytes > 0) is is_assembled
    assert chunks["nan"].statistics is None or not chunks["nan"].statistics.has_min_max
    assert chunks["_hoodie_record_key"].statistics.min == min(record_keys)
    assert all(chunks[name].has_offset_index for name in ("_hoodie_commit_time", "_hoodie_record_key", "id", "number"))
    assert metadata.num_rows == count
