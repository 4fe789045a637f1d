"""Properties of new tables against the `hoodie.properties` that real Hudi 1.2.0 made for the same settings."""

from __future__ import annotations

from typing import Any

import pytest

from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.format.text import parse_properties
from lakebed.properties.new_table import new_table_properties
from lakebed.properties.table_config import MODE_NAMES, TableConfig
from support.golden_tables import GoldenTable, golden_tables

METADATA_TABLE_KEYS = {
    "hoodie.table.metadata.partitions",
    "hoodie.table.metadata.partitions.inflight",
    "hoodie.table.index.defs.path",
}
# Names for older readers, which real Hudi 1.2.0 leaves out of tables of older versions.
OLD_NAMES = {"hoodie.table.precombine.field", "hoodie.table.keygenerator.class"}
TIMEBASED = "hoodie.keygen.timebased."
KINDS = {
    "SimpleKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
}
MODES: dict[str, Any] = {text: mode for mode, text in MODE_NAMES.items()}


def properties_of(table: GoldenTable) -> dict[str, str]:
    return parse_properties(table.files()[".hoodie/hoodie.properties"])


def arguments(table: GoldenTable) -> dict[str, Any]:
    """The settings of the table's writer options in our words."""
    options: dict[str, str] = table.entry["options"]

    def fields(key: str) -> list[str]:
        return [part for part in options.get(f"hoodie.datasource.write.{key}.field", "").split(",") if part]

    def flag(key: str, default: str = "false") -> bool:
        return options.get(key, default) == "true"

    partitions = [part.partition(":") for part in fields("partitionpath")]
    generator = table.entry["key_generator"]
    timestamp = generator == "TIMESTAMP"
    cdc_mode = options.get("hoodie.table.cdc.supplemental.logging.mode", "DATA_BEFORE_AFTER")
    return {
        "name": table.name,
        "table_type": table.type,
        "version": table.version,
        "key_fields": fields("recordkey"),
        "partition_fields": [name for name, _, _ in partitions],
        "partition_types": [kind for _, _, kind in partitions if kind],
        "ordering_fields": fields("precombine"),
        "key_generator": table.entry["key_generator"]
        if table.entry["key_generator"] in ("CUSTOM", "TIMESTAMP")
        else None,
        "merge_mode": MODES.get(options.get("hoodie.write.record.merge.mode", "")),
        "payload": options.get("hoodie.datasource.write.payload.class"),
        "delete_field": options.get("hoodie.payload.delete.field", ""),
        "delete_marker": options.get("hoodie.payload.delete.marker", ""),
        "hive_style": flag("hoodie.datasource.write.hive_style_partitioning"),
        "url_encode": flag("hoodie.datasource.write.partitionpath.urlencode"),
        "populate_meta_fields": flag("hoodie.populate.meta.fields", "true"),
        "cdc_mode": cdc_mode if flag("hoodie.table.cdc.enabled") else "",
        "timezone": "LOCAL",
        "extra": {k: v for k, v in options.items() if timestamp and k.startswith(TIMEBASED)},
    }


def test_new_tables_have_the_properties_hudi_writes() -> None:
    tables = golden_tables(lambda t: t.name[:3] in ("v9_", "w8_", "w6_"))
    assert len(tables) > 20
    for table in tables:
        theirs = {k: v for k, v in properties_of(table).items() if k not in METADATA_TABLE_KEYS}
        ours = new_table_properties(**arguments(table))
        assert {k: v for k, v in ours.items() if k in theirs or k not in OLD_NAMES} == theirs, table.name


def test_settings_are_read_as_the_writer_gave_them() -> None:
    tables = golden_tables()
    assert len(tables) > 20
    for table in tables:
        config = TableConfig(properties_of(table))
        entry, given = table.entry, arguments(table)
        read = {
            "name": config.name,
            "version": config.version,
            "type": config.table_type,
            "key": ",".join(config.key_fields),
            "metadata_partitions": config.metadata_partitions,
            "partition_fields": list(config.partition_fields),
            "hive_style": config.hive_style,
            "cdc": config.cdc_enabled,
            "meta_fields": config.populate_meta_fields,
        }
        written = {
            "name": table.name,
            "version": table.version,
            "type": table.type,
            "key": entry["record_key"] or "",
            "metadata_partitions": tuple(entry["metadata_partitions"]),
            "partition_fields": given["partition_fields"],
            "hive_style": given["hive_style"],
            "cdc": bool(given["cdc_mode"]),
            "meta_fields": given["populate_meta_fields"],
        }
        if entry["ordering"]:
            read["ordering"], written["ordering"] = ",".join(config.ordering_fields), entry["ordering"]
        if entry["key_generator"]:
            # 0.15 stores classes.
            kind = entry["key_generator"].rpartition(".")[2]
            read["key_generator"], written["key_generator"] = config.key_generator, KINDS.get(kind, kind)
        if table.version == 9 and entry["merge_mode"] in MODES:
            read["merge_mode"], written["merge_mode"] = config.merge_mode, MODES[entry["merge_mode"]]
        assert read == written, table.name


