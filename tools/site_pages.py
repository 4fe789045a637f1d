"""Hooks of the documentation site (mkdocs.yml): pages that it has besides docs/, and what differs from GitHub.

The pages below docs/api are made by mkdocstrings, from the groups of docs/api.md. The changelog and the page for
contributors are files of the root.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import reference_pages  # noqa: E402

_OF_THE_ROOT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
_FENCE = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
_SOURCE_LINK = re.compile(r"\[([^]]+)\]\(\.\./[^)]+\.py\)")
_CELL = re.compile(r"<t[dh][ >].*?</t[dh]>", re.DOTALL)
_CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
_NAME = re.compile(r"\S+")
# Where a name may go on in the next line, and the length from which it may.
_JOINT = re.compile(r"(?<=[._/=(,:])(?=\w)|(?<=[a-z])(?=[A-Z])")
# Browsers break at these, too.
_BREAKS = re.compile(r"[-&?/]")
_LONG = 22
_TAG = re.compile(r"<[^>]*>")
_SENTENCE = 45


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    for name, source in _OF_THE_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Prompts are highlighted as such; files of the repository that are not on the site are no links."""
    for section in reference_pages.api_sections():
        if page.file.src_uri == f"api/{section.name}.md":
            return _api_page(section)
    for name, source in _OF_THE_ROOT.items():
        markdown = markdown.replace(f"](../{source})", f"]({name})")
    return _SOURCE_LINK.sub(r"`\1`", _FENCE.sub("```pycon\n", markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Long names in tables may be broken, at their dots, underscores and capitals; short ones are not. Cells with
    a sentence or a long name get room for it (site.css)."""

    def jointed(name: re.Match[str]) -> str:
        if len(unescape(name[0])) > _LONG:
            return _JOINT.sub("<wbr>", name[0])
        return f'<span class="short">{name[0]}</span>' if _BREAKS.search(name[0]) else name[0]

    def of_cell(cell: re.Match[str]) -> str:
        text = _CODE.sub(lambda code: _NAME.sub(jointed, code[0]), cell[0])
        length = len(unescape(_TAG.sub("", cell[0])))
        is_wide = length > _SENTENCE or "<wbr>" in text
        return text.replace("<td", '<td class="wide"', 1) if is_wide and text.startswith("<td>") else text

    return _CELL.sub(of_cell, html)


def _api_page(section: reference_pages.ApiSection) -> str:
    return "".join([f"# {section.title}\n\n{section.intro}\n", *_directives(section)])


def _directives(section: reference_pages.ApiSection) -> Iterator[str]:
    for path, members in section.objects:
        with_module = "true" if members is None else "false"
        yield f"\n::: {path}\n    options:\n      inherited_members: true\n      show_root_full_path: {with_module}\n"
        if members is not None:
            yield "      members:\n" + "".join(f"        - '{name}'\n" for name in members)
