"""Real Hudi 1.0.2, of the last releases with an HBase index, and lakebed write one table by the same rows in HBase."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from conftest import unavailable
from interop.hudi_jobs import hudi_job
from lakebed.index.hbase.index import HBaseIndex
from lakebed.table import Table
from oracle.client import HudiOracle
from oracle.environment import Unavailable, oracle_environment
from services.hbase_admin import Admin
from services.hbase_server import HBase
from services.service import ServiceError
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays

# Hudi's bundle has HBase's classes under other names, and tells the server the one of its codec, which closes the
# connection of a client whose codec it does not know: without a codec cells come in the messages themselves.
SITE = """<configuration>
<property><name>hbase.client.default.rpc.codec</name><value>${env.NO_CODEC:-}</value><final>true</final></property>
<property><name>hbase.client.retries.number</name><value>5</value><final>true</final></property>
</configuration>
"""
TURNS = 10

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
CITIES = ("oslo", "rome", "bonn")


@pytest.fixture(scope="module")
def hbase() -> Iterator[HBase]:
    service = HBase()
    try:
        service.start()
    except ServiceError as error:
        pytest.skip(str(error))
    yield service
    service.stop()


@pytest.fixture(scope="module")
def hudi(hbase: HBase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiOracle]:
    """Real Hudi 1.0.2, whose HBase client finds settings on its class path alone."""
    folder = tmp_path_factory.mktemp("hudi-hbase")
    (folder / "core-site.xml").write_text(SITE)
    try:
        made = HudiOracle(oracle_environment("1.0.2"), folder / "oracle.log", {"HADOOP_CONF_DIR": str(folder)})
    except Unavailable as reason:
        unavailable(str(reason))
        return
    yield made
    made.close()


def data(rows: dict[str, tuple[str, int]]) -> pa.Table:
    listed = [{"id": i, "city": city, "v": v, "ts": v} for i, (city, v) in rows.items()]
    return pa.Table.from_pylist(listed, schema=SCHEMA)


@pytest.mark.full
@pytest.mark.parametrize("buckets", todays((None, 8), 4, INTEROP), ids=str)
def test_each_writer_reads_and_retains_locations_of_the_other(
    hudi: HudiOracle, hbase: HBase, buckets: int | None, tmp_path: Path
) -> None:
    """Keys move to other partition paths, are deleted and come back; in turns, each on what the other left."""
    admin = Admin(hbase.info)
    name = f"keys{uuid.uuid4().hex[:8]}"
    admin.create(name)
    hbase_table = admin.table(name, buckets=buckets)
    table = lakebed.create(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        table_version=8,
        index=HBaseIndex(hbase_table, update_partition_path=True),
    )
    options = {**hudi_job(table), **job(hbase, name, buckets)}
    model: dict[str, tuple[str, int]] = {}
    for turn in range(TURNS):
        # half of the keys are those of the turn before, in another city
        rows = {f"key-{(turn * 5 + n) % 23}": (CITIES[(turn + n) % 3], turn * 100 + n) for n in range(10)}
        if turn % 2:
            lakebed.open(table.uri).upsert(data(rows))
        else:
            hudi.write(table.uri, data(rows), operation="upsert", options=options)
        model |= rows
        gone = list(rows)[:2]
        if turn % 2:
            assert lakebed.open(table.uri).delete(gone).deleted == 2
        else:
            hudi.write(table.uri, data({i: rows[i] for i in gone}), operation="delete", options=options)
        for key in gone:
            del model[key]
        check(hudi, table, model)
    admin.close()


def job(hbase: HBase, name: str, buckets: int | None) -> dict[str, str]:
    kind = {"hoodie.index.type": "HBASE"}
    if buckets is not None:
        kind["hoodie.index.class"] = "org.apache.hudi.index.hbase.RebalancedSparkHoodieHBaseIndex"
        kind["hoodie.index.hbase.bucket.number"] = str(buckets)
    return {
        **kind,
        "hoodie.index.hbase.zkquorum": hbase.info["quorum"],
        "hoodie.index.hbase.zkport": str(hbase.info["port"]),
        "hoodie.index.hbase.zknode.path": hbase.info["znode"],
        "hoodie.index.hbase.table": name,
        "hoodie.hbase.index.update.partition.path": "true",
    }


def check(hudi: HudiOracle, table: Table, model: dict[str, tuple[str, int]]) -> None:
    ours = lakebed.open(table.uri)
    expected = data(model)
    assert_same_rows(ours.scan().to_arrow(), expected)
    assert_same_rows(hudi.read(table.uri), expected)
    index: Any = ours.indexes.index
    index.check(ours.opened.snapshot())
    places = ours.locate(list(model))
    found = dict(zip(places["key"].to_pylist(), places["partition_path"].to_pylist(), strict=True))
    assert found == {key: city for key, (city, _) in model.items()}
