"""`hoodie.properties` in each table version: the keys that an upgrade or downgrade changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakebed.config.option_table import payload_class
from lakebed.errors import UnsupportedFeature
from lakebed.model import has_completion_times
from lakebed.properties.file import SUPPORTED_VERSIONS
from lakebed.properties.new_table import merge_properties, partition_text
from lakebed.properties.table_config import (
    CURRENT_VERSION,
    MERGE_PROPERTY_PREFIX,
    MODE_STRATEGIES,
    PARTITION_TYPES,
    PAYLOAD_RULES,
    MergeMode,
    TableConfig,
    key_generator_class,
    mode_of_payload,
)

_VERSION = "hoodie.table.version"
_LAYOUT = "hoodie.timeline.layout.version"
_ORDERING, _OLD_ORDERING = "hoodie.table.ordering.fields", "hoodie.table.precombine.field"
_GENERATOR, _GENERATOR_CLASS = "hoodie.table.keygenerator.type", "hoodie.table.keygenerator.class"
_PARTITION_FIELDS = "hoodie.table.partition.fields"
_PARTIAL_UPDATES = "hoodie.table.partial.update.mode"
_MERGE_KEYS = (
    "hoodie.record.merge.mode",
    "hoodie.record.merge.strategy.id",
    "hoodie.compaction.record.merger.strategy",
    "hoodie.compaction.payload.class",
    "hoodie.table.legacy.payload.class",
    _PARTIAL_UPDATES,
)
# Settings of a merge that tables of older versions have without the prefix.
_MERGE_SETTINGS = (
    "hoodie.payload.delete.field",
    "hoodie.payload.delete.marker",
    "hoodie.write.partial.update.unavailable.value",
)

Properties = Mapping[str, str]
_Merge = tuple[MergeMode | None, str | None, str]


def versions_between(source: int, target: int) -> tuple[int, ...]:
    """The versions that a table passes through on its way, the last one `target`.

    >>> versions_between(6, 9), versions_between(9, 8)
    ((8, 9), (8,))
    """
    versions = SUPPORTED_VERSIONS
    at, to = versions.index(source), versions.index(target)
    return versions[at + 1 : to + 1] if to > at else tuple(reversed(versions[to:at]))


def changed_properties(config: TableConfig, version: int) -> dict[str, str | None]:
    """The keys that differ in a table of another version, with their values; None for keys that are removed.

    Raises `UnsupportedFeature` for a merge of rows that the other version cannot express.
    """
    old = config.properties
    new = old
    for step in versions_between(config.version, version):
        new = _STEPS[TableConfig(new).version, step](TableConfig(new))
    return {key: new.get(key) for key in sorted({*old, *new}) if new.get(key) != old.get(key)}


def with_changes(config: TableConfig, changes: Mapping[str, str | None]) -> TableConfig:
    """The settings with these changes."""
    return TableConfig({k: v for k, v in {**config.properties, **changes}.items() if v is not None})


def _six_to_eight(config: TableConfig) -> Properties:
    new = _with_merge(config, 8) | {_VERSION: "8", _LAYOUT: "2"}
    defaults = {
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.table.initial.version": "6",
        "hoodie.table.multiple.base.file.formats.enable": "false",
    }
    if config.key_generator != "USER_PROVIDED":
        defaults[_GENERATOR] = config.key_generator
    if config.partition_types:
        new[_PARTITION_FIELDS] = partition_text(config.partition_fields, config.partition_types, 8)
        new.pop(PARTITION_TYPES, None)
    return defaults | new


def _eight_to_six(config: TableConfig) -> Properties:
    new = _with_merge(config, 6) | {_VERSION: "6", _LAYOUT: "1"}
    if config.ordering_fields:
        new[_OLD_ORDERING] = ",".join(config.ordering_fields)
        new.pop(_ORDERING, None)
    generator = key_generator_class(config.key_generator)
    if generator and not new.get(_GENERATOR_CLASS):  # the only one that releases before 1.0 read
        new[_GENERATOR_CLASS] = generator
    if config.partition_types:
        new[_PARTITION_FIELDS] = partition_text(config.partition_fields, (), 6)
        new[PARTITION_TYPES] = ",".join(config.partition_types)
    return new


def _eight_to_nine(config: TableConfig) -> Properties:
    new = _with_merge(config, 9) | {_VERSION: "9"}
    return _with_ordering(new, config, _ORDERING)


def _nine_to_eight(config: TableConfig) -> Properties:
    new = _with_merge(config, 8) | {_VERSION: "8"}
    return _with_ordering(new, config, _OLD_ORDERING)


_STEPS: Mapping[tuple[int, int], Callable[[TableConfig], Properties]] = {
    (6, 8): _six_to_eight,
    (8, 9): _eight_to_nine,
    (9, 8): _nine_to_eight,
    (8, 6): _eight_to_six,
}


def _with_ordering(new: dict[str, str], config: TableConfig, key: str) -> dict[str, str]:
    """The properties with the ordering fields, under the version's property. If the table has none, they are those that
    its payload class defines."""
    payload = new.get("hoodie.table.legacy.payload.class") or new.get("hoodie.compaction.payload.class", "")
    rule = PAYLOAD_RULES.get(payload_class(payload) or "")
    payload_fields = () if rule is None else rule.ordering_fields if key == _ORDERING else rule.lakebed_ordering
    fields = payload_fields or config.ordering_fields
    for name in (_ORDERING, _OLD_ORDERING):
        new.pop(name, None)
    return new | {key: ",".join(fields)} if fields else new


def _with_merge(config: TableConfig, version: int) -> dict[str, str]:
    """All properties, with those of merging in the form of the version."""
    mode, payload, strategy = _merge_of(config)
    new = {key: value for key, value in config.properties.items() if key not in _MERGE_KEYS}
    default: MergeMode = "event_time" if config.ordering_fields else "commit_time"
    rule = PAYLOAD_RULES.get(payload or "")
    implied = rule.merge_properties if rule else {}
    for name in _MERGE_SETTINGS:
        texts = (new.pop(MERGE_PROPERTY_PREFIX + name, None), new.pop(name, None))
        value = next((text for text in texts if text), None)
        if value is not None and implied.get(name) != value:
            new[(MERGE_PROPERTY_PREFIX if version == CURRENT_VERSION else "") + name] = value
    of_mode = merge_properties(version, mode, payload, default, strategy)
    if not has_completion_times(version):
        of_mode.pop("hoodie.record.merge.mode", None)
    return new | of_mode


def _merge_of(config: TableConfig) -> _Merge:
    """The merge mode, payload class and strategy id of the table; None for those that are not needed."""
    if config.merge_strategy not in ("", *MODE_STRATEGIES):
        return None, None, config.merge_strategy
    mode, payload = config.merge_mode, config.payload or None
    if config.version < CURRENT_VERSION:
        if payload and (mode == "custom" or mode_of_payload(payload) == mode):
            return None, payload, ""
        return mode, None, ""
    rule = PAYLOAD_RULES.get(payload or "")
    expected = (rule.mode, rule.partial_update_mode) if rule else ("custom", "")
    if payload and (mode, config.partial_update_mode) == expected:
        return None, payload, ""
    if config.partial_update_mode or mode == "custom":
        raise UnsupportedFeature(
            f"table {config.name!r} merges rows by {_PARTIAL_UPDATES}={config.partial_update_mode or 'a custom mode'},"
            " which only version 9 has",
            hint="The table stays at version 9, or its rows go into a new one that is made with a payload class such as"
            " PartialUpdateAvroPayload.",
            context={"feature": "partial update mode"},
        )
    return mode, None, ""


def other_layout(config: TableConfig) -> TableConfig:
    """The settings with the folders of the instants in the layout that the table does not have."""
    version, layout = ("8", "2") if config.layout == 1 else ("6", "1")
    return with_changes(config, {_VERSION: version, _LAYOUT: layout})
