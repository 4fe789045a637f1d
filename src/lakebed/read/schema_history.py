"""Tables with a schema history (Hudi's schema on read): columns have ids, and files are matched by id, not by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.text import parse_json_object
from lakebed.model import HOODIE
from lakebed.slices.snapshot import Snapshot

_FOLDER = f"{HOODIE}/.schema"
_SUFFIX = ".schemacommit"
_LATEST = "latest_schema"


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """All versions of a table's schema, oldest first, and the version that a snapshot shows."""

    versions: tuple[tuple[int, Mapping[str, int]], ...]
    current: Mapping[str, int]

    def stored_names(self, instant: str, columns: pa.Schema) -> dict[str, str | None]:
        """For each column the name it has in a file of this instant; None where the file does not have it."""
        then = self._at(instant)
        by_id = {number: name for name, number in then.items()}
        return {c: by_id.get(self.current[c]) for c in columns.names if c in self.current}

    def _at(self, instant: str) -> Mapping[str, int]:
        found = self.versions[0][1]
        for version, ids in self.versions:
            if version <= int(instant):
                found = ids
        return found


def schema_history(snapshot: Snapshot) -> SchemaHistory | None:
    """The table's schema history, or None for a table without one.

    Raises `UnsupportedFeature` where a field inside a struct was renamed: those are not matched by id.
    """
    newest = next(snapshot.commits_metadata(), None)
    if newest is None or _LATEST not in newest.extra:
        return None
    names = [
        (time, info.path)
        for info in snapshot.storage.list(_FOLDER, recursive=False)
        if info.path.endswith(_SUFFIX) and (time := info.path.rpartition("/")[2].split(".")[0].split("_")[0]).isdigit()
    ]
    if not names:
        return None
    path = max(names)[1]
    try:
        entries = parse_json_object(snapshot.storage.read(path), path)["schemas"]
        versions = sorted(((int(e["version_id"]), _ids(e["fields"])) for e in entries), key=itemgetter(0))
        if not versions:
            raise ValueError("it has no version")
        _check_nested(entries)
    except (CorruptFile, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptFile(
            f"{path} is no schema history: {error}",
            hint="restore the file, or remove the folder's newest file if an older one is whole",
            context={"path": path},
        ) from error
    history = SchemaHistory(tuple(versions), {})
    return SchemaHistory(history.versions, history._at(snapshot.instant or snapshot.as_of or ""))  # pyright: ignore[reportPrivateUsage]


def _ids(fields: list[dict[str, Any]]) -> dict[str, int]:
    return {f["name"]: int(f["id"]) for f in fields}


def _check_nested(entries: list[dict[str, Any]]) -> None:
    names: dict[int, str] = {}
    for entry in entries:
        for field in entry["fields"]:
            for number, path in _nested(field["type"], field["name"]):
                inner = path.rpartition(".")[2]
                if names.setdefault(number, inner) != inner:
                    raise UnsupportedFeature(
                        f"the field {path} inside a struct was renamed in the table's schema history",
                        hint="lakebed matches renamed top-level columns only; read this table with Hudi",
                        context={"feature": "renamed struct field"},
                    )


def _nested(type_: Any, path: str) -> list[tuple[int, str]]:
    if not isinstance(type_, dict):
        return []
    found: list[tuple[int, str]] = []
    for field in type_.get("fields") or []:
        found.append((int(field["id"]), f"{path}.{field['name']}"))
        found += _nested(field["type"], f"{path}.{field['name']}")
    for part in ("element", "value"):
        found += _nested(type_.get(part), path)
    return found
