"""The record keys and secondary values that a filter demands: what to look up in indexes of keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakebed.filters.predicates import Literal, Predicate
from lakebed.model import RECORD_KEY
from lakebed.properties.table_config import TableConfig
from lakebed.read.pruning import MAX_KEYS, Alternative, equalities, has_one_text, key_rows
from lakebed.read.table_keys import key_encodings
from lakebed.schema.java_text import to_java_text


def demanded_keys(predicate: Predicate, config: TableConfig, schema: pa.Schema) -> pa.Array | None:
    """The texts of the record keys that matching rows can have, each once; None where the filter leaves them open.

    The filter names the stored key, or every field of the key by constants of types with one text a value.
    """
    stored = equalities(predicate.root, frozenset((RECORD_KEY,))) if config.populate_meta_fields else None
    if stored is not None:
        texts = [v.value for alternative in stored for v in alternative[RECORD_KEY]]
        return _distinct(pa.array(texts, pa.string())) if len(texts) <= MAX_KEYS else None
    fields = config.key_fields
    types = {f: schema.field(f).type for f in fields if f in schema.names}
    if not fields or len(types) < len(fields) or not all(map(has_one_text, types.values())):
        return None
    alternatives = equalities(predicate.root, frozenset(fields))
    if alternatives is None:
        return None
    return _key_texts(alternatives, config, types)


def _key_texts(
    alternatives: Sequence[Alternative], config: TableConfig, types: Mapping[str, pa.DataType]
) -> pa.Array | None:
    encodings = key_encodings(config)
    found: list[pa.Array] = []
    count = 0
    for alternative in alternatives:
        columns: dict[str, list[Any]] = {}
        rows = 1
        for field in types:
            if field not in alternative:
                return None
            columns[field] = [v.value for v in alternative[field]]
            rows *= len(columns[field])
        count += rows
        if count > MAX_KEYS:
            return None
        table = key_rows(columns, types)
        found += [keys.key_text_of(table) for keys in encodings]
    return _distinct(pa.concat_arrays(found)) if found else pa.array([], pa.string())


def demanded_values(predicate: Predicate, column: str, kind: pa.DataType) -> pa.Array | None:
    """The texts under which a secondary index has the values that a column of matching rows can have (a null among
    them stands for null); None where the filter leaves them open, or the type has several texts a value."""
    texts_of = _TEXTS.get(_kind(kind))
    if texts_of is None:
        return None
    alternatives = equalities(predicate.root, frozenset((column,)))
    if alternatives is None:
        return None
    literals: list[Literal] = [v for alternative in alternatives for v in alternative[column]]
    if len(literals) > MAX_KEYS:
        return None
    return _distinct(texts_of(pa.array([v.value for v in literals], kind)))


def _distinct(texts: pa.Array) -> pa.Array:
    return texts.unique()


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_string(kind):
        return "text"
    if pa.types.is_date32(kind):
        return "date"
    return "micros" if pa.types.is_timestamp(kind) and kind.unit == "us" else ""


_TEXTS: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    "integer": to_java_text,
    "text": lambda values: values,
    "date": lambda values: values.cast(pa.int32()).cast(pa.string()),
    "micros": to_java_text,
}
