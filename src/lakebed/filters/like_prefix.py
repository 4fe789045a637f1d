"""The text that everything matching a LIKE pattern begins with."""

from __future__ import annotations

from typing import Literal

_WILDCARDS = ("%", "_")
_SURROGATES = range(0xD800, 0xE000)
_LAST = 0x10FFFF


def like_prefix(pattern: str) -> tuple[str, Literal["equal", "prefix", "more"]]:
    r"""The text in front of a pattern's first wildcard (`\` escapes), and what is asked beyond it: `equal` (there is no
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


def text_after(prefix: str) -> str | None:
    """The least text greater than all that begin with the prefix, in code point order; None where there is none.

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
