"""The picture of the rooms in docs/architecture.md, made from the import contract in pyproject.toml.

`room_picture()` gives the text of an SVG file: one line for each layer, from the top; a layer imports only what is
below it. The sentence beside a room is the docstring of its package.
"""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
_SOURCE = ROOT / "src" / "lakebed"
# The first room of each band, and what the band is.
_BANDS = {
    "testing": ("What users hold", "#2b7bd9"),
    "services": ("What happens to a table", "#d9542b"),
    "metadata_upkeep": ("What a table is", "#3a9d5d"),
    "engine": ("What it stands on", "#8a5bc7"),
}
_ROW, _LEFT, _NAME, _TOP = 26, 34, 170, 10
# Of a character of a sentence, about.
_CHARACTER = 6.4


def room_picture() -> str:
    """The SVG file."""
    lines: list[str] = []
    width = _LEFT + _NAME + 24 + int(_CHARACTER * max(len(_sentence(layer)) for layer in _layers()))
    y, colour = _TOP, "#808080"
    for layer in _layers():
        if layer in _BANDS:
            title, colour = _BANDS[layer]
            lines.append(f'<text x="{_LEFT}" y="{y + 20}" font-size="13" fill="{colour}">{escape(title)}</text>')
            y += 28
        lines.append(
            f'<rect x="{_LEFT}" y="{y}" width="{_NAME}" height="{_ROW - 5}" rx="4" fill="{colour}" fill-opacity="0.14" '
            f'stroke="{colour}"/>'
            f'<text x="{_LEFT + 8}" y="{y + 15}" fill="{colour}">{escape(layer)}</text>'
            f'<text x="{_LEFT + _NAME + 12}" y="{y + 15}" fill="#808080">{escape(_sentence(layer))}</text>'
        )
        y += _ROW
    arrow = (
        f'<path d="M16 {_TOP + 20}V{y - 12}M11 {y - 20}L16 {y - 10}L21 {y - 20}" fill="none" stroke="#808080" '
        'stroke-width="1.5"/>'
        f'<text transform="translate(10 {(y + _TOP) // 2}) rotate(-90)" text-anchor="middle" fill="#808080">'
        "imports</text>"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 10}" width="{width}" height="{y + 10}" '
        'font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, "<title>The rooms of lakebed</title>", arrow, *lines, "</svg>", ""])


def _layers() -> list[str]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers")
    return [layer.strip("()") for layer in layers]


def _sentence(layer: str) -> str:
    """The first sentence of a room's docstring, up to its semicolon."""
    folder, module = _SOURCE / layer / "__init__.py", _SOURCE / f"{layer}.py"
    path = folder if folder.is_file() else module
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split()).replace("`", "").split("; ")[0].split(". ")[0]
