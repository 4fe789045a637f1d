"""Locations in entries: one place in several spellings, and places that only look alike."""

from __future__ import annotations

import pytest

from lakebed.catalog.base import is_below, same_location, unanswered


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("s3a://lake/t", "s3://lake/t/", True),
        ("s3n://lake/t", "s3://lake/t", True),
        ("file:/lake/t", "file:///lake/t/", True),
        ("file:///lake/a b", "/lake/a b", True),
        ("abfs://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t", True),
        ("hdfs://nn:8020/lake/t", "hdfs://nn:8020/lake/t", True),
        ("dbfs:/lake/t", "dbfs:/lake/t/", True),
        ("gs://lake/t", "s3://lake/t", False),
        ("hdfs://nn:8020/lake/t", "hdfs://other:8020/lake/t", False),
        ("hdfs://lake/t", "s3://lake/t", False),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@b.dfs.core.windows.net/t", False),
        ("s3://lake/t", "s3://lake/T", False),
        ("dbfs:/lake/t", "/lake/t", False),
        ("", "/lake/t", False),
    ],
)
def test_two_spellings_of_one_place_are_one_location(one: str, other: str, same: bool) -> None:
    assert same_location(one, other) is same
    assert same_location(other, one) is same


@pytest.mark.parametrize(
    ("location", "root", "below"),
    [
        ("s3a://lake/t/day=1", "s3://lake/t", True),
        ("file:/lake/t/day=1", "/lake/t", True),
        ("s3://lake/t", "s3://lake", True),
        ("gs://lake/t/day=1", "s3://lake/t", False),
        ("s3://lake/t2/day=1", "s3://lake/t", False),
        ("s3://lake/t", "s3://lake/t", False),
        ("hdfs://other/t/day=1", "hdfs://nn/t", False),
        ("", "s3://lake/t", False),
    ],
)
def test_a_location_is_below_a_folder_of_the_same_store_only(location: str, root: str, below: bool) -> None:
    assert is_below(location, root) is below


@pytest.mark.parametrize(("doing", "hint"), [("list the databases", "reached from here"), ("write t", "register")])
def test_only_a_request_about_a_table_has_a_hint_to_register_it_again(doing: str, hint: str) -> None:
    error = unanswered("hive://localhost:1", doing, OSError("refused"))
    assert error.message == f"hive://localhost:1 failed to {doing}: OSError: refused"
    assert hint in error.hint
    assert ("register" in error.hint) == (hint == "register")
