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
from lakebed.services.publishing import Publishing

# In the order in which real Hudi runs them after a write; publication shows what all others have done.
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
    Publishing(),
)

run_due_services = partial(run_after_write, SERVICES)
