"""Real Hudi 1.0.2 writes and compacts a table of version 8 with a text index, but does not restore it.

It writes the file of index definitions without those that it does not know, so that the index counts no more: searches
read all texts, the next write of lakebed takes the index off, and it can be created again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from interop.hudi_jobs import LEAVE_AS_IS, hudi_job
from oracle.client import HudiOracle, OracleError
from support.layered_tables import TEXTS

pytestmark = pytest.mark.rest
METADATA = {"hoodie.metadata.enable": "true", "hoodie.metadata.compact.max.delta.commits": "2"}
CONF = {**LEAVE_AS_IS, **METADATA, "spark.sql.ansi.enabled": "false"}


@pytest.mark.parametrize("older_oracle", ["1.0.2"], indirect=True)
def test_searches_stay_right_beside_a_release_that_drops_the_definition(
    older_oracle: HudiOracle, tmp_path: Path
) -> None:
    properties = {"hoodie.metadata.compact.max.delta.commits": 4, "hoodie.clean.automatic": False}
    table = TEXTS.indexed("mor", str(tmp_path / "t"), table_version=8, properties=properties, index="simple")
    service = {**hudi_job(table), **METADATA, "hoodie.write.auto.upgrade": "false"}

    def ask_sql(*statements: str) -> None:
        older_oracle.ask("sql", table=table.uri, conf=CONF, sql=list(statements))

    def check() -> None:
        opened = lakebed.open(table.uri)
        assert TEXTS.same(opened)
        rows = older_oracle.read(table.uri, option={"hoodie.metadata.enable": "true"})
        assert dict(zip(rows["id"].to_pylist(), rows["body"].to_pylist(), strict=True)) == bodies(opened)

    for turn in range(2):
        ask_sql(
            f"update {{t}} set body = 'every zebra', ts = {10 + turn} where id = 'k00{turn + 1}'",
            f"insert into {{t}} values ('h{turn}', 'every blue zebra', 'n', 1, 'p0')",
            f"delete from {{t}} where id = 'k01{turn + 1}'",
        )
        check()
        lakebed.open(table.uri).upsert(TEXTS.rows(range(100 + turn, 103 + turn), ts=2))
        assert not TEXTS.has_index(lakebed.open(table.uri))
        check()
        TEXTS.create(lakebed.open(table.uri))
        TEXTS.check(lakebed.open(table.uri))
    table = lakebed.open(table.uri)
    saved, expected = table.timeline.to_arrow()["time"].to_pylist()[-1], bodies(table)
    table.savepoints.create(saved)
    table.upsert(TEXTS.rows(range(22, 26), ts=31))
    with pytest.raises(OracleError, match="No MetadataPartitionType for partition path: text_index_body"):
        older_oracle.ask("service", table=table.uri, call="restore", instant=saved, options=service)
    assert bodies(lakebed.open(table.uri)) == expected
    assert TEXTS.same(lakebed.open(table.uri))


def bodies(table: lakebed.Table) -> dict[str, str | None]:
    rows = table.scan(["id", "body"]).to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["body"].to_pylist(), strict=True))
