"""The smallest and greatest record key of a base file, in the order of Java strings (UTF-16 code units)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import value_buffer

# First byte of a UTF-8 character outside the basic plane: only there do UTF-8 and UTF-16 sort differently.
_BEYOND_BASIC_PLANE = 0xF0


def _java_order(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


class KeyRange:
    """Grows with each batch of keys.

    >>> keys = KeyRange()
    >>> keys.add(pa.array(["b", "a", "c"]))
    >>> keys.range()
    ('a', 'c')
    """

    def __init__(self, low: str | None = None, high: str | None = None) -> None:
        self._low = low
        self._high = high

    def add(self, keys: pa.Array) -> None:
        for key in _extremes(keys):
            if self._low is None or _java_order(key) < _java_order(self._low):
                self._low = key
            if self._high is None or _java_order(key) > _java_order(self._high):
                self._high = key

    def range(self) -> tuple[str | None, str | None]:
        return self._low, self._high


def _extremes(keys: pa.Array) -> list[str]:
    """Keys among which the range's ends are."""
    if len(keys) == 0:
        return []
    data, offsets = value_buffer(keys)
    used = data[offsets[0] : offsets[-1]]
    if used.size and used.max() >= _BEYOND_BASIC_PLANE:
        odd = pc.match_substring_regex(keys, r"[\x{10000}-\x{10FFFF}]")
        plain = keys.filter(pc.invert(odd))
        return [*keys.filter(odd).to_pylist(), *_extremes(plain)]  # rare: keys with characters outside the basic plane
    ends = pc.min_max(keys).as_py()
    return [ends["min"], ends["max"]]
