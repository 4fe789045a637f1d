"""The properties of a job of Hudi Streamer as a description of an ingest job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote, urlsplit, urlunsplit

from lakebed.config.streamer import nearest_property, property_of, short_name
from lakebed.errors import InvalidOption, UnsupportedFeature

# Options of a write that say how the table is created.
_CREATE = {
    "hoodie.datasource.write.recordkey.field": "key",
    "hoodie.datasource.write.partitionpath.field": "partition_by",
    "hoodie.datasource.write.precombine.field": "ordering",
    "hoodie.table.ordering.fields": "ordering",
    "hoodie.datasource.write.table.type": "type",
    "hoodie.write.table.version": "table_version",
}
_TYPES = {"COPY_ON_WRITE": "cow", "MERGE_ON_READ": "mor"}
_OPERATION = "hoodie.datasource.write.operation"
_FLAGS = ("source.append_offsets", "errors.enabled")
_KINDS = {"topic": "kafka", "path": "files", "column": "sql", "uri": "table"}


def with_properties(values: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """A description in which Hudi's properties are replaced by their equivalents. Values that the description itself
    has must be equal.

    Raises `InvalidOption` for an unknown property and a value that it cannot have, `UnsupportedFeature` for a property
    that has no equal here."""
    sections: dict[str, dict[str, Any]] = {"": {}, "source": {}, "transform": {}, "target": {}, "errors": {}}
    create: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in properties.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if name in _CREATE:
            create[_CREATE[name]] = _create_value(_CREATE[name], text)
        elif name == _OPERATION:
            sections["target"]["operation"] = text.lower()
        elif (setting := property_of(name)) is not None:
            if setting.verdict == "refused":
                raise UnsupportedFeature(f"{name} has no equal in lakebed", hint=setting.note, context={"option": name})
            if setting.values is not None and text not in setting.values:
                allowed = ", ".join(setting.values)
                raise InvalidOption(f"{name} is {text!r}", hint=f"it is one of {allowed}", context={"option": name})
            text = setting.values[text] if setting.values else text
            section, _, key = setting.key.rpartition(".")
            if setting.key == "source.options":
                sections["source"].setdefault("options", {})[name] = text
            elif key:
                if setting.is_number and not text.isdigit():
                    raise InvalidOption(f"{name} is {text!r}", hint="give a whole number", context={"option": name})
                is_flag = setting.key in _FLAGS
                sections[section][key] = int(text) if setting.is_number else text.lower() == "true" if is_flag else text
        elif short_name(name) is not None:
            near = nearest_property(name)
            raise InvalidOption(
                f"unknown property {name}", hint=f"did you mean {near}?" if near else "", context={"option": name}
            )
        else:
            options[name] = text
    _finish(sections)
    if create:
        sections["target"]["create"] = create
    if options:
        sections["target"]["options"] = options
    return _combined(values, sections)


def _create_value(key: str, text: str) -> Any:
    if key == "type":
        return _TYPES.get(text.upper(), text)
    if key == "table_version":
        return int(text)
    names = [part.strip() for part in text.split(",")]
    return names if len(names) > 1 else names[0]


def _finish(sections: dict[str, dict[str, Any]]) -> None:
    """Set the values that follow from two properties together, and the kind of the source."""
    source, transform, errors = sections["source"], sections["transform"], sections["errors"]
    if errors.pop("enabled", True) is False:
        errors.clear()
    if "sql" in transform:
        transform["sql"] = transform["sql"].replace("<SRC>", "input")
    if str(source.get("uri", "")).startswith("jdbc:"):
        parts = urlsplit(source["uri"].removeprefix("jdbc:"))
        user, password = source.pop("user", None), source.pop("password", None)
        login = "" if user is None else quote(user, "") + ("" if password is None else f":{quote(password, '')}") + "@"
        source["uri"] = urlunsplit((parts.scheme, login + parts.netloc, parts.path, parts.query, ""))
    if "registry" in source:
        source["registry"] = source["registry"].partition("/subjects/")[0]
        source.setdefault("format", "avro")
    kind = next((kind for key, kind in _KINDS.items() if key in source), None)
    if kind is not None:
        source["kind"] = kind


def _combined(values: Mapping[str, Any], sections: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    combined: dict[str, Any] = dict(values)
    for section, entries in sections.items():
        if not entries:
            continue
        target = combined if not section else dict(cast("Mapping[str, Any]", combined.get(section) or {}))
        for key, value in entries.items():
            if isinstance(value, dict) and isinstance(target.get(key), Mapping):
                target[key] = {**cast("dict[str, Any]", value), **target[key]}
            elif target.setdefault(key, value) != value and (section, key) != ("source", "format"):
                where = f"[{section}] {key}" if section else key
                raise InvalidOption(
                    f"{where} is {target[key]!r}, and the properties have {value!r}", hint="give one of them"
                )
        if section:
            combined[section] = target
    return combined
