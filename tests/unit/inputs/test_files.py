"""Data files in the place of rows: formats, folders, globs, storages, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import random
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import CorruptFile, InvalidOption, InvalidRecord, LakebedError, SchemaConflict
from lakebed.storage import open_storage

ROWS = pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", None], "fare": [9.5, 12.0, 7.25]})


def write(path: Path, rows: pa.Table = ROWS) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffix:
        case ".parquet":
            pq.write_table(rows, path)
        case ".csv":
            pacsv.write_csv(rows, path)
        case ".gz":
            with gzip.open(path, "wb") as file:
                pacsv.write_csv(rows, file)
        case ".json":
            path.write_text(json.dumps(rows.to_pylist()))
        case ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows.to_pylist())))
        case ".arrows":
            with pa.ipc.new_stream(str(path), rows.schema) as stream:
                stream.write_table(rows)
        case _:
            pyarrow.feather.write_feather(rows, str(path))
    return str(path)


def stored(table: lakebed.Table, *columns: str) -> list[dict[str, Any]]:
    return sorted(table.scan(columns=list(columns) or None).to_arrow().to_pylist(), key=lambda row: row["id"])


def table(schema: pa.Schema = ROWS.schema, **options: Any) -> lakebed.Table:
    uri = f"memory://input-files/t{os.urandom(6).hex()}"
    return lakebed.create(uri, schema, key="id", index="bucket", buckets=1, **options)


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz", "json", "jsonl", "arrow", "arrows", "feather"])
def test_the_rows_of_a_file_are_those_of_its_format(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"rows.{ending}")
    made = lakebed.create(f"memory://input-files/{ending}", path, key="id", index="bucket", buckets=1)
    assert made.schema.names == ROWS.column_names
    assert made.upsert(path).inserted == 3
    assert stored(made) == ROWS.to_pylist()


def test_every_verb_takes_a_path(tmp_path: Path) -> None:
    path, t = Path(write(tmp_path / "rows.csv")), table()
    assert t.insert(path).inserted == 3
    assert t.upsert(str(path)).updated == 3
    assert t.explain(upsert=path).rows == 3
    assert t.merge(path).when_matched_update({"fare": "s.fare + 1"}).execute().updated == 3
    assert t.insert_overwrite(path, "table").inserted == 3
    assert t.delete(lakebed.DataFiles(write(tmp_path / "keys.csv", pa.table({"id": [1, 9]})))).deleted == 1
    assert t.delete(write(tmp_path / "more.csv", pa.table({"id": [2]}))).deleted == 1
    assert t.bulk_insert(path).inserted == 3
    assert [row["id"] for row in stored(t)] == [1, 2, 3, 3]


def test_a_job_of_options_takes_a_path(tmp_path: Path) -> None:
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    lakebed.write(write(tmp_path / "rows.parquet"), "memory://input-files/job", options)
    assert stored(lakebed.open("memory://input-files/job")) == ROWS.to_pylist()


def test_a_folder_is_all_files_below_it_but_hidden_ones(tmp_path: Path) -> None:
    for number, name in enumerate(["a.parquet", "more/b.parquet", "_temporary/c.parquet", ".d.parquet"]):
        write(tmp_path / "in" / name, ROWS.set_column(0, "id", pa.array([number * 10 + n for n in range(3)])))
    (tmp_path / "in" / "_SUCCESS").touch()
    t = table()
    t.upsert(str(tmp_path / "in"))
    assert [row["id"] for row in stored(t)] == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize(
    ("glob", "ids"),
    [
        ("*.csv", [1, 2]),
        ("b?c.csv", [2]),
        ("**/*.csv", [1, 2, 3]),
        ("sub*", [3]),
        ("[ab]*.csv", [1, 2]),
        ("su*/*", [3]),
    ],
)
def test_a_glob_stays_in_its_folder_unless_it_has_two_stars(tmp_path: Path, glob: str, ids: list[int]) -> None:
    for id_, name in ((1, "a.csv"), (2, "bxc.csv"), (3, "sub/d.csv")):
        write(tmp_path / name, pa.table({"id": [id_]}))
    t = table(pa.schema([("id", pa.int64())]))
    t.upsert(f"{tmp_path}/{glob}")
    assert [row["id"] for row in stored(t)] == ids


def test_files_of_any_storage_are_read(tmp_path: Path) -> None:
    source = open_storage("memory://input-bucket/in")
    for name in ("a", "b"):
        source.write(f"{name}.csv", b"id,city,fare\n%d,x,1\n" % ord(name))
    t = table()
    t.upsert("memory://input-bucket/in")
    t.upsert("memory://input-bucket/in/a.csv")
    t.upsert("memory://input-bucket/i*/b.csv")
    assert [row["id"] for row in stored(t)] == [97, 98]


def test_folders_name_columns_in_the_types_that_spark_infers(tmp_path: Path) -> None:
    for year, day, city in (("2023", "2023-01-31", "S%C3%A3o"), ("2024", "2024-02-29", "__HIVE_DEFAULT_PARTITION__")):
        write(tmp_path / f"year={year}/day={day}/city={city}/a.parquet", pa.table({"id": [int(year)]}))
    made = lakebed.create("memory://input-files/hive", str(tmp_path), key="id", partition_by="year")
    types = [("id", pa.int64()), ("year", pa.int32()), ("day", pa.date32()), ("city", pa.string())]
    assert made.schema.equals(pa.schema(types))
    made.bulk_insert(str(tmp_path), partitioning="hive")
    assert stored(made) == [
        {"id": 2023, "year": 2023, "day": date(2023, 1, 31), "city": "São"},
        {"id": 2024, "year": 2024, "day": date(2024, 2, 29), "city": None},
    ]
    assert made.partitions == ("2023", "2024")


def test_folders_name_columns_in_the_types_of_the_table(tmp_path: Path) -> None:
    write(tmp_path / "zip=00501/a.csv", pa.table({"id": [1]}))
    t = table(pa.schema([("id", pa.int64()), ("zip", pa.string())]))
    t.upsert(str(tmp_path))
    assert stored(t) == [{"id": 1, "zip": "00501"}]


def test_names_of_folders_can_be_ignored(tmp_path: Path) -> None:
    write(tmp_path / "zip=1/a.csv", pa.table({"id": [1]}))
    t = table(pa.schema([("id", pa.int64())]))
    t.upsert(str(tmp_path), partitioning="none")
    assert stored(t) == [{"id": 1}]
    with pytest.raises(InvalidOption, match="partitioning= goes with a path"):
        t.upsert([{"id": 1}], partitioning="hive")
    with pytest.raises(InvalidOption, match="partitioning='spark' is unknown"):
        t.upsert(str(tmp_path), partitioning="spark")  # pyright: ignore[reportArgumentType]


def test_a_column_in_files_and_folders_has_the_values_of_the_files(tmp_path: Path) -> None:
    write(tmp_path / "city=oslo/a.parquet", pa.table({"id": [1], "city": ["Oslo"]}))
    t = table(pa.schema([("id", pa.int64()), ("city", pa.string())]))
    t.upsert(str(tmp_path))
    assert stored(t) == [{"id": 1, "city": "Oslo"}]


def test_types_of_files_may_differ_in_width(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"id": pa.array([1], pa.int32()), "n": pa.nulls(1)}))
    write(tmp_path / "b.parquet", pa.table({"n": pa.array([1.5], pa.float32()), "id": [1 << 40]}))
    made = lakebed.create("memory://input-files/widths", str(tmp_path), key="id")
    made.upsert(str(tmp_path))
    assert stored(made) == [{"id": 1, "n": None}, {"id": 1 << 40, "n": 1.5}]


def test_json_files_may_lack_columns(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "n": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"id": 2, "m": "x"}\n')
    made = lakebed.create("memory://input-files/json-columns", str(tmp_path), key="id")
    made.upsert(str(tmp_path))
    assert stored(made) == [{"id": 1, "n": 1, "m": None}, {"id": 2, "n": None, "m": "x"}]


def test_a_partial_write_of_a_json_file_leaves_the_columns_that_an_object_lacks(tmp_path: Path) -> None:
    t = table()
    t.upsert(ROWS)
    (tmp_path / "rows.json").write_text('[{"id": 1, "fare": null}]')
    t.upsert(str(tmp_path / "rows.json"), partial=True)
    assert stored(t)[0] == {"id": 1, "city": "Oslo", "fare": None}


@pytest.mark.parametrize(
    ("files", "path", "kind", "message"),
    [
        ({}, "nothing.parquet", InvalidOption, "there is no file or folder"),
        ({}, "", InvalidOption, "no data file is in the folder"),
        ({"a.csv": ROWS}, "*.parquet", InvalidOption, "no file matches"),
        ({"a.xlsx": b"x"}, "", InvalidRecord, "a.xlsx is none of the known kinds of file"),
        ({"a.csv": ROWS, "b.parquet": ROWS}, "", InvalidOption, "files of several formats"),
        ({"a.csv": ROWS, "b.csv": ROWS.drop_columns(["fare"])}, "", SchemaConflict, "b.csv lacks fare"),
        ({"a.parquet": ROWS, "b.parquet": ROWS.append_column("x", [[1] * 3])}, "", SchemaConflict, "has also x"),
        (
            {"a.parquet": ROWS, "b.parquet": ROWS.set_column(2, "fare", [["x"] * 3])},
            "",
            SchemaConflict,
            "fare is double",
        ),
        ({"x=1/a.csv": ROWS, "b.csv": ROWS}, "", SchemaConflict, "different partition columns"),
        ({"a.parquet": b"PAR1 no Parquet"}, "", CorruptFile, "a.parquet cannot be read"),
        ({"_delta_log/0.json": b"{}", "a.parquet": ROWS}, "", InvalidOption, "is a Delta Lake table"),
        ({".hoodie/hoodie.properties": b"", "a.parquet": ROWS}, "", InvalidOption, "is a Hudi table"),
        ({"metadata/v1.metadata.json": b"{}", "data/a.parquet": ROWS}, "", InvalidOption, "is an Iceberg table"),
    ],
)
def test_data_that_is_no_set_of_rows_is_refused_and_nothing_is_written(
    tmp_path: Path, files: dict[str, Any], path: str, kind: type[LakebedError], message: str
) -> None:
    for name, content in files.items():
        if isinstance(content, bytes):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
        else:
            write(tmp_path / name, content)
    t = table()
    with pytest.raises(kind, match=message):
        t.upsert(f"{tmp_path}/{path}")
    assert len(t.timeline) == 0


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "out/a.csv")
    write(tmp_path / "in/b.csv")
    (tmp_path / "in" / "more").symlink_to(tmp_path / "out")
    with pytest.raises(InvalidOption, match="is a link to a folder"):
        table().upsert(str(tmp_path / "in"))


def test_a_partition_value_that_is_none_of_the_table_names_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "year=then/a.csv", pa.table({"id": [1]}))
    with pytest.raises(InvalidRecord, match="year=then, which is no int32"):
        table(pa.schema([("id", pa.int64()), ("year", pa.int32())])).upsert(str(tmp_path))


@pytest.mark.parametrize("bytes_", [8, 1 << 20])
def test_long_texts_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_: int) -> None:
    monkeypatch.setattr("lakebed.inputs.file_formats.TEXT_BYTES", bytes_)
    rows = pa.table({"id": list(range(20)), "n": [*range(19), 1.5], "s": [f"text {n}" for n in range(20)]})
    for ending in ("csv", "jsonl"):
        path = write(tmp_path / f"rows.{ending}", rows)
        made = lakebed.create(f"memory://input-files/long-{ending}-{bytes_}", path, key="id")
        made.bulk_insert(path)
        assert stored(made) == rows.to_pylist()


@pytest.mark.parametrize("bytes_", [8, 1 << 20])
def test_a_header_in_another_case_has_the_types_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_: int
) -> None:
    monkeypatch.setattr("lakebed.inputs.file_formats.TEXT_BYTES", bytes_)
    path = tmp_path / "rows.csv"
    path.write_text("\ufeffID,City,FARE\r\n1,007,1\r\n2,1e3,\r\n", encoding="utf-8")
    target = table()
    target.upsert(str(path))
    assert stored(target) == [{"id": 1, "city": "007", "fare": 1.0}, {"id": 2, "city": "1e3", "fare": None}]


@pytest.mark.parametrize("bytes_", [8, 1 << 20])
@pytest.mark.parametrize("known", [True, False])
def test_only_an_empty_field_of_text_is_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_: int, known: bool
) -> None:
    monkeypatch.setattr("lakebed.inputs.file_formats.TEXT_BYTES", bytes_)
    monkeypatch.setattr("lakebed.inputs.csv_rows._BLOCK_BYTES", 64)
    texts = [*["Oslo"] * 20, "NA", "null", "nan", "N/A", "", '""', '"NA"', "Rome"]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["id,city,fare", *(f"{n},{text},NA" for n, text in enumerate(texts))]))
    target = table() if known else lakebed.create(f"memory://input-files/na{os.urandom(6).hex()}", ROWS, key="id")
    target.bulk_insert(str(path))
    expected = [{'""': "", '"NA"': "NA", "": None}.get(text, text) for text in texts]
    rows = stored(target)
    assert [row["city"] for row in rows] == expected
    assert {row["fare"] for row in rows} == {None}


@pytest.mark.parametrize("verb", ["upsert", "delete", "load", "create", "explain"])
@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_two_columns_of_one_name_in_a_file_are_named(tmp_path: Path, ending: str, verb: str) -> None:
    path = str(tmp_path / f"twice.{ending}")
    twice = pa.table([[1], ["a"], [1.0], [2.0]], names=["id", "city", "fare", "fare"])
    if ending == "csv":
        Path(path).write_text("id,city,fare,fare\n1,a,1,2\n")
    elif ending == "parquet":
        pq.write_table(twice, path)
    else:
        with pa.ipc.new_file(path, twice.schema) as file:
            file.write_table(twice)
    target, uri = table(), f"memory://input-files/twice{os.urandom(6).hex()}"
    calls: dict[str, Any] = {
        "load": lambda: lakebed.load(uri, path, key="id"),
        "create": lambda: lakebed.create(uri, path, key="id"),
        "explain": lambda: target.explain(upsert=path),
    }
    call = calls.get(verb) or (lambda: getattr(target, verb)(path))
    with pytest.raises(SchemaConflict, match=rf"twice\.{ending}: the columns hold twice the name fare"):
        call()
    assert len(target.timeline) == 0


def test_a_quote_that_is_never_closed_is_named_by_its_line(tmp_path: Path) -> None:
    path, target = tmp_path / "rows.csv", table()
    path.write_text('id,city,fare\n1,"two\nlines",1\n2,"open,2\n3,b,3\n')
    with pytest.raises(InvalidRecord, match=r"rows\.csv, line 4: a quote is opened and never closed"):
        target.upsert(str(path))
    assert len(target.timeline) == 0
    path.write_text('id,city,fare\n1,5" pipe,1\n2,"a ""b""",2\n')
    target.upsert(str(path))
    assert [row["city"] for row in stored(target)] == ['5" pipe', 'a "b"']


