"""What the pages of docs/ say beside their examples: links, lists of options and of SQL."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.option_table import canonical, options
from support.documented_examples import ROOT

DOCS = sorted((ROOT / "docs").glob("*.md"))
_LINK = re.compile(r"\]\(([^)#\s]+\.md)\)")
_BLOCK = re.compile(r"^```py\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(_LINK.findall(_page("README.md")))
    assert {f"docs/{page.name}" for page in DOCS} <= linked


def test_a_page_whose_examples_use_a_spark_session_says_how_to_get_one() -> None:
    using = {page.name: re.split(r"^>>> (?:.*[ (])?spark\.", page.read_text(), maxsplit=1, flags=re.M) for page in DOCS}
    parts = {name: parts[0] for name, parts in using.items() if len(parts) > 1}
    assert set(parts) >= {"dataframes.md", "spark.md", "streaming.md"}
    assert [name for name, before in parts.items() if "SparkSession.builder.getOrCreate()" not in before] == []


def test_every_link_between_pages_leads_to_a_page() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
    broken = [
        f"{page.name}: {link}"
        for page in pages
        for link in _LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).is_file()
    ]
    assert broken == []


def _refused_on_the_page() -> list[str]:
    return re.findall(r"^\| `(hoodie\.[a-z_.]+)` \|", _page("docs/from_hudi.md"), re.MULTILINE)


def test_the_page_for_hudi_jobs_lists_many_refusals() -> None:
    assert len(_refused_on_the_page()) >= 15


@pytest.mark.parametrize("option", _refused_on_the_page())
def test_options_that_the_page_for_hudi_jobs_calls_refused_are_refused(option: str) -> None:
    assert canonical(option) == option
    assert options()[option].verdict == "refused"


# A condition for each word of the table in docs/queries.md; each holds for the one row.
CONDITIONS = {
    "'L''Aquila'": "concat(s, 'x') != 'L''Aquila'",
    "AND": "b AND n = 3",
    "OR": "NULL OR b",
    "NOT": "NOT n = 4",
    "TRUE": "TRUE",
    "FALSE": "NOT FALSE",
    "NULL": "b OR NULL",
    "=": "n = 3",
    "!=": "n != 4",
    "<>": "n <> 4",
    "<": "n < 4",
    "<=": "n <= 3",
    ">": "n > 2",
    ">=": "n >= 3",
    "<=>": "n <=> 3",
    "BETWEEN": "n BETWEEN 3 AND 4",
    "IN (constants)": "n IN (1, 3)",
    "IS [NOT] NULL": "n IS NOT NULL",
    "isnull": "NOT isnull(n)",
    "isnotnull": "isnotnull(n)",
    "IS TRUE": "b IS TRUE",
    "IS FALSE": "NOT b IS FALSE",
    "isnan": "NOT isnan(x)",
    "LIKE": "s LIKE 'A%'",
    "ILIKE": "s ILIKE 'a%'",
    "startswith": "startswith(s, 'A')",
    "endswith": "endswith(s, ' ')",
    "contains": "contains(s, 'b')",
    "lower": "lower(s) = 'ab '",
    "upper": "upper(s) = 'AB '",
    "length": "length(s) = 3",
    "substring": "substring(s, 1, 1) = 'A'",
    "trim": "trim(s) = 'Ab'",
    "ltrim": "ltrim(s) = 'Ab '",
    "rtrim": "rtrim(s) = 'Ab'",
    "concat": "concat(s, 'x') = 'Ab x'",
    "\\|\\|": "s || 'x' = 'Ab x'",
    "year": "year(at) = 2026",
    "quarter": "quarter(at) = 4",
    "month": "month(at) = 11",
    "day": "day(at) = 1",
    "dayofyear": "dayofyear(at) = 305",
    "dayofweek": "dayofweek(at) = 1",
    "weekofyear": "weekofyear(at) = 44",
    "hour": "hour(at) = 10",
    "minute": "minute(at) = 11",
    "second": "second(at) = 12",
    "to_date": "to_date(at) = DATE '2026-11-01'",
    "date_add": "date_add(d, 1) = DATE '2026-11-02'",
    "date_sub": "date_sub(d, 1) = DATE '2026-10-31'",
    "date_format": "date_format(at, 'yyyy-MM') = '2026-11'",
    "from_unixtime": "from_unixtime(n, 'yyyy') = '1970'",
    "unix_timestamp": "unix_timestamp(at) = 1793527872",
    "+": "x + n = 4.5",
    "-": "x - 1 = 0.5",
    "*": "x * 2 = 3",
    "RLIKE": "s RLIKE '^A.* $'",
    "regexp_like": "regexp_like(s, 'b')",
    "datediff": "datediff(d, DATE '2026-10-31') = 1",
    "trunc": "trunc(d, 'YEAR') = DATE '2026-01-01'",
    "%": "n % 2 = 1",
    "div": "n div 2 = 1",
    "/": "n / 2 = 1.5D",
    "abs": "abs(n) = 3",
    "CASE": "CASE WHEN n > 2 THEN 'x' END = 'x'",
    "if": "if(b, n, 0) = 3",
    "nvl": "nvl(n, 0) = 3",
    "nvl2": "nvl2(n, 1, 2) = 1",
    "nullif": "nullif(n, 3) IS NULL",
    "coalesce": "coalesce(n, 0) = 3",
    "CAST": "CAST(n AS BIGINT) = 3 AND CAST(n AS DOUBLE) = 3.0 AND CAST(d AS STRING) = '2026-11-01'",
    "event.at": "event.at = 1",
    "_hoodie_commit_time": "_hoodie_commit_time > '2'",
    "DATE '...'": "d = DATE '2026-11-01'",
    "TIMESTAMP '...'": "at < TIMESTAMP '2026-11-02 00:00:00'",
    "IS [NOT] DISTINCT FROM": "n IS DISTINCT FROM 4",
    "left": "left(s, 1) = 'A'",
    "right": "right(s, 2) = 'b '",
    "concat_ws": "concat_ws('-', s, 'x') = 'Ab -x'",
    "replace": "replace(s, 'b', 'c') = 'Ac '",
    "instr": "instr(s, 'b') = 2",
    "locate": "locate('b', s) = 2",
    "position": "position('b' IN s) = 2",
    "split_part": "split_part(s, 'b', 1) = 'A'",
    "lpad": "lpad(s, 4, '-') = '-Ab '",
    "rpad": "rpad(s, 4, '-') = 'Ab -'",
    "reverse": "reverse(s) = ' bA'",
    "repeat": "repeat(s, 2) = 'Ab Ab '",
    "regexp_replace": "regexp_replace(s, '[a-z]', '.') = 'A. '",
    "regexp_extract": "regexp_extract(s, '([a-z])', 1) = 'b'",
    "weekday": "weekday(at) = 6",
    "extract": "extract(YEAR FROM at) = 2026",
    "date_part": "date_part('MONTH', at) = 11",
    "add_months": "add_months(d, 1) = DATE '2026-12-01'",
    "last_day": "last_day(d) = DATE '2026-11-30'",
    "next_day": "next_day(d, 'MO') = DATE '2026-11-02'",
    "months_between": "months_between(d, DATE '2026-10-01') = 1.0",
    "date_trunc": "date_trunc('HOUR', at) = TIMESTAMP '2026-11-01 10:00:00'",
    "current_date": "d < current_date + 40000",
    "current_timestamp": "at < current_timestamp + INTERVAL 40000 DAYS",
    "now()": "at < now() + INTERVAL 40000 DAYS",
    "pmod": "pmod(n, 2) = 1",
    "round": "round(x) = 2.0",
    "bround": "bround(x) = 2.0",
    "ceil": "ceil(x) = 2",
    "floor": "floor(x) = 1",
    "sign": "sign(x) = 1.0",
    "sqrt": "sqrt(n + 1) = 2.0",
    "&": "n & 1 = 1",
    "\\|": "n | 4 = 7",
    "^": "n ^ 1 = 2",
    "~": "~n = -4",
    "greatest": "greatest(n, 4) = 4",
    "least": "least(n, 4) = 3",
    "X'..'": "raw = X'78'",
}


def _words_of_the_sql_page() -> Iterator[str]:
    section = _page("docs/queries.md").partition("### What runs without Spark")[2]
    table = section.partition("\n\n")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield from re.findall(r"`([^`]+)`", line)


@pytest.fixture(scope="module")
def one_row() -> lakebed.Table:
    at = datetime(2026, 11, 1, 10, 11, 12, tzinfo=UTC)
    columns = {"id": [1], "s": ["Ab "], "n": pa.array([3], pa.int32()), "x": [1.5], "b": [True], "d": [at.date()]}
    row = pa.table(columns | {"at": pa.array([at], pa.timestamp("us", "UTC")), "raw": [b"x"], "event": [{"at": 1}]})
    table = lakebed.create("memory://docs-pages/conditions", row, key="id", index="simple")
    table.upsert(row)
    return table


def test_the_table_of_the_sql_page_is_tried_word_by_word(one_row: lakebed.Table) -> None:
    assert set(_words_of_the_sql_page()) == set(CONDITIONS)
    wrong = [condition for condition in CONDITIONS.values() if one_row.scan(["id"], condition).count() != 1]
    assert wrong == []


def test_examples_that_need_a_server_are_few_and_run_elsewhere_or_as_far_as_they_go() -> None:
    """Blocks marked `py` are not run by page: those of queries.md run in the Spark layer, and the calls of
    catalogs.md and dbt.md in tests/services."""
    blocks = {page.name: _BLOCK.findall(page.read_text(encoding="utf-8")) for page in DOCS}
    found = {name: code for name, code in blocks.items() if code}
    assert sorted(found) == ["catalogs.md", "dbt.md", "indexes.md", "queries.md"]
    names = {"lakebed": lakebed, "uri": "memory://docs-pages/hbase", "data": pa.table({"id": [1], "city": ["a"]})}
    (code,) = found["indexes.md"]
    exec(code, names)
    table = lakebed.open("memory://docs-pages/hbase")
    assert table.properties["lakebed.index.hbase.zkquorum"] == "zk1,zk2,zk3"
    assert table.indexes.index.name == "hbase"


def test_the_pages_of_the_api_have_every_public_name_and_the_first_one_links_them() -> None:
    groups = sorted(path.name for path in (ROOT / "docs/api").glob("*.md"))
    page = "".join(_page(f"docs/api/{name}") for name in groups) + _page("docs/api.md")
    assert sorted(re.findall(r"\]\(api/(\w+\.md)\)", _page("docs/api.md"))) == groups
    functions = [name for name in lakebed.__all__ if inspect.isfunction(getattr(lakebed, name))]
    modules = [getattr(lakebed, name) for name in ("maintenance", "indexes", "spark", "polars")]
    functions += [f"{module.__name__.partition('.')[2]}.{name}" for module in modules for name in module.__all__]
    assert [name for name in functions if f"\n## lakebed.{name}\n" not in page] == []
    classes = [name for name in lakebed.__all__ if inspect.isclass(getattr(lakebed, name))]
    shown = [*re.findall(r"^#+ (\w+)$", page, re.MULTILINE), *re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)]
    assert set(classes) <= set(shown)


def _named_places() -> list[tuple[str, str]]:
    """The functions that the tables and sentences of the architecture page name, with their files."""
    page = _page("docs/architecture.md")
    rows = re.findall(r"^\| `([a-z_/]+\.py)` \| `(\w+)` \|", page, re.MULTILINE)
    return rows + re.findall(r"`([a-z_/]+\.py)`,\s+`(\w+)`", page)


@pytest.mark.parametrize(("file", "function"), _named_places())
def test_the_architecture_page_names_functions_that_are_there(file: str, function: str) -> None:
    tree = ast.parse(_page(f"src/lakebed/{file}"))
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_architecture_page_follows_an_upsert_and_a_read() -> None:
    assert len(_named_places()) > 30


def test_every_file_that_the_architecture_page_names_is_there() -> None:
    page = _page("docs/architecture.md")
    named = set(re.findall(r"`(?:src/lakebed/)?((?:[a-z_]+/)+[a-z_]+\.(?:py|tsv))`", page))
    missing = [n for n in sorted(named) if not (ROOT / "src/lakebed" / n).exists() and not (ROOT / n).exists()]
    assert missing == []
