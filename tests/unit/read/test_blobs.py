"""`t.read_blob`: bytes in the table and of other files, few bounded requests, and errors that name the row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CorruptFile, InvalidOption
from lakebed.read import blobs
from lakebed.storage.opening import wrapping
from lakebed.testing import CountingStorage
from support.blob_tables import SCHEMA, blob_rows, blob_table, data_of, outside

BYTES = bytes(number * 7 % 251 for number in range(50_000))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "all.bin").write_bytes(BYTES)
    return tmp_path / "all.bin"


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_keys_give_a_value_each_in_their_order(kind: str, file: Path) -> None:
    table = blob_table(kind)
    table.upsert(outside(file, ["o1", "o2", "o3"], [10, 0, 49_000], [5, 0, None]))
    wanted = ["k003", "o3", "nobody", "k010", "o1", "k003", "o2", "k039"]
    values = [data_of(3), BYTES[49_000:], None, None, BYTES[10:15], data_of(3), b"", data_of(39)]
    assert list(table.read_blob(wanted, "pic")) == values
    assert list(table.read_blob([{"id": "o1"}], "PIC")) == [BYTES[10:15]]
    assert list(table.read_blob(pa.table({"id": ["k001"]}), "pic")) == [data_of(1)]
    assert list(table.read_blob([], "pic")) == []


def test_keys_of_a_table_without_meta_columns_give_their_values() -> None:
    table = lakebed.create(
        "memory://blobs/no_meta", SCHEMA, key="id", properties={"hoodie.populate.meta.fields": "false"}
    )
    table.insert(blob_rows(range(5)))
    assert list(table.read_blob(["k002", "x", "k001"], "pic")) == [data_of(2), None, data_of(1)]


def test_rows_in_each_form_give_the_values_of_their_column(file: Path) -> None:
    table = blob_table("mor")
    table.upsert(outside(file, ["o1"], [10], [5]))
    scan = table.scan(where="id in ('k001', 'o1', 'k010')")
    rows = scan.to_arrow()
    values = [{"k001": data_of(1), "o1": BYTES[10:15], "k010": None}[key] for key in rows["id"].to_pylist()]
    for source in (
        scan,
        rows,
        rows.combine_chunks().to_batches()[0],
        scan.to_polars(),
        rows.to_pylist(),
        scan.limit(3),
    ):
        assert sorted(table.read_blob(source, "pic"), key=repr) == sorted(values, key=repr)
    assert list(table.read_blob(rows.slice(1), "pic")) == values[1:]
    assert list(table.read_blob([{"pic": None}, {"pic": None}], "pic")) == [None, None]


def test_a_scan_of_an_earlier_time_gives_the_bytes_of_then() -> None:
    table = blob_table("mor")
    first = table.timeline.to_arrow()["time"].to_pylist()[-1]
    table.upsert([{**blob_rows(range(1, 2), ts=5)[0], "pic": lakebed.blob(data=b"new")}])
    assert list(table.read_blob(["k001"], "pic")) == [b"new"]
    assert list(table.read_blob(table.scan(where="id = 'k001'", as_of=first), "pic")) == [data_of(1)]


@pytest.mark.parametrize("is_scan", [False, True])
@pytest.mark.parametrize(
    ("name", "offset", "length", "match"),
    [
        ("none.bin", 0, None, "row 'o2' references a file that is missing: .*none.bin"),
        ("none.bin", 0, 5, "row 'o2' references a file that is missing: .*none.bin"),
        ("none.bin", 0, 0, "row 'o2' references a file that is missing: .*none.bin"),
        ("all.bin", 50_001, 0, "row 'o2' references the bytes 50001 to 50001 of a file that has 50000"),
        ("all.bin", 49_999, 2, "row 'o2' references the bytes 49999 to 50001 of a file that has 50000: .*all.bin"),
        ("all.bin", 60_000, 2, "row 'o2' references the bytes 60000 to 60002 of a file that has 50000"),
        ("all.bin", 0, 2**62, "row 'o2' references the bytes 0 to 4611686018427387904 of a file that has 50000"),
        ("all.bin", 50_001, None, "row 'o2' references the bytes 50001 to the end of a file that has 50000"),
    ],
)
def test_a_file_that_is_missing_or_too_short_is_an_error_with_row_and_path(
    file: Path, name: str, offset: int, length: int | None, match: str, is_scan: bool
) -> None:
    table = lakebed.create(f"memory://blobs/short/{file.parent.name}", SCHEMA, key="id")
    table.upsert(outside(file, ["o1"], [49_000], [10]))
    table.upsert(outside(file.with_name(name), ["o2"], [offset], [length]))
    with pytest.raises(CorruptFile, match=match) as caught:
        list(table.read_blob(table.scan() if is_scan else ["o1", "o2"], "pic"))
    assert caught.value.context["row"] == "row 'o2'"
    assert caught.value.context["path"] == str(file.with_name(name))


def test_the_last_byte_of_a_file_is_read(file: Path) -> None:
    table = lakebed.create(f"memory://blobs/last/{file.parent.name}", SCHEMA, key="id")
    table.upsert(outside(file, ["a", "b", "c"], [49_999, 50_000, 50_000], [1, 0, None]))
    assert list(table.read_blob(["a", "b", "c"], "pic")) == [BYTES[-1:], b"", b""]


def test_a_path_that_cannot_be_opened_is_an_error_with_the_row() -> None:
    table = blob_table("cow")
    table.upsert([{**blob_rows(range(1, 2), ts=5)[0], "pic": lakebed.blob(path="ftp://x/y")}])
    with pytest.raises(InvalidOption, match="row 'k001' is in ftp://x/y"):
        list(table.read_blob(["k001"], "pic"))


def test_another_column_is_refused() -> None:
    table = blob_table("cow")
    with pytest.raises(InvalidOption, match=r"name holds no blobs.*pic"):
        table.read_blob(["k001"], "name")
    with pytest.raises(InvalidOption, match="no column 'pics'"):
        table.read_blob(table.scan(), "pics")


def requests_of(table: lakebed.Table, keys: list[str]) -> tuple[list[bytes | None], list[tuple[int, int]]]:
    """The values of these keys, and the ranges of other files that were asked for."""
    asked: list[tuple[int, int]] = []

    class Noting(CountingStorage):
        def read_ranges(self, path: str, ranges: Any) -> list[bytes]:
            if path.endswith(".bin"):
                asked.extend(ranges)
            return super().read_ranges(path, ranges)

    with wrapping(Noting):
        return list(table.read_blob(keys, "pic")), asked


def test_ranges_near_each_other_are_one_request(file: Path) -> None:
    table = lakebed.create(f"memory://blobs/near/{file.parent.name}", SCHEMA, key="id")
    # overlapping, apart by as much as is read along, and by one byte more
    table.upsert(outside(file, ["a", "b", "c", "d"], [100, 0, 4306, 8503], [110, 120, 100, 50]))
    values, asked = requests_of(table, ["a", "b", "c", "d"])
    assert values == [BYTES[100:210], BYTES[:120], BYTES[4306:4406], BYTES[8503:8553]]
    assert sorted(asked) == [(0, 4406), (8503, 50)]


@pytest.mark.parametrize(("bound", "sizes"), [(100, [100, 100]), (99, [50, 50, 50, 50]), (49, [50, 50, 50, 50])])
def test_a_request_has_bounded_bytes(file: Path, monkeypatch: pytest.MonkeyPatch, bound: int, sizes: list[int]) -> None:
    monkeypatch.setattr(blobs, "MAX_REQUEST_BYTES", bound)
    table = lakebed.create(f"memory://blobs/bytes/{file.parent.name}", SCHEMA, key="id")
    table.upsert(outside(file, list("abcd"), [0, 50, 100, 150], [50] * 4))
    values, asked = requests_of(table, list("abcd"))
    assert values == [BYTES[at : at + 50] for at in (0, 50, 100, 150)]
    assert [length for _, length in asked] == sizes


@pytest.mark.parametrize(("bound", "count"), [(4, 1), (3, 2)])
def test_a_request_has_a_bounded_number_of_ranges(
    file: Path, monkeypatch: pytest.MonkeyPatch, bound: int, count: int
) -> None:
    monkeypatch.setattr(blobs, "MAX_REQUEST_RANGES", bound)
    table = lakebed.create(f"memory://blobs/number/{file.parent.name}", SCHEMA, key="id")
    table.upsert(outside(file, list("abcd"), [0, 50, 100, 150], [50] * 4))
    assert len(requests_of(table, list("abcd"))[1]) == count


@pytest.mark.parametrize(("bound", "taken"), [(100, 2), (99, 1), (1, 1)])
def test_no_more_bytes_are_read_ahead_than_the_bound(
    file: Path, monkeypatch: pytest.MonkeyPatch, bound: int, taken: int
) -> None:
    monkeypatch.setattr(blobs, "MAX_WINDOW_BYTES", bound)
    rows = outside(file, list("abcd"), [0, 10_000, 20_000, 30_000], [50] * 4)
    table = lakebed.create(f"memory://blobs/ahead/{file.parent.name}", SCHEMA, key="id")
    asked: list[Any] = []

    class Noting(CountingStorage):
        def read_ranges(self, path: str, ranges: Any) -> list[bytes]:
            asked.extend(ranges)
            return super().read_ranges(path, ranges)

    with wrapping(Noting):
        values: Iterator[bytes | None] = table.read_blob(rows, "pic")
        assert next(values) == BYTES[:50]
        assert len(asked) == taken
        assert list(values) == [BYTES[at : at + 50] for at in (10_000, 20_000, 30_000)]
        assert len(asked) == 4


@pytest.mark.parametrize(("bound", "taken"), [(2, 2), (3, 3), (4, 4)])
def test_no_more_rows_are_read_ahead_than_the_bound(
    file: Path, monkeypatch: pytest.MonkeyPatch, bound: int, taken: int
) -> None:
    monkeypatch.setattr(blobs, "MAX_WINDOW_ROWS", bound)
    rows = outside(file, list("abcd"), [0, 10_000, 20_000, 30_000], [50] * 4)
    table = lakebed.create(f"memory://blobs/rows/{file.parent.name}", SCHEMA, key="id")
    asked: list[Any] = []

    class Noting(CountingStorage):
        def read_ranges(self, path: str, ranges: Any) -> list[bytes]:
            asked.extend(ranges)
            return super().read_ranges(path, ranges)

    with wrapping(Noting):
        values = table.read_blob(rows, "pic")
        next(values)
        assert len(asked) == taken
        assert len(list(values)) == 3


@pytest.mark.parametrize("first", [1, 7, 100])
def test_many_keys_are_looked_up_some_at_a_time(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setattr(blobs, "_FIRST_KEYS", first)
    table = blob_table("mor")
    keys = [f"k{number:03d}" for number in (*range(40), *range(39, 0, -1))]
    values = [data_of(int(key[1:])) if int(key[1:]) % 10 else None for key in keys]
    assert list(table.read_blob(keys, "pic")) == values


def test_a_scan_that_does_not_name_a_blob_column_reads_no_byte_of_it(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("pic", lakebed.BLOB), ("n", pa.int64())])
    sizes: dict[int, int] = {}
    for size in (1, 200_000):
        table = lakebed.create(str(tmp_path / str(size)), schema, key="id")
        rows = {"id": list(range(20)), "n": list(range(20))}
        table.upsert(pa.table({**rows, "pic": lakebed.blob(data=[bytes([n]) * size for n in range(20)])}))
        read, sizes[size] = bytes_of_base_files(table.uri, ["id", "n"], "n >= 5")
        assert sorted(read["n"].to_pylist()) == list(range(5, 20))
    # the blobs of the second table have four million bytes
    assert sizes[200_000] - sizes[1] < 100_000


def bytes_of_base_files(uri: str, columns: list[str], where: str) -> tuple[pa.Table, int]:
    """The rows of a scan, and the number of bytes of base files that it reads."""
    counted: list[int] = []

    class Sizing(CountingStorage):
        def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
            opened = super().open_input(path, size)
            return pa.PythonFile(_Counted(opened, counted), mode="r") if path.endswith(".parquet") else opened

    with wrapping(Sizing):
        return lakebed.open(uri).scan(columns, where).to_arrow(), sum(counted)


class _Counted:
    """A file that notes how many bytes are read of it."""

    def __init__(self, file: pa.NativeFile, counted: list[int]) -> None:
        self._file, self._counted = file, counted

    closed = False

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(None if size < 0 else size)
        self._counted.append(len(data))
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def size(self) -> int:
        return self._file.size()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        self._file.close()
