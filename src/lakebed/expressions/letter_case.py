"""Texts in upper and lower case as Spark has them: by the full mappings of Unicode, in which letters become several
(`ß`, `İ`, ligatures) and a sigma is written by its place in a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions.arrow_functions import call, register

# Letters whose other case came to Unicode with versions 15 and 16, and their pairs, lower case first: Spark's library
# knows version 16, Python an older one and Arrow a newer one.
_NEW_PAIRS: Final = (
    ("\u0264", "\ua7cb"),
    ("\u019b", "\ua7dc"),
    ("\u1c8a", "\u1c89"),
    ("\ua7cd", "\ua7cc"),
    ("\ua7db", "\ua7da"),
    *((chr(0x10D70 + n), chr(0x10D50 + n)) for n in range(22)),
)
_NEW_UPPER: Final = str.maketrans(dict(_NEW_PAIRS))
_NEW_LOWER: Final = str.maketrans({upper: lower for lower, upper in _NEW_PAIRS})
# Letters that Arrow gives otherwise than Spark: those that become several, a sigma, and those of newer versions.
_SEVERAL_UPPER: Final = (
    r"\x{DF}\x{149}\x{1F0}\x{390}\x{3B0}\x{587}\x{1E96}-\x{1E9A}\x{1F50}-\x{1F57}\x{1F80}-\x{1FFC}"
    r"\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}"
)
_NEW: Final = (
    r"\x{19B}\x{264}\x{277}\x{27C}\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CF}\x{A7D2}-\x{A7D5}\x{A7DA}-\x{A7DD}\x{A7E0}-\x{A7EF}"
    r"\x{AB4B}-\x{AB4C}\x{AB6C}-\x{AB6D}\x{10D50}-\x{10D85}\x{16EA0}-\x{16ED3}\x{1DF00}-\x{1DFFF}"
)


class _Case(NamedTuple):
    ascii: Callable[[pa.Array], pa.Array]
    utf8: Callable[[pa.Array], pa.Array]
    odd: str
    """A pattern of the letters for which Arrow's kernels are not enough."""
    mapped: Callable[[str], str]


_UPPER: Final = _Case(
    pc.ascii_upper, pc.utf8_upper, f"[{_SEVERAL_UPPER}{_NEW}]", lambda text: text.translate(_NEW_UPPER).upper()
)
_LOWER: Final = _Case(
    pc.ascii_lower, pc.utf8_lower, rf"[\x{{130}}\x{{3A3}}{_NEW}]", lambda text: text.translate(_NEW_LOWER).lower()
)


def upper(values: pa.Array) -> pa.Array:
    """The texts in upper case, as Java converts them.

    >>> upper(pa.array(["straße", "ﬁ", "o", None])).to_pylist()
    ['STRASSE', 'FI', 'O', None]
    """
    return _changed(values, _UPPER)


def lower(values: pa.Array) -> pa.Array:
    """The texts in lower case, as Java converts them.

    >>> lower(pa.array(["ΟΔΟΣ", "ΣΑΣ.", "İ"])).to_pylist() == ["οδος", "σας.", "i̇"]
    True
    """
    return _changed(values, _LOWER)


def _changed(values: pa.Array, case: _Case) -> pa.Array:
    if pc.all(pc.string_is_ascii(values)).as_py() is not False:
        return case.ascii(values)
    converted = case.utf8(values)
    odd = pc.fill_null(pc.match_substring_regex(values, case.odd), False)
    if not pc.any(odd).as_py():
        return converted
    coded = values.filter(odd).dictionary_encode()  # each such text once
    texts = pa.array([case.mapped(text) for text in coded.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(converted, odd, texts.take(coded.indices))


def expression(name: str, text: pc.Expression) -> pc.Expression:
    """A text of an expression in "upper" or "lower" case."""
    return call(name, text)


for _name, _function in (("upper", upper), ("lower", lower)):
    register(_name, f"{_name} case as Spark has it", {"text": pa.string()}, pa.string(), _function)
