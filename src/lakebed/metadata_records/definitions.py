"""Index definitions: what each index of a table indexes, stored in a JSON file next to the table's properties."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from lakebed.errors import CorruptFile, StorageError
from lakebed.format.file_names import is_data_path
from lakebed.format.text import parse_json_object
from lakebed.model import HOODIE, RECORD_INDEX
from lakebed.properties.table_config import TableConfig
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.encoding import pretty_json

DEFINITIONS_PROPERTY = "hoodie.table.index.defs.path"
DEFINITIONS_PATH = f"{HOODIE}/.index_defs/index.json"
LOCAL_DEFINITIONS_PROPERTY = "lakebed.index_definitions"
"""The property with the definitions of indexes that Hudi does not have: its writers fail on a name in their file that
they do not know."""
RANGES_OPTION = "lakebed.ranges"
"""In the definition of statistics that lakebed built: ranges of floating columns count NaN, which Hudi's do not."""
VECTOR_KIND = "vector_index"
"""The type of a vector index."""
TEXT_KIND = "text_index"
"""The type of a text index."""
_LOCAL_TYPES = (VECTOR_KIND, TEXT_KIND)
_DEFINITIONS = "indexDefinitions"
_FIRST_VERSION_WITH_VERSIONS = 9


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """The definition of one index; `name` is its partition in the metadata table.

    `type` is record_index, column_stats, secondary_index or bloom_filters; `function` empty, column_stats, identity or
    an expression's; `version` 1 or 2 (1 where the file names none, as release 1.0 leaves it).
    """

    name: str
    type: str
    function: str = ""
    source_fields: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    version: int = 1


def index_version(definition: IndexDefinition | None, table_version: int) -> int:
    """The version of an index; without a definition the version that indexes of such a table get."""
    return definition.version if definition else 2 if table_version >= _FIRST_VERSION_WITH_VERSIONS else 1


