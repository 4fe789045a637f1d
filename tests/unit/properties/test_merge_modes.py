"""The merge mode that a table's properties mean, against what the reader of real Hudi 1.2.0 makes of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.options import resolve_options
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.merge.rules import MergeRules
from lakebed.properties.conflicts import conflicts_with_table
from lakebed.properties.file import update_table_config
from lakebed.properties.table_config import MODE_NAMES, MergeMode, TableConfig
from lakebed.storage import open_storage

EVENT_TIME, COMMIT_TIME = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", "ce9acb64-bde0-424c-9b91-f6ebba25356d"
OF_PAYLOAD, OWN = "00000000-0000-0000-0000-000000000000", "11111111-2222-3333-4444-555555555555"
EVENT: MergeMode = "event_time"
COMMIT: MergeMode = "commit_time"
STRATEGIES = ("", EVENT_TIME, COMMIT_TIME, OF_PAYLOAD, OWN)
MODES = ("", "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING", "CUSTOM")
MODELS = "org.apache.hudi.common.model."
PAYLOADS = (
    "",
    MODELS + "DefaultHoodieRecordPayload",
    MODELS + "EventTimeAvroPayload",
    MODELS + "OverwriteWithLatestAvroPayload",
    MODELS + "PartialUpdateAvroPayload",
    "com.example.Own",
)

# What `HoodieReaderContext.initRecordMerger` and `getMergeMode` of Hudi 1.2.0 gave for each combination: E event time,
# C commit time, X custom; M no merger for the strategy id; N NullPointerException; ! the configs are inconsistent.
# Versions 8 and 9, by mode, for each strategy id: neither payload class nor ordering fields change it.
HUDI_8_AND_9 = {"": "NNNNN", "EVENT_TIME_ORDERING": "EEEEE", "COMMIT_TIME_ORDERING": "CCCCC", "CUSTOM": "NMMXM"}
# Version 6, by mode, for each payload class: neither strategy id nor ordering fields change it.
HUDI_6 = {"": "EEECXX", "EVENT_TIME_ORDERING": "EEE!!!", "COMMIT_TIME_ORDERING": "C!!C!!", "CUSTOM": "!!!!XX"}
LETTERS: dict[str, MergeMode] = {"E": "event_time", "C": "commit_time", "X": "custom", "M": "custom"}


def tables() -> Iterator[tuple[TableConfig, str]]:
    """Every combination, and what real Hudi makes of it."""
    for version, strategy, payload, mode, ordering in itertools.product(
        (9, 8, 6), STRATEGIES, PAYLOADS, MODES, ("", "ts")
    ):
        properties = {
            "hoodie.table.name": "t",
            "hoodie.table.version": str(version),
            "hoodie.record.merge.strategy.id": strategy,
            "hoodie.compaction.payload.class": payload,
            "hoodie.record.merge.mode": mode,
            "hoodie.table.ordering.fields" if version == 9 else "hoodie.table.precombine.field": ordering,
        }
        old = HUDI_6[mode][PAYLOADS.index(payload)]
        found = old if version == 6 else HUDI_8_AND_9[mode][STRATEGIES.index(strategy)]
        yield TableConfig({key: text for key, text in properties.items() if text}), found


OF_PAYLOADS: dict[str, MergeMode] = {
    MODELS + "DefaultHoodieRecordPayload": "event_time",
    MODELS + "EventTimeAvroPayload": "event_time",
    MODELS + "OverwriteWithLatestAvroPayload": "commit_time",
}


def expected_mode(config: TableConfig, found: str) -> MergeMode | None:
    """Real Hudi's answer, but for three kinds of tables; None for one that is refused."""
    stored, default = config.properties.get("hoodie.record.merge.mode"), EVENT if config.ordering_fields else COMMIT
    if config.version == 6 and config.merge_strategy == OWN:
        # Hudi 0.15, which made such tables, merges by the user's merger; the reader of 1.2.0 does not look at the id
        return "custom"
    if config.version == 6 and not (config.payload or stored):
        return default  # event time without an ordering field, real Hudi's answer, is that the later row wins
    if found != "N":
        return LETTERS.get(found)
    # real Hudi cannot read them: they merge by what else the properties say
    if stored or config.merge_strategy in (OF_PAYLOAD, OWN):
        return "custom"
    if config.merge_strategy:
        return EVENT if config.merge_strategy == EVENT_TIME else COMMIT
    return OF_PAYLOADS.get(config.payload, "custom") if config.payload else default


