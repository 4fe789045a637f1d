"""What the columns of data files are called in rows: names that a table can have, in place of those of the file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from lakebed.errors import InvalidOption
from lakebed.inputs.python_rows import type_of

Renaming = Literal["snake"] | Mapping[str, str]
_WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OTHERS = re.compile(r"[^A-Za-z0-9]+")


def snake(name: str) -> str:
    """The name in small letters, with an underscore between words and for what is neither letter nor digit.

    >>> snake("Culmen Length (mm)"), snake("studyName"), snake("2020 Größe"), snake("Δ")
    ('culmen_length_mm', 'study_name', '_2020_grosse', '')
    """
    letters = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    text = _OTHERS.sub("_", _WORD_ENDS.sub("_", letters)).strip("_").lower()
    return f"_{text}" if text[:1].isdigit() else text


@dataclass(frozen=True)
class ColumnNames:
    """The names that a caller gives the columns of files: `rename` all, or those that a dict has; `index_column` is the
    name of the column without one, which pandas and R write for the names of rows."""

    rename: Renaming | None = None
    index_column: str | None = None

    def __post_init__(self) -> None:
        if self.rename is not None and not isinstance(self.rename, Mapping) and self.rename != "snake":
            raise InvalidOption(
                f"rename={self.rename!r} is unknown",
                hint="use 'snake' (Culmen Length becomes culmen_length), or a dict of old and new names",
                context={"rename": str(self.rename)},
            )

    def __bool__(self) -> bool:
        return self.rename is not None or self.index_column is not None

    def of(self, name: str) -> str:
        """The name of a column in rows."""
        if not name and self.index_column is not None:
            return self.index_column
        if isinstance(self.rename, Mapping):
            return self.rename.get(name, name)
        return name if self.rename is None else snake(name) or name

    def type_of(self, name: str, types: Mapping[str, pa.DataType]) -> pa.DataType | None:
        """The type of a column of the file: `types` have it by its name in rows, or by that in the file."""
        return type_of(self.of(name), types) or type_of(name, types)

    def check(self, originals: Collection[str], path: str) -> None:
        """Raise `InvalidOption` for a name that the caller gives and that is not among the names in the files."""
        if self.index_column is not None and "" not in originals:
            raise InvalidOption(
                f"index_column={self.index_column!r} names the column without a name, and {path} has none",
                hint=f"leave it out; the columns are {', '.join(sorted(originals))}",
                context={"path": path},
            )
        unknown = sorted(set(self.rename).difference(originals)) if isinstance(self.rename, Mapping) else []
        if unknown:
            raise InvalidOption(
                f"rename= names {', '.join(map(repr, unknown))}, which {path} does not have",
                hint=f"the columns are {', '.join(map(repr, sorted(originals)))}",
                context={"path": path, "unknown": unknown},
            )


AS_IN_THE_FILE = ColumnNames()
