from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import InvalidRecord
from lakebed.expressions.key_text import KeyText, timestamp_micros, values_of_key_texts
from lakebed.expressions.zones import java_zone


def text(values: pa.Array, **more: object) -> list[str | None]:
    return KeyText("v", **more).arrow(pa.record_batch([values], ["v"])).to_pylist()


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array(["a", "", None]), ["a", "", None]),
        (pa.array(["a", None], pa.large_string()), ["a", None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array([-1, None], pa.int8()), ["-1", None]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([19756, None], pa.int32()).cast(pa.date32()), ["2024-02-03", None]),
        (
            pa.array([1706933106123456, -1000, None]).cast(pa.timestamp("us", "UTC")),
            ["1706933106123456", "-1000", None],
        ),
        (pa.array([1706933106123, None]).cast(pa.timestamp("ms")), ["1706933106123000", None]),
        (pa.array([-1, 1500]).cast(pa.timestamp("ns", "Asia/Tokyo")), ["-1", "1"]),
        (pa.array([b"bb", b"", None]), ["6262", "", None]),
    ],
)
def test_text_of_each_type(values: pa.Array, texts: list[str | None]) -> None:
    assert text(values) == texts


def test_consistent_timestamps_have_one_to_three_fraction_digits_in_the_zone() -> None:
    stamps = pa.array([0, 1706933106123456, 1706933106120999, None]).cast(pa.timestamp("us", "UTC"))
    assert text(stamps, consistent_timestamp=True, zone=java_zone("Asia/Kolkata")) == [
        "1970-01-01 05:30:00.0", "2024-02-03 09:35:06.123", "2024-02-03 09:35:06.12", None
    ]  # fmt: skip


@settings(deadline=None)
@given(st.integers(-(10**28), 10**28), st.integers(0, 28))
def test_decimals_print_as_big_decimal_does(unscaled: int, scale: int) -> None:
    value = Decimal(f"{unscaled}E-{scale}")
    assert text(pa.array([value, None], pa.decimal128(38, scale))) == [str(value), None]


def test_nanoseconds_before_1970_round_down() -> None:
    assert timestamp_micros(pa.array([-1, 999, 1000, None]).cast(pa.timestamp("ns"))).to_pylist() == [-1, 0, 1, None]


def test_a_number_is_written_in_decimal_digits_and_within_its_type() -> None:
    wrong = {pa.int64(): ["0x10", "0X1", "-0x1"], pa.float32(): ["1e39", "-1e39"], pa.float64(): ["1e309"]}
    for kind, texts in wrong.items():
        for text in texts:
            with pytest.raises(InvalidRecord, match=f"the text '{text}' "):
                values_of_key_texts(pa.array(["1", None, text]), kind)
    right = pa.array(["1e38", None, "inf", "-Infinity"])
    assert values_of_key_texts(right, pa.float64()).to_pylist() == [1e38, None, math.inf, -math.inf]
