"""Files as a source: as they arrive, by time and name, in all formats, with lines that are no rows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.ingestion.sources.files import FilePosition, FilesSource


def put(folder: Path, name: str, text: str | bytes, modified: int) -> None:
    """A file with this time in seconds."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, (modified, modified))


def source(folder: Path, **settings: Any) -> FilesSource:
    return FilesSource.of({"path": str(folder), **settings})


def polled(found: FilesSource, checkpoint: str | None, limit: int = 1000) -> tuple[list[Any], str | None, bool]:
    poll = found.poll(checkpoint, limit)
    return ([] if poll.rows is None else poll.rows.to_pylist()), poll.checkpoint, poll.more


def test_new_files_are_read_oldest_first_and_each_once(tmp_path: Path) -> None:
    put(tmp_path, "b.csv", "id\n1\n", 100)
    put(tmp_path, "a.csv", "id\n2\n", 200)
    rows, first, _ = polled(source(tmp_path), None)
    assert ([row["id"] for row in rows], first) == ([1, 2], '200000\n["a.csv"]')
    assert polled(source(tmp_path), first) == ([], first, False)
    put(tmp_path, "sub/c.csv", "id\n3\n", 300)
    rows, second, _ = polled(source(tmp_path), first)
    assert ([row["id"] for row in rows], second) == ([3], '300000\n["sub/c.csv"]')


def test_a_file_with_the_time_of_the_last_one_is_new_whatever_its_name(tmp_path: Path) -> None:
    put(tmp_path, "m.csv", "id\n1\n", 100)
    _, first, _ = polled(source(tmp_path), None)
    put(tmp_path, "a.csv", "id\n2\n", 100)
    put(tmp_path, "z.csv", "id\n3\n", 100)
    rows, second, _ = polled(source(tmp_path), first)
    assert ([row["id"] for row in rows], second) == ([2, 3], '100000\n["a.csv","m.csv","z.csv"]')
    assert polled(source(tmp_path), second)[0] == []


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "id\n1\n", 100)
    _, first, _ = polled(source(tmp_path), None)
    put(tmp_path, "a.csv", "id\n1\n2\n", 101)
    assert [row["id"] for row in polled(source(tmp_path), first)[0]] == [1, 2]


def test_after_a_checkpoint_of_hudi_files_of_its_time_count_as_read(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "id\n1\n", 100)
    put(tmp_path, "b.csv", "id\n2\n", 101)
    assert [row["id"] for row in polled(source(tmp_path), "100000")[0]] == [2]
    with pytest.raises(InvalidOption, match="none of a source of files"):
        polled(source(tmp_path), "trips,0:1")
    assert str(FilePosition.of('5\n["a"]')) == '5\n["a"]'


def test_a_round_takes_files_up_to_its_bounds_and_one_at_least(tmp_path: Path) -> None:
    for n in range(4):
        put(tmp_path, f"{n}.csv", f"id\n{n}\n", 100)
    assert polled(source(tmp_path, max_bytes=1), None)[0] == [{"id": 0}]
    rows, checkpoint, more = polled(source(tmp_path), None, limit=2)
    assert ([row["id"] for row in rows], more) == ([0, 1], True)
    assert [row["id"] for row in polled(source(tmp_path), checkpoint)[0]] == [2, 3]
    poll = source(tmp_path).poll(None, 1)
    assert poll.lag == {"files": 3, "bytes": 15}


def test_hidden_files_young_files_and_a_folder_that_is_not_there_yet_are_nothing(tmp_path: Path) -> None:
    assert polled(source(tmp_path / "later"), None) == ([], None, False)
    put(tmp_path, "_part.csv", "id\n1\n", 100)
    put(tmp_path, ".a.csv", "id\n1\n", 100)
    (tmp_path / "young.csv").write_text("id\n1\n")
    assert polled(source(tmp_path, min_age=60.0), None)[0] == []
    assert polled(source(tmp_path, min_age=0.0), None)[0] == [{"id": 1}]
    assert polled(source(tmp_path, start=2**50), None)[0] == []


