"""SQL conditions and Arrow expressions as filters: types, nulls, what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.errors import InvalidOption
from lakebed.expressions import letter_case
from lakebed.filters.predicates import And, Column, Compare, In, IsNull, Literal, Not, Opaque, Or, combine
from lakebed.filters.sql import parse_filter
from lakebed.filters.text import arrow_pattern

ROWS = pa.record_batch(
    {
        "id": pa.array([1, 2, 3, None], pa.int32()),
        "big": pa.array([2**53 + 1, 0, -1, None], pa.int64()),
        "price": pa.array([1.5, float("nan"), -0.0, None], pa.float64()),
        "amount": pa.array([Decimal("1.00"), Decimal("1.01"), Decimal("-2.50"), None], pa.decimal128(12, 2)),
        "name": pa.array(["Ada", "straße", "a%b\nc", None]),
        "day": pa.array([date(2024, 1, 31), date(1969, 12, 31), date(2024, 2, 1), None]),
        "at": pa.array(
            [datetime(2024, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC), None, None],
            pa.timestamp("us", "UTC"),
        ),
        "local": pa.array([datetime(2024, 1, 1, 12), None, None, None], pa.timestamp("us")),
        "ok": pa.array([True, False, None, None]),
        "raw": pa.array([b"ab", b"", None, None]),
        "who": pa.array([{"age": 3}, {"age": None}, None, None], pa.struct([("age", pa.int64())])),
    }
)


def ids(condition: str | pc.Expression, zone: str = "UTC") -> list[int | None]:
    predicate = parse_filter(condition, ROWS.schema, zone=zone)
    return ROWS.filter(predicate.to_arrow()).column("id").to_pylist()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id = 1", [1]),
        ("1 < id", [2, 3]),
        ("ID >= 2.5", [3]),
        ("id = 2.5", []),
        ("id != 2.5", [1, 2, 3]),
        ("not (id = 2.5)", [1, 2, 3]),
        ("id < 3000000000", [1, 2, 3]),
        ("id > 3000000000 or id is null", [None]),
        ("id in (1, null)", [1]),
        ("id not in (1, null)", []),
        ("id not in (1, 2)", [3]),
        ("id between 2 and 3", [2, 3]),
        ("big = 9007199254740993", [1]),
        ("id = '2'", [2]),
        ("price > 1e0", [1, 2]),
        ("price >= 1.5", [1, 2]),
        ("price < 2", [1, 3]),
        ("price = 0.0", [3]),
        ("isnan(price)", [2]),
        ("price = double('NaN')", [2]),
        ("price <= cast('NaN' as double)", [1, 2, 3]),
        ("amount <= 1.005", [1, 3]),
        ("amount = 1", [1]),
        ("amount in (1.01, 5)", [2]),
        ("amount > id", []),
        ("name like 'a\\%b%'", [3]),
        ("name like '%A%'", [1]),
        ("name ilike 'ada'", [1]),
        ("name like 'a__'", []),
        ("name not like 'A%'", [2, 3]),
        ("upper(name) = 'STRASSE'", [2]),
        ("length(name) = 6", [2]),
        ("substring(name, 1, 2) = 'Ad'", [1]),
        ("concat(name, '!') = 'Ada!'", [1]),
        ("startswith(name, 'st')", [2]),
        ("day = '2024-01-31'", [1]),
        ("day < date '2024-1-31'", [2]),
        ("day >= timestamp '2024-01-31 00:00:01'", [3]),
        ("year(day) = 2024 and month(day) = 2", [3]),
        ("at >= '2024-01-01'", [1]),
        ("date(at) = '1969-12-31'", [2]),
        ("at = timestamp '2024-01-01 00:00:00'", [1]),
        ("local < timestamp_ntz '2024-01-01 12:00:00.000001'", [1]),
        ("ok", [1]),
        ("not ok", [2]),
        ("ok is not true", [2, 3, None]),
        ("ok <=> null", [3, None]),
        ("raw = X'6162'", [1]),
        ("who.age = 3", [1]),
        ("who.age is null", [2, 3, None]),
        ("coalesce(id, 9) = 9", [None]),
        ("price + 1 = 2.5", [1]),
        ("true", [1, 2, 3, None]),
        ("null or id = 1", [1]),
    ],
)
def test_conditions_select_what_spark_selects(condition: str, expected: list[int | None]) -> None:
    assert ids(condition) == expected


def test_zone_of_times_without_one() -> None:
    assert ids("at = '2024-01-01 01:00:00'", zone="Europe/Oslo") == [1]
    assert ids("hour(at) = 1", zone="Europe/Oslo") == [1]
    assert ids("at = '2024-01-01 00:00:00Z'", zone="Europe/Oslo") == [1]


@pytest.mark.parametrize("year", [2036, 2037, 2038, 2050])
def test_summer_time_of_late_years(year: int) -> None:
    """Both sides of 2037, after which Arrow has none."""
    summer, night = datetime(year, 7, 1, 12, tzinfo=UTC), datetime(year, 7, 2, 4, tzinfo=UTC)
    table = pa.table({"at": pa.array([summer, night], pa.timestamp("us", "UTC"))})
    table = table.append_column("s", pa.array([int(summer.timestamp()), int(night.timestamp())]))
    for condition in (
        "hour(at) = 8",
        f"to_date(at) = date'{year}-07-01'",
        f"date_format(at, 'yyyy-MM-dd HH') = '{year}-07-01 08'",
        f"from_unixtime(s) = '{year}-07-01 08:00:00'",
        "day(at) = 1",
    ):
        found = table.filter(parse_filter(condition, table.schema, zone="America/New_York").to_arrow())
        assert found["at"].to_pylist() == [summer], condition
    second = parse_filter("day(at) = 2 and hour(at) = 0", table.schema, zone="America/New_York").to_arrow()
    assert table.filter(second)["at"].to_pylist() == [night]


@pytest.mark.parametrize("letter", ["ẞ", "ı", "\u212a", "ΑΣ"])
def test_the_outer_of_two_changes_of_case_counts(letter: str) -> None:
    """As Spark's optimizer has it."""
    table = pa.table({"s": [letter]})
    for outer, inner in (("upper", "lower"), ("lower", "upper"), ("upper", "upper")):
        (expected,) = getattr(letter_case, outer)(pa.array([letter])).to_pylist()
        condition = parse_filter(f"{outer}({inner}(s)) = '{expected}'", table.schema).to_arrow()
        assert table.filter(condition).num_rows == 1, (outer, inner)


