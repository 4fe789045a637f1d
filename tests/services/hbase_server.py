"""HBase in one JVM (master, region server, ZooKeeper), and its Thrift gateway where that is asked for."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from .service import HOST, JAVA_FLAGS, Service, answers, command_line, free_ports, java_home, maven_jars

_VERSION = "2.6.1"
_JARS = tuple(f"org.apache.hbase:{name}:{_VERSION}" for name in ("hbase-server", "hbase-thrift"))
_OPEN = b"\x18\x03"  # the state of the region of hbase:meta, as its node in ZooKeeper has it


class HBase(Service):
    """`info`: quorum, port and znode of its ZooKeeper, and with `thrift=True` the gateway's port."""

    name = "hbase"
    patience = 1  # it takes longer than any test wants to wait, and nobody needs its files afterwards

    def install(self) -> None:
        self._jars = maven_jars("hbase", _JARS)

    def launch(self) -> dict[str, Any]:
        port, thrift = free_ports(2)
        self._configure(port)
        process = self._java("hbase", "org.apache.hadoop.hbase.master.HMaster", "start", heap="512m")
        info: dict[str, Any] = {"quorum": HOST, "port": port, "znode": "/hbase"}
        self.wait(lambda: _serves_meta(port), "hbase:meta being served", process)
        if self.options.get("thrift"):
            server = "org.apache.hadoop.hbase.thrift.ThriftServer"
            gateway = self._java("thrift", server, "start", "-p", thrift, "-b", HOST, heap="128m")
            self.wait(lambda: answers(thrift), "the Thrift gateway", gateway)
            info["thrift_port"] = thrift
        return info

    def restart(self) -> None:
        """Begin again on the data and the ports that there were, after the process was killed."""
        process = self._java("hbase", "org.apache.hadoop.hbase.master.HMaster", "start", heap="512m")
        self.wait(lambda: _serves_meta(self.info["port"]), "hbase:meta being served", process)

    def _java(self, role: str, main: str, *arguments: object, heap: str) -> dict[str, Any]:
        java = java_home() / "bin" / "java"
        classpath = ":".join([str(self.folder / "conf"), *self._jars])
        return self.spawn([java, f"-Xmx{heap}", *JAVA_FLAGS, "-cp", classpath, main, *arguments], role)

    def _configure(self, port: int) -> None:
        data = self.folder / "data"
        settings = {
            "hbase.rootdir": f"file://{data / 'hbase'}",
            "hbase.tmp.dir": data / "tmp",
            "hbase.zookeeper.property.dataDir": data / "zk",
            "hbase.zookeeper.property.clientPort": port,
            "hbase.zookeeper.property.clientPortAddress": HOST,
            "hbase.zookeeper.quorum": HOST,
            "hbase.cluster.distributed": "false",
            "hbase.regionservers": self.options.get("region_servers", 1),
            "hbase.unsafe.stream.capability.enforce": "false",
            "hbase.wal.provider": "filesystem",
            "hbase.localcluster.assign.random.ports": "true",
            "hbase.master.ipc.address": HOST,
            "hbase.regionserver.ipc.address": HOST,
            "hbase.master.hostname": "localhost",
            "hbase.unsafe.regionserver.hostname": "localhost",
            "hbase.regionserver.handler.count": 10,
            "hbase.master.start.timeout.localHBaseCluster": 300000,
            **{f"hbase.{page}.info.port": -1 for page in ("master", "regionserver", "thrift")},
        }
        lines = (
            f"<property><name>{name}</name><value>{escape(str(v))}</value></property>" for name, v in settings.items()
        )
        folder = Path(self.folder / "conf")
        folder.mkdir(exist_ok=True)
        (folder / "hbase-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
        (folder / "log4j.properties").write_text(
            "log4j.rootLogger=WARN, A\nlog4j.appender.A=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.A.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.A.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n\n"
        )


def _serves_meta(port: int) -> bool:
    """Whether ZooKeeper names an active master, and the server of hbase:meta as open."""
    data = _node(port, "/hbase/meta-region-server")
    return b"PBUF" in data and _OPEN in data[data.index(b"PBUF") :] and bool(_node(port, "/hbase/master"))


def _node(port: int, path: str) -> bytes:
    with socket.create_connection((HOST, port), 5) as connection, connection.makefile("rb") as answers_:

        def ask(body: bytes) -> bytes:
            connection.sendall(struct.pack(">i", len(body)) + body)
            return answers_.read(*struct.unpack(">i", answers_.read(4)))

        ask(struct.pack(">iqiqi", 0, 0, 10000, 0, 16) + bytes(17))
        name = path.encode()
        answer = ask(struct.pack(">iii", 1, 4, len(name)) + name + b"\0")
        (failed,) = struct.unpack(">i", answer[12:16])
        return b"" if failed else answer[20:]


if __name__ == "__main__":
    command_line(HBase, thrift=False)
