"""Arrow takes any bytes for texts: one that is no UTF-8 is refused on every way in, by its column and its bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRecord
from lakebed.ingestion.job import Errors, IngestJob, Target
from lakebed.ingestion.source import IngestPoll
from lakebed.inputs.base import BATCH_ROWS
from lakebed.table import Table

COLUMNS = pa.schema([("id", pa.string()), ("v", pa.string()), ("p", pa.string())])
BEFORE = [{"id": "x", "v": "y", "p": "z"}]
WAYS: dict[str, Callable[[Table, pa.Table], Any]] = {
    "upsert": lambda t, rows: t.upsert(rows),
    "partial": lambda t, rows: t.upsert(rows, partial=True),
    "insert": lambda t, rows: t.insert(rows),
    "bulk_insert": lambda t, rows: t.bulk_insert(rows),
    "insert_overwrite": lambda t, rows: t.insert_overwrite(rows),
    "delete": lambda t, rows: t.delete(rows),
    "merge": lambda t, rows: t.merge(rows).when_matched_update().when_not_matched_insert().execute(),
    "sql": lambda t, rows: lakebed.sql("INSERT INTO t SELECT * FROM s", {"t": t, "s": rows}),
    "ingest": lambda t, rows: lakebed.ingest(IngestJob(Once(rows), Target(t.uri)), once=True),
}


class Once:
    """A source that has rows once."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        return IngestPoll(self._rows if checkpoint is None else None, None, "1")


def texts(*values: bytes, kind: pa.DataType | None = None) -> pa.Array:
    """Bytes that Arrow takes for texts."""
    return pa.array(values, pa.binary() if kind is None else pa.large_binary()).view(kind or pa.string())


def test_a_text_that_is_no_utf8_is_refused_on_every_way_in_and_nothing_is_written() -> None:
    for column in COLUMNS.names:
        rows = pa.table({n: texts(b"a", b"\xff\xfe") if n == column else texts(b"1", b"2") for n in COLUMNS.names})
        for partition_by in ([], ["p"]):
            table = lakebed.create(
                f"memory://broken-texts/{column}{len(partition_by)}", COLUMNS, key="id", partition_by=partition_by
            )
            table.upsert(BEFORE)
            for way in WAYS.values():
                with pytest.raises(InvalidRecord, match=rf"column {column} has a text that is no UTF-8.*\\xff\\xfe"):
                    way(table, rows)
            assert table.scan().to_arrow().to_pylist() == BEFORE


def test_every_layout_of_a_text_is_checked_and_its_bytes_are_named() -> None:
    bad = texts(b"a", b"b", b"\xc3")
    layouts: dict[str, pa.Array] = {
        "plain": bad,
        "large": texts(b"a", b"b", b"\xc3", kind=pa.large_string()),
        "slice": texts(b"\xc3", b"a", b"\xc3")[1:],
        "codes": pa.DictionaryArray.from_arrays(pa.array([0, 2, 1]), bad),
        "view": bad.cast(pa.string_view()),
        "struct": pa.StructArray.from_arrays([bad], ["x"]),
        "list": pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), bad),
        "map": pa.MapArray.from_arrays(pa.array([0, 3], pa.int32()), texts(b"a", b"b", b"c"), bad),
    }
    for name, values in layouts.items():
        rows = pa.table({"id": pa.array(range(len(values))), "v": values})
        with pytest.raises(InvalidRecord) as refused:
            lakebed.create(f"memory://broken-texts/{name}", rows.schema, key="id").upsert(rows)
        assert refused.value.message == f"column v has a text that is no UTF-8: {bytes([0xC3])!r}", name


def test_bytes_under_nulls_are_no_texts_and_stay_out_of_the_table() -> None:
    hidden = pa.StructArray.from_arrays([texts(b"a", b"\xff")], ["x"], mask=pa.array([False, True]))
    rows = pa.table({"id": [1, 2], "v": hidden})
    table = lakebed.create("memory://broken-texts/hidden", rows.schema, key="id")
    table.upsert(rows)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "v": {"x": "a"}}, {"id": 2, "v": None}]


def test_a_broken_text_among_the_batches_of_a_stream_is_refused() -> None:
    batches = [pa.record_batch({"id": texts(b"a"), "v": texts(v)}) for v in (b"x", b"\x80")]
    stream = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    table = lakebed.create("memory://broken-texts/stream", batches[0].schema, key="id")
    with pytest.raises(InvalidRecord, match=r"column v has a text that is no UTF-8.*\\x80"):
        table.upsert(stream)
    assert BATCH_ROWS > 2
    assert table.scan().to_arrow().num_rows == 0


def test_keys_that_are_no_utf8_are_refused_when_they_are_looked_up() -> None:
    table = lakebed.create("memory://broken-texts/keys", COLUMNS, key="id")
    table.upsert(BEFORE)
    for keys in (texts(b"x", b"\xff"), pa.table({"id": texts(b"\xff")})):
        for look in (table.get, table.exists, table.locate, table.delete):
            with pytest.raises(InvalidRecord, match=r"column id has a text that is no UTF-8.*\\xff"):
                look(keys)
    with pytest.raises(InvalidRecord, match="KeyText has a text that is no UTF-8"):
        lakebed.KeyText(texts(b"\xff"))


def test_ingest_makes_a_bad_row_of_a_broken_text_and_writes_the_others() -> None:
    rows = pa.table({"id": texts(b"1", b"2", b"3"), "v": texts(b"a", b"\xffb", b"c"), "p": texts(b"", b"", b"")})
    table = lakebed.create("memory://broken-texts/ingest", COLUMNS, key="id")
    errors = Errors("memory://broken-texts/errors")
    done = lakebed.ingest(IngestJob(Once(rows), Target(table.uri), errors=errors), once=True)
    assert [(r["id"], r["v"]) for r in table.scan().to_arrow().sort_by("id").to_pylist()] == [("1", "a"), ("3", "c")]
    (bad,) = lakebed.open(errors.table or "").scan().to_arrow().to_pylist()
    assert "column v has a text that is no UTF-8" in bad["error"]
    assert b"\xef\xbf\xbdb" in bad["payload"]
    assert done is not None
