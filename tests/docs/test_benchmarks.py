"""The benchmark page is what its results give, and the sides of a small run have equal answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
MADE = ("docs/benchmarks.md", "docs/images/benchmarks_process.svg", "docs/images/benchmarks_spark.svg")


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A script of bench/; it gets no tracing from the tests."""
    return subprocess.run(
        [sys.executable, str(BENCH / script), *words], capture_output=True, text=True, check=False, cwd=ROOT
    )


def results_of(cpu: float, *, lance: float) -> dict[str, object]:
    """Results of a few sides: every task of lakebed takes so many CPU seconds."""

    def side(rows: int, seconds: float, **missing: str) -> dict[str, object]:
        runs = [
            {"cpu": seconds * share, "wall": 1.0, "memory": 5_000_000, "system": seconds * share / 10, "services": ran}
            for share, ran in ((1.0, 0), (4.5, 1), (2.0, 0))
        ]
        names = {"load", "upsert_ten", "upsert_percent", "upsert_tenth", "scan", "merge"} - set(missing)
        tasks = {name: {"runs": runs, "digest": [1]} for name in names}
        tasks["scan:first"] = {"runs": [{"cpu": 4 * seconds, "wall": 1.0, "memory": 0}], "digest": None}
        return {
            "versions": {"made": "1.2"}, "settings": "as they are", "missing": missing, "rows": rows,
            "when": "2026-11-01", "sizes": {"load": 3_000_000}, "tasks": tasks,
        }  # fmt: skip

    machine = dict.fromkeys(("processor", "cores", "memory", "system", "python", "java"), "two")
    sides = {
        "lakebed": side(1_000, cpu), "lance": side(1_000, lance, merge="it has none"),
        "spark-lakebed": side(3_000, cpu), "spark-hudi": side(3_000, 40.0),
    }  # fmt: skip
    return {"machine": machine, "sides": sides}


def test_the_page_the_plots_and_readme_are_what_the_results_give():
    found = run("benchmarks_page.py", "--check")
    assert found.returncode == 0, found.stderr


def test_the_page_has_medians_means_missing_tasks_and_what_others_do_better(tmp_path: Path):
    results = tmp_path / "results.json"
    results.write_text(json.dumps(results_of(0.2, lance=0.1)))
    readme = "| | lakebed |\n|---|---|\n| an upsert finds stored rows by | an index |\n| old | 1 |\n\nMore.\n"
    (tmp_path / "README.md").write_text(readme)
    assert run("benchmarks_page.py", "--check", "--results", str(results), "--root", str(tmp_path)).returncode == 1
    assert (tmp_path / "README.md").read_text() == readme
    assert run("benchmarks_page.py", "--results", str(results), "--root", str(tmp_path)).returncode == 0
    page, *plots = [(tmp_path / name).read_text() for name in MADE]
    assert "| CPU seconds | lakebed | Lance |" in page
    assert "| upsert of 1 % | 0.50 | **0.25** |" in page
    assert "| full scan | 0.40 | **0.20** |" in page
    assert "| first full scan | 0.80 | **0.40** |" in page
    assert "| full scan, of it in the kernel | 0.040 | 0.020 |" in page
    assert "| files after the load, MB | 3.0 | 3.0 |" in page
    assert "| MERGE of 1 %, sums with stored values | **0.50** | - |" in page
    assert "- Lance, MERGE of 1 %, sums with stored values: it has none." in page
    assert "| upsert of 10 rows (median without services) | 0.30 | **0.15** |" in page
    assert "| upsert of 10 rows (mean with services) | 0.50 | **0.25** |" in page
    for kind in ("median without services", "mean with services"):
        assert re.search(rf"- \*\*upsert of 10 rows \({kind}\)\*\*: Lance 2\.00 times less\. \S", page)
    assert "| upsert of 1 % | **0.50** | 100.0 |" in page
    assert [plot.count("<circle") for plot in plots] == [7 + 8 + 2, 8 + 8 + 2]
    lines = (tmp_path / "README.md").read_text().splitlines()
    assert lines[:3] + lines[8:] == [*readme.splitlines()[:3], "", "More."]
    upserts = "| 10 rows upserted into 1,000, CPU seconds in one process, mean with services |"
    assert lines[3] == f"{upserts} 0.50 | - | - | - | 0.25 |"
    assert lines[4] == "| the same, median without services | 0.30 | - | - | - | 0.15 |"
    assert lines[6] == "| 300 rows upserted into 3,000 on Spark, CPU seconds | 0.50 | 100.0 | - | - | - |"


