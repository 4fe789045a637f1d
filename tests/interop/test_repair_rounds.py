"""Damage that lakebed or real Hudi mends, after which the other goes on: as far as real Hudi mends it at all.

Its procedure for `hoodie.properties` writes them again. That for marks of partitions looks three folders deep only, for
orphans its Spark bundle has nothing, and what it makes of duplicates are files beside the table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.service_turns import ServiceTurns
from lakebed.errors import CorruptFile
from lakebed.storage import open_storage
from oracle.client import HudiOracle
from support.sampling import INTEROP, todays

KINDS = ("cow", "mor")
ROUNDS = 3
PROPERTIES = ".hoodie/hoodie.properties"


def call(turns: ServiceTurns, procedure: str) -> None:
    turns.oracle.ask("sql", sql=f"call {procedure}", table=turns.uri)


@pytest.mark.full
@pytest.mark.parametrize("kind", todays(KINDS, 2, INTEROP))
def test_each_writer_continues_on_a_table_that_the_other_repaired(
    kind: str, tmp_path: Path, oracle: HudiOracle
) -> None:
    turns = ServiceTurns(tmp_path, oracle, kind, 9, "bucket" if kind == "mor" else "simple", {})
    storage = open_storage(turns.uri)
    turns.write(by_hudi=True)
    for n in range(ROUNDS):
        turns.write(by_hudi=bool(n % 2))
        # partitions without their mark
        assert storage.delete("c1/.hoodie_partition_metadata")
        assert turns.table.maintenance.repair(["partition_metadata"])["partition_metadata"].mended
        turns.check()
        # properties
        whole = storage.read(PROPERTIES)
        storage.write(PROPERTIES + ".backup", whole)
        storage.write(PROPERTIES, whole[:60])
        assert turns.table.maintenance.repair(["properties"])["properties"].mended
        turns.write(by_hudi=True)
        (tmp_path / "wanted.properties").write_bytes(storage.read(PROPERTIES))
        wanted = f"{tmp_path}/wanted.properties"
        call(turns, f"repair_overwrite_hoodie_props(table => 'turns', new_props_file_path => '{wanted}')")
        assert turns.table.maintenance.repair(["properties"], dry_run=True).ok
        # a file that no commit names: lakebed's alone
        name = next(s.base_file.path for s in turns.table.files if s.base_file is not None)
        storage.write(name.replace("_0-", "_9-"), storage.read(name))
        assert turns.table.maintenance.repair(["orphans"])["orphans"].mended
        turns.write(by_hudi=False)
        # the metadata table
        newest = max(i for i in storage.list_names(".hoodie/metadata/.hoodie/timeline") if i.endswith(".deltacommit"))
        storage.delete(f".hoodie/metadata/.hoodie/timeline/{newest}")
        with pytest.raises(CorruptFile, match="no delta commit of the table's commit"):
            turns.table.indexes.verify()
        assert turns.table.maintenance.repair(["metadata"])["metadata"].mended
        turns.check()
