"""Every table service. What a write makes due runs in this order after the write."""

from __future__ import annotations

from functools import partial
from typing import Any

from lakebed.services.archival import Archival
from lakebed.services.build_index import Indexing
from lakebed.services.cleaning import Cleaning
from lakebed.services.clustering import Clustering, SmallFiles
from lakebed.services.compaction import Compaction
from lakebed.services.dead_writers import DeadWriters
from lakebed.services.driver import Service, run_after_write
from lakebed.services.log_compaction import LogCompaction
from lakebed.services.partition_ttl import PartitionExpiry

# In the order in which real Hudi runs them after a write.
SERVICES: tuple[Service[Any], ...] = (
    DeadWriters(),
    Indexing(),
    Cleaning(),
    Archival(),
    Compaction(),
    LogCompaction(),
    Clustering(),
    SmallFiles(),
    PartitionExpiry(),
)

run_due_services = partial(run_after_write, SERVICES)
