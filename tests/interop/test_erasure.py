"""After an erasure real Hudi reads the same rows, and writes on; lakebed then erases what Hudi wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interop.hudi_jobs import assert_both_read, hudi_job
from interop.metadata_jobs import keeping_metadata
from lakebed.storage import open_storage
from oracle.client import HudiOracle
from support.erased_tables import ERASED, KEY, OPTIONS, VALUES, new_table, rows
from support.sampling import some
from support.table_bytes import files_with

CDC = {"hoodie.table.cdc.enabled": True}
CASES: list[tuple[str, str, int, dict[str, Any]]] = [
    ("cow", "record", 9, {}),
    ("cow", "bucket", 9, CDC),
    ("mor", "record", 9, {}),
    ("mor", "bucket", 8, {}),
    ("cow", "simple", 6, {}),
    ("mor", "simple", 6, {}),
]


@pytest.mark.parametrize(("kind", "index", "version", "properties"), some(CASES, CASES[0], CASES[5]))
def test_hudi_reads_an_erased_table_and_writes_on(
    kind: str, index: str, version: int, properties: dict[str, Any], tmp_path: Path, oracle: HudiOracle
) -> None:
    table = new_table(str(tmp_path / "t"), kind, index, version, **properties)
    report = table.erase([KEY], options=OPTIONS)
    assert report.is_clean
    read = {"option": {"hoodie.metadata.enable": "true"}}
    assert_both_read(oracle, table, table.scan().to_arrow(), **read)
    assert oracle.problems(table.uri) == []
    job = hudi_job(table) | keeping_metadata(table)
    oracle.write(table.uri, rows([2, 6, ERASED], 8, "hudi"), options=job)
    written = table.get(["key-00000002", "key-00000006"])["mail"].to_pylist()
    assert sorted(written) == ["hudi-mail-00000002", "hudi-mail-00000006"]
    if properties:
        # from after the delete on: the rewrite has changed no row
        deleted = next(i for i in table.timeline if i.time == report.tables[0].steps[0].split()[1].rstrip(":"))
        read_changes = {"hoodie.datasource.query.incremental.format": "cdc"}
        changes = oracle.incremental(table.uri, deleted.completion_time or "", option=read_changes)
        assert sorted(changes["op"].to_pylist()) == ["i", "i", "u"]
        assert sorted(table.cdc(deleted.completion_time or "").to_arrow()["op"].to_pylist()) == ["i", "i", "u"]
    assert_both_read(oracle, table, table.scan().to_arrow(), **read)
    assert table.erase([KEY], options=OPTIONS).is_clean
    assert files_with(open_storage(table.uri), *VALUES, f"hudi-mail-{ERASED:08d}") == {}
    assert table.count() == 6
