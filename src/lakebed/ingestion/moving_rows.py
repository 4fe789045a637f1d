"""Tables whose rows may come with another partition path than before: the index that finds them, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakebed.index.registry import make_index
from lakebed.properties.table_config import TableConfig
from lakebed.table import Table

# What names the index of a new table by itself.
_NAMES = ("index", "buckets", "hash_fields", "partition_buckets")
_TYPE, _METADATA = "hoodie.index.type", "hoodie.metadata.enable"
_MOVES = "hoodie.record.index.update.partition.path"


def index_defaults(create: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `lakebed.create` for a table whose rows may move, if it names no index: an index that finds rows by
    their key alone, if the partition path has columns that are not in the key.

    >>> index_defaults({"key": "id", "partition_by": "city"})["index"], index_defaults({"key": "id"})
    ('record', {})
    """
    properties = create.get("properties") or {}
    moves = not {*_columns(create.get("partition_by"))} <= {*_columns(create.get("key"))}
    if not moves or any(name in create for name in _NAMES) or _TYPE in properties:
        return {}
    if str(properties.get(_METADATA, True)).lower() == "false":
        return {"index": "global_simple"}
    return {"index": "record", "properties": {_MOVES: "true"}}


def searched_partition(table: Table | None, create: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of the partition path, if the table's index looks for keys only in that path and the key does not
    have all of them; otherwise empty. For a table that does not exist yet `create` has the arguments."""
    if table is None:
        fields, keys = _columns(create.get("partition_by")), _columns(create.get("key"))
        index = create.get("index")
        is_global = bool(index_defaults(create)) or (
            index not in (None, "auto") and make_index(index, key_fields=keys).is_global
        )
    else:
        config = TableConfig(dict(table.properties))
        fields, keys = tuple(config.partition_fields), tuple(config.key_fields)
        is_global = not fields or table.indexes.index.is_global
    return () if is_global or {*fields} <= {*keys} else fields


def _columns(names: Any) -> tuple[str, ...]:
    """The columns that an argument names, `day:SIMPLE` too."""
    listed = [] if names is None else names.split(",") if isinstance(names, str) else list(names)
    return tuple(str(name).partition(":")[0].strip() for name in listed)
