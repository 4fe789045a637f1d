"""The read and write matrix: what is refused, by name, and what passes."""

from __future__ import annotations

import pytest

from lakebed.errors import UnsupportedFeature
from lakebed.properties.features import FEATURES, TableFacts, check_read, check_write, features_of
from lakebed.properties.table_config import TableConfig

PLAIN = {
    "hoodie.table.name": "trips",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.keygenerator.type": "SIMPLE",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.timeline.timezone": "UTC",
}
NONE = TableFacts()
MODELS = "org.apache.hudi.common.model."

# (feature, what makes a plain table have it): one entry for each row of the matrix
WITH = [
    ("another table version", {"hoodie.table.version": "5"}, NONE),
    ("foreign table format", {"hoodie.table.format": "iceberg"}, NONE),
    ("HFile base files", {"hoodie.table.base.file.format": "HFILE"}, NONE),
    ("base files of another format", {"hoodie.table.base.file.format": "AVRO"}, NONE),
    ("base files of several formats", {"hoodie.table.multiple.base.file.formats.enable": "true"}, NONE),
    ("Lance base files", {"hoodie.table.base.file.format": "LANCE"}, NONE),
    ("ORC base files (copy-on-write)", {"hoodie.table.base.file.format": "ORC"}, NONE),
    (
        "ORC base files (merge-on-read)",
        {"hoodie.table.base.file.format": "ORC", "hoodie.table.type": "MERGE_ON_READ"},
        NONE,
    ),
    ("bootstrap (metadata only)", {"hoodie.bootstrap.base.path": "s3://old"}, NONE),
    ("metadata table", {"hoodie.table.metadata.partitions": "files"}, NONE),
    ("change logging (CDC)", {"hoodie.table.cdc.enabled": "true"}, NONE),
    ("schema history (schema on read)", {}, TableFacts.from_paths([".hoodie/.schema/1_2.schemacommit"])),
    (
        "bucket counts by partition",
        {},
        TableFacts.from_paths([".hoodie/.bucket_index/partition_bucket_index_meta/configs/0.hashing_config"]),
    ),
    (
        "consistent-hashing buckets",
        {},
        TableFacts.from_paths([".hoodie/.bucket_index/consistent_hashing_metadata/p/0.hashing_meta"]),
    ),
    ("partial updates", {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, NONE),
    ("custom merge mode or payload", {"hoodie.record.merge.mode": "CUSTOM"}, NONE),
    (
        "payload class of the user's own",
        {"hoodie.record.merge.mode": "CUSTOM", "hoodie.compaction.payload.class": "com.acme.Sum"},
        NONE,
    ),
    ("ordering by a field inside a struct", {"hoodie.table.ordering.fields": "o.ts"}, NONE),
    ("key generator of another kind", {"hoodie.table.keygenerator.type": "USER_PROVIDED"}, NONE),
    ("unfinished restore", {}, TableFacts(pending_restore="20240101000000000")),
    ("merge-on-read", {"hoodie.table.type": "MERGE_ON_READ"}, NONE),
    ("no meta fields", {"hoodie.populate.meta.fields": "false"}, NONE),
    ("generated keys", {"hoodie.table.recordkey.fields": ""}, NONE),
    ("partition columns left out of files", {"hoodie.datasource.write.drop.partition.columns": "true"}, NONE),
    ("delete field and marker", {"hoodie.payload.delete.field": "op"}, NONE),
    ("column of operations (_hoodie_operation)", {}, TableFacts(operations=True)),
    ("timeline in local time", {"hoodie.table.timeline.timezone": "LOCAL"}, NONE),
]


def test_a_plain_table_has_no_feature_of_the_matrix():
    assert features_of(TableConfig(PLAIN), NONE) == ()


def test_every_feature_has_a_case_in_this_file():
    assert [name for name, _, _ in WITH] == [feature.name for feature in FEATURES]


@pytest.mark.parametrize(("name", "changes", "facts"), WITH, ids=[name for name, _, _ in WITH])
def test_each_feature_is_seen_and_judged_by_its_row(name: str, changes: dict[str, str], facts: TableFacts):
    config = TableConfig(PLAIN | changes)
    feature = next(f for f in FEATURES if f.name == name)
    assert feature in features_of(config, facts)
    if feature.read == "yes":
        check_read(config, facts)
    else:
        with pytest.raises(UnsupportedFeature, match="trips") as error:
            check_read(config, facts)
        assert error.value.context["feature"] == name
    if feature.write == "yes":
        check_write(config, facts, "upsert")
    else:
        refused = "bulk_insert" if "upsert" in feature.writes else "upsert"
        with pytest.raises(UnsupportedFeature, match=f"{refused} is refused") as error:
            check_write(config, facts, refused)
        assert error.value.context["feature"] == name
        assert error.value.hint


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_a_table_without_meta_fields_takes_inserts(operation: str):
    check_write(TableConfig(PLAIN | {"hoodie.populate.meta.fields": "false"}), NONE, operation)


def test_version_6_is_judged_by_its_payload():
    old = PLAIN | {"hoodie.table.version": "6"}
    del old["hoodie.record.merge.mode"]
    check_write(
        TableConfig(
            old | {"hoodie.compaction.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload"}
        ),
        NONE,
        "upsert",
    )
    check_write(
        TableConfig(old | {"hoodie.compaction.payload.class": MODELS + "PartialUpdateAvroPayload"}),
        NONE,
        "upsert",
    )
    with pytest.raises(UnsupportedFeature, match=r"a Java class of its own \(Sum\)"):
        check_write(TableConfig(old | {"hoodie.compaction.payload.class": "com.acme.Sum"}), NONE, "upsert")


def test_an_empty_schema_folder_is_no_history():
    assert not TableFacts.from_paths([".hoodie/.schema/.gitkeep"]).schema_history
