"""What an administrator does to HBase: tables made, regions split and moved, servers stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kazoo.client import KazooClient

from lakebed.index.hbase.client import HBaseTable
from lakebed.index.hbase.connection import Connection, Unserved, bytes_field, number_field
from lakebed.index.hbase.native import NativeClient, Region, _server_in  # pyright: ignore[reportPrivateUsage]


class Admin:
    def __init__(self, info: dict[str, Any]) -> None:
        self._info = info
        zookeeper = KazooClient(hosts=f"{info['quorum']}:{info['port']}")
        zookeeper.start(timeout=20)
        data, _ = zookeeper.get(f"{info['znode']}/master")
        self._master = Connection(*_server_in(memoryview(data)), 20, service=b"MasterService")
        self.servers = sorted(zookeeper.get_children(f"{info['znode']}/rs"))
        zookeeper.stop()
        zookeeper.close()

    def table(self, name: str, **settings: Any) -> HBaseTable:
        info = self._info
        return HBaseTable(info["quorum"], name, info["port"], info["znode"], **settings)

    def create(self, name: str, splits: Sequence[bytes] = (), families: Sequence[bytes] = (b"_s",)) -> None:
        made = b"".join(bytes_field(3, bytes_field(1, family)) for family in families)
        schema = bytes_field(1, _table_name(name)) + made
        self._call("CreateTable", bytes_field(1, schema) + b"".join(bytes_field(2, key) for key in splits))
        self.regions(name, len(splits) + 1)

    def regions(self, name: str, count: int = 1) -> list[Region]:
        """The regions, once all that are wanted are served."""
        end = time.monotonic() + 30
        while True:
            client = NativeClient(self.table(name))
            try:
                found = client._all_regions()  # pyright: ignore[reportPrivateUsage]
            except Unserved:
                found = []
            finally:
                client.close()
            if len(found) == count or time.monotonic() > end:
                return found
            time.sleep(0.1)

    def split(self, region: Region, name: str, at: bytes) -> None:
        about = number_field(1, int(region.name.split(b",")[-1].split(b".")[0])) + bytes_field(2, _table_name(name))
        about += bytes_field(3, region.start) + bytes_field(4, region.end)
        self._call("SplitRegion", bytes_field(1, about) + bytes_field(2, at))

    def move(self, region: Region, server: str) -> None:
        """`server` as ZooKeeper names it: host, port and start code."""
        host, port, start = server.split(",")
        to = bytes_field(1, host.encode()) + number_field(2, int(port)) + number_field(3, int(start))
        encoded = region.name.rstrip(b".").rpartition(b".")[2]
        which = number_field(1, 2) + bytes_field(2, encoded)
        self._call("MoveRegion", bytes_field(1, which) + bytes_field(2, to))

    def stop(self, server: str) -> None:
        host, port, _ = server.split(",")
        admin = Connection(host, int(port), 20, service=b"AdminService")
        admin.call("StopServer", bytes_field(1, b"a test"))
        admin.close()

    def _call(self, method: str, request: bytes) -> None:
        """The master asks for patience while it begins, and where regions are under way."""
        end = time.monotonic() + 60
        while True:
            try:
                self._master.call(method, request)
                return
            except Unserved as error:
                if not error.passing or time.monotonic() > end:
                    raise
            time.sleep(0.3)

    def close(self) -> None:
        self._master.close()


def _table_name(name: str) -> bytes:
    return bytes_field(1, b"default") + bytes_field(2, name.encode())
