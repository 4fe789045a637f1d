"""The one table of options: every key, its default, older names, and what lakebed does with it."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Literal, cast

# Read with the module: later the process may have no descriptor left for it.
_TABLE = files("lakebed.config").joinpath("options.tsv").read_text(encoding="utf-8")

Verdict = Literal["implemented", "refused", "ignored"]


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table.

    `default` is real Hudi's (lakebed's own for `lakebed.*`). `values` names the kind of value (`bool`, `int`,
    `list`, ...) or the accepted words; for a refused option the words that ask for what lakebed does anyway.
    `refuses` holds words that real Hudi knows and lakebed does not do, `*` for any other. `setting` is the
    field the value ends in.
    """

    key: str
    default: str
    aliases: tuple[str, ...]
    verdict: Verdict
    values: str
    refuses: tuple[str, ...]
    setting: str
    note: str

    @property
    def words(self) -> tuple[str, ...]:
        """The accepted words, if `values` lists words."""
        return tuple(self.values.split("|")) if "|" in self.values or self.values[:1].isupper() else ()


def _row(line: str) -> Option:
    key, default, aliases, verdict, values, refuses, setting, note = line.split("\t")
    return Option(
        key=key,
        default=default,
        aliases=tuple(a for a in aliases.replace(" ", "").split(",") if a),
        verdict=cast(Verdict, verdict),
        values=values,
        refuses=tuple(refuses.split("|")) if refuses else (),
        setting=setting,
        note=note,
    )


@cache
def options() -> dict[str, Option]:
    """All known options by key, in the order of the table.

    >>> options()["hoodie.index.type"].verdict
    'implemented'
    """
    return {row.key: row for row in map(_row, _TABLE.splitlines()[1:])}


@cache
def _names() -> dict[str, str]:
    """Every name an option goes by, to its key; a key's own row wins over an alias of the same text."""
    aliases = {alias: row.key for row in options().values() for alias in row.aliases}
    return aliases | {key: key for key in options()}


def canonical(name: str) -> str | None:
    """The key an option's name or older name stands for; None for an unknown name.

    >>> canonical("hoodie.cleaner.commits.retained")
    'hoodie.clean.commits.retained'
    """
    return _names().get(name)


def nearest(name: str) -> str | None:
    """The known name most like `name`, or that ends in it; None where nothing is near.

    >>> nearest("hoodie.indx.type"), nearest("evolution")
    ('hoodie.index.type', 'lakebed.write.evolution')
    """
    if ends := [known for known in _names() if known.endswith(f".{name}")]:
        return min(ends, key=lambda known: (len(known), known))
    found = get_close_matches(name, _names(), n=1, cutoff=0.7)
    return found[0] if found else None
