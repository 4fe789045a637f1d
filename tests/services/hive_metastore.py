"""The metastore of Hive 2.3, by the jars that come with PySpark, over a database in its own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from .service import HOST, JAVA_FLAGS, Service, ServiceError, answers, command_line, free_ports, java_home

LOCK_SECONDS = 3


class HiveMetastore(Service):
    """`info`: `uris` of the metastore. Locks are over after `LOCK_SECONDS` without a heartbeat."""

    name = "hive-metastore"

    def install(self) -> None:
        try:
            import pyspark
        except ImportError as error:
            raise ServiceError("the Hive metastore needs the jars of PySpark") from error
        self._jars = [str(jar) for jar in sorted(Path(pyspark.__file__).parent.joinpath("jars").glob("*.jar"))]

    def launch(self) -> dict[str, Any]:
        (port,) = free_ports(1)
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self.folder / 'database'};create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "hive.metastore.warehouse.dir": f"file://{self.folder / 'warehouse'}",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.uris": "",
            "hive.metastore.server.min.threads": "4",
            "datanucleus.connectionPoolingType": "none",
            "hive.async.log.enabled": "false",  # this and pools need libraries that are not there
            "hive.in.test": "true",  # it makes the tables of locks itself
            "hive.txn.timeout": f"{LOCK_SECONDS}s",
            "hive.compactor.initiator.on": "true",  # with it begins what ends locks of the dead
            "hive.timedout.txn.reaper.start": "1s",
            "hive.timedout.txn.reaper.interval": "1s",
        }
        configuration = self.folder / "configuration"
        configuration.mkdir(exist_ok=True)
        each = (f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
        (configuration / "hive-site.xml").write_text(f"<configuration>{''.join(each)}</configuration>")
        command: list[object] = [java_home() / "bin" / "java", "-Xmx256m", *JAVA_FLAGS]
        command += [f"-Dderby.stream.error.file={self.folder / 'derby.log'}"]
        command += ["-cp", ":".join([str(configuration), *self._jars])]
        process = self.spawn([*command, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", port], "metastore")
        self.wait(lambda: answers(port), "answer", process)
        return {"uris": f"thrift://{HOST}:{port}", "port": port}


if __name__ == "__main__":
    command_line(HiveMetastore)
