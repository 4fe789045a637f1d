"""Columns in Iceberg's form: their types, and their ids, the same ones for good."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import UnsupportedFeature
from lakebed.model import META_COLUMNS
from lakebed.publish.data_files import DataFile
from lakebed.publish.iceberg_manifests import FIRST_PARTITION_ID
from lakebed.schema.field_ids import below, field_id, field_paths, has_field_ids
from lakebed.schema.logical_types import is_vector, vector_size
from lakebed.schema.plain_arrow import is_list

MAPPING = "schema.name-mapping.default"
"""The property of a list that gives columns of files their ids by name."""

_SIMPLE = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time64("us"): "time",
}
PARTITION_TYPES: Mapping[str, pa.DataType] = {name: kind for kind, name in _SIMPLE.items()}
"""The types of partition columns by Iceberg's names."""

Json = dict[str, Any]


class ColumnIds:
    """The ids of columns by their dotted paths, in the form of a name mapping. The id of a path never changes.

    New lists take `field_id`, as files do; lists that are older go on with the next numbers.
    """

    def __init__(self, metadata: Json | None) -> None:
        names = META_COLUMNS if metadata is None else ()
        self._by_path = {name: field_id(name) for name in names}
        stack = [("", json.loads(metadata["properties"][MAPPING]))] if metadata is not None else []
        while stack:
            above, fields = stack.pop()
            for field in fields:
                path = below(above, field["names"][0])
                self._by_path[path] = field["field-id"]
                stack.append((path, field.get("fields", ())))
        first = META_COLUMNS[0]
        self._is_by_path = self._by_path[first] == field_id(first)

    @property
    def last(self) -> int:
        return max(self._by_path.values())

    def of(self, path: str) -> int:
        """The id of a column, a new one if it has none."""
        if path not in self._by_path:
            number = field_id(path) if self._is_by_path else self.last + 1
            self._by_path[path] = self.last + 1 if number in self._by_path.values() else number
        return self._by_path[path]

    def add_columns(self, fields: Iterable[pa.Field]) -> None:
        """Give ids to the columns of a file: readers require one for each, also for those that the table has
        dropped."""
        for path in field_paths(fields):
            self.of(path)

    def are_those_of_files(self, schema: pa.Schema) -> bool:
        """Whether these columns have the ids in the list that files of the table give them."""
        return (
            self._is_by_path and has_field_ids(schema) and all(self.of(p) == field_id(p) for p in field_paths(schema))
        )

    def check_file(self, file: DataFile) -> None:
        """Raise `UnsupportedFeature` if a column's id in a file is that of another column in the list."""
        if not self._is_by_path or not has_field_ids(file.types):
            return
        path = next((path for path in field_paths(file.types) if self.of(path) != field_id(path)), None)
        if path is not None:
            raise UnsupportedFeature(
                f"column {path} of {file.base.path} has the id {field_id(path)} there, which another column has in the"
                " Iceberg list",
                hint="Rename one of the two columns, rewrite the files with t.maintenance.cluster(), then"
                " publish again.",
                context={"column": path, "path": file.base.path},
            )

    def mapping(self) -> list[Json]:
        """The name mapping of these ids, in Iceberg's JSON form."""
        roots: list[Json] = []
        nodes: dict[str, Json] = {}
        for path, number in sorted(self._by_path.items()):
            above, _, name = path.rpartition(".")
            nodes[path] = {"field-id": number, "names": [name]}
            siblings = nodes[above].setdefault("fields", []) if above else roots
            siblings.append(nodes[path])
        return roots


def spec_fields(fields: Iterable[Json], partition_columns: Sequence[str]) -> list[Json]:
    ids = {field["name"]: field["id"] for field in fields}
    return [
        {"name": name, "transform": "identity", "source-id": ids[name], "field-id": FIRST_PARTITION_ID + n}
        for n, name in enumerate(partition_columns)
    ]


def schema_field(field: pa.Field, path: str, ids: ColumnIds) -> Json:
    return {"id": ids.of(path), "name": field.name, "required": False, "type": _type(field.type, path, ids)}


def _type(kind: pa.DataType, path: str, ids: ColumnIds) -> Any:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pt.is_timestamp(kind) and kind.unit == "us":
        return "timestamptz" if kind.tz else "timestamp"
    if pt.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if is_vector(kind):  # the bytes that the files have
        return f"fixed[{vector_size(kind)}]"
    if pt.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if is_list(kind):
        element, number = f"{path}.element", ids.of(f"{path}.element")
        item = _type(kind.value_type, element, ids)
        return {"type": "list", "element-id": number, "element-required": False, "element": item}
    if pt.is_map(kind):
        key, value = ids.of(f"{path}.key"), ids.of(f"{path}.value")
        return {
            "type": "map",
            "key-id": key,
            "key": _type(kind.key_type, f"{path}.key", ids),
            "value-id": value,
            "value-required": False,
            "value": _type(kind.item_type, f"{path}.value", ids),
        }
    if pt.is_struct(kind):
        return {"type": "struct", "fields": [schema_field(field, f"{path}.{field.name}", ids) for field in kind]}
    raise UnsupportedFeature(
        f"column {path} of type {kind} cannot be published as Iceberg, which has no such type",
        hint="Publish the table as Delta, or store the column as another type.",
        context={"column": path, "type": str(kind)},
    )
