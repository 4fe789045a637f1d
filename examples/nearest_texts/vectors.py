"""Vectors of texts by latent semantic analysis: TF-IDF weights of words, reduced by a singular value decomposition."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"[a-z]{3,}")


@dataclass(frozen=True)
class Embedding:
    """Turns texts into vectors. `fit` learns it from the texts of a collection."""

    words: Mapping[str, int]
    weights: npt.NDArray[np.float64]
    axes: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, texts: Sequence[str], dimension: int) -> Embedding:
        """The embedding of these texts in `dimension` numbers: words of two texts or more count."""
        counts = [Counter(_WORD.findall(text.lower())) for text in texts]
        texts_of_word = Counter(word for count in counts for word in count)
        words = {word: n for n, word in enumerate(sorted(w for w, number in texts_of_word.items() if number > 1))}
        weights = np.array([np.log(len(texts) / texts_of_word[word]) for word in words])
        matrix = np.stack([_row(count, words, weights) for count in counts])
        _, _, axes = np.linalg.svd(matrix, full_matrices=False)
        return cls(words, weights, axes[:dimension])

    def __call__(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """A matrix with a row for each text."""
        rows = [_row(Counter(_WORD.findall(text.lower())), self.words, self.weights) for text in texts]
        return (np.stack(rows) @ self.axes.T).astype(np.float32)


def _row(
    count: Mapping[str, int], words: Mapping[str, int], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    row = np.zeros(len(words))
    for word, number in count.items():
        if word in words:
            row[words[word]] = 1 + np.log(number)
    row *= weights
    length = np.linalg.norm(row)
    return row / length if length else row
