"""Custom key generators: the kinds of their partition fields as Hudi says them, also where a table has no place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.table import Table
from support.write_tables import content, rows

Make = Callable[..., Table]
CUSTOM = {
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyyMMdd",
}


@pytest.mark.parametrize("version", [9, 8, 6])
def test_the_table_remembers_the_kind_of_each_field(make: Make, version: int) -> None:
    table = make(partition_by=["city:SIMPLE", "ts:TIMESTAMP"], table_version=version, properties=CUSTOM)
    table.upsert(rows((1, "a", "x", 86400), (2, "b", "y", 0)))
    lakebed.open(table.uri).upsert(rows((1, "a", "z", 86401)))
    assert content(table) == [(1, "a", "z", 86401), (2, "b", "y", 0)]
    paths = table.scan(meta=True).to_arrow().column("_hoodie_partition_path").to_pylist()
    assert sorted(paths) == ["a/19700102", "b/19700101"]
    with pytest.raises(InvalidOption, match="types"):
        table.upsert(
            rows((3, "a", "x", 5)), options={"hoodie.datasource.write.partitionpath.field": "city:SIMPLE,ts:SIMPLE"}
        )


def test_a_job_says_it_where_the_table_does_not(make: Make) -> None:
    table = make(partition_by=["city:SIMPLE", "ts:TIMESTAMP"], table_version=6, properties=CUSTOM)
    storage = lakebed.storage.open_storage(table.uri)
    stored = storage.read(".hoodie/hoodie.properties")
    storage.write(".hoodie/hoodie.properties", stored.replace(b"lakebed.partition.types", b"lakebed.forgotten"))
    with pytest.raises(InvalidOption, match="without a type: city, ts"):
        lakebed.open(table.uri).upsert(rows((1, "a", "x", 5)))
    fields = {"hoodie.datasource.write.partitionpath.field": "city:SIMPLE,ts:TIMESTAMP"}
    lakebed.open(table.uri).upsert(rows((1, "a", "x", 5)), options=fields)
    assert content(table) == [(1, "a", "x", 5)]


@pytest.mark.parametrize("version", [9, 6])
def test_partition_fields_with_kinds_have_the_custom_key_generator_as_in_hudi(make: Make, version: int) -> None:
    kinds = {name: value for name, value in CUSTOM.items() if "timebased" in name}
    table = make(partition_by=["ts:TIMESTAMP"], table_version=version, properties=kinds)
    assert table.properties["hoodie.table.keygenerator.type"] == "CUSTOM"
    table.upsert(rows((1, "a", "x", 86400), (2, "b", "y", 0)))
    assert table.partitions == ("19700101", "19700102")


@pytest.mark.parametrize(
    ("fields", "properties", "message"),
    [
        (["city:NOPE"], {}, "without a type: city"),
        (["ts:TIMESTAMP"], {}, "timestamp.type is not set"),
        (["city:SIMPLE"], {"hoodie.datasource.write.keygenerator.type": "SIMPLE"}, "belong to a custom key generator"),
    ],
)
def test_kinds_that_no_key_generator_takes_are_refused_at_create(
    make: Make, fields: list[str], properties: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        make(partition_by=fields, properties=properties)
