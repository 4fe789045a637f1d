"""From the metadata table's statistics to bounds that can be relied on.

Real Hudi's records are wrong for some values. A Parquet chunk without statistics (long texts, old timestamps) counts
as all null; a floating column with a NaN has the range 0.0 to 0.0; bytes are merged in signed order; the texts of
log files are ordered as UTF-16; statistics of a partition leave out what they do not know. A record that cannot be
distinguished from a wrong one rules nothing out; those of files that lakebed wrote can be relied on further.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filters.ranges import Bools, Bounds, flags_of
from lakebed.model import WRITER_ID
from lakebed.schema.plain_arrow import as_numpy, grouped_rows, one_array
from lakebed.timeline.timeline import Timeline

# From here on UTF-16 and UTF-8 disagree on the order of characters.
_ORDERED_OTHERWISE = r"[\x{E000}-\x{10FFFF}]"
_MICROS = "us"
_ZERO, _ONE = (pa.scalar(number, pa.int64()) for number in (0, 1))


def can_bound(kind: pa.DataType, *, version: int, exact: bool) -> bool:
    """Whether ranges of this type are reliable. `version` is that of the index; `exact` is whether lakebed wrote
    them."""
    if pa.types.is_floating(kind):
        return exact
    if pa.types.is_timestamp(kind):
        # the first version does not note the unit
        return version >= 2 or kind.unit == _MICROS
    return is_in_every_footer(kind) or pa.types.is_string(kind)


def is_in_every_footer(kind: pa.DataType) -> bool:
    """Whether every writer stores the range of a column of this type in its files."""
    return (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_decimal128(kind))
    )


def bounds_of_files(stats: pa.Table | None, names: pa.Array, exact: Bools, kind: pa.DataType) -> Bounds:
    """The bounds of one column in files, from its table of statistics; unknown for a file without a record.

    `exact` is for each file whether lakebed wrote its record.
    """
    recorded_bounds = _bounds_in(stats, names)
    if recorded_bounds is None:
        return unknown(len(names), kind)
    low, high, nulls, values = recorded_bounds
    high = with_nan(low, high)
    claims_nothing = flags_of(pc.and_(pc.equal(nulls, values), pc.greater_equal(nulls, _ZERO)), False)
    trusted = exact | is_in_every_footer(kind)
    may_null = ~flags_of(pc.equal(nulls, _ZERO), False)
    if pa.types.is_floating(kind):
        low, high = (pc.if_else(pa.array(exact), side, pa.scalar(None, kind)) for side in (low, high))
    else:
        # perhaps of another column that had the name before, whose values are not read
        may_null |= as_numpy(low.is_null())
    return Bounds(low, high, ~(claims_nothing & trusted), may_null)


def bounds_of_expression(stats: pa.Table | None, names: pa.Array, kind: pa.DataType) -> Bounds:
    """The bounds of a function's results in files, from an expression index, whose value counts do not include
    nulls."""
    recorded_bounds = _bounds_in(stats, names)
    if recorded_bounds is None:
        return unknown(len(names), kind)
    low, high, nulls, values = recorded_bounds
    high = with_nan(low, high)
    return Bounds(low, high, ~flags_of(pc.equal(values, 0), False), ~flags_of(pc.equal(nulls, _ZERO), False))


def bounds_of_partitions(
    stats: pa.Table | None, partitions: pa.Array, kind: pa.DataType, *, version: int, log_files: bool
) -> Bounds:
    """The bounds of one column in complete partitions; known for fewer types than in files, since a file without a
    record is missing in its partition's range."""
    bounds = bounds_of_files(stats, partitions, np.zeros(len(partitions), np.bool_), kind)
    usable = is_in_every_footer(kind)
    if usable and pa.types.is_decimal(kind) and version < 2 and log_files:
        usable = False  # the first version has none of log files
    may_null = np.ones(len(partitions), np.bool_)
    if usable:
        return Bounds(bounds.low, bounds.high, bounds.may_hold, may_null)
    if pa.types.is_string(kind) or pa.types.is_timestamp(kind):
        # a chunk that nothing is known of counts as nulls
        complete = pa.array(~bounds.may_null)
        low, high = (pc.if_else(complete, side, pa.scalar(None, kind)) for side in (bounds.low, bounds.high))
        return Bounds(low, high, bounds.may_hold, may_null)
    return unknown(len(partitions), kind)


