"""The properties of a table in each version: what an upgrade says of how rows merge is what a new table would say."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from lakebed.errors import UnsupportedFeature
from lakebed.properties.new_table import new_table_properties
from lakebed.properties.table_config import MERGE_PROPERTY_PREFIX, PAYLOAD_PACKAGE, PAYLOAD_RULES, TableConfig
from lakebed.services.upgrade_properties import (
    changed_properties,
    other_layout,
    versions_between,
    with_changes,
)

WAYS = list(permutations((6, 8, 9), 2))
OWN = "com.example.OwnPayload"
MERGING: dict[str, dict[str, Any]] = {
    "event time": {"ordering_fields": ["ts"]},
    "commit time": {"ordering_fields": ["ts"], "merge_mode": "commit_time"},
    "no ordering": {},
    "two fields": {"ordering_fields": ["ts", "price"]},
    "own payload": {"ordering_fields": ["ts"], "payload": OWN},
    "own merger": {"ordering_fields": ["ts"], "merge_strategy": "1897ef5f-18bc-4557-939c-9d6a8afd1519"},
    "marker": {"ordering_fields": ["ts"], "delete_field": "op", "delete_marker": "D"},
    **{name.rpartition(".")[2]: {"ordering_fields": ["ts"], "payload": name} for name in PAYLOAD_RULES},
}
# Payload classes that have ordering columns of their own.
DEBEZIUM = ("PostgresDebeziumAvroPayload", "MySqlDebeziumAvroPayload")


def new_config(version: int, **given: Any) -> TableConfig:
    return TableConfig(new_table_properties(name="t", version=version, key_fields=["id"], **given))


def moved(config: TableConfig, *versions: int) -> TableConfig:
    for version in versions:
        config = with_changes(config, changed_properties(config, version))
        assert config.version == version
    return config


def merges(config: TableConfig) -> tuple[Any, ...]:
    """All that tells how rows merge."""
    settings = (config.delete_field, config.delete_marker, config.partial_update_mode, config.merge_strategy)
    return (config.merge_mode, config.payload_rule, config.ordering_fields, *settings)


@pytest.mark.every_case
@pytest.mark.parametrize(("source", "to"), WAYS)
@pytest.mark.parametrize("how", [name for name in MERGING if name not in DEBEZIUM])
def test_rows_merge_as_in_a_new_table_of_the_version(how: str, source: int, to: int) -> None:
    given = MERGING[how]
    before, after = new_config(source, **given), moved(new_config(source, **given), to)
    expected = new_config(to, **given)
    assert after.layout == expected.layout
    if how == "commit time" and to == 9 and source < 9:
        # an older version says it by its payload class, which version 9 remembers
        assert (
            after.properties["hoodie.table.legacy.payload.class"] == PAYLOAD_PACKAGE + "OverwriteWithLatestAvroPayload"
        )
    assert merges(after) == merges(expected)
    back = moved(after, source)
    assert merges(back) == merges(before)


@pytest.mark.parametrize("how", DEBEZIUM)
def test_payloads_with_ordering_columns_of_their_own(how: str) -> None:
    rule = PAYLOAD_RULES[f"{PAYLOAD_PACKAGE}debezium.{how}"]
    old = new_config(8, payload=how, ordering_fields=rule.lakebed_ordering)
    new = moved(old, 9)
    assert new.ordering_fields == rule.ordering_fields
    assert (new.merge_mode, new.partial_update_mode) == (rule.mode, rule.partial_update_mode)
    assert new.merge_properties == dict(rule.merge_properties)
    back = moved(new, 8)
    assert back.ordering_fields == rule.lakebed_ordering
    assert not back.merge_properties
    assert merges(back) == merges(old)


def test_a_stored_strategy_wins_over_the_payload_of_version_8() -> None:
    old = new_config(8, ordering_fields=["ts"], merge_mode="commit_time")
    payload = {"hoodie.compaction.payload.class": PAYLOAD_PACKAGE + "DefaultHoodieRecordPayload"}
    contradicting = with_changes(old, payload)
    assert contradicting.merge_mode == "commit_time"
    new = moved(contradicting, 9)
    assert (new.merge_mode, new.payload) == ("commit_time", "")


def test_an_overwriting_payload_with_an_ordering_field_stays_one() -> None:
    """Real Hudi 1.2.0 makes such a merge-on-read table one of event-time ordering."""
    old = new_config(6, table_type="mor", ordering_fields=["ts"], payload="OverwriteWithLatestAvroPayload")
    assert moved(old, 8, 9).merge_mode == "commit_time"
    assert moved(old, 9, 6, 8).merge_mode == "commit_time"


def test_a_partial_update_mode_alone_is_for_version_9() -> None:
    config = new_config(9, ordering_fields=["ts"], partial_update_mode="IGNORE_DEFAULTS")
    with pytest.raises(UnsupportedFeature, match="IGNORE_DEFAULTS"):
        changed_properties(config, 8)


@pytest.mark.parametrize("source", [6, 8, 9])
def test_a_way_there_and_back_changes_nothing_of_note(source: int) -> None:
    given: dict[str, Any] = {"ordering_fields": ["ts"], "partition_fields": ["day", "city"], "key_generator": "CUSTOM"}
    config = new_config(source, **given, partition_types=["timestamp", "simple"], index_settings={"type": "simple"})
    config = with_changes(config, {"unknown.key": "kept", "lakebed.sort": "key"})
    for way in (w for w in WAYS if source in w):
        (other,) = {*way} - {source}
        there = moved(config, other)
        assert there.partition_types == config.partition_types
        assert there.partition_fields == config.partition_fields
        assert there.index_settings == config.index_settings
        assert there.key_generator == config.key_generator
        back = moved(there, source)
        assert back.properties["unknown.key"] == "kept"
        differ = {
            k for k in {**config.properties, **back.properties} if config.properties.get(k) != back.properties.get(k)
        }
        # what only says where a table comes from, and names of the same setting
        assert differ <= {
            "hoodie.table.initial.version",
            "hoodie.table.legacy.payload.class",
            "hoodie.table.multiple.base.file.formats.enable",
            "hoodie.table.ordering.fields",
            "hoodie.table.precombine.field",
            "hoodie.table.keygenerator.class",
        }


def test_version_6_has_the_properties_that_releases_before_1_0_read() -> None:
    config = moved(new_config(9, ordering_fields=["ts"], partition_fields=["city"]), 6)
    properties = config.properties
    assert properties["hoodie.table.precombine.field"] == "ts"
    assert properties["hoodie.table.keygenerator.class"] == "org.apache.hudi.keygen.SimpleKeyGenerator"
    assert properties["hoodie.compaction.payload.class"] == PAYLOAD_PACKAGE + "DefaultHoodieRecordPayload"
    assert "hoodie.record.merge.mode" not in properties
    assert not [key for key in properties if key.startswith(MERGE_PROPERTY_PREFIX)]


def test_the_way_and_the_layout_that_a_table_does_not_have() -> None:
    assert [versions_between(a, b) for a, b in ((6, 9), (9, 6), (8, 8))] == [(8, 9), (8, 6), ()]
    assert other_layout(new_config(9)).timeline_path == ".hoodie"
    assert other_layout(new_config(6)).timeline_path == ".hoodie/timeline"