def test_all_formats_are_rows(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "city": ["rome"]})
    pq.write_table(rows, tmp_path / "a.parquet")
    pyarrow.feather.write_feather(rows, tmp_path / "b.arrow", compression="uncompressed")
    put(tmp_path, "c.csv", "id,city\n1,rome\n", 100)
    put(tmp_path, "d.jsonl", '{"id": 1, "city": "rome"}\n', 100)
    put(tmp_path, "e.json", '[{"id": 1, "city": "rome"}]', 100)
    schema = {
        "type": "record",
        "name": "T",
        "fields": [{"name": n, "type": t} for n, t in (("id", "long"), ("city", "string"))],
    }
    with open(tmp_path / "f.avro", "wb") as file:
        fastavro.writer(file, schema, rows.to_pylist())
    found, _, _ = polled(source(tmp_path), None)
    assert found == [{"id": 1, "city": "rome"}] * 6
    put(tmp_path / "named", "g", '{"id": 2}\n', 100)
    assert polled(source(tmp_path / "named", format="json"), None)[0] == [{"id": 2}]


def test_columns_of_folders_and_types_of_columns_are_those_that_the_job_names(tmp_path: Path) -> None:
    put(tmp_path, "day=2024-01-31/a.csv", "id;zip\n1;0123\n", 100)
    (row,), _, _ = polled(source(tmp_path, delimiter=";", columns={"zip": "string"}), None)
    assert (row["zip"], str(row["day"])) == ("0123", "2024-01-31")
    (row,), _, _ = polled(source(tmp_path, delimiter=";", partitioning="none"), None)
    assert row == {"id": 1, "zip": "0123"}


def test_a_file_with_bad_lines_keeps_the_columns_of_its_folders(tmp_path: Path) -> None:
    put(tmp_path, "day=1/a.csv", "id,v\n1,2\n2\n3,4\n", 100)
    put(tmp_path, "day=2/b.jsonl", '{"id":4,"v":5}\nno\n', 101)
    put(tmp_path, "day=x/c.csv", "id,v,day\n5,6,7\n", 102)
    (tmp_path / "day=3").mkdir()
    with (tmp_path / "day=3" / "d.avro").open("wb") as file:
        schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
        fastavro.writer(file, schema, [{"id": 6}])
    found = source(tmp_path)
    found.types = {"id": pa.int64(), "v": pa.int64(), "day": pa.int64()}
    poll = found.poll(None, 1000)
    assert poll.rows is not None
    assert poll.bad is not None
    days = {row["id"]: row["day"] for row in poll.rows.to_pylist()}
    assert days == {1: 1, 3: 1, 4: 2, 5: 7, 6: 3}
    assert poll.bad["position"].to_pylist() == ["day=1/a.csv:3", "day=2/b.jsonl:2"]


@pytest.mark.parametrize(("name", "text"), [("a.csv", "id\n2\n"), ("a.csv", "id\n2\n3,4\n"), ("a.jsonl", '{"id":2}\n')])
def test_a_file_whose_folder_names_no_value_of_the_column_is_one_bad_row(tmp_path: Path, name: str, text: str) -> None:
    put(tmp_path, f"day=x/{name}", text, 100)
    put(tmp_path, "day=1/b.csv", "id\n1\n", 101)
    found = source(tmp_path)
    found.types = {"id": pa.int64(), "day": pa.int64()}
    poll = found.poll(None, 1000)
    assert poll.rows is not None
    assert poll.bad is not None
    assert poll.rows.to_pylist() == [{"id": 1, "day": 1}]
    assert poll.bad.select(["position", "payload"]).to_pylist() == [{"position": f"day=x/{name}", "payload": None}]


def test_a_new_column_of_folders_has_the_type_of_all_folders_of_a_round(tmp_path: Path) -> None:
    for at, day in enumerate(["1", "x"]):
        put(tmp_path, f"day={day}/a.csv", f"id\n{at}\n", 100 + at)
    assert polled(source(tmp_path), None)[0] == [{"id": 0, "day": "1"}, {"id": 1, "day": "x"}]