def test_a_text_that_is_not_utf8_is_named_by_its_line(tmp_path: Path) -> None:
    path, target = tmp_path / "rows.csv", table()
    path.write_bytes("id,city,fare\n1,Rome,1\n2,caf\xe9,2\n".encode("latin-1"))
    with pytest.raises(InvalidRecord, match=r"rows\.csv, line 3: the byte 0xe9 is not UTF-8"):
        target.upsert(str(path))
    assert len(target.timeline) == 0


def test_a_long_array_of_json_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakebed.inputs.file_formats.TEXT_BYTES", 8)
    with pytest.raises(InvalidRecord, match="has no object a line"):
        table().upsert(write(tmp_path / "rows.json"))


def test_a_damaged_arrow_file_is_rows_or_named_whatever_byte_is_wrong(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "s": ["a", None, "c"], "l": [[1], [], None]})
    dice = random.Random(5)
    refused: list[str] = []
    for writer, name in ((pa.ipc.new_file, "a.arrow"), (pa.ipc.new_stream, "a.arrows")):
        sink = pa.BufferOutputStream()
        with writer(sink, rows.schema) as file:
            file.write_table(rows)
        for _ in range(300):
            data = bytearray(sink.getvalue().to_pybytes())
            data[dice.randrange(len(data))] = dice.randrange(256)
            (tmp_path / name).write_bytes(data)
            try:
                list(lakebed.DataFiles(tmp_path / name).read({}).batches())  # pyright: ignore
            except CorruptFile as error:
                refused.append(error.message)
            except (SchemaConflict, InvalidRecord):
                pass
    assert len(refused) > 50
    assert [message for message in refused if "a.arrow" not in message] == []
