"""An index operation that is killed anywhere: the next write undoes it, and the metadata table's services go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lakebed
from lakebed.metadata_records.layout import METADATA_FOLDER
from lakebed.model import HOODIE, Action
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.storage.folder import FolderStorage
from lakebed.table import Table
from lakebed.testing import Killed, crash_at
from lakebed.timeline.timeline import Timeline, load_timeline
from support.crash_tables import OPTIONS, copied, prepared, rows, state
from support.sampling import CRASH, todays_points

SERVICES = {**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 2}
_PARTS = 4


def metadata_timeline(uri: str) -> Timeline:
    own = FolderStorage(open_storage(uri), METADATA_FOLDER)
    return load_timeline(own, load_table_config(own))


def create_record(table: Table) -> None:
    table.indexes.create("record_index", groups=2)


def create_blooms(table: Table) -> None:
    table.indexes.create("bloom_filters")


def drop_stats(table: Table) -> None:
    table.indexes.drop("column_stats")


def reshard(table: Table) -> None:
    table.indexes.reshard("record_index", 3)


@pytest.mark.parametrize(
    ("operation", "index", "version"),
    [
        (create_record, "simple", 9),
        (create_blooms, "bucket", 6),
        (create_blooms, "record", 9),
        (drop_stats, "simple", 9),
        (reshard, "record", 9),
        (reshard, "record", 6),
    ],
)
def test_the_next_write_undoes_a_killed_index_build(
    operation: Callable[[Table], None], index: str, version: int
) -> None:
    files, old = prepared(index, version)
    with copied("memory", files) as uri, crash_at(0) as counted:
        operation(lakebed.open(uri))
    for at in todays_points(len(counted.mutations) - 1, _PARTS, CRASH, operation.__name__, index, version):
        with copied("memory", files) as uri:
            with crash_at(at, "kill") as crash, pytest.raises(Killed):
                operation(lakebed.open(uri))
            try:
                for n in range(3):
                    lakebed.open(uri).upsert(rows((1, "c1", f"after {n}", 9 + n)), options=SERVICES)
                own = metadata_timeline(uri)
                assert own.pending == ()
                assert [i for i in own.commits if i.action is Action.COMMIT], "no compaction"
                folders = FolderStorage(open_storage(uri), METADATA_FOLDER).list_folders()
                kept = load_table_config(open_storage(uri)).metadata_partitions
                assert {*folders} - {HOODIE} >= {*kept}
                assert state(uri) == old | {1: ("c1", "after 2", 11)}
                assert lakebed.open(uri).indexes.verify().ok
            except Exception as error:
                error.add_note(f"killed before mutation {at}: {crash}")
                raise


def test_verify_passes_over_the_folder_of_a_failed_first_write() -> None:
    files, old = prepared("simple", 9)
    with copied("memory", files) as uri:
        storage = open_storage(uri)
        storage.write("new/.hoodie_partition_metadata", b"commitTime=20990101000000000\npartitionDepth=1\n")
        assert lakebed.open(uri).indexes.verify().ok
        assert lakebed.open(uri).indexes.repair().ok
        lakebed.open(uri).upsert(rows((50, "new", "first", 1)), options=OPTIONS)
        assert state(uri) == old | {50: ("new", "first", 1)}
        assert lakebed.open(uri).indexes.verify().ok