@pytest.mark.parametrize(
    ("name", "text", "bad"),
    [
        ("a.csv", 'id,text\n1,"x\ny"\ntwo,b\n3,c\n4,d,e\n', [("a.csv:4", b"two,b"), ("a.csv:6", b"4,d,e")]),
        ("a.tsv", "id\ttext\n1\tx\ntwo\tb\n3\tc\n", [("a.tsv:3", b"two\tb")]),
        (
            "a.jsonl",
            '{"id":1}\n\n{"id":"two"}\n{"id":3}\nnull\n',
            [("a.jsonl:3", b'{"id":"two"}'), ("a.jsonl:5", b"null")],
        ),
    ],
)
def test_lines_that_are_no_rows_are_bad_by_their_number(
    tmp_path: Path, name: str, text: str, bad: list[tuple[str, bytes]]
) -> None:
    put(tmp_path, name, text, 100)
    found = source(tmp_path)
    found.types = {"id": pa.int64(), "text": pa.string()}
    poll = found.poll(None, 1000)
    assert poll.rows is not None
    assert poll.bad is not None
    assert poll.rows["id"].to_pylist() == [1, 3]
    assert [(row["position"], row["payload"]) for row in poll.bad.to_pylist()] == bad


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.parquet", "PAR1"),
        ("a.avro", "Obj"),
        ("a.json", '[{"id": 1}, {"id": "x"}]'),
        ("a.xlsx", "x"),
        ("a.arrow", ""),
    ],
)
def test_a_file_that_cannot_be_read_is_a_bad_row_and_the_others_are_rows(tmp_path: Path, name: str, text: str) -> None:
    put(tmp_path, name, text, 100)
    put(tmp_path, "b.csv", "id\n7\n", 100)
    found = source(tmp_path)
    found.types = {"id": pa.int64()}
    poll = found.poll(None, 1000)
    assert poll.rows is not None
    assert poll.bad is not None
    assert poll.rows.to_pylist() == [{"id": 7}]
    assert [(row["position"], row["payload"]) for row in poll.bad.to_pylist()] == [(name, None)]


def test_a_row_without_a_key_is_named_by_its_file(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "id,at\n1,1\n,2\n", 100)
    uri = "memory://files-source/keys"
    job = {"source": {"kind": "files", "path": str(tmp_path)}, "target": {"uri": uri, "create": {"key": "id"}}}
    with pytest.raises(InvalidRecord, match=r"a\.csv:row 2 is no row"):
        lakebed.ingest(job, once=True)
    lakebed.ingest(job | {"errors": {"table": f"{uri}-errors"}}, once=True)
    (bad,) = lakebed.open(f"{uri}-errors").to_arrow().to_pylist()
    assert json.loads(bad["payload"]) == {"id": None, "at": 2}


def test_files_with_other_columns_are_one_table_and_types_that_do_not_fit_are_named(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "id,a\n1,x\n", 100)
    put(tmp_path, "b.csv", "id,b\n2.5,7\n", 101)
    assert polled(source(tmp_path), None)[0] == [{"id": 1.0, "a": "x", "b": None}, {"id": 2.5, "a": None, "b": 7}]
    put(tmp_path, "c.csv", "id,a\n3,2024-01-01\n", 102)
    with pytest.raises(lakebed.SchemaConflict, match="do not go together"):
        polled(source(tmp_path), None)


def test_a_folder_that_is_a_table_is_refused(tmp_path: Path) -> None:
    lakebed.create(str(tmp_path / "t"), pa.schema([("id", pa.int64())]), key="id")
    with pytest.raises(InvalidOption, match="is a Hudi table"):
        polled(source(tmp_path / "t"), None)


def test_headers_in_another_case_in_one_round_are_the_same_columns(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "ID,A\n1,x\n", 100)
    put(tmp_path, "b.csv", "id,a\n2,y\n", 101)
    put(tmp_path, "c.jsonl", '{"Id":3,"a":"z"}\n{"iD":4,"B":1}\n', 102)
    uri = "memory://files-source/cases"
    job = {"source": {"kind": "files", "path": str(tmp_path)}, "target": {"uri": uri, "create": {"key": "ID"}}}
    assert lakebed.ingest(job, once=True).rows == 4
    rows = sorted(lakebed.open(uri).to_arrow().to_pylist(), key=lambda row: row["ID"])
    assert [tuple(row.values()) for row in rows] == [(1, "x", None), (2, "y", None), (3, "z", None), (4, None, 1)]


