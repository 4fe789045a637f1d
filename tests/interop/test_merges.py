"""Real Hudi reads and continues tables that lakebed merged, and its own MERGE gives the same rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import assert_both_read, hudi_job
from interop.metadata_jobs import keeping_metadata
from lakebed.table import Table
from oracle.client import HudiOracle
from support.merges import SCHEMA, content
from support.sampling import some

KINDS = [(9, "cow", "bucket"), (9, "mor", "record"), (8, "mor", "bucket"), (6, "cow", "simple"), (6, "mor", "simple")]
STORED = [(n, f"g{n % 2}", n * 10, f"b{n}") for n in range(8)]


def data(rows: list[tuple[int, str | None, int | None, str | None]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def new_table(uri: str, version: int, kind: str, index: str) -> Table:
    table = lakebed.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="grp",
        type=kind,  # pyright: ignore[reportArgumentType]
        index=index,
        table_version=version,  # pyright: ignore[reportArgumentType]
        merge="commit_time",
        properties={"hoodie.metadata.enable": version > 6},
    )
    table.upsert(data(STORED))
    return table


@pytest.mark.parametrize(("version", "kind", "index"), some(KINDS, KINDS[0], KINDS[1], KINDS[4]))
def test_hudi_reads_merges_and_writes_on(
    version: int, kind: str, index: str, tmp_path: Path, oracle: HudiOracle
) -> None:
    table = new_table(str(tmp_path / "t"), version, kind, index)
    source = data([(1, "g1", 5, "s"), (2, "g0", None, None), (20, "g0", 7, "new")])
    merge = table.merge(source, ["id", "grp"]).when_matched_delete(condition="s.a IS NULL")
    merge.when_matched_update({"a": "t.a + s.a"}).when_not_matched_insert().execute()
    table.merge(data([(0, "g1", 0, "gone")]), "t.grp = s.grp").when_matched_update(
        {"b": "concat(t.b, s.b)"}, condition="t.a > 45"
    ).when_not_matched_by_source_delete(condition="t.id = 6").execute()
    table.update({"a": "a + 1"}, where="id < 2")
    expected = [
        *((0, "g0", 1, "b0"), (1, "g1", 16, "b1"), (3, "g1", 30, "b3"), (4, "g0", 40, "b4")),
        *((5, "g1", 50, "b5gone"), (7, "g1", 70, "b7gone"), (20, "g0", 7, "new")),
    ]
    assert content(table) == expected
    read = {"option": {"hoodie.metadata.enable": str(version > 6).lower()}}
    assert_both_read(oracle, table, table.scan().to_arrow(), **read)
    if version > 6:
        assert oracle.problems(table.uri) == []
    job = hudi_job(table) | (keeping_metadata(table) if version > 6 else {})
    oracle.write(table.uri, data([(4, "g0", 44, "hudi"), (30, "g1", 1, "hudi")]), options=job)
    table.merge(data([(30, "g1", 9, "again")]), ["id", "grp"]).when_matched_update(
        {"b": "concat(t.b, ' ', s.b)"}
    ).execute()
    assert_both_read(oracle, table, table.scan().to_arrow(), **read)
    assert [row for row in content(table) if row[0] in (4, 30)] == [(4, "g0", 44, "hudi"), (30, "g1", 1, "hudi again")]


def test_the_merge_of_hudi_gives_the_same_rows(tmp_path: Path, oracle: HudiOracle) -> None:
    """On copy-on-write: on merge-on-read that of Hudi 1.2.0 stores rows with values of other columns."""
    ours = new_table(str(tmp_path / "ours"), 9, "cow", "simple")
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    # real Hudi tries updates before deletes, whatever their order, and reads no target column on merge-on-read
    rows = [(1, "g1", 5, "s"), (2, "g0", -1, "drop"), (20, "g0", 7, "new"), (21, "g1", -1, "not")]
    clauses = """ s ON t.id = s.id AND t.grp = s.grp
        WHEN MATCHED AND s.a < 0 THEN DELETE
        WHEN MATCHED AND s.a >= 0 THEN UPDATE SET a = s.a + 10, b = s.b
        WHEN NOT MATCHED AND s.a > 0 THEN INSERT *"""
    values = ", ".join(map(str, rows))
    typed = f"SELECT bigint(id) id, grp, bigint(a) a, b FROM VALUES {values} AS v (id, grp, a, b)"
    text = f"MERGE INTO {{t}} AS t USING ({typed}) {clauses}"
    oracle.ask("sql", table=str(tmp_path / "theirs"), sql=text)
    lakebed.sql(f"MERGE INTO ours AS t USING source {clauses}", {"ours": ours, "source": data(rows)})
    theirs = content(lakebed.open(str(tmp_path / "theirs")))
    assert content(ours) == theirs
    assert [row for row in theirs if row[0] in (1, 2, 20, 21)] == [(1, "g1", 15, "s"), (20, "g0", 7, "new")]
