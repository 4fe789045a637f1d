"""Texts become words: letters and digits in lower case, whatever separates them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.text_index.words import MAX_WORD_BYTES, query_words, words_of
from support.text_model import words as words_of_model

TEXTS = [
    "The cat, the CAT_and-dog!",
    "",
    "  ... ",
    "Été ÉTÉ e\u0301te\u0301",
    "naïve Straße ΣΊΣΥΦΟΣ",
    "हिन्दी में लिखा",
    "東京タワー and ひらがな",
    "ﬁne ½ x² №5",
    "ไทย 한국어 العربية",
    "a1b2 3.14 it's",
    "STRASSE",
]


def listed(texts: pa.Array) -> list[list[str]]:
    words = words_of(texts)
    every = words.different.take(pa.array(words.codes)).to_pylist()
    of_texts = [[] for _ in range(len(texts))]
    for number, word in zip(words.texts.tolist(), every, strict=True):
        of_texts[number].append(word)
    assert words.lengths.tolist() == [len(found) for found in of_texts]
    return of_texts


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_of_every_script_have_the_words_of_the_model(kind: pa.DataType) -> None:
    assert listed(pa.array(TEXTS, kind)) == [words_of_model(text) for text in TEXTS]
    for text in TEXTS:  # by themselves, so that those of ASCII are folded another way
        assert listed(pa.array([text], kind)) == [words_of_model(text)]


def test_a_slice_and_no_texts_have_their_words() -> None:
    assert listed(pa.array(["one", "two three", "four"]).slice(1, 1)) == [["two", "three"]]
    assert listed(pa.array([], pa.string())) == []
    assert words_of(pa.array(["", "-"])).different.to_pylist() == []


def test_a_word_beyond_the_bound_is_left_out_and_counts_for_the_length() -> None:
    longest = "x" * MAX_WORD_BYTES
    assert listed(pa.array([f"a {longest}"])) == [["a", longest]]
    words = words_of(pa.array([f"a {longest}x"]))
    assert words.different.to_pylist() == ["a"]
    assert words.lengths.tolist() == [2]
    assert words_of(pa.array(["é" * 128])).lengths.tolist() == [1]
    assert words_of(pa.array(["é" * 128])).different.to_pylist() == []


def test_a_query_has_its_different_words_with_their_numbers() -> None:
    assert query_words("b A b é") == {"a": 1, "b": 2, "é": 1}
    assert list(query_words("z é a")) == ["a", "z", "é"]
    assert query_words(" .,- ") == {}
