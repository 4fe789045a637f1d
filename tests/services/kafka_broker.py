"""A Kafka broker on this machine: broker and controller in one JVM."""

from __future__ import annotations

import base64
import os
import socket
import struct
import subprocess
import uuid
from typing import Any

from .service import HOST, JAVA_FLAGS, Service, ServiceError, answers, command_line, free_ports, java_home, maven_jars

_VERSION = "4.2.1"
_LOG = """Configuration:
  status: error
  Appenders:
    Console: {name: A, target: SYSTEM_ERR, PatternLayout: {pattern: "%d %p %c{1}: %m%n"}}
  Loggers:
    Root: {level: warn, AppenderRef: {ref: A}}
"""


class Kafka(Service):
    """`info`: `bootstrap`, the address of the broker. It deletes messages as soon as a test asks it to."""

    name = "kafka"

    def install(self) -> None:
        self._jars = maven_jars(
            "kafka", [f"org.apache.kafka:kafka_2.13:{_VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"]
        )

    def launch(self) -> dict[str, Any]:
        port, controller = free_ports(2)
        settings = self.folder / "conf"
        settings.mkdir(exist_ok=True)
        (settings / "log4j2.yaml").write_text(_LOG)
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": self.folder / "data",
            "num.partitions": 1,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 8 << 20,
            "auto.create.topics.enable": "false",
            "message.max.bytes": 16 << 20,
        }
        file = settings / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        path = os.pathsep.join([str(settings), *self._jars])
        java = [java_home() / "bin" / "java", *JAVA_FLAGS, "-cp", path]
        # it begins with "AA": a text that began with "-" the tool would take for an option
        cluster = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        format_log = [*map(str, java), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)]
        done = subprocess.run(format_log, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServiceError(f"kafka: the log cannot be formatted:\n{(done.stdout + done.stderr)[-2000:]}")
        process = self.spawn([*java[:1], "-Xmx384m", *java[1:], "kafka.Kafka", file], "kafka")
        self.wait(lambda: answers(port) and _serves(port), f"broker on port {port}", process)
        return {"bootstrap": f"{HOST}:{port}"}


def _serves(port: int) -> bool:
    """Whether the broker answers an ApiVersions request."""
    body = struct.pack(">hhi", 18, 0, 7) + struct.pack(">h", 1) + b"p"
    with socket.create_connection((HOST, port), 5) as client:
        client.settimeout(5)
        client.sendall(struct.pack(">i", len(body)) + body)
        answer = client.recv(4096)
    return len(answer) > 10 and struct.unpack(">ih", answer[4:10]) == (7, 0)


if __name__ == "__main__":
    command_line(Kafka)
