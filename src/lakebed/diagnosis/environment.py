"""The installation: versions of the packages and of Java, and the settings of the Spark session."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lakebed.diagnosis.findings import Finding, Severity
from lakebed.storage.base import Storage

_VERSIONS, _SESSION = "versions", "spark session"
# The least versions that lakebed is tested with: PySpark, and Java for it.
_PYSPARK = (4, 1)
_JAVA = 17
_JAVA_SECONDS = 20.0
# Settings of a session that change what lakebed does there, with the values that are shown.
_SETTINGS = ("spark.master", "spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive")


def versions(*, spark: bool) -> Iterator[Finding]:
    """The versions of lakebed and the packages and programs that it uses. With `spark` there is a session, so PySpark
    and Java are in order."""
    lakebed, arrow = (installed(name) or "from a checkout" for name in ("lakebed", "pyarrow"))
    text = f"lakebed {lakebed}, Python {platform.python_version()}, pyarrow {arrow}"
    pyspark = installed("pyspark")
    if pyspark is None:
        yield Finding(_VERSIONS, Severity.FINE, f"{text}; PySpark is not installed, all work is done in this process")
        return
    if _numbers(pyspark)[:2] < _PYSPARK:
        lowest_version = ".".join(map(str, _PYSPARK))
        yield Finding(
            _VERSIONS,
            Severity.ERROR,
            f"PySpark {pyspark} is older than {lowest_version}, the first version that lakebed runs on",
            "pip install 'lakebed[spark]'",
        )
    java = None if spark else java_version()
    if java is not None and (not java or _numbers(java)[0] < _JAVA):
        problem = f"Java {java} is older than {_JAVA}" if java else "no Java was found"
        yield Finding(
            _VERSIONS,
            Severity.WARNING,
            f"{problem}: PySpark {pyspark} is installed and cannot start",
            f"install a JDK {_JAVA} or 21 and set JAVA_HOME; without Spark nothing is to be done",
        )
    yield Finding(_VERSIONS, Severity.FINE, f"{text}, PySpark {pyspark}" + (f", Java {java}" if java else ""))


def session(spark: Any, storage: Storage) -> Iterator[Finding]:
    """The settings of a Spark session that affect lakebed, and whether it can open the files of the table."""
    from lakebed.engine.spark import can_open

    values = {name: spark.conf.get(name, None) for name in _SETTINGS}
    text = ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
    yield Finding(_SESSION, Severity.FINE, f"Spark {spark.version}: {text}")
    url = storage.url()
    if storage.spec.in_this_process:
        text = f"{url} is in the memory of this process, which Spark's workers cannot see"
        yield Finding(_SESSION, Severity.WARNING, text, "make the table at a path that both see")
    elif not can_open(spark, url):
        scheme = url.partition(":")[0]
        yield Finding(
            _SESSION,
            Severity.WARNING,
            f"Spark's Hadoop has no file system for {scheme}://, so that scans go through Python, which is slower",
            "start the session with spark.jars.packages=org.apache.hadoop:hadoop-aws (docs/install.md)"
            if scheme.startswith("s3")
            else f"start the session with the Hadoop package of {scheme}:// (docs/install.md)",
        )


def installed(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def java_version() -> str:
    """The version of the Java that PySpark would start; empty if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    return "" if java is None else _version_of(java)


@lru_cache(maxsize=4)
def _version_of(java: str) -> str:
    import subprocess

    try:
        completed = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r'version "([^"]+)"', completed.stderr + completed.stdout)
    return match.group(1) if match else ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)) or (0,)
