"""Real servers for tests: started on the loopback interface, on free ports, stopped by process id.

A service is a context manager (`with S3() as s3: s3.info["endpoint"]`) and a command
(`python -m tests.services.s3_server start|stop|status`). Downloads go to a folder of `LAKEBED_TEST_CACHE`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from xml.sax.saxutils import escape

HOST = "127.0.0.1"
_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_OPENED = (
    "java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util java.util.concurrent "
    "java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar"
)
JAVA_FLAGS = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED.split()),
]
_S = TypeVar("_S", bound="Service")


class ServiceError(RuntimeError):
    """A service that cannot be installed or started; tests skip with its text."""


def cache_folder(*parts: str) -> Path:
    base = Path(os.environ.get("LAKEBED_TEST_CACHE") or Path.home() / ".cache" / "lakebed-tests") / "services"
    folder = base.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def one_at_a_time(name: str) -> Generator[None]:
    """Across processes: two test runs must not download into the same folder."""
    with open(cache_folder("locks") / name, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def installed_environment(name: str, lock: Path, packages: str) -> Path:
    """The interpreter of an environment in the cache with the packages of a lock file, made again where that has
    changed since. `packages` says what it is for."""
    home = cache_folder(name)
    python, mark = home / "bin" / "python", home / "installed.txt"
    with one_at_a_time(name):
        if not mark.exists() or mark.read_text() != lock.read_text():
            print(f"makes {home}: {packages}", file=sys.stderr, flush=True)
            venv.create(home, with_pip=True, clear=True)
            command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(lock)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise ServiceError(f"pip cannot install {packages}: {done.stderr.strip()[-500:]}")
            mark.write_text(lock.read_text())
    return python


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


# Java and Maven


def _java_version(home: Path) -> int:
    java = home / "bin" / "java"
    if not java.exists():
        return 0
    text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)', text)
    return int(match[1]) if match else 0


def java_home(least: int = 17, most: int = 21) -> Path:
    """A Java between the two versions: `JAVA_HOME`, the one on the path, or one of those in /usr/lib/jvm."""
    found = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        found.append(Path(on_path).resolve().parent.parent)
    found += sorted(Path("/usr/lib/jvm").glob("*"))
    for home in found:
        if least <= _java_version(home) <= most:
            return home
    raise ServiceError(f"no Java {least} to {most} found (Debian: apt-get install openjdk-17-jre-headless)")


def maven_jars(name: str, coordinates: Sequence[str], exclude: Sequence[str] = ()) -> list[str]:
    """Paths of the jars (`group:artifact:version`) and of what they need (not that of one that ends in `!`), fetched
    once into the cache."""

    def dependency(coordinate: str) -> str:
        tags = zip(("groupId", "artifactId", "version"), coordinate.rstrip("!").split(":"), strict=True)
        body = "".join(f"<{tag}>{escape(value)}</{tag}>" for tag, value in tags)
        excluded = "".join(
            f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
            for group, artifact in (each.split(":") for each in (["*:*"] if coordinate.endswith("!") else exclude))
        )
        return f"<dependency>{body}<exclusions>{excluded}</exclusions></dependency>"

    pom = (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tests</groupId><artifactId>classpath</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(map(dependency, coordinates))}</dependencies></project>"
    )
    folder = cache_folder("classpath", f"{name}-{hashlib.sha1(pom.encode()).hexdigest()[:10]}")
    listing = folder / "classpath.txt"
    with one_at_a_time("maven"):
        if listing.exists():
            jars = listing.read_text().split(os.pathsep)
            if all(os.path.exists(jar) for jar in jars):
                return jars
        maven = shutil.which("mvn")
        if maven is None:
            raise ServiceError("Maven is needed to fetch jars (Debian: apt-get install maven)")
        (folder / "pom.xml").write_text(pom)
        fresh = folder / "classpath.new"
        command = [maven, "-B", "-ntp", "-q", "-f", str(folder / "pom.xml"), f"-Dmaven.repo.local={cache_folder('m2')}"]
        command += [
            f"{_DEPENDENCY_PLUGIN}:build-classpath",
            f"-Dmdep.outputFile={fresh}",
            "-Dmdep.includeScope=runtime",
        ]
        print(f"fetches the jars of {name}", file=sys.stderr, flush=True)
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise ServiceError(f"Maven could not fetch {', '.join(coordinates)}:\n{(run.stdout + run.stderr)[-2000:]}")
        fresh.rename(listing)
        return listing.read_text().strip().split(os.pathsep)


# processes


def _started_at(pid: int) -> str | None:
    """Start of a process in clock ticks since boot: with the pid it names one process for good."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _runs(process: dict[str, Any]) -> bool:
    with contextlib.suppress(OSError):
        os.waitpid(process["pid"], os.WNOHANG)
    return _started_at(process["pid"]) == process["start"]


