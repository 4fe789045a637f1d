"""Trino in one process: its connectors of Hudi, Delta Lake and Iceberg over a Hive metastore, on Java 24 or newer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import urllib.request
from collections.abc import Mapping
from typing import Any

from .service import HOST, Service, ServiceError, cache_folder, command_line, free_ports, java_home, one_at_a_time

RELEASE = "476"  # the newest one that Maven has
JAVA = (24, 99)
_ARTIFACT = f"io.trino:trino-server:{RELEASE}:tar.gz"
_PLUGINS = ("hudi", "iceberg", "delta-lake")
_FLAGS = [
    "-Xmx1500m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+EnableDynamicAgentLoading",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dfile.encoding=UTF-8",
    "--add-modules=jdk.incubator.vector",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.nio", "sun.nio.ch")),
]
_MEMORY = "query.max-memory=600MB\nquery.max-memory-per-node=400MB\nmemory.heap-headroom-per-node=300MB\n"


class Trino(Service):
    """`info`: `url`. The option `metastore` is the URI of a metastore. Catalogs: `hudi`, `iceberg`, `delta_lake`."""

    name = "trino"

    def install(self) -> None:
        self._java = java_home(*JAVA) / "bin" / "java"
        self._home = cache_folder("trino") / f"trino-server-{RELEASE}"
        with one_at_a_time("trino"):
            if (self._home / "complete").exists():
                return
            maven = shutil.which("mvn")
            if maven is None:
                raise ServiceError("Maven is needed to fetch Trino (Debian: apt-get install maven)")
            copy = f"-DoutputDirectory={self._home.parent}"
            command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={_ARTIFACT}", copy]
            done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise ServiceError(f"Maven could not fetch {_ARTIFACT}:\n{(done.stdout + done.stderr)[-2000:]}")
            archive = self._home.parent / f"trino-server-{RELEASE}.tar.gz"
            with tarfile.open(archive) as packed:  # its plugins share files by hard links
                packed.extractall(self._home.parent, filter="tar")
            archive.unlink()
            for plugin in (self._home / "plugin").iterdir():
                if plugin.name not in _PLUGINS:
                    shutil.rmtree(plugin)
            (self._home / "complete").touch()

    def launch(self) -> dict[str, Any]:
        (port,) = free_ports(1)
        url = f"http://{HOST}:{port}"
        (self.folder / "plugin").mkdir(exist_ok=True)
        for plugin in _PLUGINS:
            (self.folder / "plugin" / plugin).symlink_to(self._home / "plugin" / plugin)
        settings = {
            "node": f"node.environment=test\nnode.id=test\nnode.data-dir={self.folder / 'data'}\n",
            "config": f"coordinator=true\nnode-scheduler.include-coordinator=true\nhttp-server.http.port={port}\n"
            f"discovery.uri={url}\nnode.internal-address={HOST}\nplugin.dir={self.folder / 'plugin'}\n{_MEMORY}",
            "log": "io.trino=WARN\n",
        }
        metastore = {"hive.metastore.uri": self.options["metastore"], "fs.hadoop.enabled": "true"}
        catalogs = {
            "hudi": metastore,
            "iceberg": {**metastore, "iceberg.register-table-procedure.enabled": "true"},
            "delta_lake": {**metastore, "delta.register-table-procedure.enabled": "true"},
        }
        (self.folder / "etc" / "catalog").mkdir(parents=True, exist_ok=True)
        for name, text in settings.items():
            (self.folder / "etc" / f"{name}.properties").write_text(text)
        for name, options in catalogs.items():
            lines = {"connector.name": name, **options}.items()
            text = "".join(f"{key}={value}\n" for key, value in lines)
            (self.folder / "etc" / "catalog" / f"{name}.properties").write_text(text)
        etc = self.folder / "etc"
        files = [f"-Dconfig={etc / 'config.properties'}", f"-Dlog.levels-file={etc / 'log.properties'}"]
        node = ["-Dnode.environment=test", "-Dnode.id=test", f"-Dnode.data-dir={self.folder / 'data'}"]
        command = [self._java, *_FLAGS, *files, *node, "-cp", f"{self._home / 'lib'}/*", "io.trino.server.TrinoServer"]
        process = self.spawn(command, "trino", {"LC_ALL": os.environ.get("LC_ALL", "C.UTF-8")})
        self.wait(lambda: _is_started(url), "end of its start", process, seconds=240)
        for name in catalogs:  # a query begins where its catalog's node has been announced
            self.wait(lambda name=name: trino_rows(url, f"SHOW SCHEMAS FROM {name}"), f"answer of {name}", process)
        return {"url": url}


def _is_started(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/v1/info", timeout=10) as answer:
        return not json.load(answer)["starting"]


def trino_rows(url: str, text: str, session: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The rows of a statement as dicts. Raises AssertionError with Trino's message."""
    headers = {"X-Trino-User": "test", "X-Trino-Time-Zone": "UTC"}
    if session:
        headers["X-Trino-Session"] = ",".join(f"{key}={value}" for key, value in session.items())
    request = urllib.request.Request(f"{url}/v1/statement", text.encode(), headers)
    rows: list[dict[str, Any]] = []
    while True:
        with urllib.request.urlopen(request, timeout=120) as answer:
            page = json.load(answer)
        assert "error" not in page, f"{text}: {page['error']['errorName']}: {page['error']['message']}"
        names = [column["name"] for column in page.get("columns", ())]
        rows += [dict(zip(names, values, strict=True)) for values in page.get("data") or ()]
        if "nextUri" not in page:
            return rows
        request = urllib.request.Request(page["nextUri"], headers=headers)


if __name__ == "__main__":
    command_line(Trino, metastore="thrift://127.0.0.1:9083")