def test_the_page_has_rounds_and_requests_on_an_object_store(tmp_path: Path):
    (tmp_path / "results.json").write_text(json.dumps(results_of(0.2, lance=0.1)))
    ours = {"fresh_count": {"rounds": 6, "requests": 31}, "long_commit": {"rounds": 9, "requests": 35}}
    theirs = {"fresh_count": {"rounds": 7, "requests": 8}, "long_commit": {"rounds": 9, "requests": 12}}
    sides = {
        "lakebed": {"version": "lakebed 1", "missing": {}, "tasks": ours},
        "lance": {"version": "pylance 2", "missing": {"changes": "it has none"}, "tasks": theirs},
    }
    (tmp_path / "rounds.json").write_text(json.dumps({"delay": 0.03, "sides": sides}))
    done = run("benchmarks_page.py", "--results", str(tmp_path / "results.json"), "--root", str(tmp_path))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / MADE[0]).read_text()
    assert "| rounds (requests) | lakebed | Lance |" in page
    assert "| count, new process | **6** (31) | 7 (8) |" in page
    assert "| upsert of 10 rows | **9** (35) | **9** (12) |" in page
    assert "| incremental read | - | - |" in page
    assert "Versions: lakebed 1, pylance 2." in page
    assert "- Lance, incremental read: it has none." in page


def test_rounds_are_the_longest_chain_of_requests_that_wait_for_one_another():
    program = (
        "import sys; sys.path.insert(0, 'bench'); from rounds import Request, chain;"
        " print(chain([Request(*r, '') for r in [(0, 3), (0, 1), (1, 2), (1.5, 4), (2, 5), (4, 6)]]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "3\n", done.stderr


def small_run(results: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(
        "page.py", "--rows", "4000", "--rounds", "1", "--commit-seconds", "0.2", "--results", str(results), *words
    )


@pytest.mark.full
def test_sides_of_a_small_run_have_equal_answers(tmp_path: Path):
    results = tmp_path / "results.json"
    done = small_run(results, "--only", "lakebed", "lakebed-cow", "deltalake", "pyiceberg")
    assert done.returncode == 0, done.stderr
    sides = json.loads(results.read_text())["sides"]
    assert list(sides) == ["lakebed", "lakebed-cow", "deltalake", "pyiceberg"]
    ours = {name: task["digest"] for name, task in sides["lakebed"]["tasks"].items() if task["digest"]}
    assert ours["load"][:2] == [4_000, 4_000]
    assert ours["incremental"][0] == 40
    assert ours["lookup"][::5] == [1] * 5
    assert ours["lookup_many"][::5] == [1_000] * 3
    assert {"fresh_get", "shell_get", "scan:first"} <= set(sides["lakebed"]["tasks"])
    assert "fresh_get" in sides["deltalake"]["tasks"]
    assert all(side["sizes"]["load"] > 100_000 for side in sides.values())
    for side in sides.values():
        for name, task in side["tasks"].items():
            assert task["digest"] in (ours.get(name), None), name
            assert all(run["cpu"] > 0 and run["memory"] > 1_000_000 for run in task["runs"])
        assert set(ours) - set(side["tasks"]) == set(side["missing"])


@pytest.mark.full
def test_a_run_replaces_the_tasks_of_its_sides_and_refuses_wrong_answers(tmp_path: Path):
    results = tmp_path / "results.json"
    assert small_run(results, "--only", "deltalake").returncode == 0
    first = json.loads(results.read_text())
    assert small_run(results, "--only", "lakebed", "--tasks", "load", "scan").returncode == 0
    second = json.loads(results.read_text())
    assert second["sides"]["deltalake"] == first["sides"]["deltalake"]
    assert sorted(second["sides"]["lakebed"]["tasks"]) == ["load", "scan", "scan:first"]
    first["sides"]["deltalake"]["tasks"]["scan"]["digest"][0] += 1
    results.write_text(json.dumps(first))
    wrong = small_run(results, "--only", "lakebed", "--tasks", "scan")
    assert wrong.returncode == 1
    assert "the sides' answers differ" in wrong.stderr
    assert "scan of 4,000 rows" in wrong.stderr
    aside = json.loads((tmp_path / "results.differing.json").read_text())
    assert list(aside) == ["lakebed", "deltalake"]
    assert json.loads(results.read_text()) == first
