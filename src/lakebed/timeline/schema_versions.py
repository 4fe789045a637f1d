"""Hudi's internal schema: the versions of a table's columns, where each column, and each part of one, has an id that
stays when it gets another name, type or place.

A version is the object of Hudi's JSON: `version_id` (the instant that made it; 0 for the columns before the first
change), `max_column_id` and `fields`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.text import parse_json_object
from lakebed.schema.avro import avro_with_meta

Version = Mapping[str, Any]

_NAMES = {"bytes": "binary", "enum": "string"}
_LOGICAL = {
    "date": "date",
    "time-micros": "time",
    "time-millis": "time-millis",
    "timestamp-micros": "timestamp",
    "timestamp-millis": "timestamp-millis",
    "local-timestamp-micros": "local-timestamp-micros",
    "local-timestamp-millis": "local-timestamp-millis",
    "uuid": "uuid",
}


def history_text(versions: Sequence[Version]) -> str:
    """The body of a schema history's file with these versions, which the caller gives newest first."""
    return json.dumps({"schemas": list(versions)}, separators=(",", ":"), ensure_ascii=False)


def version_text(version: Version) -> str:
    """The JSON text of one version, as commit metadata stores it."""
    return json.dumps(version, separators=(",", ":"), ensure_ascii=False)


def parse_history(text: bytes, path: str) -> tuple[Version, ...]:
    """The versions in a schema history's file, the newest first. Raises `CorruptFile` with the path."""
    try:
        versions: Any = parse_json_object(text, path)["schemas"]
        ordered = sorted(versions, key=lambda version: -int(version["version_id"]))
        if not ordered:
            raise ValueError("it has no version")
        for version in ordered:
            for _ in paths(version):
                pass
    except (CorruptFile, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptFile(
            f"{path} is no schema history: {error}",
            hint="restore the file, or remove the folder's newest file if an older one is whole",
            context={"path": path},
        ) from error
    return tuple(ordered)


def paths(version: Version) -> Iterator[tuple[str, int]]:
    """The path and the id of each column and of each part of a column.

    >>> list(paths(first_version('{"type":"record","name":"r","fields":[{"name":"l","type":{"type":"array",'
    ...                          '"items":"int"}}]}')))[-2:]
    [('l', 5), ('l.element', 6)]
    """
    yield from ((path, number) for path, number, _ in _typed(version, ""))


def columns(version: Version) -> dict[str, int]:
    """The ids of the columns by their names, including meta columns."""
    return {str(field["name"]): int(field["id"]) for field in version["fields"]}


def type_of(version: Version, number: int) -> Any:
    """The type of the column, or part of one, with this id; None if the version does not have it."""
    return next((kind for _, field_id, kind in _typed(version, "") if field_id == number), None)


def first_version(avro: str) -> Version:
    """The first version of a schema's columns: ids by their positions, as Hudi assigns them."""
    return next_version({"version_id": 0, "max_column_id": -1, "fields": []}, avro, 0)


def next_version(before: Version, avro: str, version_id: int, renamed: Mapping[str, str] | None = None) -> Version:
    """The version for a table's new Avro schema: a path that existed retains its id, all others get new ids.

    `renamed` gives for new paths those that they had. The version before is returned where nothing changes.

    >>> old = first_version('{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}')
    >>> new = next_version(old, '{"type":"record","name":"r","fields":[{"name":"b","type":"long"}]}', 7, {"b": "a"})
    >>> new["version_id"], new["max_column_id"], new["fields"][-1]
    (7, 5, {'id': 5, 'name': 'b', 'optional': False, 'type': 'long'})
    """
    old = dict(paths(before))
    ids = _Ids(old, int(before["max_column_id"]), dict(renamed or {}))
    fields = ids.record(json.loads(avro_with_meta(avro)), "", _Named())
    if fields == before["fields"]:
        return before
    return {"max_column_id": ids.greatest, "version_id": version_id, "type": "record", "fields": fields}


# Hudi 1.2 writes these names of types, and does not know them when it reads the history.
_UNREADABLE = frozenset({"time-millis", "timestamp-millis", "local-timestamp-micros", "local-timestamp-millis"})


def unreadable_columns(version: Version) -> list[str]:
    """The columns with a type whose name real Hudi writes into a schema history and cannot read there.

    >>> unreadable_columns(first_version('{"type":"record","name":"r","fields":[{"name":"at","type":'
    ...                                  '{"type":"long","logicalType":"local-timestamp-micros"}}]}'))
    ['at']
    """
    return [str(field["name"]) for field in version["fields"] if _UNREADABLE & set(_type_names(field["type"]))]


def _type_names(kind: Any) -> Iterator[str]:
    if not isinstance(kind, Mapping):
        yield str(kind)
        return
    inner = cast("Mapping[str, Any]", kind)
    for part in ("element", "value"):
        if part in inner:
            yield from _type_names(inner[part])
    for field in inner.get("fields", ()):
        yield from _type_names(field["type"])


def document(avro: str, comments: Mapping[str, str]) -> str:
    """The Avro schema with comments on columns and fields of structs, by path; other comments are unchanged.

    >>> document('{"fields":[{"name":"a","type":"int"}]}', {"a": "miles"})
    '{"fields":[{"name":"a","type":"int","doc":"miles"}]}'
    """
    record = json.loads(avro)
    _document(record, "", comments)
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False) if comments else avro


