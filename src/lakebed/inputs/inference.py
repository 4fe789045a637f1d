"""The check after Arrow has inferred types: no floating number from whole digits, no truth value from a digit, no local
time from a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import SchemaConflict
from lakebed.schema.arrow import MAX_PRECISION

# Whole numbers up to this one are exact as floating numbers.
EXACT = 1 << 53
# Those of an unsigned number of 64 bits, for which Hudi has a decimal of this width, too.
_LONG_DIGITS = 20
MAX_DECIMAL = pa.decimal128(MAX_PRECISION, 0)
_INTEGER = r"^[+-]?[0-9]+$"
_HEX = r"^[+-]?0[xX]"
_ZERO_LED = r"^0[0-9]+$"
LOCAL_TIME = pa.timestamp("us")
MOMENT = pa.timestamp("us", "UTC")


def has_decimals(kind: pa.DataType) -> bool:
    """Whether the type is a decimal or has one inside.

    >>> has_decimals(pa.list_(pa.decimal128(5, 2))), has_decimals(pa.list_(pa.int64()))
    (True, False)
    """
    if pt.is_nested(kind):
        return any(has_decimals(kind.field(at).type) for at in range(kind.num_fields))
    return pt.is_decimal(kind)


def has_large(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a finite number is so large that as a floating-point number it may stand for a neighbouring whole
    number."""
    finite = column.filter(pc.is_finite(column))
    greatest, least = (pa.scalar(bound, column.type) for bound in (EXACT, -EXACT))
    beyond = pc.or_(pc.greater_equal(finite, greatest), pc.less_equal(finite, least))
    return bool(pc.any(beyond).as_py())


def integer_type(digits: int) -> pa.DataType:
    """The decimal type for whole numbers with `digits` digits; text if there is no such type."""
    if digits > MAX_PRECISION:
        return pa.string()
    return pa.decimal128(_LONG_DIGITS if digits <= _LONG_DIGITS else MAX_PRECISION, 0)


@dataclass
class FloatingNumbers:
    """The floating-point numbers that Arrow has inferred in one column, in one batch or in several."""

    has_fraction: bool = False
    has_large: bool = False

    def add(self, column: pa.Array) -> None:
        """Add more numbers of the column."""
        finite = column.filter(pc.is_finite(column))
        self.has_fraction |= pc.all(pc.equal(finite, pc.trunc(finite))).as_py() is False
        self.has_large |= has_large(finite)

    @property
    def may_be_integers(self) -> bool:
        """Whether the numbers may be written as whole digits: all are whole, or one is too large to be exact."""
        return self.has_large or not self.has_fraction


@dataclass
class NumberTexts:
    """The properties of the texts of one column of numbers, in one batch or in several."""

    others: bool = False
    hexadecimal: bool = False
    inexact: bool = False
    digits: int = 0
    is_long: bool = True
    zero_led: str | None = None

    def add(self, texts: pa.Array | pa.ChunkedArray) -> None:
        """Add more texts of the column."""
        texts = pc.drop_null(pc.utf8_trim_whitespace(texts))
        is_integer = pc.match_substring_regex(texts, _INTEGER)
        self.others |= pc.all(is_integer).as_py() is False
        self.hexadecimal |= bool(pc.any(pc.match_substring_regex(texts, _HEX)).as_py())
        if self.zero_led is None and pc.any(zeros := pc.match_substring_regex(texts, _ZERO_LED)).as_py():
            self.zero_led = str(texts[pc.index(zeros, True).as_py()])
        digits_only = _plain_digits(texts.filter(is_integer))
        if not len(digits_only):
            return
        digits = pc.max(pc.utf8_length(pc.utf8_ltrim(digits_only, "-"))).as_py()
        self.digits = max(self.digits, digits)
        if digits > MAX_PRECISION:
            self.inexact, self.is_long = True, False
            return
        numbers = digits_only.cast(MAX_DECIMAL)
        self.inexact |= not _fits(numbers, -EXACT, EXACT)
        self.is_long = self.is_long and _fits(numbers, -(1 << 63), (1 << 63) - 1)

    @property
    def type(self) -> pa.DataType:
        """The type that keeps all values."""
        if self.others:
            return pa.string() if self.inexact or self.hexadecimal else pa.float64()
        if self.zero_led is not None:
            return pa.string()  # a code, such as that of a place, whose zeros are part of it
        return pa.int64() if self.is_long else integer_type(self.digits)


def integers_of_texts(texts: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Texts of whole digits, which may have a plus sign, as numbers of the type. Raises `ArrowInvalid` for other
    texts."""
    texts = pc.utf8_trim_whitespace(texts)
    if pc.all(pc.match_substring_regex(texts, _INTEGER)).as_py() is False:
        raise pa.ArrowInvalid("a text is no whole number")
    return _plain_digits(texts).cast(kind)


def _plain_digits(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The texts without plus signs and leading zeros."""
    return pc.replace_substring_regex(texts, r"^(?:\+|(-))?0*([0-9])", r"\1\2")


def _fits(numbers: pa.Array | pa.ChunkedArray, minimum: int, maximum: int) -> bool:
    bounds = [pa.scalar(bound, MAX_DECIMAL) for bound in (minimum, maximum)]
    inside = pc.and_(pc.greater_equal(numbers, bounds[0]), pc.less_equal(numbers, bounds[1]))
    return pc.all(inside).as_py() is not False


def time_type(texts: pa.Array | pa.ChunkedArray) -> pa.DataType:
    """The type of texts each of which is a date or a time: dates if none has a time of day, moments if all have an
    offset, local times if none has, otherwise text.

    >>> str(time_type(pa.array(["2024-01-01T00:00:00Z"]))), str(time_type(pa.array(["2024-01-01"])))
    ('timestamp[us, tz=UTC]', 'date32[day]')
    """
    for kind in (pa.date32(), LOCAL_TIME, MOMENT):
        try:
            texts.cast(kind)
            return kind
        except pa.ArrowInvalid:
            pass
    return pa.string()


def unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of all schemas in types that can hold the values of each. Raises `SchemaConflict` if there is no such
    type: Arrow would convert decimals to floating-point numbers, which changes them."""
    for name in {name for schema in schemas for name in schema.names}:
        kinds = [schema.field(name).type for schema in schemas if name in schema.names]
        if (clash := _clash(kinds)) is not None:
            raise SchemaConflict(f"column {name} has {clash[0]} and {clash[1]}, which have no type together")
    try:
        return pa.unify_schemas(list(schemas), promote_options="permissive")
    except pa.ArrowException as error:
        raise SchemaConflict(str(error)) from error


def _clash(kinds: Sequence[pa.DataType]) -> tuple[pa.DataType, pa.DataType] | None:
    """A decimal and a floating-point type in one position of the types; None if there is no such pair."""
    decimal, floating = (next(filter(test, kinds), None) for test in (pt.is_decimal, pt.is_floating))
    if decimal is not None and floating is not None:
        return decimal, floating
    inner = [kind.value_type for kind in kinds if pt.is_list(kind)]
    if inner and (clash := _clash(inner)) is not None:
        return clash
    structs = [kind for kind in kinds if pt.is_struct(kind)]
    for name in {field.name for kind in structs for field in kind}:
        parts = [kind.field(name).type for kind in structs if kind.get_field_index(name) >= 0]
        if (clash := _clash(parts)) is not None:
            return clash
    return None
