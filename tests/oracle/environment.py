"""The oracle's own environment: fetched once into a cache outside the checkout.

    python tests/oracle/environment.py        fetches it and prints where it is

LAKEBED_TEST_CACHE names the cache (default `~/.cache/lakebed-tests`). HUDI_BUNDLE_JAR and LAKEBED_ORACLE_PYTHON name
a bundle (of the release tested most) and an interpreter that are there already.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

RELEASE = "1.2.0"
OLDER_RELEASES = ("1.0.2", "0.15.0")
BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:{release}"
_ARROW = ("vector", "format", "memory-core", "memory-netty", "memory-netty-buffer-patch", "c-data", "dataset")
LANCE = (
    "org.lance:lance-spark-3.5_2.12:0.4.0",
    "org.lance:lance-spark-base_2.12:0.4.0",
    "org.lance:lance-core:4.0.0",
    "org.questdb:jar-jni:1.1.1",
    "com.google.flatbuffers:flatbuffers-java:25.2.10",
    *(f"org.apache.arrow:arrow-{name}:18.3.0" for name in _ARROW),
)
PACKAGES = ("pyspark==3.5.9", "pyarrow>=18,<28", "numpy>=1.26,<3", "setuptools<82")


class Unavailable(Exception):
    """Why there is no oracle here."""


@dataclass(frozen=True)
class OracleEnvironment:
    """An interpreter with PySpark 3.5, and the bundle: a jar, or None where Spark is to resolve it itself."""

    python: Path
    bundle: Path | None
    ivy: Path
    release: str = RELEASE
    metastore: str = ""
    """The URI of a Hive metastore, whose tables the session has."""
    first_jars: tuple[Path, ...] = ()
    """Jars that are on the class path before those of Spark."""

    def starting(self) -> AbstractContextManager[None]:
        """Held while a process starts: Spark's package resolution cannot share its folder."""
        return nullcontext() if self.bundle else alone(cache_folder())

    def command(self) -> list[str]:
        script = Path(__file__).with_name("hudi_oracle.py")
        package = BUNDLE.format(release=self.release)
        bundle = ["--bundle", str(self.bundle)] if self.bundle else ["--packages", package, "--ivy", str(self.ivy)]
        metastore = ["--metastore", self.metastore] if self.metastore else []
        first = ["--first-jars", ",".join(map(str, self.first_jars))] if self.first_jars else []
        return [str(self.python), str(script), *bundle, *metastore, *first]


def cache_folder() -> Path:
    return Path(os.environ.get("LAKEBED_TEST_CACHE") or Path.home() / ".cache" / "lakebed-tests")


def oracle_environment(release: str = RELEASE) -> OracleEnvironment:
    """The environment with a release of Hudi, fetched where it is not there yet. Raises Unavailable with the reason."""
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise Unavailable("no Java on this machine")
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache):
        return OracleEnvironment(_python(cache), _bundle(cache, release), cache / "ivy", release)


def lance_environment() -> OracleEnvironment:
    """The environment whose Hudi reads and writes Lance base files: with the jars of Lance's Spark connector, and with
    its Arrow before that of Spark, which is older. Raises Unavailable with the reason."""
    environment, cache = oracle_environment(), cache_folder()
    if environment.bundle is None:
        raise Unavailable("Lance base files need the bundle as a jar, which mvn fetches")
    with alone(cache):
        return replace(environment, first_jars=_lance_jars(cache))


def _lance_jars(cache: Path) -> tuple[Path, ...]:
    folder = cache / "lance-jars"
    if not (folder / "complete").exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise Unavailable("no mvn on this machine, which fetches Lance's Spark connector")
        _says(f"fetches {', '.join(LANCE)}")
        for package in LANCE:
            copy = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={package}", f"-DoutputDirectory={folder}"]
            _run(copy, f"mvn cannot fetch {package}")
        (folder / "complete").touch()
    return tuple(sorted(folder.glob("*.jar")))


@contextmanager
def alone(cache: Path) -> Iterator[None]:
    """Test processes that run side by side fetch into the cache one after another."""
    with (cache / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _python(cache: Path) -> Path:
    named = os.environ.get("LAKEBED_ORACLE_PYTHON")
    if named:
        return Path(named)
    home = cache / "oracle-venv"
    python = home / "bin" / "python"
    if (home / "complete").exists():
        return python
    _says(f"makes {home}: PySpark 3.5 for real Hudi")
    venv.create(home, with_pip=True, clear=True)
    _run(
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], "pip cannot install"
    )
    (home / "complete").touch()
    return python


def _bundle(cache: Path, release: str) -> Path | None:
    named = os.environ.get("HUDI_BUNDLE_JAR")
    if named and release == RELEASE:
        return Path(named)
    package = BUNDLE.format(release=release)
    _, artifact, version = package.split(":")
    jar = cache / "jars" / f"{artifact}-{version}.jar"
    if jar.exists():
        return jar
    maven = shutil.which("mvn")
    if maven is None:
        return None
    _says(f"fetches {package}")
    # A folder of its own until it is whole: a broken download must not be taken for the jar.
    part = cache / f"jars.part.{os.getpid()}"
    copy = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={package}", f"-DoutputDirectory={part}"]
    _run(copy, "mvn cannot fetch the Hudi bundle")
    jar.parent.mkdir(exist_ok=True)
    (part / jar.name).replace(jar)
    shutil.rmtree(part, ignore_errors=True)
    return jar


def _says(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{what}: {said[-1] if said else done.returncode}")


if __name__ == "__main__":
    try:
        for wanted in (RELEASE, *OLDER_RELEASES):
            print(*oracle_environment(wanted).command())
    except Unavailable as reason:
        sys.exit(str(reason))
