"""Values as Hudi's Java code prints them: in record keys, partition paths, and columns widened to string."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import SchemaConflict
from lakebed.schema.logical_types import is_bytes
from lakebed.schema.plain_arrow import as_numpy

# Below these, two digits are more exact than the shortest text that reads back the same: Java then prints two.
_TWO_DIGITS_BELOW = {pa.float32(): 1e-42, pa.float64(): 1e-321}
# Arrow prints decimals with a greater scale in scientific notation when they are small.
_PLAIN_SCALE = 6


def to_java_text(array: Any) -> pa.StringArray:
    """Each value of a column as text; null stays null.

    Floats and doubles as `Float.toString` and `Double.toString` (the shortest form, JDK 19 and later),
    decimals plain with their whole scale, dates in ISO form, timestamps as the stored number, binary as
    lower-case hex. Nested types raise `SchemaConflict`.

    >>> to_java_text(pa.array([1e10, 1.5, 100.0, 1e-5])).to_pylist()
    ['1.0E10', '1.5', '100.0', '1.0E-5']
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = array.type
    if pt.is_dictionary(kind):
        return to_java_text(array.dictionary).take(array.indices)
    if pt.is_floating(kind):
        return _float_text(array.cast(pa.float32()) if pt.is_float16(kind) else array)
    if pt.is_decimal(kind):
        return _decimal_text(array)
    if pt.is_date(kind):
        # LocalDate puts a plus before years of five digits
        return pc.replace_substring_regex(array.cast(pa.date32()).cast(pa.string()), r"^(\d{5,})", r"+\1")
    if pt.is_timestamp(kind) or pt.is_time64(kind):
        return array.cast(pa.int64()).cast(pa.string())
    if pt.is_time32(kind):
        return array.cast(pa.int32()).cast(pa.string())
    if is_bytes(kind):
        return _hex_text(array)
    if pt.is_nested(kind):
        raise SchemaConflict(
            f"a value of type {kind} has no text form",
            hint="Choose a column of a simple type.",
            context={"type": str(kind)},
        )
    return array.cast(pa.string())


def _float_text(values: pa.Array) -> pa.Array:
    """Java's text of floating-point numbers. Arrow prints the digits of Java (the shortest that give the same number)
    but sets point and exponent differently."""
    text = values.cast(pa.string())
    size = np.abs(as_numpy(pc.fill_null(values, 1)))
    plain = ((size >= 1e-3) & (size < 1e7)) | (size == 0)
    result = pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, ".0", ""))
    if plain.all():
        return result
    odd = np.flatnonzero(~plain)
    odd_values = values.take(pa.array(odd))
    return pc.replace_with_mask(result, pa.array(~plain), _odd_text(odd_values, text.take(pa.array(odd))))


def _odd_text(values: pa.Array, text: pa.Array) -> pa.Array:
    """The texts with those of NaN, infinities and numbers that Java prints with an exponent corrected."""
    written = pc.match_substring(text, "e")
    pointed = pc.match_substring(text, ".")
    exponent = pc.replace_substring(pc.replace_substring(text, "e+", "E"), "e", "E")
    scientific = pc.if_else(pointed, exponent, pc.replace_substring(exponent, "E", ".0E"))
    number = scientific if pc.all(written).as_py() else pc.if_else(written, scientific, _with_exponent(text))
    if not pc.all(pc.is_finite(values)).as_py():
        infinite = pc.if_else(pc.starts_with(text, "-"), "-Infinity", "Infinity")
        number = pc.if_else(pc.is_finite(values), number, pc.if_else(pc.is_nan(values), "NaN", infinite))
    return _two_digits(number, values)


def _with_exponent(text: pa.Array) -> pa.Array:
    """Numbers that Arrow wrote in full (12345678.5, 0.00012) in scientific notation."""
    body = pc.utf8_ltrim(text, "-")
    size, point = pc.utf8_length(body), pc.find_substring(body, ".")
    integer_digits = pc.if_else(pc.less(point, 0), size, point)
    digits = pc.replace_substring(body, ".", "")
    significant = pc.utf8_ltrim(digits, "0")
    zeros = pc.subtract(pc.utf8_length(digits), pc.utf8_length(significant))
    exponent = pc.subtract(pc.subtract(integer_digits, 1), zeros).cast(pa.string())
    trimmed = pc.utf8_rtrim(significant, "0")
    fraction = pc.utf8_slice_codeunits(trimmed, 1)
    return pc.binary_join_element_wise(
        pc.if_else(pc.starts_with(text, "-"), "-", ""),
        pc.utf8_slice_codeunits(trimmed, 0, 1),
        ".",
        pc.if_else(pc.equal(fraction, ""), "0", fraction),
        "E",
        exponent,
        "",
    )


def _two_digits(text: pa.Array, values: pa.Array) -> pa.Array:
    """The texts, with two digits for the smallest numbers (4.9E-324), as Java prints them, where one digit would
    suffice."""
    size = np.abs(as_numpy(values))
    tiny = (size > 0) & (size < _TWO_DIGITS_BELOW[values.type])
    if not tiny.any():
        return text
    numbers = np.unique(as_numpy(values)[tiny])
    printed = [f"{float(n):.1e}".replace("e-0", "E-").replace("e-", "E-") for n in numbers]
    short = pc.less_equal(pc.utf8_length(pc.replace_substring_regex(text, "[-.]|E.*", "")), 2)
    indices = pc.index_in(values, value_set=pa.array(numbers, values.type))
    return pc.if_else(pc.and_(pa.array(tiny), short), pa.array(printed).take(indices), text)


def _decimal_text(values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    scale = values.type.scale
    if scale <= _PLAIN_SCALE:
        return text
    scientific = pc.match_substring(text, "E")
    if not pc.any(scientific).as_py():
        return text
    # only small values come that way: the unscaled digits of 1.23E-9 are 123
    digits = pc.utf8_lpad(pc.replace_substring_regex(text, "[-.]|E.*", ""), scale, "0")
    plain = pc.binary_join_element_wise(pc.if_else(pc.starts_with(text, "-"), "-0.", "0."), digits, "")
    return pc.if_else(scientific, plain, text)


def _hex_text(values: pa.Array) -> pa.Array:
    """The bytes as hexadecimal texts, by two look-ups over the whole buffer."""
    values = values.cast(pa.large_binary())
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    used: npt.NDArray[np.uint8] = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.empty(2 * len(used), np.uint8)
    text[0::2], text[1::2] = digits[used >> 4], digits[used & 15]
    ends = pa.py_buffer(np.ascontiguousarray((offsets - offsets[0]) * 2))
    hex_texts = pa.Array.from_buffers(pa.large_string(), len(values), [None, ends, pa.py_buffer(text)])
    if values.null_count:
        hex_texts = pc.if_else(values.is_valid(), hex_texts, pa.scalar(None, pa.large_string()))
    return hex_texts.cast(pa.string())
