"""Hooks of the documentation site (mkdocs.yml): pages that it has besides docs/, and what differs from GitHub.

The API pages are made by mkdocstrings, from the list of docs/api.md. The changelog and the page for contributors are
files of the root.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import reference_pages  # noqa: E402

_OF_THE_ROOT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
_FENCE = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
_SOURCE_LINK = re.compile(r"\[([^]]+)\]\(\.\./[^)]+\.py\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    for name, source in _OF_THE_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    for section in reference_pages.api_sections()[1:]:
        files.append(File.generated(config, f"api/{section.name}.md", content=_api_page(section)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Prompts are highlighted as such; files of the repository that are not on the site are no links."""
    if page.file.src_uri == "api.md":
        return _api_page(reference_pages.api_sections()[0])
    for name, source in _OF_THE_ROOT.items():
        markdown = markdown.replace(f"](../{source})", f"]({name})")
    return _SOURCE_LINK.sub(r"`\1`", _FENCE.sub("```pycon\n", markdown))


def _api_page(section: reference_pages.ApiSection) -> str:
    return "".join([f"# {section.title}\n\n{section.intro}\n", *_directives(section)])


def _directives(section: reference_pages.ApiSection) -> Iterator[str]:
    for path, members in section.objects:
        with_module = "true" if members is None else "false"
        yield f"\n::: {path}\n    options:\n      inherited_members: true\n      show_root_full_path: {with_module}\n"
        if members is not None:
            yield "      members:\n" + "".join(f"        - {name}\n" for name in members)
