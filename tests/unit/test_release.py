"""What is released: wheel and sdist with equal bytes from equal commits, the container's steps, the page of extras."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import lakebed
from support.documented_examples import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _build(source: Path, umask: int, when: int) -> dict[str, str]:
    """Build wheel and sdist as `make wheel` does; name and digest of each. All files get the time `when` first."""
    for path in source.rglob("*"):
        os.utime(path, (when, when))
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1767225600"}
    command = [sys.executable, "-m", "hatchling", "build", "-d", "dist"]
    done = subprocess.run(
        command, cwd=source, env=environment, umask=umask, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (source / "dist").iterdir()}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two copies of what a build takes, at different paths."""
    folders = [tmp_path_factory.mktemp(name) / "lakebed" for name in ("one", "another-place")]
    left_out = shutil.ignore_patterns("__pycache__", "images")
    for folder in folders:
        for name in ("src", "docs"):
            shutil.copytree(ROOT / name, folder / name, ignore=left_out)
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore"):
            shutil.copy(ROOT / name, folder / name)
    return folders


@pytest.mark.rest
def test_two_builds_of_one_commit_have_the_same_bytes_and_all_files(sources: list[Path]) -> None:
    one, other = sources
    first = _build(one, umask=0o022, when=1_700_000_000)
    assert first == _build(other, umask=0o077, when=1_750_000_000)
    assert sorted(name.rpartition("-")[2] for name in first) == [f"{lakebed.__version__}.tar.gz", "any.whl"]
    (wheel,) = (one / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
        assert {info.date_time[:3] for info in archive.infolist()} == {(2026, 1, 1)}
    modules = {f"lakebed/{path.relative_to(ROOT / 'src/lakebed')}" for path in (ROOT / "src/lakebed").rglob("*.py")}
    assert {"lakebed/py.typed", "lakebed/config/options.tsv", *modules} <= files
    assert not [name for name in files if name.startswith(("tests", "tools", "docs"))]
    (sdist,) = (one / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        stored = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/lakebed/py.typed", "docs/releases.md", "CHANGELOG.md", "pyproject.toml"} <= stored
    assert not [name for name in stored if name.startswith(("tests/", "site/"))]


def test_the_page_for_installing_lists_every_extra_with_its_size() -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == sorted(PROJECT["optional-dependencies"])


def test_the_container_installs_extras_that_are_there_and_runs_without_rights() -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"\.whl\)\[([a-z,]+)\]", text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    stages = text.split("\nFROM ")
    assert "\nUSER 10001\n" in stages[-1]
    assert 'ENTRYPOINT ["lakebed"]' in stages[-1]
    copied = re.findall(r"^COPY (?!--)(\S+)", text, re.MULTILINE)
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{path.replace('lakebed-', '')}" for path in copied} <= set(allowed)


def test_the_matrix_tries_each_python_and_spark_that_the_package_names() -> None:
    script = (ROOT / "tools/test-matrix").read_text(encoding="utf-8")
    (pythons,) = re.findall(r"for version in ([\d. ]+);", script)
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert pythons.split() == named
    assert "${PYSPARKS:-none 4.1 4.2 4.3}" in script