def test_constants_get_the_columns_type() -> None:
    root = parse_filter("amount > 1.005", ROWS.schema).root
    assert root == Compare(
        Column(("amount",), pa.decimal128(12, 2)), ">", Literal(Decimal("1.00"), pa.decimal128(12, 2))
    )


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("nmae = 'x'", "Did you mean 'name'"),
        ("id = ", "is no SQL condition"),
        ("id = 1 and", "is no SQL condition: something is missing at character 10, 'and'"),
        ("select 1", "is no SQL condition: invalid expression / Unexpected token at character 6, 'select'"),
        ("name = 'x", "is no SQL condition: Missing ' from"),
        ("name'", "is no SQL condition: it ends within quotes"),
        ("id = 1; drop table x", "is no SQL condition"),
        ("id = 1 limit 3", "is no SQL condition"),
        ("price + 1", "not a condition"),
    ],
)
def test_unreadable_conditions_are_refused(condition: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        parse_filter(condition, ROWS.schema)


@pytest.mark.parametrize(
    "condition",
    [
        "name rlike 'a(?=b)'",
        "name = 5",
        "day = 'yesterday'",
        "name = 'a\\d'",
        "id / 0 = 1",
        "amount / 3 = 1",
        "case when levenshtein(name, 'x') = 1 then 1 end = 1",
        "id in (1, 'x')",
        "name = 'it' 's'",
        "amount = '1.0'",
        "cast(name as date) = '2024-01-01'",
    ],
)
def test_conditions_that_only_spark_evaluates_are_left_to_it(condition: str) -> None:
    predicate = parse_filter(f"id = 1 and {condition}", ROWS.schema)
    assert predicate.to_spark_sql() == f"id = 1 and {condition}"
    with pytest.raises(InvalidOption, match="runs on Spark only"):
        predicate.to_arrow()


def test_a_comparison_of_two_types_says_to_compare_values_of_one() -> None:
    with pytest.raises(InvalidOption, match=r"a comparison of int64 with '1958-05-01'.*CAST\(column AS type\)"):
        parse_filter("id < '1958-05-01'", pa.schema([("id", pa.int64())])).to_arrow()


def test_a_function_of_spark_alone_leaves_the_other_conditions_to_prune() -> None:
    root = parse_filter("id = 1 and name rlike '\\\\ba'", ROWS.schema).root
    assert isinstance(root, And)
    assert [type(p) for p in root.parts] == [Compare, Opaque]


def test_arrow_expressions_are_understood_where_they_are_simple() -> None:
    field = pc.field
    expression = (field("id") > 1) & ~(field("day") == date(2024, 2, 1)) & field("name").is_valid()
    predicate = parse_filter(expression, ROWS.schema)
    assert predicate.to_arrow() is expression
    kinds = {type(n) for n in predicate.root.parts} if isinstance(predicate.root, And) else set()
    assert kinds == {And, Not}
    assert predicate.columns == ("id", "day", "name")
    assert predicate.to_spark_sql().startswith("(")
    assert ids(expression) == [2]


def test_arrow_membership_is_never_null() -> None:
    root = parse_filter(pc.field("id").isin([1, 2]), ROWS.schema).root
    assert isinstance(root, And)
    assert root.parts[0] == Not(IsNull(Column(("id",), pa.int32())))
    assert isinstance(root.parts[1], In)


def test_two_quotes_in_a_text_are_one_in_every_session() -> None:
    text = "name = 'it''s' or name in (\"a\"\"b\", '', 'c\\\\d''') or name = 'x\\'''' or name = 'a''\\d'"
    predicate = parse_filter(text.rpartition(" or ")[0], ROWS.schema)
    rows = pa.table({"name": ["it's", 'a"b', "", "its", "c\\d'", "x''"]})
    assert rows.filter(predicate.to_arrow())["name"].to_pylist() == ["it's", 'a"b', "", "c\\d'", "x''"]
    sql = (
        "name = CAST(X'69742773' AS STRING) or name in (CAST(X'612262' AS STRING), '', CAST(X'635c6427' AS STRING))"
        " or name = CAST(X'782727' AS STRING)"
    )
    assert predicate.to_spark_sql() == sql
    # an escape that the parser may read otherwise stays as it is written
    assert parse_filter(text, ROWS.schema).to_spark_sql() == f"{sql} or name = 'a''\\d'"


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("price") > 1.0,
        pc.add(pc.field("id"), 1) > 2,
        pc.field("name") == 'quo"te',
        pc.field("who", "age") == 3,
        (pc.field("id") == 1) | (pc.utf8_lower(pc.field("name")) == "ada"),
    ],
)
def test_other_arrow_expressions_are_opaque(expression: pc.Expression) -> None:
    predicate = parse_filter(expression, ROWS.schema)
    assert isinstance(predicate.root, Opaque)
    assert not predicate.runs_on_spark_sql
    ROWS.filter(predicate.to_arrow())