def load_definitions(storage: Storage, config: TableConfig) -> dict[str, IndexDefinition]:
    """The table's index definitions by partition name; empty if it has none.

    Raises `CorruptFile`.
    """
    text = config.properties.get(LOCAL_DEFINITIONS_PROPERTY)
    local = dict(_in_property(text)) if text else {}
    path = config.properties.get(DEFINITIONS_PROPERTY)
    if not path:
        return local
    try:
        body = storage.read(_relative(path))
    except FileNotFoundError:
        return local
    except StorageError as cause:
        if is_data_path(f"-/{_relative(path)}"):
            raise
        raise CorruptFile(
            f"hoodie.properties has {DEFINITIONS_PROPERTY}={path}, which leads out of the table",
            hint=f"Hudi keeps the index definitions in {DEFINITIONS_PATH}.",
            context={"path": path},
        ) from cause
    try:
        return {**_parsed(body, path), **local}
    except (CorruptFile, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise CorruptFile(
            f"{path} holds no index definitions: {cause}",
            hint="Restore the file from a copy, or drop and create the table's indexes again.",
            context={"path": path},
        ) from cause


def _in_property(text: str) -> Mapping[str, IndexDefinition]:
    try:
        return _parsed(text.encode(), LOCAL_DEFINITIONS_PROPERTY)
    except (CorruptFile, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise CorruptFile(
            f"the property {LOCAL_DEFINITIONS_PROPERTY} holds no index definitions: {cause}",
            hint="Drop and create the table's vector indexes and text indexes again.",
            context={"property": LOCAL_DEFINITIONS_PROPERTY},
        ) from cause


@lru_cache(maxsize=64)  # each view of a table reads the file, which rarely changes
def _parsed(body: bytes, path: str) -> Mapping[str, IndexDefinition]:
    entries = cast("dict[str, dict[str, Any]]", parse_json_object(body, path)[_DEFINITIONS])
    return {partition: _definition(partition, entry) for partition, entry in entries.items()}


def dump_definitions(definitions: Iterable[IndexDefinition], table_version: int) -> bytes:
    """The file's content, laid out as Hudi's; versions are included from table version 9 on. Definitions of indexes
    that Hudi does not have are left out: they are in a property.

    >>> print(dump_definitions([IndexDefinition("record_index", "record_index")], 8).decode())
    {
      "indexDefinitions" : {
        "record_index" : {
          "indexName" : "record_index",
          "indexType" : "record_index",
          "indexFunction" : "",
          "sourceFields" : [ ],
          "indexOptions" : { }
        }
      }
    }
    """
    listed = (definition for definition in definitions if definition.type not in _LOCAL_TYPES)
    return pretty_json({_DEFINITIONS: _entries(listed, table_version)}).encode()


def write_definitions(
    storage: Storage, config: TableConfig, definitions: Collection[IndexDefinition], *, version: int | None = None
) -> dict[str, str | None]:
    """Write the definitions of all indexes of a table to their file. Returns the change of the table's properties that
    belongs to it, for the caller to write: the path of the file, and the definitions of indexes that Hudi does not
    have. Empty where the properties stay as they are. The file gets the form of table version
    `version` (None: the table's)."""
    version = config.version if version is None else version
    storage.write(DEFINITIONS_PATH, dump_definitions(definitions, version))
    entries = _entries((definition for definition in definitions if definition.type in _LOCAL_TYPES), version)
    text = json.dumps({_DEFINITIONS: entries}, separators=(",", ":"), sort_keys=True) if entries else None
    path = config.properties.get(DEFINITIONS_PROPERTY) or DEFINITIONS_PATH
    changes = {DEFINITIONS_PROPERTY: path, LOCAL_DEFINITIONS_PROPERTY: text}
    return {key: value for key, value in changes.items() if (config.properties.get(key) or None) != value}


def _entries(definitions: Iterable[IndexDefinition], table_version: int) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for definition in definitions:
        entry: dict[str, Any] = {
            "indexName": definition.name,
            "indexType": definition.type,
            "indexFunction": definition.function,
            "sourceFields": list(definition.source_fields),
            "indexOptions": dict(definition.options),
        }
        if table_version >= _FIRST_VERSION_WITH_VERSIONS:
            entry["version"] = f"V{definition.version}"
        entries[definition.name] = entry
    return entries


def _definition(partition: str, entry: dict[str, Any]) -> IndexDefinition:
    name, kind, function = entry.get("indexName") or partition, entry["indexType"], entry.get("indexFunction") or ""
    fields = tuple(entry.get("sourceFields") or ())
    if {*map(type, (name, kind, function, *fields))} != {str}:
        raise ValueError(f"the definition of {partition} has a name that is no text")
    return IndexDefinition(
        name=name,
        type=kind,
        function=function,
        source_fields=fields,
        options={key: str(value) for key, value in (entry.get("indexOptions") or {}).items()},
        version=int(str(entry.get("version") or "V1").removeprefix("V")),
    )


def _relative(path: str) -> str:
    """The path relative to the table: old files have the table's full path in front."""
    return path if path.startswith(HOODIE) else HOODIE + path.rpartition(f"/{HOODIE}")[2] if HOODIE in path else path


PARTITIONED_RECORD_INDEX = f"{RECORD_INDEX}:partitioned"


SECONDARY_PREFIX = "secondary:"


@dataclass(frozen=True, slots=True)
class IndexName:
    """The name of one index: its `partition` of the metadata table, the `column` of a secondary index, whether a record
    index is `partitioned` (one for each partition path of the data), and the definition of an index on an `expression`.

    >>> str(IndexName("secondary_index_city", column="city")), str(IndexName("record_index", partitioned=True))
    ('secondary:city', 'record_index:partitioned')
    """

    partition: str
    column: str | None = None
    partitioned: bool = False
    expression: IndexDefinition | None = None

    def __str__(self) -> str:
        if self.column is not None:
            return SECONDARY_PREFIX + self.column
        return PARTITIONED_RECORD_INDEX if self.partitioned else self.partition
