"""Search by words as a model: plain Python over rows."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from math import log
from typing import Any

_NO_SPACES = re.compile("([\u3040-\u30ff\u4e00-\u9fff])")


def words(text: str) -> list[str]:
    """The words of a text: runs of letters, digits and marks in lower case; one of each character of Han and Kana."""
    folded = (
        unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower()).replace("ς", "σ").replace("ß", "ss")
    )
    separated = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in folded)
    return _NO_SPACES.sub(r" \1 ", separated).split()


def best_rows(
    rows: Sequence[dict[str, Any]], query: str, allowed: Callable[[dict[str, Any]], bool] | None = None
) -> list[tuple[float, dict[str, Any]]]:
    """All rows that have a word of the query, with their scores by BM25 over all rows with a text, the best first; rows
    with equal scores by the text of their key. `allowed` leaves some rows."""
    texts = [(row, Counter(words(row["body"]))) for row in rows if row["body"] is not None]
    average = max(1, sum(sum(counts.values()) for _, counts in texts)) / max(1, len(texts))
    scored: list[tuple[float, dict[str, Any]]] = []
    for row, counts in texts:
        score = 0.0
        norm = 1.2 * (1 - 0.75 + 0.75 * sum(counts.values()) / average)
        for word in sorted(words(query)):
            having = sum(word in of_other for _, of_other in texts)
            idf = log(1 + (len(texts) - having + 0.5) / (having + 0.5))
            score += idf * counts[word] * 2.2 / (counts[word] + norm) if counts[word] else 0.0
        if score > 0 and (allowed is None or allowed(row)):
            scored.append((score, row))
    return sorted(scored, key=lambda pair: (-round(pair[0], 9), str(pair[1]["id"])))