def test_every_combination_of_version_strategy_payload_and_mode_merges_as_in_real_hudi() -> None:
    count, refused = 0, 0
    for config, found in tables():
        case = dict(config.properties)
        expected = expected_mode(config, found)
        count, refused = count + 1, refused + (expected is None)
        if expected is None:
            with pytest.raises(
                InvalidOption, match=r"table 't' of version 6 has hoodie\.record\.merge\.mode="
            ) as error:
                print(config.merge_mode, case)
            assert error.value.context["property"] == "hoodie.record.merge.mode", case
            assert error.value.hint, case
        else:
            assert config.merge_mode == expected, (case, found)
        if found == "M" and config.version > 6:
            with pytest.raises(UnsupportedFeature, match="is not installed here"):
                print(MergeRules.of_table(config), case)
    assert (count, refused) == (720, 88)


def test_a_job_is_taken_with_the_mode_that_the_table_merges_by_and_refused_with_another_one() -> None:
    for config, found in tables():
        if expected_mode(config, found) is None:
            continue
        for text in MODES[1:3]:
            job = resolve_options({"hoodie.record.merge.mode": text})
            if MODE_NAMES[config.merge_mode] == text or not config.names_merge_mode:
                conflicts_with_table(job, config)
            else:
                with pytest.raises(InvalidOption, match=rf"the table has {config.merge_mode}"):
                    conflicts_with_table(job, config)


def test_an_unknown_mode_is_refused_by_its_name() -> None:
    for version in ("9", "8", "6"):
        config = TableConfig(
            {"hoodie.table.name": "t", "hoodie.table.version": version, "hoodie.record.merge.mode": "X"}
        )
        with pytest.raises(InvalidOption, match=r"hoodie\.record\.merge\.mode='X' of table 't' is unknown") as error:
            print(config.merge_mode)
        assert "EVENT_TIME_ORDERING" in error.value.hint


def test_a_version_8_table_merges_by_its_mode_whatever_its_strategy_id() -> None:
    rows = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    for kind, (mode, strategy, winner) in itertools.product(
        ("cow", "mor"), ((MODES[1], COMMIT_TIME, 5), (MODES[2], EVENT_TIME, 3))
    ):
        uri = f"memory://merge-modes/{kind}-{mode}"
        given: dict[str, Any] = {"type": kind, "key": "id", "ordering": "ts", "index": "simple", "table_version": 8}
        lakebed.create(uri, rows, **given)
        changes = {"hoodie.record.merge.mode": mode, "hoodie.record.merge.strategy.id": strategy}
        update_table_config(open_storage(uri), changes, lambda: True)
        t = lakebed.open(uri)
        t.upsert(pa.table({"id": [1], "ts": [5]}, rows))
        t.upsert(pa.table({"id": [1], "ts": [3]}, rows), options={"hoodie.record.merge.mode": mode})
        assert t.scan().to_arrow().to_pylist() == [{"id": 1, "ts": winner}], (kind, mode)
        other = next(text for text in MODES[1:3] if text != mode)
        with pytest.raises(InvalidOption, match=r"hoodie\.record\.merge\.mode: the options have"):
            t.upsert(pa.table({"id": [1], "ts": [9]}, rows), options={"hoodie.record.merge.mode": other})
        lakebed.drop(uri)
