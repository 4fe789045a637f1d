"""Classes of Hudi by all their names: what a job may name is what a table merges by, and no other class is taken for
one by its short name."""

from __future__ import annotations

from typing import Any

import pytest

import lakebed
from lakebed.config.option_table import KEY_GENERATORS, PAYLOADS, key_generator, payload_class
from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from lakebed.properties.table_config import PAYLOAD_RULES, TableConfig
from lakebed.storage import open_storage

# as the bundles of Hudi 0.15, 1.0 and 1.2 have them
NAMES = [*PAYLOADS, *PAYLOAD_RULES, "org.apache.hudi.payload.AWSDmsAvroPayload"]
OPTION = "hoodie.datasource.write.payload.class"
PROPERTIES = ".hoodie/hoodie.properties"


def rows(*given: tuple[int, int, str]) -> dict[str, Any]:
    ids, times, operations = zip(*given, strict=True)
    return {"id": list(ids), "ts": list(times), "Op": list(operations)}


def test_each_name_of_a_payload_is_its_class_and_no_other_class_is() -> None:
    assert {payload_class(name) for name in NAMES} == {*PAYLOAD_RULES}
    for name in NAMES:
        short = name.rpartition(".")[2]
        others = (f"com.example.{short}", f"org.apache.hudi.{short}", f"org.example.model.{short}", f"{short}2")
        assert [payload_class(other) for other in others] == [None] * 4, name


def test_key_generators_are_those_of_hudis_packages() -> None:
    for name, kind in KEY_GENERATORS.items():
        for package in ("org.apache.hudi.keygen.", "org.apache.hudi.utilities.keygen.", "org.apache.hudi.", ""):
            assert key_generator(package + name) == kind
            stored = {"hoodie.table.keygenerator.class": package + name}
            assert TableConfig(stored).key_generator == kind
        stored = {"hoodie.table.keygenerator.class": f"com.example.{name}"}
        assert (key_generator(f"com.example.{name}"), TableConfig(stored).key_generator) == (None, "USER_PROVIDED")


@pytest.mark.parametrize("version", [9, 8, 6])
def test_aws_dms_by_its_name_of_hudis_bundles_merges_in_jobs_and_in_tables_that_store_it(version: int) -> None:
    other, uri = "org.apache.hudi.payload.AWSDmsAvroPayload", f"memory://names/dms{version}"
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "table_version": version}
    for kind in ("cow", "mor"):
        for by_option in (True, False):
            named: dict[str, Any] = {"properties": {OPTION: other}} if by_option else {"merge": other}
            t = lakebed.create(uri, rows((1, 1, "I")), type=kind, index="simple", **words, **named)
            storage = open_storage(uri)
            text = storage.read(PROPERTIES).decode()
            assert f"={payload_class(other)}" in text
            storage.write(PROPERTIES, text.replace(payload_class(other) or "", other).encode())
            t = lakebed.open(uri)
            t.upsert(rows((1, 1, "I"), (2, 1, "I"), (3, 1, "I")))
            t.upsert(rows((1, 2, "D"), (2, 2, "U")), options={OPTION: other})
            t.upsert(rows((3, 2, "D")), options={OPTION: "AWSDmsAvroPayload"})
            assert t.scan(["id", "ts", "Op"]).to_arrow().to_pylist() == [{"id": 2, "ts": 2, "Op": "U"}], (
                kind,
                by_option,
            )
            assert TableConfig(t.properties).merge_mode in ("custom", "commit_time")
            lakebed.drop(uri)


def test_a_class_of_another_package_is_refused_by_a_job_as_by_create() -> None:
    t = lakebed.create("memory://names/other", rows((1, 1, "I")), key="id", ordering="ts")
    for name in ("com.example.AWSDmsAvroPayload", "org.apache.hudi.common.model.PostgresDebeziumAvroPayload"):
        with pytest.raises(UnsupportedFeature, match="is not supported"):
            t.upsert(rows((1, 1, "I")), options={OPTION: name})
        with pytest.raises(InvalidOption, match="is unknown"):
            lakebed.create("memory://names/new", rows((1, 1, "I")), key="id", merge=name)
    with pytest.raises(LakebedError):
        t.upsert(
            rows((1, 1, "I")), options={"hoodie.datasource.write.keygenerator.class": "com.example.SimpleKeyGenerator"}
        )
    lakebed.drop(t.uri)
