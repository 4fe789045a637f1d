"""Real Hudi goes on writing through record indexes that lakebed re-sharded, compacted, cleaned and archived."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.metadata.lookups import open_metadata
from lakebed.metadata_kinds.record_index import data_partition_of
from lakebed.metadata_upkeep.resharding import reshard
from lakebed.metadata_upkeep.services import run_services
from lakebed.metadata_upkeep.store import MetadataSettings, MetadataStore
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.timeline.timeline import load_timeline
from oracle.client import HudiOracle
from support.golden_tables import golden
from support.locks import held
from support.sampling import INTEROP, todays

TABLES = ["v9_cow_mdt_basic", "v9_mor_record_index_partitioned", "v8_mor_mdt_basic", "v6_mor_mdt_basic"]
AT_ONCE = MetadataSettings(compact_after=1, clean_commits=2, archive_above=5, archive_down_to=3)
# Over the options that the table was made with: real Hudi cleans and archives soon, so that lakebed may archive too.
SOON = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": "4",
    "hoodie.embed.timeline.server": "true",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
    "hoodie.write.auto.upgrade": "false",
}


def store(table: Path, settings: MetadataSettings | None = None) -> MetadataStore:
    storage = open_storage(str(table))
    config = load_table_config(storage)
    return MetadataStore(storage, config, load_timeline(storage, config), settings, lock_is_held=held)


def file_ids(table: Path) -> list[str]:
    storage = open_storage(str(table))
    config = load_table_config(storage)
    metadata = open_metadata(storage, config, load_timeline(storage, config))
    assert metadata is not None
    return [file_slice.file_id for file_slice in metadata.slices.file_slices("record_index")]


def counts(table: Path, of_global: int, of_path: int) -> int | dict[str, int]:
    paths = sorted({path for id_ in file_ids(table) if (path := data_partition_of(id_)) is not None})
    return {path: of_path + n for n, path in enumerate(paths)} if paths else of_global


@pytest.mark.rest
@pytest.mark.parametrize("name", todays(TABLES, 2, INTEROP))
def test_hudi_reads_and_writes_on_after_resharding(name: str, tmp_path: Path, oracle: HudiOracle) -> None:
    made = golden(name)
    table = made.unpack(tmp_path)
    options = {**made.entry["options"], **SOON, "hoodie.write.table.version": str(made.version)}
    del options["hoodie.table.name"]
    before = oracle.read(table)
    assert reshard(store(table), "record_index", counts(table, 5, 3))
    assert oracle.read(table).equals(before)
    places = set(zip(*(before[c].to_pylist() for c in ("_hoodie_record_key", "_hoodie_partition_path")), strict=True))
    by_partition = name.endswith("partitioned")
    batches = [made.more(f"inputs/step_{n:02d}.parquet") for n in (1, 2)]
    for turn in range(6):
        rows = batches[turn % 2].slice(turn, 12)
        oracle.write(table, rows, options=options)
        keys = list(zip(map(str, rows["id"].to_pylist()), map(str, rows["region"].to_pylist()), strict=True))
        known = {key for key, _ in places}
        places |= {place for place in keys if by_partition or place[0] not in known}
        found = oracle.read(table)
        assert len(found) == len(places), turn
        if not by_partition:
            assert sorted(found["_hoodie_record_key"].to_pylist()) == sorted(key for key, _ in places)
        if turn == 2:
            assert reshard(store(table), "record_index", counts(table, 2, 1))
        if turn in (0, 4):
            assert run_services(store(table, AT_ONCE))
    assert not [id_ for id_ in file_ids(table) if id_.endswith("-0000-0")]
    assert oracle.problems(table) == []