def of_slices(bounds: Bounds, owner: npt.NDArray[np.int64], slices: int) -> Bounds:
    """The bounds of file slices, from those of their files; `owner` has the slice number of each file."""
    may_hold = pa.array(bounds.may_hold)
    kind = bounds.low.type
    low, high, nan = bounds.low, bounds.high, pa.repeat(pa.scalar(False, pa.bool_()), len(bounds))
    if pa.types.is_floating(kind):
        # Arrow's minimum and maximum pass over NaN, which is the greatest number here
        nan = pc.fill_null(pc.is_nan(high), False)
        low = pc.if_else(pc.is_nan(low), pa.scalar(float("inf"), kind), low)
    table = pa.table(
        {
            "slice": owner,
            "low": low,
            "high": high,
            "nan": nan,
            # a file of nulls alone has no bounds to know
            "low_unknown": pc.and_(may_hold, low.is_null()),
            "high_unknown": pc.and_(may_hold, high.is_null()),
            "hold": may_hold,
            "null": pa.array(bounds.may_null),
        }
    )
    flags = ["nan", "low_unknown", "high_unknown", "hold", "null"]
    aggregations = [("low", "min"), ("high", "max"), *[(name, "any") for name in flags]]
    joined = grouped_rows(table, ["slice"], aggregations)
    joined = joined.take(pc.index_in(pa.array(np.arange(slices)), value_set=one_array(joined["slice"])))
    least, greatest = one_array(joined["low_min"]), one_array(joined["high_max"])
    if pa.types.is_floating(kind):
        greatest = pc.if_else(one_array(joined["nan_any"]), pa.scalar(float("nan"), kind), greatest)
    nothing = pa.scalar(None, kind)
    least = pc.if_else(one_array(joined["low_unknown_any"]), nothing, least)
    greatest = pc.if_else(one_array(joined["high_unknown_any"]), nothing, greatest)
    return Bounds(least, greatest, flags_of(joined["hold_any"], True), flags_of(joined["null_any"], True))


def unknown(units: int, kind: pa.DataType) -> Bounds:
    """Unknown bounds of `units` units."""
    everything = np.ones(units, np.bool_)
    return Bounds(pa.nulls(units, kind), pa.nulls(units, kind), everything, everything)


def _bounds_in(stats: pa.Table | None, names: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array] | None:
    """The least and greatest value, and the numbers of nulls and of values, of each file, null for a file without a
    record and for a file whose name several files have; None if no file has one."""
    if stats is None or not len(stats):
        return None
    stored = one_array(stats["file_name"])
    rows = pc.index_in(names, value_set=stored)
    counted = pc.value_counts(stored)
    repeated = counted.field("values").filter(pc.greater(counted.field("counts"), _ONE))
    if len(repeated):
        rows = pc.if_else(pc.is_in(names, value_set=repeated), pa.scalar(None, rows.type), rows)
    records = stats.select(["min", "max", "null_count", "value_count"]).take(rows)
    low, high = [_readable(one_array(records[name])) for name in ("min", "max")]
    return low, high, one_array(records["null_count"]), one_array(records["value_count"])


def _readable(side: pa.Array) -> pa.Array:
    """The text bounds that are valid in every order that a writer may have used; null for the others."""
    if not pa.types.is_string(side.type):
        return side
    return pc.if_else(pc.match_substring_regex(side, _ORDERED_OTHERWISE), pa.scalar(None, side.type), side)


def with_nan(low: pa.Array, high: pa.Array) -> pa.Array:
    """The greatest values, with NaN in place of infinity if both bounds are infinite: these are also written for
    columns with NaN, which is greater."""
    if not pa.types.is_floating(high.type):
        return high
    anything = pc.and_(pc.equal(low, pa.scalar(-math.inf, low.type)), pc.equal(high, pa.scalar(math.inf, high.type)))
    return pc.if_else(anything, pa.scalar(math.nan, high.type), high)


def written_by_lakebed(timeline: Timeline, instants: Sequence[str]) -> Bools:
    """Flags of the instants whose files lakebed wrote; false for archived commits."""
    by_time = {i.time: i for i in timeline.commits}
    by_lakebed = {
        time: time in by_time and WRITER_ID in timeline.commit_metadata(by_time[time]).extra for time in set(instants)
    }
    return np.array([by_lakebed[time] for time in instants], np.bool_)
