"""The metastore of Hive over a database in its own process: of Hive 2.3, by the jars that come with PySpark, or of Hive
4, by Maven."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from .service import (
    HOST,
    JAVA_FLAGS,
    Service,
    ServiceError,
    answers,
    command_line,
    free_ports,
    java_home,
    maven_jars,
)

LOCK_SECONDS = 3
_HIVE_4 = "4.0.1"
_LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.a.ref = A
appender.a.type = Console
appender.a.name = A
appender.a.target = SYSTEM_ERR
appender.a.layout.type = PatternLayout
"""


class HiveMetastore(Service):
    """`info`: `uris` of the metastore. Locks are over after `LOCK_SECONDS` without a heartbeat. `release` is 2 or 4."""

    name = "hive-metastore"

    def install(self) -> None:
        if int(self.options.get("release", 2)) == 4:
            self._jars = maven_jars(
                "hive",
                [
                    f"org.apache.hive:hive-standalone-metastore-server:{_HIVE_4}",
                    "org.apache.hadoop:hadoop-client-api:3.3.6",
                    "org.apache.hadoop:hadoop-client-runtime:3.3.6",
                    "org.apache.hadoop:hadoop-hdfs:3.3.6!",
                    "commons-cli:commons-cli:1.5.0",
                    "commons-logging:commons-logging:1.2",
                    "org.apache.derby:derby:10.14.2.0",
                ],
                exclude=[
                    "org.apache.hadoop:hadoop-common",
                    "org.apache.hadoop:hadoop-client",
                    "org.slf4j:slf4j-log4j12",
                    "org.apache.hadoop:hadoop-mapreduce-client-core",
                ],
            )
            return
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
            "metastore.warehouse.dir": f"file://{self.folder / 'warehouse'}",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "metastore.schema.verification": "false",
            "hive.metastore.uris": "",
            "metastore.thrift.uris": "",
            "hive.metastore.server.min.threads": "4",
            "metastore.server.min.threads": "4",
            "datanucleus.connectionPoolingType": "none",
            "hive.async.log.enabled": "false",  # this and pools need libraries that are not there
            "hive.in.test": "true",  # it makes the tables of locks itself
            "hive.txn.timeout": f"{LOCK_SECONDS}s",
            "hive.compactor.initiator.on": "true",  # with it begins what ends locks of the dead
            "hive.timedout.txn.reaper.start": "1s",
            "hive.timedout.txn.reaper.interval": "1s",
            "metastore.event.db.notification.api.auth": "false",
            "metastore.housekeeping.threads.on": "false",
            "metastore.task.threads.always": "",
        }
        if int(self.options.get("release", 2)) == 4:
            del settings["hive.in.test"]  # with it Hive 4 serves clients of tests alone
        configuration = self.folder / "configuration"
        configuration.mkdir(exist_ok=True)
        each = (f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
        text = f"<configuration>{''.join(each)}</configuration>"
        for name in ("hive-site.xml", "metastore-site.xml"):
            (configuration / name).write_text(text)
        logging = configuration / "log4j2.properties"
        logging.write_text(_LOGGING)
        command: list[object] = [java_home() / "bin" / "java", "-Xmx256m", *JAVA_FLAGS]
        command += [f"-Dderby.stream.error.file={self.folder / 'derby.log'}", f"-Dlog4j.configurationFile={logging}"]
        command += ["-cp", ":".join([str(configuration), *self._jars])]
        process = self.spawn([*command, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", port], "metastore")
        self.wait(lambda: answers(port), "answer", process)
        return {"uris": f"thrift://{HOST}:{port}", "port": port}


if __name__ == "__main__":
    command_line(HiveMetastore, release=2)
