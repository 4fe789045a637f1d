"""Values that make no partition path of the table are refused by column, value and row before a byte is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.expressions.key_generators import KeyGeneratorSpec, key_generator
from lakebed.expressions.partition_paths import PathCheck
from lakebed.filters.sql import parse_filter
from lakebed.read.prune import PartitionLayout, prune_partitions
from lakebed.table import Table
from support.write_tables import SCHEMA, content, refused, rows

Make = Callable[..., Table]
HIVE = {"hoodie.datasource.write.hive_style_partitioning": True}
ENCODE = {"hoodie.datasource.write.partitionpath.urlencode": True}
DROP = {"hoodie.datasource.write.drop.partition.columns": True}
BAD = (
    *(".hoodie", ".hoodie/metadata", ".hoodie_partition_metadata", "a/.HOODIE", "__all_partitions__"),
    *("..", ".", "../other", "a/../b", "a/./b", "/abs", "//abs", "a/", "a//b", "/"),
    *("a\\b", "a\0b", "a\nb", "\x7f", "x" * 256, "é" * 128, "a/" + "x" * 300),
)
GOOD = ("a", "a/b", "...", ".hidden", "a..b", "x" * 255, "é" * 127, "hoodie", "a b", "C:x", "%2e%2e", "~", "a=b", "*")


@pytest.mark.parametrize("value", BAD)
def test_a_bad_value_is_refused_before_anything_is_written(make: Make, uri: str, value: str) -> None:
    table = make()
    table.upsert(rows((1, "c", "a", 10)))
    with refused(uri, InvalidRecord, "'city'", "row 2", repr(value[:60])[:-1]):
        table.upsert(rows((1, "c", "b", 20), (2, "d", "b", 20), (3, value, "b", 20)))
    assert content(table) == [(1, "c", "a", 10)]


@pytest.mark.parametrize("index", ["bucket", "simple", "global_simple", "record"])
@pytest.mark.parametrize("verb", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_every_verb_refuses_partition_values_that_lead_elsewhere(make: Make, uri: str, index: str, verb: str) -> None:
    table = make(index=index)
    table.upsert(rows((1, "c", "a", 10)))
    with refused(uri, InvalidRecord, "city", "../x"):
        getattr(table, verb)(rows((1, "../x", "b", 20)))
    coded = rows((1, "/x", "b", 20))
    coded = coded.set_column(1, "city", coded["city"].dictionary_encode())
    with refused(uri, InvalidRecord, "city", "/x"):
        getattr(table, verb)(coded)
    with refused(uri, InvalidOption, "no partition"):
        table.delete_partitions(["../x"])
    with refused(uri, InvalidRecord, "../x"):
        options = {"hoodie.static.overwrite.partition.paths": "../x"}
        table.insert_overwrite(rows((1, "c", "b", 20)), options=options)
    assert content(table) == [(1, "c", "a", 10)]


@pytest.mark.parametrize("properties", [{}, HIVE, ENCODE, HIVE | ENCODE], ids=["plain", "hive", "encoded", "both"])
def test_other_values_are_written_and_found_by_their_filter(
    make: Make, tmp_path: Path, properties: dict[str, Any]
) -> None:
    values = [v[:100] for v in GOOD]
    if ENCODE.items() <= properties.items():
        values += ["/abs", "a/", "a//b", "a\\b", "a\0b", "a\nb", "\x7f", "a/../b"]
    if HIVE.items() <= properties.items():
        values += ["..", ".", ".hoodie", "__all_partitions__"]
    table = lakebed.create(
        str(tmp_path / "t"), SCHEMA, key="id", partition_by="city", ordering="ts", index="simple", properties=properties
    )
    given = [(n, value, "a", 1) for n, value in enumerate(values)]
    table.upsert(rows(*given))
    assert content(table) == given
    for n, value in enumerate(values):
        assert table.scan(where=pc.field("city") == value).to_arrow()["id"].to_pylist() == [n], value
    assert lakebed.open(table.uri).scan().count() == len(values)


@pytest.mark.parametrize("properties", [{}, HIVE], ids=["plain", "hive"])
def test_a_slash_in_one_of_two_partition_columns_hides_no_rows(make: Make, properties: dict[str, Any]) -> None:
    table = make(partition_by=["city", "v"], properties=properties)
    given = [(1, "a/b", "c", 1), (2, "a", "b/c", 1), (3, "a", "c", 1)]
    table.upsert(rows(*given))
    assert content(table) == given
    for n, city, v, _ in given:
        found = table.scan(where=f"city = '{city}' and v = '{v}'").to_arrow()["id"].to_pylist()
        assert found == [n]


@pytest.mark.parametrize("properties", [DROP, DROP | HIVE], ids=["plain", "hive"])
def test_a_slash_in_one_of_two_columns_that_only_the_path_holds(
    make: Make, uri: str, properties: dict[str, Any]
) -> None:
    table = make(partition_by=["city", "v"], properties=properties)
    table.upsert(rows((1, "a", "b", 1)))
    for bad in ((2, "a/x", "b", 1), (2, "a", "b/x", 1)):
        with refused(uri, InvalidRecord, "slash", "row 0"):
            table.upsert(rows(bad))
    assert [(row["id"], row["city"], row["v"]) for row in table.scan().to_arrow().to_pylist()] == [(1, "a", "b")]
    single = lakebed.create(f"{uri}2", SCHEMA, key="id", partition_by="city", index="simple", properties=properties)
    single.upsert(rows((1, "a/x", "b", 1)))
    assert single.scan().to_arrow().to_pylist()[0]["city"] == "a/x"


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
@pytest.mark.parametrize("properties", [DROP, DROP | HIVE, DROP | ENCODE], ids=["plain", "hive", "encoded"])
def test_a_value_that_the_path_alone_would_give_as_null_is_refused(
    make: Make, uri: str, properties: dict[str, Any], value: str
) -> None:
    table = make(properties=properties)
    null = rows((1, "a", "b", 1), (2, "a", "b", 1))
    table.upsert(null.set_column(1, "city", pa.array(["a", None])))
    with refused(uri, InvalidRecord, "would read null", "row 1"):
        table.upsert(rows((3, "a", "b", 1), (4, value, "b", 1)))
    with refused(uri, InvalidRecord, "would read null", "city"):
        stream = pa.RecordBatchReader.from_batches(SCHEMA, rows((3, value, "b", 1)).to_batches())
        table.bulk_insert(stream)
    found = table.scan().to_arrow().sort_by("id")
    assert (found["id"].to_pylist(), found["city"].to_pylist()) == ([1, 2], ["a", None])


def test_a_filter_finds_hive_values_that_begin_with_a_slash_as_hudi_writes_them() -> None:
    layout = PartitionLayout(("city",), {"city": pa.string()}, (True,), hive_style=True)
    schema = pa.schema([("city", pa.string())])
    assert prune_partitions(parse_filter("city = '/x'", schema), layout, ["city=/x", "city=y"]) == ["city=/x"]


@pytest.mark.parametrize(
    "path", ["city=/x/n=1", "city=a/n=..", ".hoodie/n=1", "../city=a/n=1", "city=a//n=1", "/city=a/n=1"]
)
def test_a_task_refuses_the_path_of_a_new_folder(path: str) -> None:
    keys = key_generator(KeyGeneratorSpec("COMPLEX", ("id",), ("city", "n"), hive_style=True))
    check = PathCheck(keys.partition_path)
    if path == "city=a/n=..":
        check.require(path)
        return
    with pytest.raises(InvalidRecord, match="city, n"):
        check.require(path)


def test_a_task_refuses_a_path_that_does_not_name_its_columns() -> None:
    keys = key_generator(KeyGeneratorSpec("COMPLEX", ("id",), ("city", "n")))
    PathCheck(keys.partition_path).require("a/b/c")
    with pytest.raises(InvalidRecord, match="does not show"):
        PathCheck(keys.partition_path, dropped=True).require("a/b/c")
