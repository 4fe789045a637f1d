"""The words of texts, as an index stores them and a search looks for them.

A word is a run of letters, digits and the marks that belong to them, in lower case; everything else separates words.
The letters ß and ς are ss and σ. Each character of a script that is written without spaces (Han, Hiragana, Katakana)
is a word. Texts are normalised first (NFKC), so that characters that look equal are equal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings
from lakebed.schema.plain_arrow import as_numpy, one_array

Numbers = npt.NDArray[np.int64]
_SEPARATORS: Final = r"[^\pL\pM\pN]+"
_ASCII_SEPARATORS: Final = r"[^0-9a-z]+"
_WITHOUT_SPACES: Final = r"([\p{Han}\p{Hiragana}\p{Katakana}])"
# Lower-case letters that come from one letter in upper case: of words in capitals nothing tells which it was.
_FOLDED: Final = (("ς", "σ"), ("ß", "ss"))
MAX_WORD_BYTES: Final = 255
"""Longer words are left out; they still count for the length of a text."""


@dataclass(frozen=True, eq=False)
class Words:
    """The words of texts: `texts` has the position of the text of each word, in ascending order, `codes` the position
    of the word among the different ones, `different`. `lengths` has the number of words of each text."""

    texts: Numbers
    codes: Numbers
    different: pa.StringArray
    lengths: Numbers


def words_of(texts: pa.Array) -> Words:
    """The words of texts without nulls.

    >>> words = words_of(pa.array(["The cat, the CAT.", "", "Ein Café"]))
    >>> words.different.take(pa.array(words.codes)).to_pylist()
    ['the', 'cat', 'the', 'cat', 'ein', 'café']
    >>> words.texts.tolist(), words.lengths.tolist()
    ([0, 0, 0, 0, 2, 2], [4, 0, 2])
    """
    strings = plain_strings(texts).cast(pa.string())
    is_ascii = as_numpy(pc.string_is_ascii(strings))
    if is_ascii.all():
        lists: Any = pc.split_pattern_regex(pc.ascii_lower(strings), _ASCII_SEPARATORS)
    else:
        lists = pc.split_pattern_regex(_folded(strings), _SEPARATORS)
    offsets = as_numpy(lists.offsets).astype(np.int64)
    every = lists.flatten().dictionary_encode()
    codes = as_numpy(every.indices).astype(np.int64)
    sizes = as_numpy(pc.binary_length(every.dictionary))
    numbers = np.repeat(np.arange(len(strings)), np.diff(offsets))
    is_word = sizes[codes] > 0
    lengths = np.bincount(numbers[is_word], minlength=len(strings))
    is_usable = is_word & (sizes[codes] <= MAX_WORD_BYTES)
    usable = np.flatnonzero((sizes > 0) & (sizes <= MAX_WORD_BYTES))
    positions = np.full(len(sizes), -1)
    positions[usable] = np.arange(len(usable))
    different = one_array(every.dictionary.take(pa.array(usable)))
    return Words(numbers[is_usable], positions[codes[is_usable]], different, lengths)


def query_words(query: str) -> dict[str, int]:
    """The different words of a query, in ascending order, each with the number of times that it comes.

    >>> query_words("Cats and CATS")
    {'and': 1, 'cats': 2}
    """
    words = words_of(pa.array([query], pa.string()))
    counts = Counter(words.different.take(pa.array(words.codes)).to_pylist())
    return dict(sorted(counts.items(), key=lambda item: item[0].encode()))


def _folded(strings: pa.Array) -> pa.Array:
    # once more normalised, since the lower case of a composed character may be decomposed
    lowered = pc.utf8_normalize(pc.utf8_lower(pc.utf8_normalize(strings, form="NFKC")), form="NFKC")
    for written, folded in _FOLDED:
        lowered = pc.replace_substring(lowered, written, folded)
    has_none = pc.match_substring_regex(lowered, _WITHOUT_SPACES)
    if not pc.any(has_none).as_py():
        return lowered
    return pc.if_else(has_none, pc.replace_substring_regex(lowered, _WITHOUT_SPACES, r" \1 "), lowered)
