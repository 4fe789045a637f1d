"""Names, constants and LIKE patterns as Spark SQL text that means the same in every session; columns by a user's
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption
from lakebed.expressions.base import sql_literal
from lakebed.schema.column_names import did_you_mean, nearest_name


def quote_name(name: str) -> str:
    """A name in backquotes.

    >>> quote_name("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def spark_literal(value: Any, type_: pa.DataType) -> str:
    """A typed constant as Spark SQL; timestamps carry their zone, so the session's does not matter."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"{value}L" if pa.types.is_int64(type_) and value > -(2**63) else str(value)
        case Decimal():
            return f"CAST('{value:f}' AS DECIMAL({type_.precision}, {type_.scale}))"
        case float():
            return f"CAST('{value!r}' AS {'FLOAT' if pa.types.is_float32(type_) else 'DOUBLE'})"
        case str():
            return sql_literal(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")
            if value.tzinfo is None:
                return f"TIMESTAMP_NTZ '{text}'"
            offset = value.strftime("%z")
            return f"TIMESTAMP '{text}{offset[:3]}:{offset[3:5]}'"
        case list():
            return f"array({', '.join(spark_literal(item, type_.value_type) for item in value)})"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            raise InvalidOption(f"a constant of type {type_} is not possible in a condition")


_WILDCARDS = ("%", "_")
_SURROGATES = range(0xD800, 0xE000)
_LAST = 0x10FFFF


def like_prefix(pattern: str) -> tuple[str, Literal["equal", "prefix", "more"]]:
    r"""The text before a pattern's first wildcard (`\` escapes), and the remaining condition: `equal` (there is no
    wildcard), `prefix` (anything may follow), `more`.

    >>> like_prefix("ab%"), like_prefix(r"50\%"), like_prefix("a_c%")
    (('ab', 'prefix'), ('50%', 'equal'), ('a', 'more'))
    """
    text: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char in _WILDCARDS:
            return "".join(text), "prefix" if set(pattern[at:]) == {"%"} else "more"
        if char == "\\" and at + 1 < len(pattern):
            at += 1
            char = pattern[at]
        text.append(char)
        at += 1
    return "".join(text), "equal"


_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_SPACES = r" \t\n\x0B\f\r"
_SAME_ESCAPES = frozenset("dDwWtnrf")
_PUNCTUATION = frozenset(r".^$|?*+()[]{}\/-")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d{1,3})(?:,(\d{0,3}))?\})\??", re.ASCII)
_CLASS = re.compile(r"\[\^?(?:\\.|[^\[\]\\&^])+\]", re.DOTALL)


def arrow_pattern(pattern: str) -> str | None:
    r"""The regular expression of Arrow's RE2 with the same matches as one of Java's; None if it has parts that the two
    may read differently (word boundaries, look-around, back references, flags, classes inside classes).

    >>> arrow_pattern(r"^R\d+\.x"), arrow_pattern(r"\bR")
    ('^R\\d+\\.x', None)
    """
    parts: list[str] = []
    at, may_repeat = 0, False
    while at < len(pattern):
        remaining = pattern[at:]
        if match := _QUANTIFIER.match(remaining):
            if not may_repeat or remaining[match.end() : match.end() + 1] in ("+", "*", "?", "{"):
                return None
            parts.append(match[0])
            at, may_repeat = at + match.end(), False
            continue
        if match := _CLASS.match(remaining):
            escapes = {escape[1] for escape in re.finditer(r"\\(.)", match[0], re.DOTALL)}
            if not escapes <= (_SAME_ESCAPES | _PUNCTUATION | {"s"}) or {"s", "\\"} <= escapes:
                return None
            parts.append(match[0].replace("\\s", _SPACES) if "s" in escapes else match[0])
            at, may_repeat = at + match.end(), True
            continue
        part, size = _one_of_pattern(remaining)
        if part is None:
            return None
        parts.append(part)
        at, may_repeat = at + size, part not in ("^", "(", "(?:", "|") and remaining[0] != "$"
    # before the end of a text Java's $ knows the pair of two line ends, which another part could take apart
    if "$" in pattern and re.search(r"\[\^|\\[sSDWr]|\r", pattern):
        return None
    try:
        pc.match_substring_regex(pa.array([""]), "".join(parts))
    except pa.ArrowInvalid:
        return None
    return "".join(parts)


def _one_of_pattern(pattern: str) -> tuple[str | None, int]:
    """The first element of a pattern in RE2's syntax, None if RE2 may read it differently; and its length."""
    char = pattern[0]
    if char == "\\":
        following = pattern[1:2]
        if following in _PUNCTUATION or following in _SAME_ESCAPES:
            return (pattern[:2] if following else None), 2
        return {"s": f"[{_SPACES}]", "S": f"[^{_SPACES}]"}.get(following), 2
    if char == "(":
        return ("(?:", 3) if pattern.startswith("(?:") else (None if pattern.startswith("(?") else "(", 1)
    if char == ".":
        return f"[^{_LINE_ENDS}]", 1
    if char == "$":
        return rf"(?:\r\n|[{_LINE_ENDS}])?\z", 1
    return (None if char in "*+?[]{}" else char), 1


def text_after(prefix: str) -> str | None:
    """The least text greater than all that begin with the prefix, in code point order; None if there is none.

    >>> text_after("ab"), text_after("a" + chr(0x10FFFF)), text_after(chr(0x10FFFF))
    ('ac', 'b', None)
    """
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= _LAST:
            return prefix[:at] + chr(code)
    return None


def resolve_columns(names: Iterable[str], schema: pa.Schema) -> list[str]:
    """The columns of these names as the schema spells them, each once; see `resolve_column`."""
    existing = frozenset(schema.names)
    return list(dict.fromkeys([name if name in existing else resolve_column(name, schema).name for name in names]))


def resolve_column(name: str, schema: pa.Schema) -> pa.Field:
    """The column of that name, exactly or in another case. Raises `InvalidOption`, which names the nearest, for an
    unknown one."""
    at = schema.get_field_index(name)
    if at >= 0:
        return schema.field(at)
    for field in schema:
        if field.name.lower() == name.lower():
            return field
    raise InvalidOption(
        f"no column {name!r} in the table",
        hint=did_you_mean(name, schema.names),
        context={"column": name, "nearest": nearest_name(name, schema.names)},
    )
