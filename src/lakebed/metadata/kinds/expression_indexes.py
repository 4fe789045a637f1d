"""Expression indexes by their definitions: the function, the column, the kind of records, and how one is defined."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from lakebed.expressions.index_functions import EXPRESSION, IDENTITY, IndexFunction, index_function
from lakebed.format.bloom import BloomFilter
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.layout import BLOOM_FILTERS, COLUMN_STATS, EXPRESSION_INDEX

Kind = Literal["column_stats", "bloom_filters"]
KINDS: tuple[Kind, ...] = (COLUMN_STATS, BLOOM_FILTERS)
# Hudi 1.2 fails on the next write to a table of version 8 that has one, and before that there were none.
FIRST_VERSION = 9
_BLOOM_OPTIONS = ("filtertype", "numentries", "fpp", "maxentries")
_FILTER_TYPES = ("SIMPLE", "DYNAMIC_V0")


@dataclass(frozen=True)
class ExpressionIndex:
    """An expression index that lakebed keeps: its definition, and the function over its column."""

    definition: IndexDefinition
    function: IndexFunction

    @classmethod
    def of(cls, definition: IndexDefinition, schema: pa.Schema) -> ExpressionIndex:
        """The index over a column of this schema. Raises `UnsupportedFeature` or `InvalidOption` for one that lakebed
        does not keep."""
        if definition.type not in KINDS:
            raise UnsupportedFeature(
                f"an expression index of kind {definition.type!r}",
                hint=f"There are {' and '.join(KINDS)}.",
                context={"feature": "expression index", "kind": definition.type},
            )
        column = definition.source_fields[0] if len(definition.source_fields) == 1 else ""
        if column not in schema.names:
            raise UnsupportedFeature(
                f"an expression index on {', '.join(definition.source_fields) or 'no column'}",
                hint=f"It is on one column of the table: {', '.join(schema.names)}.",
                context={"feature": "expression index", "columns": list(definition.source_fields)},
            )
        own = {k: v for k, v in definition.options.items() if not (_is_bloom(definition) and k in _BLOOM_OPTIONS)}
        found = index_function(definition.function or IDENTITY, own, schema.field(column).type)
        if found.name == IDENTITY and not _is_bloom(definition):
            raise InvalidOption(
                f"an expression index of column stats on {column!r} without a function",
                hint="That is what the index 'column_stats' keeps.",
                context={"index": definition.name, "column": column},
            )
        if _is_bloom(definition):
            new_filter(definition)
            if not (pt.is_string(found.result) or pt.is_integer(found.result)):
                raise UnsupportedFeature(
                    f"bloom filters over results of type {found.result} ({found.name} of {column})",
                    hint="They are kept of texts and whole numbers; take kind='column_stats'.",
                    context={"feature": "expression index", "function": found.name, "type": str(found.result)},
                )
        return cls(definition, found)

    @property
    def partition(self) -> str:
        """Its partition of the metadata table."""
        return self.definition.name

    @property
    def column(self) -> str:
        """The column that it is on."""
        return self.definition.source_fields[0]

    @property
    def has_filters(self) -> bool:
        """Whether its records are bloom filters; else they are ranges."""
        return _is_bloom(self.definition)


def expression_partition(name: str) -> str:
    """The partition of the index that a user gives this name, with or without Hudi's prefix.

    >>> expression_partition("by_day"), expression_partition("expr_index_by_day")
    ('expr_index_by_day', 'expr_index_by_day')
    """
    return EXPRESSION_INDEX + name.removeprefix(EXPRESSION_INDEX)


def expression_index_definition(
    name: str, column: str, function: str, options: Mapping[str, Any], kind: str
) -> IndexDefinition:
    """The definition as Hudi's CREATE INDEX makes it: the function stands among the options as well.

    >>> expression_index_definition("d", "at", "date_format", {"format": "yyyy"}, "column_stats").options
    {'expr': 'date_format', 'format': 'yyyy'}
    """
    texts = {EXPRESSION: function, **{key: str(value) for key, value in options.items()}}
    return IndexDefinition(expression_partition(name), kind, function, (column,), texts, version=2)


def kept_indexes(
    partitions: Collection[str], definitions: Mapping[str, IndexDefinition], schema: pa.Schema
) -> list[ExpressionIndex]:
    """The expression indexes among these partitions; those that lakebed cannot keep are left out."""
    names = sorted(p for p in partitions if p.startswith(EXPRESSION_INDEX))
    return [one for name in names if not isinstance(one := _kept(definitions.get(name), schema), str)]


def reason_not_kept(definition: IndexDefinition | None, schema: pa.Schema, version: int) -> str | None:
    """Why lakebed cannot keep an expression index up to date; None where it can. An empty schema (of a table without
    commits) refuses nothing."""
    if version < FIRST_VERSION:
        return f"an expression index of a table of version {version}"
    found = _kept(definition, schema)
    return found if isinstance(found, str) and len(schema) else None


def new_filter(definition: IndexDefinition) -> BloomFilter:
    """An empty filter by the index's options, Hudi's defaults else. Raises `InvalidOption`."""
    options = definition.options
    kind = options.get("filtertype", "DYNAMIC_V0").upper()
    try:
        entries, fpp = int(options.get("numentries", 60_000)), float(options.get("fpp", 1e-9))
        most = int(options.get("maxentries", 100_000))
        if kind not in _FILTER_TYPES or entries < 1 or most < 1 or not 0 < fpp < 1:
            raise ValueError
    except ValueError:
        raise InvalidOption(
            f"a bloom filter with {', '.join(f'{k}={options[k]!r}' for k in _BLOOM_OPTIONS if k in options)}",
            hint=f"filtertype is one of {', '.join(_FILTER_TYPES)}, numentries and maxentries are counts, fpp a rate.",
        ) from None
    return BloomFilter.simple(entries, fpp) if kind == "SIMPLE" else BloomFilter.dynamic(entries, fpp, most)


def _is_bloom(definition: IndexDefinition) -> bool:
    return definition.type == BLOOM_FILTERS


def _kept(definition: IndexDefinition | None, schema: pa.Schema) -> ExpressionIndex | str:
    if definition is None:
        return "an expression index without a definition"
    try:
        return ExpressionIndex.of(definition, schema)
    except LakebedError as refusal:
        return refusal.message