class Service:
    """One server. Subclasses give `name` and write `install` (downloads) and `launch` (gives the `info`)."""

    name = "service"
    patience = 15
    """Seconds that a process has to end by itself."""

    def __init__(self, folder: str | Path | None = None, **options: Any) -> None:
        self._own_folder = folder is None
        self.folder = Path(folder) if folder else Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.options = options
        self.info: dict[str, Any] = {}
        self._processes: list[dict[str, Any]] = []

    def install(self) -> None:
        return None

    def launch(self) -> dict[str, Any]:
        raise NotImplementedError

    def start(self: _S) -> _S:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._load()
        if any(_runs(process) for process in self._processes):
            raise ServiceError(f"{self.name} runs already in {self.folder}")
        self._processes = []
        self.install()
        try:
            self.info = self.launch()
        except BaseException:
            self.stop()
            raise
        self._save()
        return self

    def stop(self) -> None:
        if not self._processes:
            self._load()
        for process in reversed(self._processes):
            self._end(process)
        self._processes = []
        (self.folder / "service.json").unlink(missing_ok=True)
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def running(self) -> bool:
        self._load()
        return bool(self._processes) and all(_runs(process) for process in self._processes)

    def __enter__(self: _S) -> _S:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def spawn(self, command: Sequence[object], role: str, env: dict[str, str] | None = None) -> dict[str, Any]:
        log = self.folder / f"{role}.log"
        with open(log, "ab") as out:
            started = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=self.folder,
                start_new_session=True,
            )
        process = {"role": role, "pid": started.pid, "start": _started_at(started.pid), "log": str(log)}
        self._processes.append(process)
        self._save()
        return process

    def pid_of(self, role: str) -> int:
        """The process id of one of the service's processes, for tests that kill it."""
        return next(process["pid"] for process in self._processes if process["role"] == role)

    def wait(self, ready: Callable[[], object], what: str, process: dict[str, Any], seconds: float = 120) -> None:
        end = time.monotonic() + seconds * float(os.environ.get("TEST_SERVICES_PATIENCE", "1"))
        last: Exception | None = None
        while time.monotonic() < end:
            try:
                if ready():
                    return
            except Exception as error:  # not up yet
                last = error
            if not _runs(process):
                raise ServiceError(f"{self.name}: {process['role']} ended before {what}:\n{self._tail(process)}")
            time.sleep(0.2)
        raise ServiceError(f"{self.name}: no {what} in time ({last!r}):\n{self._tail(process)}")

    @staticmethod
    def _tail(process: dict[str, Any]) -> str:
        return "\n".join(Path(process["log"]).read_text(errors="replace").splitlines()[-30:])

    def _end(self, process: dict[str, Any]) -> None:
        for number, patience in ((signal.SIGTERM, self.patience), (signal.SIGKILL, 10)):
            if not _runs(process):
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(process["pid"], number)
            end = time.monotonic() + patience
            while time.monotonic() < end and _runs(process):
                time.sleep(0.05)

    def _save(self) -> None:
        state = {"processes": self._processes, "info": self.info}
        (self.folder / "service.json").write_text(json.dumps(state))

    def _load(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            state = json.loads((self.folder / "service.json").read_text())
            self._processes, self.info = state["processes"], state["info"]


def command_line(service: type[Service], **options: Any) -> None:
    """`start`, `stop`, `status` and `install` for one service; `options` are its settings and their defaults."""
    parser = argparse.ArgumentParser(description=(service.__doc__ or "").strip())
    parser.add_argument("command", choices=["start", "stop", "status", "install"])
    parser.add_argument("--folder", help="where data, logs and process ids are kept")
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default: {default}")
    given = vars(parser.parse_args())
    command = given.pop("command")
    fallback = Path(tempfile.gettempdir()) / f"test-services-{os.getuid()}" / service.name
    one = service(folder=Path(given.pop("folder") or fallback).absolute(), **given)
    try:
        if command == "status":
            sys.exit(0 if one.running() else 3)
        getattr(one, command)()
    except ServiceError as error:
        sys.exit(str(error))
    if command == "start":
        print(json.dumps(one.info, indent=1))
