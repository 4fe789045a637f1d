"""The HBase index without a server: messages, cells, rows, notes and which places count."""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from lakebed.config.option_table import options
from lakebed.config.options import resolve_options
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.index.hbase.client import (
    DELETED,
    OLD_PARTITION,
    ROWS,
    HBaseTable,
    Pace,
    client_of,
    is_of_a_job,
    job_texts,
    notes_of,
    row_keys,
    split_notes,
    visible_locations,
)
from lakebed.index.hbase.connection import (
    Answer,
    Connection,
    Unserved,
    bytes_field,
    column_field,
    data_of,
    fields,
    joined,
    number_field,
    read_cells,
)
from lakebed.index.hbase.native import (  # pyright: ignore[reportPrivateUsage]
    Region,
    _Batch,
    _Calls,
    _regions_of,
)
from lakebed.index.registry import check_same_index, job_index, make_index, recorded_index
from lakebed.model import FILE_ID


def binary(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def test_columns_of_messages_are_what_each_alone_would_be() -> None:
    rows = binary(b"", b"k", b"x" * 200, b"\0\xff")
    column = column_field(3, joined(number_field(6, 300), column_field(1, rows)))
    assert bytes(data_of(column)) == b"".join(
        bytes_field(3, number_field(6, 300) + bytes_field(1, row)) for row in rows.to_pylist()
    )
    assert bytes(data_of(column.slice(1, 1))) == bytes_field(3, number_field(6, 300) + bytes_field(1, b"k"))
    (_, first), *_ = fields(memoryview(bytes(data_of(column))))
    assert isinstance(first, memoryview)
    assert dict(fields(first)) == {6: 300, 1: b""}


def test_a_field_that_is_cut_off_is_refused() -> None:
    with pytest.raises(ValueError, match="a field of"):
        list(fields(memoryview(bytes_field(1, b"abc")[:-1])))


def cell(row: bytes, qualifier: bytes, time: int, value: bytes) -> bytes:
    key = struct.pack(">H", len(row)) + row + b"\x02_s" + qualifier + struct.pack(">qB", time, 4)
    body = struct.pack(">ii", len(key), len(value)) + key + value
    return struct.pack(">i", len(body)) + body


def test_cells_become_rows_with_a_column_for_each_qualifier() -> None:
    block = cell(b"a", b"x", 1 << 40, b"1") + cell(b"a", b"y", 2, b"") + cell(b"\xff", b"y", 3, b"long" * 50)
    table = read_cells(memoryview(block)).table({"one": b"x", "two": b"y"})
    assert table.to_pylist() == [
        {"row": b"a", "one": b"1", "one.time": 1 << 40, "two": b"", "two.time": 2},
        {"row": b"\xff", "one": None, "one.time": None, "two": b"long" * 50, "two.time": 3},
    ]
    assert read_cells(memoryview(b"")).table({"one": b"x"}).num_rows == 0
    with pytest.raises((ValueError, struct.error)):
        read_cells(memoryview(block[:-1]))


def test_rows_find_their_regions() -> None:
    rows = binary(b"z", b"b", b"a", b"", b"m", b"bb")
    assert _regions_of(rows, [b"", b"b", b"m"]).tolist() == [2, 1, 0, 0, 2, 1]


@pytest.mark.parametrize(
    ("key", "buckets", "row"),
    [
        ("a", 8, b"1a"),
        ("a", 12, b"01a"),
        ("", 8, b"0"),
        ("polygenelubricants", 8, b"0polygenelubricants"),  # its hash is Java's least number
        ("polygenelubricants", 10, b"-8polygenelubricants"),
        ("größe", None, "größe".encode()),
    ],
)
def test_rows_of_spread_keys_are_javas(key: str, buckets: int | None, row: bytes) -> None:
    assert row_keys(pa.array([key]), buckets).to_pylist() == [row]


class BrokenConnection(Connection):
    """Takes so many calls, answers so many, and is lost then; an answer may be cut off."""

    def __init__(self, calls: int, answers: int, block: bytes = b"") -> None:
        self.where = "there"
        self._left, self._answers, self._block = calls, answers, block
        self._sent = list[int]()

    def send(self, method: str, *parts: bytes | memoryview) -> int:
        if not self._left:
            raise Unserved("broken pipe", passing=True)
        self._left -= 1
        self._sent.append(len(self._sent))
        return self._sent[-1]

    def receive(self) -> tuple[int, Answer | Unserved]:
        if not self._answers:
            raise Unserved("the server closed the connection", passing=True)
        self._answers -= 1
        served = bytes_field(1, bytes_field(1, number_field(1, 0)))
        return self._sent.pop(0), Answer(memoryview(served), memoryview(self._block))


@pytest.mark.parametrize(("calls", "answers"), [(c, a) for c in range(4) for a in range(c + 1)])
@pytest.mark.parametrize("block", [b"", b"cut off"])
def test_rows_of_a_lost_connection_are_all_asked_for_again(calls: int, answers: int, block: bytes) -> None:
    region = Region(b"", b"", b"r", ("there", 1))
    batches = [_Batch([(region, np.array([number]))]) for number in range(3)]
    connection = BrokenConnection(calls, answers, block)
    taken = list[Answer]()

    def take(answer: Answer) -> None:
        answer.cells()
        taken.append(answer)

    lost = _Calls(lambda _: connection, ("there", 1), batches, binary(b"a", b"b", b"c"), Pace()).run(take)
    numbers = sorted(int(number) for numbers, _ in lost for number in numbers)
    assert len(taken) == (answers if calls == 3 and not block else 0)
    assert numbers == list(range(len(taken), 3))


Row = tuple[str, str | None, str | None, str | None, str | None]


def stored(*rows: Row) -> pa.Table:
    names = ("row", "instant", "file_id", "partition", "note")
    texts = [{n: None if v is None else v.encode() for n, v in zip(names, row, strict=True)} for row in rows]
    return pa.Table.from_pylist(texts, schema=ROWS)


def visible_places(found: pa.Table, keys: Sequence[str], commits: str) -> list[tuple[str | None, str | None, bool]]:
    table = visible_locations(pa.array(keys), found, None, lambda instant: instant in commits.split())
    columns = (table[name].to_pylist() for name in (OLD_PARTITION, FILE_ID, DELETED))
    return list(zip(*columns, strict=True))


def test_only_places_of_commits_count() -> None:
    found = stored(
        ("known", "2", "f2", "p2", None),
        ("failed", "9", "f9", "p9", None),
        ("moved", "9", "f9", "p9", "9\0002\0f2\0p\0q"),
        ("moved long ago", "3", "f3", "p3", "3\0002\0f2\0p2"),
        ("hudi moved it since", "9", "f9", "p9", "3\0002\0f2\0p2"),
        ("deleted", "2", "f2", "p2", "3"),
        ("not deleted", "2", "f2", "p2", "9"),
        ("back again", "4", "f4", "p4", "3"),
    )
    keys = [*(row.decode() for row in found["row"].to_pylist()), "unknown"]
    assert visible_places(found, keys, "2 3 4") == [
        ("p2", "f2", False),
        (None, None, False),
        ("p\0q", "f2", False),
        ("p3", "f3", False),
        (None, None, False),
        ("p2", "f2", True),
        ("p2", "f2", False),
        ("p4", "f4", False),
        (None, None, False),
    ]


def test_notes_are_read_as_they_were_written() -> None:
    known = visible_locations(pa.array(["a", "b"]), stored(("a", "2", "f", "p", None)), None, lambda _: True)
    notes = notes_of("7", known)
    assert notes.to_pylist() == [b"7\x002\x00f\x00p", b""]
    parts = split_notes(notes.cast(pa.string()))
    assert [part.to_pylist() for part in parts] == [["7", None], ["2", None], ["f", None], ["p", None]]


def test_settings_go_into_properties_and_back() -> None:
    options = {
        "hoodie.index.class": "org.apache.hudi.index.hbase.RebalancedSparkHoodieHBaseIndex",
        "hoodie.index.hbase.zkquorum": "a,b:99",
        "hoodie.index.hbase.zkport": 2182,
        "hoodie.index.hbase.table": "keys",
        "hoodie.hbase.index.update.partition.path": True,
    }
    index = job_index(resolve_options(options).index, ["id"])
    assert index is not None
    again = recorded_index(index.settings())
    assert again is not None
    assert dict(again.settings()) == {
        "type": "hbase",
        "update_partition": "true",
        "hbase.zkquorum": "a,b:99",
        "hbase.zkport": "2182",
        "hbase.table": "keys",
        "hbase.bucket.number": "8",
    }
    faster = job_index(resolve_options({**options, "hoodie.index.hbase.get.batch.size": 7}).index, ["id"])
    assert faster is not None
    check_same_index(again, faster)
    elsewhere = job_index(resolve_options({**options, "hoodie.index.hbase.table": "other"}).index, ["id"])
    assert elsewhere is not None
    with pytest.raises(InvalidOption, match="the write asks for hbase"):
        check_same_index(again, elsewhere)


def test_a_quorum_has_the_port_where_it_names_none() -> None:
    assert HBaseTable("a, b:99", "t", port=2182).hosts == "a:2182,b:99"


def test_missing_settings_are_named() -> None:
    with pytest.raises(InvalidOption, match=r"needs hoodie\.index\.hbase\.table, hoodie\.index\.hbase\.zkquorum"):
        make_index("hbase", key_fields=["id"])


def test_kerberos_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="Kerberos is not spoken"):
        resolve_options({"hoodie.index.hbase.security.authentication": "kerberos"})


