"""Every example of the README, of the docs and of the docstrings runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.example import Example
from sybil.parsers.markdown import PythonCodeBlockParser

import lakebed
from lakebed.config.reference import PAGES

ROOT = Path(__file__).resolve().parents[2]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def _modules() -> list[str]:
    return sorted(
        m.name for m in pkgutil.walk_packages(lakebed.__path__, "lakebed.") if not m.name.endswith("__main__")
    )


@pytest.mark.parametrize("name", ["lakebed", *_modules()])
def test_examples_in_docstrings_give_what_they_say(name: str):
    outcome = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert outcome.failed == 0, f"{outcome.failed} examples of {name} fail (see above)"


def _examples(page: Path) -> list[Example]:
    parser = PythonCodeBlockParser(doctest_optionflags=FLAGS)
    return list(Sybil(parsers=[parser], path=str(page.parent), pattern=page.name).parse(page).examples())


_PAGES = [
    ("README.md", 13),
    ("docs/indexes.md", 8),
    ("docs/rescaling.md", 4),
    ("docs/merging.md", 8),
    ("docs/compaction.md", 9),
    ("docs/changes.md", 6),
    ("docs/concurrency.md", 6),
    ("docs/cow_or_mor.md", 4),
    ("docs/partition_ttl.md", 5),
    ("docs/services.md", 5),
    ("docs/damage.md", 6),
    ("docs/joins.md", 6),
]


@pytest.mark.parametrize(("page", "least"), _PAGES)
def test_examples_of_a_page_give_what_they_say(page: str, least: int):
    examples = _examples(ROOT / page)
    assert len(examples) >= least
    for example in examples:
        example.evaluate()


@pytest.mark.parametrize("page", PAGES)
def test_pages_made_from_tables_in_code_are_current(page: str):
    made = PAGES[page]()
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made, "run `make docs`"