@pytest.mark.parametrize(
    ("expression", "column", "value"),
    [
        (pc.field("id") == -5, "id", -5),
        (pc.field("big") == -(2**63), "big", -(2**63)),
        (pc.field("name") == "Größe", "name", "Größe"),
        (pc.field("day") == date(1969, 12, 30), "day", date(1969, 12, 30)),
        (pc.field("local") == datetime(1960, 1, 1, 2, 3, 4, 5), "local", datetime(1960, 1, 1, 2, 3, 4, 5)),
        (pc.field("at") == datetime(2024, 1, 1, tzinfo=UTC), "at", datetime(2024, 1, 1, tzinfo=UTC)),
        (pc.field("ok") == False, "ok", False),  # noqa: E712
    ],
)
def test_constants_of_arrow_expressions_keep_their_value(expression: pc.Expression, column: str, value: object) -> None:
    type_ = ROWS.schema.field(column).type
    assert parse_filter(expression, ROWS.schema).root == Compare(Column((column,), type_), "=", Literal(value, type_))


def test_an_opaque_arrow_expression_reads_the_columns_it_names() -> None:
    expression = pc.utf8_lower(pc.field("name")).isin(["ada"]) | (pc.field("who", "age") > pc.field("id"))
    assert parse_filter(expression, ROWS.schema).columns == ("id", "name", "who")
    assert parse_filter(pc.field(0) > 1, ROWS.schema).columns == tuple(ROWS.schema.names)


