"""Dates and times in a form that a caller names as Python does (`%d.%m.%Y`), read by the reader of Joda's patterns."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import InvalidOption, InvalidRecord, UnsupportedFeature
from lakebed.expressions.joda_read import ReadPattern, read_pattern
from lakebed.inputs.inference import LOCAL_TIME, MOMENT

_LETTERS = {
    "Y": "yyyy", "y": "yy", "m": "MM", "d": "dd", "e": "dd", "b": "MMM", "h": "MMM", "B": "MMMM", "j": "D",
    "H": "HH", "I": "hh", "M": "mm", "S": "ss", "p": "a", "z": "Z",
    "F": "yyyy-MM-dd", "D": "MM/dd/yy", "T": "HH:mm:ss", "R": "HH:mm", "%": "%",
}  # fmt: skip
_PIECE = re.compile(r"%-?(.?)|([A-Za-z]+)|(')|([^%A-Za-z']+)", re.DOTALL)
_OF_DAY = frozenset("HhmsS")
# The first millisecond of the year 1000: "%Y" has four digits, and "31.12.07" is not of the year 7.
_FIRST_MILLIS = -30_610_224_000_000


@dataclass(frozen=True)
class DateFormat:
    """A form of dates or times. `kind` is the type of its values: a date, with a time of day a local time, with an
    offset a moment.

    >>> form = DateFormat.of("%d.%m.%Y")
    >>> form.read(pa.array(["31.12.2007", "31.02.2007", "never", None])).to_pylist()
    [datetime.date(2007, 12, 31), None, None, None]
    """

    text: str
    kind: pa.DataType
    _pattern: ReadPattern

    @classmethod
    def of(cls, text: str) -> DateFormat:
        """The form of a text such as `%d.%m.%Y`. Raises `InvalidOption` for one that cannot be read."""
        pattern = ""
        for match in _PIECE.finditer(text):
            directive, word, quote, others = match.groups()
            if directive is None:
                pattern += f"'{word}'" if word else "''" if quote else others
            elif directive in _LETTERS:
                pattern += _LETTERS[directive]
            else:
                raise InvalidOption(
                    f"date_format={text!r} has %{directive}, which is not read",
                    hint=f"it has these of Python's signs: {', '.join('%' + letter for letter in _LETTERS)}",
                    context={"date_format": text},
                )
        try:
            read = read_pattern(pattern)
        except UnsupportedFeature as error:
            raise InvalidOption(
                f"date_format={text!r} is not read{error.message[error.message.rfind(':') :]}",
                hint="it has a year, and each part of a time once, such as %d.%m.%Y %H:%M",
                context={"date_format": text},
            ) from error
        letters = {token.letter for token in read.tokens}
        kind = MOMENT if "Z" in letters else LOCAL_TIME if letters & _OF_DAY else pa.date32()
        return cls(text, kind, read)

    def read(self, texts: pa.Array) -> pa.Array:
        """The values of the texts in the type `kind`; null for a text of another form, and for one that is no real
        date."""
        _, millis, offsets = self._pattern.arrow(pc.utf8_trim_whitespace(texts.cast(pa.string())))
        if self.kind == MOMENT:
            millis = pc.subtract(millis, offsets)
        if "yyyy" in self._pattern.pattern:
            millis = pc.if_else(pc.greater_equal(millis, _FIRST_MILLIS), millis, pa.scalar(None, pa.int64()))
        times = millis.cast(pa.timestamp("ms", self.kind.tz if pt.is_timestamp(self.kind) else None))
        return times.cast(self.kind)

    def values(self, texts: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
        """The values in the type of a column. Raises `InvalidRecord` where the column needs other parts of a time than
        the form has."""
        if pt.is_timestamp(kind) and bool(kind.tz) != bool(self.kind == MOMENT):
            sign = "lacks the offset %z of" if kind.tz else "has an offset, %z, which is not in"
            raise InvalidRecord(
                f"date_format={self.text!r} {sign} the times in column {column}, whose type is {kind}",
                hint="read the column as timestamp_ntz (without an offset) or timestamp (with one)",
                context={"column": column, "date_format": self.text},
            )
        if pt.is_date(kind) and not pt.is_date(self.kind):
            raise InvalidRecord(
                f"date_format={self.text!r} has a time of day, and column {column} has dates",
                hint="read the column as timestamp_ntz",
                context={"column": column, "date_format": self.text},
            )
        return self.read(texts).cast(kind)


def is_temporal(kind: pa.DataType) -> bool:
    """Whether a type is that of dates, local times or moments."""
    return pt.is_timestamp(kind) or pt.is_date(kind)


@dataclass
class DateTexts:
    """How many of the texts of one column are of a form, in one batch or in several, and the first that is not.
    `is_iso` is whether all texts are dates or times in ISO form, too, or have to be."""

    form: DateFormat
    is_iso: bool = False
    fitting: int = 0
    other: str | None = None

    def add(self, texts: pa.Array | pa.ChunkedArray) -> None:
        """Add more texts of the column."""
        for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
            present = pc.drop_null(chunk)
            read = self.form.read(present)
            self.fitting += len(read) - read.null_count
            if self.other is None and read.null_count:
                self.other = str(present[pc.index(read.is_null(), True).as_py()])

    @property
    def are_dates(self) -> bool:
        """Whether there are texts, and all are of the form."""
        return self.fitting > 0 and self.other is None


def date_columns(texts: dict[str, DateTexts], file: str, *, may_be_none: bool = False) -> frozenset[str]:
    """The columns whose texts are all of the form. Raises `InvalidRecord` for a file with texts of which none are
    (unless `may_be_none`), and for a column of which only some are; the error's context has the column and the first
    text that is not."""
    columns = frozenset(name for name, column in texts.items() if column.are_dates)
    others = {name: column.other for name, column in texts.items() if column.other is not None}
    partly = [name for name in others if texts[name].fitting and not texts[name].is_iso]
    nearest = max(others, key=lambda name: sum(map(str.isdigit, others[name])) / (len(others[name]) or 1), default=None)
    for name in partly or ([] if columns or nearest is None or may_be_none else [nearest]):
        column = texts[name]
        context = {"path": file, "column": name, "value": column.other, "date_format": column.form.text}
        if name in partly:
            raise InvalidRecord(
                f"{file}, column {name}: {column.other!r} is no date of the form {column.form.text!r}, as other values"
                " of the column are",
                hint=f"correct it, or leave the column as text: columns={{{name!r}: 'string'}}",
                context=context,
            )
        raise InvalidRecord(
            f"{file} has no column of dates of the form {column.form.text!r}: column {name} has {column.other!r}",
            hint="correct date_format=, or leave it out; a column of digits alone is read as dates where columns="
            " names its type",
            context=context,
        )
    return columns
