"""Input that cannot be written: the error names what is wrong and what to do, and not one byte of the table changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import (
    CorruptFile,
    InvalidOption,
    InvalidRecord,
    SchemaConflict,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lakebed.properties.file import update_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from support.locks import held
from support.write_tables import SCHEMA, content, files, refused, rows

Make = Callable[..., Table]
FIRST = [(1, "c", "a", 10)]
ADDING = ("upsert", "insert", "bulk_insert", "insert_overwrite")
BOTH = pytest.mark.parametrize("index", ["bucket", "simple"])
EVERY_ADDING = pytest.mark.parametrize("operation", ADDING)


def write(table: Table, operation: str, data: Any, **options: Any) -> Any:
    return getattr(lakebed.open(table.uri), operation)(data, **options)


@BOTH
@EVERY_ADDING
@pytest.mark.parametrize(
    ("column", "role"), [("id", "record key"), ("city", "partition"), ("ts", "ordering"), ("v", "columns")]
)
def test_data_without_a_needed_column_is_refused(
    make: Make, index: str, operation: str, column: str, role: str
) -> None:
    table = make(index=index)
    table.upsert(rows(*FIRST))
    role = "lacks" if role == "columns" else role
    with refused(table.uri, SchemaConflict, column, role):
        write(table, operation, rows(*FIRST).drop_columns([column]))


@BOTH
@EVERY_ADDING
@pytest.mark.parametrize("bad", [(None, "c", "b", 1), (2, "c", "b", None)], ids=["key", "ordering value"])
def test_a_null_where_none_may_be(make: Make, index: str, operation: str, bad: tuple[Any, ...]) -> None:
    table = make(index=index)
    table.upsert(rows(*FIRST))
    before = files(table.uri)
    with pytest.raises(InvalidRecord, match="null") as raised:
        write(table, operation, rows((5, "c", "b", 1), bad))
    assert raised.value.hint
    after = files(table.uri)
    new = set(after) - set(before)
    assert {path: after[path] for path in before if "lock" not in path} == {
        path: data for path, data in before.items() if "lock" not in path
    }
    assert all(".rollback" in path for path in new), new
    assert content(table) == FIRST


@pytest.mark.parametrize("index", ["bucket", "simple", "global_simple"])
def test_null_keys_among_duplicates(make: Make, index: str) -> None:
    table = make(index=index)
    with pytest.raises(InvalidRecord, match=r"\d row\(s\) have a null or empty record key"):
        table.upsert(rows((None, "c", "a", 1), (None, "c", "b", 1), (1, "c", "b", 1), (1, "c", "b", 1)))
    assert content(table) == []


def test_an_empty_text_is_no_key(make: Make) -> None:
    table = make(pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())]))
    with pytest.raises(InvalidRecord, match="empty record key"):
        table.upsert(pa.table({"id": ["a", ""], "city": ["c", "c"], "ts": [1, 1]}))


@EVERY_ADDING
def test_a_column_given_twice_is_refused(make: Make, operation: str) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    twice = rows(*FIRST).append_column("v", pa.array(["x"]))
    with refused(table.uri, SchemaConflict, "v"):
        write(table, operation, twice)
    with refused(table.uri, SchemaConflict, "V"):
        write(table, operation, rows(*FIRST).append_column("V", pa.array(["x"])))


@EVERY_ADDING
@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("ts", pa.array(["text"])),
        ("ts", pa.array([{"a": 1}])),
        ("id", pa.array([True])),
        ("id", pa.array([1.0])),
        ("id", pa.array(["1"])),
        ("city", pa.array([b"c"])),
        ("ts", pa.array([1.5])),
        ("v", pa.array([[1]])),
        ("v", pa.array([1], pa.duration("s"))),
    ],
    ids=[
        "ordering text",
        "ordering struct",
        "key bool",
        "key double",
        "key text",
        "partition binary",
        "ordering double",
        "list",
        "duration",
    ],
)
def test_a_key_of_another_type_is_refused(make: Make, operation: str, column: str, values: pa.Array) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    at = SCHEMA.get_field_index(column)
    with refused(table.uri, SchemaConflict, column):
        write(table, operation, rows(*FIRST).set_column(at, column, values))


@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize(
    ("option", "value", "error", "words"),
    [
        ("hoodie.upsert.paralelism", 4, InvalidOption, ("hoodie.upsert.paralelism", "shuffle.parallelism")),
        ("lakebed.write.memry", 4, InvalidOption, ("lakebed.write.memory",)),
        ("hoodie.parquet.max.file.size", "big", InvalidOption, ("hoodie.parquet.max.file.size", "big")),
        ("hoodie.index.type", "INMEMORY", UnsupportedFeature, ("INMEMORY",)),
        ("hoodie.datasource.write.recordkey.field", "v", InvalidOption, ("have v", "has id")),
        ("hoodie.table.name", "other", InvalidOption, ("other",)),
        ("hoodie.index.type", "GLOBAL_SIMPLE", InvalidOption, ("simple",)),
        ("hoodie.write.table.version", 6, InvalidOption, ("6", "9")),
        ("hoodie.parquet.compression.codec", "lzo", UnsupportedFeature, ("lzo",)),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    make: Make, operation: str, option: str, value: Any, error: type[lakebed.LakebedError], words: tuple[str, ...]
) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    with refused(table.uri, error, *words):
        write(table, operation, rows(*FIRST), options={option: value})


def test_another_bucket_count_or_hash_field(make: Make) -> None:
    table = make(index="bucket", key=["id", "v"], hash_fields="id")
    table.upsert(rows(*FIRST))
    for options, word in [
        ({"hoodie.bucket.index.num.buckets": 3, "hoodie.index.type": "BUCKET"}, "3"),
        ({"hoodie.bucket.index.hash.field": "v", "hoodie.index.type": "BUCKET"}, "v"),
        ({"hoodie.index.type": "SIMPLE"}, "simple"),
    ]:
        with refused(table.uri, InvalidOption, word):
            write(table, "upsert", rows(*FIRST), options=options)


def test_a_table_that_is_not_there(uri: str) -> None:
    with refused(uri, TableNotFound, uri):
        lakebed.open(uri)
    open_storage(uri).write("some/file.parquet", b"x")
    with refused(uri, TableNotFound, uri):
        lakebed.open(uri)


def test_a_table_that_is_there_already(make: Make) -> None:
    table = make()
    with refused(table.uri, TableExists, table.uri):
        make()


@pytest.mark.parametrize("body", [b"", b"\x00\x01garbage", b"hoodie.table.version=9\n"])
def test_damaged_properties_are_corrupt_files(make: Make, body: bytes) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    open_storage(table.uri).write(".hoodie/hoodie.properties", body)
    with refused(table.uri, CorruptFile, "hoodie.properties"):
        table.upsert(rows(*FIRST))
    with refused(table.uri, CorruptFile, "hoodie.properties"):
        lakebed.open(table.uri)


@pytest.mark.parametrize("damaged", [1, 3])
def test_an_error_says_how_many_file_groups_failed(make: Make, damaged: int) -> None:
    table = make(index="bucket", buckets=4)
    known = rows(*[(key, "c", "a", 10) for key in range(100)])
    table.upsert(known)
    storage = open_storage(table.uri)
    first = [file_slice.base_file.path for file_slice in table.files if file_slice.base_file][:damaged]
    for path in first:
        storage.write(path, storage.read(path)[:-100])
    with pytest.raises(CorruptFile) as raised:
        lakebed.open(table.uri).upsert(known)
    assert raised.value.context["path"] == first[0]
    assert raised.value.context.get("failed_groups", 1) == damaged


def _set_property(uri: str, key: str, value: str) -> None:

    update_table_config(open_storage(uri), {key: value}, held)


@pytest.mark.parametrize("operation", [*ADDING, "delete"])
@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("hoodie.table.partial.update.mode", "KEEP_VALUES", "partial update mode KEEP_VALUES"),
        ("hoodie.record.merge.mode", "CUSTOM", "custom merger that it does not name"),
    ],
)
def test_a_feature_that_writing_would_break(make: Make, operation: str, key: str, value: str, word: str) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    _set_property(table.uri, key, value)
    with refused(table.uri, UnsupportedFeature, word):
        write(table, operation, rows(*FIRST))
    assert content(table) == FIRST


@pytest.mark.parametrize("operation", [*ADDING, "delete", "delete_partitions"])
def test_a_schema_file_of_a_commit_that_never_completed_is_not_read(make: Make, operation: str) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    given: Any = ["c"] if operation == "delete_partitions" else rows(*FIRST)
    open_storage(table.uri).write(".hoodie/.schema/20240101000000000.schemacommit", b"x")
    write(table, operation, given)
    assert lakebed.open(table.uri).schema.names == table.schema.names


def test_an_unfinished_restore_refuses_writes(make: Make) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    storage = open_storage(table.uri)
    storage.write(".hoodie/timeline/20990101000000000.restore.requested", b"")
    with refused(table.uri, UnsupportedFeature, "restore"):
        table.upsert(rows(*FIRST))
    assert content(table) == FIRST


@pytest.mark.parametrize("version", [5, 7, 10])
def test_an_unknown_table_version_is_refused(make: Make, uri: str, version: int) -> None:
    with refused(uri, lakebed.LakebedError, str(version)):
        lakebed.create(uri, SCHEMA, key="id", table_version=version)
    table = make()
    body = (
        open_storage(uri)
        .read(".hoodie/hoodie.properties")
        .replace(b"hoodie.table.version=9", f"hoodie.table.version={version}".encode())
    )
    open_storage(uri).write(".hoodie/hoodie.properties", body)
    with refused(uri, UnsupportedFeature, str(version)):
        lakebed.open(uri)
    with refused(uri, UnsupportedFeature, str(version)):
        table.upsert(rows(*FIRST))


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ({"key": "nope"}, SchemaConflict, "nope"),
        ({"partition_by": "nope"}, SchemaConflict, "nope"),
        ({"ordering": "nope"}, SchemaConflict, "nope"),
        ({"index": "nope"}, InvalidOption, "nope"),
        ({"index": "hbase"}, InvalidOption, "hoodie.index.hbase.zkquorum"),
        ({"index": "bucket", "buckets": 0}, InvalidOption, "0"),
        ({"index": "bucket", "buckets": "8"}, InvalidOption, "'8'"),
        ({"index": "bucket", "hash_fields": "v"}, InvalidOption, "v"),
        ({"merge": "newest"}, InvalidOption, "newest"),
        ({"type": "tree"}, InvalidOption, "tree"),
        ({"properties": {"hoodie.tabel.name": "x"}}, InvalidOption, "hoodie.table.name"),
        ({"key": None, "index": "bucket"}, InvalidOption, "key"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_table_that_cannot_be_made(
    make: Make, uri: str, words: dict[str, Any], error: type[lakebed.LakebedError], said: str
) -> None:
    with refused(uri, error, said):
        make(**words)
    assert files(uri) == {}


@pytest.mark.parametrize(
    "column",
    [
        pa.field("x", pa.null()),
        pa.field("x", pa.duration("s")),
        pa.field("x", pa.month_day_nano_interval()),
        pa.field("x", pa.dense_union([pa.field("a", pa.int32())])),
        pa.field("ID", pa.int32()),
        pa.field("with space", pa.int32()),
    ],
    ids=str,
)
def test_columns_that_no_table_can_have(make: Make, uri: str, column: pa.Field) -> None:
    with refused(uri, SchemaConflict, column.name):
        make(SCHEMA.append(column))


def test_deletes_that_make_no_sense(make: Make) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    with refused(table.uri, InvalidOption, "null"):
        table.delete([1, None])
    with refused(table.uri, lakebed.LakebedError, "nope"):
        table.delete(where="nope = 1")
    with refused(table.uri, lakebed.LakebedError):
        table.delete(where="id = = 1")
    with refused(table.uri, SchemaConflict, "id"):
        table.delete(pa.table({"key": [1]}))
    with refused(table.uri, lakebed.LakebedError):
        table.delete([(1, 2)])
    assert content(table) == FIRST


def test_keys_of_another_type_are_no_keys(make: Make) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    with refused(table.uri, SchemaConflict, "'id'", "int64", "double"):
        table.delete(pa.table({"id": [1.0]}))
    with refused(table.uri, SchemaConflict, "'id'"):
        table.delete(pa.table({"id": ["1"], "city": ["c"]}))
    assert table.delete(pa.table({"id": pa.array([1], pa.int32())})).deleted == 1


def test_a_path_among_the_options_has_to_be_the_one_written_to(tmp_path: Path):
    rows = pa.table({"id": [1], "ts": [1]})
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id", "path": str(tmp_path / "b")}
    with pytest.raises(lakebed.InvalidOption, match="path"):
        lakebed.write(rows, str(tmp_path / "a"), options)
    assert not list(tmp_path.iterdir())
    result = lakebed.write(rows, str(tmp_path / "b"), options)
    assert result is not None
    assert result.inserted == 1


def test_an_ordering_field_inside_a_struct(make: Make) -> None:
    schema = pa.schema([("id", pa.int64()), ("o", pa.struct([("ts", pa.int64())]))])
    uri = f"{make(key='id').uri}/nested"
    words: dict[str, Any] = {"key": "id", "ordering": "o.ts", "index": "simple"}
    table = lakebed.create(uri, schema, **words)
    for given, kept in ((5, 5), (4, 5), (6, 6)):
        table.upsert(pa.table({"id": [1], "o": [{"ts": given}]}, schema))
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "o": {"ts": kept}}]
    table.upsert(pa.table({"id": [2, 2, 2], "o": [{"ts": 1}, {"ts": 3}, {"ts": 2}]}, schema))
    assert table.get([2]).to_pylist() == [{"id": 2, "o": {"ts": 3}}]
    for missing in (None, {"ts": None}):
        with pytest.raises(InvalidRecord, match=r"ordering field 'o\.ts' is null"):
            table.upsert(pa.table({"id": [1], "o": [missing]}, schema))


@pytest.mark.parametrize(
    "fields", [{"key": ["id", "city"], "partition_by": "ts"}, {"key": "id", "partition_by": ["city", "ts"]}]
)
def test_a_key_generator_that_takes_one_field_is_refused_before_the_table_is_there(fields: dict[str, Any]) -> None:
    uri = "memory://bad-input/generators"
    properties = {
        "hoodie.table.keygenerator.type": "TIMESTAMP",
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy",
    }
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
    with pytest.raises(InvalidOption, match="the key generator TIMESTAMP takes one"):
        lakebed.create(uri, schema, properties=properties, **fields)
    assert not lakebed.list_tables(uri, depth=0)


@pytest.mark.parametrize(("role", "named"), [("key", "key"), ("partition", "partition_by"), ("ordering", "ordering")])
def test_a_column_that_a_new_table_names_twice_is_refused(role: str, named: str) -> None:
    uri = f"memory://twice/{role}"
    for names in (["id", "id"], ["id", "ID"]):
        with pytest.raises(InvalidOption, match=f"the {role} columns name 'id' twice"):
            lakebed.create(uri, SCHEMA, **{"key": "id", named: names})  # type: ignore[arg-type]
    assert not lakebed.list_tables(uri, depth=0)


@pytest.mark.parametrize("version", [0, -1, 7, 10])
def test_a_table_version_that_is_none_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedFeature, match=f"tables of version {version} cannot be created"):
        lakebed.create("memory://versions/none", SCHEMA, key="id", table_version=version)
