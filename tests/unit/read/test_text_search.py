"""Search by words: conditions, columns, ties, errors, SQL and the command line; with or without an index."""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.read import text_search
from support.text_model import best_rows

SCHEMA = pa.schema([("id", pa.string()), ("body", pa.string()), ("n", pa.int64()), ("city", pa.string())])
_numbers = itertools.count()


def texts(*, with_index: bool = True, **given: Any) -> lakebed.Table:
    table = lakebed.create(f"memory://text-search/{next(_numbers)}", SCHEMA, key="id", partition_by="city", **given)
    table.upsert(
        [
            {"id": f"k{n:02d}", "body": f"red {'blue ' * (n % 3)}n{n % 5}", "n": n, "city": f"c{n % 3}"}
            for n in range(40)
        ]
    )
    if with_index:
        table.indexes.create("text", column="body")
    return table


def model(table: lakebed.Table, query: str, allowed: Any = None) -> list[tuple[str, Any]]:
    rows = table.to_arrow().to_pylist()
    return [(row["id"], pytest.approx(score, rel=1e-6)) for score, row in best_rows(rows, query, allowed)]


def found(table: lakebed.Table, query: str, **options: Any) -> list[tuple[str, float]]:
    rows = table.search(text=query, text_column="body", **options).to_arrow().to_pylist()
    return [(row["id"], row["_score"]) for row in rows]


@pytest.mark.parametrize("with_index", [True, False])
def test_the_best_rows_come_first_and_equally_good_ones_by_their_keys(with_index: bool) -> None:
    table = texts(with_index=with_index)
    for k in (1, 3, 10, 40, 100):
        assert found(table, "blue n3", k=k) == model(table, "blue n3")[:k]
        assert found(table, "RED", k=k) == model(table, "red")[:k]
    assert found(table, "yellow") == []


@pytest.mark.parametrize("where", ["n > 20", "city = 'c1'", "city = 'c1' and n > 20", "n > 100"])
def test_a_condition_leaves_rows_and_their_scores_stay(where: str) -> None:
    table = texts()
    whole = dict(found(table, "blue n3", k=100))
    rows = found(table, "blue n3", k=100, where=where)
    ids = set(table.scan(["id"], where=where).to_arrow()["id"].to_pylist())
    assert rows == [(key, score) for key, score in whole.items() if key in ids]
    assert rows == found(table, "blue n3", k=100, where=where, exact=True)
    assert found(table, "blue n3", k=2, where=where) == rows[:2]


def test_the_columns_may_be_any() -> None:
    table = texts()
    search = table.search(text="n3", k=2, columns=["city", "_hoodie_record_key"])
    assert search.schema == search.to_arrow().schema
    assert search.to_arrow().column_names == ["city", "_hoodie_record_key", "_score"]
    assert table.search(text="n3", columns=[]).to_arrow().column_names == ["_score"]
    assert table.search(text="n3").to_arrow().column_names == ["id", "body", "n", "city", "_score"]
    assert search.limit(1).count() == 1
    assert search.to_pandas()["city"].tolist() == search.to_arrow()["city"].to_pylist()


def test_an_explanation_names_the_words_and_the_index() -> None:
    table = texts()
    text = str(table.search(text="blue, Blue n3", k=3).explain())
    assert "the 3 best for blue n3 in body" in text
    assert "by index    text_index_body: 40 texts, blue in 26, n3 in 8; 3 rows read" in text
    assert "all texts   read: 40 texts, blue in 26, n3 in 8; 3 rows read" in str(
        table.search(text="blue n3", k=3, exact=True).explain()
    )


def test_a_table_of_which_many_rows_have_to_be_read_is_searched_without_its_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = texts(type="mor", ordering="n")
    monkeypatch.setattr(text_search, "MIN_ROWS", 4)
    table.upsert([{"id": f"k{n:02d}", "body": "red new", "n": 99, "city": f"c{n % 3}"} for n in range(4)])
    assert "by index" in str(table.search(text="new").explain())
    table.upsert([{"id": f"k{n:02d}", "body": "red new", "n": 99, "city": f"c{n % 3}"} for n in range(4, 20)])
    assert "by index" not in str(table.search(text="new").explain())
    assert found(table, "new", k=50) == model(table, "new")


def test_what_is_no_search_is_refused() -> None:
    table = texts()
    for text in ("", " ,.- "):
        with pytest.raises(InvalidOption, match="has no word"):
            table.search(text=text)
    with pytest.raises(InvalidOption, match="neither a vector nor a text"):
        table.search()
    with pytest.raises(InvalidOption, match="BIGINT, and a search by words takes a text"):
        table.search(text="red", text_column="n")
    with pytest.raises(InvalidOption, match="text_column"):
        table.search([1.0], text_column="body")
    with pytest.raises(InvalidOption, match="at least 1"):
        table.search(text="red", k=0)
    with pytest.raises(InvalidOption, match="a text"):
        table.search(text=3)  # pyright: ignore[reportArgumentType]
    options: dict[str, Any] = {"max_distance": 0.5, "probes": 3, "rerank": 3, "column": "body"}
    for name, value in options.items():
        with pytest.raises(InvalidOption, match="by words alone"):
            table.search(text="red", **{name: value})
    with pytest.raises(InvalidOption, match="has the texts id, body, city"):
        texts(with_index=False).search(text="red")
    with pytest.raises(InvalidOption, match="no column of texts"):
        lakebed.create("memory://text-search/none", pa.schema([("id", pa.int64())]), key="id").search(text="red")


def test_a_table_without_meta_columns_is_refused() -> None:
    plain = {"hoodie.populate.meta.fields": False}
    data = pa.table({"id": ["a", "b"], "body": ["cat", "dog"]})
    table = lakebed.load("memory://text-search/plain", data, key="id", properties=plain)
    for exact in (True, False):
        with pytest.raises(UnsupportedFeature, match="has no meta columns"):
            table.search(text="cat", exact=exact)


