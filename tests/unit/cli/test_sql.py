"""`lakebed sql`: rows of a query in every form, and the exit codes of its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakebed
from lakebed.cli.main import invoke


@pytest.fixture
def uri(tmp_path: Path) -> str:
    t = lakebed.create(str(tmp_path / "t"), {"id": [1], "city": ["oslo"]}, key="id", index="bucket", buckets=1)
    t.upsert({"id": list(range(30)), "city": ["oslo", "rome"] * 15})
    return t.uri


def test_a_query_prints_rows_for_people_and_programs(capsys: pytest.CaptureFixture[str], uri: str) -> None:
    text = "select city, count(*) as n from trips where id < 9 group by city order by city"
    assert invoke(["sql", text, "--table", f"trips={uri}", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"city": "oslo", "n": 5}, {"city": "rome", "n": 4}]
    text = f"select id from '{uri}' where city = :city order by id"
    assert invoke(["sql", text, "--arg", "city=rome", "-o", "csv"]) == 0
    assert capsys.readouterr().out.split() == ["id", *(str(n) for n in range(1, 30, 2))]
    assert invoke(["sql", f"select id from '{uri}'"]) == 0
    shown = capsys.readouterr()
    assert "only the first 20 rows are shown" in shown.err
    assert invoke(["sql", f"select id from '{uri}'", "--limit", "2", "-o", "ndjson"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["select 1; select 2"], 5, "more than one statement"),
        (["select * from 'memory://no/table'"], 3, "no table at memory://no/table"),
        (["select 1", "--table", "trips"], 2, "is not KEY=VALUE"),
        (["delete from t where id = 1"], 5, "which is no table of lakebed"),
    ],
)
def test_errors_have_the_exit_codes_of_their_class(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert (invoke(["sql", *arguments]), message in capsys.readouterr().err) == (code, True)


def test_any_statement_shows_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = ["--table", f"t={tmp_path / 't'}", "-o", "json"]
    create = "CREATE TABLE t (id INT, n INT) USING lakebed TBLPROPERTIES (primaryKey = 'id', index = 'simple')"
    assert invoke(["sql", create, *named]) == 0
    assert json.loads(capsys.readouterr().out) == {"table": str(tmp_path / "t"), "name": "t"}
    assert invoke(["sql", "INSERT INTO t VALUES (1, 2)", *named]) == 0
    assert json.loads(capsys.readouterr().out)["inserted"] == 1
    for text, expected in (
        ("CALL show_commits(table => 't')", 1),
        ("CREATE INDEX record_index ON t (id)", 3),
        ("SHOW INDEXES FROM t", 3),
    ):
        assert invoke(["sql", text, *named]) == 0
        assert len(json.loads(capsys.readouterr().out)) == expected
    assert invoke(["sql", "OPTIMIZE t ORDER BY (n)", *named]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 1
    assert invoke(["sql", "DROP TABLE t", *named]) == 0
    assert json.loads(capsys.readouterr().out) == {"other_files": []}
    assert not (tmp_path / "t" / ".hoodie").exists()
    text = f"CREATE TABLE t (id BIGINT) USING lakebed LOCATION '{tmp_path}/t' TBLPROPERTIES (primaryKey = 'id')"
    assert invoke(["sql", text]) == 0
    (tmp_path / "t" / "note.txt").write_text("mine")
    capsys.readouterr()
    assert invoke(["sql", "DROP TABLE t", "--table", f"t={tmp_path}/t"]) == 0
    assert capsys.readouterr().out == "the table is dropped\n1 other file in the folder:\n  note.txt\n"