@pytest.mark.parametrize(("package", "transport"), [("kazoo", "native"), ("happybase", "thrift")])
def test_a_missing_package_names_the_extra(package: str, transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedFeature, match=rf"needs the package {package}.*lakebed\[hbase\]"):
        client_of(HBaseTable(f"no {package}", "t", transport=transport, thrift_host="h"))


@pytest.mark.parametrize(
    ("name", "passing"),
    [
        ("org.apache.hadoop.hbase.NotServingRegionException", True),
        ("org.apache.hadoop.hbase.exceptions.RegionMovedException", True),
        ("org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException", False),
        ("org.apache.hadoop.hbase.DoNotRetryIOException", False),
    ],
)
def test_passing_errors_are_tried_again(name: str, passing: bool) -> None:
    assert Unserved.of_java(name, f"{name}: so it is\n at x").passing is passing


def test_a_rate_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("lakebed.index.hbase.client.time.sleep", slept.append)
    monkeypatch.setattr("lakebed.index.hbase.client.time.monotonic", lambda: 100.0)
    pace = Pace(rows_a_second=100.0)
    for _ in range(3):
        pace.take("one", 50)
    pace.take("other", 50)
    assert slept == [0.5, 1.0]


def test_a_job_names_each_setting_of_the_table_by_an_option() -> None:
    job = {
        "hoodie.index.type": "HBASE",
        "hoodie.index.hbase.zkquorum": "zk",
        "hoodie.index.hbase.zkport": "2182",
        "hoodie.index.hbase.table": "keys",
        "hoodie.index.hbase.rollback.sync": "true",
        "hoodie.index.hbase.qps.fraction": "0.25",
        "lakebed.index.hbase.retry_ms": "5",
    }
    named = resolve_options(job).index.hbase
    table = HBaseTable("zk", "keys", 2182, rollback_sync=True, qps_fraction=0.25, retry_ms=5)
    assert HBaseTable.of_texts(job_texts(named)) == table
    assert HBaseTable.of_texts(table.texts()) == table
    assert {key for key in table.texts() if is_of_a_job(key)} == {"hbase.qps.fraction", "hbase.retry_ms"}
    names = {option.setting.removeprefix("hbase.") for option in options().values()}
    assert {setting.name for setting in dataclasses.fields(HBaseTable)} <= names


def test_rows_are_spread_where_a_job_names_the_rebalanced_class() -> None:
    rebalanced = "org.apache.hudi.index.hbase.RebalancedSparkHoodieHBaseIndex"
    buckets = {"hoodie.index.hbase.bucket.number": "3"}
    plain = rebalanced.replace("Rebalanced", "")
    found = [
        job_texts(resolve_options({"hoodie.index.class": name, **more}).index.hbase).get("hbase.bucket.number")
        for name, more in ((rebalanced, {}), (rebalanced, buckets), (plain, buckets))
    ]
    assert found == ["8", "3", None]
