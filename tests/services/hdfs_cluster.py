"""HDFS with a name node and data nodes in one JVM."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from .service import HOST, JAVA_FLAGS, Service, command_line, free_ports, java_home, maven_jars

_VERSION = "3.4.2"
_JARS = (
    f"org.apache.hadoop:hadoop-client-minicluster:{_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
    "javax.xml.bind:jaxb-api:2.3.1",
    "javax.activation:javax.activation-api:1.2.0",
)


class Hdfs(Service):
    """`info`: `fs`, the URI of the name node."""

    name = "hdfs"

    def install(self) -> None:
        self._jars = maven_jars("hdfs", _JARS)

    def launch(self) -> dict[str, Any]:
        rpc, http = free_ports(2)
        data_nodes = int(self.options.get("data_nodes", 1))
        settings = {
            "dfs.replication": 1,
            "dfs.permissions.enabled": "false",
            "hdfs.minidfs.basedir": self.folder / "data",
            "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
            "dfs.namenode.fs-limits.min-block-size": 1024,
        }
        command: list[object] = [java_home() / "bin" / "java", "-Xmx512m", *JAVA_FLAGS]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", f"-Dhadoop.home.dir={self.folder}"]
        command += [f"-Dtest.build.data={self.folder / 'data'}", f"-Dhadoop.tmp.dir={self.folder / 'tmp'}"]
        command += ["-cp", ":".join(self._jars), "org.apache.hadoop.test.MiniDFSClusterManager", "-format"]
        command += ["-datanodes", data_nodes, "-nnport", rpc, "-httpport", http]
        for name, value in settings.items():
            command += ["-D", f"{name}={value}"]
        process = self.spawn(command, "hdfs")
        state = f"http://{HOST}:{http}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"

        def ready() -> bool:
            with urllib.request.urlopen(state, timeout=10) as answer:
                bean = json.load(answer)["beans"][0]
            return bean["NumLiveDataNodes"] >= data_nodes and bean["FSState"] == "Operational"

        self.wait(ready, "live data nodes", process)
        return {"fs": f"hdfs://{HOST}:{rpc}", "http_port": http}


if __name__ == "__main__":
    command_line(Hdfs, data_nodes=1)
