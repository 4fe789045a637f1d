"""The golden tables in `tests/golden` are those that tests need, and small."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from support.golden_tables import SUBSET

TESTS = Path(__file__).parents[1]
_NAME = re.compile(r"([vw][689]_(cow|mor)|(up|down)_v\d_to_v\d|flink(like|files)_v\d)_\w+")
_MAX_BYTES = 12_000_000


def _named_tables() -> Iterator[tuple[str, str]]:
    """Every text in a test that is a golden table's name, and the file."""
    for path in sorted(TESTS.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if _NAME.search(source) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
                yield node.value, str(path.relative_to(TESTS))


def test_every_table_that_a_test_names_is_in_the_folder() -> None:
    present = {path.name.removesuffix(".tar.xz") for path in SUBSET.glob("*.tar.xz")}
    named = list(_named_tables())
    assert len(named) > 100
    assert [(table, file) for table, file in named if table not in present] == []


def test_manifest_and_folder_agree() -> None:
    entries = json.loads((SUBSET / "manifest.json").read_text(encoding="utf-8"))["tables"]
    assert {f"{entry['name']}.tar.xz" for entry in entries} == {path.name for path in SUBSET.glob("*.tar.xz")}


def test_the_folder_stays_small() -> None:
    assert sum(path.stat().st_size for path in SUBSET.iterdir()) <= _MAX_BYTES
