"""A ZooKeeper server of one node."""

from __future__ import annotations

import socket
from typing import Any

from .service import HOST, JAVA_FLAGS, Service, command_line, free_ports, java_home, maven_jars

_JARS = (
    "org.apache.zookeeper:zookeeper:3.9.4",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
    "org.xerial.snappy:snappy-java:1.1.10.5",
)
_SETTINGS = """tickTime=500
initLimit=10
syncLimit=5
dataDir={data}
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
maxClientCnxns=0
4lw.commands.whitelist=ruok
"""


class ZooKeeper(Service):
    """`info`: `hosts`, host and port."""

    name = "zookeeper"

    def install(self) -> None:
        self._jars = maven_jars("zookeeper", _JARS)

    def launch(self) -> dict[str, Any]:
        (port,) = free_ports(1)
        settings = self.folder / "zoo.cfg"
        settings.write_text(_SETTINGS.format(data=self.folder / "data", port=port, host=HOST))
        command: list[object] = [java_home() / "bin" / "java", "-Xmx128m", *JAVA_FLAGS, "-cp", ":".join(self._jars)]
        process = self.spawn([*command, "org.apache.zookeeper.server.quorum.QuorumPeerMain", settings], "zookeeper")
        self.wait(lambda: _is_well(port), "answer to ruok", process)
        return {"hosts": f"{HOST}:{port}", "port": port}


def _is_well(port: int) -> bool:
    with socket.create_connection((HOST, port), 5) as connection:
        connection.sendall(b"ruok")
        return connection.recv(16) == b"imok"


if __name__ == "__main__":
    command_line(ZooKeeper)
