"""Every table service. What a write makes due runs in this order after the write."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from lakebed.config.options import resolve_options, service_settings
from lakebed.services.archival import Archival
from lakebed.services.build_index import Indexing
from lakebed.services.catalog_sync import CatalogSync, sync_all
from lakebed.services.cleaning import Cleaning
from lakebed.services.clustering import Clustering, SmallFiles
from lakebed.services.compaction import Compaction, MetadataMaintenance
from lakebed.services.dead_writers import DeadWriters
from lakebed.services.driver import Service, is_set, run_after_write
from lakebed.services.log_compaction import LogCompaction
from lakebed.services.partition_ttl import PartitionExpiry
from lakebed.services.publishing import Publishing, publish_after_service
from lakebed.storage.base import Storage

# In the order in which real Hudi runs them after a write, and before all others what a process does in the metadata
# table; publication and catalogs come last and show the results of all others.
SERVICES: tuple[Service[Any], ...] = (
    DeadWriters(),
    Indexing(),
    MetadataMaintenance(),
    Cleaning(),
    Archival(),
    Compaction(),
    LogCompaction(),
    Clustering(),
    SmallFiles(),
    PartitionExpiry(),
    Publishing(),
    CatalogSync(),
)

# `show_after_service` does nothing unless the table or the call has one of these settings.
AFTER_SERVICE_SETTINGS = frozenset(
    {
        *("lakebed.publish", "lakebed.catalogs"),
        *("lakebed.datasource.hive_sync.enable", "lakebed.datasource.meta.sync.enable"),
        *("hoodie.datasource.hive_sync.enable", "hoodie.datasource.meta.sync.enable"),
    }
)

run_due_services = partial(run_after_write, SERVICES)


def show_after_service(storage: Storage, properties: Mapping[str, str], options: Mapping[str, Any] | None) -> None:
    """Update published lists and catalogs after a service or a restore, if the properties of the table or the options
    request it. Errors are only logged, and the next commit tries again."""
    resolved = resolve_options(options)
    settings = service_settings(resolved.explicit, properties)
    if settings.publish.formats:
        publish_after_service(storage, settings.publish, resolved.write)
    if is_set(settings, CatalogSync.after_write):
        sync_all(storage, settings.catalog)
