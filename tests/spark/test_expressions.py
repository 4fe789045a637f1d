"""Every row expression gives the same values as Spark SQL, in any session, and as Arrow kernel."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.engine.spark import SparkEngine
from lakebed.expressions.base import Column, Constant, RowExpression
from lakebed.expressions.bucket import Bucket, JavaHash
from lakebed.expressions.key_generators import KeyGenerator, KeyGeneratorSpec, key_generator
from lakebed.expressions.key_text import KeyText
from lakebed.expressions.zones import java_zone
from lakebed.schema.arrow import normalise
from lakebed.schema.spark import arrow_to_spark_ddl

NEW_YORK, KOLKATA = java_zone("America/New_York"), java_zone("Asia/Kolkata")
SESSIONS = [
    {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.caseSensitive": "false",
    },
    {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.sql.caseSensitive": "true",
    },
    {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
    },
    {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.legacy.interval.enabled": "true",
        "spark.sql.codegen.wholeStage": "false",
    },
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@contextmanager
def session_of(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def run_by_tasks(rows: Any) -> Any:
    """Rows that the driver holds would be projected while the query is planned; a write switches that off."""
    return rows.coalesce(1)


def derive(spark: Any, table: pa.Table, expressions: Mapping[str, RowExpression]) -> Any:
    rows = run_by_tasks(spark.createDataFrame(table, schema=arrow_to_spark_ddl(normalise(table.schema))))
    return SparkEngine(spark).derive(rows, expressions, keep=[])


def assert_equal_in(
    spark: Any, table: pa.Table, expressions: Mapping[str, RowExpression], settings: Mapping[str, str]
) -> None:
    batch = table.combine_chunks().to_batches()[0]
    with session_of(spark, settings):
        derived = derive(spark, table, expressions).toArrow()
    for name, expression in expressions.items():
        ours = expression.arrow(batch)
        theirs = derived.column(name).combine_chunks()
        theirs = theirs.cast(ours.type)
        # printed by Arrow: Python has no dates before the year 1 in western zones
        wrong = [(n, str(a), str(s)) for n, (a, s) in enumerate(zip(ours, theirs, strict=True)) if not a.equals(s)]
        assert not wrong, f"{name}: row, arrow, spark: {wrong[:5]}"


def micros(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64())


def typed_rows() -> pa.Table:
    """Each type of a key column with its edges; every column has a null."""
    stamps = micros(
        0, 1706933106123456, -1, -1000, -1500000, 253402300799999999, -62135596800000000, 4102444800000000, None
    )
    # clocks go forward and back in New York: 2024-03-10 07:00Z, 2024-11-03 06:00Z
    changes = micros(
        1710053999999999,
        1710054000000000,
        1730611800000000,
        1730615400000000,
        4236861600000000,
        0,
        -2208988800000000,
        1,
        None,
    )
    columns = {
        "s": pa.array(["abc", "", "é€😀", "a,b:c", "__null__", "__empty__", " 'q' \"d\" \\ $", "id:1,s:2", None]),
        "i8": pa.array([0, 1, -1, 127, -128, 5, 6, 7, None], pa.int8()),
        "i16": pa.array([0, 1, -1, 32767, -32768, 5, 6, 7, None], pa.int16()),
        "i32": pa.array([0, 1, -1, 2**31 - 1, -(2**31), 5, 6, 7, None], pa.int32()),
        "i64": pa.array([0, 1, -1, 2**63 - 1, -(2**63), 1706933106123, 1706933106, 7, None], pa.int64()),
        "b": pa.array([True, False, True, False, True, False, True, False, None]),
        "f32": pa.array([0.0, 1.5, -0.0, 1e10, 0.1, float("nan"), float("inf"), 3.4e38, None], pa.float32()),
        "f64": pa.array([0.0, 1.5, -0.0, 1e10, 0.1, float("nan"), float("-inf"), 1e-5, None], pa.float64()),
        "d2": pa.array([*map(Decimal, ("0.00", "1.50", "-7.00", "99999999.99", "-0.01", "1", "2", "3")), None],
            pa.decimal128(10, 2)),
        "d7": pa.array([*map(Decimal, ("0", "1E-7", "-1E-7", "12.3456789", "0.0000012", "-0.001", "1", "2")),
            None], pa.decimal128(20, 7)),
        "d38": pa.array([*map(Decimal, ("0", "1E-38", "-1E-38", "0.5", "-0.25", "1E-32", "1E-31", "0.1")),
            None], pa.decimal128(38, 38)),
        "d0": pa.array([*map(Decimal, ("0", "1", "-1", "9" * 38, "-5", "10", "11", "12")), None],
            pa.decimal128(38, 0)),
        "day": pa.array([0, 1, -1, 19756, 2932896, -719162, 60, 11016, None], pa.int32()).cast(pa.date32()),
        "ts": stamps.cast(pa.timestamp("us", "UTC")),
        "dst": changes.cast(pa.timestamp("us", "UTC")),
        "ntz": stamps.cast(pa.timestamp("us")),
        "bin": pa.array([b"bb", b"", b"\x00\xff", b"a", b"b", b"c", b"d", b"e", None], pa.binary()),
        "Größe`x y": pa.array([*"abcdefgh", None]),
        "Upper": pa.array([1, 2, 3, 4, 5, 6, 7, 8, None], pa.int32()),
        "a.b": pa.array([*"ABCDEFGH", None]),
        "a": pa.array([{"b": "x", "In ner": {"c": 1}}, None, {"b": None, "In ner": None}, *[{"b": "y",
            "In ner": {"c": 2}}] * 6]),
    }  # fmt: skip
    return pa.table(columns)


TYPES = ("s", "i8", "i16", "i32", "i64", "b", "f32", "f64", "d2", "d7", "d38", "d0", "day", "ts", "dst", "ntz", "bin")
NAMES = ("Größe`x y", "Upper", "a.b", "a.In ner.c")


def type_expressions() -> dict[str, RowExpression]:
    found: dict[str, RowExpression] = {}
    for name in (*TYPES, *NAMES):
        found[f"text {name}"] = KeyText(name)
        found[f"column {name}"] = Column(name)
        simple = key_generator(KeyGeneratorSpec("SIMPLE", (name,), (name,)))
        found[f"path {name}"] = simple.partition_path
        found[f"key {name}"] = simple.record_key
        found[f"one {name}"] = key_generator(KeyGeneratorSpec("COMPLEX", (name,), (name,))).record_key
        both = key_generator(KeyGeneratorSpec("COMPLEX", (name, "i32"), (name, "s"), hive_style=True, url_encode=True))
        found[f"two {name}"] = both.record_key
        found[f"paths {name}"] = both.partition_path
        found[f"bucket {name}"] = Bucket(both, (name,), 16)
        found[f"hash {name}"] = JavaHash(KeyText(name))
    # NaN is not equal to itself
    del found["column f32"], found["column f64"]
    for name in ("ts", "dst", "ntz"):
        for zone in (NEW_YORK, KOLKATA, java_zone("UTC"), java_zone("GMT-3:30")):
            found[f"consistent {name} {zone.id}"] = KeyText(name, True, zone)
    found["slashes"] = key_generator(KeyGeneratorSpec("SIMPLE", ("s",), ("day",), slash_dates=True)).partition_path
    found["none"] = key_generator(KeyGeneratorSpec("NON_PARTITION", ())).record_key
    found["nowhere"] = key_generator(KeyGeneratorSpec("NON_PARTITION", ("s",))).partition_path
    found["odd constant"] = Constant("it's \\ ${spark.app.name} \n")
    return found


@pytest.mark.parametrize("settings", SESSIONS, ids=range(len(SESSIONS)))
def test_keys_and_paths_of_every_type_are_equal(spark: Any, settings: dict[str, str]) -> None:
    assert_equal_in(spark, typed_rows(), type_expressions(), settings)


def time_settings() -> list[dict[str, str]]:
    zones = ({}, {"timezone": "GMT+8:00"}, {"output.timezone": "America/New_York"}, {"input.timezone": "Asia/Kolkata"})
    formats = (
        "yyyy/MM/dd HH",
        "y-M-d H:m:s.S'o''clock'",
        "YYYY yy MMM MMMM dd D w x e E EEEE",
        "hh KK kk a mm ss SSSSS Z ZZ ZZZ CC xx",
    )
    return [{"output.dateformat": formats[n % 4], **zones[(n + n // 4) % 4]} for n in range(8)]


def number_expressions() -> dict[str, RowExpression]:
    found: dict[str, RowExpression] = {}
    types = ["UNIX_TIMESTAMP", "EPOCHMILLISECONDS", "EPOCHMICROSECONDS", "SCALAR"]
    names = ("i32", "i64", "f32", "f64", "d2", "d7", "d0", "day", "ts", "dst", "ntz", "Upper", "a.In ner.c")
    for number, settings in enumerate(time_settings()):
        kind = types[number % 4]
        settings |= {"timestamp.type": kind, "timestamp.scalar.time.unit": "DAYS"}
        for name in names:
            for consistent in (False, True) if name in ("ts", "dst") else (False,):
                spec = KeyGeneratorSpec(
                    "TIMESTAMP",
                    ("s",),
                    (name,),
                    hive_style=number % 3 == 0,
                    url_encode=number % 2 == 0,
                    timestamp=settings,
                    consistent_logical_timestamp=consistent,
                )
                found[f"{kind} {name} {number} {consistent}"] = key_generator(spec).partition_path
    return found


@pytest.mark.rest
@pytest.mark.parametrize("settings", SESSIONS[:2], ids=range(2))
def test_paths_by_time_of_numbers_are_equal(spark: Any, settings: dict[str, str]) -> None:
    assert_equal_in(spark, typed_rows(), number_expressions(), settings)


DATE_TEXTS = [
    "2024-02-03T04:05:06Z", "2024-02-03T04:05:06+0530", "2024-02-03t04:05:06-08:00", "2024-02-03", "2024-2-3",
        "+2024-02-03",
    "-0044-03-15", "2024-02-30", "2023-02-29", "2024-02-29", "2024-13-01", "2024-00-01", "2024-01-00",
        "20240203", "202423",
    "2024-03-10T02:30:00", "2024-11-03T01:30:00", "03 Feb 2024 11:05 PM", "03 february 24 12:05 am",
        "3 MAR 69 1:5 AM", "3 Mar 70 1:5 pm",
    "", " ", "nonsense", "2024-02-03\n", "2024-02-03T24:00:00Z", "2024-02-03T23:59:60Z", "2024 366",
        "2023 366", "2024 060",
    "2024-02-03 04:05:06.7", "2024-02-03 04:05:06.7890", "2024-02-03T04:05:06+24:00", "2024-02-03T04:05:06+05",
    "12345678-01-01", None,
]  # fmt: skip
INPUTS = [
    "yyyy-MM-dd'T'HH:mm:ssZ,yyyy-MM-dd",
    "yyyyMMdd",
    "dd MMM yy hh:mm a, d MMMM yyyy K:m a",
    "yyyy-MM-dd'T'HH:mm:ss",
    "yyyy DDD",
    "yyyy-MM-dd HH:mm:ss.SSS;y-M-d",
    "yyyy-MM-dd'T'kk:mm:ssZZ",
    "yy-MM-dd",
]


def text_expressions() -> dict[str, RowExpression]:
    found: dict[str, RowExpression] = {}
    for number, settings in enumerate(time_settings()):
        for which, inputs in enumerate(INPUTS):
            settings = settings | {"timestamp.type": "DATE_STRING", "input.dateformat": inputs}
            if ";" in inputs:
                settings["input.dateformat.list.delimiter.regex"] = "[;]"
            spec = KeyGeneratorSpec("CUSTOM", ("s",), ("s:TIMESTAMP",), timestamp=settings, timezone="America/New_York")
            if (number + which) % 3 == 0:
                found[f"{inputs} {number}"] = key_generator(spec).partition_path
    return found


@pytest.mark.rest
@pytest.mark.parametrize("settings", SESSIONS[1:3], ids=range(2))
def test_paths_by_time_of_texts_are_equal(spark: Any, settings: dict[str, str]) -> None:
    assert_equal_in(spark, pa.table({"s": pa.array(DATE_TEXTS, pa.string())}), text_expressions(), settings)


def confusing_rows(count: int = 4000) -> pa.Table:
    rng = random.Random(7)
    words = ["a", ",", ":", "id:", "ts:", ",id:", ",ts:", "__null__", "__empty__", "é😀", "0", ",b:", ""]
    texts = ["".join(rng.choices(words, k=rng.randint(0, 6))) for _ in range(3 * count)]
    columns = [[None if rng.random() < 0.05 else text for text in texts[n::3]] for n in range(3)]
    table = pa.table(dict(zip(("id", "ts", "odd,na:me"), columns, strict=True)))
    return table.append_column("n", pa.array([rng.randint(-(2**40), 2**40) for _ in range(count)], pa.int64()))


def bucket_expressions() -> dict[str, RowExpression]:
    def keys(kind: str, *fields: str, prefix: bool = True) -> KeyGenerator:
        return key_generator(KeyGeneratorSpec(kind, fields, ("n",), complex_single_field_prefix=prefix))

    shapes = {
        "simple": keys("SIMPLE", "id"),
        "one": keys("COMPLEX", "id"),
        "plain": keys("COMPLEX", "id", prefix=False),
        "two": keys("COMPLEX", "id", "ts"),
        "three": keys("COMPLEX", "ts", "n", "id"),
        "odd": keys("COMPLEX", "odd,na:me", "id"),
        "number": keys("SIMPLE", "n"),
    }
    found: dict[str, RowExpression] = {}
    for name, generator in shapes.items():
        for field in ("", *generator.key_fields):
            found[f"{name} {field}"] = Bucket(generator, (field,) if field else (), 1009)
    found["two of three"] = Bucket(shapes["three"], ("id", "ts"), 256)
    return found


@pytest.mark.parametrize("settings", [*SESSIONS[:1], SESSIONS[3]], ids=range(2))
def test_buckets_of_confusing_keys_are_equal(spark: Any, settings: dict[str, str]) -> None:
    assert_equal_in(spark, confusing_rows(), bucket_expressions(), settings)


def test_a_bucket_costs_no_python_and_integers_no_parsing(spark: Any) -> None:
    table, expressions = confusing_rows(10), bucket_expressions()
    plan = derive(spark, table, expressions)._jdf.queryExecution().executedPlan().toString()
    assert "Python" not in plan
    assert "aggregate" not in expressions["number "].sql(table.schema)
    assert "aggregate" in expressions["simple "].sql(table.schema)


def test_days_around_every_change_of_clocks_have_the_same_text(spark: Any) -> None:
    days = [EPOCH + timedelta(hours=h) for h in range(-200_000, 1_200_000, 997)]
    table = pa.table({"t": pa.array(days, pa.timestamp("us", "UTC")), "k": pa.array([date(2024, 1, 1)] * len(days))})
    found: dict[str, RowExpression] = {}
    for zone in ("America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Casablanca"):
        settings = {
            "timestamp.type": "EPOCHMICROSECONDS",
            "output.dateformat": "yyyy-MM-dd HH:mm:ss Z",
            "timezone": zone,
        }
        spec = KeyGeneratorSpec("TIMESTAMP", ("k",), ("t",), timestamp=settings)
        found[zone] = key_generator(spec).partition_path
    assert_equal_in(spark, table, found, SESSIONS[0])


def test_where_java_methods_are_forbidden_the_key_alone_goes_to_python(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.engine import spark_columns

    table = confusing_rows(200)
    table = table.filter(pc.greater(pc.fill_null(pc.utf8_length(table["id"]), 0), 0))
    expressions = {"bucket": bucket_expressions()["two "], "hash": JavaHash(KeyText("n"))}
    assert spark_columns.can_call_java(spark)
    for allowed in (True, False):
        monkeypatch.setitem(spark_columns._allowed, spark, allowed)
        columns = [spark_columns.hash_column(spark, e, table.schema).alias(n) for n, e in expressions.items()]
        rows = run_by_tasks(spark.createDataFrame(table)).select(*columns)
        assert ("ArrowEvalPython" in rows._jdf.queryExecution().executedPlan().toString()) is not allowed
        batch = table.combine_chunks().to_batches()[0]
        for name, expression in expressions.items():
            assert rows.toArrow().column(name).to_pylist() == expression.arrow(batch).to_pylist()


@pytest.mark.parametrize(
    ("output", "inputs", "is_native"),
    [
        ("yyyy/MM/dd HH:mm:ss.SSS Z", "yyyy-MM-dd'T'HH:mm:ssZ", True),
        ("EEEE", "yyyy-MM-dd", False),
        ("yyyy-MM-dd", "dd MMM yyyy", False),
    ],
)
def test_patterns_of_common_letters_cost_no_python_and_others_one_arrow_udf(
    spark: Any, output: str, inputs: str, is_native: bool
) -> None:
    settings = {"timestamp.type": "DATE_STRING", "output.dateformat": output, "input.dateformat": inputs}
    spec = KeyGeneratorSpec("TIMESTAMP", ("s",), ("s",), timestamp=settings)
    table = pa.table({"s": pa.array(DATE_TEXTS, pa.string())})
    paths = derive(spark, table, {"path": key_generator(spec).partition_path})
    plan = paths._jdf.queryExecution().executedPlan().toString()
    assert ("ArrowEvalPython" in plan) is not is_native