@pytest.mark.parametrize("types", [{}, {"id": pa.int64(), "v": pa.string()}])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_file_without_a_header_that_can_be_read_is_one_bad_row(
    tmp_path: Path, name: str, types: dict[str, Any]
) -> None:
    encoded = {
        text: "id,é\n1,2\n".replace(",", "\t" if name == "a.tsv" else ",").encode(text)
        for text in ("latin-1", "utf-16")
    }
    texts: list[tuple[str | bytes, str]] = [
        ("", "has no header"),
        ("\n\n\n", "has no header"),
        ("\r\n" * 9, "has no header"),
        (encoded["latin-1"], "line 1: the byte 0xe9 is not UTF-8, and no encoding= is given"),
        (encoded["utf-16"], "line 1: the byte 0xff is not UTF-8, and no encoding= is given"),
        ("id,ID\n1,2\n".replace(",", "\t" if name == "a.tsv" else ","), "the columns hold the names id and ID"),
    ]
    for text, error in texts:
        put(tmp_path, name, text, 100)
        put(tmp_path, "b.csv", "id\n7\n", 100)
        found = source(tmp_path)
        found.types = types
        poll = found.poll(None, 1000)
        assert poll.rows is not None
        assert poll.bad is not None
        assert [row["id"] for row in poll.rows.to_pylist()] == [7]
        (bad,) = poll.bad.to_pylist()
        assert (bad["position"], bad["payload"], error in bad["error"]) == (name, None, True), bad["error"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r", "\n\n\n"])
def test_a_header_alone_is_no_row_and_no_bad_row(tmp_path: Path, end: str) -> None:
    put(tmp_path, "a.csv", f"id,v{end}", 100)
    for types in ({}, {"id": pa.int64(), "v": pa.string()}):
        found = source(tmp_path)
        found.types = types
        poll = found.poll(None, 1000)
        assert poll.bad is not None
        assert (poll.rows is None or poll.rows.num_rows == 0, poll.bad.num_rows) == (True, 0)
        assert poll.checkpoint == '100000\n["a.csv"]'


def test_the_encoding_of_texts_is_a_setting(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "id,é\n1,café\nx,1,2\n".encode("latin-1"), 100)
    put(tmp_path, "b.jsonl", '{"id":2,"é":"ü"}\n'.encode("latin-1"), 101)
    put(tmp_path, "c.csv", "id,é\n3,ö\n".encode("utf-16"), 102)
    found = source(tmp_path, encoding="latin-1")
    found.types = {"id": pa.int64()}
    poll = found.poll(None, 2)
    assert poll.rows is not None
    assert poll.bad is not None
    assert poll.rows.to_pylist() == [{"id": 1, "é": "café"}, {"id": 2, "é": "ü"}]
    assert [row["position"] for row in poll.bad.to_pylist()] == ["a.csv:3"]
    rows, _, _ = polled(source(tmp_path, encoding="utf-16", start=102_000), None)
    assert rows == [{"id": 3, "é": "ö"}]
    with pytest.raises(InvalidOption, match="encoding='klingon' is unknown"):
        source(tmp_path, encoding="klingon")


def test_a_line_with_a_byte_that_is_no_text_is_bad_and_the_others_are_rows(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", b"id,v\n1,a\n2,caf\xe9\n3,b\n", 100)
    put(tmp_path, "b.jsonl", b'{"id":4,"v":"a"}\n{"id":5,"v":"\xe9"}\n', 101)
    poll = source(tmp_path).poll(None, 1000)
    assert poll.rows is not None
    assert poll.bad is not None
    assert [row["id"] for row in poll.rows.to_pylist()] == [1, 3, 4]
    assert [(row["position"], row["payload"]) for row in poll.bad.to_pylist()] == [
        ("a.csv:3", b"2,caf\xe9"),
        ("b.jsonl:2", b'{"id":5,"v":"\xe9"}'),
    ]
