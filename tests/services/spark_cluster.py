"""Spark from the installed pyspark: a stand-alone cluster of a master and workers, or a Spark Connect server."""

from __future__ import annotations

import json
import os
import socket
import sys
import urllib.request
from pathlib import Path
from typing import Any

from .service import HOST, Service, ServiceError, answers, command_line, free_ports, java_home


class _Spark(Service):
    def install(self) -> None:
        try:
            import pyspark
        except ImportError as error:
            raise ServiceError("pip install pyspark") from error
        self._home = Path(pyspark.__file__).parent

    def _environment(self, memory: str, host: str = HOST) -> dict[str, str]:
        return {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": memory,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }


def loopback(number: int) -> str:
    """The n-th address of this machine's own network; always the first where there is but one (macOS)."""
    address = f"127.0.0.{number + 1}"
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return HOST
    return address


class SparkCluster(_Spark):
    """`info`: `master`, the URL of the master. Options: `workers`, `cores` and `memory` of each.

    Each worker has a loopback address of its own where the system has more than one: Spark makes a second attempt of
    a task on another host only.
    """

    name = "spark-cluster"

    def launch(self) -> dict[str, Any]:
        workers = int(self.options.get("workers", 2))
        port, web, *ports = free_ports(2 + 2 * workers)
        env, run = self._environment("256m"), self._home / "bin" / "spark-class"
        command: list[object] = [run, "org.apache.spark.deploy.master.Master", "--host", HOST]
        master = self.spawn([*command, "--port", port, "--webui-port", web], "master", env)
        self.wait(lambda: answers(port), "open port", master)
        url = f"spark://{HOST}:{port}"
        for number in range(workers):
            host = loopback(number)
            command = [run, "org.apache.spark.deploy.worker.Worker", "--host", host]
            command += ["--port", ports[2 * number], "--webui-port", ports[2 * number + 1]]
            command += ["--cores", self.options.get("cores", 1), "--memory", self.options.get("memory", "1g")]
            command += ["--work-dir", self.folder / f"work{number}", url]
            self.spawn(command, f"worker{number}", self._environment("256m", host))

        def ready() -> bool:
            with urllib.request.urlopen(f"http://{HOST}:{web}/json/", timeout=5) as answer:
                return json.load(answer)["aliveworkers"] >= workers

        self.wait(ready, f"{workers} workers", master)
        return {"master": url, "workers": workers}


class SparkConnect(_Spark):
    """`info`: `remote`, the URL for `SparkSession.builder.remote`. Options: `master`, `conf` (a dict)."""

    name = "spark-connect"

    def launch(self) -> dict[str, Any]:
        (port,) = free_ports(1)
        conf = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": port,
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.driver.bindAddress": HOST,
            "spark.driver.host": HOST,
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.warehouse.dir": self.folder / "warehouse",
            **self.options.get("conf", {}),
        }
        command: list[object] = [
            self._home / "bin" / "spark-submit",
            "--master",
            self.options.get("master", "local[2]"),
        ]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--name", "connect"]
        for name, value in conf.items():
            command += ["--conf", f"{name}={value}"]
        process = self.spawn([*command, "spark-internal"], "connect", self._environment("1g"))
        self.wait(lambda: answers(port), "open port", process)
        return {"remote": f"sc://{HOST}:{port}", "port": port}


if __name__ == "__main__":
    command_line(SparkCluster, workers=2, cores=1, memory="1g")
