from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import lakebed
from lakebed.other_names import OF_MERGE, OF_PACKAGE, OF_TABLE


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    return lakebed.create(str(tmp_path / "t"), {"id": [1], "n": [1]}, key="id")


@pytest.mark.parametrize("name", OF_TABLE)
def test_a_method_of_another_library_is_answered_with_that_of_lakebed(table: lakebed.Table, name: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(table, name)
    assert str(raised.value) == f"lakebed.Table has no attribute {name!r}: {OF_TABLE[name]}"


def test_a_clause_of_another_library_is_answered_with_that_of_lakebed(table: lakebed.Table) -> None:
    merge = table.merge({"id": [1], "n": [2]})
    for name, ours in OF_MERGE.items():
        with pytest.raises(AttributeError, match=f"a merge has no attribute {name!r}: "):
            getattr(merge, name)
        assert hasattr(merge, ours.partition("(")[0])


def test_a_function_of_another_library_is_answered_with_that_of_lakebed() -> None:
    for name, ours in OF_PACKAGE.items():
        if name == "read":  # a package, once a table was read
            continue
        with pytest.raises(AttributeError) as raised:
            getattr(lakebed, name)
        assert str(raised.value) == f"lakebed has no attribute {name!r}: {ours}"


def test_a_call_of_the_package_of_reads_names_what_reads_a_table(table: lakebed.Table) -> None:
    assert table.count() == 0  # imports it
    with pytest.raises(TypeError) as raised:
        lakebed.read(table.uri)  # pyright: ignore[reportCallIssue]
    assert str(raised.value) == f"lakebed.read is a package: {OF_PACKAGE['read']}"


def test_a_slip_of_the_pen_is_answered_with_the_nearest_name(table: lakebed.Table) -> None:
    with pytest.raises(AttributeError, match=r"lakebed\.Table has no attribute 'upserts': did you mean 'upsert'"):
        table.upserts  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018
    with pytest.raises(AttributeError, match="lakebed has no attribute 'opn': did you mean 'open'"):
        lakebed.opn  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018
    assert not hasattr(table, "zzz")


def test_tables_are_copied_and_pickled_as_before(table: lakebed.Table) -> None:
    table.upsert({"id": [1], "n": [1]})
    for twin in (copy.copy(table), pickle.loads(pickle.dumps(table))):
        assert twin.count() == 1


def test_no_name_of_another_library_hides_one_of_lakebed() -> None:
    assert not OF_TABLE.keys() & set(dir(lakebed.Table))
    assert not OF_PACKAGE.keys() & set(lakebed.__all__)
