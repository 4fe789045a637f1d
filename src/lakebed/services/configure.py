"""Changes settings of an existing table in `hoodie.properties`, under the lock: those that may change between two
writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebed.concurrency.providers import writers_lock
from lakebed.config.option_table import Option, canonical, nearest, parse_value
from lakebed.config.option_table import options as known_options
from lakebed.config.options import (
    one_option,
    resolve_options,
    service_properties,
    service_settings,
    with_table_settings,
)
from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption
from lakebed.metadata_upkeep.maintain import METADATA_OPTION
from lakebed.model import CHECK_PREFIX, DEFAULT_PREFIX, GENERATED_PREFIX
from lakebed.operations.precommit import check_validators
from lakebed.properties.file import load_same_table, load_table_config, update_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.read.cdc import CDC_ENABLED
from lakebed.secrets import masked
from lakebed.services.cleaning import check_filters
from lakebed.storage.base import Storage
from lakebed.wording import Printed

# What to do instead, by the beginning of a key or of the setting that it ends in.
_INSTEAD = (
    ("index.", "lakebed.index.", "An index belongs to the files: t.indexes.adopt() records one that they have."),
    (
        "table.version",
        "hoodie.table.version",
        "t.maintenance.upgrade(to=...) and t.maintenance.downgrade(to=...) change the version.",
    ),
    ("table.", "hoodie.", "Make a new table with lakebed.create and write the rows of this one to it."),
    ("keygen.", "hoodie.keygen.", "Make a new table with lakebed.create and write the rows of this one to it."),
)


_CDC_MODE = "hoodie.table.cdc.supplemental.logging.mode"

Change = tuple[str | None, str | None]


@dataclass(frozen=True, repr=False)
class Configured(Printed):
    """The result of `configure`: the changes that it made, or would make, by the key in `hoodie.properties`: the value
    before and after, None for no value."""

    changes: Mapping[str, Change] = field(default_factory=dict[str, Change])
    done: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        changes = [
            {"key": key, "before": masked(old, key), "after": masked(new, key)}
            for key, (old, new) in self.changes.items()
        ]
        return {"changes": changes, "done": self.done}

    def __str__(self) -> str:
        masked_changes = {key: (masked(old, key), masked(new, key)) for key, (old, new) in self.changes.items()}
        lines = [f"{key}: {_text(old)} -> {_text(new)}" for key, (old, new) in masked_changes.items()]
        return "\n".join([*lines, *([] if self.done or not lines else ["(nothing was done)"])]) or "nothing to change"


def configure(
    storage: Storage, settings_to_change: Mapping[str, Any], settings: WriteSettings, *, dry_run: bool = False
) -> Configured:
    """Change settings that a table records; the value None removes a setting, so that the default applies. With
    `dry_run` nothing is written; `settings` configure the lock.

    Raises `InvalidOption` for a key that a living table cannot change, that is not a table setting, or a value that
    it cannot have; `UnsupportedFeature` for what lakebed does not do. Nothing is changed then.
    """
    config = load_table_config(storage)
    if dry_run:
        return Configured(_difference(config, settings_to_change), done=False)
    with writers_lock(storage, settings, config.name) as lock:
        changes = _difference(load_same_table(storage, config), settings_to_change)
        if changes:
            update_table_config(storage, {key: new for key, (_, new) in changes.items()}, lock.lock_is_held)
    return Configured(changes)


def _difference(config: TableConfig, settings_to_change: Mapping[str, Any]) -> dict[str, Change]:
    """The changes of the table's properties, after all checks."""
    properties = config.properties
    requested: dict[str, str | None] = {}
    for name, value in settings_to_change.items():
        requested |= _requested(config, name, value)
    requested = _with_mode(config, requested)
    after = {key: text for key, text in {**properties, **requested}.items() if text is not None}
    check_filters(service_settings({}, after).cleaning)  # each value, and their combination
    check_validators(with_table_settings(resolve_options({}), after).write.validation)
    changed = {key: (properties.get(key), text) for key, text in requested.items() if properties.get(key) != text}
    return dict(sorted(changed.items()))


