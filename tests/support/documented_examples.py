"""The examples of the README and of the pages in docs/."""

from __future__ import annotations

import doctest
from pathlib import Path

from sybil import Sybil
from sybil.example import Example
from sybil.parsers.markdown import PythonCodeBlockParser

ROOT = Path(__file__).resolve().parents[2]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
# These run in the Spark layer, with a session.
PAGES_WITH_SPARK = ("docs/dataframes.md", "docs/spark.md", "docs/streaming.md")


def examples_of(page: str, **names: object) -> list[Example]:
    """The examples of a page in their order; they find these names as theirs."""
    path = ROOT / page
    parser = PythonCodeBlockParser(doctest_optionflags=FLAGS)
    document = Sybil(parsers=[parser], path=str(path.parent), pattern=path.name).parse(path)
    document.namespace.update(names)
    return list(document.examples())
