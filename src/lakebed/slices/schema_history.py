"""Tables with a schema history (Hudi's schema on read): columns have ids, and files are matched by id, not by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from lakebed.errors import UnsupportedFeature
from lakebed.model import ALL_META_COLUMNS
from lakebed.storage.base import Storage
from lakebed.timeline.schema_files import stored_history
from lakebed.timeline.schema_versions import Version, columns, paths
from lakebed.timeline.timeline import Timeline

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Renaming:
    """The columns of files of one instant under the table's present names: `stored` has for a column of the table its
    name in the files, None if they do not have it. Other columns of the files are not shown."""

    stored: Mapping[str, str | None]

    def in_file(self, columns: Sequence[str]) -> list[str]:
        """The columns of the file that hold these columns of the table."""
        file_names = (self.stored.get(name, name if name in ALL_META_COLUMNS else None) for name in columns)
        return [name for name in file_names if name is not None]

    def schema(self, file_schema: pa.Schema) -> pa.Schema:
        """The columns of a file under the table's names."""
        names = self._shown(file_schema.names)
        return pa.schema([file_schema.field(stored_name).with_name(name) for stored_name, name in names.items()])

    def batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a file under the table's names."""
        names = self._shown(rows.schema.names)
        if not names:
            return rows.select([])
        return pa.RecordBatch.from_arrays(
            [rows.column(stored_name) for stored_name in names], names=list(names.values())
        )

    def _shown(self, file_names: Sequence[str]) -> dict[str, str]:
        """The table's names by the file's names, in the file's order."""
        exact = frozenset(file_names)
        folded = {name.lower(): name for name in file_names}
        by_file = {name: name for name in file_names if name in ALL_META_COLUMNS}
        for name, stored_name in self.stored.items():
            name_in_file = (
                stored_name if stored_name is None or stored_name in exact else folded.get(stored_name.lower())
            )
            if name_in_file is not None:
                by_file[name_in_file] = name
        return {name_in_file: by_file[name_in_file] for name_in_file in file_names if name_in_file in by_file}


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """All versions of a table's columns, oldest first, and the version of a snapshot: ids by names."""

    versions: tuple[tuple[int, Mapping[str, int]], ...]
    current: Mapping[str, int]

    def stored_names(self, instant: str, columns: pa.Schema) -> dict[str, str | None]:
        """The name that each column has in a file of this instant; None if the file does not have it."""
        by_id = {number: name for name, number in self.at(instant).items()}
        return {c: by_id.get(self.current[c]) for c in columns.names if c in self.current}

    def renaming(self, instant: str) -> Renaming | None:
        """The table's present names for the columns of an instant's files; None if every name still means its
        column."""
        then = self.at(instant)
        by_id = {number: name for name, number in then.items()}
        stored = {name: by_id.get(number) for name, number in self.current.items()}
        if all(
            stored_name == name or (stored_name is None and name not in then) for name, stored_name in stored.items()
        ):
            return None
        return Renaming(stored)

    def same_since(self, instant: str) -> frozenset[str]:
        """The names that have meant the same column since an instant."""
        later = [ids for version, ids in self.versions if instant and version > int(instant)]
        versions = [self.at(instant), *later]
        return frozenset(name for name, number in self.current.items() if all(v.get(name) == number for v in versions))

    def at(self, instant: str) -> Mapping[str, int]:
        """The ids of the columns as of an instant, by their names; those of the first version if the instant is
        unknown."""
        column_ids = self.versions[0][1]
        for version, ids in self.versions:
            if instant and version <= int(instant):
                column_ids = ids
        return column_ids


def schema_history(storage: Storage, timeline: Timeline, instant: str, avro: str = "") -> SchemaHistory | None:
    """The schema history as of an instant of a table whose commits have one; None if its files are missing. `avro` is
    the Avro schema of a commit of this instant that is not completed.

    Raises `UnsupportedFeature` if a field inside a struct was renamed, or dropped and added again: those are not
    matched by id.
    """
    stored_schemas = stored_history(storage, timeline)
    if stored_schemas is None:
        return None
    stored_versions = stored_schemas.with_commit(instant, avro)
    _check_nested(stored_versions)
    versions = tuple((int(version["version_id"]), columns(version)) for version in reversed(stored_versions))
    history = SchemaHistory(versions, {})
    return SchemaHistory(versions, history.at(instant))


def columns_since(history: SchemaHistory | None, instant: str, columns: Mapping[str, T]) -> Mapping[str, T]:
    """The columns (by path) whose names in files of an instant mean the same columns as today; all of them for a table
    without a schema history."""
    if history is None:
        return columns
    same = history.same_since(instant)
    return {path: value for path, value in columns.items() if path.partition(".")[0] in same}


def nested_problem(versions: Sequence[Version]) -> str | None:
    """The path of the first field inside a column whose id had another name in another version, or whose name had
    another id in the same column, so that by names alone it would be taken for another field. None if there is none."""
    names: dict[int, str] = {}
    for version in versions:
        for path, number in paths(version):
            inner = path.rpartition(".")[2]
            if "." in path and names.setdefault(number, inner) != inner:
                return path
    ids: dict[tuple[int, str], int] = {}
    for version in versions:
        tops = columns(version)
        for path, number in paths(version):
            top, _, inner = path.partition(".")
            if inner and ids.setdefault((tops[top], inner), number) != number:
                return path
    return None


def _check_nested(versions: Sequence[Version]) -> None:
    path = nested_problem(versions)
    if path is not None:
        raise UnsupportedFeature(
            f"the field {path} inside a struct was renamed, or dropped and added again, in the table's schema history",
            hint="lakebed matches renamed top-level columns only; read this table with Hudi",
            context={"feature": "renamed struct field"},
        )