def test_any_number_of_rows_may_be_asked_for() -> None:
    table = texts()
    whole = found(table, "cat", k=1000)
    assert whole == found(table, "cat", k=10**30) == found(table, "cat", k=sys.maxsize)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"text": "cat", "column": "body"}, "text_column"),
        ({"text": "cat", "metric": "l2"}, "leave out metric"),
        ({"text": "cat", "probes": 2}, "leave out probes"),
        ({"text": "\ud800"}, "whole characters"),
        ({"text": "cat", "k": -1}, "at least 1"),
        ({"vector": [1.0], "text_column": "body"}, "there is no text"),
    ],
)
def test_options_that_a_search_does_not_have_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        texts().search(**options)


def test_values_of_the_function_of_sql_are_written_as_they_are() -> None:
    values: list[tuple[str, Any]] = [(":q", {"q": "cat"}), ("?", ["cat"]), ("NULL", None)]
    for query, args in values:
        with pytest.raises(InvalidOption, match="hudi_text_search takes constants"):
            lakebed.sql(f"select * from hudi_text_search('t', 'body', {query}, 3)", {"t": texts()}, args)
    with pytest.raises(InvalidOption, match="another number of arguments"):
        lakebed.sql("select * from hudi_text_search('t', 'body', 'cat', 3, '', 'more')", {"t": texts()})


def test_a_vector_and_a_text_are_searched_at_once_by_their_ranks() -> None:
    schema = pa.schema([("id", pa.int64()), ("body", pa.string()), ("at", lakebed.vector(2))])
    table = lakebed.create(f"memory://text-search/{next(_numbers)}", schema, key="id")
    rows = [{"id": n, "body": "blue" if n in (5, 7) else "red", "at": [1.0, n / 10]} for n in range(10)]
    table.upsert(rows)
    for _ in range(2):
        search = table.search([1.0, 0.5], text="blue", metric="l2", k=4)
        assert search.to_arrow().column_names == ["id", "body", "at", "_score"]
        by_vector = table.search([1.0, 0.5], k=100, metric="l2", columns=["id"]).to_arrow()["id"].to_pylist()
        by_text = table.search(text="blue", k=100, columns=["id"]).to_arrow()["id"].to_pylist()
        scores = {
            n: sum(1 / (61 + ranked.index(n)) for ranked in (by_vector, by_text) if n in ranked) for n in range(10)
        }
        expected = sorted(scores, key=lambda n: (-scores[n], str(n)))[:4]
        assert search.to_arrow()["id"].to_pylist() == expected
        assert search.to_arrow()["_score"].to_pylist() == pytest.approx([scores[n] for n in expected])
        assert search.count() == 4
        assert "fused       the 4 best by the ranks of up to 100 rows of each" in str(search.explain())
        near = table.search([1.0, 0.5], text="blue", metric="l2", where="id < 6", columns=["id"]).to_arrow()
        assert near["id"].to_pylist()[0] == 5
        assert set(near["id"].to_pylist()) == set(range(6))
        table.indexes.create("text", column="body") if _ == 0 else None
    with pytest.raises(InvalidOption, match="one vector"):
        table.search([[1.0, 0.5]], text="blue")


def test_sql_makes_an_index_and_searches_by_words() -> None:
    table = texts(with_index=False)
    sql: dict[str, Any] = {"tables": {"t": table}}
    lakebed.sql("CREATE INDEX words ON t USING TEXT (body)", **sql)
    assert [index.name for index in table.indexes.list()][-1] == "text_index_words"
    lakebed.sql("CREATE INDEX IF NOT EXISTS words ON t USING TEXT_INDEX (body)", **sql)
    rows: Any = lakebed.sql("SELECT id, _score FROM hudi_text_search('t', 'body', 'blue n3', 5)", **sql)
    rows = rows.to_arrow()
    assert list(zip(*rows.to_pydict().values(), strict=True)) == model(table, "blue n3")[:5]
    rows = lakebed.sql("SELECT id FROM hudi_text_search('t', 'body', 'blue', 9, 'n > 30')", **sql)
    rows = rows.to_arrow()
    assert rows["id"].to_pylist() == [key for key, _ in found(table, "blue", k=9, where="n > 30")]
    for arguments in ("'t'", "'t', 'body', 'blue'", "'t', 'body', 'blue', 'many'"):
        with pytest.raises(InvalidOption, match="hudi_text_search"):
            lakebed.sql(f"SELECT * FROM hudi_text_search({arguments})", **sql)
    with pytest.raises(InvalidOption, match="names its column"):
        lakebed.sql("CREATE INDEX other ON t USING TEXT", **sql)
    lakebed.sql("DROP INDEX words ON t", **sql)
    assert "text_index_words" not in {index.name for index in table.indexes.list()}


def test_the_command_line_searches_by_words(tmp_path: Any) -> None:
    from typer.testing import CliRunner

    from lakebed.cli.main import app

    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id")
    table.upsert([{"id": key, "body": body, "n": 1, "city": "c"} for key, body in (("a", "red blue"), ("b", "blue"))])
    run = CliRunner().invoke
    made = run(app, ["indexes", "create", table.uri, "text", "--column", "body", "--output", "json"])
    assert made.exit_code == 0, made.output
    assert "text_index_body" in made.output
    result = run(app, ["search", table.uri, "--text", "red", "--columns", "id", "--output", "json"])
    assert result.exit_code == 0, result.output
    assert [row["id"] for row in json.loads(result.stdout)] == ["a"]
    refused = run(app, ["search", table.uri])
    assert refused.exit_code != 0
