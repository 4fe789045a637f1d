"""The public surface is the recorded one, and the changelog names what changed in it since the last release."""

from __future__ import annotations

import re
from pathlib import Path

import public_api
import pytest

from support.documented_examples import ROOT

HERE = Path(__file__).parent / "public_api"


def _lines(name: str) -> list[str]:
    return (HERE / name).read_text(encoding="utf-8").splitlines()


def unnamed(changed: list[str], changelog: str) -> list[str]:
    """The names that the section of the changelog marked unreleased does not have in backticks."""
    section = next((part for part in changelog.split("\n## ") if "unreleased" in part.partition("\n")[0].lower()), "")
    named = " ".join(re.findall(r"`([^`]+)`", section))
    return [name for name in changed if not re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", named)]


def test_the_public_surface_is_the_recorded_one() -> None:
    recorded, current = set(_lines("surface.txt")), set(public_api.surface())
    difference = [f"- {line}" for line in sorted(recorded - current)] + [
        f"+ {line}" for line in sorted(current - recorded)
    ]
    assert difference == [], "the public surface has changed: run `make api`, and name the change in CHANGELOG.md"


def test_the_changelog_names_every_public_change_since_the_last_release() -> None:
    changed = public_api.changes(_lines("released.txt"), _lines("surface.txt"))
    missing = unnamed(changed, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert missing == [], "name these in backticks in the section of CHANGELOG.md that is marked unreleased"


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        ("t.get(keys)", []),
        ("t.get(keys)\nt.more()", []),
        ("t.get(keys, columns = None)", ["t.get"]),
        ("t.gets(keys)", ["t.get"]),
    ],
    ids=["nothing", "more", "another signature", "another name"],
)
def test_a_change_of_a_signature_has_to_be_in_the_changelog(after: str, changed: list[str]) -> None:
    found = public_api.changes(["t.get(keys)"], after.splitlines())
    assert found == changed
    changelog = "# Changelog\n\n## 0.2 (unreleased)\n\n- `t.gets` is new.\n\n## 0.1\n\n- `t.get` is new.\n"
    assert unnamed(found, changelog) == changed
    assert unnamed(found, changelog.replace("`t.gets` is new", "`t.get(keys, columns=)` takes columns")) == []