def comments_of(avro: str) -> dict[str, str]:
    """The comments of an Avro schema, by the path of their column or field.

    >>> comments_of('{"fields":[{"name":"a","type":"int","doc":"miles"}]}')
    {'a': 'miles'}
    """
    comments: dict[str, str] = {}
    _collect_comments(json.loads(avro) if avro else {}, "", comments)
    return comments


class _Named:
    """The named types of an Avro schema that were spelled out so far."""

    def __init__(self) -> None:
        self._types: dict[str, Mapping[str, Any]] = {}

    def note(self, avro: Mapping[str, Any]) -> None:
        name = str(avro.get("name", ""))
        space = avro.get("namespace")
        self._types[name] = avro
        if space:
            self._types[f"{space}.{name}"] = avro

    def find(self, name: str) -> Mapping[str, Any] | None:
        return self._types.get(name) or self._types.get(name.rpartition(".")[2])


class _Ids:
    """Assigns ids to the fields of an Avro schema."""

    def __init__(self, old: Mapping[str, int], greatest: int, renamed: Mapping[str, str]) -> None:
        self._old = old
        self._renamed = renamed
        self.greatest = greatest

    def record(self, avro: Mapping[str, Any], path: str, named: _Named) -> list[dict[str, Any]]:
        """The fields of a record with ids: first for all of them, then for the types inside each."""
        numbered = [(field, f"{path}{field['name']}") for field in avro["fields"]]
        ids = [self._id(inner) for _, inner in numbered]
        fields: list[dict[str, Any]] = []
        for (field, inner), number in zip(numbered, ids, strict=True):
            kind, optional = _nullable(field["type"])
            entry = {"id": number, "name": field["name"], "optional": optional, "type": self._type(kind, inner, named)}
            fields.append(entry if field.get("doc") is None else {**entry, "doc": field["doc"]})
        return fields

    def _type(self, avro: Any, path: str, named: _Named) -> Any:
        if isinstance(avro, str):
            spelled = named.find(avro)
            return self._type(spelled, path, named) if spelled is not None else _NAMES.get(avro, avro)
        if isinstance(avro, list):
            raise UnsupportedFeature(
                f"column {path} is a union of several types, which Hudi's schema history cannot describe",
                hint="leave the columns of this table as they are",
                context={"feature": "union in a schema history", "column": path},
            )
        base = avro["type"]
        if "name" in avro:
            named.note(avro)
        if isinstance(base, (dict, list)):
            return self._type(base, path, named)
        if base == "record":
            return {"type": "record", "fields": self.record(avro, f"{path}.", named)}
        if base == "array":
            element, optional = _nullable(avro["items"])
            number = self._id(f"{path}.element")
            inner = self._type(element, f"{path}.element", named)
            return {"type": "array", "element_id": number, "element": inner, "element_optional": optional}
        if base == "map":
            value, optional = _nullable(avro["values"])
            key, number = self._id(f"{path}.key"), self._id(f"{path}.value")
            inner = self._type(value, f"{path}.value", named)
            return {
                "type": "map",
                "key_id": key,
                "key": "string",
                "value_id": number,
                "value": inner,
                "value_optional": optional,
            }
        return _plain_type(avro, base, named)

    def _id(self, path: str) -> int:
        """The id of a path, from its path before the change: the parts of a renamed column move with it."""
        parts, earlier = path.split("."), path
        for end in range(len(parts), 0, -1):
            before = self._renamed.get(".".join(parts[:end]))
            if before is not None:
                earlier = ".".join([before, *parts[end:]])
                break
        old_id = self._old.get(earlier)
        if old_id is not None:
            return old_id
        self.greatest += 1
        return self.greatest


