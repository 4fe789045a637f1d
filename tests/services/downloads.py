"""Fetches the servers and the readers of the services layer before its tests begin, so that no test waits for it.

A command: `python -m services.downloads` in the folder `tests`.
"""

from __future__ import annotations

import sys
import tempfile

from .dbt_projects import install_dbt
from .hbase_server import HBase
from .hdfs_cluster import Hdfs
from .hive_metastore import HiveMetastore
from .kafka_broker import Kafka
from .readers import install_readers
from .service import ServiceError
from .zookeeper_server import ZooKeeper


def fetch_all() -> list[str]:
    """Fetch servers and readers that are not in the cache; gives why some cannot be fetched."""
    reasons: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        servers = (ZooKeeper(folder), HBase(folder), Hdfs(folder), HiveMetastore(folder, release=4), Kafka(folder))
        for server in servers:
            try:
                server.install()
            except ServiceError as error:
                reasons.append(f"{server.name}: {error}")
    for name, install in (("other readers", install_readers), ("dbt", install_dbt)):
        try:
            install()
        except ServiceError as error:
            reasons.append(f"{name}: {error}")
    return reasons


if __name__ == "__main__":
    sys.exit("\n".join(fetch_all()) or None)
