"""How a table says its merge mode: payload classes, strategy ids and modes of the table versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MergeMode = Literal["event_time", "commit_time", "custom"]

EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"
STRATEGY_OF_MODE: dict[MergeMode, str] = {
    "event_time": EVENT_TIME_STRATEGY,
    "commit_time": COMMIT_TIME_STRATEGY,
    "custom": PAYLOAD_STRATEGY,
}
MODE_STRATEGIES = (EVENT_TIME_STRATEGY, COMMIT_TIME_STRATEGY, PAYLOAD_STRATEGY)
MODE_NAMES: dict[MergeMode, str] = {
    "event_time": "EVENT_TIME_ORDERING",
    "commit_time": "COMMIT_TIME_ORDERING",
    "custom": "CUSTOM",
}
PAYLOAD_PACKAGE = "org.apache.hudi.common.model."
DEFAULT_PAYLOAD = PAYLOAD_PACKAGE + "DefaultHoodieRecordPayload"
OVERWRITE_PAYLOAD = PAYLOAD_PACKAGE + "OverwriteWithLatestAvroPayload"
UNAVAILABLE_VALUE = "__debezium_unavailable_value"

_DEBEZIUM_DELETE = {
    "hoodie.payload.delete.field": "_change_operation_type",
    "hoodie.payload.delete.marker": "d",
}


@dataclass(frozen=True, slots=True)
class PayloadRule:
    """What a known payload class means on a version 9 table.

    Below version 9 the class itself merges, not quite the same: it compares `own_ordering` whatever the table's
    ordering fields are, as numbers of a file and a position in it (`file_positions`), under `deletes_win` a delete
    wins whatever its ordering value, under `late_meta` the row that comes late gives the meta columns even where it
    loses, and under `late_fills` a row takes values only from those that it replaces, not from rows of its batch.
    """

    mode: MergeMode
    partial_update_mode: str = ""
    merge_properties: Mapping[str, str] = field(default_factory=dict[str, str])
    ordering_fields: tuple[str, ...] = ()
    own_ordering: tuple[str, ...] = ()
    file_positions: bool = False
    deletes_win: bool = False
    late_meta: bool = False
    late_fills: bool = False


PAYLOAD_RULES: Mapping[str, PayloadRule] = {
    DEFAULT_PAYLOAD: PayloadRule("event_time"),
    PAYLOAD_PACKAGE + "EventTimeAvroPayload": PayloadRule("event_time"),
    OVERWRITE_PAYLOAD: PayloadRule("commit_time"),
    PAYLOAD_PACKAGE + "OverwriteNonDefaultsWithLatestAvroPayload": PayloadRule("commit_time", "IGNORE_DEFAULTS"),
    PAYLOAD_PACKAGE + "PartialUpdateAvroPayload": PayloadRule(
        "event_time", "IGNORE_DEFAULTS", deletes_win=True, late_meta=True
    ),
    PAYLOAD_PACKAGE + "AWSDmsAvroPayload": PayloadRule(
        "commit_time",
        merge_properties={"hoodie.payload.delete.field": "Op", "hoodie.payload.delete.marker": "D"},
    ),
    PAYLOAD_PACKAGE + "debezium.PostgresDebeziumAvroPayload": PayloadRule(
        "event_time",
        "FILL_UNAVAILABLE",
        {**_DEBEZIUM_DELETE, "hoodie.write.partial.update.unavailable.value": UNAVAILABLE_VALUE},
        ("_event_lsn",),
        own_ordering=("_event_lsn",),
        late_fills=True,
    ),
    PAYLOAD_PACKAGE + "debezium.MySqlDebeziumAvroPayload": PayloadRule(
        "event_time",
        merge_properties=_DEBEZIUM_DELETE,
        ordering_fields=("_event_bin_file", "_event_pos"),
        own_ordering=("_event_seq",),
        file_positions=True,
    ),
}
_MODES: dict[str, MergeMode] = {text: mode for mode, text in MODE_NAMES.items()}
_MODE_OF_STRATEGY: dict[str, MergeMode] = {EVENT_TIME_STRATEGY: "event_time", COMMIT_TIME_STRATEGY: "commit_time"}
_PLAIN_PAYLOADS = {DEFAULT_PAYLOAD, PAYLOAD_PACKAGE + "EventTimeAvroPayload", OVERWRITE_PAYLOAD}


def merge_mode_of(version: int, props: Mapping[str, str], *, has_ordering: bool) -> MergeMode:
    """The merge mode of a table by its own properties.

    Version 9 stores it. On version 8 the strategy id wins over the stored mode. On version 6 the payload class
    decides, since 0.15 stored the event-time strategy whatever the payload was. Where nothing is stored it is event
    time with an ordering field, commit time without.
    """
    default: MergeMode = "event_time" if has_ordering else "commit_time"
    payload = props.get("hoodie.compaction.payload.class", "")
    strategy = props.get("hoodie.record.merge.strategy.id") or props.get("hoodie.compaction.record.merger.strategy", "")
    if version < 8:
        if strategy and strategy not in MODE_STRATEGIES:
            return "custom"
        return mode_of_payload(payload) if payload else default
    stored = props.get("hoodie.record.merge.mode", "").upper()
    if version == 8 and strategy:
        return _MODE_OF_STRATEGY.get(strategy, "custom")
    if stored in _MODES:
        return _MODES[stored]
    return mode_of_payload(payload) if payload else default


def mode_of_payload(payload: str) -> MergeMode:
    """The merge mode a payload class stands for below version 9: custom for all but the plain ones."""
    return PAYLOAD_RULES[payload].mode if payload in _PLAIN_PAYLOADS else "custom"
