"""Calls of every function of filters, as conditions over columns of hostile values."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from itertools import product

import pyarrow as pa

SECOND, DAY = 1_000_000, 86_400_000_000
YEAR_1, YEAR_10000 = -62_135_596_800 * SECOND, 253_402_300_800 * SECOND
# beginnings and ends of seconds, days, years, of the calendar and of summer time
AROUND = (0, 1, 999, 1_000, 499_999, 500_000, 500_001, 999_000, 999_001, 999_999)
MARKS = (
    0,
    *(sign * unit for sign in (1, -1) for unit in (SECOND, 60 * SECOND, 3600 * SECOND, DAY, 365 * DAY)),
    YEAR_1 + DAY,
    YEAR_10000 - 2 * DAY,
    -12_219_292_800 * SECOND,  # the Gregorian calendar begins
    -2_208_988_800 * SECOND,  # the year 1900
    -2_717_640_000 * SECOND,  # New York leaves its own time in 1883
    1_711_846_800 * SECOND,  # clocks of Europe
    1_710_054_000 * SECOND,  # and of New York
    2_540_289_600 * SECOND,  # summer time by rule, after 2037
    2_530_767_600 * SECOND,  # clocks of New York in that year
    2_550_704_400 * SECOND,  # and of Europe
    2_114_380_800 * SECOND,
    951_782_400 * SECOND,  # a day of February in a leap year
    1_230_768_000 * SECOND,  # a first week that begins in the year before
)
INSTANTS = sorted({mark + sign * by for mark, sign, by in product(MARKS, (1, -1), AROUND)})
DAYS = (date(1, 1, 2), date(4, 2, 29), date(1582, 10, 4), date(1582, 10, 15), date(1900, 2, 28), date(1969, 12, 31))
DAYS += (date(1970, 1, 1), date(2000, 2, 29), date(2008, 12, 29), date(2010, 1, 3), date(2020, 12, 31))
DAYS += (date(9999, 12, 31),)
DECIMALS = (
    "0",
    "0.00001",
    "-0.00001",
    "0.5",
    "1.5",
    "2.5",
    "-2.5",
    "0.05",
    "0.15",
    "0.25",
    "-0.25",
    "9.99999",
    "99.995",
)
DECIMALS += ("9999999.99999", "-9999999.99999", "5000", "1500", "-500", "499.99999", "1.00500")
WHOLE = sorted({s * (2**n + by) for n, s, by in product((0, 1, 7, 15, 24, 30, 31, 53), (1, -1), (-1, 0, 1))})
NUMBERS = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e16, -2.5]
NUMBERS += [
    n / scale for scale in (2, 8, 100, 1000, 1e5) for n in (1, 3, 5, 15, 25, 35, 2675, 1005, 1_234_565, 99_999_995)
]
NUMBERS += [-n / 1000 for n in (5, 15, 25, 35, 45, 1005)] + [
    9.99999999999999e16,
    1e17,
    2.0**52 + 0.5,
    1e22,
    2e-16,
    5e-16,
]
NUMBERS += [2.0**63 - 1024, -0.4, 0.49999999999999994, 0.5, 1.5, 2.5, 5.6843418860808e-14, 4.35, 1e23]
NUMBERS += [2.0**53, 2.0**63, -(2.0**63), 2.0**31 - 0.5]
SIGMAS = ("ΑΣ", "Σ", "ΑΣ Σ", "ΑΣ.", "ΑΣ'Α", "Σα", "ΣΣ", "aΣb", "ΑΣ\u0301", "Α\u00adΣ", "Σ\u0301α", "1Σ", "Α.Σ", "ΑΣ:Α")
LETTERS = ("İSTANBUL", "istanbul", "I", "ı", "i\u0307", "ǅ", "ŉ", "ﬃ", "ß", "ẞ", "ΐ", "և", "ᾳ", "ᾼ", "ſ", "\u212a", "Å")
OTHERS = (
    "\U00010400",
    "𐐀Σ",
    "ΑΣ\u200dΒ",
    "ΑΣ\u200d",
    "",
    " ",
    " a ",
    "\ta\n",
    "a\r\n",
    "a\u0085",
    "a\u2028b",
    "\u000ba",
    "a\n\n",
    "\u3000a\u00a0",
    "a\u0000b",
    "%_\\",
    "日本",
)
TEXTS = [*SIGMAS, *LETTERS, *OTHERS]
PATTERNS = ("i\u0307", "İ", "ß", "SS", "ﬀ", "FF", "σ", "ς", "%Σ", "I", "ı", "s", "ſ", "k", "%\u0307%", "_", "İ%", "ẞ")
# a text ends where Java's $ takes it to, and a dot is no line end
REGULAR = (
    "^a",
    "a$",
    "^.$",
    "^.{2,3}$",
    "a|b|Σ",
    "[a-z]",
    "[^a-z]",
    r"\\s",
    r"\\S",
    r"\\w",
    r"\\W",
    r"\\d+",
    "^$",
    "ss?",
)
REGULAR += ("ss?", "(a|Α)Σ", "(?:I|i)+", r"^[\\s]a", "", "İ", r"\\.", ".a")

REPLACED = ("Σ", "[a-z]", r"\\s", r"\\d+", "^a", ".a", "(a)Σ", r"\\W+", "s{1,2}")
EXTRACTED = (
    ("(.)Σ", 1),
    ("(.)Σ", 0),
    ("(a)|(Σ)", 1),
    ("(a)|(Σ)", 2),
    ("[a-z]+", 0),
    ("^(.)(?:.)(.)", 2),
    (r"(\\s)[(]?", 1),
)
TIME_UNITS = ("YEAR", "quarter", "MM", "week", "DAY", "hour", "minute", "second")
ROUNDED = (
    *(f"{name}(d, {places}) = 1D" for name in ("round", "bround") for places in (0, 1, 2, 3, 9, 15)),
    "round(d) = 1D",
    "ceil(d) = 1",
    "floor(d) = 1",
    "sign(d) = 1D",
    "sqrt(d) = 1D",
    *(f"{name}(d, 1, null, -0.0D) = 1D" for name in ("greatest", "least")),
    "greatest(d, double('NaN')) = 1D",
    "abs(d) = 1D",
)

FUNCTIONS = {
    "at": (
        "unix_timestamp(at) = 0",
        *(f"{part}(at) = 1" for part in ("year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekofyear")),
        *(f"{part}(at) = 1" for part in ("hour", "minute", "second")),
        "to_date(at) = date'2024-01-01'",
        "cast(at as date) = date'2024-01-01'",
        "date_add(at, 1) = date'2024-01-01'",
        "date_format(at, 'yyyy-MM-dd HH:mm:ss.SSSSSS') = ''",
        "date_format(at, 'yy/M/d h a.SSS') = ''",
        *(f"date_trunc('{unit}', at) = timestamp'2024-01-01'" for unit in TIME_UNITS),
        "last_day(at) = date'2024-01-01'",
        "extract(week from at) = 1",
        "date_part('hour', at) = 1",
        "at - interval 90 minutes = timestamp'2024-01-01'",
        "at + interval 2 hours = timestamp'2024-01-01'",
        "greatest(at, timestamp'2024-01-01 00:00:00Z') = timestamp'2024-01-01'",
    ),
    "day": (
        *(f"{part}(day) = 1" for part in ("year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekofyear")),
        "date_format(day, 'yyyy-MM-dd') = ''",
        "cast(day as string) = ''",
        "date_sub(day, 1) = date'2024-01-01'",
        *(f"trunc(day, '{unit}') = date'2024-01-01'" for unit in ("YEAR", "yy", "quarter", "MON", "MM", "week")),
        "datediff(day, date'2024-01-01') = 1",
        "datediff(date'2024-01-01', day) = 1",
        *(f"add_months(day, {months}) = date'2024-01-01'" for months in (0, 1, -1, 13, -25)),
        *(f"day {by} = date'2024-01-01'" for by in ("+ 1", "- 1", "- interval 2 weeks", "+ interval '1' month")),
        *(f"day - interval {by} = date'2024-01-01'" for by in ("3 days", "4 years")),
        "last_day(day) = date'2024-01-01'",
        *(f"next_day(day, '{name}') = date'2024-01-01'" for name in ("MO", "tue", "Sunday")),
        *(f"months_between({sides}) = 1D" for sides in ("day, date'2024-02-29'", "date'2024-05-31', day")),
        "weekday(day) = 1",
        *(f"extract({part} from day) = 1" for part in ("year", "doy", "dow", "week", "quarter")),
        *(f"{name}(day, date'1970-01-01', null) = date'2024-01-01'" for name in ("greatest", "least")),
    ),
    "n": (
        "cast(n as string) = ''",
        "cast(n as double) = 1.5D",
        "n + 0.5D = 1",
        "n + 1 = 1",
        "1 - n = 1",
        "n * 3 = 1",
        "(n - 1) * 2 + 7 = 1",
        *(f"n {operation} {by} = 1" for operation in ("%", "div", "/") for by in ("2", "-3", "10L")),
        "case when n > 0 then n when n < 0 then 0 end = 1",
        "case n when 1 then 'one' else 'more' end = ''",
        "if(n > 0, 1, n) = 1",
        "if(n > 0, n, 0.5D) = 1",
        "nvl2(n, 1, 2L) = 1",
        "nullif(n, 1) = 1",
        "coalesce(n, 7) = 1",
        "coalesce(null, n) = 1",
        *(f"{name}(n, 7, -7) = 1" for name in ("greatest", "least")),
        *(f"pmod(n, {by}) = 1" for by in ("3", "-3", "10L")),
        *(f"{name}(n) = 1" for name in ("round", "ceil", "floor")),
        *(f"{name}(n) = 1D" for name in ("sign", "sqrt")),
        "bround(n, 2) = 1",
        *(f"n {sign} 5 = 1" for sign in ("&", "|", "^")),
        "~n = 1",
        "abs(n + 0) = 1",
    ),
    "i": (
        *(f"i {operation} 3 = 1" for operation in ("+", "-", "*", "%", "div", "/")),
        "abs(i) = 1",
        "-i = 1",
        "coalesce(i, 7) = 1",
        "coalesce(i, 7L) = 1",
        *(f"{name}(i, -2) = 1" for name in ("round", "bround")),
        *(f"{name}(i, 1.5) = 1" for name in ("greatest", "least")),
        *(f"{name}(i) = 1" for name in ("ceil", "floor")),
        "pmod(i, 7) = 1",
        "i & 12L = 1",
    ),
    "x": (
        *(
            f"{name}(x, {places}) = 1"
            for name in ("round", "bround", "ceil", "floor")
            for places in (0, 1, 2, 5, -1, -3)
        ),
        *(f"{name}(x) = 1" for name in ("round", "bround", "ceil", "floor", "abs", "-")),
        "sign(x) = 1D",
        *(f"{name}(x, 1, 2.345678) = 1" for name in ("greatest", "least")),
    ),
    "secs": ("from_unixtime(secs) = ''",),
    "d": ("d + 1D = 1", "d - 0.1D = 1", "d * d = 1", "d * 0D = 1", "coalesce(d, 1D) = 1", *ROUNDED),
    "s": (
        "upper(s) = ''",
        "lower(s) = ''",
        "upper(lower(s)) = ''",
        "lower(upper(s)) = ''",
        "lower(upper(lower(s))) = ''",
        "length(upper(s)) = 1",
        "length(lower(s)) = 1",
        "lower(concat(s, 'Σ')) = ''",
        "length(s) = 1",
        "substring(s, 2, 2) = ''",
        "trim(s) = ''",
        *(f"s rlike '{pattern}'" for pattern in REGULAR),
        "ltrim(s) = ''",
        "rtrim(s) = ''",
        "trim('aİ' from s) = ''",
        "concat(s, '-', s) = ''",
        *(f"s ilike '{pattern}'" for pattern in PATTERNS),
        *(f"s like '{pattern}'" for pattern in PATTERNS),
        *(f"instr(s, '{part}') = 1" for part in ("", "Σ", "a", "\u0307", " ", "本")),
        "locate('Σ', s) = 1",
        "position('a' in s) = 1",
        *(
            f"{side}pad(s, {width}, '{by}') = ''"
            for side in "lr"
            for width, by in ((3, "*"), (1, "İ"), (0, "x"), (-1, "x"))
        ),
        "lpad(s, 4) = ''",
        *(f"replace(s, '{part}', '{new}') = ''" for part, new in (("Σ", "ss"), ("", "x"), ("Α", ""), (" ", "_"))),
        "replace(s, 'a') = ''",
        *(f"regexp_replace(s, '{pattern}', '<x>') = ''" for pattern in REPLACED),
        *(f"regexp_extract(s, '{pattern}', {group}) = ''" for pattern, group in EXTRACTED),
        *(f"split_part(s, '{by}', {n}) = ''" for by in ("Σ", "a", " ", "ΣΣ") for n in (1, 2, -1, -2, 9)),
        "concat_ws('-', s, null, 'x', s) = ''",
        "concat_ws('-', s, s) = ''",
        "concat_ws('', s) = ''",
        "reverse(s) = ''",
        *(f"repeat(s, {times}) = ''" for times in (-1, 0, 1, 3)),
        *(f"{side}(s, {count}) = ''" for side in ("left", "right") for count in (-1, 0, 1, 2, 99)),
        *(f"substring(s, {start}) = ''" for start in (0, 1, 3, -1, -2, -99)),
        *(f"{name}(s, 'a', 'Σ') = ''" for name in ("greatest", "least")),
    ),
}
CORPUS = {
    "at": pa.array(INSTANTS, pa.int64()).cast(pa.timestamp("us", "UTC")),
    "day": pa.array(DAYS, pa.date32()),
    "n": pa.array(WHOLE, pa.int64()),
    "i": pa.array([number for number in WHOLE if abs(number) <= 2**30 // 3 + 1], pa.int32()),
    "secs": pa.array([*(number for number in WHOLE if abs(number) <= 2**31 + 1), 2_540_289_600], pa.int64()),
    "d": pa.array(NUMBERS, pa.float64()),
    "x": pa.array([Decimal(one) for one in DECIMALS], pa.decimal128(12, 5)),
    "s": pa.array(TEXTS, pa.string()),
}


# Constants that are computed while the condition is read.
CONSTANTS = (
    *(f"abs({number})" for number in ("-1", "-1.5", "-2.5D", "1 - 3", "-7L")),
    *("2 + 3 * 4", "7 - 10", "10 % 3", "-7 % 3", "7 div 2", "-7 div 2", "7 / 2", "1.5 * 2", "0.5D + 1", "-(3)"),
    *(f"{part}('2024-02-29')" for part in ("year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekofyear")),
    *(f"{part}('2024-02-29 23:59:58')" for part in ("year", "day", "hour", "minute", "second")),
    *(f"{part}(timestamp'2024-02-29 23:59:58Z')" for part in ("day", "hour", "minute", "second")),
    *("date_add('2024-02-28', 2)", "date_sub(date'2024-03-01', 1)", "date_add('2024-02-28 23:00:00', 1)"),
    *("datediff('2024-03-01', '2024-02-01')", "datediff(date'2024-03-01', '2025-03-01')"),
    *(f"trunc('2024-05-15', '{unit}')" for unit in ("YEAR", "quarter", "MM", "week")),
    *("date_format('2024-02-29 23:59:58', 'yyyy-MM-dd HH')", "date_format(date'2024-02-29', 'yyyy/MM')"),
    *("from_unixtime(86400)", "unix_timestamp(timestamp'2024-02-29 23:59:58Z')", "to_date('2024-02-29')"),
    *(
        "lower('İABC')",
        "upper('aß')",
        "length('aé')",
        "substring('abcd', 2, 2)",
        "trim(' a ')",
        "concat('a', upper('b'))",
    ),
    *(
        "round(2.5)",
        "round(2.675D, 2)",
        "bround(2.5D)",
        "round(25, -1)",
        "ceil(1.2)",
        "floor(-1.2D)",
        "ceil(3)",
        "sign(-2)",
    ),
    *("greatest(1, 2.5, null)", "least('b', 'a')", "pmod(-7, 3)", "5 & 3", "5 | 3", "5 ^ 3", "~5", "sqrt(4)"),
    *(
        "last_day('2024-02-10')",
        "add_months('2024-01-31', 1)",
        "next_day('2024-01-31', 'MON')",
        "make_date(2024, 2, 29)",
    ),
    *("months_between(date'2024-03-31', date'2024-02-29')", "date_trunc('hour', timestamp'2024-02-29 23:59:58Z')"),
    *("date'2024-03-01' - 1", "date'2024-03-31' - interval 1 month", "timestamp'2024-03-31 12:00:00' - interval 1 day"),
    *("timestamp'2024-03-10 12:00:00' + interval 25 hours", "interval 1 week + date'2024-03-01'"),
    *("instr('abc', 'c')", "lpad('7', 3, '0')", "replace('abc', 'b', 'x')", "regexp_replace('a1', '[0-9]', 'x')"),
    *(
        "regexp_extract('a1b', '([0-9])', 1)",
        "split_part('a,b', ',', 2)",
        "concat_ws('-', 'a', null, 'b')",
        "reverse('abc')",
    ),
    *(
        "repeat('ab', 2)",
        "left('abc', 2)",
        "right('abc', 2)",
        "substring('abc', -2)",
        "extract(year from date'2024-01-02')",
    ),
    *("coalesce(null, 1)", "coalesce(null, 'x')", "cast('7' as int) + 1"),
)

# Functions of two columns of a type, `a` and `b`, and of numbers of two types.
_OF_TWO = (
    *(f"{name}(a, b)" for name in ("coalesce", "greatest", "least", "nvl", "nullif")),
    *(
        "nvl2(a, b, a)",
        "if(a < b, a, b)",
        "case when a = b then a when a > b then b end",
        "case a when b then a else b end",
    ),
)
_OF_NUMBERS = tuple(f"a {sign} b" for sign in "+-*")
TWO_COLUMNS = {
    "string": (*_OF_TWO, "concat(a, b)", "a || b", "concat_ws('-', a, b)", "concat_ws('', b, a, null)"),
    "date": (*_OF_TWO, "datediff(a, b)", "months_between(a, b)"),
    "bigint": (*_OF_TWO, "a + b", "a - b", "a & b", "a | b", "a ^ b"),
    "double": (*_OF_TWO, *_OF_NUMBERS),
    "decimal": (*_OF_TWO, *_OF_NUMBERS),
    "mixed": (*_OF_NUMBERS, "greatest(a, b)", "least(a, b)", "coalesce(a, b)"),
}
_DOUBLES = pa.array(
    [None, float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 0.1, -2.5, 1e300, 2.0**53], pa.float64()
)
VALUES_OF_TWO: dict[str, tuple[pa.Array, pa.Array]] = {
    "string": (texts := pa.array([None, "", " ", "a", "aß", "Σ", "\U00010400", "%_"]), texts),
    "date": (days := pa.array([None, *DAYS, date(2024, 2, 28), date(2024, 2, 29)], pa.date32()), days),
    # sums that fit: an overflow is an error there, and none here
    "bigint": (numbers := pa.array([None, 0, 1, -1, 7, 2**31, -(2**31) - 1], pa.int64()), numbers),
    "double": (_DOUBLES, _DOUBLES),
    "decimal": (
        exact := pa.array([None, *(Decimal(text) for text in DECIMALS)], pa.decimal128(12, 5)),
        exact,
    ),
    "mixed": (numbers, exact),
}
