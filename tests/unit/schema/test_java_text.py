from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import SchemaConflict
from lakebed.schema.java_text import to_java_text


def java_double(x: float, single: bool = False) -> str:
    """Java's Double.toString and Float.toString, one value at a time."""
    if x != x:
        return "NaN"
    sign = "-" if np.signbit(x) else ""
    if x in (float("inf"), float("-inf")):
        return f"{sign}Infinity"
    if x == 0:
        return f"{sign}0.0"
    value = np.float32(x) if single else x
    mantissa, exponent = np.format_float_scientific(abs(value), unique=True, trim="-").split("e")
    if len(mantissa) == 1 and abs(x) < (1e-40 if single else 1e-310):
        mantissa, exponent = f"{abs(x):.1e}".split("e")
    digits, power = mantissa.replace(".", ""), int(exponent)
    if -3 <= power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    if 0 <= power < 7:
        whole = digits.ljust(power + 1, "0")
        return f"{sign}{whole[: power + 1]}.{whole[power + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=50))
def test_doubles_print_as_in_java(values: list[float]):
    assert to_java_text(pa.array(values)).to_pylist() == [java_double(v) for v in values]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_floats_print_as_in_java(values: list[float]):
    assert to_java_text(pa.array(values, pa.float32())).to_pylist() == [java_double(v, True) for v in values]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (1.5, "1.5"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (123456789.125, "1.23456789125E8"),
        (1e10, "1.0E10"),
        (1e23, "1.0E23"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (1.25e-7, "1.25E-7"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
    ],
)
def test_doubles_as_java_prints_them(value: float, text: str):
    assert to_java_text(pa.array([None, value])).to_pylist() == [None, text]
    assert java_double(value) == text


def test_floats_as_java_prints_them():
    values = pa.array([1.1, 16777216.0, 1.4e-45, 3.4028235e38, 0.1], pa.float32())
    assert to_java_text(values).to_pylist() == ["1.1", "1.6777216E7", "1.4E-45", "3.4028235E38", "0.1"]


def test_decimals_are_plain_with_their_full_scale():
    values = [Decimal("1.5"), Decimal("-7"), Decimal("0"), Decimal("0.0000001"), Decimal("-0.0000012"), None]
    assert to_java_text(pa.array(values, pa.decimal128(12, 7))).to_pylist() == [
        "1.5000000",
        "-7.0000000",
        "0.0000000",
        "0.0000001",
        "-0.0000012",
        None,
    ]
    assert to_java_text(pa.array([Decimal("1.50")], pa.decimal128(5, 2))).to_pylist() == ["1.50"]


def test_dates_print_as_in_java():
    days = pa.array([datetime.date(2024, 2, 3), datetime.date(1, 1, 1), None])
    assert to_java_text(days).to_pylist() == ["2024-02-03", "0001-01-01", None]
    assert to_java_text(pa.array([2932897], pa.int32()).cast(pa.date32())).to_pylist() == ["+10000-01-01"]


def test_other_types_print_as_in_java():
    when = datetime.datetime(2024, 2, 3, 4, 5, 6, 123456, datetime.UTC)
    cases = [
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([-128], pa.int8()), ["-128"]),
        (pa.array([2**63 - 1]), ["9223372036854775807"]),
        (pa.array([when], pa.timestamp("us", "UTC")), ["1706933106123456"]),
        (pa.array([-1000], pa.timestamp("us")), ["-1000"]),
        (pa.array([b"bb", b"", None, b"\x00\xff"])[1:], ["", None, "00ff"]),
        (pa.array([b"\x01\x02"], pa.binary(2)), ["0102"]),
        (pa.array(["é", None]), ["é", None]),
        (pa.array(["a", "b", None, "a"]).dictionary_encode(), ["a", "b", None, "a"]),
        (pa.chunked_array([[1.5], [None]], pa.float64()), ["1.5", None]),
        (pa.array([], pa.float64()), []),
    ]
    for array, expected in cases:
        text = to_java_text(array)
        assert text.type == pa.string()
        assert text.to_pylist() == expected


def test_nested_values_have_no_text():
    with pytest.raises(SchemaConflict, match="no text form"):
        to_java_text(pa.array([[1]]))
