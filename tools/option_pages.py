"""The pages of docs/ that are made from the tables of options and of features."""

from __future__ import annotations

from pathlib import Path

from lakebed.config.option_table import Option, options
from lakebed.properties.features import FEATURES, Feature

_MADE = "<!-- made by `make docs`; edit the table in the code instead -->\n"
_FEATURES_HEAD = Path(__file__).with_name("features_head.md")
_INTRO = {
    "implemented": "These do in lakebed what they do in real Hudi.",
    "refused": "These raise `UnsupportedFeature` unless their value asks for what lakebed does anyway.",
    "ignored": "These change nothing here: they are accepted, and logged once a process.",
}


def options_page() -> str:
    """docs/options.md: every option, by verdict."""
    parts = [
        "# Options\n",
        _MADE,
        "\nEvery key of real Hudi 1.2.0 is known by lakebed, with its older names. A key that is in none of these"
        "\ntables raises `InvalidOption`, which names the nearest known one. Defaults are real Hudi's, those of"
        "\n`lakebed.*` keys lakebed's own.\n",
    ]
    for verdict, intro in _INTRO.items():
        rows = [option for option in options().values() if option.verdict == verdict]
        parts.append(f"\n## {verdict.capitalize()} ({len(rows)})\n\n{intro}\n\n")
        parts.append("| option | default | values | older names | note |\n|---|---|---|---|---|\n")
        parts.extend(_option_row(option) for option in rows)
    return "".join(parts)


def _option_row(option: Option) -> str:
    values = "" if option.values == "off" else ", ".join(option.values.split("|"))
    aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
    default = f"`{option.default}`" if option.default else ""
    return f"| `{option.key}` | {default} | {values} | {aliases} | {_cell(option.note)} |\n"


def features_page() -> str:
    """docs/features.md: the read and write matrix."""
    head = (
        _FEATURES_HEAD.read_text(encoding="utf-8")
        + "\n## What is read and written, by table feature\n"
        + _MADE
        + "\nA table that has a feature with a *no* is refused by name before anything is read or written."
        "\n`lakebed describe URI` shows which of these a table has.\n\n"
        "| feature of the table | read | write | |\n|---|---|---|---|\n"
    )
    return head + "".join(_feature_row(feature) for feature in FEATURES)


def _feature_row(feature: Feature) -> str:
    reads = ", ".join(feature.reads) if feature.read == "some" else feature.read
    writes = ", ".join(feature.writes) if feature.write == "some" else feature.write
    why = f"{feature.why}; {feature.hint}" if feature.why else ""
    return f"| {feature.name} | {reads} | {writes} | {_cell(why)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {"options.md": options_page, "features.md": features_page}
