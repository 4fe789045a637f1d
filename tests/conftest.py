"""What the layers share: where the golden tables are, one Spark session, one real Hudi."""

from __future__ import annotations

import gc
import os
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from zlib import crc32

import hypothesis
import pytest

from support.golden_tables import beyond_subset
from support.sampling import is_small, run, today
from support.small_spark import small_session

# the same examples in each run but a day's
hypothesis.settings.register_profile("fixed", derandomize=True, database=None)
if run() != "day":
    hypothesis.settings.load_profile("fixed")
_LAYERS_WITH_A_JVM = ("spark", "interop")
# Tests that need a JVM or a server, or make whole tables: a case takes from a tenth of a second to many seconds.
_FOLDERS_OF_ONE_CASE = (
    "spark",
    "services",
    "interop",
    "property",
    "fault",
    *(f"unit/{room}" for room in ("services", "operations", "index", "read", "handles", "cli")),
    *(f"unit/metadata{part}" for part in ("", "_kinds", "_records", "_upkeep")),
    "unit/catalog/test_rest.py",
    *(
        f"unit/concurrency/test_{stem}.py"
        for stem in ("archived_conflicts", "crossing_writers", "rewritten_base_files")
    ),
    "unit/engine/test_local.py",
    *(f"unit/expressions/test_{stem}.py" for stem in ("partition_values", "patterns_and_zones", "shared_key_texts")),
    *("unit/filters/test_ranges.py", "unit/filters/test_case_and_unix_timestamp.py"),
    "unit/format/test_delta_encoded_texts.py",
    *("unit/ingestion/test_rounds.py", "unit/ingestion/test_tables_source.py"),
    "unit/merge/test_deletes_and_late_rows.py",
    "unit/merge/test_merge_modes.py",
    "unit/merge/test_mergers.py",
    "unit/merge/test_null_ordering.py",
    "unit/spark_source/test_stream.py",
    "unit/test_table_consumers.py",
    "unit/test_wrong_arguments.py",
    "unit/timeline/test_archive_writer.py",
)
_NO_PARAMETERS = SimpleNamespace(params={})
_HERE = Path(__file__).parent
gc.disable()  # until the tests are collected: see `pytest_collection`


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector does not run while tests are collected, and does not visit later what they are made of:
    a million objects that stay to the end of the run. A full pass over them takes half a second."""
    done = yield
    gc.freeze()
    gc.collect()  # the next pass is due by the number of objects that are left now
    gc.enable()
    return done


def pytest_unconfigure() -> None:
    gc.unfreeze()  # bindings of DuckDB report what is not collected as the process ends


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The command that runs each failed test again, and what the run was a sample of."""
    failed = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
    for nodeid in dict.fromkeys(report.nodeid for report in failed if getattr(report, "nodeid", None)):
        terminalreporter.write_line(f"run again: {_command(nodeid, config)}")
    day = f" of LAKEBED_DAY={today()}" if run() == "day" else ""
    terminalreporter.write_line(f"tests of the {run()} run{day} (LAKEBED_TESTS)")


