"""The index of docs/own_index.md, installed as its page says: module and entry point are the page's own text."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own_index.md"


def test_the_page_holds_an_index_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text()
    module = re.search(r'```python\n"""(\w+)\.py"""\n(.*?)```', text, re.DOTALL)
    described = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert module
    assert described
    project = tomllib.loads(described[1])["project"]
    (tmp_path / f"{module[1]}.py").write_text(module[2])
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"]["lakebed.indexes"]
    (info / "entry_points.txt").write_text("[lakebed.indexes]\n" + "".join(f"{n} = {o}\n" for n, o in points.items()))
    monkeypatch.syspath_prepend(str(tmp_path))
    parser = PythonCodeBlockParser()
    examples = list(Sybil(parsers=[parser], path=str(PAGE.parent), pattern=PAGE.name).parse(PAGE).examples())
    assert len(examples) >= 3
    for example in examples:
        example.evaluate()
