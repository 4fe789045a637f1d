"""Java properties text: what Java writes is read, what we write Java would read the same."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptFile
from lakebed.format.text import dump_properties, parse_properties

WHEN = datetime(2026, 11, 21, 1, 39, 16, 705428, tzinfo=UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a=b", {"a": "b"}),
        (b"a:b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        (b"  a \t=  b  ", {"a": "b  "}),
        (b"# comment\n! other\n\n   \na=1\na=2", {"a": "2"}),
        (b"a=one,\\\n   two\\\r\n\tthree", {"a": "one,twothree"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"a=b\\", {"a": "b"}),
        (b"a\\ b\\:c\\=d=e\\:f=g", {"a b:c=d": "e:f=g"}),
        (b"a=\\tx\\ny\\qz", {"a": "\tx\nyqz"}),
        (b"a=\\u00e9\\uD83D\\uDE00", {"a": "é😀"}),
        (b"a=\xe9", {"a": "é"}),
        (b"#not continued\\\na=b", {"a": "b"}),
    ],
)
def test_parses_as_java_does(text: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_dumps_as_java_does() -> None:
    props = {"part": "region:SIMPLE,ts:TIMESTAMP", "k 1": " x\ty", "z": "é😀#!\\", "blank": ""}
    assert dump_properties(props, "Updated at now", WHEN) == (
        b"#Updated at now\n"
        b"#Sat Nov 21 01:39:16 UTC 2026\n"
        b"part=region\\:SIMPLE,ts\\:TIMESTAMP\n"
        b"k\\ 1=\\ x\\ty\n"
        b"z=\\u00E9\\uD83D\\uDE00\\#\\!\\\\\n"
        b"blank=\n"
    )


@settings(deadline=None)
@given(st.dictionaries(TEXTS, TEXTS))
def test_properties_of_any_text_are_read_back(props: dict[str, str]) -> None:
    assert parse_properties(dump_properties(props, "comment", WHEN)) == props


def test_a_broken_escape_is_refused() -> None:
    with pytest.raises(CorruptFile, match="escape"):
        parse_properties(b"a=\\u12g4")
