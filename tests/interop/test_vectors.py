"""Tables with vectors, written in turns by lakebed and by real Hudi: both read the same, update and search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from interop.hudi_jobs import LEAVE_AS_IS
from lakebed.metadata_kinds.vector_store import BUILD
from oracle.client import HudiOracle
from support.vector_tables import stored_index, unpacked, vector_of, vector_rows, vector_table

QUERY = "array(cast(3.0 as float), cast(1.0 as float), cast(2.0 as float), cast(0.5 as float))"
ROUNDS = (("mor", 2), *(pytest.param(kind, 20, marks=pytest.mark.rest) for kind in ("mor", "cow")))
CONF = {**LEAVE_AS_IS, "spark.sql.ansi.enabled": "false"}


def hudi_vectors(oracle: HudiOracle, table: lakebed.Table) -> dict[str, list[float] | None]:
    rows = oracle.read(table.uri, option={"hoodie.metadata.enable": "false"})
    return dict(zip(rows["id"].to_pylist(), rows["emb"].to_pylist(), strict=True))


def vectors(table: lakebed.Table) -> dict[str, list[float] | None]:
    rows = table.scan(["id", "emb"]).to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["emb"].to_pylist(), strict=True))


def hudi_array(values: list[float]) -> str:
    return f"array({', '.join(f'cast({value} as float)' for value in values)})"


@pytest.mark.parametrize(("kind", "rounds"), ROUNDS)
def test_lakebed_and_real_hudi_update_a_table_of_vectors_in_turns(
    kind: str, rounds: int, oracle: HudiOracle, tmp_path: Path
) -> None:
    table = vector_table(kind, str(tmp_path / "t"))
    table.upsert(vector_rows(range(40, 70)))
    model = {row["id"]: row["emb"] for row in vector_rows(range(70))}
    for turn in range(rounds):
        key, other, dropped = (f"k{3 * turn + n + 1:03d}" for n in range(3))
        oracle.ask(
            "sql",
            table=table.uri,
            conf=CONF,
            sql=[
                f"update {{t}} set emb = {hudi_array(vector_of(100 + turn))}, ts = {10 + 2 * turn} where id = '{key}'",
                f"update {{t}} set name = 'by hudi', ts = {10 + 2 * turn} where id = '{other}'",
                f"delete from {{t}} where id = '{dropped}'",
                f"insert into {{t}} values ('h{turn}', {hudi_array(vector_of(turn))}, 'n', 1, 'p0')",
            ],
        )
        model |= {key: vector_of(100 + turn), f"h{turn}": vector_of(turn)}
        del model[dropped]
        assert vectors(table) == model
        table.upsert(
            [{"id": other, "emb": vector_of(200 + turn), "name": "n", "ts": 11 + 2 * turn, "part": _part(other)}]
        )
        table.upsert(vector_rows(range(100 + turn, 101 + turn)))
        model[other] = vector_of(200 + turn)
        model |= {row["id"]: row["emb"] for row in vector_rows(range(100 + turn, 101 + turn))}
        assert hudi_vectors(oracle, table) == model
        if kind == "mor" and turn % 4 == 3:
            table.maintenance.compact()
            assert hudi_vectors(oracle, table) == model
    nearest = table.search([3.0, 1.0, 2.0, 0.5], 5, metric="l2").to_arrow()
    oracle.ask(
        "sql",
        table=table.uri,
        conf=CONF,
        sql=f"select id, _hudi_distance from hudi_vector_search('{{t}}', 'emb', {QUERY}, 5, 'l2')",
        out=str(tmp_path / "nearest.parquet"),
    )
    hudi = pq.read_table(tmp_path / "nearest.parquet").sort_by("_hudi_distance")
    assert nearest["_hudi_distance"].to_pylist() == pytest.approx(hudi["_hudi_distance"].to_pylist(), abs=1e-6)


def _part(key: str) -> str:
    return f"p{int(key[1:]) % 2}"


@pytest.mark.parametrize("name", ["vec_cow_float", "vec_mor_float"])
def test_real_hudi_updates_its_own_table_after_lakebed_wrote_to_it(
    name: str, oracle: HudiOracle, tmp_path: Path
) -> None:
    table = lakebed.open(unpacked(name, tmp_path))
    row = table.get(["k000"]).to_pylist()[0]
    table.upsert([{**row, "emb": [1.0, 2.0, 3.0, 4.0], "ts": 5000}])
    oracle.ask(
        "sql",
        table=table.uri,
        conf={"spark.sql.ansi.enabled": "false"},
        sql=f"update {{t}} set emb = {hudi_array(vector_of(7))}, ts = 6000 where id in ('k000', 'k008')",
    )
    assert table.get(["k000", "k008"])["emb"].to_pylist() == [vector_of(7)] * 2
    assert hudi_vectors(oracle, table) == vectors(table)


def test_real_hudi_reads_a_table_to_which_a_vector_was_added(oracle: HudiOracle, tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    table = lakebed.create(str(tmp_path / "t"), columns, key="id", ordering="ts")
    table.upsert({"id": ["a"], "ts": [1]})
    table.columns.add("emb", lakebed.vector(4))
    table.upsert({"id": ["b"], "ts": [1], "emb": [vector_of(1)]})
    assert hudi_vectors(oracle, table) == {"a": None, "b": vector_of(1)}
    # Hudi's schema history has no text for vectors that Hudi itself reads back; it is fixed[16], and gives bytes
    conf = {"hoodie.schema.on.read.enable": "true"}
    rows = oracle.read(table.uri, option={"hoodie.metadata.enable": "false", **conf}, conf=conf)
    stored = np.array(vector_of(1), "<f4").tobytes()
    assert dict(zip(rows["id"].to_pylist(), rows["emb"].to_pylist(), strict=True)) == {"a": None, "b": stored}


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.rest)])
def test_real_hudi_writes_and_compacts_a_table_with_a_vector_index(
    kind: str, oracle: HudiOracle, tmp_path: Path
) -> None:
    properties = {"hoodie.metadata.compact.max.delta.commits": 4}  # lakebed folds the layers in between
    table = vector_table(kind, str(tmp_path / "t"), properties=properties)
    table.upsert(vector_rows(range(40, 70)))
    table.indexes.create("vector", column="emb", metric="l2", clusters=5)
    query = [3.0, 1.0, 2.0, 0.5]

    def check(*, gaps: bool) -> None:
        every = table.search(query, 20, metric="l2", probes=1000, rerank=1000)
        assert "vector_index_emb" in str(every.explain())
        assert ("exactly" in str(every.explain())) is gaps
        exact = table.search(query, 20, metric="l2", exact=True).to_arrow()
        assert every.to_arrow()["_hudi_distance"].to_pylist() == pytest.approx(exact["_hudi_distance"].to_pylist())
        assert {row["id"] for row in every.to_arrow().to_pylist()} <= set(vectors(table))

    check(gaps=False)
    conf = {**CONF, "hoodie.metadata.enable": "true", "hoodie.metadata.compact.max.delta.commits": "2"}
    for turn in range(3):
        oracle.ask(
            "sql",
            table=table.uri,
            conf=conf,
            sql=[
                f"update {{t}} set emb = {hudi_array(query)}, ts = {10 + turn} where id = 'k{turn + 1:03d}'",
                f"insert into {{t}} values ('h{turn}', {hudi_array(vector_of(turn))}, 'n', 1, 'p0')",
            ],
        )
        assert "vector_index_emb" in {index.name for index in table.indexes.list()}
        check(gaps=True)
        assert not table.indexes.verify("vector_index_emb").ok
        table.upsert(vector_rows(range(100 + turn, 102 + turn)))
        check(gaps=False)
        if turn == 1:
            table.indexes.rebuild("emb")
            check(gaps=False)
        else:
            list(table.maintenance.run(once=True, options={"hoodie.metadata.compact.max.delta.commits": 1}))
            check(gaps=False)
            assert list(stored_index(table).heads) == [BUILD]
    assert table.indexes.verify("vector_index_emb").ok
    assert hudi_vectors(oracle, table) == vectors(table)
