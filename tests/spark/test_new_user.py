"""A new user's first hours: a wheel from a clone in a new environment, README, docs, Hudi's quickstart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from support.documented_examples import PAGES_WITH_SPARK, ROOT

from .first_day import KEYED, OLDER

HERE = Path(__file__).parent
# All but the page whose examples install a package of their own; test_own_index.py does that.
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
PAGES.remove("docs/own_index.md")
# made from docstrings, each of whose examples begins with a table of its own: tests/docs runs them one by one
PAGES.remove("docs/api.md")
RUN_PAGES = """
import sys
from support.documented_examples import PAGES_WITH_SPARK, examples_of
names = {}
if set(sys.argv) & set(PAGES_WITH_SPARK):
    from pyspark.sql import SparkSession
    names["spark"] = SparkSession.builder.getOrCreate()
for page in sys.argv[1:]:
    for example in examples_of(page, **names):
        example.evaluate()
import lakebed
print(lakebed.__file__)
"""


pytestmark = pytest.mark.full  # the step new-user of .ci/run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with lakebed from a wheel; what it needs comes from the one that runs the tests."""
    home = tmp_path_factory.mktemp("new-user")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    _run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(home), str(ROOT))
    _run(sys.executable, "-m", "venv", "--without-pip", str(home / "venv"))
    (wheel,) = home.glob("lakebed-*.whl")
    _run(*pip, "--python", str(home / "venv/bin/python"), "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    (site,) = (home / "venv/lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return home


def _run(*command: str, **environment: str) -> str:
    left_out = ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON")
    inherited = {key: value for key, value in os.environ.items() if key not in left_out}
    done = subprocess.run(
        command, env=inherited | environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


@pytest.mark.parametrize("with_spark", [False, True], ids=["without Spark", "with Spark"])
def test_all_pages_run_in_a_new_environment(home: Path, with_spark: bool) -> None:
    python = str(home / "venv/bin/python")
    pages = [page for page in PAGES if (page in PAGES_WITH_SPARK) is with_spark]
    more = {"PYSPARK_PYTHON": python, "PYSPARK_SUBMIT_ARGS": _submit(home), "TZ": "UTC"} if with_spark else {}
    found = _run(python, "-c", RUN_PAGES, *pages, PYTHONPATH=str(ROOT / "tests"), **more)
    assert found.splitlines()[-1].startswith(str(home / "venv"))


@pytest.mark.parametrize("options", [KEYED, OLDER], ids=["guide of 1.x", "guide of 0.x"])
def test_the_options_of_the_quickstart_are_taken(home: Path, options: dict[str, Any]) -> None:
    file = home / "job.json"
    file.write_text(json.dumps(options), encoding="utf-8")
    verdicts = json.loads(_run(str(home / "venv/bin/lakebed"), "options", "check", str(file), "--output", "json"))
    assert sorted(v["option"] for v in verdicts) == sorted(options)
    assert {v["verdict"] for v in verdicts} <= {"implemented", "ignored"}


def _submit(home: Path) -> str:
    return (
        "--master local[2] --driver-memory 1g --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1"
        f" --conf spark.sql.shuffle.partitions=2 --conf spark.sql.warehouse.dir={home}/warehouse"
        " --conf spark.driver.bindAddress=127.0.0.1 pyspark-shell"
    )


@pytest.fixture(scope="module")
def seen(home: Path) -> dict[str, Any]:
    python = str(home / "venv/bin/python")
    out = _run(python, str(HERE / "first_day.py"), str(home), PYSPARK_PYTHON=python, PYSPARK_SUBMIT_ARGS=_submit(home))
    return json.loads(out.splitlines()[-1])


AT_FIRST = {"rider-A": 19.5, "rider-C": 27.75, "rider-D": 33.5, "rider-F": 34.25, "rider-J": 17.75}
DEAR = {rider: fare for rider, fare in AT_FIRST.items() if fare > 20}
UPDATED = AT_FIRST | {"rider-D": 335.0}
DELETED = {rider: fare for rider, fare in UPDATED.items() if rider != "rider-F"}


@pytest.mark.parametrize("guide", ["keyed", "older"])
def test_the_quickstart_runs_from_insert_to_insert_overwrite(guide: str, seen: dict[str, Any]) -> None:
    steps = seen[guide]
    assert steps["insert"] == DEAR
    assert steps["meta"] == [["u4", "sao_paulo"]]
    assert steps["update"] == UPDATED
    assert steps["delete"] == DELETED
    assert steps["time_travel"] == [AT_FIRST, AT_FIRST]
    assert steps["incremental"] == {"rider-D": 335.0}
    assert steps["insert_overwrite"] == {"rider-J": 17.75, "rider-Z": 50.5}


def test_the_quickstart_shows_its_changes(seen: dict[str, Any]) -> None:
    inserted = [f"i {rider}" for rider in AT_FIRST]
    assert seen["keyed"]["changes"] == ["d rider-F", *inserted, "u rider-D"]


@pytest.mark.parametrize("guide", ["keyless", "keyless, merge-on-read"])
def test_a_table_without_a_key_says_what_its_guide_cannot_do_here(guide: str, seen: dict[str, Any]) -> None:
    steps = seen[guide]
    assert steps["insert"] == DEAR
    assert steps["update"].startswith("UnsupportedFeature")
    assert "hoodie.datasource.write.recordkey.field" in steps["update"]
    assert "delete by predicate" in steps["delete"]
    assert "hoodie.datasource.write.payload.class=com.Own" in steps["payload"]
    assert steps["refused"] == AT_FIRST
    left = {rider: fare for rider, fare in AT_FIRST.items() if rider != "rider-F"}
    assert steps["by_condition"] == left
    assert steps["append"] == left | {"rider-B": 40.5}
    assert steps["incremental"] == {"rider-B": 40.5}
    assert steps["time_travel"] == [AT_FIRST, AT_FIRST]
    assert steps["insert_overwrite"] == {"rider-J": 17.75, "rider-B": 40.5, "rider-Z": 50.5}


def test_the_quickstart_ran_on_the_installed_wheel(home: Path, seen: dict[str, Any]) -> None:
    assert seen["module"].startswith(str(home / "venv"))
