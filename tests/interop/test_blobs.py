"""Tables with blobs, written in turns by lakebed and by real Hudi: both read the same bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import lakebed
from interop.hudi_jobs import LEAVE_AS_IS
from oracle.client import HudiOracle
from support.blob_tables import blob_rows, blob_table, blobs_by_key, container, data_of, outside
from support.vector_tables import unpacked

ANSI_OFF = {"spark.sql.ansi.enabled": "false"}
CONF = {**LEAVE_AS_IS, **ANSI_OFF}
NO_REFERENCE = "cast(null as struct<external_path: string, offset: bigint, length: bigint, managed: boolean>)"


def inline(data: bytes) -> str:
    return f"named_struct('type', 'INLINE', 'data', cast('{data.decode()}' as binary), 'reference', {NO_REFERENCE})"


def out_of_line(path: Path, offset: int, length: int) -> str:
    reference = (
        f"named_struct('external_path', '{path}', 'offset', cast({offset} as bigint),"
        f" 'length', cast({length} as bigint), 'managed', false)"
    )
    return f"named_struct('type', 'OUT_OF_LINE', 'data', cast(null as binary), 'reference', {reference})"


def hudi_blobs(oracle: HudiOracle, table: lakebed.Table, tmp_path: Path) -> dict[str, bytes | None]:
    """The bytes that real Hudi's `read_blob` gives for each row."""
    out = tmp_path / "blobs.parquet"
    conf = {**CONF, "hoodie.read.blob.inline.mode": "CONTENT"}
    oracle.ask("sql", table=table.uri, conf=conf, sql="select id, read_blob(pic) as b from {t}", out=str(out))
    rows = pq.read_table(out)
    return dict(zip(rows["id"].to_pylist(), rows["b"].to_pylist(), strict=True))


@pytest.mark.parametrize("turns", [2, pytest.param(10, marks=pytest.mark.rest)])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_lakebed_and_real_hudi_update_a_table_of_blobs_in_turns(
    kind: str, turns: int, oracle: HudiOracle, tmp_path: Path
) -> None:
    path = container()
    data = path.read_bytes()
    table = blob_table(kind, str(tmp_path / "t"))
    model = {row["id"]: data_of(n) if n % 10 else None for n, row in enumerate(blob_rows(range(40)))}
    for turn in range(turns):
        key, other, dropped = (f"k{3 * turn + n + 1:03d}" for n in range(3))
        new = f"by hudi {turn}".encode()
        oracle.ask(
            "sql",
            table=table.uri,
            conf=CONF,
            sql=[
                f"update {{t}} set pic = {inline(new)}, ts = {10 + 2 * turn} where id = '{key}'",
                f"update {{t}} set name = 'by hudi', ts = {10 + 2 * turn} where id = '{other}'",
                f"delete from {{t}} where id = '{dropped}'",
                f"insert into {{t}} values ('h{turn}', {out_of_line(path, 10 * turn, 10)}, 'n', 1, 'p0')",
            ],
        )
        model |= {key: new, f"h{turn}": data[10 * turn : 10 * turn + 10]}
        del model[dropped]
        assert blobs_by_key(table) == model
        mine = f"by lakebed {turn}".encode()
        row = {"id": other, "pic": lakebed.blob(data=mine), "name": "n", "ts": 11 + 2 * turn}
        table.upsert([{**row, "part": f"p{int(other[1:]) % 2}"}])
        table.upsert(blob_rows(range(50 + turn, 51 + turn)))
        table.upsert(outside(path, [f"o{turn}"], [5000 + 100 * turn], [20]))
        model |= {other: mine, f"o{turn}": data[5000 + 100 * turn : 5020 + 100 * turn]}
        model |= {r["id"]: (r["pic"] and r["pic"]["data"]) for r in blob_rows(range(50 + turn, 51 + turn))}
        assert hudi_blobs(oracle, table, tmp_path) == model
        if kind == "mor":
            table.maintenance.compact()
            assert hudi_blobs(oracle, table, tmp_path) == model


@pytest.mark.parametrize("name", ["blob_cow", "blob_mor"])
def test_real_hudi_goes_on_with_its_own_table_after_lakebed_wrote_to_it(
    name: str, oracle: HudiOracle, tmp_path: Path
) -> None:
    container()
    table = lakebed.open(unpacked(name, tmp_path))
    row = table.get(["k000"]).to_pylist()[0]
    table.upsert([{**row, "pic": lakebed.blob(data=b"by lakebed"), "ts": 5000}])
    table.delete(["k002"])
    if name == "blob_mor":
        table.maintenance.compact()
    model = blobs_by_key(table)
    assert hudi_blobs(oracle, table, tmp_path) == model
    oracle.ask(
        "sql",
        table=table.uri,
        conf=ANSI_OFF,
        sql=[
            f"update {{t}} set pic = {inline(b'by hudi')}, ts = 6000 where id in ('k000', 'k008')",
            "delete from {t} where id = 'k010'",
        ],
    )
    model |= {"k000": b"by hudi", "k008": b"by hudi"}
    del model["k010"]
    assert blobs_by_key(table) == model
    assert hudi_blobs(oracle, table, tmp_path) == model


def test_real_hudi_reads_a_table_to_which_a_blob_was_added(oracle: HudiOracle, tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": ["a"], "ts": [1]}, key="id", ordering="ts")
    table.upsert({"id": ["a"], "ts": [1]})
    table.columns.add("pic", "blob")
    table.upsert([{"id": "b", "ts": 1, "pic": lakebed.blob(data=b"bytes")}])
    conf = {"hoodie.schema.on.read.enable": "true"}
    rows = oracle.read(table.uri, option={"hoodie.metadata.enable": "false", **conf}, conf=conf)
    blobs = {row["id"]: row["pic"] and row["pic"]["data"] for row in rows.to_pylist()}
    assert blobs == {"a": None, "b": b"bytes"}


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_real_hudi_writes_a_table_with_two_columns_of_blobs(kind: str, oracle: HudiOracle, tmp_path: Path) -> None:
    columns = {"id": ["a"], "ts": [1], "pic": lakebed.blob(data=[b"1"]), "other": lakebed.blob(data=[b"2"])}
    table = lakebed.load(str(tmp_path / "t"), columns, key="id", ordering="ts", type=kind)
    table.upsert({**columns, "ts": [2], "pic": lakebed.blob(data=[b"3"])})
    sql = f"update {{t}} set other = {inline(b'4')}, ts = 3 where id = 'a'"
    oracle.ask("sql", table=table.uri, conf=CONF, sql=sql)
    assert [next(table.read_blob(["a"], name)) for name in ("pic", "other")] == [b"3", b"4"]
    table.upsert({**columns, "ts": [4]})
    assert hudi_blobs(oracle, table, tmp_path) == {"a": b"1"}
