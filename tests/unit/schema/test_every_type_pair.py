"""Every stored type against every incoming one, with extreme values: refused, or every value on both sides survives."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRecord, SchemaConflict
from lakebed.schema.arrow import list_of, map_of
from lakebed.schema.assignment import project_incoming
from lakebed.schema.conversion import cast_column
from lakebed.schema.evolution import reconcile

EPOCH = datetime(1970, 1, 1)
MICRO = timedelta(microseconds=1)
FAR = [datetime(1, 1, 1), EPOCH - MICRO, EPOCH + MICRO, datetime(9999, 12, 31, 23, 59, 59, 999999)]
FAR_MILLIS = [datetime(1, 1, 1), EPOCH - 1000 * MICRO, EPOCH, datetime(9999, 12, 31, 23, 59, 59, 999000)]
SMALLEST = {pa.float32(): float(np.finfo("f4").smallest_subnormal), pa.float64(): 5e-324}
GREATEST = {pa.float32(): float(np.finfo("f4").max), pa.float64(): 1.7976931348623157e308}
TENTH = {pa.float32(): float(np.float32(0.1)), pa.float64(): 0.1}


def floats(kind: pa.DataType) -> list[float]:
    return [0.0, -0.0, TENTH[kind], SMALLEST[kind], GREATEST[kind], float("inf"), float("-inf"), float("nan")]


def zoned(times: list[datetime]) -> list[datetime]:
    return [t.replace(tzinfo=UTC) for t in times]


VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int32(): [-(2**31), 2**31 - 1, 2**24 + 1, 0],
    pa.int64(): [-(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1, 2**62, 0],
    pa.float32(): floats(pa.float32()),
    pa.float64(): floats(pa.float64()),
    pa.string(): ["", "ä\u0000😀", "1", "1e400", "x" * 5000],
    pa.binary(): [b"", bytes(range(256)), b"plain"],
    pa.date32(): [date(1, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us", "UTC"): zoned(FAR),
    pa.timestamp("ms", "UTC"): zoned(FAR_MILLIS),
    pa.timestamp("us"): FAR,
    pa.timestamp("ms"): FAR_MILLIS,
    pa.decimal128(9, 2): [Decimal("9999999.99"), Decimal("-9999999.99"), Decimal("0.01")],
    pa.decimal128(18, 6): [Decimal("999999999999.999999"), Decimal("-0.000001")],
    pa.decimal128(38, 0): [Decimal(10**38 - 1)],
    pa.decimal128(38, 38): [Decimal("0." + "9" * 38), Decimal("1e-38")],
}


def same(before: Any, kind: pa.DataType, after: Any, to: pa.DataType) -> bool:
    """Whether a value is the one that it was, in another type."""
    if pa.types.is_timestamp(to) or pa.types.is_decimal(to):
        return before == after
    if kind == to:
        return repr(before) == repr(after)
    if pa.types.is_floating(kind) and pa.types.is_floating(to):
        # a double that has the float's own text
        return repr(float(str(np.float32(before)))) == repr(after)
    if pa.types.is_string(to) and pa.types.is_floating(kind):
        read = np.float32(after) if kind == pa.float32() else float(after.replace("Infinity", "inf"))
        return repr(float(read)) == repr(before)
    if pa.types.is_string(to) and not pa.types.is_binary(kind):
        return Decimal(after) == before
    if pa.types.is_string(to) or pa.types.is_binary(to):
        one, other = (v.encode() if isinstance(v, str) else v for v in (before, after))
        return one == other
    return Fraction(before) == Fraction(after)


def test_refused_or_every_value_survives() -> None:
    for stored, incoming in product(VALUES, VALUES):
        try:
            (field,) = reconcile(pa.schema([("c", stored)]), pa.schema([("c", incoming)]))
        except SchemaConflict:
            continue
        for value in VALUES[stored]:
            (kept,) = cast_column(pa.array([value], stored), field.type).to_pylist()
            assert same(value, stored, kept, field.type), (stored, incoming, value, kept)
        for value in VALUES[incoming]:
            batch = pa.record_batch({"c": pa.array([value], incoming)})
            try:
                (kept,) = project_incoming(batch, pa.schema([field])).column("c").to_pylist()
            except InvalidRecord:
                assert not kept_by(value, incoming, field.type), (stored, incoming, value)
            else:
                assert same(value, incoming, kept, field.type), (stored, incoming, value, kept)


def kept_by(value: Any, kind: pa.DataType, to: pa.DataType) -> bool:
    """Whether the other type has the value."""
    if pa.types.is_integer(kind):
        number = np.float32(value) if to == pa.float32() else np.float64(value)
        return int(number) == value
    if isinstance(value, datetime):
        return value.microsecond % 1000 == 0
    return value.decode(errors="ignore").encode() == value


def test_the_common_type_of_every_pair_is_the_expected_one() -> None:
    """So that no pair is refused, or taken, by mistake."""
    us, ms, day = pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.date32()
    meets = {
        (pa.int32(), pa.int64()): pa.int64(),
        (pa.int64(), pa.int32()): pa.int64(),
        (pa.int32(), pa.float64()): pa.float64(),
        (pa.float64(), pa.int64()): pa.float64(),
        (pa.float32(), pa.int32()): pa.float32(),
        (pa.float32(), pa.float64()): pa.float64(),
        (pa.string(), pa.binary()): pa.string(),
        (pa.binary(), pa.string()): pa.binary(),
        (us, ms): us,
        (ms, us): ms,
        (pa.int32(), pa.float32()): None,
        (pa.int64(), pa.float32()): None,
        (pa.int64(), pa.float64()): None,
        (us, day): None,
        (pa.timestamp("us"), us): None,
    }
    for (stored, incoming), wanted in meets.items():
        try:
            (field,) = reconcile(pa.schema([("c", stored)]), pa.schema([("c", incoming)]))
        except SchemaConflict:
            assert wanted is None, (stored, incoming)
        else:
            assert field.type == wanted, (stored, incoming)


@pytest.mark.parametrize(
    ("kind", "wide", "value", "shown"),
    [
        (pa.struct([("x", pa.int64())]), pa.struct([("y", pa.string()), ("x", pa.float64())]), {"x": 2**53 + 1}, "c.x"),
        (pa.list_(pa.int32()), list_of(pa.float32()), [1, 2**24 + 1], "c.element"),
        (pa.map_(pa.string(), pa.binary()), map_of(pa.string()), [("k", b"\xff")], "c.value"),
        (pa.dictionary(pa.int8(), pa.int64()), pa.float64(), 2**53 + 1, "c"),
    ],
)
def test_a_nested_value_that_does_not_fit_is_refused_by_its_path(
    kind: pa.DataType, wide: pa.DataType, value: Any, shown: str
) -> None:
    values = pa.array([None, value], kind.value_type).dictionary_encode() if pa.types.is_dictionary(kind) else None
    batch = pa.record_batch({"c": pa.array([None, value], kind) if values is None else values})
    with pytest.raises(InvalidRecord, match=rf"column {shown} is"):
        project_incoming(batch, pa.schema([("c", wide)]))


def schema_of(unit: str) -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("at", pa.timestamp(unit, "UTC"))])


def times(unit: str, *given: datetime) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, "at": at} for n, at in enumerate(given)], schema_of(unit))


def test_rows_in_milliseconds_cut_no_stored_microseconds() -> None:
    first, later = (t.replace(tzinfo=UTC) for t in (datetime(2024, 1, 1, 0, 0, 0, 123456), datetime(2024, 1, 2)))
    table = lakebed.create("memory://every-pair/us", schema_of("us"), key="id")
    table.upsert(times("us", first, first))
    table.upsert(times("ms", later))
    found = lakebed.open(table.uri).scan().to_arrow().sort_by("id")
    assert found["at"].to_pylist() == [later, first]
    assert found.schema.field("at").type == pa.timestamp("us", "UTC")


def test_microseconds_that_a_column_in_milliseconds_would_cut_are_refused() -> None:
    whole, finer = (t.replace(tzinfo=UTC) for t in (datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1)))
    table = lakebed.create("memory://every-pair/ms", schema_of("ms"), key="id")
    table.upsert(times("us", whole))
    with pytest.raises(InvalidRecord, match="column at is TIMESTAMP_LTZ in the table, which does not keep"):
        table.upsert(times("us", whole, finer))
    assert lakebed.open(table.uri).scan().to_arrow()["at"].to_pylist() == [whole]
