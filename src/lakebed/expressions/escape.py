"""Escaping of partition values, as Hive does it: the same 48 characters as `%XX`, nothing else."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.expressions.base import sql_literal

_ESCAPED = "%" + "".join(map(chr, range(0x20))) + "\x7f" + "\"#'*/:=?\\{[]^"
_ENCODED = re.compile("%([0-9A-Fa-f]{2})")
_ANY = "[\\x00-\\x1f\\x7f\"#%'*/:=?\\\\{\\[\\]^]"


def escape_sql(text: str) -> str:
    """Spark SQL of the escaped text; `text` is repeated."""
    escaped = text
    # the percent sign comes first: what is put in holds percent signs
    for char in _ESCAPED:
        escaped = f"replace({escaped}, {sql_literal(char)}, '%{ord(char):02X}')"
    return f"CASE WHEN {text} RLIKE {sql_literal(_ANY)} THEN {escaped} ELSE {text} END"


def escape_arrow(values: pa.Array) -> pa.Array:
    """The escaped texts; null stays null.

    >>> escape_arrow(pa.array(["a/b c", None])).to_pylist()
    ['a%2Fb c', None]
    """
    if not pc.any(pc.match_substring_regex(values, _ANY)).as_py():
        return values
    # partition values repeat: each is escaped once
    coded = values.dictionary_encode()
    escaped = coded.dictionary
    for char in _ESCAPED:
        escaped = pc.replace_substring(escaped, char, f"%{ord(char):02X}")
    return escaped.take(coded.indices)


def escape(text: str) -> str:
    """One escaped text.

    >>> escape("2024/02/03 04:05")
    '2024%2F02%2F03 04%3A05'
    """
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def unescape(text: str) -> str:
    """The text behind an escaped one; `%` with no two hex digits after it stays.

    >>> unescape("a%2Fb%zz")
    'a/b%zz'
    """
    return _ENCODED.sub(lambda found: chr(int(found[1], 16)), text)
