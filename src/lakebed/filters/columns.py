"""Finding a column by the name a user wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import pyarrow as pa

from lakebed.errors import InvalidOption


def resolve_columns(names: Iterable[str], schema: pa.Schema) -> list[str]:
    """The columns of these names as the schema has them, each once; see `resolve_column`."""
    known = frozenset(schema.names)
    return list(dict.fromkeys(name if name in known else resolve_column(name, schema).name for name in names))


def resolve_column(name: str, schema: pa.Schema) -> pa.Field:
    """The column of that name, exactly or in another case; `InvalidOption` names the nearest for an unknown one."""
    at = schema.get_field_index(name)
    if at >= 0:
        return schema.field(at)
    for found in schema:
        if found.name.lower() == name.lower():
            return found
    near = difflib.get_close_matches(name.lower(), [n.lower() for n in schema.names], n=1, cutoff=0.5)
    nearest = next((n for n in schema.names if near and n.lower() == near[0]), None)
    raise InvalidOption(
        f"no column {name!r} in the table",
        hint=f"did you mean {nearest!r}?" if nearest else f"columns are {', '.join(schema.names[:20])}",
        context={"column": name, "nearest": nearest},
    )
