"""Expression indexes: which index holds the results of a function that a filter uses, and what it says of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions.index_functions import slice_of
from lakebed.expressions.time_patterns import DEFAULT_PATTERN
from lakebed.filters.predicates import Call, Column, Compare, In, Literal, Predicate, conjuncts
from lakebed.filters.ranges import Bools, Bounds
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.expression_index import KIND as EXPRESSION
from lakebed.metadata.kinds.expression_zones import created_at, is_same_zone, zone_notes
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.read.provenance import written_by_lakebed
from lakebed.read.statistics import bounds_of_expression
from lakebed.slices.snapshot import Snapshot

_TRIMS = ("trim", "ltrim", "rtrim")
_CALENDAR = ("year", "month", "day", "hour")
# No zone moves a time by more than a day.
_YEAR_SLACK = 1


@dataclass(frozen=True)
class IndexedCall:
    """A function in a filter, and the index of its results. `zone` is the time zone that the filter means, where the
    results depend on one."""

    call: Call
    index: str
    column: str
    zone: str | None = None


@dataclass(frozen=True)
class _Meaning:
    """A function of a column by Hudi's name, its options in one form."""

    function: str
    options: tuple[Any, ...]
    column: str
    zone: str | None = None


def indexed_calls(metadata: MetadataTable, calls: Sequence[Call], kind: str) -> Iterator[IndexedCall]:
    """Those of the calls whose results an expression index of this kind (`column_stats`, `bloom_filters`) has."""
    for name in metadata.slices.partitions:
        definition = metadata.slices.definitions.get(name) if EXPRESSION.owns(name) else None
        if definition is None or definition.type != kind or len(definition.source_fields) != 1:
            continue
        held = _of_definition(definition)
        for call in calls:
            meant = _of_call(call)
            if meant is None or held is None:
                continue
            if (meant.function, meant.options, meant.column) == (held.function, held.options, held.column):
                yield IndexedCall(call, name, held.column, meant.zone)


def bounds_of_results(
    snapshot: Snapshot, metadata: MetadataTable, indexed: IndexedCall, names: pa.Array, instants: Sequence[str]
) -> Bounds:
    """What the index says of the function's results in each file; nothing of those that it has of another time zone,
    or of an unknown one."""
    kind = indexed.call.type
    files, _ = metadata.expression_stats(indexed.index, {indexed.column: kind})
    found = bounds_of_expression(files.get(indexed.column), names, kind)
    if indexed.call.name == "unix_timestamp":
        # lakebed once noted -1 for parts of a second before 1970, where Spark has 0, and so before that
        lower = pc.fill_null(pc.less(found.high, 0), False)
        found = replace(found, high=pc.if_else(lower, pc.add(found.high, 1), found.high))
    known = in_its_zone(snapshot, indexed, instants)
    if known.all():
        return found
    low, high = pa.nulls(len(names), kind), pa.nulls(len(names), kind)
    if indexed.call.name == "year":
        low, high = (pc.add(found.low, -_YEAR_SLACK).cast(kind), pc.add(found.high, _YEAR_SLACK).cast(kind))
    flags = pa.array(known)
    return Bounds(
        pc.if_else(flags, found.low, low), pc.if_else(flags, found.high, high), found.may_hold, found.may_null
    )


def in_its_zone(snapshot: Snapshot, indexed: IndexedCall, instants: Sequence[str]) -> Bools:
    """Of files of these instants: whether the index has their results in the time zone that the filter means."""
    if indexed.zone is None:
        return np.ones(len(instants), np.bool_)
    note = zone_notes(snapshot.config.properties).get(indexed.index)
    usable = note is not None and is_same_zone(note.zone, indexed.zone)
    if note is None or not usable or created_at(snapshot.storage, indexed.index) != note.created:
        return np.zeros(len(instants), np.bool_)
    built = np.array([instant <= note.built for instant in instants], np.bool_)
    return built | written_by_lakebed(snapshot.timeline, instants)


def demanded_results(predicate: Predicate) -> dict[Call, pa.Array]:
    """The texts (of whole numbers: their digits) that functions must result in for the filter to be true."""
    found: dict[Call, pa.Array] = {}
    for node in conjuncts(predicate.root):
        match node:
            case Compare(Call() as call, "=" | "<=>", Literal(value)) if _has_texts(call) and value is not None:
                found[call] = _texts(call, [value])
            case In(Call() as call, values) if _has_texts(call):
                found[call] = _texts(call, [v.value for v in values if v.value is not None])
            case _:
                pass
    return found


def _texts(call: Call, results: Sequence[Any]) -> pa.Array:
    found = [str(result) for result in results]
    if call.name == "unix_timestamp":  # as in `bounds_of_results`
        found += [str(result - 1) for result in results if result <= 0]
    return pa.array(found, pa.string())


def _has_texts(call: Call) -> bool:
    return pa.types.is_string(call.type) or pa.types.is_integer(call.type)


def _of_call(call: Call) -> _Meaning | None:
    """What a call of a filter means; None where no index has such results."""
    name, options, inner = call.name, call.options, call.args[0] if len(call.args) == 1 else None
    zone: str | None = None
    if name == "from_unixtime":
        options, zone = options[:1], options[1]
    elif name == "date_of":
        name, options, zone = "to_date", (), options[0] if options else None
    elif name == "date_add" and isinstance(inner, Call) and inner.name == "date_of" and len(inner.args) == 1:
        zone, inner = (inner.options[0] if inner.options else None), inner.args[0]
    elif name == "substring":
        start, size = options
        options = (start, start + size)
    if isinstance(inner, Call) and inner.name == "local" and (name in _CALENDAR or name == "date_format"):
        zone, inner = inner.options[0], inner.args[0]
    return _Meaning(name, options, ".".join(inner.path), zone) if isinstance(inner, Column) else None


def _of_definition(definition: IndexDefinition) -> _Meaning | None:
    function, given = definition.function, definition.options
    column = definition.source_fields[0]
    try:
        return _Meaning(*_in_one_form(function, given), column)
    except (KeyError, ValueError):
        return None


def _in_one_form(function: str, given: Mapping[str, str]) -> tuple[str, tuple[Any, ...]]:
    """The function and its options as a filter's calls have them."""
    if function in _TRIMS:
        return function, (given.get("trimString", " "),)
    if function == "substring":
        return function, slice_of(int(given["pos"]), int(given["len"]))
    if function == "date_format":
        return function, (given["format"],)
    if function == "from_unixtime":
        return function, (given.get("format", DEFAULT_PATTERN),)
    if function in ("date_add", "date_sub"):
        return "date_add", (int(given["days"]) * (1 if function == "date_add" else -1),)
    if "format" in given:
        raise ValueError(function)
    return function, ()