def test_instant_times_of_new_tables_are_utc() -> None:
    assert TableConfig(new_table_properties(name="t")).timezone == "UTC"


def test_index_settings_and_schema_are_kept() -> None:
    props = new_table_properties(
        name="t",
        key_fields=["id"],
        index_settings={"type": "bucket", "bucket.count": "8"},
        create_schema='{"type":"record"}',
        database="db",
    )
    config = TableConfig(props)
    assert config.index_settings == {"type": "bucket", "bucket.count": "8"}
    assert props["lakebed.index.bucket.count"] == "8"
    assert (config.create_schema, config.database) == ('{"type":"record"}', "db")


@pytest.mark.parametrize(
    ("version", "payload", "mode"),
    [
        (9, "OverwriteWithLatestAvroPayload", "commit_time"),
        (8, "OverwriteWithLatestAvroPayload", "commit_time"),
        (6, "OverwriteWithLatestAvroPayload", "commit_time"),
        (9, "DefaultHoodieRecordPayload", "event_time"),
        (6, "EventTimeAvroPayload", "event_time"),
        (9, "PartialUpdateAvroPayload", "event_time"),
        (8, "PartialUpdateAvroPayload", "custom"),
        (6, "PartialUpdateAvroPayload", "custom"),
        (9, "com.example.Mine", "custom"),
        (8, "com.example.Mine", "custom"),
        (6, "com.example.Mine", "custom"),
        (6, None, "event_time"),
        (8, None, "event_time"),
    ],
)
def test_payloads_decide_the_merge_mode(version: int, payload: str | None, mode: str) -> None:
    config = TableConfig(new_table_properties(name="t", version=version, ordering_fields=["ts"], payload=payload))
    assert config.merge_mode == mode
    assert payload is None or config.payload.endswith(payload)


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("mode", ["event_time", "commit_time"])
def test_a_given_mode_is_kept(version: int, mode: Any) -> None:
    config = TableConfig(new_table_properties(name="t", version=version, ordering_fields=["ts"], merge_mode=mode))
    assert config.merge_mode == mode


def test_delete_markers_are_kept_in_every_version() -> None:
    for version in (6, 8, 9):
        props = new_table_properties(name="t", version=version, delete_field="op", delete_marker="D")
        assert (TableConfig(props).delete_field, TableConfig(props).delete_marker) == ("op", "D")


def test_a_mode_against_the_payload_is_refused() -> None:
    with pytest.raises(InvalidOption, match="event_time contradicts"):
        new_table_properties(name="t", merge_mode="event_time", payload="OverwriteWithLatestAvroPayload")


@pytest.mark.parametrize("version", [5, 7, 10])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedFeature, match=str(version)):
        new_table_properties(name="t", version=version)


def test_older_versions_have_the_names_by_which_older_readers_know_ordering_and_key_generator():
    cases = {
        ("id",): ((), "NonpartitionedKeyGenerator"),
        ("id", "code"): (("city",), "ComplexKeyGenerator"),
    }
    for keys, (partitions, java_class) in cases.items():
        for version in (6, 8, 9):
            props = new_table_properties(
                name="t", key_fields=keys, partition_fields=partitions, ordering_fields=["ts", "n"], version=version
            )
            assert props["hoodie.table.ordering.fields"] == "ts,n"
            assert props.get("hoodie.table.precombine.field") == ("ts,n" if version < 9 else None)
            expected = f"org.apache.hudi.keygen.{java_class}" if version == 6 else None
            assert props.get("hoodie.table.keygenerator.class") == expected
            config = TableConfig(props)
            assert (config.ordering_fields, config.key_generator) == (
                ("ts", "n"),
                props["hoodie.table.keygenerator.type"],
            )
    plain = new_table_properties(name="t", key_fields=["id"], partition_fields=[], ordering_fields=[], version=6)
    assert "hoodie.table.precombine.field" not in plain