def _command(nodeid: str, config: pytest.Config) -> str:
    """The one command that runs a test again as it ran here: with the variables that say what is run."""
    given = {name: value for name, value in os.environ.items() if name.startswith("LAKEBED_")}
    given |= {"LAKEBED_DAY": str(today())} if run() == "day" else {}
    python = Path(sys.executable)
    python = python.relative_to(config.rootpath) if python.is_relative_to(config.rootpath) else python
    variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(given.items())]
    return " ".join([*variables, str(python), "-m pytest", shlex.quote(nodeid)])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their folder, and those of a golden table that is not in `tests/golden`. The small run and its
    rest have no tests with the mark `full`, and of the others the cases that show a value of a parameter for the first
    time; the small run has one case of each costly test. Tests that the command line names run all the same."""
    beyond = beyond_subset()
    for item in items:
        if beyond and any(str(value) in beyond for value in getattr(item, "callspec", _NO_PARAMETERS).params.values()):
            item.add_marker("larger_set")
        place = item.path.relative_to(_HERE).as_posix() if item.path.is_relative_to(_HERE) else ""
        layer = place.partition("/")[0]
        if layer in _LAYERS_WITH_A_JVM:
            item.add_marker(layer)
        if any(place == folder or place.startswith(f"{folder}/") for folder in _FOLDERS_OF_ONE_CASE):
            item.add_marker("one_case")
    if is_small() and not any("::" in argument for argument in config.args):
        taken = list(_each_value_once(item for item in items if not item.get_closest_marker("full")))
        first = set(_one_case_of_costly_tests(taken))
        taken = first if run() == "small" else {*taken} - first
        config.hook.pytest_deselected(items=[item for item in items if item not in taken])
        items[:] = [item for item in items if item in taken]


def _each_value_once(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The items but for the cases of a test of which each parameter has a value that an earlier case has, too."""
    seen: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for item in items:
        parameters = getattr(item, "callspec", _NO_PARAMETERS).params
        values = {(name, repr(value)) for name, value in parameters.items()}
        of_test = seen[item.nodeid.partition("[")[0]]
        if not values or values - of_test or item.get_closest_marker("every_case"):
            yield item
        of_test |= values


def _one_case_of_costly_tests(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The items without those with the mark `rest`, and one case of each test that has the mark `one_case`; which one
    differs from test to test."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    has_larger_set = bool(beyond_subset())
    for item in items:
        is_rest = item.get_closest_marker("rest")
        if item.get_closest_marker("larger_set") and (has_larger_set or not is_rest):
            yield item  # each golden table is a feature
        elif is_rest:
            continue
        elif item.get_closest_marker("one_case") and not item.get_closest_marker("every_case"):
            cases[item.nodeid.partition("[")[0]].append(item)
        else:
            yield item
    for test, of_test in cases.items():
        yield of_test[crc32(test.encode()) % len(of_test)]


def unavailable(reason: str) -> NoReturn:
    """Skip with a reason; fail instead where LAKEBED_REQUIRE_ORACLE=1 says that everything must be there."""
    if os.environ.get("LAKEBED_REQUIRE_ORACLE") == "1":
        pytest.fail(f"required here: {reason}")
    pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, Any]:
    """A module that is skipped for a package fails where LAKEBED_REQUIRE_ORACLE=1 asks for everything."""
    report = yield
    if report.skipped and os.environ.get("LAKEBED_REQUIRE_ORACLE") == "1":
        report.outcome, report.longrepr = "failed", f"required here: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _no_frame_is_small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The DataFrames of tests are small, and are to run on Spark all the same; those that say otherwise say it."""
    if request.node.get_closest_marker("small_frames") is None:
        monkeypatch.setattr("lakebed.operations.hudi_job.LOCAL_ROWS", 0)
        monkeypatch.setattr("lakebed.services.driver.JOB_BYTES", -1)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """One small Spark session for the whole run, UTC, ANSI as the version has it."""
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        unavailable("no Java on this machine")
    pyspark = pytest.importorskip("pyspark")
    assert pyspark
    session = small_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Real Hudi 1.2.0: one process for the whole run (`oracle.client.HudiOracle`)."""
    from oracle.environment import RELEASE

    yield from _hudi(RELEASE, tmp_path_factory)


@pytest.fixture(scope="module")
def lance_oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Real Hudi 1.2.0 with Lance's Spark connector: a process of its own for the tests of a module."""
    from oracle.environment import lance_environment

    yield from _hudi_of(lance_environment, tmp_path_factory)


@pytest.fixture(scope="module")
def older_oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Real Hudi of the release that a test names by `indirect=True`: one process for all its tests in a module."""
    yield from _hudi(request.param, tmp_path_factory)


def _hudi(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from oracle.environment import oracle_environment

    yield from _hudi_of(lambda: oracle_environment(release), tmp_path_factory)


def _hudi_of(environment: Callable[[], Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from oracle.client import HudiOracle
    from oracle.environment import Unavailable

    try:
        hudi = HudiOracle(environment(), tmp_path_factory.mktemp("oracle") / "oracle.log")
    except Unavailable as reason:
        unavailable(str(reason))
        return
    yield hudi
    hudi.close()