def _plain_type(avro: Mapping[str, Any], base: str, named: _Named) -> str:
    logical = str(avro.get("logicalType", ""))
    if logical == "decimal":
        size = f"({avro['precision']}, {avro.get('scale', 0)})"
        return f"decimal_fixed{size}[{avro['size']}]" if base == "fixed" else f"decimal_bytes{size}"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if base == "fixed":
        return f"fixed[{avro['size']}]"
    spelled = named.find(base) if base not in _NAMES else None
    return _NAMES.get(base, base) if spelled is None else _plain_type(spelled, str(spelled["type"]), named)


def _nullable(avro: Any) -> tuple[Any, bool]:
    branches = cast("list[Any]", avro) if isinstance(avro, list) else [avro]
    kinds = [branch for branch in branches if branch != "null"]
    return (kinds[0] if len(kinds) == 1 else kinds), len(kinds) < len(branches)


def _typed(record: Mapping[str, Any], parent: str) -> Iterator[tuple[str, int, Any]]:
    for field in record["fields"]:
        path = f"{parent}{field['name']}"
        yield path, int(field["id"]), field["type"]
        yield from _typed_inside(field["type"], path)


def _typed_inside(kind: Any, path: str) -> Iterator[tuple[str, int, Any]]:
    if not isinstance(kind, Mapping):
        return
    inner = cast("Mapping[str, Any]", kind)
    if inner["type"] == "record":
        yield from _typed(inner, f"{path}.")
    for part in ("element", "key", "value"):
        if part in inner:
            yield f"{path}.{part}", int(inner[f"{part}_id"]), inner[part]
            yield from _typed_inside(inner[part], f"{path}.{part}")


def _records(avro: Any, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The records inside a type that can be reached without another record in between, with their paths."""
    if isinstance(avro, list):
        for branch in cast("list[Any]", avro):
            yield from _records(branch, path)
    elif isinstance(avro, dict):
        node = cast("dict[str, Any]", avro)
        if "fields" in node:
            yield node, path
            return
        for key, part in (("items", ".element"), ("values", ".value"), ("type", "")):
            if isinstance(node.get(key), (dict, list)):
                yield from _records(node[key], f"{path}{part}")


def _document(record: dict[str, Any], parent: str, comments: Mapping[str, str]) -> None:
    for field in record.get("fields", ()):
        path = f"{parent}{field['name']}"
        if path in comments:
            if comments[path]:
                field["doc"] = comments[path]
            else:
                field.pop("doc", None)
        for inner, at in _records(field["type"], path):
            _document(inner, f"{at}.", comments)


def _collect_comments(record: Mapping[str, Any], parent: str, comments: dict[str, str]) -> None:
    for field in record.get("fields", ()):
        path = f"{parent}{field['name']}"
        if field.get("doc"):
            comments[path] = str(field["doc"])
        for inner, at in _records(field["type"], path):
            _collect_comments(inner, f"{at}.", comments)
