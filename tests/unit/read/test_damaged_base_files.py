"""Base files that are changed or missing: right rows or an error that names the file, whoever reads."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import CorruptFile
from lakebed.format.footer_cache import FOOTERS, POSITIONS
from lakebed.storage import Storage, open_storage
from lakebed.storage.memory import MemoryStorage
from support.outcomes import Outcomes
from support.write_tables import SCHEMA, rows

GIVEN = [(n, "oslo", f"text of row {n}", n) for n in range(400)]


@pytest.fixture
def uri() -> Iterator[str]:
    name = uuid.uuid4().hex
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


def scan(uri: str) -> Any:
    return sorted(lakebed.open(uri).scan().to_arrow()["v"].to_pylist())


def get(uri: str) -> Any:
    return sorted(lakebed.open(uri).get(list(range(400)))["v"].to_pylist())


def upsert(uri: str) -> Any:
    lakebed.open(uri).upsert(rows((1000, "oslo", "text of row 1000", 1)))
    return scan(uri)


def only_file(uri: str) -> tuple[Storage, str]:
    storage = open_storage(uri)
    (path,) = [info.path for info in storage.list() if info.path.endswith(".parquet")]
    return storage, path


def test_base_files_have_page_checksums(uri: str) -> None:
    lakebed.create(uri, SCHEMA, key="id", partition_by="city", ordering="ts", index="simple").upsert(rows(*GIVEN))
    storage, path = only_file(uri)
    damaged = bytearray(storage.read(path))
    column = pq.ParquetFile(pa.BufferReader(bytes(damaged))).metadata.row_group(0).column(7)
    damaged[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(pa.BufferReader(bytes(damaged)), page_checksum_verification=True).read()


def test_scans_skip_the_checks_where_an_option_says_so(uri: str) -> None:
    """A text that is stored without compression, and so reads as another one."""
    lakebed.create(uri, SCHEMA, key="id", partition_by="city", ordering="ts", index="simple")
    lakebed.open(uri).upsert(rows(*GIVEN), options={"hoodie.parquet.compression.codec": "uncompressed"})
    storage, path = only_file(uri)
    data = storage.read(path)
    storage.write(path, data.replace(b"text of row 399", b"text of ROW 399"))
    with pytest.raises(CorruptFile, match="CRC"):
        scan(uri)
    unchecked = lakebed.open(uri, options={"lakebed.read.page.checksums": False})
    found = unchecked.scan().to_arrow()["v"].to_pylist()
    assert sorted(found) == sorted(f"text of {'ROW' if n == 399 else 'row'} {n}" for n in range(400))


@pytest.mark.parametrize("read", [scan, get, upsert])
@pytest.mark.parametrize("index", ["simple", "record", "bucket"])
def test_a_missing_base_file_is_named(uri: str, index: str, read: Callable[[str], Any]) -> None:
    buckets = {"buckets": 1} if index == "bucket" else {}
    table = lakebed.create(uri, SCHEMA, key="id", partition_by="city", ordering="ts", index=index, **buckets)
    table.upsert(rows(*GIVEN))
    storage, path = only_file(uri)
    storage.delete(path)
    FOOTERS.clear()
    POSITIONS.clear()
    with pytest.raises(CorruptFile, match="is missing") as error:
        read(uri)
    assert path in str(error.value)


@pytest.mark.parametrize("read", [scan, get, upsert])
@pytest.mark.parametrize("body", ["empty", "cut", "another table's"])
def test_a_replaced_base_file_is_named(uri: str, body: str, read: Callable[[str], Any]) -> None:
    table = lakebed.create(uri, SCHEMA, key="id", partition_by="city", ordering="ts", index="simple")
    table.upsert(rows(*GIVEN))
    storage, path = only_file(uri)
    other = pa.BufferOutputStream()
    pq.write_table(pa.table({"z": [1, 2]}), other)
    bodies = {"empty": b"", "cut": storage.read(path)[:-30], "another table's": other.getvalue().to_pybytes()}
    storage.write(path, bodies[body])
    FOOTERS.clear()
    POSITIONS.clear()
    with pytest.raises(CorruptFile) as error:
        read(uri)
    assert path in str(error.value)
    assert error.value.hint


@pytest.mark.rest
def test_a_changed_byte_of_a_page_gives_right_rows_or_an_error(uri: str) -> None:
    table = lakebed.create(uri, SCHEMA, key="id", partition_by="city", ordering="ts", index="simple")
    table.upsert(rows(*GIVEN))
    storage, path = only_file(uri)
    whole, right = storage.read(path), scan(uri)
    random, outcomes = Random(23), Outcomes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for at in random.sample(range(4, footer), 100):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << random.randrange(8)
        storage.write(path, bytes(damaged))
        for read in (scan, get):
            FOOTERS.clear()
            POSITIONS.clear()
            with outcomes.counted():
                assert read(uri) == right, f"byte {at}"
    assert outcomes.refused > 100
    outcomes.assert_both()