def _requested(config: TableConfig, name: str, value: Any) -> dict[str, str | None]:
    """The changes of properties that set one setting, by their keys; None removes a property."""
    # the key as the table shows it, or the name that real Hudi and jobs use
    key = canonical(name) or canonical(name.replace("lakebed.", "hoodie.", 1))
    option = known_options().get(key) if key else None
    if key is None or option is None:
        raise _refused(config, name)
    texts = one_option(key, value) if value is not None else {key: ""}
    if key == METADATA_OPTION:
        return _metadata(config, texts[key], remove=value is None)
    if key == CDC_ENABLED:
        return {CDC_ENABLED: "true" if texts[key].lower() == "true" else "false"}
    if key == _CDC_MODE and value is not None:
        return _mode(config, parse_value(option, texts[key]))
    properties = service_properties(texts)
    if not properties:
        raise _not_remembered(config, name, option)
    if value is None:
        return dict.fromkeys([*properties, *(k for k in (key, *option.aliases) if k in config.properties)])
    return dict(properties)


def _metadata(config: TableConfig, text: str, *, remove: bool) -> dict[str, str | None]:
    """The new value of the metadata table's setting. Raises an error if it would switch off an existing metadata table.
    A table without one gets it by a later write."""
    if text.lower() == "false" and config.metadata_partitions:
        raise InvalidOption(
            f"table {config.name!r} has a metadata table, which every write keeps up to date",
            hint=f"Reads go without it by lakebed.open(uri, options={{'{METADATA_OPTION}': False}}).",
            context={"option": METADATA_OPTION},
        )
    return {METADATA_OPTION: "false" if text.lower() == "false" and not remove else None}


def _mode(config: TableConfig, mode: str) -> dict[str, str | None]:
    """The change of properties that sets the content of change logs. Raises `InvalidOption` for another content than
    before, since existing change logs are read by this setting."""
    stored = config.properties.get(_CDC_MODE, "")
    if stored and stored.upper() != mode:
        raise _fixed(config, _CDC_MODE, "")
    return {_CDC_MODE: mode}


def _with_mode(config: TableConfig, requested: dict[str, str | None]) -> dict[str, str | None]:
    """The requested changes, with the default mode for a change log without one. Raises an error for a mode without a
    change log."""
    enabled = requested.get(CDC_ENABLED, str(config.cdc_enabled).lower()) == "true"
    if _CDC_MODE in requested and not enabled:
        raise InvalidOption(
            f"table {config.name!r} keeps no change log that could have a mode",
            hint=f"Set {CDC_ENABLED} with it.",
            context={"option": _CDC_MODE},
        )
    lacks = enabled and _CDC_MODE not in requested and not config.properties.get(_CDC_MODE)
    return {**requested, _CDC_MODE: "DATA_BEFORE_AFTER"} if lacks else requested


def _refused(config: TableConfig, name: str) -> InvalidOption:
    if name.startswith(CHECK_PREFIX):
        return InvalidOption(
            f"{name} is a check of table {config.name!r}, and no setting",
            hint="t.checks.add(name, condition) and t.checks.drop(name) change the checks",
            context={"option": name},
        )
    if name.startswith((DEFAULT_PREFIX, GENERATED_PREFIX)):
        return InvalidOption(
            f"{name} is an expression of a column of table {config.name!r}, and no setting",
            hint="t.columns.set_default(name, value) and t.columns.drop_default(name) change defaults; generated"
            " columns are given when a table is created",
            context={"option": name},
        )
    if name in config.properties or name.startswith("lakebed.index."):
        return _fixed(config, name, "")
    near = nearest(name)
    return InvalidOption(
        f"unknown setting {name}",
        hint=f"did you mean {near}?" if near else "`lakebed options list` shows all options",
        context={"option": name, "nearest": near},
    )


def _not_remembered(config: TableConfig, name: str, option: Option) -> InvalidOption:
    setting = option.setting
    if setting.startswith(tuple(start for start, _, _ in _INSTEAD)) or name in config.properties:
        return _fixed(config, name, setting)
    if option.verdict != "implemented":
        return InvalidOption(f"{name} has no effect: {option.note}", context={"option": name})
    return InvalidOption(
        f"{name} is an option of each read or write, tables do not remember it",
        hint=f"Give it to the verb: options={{'{option.key}': ...}}.",
        context={"option": name},
    )


def _fixed(config: TableConfig, name: str, setting: str) -> InvalidOption:
    hint = next(
        (text for of_setting, start, text in _INSTEAD if setting.startswith(of_setting) or name.startswith(start)), ""
    )
    return InvalidOption(
        f"{name} of table {config.name!r} cannot be changed while it has rows: its files were written by it",
        hint=hint or "Make a new table with lakebed.create and write the rows of this one to it.",
        context={"option": name, "table": config.properties.get(name)},
    )


def _text(value: str | None) -> str:
    return "(none)" if value is None else value
