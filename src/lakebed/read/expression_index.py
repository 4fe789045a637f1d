"""Expression indexes: which index holds the results of a function that a filter uses, and what it says of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.metadata.definitions import IndexDefinition
from lakebed.metadata.layout import EXPRESSION_INDEX
from lakebed.metadata.metadata_table import MetadataTable
from lakebed.read.predicates import Call, Column, Compare, In, Literal, Predicate, conjuncts
from lakebed.read.ranges import Bounds
from lakebed.read.statistics import bounds_of_files

_TEXT = ("lower", "upper", "trim")
_CALENDAR = ("year", "month", "day", "hour")
_TRIMMED = "trimString"


@dataclass(frozen=True)
class IndexedCall:
    """A function in a filter, and the index of its results. `slack`: by how much the index's results may be off, since
    its writer may have had another time zone."""

    call: Call
    index: str
    column: str
    slack: int = 0


def indexed_calls(metadata: MetadataTable, calls: Sequence[Call], kind: str) -> Iterator[IndexedCall]:
    """Those of the calls whose results an expression index of this kind (`column_stats`, `bloom_filters`) has."""
    for name in metadata.slices.partitions:
        if not name.startswith(EXPRESSION_INDEX):
            continue
        definition = metadata.slices.definitions.get(name)
        if definition is None or definition.type != kind or len(definition.source_fields) != 1:
            continue
        for call in calls:
            slack = _slack(call, definition)
            if slack is not None:
                yield IndexedCall(call, name, definition.source_fields[0], slack)


def bounds_of_results(metadata: MetadataTable, indexed: IndexedCall, names: pa.Array) -> Bounds:
    """What the index says of the function's results in each file."""
    kind = indexed.call.type
    files, _ = metadata.expression_stats(indexed.index, {indexed.column: kind})
    found = bounds_of_files(files.get(indexed.column), names, np.zeros(len(names), np.bool_), kind)
    if not indexed.slack:
        return found
    low, high = pc.subtract(found.low, indexed.slack), pc.add(found.high, indexed.slack)
    return Bounds(low.cast(kind), high.cast(kind), found.may_hold, found.may_null)


def demanded_results(predicate: Predicate) -> dict[Call, pa.Array]:
    """The texts that functions must result in for the filter to be true."""
    found: dict[Call, pa.Array] = {}
    for node in conjuncts(predicate.root):
        match node:
            case Compare(Call() as call, "=" | "<=>", Literal(value)) if pa.types.is_string(call.type):
                found[call] = pa.array([value], pa.string())
            case In(Call() as call, values) if pa.types.is_string(call.type):
                found[call] = pa.array([v.value for v in values], pa.string())
            case _:
                pass
    return found


def _slack(call: Call, definition: IndexDefinition) -> int | None:
    """How far the index's results may be off from the call's; None where it has those of something else."""
    function, options = definition.function, definition.options
    inner = call.args[0] if len(call.args) == 1 else None
    zoned = isinstance(inner, Call) and inner.name == "local"
    column = inner.args[0] if isinstance(inner, Call) and zoned else inner
    if not isinstance(column, Column) or ".".join(column.path) != definition.source_fields[0] or call.name != function:
        return None
    if zoned:
        # no zone moves a time by more than a day
        return 1 if function == "year" else None
    if function in _TEXT:
        return 0 if _TRIMMED not in options else None
    if function == "substring":
        return 0 if call.options == _substring(options) else None
    return 0 if function == "length" or function in _CALENDAR else None


def _substring(options: Mapping[str, str]) -> tuple[int, int] | None:
    try:
        start, size = int(options["pos"]), int(options["len"])
    except (KeyError, ValueError):
        return None
    return (max(start - 1, 0), size) if start >= 0 and size >= 0 else None
