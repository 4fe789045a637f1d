"""What a query for Spark needs of each of its tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.filters.predicates import Predicate
from lakebed.statements.narrowing import Narrowing
from lakebed.statements.statement import parse_statement

SCHEMAS = {
    "t": pa.schema([("id", pa.int64()), ("city", pa.string()), ("x", pa.int64())]),
    "u": pa.schema([("id", pa.int64()), ("name", pa.string()), ("y", pa.int64())]),
}


def needs(text: str, args: Any = None) -> list[tuple[str, list[str], list[str]]]:
    """The columns and the conditions of each table of a query that no common table expression shadows."""
    statement = parse_statement(text, is_spark=True)
    narrowing = Narrowing.of(statement, args)
    tables = [one for one in statement.references if one.name in SCHEMAS and not narrowing.is_shadowed(one)]
    schemas = {one.start: SCHEMAS[one.name] for one in tables}
    return [
        (
            one.name,
            narrowing.columns_of(one, SCHEMAS[one.name].names),
            [str(Predicate(node)) for node in narrowing.conditions_of(one, schemas, "UTC")],
        )
        for one in tables
    ]


ALL = ["id", "city", "x"]
NEEDS: dict[str, list[tuple[str, list[str], list[str]]]] = {
    "select id from t where city = 'a'": [("t", ["id", "city"], ["(`city` = 'a')"])],
    "select * from t where x = 1 or city = 'a'": [("t", ALL, ["((`x` = 1L) OR (`city` = 'a'))"])],
    "select count(*) from t": [("t", ["id"], [])],
    # an inner join with USING makes the columns equal, a left one leaves the right side's out
    "select 1 from t join u using (id) where id = 5": [
        ("t", ["id"], ["(`id` = 5L)"]),
        ("u", ["id"], ["(`id` = 5L)"]),
    ],
    "select a.id from t a left join u b on a.id = b.id and b.y > 2 and a.x = 1 where b.name = 'q' and a.city = 'z'": [
        ("t", ALL, ["(`city` = 'z')"]),
        ("u", ["id", "name", "y"], ["(`y` > 2L)"]),
    ],
    "select t.id, u.id from t full join u on t.id = u.id and t.x = 1 and u.y = 1 where t.x = 1 and u.y = 1": [
        ("t", ["id", "x"], []),
        ("u", ["id", "y"], []),
    ],
    "select 1 from t right join u on t.id = u.id and t.x = 1 and u.y = 1 where t.x = 2 and u.y = 2": [
        ("t", ["id", "x"], ["(`x` = 1L)"]),
        ("u", ["id", "y"], ["(`y` = 2L)"]),
    ],
    "select t.x from t left anti join u on t.id = u.id and u.y = 3 and t.x = 4 where x = 9": [
        ("t", ["id", "x"], ["(`x` = 9L)"]),
        ("u", ["id", "y"], ["(`y` = 3L)"]),
    ],
    "select t.x from t left semi join u on t.id = u.id and t.x = 4": [
        ("t", ["id", "x"], ["(`x` = 4L)"]),
        ("u", ["id"], []),
    ],
    # common table expressions, subqueries, unions
    "with t as (select id, x from t where x = 1), z as (select id from t) select id from z where id = 2": [
        ("t", ["id", "x"], ["(`x` = 1L)", "(`id` = 2L)"])
    ],
    "select id from (select id, city from t) q where q.city = 'a' union all select id from u where y = 1": [
        ("t", ["id", "city"], ["(`city` = 'a')"]),
        ("u", ["id", "y"], ["(`y` = 1L)"]),
    ],
    "select id from t where id in (select id from u where u.y = t.x and y > 5)": [
        ("t", ["id", "x"], []),
        ("u", ["id", "y"], ["(`y` > 5L)"]),
    ],
    # what is not understood, or is another thing each time, stays with Spark
    "select id from t where rand() < 0.5 and levenshtein(city, 'a') = 1 and x = 1": [("t", ALL, ["(`x` = 1L)"])],
    "select id from t tablesample (10 percent) where x = 1": [("t", ["id", "x"], [])],
    "select id from t lateral view explode(array(1)) e as z where x = 1 and t.x = 2": [
        ("t", ["id", "x"], ["(`x` = 2L)"])
    ],
    "select id from t where city = 'a\\'b' and x = 1": [("t", ALL, [])],
    "select * from t natural join u": [("t", ALL, []), ("u", ["id", "name", "y"], [])],
    "select * from t pivot (sum(x) for city in ('a', 'b'))": [("t", ALL, [])],
    "select identifier('x') from t": [("t", ALL, [])],
    "select t.id, u.* from t join u on t.id = u.id": [("t", ["id"], []), ("u", ["id", "name", "y"], [])],
    "select id from t timestamp as of '2026-01-01' where x = 1": [("t", ["id", "x"], ["(`x` = 1L)"])],
    "select id from t where id = :id": [("t", ["id"], ["(`id` = 7L)"])],
}


# Queries over t (and u), and the conditions of an outer query that reach their scans.
REACHES: dict[str, list[list[str]]] = {
    "with q as (select * from t) select * from q where city = 'a'": [["(`city` = 'a')"]],
    "with q as (select * from t where x > 1), r as (select city as c, x from q) select x from r where c = 'a'": [
        ["(`x` > 1L)", "(`city` = 'a')"]
    ],
    "select * from (select * from (select id, city as place from t) p) q where q.place = 'a' and id = 2 and 1 = 1": [
        ["(`city` = 'a')", "(`id` = 2L)"]
    ],
    "select * from (select id, x from t union all (select y, id from u)) q where id = 5": [
        ["(`id` = 5L)"],
        ["(`y` = 5L)"],
    ],
    "with q as (select id from t union select id from u) select id from q join v on q.id = v.k where q.id = 1": [
        ["(`id` = 1L)"],
        ["(`id` = 1L)"],
    ],
    "select * from (select distinct city from t order by city) q where city = 'a'": [["(`city` = 'a')"]],
    "select * from (select t.id, name from t join u on t.id = u.id) q where id = 3 and name = 'n'": [
        ["(`id` = 3L)"],
        ["(`name` = 'n')"],
    ],
    "select * from v left join (select * from t) q on q.id = v.k and q.x = 1": [["(`x` = 1L)"]],
    "select * from v join (select * from t) q on q.id = v.k and q.x = 1 where q.city = 'a'": [
        ["(`city` = 'a')", "(`x` = 1L)"]
    ],
    # where rows, or values in them, would be others
    "select * from (select * from t limit 5) q where city = 'a'": [[]],
    "select * from (select id from t union all select id from u limit 5) q where id = 1": [[], []],
    "select * from (select city, count(*) as n from t group by city) q where city = 'a'": [[]],
    "select * from (select id, city, row_number() over (order by id) as n from t) q where city = 'a'": [[]],
    "select * from (select id, city, monotonically_increasing_id() as n from t) q where city = 'a'": [[]],
    "select * from (select id, x + 1 as x from t) q where x = 1 and id = 2": [["(`id` = 2L)"]],
    "select * from (select id, city as id from t) q where id = 1": [[]],
    "select * from v left join (select * from t) q on q.id = v.k where q.x = 1": [[]],
    "select * from (select u.id, t.x from u left join t on t.id = u.id) q where x = 1 and id = 2": [
        ["(`id` = 2L)"],
        [],
    ],
    "select * from (select t.x from t right join u on t.id = u.id) q where x = 1": [[], []],
    "with q as (select * from t) select * from q where x = 1 union all select * from q where x = 2": [[]],
    "with q (a, b, c) as (select * from t) select * from q where a = 1": [[]],
    "with recursive q as (select id from t union all select id + 1 from q) select * from q where id = 5": [[]],
    "select * from (select id from t union all select name from u) q where id = 'a'": [[], []],
    "select * from (select id from t except select id from u) q where id = 1": [[], []],
    "select * from (select id, city from t union by name select id, name as city from u) q where id = 1": [[], []],
    "select * from (select * from t) q tablesample (10 percent) where id = 1": [[]],
    "select * from (select * from t) as q (a, b, c) where a = 1": [[]],
    "select * from (select * except (x) from t) q where id = 1": [[]],
    "select id from v where k in (select id from t) and id = 1": [[]],
    "select * from v, lateral (select * from t where t.id = v.k) q where q.x = 1": [[]],
    "select * from (with z as (select * from t) select * from z) q join db.z on q.id = z.id where z.x = 1": [[]],
}


@pytest.mark.parametrize("text", REACHES)
def test_conditions_of_outer_queries_reach_the_table_where_no_row_of_the_result_changes(text: str) -> None:
    assert [conditions for _, _, conditions in needs(text)] == REACHES[text]


@pytest.mark.parametrize("text", NEEDS)
def test_a_query_needs_these_columns_and_conditions_of_its_tables(text: str) -> None:
    assert needs(text, {"id": 7}) == NEEDS[text]


def test_a_text_that_is_not_parsed_narrows_nothing() -> None:
    assert needs("select id frm t join u on where x = 1")[0][1:] == (["id", "name", "y"], [])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select id from t group by id", {"id"}),
        ("select id, x from t group by 1, 2", {"id", "x"}),
        ("select id as k from t union all select id from u order by 1", set()),
        ("select k from (select id as k from t) join u on k = u.id", {"k", "id"}),
        ("select distinct city from t", {"city"}),
        ("select sum(x) over (partition by city) from t", {"city"}),
        ("select x from t where id in (select y from u)", {"id", "y"}),
        ("select x from t where exists (select 1 from u where u.id = t.id)", {"id"}),
    ],
)
def test_names_of_joins_groups_and_windows_are_found(text: str, names: set[str]) -> None:
    assert Narrowing.of(parse_statement(text, is_spark=True), None).key_names == names