def test_long_arrow_expressions_are_understood_until_they_are_too_deep() -> None:
    expression = pc.field("id") == 0
    for number in range(1, 100):
        expression = expression | (pc.field("id") == number)
    assert isinstance(parse_filter(expression, ROWS.schema).root, Or)
    for number in range(100, 1500):
        expression = expression | (pc.field("id") == number)
    assert isinstance(parse_filter(expression, ROWS.schema).root, Opaque)


def test_arrow_expression_over_an_unknown_column() -> None:
    with pytest.raises(InvalidOption, match="does not fit the table"):
        parse_filter(pc.field("nope") == 1, ROWS.schema)


def test_more_conditions_survive_a_comment_in_the_text() -> None:
    extra = In(Column(("name",), pa.string()), (Literal("Ada", pa.string()),))
    predicate = combine(parse_filter("id < 3 -- two", ROWS.schema), [extra])
    assert predicate is not None
    assert predicate.to_spark_sql() == "((`name` IN ('Ada'))) AND (\nid < 3 -- two\n)"
    assert ROWS.filter(predicate.to_arrow()).num_rows == 1


DAILY = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "i": pa.array([2**31 - 1, -7, None, 6], pa.int32()),
        "n": pa.array([2**63 - 1, -7, None, 6], pa.int64()),
        "s": ["Rome", "a.b\n", None, "x1"],
        "day": pa.array([date(2024, 2, 3), date(2024, 1, 31), None, date(2023, 12, 31)]),
    }
)


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("i + 1 > 0", [1, 4]),
        ("n + 1 > 0", [1, 4]),
        ("(n + 1) * 2 = 14", [4]),
        ("i + n = 12", [4]),
        ("n % 4 = -3", [2]),
        ("i div 2 = -3", [2]),
        ("n / 4 = 1.5D", [4]),
        ("abs(i) = 7", [2]),
        ("-i = 7", [2]),
        ("s rlike '^R'", [1]),
        ("s rlike 'b$'", [2]),
        ("s rlike 'a.b.'", []),
        ("regexp_like(s, '[a-z]\\\\d')", [4]),
        ("case when i > 0 then 'p' when i < 0 then 'm' end = 'm'", [2]),
        ("case i when 6 then 1 else 0 end = 1", [4]),
        ("if(i > 0, n, 0) = 6", [4]),
        ("coalesce(i, 0) = 0", [3]),
        ("coalesce(i, n, 5L) = 5", [3]),
        ("nvl2(i, 1, 2) = 2", [3]),
        ("nullif(i, 6) is null", [3, 4]),
        ("datediff(day, date'2024-01-31') = 3", [1]),
        ("trunc(day, 'MM') = date'2024-01-01'", [2]),
        ("NOT (coalesce(i, 0) % 2 = 1)", [2, 3, 4]),
    ],
)
def test_functions_of_daily_use_run_in_process(condition: str, ids: list[int]) -> None:
    predicate = parse_filter(condition, DAILY.schema)
    assert predicate.runs_in_process
    assert DAILY.filter(predicate.to_arrow())["id"].to_pylist() == ids


@pytest.mark.parametrize(
    ("java", "re2"),
    [
        ("^R\\d{2,3}?[^a-f]x|y+", "^R\\d{2,3}?[^a-f]x|y+"),
        ("(?:a)\\.", "(?:a)\\."),
        ("[\\s]", "[ \\t\\n\\x0B\\f\\r]"),
        *(
            (pattern, None)
            for pattern in ("\\bx", "(?i)x", "a++", "*a", "[a[b]]", "[a&&b]", "\\1", "\\p{L}", "a{", "\\")
        ),
        ("\\s$", None),
        ("a{1001}", None),
    ],
)
def test_patterns_are_those_of_java_or_left_to_spark(java: str, re2: str | None) -> None:
    assert arrow_pattern(java) == re2


def test_a_function_that_is_not_known_is_called_so() -> None:
    with pytest.raises(InvalidOption, match=r"has the unknown function foo\(\) in foo\(id\)") as raised:
        parse_filter("foo(id) = 1", ROWS.schema).to_arrow()
    assert raised.value.hint.startswith("Check its name")
