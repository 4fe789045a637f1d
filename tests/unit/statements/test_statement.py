"""One SQL statement: its kind, and the tables that it names."""

from __future__ import annotations

import pytest

from lakebed.errors import InvalidOption
from lakebed.statements.statement import Reference, parse_statement

# The texts of the references of a statement, for DuckDB and for Spark.
NAMED = {
    "select * from t": ["t"],
    "select * from 'memory://a/b' where x = 1": ["'memory://a/b'"],
    'select * from "memory://a/b" x, u': ['"memory://a/b"', "u"],
    "select * from lakebed.`/a/b` join `c d` using (k)": ["lakebed.`/a/b`", "`c d`"],
    "select * from t timestamp as of '2026-01-01' as a, t version as of 20260101 where t.id = 1": [
        "t timestamp as of '2026-01-01'",
        "t version as of 20260101",
    ],
    "select * from t for system_time as of timestamp '2026-01-01' x": [
        "t for system_time as of timestamp '2026-01-01'"
    ],
    "select * from lakebed_changes('t', '000') c join lakebed_files(u) on true": [
        "lakebed_changes('t', '000')",
        "lakebed_files(u)",
    ],
    "from t select a": ["t"],
    "select trim('/' from 'a/b'), extract(year from d), (select max(x) from v) from (t join u using (a))": [
        "v",
        "t",
        "u",
    ],
    "select 1 from t where a in (select b from w) union all select 1 from db.x, y z": ["t", "w", "db.x", "y"],
    "select a[1:2], 'x/y', t.b from t left anti join u on t.a = u.b order by a desc, b": ["t", "u"],
    "describe t": ["t"],
    "select exists(from t), list_transform(x, y -> y) from (values (1), (2)) q(x)": ["t"],
    "select ';' from t -- from u;": ["t"],
}


@pytest.mark.parametrize("is_spark", [False, True])
@pytest.mark.parametrize("text", NAMED)
def test_a_statement_knows_where_its_tables_are_named(text: str, is_spark: bool) -> None:
    statement = parse_statement(text, is_spark=is_spark)
    assert statement.kind == "QUERY"
    assert [text[one.start : one.end] for one in statement.references] == NAMED[text]


@pytest.mark.parametrize(
    ("text", "alias"),
    [
        ("select * from t", False),
        ("select * from t a", True),
        ("select * from t as a", True),
        ("select * from t group by all", False),
        ("select * from t natural join u", False),
        ("select * from t asof join u using (x)", False),
        ("select * from t tablesample (10 percent)", False),
    ],
)
def test_an_alias_is_distinguished_from_the_words_of_sql(text: str, alias: bool) -> None:
    assert parse_statement(text, is_spark=False).references[0].alias is alias


def test_a_reference_has_the_time_and_the_arguments_that_are_written() -> None:
    text = "select * from lakebed_changes(t, '1', '2') c, u version as of '3' d"
    assert parse_statement(text, is_spark=False).references == (
        Reference(14, 42, "t", alias=True, function="lakebed_changes", arguments=("1", "2")),
        Reference(46, 65, "u", as_of="3", alias=True),
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("delete from t where a = 1", "DELETE"),
        ("with a as (select 1) merge into t using a on t.x = a.x when matched then delete", "MERGE"),
        ("with a as (select 1), b as (select 2) select * from a, b", "QUERY"),
        ("(select 1) union (select 2)", "QUERY"),
        ("update t set a = 1", "UPDATE"),
        ("insert into t select * from u", "INSERT"),
        ("create table x (a int)", "CREATE"),
        ("call run_clean(table => 't')", "CALL"),
        ("optimize t", "OPTIMIZE"),
    ],
)
def test_the_kind_of_a_statement_is_its_first_word(text: str, kind: str) -> None:
    assert parse_statement(text, is_spark=True).kind == kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select 1; drop table x", "more than one statement, the second near 'drop table x'"),
        ("select 'a", "cannot be read"),
        (" ; ", "no statement"),
        ("select * from t timestamp as of current_date()", "no constant in the SQL text near 'current_date"),
        ("select * from t version as of", "no constant in the SQL text near the end"),
        ("select * from lakebed_files('t', 'u')", "another number of arguments"),
        ("select * from lakebed_changes(a + 1)", "takes constants"),
    ],
)
def test_a_text_that_is_no_single_statement_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        _ = parse_statement(text, is_spark=True).references


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("select a is distinct from 'x' from t where b is not distinct from 'y'", [("t", False)]),
        ("select extract(day from '2026-01-01') from t", [("t", False)]),
        ("describe a.b", [("a.b", True)]),
        ("desc table a.b", [("a.b", True)]),
        ("table a.b", [("a.b", True)]),
        ("show columns in a.b", [("a.b", True)]),
        ("show columns from a.b", [("a.b", True)]),
        ("merge into a.b using c.d s on x = y when matched then delete", [("c.d", True)]),
        ("merge into a.b using c.d on x = y when matched then delete", [("c.d", False)]),
        ("merge into a.b using (select 1 from c.d) s on x = y when matched then delete", [("c.d", False)]),
    ],
)
def test_tables_follow_the_words_that_name_them(text: str, tables: list[tuple[str, bool]]) -> None:
    references = parse_statement(text, is_spark=True).references
    assert [(reference.name, reference.alias) for reference in references] == tables


def test_names_with_dots_are_those_of_tables_and_of_columns() -> None:
    names = parse_statement("select t.a, `x`.y from s.t where 'p.q' = 1.5", is_spark=True).names_in_databases()
    assert list(names) == ["t.a", "x.y", "s.t"]
