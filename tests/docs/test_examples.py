"""Every example of the README, of the docs and of the docstrings runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from typing import Any

import pytest
from reference_pages import PAGES

import lakebed
from lakebed.storage import open_storage
from lakebed.table import Table
from support import other_environments
from support.documented_examples import FLAGS, PAGES_WITH_SPARK, ROOT, examples_of

_URI = "memory://example/trips"
# Their examples use the table `t` of the docstring of `Table`.
_OF_TABLE = (
    "lakebed.table",
    *(
        f"lakebed.table_{view}"
        for view in ("catalogs", "checks", "columns", "consumers", "indexes", "maintenance", "savepoints")
    ),
    "lakebed.table_versions",
    "lakebed.table_views",
)


def _modules() -> list[str]:
    names = {m.name for m in pkgutil.walk_packages(lakebed.__path__, "lakebed.") if not m.name.endswith("__main__")}
    return sorted(names - set(_OF_TABLE) - {"lakebed.warehouse"} - other_environments.MODULES)


def _examples_of_methods() -> list[doctest.DocTest]:
    found = (doctest.DocTestFinder().find(importlib.import_module(name), name) for name in _OF_TABLE)
    return [
        example
        for examples in found
        for example in examples
        if example.examples and example.name != "lakebed.table.Table"
    ]


@pytest.mark.parametrize("name", ["lakebed", *_modules()])
def test_examples_in_docstrings_give_what_they_say(name: str):
    outcome = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert outcome.failed == 0, f"{outcome.failed} examples of {name} fail (see above)"


@pytest.fixture(scope="module")
def example_of_table() -> tuple[dict[str, Any], dict[str, bytes]]:
    """The names that the example of `Table` defines, and the files of its table."""
    (example,) = (one for one in doctest.DocTestFinder(recurse=False).find(Table, "Table"))
    lakebed.drop(_URI, missing_ok=True)
    outcome = doctest.DocTestRunner(optionflags=FLAGS).run(example, clear_globs=False)
    assert outcome.failed == 0, "the example of `Table` fails (see above)"
    storage = open_storage(_URI)
    return example.globs, {file.path: storage.read(file.path) for file in storage.list()}


@pytest.mark.parametrize("example", _examples_of_methods(), ids=lambda example: example.name)
def test_examples_of_a_method_continue_the_one_of_table(
    example: doctest.DocTest, example_of_table: tuple[dict[str, Any], dict[str, bytes]]
):
    names, files = example_of_table
    lakebed.drop(_URI, missing_ok=True)
    for path, data in files.items():
        open_storage(_URI).write(path, data)
    example.globs = {**names, "t": lakebed.open(_URI)}
    outcome = doctest.DocTestRunner(optionflags=FLAGS).run(example)
    assert outcome.failed == 0, f"an example of {example.name} fails (see above)"


def test_examples_of_a_warehouse_continue_one_another():
    order = ["Warehouse", *(f"Warehouse.{name}" for name in vars(lakebed.Warehouse))]
    examples = [one for one in doctest.DocTestFinder().find(lakebed.Warehouse, "Warehouse") if one.examples]
    names: dict[str, Any] = {}
    for example in sorted(examples, key=lambda one: order.index(one.name)):
        example.globs = names
        outcome = doctest.DocTestRunner(optionflags=FLAGS).run(example, clear_globs=False)
        assert outcome.failed == 0, f"an example of {example.name} fails (see above)"
        names = example.globs


_PAGES = [
    ("README.md", 13),
    ("docs/indexes.md", 16),
    ("docs/rescaling.md", 4),
    ("docs/merge.md", 13),
    ("docs/merge_modes.md", 8),
    ("docs/maintenance.md", 40),
    ("docs/time.md", 20),
    ("docs/stage.md", 16),
    ("docs/changes.md", 6),
    ("docs/checks.md", 14),
    ("docs/defaults.md", 9),
    ("docs/concurrency.md", 10),
    ("docs/cow_or_mor.md", 4),
    ("docs/runbook.md", 6),
    ("docs/monitoring.md", 21),
    ("docs/queries.md", 28),
    ("docs/vectors.md", 6),
    ("docs/types.md", 1),
    ("docs/install.md", 1),
    ("docs/storage.md", 4),
    ("docs/from_hudi.md", 4),
    ("docs/taking_over.md", 4),
    ("docs/deletes.md", 18),
    ("docs/schema.md", 9),
    ("docs/ingest.md", 8),
    ("docs/pipelines.md", 1),
    ("docs/publish.md", 5),
    ("docs/warehouse.md", 15),
    ("docs/statements.md", 10),
    ("docs/versions.md", 6),
    ("docs/security.md", 3),
    ("docs/index.md", 4),
    ("docs/first_table.md", 8),
    ("docs/tour.md", 12),
    ("docs/concepts.md", 6),
    ("docs/on_disk.md", 4),
    ("docs/errors.md", 2),
    ("docs/postgres_cdc.md", 5),
]


@pytest.mark.parametrize(("page", "least"), _PAGES)
def test_examples_of_a_page_give_what_they_say(page: str, least: int):
    examples = examples_of(page)
    assert len(examples) >= least
    for example in examples:
        example.evaluate()


def test_every_page_with_examples_is_run():
    texts = {f"docs/{path.name}": path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    elsewhere = {"docs/own_index.md"}  # as docstrings, in test_own_index.py
    run = {page for page, _ in _PAGES} | {*PAGES_WITH_SPARK, *elsewhere}
    assert {page for page, text in texts.items() if "\n>>> " in text} <= run


@pytest.mark.parametrize("page", PAGES)
def test_pages_made_from_code_are_current(page: str):
    made = PAGES[page]()
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made, "run `make docs`"
