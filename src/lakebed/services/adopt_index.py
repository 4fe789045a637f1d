"""Recording the index that the files of a table have already."""

from __future__ import annotations

from collections.abc import Callable

from lakebed.concurrency.providers import writers_lock
from lakebed.config.settings import WriteSettings
from lakebed.index.base import Index
from lakebed.index.registry import check_new_indexes
from lakebed.metadata.lookups import open_snapshot
from lakebed.properties.file import load_table_config, refuse_other_table, update_table_config
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.index_changes import declare_index


def adopt_index(storage: Storage, settings: WriteSettings, find: Callable[[Snapshot], Index]) -> None:
    """Record the index that `find` returns for the table as it is under the table lock.

    Raises what `find` raises, as `IndexInconsistent` for keys that are stored elsewhere; nothing is recorded then.
    """
    before = load_table_config(storage)
    with writers_lock(storage, settings, before.name) as lock:
        snapshot = open_snapshot(storage)
        refuse_other_table(before, snapshot.config, storage.url())
        index = find(snapshot)
        recorded = snapshot.config.metadata_partitions
        missing = [name for name in index.metadata_indexes if name.partition not in recorded]
        check_new_indexes(missing, snapshot.config, snapshot.schema, index)
        changes = declare_index(snapshot.config, snapshot.timeline, index.settings())
        update_table_config(storage, changes, lock.lock_is_held)
