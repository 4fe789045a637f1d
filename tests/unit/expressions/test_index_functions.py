"""Functions of expression indexes: Spark's results, what is refused, what is not known."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.index_functions import FUNCTION_NAMES, index_function
from lakebed.expressions.time_patterns import printed

INSTANT = pa.timestamp("us", "UTC")
TIMES = pa.array(
    [datetime(2024, 2, 29, 13, 5, 9, 123456, UTC), datetime(1969, 12, 31, 23, 59, 59, 5, UTC), None], INSTANT
)
DAYS = pa.array([date(2024, 2, 29), date(1969, 12, 31), None], pa.date32())
TEXTS = pa.array([" Ab x", "日本é", None, ""], pa.string())
SECONDS = pa.array([0, -1, 1_700_000_000, None], pa.int64())


@pytest.mark.parametrize(
    ("name", "options", "values", "expected"),
    [
        ("identity", {}, TEXTS, [" Ab x", "日本é", None, ""]),
        ("upper", {}, TEXTS, [" AB X", "日本É", None, ""]),
        ("lower", {"expr": "lower"}, TEXTS, [" ab x", "日本é", None, ""]),
        ("trim", {}, TEXTS, ["Ab x", "日本é", None, ""]),
        ("ltrim", {"trimString": " A"}, TEXTS, ["b x", "日本é", None, ""]),
        ("rtrim", {"trimString": "xé"}, TEXTS, [" Ab ", "日本", None, ""]),
        ("length", {}, TEXTS, [5, 3, None, 0]),
        ("substring", {"pos": "2", "len": "2"}, TEXTS, ["Ab", "本é", None, ""]),
        ("substring", {"pos": "-2", "len": "5"}, TEXTS, [" x", "本é", None, ""]),
        ("substring", {"pos": "-4", "len": "2"}, TEXTS, ["Ab", "日", None, ""]),
        ("substring", {"pos": "0", "len": "-1"}, TEXTS, ["", "", None, ""]),
        ("year", {}, TIMES, [2024, 1969, None]),
        ("month", {}, DAYS, [2, 12, None]),
        ("day", {}, TIMES, [29, 31, None]),
        ("hour", {}, TIMES, [13, 23, None]),
        ("date_format", {"format": "yyyy-MM-dd"}, TIMES, ["2024-02-29", "1969-12-31", None]),
        ("date_format", {"format": "yy/M/d h a.SSS ''"}, TIMES, ["24/2/29 1 PM.123 '", "69/12/31 11 PM.000 '", None]),
        ("date_format", {"format": "yyyyMMdd HH"}, DAYS, ["20240229 00", "19691231 00", None]),
        ("from_unixtime", {}, SECONDS, ["1970-01-01 00:00:00", "1969-12-31 23:59:59", "2023-11-14 22:13:20", None]),
        ("from_unixtime", {"format": "yyyy"}, SECONDS.cast(pa.int32()), ["1970", "1969", "2023", None]),
        ("unix_timestamp", {}, TIMES, [1709211909, 0, None]),
        ("unix_timestamp", {}, DAYS, [1709164800, -86400, None]),
        ("to_date", {}, TIMES, [date(2024, 2, 29), date(1969, 12, 31), None]),
        ("to_timestamp", {}, DAYS, [datetime(2024, 2, 29, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC), None]),
        ("date_add", {"days": "1"}, DAYS, [date(2024, 3, 1), date(1970, 1, 1), None]),
        ("date_sub", {"days": "60"}, TIMES, [date(2023, 12, 31), date(1969, 11, 1), None]),
    ],
)  # fmt: skip
def test_functions_give_sparks_results(
    name: str, options: dict[str, str], values: pa.Array, expected: list[Any]
) -> None:
    function = index_function(name, options, values.type)
    found = function.apply(values)
    assert found is not None
    assert found.type == function.result
    assert found.to_pylist() == expected


def test_functions_of_instants_alone_depend_on_a_zone() -> None:
    zoned = [
        (name, str(kind))
        for name, options in (("year", {}), ("date_format", {"format": "yyyy"}), ("to_date", {}), ("to_timestamp", {}),
            ("unix_timestamp", {}), ("date_add", {"days": "1"}))
        for kind in (INSTANT, pa.date32())
        if index_function(name, options, kind).zoned
    ]  # fmt: skip
    assert zoned == [
        ("year", str(INSTANT)),
        ("date_format", str(INSTANT)),
        ("to_date", str(INSTANT)),
        ("to_timestamp", "date32[day]"),
        ("unix_timestamp", "date32[day]"),
        ("date_add", str(INSTANT)),
    ]
    assert index_function("from_unixtime", {}, pa.int64()).zoned


@pytest.mark.parametrize(("name", "one_by_one"), [("upper", str.upper), ("lower", str.lower)])
def test_every_character_that_is_taken_for_certain(name: str, one_by_one: Any) -> None:
    """Of characters that Java and Arrow may treat in another way, nothing is said."""
    function = index_function(name, {}, pa.string())
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    results = function.compute(pa.array(characters)).to_pylist()
    wrong = [c for c, found in zip(characters, results, strict=True) if found != one_by_one(c)]
    assert wrong
    assert all(function.apply(pa.array([c])) is None for c in wrong)
    assert function.apply(pa.array(["Straße" if name == "upper" else "ΟΔΟΣ"])) is None


def test_years_beyond_four_digits_are_not_known() -> None:
    for values in (
        pa.array([253_402_300_800_000_000], pa.int64()).cast(INSTANT),
        pa.array([-(10**7)], pa.int32()).cast(pa.date32()),
    ):
        assert index_function("year", {}, values.type).apply(values) is None
    assert index_function("from_unixtime", {}, pa.int64()).apply(pa.array([10**12])) is None


@pytest.mark.parametrize(
    ("name", "options", "kind", "error", "words"),
    [
        ("split", {"pattern": ","}, pa.string(), UnsupportedFeature, "date_format"),
        ("regexp_extract", {"pattern": "a", "idx": "0"}, pa.string(), UnsupportedFeature, "regexp_extract"),
        ("lower", {}, pa.int64(), UnsupportedFeature, "int64"),
        ("year", {}, pa.string(), UnsupportedFeature, "string"),
        ("hour", {}, pa.date32(), UnsupportedFeature, "date32"),
        ("year", {}, pa.timestamp("us"), UnsupportedFeature, "timestamp"),
        ("identity", {}, pa.float64(), UnsupportedFeature, "double"),
        ("to_date", {"format": "yyyy"}, pa.date32(), UnsupportedFeature, "format"),
        ("date_format", {"format": "EEE"}, INSTANT, UnsupportedFeature, "'EEE'"),
        ("date_format", {"format": "YYYY"}, INSTANT, UnsupportedFeature, "'YYYY'"),
        ("date_format", {"format": "[yyyy]"}, INSTANT, UnsupportedFeature, "'['"),
        ("date_format", {"format": "'yyyy"}, INSTANT, UnsupportedFeature, "lakebed does not print"),
        ("date_format", {}, INSTANT, InvalidOption, "format"),
        ("substring", {"pos": "1", "len": "x"}, pa.string(), InvalidOption, "no whole number"),
        ("lower", {"format": "x"}, pa.string(), InvalidOption, "no option format"),
    ],
)
def test_functions_with_wrong_options_or_types_are_refused(
    name: str, options: dict[str, str], kind: pa.DataType, error: Any, words: str
) -> None:
    with pytest.raises(error) as refusal:
        index_function(name, options, kind)
    assert words in str(refusal.value)


def test_every_function_names_itself() -> None:
    assert len(FUNCTION_NAMES) == 19
    with pytest.raises(UnsupportedFeature) as refusal:
        index_function("soundex", {}, pa.string())
    assert all(name in refusal.value.hint for name in FUNCTION_NAMES)


def test_patterns_print_the_same_in_a_filter() -> None:
    table = pa.table({"at": TIMES})
    local = TIMES.cast(pa.timestamp("us"))
    for pattern in ("yyyy-MM-dd HH:mm:ss.SSSSSS", "yy M d h a", "d'th of' MM"):
        wanted = printed(local, pattern)
        for text in wanted.drop_null().to_pylist():
            expression = printed(pc.local_timestamp(pc.field("at")), pattern) == text
            assert table.filter(expression)["at"].to_pylist() == [
                at for at, found in zip(TIMES.to_pylist(), wanted.to_pylist(), strict=True) if found == text
            ]
    far = pa.array([-1, 10_000], pa.int32()).to_pylist()
    years = pa.array([(year - 1970) * 365.2425 for year in far]).cast(pa.int32(), safe=False).cast(pa.date32())
    assert printed(years, "yyyy").to_pylist() == ["-0001", "+10000"]
