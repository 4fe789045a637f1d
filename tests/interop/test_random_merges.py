"""Random MERGE statements of the subset that real Hudi, Delta Lake and lakebed have in common give the same rows.

Each table takes statement after statement, and its rows are compared after each of them.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakebed
from conftest import unavailable
from oracle.client import HudiOracle
from oracle.environment import Unavailable, oracle_environment
from services.service import ServiceError, maven_jars
from support.merges import SCHEMA, Row, content, data, in_order
from support.sampling import so_many

DELTA = ("io.delta:delta-spark_2.12:3.3.2",)
STORED: list[Row] = [(n, "xyz"[n % 3], n * 10 if n % 4 else None, f"b{n}") for n in range(8)]
# no condition holds with another one: Hudi tries updates before deletes, whatever their order
UPDATES = ["s.a >= 20", "s.a > 25 AND s.grp <> 'z'", "s.b IS NOT NULL AND s.a BETWEEN 20 AND 40"]
DELETES = ["s.a < 20", "s.a < 10 OR s.a = 15", "s.b = 'p' AND s.a < 20"]
INSERTS = ["s.a > 15", "s.grp = 'x' OR s.a IN (10, 30)", "s.b IS NULL", "s.id % 2 = 0"]
VALUES = {
    "a": ["s.a", "s.a + 1", "t.a + s.a", "coalesce(t.a, 0) - 1", "CASE WHEN t.a > s.a THEN t.a ELSE s.a END"],
    "b": ["s.b", "concat(t.b, 'x')", "'c'", "upper(s.b)", "coalesce(s.b, t.b)"],
    "grp": ["s.grp", "'w'", "concat(s.grp, t.grp)"],
}


# Which clauses a statement has: update, delete, insert. Without an update Hudi 1.2.0 deletes nothing, and inserts rows
# again that are matched.
OF_HUDI = [(1, 0, 0), (1, 1, 1), (1, 0, 1), (1, 1, 0)]
ALL = [*OF_HUDI, (0, 1, 0), (0, 1, 1), (0, 0, 1)]


def statement(dice: random.Random, kinds: list[tuple[int, int, int]], whole_rows: bool) -> tuple[str, list[Row]]:
    """The clauses of a statement and its source rows. `whole_rows` leaves out what reads or sets single columns."""
    rows: list[Row] = [
        (number, dice.choice("xyz"), dice.choice([None, 5, 10, 15, 20, 30, 40]), dice.choice([None, "p", "q"]))
        for number in dice.sample(range(14), dice.randrange(1, 7))
    ]
    text = "s ON t.id = s.id"
    update, delete, insert = dice.choice(kinds)
    if update:
        condition = dice.choice([*UPDATES, None]) if not delete else dice.choice(UPDATES)
        names = dice.sample(sorted(VALUES), dice.randrange(1, 4))
        some = "SET " + ", ".join(f"{name} = {dice.choice(VALUES[name])}" for name in names)
        values = "SET *" if whole_rows or dice.random() < 0.4 else some
        text += f" WHEN MATCHED{f' AND {condition}' if condition else ''} THEN UPDATE {values}"
    if delete:
        text += f" WHEN MATCHED AND {dice.choice(DELETES)} THEN DELETE"
    if insert:
        condition = dice.choice([*INSERTS, None])
        values = "*" if whole_rows or dice.random() < 0.6 else "(id, grp, a, b) VALUES (s.id, s.grp, s.a * 2, 'new')"
        text += f" WHEN NOT MATCHED{f' AND {condition}' if condition else ''} THEN INSERT {values}"
    return text, rows


def as_sql(clauses: str, rows: list[Row]) -> str:
    """The statement with its rows in its text."""
    texts = ", ".join("(" + ", ".join("NULL" if v is None else repr(v) for v in row) + ")" for row in rows)
    typed = f"SELECT bigint(id) id, string(grp) grp, bigint(a) a, string(b) b FROM VALUES {texts} AS v (id, grp, a, b)"
    return f"MERGE INTO {{t}} AS t USING ({typed}) {clauses}"


def merged(table: lakebed.Table, clauses: str, rows: list[Row]) -> list[Row]:
    """The rows of the table of lakebed after the statement."""
    lakebed.sql(f"MERGE INTO ours AS t USING source {clauses}", {"ours": table, "source": data(rows)})
    return content(table)


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("seed", range(so_many(5, small=1)))
def test_random_merges_are_those_of_hudi(kind: str, seed: int, tmp_path: Path, oracle: HudiOracle) -> None:
    """On merge-on-read with whole rows alone: else that of Hudi 1.2.0 stores rows with values of other columns. And no
    key comes back there: Hudi looks keys up in base files, and matches those that a log file has deleted."""
    ours = lakebed.create(
        str(tmp_path / "ours"),
        SCHEMA,
        key="id",
        type=kind,  # pyright: ignore[reportArgumentType]
        index="simple",
        merge="commit_time",
    )
    ours.upsert(data(STORED))
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    dice = random.Random(f"{kind} {seed}")
    deleted: set[int] = set()
    for _ in range(so_many(12, small=3)):
        stored = {row[0] for row in content(ours)}
        clauses, rows = statement(dice, OF_HUDI, whole_rows=kind == "mor")
        if kind == "mor":
            rows = [row for row in rows if row[0] not in deleted] or [(99, "w", None, "p")]
        oracle.ask("sql", table=str(tmp_path / "theirs"), sql=as_sql(clauses, rows))
        expected = content(lakebed.open(str(tmp_path / "theirs")))
        assert merged(ours, clauses, rows) == expected, f"{kind} {seed}: {as_sql(clauses, rows)}"
        deleted |= stored - {row[0] for row in expected}


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """Delta Lake 3.3 on PySpark 3.5."""
    try:
        python, jars = oracle_environment().python, ",".join(maven_jars("delta", DELTA, exclude=()))
    except (Unavailable, ServiceError) as reason:
        unavailable(f"no Delta Lake: {reason}")
        raise
    folder = tmp_path_factory.mktemp("delta")
    script = Path(__file__).with_name("delta_statements.py")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [str(python), str(script), jars, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def by_delta(process: subprocess.Popen[str], table: Path, sql: str) -> list[Row]:
    """The rows of the table of Delta Lake after the statement."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"table": str(table), "sql": sql}) + "\n")
    process.stdin.flush()
    answer: list[Any] = json.loads(process.stdout.readline())
    return in_order([tuple(row) for row in answer])


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("seed", range(so_many(5, small=1)))
def test_random_merges_are_those_of_delta(kind: str, seed: int, tmp_path: Path, delta: subprocess.Popen[str]) -> None:
    ours = lakebed.create(f"memory://merges-of-delta/{kind}-{seed}", SCHEMA, key="id", type=kind)  # pyright: ignore
    ours.upsert(data(STORED))
    create = "CREATE TABLE {t} (id BIGINT, grp STRING, a BIGINT, b STRING) USING delta"
    assert by_delta(delta, tmp_path / "theirs", create) == []
    insert = as_sql("s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *", STORED)
    assert by_delta(delta, tmp_path / "theirs", insert) == content(ours)
    dice = random.Random(f"delta {kind} {seed}")
    for _ in range(so_many(12, small=8)):
        clauses, rows = statement(dice, ALL, whole_rows=False)
        expected = by_delta(delta, tmp_path / "theirs", as_sql(clauses, rows))
        assert merged(ours, clauses, rows) == expected, f"{kind} {seed}: {as_sql(clauses, rows)}"
    lakebed.drop(ours.uri)
