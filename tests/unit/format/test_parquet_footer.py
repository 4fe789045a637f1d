"""Footers are checked before Arrow's bindings look into them, but for those that this process made."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import CorruptFile
from lakebed.format import parquet_footer
from lakebed.format.base_file import read_footer
from lakebed.storage import open_storage

ROWS = pa.table({"id": ["a", "b"], "n": [1, 2]})


def test_a_footer_that_this_process_wrote_is_not_checked_and_a_changed_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "memory://footers/trusted"
    table = lakebed.create(uri, ROWS.schema, key="id")
    (name,) = table.upsert(ROWS).files
    checked: list[int] = []
    check = parquet_footer.check_footer

    def noted(footer: bytes, metadata: object) -> None:
        checked.append(len(footer))
        check(footer, metadata)

    monkeypatch.setattr(parquet_footer, "check_footer", noted)
    storage = open_storage(uri)
    assert read_footer(storage, name).rows == 2
    assert not checked
    data = bytearray(storage.read(name))
    length = int.from_bytes(data[-8:-4], "little")
    at = data.index(b"spark.version" if b"spark.version" in data else b"org.apache", len(data) - 8 - length)
    data[at] ^= 1
    storage.write(name, bytes(data))
    assert read_footer(storage, name).rows == 2
    assert checked == [length]


def test_a_file_without_a_footer_is_named() -> None:
    storage = open_storage("memory://footers/none")
    storage.write("x.parquet", b"PAR1PAR1")
    with pytest.raises(CorruptFile, match=r"x\.parquet"):
        read_footer(storage, "x.parquet")


@pytest.mark.parametrize("width", [127, 128, 600])
def test_ranges_of_values_of_any_length_are_read(width: int) -> None:
    storage, out = open_storage("memory://footers/wide"), pa.BufferOutputStream()
    values = pa.array([bytes([n]) * width for n in range(3)], pa.binary(width))
    pq.write_table(pa.table({"wide": values}), out)
    storage.write("x.parquet", out.getvalue().to_pybytes())
    statistics = read_footer(storage, "x.parquet").metadata.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max) == (values[0].as_py(), values[2].as_py())
