"""BM25: how well texts match the words of a query.

The score of a text is the sum over the words of the query of `idf * n * (K1 + 1) / (n + K1 * (1 - B + B * length /
average))`, where `n` is how often the text has the word, `length` the number of its words, and `average` that number
for all texts. `idf` is `log(1 + (texts - having + 0.5) / (having + 0.5))`, with the number of texts that have the word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.text_index.words import Numbers, words_of

Doubles = npt.NDArray[np.float64]
K1: Final = 1.2
B: Final = 0.75


@dataclass(frozen=True)
class Statistics:
    """The number of all texts, and that of their words: the score of each text depends on both."""

    texts: int
    words: int

    @property
    def average(self) -> float:
        """The mean number of words of a text, at least the least positive number that scores can be computed with."""
        return max(self.words, 1) / max(self.texts, 1)

    def idf(self, having: int) -> float:
        """The weight of a word that so many texts have."""
        return log(1 + (self.texts - having + 0.5) / (having + 0.5))

    def parts(self, counts: Numbers, lengths: Numbers) -> Doubles:
        """The share of one word in the scores of texts that have it so often and are so long, without its weight."""
        norms = K1 * (1 - B + B * lengths / self.average)
        return counts * (K1 + 1) / (counts + norms)


@dataclass(frozen=True)
class Query:
    """The words of a query, each with the number of times that it comes, and how many texts have each of them."""

    words: Mapping[str, int]
    having: Mapping[str, int]
    statistics: Statistics

    def weight(self, word: str) -> float:
        """The weight of a word in the scores of this query."""
        return self.words[word] * self.statistics.idf(self.having[word])

    def scores(self, texts: pa.Array) -> Doubles:
        """The scores of texts without nulls; 0 for one that has none of the words."""
        words = words_of(texts)
        scores = np.zeros(len(texts))
        for word in self.words:
            code = pc.index(words.different, pa.scalar(word)).as_py()
            if code < 0:
                continue
            counts = np.bincount(words.texts[words.codes == code], minlength=len(texts))
            rows = np.flatnonzero(counts)
            scores[rows] += self.weight(word) * self.statistics.parts(counts[rows], words.lengths[rows])
        return scores
