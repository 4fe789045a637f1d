"""What an entry is to have, by the table and the options of Hudi's sync."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.catalog.base import EntryName, RegisteredTable, SyncedCommit
from lakebed.catalog.metastore import desired_entries, partition_values
from lakebed.config.options import resolve_options
from lakebed.config.settings import CatalogSettings
from lakebed.errors import InvalidOption, UnsupportedFeature

SYNC = "hoodie.datasource.hive_sync."
NAME = EntryName("shop", "trips")


def described(*, mor: bool = False, **given: Any) -> RegisteredTable:
    schema = pa.schema([("_hoodie_file_name", pa.string()), ("id", pa.int64()), ("ts", pa.int64())])
    values: dict[str, Any] = {"partition_fields": ("ts",), **given}
    return RegisteredTable(
        "trips", "s3a://lake/trips", mor, schema, {"id": "the key"}, values.pop("partition_fields"),
        SyncedCommit(), lambda: (), lambda _: None, **values,
    )  # fmt: skip


def settings(**options: Any) -> CatalogSettings:
    return resolve_options({SYNC + name: value for name, value in options.items()}).catalog


@pytest.mark.parametrize(
    ("given", "entries"),
    [
        ({}, [("trips_ro", "true"), ("trips_rt", "false"), ("trips", "false")]),
        ({"skip_ro_suffix": True}, [("trips", "true"), ("trips_rt", "false")]),
        ({"table.strategy": "RO"}, [("trips", "true")]),
        ({"table.strategy": "rt"}, [("trips", "false")]),
    ],
)
def test_a_merge_on_read_table_has_the_entries_of_the_strategy(given: Any, entries: list[tuple[str, str]]) -> None:
    found = desired_entries(described(mor=True), NAME, settings(**given))
    assert [(one.name.table, one.serde_properties["hoodie.query.as.ro.table"]) for one in found] == entries
    assert ["realtime" in one.input_format for one in found] == [optimized == "false" for _, optimized in entries]


def test_options_of_hudis_sync_shape_the_entry() -> None:
    options = {
        "omit_metadata_fields": True,
        "sync_comment": True,
        "schema_string_length_thresh": 100,
        "table_properties": "team=rides\nkind=fact",
        "serde_properties": "a=1",
    }
    (entry,) = desired_entries(described(), NAME, settings(**options))
    assert [(c.name, c.comment) for c in entry.columns] == [("id", "the key")]
    assert (entry.properties["team"], entry.properties["kind"], entry.serde_properties["a"]) == ("rides", "fact", "1")
    count = int(entry.properties["spark.sql.sources.schema.numParts"])
    parts = [entry.properties[f"spark.sql.sources.schema.part.{number}"] for number in range(count)]
    assert {len(part) for part in parts[:-1]} == {100}
    assert "".join(parts).startswith('{"type":"struct","fields":[{"name":"id"')
    (plain,) = desired_entries(described(), NAME, settings(sync_as_datasource=False))
    assert (plain.properties, plain.serde_properties) == ({"EXTERNAL": "TRUE"}, {"serialization.format": "1"})


def test_a_partition_column_has_the_type_of_its_column_or_is_a_text() -> None:
    kinds = [
        desired_entries(described(**given), NAME, settings(**options))[0].partition_columns[0].type
        for given, options in (({}, {}), ({"text_fields": frozenset({"ts"})}, {}), ({}, {"partition_fields": "day"}))
    ]
    assert kinds == ["bigint", "string", "string"]
    with pytest.raises(InvalidOption, match="names day, hour, and the table is partitioned by ts"):
        desired_entries(described(), NAME, settings(partition_fields="day,hour"))


DAY, HOUR = (f"SlashEncoded{unit}PartitionValueExtractor" for unit in ("Day", "Hour"))


@pytest.mark.parametrize(
    ("path", "fields", "extractor", "values"),
    [
        ("Oslo", ["city"], "", ("Oslo",)),
        ("city=a%2Fb", ["city"], "", ("a%2Fb",)),
        ("a=b", ["city"], "", ("a=b",)),
        ("city=Oslo/day=1", ["city", "day"], "MultiPartKeysValueExtractor", ("Oslo", "1")),
        ("2026/01/31", ["day"], DAY, ("2026-01-31",)),
        ("year=2026/month=01/day=31", ["day"], DAY, ("2026-01-31",)),
        ("2026/01/31/07", ["hour"], HOUR, ("2026-01-31-07",)),
    ],
)
def test_partition_paths_have_a_value_for_each_column(
    path: str, fields: list[str], extractor: str, values: tuple[str, ...]
) -> None:
    assert partition_values(path, fields, extractor) == values


@pytest.mark.parametrize(("path", "fields", "extractor"), [("a/b/c", ["x", "y"], ""), ("2026/01", ["day"], DAY)])
def test_a_path_with_another_number_of_values_is_refused_by_name(path: str, fields: list[str], extractor: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"the partition path '{path}' has {len(path.split('/'))} parts"):
        partition_values(path, fields, extractor)


def test_a_property_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidOption, match="'team' is no property"):
        desired_entries(described(), NAME, settings(table_properties="team"))
