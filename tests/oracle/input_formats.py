"""Tables as Hive, Presto and Athena read them: by Hudi's input formats, out of the bundle that the oracle has."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oracle.environment import Unavailable, cache_folder, oracle_environment

# Hadoop and Kryo look into the JDK's own classes.
_OPENED = "java.lang java.lang.reflect java.io java.math java.net java.nio java.util java.util.concurrent sun.nio.ch"
_JVM = [
    "java",
    "-Xmx800m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Duser.timezone=UTC",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED.split()),
]


@dataclass(frozen=True)
class Read:
    """One read: with its log files (`realtime`) or of base files alone, these columns and Hive types, these folders."""

    realtime: bool
    columns: Sequence[str]
    types: Sequence[str]
    folders: Sequence[str]

    def line(self) -> str:
        kind = "realtime" if self.realtime else "plain"
        return "\t".join([kind, ",".join(self.columns), ",".join(self.types), ",".join(self.folders)])


def rows_by_input_formats(release: str, reads: Sequence[Read]) -> list[list[list[str]]]:
    """The rows of each read as lists of texts, in one JVM with this release of Hudi. Raises Unavailable with the reason
    where there is no bundle, and AssertionError with the end of the JVM's messages where a read fails."""
    environment = oracle_environment(release)
    if environment.bundle is None:
        raise Unavailable("the input formats need the bundle as a jar, which mvn fetches")
    jars = [*(environment.python.parent.parent / "lib").glob("python*/site-packages/pyspark/jars")]
    if not jars:
        raise Unavailable(f"no PySpark beside {environment.python}")
    classpath = f"{_classes(environment.bundle, jars[0])}:{environment.bundle}:{jars[0]}/*"
    done = subprocess.run(
        [*_JVM, "-cp", classpath, "InputFormats"],
        input="".join(read.line() + "\n" for read in reads),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[list[list[str]]] = [[]]
    for line in done.stdout.splitlines():
        if line == "END":
            answers.append([])
        elif line.startswith("ROW\t"):
            answers[-1].append(line.split("\t")[1:])
    return answers[:-1]


def _classes(bundle: Path, jars: Path) -> Path:
    """The folder of the compiled program, which is compiled again where its source is newer."""
    source = Path(__file__).with_name("InputFormats.java")
    folder = cache_folder() / f"input-formats-{bundle.stem}"
    compiled = folder / "InputFormats.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        command = ["javac", "-nowarn", "-d", str(folder), "-cp", f"{bundle}:{jars}/*", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"javac cannot compile {source.name}: {done.stderr[-2000:]}")
    return folder
